"""Rounds of the deployed code on unknowns."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from tacit.audit.symbolic.entropy import SymbolicEntropy
from tacit.audit.symbolic.forms import Unknown, unknowns
from tacit.audit.symbolic.ring import FormTable, SymbolicRing
from tacit.audit.symbolic.suite import SymbolicSuite, World
from tacit.core.protocol import Protocol, Role, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Member, Roster
from tacit.drivers.agreement import Agreement, agree, terms_for
from tacit.drivers.faults import Fault, faults_from
from tacit.drivers.outcome import Outcome
from tacit.drivers.seat import Seat
from tacit.drivers.simulator import NONCE_BYTES, Simulation, entropy_for
from tacit.protocols import find

Drift: TypeAlias = Literal["static", "free"]
"""Whether parties bring the same vector every round, or a new one in each."""
Value: TypeAlias = Callable[[Unknown], float]


class SymbolicSeat(Seat):
    """A party whose keys are tokens."""

    def __init__(
        self,
        agreement: Agreement,
        me: Party,
        world: World,
        table: FormTable,
        value: Value | None,
        role: Role | None = None,
        number: int = 0,
    ) -> None:
        super().__init__(agreement, me, agreement.entries + 1, role=role, number=number)
        self._world, self._table, self._value = world, table, value
        self.factors = 0
        """How many secret factors were drawn so far."""

    def suite(self, number: int, seed: bytes) -> SymbolicSuite:
        """Returns our hands in a round."""
        entropy = SymbolicEntropy(self.me, number, seed)
        ring = SymbolicRing(self.agreement.entries, self._table, (self.me, number), self._value)
        return SymbolicSuite(self.me, number, self._world, entropy, ring)

    def rebuilt(self) -> "SymbolicSeat":
        """Returns the seat as it is after a restart."""
        seat = SymbolicSeat(
            self.agreement, self.me, self._world, self._table, self._value, self.role, number=self.number
        )
        seat._state, seat._unfinished = self.state, self.unfinished
        return seat


class SymbolicSimulation(Simulation):
    """The parties of an agreement on unknowns, round after round. Everything is recorded."""

    def __init__(
        self,
        protocol: Protocol,
        terms: Terms,
        entries: int,
        seed: int = 0,
        faults: Sequence[Fault] = (),
        value: Value | None = None,
        stand_ins: Mapping[Party, Role] | None = None,
    ) -> None:
        """Sets up a run. `value` says what unknowns of inputs stand for, where a choice depends on it."""
        everyone = protocol.everyone(terms.parties)
        # Symbols have no keys. A roster has all the same, so that sessions are hashed as ever.
        roster = Roster(Member(party, *_keys(party)) for party in everyone)
        agreement = agree(protocol, terms, roster, entries, entropy_for(seed, "session").bytes(NONCE_BYTES))
        table = FormTable()
        self.world = World(table.meaning)
        roles = stand_ins or {}
        seats = {
            party: SymbolicSeat(agreement, party, self.world, table, value, roles.get(party)) for party in everyone
        }
        super().__init__(agreement, seats, seed, faults, record=True, twin=True)

    @classmethod
    def of(  # type: ignore[override]  # symbols have no bits, and are always recorded
        cls,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        seed: int = 0,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        value: Value | None = None,
        stand_ins: Mapping[Party, Role] | None = None,
        **options: Any,
    ) -> "SymbolicSimulation":
        """Returns a symbolic simulation for some options; raises ConfigError with every problem, or LeakRefused."""
        entry = find(protocol)
        kinds = [kind.__name__ for kind in entry.messages]
        planned, problems = faults_from(faults, entry.everyone(tuple(parties)), kinds)
        return cls(entry, terms_for(entry, parties, options, problems), entries, seed, planned, value, stand_ins)

    def average_unknowns(self, drift: Drift = "static") -> Outcome:
        """Runs one round on unknowns: ("input", party, entry), and one more entry for the weight.

        With "static" drift they are the same in every round; with "free" the owner is (party, round).
        """
        updates: dict[Party, Any] = {}
        for party in self.parties:
            owner = party if drift == "static" else (party, self.number + 1)
            vector = unknowns("input", owner, self.agreement.entries + 1)
            updates[party] = Update(vector[:-1], vector[-1])
        return self.average(updates)


def _keys(party: Party) -> tuple[bytes, bytes]:
    digest = hashlib.sha512(party.encode()).digest()
    return digest[:32], digest[32:]
