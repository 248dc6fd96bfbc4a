from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.auditing.symbolic.forms import ONE, Form, NonlinearUse, noticing, rename_entries, same_terms, unknowns

X, Y, Z = ((name, "p0", 0) for name in "xyz")
x, y = Form({X: 1}), Form({Y: 1})

forms = st.dictionaries(st.sampled_from((X, Y, Z)), st.integers(-5, 5)).map(Form)
factors = st.integers(-5, 5)


def same(*several):
    return all(form.terms == several[0].terms for form in several)


@settings(derandomize=True, max_examples=60)
@given(forms, forms, forms, factors, factors)
def test_forms_are_a_module_over_the_integers(a, b, c, m, n):
    assert same(a + b, b + a)
    assert same((a + b) + c, a + (b + c))
    assert same(a + Form(), a)
    assert same(a - a, Form())
    assert same(a - b, a + -b, a + -1 * b)
    assert same(m * (a + b), m * a + m * b)
    assert same((m + n) * a, m * a + n * a)
    assert same((m * n) * a, m * (n * a))
    assert same(1 * a, a)
    assert same(0 * a, Form())


def test_terms_add_up_and_zeros_vanish():
    assert (2 * x + 3 * y - x).terms == {X: 1, Y: 3}
    assert (x - x).terms == {}
    assert Form({X: 0, Y: 1}).terms == {Y: 1}
    assert Form().terms == {}
    assert same(Form(None), Form({}), 0 * x)


def test_factors_may_be_fractions_and_floats():
    assert (x * Fraction(1, 3) * 3).terms == {X: 1}
    assert (x / 2).terms == {X: 0.5}
    assert (x / Fraction(2)).terms == {X: Fraction(1, 2)}
    assert same(0.5 * x + 0.5 * x, x)
    with pytest.raises(ZeroDivisionError):
        x / 0


def test_a_number_without_a_sign_is_taken_away_as_it_is():
    assert (x - np.uint32(5)).terms == {X: 1, ONE: -5}
    assert (np.uint32(5) - x).terms == {X: -1, ONE: 5}


def test_what_is_given_is_left_alone():
    terms = {X: 1}
    one = Form(terms)
    two = one + y
    one += x
    terms[Y] = 5
    assert one.terms == {X: 2}
    assert two.terms == {X: 1, Y: 1}
    assert x.terms == {X: 1}


def test_numbers_are_so_many_times_what_everybody_knows():
    assert same(sum([x, y, x]), 2 * x + y)
    assert same(x + 0, 0 + x, x + 0.0, x)
    assert same(x + 2, 2 + x, Form({X: 1, ONE: 2}))
    assert same(x - 0.5, -(0.5 - x), Form({X: 1, ONE: Fraction(-1, 2)}))
    for number in (None, "0", b"", [0], 1j):
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
    "equality": lambda: x == y,
    "equality with itself": lambda: x == x,
    "inequality": lambda: x != y,
    "equality with a number": lambda: x == 0,
    "a number's equality": lambda: 0 == x,  # noqa: SIM300
    "membership": lambda: 0.0 in [x],
    "a hash": lambda: hash(x),
    "a set": lambda: {x},
    "a key": lambda: {x: 1},
    "an order": lambda: sorted([x, y]),
    "the largest": lambda: max(x, y),
    "NumPy's equality": lambda: np.array([x, y]) == np.array([y, x]),
    "NumPy's equality of arrays": lambda: np.array_equal(np.array([x, y]), np.array([y, x])),
    "NumPy's closeness": lambda: np.allclose(np.array([x, y]), 0),
    "NumPy's membership": lambda: np.isin(np.array([x, y]), [0]),
    "NumPy's different entries": lambda: np.unique(np.array([x, y])),
    "NumPy's order": lambda: np.argsort(np.array([x, y])),
    "NumPy's entries that are not zero": lambda: np.flatnonzero(np.array([x, y])),
    "NumPy's view of memory": lambda: np.array([x, y]).view(np.int64),
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
    "a cast of a vector": lambda: np.array([x, y]).astype(float),
}


@pytest.mark.parametrize("operation", NOT_LINEAR)
def test_what_is_not_linear_is_a_type_error(operation):
    with pytest.raises(TypeError):
        NOT_LINEAR[operation]()


def test_a_form_is_neither_true_nor_false():
    with pytest.raises(TypeError):
        bool(x)


def test_what_is_not_linear_is_noticed_also_if_it_is_caught():
    with noticing() as raised:
        for attempt in (lambda: x == y, lambda: float(x)):
            with pytest.raises(NonlinearUse):
                attempt()
    assert [str(error) for error in raised] == [
        "a protocol may not compare an unknown",
        "a protocol may not take the value of an unknown",
    ]
    with noticing() as raised:
        assert same(x + y, y + x)
    assert raised == []


def test_plain_entries_can_be_taken_for_weighted_ones():
    mine, theirs = ("plain", "p0", 0), ("plain", "p1", 0)
    form = Form({mine: 2, theirs: 1, ("input", "p0", 0): 1})
    assert rename_entries(form, {"p0"}).terms == {("input", "p0", 0): 3, theirs: 1}
    assert rename_entries(form, set()).terms == form.terms


def test_forms_read_like_sums():
    assert repr(2 * x + y) == "2·x:p0:0 + 1·y:p0:0"
    assert repr(Form()) == "0"


def test_unknowns_are_all_different():
    vector = unknowns("input", "p0", 4)
    assert vector.dtype == object
    assert vector.shape == (4,)
    assert [list(form.terms.items()) for form in vector] == [[(("input", "p0", entry), 1)] for entry in range(4)]
    assert unknowns("input", "p0", 0).shape == (0,)
    assert not {each for form in vector for each in form.terms} & {
        each for form in unknowns("mask", "p0", 4) for each in form.terms
    }


def test_vectors_of_forms_behave_like_vectors_of_numbers():
    a, b = unknowns("a", "p0", 3), unknowns("b", "p1", 3)
    total = np.empty(3, dtype=object)
    total[:] = [Form()] * 3
    total += 2 * a
    total -= b
    assert all(same(total[i], 2 * a[i] - b[i]) for i in range(3))
    assert all(map(same, a / 2 + a / 2, a))
    assert not any(form.terms for form in -a + a)
    assert all(map(same, a[np.array([2, 0])], [a[2], a[0]]))
    assert all(map(same, np.array([a, b]).sum(axis=0), a + b))
    weights = np.array([1.0, 0.0, -2.0])
    assert all(map(same, weights * a, [a[0], Form(), -2.0 * a[2]]))
    assert same(weights @ a, a[0] - 2.0 * a[2])


@settings(derandomize=True, max_examples=60)
@given(forms, forms, st.fractions(-3, 3, max_denominator=12), st.fractions(-3, 3, max_denominator=12))
def test_fractions_over_one_denominator_are_those_of_each_term(a, b, m, n):
    total = a * m - b * n
    expected = {each: a.terms.get(each, 0) * m - b.terms.get(each, 0) * n for each in (X, Y, Z)}
    assert total.terms == {each: factor for each, factor in expected.items() if factor}
    assert same_terms(total, Form(total.terms))
    assert same_terms(total, total + x) is False


def test_denominators_do_not_grow_without_end():
    form = x + y
    for _ in range(200):
        form = form * Fraction(1, 7) * 7
    assert (form.numbers, form.below) == ({X: 1, Y: 1}, 1)
