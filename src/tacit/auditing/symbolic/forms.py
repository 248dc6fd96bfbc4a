"""Linear forms over named unknowns: the values that protocols compute with in a symbolic run.

A symbolic vector is a NumPy array of dtype object whose entries are `Form`s. So protocol code adds, scales and indexes
it exactly as it does a vector of numbers.
"""

import math
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Unknown: TypeAlias = tuple[Any, ...]
"""An unknown: its kind ("input", "mask", …), its owner, and its place in the vector."""
PLAIN, INPUT = "plain", "input"
"""Kinds of a party's inputs: entries as they are, and entries times the weight. The weight itself is one more of the
second kind."""
NOISE = "noise"
"""Kind of the noise that a party adds to one vector. Its owner is the party, the round and the number of the call."""
ONE: Unknown = ("one",)
"""The constant that public numbers are multiples of. Every party knows it."""


def _exact(number: Any) -> int | Fraction:
    """Returns a number without rounding. A float becomes the simple fraction that is closest to it, if there is one.

    Protocols compute with floats, but whether two sums determine a vector depends on exact coefficients: 1/9 is a
    ninth.
    """
    if isinstance(number, float | np.floating):
        return _simplest(float(number))
    return number if isinstance(number, Fraction) else int(number)


@lru_cache(maxsize=1024)
def _simplest(number: float) -> Fraction:
    simple = Fraction(number).limit_denominator(10**6)
    return simple if float(simple) == number else Fraction(number)


OURS = ("tacit.auditing", "tacit.core", "numpy")
"""Packages whose code only serves callers: an error raised in them is attributed to the caller."""
_raised: ContextVar["list[NonlinearUse] | None"] = ContextVar("_raised", default=None)


def ours(module: str, others: tuple[str, ...] = OURS) -> bool:
    """Says whether a module belongs to one of some packages."""
    return any(f"{module}.".startswith(f"{package}.") for package in others)


class NonlinearUse(TypeError):
    """A protocol applied an operation to an unknown that a linear form cannot express."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if (raised := _raised.get()) is not None and _asked_by_protocol():
            raised.append(self)


def _asked_by_protocol() -> bool:
    """Says whether a protocol requested the nonlinear operation, and not a driver that tries it and continues."""
    frame = sys._getframe(2)  # noqa: SLF001
    while frame is not None and ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and not ours(
        frame.f_globals.get("__name__", ""), ("tacit.runtime", "tacit.net", "tacit.integrations")
    )


@contextmanager
def noticing() -> Iterator[list[NonlinearUse]]:
    """Collects the nonlinear operations of protocols, also those whose error the protocol caught."""
    raised: list[NonlinearUse] = []
    token = _raised.set(raised)
    try:
        yield raised
    finally:
        _raised.reset(token)


def _nonlinear(what: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise NonlinearUse(f"a protocol may not {what} an unknown")

    return refuse


class Form:
    """A linear combination of unknowns. Supports exactly the linear operations; all others raise TypeError.

    Audits spend much of their time adding forms, so factors are whole numbers over one denominator.
    """

    __slots__ = ("_terms", "below", "numbers")

    numbers: dict[Unknown, int]
    """The numerator of each unknown's factor; none is zero."""
    below: int
    """The positive denominator of all factors. It may have a common divisor with all numerators."""
    _terms: dict[Unknown, Fraction] | None

    def __init__(self, terms: Mapping[Unknown, int | Fraction] | None = None) -> None:
        self._terms = None
        factors = {unknown: factor for unknown, factor in (terms or {}).items() if factor}
        self.below = math.lcm(*(factor.denominator for factor in factors.values()))
        self.numbers = {
            unknown: factor.numerator * (self.below // factor.denominator) for unknown, factor in factors.items()
        }

    @classmethod
    def over(cls, numbers: dict[Unknown, int], below: int = 1) -> "Form":
        """Returns the form with the given nonzero numerators over a denominator."""
        form = cls.__new__(cls)
        form.numbers, form.below, form._terms = numbers, below, None  # noqa: SLF001
        return form

    @property
    def terms(self) -> Mapping[Unknown, int | Fraction]:
        """The factor of each unknown."""
        if self.below == 1:
            return self.numbers
        if self._terms is None:
            self._terms = {unknown: Fraction(number, self.below) for unknown, number in self.numbers.items()}
        return self._terms

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self).__add__(other)

    def _plus(self, other: Any, sign: int) -> Any:
        if not isinstance(other, Form):
            if not isinstance(other, Real):
                return NotImplemented
            other = Form({ONE: _exact(other)})
        below = self.below
        if below == other.below:
            times, numbers = sign, dict(self.numbers)
        else:
            below = math.lcm(below, other.below)
            times, factor = sign * (below // other.below), below // self.below
            numbers = {unknown: number * factor for unknown, number in self.numbers.items()}
        # What only one of the two has is taken over as it is.
        known = numbers.get
        for unknown, number in other.numbers.items():
            before = known(unknown)
            if before is None:
                numbers[unknown] = number * times
            elif added := before + number * times:
                numbers[unknown] = added
            else:
                del numbers[unknown]
        return Form.over(numbers, below)

    def __neg__(self) -> "Form":
        return Form.over({unknown: -number for unknown, number in self.numbers.items()}, self.below)

    def __mul__(self, factor: Any) -> "Form":
        if isinstance(factor, Form):
            raise NonlinearUse("a protocol may not multiply an unknown by another")
        exact = _exact(factor)
        if not exact:
            return Form()
        common = math.gcd(exact.numerator, self.below)
        times, below = exact.numerator // common, self.below // common
        # Common divisors of the numerators and the new denominator are removed, or both would grow without bound.
        shared = math.gcd(exact.denominator, *self.numbers.values())
        below *= exact.denominator // shared
        if shared == 1:
            return Form.over({unknown: number * times for unknown, number in self.numbers.items()}, below)
        return Form.over({unknown: number // shared * times for unknown, number in self.numbers.items()}, below)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> "Form":
        if isinstance(divisor, Form):
            raise NonlinearUse("a protocol may not divide an unknown by another")
        return self.__mul__(1 / Fraction(_exact(divisor)))

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _nonlinear("branch on the value of")
    __float__ = __int__ = __index__ = __round__ = _nonlinear("take the value of")
    __pow__ = __rpow__ = __abs__ = __rtruediv__ = __mod__ = __floordiv__ = _nonlinear("take a power or a remainder of")

    __eq__ = __ne__ = __hash__ = _nonlinear("compare")

    def __repr__(self) -> str:
        return " + ".join(f"{factor}·{':'.join(map(str, unknown))}" for unknown, factor in self.terms.items()) or "0"


def same_terms(form: Form, other: Form) -> bool:
    """Says whether two forms are equal. The operator `==` raises an error, so that protocols cannot use it."""
    if form.numbers.keys() != other.numbers.keys():
        return False
    return all(number * other.below == other.numbers[each] * form.below for each, number in form.numbers.items())


def rename_entries(form: Form, owners: Collection[Any]) -> Form:
    """Returns a form in which unweighted entries of some owners are replaced by weighted ones."""
    numbers: dict[Unknown, int] = {}
    for unknown, number in form.numbers.items():
        if unknown[0] == PLAIN and unknown[1] in owners:
            unknown = INPUT, *unknown[1:]
        numbers[unknown] = numbers.get(unknown, 0) + number
    return Form.over({unknown: number for unknown, number in numbers.items() if number}, form.below)


def unknowns(kind: str, owner: Any, length: int) -> NDArray[Any]:
    """Returns a symbolic vector with a fresh unknown for each of `length` entries."""
    vector = np.empty(length, dtype=object)
    for entry in range(length):
        vector[entry] = Form.over({(kind, owner, entry): 1})
    return vector
