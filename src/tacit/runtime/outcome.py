"""Outcome of a round for all its parties, merged from the ending of each."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tacit.core.average import CLASSES, Ending, format_count, list_names
from tacit.core.errors import ConfigError, Drop, NotEnough, ProtocolMistake, TacitError
from tacit.core.protocol import Settings
from tacit.core.suite import SERVER, Party
from tacit.runtime.agreement import Agreement
from tacit.vectors.layout import EntriesBeyond
from tacit.vectors.model_tree import ALL
from tacit.vectors.ring_limits import LARGEST

if TYPE_CHECKING:
    from tacit.runtime.simulation.transcript import Transcript

SHOWN = 3
"""Most arrays with clipped entries that a warning names."""
COARSER = 8.0
"""Factor by which a larger clip may coarsen the ring's steps before a warning advises more bits."""
COARSE = 0.01
"""Relative rounding error of a weight above which a warning is given."""


@dataclass
class Traffic:
    """Bytes by party and class, sent and received. The classes are those of paper 004, Section 5."""

    sent: dict[Party, Counter[str]] = field(default_factory=dict)
    received: dict[Party, Counter[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All bytes sent."""
        return sum(row.total() for row in self.sent.values())

    def by_class(self) -> dict[str, int]:
        """Bytes sent by all parties, by class."""
        return {name: sum(row[name] for row in self.sent.values()) for name in CLASSES}

    def of(self, party: Party) -> int:
        """Bytes that one party sent and received."""
        return sum(table.get(party, Counter()).total() for table in (self.sent, self.received))


@dataclass
class Outcome:
    """The result of one round, for every party that finished it.

    >>> import tacit
    >>> outcome = tacit.aggregate([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "secagg")
    >>> outcome.contributors, outcome.average["p0"].round(6).tolist()
    (('p0', 'p1', 'p2'), [3.0, 4.0])
    """

    average: dict[Party, Any]
    """The average of each party that finished: the shared one with a server, its own without."""
    contributors: tuple[Party, ...]
    """Parties whose vectors are part of another party's average. Empty if, without a server, each party kept only its
    own model."""
    traffic: Traffic
    """Bytes sent and received."""
    clipped: dict[Party, int]
    """Number of clipped entries, for each party with any."""
    dropped: dict[Party, Drop]
    """Parties that did not finish the round, or were excluded from it, with the reason."""
    warnings: tuple[str, ...] = ()
    """Warnings for users, each with a remedy."""
    seconds: float = 0.0
    """Duration of the round on the driver's clock (a virtual one in simulation)."""
    endings: dict[Party, Ending] = field(default_factory=dict, repr=False)
    """The ending of each party."""
    transcript: "Transcript | None" = None
    """The recorded round; None unless recording was requested."""
    local: tuple[str, ...] = ()
    """Names of the arrays that were not averaged: by default those that are not floats."""
    replaced: tuple[Party, ...] = ()
    """Parties that were behind: the average replaces their models and all local work."""
    seed: int | None = None
    """The seed of all keys, which reveals everything; None if keys came from the operating system."""

    @property
    def missing(self) -> dict[Party, Drop]:
        """Awaited parties that are not in the average, with the reason. Some may have received it nevertheless."""
        lost = {peer: why for ending in self.endings.values() for peer, why in ending.dropped.items()}
        there = {SERVER, *self.contributors}
        return {peer: why for peer, why in {**lost, **self.dropped}.items() if peer not in there}

    def __repr__(self) -> str:
        lost = (
            f"; without {list_names([f'{party} ({why})' for party, why in self.dropped.items()])}"
            if self.dropped
            else ""
        )
        more = f"; {format_count(len(self.warnings), 'warning')}" if self.warnings else ""
        what = f"the average of {list_names(self.contributors)}" if self.contributors else "nothing exchanged"
        who = f"{what}, for {list_names(list(self.average))}"
        return f"<Outcome: {who}{lost}; {self.traffic.total:,} bytes{more}>"


def merge_endings(
    agreement: Agreement, endings: Mapping[Party, Ending], crashed: Collection[Party] = (), ended: Sequence[Party] = ()
) -> Outcome:
    """Returns the outcome of a round from the endings of its parties; raises the first error if the round failed.

    A round fails if the server aborts, or if no party finishes. `ended` lists parties in the order in which they ended.
    """
    finished = {party: ending for party, ending in endings.items() if party != SERVER and ending.average is not None}
    errors = ((party, endings[party].error) for party in dict.fromkeys((*ended, *endings)))
    failed = {party: error for party, error in errors if error is not None}
    dropped: dict[Party, Drop] = {}
    for ending in endings.values():
        dropped |= {peer: reason for peer, reason in ending.dropped.items() if peer not in finished}
    dropped |= dict.fromkeys(failed, Drop.ABORTED)
    # A party with other settings aborts in the end, but the different settings are the reason.
    dropped |= {
        peer: reason
        for ending in endings.values()
        for peer, reason in ending.dropped.items()
        if reason is Drop.DISAGREES and peer not in finished
    }
    dropped |= dict.fromkeys(crashed, Drop.CRASHED)
    # A party that lacked the last average was excluded, although it received this one in the end.
    dropped |= {
        peer: reason for ending in endings.values() for peer, reason in ending.dropped.items() if reason is Drop.BEHIND
    }
    mistaken = any(isinstance(error, ProtocolMistake) for error in failed.values())
    if SERVER in failed or not finished or mistaken:
        raise find_first_cause(failed, dropped)
    # If the server crashed while announcing the sum, the parties that received it know the contributors.
    leading = endings.get(SERVER)
    sources = [leading] if leading is not None and leading.average is not None else list(finished.values())
    contributors = {party for ending in sources for party in ending.contributors}
    if agreement.protocol.server is None:
        contributors -= _find_unheard(finished)
    clipped = {party: ending for party, ending in endings.items() if ending.clipped and party != SERVER}
    return Outcome(
        average={party: ending.average for party, ending in finished.items()},
        contributors=tuple(party for party in agreement.parties if party in contributors),
        traffic=Traffic(
            {party: Counter(ending.sent) for party, ending in endings.items() if any(ending.sent.values())},
            {party: Counter(ending.received) for party, ending in endings.items() if any(ending.received.values())},
        ),
        clipped={party: ending.clipped for party, ending in clipped.items()},
        dropped=dropped,
        warnings=(
            *(describe_clipping(agreement, ending) for ending in clipped.values()),
            *(_describe_rounding(agreement, ending) for ending in endings.values() if ending.rounded > COARSE),
            *agreement.terms.notes(),
        ),
        endings=dict(endings),
        replaced=tuple(party for party, ending in finished.items() if ending.replaces),
    )


def _find_unheard(finished: Mapping[Party, Ending]) -> set[Party]:
    """Returns the parties without a server that are only in their own average: they timed out, or received nothing."""
    heard = {peer for party, ending in finished.items() for peer in ending.contributors if peer != party}
    lost = {peer for ending in finished.values() for peer in ending.dropped}
    alone = {party for party, ending in finished.items() if set(ending.contributors) <= {party}}
    return (lost | alone) - heard


def find_first_cause(failed: Mapping[Party, TacitError], dropped: Mapping[Party, Drop]) -> TacitError:
    """Returns the error to raise for a failed round. A party's invalid input comes before its consequences."""
    for party, error in failed.items():
        if isinstance(error, ProtocolMistake):
            return error
        if isinstance(error, ConfigError):
            return ConfigError([f"{party}: {problem}" for problem in error.problems])
    if SERVER in failed:
        error = failed[SERVER]
        first = next((each for party, each in failed.items() if party != SERVER), None)
        if error.__cause__ is None and first is not None:
            error.__cause__ = first
        return error
    return next(
        iter(failed.values()), NotEnough("parties finished", 0, 1, dropped, cure="run it again when they are back")
    )


def describe_clipping(agreement: Agreement, ending: Ending, where: Sequence[EntriesBeyond] = ()) -> str:
    """Returns a warning about clipped entries, with a remedy and, if known, the names of the arrays."""
    settings, names = agreement.settings, [each.name for each in where[:SHOWN]]
    more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
    found = f" in {', '.join(names)}{more}" if names and names != [ALL] else ""
    leave = f"; or leave {'it' if len(where) == 1 else 'them'} local: exclude={names!r}" if found else ""
    return (
        f"{ending.party}: {ending.clipped} of {agreement.entries} entries were cut off at ±{settings.clip:g}{found}; "
        f"the largest is {ending.largest:.4g}, {_suggest_clip(settings, ending.largest)}{leave}"
    )


def _describe_rounding(agreement: Agreement, ending: Ending) -> str:
    bits = agreement.settings.bits
    return (
        f"{ending.party}: its weight was rounded by {ending.rounded:.0%}, for {bits} bits tell few weights apart; try: "
        f"use bits={2 * bits}, or a max_weight that is closer to the weights"
    )


def _suggest_clip(settings: Settings, largest: float) -> str:
    """Returns a remedy for values of that size: the next power of two as clip, and enough bits for other entries."""
    if largest > LARGEST:
        return "so look for what went wrong: no model has such values"
    power = 2.0 ** math.ceil(math.log2(largest))
    clip = f"so pass clip={power if power <= LARGEST else largest!r}".removesuffix(".0")
    coarser = power / settings.clip
    if settings.bits == 64 or coarser <= COARSER:
        return clip
    # The number of steps from -clip to clip is fixed. So a larger clip makes each step larger, for every entry.
    bits = 2 * settings.bits
    return f"{clip}, bits={bits} (twice the bytes; without, every entry is rounded {coarser:,.0f} times as coarsely)"
