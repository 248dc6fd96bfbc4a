"""Stalls in a fault run: parties that stopped without a reason, by the times of faults and of log entries.

A party is ill while a fault is in force that names it: from the strike to the mending, or until its process is up. It
can be averaged with others while it is well and so are those whom it needs. Whenever one of these falls ill or gets
well rounds may be lost, and some time is due to it: rounds that are under way then may wait for as long as they do,
lines are tried again after a pause, and what is under way by then has begun too early. From there on a round may take
as long as those who are still ill are waited for, and no longer. Whoever is not averaged within that time hangs.
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
"""Seconds that a round may take that waits for nobody. It takes a few tenths of one on a machine that is shared."""
LATE = 10.0
"""Seconds by which a process may be late, or be up: it is a few tenths of one if the machine has nothing else to do."""
SPREAD = 1.5
"""How many times as long as it is meant to be a pause may be, so that not all end at the same moment."""
KILLED = ("kill", "kill two")
"""Faults that are over when a process is up, which it must be before long, and not when it is started."""


class Needs(NamedTuple):
    """Without whom a party is averaged with nobody."""

    all: Collection[Party]
    """Every one of these,"""
    some: Collection[Party] = ()
    """and of these"""
    enough: int = 0
    phases: int = 1
    """How many phases a round waits at most for those who were ill when it began."""

    @classmethod
    def of(cls, terms: Terms, party: Party) -> "Needs":
        """Returns whom a party needs."""
        others = [each for each in terms.parties if each != party]
        if isinstance(terms, StarTerms):
            # Who does not advertise its keys is waited for in that step, and in no other.
            return (
                cls((), others, terms.fewest_present)
                if party == SERVER
                else cls((SERVER,), others, terms.fewest_present - 1)
            )
        if isinstance(terms, AdmmTerms):
            return cls(others, phases=0)  # nothing is begun without somebody
        if isinstance(terms, CesarTerms):
            # First its selection is waited for, and then its turn, for twice as long.
            return cls((), terms.peers(party), terms.settings.masking + 1, phases=3)
        if isinstance(terms, PushSumTerms) and terms.settings.masked:
            (graph,) = terms.graphs
            return cls(terms.parties.names_at(sorted(graph.predecessors(terms.parties.place(party)))))
        raise TypeError(f"it is not known whom a party needs by {type(terms).__name__}")


class AllowedStall(NamedTuple):
    """How long what takes time may take, in seconds."""

    back: float
    """Until a line is in use again whose ends are: a pause, a connection, and a hello."""
    turn: float
    """Until the next average, once all lines are and nothing is under way: to wait for others, and a round."""

    @classmethod
    def of(cls, deadlines: Deadlines, phases: int) -> "AllowedStall":
        """Returns what follows from deadlines, for rounds that wait for so many phases."""
        pause = SPREAD * min(LONGEST, deadlines.connect)
        return cls(pause + deadlines.connect + OFTEN, deadlines.start + phases * deadlines.phase + BUSY)


# --- what happened when --------------------------------------------------------------------------------------------


@dataclass
class Course:
    """When a party did what, by its log."""

    party: Party
    ups: list[float] = field(default_factory=list)
    """When a process of its was up,"""
    done: float = inf
    """when it had begun all rounds,"""
    together: list[float] = field(default_factory=list)
    """when it was averaged with others,"""
    rounds: list[tuple[float, float]] = field(default_factory=list)
    """and from when to when it was in a round, whatever became of its processes meanwhile."""
    last: float = -inf
    """When it wrote anything."""
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
            self._end(at)  # one that was never on disk may be begun again
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
        """Returns when a round is over that it is in at some time, if it is."""
        place = bisect_right(self.rounds, (at, inf)) - 1
        return max(at, self.rounds[place][1]) if place >= 0 else at


def is_averaged(party: Party, ending: Mapping[str, Any]) -> bool:
    """Says whether somebody was averaged with others, or others were by a server, when a round ended so."""
    contributors = {*ending["contributors"]}
    return ending["average"] is not None if party == SERVER else {party} < contributors


class Spell(NamedTuple):
    """From when to when a party was not well."""

    begun: float
    over: float


def spells(course: Course, faults: Iterable[Mapping[str, Any]]) -> list[Spell]:
    """Returns when a party was ill, not yet there, or had begun all rounds and no longer took part."""
    found = [Spell(-inf, course.ups[0] if course.ups else inf), Spell(course.done, inf)]
    for fault in faults:
        if course.party in fault["who"]:
            over = inf if fault["over"] is None else fault["over"]
            if fault["kind"] in KILLED:
                over = min(over + LATE, next((at for at in course.ups if at > fault["at"]), inf))
            found.append(Spell(fault["at"], over))
    return sorted(found)


# --- what is made of it --------------------------------------------------------------------------------------------


@dataclass
class Stretch:
    """A time in which a party and enough of those whom it needs were well, and nothing changed for any of them."""

    party: Party
    begun: float
    over: float
    settled: float
    """When nothing is under way any more of before, and all lines are in use again."""
    averaged: list[float]
    """When it was averaged with others."""
    turn: float

    @property
    def recovery(self) -> float | None:
        """How long it took until it was averaged; None if it was not."""
        return self.averaged[0] - self.begun if self.averaged else None

    def stalls(self) -> Iterator[tuple[float, float]]:
        """Yields from when to when it should have been averaged with somebody, and was not."""
        since = self.settled
        for at in (*self.averaged, self.over):
            if at - since > self.turn:
                yield since, at
            since = max(since, at)


@dataclass(frozen=True)
class Courses:
    """What everybody did, and what befell them."""

    terms: Terms
    deadlines: Deadlines
    courses: Mapping[Party, Course]
    faults: Collection[Mapping[str, Any]]

    def stretches(self, party: Party) -> list[Stretch]:
        """Returns all times in which a party should have been averaged with others."""
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
        """Returns in words who hung, in seconds of the run."""
        return [
            f"{each.party} was averaged with nobody from {begun - since:.1f} s to {over - since:.1f} s, though those "
            f"it needs were well from {each.begun - since:.1f} s on, and {each.turn:g} s are enough"
            for each in found
            for begun, over in each.stalls()
        ]


# --- while it runs -------------------------------------------------------------------------------------------------


@dataclass
class Pulse:
    """By when a process has to go on, if it is not kept from it: how long it may wait is in its log."""

    clock: Callable[[], float]
    by: float = inf

    def started(self) -> None:
        """Takes note that it was started."""
        self.by = self.clock() + LATE

    def thawed(self) -> None:
        """Takes note that it was frozen, and no longer is: its deadlines went on meanwhile."""
        self.by = max(self.by, self.clock() + LATE)

    def heard(self, line: Mapping[str, Any]) -> None:
        """Takes a line of its log in."""
        if line["what"] == "waits" and line["seconds"] is not None:
            self.by = self.clock() + line["seconds"] + LATE
        elif line["what"] in ("waits", "done"):
            self.by = inf  # a server that nobody is ready for may wait for as long

    @property
    def stopped(self) -> bool:
        """Says whether it should have gone on by now."""
        return self.clock() > self.by
