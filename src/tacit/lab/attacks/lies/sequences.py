"""Search over several rounds with a malicious server of `secagg`, until parties with different models mask together.

A server can give one party a live model and the others a dead one, whose update it knows. It then learns the live
update from the next sum, whatever the masks do (Pasquini et al. 2022). So parties sign the lineage of their models, and
this search looks for a way around that. In each round the server sends each party one of these:

- a sum: of a live or a dead model, or of a weight of one unit; in the units of any roster of the sequence; after any
  lineage that parties have reached, the initial one, or a forged one;
- the last sum: any of these as the sum of any earlier round, to a party that has it or lacks it;
- nothing, until the round fails.

Between rounds a party may get the next roster: the same one renewed, one with a user less or more, with another ring,
or one in which contributions are changes and no longer models. A machine may crash in a round, and a program may
restart from any model that it saved (`programs`). It then restores, continues from a saved lineage, or calls nothing.

A **break** is a group, at least as large as the smallest sum, whose members accept each other's keys while two of them
hold different models. Clients run the deployed code. A client accepts keys if it replies with its shares.

Reductions that lose nothing: the next state of a party depends only on what the server sends to it, and honest parties
are interchangeable. So every party can reach the same states, and a group is a choice of such states. Parties that sign
the same values are tested once for all of them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple, TypeAlias

from tacit.core.lineage import LINEAGE_BYTES, START
from tacit.core.suite import Party
from tacit.lab.attacks.lies.programs import (
    PROGRAM,
    STATE,
    Driver,
    Endings,
    MemberState,
    change_roster,
    list_restarts,
    list_turns,
)
from tacit.lab.attacks.lies.sessions import (
    Announcement,
    ClientEnding,
    ClientInputs,
    Model,
    RosterSettings,
    Session,
)

Moves: TypeAlias = Iterator[tuple[str, MemberState]]
"""The possible next states of a party, each with a description of the event."""
Origins: TypeAlias = dict[MemberState, tuple[MemberState, str] | None]
"""States of a party, each with a state from which it is reached, and the event."""
LIVE, DEAD = 1.0, 8.0
"""Averages that a server announces: the live model has a gradient, and the update of the dead one is known."""
FORGED = bytes([255]) * LINEAGE_BYTES
"""A lineage that no party has."""
STAGES = 3
"""Events of a party per round: a restart, the completion of an interrupted round, and the round itself."""
COMPARED = 8
"""Number of others that a kind of signed keys is tested with, if there are more than `KINDS`."""
KINDS = 40
GROUP = 4
"""Users in a group, unless the roster has fewer."""

NAMED = (START, FORGED)
"""Lineages that a server can name before any party has one."""
SAME = RosterSettings()
BECOME_CHANGES = "models become changes"
ROSTERS: dict[str, tuple[RosterSettings, ...]] = {
    "one roster": (SAME,),
    "the roster is renewed": (SAME, SAME._replace(nonce="second")),
    "a user leaves": (SAME, SAME._replace(users=3)),
    "a user joins": (SAME, SAME._replace(users=5)),
    "another scale of numbers": (SAME, SAME._replace(clip=16.0)),
    BECOME_CHANGES: (SAME, SAME._replace(changes=True)),
}
"""The rosters of a sequence, by the difference between them. Each party gets the second one at any time, or never."""


@dataclass(frozen=True)
class SequenceCase:
    """Settings of a search over sequences."""

    rosters: str = "one roster"
    driver: Driver = PROGRAM
    changes: bool = False
    """Whether contributions are changes (`norm`)."""
    neighbours: int = 0
    """Number of others with whom a user shares masks; 0 for all."""
    colluders: tuple[int, ...] = ()

    @cached_property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the rosters."""
        return tuple(
            Session(each._replace(changes=each.changes or self.changes, neighbours=self.neighbours))
            for each in ROSTERS[self.rosters]
        )

    def __str__(self) -> str:
        what = "changes" if self.changes else "models"
        who = "programs that may fail" if self.driver == PROGRAM else "a driver without restarts"
        graph = f"each shares masks with {self.neighbours}" if self.neighbours else "all share masks with each other"
        colluding = f", {len(self.colluders)} colludes" if self.colluders else ""
        return f"{what}, {self.rosters}, {who}, {graph}{colluding}"


class Group(NamedTuple):
    """Honest parties of one round in two kinds of state."""

    session: int
    number: int
    some: MemberState
    others: MemberState
    split: tuple[int, ...]
    """The places of the parties in the state of `some`."""


@dataclass(frozen=True)
class SequenceBreak:
    """A group that masks together although its members hold different models."""

    search: "SequenceSearch" = field(repr=False)
    group: Group

    @property
    def rounds(self) -> int:
        """The number of the round in which they mask."""
        return self.group.number

    def __str__(self) -> str:
        return f"{self.search.case}: {self.story}"

    @property
    def story(self) -> str:
        """The events of the victim, and those of the other parties."""
        group = self.group
        some, others = (self.search.tell(member, group.number) for member in (group.some, group.others))
        return (
            f"one party {some}, and holds {group.some.model[0]:g}; the others: {others}, and hold "
            f"{group.others.model[0]:g}; in round {group.number} they mask together"
        )

    def error(self) -> float:
        """Runs the round in which they mask, and returns the error of the derived update of the victim.

        The others hold a dead model, so that their updates are known. Here they are zero.
        """
        return self.search.recover(self.group)


class SequenceSearch:
    """Search over all states that parties can reach in a number of rounds, and over the groups that they form."""

    def __init__(self, case: SequenceCase, rounds: int) -> None:
        """Takes a case, and the number of the last round in which parties may mask."""
        self.case, self.rounds = case, rounds
        self.sessions = case.sessions
        self.states = 0
        """Number of different states of a party before a round, over all rounds."""
        self.groups = 0
        """Number of groups that received each other's keys."""
        self.masking = 0
        """Number of groups among them in which all accepted the others' keys."""
        self._origins: list[Origins] = []
        self._endings: dict[tuple[int, ClientInputs], Endings] = {}
        self._announcements: dict[tuple[int, int], list[Announcement]] = {}

    def breaks(self) -> Iterator[SequenceBreak]:
        """Yields groups with different models that mask together: for each round, one for each lineage that they
        sign."""
        self._origins = [{MemberState(): None}]
        for number in range(1, self.rounds + 1):
            self._extend(self._list_pauses)
            before = self._finish_interrupted(number)
            self.states += len(before)
            yield from self._check_groups(number, before)
            if number < self.rounds:
                self._extend_by_round(number)

    # --- states of a party -------------------------------------------------------------------------------------------

    def _finish_interrupted(self, number: int) -> Origins:
        """Adds the states of parties that complete an interrupted round before the next one."""
        known = self._list_known()

        def finish(member: MemberState) -> Moves:
            return self._list_rounds(member, number, known) if member.resuming else iter(())

        return self._extend(finish)

    def _extend_by_round(self, number: int) -> None:
        """Adds the states of parties after a round. A party in a later round does not take part."""
        known = self._list_known()

        def take_part(member: MemberState) -> Moves:
            return iter(()) if member.resuming else self._list_rounds(member, number, known)

        self._extend(take_part)

    def _list_known(self) -> list[bytes]:
        """Returns the lineages that a server can name so far. They determine what it may announce."""
        self._announcements.clear()
        self._endings.clear()
        return _list_lineages(self._origins[-1])

    def _extend(self, moves: Callable[[MemberState], Moves]) -> Origins:
        """Adds the states that parties reach by at most one event, and returns all states."""
        before = self._origins[-1]
        after: Origins = {member: (member, "") for member in before}
        for member in before:
            for text, result in moves(member):
                after.setdefault(result, (member, text))
        self._origins.append(after)
        return after

    def _list_pauses(self, member: MemberState) -> Moves:
        """Yields the possible states of a party after a pause between two rounds."""
        if self.case.driver == STATE:
            return change_roster(member, len(self.sessions))
        return list_restarts(member, len(self.sessions), changes=self._has_changes(member.session))

    def _list_rounds(self, member: MemberState, number: int, known: Sequence[bytes]) -> Moves:
        """Yields the possible states of a party after a round."""
        inputs = member.begin(number, self.case.driver, changes=self._has_changes(member.session))
        if inputs is None:
            return iter(())
        key = member.session, inputs
        if key not in self._endings:
            self._endings[key] = self._list_endings(member.session, inputs, known)
        changes = self._has_changes(member.session)
        return list_turns(member, inputs, self._endings[key], self.case.driver, changes=changes)

    def _list_endings(self, session: int, inputs: ClientInputs, known: Sequence[bytes]) -> Endings:
        """Returns the different endings to which the server can lead a client, each with the first message that does.

        The text of an error makes no difference to a party.
        """
        here = self.sessions[session]
        found: dict[ClientEnding, Announcement | None] = {here.conclude(inputs, None)._replace(error=""): None}
        for told in self._list_announcements(session, inputs.number, known):
            found.setdefault(here.conclude(inputs, told)._replace(error=""), told)
        return found

    def _list_announcements(self, session: int, number: int, known: Sequence[bytes]) -> list[Announcement]:
        """Returns everything that a server can announce to a client in a round."""
        key = session, number
        if key not in self._announcements:
            here, found = self.sessions[session], []
            length = len(here.encode_sum(0.0))
            for text, vector in self._list_sums().items():
                if len(vector) != length:
                    continue
                for place, before in enumerate(known):
                    said = f"{text} after {_name_lineage(place)}"
                    found.append(Announcement(False, before, number, here.names, vector, said))
                    for earlier in range(1, number + 1):
                        for names in dict.fromkeys(each.names for each in self.sessions):
                            text_ = f"as the last sum, of round {earlier}, {said}"
                            found.append(Announcement(True, before, earlier, names, vector, text_))
            self._announcements[key] = found
        return self._announcements[key]

    def _list_sums(self) -> dict[str, bytes]:
        """Returns sums by name. A sum of one roster may have another meaning with another roster."""
        found = {}
        for place, session in enumerate(self.sessions):
            where = f" of roster {place + 1}" if len(self.sessions) > 1 else ""
            found[f"a live sum{where}"] = session.encode_sum(LIVE)
            found[f"a dead sum{where}"] = session.encode_sum(DEAD)
            found[f"a sum{where} that weighs one unit"] = session.encode_sum(DEAD, weight=1)
        different: dict[bytes, str] = {}
        for text, vector in found.items():
            different.setdefault(vector, text)
        return {text: vector for vector, text in different.items()}

    def _has_changes(self, session: int) -> bool:
        return self.sessions[session].roster.changes

    # --- masking groups ----------------------------------------------------------------------------------------------

    def _check_groups(self, number: int, members: Mapping[MemberState, object]) -> Iterator[SequenceBreak]:
        """Yields the groups that mask together in a round although they hold different models."""
        alike: dict[int, dict[bytes, dict[Model, MemberState]]] = defaultdict(lambda: defaultdict(dict))
        for member in members:
            if member.resuming:
                continue  # The party would already have masked the same in the earlier round.
            inputs = member.begin(number, self.case.driver, changes=self._has_changes(member.session))
            if inputs is not None:
                signed = self.sessions[member.session].advertise(self._names(member.session)[0], inputs).lineage
                alike[member.session][signed].setdefault(member.model, member)
        for session, classes in alike.items():
            kinds = [list(each.values()) for each in classes.values()]
            for place, one in enumerate(kinds):
                yield from self._check_pair(session, number, one, one)
                rest = kinds[place + 1 :]
                for other in rest if len(kinds) <= KINDS else rest[:COMPARED]:
                    yield from self._check_pair(session, number, one, other)

    def _check_pair(
        self, session: int, number: int, one: Sequence[MemberState], other: Sequence[MemberState]
    ) -> Iterator[SequenceBreak]:
        """Yields a break if parties with two kinds of signed keys mask together and hold different models."""
        different = next(((a, b) for a in one for b in other if a.model != b.model), None)
        some, others = different or (one[0], other[0])
        for split in self._list_splits(session):
            group = Group(session, number, some, others, split)
            if self._accepts(group):
                self.masking += 1
                if different is not None:
                    yield SequenceBreak(self, self._name_victim(group))
                return

    def _name_victim(self, group: Group) -> Group:
        """Returns the group with the longer history at the one party, if that can be chosen."""
        told = [len(self.tell(member, group.number)) for member in (group.some, group.others)]
        swap = told[0] < told[1] and len(group.split) == 1
        return group._replace(some=group.others, others=group.some) if swap else group

    def _list_splits(self, session: int) -> Iterator[tuple[int, ...]]:
        """Yields the possible places of one kind. In a complete graph both kinds are neighbours, however they are
        placed."""
        honest = [place for place in range(len(self._names(session))) if place not in self.case.colluders]
        if not self.case.neighbours:
            yield (honest[0],)
            return
        for size in range(1, len(honest)):
            yield from combinations(honest, size)

    def _accepts(self, group: Group) -> bool:
        self.groups += 1
        return self.sessions[group.session].mask_together(self._inputs(group), self.case.colluders)

    def recover(self, group: Group) -> float:
        """Runs the round of a group, and returns the error of the victim's update as derived from the sum."""
        return self.sessions[group.session].recover_update(self._inputs(group), group.split[0])

    def _inputs(self, group: Group) -> dict[int, ClientInputs]:
        found = {}
        for place in range(len(self._names(group.session))):
            member = group.some if place in group.split else group.others
            inputs = member.begin(group.number, self.case.driver, changes=self._has_changes(member.session))
            if place not in self.case.colluders and inputs is not None:
                found[place] = inputs
        return found

    def _names(self, session: int) -> tuple[Party, ...]:
        """Returns the parties of a group."""
        return self.sessions[session].names[:GROUP]

    def tell(self, member: MemberState, number: int) -> str:
        """Returns the events of a party before a round."""
        story: list[str] = []
        stage = STAGES * number - 1
        while origin := self._origins[stage].get(member):
            member, text = origin
            if text:
                story.insert(0, f"{text} in round {stage // STAGES}" if stage % STAGES == 0 else text)
            stage -= 1
        return ", ".join(story) or "is told nothing"


def _name_lineage(place: int) -> str:
    """Returns a name for one of the lineages that a server can use."""
    return ("the start", "a forged lineage")[place] if place < len(NAMED) else f"lineage {place - len(NAMED) + 1}"


def _list_lineages(members: Mapping[MemberState, object]) -> list[bytes]:
    """Returns the lineages that a server can name: those of all states, the initial one, and a forged one."""
    reached = {lineage for member in members for lineage in (member.lineage, member.held) if lineage}
    return [*NAMED, *sorted(reached.difference(NAMED))]
