"""The two ways to solve what a coalition knows agree with each other, and with plain rank arithmetic."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.audit.linear import RowSpace, SmallRowSpace, rational, smallest_class
from tacit.audit.symbolic.forms import Form

PARTIES, MASKS = 5, 4
INPUTS = [("input", f"p{i}", 0) for i in range(PARTIES)]
UNKNOWNS = [*INPUTS, *(("mask", bytes([i]), 0) for i in range(MASKS))]
factors = st.sampled_from([-2, -1, 1, 2, 3, Fraction(1, 3), Fraction(-2, 7)])
forms = st.dictionaries(st.sampled_from(UNKNOWNS), factors, min_size=1, max_size=5).map(Form)


def rank(rows):
    return np.linalg.matrix_rank(np.array(rows, dtype=float)) if rows else 0


def row_of(form):
    return [float(form.terms.get(unknown, 0)) for unknown in UNKNOWNS]


@given(st.lists(forms, max_size=9))
@settings(deadline=None, max_examples=150)
def test_a_glance_sees_what_the_proof_proves(known):
    glance, space = SmallRowSpace(known, INPUTS), RowSpace(known, INPUTS)
    proved = {unknown for unknown in space.exposed() if unknown in INPUTS}
    assert set(glance.exposed()) == proved
    rows = [row_of(form) for form in known]
    for unknown in INPUTS:
        unit = row_of(Form({unknown: 1}))
        assert (unknown in proved) == (rank([*rows, unit]) == rank(rows))


@given(st.lists(forms, max_size=9))
@settings(deadline=None, max_examples=100)
def test_a_recipe_adds_up_to_its_victim(known):
    space = RowSpace(known, INPUTS)
    for unknown in space.exposed():
        total = Form()
        for index, value in space.recipes[unknown].items():
            total = total + known[index] * rational(value)
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
