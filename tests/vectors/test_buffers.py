"""Pool of vector buffers: blocks are reused, and never have two users at a time."""

import gc
from itertools import pairwise

import numpy as np
import pytest

from tacit.vectors.buffers import LEAST, BufferPool

LONG = LEAST // 4


def place(vector):
    return np.frombuffer(memoryview(vector).cast("B"), np.uint8).ctypes.data


@pytest.fixture
def pool():
    made = BufferPool()
    made.fit(LEAST)
    made.keep(100)
    gc.disable()  # what is kept is kept by names, and not by garbage
    yield made
    gc.enable()


VIEWS = {
    "itself": lambda vector: vector,
    "a slice": lambda vector: vector[5:],
    "a slice of a slice": lambda vector: vector[5:][3:],
    "another type": lambda vector: vector.view(np.int32)[2:].view(np.float32),
    "a memoryview": lambda vector: vector.data,
    "a memoryview of bytes": lambda vector: memoryview(vector).cast("B")[3:].toreadonly(),
    "an array of a memoryview": lambda vector: np.frombuffer(vector.data, "<u4").astype("u4", copy=False)[9:],
    "no more than one entry": lambda vector: vector[-1:],
    "a reshaped one": lambda vector: vector[: LONG // 2 * 2].reshape(2, -1).T,
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_block_is_lent_again_once_nobody_has_a_view_of_it(view, pool):
    vector = pool.empty(LONG, np.uint32)
    where = place(vector)
    kept = VIEWS[view](vector)
    del vector
    others = [pool.empty(LONG, np.uint32) for _ in range(2)]
    assert where not in map(place, others)
    for other in others:
        assert not np.shares_memory(other, np.asarray(kept))
    del kept
    assert place(pool.empty(LONG - 1, np.float32)) == where


def test_a_tensor_keeps_what_it_is_made_of(pool):
    torch = pytest.importorskip("torch")
    vector = pool.empty(LONG, np.float32)
    where, tensor = place(vector), torch.from_numpy(vector)[3:]
    del vector
    assert place(pool.empty(LONG, np.float32)) != where
    del tensor
    assert where in {place(pool.empty(LONG, np.float32)), place(pool.empty(LONG, np.float32))}


def test_those_that_are_lent_at_a_time_never_overlap(pool):
    rng, held = np.random.default_rng(0), {}
    for number in range(300):
        if held and rng.random() < 0.5:
            vector, said = held.pop(list(held)[rng.integers(len(held))])
            assert (vector == said).all()
        else:
            vector = pool.empty(LEAST - int(rng.integers(3)), np.uint8)
            vector[:] = said = number % 251
            held[number] = vector, said
        del vector
    spans = sorted((place(vector), place(vector) + vector.nbytes) for vector, _ in held.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_nothing_is_kept_where_nothing_is_to_be(pool):
    vector = pool.empty(LONG, np.uint32)
    pool.keep(0)
    del vector
    assert not pool._free
    pool.keep(1)
    vector = pool.empty(LONG, np.uint32)
    del vector
    assert len(pool._free) == 1
    pool.keep(0)
    assert not pool._free


@pytest.mark.parametrize("size", [1, LEAST // 2, LEAST - LEAST // 8, LEAST + LEAST // 8, 3 * LEAST])
def test_what_is_of_another_length_is_not_kept(size, pool):
    vector = pool.empty(size, np.uint8)
    assert vector.flags.owndata
    del vector
    assert not pool._free


def test_blocks_of_another_size_are_given_back(pool):
    lent, other = pool.empty(LONG, np.uint32), pool.empty(LONG, np.uint32)
    del other
    pool.fit(2 * LEAST)
    assert not pool._free
    del lent
    assert not pool._free


def test_no_more_are_kept_than_is_said(pool):
    pool.keep(2)
    lent = [pool.empty(LONG, np.uint32) for _ in range(5)]
    del lent
    assert len(pool._free) == 2
    pool.keep(1)
    assert len(pool._free) == 1
