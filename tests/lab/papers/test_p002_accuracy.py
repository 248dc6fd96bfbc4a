"""Paper 002's trainings run again, at sizes that take seconds; the whole small run is slow."""

from collections import Counter

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.designs import Batches, Partition, Random
from tacit.designs.participation import participation_from
from tacit.lab.papers import find
from tacit.lab.papers.p002.accuracy import (
    CHANCES,
    SIZES,
    SPLITS,
    AccuracySize,
    TrainingCourse,
    absences,
    compare_policies,
    declare_size,
    privacy_rows,
    rows_of,
    train_policy,
)
from tacit.learn.data import datasets
from tacit.learn.random_streams import generator
from tacit.learn.training.local_training import LocalTraining

pytestmark = pytest.mark.long

TINY = AccuracySize(
    24,
    8,
    (2, 4),
    summed=24,
    data="digits",
    model="softmax",
    local=LocalTraining(rate=0.2, batch=16, steps=3),
    tested=300,
)


@pytest.fixture(scope="module")
def digits():
    """Returns the data that is learnt from."""
    return datasets.load("digits").subsample(None, TINY.tested, generator(0, "samples"))


@pytest.fixture(scope="module")
def courses(digits):
    """Returns a training with each of the policies."""
    return compare_policies(TINY, SPLITS["i.i.d."], digits, ignore_progress)


def course(name, sums, tests):
    """Returns a training in which each round summed so many of four users, and some were tested."""
    return TrainingCourse(name, [np.arange(4) < count for count in sums], tests)


def test_policies_are_the_papers():
    policies = [participation_from(policy) for policy in SIZES["small"][0].policies.values()]
    assert policies == [Random(12), Batches(12, 6), Partition(12)]


@pytest.mark.parametrize("users", [40, 120])
def test_as_many_users_are_absent_with_each_chance(users):
    faults = absences(users)
    assert [fault.party for fault in faults] == [f"p{place}" for place in range(users)]
    assert Counter(fault.chance for fault in faults) == dict.fromkeys(CHANCES, users // 5)
    assert len({fault.chance for fault in faults[:6]}) > 1, "batches are mixed"
    rounds = [[fault.mutes(number, fault.party) for fault in faults] for number in range(300)]
    assert np.mean(rounds, axis=0) == pytest.approx([fault.chance for fault in faults], abs=0.12)


def test_rounds_without_a_sum_do_not_count_as_summed():
    found = course("Random", [2, 0, 3, 0, 0, 1], {1: 10.0, 3: 20.0, 6: 30.0})
    assert found.summed.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert found.rounds == 6


def test_accuracy_is_the_mean_over_the_last_rounds_of_either_sort():
    sums = [2] * 10 + [0] * 5 + [2] * 5
    found = course("Batches, T = 2", sums, {2: 10.0, 5: 20.0, 10: 30.0, 16: 40.0, 20: 50.0})
    assert found.end == pytest.approx((30 + 40 + 50) / 3), "summed rounds 6 to 15"
    assert found.after(20) == pytest.approx((40 + 50) / 2), "rounds 11 to 20"
    assert found.after(10) == pytest.approx((10 + 20 + 30) / 3)


@pytest.mark.slow
def test_all_end_after_as_many_summed_rounds_and_partition_after_as_many_rounds(courses):
    summed = {name: int(each.summed[-1]) for name, each in courses.items()}
    assert {summed[name] for name in ("Random", "Batches, T = 2", "Batches, T = 4")} == {TINY.summed}
    assert courses["Random"].rounds == TINY.summed
    assert courses["Batches, T = 4"].rounds > TINY.summed
    assert courses["Partition"].rounds == TINY.summed
    assert summed["Partition"] < TINY.summed / 2
    assert all(TINY.summed in each.tests for each in courses.values()), "tested after as many rounds"


@pytest.mark.slow
def test_only_whole_batches_are_summed_by_who_is_there(courses):
    faults = absences(TINY.users)
    for name, size in (("Batches, T = 2", 2), ("Batches, T = 4", 4), ("Partition", 8)):
        for number, members in enumerate(courses[name].sums, start=1):
            batches = members.reshape(-1, size)
            assert (batches.all(axis=1) == batches.any(axis=1)).all()
            assert members.sum() in (0, TINY.asked)
            assert not any(members[place] and fault.mutes(number, fault.party) for place, fault in enumerate(faults))


@pytest.mark.slow
def test_t_is_what_was_promised_and_random_promises_nothing(courses):
    assert [row.agrees for row in privacy_rows(TINY, courses)] == [True] * 4
    assert [courses[name].privacy for name in TINY.policies] == [1, 2, 4, 8]


@pytest.mark.slow
def test_a_t_that_is_not_kept_is_noticed(courses):
    broken = TrainingCourse("Partition", [*courses["Partition"].sums, np.arange(24) < 3], courses["Partition"].tests)
    (row,) = privacy_rows(TINY, {"Partition": broken})
    assert not row.agrees
    assert row.ours == "3"
    assert "3 in the training" in row.why


@pytest.mark.slow
def test_training_gets_somewhere_and_partition_less_far(courses):
    assert courses["Random"].end > 80
    assert courses["Partition"].after(TINY.summed) < courses["Random"].end - 3
    found = {row.what.partition(",")[0]: row for row in rows_of(TINY, "i.i.d.", [courses])}
    assert found["Partition"].agrees is None, "one seed tells nothing"
    assert found["Partition"].estimates[0].mean < -3


@pytest.mark.slow
def test_another_split_is_another_training(digits, courses):
    skewed = train_policy(TINY, "Random", SPLITS["not i.i.d."], digits, ignore_progress)
    assert skewed.end < courses["Random"].end


def test_rows_compare_with_random_seed_by_seed():
    size = AccuracySize(4, 4, (2,), summed=2)

    def rows(*differences, partition=-2.5):
        runs = [
            {
                "Random": course("Random", [4, 4], {2: base}),
                "Batches, T = 2": course("Batches, T = 2", [4, 0, 4], dict.fromkeys((2, 3), base + difference)),
                "Partition": course("Partition", [0, 4], {2: base + partition + difference / 10}),
            }
            for base, difference in zip((50.0, 61.0), differences, strict=True)
        ]
        return rows_of(size, "i.i.d.", runs)

    _, close, late, behind = rows(0.1, 0.12)
    assert (close.agrees, late.agrees, behind.agrees) == (True, True, True)
    assert close.what.startswith("Batches, T = 2, minus Random, after 2 summed rounds, N = 4, K = 4")
    assert [row.agrees for row in rows(5.0, 5.1)][1] is False
    assert [row.agrees for row in rows(-1.5, 1.5)][1] is None, "the mean is 0, and too few seeds"
    assert [row.agrees for row in rows(0.1, 0.12, partition=3.0)][3] is False
    assert {row.what for row in rows(0.1, 0.12)} <= {row.what for row in declare_size(size)}


@pytest.mark.slow
def test_the_small_run_shows_what_it_must():
    pytest.importorskip("torch", reason="LeNet is torch's")
    rows = find("002-accuracy").run("small", ignore_progress).rows
    assert all(row.agrees for row in rows if row.what.startswith(("T of", "Partition")))
    assert not any(row.agrees is False for row in rows if "summed" in row.what and row.paper)
