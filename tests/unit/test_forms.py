from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.audit.symbolic.forms import Form, unknowns

X, Y, Z = ((name, "p0", 0) for name in "xyz")
x, y = Form({X: 1}), Form({Y: 1})

forms = st.dictionaries(st.sampled_from((X, Y, Z)), st.integers(-5, 5)).map(Form)
factors = st.integers(-5, 5)


@settings(derandomize=True, max_examples=60)
@given(forms, forms, forms, factors, factors)
def test_forms_are_a_module_over_the_integers(a, b, c, m, n):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Form() == a
    assert a - a == Form()
    assert a - b == a + -b == a + -1 * b
    assert m * (a + b) == m * a + m * b
    assert (m + n) * a == m * a + n * a
    assert (m * n) * a == m * (n * a)
    assert 1 * a == a
    assert 0 * a == Form()
    assert hash(a + b) == hash(b + a)


def test_terms_add_up_and_zeros_vanish():
    assert (2 * x + 3 * y - x).terms == {X: 1, Y: 3}
    assert (x - x).terms == {}
    assert Form({X: 0, Y: 1}).terms == {Y: 1}
    assert Form().terms == {}
    assert Form(None) == Form({}) == 0 * x


def test_factors_may_be_fractions_and_floats():
    assert (x * Fraction(1, 3) * 3).terms == {X: 1}
    assert (x / 2).terms == {X: 0.5}
    assert (x / Fraction(2)).terms == {X: Fraction(1, 2)}
    assert (0.5 * x + 0.5 * x) == x
    with pytest.raises(ZeroDivisionError):
        x / 0


def test_what_is_given_is_left_alone():
    terms = {X: 1}
    one = Form(terms)
    two = one + y
    one += x
    terms[Y] = 5
    assert one.terms == {X: 2}
    assert two.terms == {X: 1, Y: 1}
    assert x.terms == {X: 1}


def test_sums_may_start_from_zero_and_from_no_other_number():
    assert sum([x, y, x]) == 2 * x + y
    assert x + 0 == 0 + x == x + 0.0 == x
    for number in (1, -1, 0.5, True, None, "0", b"", [0], 1j):
        with pytest.raises(TypeError):
            x + number
        with pytest.raises(TypeError):
            number + x


NOT_LINEAR = {
    "product": lambda: x * y,
    "square": lambda: x**2,
    "power of": lambda: 2**x,
    "quotient": lambda: x / y,
    "reciprocal": lambda: 1 / x,
    "whole quotient": lambda: x // 2,
    "remainder": lambda: x % 2,
    "absolute value": lambda: abs(x),
    "rounding": lambda: round(x),
    "comparison": lambda: x < y,
    "comparison with a number": lambda: x > 0,
    "difference to a number": lambda: x - 1,
    "difference from a number": lambda: 1 - x,
    "a float": lambda: float(x),
    "an integer": lambda: int(x),
    "an index": lambda: [1, 2, 3][x],
    "exclusive or": lambda: x ^ y,
    "shift": lambda: x << 1,
    "matrix product": lambda: x @ y,
    "length": lambda: len(x),
    "iteration": lambda: list(x),
    "NumPy's square root": lambda: np.sqrt(np.array([x])),
    "NumPy's clip": lambda: np.clip(np.array([x]), -1, 1),
    "NumPy's maximum": lambda: np.array([x, y]).max(),
    "a product of vectors": lambda: np.array([x, y]) @ np.array([x, y]),
    "a constant added to a vector": lambda: np.array([x, y]) + 1,
    "a cast of a vector": lambda: np.array([x, y]).astype(float),
}


@pytest.mark.parametrize("operation", NOT_LINEAR)
def test_what_is_not_linear_is_a_type_error(operation):
    with pytest.raises(TypeError):
        NOT_LINEAR[operation]()


def test_a_form_is_neither_true_nor_false():
    with pytest.raises(TypeError):
        bool(x)


def test_equality_is_that_of_terms_and_with_forms_only():
    assert Form({X: 1, Y: 2}) == Form({Y: 2, X: 1})
    assert hash(Form({X: 1, Y: 2})) == hash(Form({Y: 2, X: 1}))
    assert x != y
    assert x != 1
    assert Form() != 0
    assert len({x, y, Form({X: 1}), 2 * x - x}) == 2


def test_forms_read_like_sums():
    assert repr(2 * x + y) == "2·x:p0:0 + 1·y:p0:0"
    assert repr(Form()) == "0"


def test_unknowns_are_all_different():
    vector = unknowns("input", "p0", 4)
    assert vector.dtype == object
    assert vector.shape == (4,)
    assert [list(form.terms.items()) for form in vector] == [[(("input", "p0", entry), 1)] for entry in range(4)]
    assert unknowns("input", "p0", 0).shape == (0,)
    assert not set(vector) & set(unknowns("mask", "p0", 4))


def test_vectors_of_forms_behave_like_vectors_of_numbers():
    a, b = unknowns("a", "p0", 3), unknowns("b", "p1", 3)
    total = np.empty(3, dtype=object)
    total[:] = [Form()] * 3
    total += 2 * a
    total -= b
    assert total.tolist() == [2 * a[i] - b[i] for i in range(3)]
    assert (a / 2 + a / 2).tolist() == a.tolist()
    assert (-a + a).tolist() == [Form()] * 3
    assert a[np.array([2, 0])].tolist() == [a[2], a[0]]
    assert np.array([a, b]).sum(axis=0).tolist() == (a + b).tolist()
    weights = np.array([1.0, 0.0, -2.0])
    assert (weights * a).tolist() == [a[0], Form(), -2.0 * a[2]]
    assert weights @ a == a[0] - 2.0 * a[2]
