"""Linear forms over named unknowns: what a number becomes when the audit runs a protocol on symbols.

A symbolic vector is a NumPy array of dtype object whose entries are `Form`s, so that protocol code adds, scales and
indexes it exactly as it does a vector of numbers.
"""

from collections.abc import Mapping
from fractions import Fraction
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Unknown: TypeAlias = tuple[Any, ...]
"""A basis element: a kind ("input", "mask", …), whose it is, and which entry of the vector."""
ONE: Unknown = ("one",)
"""What a public number is so many times of. Everybody knows it."""


def _exact(number: Any) -> Any:
    """Returns a float as the simple fraction that it is closest to, if there is one; 1/9 is then a ninth.

    Protocols are run on floats, but whether two sums tell a vector apart depends on exact coefficients.
    """
    if not isinstance(number, float | np.floating):
        return number if isinstance(number, Fraction) else int(number)
    simple = Fraction(float(number)).limit_denominator(10**6)
    return simple if float(simple) == number else Fraction(float(number))


class NonlinearUse(TypeError):
    """A protocol did something to an unknown that a linear form cannot express."""


def _nonlinear(what: str) -> Any:
    def refuse(*_: Any) -> Any:
        raise NonlinearUse(f"a protocol may not {what} an unknown")

    return refuse


class Form:
    """A linear combination of unknowns. Supports exactly what stays linear; anything else is a TypeError."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Unknown, Any] | None = None) -> None:
        self.terms = {unknown: factor for unknown, factor in (terms or {}).items() if factor != 0}

    def _plus(self, other: "Form", factor: int) -> "Form":
        terms = dict(self.terms)
        for unknown, value in other.terms.items():
            terms[unknown] = terms.get(unknown, 0) + factor * value
        return Form(terms)

    def __add__(self, other: Any) -> "Form":
        if isinstance(other, Form):
            return self._plus(other, 1)
        return self._plus(Form({ONE: _exact(other)}), 1) if isinstance(other, Real) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Form":
        if isinstance(other, Form):
            return self._plus(other, -1)
        return self._plus(Form({ONE: _exact(other)}), -1) if isinstance(other, Real) else NotImplemented

    def __rsub__(self, other: Any) -> "Form":
        return -self + other

    def __neg__(self) -> "Form":
        return self * -1

    def __mul__(self, factor: Any) -> "Form":
        if isinstance(factor, Form):
            raise NonlinearUse("a protocol may not multiply an unknown by another")
        exact = _exact(factor)
        return Form({unknown: exact * value for unknown, value in self.terms.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> "Form":
        if isinstance(divisor, Form):
            raise NonlinearUse("a protocol may not divide an unknown by another")
        return self.__mul__(1 / _exact(divisor))

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _nonlinear("branch on the value of")
    __float__ = __int__ = __index__ = __round__ = _nonlinear("take the value of")
    __pow__ = __rpow__ = __abs__ = __rtruediv__ = __mod__ = __floordiv__ = _nonlinear("take a power or a remainder of")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join(f"{factor}·{':'.join(map(str, unknown))}" for unknown, factor in self.terms.items()) or "0"


def unknowns(kind: str, owner: Any, length: int) -> NDArray[Any]:
    """Returns a symbolic vector of `length` fresh unknowns, one an entry."""
    vector = np.empty(length, dtype=object)
    for entry in range(length):
        vector[entry] = Form({(kind, owner, entry): 1})
    return vector
