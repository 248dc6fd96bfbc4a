"""A federation in one process: round after round of one protocol over the simulator."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tacit.core.entropy import Entropy, RecordingEntropy, SeededEntropy, SymbolicEntropy, SystemEntropy
from tacit.core.errors import ConfigError, Drop, LeakRefused, NotEnough
from tacit.core.forms import Unknown, unknowns
from tacit.core.link import Link
from tacit.core.messages import MAX_MESSAGE, MAX_NAME, SESSION_BYTES, Address, Codec, Message
from tacit.core.outcome import Outcome, Transcript
from tacit.core.protocol import Config, Protocol
from tacit.core.suite import SERVER, Party, Suite, Update
from tacit.crypto.keys import Identity, roster
from tacit.crypto.suite import RealSuite
from tacit.crypto.symbolic import SymbolicSuite, World
from tacit.drivers.faults import Fault, plan
from tacit.drivers.inbox import Inbox
from tacit.drivers.simulator import Simulation, Task
from tacit.protocols import find
from tacit.vectors.fixedpoint import LARGEST, FixedPoint
from tacit.vectors.symbolic import FormTable, SymbolicRing


class ClippedWarning(UserWarning):
    """Entries were cut off at the clip, so the average is not that of the vectors as given."""


class Federation:
    """Parties that average vectors by one protocol. Keeps what must outlive a round."""

    def __init__(
        self,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        seed: int | None = 0,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        record: bool = False,
        symbolic: bool | Callable[[Unknown], float] = False,
        stand_ins: Mapping[Party, Any] | None = None,
        **options: Any,
    ) -> None:
        """Sets up identities and settings; raises ConfigError with every problem.

        `seed=None` takes randomness from the operating system. `symbolic` runs the protocol on unknowns instead of
        numbers, for audits; it may be a function that says what an unknown stands for where a choice depends on it.
        `stand_ins` puts other coroutines in the place of some parties', for attacks and tests.
        """
        self.protocol: Protocol = find(protocol)
        self.parties = tuple(parties)
        self.everyone = self.protocol.everyone(self.parties)
        kinds = [kind.__name__ for kind in self.protocol.messages]
        self.faults, problems = plan(faults, self.everyone, kinds)
        self.round = 0
        self.entries = entries
        self.inputs: list[Mapping[Party, Update]] = []
        """What parties brought, round by round, if it is recorded."""
        self.last: Simulation | None = None
        """The last round as it was run, to look into after an abort."""
        self._record, self._seed, self._stand_ins = record, seed, dict(stand_ins or {})
        problems += name_problems(self.parties)
        # The ring's own settings are looked at as given, so that they are reported beside the protocol's problems.
        ring = {name: options.get(name, getattr(Config(), name)) for name in ("bits", "clip", "max_weight")}
        problems += FixedPoint.problems(ring["bits"], ring["clip"], 1, ring["max_weight"])
        try:
            sound = options if not problems else {name: value for name, value in options.items() if name not in ring}
            self.config = self.protocol.configure(sound, self.parties)
            summands = self.config.summands(len(self.parties))
            problems += [] if problems else FixedPoint.problems(ring["bits"], self.config.span(), summands)
        except ConfigError as error:
            problems += error.problems
        except LeakRefused:
            if not problems:
                raise
        if not problems and entries * self.config.bits // 8 > MAX_MESSAGE:
            problems.append(f"{entries} entries of {self.config.bits} bits do not fit a message of {MAX_MESSAGE} bytes")
        if problems:
            raise ConfigError(problems)
        self.states = {party: self.protocol.state() for party in self.everyone}
        self._session = self._entropy("session").bytes(SESSION_BYTES)
        self.world: World | None = None
        self.suites = self._symbolic_suites(entries, symbolic) if symbolic else self._real_suites(entries)
        self._codec = Codec(self.protocol.messages, len(self.parties), self._any_suite.ring.length)

    @property
    def _any_suite(self) -> Suite:
        return self.suites[self.parties[0]]

    def _entropy(self, name: str) -> Entropy:
        return SystemEntropy() if self._seed is None else SeededEntropy(self._seed, name)

    def _recording(self, party: Party) -> Entropy:
        return SystemEntropy() if self._seed is None else RecordingEntropy(self._seed, f"party {party}")

    def _real_suites(self, entries: int) -> dict[Party, Suite]:
        config = self.config
        identities = [Identity.generate(party, self._entropy(f"identity {party}")) for party in self.everyone]
        public = roster(identities)
        return {
            identity.name: RealSuite(
                identity,
                public,
                self._entropy(f"party {identity.name}") if not self._record else self._recording(identity.name),
                FixedPoint(config.bits, config.span(), config.summands(len(self.parties)), entries, config.max_weight),
            )
            for identity in identities
        }

    def _symbolic_suites(self, entries: int, symbolic: bool | Callable[[Unknown], float]) -> dict[Party, Suite]:
        table = FormTable()
        world = self.world = World(table.meaning)
        ring = SymbolicRing(entries, table, symbolic if callable(symbolic) else None)
        return {
            party: SymbolicSuite(party, world, SymbolicEntropy(party, self._seed or 0, f"party {party}"), ring)
            for party in self.everyone
        }

    def average_unknowns(self, drift: str = "static") -> Outcome:
        """Runs one round on unknowns: ("input", party, entry), and one more entry for the weight.

        With "static" drift they are the same in every round; with "free" the owner is (party, round).
        """
        updates = {}
        for party in self.parties:
            owner = party if drift == "static" else (party, self.round + 1)
            vector = unknowns("input", owner, self.entries + 1)
            updates[party] = Update(vector[:-1], vector[-1])
        return self.average(updates)

    def rehearse(self, rounds: int) -> Iterator[tuple[Party, ...]]:
        """Yields whose vectors the first rounds sum, without running them; nobody's if a round would be aborted."""
        rehearsal = self.protocol.rehearsal
        if rehearsal is None:
            raise ConfigError(f"rounds of {self.protocol.name} cannot be rehearsed, only run")
        kinds = {None, rehearsal.present.__name__, rehearsal.delivered.__name__}
        for fault in self.faults:
            simple = fault.action == "silence" or (fault.action == "drop" and fault.message in kinds - {None})
            if not simple or fault.number is not None or fault.to not in (None, SERVER):
                raise ConfigError(
                    f"of so many rounds only those faults can be audited that drop a {rehearsal.present.__name__} or "
                    f"{rehearsal.delivered.__name__}, or silence a party; not {fault.action}"
                )
        state, entropy = self.protocol.state(), self._entropy(f"party {SERVER}")
        for round_ in range(1, rounds + 1):
            faults = [fault for fault in self.faults if fault.round in (None, round_)]
            link = Link(SERVER, self.parties, self._session, round_)
            chosen = rehearsal.sums(link, self.config, state, entropy, partial(_sends, faults, round_))
            yield () if any(fault.mutes(round_, SERVER) for fault in faults) else chosen

    def average(self, updates: Mapping[Party, Update]) -> Outcome:
        """Runs one round and returns its outcome; raises the server's error, or the first one if nobody finished."""
        unequal = self.world is None and len({update.weight for update in updates.values()}) > 1
        if unequal and not self.config.weighted and self.protocol.server is None:
            raise ConfigError(
                "parties have different weights; pass weighted=True, for everybody must know that they may"
            )
        self.round += 1
        if self._record:
            self.inputs.append(dict(updates))
        faults = [fault for fault in self.faults if fault.round in (None, self.round)]
        self.last = simulation = Simulation(
            [self._task(party, updates) for party in self.everyone], self._codec, faults, record=self._record
        )
        if simulation.transcript is not None:
            simulation.transcript.federation = self
        before = self._clip_counts()
        try:
            simulation.run()
        finally:
            if not self._record:
                for suite in self.suites.values():
                    suite.forget()
        tasks = simulation.tasks
        finished = {party: tasks[party].average for party in self.parties if tasks[party].average is not None}
        failed = {party: task.error for party, task in tasks.items() if task.error is not None}
        # A server that crashed while it announced the sum has nothing to say; those who heard it have.
        leading = tasks[SERVER].average if SERVER in tasks else None
        ended = [leading] if leading is not None else list(finished.values())
        contributors = {party for average in ended if average is not None for party in average.contributors}
        dropped: dict[Party, Drop] = {}
        for task in tasks.values():
            dropped |= {peer: reason for peer, reason in task.link.dropped.items() if peer not in finished}
        dropped |= dict.fromkeys(failed, Drop.ABORTED)
        dropped |= {party: Drop.CRASHED for party, task in tasks.items() if task.crashed}
        if SERVER in failed:
            raise failed[SERVER]
        if not finished:
            raise next(iter(failed.values()), NotEnough("parties that finished", 0, 1, dropped))
        clipped, notes = self._clipping(before)
        return Outcome(
            average={party: average.vector for party, average in finished.items() if average is not None},
            contributors=tuple(party for party in self.parties if party in contributors),
            traffic=simulation.traffic,
            clipped=clipped,
            dropped=dropped,
            warnings=(*notes, *self.config.notes(self.parties)),
            seconds=simulation.clock,
            transcript=simulation.transcript,
        )

    def _task(self, party: Party, updates: Mapping[Party, Update]) -> Task:
        suite, state = self.suites[party], self.states[party]
        link = Link(party, self.parties, self._session, self.round)
        inbox = Inbox(link, suite, self._codec, self.everyone)
        honest: Any = self.protocol.server if party == SERVER else self.protocol.party
        role = self._stand_ins.get(party, honest)
        brings = () if party == SERVER else (updates[party],)
        return Task(link, role(link, *brings, self.config, suite, state), suite, inbox)

    def opened(self, transcript: Transcript, party: Party) -> Iterator[tuple[Address, Message]]:
        """Yields what a party sent or received in a recorded round, opened with its own keys."""
        suite = self.suites[party]
        for passed in transcript:
            address = passed.envelope.address
            if party in (address.sender, address.to):
                peer = address.to if party == address.sender else address.sender
                payload = self._codec.open(suite, suite.channel(peer, address.session), passed.envelope)
                yield address, self._codec.decode(address.kind, payload)

    def _clip_counts(self) -> dict[Party, int]:
        return {party: getattr(self.suites[party].ring, "clipped", 0) for party in self.parties}

    def _clipping(self, before: Mapping[Party, int]) -> tuple[dict[Party, int], tuple[str, ...]]:
        clipped, notes = {}, []
        for party, count in self._clip_counts().items():
            ring = self.suites[party].ring
            if count > before[party] and isinstance(ring, FixedPoint):
                clipped[party] = count - before[party]
                notes.append(
                    f"{party}: {clipped[party]} of {ring.entries} entries were cut off at ±{self.config.clip:g}; "
                    f"the largest is {ring.largest:.4g}, {_cure(ring.largest)}"
                )
                warnings.warn(notes[-1], ClippedWarning, stacklevel=4)
        return clipped, tuple(notes)


def _sends(faults: Sequence[Fault], round_: int, kind: type[Message], party: Party) -> bool:
    """Says whether a party's message to the server gets through."""
    return not any(
        fault.mutes(round_, party) or (fault.action == "drop" and fault.hits(round_, 0, party, SERVER, kind.__name__))
        for fault in faults
    )


def _is_text(name: str) -> bool:
    return name.encode(errors="ignore").decode() == name  # lone surrogates have no bytes


def _cure(largest: float) -> str:
    """Returns what to do about values that large: a clip of the next power of two, where there is one."""
    if largest > LARGEST:
        return "so look for what went wrong: no model has such values"
    power = 2.0 ** math.ceil(math.log2(largest))
    return f"so pass clip={power if power <= LARGEST else largest!r}".removesuffix(".0")


def name_problems(parties: Sequence[Party]) -> list[str]:
    """Returns what is wrong with the names of parties."""
    problems = []
    times = Counter(parties)
    for party in times:
        if (
            not isinstance(party, str)
            or not 1 <= len(party.encode(errors="replace")) <= MAX_NAME
            or not _is_text(party)
        ):
            problems.append(f"{party!r} is no name: a name is text of 1 to {MAX_NAME} bytes")
        elif party == SERVER:
            problems.append(f"{SERVER!r} is the name of the server; call the party something else")
        if times[party] > 1:
            problems.append(f"{times[party]} parties are called {party!r}; names must differ")
    return problems
