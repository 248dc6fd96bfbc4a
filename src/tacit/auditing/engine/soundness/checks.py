"""Soundness of the symbolic audit: checks that a protocol treats numbers and keys as its run on symbols says.

A run on symbols can miss leaks if a protocol uses vectors or keys as anything else: writes them as text, counts by
them, sends parts of them, or treats symbols differently from numbers. So the first rounds are also run several times
with real cryptography, with all choices the same:

- Every packed vector must equal its form, masks included, and every key, share and box must be what its token stands
  for.
- With other vectors nothing else may change: who sends what to whom and when, every field of every message, also in
  sealed boxes, and how rounds end. Some fields, such as a digest, depend on vectors by way of sums. If all receivers of
  such a field know these sums, the other vectors have the same sums.
- With other keys only masks, keys, and bytes under keys may change, and all of these must change.

A protocol that fails cannot be audited. The error names the message and the field.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tacit.auditing.engine.failures import culprit, refusal
from tacit.auditing.engine.soundness.concrete_run import Twin, twin
from tacit.auditing.engine.soundness.guard_vectors import (
    Brought,
    edge_of,
    in_order,
    in_order_of_scales,
    in_scale,
    of_several_scales,
    pair,
    stretch_entries,
)
from tacit.auditing.engine.soundness.length_comparison import LengthRuns, find_difference
from tacit.auditing.engine.soundness.run_comparison import Comparison, Spot, different
from tacit.auditing.engine.views import contents
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.forms import INPUT, ONE, PLAIN, Unknown, noticing
from tacit.auditing.symbolic.simulation import SymbolicSimulation, in_session
from tacit.auditing.symbolic.suite import Sealed
from tacit.core.errors import NotAuditable, NotLinear, ProtocolMistake, TacitError
from tacit.core.progress import report_step
from tacit.core.suite import Party
from tacit.protocols import is_shipped
from tacit.runtime.agreement import Agreement
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import SimulatedRound

ENTRIES, SELECTED = 3, 8
"""Length of the vectors; and their length if parties select some of the entries."""
ROUNDS = 2
"""The largest number of rounds that are run. In the second round parties have state."""
LONG_ENTRIES, SEVERAL_ROUNDS, MOST_ROUNDS = 24, 3, 8
"""For protocols that are not shipped: the length of vectors, the fewest rounds if more than one is audited, and the
most."""
MOST_WORK = 20_000
"""Messages, shares and masks of all rounds, times entries, above which vectors of protocols that are not shipped are
shorter."""
SMALL = 12
"""Number of parties up to which rounds are cheap. With more parties, two rounds are run unless more are asked for, and
long vectors are run in one round."""
AUDITED_ENTRIES, MOST_BYTES = 2, 4_000_000
"""Length of vectors on symbols in an audit; and bytes of all messages above which long vectors are shorter."""
TINY = 2.0**-20
"""Factor that makes vectors smaller by orders of magnitude."""
REMEMBERED = 256

_found: OrderedDict[Any, NotLinear | int | None] = OrderedDict()


def check_soundness(scope: Scope) -> int | None:
    """Raises NotLinear or NotAuditable unless symbols represent all that parties send under these settings.

    Returns the number of entries that an audit has to analyse if entries are treated differently, and None if one entry
    stands for all. Results are cached by protocol, parties, settings, faults and length. Malicious stand-ins are
    ignored: the question is whether the protocol can be audited.
    """
    shipped = is_shipped(scope.protocol)
    most = ROUNDS if shipped else MOST_ROUNDS
    several = SEVERAL_ROUNDS if len(scope.parties) <= SMALL else ROUNDS
    rounds = min(scope.rounds if shipped or scope.rounds == 1 else max(scope.rounds, several), most)
    length = None if shipped else scope.length
    key = scope.protocol, scope.parties, msgspec.json.encode(scope.terms.settings), scope.faults, length
    for number in range(rounds, most + 1):
        if (*key, number) in _found and (number == rounds or not isinstance(_found[*key, number], NotLinear)):
            rounds = number  # More rounds show more, and fewer found no problem.
    if (*key, rounds) not in _found:
        report_step("checking that the protocol treats numbers and symbols alike")
        try:
            _found[*key, rounds] = _check(scope, rounds)
        except NotLinear as error:
            _found[*key, rounds] = error
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    found = _found[*key, rounds]
    if isinstance(found, NotLinear):
        raise found
    return found


def _check(scope: Scope, rounds: int) -> int | None:
    guard = Guard(scope, rounds)
    guard.check()
    if not is_shipped(scope.protocol):
        guard.check_lengths()
        if not scope.faults:
            faults, small = dropout_faults(scope.parties, rounds), len(scope.parties) <= SMALL
            Guard(replace(scope, faults=faults), min(rounds, SEVERAL_ROUNDS), thorough=small).check()
    return guard.unlike_entries


def dropout_faults(parties: Sequence[Party], rounds: int) -> tuple[Fault, ...]:
    """Returns faults: one party sends nothing in the first round, and another crashes in the second."""
    faults = [Fault(action="silence", party=parties[-1], round=1)]
    if rounds > 1 and len(parties) > 2:
        faults.append(Fault(action="crash", party=parties[-2], step=2, round=2))
    return tuple(faults)


class Guard:
    """Runs of the rounds of a scope, on symbols and on numbers."""

    def __init__(self, scope: Scope, rounds: int, *, thorough: bool | None = None) -> None:
        """Takes a scope. `thorough` selects long vectors of several scales: by default for protocols that are not
        shipped."""
        self.scope, self.rounds = scope, rounds
        self.thorough = not is_shipped(scope.protocol) if thorough is None else thorough
        self.entries = SELECTED if scope.terms.selective else ENTRIES
        if self.thorough:
            affordable = MOST_WORK // max(1, scope.terms.work * rounds)
            self.entries = max(self.entries, min(LONG_ENTRIES, affordable))
        self.simulation = SymbolicSimulation(
            scope.protocol, scope.terms, self.entries, scope.seed, scope.faults, self._value, logged=True
        )
        self.agreement, self.world, self.table = (
            self.simulation.agreement,
            self.simulation.world,
            self.simulation.table,
        )
        self.ring = self.agreement.ring(PROOF_BITS)
        self._group_parties([])
        self.first, self.others = self._sample_inputs(self.agreement)
        """The first vectors by round; and other vectors of several kinds, each by round."""
        self.rounded: set[Unknown] = set()
        """The unknowns that were sent in fractions, which are rounded."""
        self.symbols: list[SimulatedRound] = []

    # --- input vectors ------------------------------------------------------------------------------------------------

    def _group_parties(self, sums: Sequence[Mapping[Unknown, Any]]) -> None:
        """Determines for each round which groups of parties must keep their sums, and which parties their vectors."""
        alone, rest = _peel_sums(sums)
        self.groups: list[tuple[list[list[Party]], set[Party]]] = []
        for number in range(1, self.rounds + 1):
            groups: dict[Any, list[Party]] = defaultdict(list)
            for party in self.scope.parties:
                groups[frozenset(_mentions(rest, (party, number))) or party].append(party)
            told = {party for party in self.scope.parties if self._is_told(alone, (party, number))}
            self.groups.append((list(groups.values()), told))

    def _sample_inputs(
        self, agreement: Agreement, rounds: int | None = None
    ) -> tuple[list[Brought], list[list[Brought]]]:
        """Returns vectors for some rounds, and other vectors with the same sums: very different ones, and of several
        scales."""
        ring, chosen = agreement.ring(PROOF_BITS), []
        others: list[list[Brought]] = [[], []] if self.thorough else [[]]
        for number, (groups, told) in enumerate(self.groups[:rounds], start=1):
            first, *unlike = pair(agreement, ring, number, groups)
            if self.thorough:
                unlike.append(of_several_scales(agreement, ring, number, groups, first))
            chosen.append(first)
            for kind, updates in zip(others, unlike, strict=True):
                kind.append({**updates, **{party: first[party] for party in told}})
        return chosen, others

    @property
    def unlike_entries(self) -> int | None:
        """The number of analysed entries, if entries are treated differently although the terms do not say so;
        otherwise None."""
        return None if self.scope.terms.selective or self.simulation.is_aligned else self.entries

    def _is_told(self, alone: Collection[Unknown], owner: tuple[Party, int]) -> bool:
        """Says whether a party's vector is known, entry by entry."""
        return all(any((kind, owner, entry) in alone for kind in (INPUT, PLAIN)) for entry in range(self.entries))

    def _known_to(self, receivers: Collection[Party]) -> list[Mapping[Unknown, Any]]:
        """Returns the sums that all of some receivers know."""
        known = [self.known[party] for party in receivers]
        return [terms for key, terms in known[0].items() if all(key in each for each in known)]

    def _value(self, unknown: Unknown) -> float:
        _, (party, number), entry = unknown
        update = self.first[number - 1][party]
        return float(update.vector[entry] if entry < self.entries else update.weight)

    # --- the runs -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises NotLinear or NotAuditable unless symbols represent all that parties send."""
        self._run_symbols()
        self.known = self._sums()
        found = self._compare_with(self._known_to(self.agreement.everyone))
        if found:
            # The receivers of these fields may know more sums than all parties do.
            found = self._compare_with(self._known_to([spot.address.to for spot in found]))
        if found:
            why = "it depends on vectors, and is none that the ring has packed"
            raise different(self.scope.protocol.name, f"{found[0]}: {why}")

    def _compare_with(self, sums: Sequence[Mapping[Unknown, Any]]) -> list[Spot]:
        """Runs the rounds on numbers and compares them. The other vectors keep the given sums.

        Returns the places at which something other than a vector depends on vectors.
        """
        if not self.table.sized:  # Otherwise the symbolic run selected entries by the size of these vectors.
            self._group_parties(sums)
            self.first, self.others = self._sample_inputs(self.agreement)
        here = self._twin(self.first)
        if self.table.sized and self.scope.terms.selective:
            self.others = self._in_same_order(here)
        others = [self._twin(each) for each in self.others]
        if is_shipped(self.scope.protocol):
            # A protocol may announce that a number is too large for its ring. Any other dependence on vectors is a
            # leak.
            others = [others[0], *(each for each in others[1:] if not each.book.overflowed)]
        real = [here, *others, self._twin(self.first, "other")]
        self.runs = LengthRuns(self.entries, here, others[0], real[-1])
        try:
            return Comparison(self.scope, self.simulation, self.symbols, real, self.rounded).check()
        except NotAuditable as error:
            if not any(run.book.overflowed for run in others):
                raise
            raise NotAuditable(
                f"{error.message}; entries at the clip are too large for its ring",
                remedy="let Terms.span return the largest number that is encoded",
            ) from error

    def check_lengths(self) -> None:
        """Raises NotAuditable if long vectors are treated differently from those of an audit."""
        short = self.runs
        passed = (each for played in short.here.rounds for each in played.transcript or ())
        size = sum(len(each.envelope.sealed) for each in passed) // self.entries
        runs = [self.run_lengths(max(self.entries, min(self.scope.length, MOST_BYTES // max(1, size))))]
        if self.unlike_entries is None and not self.scope.terms.selective:
            runs, short = [short, *runs], self.run_lengths(AUDITED_ENTRIES)
        for long in runs:
            if problem := find_difference(short, long):
                raise different(self.scope.protocol.name, problem)

    def run_lengths(self, entries: int) -> LengthRuns:
        """Returns runs on vectors of the given length."""
        agreement = in_session(replace(self.agreement, entries=entries), self.agreement.session)
        first, (other, *_) = self._sample_inputs(agreement, None if len(self.scope.parties) <= SMALL else 1)
        if self.table.sized and self.scope.terms.selective:
            other = [(in_scale if self.table.compared else in_order)(updates) for updates in first]
        return LengthRuns(
            entries, *(self._twin(*each, agreement) for each in ((first, ""), (other, ""), (first, "other")))
        )

    def _in_same_order(self, here: Twin) -> list[list[Brought]]:
        """Returns other vectors with the same order of magnitudes, so that the same entries are selected."""
        edge = edge_of(self.agreement, self.ring)
        if not self.table.compared:
            found = [[in_order(updates) for updates in self.first]]
            return [*found, [in_order_of_scales(updates, edge) for updates in self.first]] if self.thorough else found
        # The change of entries since earlier rounds keeps its order only if everything grows by the same factor.
        found = [[in_scale(updates) for updates in self.first]]
        if self.thorough:
            largest = max(float(np.abs(each.vector).max()) for updates in self.first for each in updates.values())
            up, stretched = 2.0 ** int(np.log2(edge / largest)), stretch_entries(self.entries, here.book.magnitudes)
            found += [[in_scale(updates, factor) for updates in self.first] for factor in (stretched, up, TINY)]
        return found

    def _sums(self) -> dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]]:
        """Returns the forms, without masks and other secrets, that each party sent or received."""
        known: dict[Party, dict[frozenset[Any], Mapping[Unknown, Any]]] = defaultdict(dict)
        for played in self.symbols:
            for passed in played.transcript or ():
                address, meaning = passed.envelope.address, self.world.meaning(bytes(passed.envelope.sealed))
                if not isinstance(meaning, Sealed):
                    continue
                for _, data in contents(self.world, meaning.plaintext):
                    vector = self.table.meaning(data)
                    for form in () if vector is None else vector:
                        self.rounded.update(each for each, factor in form.terms.items() if factor.denominator != 1)
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
                except ProtocolMistake:
                    raise
                except TacitError:
                    pass  # A round that ends without an average was still recorded.
                except Exception as error:
                    raise refusal(name, error) from error
                if self.simulation.last is not None:
                    self.symbols.append(self.simulation.last)
        if raised:
            raise refusal(name, raised[0]) from raised[0]

    def _twin(self, updates: Sequence[Brought], keys: str = "", agreement: Agreement | None = None) -> Twin:
        try:
            return twin(self.scope, agreement or self.agreement, updates, keys)
        except Exception as error:
            name = self.scope.protocol.name
            raise NotAuditable(
                f"{name} works on symbols and fails on numbers: {error!r}{culprit(error)}",
                remedy=f"correct the coroutine of {name} that fails, and try it in a test with invented vectors first",
            ) from error


def _peel_sums(sums: Sequence[Mapping[Unknown, Any]]) -> tuple[set[Unknown], list[Mapping[Unknown, Any]]]:
    """Returns the unknowns that sums determine one after another, and what remains of the other sums."""
    alone, rest = {ONE}, list(sums)
    while True:
        rest = [{unknown: factor for unknown, factor in terms.items() if unknown not in alone} for terms in rest]
        if not (fresh := {unknown for terms in rest if len(terms) == 1 for unknown in terms}):
            return alone, rest
        alone |= fresh


def _mentions(sums: Sequence[Mapping[Unknown, Any]], owner: tuple[Party, int]) -> Iterator[tuple[Any, ...]]:
    """Yields the terms of sums that contain a party's vector."""
    for index, terms in enumerate(sums):
        for unknown, factor in terms.items():
            if unknown[1] == owner:
                yield index, unknown[0], unknown[2], factor
