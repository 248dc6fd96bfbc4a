"""Symbolic replay of the rounds of a fault run, as each party saw them, and what a party could recover.

A round of a party is a function of what it began with and of what it was told, in which order (`drivers.round`). So the
deployed coroutines are run on symbols with the very deliveries and deadlines that the processes wrote down, and an
audit looks at everything that was ever said: whatever was addressed to a party counts as seen by it, late or lost on
the way or not. That symbols went the same way as numbers shows in the addresses: the same messages were said, by the
same parties, to the same.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.auditing.engine.linear import Echelon
from tacit.auditing.engine.symbolic_run import SymbolicRun, owner_of
from tacit.auditing.engine.views import Number
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.forms import Unknown
from tacit.auditing.symbolic.simulation import make_unknowns
from tacit.core.messages import Envelope
from tacit.core.suite import SERVER, Party
from tacit.runtime.round import Action, Post


class Place(NamedTuple):
    """Which message of a round somebody was told."""

    sender: Party
    kind: str
    step: int


Lived = Mapping[Party, Sequence[Place | None]]
"""What each party that began a round was told in it, in order; None is that time was up."""


class Said(NamedTuple):
    """The address of a message in a round."""

    sender: Party
    to: Party
    kind: str
    step: int


class ReplayedRun(SymbolicRun):
    """All rounds of a run. Of one round alone, or of all of them together, it can be asked who knows what."""

    def __init__(self, scope: Scope, lived: Mapping[int, Lived], *, together: bool) -> None:
        """Runs the rounds. `together` is for protocols in which what is said in one depends on those before."""
        self._lived, self._together, self._round = lived, together, scope.rounds
        self.said: dict[int, set[Said]] = {}
        """What was said, round by round."""
        self.stuck: list[tuple[int, Party]] = []
        """Who could not go on as it did: it was told something that was not said."""
        super().__init__(scope)

    def _run(self) -> None:
        for number in range(1, self.scope.rounds + 1):
            self.said[number] = set()
            self._play(number, self._lived.get(number, {}))

    def _play(self, number: int, lived: Lived) -> None:
        mail: dict[tuple[Party, Place], bytes] = {}
        seats, due = self.simulation.participants, {party: deque(told) for party, told in lived.items()}
        for party in due:
            seat = seats[party]
            seat.number = number - 1
            update = None if party == SERVER else make_unknowns((party, number), self.entries)
            self._send(number, seat.begin(update, self.simulation.seed_of(party, number)), mail)
        moved = True
        while moved:
            moved = False
            for party, told in due.items():
                while told and (told[0] is None or (party, told[0]) in mail):
                    place, moved = told.popleft(), True
                    seat = seats[party]
                    self._send(number, seat.expire() if place is None else seat.deliver(mail[party, place]), mail)
        self.contributors.append(())
        for party, told in due.items():
            seat = seats[party]
            if told or seat.unfinished:
                self.stuck.append((number, party))
                seat.give_up()

    def _send(self, number: int, actions: Sequence[Action], mail: dict[tuple[Party, Place], bytes]) -> None:
        for post in actions:
            if isinstance(post, Post):
                address = post.address
                mail[address.to, Place(address.sender, address.kind, address.step)] = post.data
                place = number, len(self.said[number])
                self.said[number].add(Said(address.sender, address.to, address.kind, address.step))
                self.envelopes[place] = Envelope(address, post.sealed)
                for party in (address.sender, address.to):
                    self._taken[party].append(place)

    # --- who knows what --------------------------------------------------------------------------------------------

    def seen(self, coalition: Collection[Party], rounds: int) -> tuple[dict[Number, Envelope], set[Number]]:
        """Returns the envelopes of a round that a coalition saw, or of all rounds up to it."""
        found, heard = super().seen(coalition, rounds)
        return {number: each for number, each in found.items() if self._together or number[0] == rounds}, heard

    def inputs(self, party: Party) -> Iterator[Unknown]:
        """Yields the entries of all that a party brings to the round that is looked at, or to all of them."""
        rounds = range(1, self.scope.rounds + 1) if self._together else (self._round,)
        return (("input", (party, number), entry) for number in rounds for entry in range(self.entries))

    def exposed(self, coalition: Sequence[Party]) -> "ExposedParty":
        """Returns whose vectors a coalition can work out."""
        fresh: set[tuple[Party, int]] = set()
        still = Echelon(len(self.names) * self.entries)
        for number in (self.scope.rounds,) if self._together else range(1, self.scope.rounds + 1):
            self._round = number
            known = self.knowledge(coalition, number)
            fresh |= {(party, number) for party in known.exact}
            for row in () if self._together else known.rows:
                spread = np.zeros(len(self.names) * self.entries, dtype=np.int64)
                for unknown, value in zip(known.others, row, strict=True):
                    spread[self.names.index(owner_of(unknown)) * self.entries + unknown[2]] += value
                still.take(spread)
            self._alone.clear()
        standing = {self.names[column // self.entries] for column in still.list_determined()}
        return ExposedParty(tuple(coalition), sorted(fresh), None if self._together else sorted(standing))


@dataclass(frozen=True)
class ExposedParty:
    """What a coalition can work out."""

    coalition: tuple[Party, ...]
    fresh: Sequence[tuple[Party, int]]
    """Whose vectors, of which rounds, as they were: new in every round."""
    standing: Sequence[Party] | None
    """Whose, if everybody had brought the same vector to all rounds; None if that was not looked at."""


def replay_rounds(scope: Scope, lived: Mapping[int, Lived]) -> tuple[ReplayedRun, list[ExposedParty]]:
    """Returns the rounds, run once more on unknowns, and what each single party and the server can work out."""
    stateful: Any = scope.terms.period  # rounds in which masses are under way hang together
    run = ReplayedRun(scope, lived, together=stateful > 1)
    everyone = scope.protocol.everyone(scope.parties)
    return run, [run.exposed([member]) for member in everyone]
