"""Deterministic simulator: all parties of a federation in one process, on a virtual clock, with planned faults.

The same run gives the same bytes. With a seed, keys and choices are derived from the seed *and* from the agreement, the
updates and the planned faults up to the present round. So two runs with the same seed share keys only as long as they
are identical. `simulated_round` runs one round.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SEED_BYTES, Entropy, SeededEntropy, SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import frame_parts
from tacit.core.protocol import Protocol, Role, State, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Identity, Member, Roster
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, agree, terms_for
from tacit.runtime.journal import fingerprint_update
from tacit.runtime.outcome import Outcome, merge_endings
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.simulation.faults import Fault, faults_from, faults_text
from tacit.runtime.simulation.simulated_round import Row, SimulatedRound

NONCE_BYTES = 16
Rows: TypeAlias = dict[Party, Row]
"""The row into which each party's average is written."""


class Simulation:
    """The parties of an agreement, across many rounds."""

    driver_options: ClassVar[tuple[str, ...]] = ("record", "stand_ins", "twin")
    """Names of options of `on` that `of` accepts in addition to a protocol's settings."""

    def __init__(
        self,
        agreement: Agreement,
        participants: Mapping[Party, Participant],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        twin: bool = False,
    ) -> None:
        """Creates a simulation of some participants.

        Args:
            agreement: The agreement of the parties.
            participants: All parties, and the server if there is one.
            seed: The seed of all keys and choices; without one they come from the operating system.
            faults: The planned faults of all rounds.
            record: Whether rounds are recorded in transcripts.
            twin: Whether rounds depend on the seed alone, and not on their updates. It is for audits, whose symbolic
                and concrete runs must make the same choices. It protects nobody's vectors.
        """
        self.agreement, self.participants, self.faults = agreement, dict(participants), tuple(faults)
        self.number = 0
        """Number of the last round that was begun."""
        self.last: SimulatedRound | None = None
        """The last round, for inspection after an abort."""
        self._seed, self._record, self._twin = seed, record, twin
        self.round_type: Callable[..., SimulatedRound] = SimulatedRound
        """Creates a round: the class of rounds, or a function with more arguments bound."""
        self._history = faults_text(self.faults).encode()
        """Digest of everything besides the agreement that a seeded run depends on, updated every round."""
        self._bound: bytes | None = None
        """Digest on which the parties' seeds of the next rounds depend; None if there is none."""

    @classmethod
    def of(
        cls,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        seed: int | None = None,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        **options: Any,
    ) -> Self:
        """Returns a simulation for some options; raises ConfigError with every problem, or LeakRefused.

        Args:
            protocol: The name of the protocol.
            parties: The names of the parties.
            entries: The length of the vectors.
            seed: The seed of all keys and choices; without one they come from the operating system.
            faults: The planned faults, as objects or plain dictionaries.
            **options: The settings of the protocol, and the options of `on` that `driver_options` names.
        """
        entry = find(protocol)
        planned, problems = faults_from(faults, entry, parties)
        of_driver = {name: options.pop(name) for name in cls.driver_options if name in options}
        terms = terms_for(entry, parties, options, problems)
        return cls.on(entry, terms, entries, seed, planned, **of_driver)

    @classmethod
    def on(
        cls,
        protocol: Protocol,
        terms: Terms,
        entries: int,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        stand_ins: Mapping[Party, Role] | None = None,
        ring_bits: int | None = None,
        twin: bool = False,
    ) -> Self:
        """Returns a simulation on terms, with its own identities and session.

        Args:
            protocol: The protocol.
            terms: Its settings, bound to the parties.
            entries: The length of the vectors.
            seed: As in the class.
            faults: As in the class.
            record: As in the class.
            stand_ins: Coroutines that replace those of some parties, for attacks and tests.
            ring_bits: Bits of a finer ring than the agreed one.
            twin: As in the class.
        """
        everyone = protocol.everyone(terms.parties)
        identities = [identity_of(party, seed) for party in everyone]
        agreement = begin_session(protocol, terms, (identity.member() for identity in identities), entries, seed)
        roles = stand_ins or {}
        participants = {
            each.name: KeyedParticipant(agreement, each, role=roles.get(each.name), bits=ring_bits, record=record)
            for each in identities
        }
        return cls(agreement, participants, seed, faults, record=record, twin=twin)

    @property
    def parties(self) -> tuple[Party, ...]:
        """Parties that contribute vectors."""
        return self.agreement.parties

    @property
    def states(self) -> dict[Party, State]:
        """The saved state of each party."""
        return {party: participant.state for party, participant in self.participants.items()}

    def continue_from(self, number: int, states: Mapping[Party, State]) -> None:
        """Continues after a round, with the states that parties had saved at its end.

        Only a `twin` supports it: otherwise keys depend on all earlier updates.
        """
        if not self._twin or states.keys() != self.participants.keys():
            raise ConfigError("only a seeded run can be continued, and only with the states of all parties")
        self.number = number
        for party, participant in self.participants.items():
            participant.number = number
            participant.give_up(states[party])

    def bind_seeds(self, release: bytes) -> None:
        """Makes the parties' seeds of a twin's next rounds depend on a digest of their updates.

        Noise is derived from these seeds, and must differ for different updates. The server's seed stays the same,
        because the server selects participants before there are updates.
        """
        self._bound = release

    def close(self) -> None:
        """Ends the workers of a simulation. This class has none."""

    def seed_of(self, party: Party, number: int) -> bytes:
        """Returns the seed of a party's round: fresh, or derived from the run so far."""
        bound = self._bound if party in self.parties else None
        return seed_of(party, number, self._seed, bound if self._twin else self.agreement.session)

    def _renew(self, updates: Mapping[Party, Update], absent: Collection[Party]) -> None:
        """Begins a session derived from the seed and all updates so far, so that no other run has the same keys."""
        prints = (fingerprint_update(updates.get(party)) for party in self.parties)
        away = [b"absent", *(party.encode() for party in self.parties if party in absent)] if absent else []
        history = hashlib.sha256()
        for part in chain([self._history], prints, self._encoded_states(), self._role_labels(), away):
            history.update(frame_parts(part))  # one part at a time, because states may be large
        self._history = history.digest()
        nonce = entropy_for(self._seed, "session", self._history).bytes(NONCE_BYTES)
        self.join(replace(self.agreement, nonce=nonce))

    def _encoded_states(self) -> Iterable[bytes]:
        """Returns the saved states of all participants, in the roster's order."""
        return (self.agreement.protocol.encode_state(participant.state) for participant in self.participants.values())

    def _role_labels(self) -> Iterable[bytes]:
        """Returns labels of each participant's coroutine and ring, which may differ from the protocol's own."""
        return (
            label_role(participant.role, getattr(participant, "bits", None))
            for participant in self.participants.values()
        )

    def join(self, agreement: Agreement) -> None:
        """Moves all participants to another session."""
        self.agreement = agreement
        for participant in self.participants.values():
            participant.agreement = agreement

    def average(
        self,
        updates: Mapping[Party, Update],
        out: NDArray[np.floating[Any]] | None = None,
        absent: Collection[Party] = (),
    ) -> Outcome:
        """Runs one round and returns its outcome; raises the first error if the round failed.

        Args:
            updates: The update of each party.
            out: A matrix with a row for each party. Averages are written into its rows only, and those of the outcome
                are these rows. It may be the matrix whose rows are the updates. Rows without an average stay unchanged.
            absent: Parties that send nothing in this round, as with a fault "silence". One with an update still
                receives messages. One without an update receives only a server's announcement; without a server it
                takes no part.
        """
        self._check(updates, absent)
        rows = None if out is None else self._rows(out)
        if rows is not None and self._record:  # the rows are overwritten, and the transcript needs the updates
            updates = {party: Update(np.array(each.vector), each.weight) for party, each in updates.items()}
        weights = {update.weight for update in updates.values() if isinstance(update.weight, int | float)}
        if len(weights) > 1 and not self.agreement.settings.weighted and self.agreement.protocol.server is None:
            raise ConfigError(
                "parties have different weights; try: pass weighted=True, because all parties have to agree to that"
            )
        if self._seed is not None and not self._twin:
            self._renew(updates, absent)
        self.number += 1
        faults = [fault for fault in self.faults if fault.round in (None, self.number)]
        away: Collection[Party] = ()
        if self.agreement.protocol.server is None:
            away = set(absent) - updates.keys()
        else:
            # An absent party receives the announcement, which does not depend on its update. Zeros stand in for that.
            nothing = np.broadcast_to(np.zeros(1, np.float32), self.agreement.entries)
            updates = {**dict.fromkeys(absent, Update(nothing)), **updates}
        self.last = run = self._make_round(faults, absent, away, rows)
        run.run(updates)
        outcome = run.place_averages(merge_endings(self.agreement, run.endings, run.crashed, run.ended))
        outcome.seconds, outcome.transcript, outcome.seed = run.clock, run.transcript, self._seed
        return outcome

    def _make_round(
        self, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party], rows: Rows | None
    ) -> SimulatedRound:
        """Returns the next round, ready to run."""
        return self.round_type(
            self.agreement,
            self.participants,
            self.seed_of,
            self.number,
            faults,
            record=self._record,
            silent=silent,
            away=away,
            rows=rows,
        )

    def _check(self, updates: Mapping[Party, Update], absent: Collection[Party]) -> None:
        """Raises ConfigError unless every present party has an update, and no other name does."""
        if problems := absent_problems(absent, self.parties):
            raise ConfigError(problems)
        missing = set(self.parties) - updates.keys() - set(absent)
        if missing or not updates.keys() <= set(self.parties):
            raise ConfigError(f"a round needs exactly one update from each of {', '.join(self.parties)}")

    def _rows(self, out: Any) -> Rows:
        """Returns the row of each party; raises ConfigError if averages cannot be written into the matrix."""
        shape, clip = (len(self.parties), self.agreement.entries), self.agreement.settings.clip
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype not in (np.float32, np.float64):
            raise ConfigError(
                f"out must be a matrix of single or double floats, with {shape[0]} rows for the parties and {shape[1]} "
                f"columns, not {_describe_value(out)}"
            )
        if not out.flags.writeable:
            raise ConfigError("out must be a matrix that can be written to, and this one is read-only")
        if clip > float(np.finfo(out.dtype).max):
            raise ConfigError(
                f"averages up to clip={clip:g} do not fit out, a matrix of {out.dtype}; try: use a smaller clip"
            )
        return dict(zip(self.parties, out, strict=True))


def absent_problems(absent: Any, parties: Sequence[Party]) -> list[str]:
    """Returns the problems of a list of absent parties."""
    listed = isinstance(absent, Collection) and not isinstance(absent, str | bytes)
    if listed and all(isinstance(party, str) and party in parties for party in absent):
        return []
    return [f"absent must be a list of some of {', '.join(parties)}, not {absent!r}"]


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"of type {type(value).__name__}"


def label_role(role: Role | None = None, bits: int | None = None) -> bytes:
    """Returns a label of a coroutine that replaces the protocol's own, and of a finer ring."""
    names = (getattr(role, name, "") for name in ("__module__", "__qualname__"))
    return " ".join([*names, str(bits)]).encode()


def identity_of(party: Party, seed: int | None) -> Identity:
    """Returns a fresh identity, or the one derived from a seed."""
    return Identity.generate(party, entropy_for(seed, f"identity {party}"))


def begin_session(
    protocol: Protocol, terms: Terms, members: Iterable[Member], entries: int, seed: int | None
) -> Agreement:
    """Returns the agreement of some members on a new session, or on the session derived from a seed."""
    return agree(protocol, terms, Roster(members), entries, entropy_for(seed, "session").bytes(NONCE_BYTES))


def seed_of(party: Party, number: int, seed: int | None, session: bytes | None) -> bytes:
    """Returns the seed of a party's round: fresh, or derived from a seed and, if given, a session.

    It is a module-level function because shards derive the seeds of their own parties.
    """
    path = () if session is None else (session,)
    return entropy_for(seed, f"party {party} round {number}", *path).bytes(SEED_BYTES)


def entropy_for(seed: int | None, *purpose: str | bytes) -> Entropy:
    """Returns the operating system's randomness, or a stream derived from a seed for one purpose."""
    return SystemEntropy() if seed is None else SeededEntropy(seed, *purpose)
