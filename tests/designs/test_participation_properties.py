import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.entropy import SeededEntropy
from tacit.designs import Batches, Circle, Partition, Random, Sampled, multi_round_privacy


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    privacy, asked = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    return Batches(asked * privacy, privacy, privacy * draw(st.integers(asked, 6)))


@settings(derandomize=True, deadline=None)
@given(batches(), st.data())
def test_batches_keep_their_promise_whatever_drops_out_and_whenever(policy: Batches, data: st.DataObject) -> None:
    users, entropy = policy.users or 0, SeededEntropy("drops")
    assert policy.problems(users) == []
    counts, rows = np.zeros(users, dtype=np.int64), []
    somebody = st.sets(st.integers(0, users - 1), max_size=3)
    for _ in range(data.draw(st.integers(1, 8))):
        absent, late = data.draw(somebody), data.draw(somebody)
        asked = policy.ask([i for i in range(users) if i not in absent], counts, entropy)
        summed = policy.choose([i for i in asked if i not in late], entropy)
        assert len(asked) in (0, policy.per_round)
        assert not asked or policy.may_ask(asked, users)
        assert all(set(policy.batch(i)) <= set(asked) for i in asked)
        assert not summed or policy.allows(summed)
        row = np.zeros(users, dtype=np.int64)
        row[summed] = 1
        counts += row
        rows.append(row)
    assert multi_round_privacy(rows) >= policy.privacy


@settings(derandomize=True, deadline=None)
@given(batches(), st.data())
def test_clients_refuse_every_set_with_a_broken_batch(policy: Batches, data: st.DataObject) -> None:
    users = policy.users or 0
    chosen = data.draw(st.sets(st.integers(-2, users + 2), max_size=users))
    members = [set(range(i, i + policy.privacy)) for i in range(0, users, policy.privacy)]
    whole = set().union(*(batch for batch in members if batch <= chosen))
    assert policy.allows(chosen) == (chosen == whole and 2 <= len(chosen) <= policy.per_round)
    kept = policy.choose(sorted(i for i in chosen if 0 <= i < users), SeededEntropy("any"))
    assert kept == (sorted(whole) if 2 <= len(whole) <= policy.per_round else [])
    for gone in kept:
        assert not policy.allows([i for i in kept if i != gone])


@settings(derandomize=True, deadline=None)
@given(batches(), st.data())
def test_clients_take_part_in_rounds_of_whole_batches_only(policy: Batches, data: st.DataObject) -> None:
    users, size = policy.users or 0, policy.privacy
    asked = data.draw(st.sets(st.integers(-2, users + 2), max_size=users))
    members = [set(range(i, i + size)) for i in range(0, users, size)]
    whole = set().union(*(batch for batch in members if batch <= asked))
    assert policy.may_ask(asked, users) == (asked == whole and len(asked) == policy.per_round)


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_with_one_batch_for_life_nobody_is_told_from_it_whatever_the_roster_and_t(data: st.DataObject) -> None:
    """A server may order the roster anew, and change T, in every round; members remember their batch, and refuse."""
    people = [str(i) for i in range(12)]
    memory: dict[str, tuple[str, ...]] = {}
    sums: list[set[str]] = []
    for _ in range(data.draw(st.integers(1, 6))):
        roster, size = data.draw(st.permutations(people)), data.draw(st.sampled_from([2, 3, 4]))
        policy = Batches(12, size, 12)
        willing = []
        for start in range(0, 12, size):
            batch = tuple(roster[i] for i in policy.batch(start))
            if all(set(memory.get(name, batch)) == set(batch) for name in batch):
                willing.append(batch)
        for batch in willing:
            memory |= dict.fromkeys(batch, batch)  # before the vector leaves, whether it is summed or not
        chosen = data.draw(st.sets(st.sampled_from(willing))) if willing else set()
        sums.append({name for batch in chosen for name in batch})
    seen = {name: tuple(name in each for each in sums) for name in people}
    for name in set().union(*sums):
        alike = {other for other in people if seen[other] == seen[name]}
        assert set(memory[name]) <= alike


@settings(derandomize=True, deadline=None)
@given(batches(), st.data())
def test_with_everyone_present_nobody_gets_ahead(policy: Batches, data: st.DataObject) -> None:
    users, entropy = policy.users or 0, SeededEntropy("fair", data.draw(st.integers(0, 99)))
    counts = np.zeros(users, dtype=np.int64)
    for _ in range(12):
        counts[policy.ask(range(users), counts, entropy)] += 1
        assert np.ptp(counts) <= 1


@settings(derandomize=True, deadline=None)
@given(st.integers(2, 9), st.integers(0, 30), st.data())
def test_a_partition_is_batches_as_large_as_a_round(size: int, absent: int, data: st.DataObject) -> None:
    users = size * data.draw(st.integers(1, 5))
    one, other = Partition(size, users), Batches(size, size, users)
    present = [i for i in range(users) if i != absent]
    counts = np.repeat(
        np.array(data.draw(st.lists(st.integers(0, 3), min_size=users // size, max_size=users // size))), size
    )
    asked = one.ask(present, counts, SeededEntropy("p"))
    assert asked == other.ask(present, counts, SeededEntropy("p"))
    assert one.choose(asked, SeededEntropy("p")) == asked
    assert one.allows(asked) == other.allows(asked) == bool(asked)
    assert one.may_ask(asked, users) == other.may_ask(asked, users) == bool(asked)
    assert one.family_size() == users // size


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 29), unique=True), st.integers(2, 12), st.integers(0, 99))
def test_what_is_settled_is_what_clients_accept(present: list[int], size: int, seed: int) -> None:
    counts = np.zeros(30, dtype=np.int64)
    for policy in (Random(size), Sampled(size), Sampled(size, size + 3)):
        entropy = SeededEntropy("settle", seed)
        asked = policy.ask(present, counts, entropy)
        assert set(asked) <= set(present)
        assert bool(asked) == (len(present) >= size)
        assert len(asked) <= policy.most(30)
        assert policy.may_ask(asked, 30) == bool(asked)
        summed = policy.choose(asked, entropy)
        assert bool(summed) == (len(asked) >= policy.least)
        assert not summed or policy.allows(summed)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), max_size=12))
def test_privacy_is_that_of_the_smallest_class_and_only_ever_falls(rows: list[list[bool]]) -> None:
    matrix = np.array(rows, dtype=bool).reshape(-1, 6)
    columns = [tuple(column) for column in matrix.T if any(column)]
    assert multi_round_privacy(matrix) == min((columns.count(column) for column in columns), default=6)
    falling = [multi_round_privacy(matrix[:i]) for i in range(len(matrix) + 1)]
    assert falling == sorted(falling, reverse=True)


@settings(derandomize=True, deadline=None)
@given(st.sets(st.integers(0, 500), min_size=3, max_size=40), st.integers(1, 12), st.binary(max_size=32))
def test_circles_are_symmetric_and_regular(members: set[int], degree: int, seed: bytes) -> None:
    circle = Circle(list(members), degree, seed)
    for i in members:
        assert len(circle.neighbours(i)) == circle.degree >= min(degree, len(members) - 1)
        assert all(i in circle.neighbours(j) for j in circle.neighbours(i))
    assert circle.weakest(members) == (len(members) if circle.complete else circle.degree // 2)
