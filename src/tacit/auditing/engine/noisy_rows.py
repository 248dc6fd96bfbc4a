"""Rows for the matrix accountant, from a symbolic run in which noise is represented by unknowns.

A form that somebody learns becomes a combination of noisy vectors, which parties encoded, and of vectors without noise.
The substitution goes from the last encoding to the first, because a vector may contain earlier noise. Masks that a
coalition does not know are eliminated exactly. Secret numbers other than masks and noise count as known.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm
from typing import Any

from tacit.auditing.engine.algebra.linear import cancel_masks
from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.findings import AccountingGap
from tacit.auditing.symbolic.forms import INPUT, NOISE, PLAIN, Form, Unknown
from tacit.core.suite import ONLOOKER, Party
from tacit.privacy.matrix.releases import BareVector, NoisyVector, Releases, Row

RATIO, MASK = "ratio", "mask"


class NotAccountable(Exception):
    """The matrix accountant cannot analyse a run. The reason is a code."""

    def __init__(self, gap: AccountingGap) -> None:
        super().__init__(gap.value)
        self.gap = gap


class NoisyRows:
    """Rows of one run, for one coalition after another."""

    def __init__(self, run: SymbolicRun) -> None:
        """Takes a run with noise. Raises NotAccountable if its entries are treated differently, or a round failed."""
        self.run, self._encodings = run, run.simulation.table.encodings
        if run.entries > 1:
            raise NotAccountable(AccountingGap.ENTRIES_DIFFER)
        if run.error_of is not None:
            raise NotAccountable(AccountingGap.ROUND_FAILED)
        if run.multiplies(()) or run.scope.terms.known_draws:
            raise NotAccountable(AccountingGap.FACTORS_DRAWN)
        for ((_, number), _), encoding in self._encodings.items():
            if any(_round_of(each) >= number for each in encoding.vector[0].numbers if each[0] == NOISE):
                raise NotAccountable(AccountingGap.WITHIN_ROUND)

    @property
    def linear(self) -> bool:
        """Whether all rows are whole-number combinations of what was encoded."""
        return not self.run.simulation.table.rounded

    def releases(self, coalition: tuple[Party, ...]) -> Releases:
        """Returns the rows that a coalition sees and that honest parties train on.

        Raises NotAccountable if something is not linear.
        """
        view = self.run.view(coalition, self.run.scope.rounds)
        known = {each.token for each in view.vectors if each.is_mask}
        forms = [_without_masks(each.vector[0], known) for each in view.vectors if not each.is_mask]
        seen = [row for form, _ in cancel_masks(forms) for row in self._rows(form)]
        return Releases(frozenset(coalition) - {ONLOOKER}, seen, self._trained)

    @cached_property
    def _trained(self) -> Mapping[tuple[Party, int], list[Row]]:
        """The rows that each party's later contributions depend on, by the round in which it received them."""
        found: dict[tuple[Party, int], list[Row]] = {}
        shared: dict[frozenset[tuple[Unknown, int]], list[Row]] = {}

        def add(party: Party, number: int, form: Form) -> None:
            # Equal forms give one row: it is then the same for all who train on it.
            key = frozenset(form.numbers.items())
            if key not in shared:
                shared[key] = list(self._rows(form))
            found.setdefault((party, number), []).extend(shared[key])

        for number, results in enumerate(self.run.results, start=1):
            for party, vector in results.items():
                add(party, number, vector[0])
        for ((party, number), _), encoding in self._encodings.items():
            rest = _others(encoding.vector[0], party)
            if rest.numbers:
                if any(_round_of(each) >= number for each in rest.numbers if each[0] in (INPUT, PLAIN)):
                    raise NotAccountable(AccountingGap.WITHIN_ROUND)
                add(party, number - 1, rest)
        return found

    def _rows(self, form: Form) -> Iterator[Row]:
        """Yields the rows that determine a form: those of its numerators, if it contains quotients."""
        left, quotients = self._substitute(form)
        if not quotients:
            yield _row(*left)
            return
        # A function of the numerators and of denominators, which are weights.
        for unknown in quotients:
            total: Any = self.run.simulation.table.meaning(unknown[1])
            if total is None:
                raise NotAccountable(AccountingGap.NOT_LINEAR)
            numerator: Form = total[unknown[2]]
            yield from self._rows(numerator)
        if left[0] or left[1]:
            yield _row(*left)

    def _substitute(self, form: Form) -> tuple[tuple[dict[NoisyVector, Fraction], set[BareVector]], list[Unknown]]:
        """Returns a form as factors of noisy vectors, the vectors without noise in it, and its quotients."""
        left: dict[Unknown, Fraction] = {}
        _add(left, form, Fraction(1))
        factors: dict[NoisyVector, Fraction] = {}
        while True:
            noise = max((each for each in left if each[0] == NOISE), key=_order, default=None)
            if noise is None:
                break
            factor = left.pop(noise)
            party, number, call = noise[1]
            encoding = self._encodings[(party, number), call]
            factors[NoisyVector(party, number, call, float(encoding.part))] = factor / encoding.part
            content: Any = encoding.vector[noise[2]]
            _add(left, content, -factor)
        if any(each[0] == MASK for each in left):
            raise NotAccountable(AccountingGap.NOT_LINEAR)
        entries = self.run.simulation.agreement.entries  # The next place is that of the weight, which is public.
        bare = {BareVector(*_owner(each)) for each in left if each[0] == INPUT and each[2] < entries}
        return (factors, bare), [each for each in left if each[0] == RATIO]


def _order(unknown: Unknown) -> tuple[int, int]:
    """Orders noise by round and call: a vector contains only noise of earlier rounds, or of its party's own calls."""
    _, number, call = unknown[1]
    return number, call


def _row(factors: Mapping[NoisyVector, Fraction], bare: Iterable[BareVector]) -> Row:
    """Returns a row with whole factors that have no common divisor."""
    if not factors:
        return Row({}, frozenset(bare))
    common = lcm(*(factor.denominator for factor in factors.values()))
    whole = {vector: int(factor * common) for vector, factor in factors.items()}
    shared = gcd(*whole.values())
    return Row({vector: factor // shared for vector, factor in whole.items()}, frozenset(bare))


def _add(left: dict[Unknown, Fraction], form: Form, factor: Fraction) -> None:
    """Adds a multiple of a form. A vector counts as the same with its weight and without: with noise all weigh one."""
    for unknown, number in form.terms.items():
        each = (INPUT, *unknown[1:]) if unknown[0] == PLAIN else unknown
        value = left.get(each, Fraction(0)) + number * factor
        if value:
            left[each] = value
        else:
            left.pop(each, None)


def _without_masks(form: Form, known: set[bytes]) -> Form:
    """Returns a form without the masks from known seeds."""
    numbers = {each: number for each, number in form.numbers.items() if each[0] != MASK or each[1] not in known}
    return form if len(numbers) == len(form.numbers) else Form.over(numbers, form.below)


def _others(form: Form, party: Party) -> Form:
    """Returns the part of a vector that is not the party's own input."""
    numbers = {
        each: number
        for each, number in form.numbers.items()
        if each[0] not in (INPUT, PLAIN) or _owner(each)[0] != party
    }
    return Form.over(numbers, form.below)


def _owner(unknown: Unknown) -> tuple[Party, int]:
    """Returns the party and round of an input or of noise; round 1 if all rounds have the same input."""
    owner: Any = unknown[1]
    return (str(owner[0]), int(owner[1])) if isinstance(owner, tuple) else (str(owner), 1)


def _round_of(unknown: Unknown) -> int:
    return _owner(unknown)[1]
