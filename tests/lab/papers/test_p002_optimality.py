"""Families of sets with multi-round privacy, enumerated, and the relaxed example of paper 002."""

from itertools import chain, combinations
from math import comb

import numpy as np
import pytest

from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.progress import ignore_progress
from tacit.designs import Batches, multi_round_privacy
from tacit.lab.papers.p002 import optimality
from tacit.lab.papers.p002.optimality import (
    RELAXED,
    is_batch_partitioning,
    largest_family,
    largest_relaxed_family,
    list_families,
    paper_bound,
    rows_of,
    splits_into_batches,
)


@pytest.mark.parametrize(("n", "k", "t"), [(4, 2, 2), (5, 3, 2), (5, 3, 3), (4, 3, 2)])
def test_the_search_finds_every_family(n, k, t):
    sets = list(combinations(range(n), k))
    families = chain.from_iterable(combinations(sets, size) for size in range(len(sets) + 1))
    expected = {each for each in families if not each or multi_round_privacy(rows_of(each, n)) >= t}
    assert set(list_families(n, k, t)) == expected


def test_batches_of_exactly_t_are_as_many_as_the_paper_says():
    assert (largest_family(6, 4, 2), paper_bound(6, 4, 2)) == (3, 3)
    assert largest_family(6, 2, 2) == paper_bound(6, 2, 2) == Batches(2, 2, users=6).family_size()
    assert paper_bound(7, 3, 2) == pytest.approx(comb(7, 3) ** 0.5, rel=0.5)


def test_families_of_other_structure_are_told_apart():
    overlapping = [(0, 1, 2), (1, 2, 3)]
    assert not is_batch_partitioning(overlapping, 4, 2)
    assert is_batch_partitioning([(0, 1, 2, 3), (2, 3, 4, 5)], 6, 2)
    assert is_batch_partitioning(optimality.ODD_FAMILY, 12, 2)
    assert not splits_into_batches(optimality.ODD_FAMILY, 12, 2)


def shows_nobody(rows):
    """Says whether no unit vector is in the row space."""
    rank = np.linalg.matrix_rank(rows)
    return all(np.linalg.matrix_rank(np.vstack([rows, unit])) > rank for unit in np.eye(rows.shape[1]))


@pytest.mark.parametrize(("n", "k"), [(4, 2), (5, 3)])
def test_the_largest_relaxed_family_is_that_of_all_families(n, k):
    sets = list(combinations(range(n), k))
    families = chain.from_iterable(combinations(sets, size) for size in range(1, len(sets) + 1))
    most = max(len(each) for each in families if shows_nobody(rows_of(each, n)))
    found = largest_relaxed_family(n, k)
    assert len(found) == most
    assert shows_nobody(rows_of(found, n))


def test_the_relaxed_example_is_not_the_largest():
    best = rows_of(largest_relaxed_family(6, 4), 6)
    assert len(best) > len(RELAXED) == 5
    assert shows_nobody(best)
    assert shows_nobody(RELAXED)
    assert smallest_support(RELAXED) == 2


def test_rows_of_few_users_agree():
    rows = optimality.enumerated_rows(5, ignore_progress)
    assert [row.agrees for row in rows] == [True, True, True, True, False]


@pytest.mark.long
def test_the_small_run_has_every_declared_row():
    found = optimality.REPRODUCTION.run("small", ignore_progress)
    assert [row.what for row in found.rows] == [row.what for row in optimality.REPRODUCTION.declared]
    assert {row.what for row in found.rows if row.agrees is False} == {optimality.ODD.what, optimality.NEW_ROWS.what}
