"""Simulation of rounds on unknowns, by the deployed code."""

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
"""Whether parties contribute the same vector in every round, or a new one in each."""
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
        """Number of secret factors that were drawn so far."""

    def suite(self, number: int, seed: bytes) -> SymbolicSuite:
        """Returns the symbolic suite of this party for a round."""
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
        *,
        logged: bool = False,
        noisy: bool = False,
    ) -> None:
        """Sets up a run. `value` returns the value of an input's unknown, for choices that depend on it.

        With `logged`, the calls of parties to their suites are logged. With `noisy`, noise is represented by unknowns.
        """
        everyone = protocol.everyone(terms.parties)
        # Symbols have no keys. The session is still that of the run on numbers with this seed, so that whatever is
        # derived from it, such as a sparse graph, is the same in both.
        roster = Roster(Identity.generate(party, entropy_for(seed, f"identity {party}")).member() for party in everyone)
        agreement = agree(protocol, terms, roster, entries, entropy_for(seed, "session").bytes(NONCE_BYTES))
        table = FormTable(noisy=noisy)
        self.table, self.world = table, World(table.read_vector, table.weights, logged=logged)
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
        """Returns a symbolic simulation for the given options.

        Args:
            protocol: The name of the protocol.
            parties: The names of the parties.
            entries: Length of the vectors.
            seed: Seed of all random choices.
            faults: Faults to inject.
            value: Returns the value of an unknown, if the protocol selects entries by their size.
            stand_ins: Coroutines that replace those of some parties.
            options: The protocol's settings.

        Raises:
            ConfigError: With all problems.
            LeakRefused: If the settings themselves are refused.
        """
        entry = find(protocol)
        planned, problems = faults_from(faults, entry, parties)
        return cls(entry, terms_for(entry, parties, options, problems), entries, seed, planned, value, stand_ins)

    @property
    def is_aligned(self) -> bool:
        """Whether all entries of vectors were treated alike so far, so that one entry represents all."""
        return self.table.is_aligned(self.agreement.entries)

    def average_unknowns(self, drift: Drift = "static") -> Outcome:
        """Runs one round on unknowns: ("plain", party, entry), and ("input", party, entry) for its product with the
        weight.

        With "static" drift they are the same in every round; with "free" drift the owner is (party, round).
        """
        entries = self.agreement.entries
        return self.average(
            {
                party: make_unknowns(party if drift == "static" else (party, self.number + 1), entries)
                for party in self.parties
            }
        )


def make_unknowns(owner: Any, entries: int) -> Update:
    """Returns the unknown input of an owner: a vector, and its weight."""
    weight: Any = Form({(INPUT, owner, entries): 1})
    return Update(unknowns(PLAIN, owner, entries), weight)


@dataclass(frozen=True)
class SameSession(Agreement):
    """An agreement with a given session, instead of one that is derived from its content."""

    given: bytes

    @cached_property
    def session(self) -> bytes:
        """The session."""
        return self.given


def in_session(agreement: Agreement, session: bytes) -> SameSession:
    """Returns an agreement with the given session, so that values derived from the session are the same in both."""
    agreed = {each.name: getattr(agreement, each.name) for each in fields(Agreement)}
    return SameSession(**agreed, given=session)
