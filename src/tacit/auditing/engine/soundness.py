"""Soundness of the symbolic audit: checks that a protocol treats numbers and keys as its run on symbols says.

A run on unknowns is blind where a protocol takes vectors or keys for anything else than that: writes them as text,
counts by them, sends pieces of them, or does other things to symbols than to numbers. So its first rounds are played
with real cryptography as well, some times over and with all choices alike:

- Every packed vector must be what its form says, masks and all, and every key, share and seal what its token stands
  for.
- On other vectors nothing else may be another: who sends what to whom and when, every field of every message, in sealed
  boxes too, and how rounds end. The others have the same sums where these are known to all who are sent something that
  follows from them, such as a digest.
- With other keys nothing may be another but what symbols have masks, keys, or words under keys for, and all of that
  must.

Whatever fails this cannot be audited, and is refused with the message and the field at which it fails.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tacit.auditing.engine.concrete_run import Twin, twin
from tacit.auditing.engine.failures import culprit, refusal
from tacit.auditing.engine.guard_vectors import Brought, in_order, in_scale, pair
from tacit.auditing.engine.run_comparison import Comparison, Spot, different
from tacit.auditing.engine.views import contents
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.forms import INPUT, ONE, PLAIN, Unknown, noticing
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.auditing.symbolic.suite import Sealed
from tacit.core.errors import NotAuditable, NotLinear, TacitError
from tacit.core.progress import report_step
from tacit.core.suite import Party
from tacit.runtime.simulation.simulated_round import SimulatedRound

ENTRIES, SELECTED = 3, 8
"""Length of the vectors that are brought; of those of which some entries are selected."""
ROUNDS = 2
"""Rounds that are played at most: in the second there is a state."""
REMEMBERED = 256

_found: OrderedDict[Any, NotLinear | None] = OrderedDict()


def check_soundness(scope: Scope) -> None:
    """Raises NotLinear, or NotAuditable, unless symbols stand for all that parties show under these settings.

    What was found is remembered by protocol, parties, settings and faults. Those who lie are left out: the question is
    whether the protocol can be audited.
    """
    key = scope.protocol, scope.parties, msgspec.json.encode(scope.terms.settings), scope.faults
    rounds = min(scope.rounds, ROUNDS)
    for number in range(rounds, ROUNDS + 1):
        if (*key, number) in _found and (number == rounds or _found[*key, number] is None):
            rounds = number  # in more rounds there is more to be seen, and there was nothing
    if (*key, rounds) not in _found:
        report_step("trying whether the protocol does with numbers what it does with unknowns")
        try:
            Guard(scope, rounds).check()
            _found[*key, rounds] = None
        except NotLinear as error:
            _found[*key, rounds] = error
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    if (found := _found[*key, rounds]) is not None:
        raise found


class Guard:
    """The rounds of a scope, on symbols and on numbers."""

    def __init__(self, scope: Scope, rounds: int) -> None:
        self.scope, self.rounds = scope, rounds
        self.entries = SELECTED if scope.terms.selective else ENTRIES
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, self._value
        )
        self.agreement, self.world, self.table = (
            self.simulation.agreement,
            self.simulation.world,
            self.simulation.table,
        )
        self.ring = self.agreement.ring(PROOF_BITS)
        self.first, self.others = self._sample_inputs([])
        self.symbols: list[SimulatedRound] = []

    # --- what is brought ------------------------------------------------------------------------------------------

    def _sample_inputs(self, sums: Sequence[Mapping[Unknown, Any]]) -> tuple[list[Brought], list[Brought]]:
        """Returns vectors for all rounds, and others with the same sums."""
        alone, rest = _peel_sums(sums)
        pairs = []
        for number in range(1, self.rounds + 1):
            groups: dict[Any, list[Party]] = defaultdict(list)
            for party in self.scope.parties:
                groups[frozenset(_mentions(rest, (party, number))) or party].append(party)
            told = {party for party in self.scope.parties if self._is_told(alone, (party, number))}
            first, others = pair(self.agreement, self.ring, number, list(groups.values()))
            pairs.append((first, {**others, **{party: first[party] for party in told}}))
        return [first for first, _ in pairs], [others for _, others in pairs]

    def _is_told(self, alone: Collection[Unknown], owner: tuple[Party, int]) -> bool:
        """Says whether somebody's vector is known, entry by entry."""
        return all(any((kind, owner, entry) in alone for kind in (INPUT, PLAIN)) for entry in range(self.entries))

    def _known_to(self, receivers: Collection[Party]) -> list[Mapping[Unknown, Any]]:
        """Returns the sums that some receivers all know."""
        known = [self.known[party] for party in receivers]
        return [terms for key, terms in known[0].items() if all(key in each for each in known)]

    def _value(self, unknown: Unknown) -> float:
        _, (party, number), entry = unknown
        update = self.first[number - 1][party]
        return float(update.vector[entry] if entry < self.entries else update.weight)

    # --- the runs -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises NotLinear, or NotAuditable, unless symbols stand for all that parties show."""
        self._run_symbols()
        self.known = self._sums()
        found = self._compare_with(self._known_to(self.agreement.everyone))
        if found:
            # Those who were sent this may know more than all do.
            found = self._compare_with(self._known_to([spot.address.to for spot in found]))
        if found:
            why = "it depends on vectors, and is none that the ring has packed"
            raise different(self.scope.protocol.name, f"{found[0]}: {why}")

    def _compare_with(self, sums: Sequence[Mapping[Unknown, Any]]) -> list[Spot]:
        """Plays the rounds on numbers, and compares them; of other vectors, some sums are the same.

        Returns where something else than a vector is another on other vectors.
        """
        if not self.table.sized:  # otherwise symbols were chosen by the size of these very vectors
            self.first, self.others = self._sample_inputs(sums)
        elif self.scope.terms.selective:
            # What entries were before is in the order of sizes only if all of it is larger by as much.
            self.others = [(in_scale if self.table.compared else in_order)(updates) for updates in self.first]
        real = self._twin(self.first), self._twin(self.others), self._twin(self.first, "other")
        return Comparison(self.scope, self.simulation, self.symbols, real).check()

    def _sums(self) -> dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]]:
        """Returns the forms without masks and other secrets that each party sent or was sent."""
        known: dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]] = defaultdict(dict)
        for played in self.symbols:
            for passed in played.transcript or ():
                address, meaning = passed.envelope.address, self.world.meaning(bytes(passed.envelope.sealed))
                if not isinstance(meaning, Sealed):
                    continue
                for _, data in contents(self.world, meaning.plaintext):
                    vector = self.table.meaning(data)
                    for form in () if vector is None else vector:
                        if form.terms and all(each == ONE or each[0] in (INPUT, PLAIN) for each in form.terms):
                            key = frozenset(form.terms.items())
                            known[address.sender][key] = known[address.to][key] = form.terms
        return known

    def _run_symbols(self) -> None:
        name = self.scope.protocol.name
        with noticing() as raised:
            for _ in range(self.rounds):
                try:
                    self.simulation.average_unknowns("free")
                except TacitError:
                    pass  # a round that ends without an average has been seen all the same
                except Exception as error:
                    raise refusal(name, error) from error
                if self.simulation.last is not None:
                    self.symbols.append(self.simulation.last)
        if raised:
            raise refusal(name, raised[0]) from raised[0]

    def _twin(self, updates: Sequence[Brought], keys: str = "") -> Twin:
        try:
            return twin(self.scope, self.agreement, updates, keys)
        except Exception as error:
            name = self.scope.protocol.name
            raise NotAuditable(f"{name} fails on numbers, and not on symbols: {error!r}{culprit(error)}") from error


def _peel_sums(sums: Sequence[Mapping[Unknown, Any]]) -> tuple[set[Unknown], list[Mapping[Unknown, Any]]]:
    """Returns the unknowns that sums give away one after another, and what they say of others."""
    alone, rest = {ONE}, list(sums)
    while True:
        rest = [{unknown: factor for unknown, factor in terms.items() if unknown not in alone} for terms in rest]
        if not (fresh := {unknown for terms in rest if len(terms) == 1 for unknown in terms}):
            return alone, rest
        alone |= fresh


def _mentions(sums: Sequence[Mapping[Unknown, Any]], owner: tuple[Party, int]) -> Iterator[tuple[Any, ...]]:
    """Yields how sums speak of what somebody brought."""
    for index, terms in enumerate(sums):
        for unknown, factor in terms.items():
            if unknown[1] == owner:
                yield index, unknown[0], unknown[2], factor
