"""The two ways to solve what a coalition knows agree with each other, and with plain rank arithmetic."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.auditing.engine.algebra.linear import (
    SMALL_PRIME,
    RowSpace,
    SmallRowSpace,
    smallest_class,
    smallest_support,
    solve_forms,
)
from tacit.auditing.engine.algebra.rows import Rows
from tacit.auditing.symbolic.forms import Form

PARTIES, MASKS = 5, 4
INPUTS = [("input", f"p{i}", 0) for i in range(PARTIES)]
UNKNOWNS = [*INPUTS, *(("mask", bytes([i]), 0) for i in range(MASKS))]
factors = st.sampled_from([-2, -1, 1, 2, 3, Fraction(1, 3), Fraction(-2, 7)])
forms = st.dictionaries(st.sampled_from(UNKNOWNS), factors, min_size=1, max_size=5).map(Form)


def rank(rows):
    return np.linalg.matrix_rank(np.array(rows, dtype=float)) if rows else 0


def as_fractions(numbers, below):
    return np.array([Fraction(number, below) for number in numbers], dtype=object)


def row_of(form):
    return [float(form.terms.get(unknown, 0)) for unknown in UNKNOWNS]


@given(st.lists(forms, max_size=9))
@settings(deadline=None, max_examples=150)
def test_a_glance_sees_what_the_proof_proves(known):
    glance, space = SmallRowSpace(known, INPUTS), RowSpace(known, INPUTS)
    proved = {unknown for unknown in space.list_determined() if unknown in INPUTS}
    assert set(glance.list_determined()) == proved
    rows = [row_of(form) for form in known]
    for unknown in INPUTS:
        unit = row_of(Form({unknown: 1}))
        assert (unknown in proved) == (rank([*rows, unit]) == rank(rows))


@given(st.lists(forms, max_size=9))
@settings(deadline=None, max_examples=100)
def test_a_recipe_adds_up_to_its_victim(known):
    found = solve_forms(known, INPUTS)
    assert set(found) == {unknown for unknown in RowSpace(known, INPUTS).list_determined() if unknown in INPUTS}
    for unknown, pieces in found.items():
        total = Form()
        for factor, combination in pieces:
            masked = sum((known[index] * times for index, times in combination.items()), Form())
            assert not any(each[0] == "mask" for each in masked.terms), "masks cancel in whole numbers"
            total = total + masked * factor
        assert total.terms == {unknown: 1}


@given(st.lists(forms, max_size=7))
@settings(deadline=None, max_examples=60)
def test_what_is_known_of_inputs_alone_has_the_rank_that_masks_leave(known):
    rows = [row_of(form) for form in known]
    glance = SmallRowSpace(known, INPUTS)
    # The part of the row space without masks: the rank of all less the rank of the masks' columns.
    masks_only = [row[PARTIES:] for row in rows]
    assert len(glance.rows) == rank(rows) - rank(masks_only)
    group = smallest_class(glance.rows)
    assert group is None or 1 <= group <= PARTIES


@given(st.lists(forms | st.just(Form()), max_size=12))
@settings(deadline=None, max_examples=150)
def test_arrays_say_what_can_be_read_off_the_forms(known):
    rows = Rows.of(known)
    spoken = [set(form.terms) for form in known]
    assert rows.columns.unknowns_at(rows.column_order()) == list(
        dict.fromkeys(each for form in known for each in form.terms)
    )
    # Groups, in order: what has an unknown in common is together, by way of any others.
    together = []
    for index in range(len(known)):
        joined = [each for each in together if any(spoken[index] & spoken[other] for other in each)]
        if spoken[index]:
            apart = [each for each in together if each not in joined]
            together = [*apart, sorted([index, *(other for each in joined for other in each)])]
    assert [numbers.tolist() for numbers, _ in rows.groups()] == sorted(together)
    for numbers, group in rows.groups():
        met = group.column_order()
        whole = group.matrix(met, group.values(as_fractions))
        found = [dict(zip(group.columns.unknowns_at(met), row, strict=True)) for row in whole]
        assert [Form(each).terms for each in found] == [known[number].terms for number in numbers]
    # Whatever has a mask that nothing else has is dropped, one after another, until nothing has.
    left = list(range(len(known)))
    while alone := [
        i for i in left if any(u[0] == "mask" and sum(u in spoken[j] for j in left) == 1 for u in spoken[i])
    ]:
        left.remove(alone[0])
    assert rows.useful(rows.columns.among(INPUTS)).tolist() == left
    # What stands alone is taken off everything else, until nothing does.
    rest, single = [set(each) for each in spoken], set()
    while fresh := {next(iter(each)) for each in rest if len(each) == 1}:
        single |= fresh
        rest = [each - single for each in rest]
    given_away, peeled = rows.peel_singles()
    assert set(rows.columns.unknowns_at(np.flatnonzero(given_away))) == single
    told = [set(peeled.columns.unknowns_at(peeled.column[peeled.row == row])) for row in range(peeled.count)]
    assert told == [each for each in rest if each]


@pytest.mark.parametrize(
    ("rows", "smallest"),
    [
        ([[1, 1, 0], [1, 1, 0]], 2),
        ([[1, 1, 1, 1], [2, 2, 2, 2], [0, 0, 0, 0]], 4),
        ([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], 2),
        ([[SMALL_PRIME, 0, 0], [0, 1, 1]], 2),
        ([[0, 0]], None),
    ],
)
def test_rows_that_follow_from_others_do_not_make_a_support_smaller(rows, smallest):
    assert smallest_support(np.array(rows)) == smallest


def test_the_smallest_support_is_that_of_all_combinations():
    # Factors of the combination with the fewest columns are minors, by Cramer's rule: at most 4 for rows like these.
    factors = np.array(list(product(range(-4, 5), repeat=4)))
    rng, dependent = np.random.default_rng(0), 0
    for _ in range(300):
        rows = rng.integers(-1, 2, size=(4, int(rng.integers(2, 8))))
        rows[3] = rows[int(rng.integers(0, 4))]
        spoken = np.count_nonzero(factors @ rows, axis=1)
        assert smallest_support(rows) == (spoken[spoken > 0].min() if spoken.any() else None), rows
        assert smallest_support(rows[:3]) == smallest_support(np.concatenate([rows[:3], rows[:3]])), rows
        dependent += bool((rows[:3] == rows[3]).all(axis=1).any())
    assert dependent > 100
