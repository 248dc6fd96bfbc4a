import json
import runpy
import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st

from support.paths import TESTS
from tacit.crypto import masks
from tacit.crypto.masks import add_masks

VECTORS = TESTS / "crypto" / "vectors"
DTYPES = [np.uint16, np.uint32, np.uint64]
A, B, C = (bytes([letter]) * 32 for letter in b"abc")


def mask(key, length=1000, dtype=np.uint32):
    vector = np.zeros(length, dtype=dtype)
    add_masks(vector, [key])
    return vector


def plain(key, length, dtype):
    """The definition, written out: the whole keystream at once, read as little-endian numbers."""
    size = np.dtype(dtype).itemsize
    counter = bytes(12) + b"\x00\x00\x00\x02"
    keystream = Cipher(AES(key), CTR(counter)).encryptor().update(bytes(length * size))
    return np.array([int.from_bytes(keystream[i : i + size], "little") for i in range(0, length * size, size)], dtype)


@pytest.mark.parametrize("case", json.loads((VECTORS / "masks.json").read_text()), ids=lambda case: case["name"])
def test_known_answers(case):
    stream = bytes.fromhex(case["stream"])
    for dtype in DTYPES:
        vector = mask(bytes.fromhex(case["key"]), len(stream) // np.dtype(dtype).itemsize, dtype)
        assert vector.astype(vector.dtype.newbyteorder("<")).tobytes() == stream


def test_known_answers_are_what_their_script_writes():
    script = runpy.run_path(str(VECTORS / "write_masks.py"))
    assert script["cases"]() == json.loads((VECTORS / "masks.json").read_text())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 1, 7, 1000, 65_537, 150_001])
def test_stream_is_plain_counter_mode(dtype, length):
    assert np.array_equal(mask(A, length, dtype), plain(A, length, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1000, 30_001, 100_003])
def test_both_modes_give_the_same_bytes(length, dtype, monkeypatch):
    results = []
    for mode in masks._MODES:
        monkeypatch.setattr(masks, "_fastest", lambda mode=mode: mode)
        results.append(mask(A, length, dtype))
    assert len(results) == 2
    assert np.array_equal(*results)


def test_fastest_mode_is_measured_once():
    assert masks._fastest() in masks._MODES
    assert masks._fastest() is masks._fastest()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [8, 24, 1000, 4096])
def test_entries_do_not_depend_on_the_chunks(dtype, chunk, monkeypatch):
    vector = np.arange(3001, dtype=dtype)
    expected = vector + plain(A, 3001, dtype) - plain(B, 3001, dtype)
    monkeypatch.setattr(masks, "_CHUNK_BYTES", chunk)
    add_masks(vector, [A], [B])
    assert np.array_equal(vector, expected)


def test_a_shorter_vector_gets_the_start_of_the_same_stream():
    assert np.array_equal(mask(A, 100_000)[:70_001], mask(A, 70_001))


def test_keys_in_batches_give_the_same_sum(monkeypatch):
    keys = [bytes([i]) * 32 for i in range(7)]
    expected, vector = np.zeros(100, np.uint32), np.zeros(100, np.uint32)
    add_masks(expected, keys[:4], keys[4:])
    monkeypatch.setattr(masks, "_KEYS_AT_ONCE", 3)
    add_masks(vector, keys[:4], keys[4:])
    assert np.array_equal(vector, expected)


@given(
    st.integers(0, 300),
    st.sampled_from(DTYPES),
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
)
@settings(derandomize=True, deadline=None)
def test_adds_and_subtracts_modulo_the_ring(length, dtype, plus, minus):
    vector = np.full(length, np.iinfo(dtype).max, dtype=dtype)
    expected = vector.copy()
    for key in plus:
        expected += plain(key, length, dtype)
    for key in minus:
        expected -= plain(key, length, dtype)
    add_masks(vector, plus, minus)
    assert np.array_equal(vector, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_plus_then_minus_leaves_the_vector(dtype):
    vector = np.arange(70_001, dtype=dtype)
    add_masks(vector, [A, B], [C])
    assert not np.array_equal(vector, np.arange(70_001, dtype=dtype))
    add_masks(vector, [C], [B, A])
    assert np.array_equal(vector, np.arange(70_001, dtype=dtype))


def test_pairwise_masks_cancel_in_the_sum():
    x, y, z = (np.full(500, value, np.uint32) for value in (1, 20, 300))
    add_masks(x, [A, B])
    add_masks(y, [C], [A])
    add_masks(z, [], [B, C])
    assert np.array_equal(x + y + z, np.full(500, 321, np.uint32))


def test_masks_of_two_keys_share_nothing():
    assert np.count_nonzero(mask(A, 10_000) == mask(B, 10_000)) < 3
    assert np.count_nonzero(mask(A, 10_000) + mask(B, 10_000) == 0) < 3


def flipped(key, *bits):
    return (int.from_bytes(key) ^ sum(1 << bit for bit in bits)).to_bytes(32)


def test_all_256_bits_of_the_key_count_no_seed_folded_to_32_bits():
    # Folding by exclusive or survives a test of single flips, but not one that flips the same bit of two words.
    single = [flipped(A, bit) for bit in range(256)]
    double = [flipped(A, 32 * i + bit, 32 * j + bit) for bit in range(32) for i in range(8) for j in range(i)]
    keys = [A, *single, *double]
    assert len(set(keys)) == 1 + 256 + 32 * 28
    assert len({mask(key, 8).tobytes() for key in keys}) == len(keys)


@pytest.mark.parametrize("dtype", DTYPES)
def test_entries_of_a_mask_differ_no_value_reused_for_a_tensor(dtype):
    vector = mask(A, 4096, dtype)
    expected = {np.uint16: 3900, np.uint32: 4095, np.uint64: 4096}[dtype]
    assert len(np.unique(vector)) >= expected
    assert not np.array_equal(vector[:2048], vector[2048:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_look_uniform(dtype):
    vector = mask(B, 1 << 16, dtype)
    bits = 8 * vector.dtype.itemsize
    for shift in (0, bits - 8):  # the lowest and the highest byte of the entries, 256 each of 256 values expected
        counts = np.bincount((vector >> dtype(shift)) & dtype(255), minlength=256)
        chi_square = ((counts - 256.0) ** 2 / 256).sum()
        assert 150 < chi_square < 390  # 255 degrees of freedom: 4.6 deviations down, 6 up
    ones = [np.count_nonzero(vector >> dtype(bit) & dtype(1)) for bit in range(bits)]
    assert max(abs(count - 2**15) for count in ones) < 5 * 128  # five deviations


@pytest.mark.parametrize("length", [0, 16, 24, 31, 33, 64])
def test_keys_of_other_lengths_are_refused_before_anything_is_added(length):
    vector = np.zeros(10, np.uint32)
    for plus, minus in (([A, bytes(length)], []), ([A], [bytes(length)])):
        with pytest.raises(ValueError, match="32 bytes"):
            add_masks(vector, plus, minus)
    assert not vector.any()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float32, np.dtype(np.uint32).newbyteorder()])
def test_other_entries_are_refused(dtype):
    with pytest.raises(ValueError, match="uint16, uint32 or uint64"):
        add_masks(np.zeros(10, dtype), [A])


@pytest.mark.parametrize("vector", [np.zeros((2, 5), np.uint32), np.zeros(10, np.uint32)[::2], np.uint32(5)[...]])
def test_other_shapes_are_refused(vector):
    with pytest.raises(ValueError, match="one-dimensional contiguous"):
        add_masks(vector, [A])


def test_vectors_longer_than_the_stream_are_refused():
    entry = np.zeros(1, np.uint32)
    longest = (2**32 - 2) * 4
    with pytest.raises(ValueError, match="longer than a mask stream"):
        add_masks(np.broadcast_to(entry, longest + 1), [A])
    with pytest.raises(ValueError, match="contiguous"):  # the length is all right, only this stand-in is not
        add_masks(np.broadcast_to(entry, longest), [A])


def test_extra_memory_is_a_few_chunks():
    vector, keys = np.zeros(1_000_000, np.uint32), [bytes([i]) * 32 for i in range(20)]
    add_masks(vector, keys[:1])
    tracemalloc.start()
    add_masks(vector, keys[:10], keys[10:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * masks._CHUNK_BYTES
