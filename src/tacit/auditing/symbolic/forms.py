"""Linear forms over named unknowns: what a number becomes when the audit runs a protocol on symbols.

A symbolic vector is a NumPy array of dtype object whose entries are `Form`s, so that protocol code adds, scales and
indexes it exactly as it does a vector of numbers.
"""

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Unknown: TypeAlias = tuple[Any, ...]
"""A basis element: a kind ("input", "mask", …), whose it is, and which entry of the vector."""
PLAIN, INPUT = "plain", "input"
"""Kinds of what a party brings: entries as they are, and times its weight, which is one more of the second kind."""
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


OURS = ("tacit.auditing", "tacit.core", "numpy")
"""Whose code only does what it is told: what goes wrong in it is the fault of whoever called."""
_raised: ContextVar["list[NonlinearUse] | None"] = ContextVar("_raised", default=None)


def ours(module: str, others: tuple[str, ...] = OURS) -> bool:
    """Says whether a module is one of some packages."""
    return any(f"{module}.".startswith(f"{package}.") for package in others)


class NonlinearUse(TypeError):
    """A protocol did something to an unknown that a linear form cannot express."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if (raised := _raised.get()) is not None and _asked_by_protocol():
            raised.append(self)


def _asked_by_protocol() -> bool:
    """Says whether it is a protocol that asks for what is not linear, and not a driver, which tries and goes on."""
    frame = sys._getframe(2)  # noqa: SLF001
    while frame is not None and ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and not ours(
        frame.f_globals.get("__name__", ""), ("tacit.runtime", "tacit.net", "tacit.integrations")
    )


@contextmanager
def noticing() -> Iterator[list[NonlinearUse]]:
    """Collects what protocols did that is not linear, also if they caught the error and went on."""
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
    """A linear combination of unknowns. Supports exactly what stays linear; anything else is a TypeError."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Unknown, Any] | None = None) -> None:
        self.terms = {unknown: factor for unknown, factor in (terms or {}).items() if factor}

    def __add__(self, other: Any) -> "Form":
        if not isinstance(other, Form):
            if not isinstance(other, Real):
                return NotImplemented
            other = Form({ONE: _exact(other)})
        # Audits spend their time here: what only one of the two has is taken over as it is.
        total, terms = Form(), dict(self.terms)
        for unknown, factor in other.terms.items():
            if unknown not in terms:
                terms[unknown] = factor
            elif added := terms[unknown] + factor:
                terms[unknown] = added
            else:
                del terms[unknown]
        total.terms = terms
        return total

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Form":
        if not isinstance(other, Form):
            return self + -_exact(other) if isinstance(other, Real) else NotImplemented
        return self + -other

    def __rsub__(self, other: Any) -> "Form":
        return (-self).__add__(other)

    def __neg__(self) -> "Form":
        return Form({unknown: -factor for unknown, factor in self.terms.items()})

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

    __eq__ = __ne__ = __hash__ = _nonlinear("compare")

    def __repr__(self) -> str:
        return " + ".join(f"{factor}·{':'.join(map(str, unknown))}" for unknown, factor in self.terms.items()) or "0"


def rename_entries(form: Form, owners: Collection[Any]) -> Form:
    """Returns a form in which the plain entries of some owners are taken for weighted ones."""
    terms: dict[Unknown, Any] = {}
    for unknown, factor in form.terms.items():
        if unknown[0] == PLAIN and unknown[1] in owners:
            unknown = INPUT, *unknown[1:]
        terms[unknown] = terms[unknown] + factor if unknown in terms else factor
    return Form(terms)


def unknowns(kind: str, owner: Any, length: int) -> NDArray[Any]:
    """Returns a symbolic vector of `length` fresh unknowns, one an entry."""
    vector = np.empty(length, dtype=object)
    for entry in range(length):
        vector[entry] = Form({(kind, owner, entry): 1})
    return vector
