"""Symbolic replay of the rounds of a fault run, as each party saw them, and what a party could recover.

A party's round is a function of its initial state and of the messages that it received, in their order
(`runtime.round`). So the deployed coroutines are run on symbols with exactly the deliveries and timeouts that the
processes logged, and an audit analyses all messages. Every message addressed to a party counts as seen by it, even if
it was late or lost. The addresses show that the symbolic run took the same course: the same messages were sent, by the
same parties, to the same receivers.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tacit.auditing.engine.algebra.linear import Echelon
from tacit.auditing.engine.symbolic_run import SymbolicRun, owner_of
from tacit.auditing.engine.views import Number
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.forms import Unknown
from tacit.auditing.symbolic.simulation import make_unknowns
from tacit.core.messages import Envelope
from tacit.core.suite import SERVER, Party
from tacit.runtime.round import Action, Post


class Place(NamedTuple):
    """Identifier of a delivered message within a round."""

    sender: Party
    kind: str
    step: int


Lived = Mapping[Party, Sequence[Place | None]]
"""For each party that began a round, its deliveries in order; None is a timeout."""


class Said(NamedTuple):
    """The address of a message in a round."""

    sender: Party
    to: Party
    kind: str
    step: int


class ReplayedRun(SymbolicRun):
    """All rounds of a run. Audits are of one round alone, or of all of them together."""

    def __init__(self, scope: Scope, lived: Mapping[int, Lived], *, together: bool) -> None:
        """Runs the rounds. `together` is for protocols in which a round depends on earlier ones."""
        self._lived, self._together, self._round = lived, together, scope.rounds
        self.said: dict[int, set[Said]] = {}
        """The messages that were sent, by round."""
        self.stuck: list[tuple[int, Party]] = []
        """Parties that could not repeat their round, because they received a message that was not sent."""
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

    # --- views -----------------------------------------------------------------------------------------------------

    def seen(self, coalition: Collection[Party], rounds: int) -> tuple[dict[Number, Envelope], set[Number]]:
        """Returns the envelopes that a coalition saw in a round, or in all rounds up to it."""
        found, heard = super().seen(coalition, rounds)
        return {number: each for number, each in found.items() if self._together or number[0] == rounds}, heard

    def inputs(self, party: Party) -> Iterator[Unknown]:
        """Yields the entries of all vectors that a party contributes to the analysed rounds."""
        rounds = range(1, self.scope.rounds + 1) if self._together else (self._round,)
        return (("input", (party, number), entry) for number in rounds for entry in range(self.entries))

    def exposed(self, coalition: Sequence[Party]) -> "ExposedParty":
        """Returns the parties whose vectors a coalition can recover."""
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
    """The vectors that a coalition can recover."""

    coalition: tuple[Party, ...]
    fresh: Sequence[tuple[Party, int]]
    """Owners and rounds of recovered vectors, when vectors are new in every round."""
    standing: Sequence[Party] | None
    """Owners of recovered vectors, if every party had sent the same vector in all rounds; None if that was not
    analysed."""


def replay_rounds(scope: Scope, lived: Mapping[int, Lived]) -> tuple[ReplayedRun, list[ExposedParty]]:
    """Returns the rounds, repeated on unknowns, and what each single party and the server can recover."""
    stateful: Any = scope.terms.period  # Rounds with undelivered masses depend on each other.
    run = ReplayedRun(scope, lived, together=stateful > 1)
    everyone = scope.protocol.everyone(scope.parties)
    return run, [run.exposed([member]) for member in everyone]
