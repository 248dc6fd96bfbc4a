"""Planned faults of a simulated run, by message and by party."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from tacit.core.average import list_names
from tacit.core.config_file import ConfigSource, Section
from tacit.core.entropy import Entropy, SeededEntropy
from tacit.core.protocol import Protocol
from tacit.core.suite import SERVER, Party

PHASE = 10.0
"""Virtual seconds in one phase."""
LATENCY = 1.0
"""Virtual seconds that a message takes."""

Mishap = Literal["drop", "delay", "duplicate", "reorder", "corrupt", "crash", "restart", "silence"]
TO_MESSAGES: tuple[Mishap, ...] = ("drop", "delay", "duplicate", "reorder", "corrupt")


class Fault(Section, frozen=True, kw_only=True):
    """One planned fault. A field that is None matches everything; a crash or restart must name its party.

    >>> Fault(action="crash", party="p2", round=1).party
    'p2'

    The first five actions affect messages. "crash" ends a party before its `step`-th effect (a send, a save or a wait,
    counted from 0) or, with `message`, before it sends a message of that kind. "restart" does the same, and the party
    continues from its journal after `seconds`. A party with "silence" receives messages but never sends any.
    """

    action: Mishap
    """Kind of the fault."""
    party: Party | None = None
    """The sender of the affected messages, or the party that crashes or is silent."""
    to: Party | None = None
    """The receiver of the affected messages."""
    message: str | None = None
    """The kind of message, such as "MaskedInput"."""
    number: int | None = None
    """Number of the message in its round, counted from 0."""
    round: int | None = None
    """Number of the round."""
    step: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of the effect before which a party crashes or restarts."""
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.5 * PHASE
    """Seconds that a delay or a restart takes. The default is longer than most waits."""
    unwritten: bool = False
    """Whether a restart loses the input of the present call, which was not recorded or acted on."""
    position: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Position of a corrupted byte: 0 is the first, 1 the last."""
    chance: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Probability that a message is affected, or that a party is silent in a round. A crash always occurs."""
    seed: int = 0
    """Seed of the samples for `chance`."""

    def hits(self, round_: int, number: int, sender: Party, to: Party, kind: str) -> bool:
        """Returns whether the fault affects a message."""
        return (
            self.round in (None, round_)
            and self.number in (None, number)
            and self.party in (None, sender)
            and self.to in (None, to)
            and self.message in (None, kind)
            and self._strikes(round_, sender, to, kind)
        )

    def _strikes(self, *what: int | Party) -> bool:
        """Samples whether the fault occurs, independently each time and reproducibly."""
        return self.chance == 1.0 or SeededEntropy("fault", self.seed, *what).unit() < self.chance

    def cuts(self, round_: int, effect: int, to: Party | None = None, kind: str | None = None) -> bool:
        """Returns whether the fault's party crashes before an effect. For a message, pass its receiver and kind."""
        if self.action not in ("crash", "restart") or self.round not in (None, round_):
            return False
        if self.message is None:
            return effect >= self.step
        return self.message == kind and self.to in (None, to)

    def mutes(self, round_: int, party: Party) -> bool:
        """Returns whether a party sends nothing in this round."""
        named = self.action == "silence" and self.party in (None, party)
        return named and self.round in (None, round_) and self._strikes(round_, party)


def plan_copies(faults: Sequence[Fault]) -> list[tuple[float, float | None]]:
    """Returns the copies of a message after its faults: the delay of each, and the position of a corrupted byte."""
    copies: list[tuple[float, float | None]] = [(LATENCY, None)]
    for fault in faults:
        if fault.action == "drop":
            copies = []
        elif fault.action == "delay":
            copies = [(late + fault.seconds, corrupted_at) for late, corrupted_at in copies]
        elif fault.action == "duplicate":
            copies = [
                copy
                for late, corrupted_at in copies
                for copy in ((late, corrupted_at), (late + LATENCY / 2, corrupted_at))
            ]
        elif fault.action == "reorder":
            # Half a latency later is after all messages that were sent at the same time.
            copies = [(late + LATENCY / 2, corrupted_at) for late, corrupted_at in copies]
        elif fault.action == "corrupt":
            copies = [(late, fault.position) for late, _ in copies]
    return copies


def faults_text(faults: Sequence[Fault]) -> str:
    """Returns a text that represents faults wherever a seed is combined with them.

    Another text would give other sessions, so it stays as in release 0.2, whatever the class is called.
    """
    each = [
        f"Fault({', '.join(f'{name}={getattr(fault, name)!r}' for name in fault.__struct_fields__)})"
        for fault in faults
    ]
    return f"({', '.join(each)}{',' * (len(each) == 1)})"


def flip_byte(data: bytes, position: float) -> bytes:
    """Returns the bytes with one byte changed: position 0 is the first, 1 the last."""
    place = min(int(position * len(data)), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


def sample_dropouts(parties: Sequence[Party], fraction: float, steps: int, entropy: Entropy) -> list[Fault]:
    """Samples a fraction of the parties, and returns faults that crash each before one of its first `steps` effects."""
    crashing = entropy.sample(parties, int(fraction * len(parties)))
    return [Fault(action="crash", party=party, step=entropy.below(steps)) for party in crashing]


def faults_from(given: Any, protocol: Protocol, parties: Sequence[Party]) -> tuple[tuple[Fault, ...], list[str]]:
    """Returns the faults in a list of faults or plain dictionaries, and the problems of the list.

    The faults refer to rounds of a protocol between some parties, and the server if there is one.
    """
    everyone, kinds = protocol.everyone(tuple(parties)), [kind.kind() for kind in protocol.messages]
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        one = f", such as [{given!r}]" if isinstance(given, Fault | Mapping) else f", not {given!r}"
        return (), [f"faults must be a list of faults{one}"]
    faults, wrong = [], []
    for number, each in enumerate(given):
        # A fault that was created in Python is not validated yet, so it is read like one from a file.
        fault, problems = ConfigSource(msgspec.structs.asdict(each) if isinstance(each, Fault) else each).read(Fault)
        wrong += [f"faults[{number}]: {problem}" for _, problem in problems]
        if fault is None or problems:
            continue
        if fault.action in ("crash", "restart") and fault.party is None:
            who = list_names([party for party in everyone if party != SERVER])
            wrong.append(
                f"faults[{number}]: who is to {fault.action}? Give a party, each of several in a fault; there are {who}"
            )
        else:
            faults.append(fault)
    named = {party for fault in faults for party in (fault.party, fault.to) if party is not None}
    wrong += [f"a fault names {party!r}, who is not in the federation" for party in sorted(named - set(everyone))]
    unknown = {fault.message for fault in faults if fault.message is not None} - set(kinds)
    wrong += [f"a fault names {kind!r}, but the messages are {', '.join(kinds)}" for kind in sorted(unknown)]
    return tuple(faults), wrong
