"""Rounds of the deployed code on unknowns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias

from tacit.auditing.symbolic.entropy import SymbolicEntropy
from tacit.auditing.symbolic.forms import INPUT, PLAIN, Form, Unknown, unknowns
from tacit.auditing.symbolic.ring import FormTable, SymbolicRing
from tacit.auditing.symbolic.suite import SymbolicSuite, World
from tacit.core.protocol import Protocol, Role, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Identity, Roster
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, agree, terms_for
from tacit.runtime.outcome import Outcome
from tacit.runtime.participant import Participant
from tacit.runtime.simulation.faults import Fault, faults_from
from tacit.runtime.simulation.simulator import NONCE_BYTES, Simulation, entropy_for

Drift: TypeAlias = Literal["static", "free"]
"""Whether parties bring the same vector every round, or a new one in each."""
Value: TypeAlias = Callable[[Unknown], float]


class SymbolicParticipant(Participant):
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
        super().__init__(agreement, me, agreement.entries + 2, role=role, number=number)
        self._world, self._table, self._value = world, table, value
        self.factors = 0
        """How many secret factors were drawn so far."""

    def suite(self, number: int, seed: bytes) -> SymbolicSuite:
        """Returns our hands in a round."""
        entropy = SymbolicEntropy(self.me, number, seed, self.agreement.terms.known_draws)
        ring = SymbolicRing(self.agreement.entries, self._table, (self.me, number), self._value)
        return SymbolicSuite(self.me, number, self._world, entropy, ring)

    def rebuild(self) -> "SymbolicParticipant":
        """Returns the participant as it is after a restart."""
        participant = SymbolicParticipant(
            self.agreement, self.me, self._world, self._table, self._value, self.role, number=self.number
        )
        participant._state, participant._unfinished = self.state, self.unfinished
        return participant


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
        # Symbols have no keys. The session is that of the run on numbers with this seed all the same, for what is drawn
        # from it, such as a sparse graph, is then the same in both.
        roster = Roster(Identity.generate(party, entropy_for(seed, f"identity {party}")).member() for party in everyone)
        agreement = agree(protocol, terms, roster, entries, entropy_for(seed, "session").bytes(NONCE_BYTES))
        table = FormTable()
        self.table, self.world = table, World(table.read_vector, table.weights)
        roles = stand_ins or {}
        participants = {
            party: SymbolicParticipant(agreement, party, self.world, table, value, roles.get(party))
            for party in everyone
        }
        super().__init__(agreement, participants, seed, faults, record=True, twin=True)

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
        """Returns a symbolic simulation for some options.

        Args:
            protocol: the name of the protocol.
            parties: the names of the parties.
            entries: length of the vectors.
            seed: seed of all chance.
            faults: faults to inject.
            value: value of an unknown, where a protocol selects entries by their size.
            stand_ins: coroutines that run in the place of some parties' own.
            options: the protocol's settings.

        Raises:
            ConfigError: with every problem.
            LeakRefused: if the settings themselves are refused.
        """
        entry = find(protocol)
        planned, problems = faults_from(faults, entry, parties)
        return cls(entry, terms_for(entry, parties, options, problems), entries, seed, planned, value, stand_ins)

    @property
    def is_aligned(self) -> bool:
        """Whether all entries of a vector fared alike so far, so that one of them stands for all."""
        return self.table.is_aligned(self.agreement.entries)

    def average_unknowns(self, drift: Drift = "static") -> Outcome:
        """Runs one round on unknowns: ("plain", party, entry), and ("input", party, entry) for the same times a weight.

        With "static" drift they are the same in every round; with "free" the owner is (party, round).
        """
        entries = self.agreement.entries
        return self.average(
            {
                party: make_unknowns(party if drift == "static" else (party, self.number + 1), entries)
                for party in self.parties
            }
        )


def make_unknowns(owner: Any, entries: int) -> Update:
    """Returns the unknowns that somebody brings: a vector, and its weight."""
    weight: Any = Form({(INPUT, owner, entries): 1})
    return Update(unknowns(PLAIN, owner, entries), weight)


@dataclass(frozen=True)
class SameSession(Agreement):
    """An agreement in a session that is given, and does not follow from what was agreed."""

    given: bytes

    @cached_property
    def session(self) -> bytes:
        """The session."""
        return self.given


def in_session(agreement: Agreement, session: bytes) -> SameSession:
    """Returns an agreement that has the session of another one, so that what is drawn from that is the same in both."""
    agreed = {each.name: getattr(agreement, each.name) for each in fields(Agreement)}
    return SameSession(**agreed, given=session)
