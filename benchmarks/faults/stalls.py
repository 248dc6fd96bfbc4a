"""Stalls in a fault run: parties that stopped without a reason, by the times of faults and of log entries.

A party is unhealthy while a fault is active that names it: from its beginning until it is mended, or until the party's
process is up. A party can be averaged with others while it and those that it needs are healthy. Whenever one of these
becomes unhealthy or healthy, rounds may be lost, and some time is allowed: active rounds may last for as long as they
can, links are retried after a pause, and rounds that begin before that have begun too early. After that, a round may
take only as long as the remaining unhealthy parties are waited for. A party that is not averaged within this time
hangs.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from tacit.core.protocol import Terms
from tacit.core.suite import SERVER, Party
from tacit.net.membership.roster import Deadlines
from tacit.net.node import OFTEN
from tacit.net.transport.peer_link import LONGEST
from tacit.protocols.admm.settings import AdmmTerms
from tacit.protocols.cesar.settings import CesarTerms
from tacit.protocols.pushsum.settings import PushSumTerms
from tacit.protocols.shapes.star import StarTerms

BUSY = 1.0
"""Seconds allowed for a round that waits for nobody. It takes a few tenths of a second on a shared machine."""
LATE = 10.0
"""Seconds by which a process may be late, or in which it must start. Both take a few tenths of a second on an idle
machine."""
SPREAD = 1.5
"""Largest random factor of a pause, so that not all pauses end at the same moment."""
KILLED = ("kill", "kill two")
"""Faults that end when the process is up, which must be soon, and not when it is started."""


class Needs(NamedTuple):
    """The parties that a party needs to be averaged."""

    all: Collection[Party]
    """All of these are needed."""
    some: Collection[Party] = ()
    """At least one of these is needed."""
    enough: int = 0
    phases: int = 1
    """Number of phases for which a round waits at most for parties that were unhealthy at its beginning."""

    @classmethod
    def of(cls, terms: Terms, party: Party) -> "Needs":
        """Returns the parties that a party needs."""
        others = [each for each in terms.parties if each != party]
        if isinstance(terms, StarTerms):
            # A party that does not advertise its keys is waited for in that step only.
            return (
                cls((), others, terms.fewest_present)
                if party == SERVER
                else cls((SERVER,), others, terms.fewest_present - 1)
            )
        if isinstance(terms, AdmmTerms):
            return cls(others, phases=0)  # No round begins if a party is missing.
        if isinstance(terms, CesarTerms):
            # First its selection is waited for, and then its message, for twice as long.
            return cls((), terms.peers(party), terms.settings.masking + 1, phases=3)
        if isinstance(terms, PushSumTerms) and terms.settings.masked:
            (graph,) = terms.graphs
            return cls(terms.parties.names_at(sorted(graph.predecessors(terms.parties.place(party)))))
        raise TypeError(f"it is not known whom a party needs by {type(terms).__name__}")


class AllowedStall(NamedTuple):
    """Allowed durations, in seconds."""

    back: float
    """Until a link between healthy parties is in use again: a pause, a connection, and a hello."""
    turn: float
    """Until the next average, once all links are in use and no old round is active: waiting for others, and a round."""

    @classmethod
    def of(cls, deadlines: Deadlines, phases: int) -> "AllowedStall":
        """Returns the durations that follow from deadlines, for rounds that wait for that many phases."""
        pause = SPREAD * min(LONGEST, deadlines.connect)
        return cls(pause + deadlines.connect + OFTEN, deadlines.start + phases * deadlines.phase + BUSY)


# --- timelines -----------------------------------------------------------------------------------------------------


@dataclass
class Course:
    """Timeline of a party, by its log."""

    party: Party
    ups: list[float] = field(default_factory=list)
    """Times at which a process of the party was up."""
    done: float = inf
    """Time at which it had begun all rounds."""
    together: list[float] = field(default_factory=list)
    """Times at which it was averaged with others."""
    rounds: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of each of its rounds, whatever happened to its processes meanwhile."""
    last: float = -inf
    """Time of its last log line."""
    _begun: float | None = None

    @classmethod
    def of(cls, party: Party, lines: Iterable[Mapping[str, Any]]) -> "Course":
        """Reads a log."""
        course = cls(party)
        for line in lines:
            course._take(line["what"], line["at"], line)
            course.last = line["at"]
        if course._begun is not None:
            course.rounds.append((course._begun, inf))
        return course

    def _take(self, what: str, at: float, line: Mapping[str, Any]) -> None:
        if what == "begins":
            self._end(at)  # A round that was never on disk may begin again.
            self._begun = at
        elif what == "up":
            self.ups.append(at)
            if not line["resuming"]:
                self._end(at)
        elif what == "ends":
            self._end(at)
            if is_averaged(self.party, line):
                self.together.append(at)
        elif what == "done":
            self.done = min(self.done, at)

    def _end(self, at: float) -> None:
        if self._begun is not None:
            self.rounds.append((self._begun, at))
            self._begun = None

    def over(self, at: float) -> float:
        """Returns the end of the round in which the party is at a time; infinite if it never ends."""
        place = bisect_right(self.rounds, (at, inf)) - 1
        return max(at, self.rounds[place][1]) if place >= 0 else at


def is_averaged(party: Party, ending: Mapping[str, Any]) -> bool:
    """Says whether a party was averaged with others in a round; for a server, whether others were."""
    contributors = {*ending["contributors"]}
    return ending["average"] is not None if party == SERVER else {party} < contributors


class Spell(NamedTuple):
    """Interval in which a party was unhealthy."""

    begun: float
    over: float


def spells(course: Course, faults: Iterable[Mapping[str, Any]]) -> list[Spell]:
    """Returns the intervals in which a party was unhealthy, not yet started, or done with all rounds."""
    found = [Spell(-inf, course.ups[0] if course.ups else inf), Spell(course.done, inf)]
    for fault in faults:
        if course.party in fault["who"]:
            over = inf if fault["over"] is None else fault["over"]
            if fault["kind"] in KILLED:
                over = min(over + LATE, next((at for at in course.ups if at > fault["at"]), inf))
            found.append(Spell(fault["at"], over))
    return sorted(found)


# --- analysis ------------------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    """Interval in which a party and enough of those that it needs were healthy, without a change."""

    party: Party
    begun: float
    over: float
    settled: float
    """Time at which no earlier round is active, and all links are in use again."""
    averaged: list[float]
    """Times at which the party was averaged with others."""
    turn: float

    @property
    def recovery(self) -> float | None:
        """Seconds until the party was averaged; None if it was not."""
        return self.averaged[0] - self.begun if self.averaged else None

    def stalls(self) -> Iterator[tuple[float, float]]:
        """Yields the intervals in which the party should have been averaged, and was not."""
        since = self.settled
        for at in (*self.averaged, self.over):
            if at - since > self.turn:
                yield since, at
            since = max(since, at)


@dataclass(frozen=True)
class Courses:
    """Timelines of all parties, with the faults."""

    terms: Terms
    deadlines: Deadlines
    courses: Mapping[Party, Course]
    faults: Collection[Mapping[str, Any]]

    def stretches(self, party: Party) -> list[Stretch]:
        """Returns all intervals in which a party should have been averaged with others."""
        needs = Needs.of(self.terms, party)
        near = [party, *needs.all, *needs.some]
        ill = {name: spells(self.courses[name], self.faults) for name in near}
        changes = sorted({at for each in ill.values() for spell in each for at in spell})
        back, turn = AllowedStall.of(self.deadlines, needs.phases)
        end = max(course.last for course in self.courses.values())
        found = []
        for begun, over in pairwise(min(at, end) for at in changes):
            well = {name for name in near if not any(each.begun <= begun < each.over for each in ill[name])}
            if {party, *needs.all} <= well and len(well.intersection(needs.some)) >= needs.enough:
                settled = self._over(well, self._over(well, begun) + back)
                averaged = [at for at in self.courses[party].together if begun < at <= over]
                found.append(Stretch(party, begun, over, settled, averaged, turn))
        return found

    def _over(self, names: Iterable[Party], at: float) -> float:
        return max(self.courses[name].over(at) for name in names)

    def told(self, found: Iterable[Stretch], since: float) -> list[str]:
        """Returns descriptions of the hangs, in seconds of the run."""
        return [
            f"{each.party} was averaged with nobody from {begun - since:.1f} s to {over - since:.1f} s, though those "
            f"it needs were well from {each.begun - since:.1f} s on, and {each.turn:g} s are enough"
            for each in found
            for begun, over in each.stalls()
        ]


# --- during the run ------------------------------------------------------------------------------------------------


@dataclass
class Pulse:
    """Time by which a process has to make progress, unless a fault prevents it. Its log says how long it may wait."""

    clock: Callable[[], float]
    by: float = inf

    def started(self) -> None:
        """Records that the process was started."""
        self.by = self.clock() + LATE

    def thawed(self) -> None:
        """Records that the process was frozen and runs again. Its deadlines continued meanwhile."""
        self.by = max(self.by, self.clock() + LATE)

    def heard(self, line: Mapping[str, Any]) -> None:
        """Takes a line of its log."""
        if line["what"] == "waits" and line["seconds"] is not None:
            self.by = self.clock() + line["seconds"] + LATE
        elif line["what"] in ("waits", "done"):
            self.by = inf  # A server may wait without limit until a party is ready.

    @property
    def stopped(self) -> bool:
        """Says whether the process should have made progress by now."""
        return self.clock() > self.by
