"""Masking, compared with Flower's SecAgg+ and with the fastest available keystream."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM

from benchmarks.measure import Row, Work, comparison_row, cpu_seconds, peak_bytes, side_by_side, single_row, timed_row
from tacit.core.errors import MissingExtra
from tacit.core.suite import Update
from tacit.crypto import masks
from tacit.crypto.masks import add_masks
from tacit.vectors.fixedpoint import FixedPoint

# The defaults of Flower's SecAggPlusWorkflow. Both sides work in a ring of 32 bits and clip at 8.
CLIP, TARGET_RANGE, MOD_RANGE = 8.0, 1 << 22, 1 << 32
BITS = 32
TARGETS = {32: 7.0, 16: 14.0}
"""Required speed-up over Flower's only ring, for a client and a server, by the bits of our ring."""
PAGES = (
    "Flower allocates a mask anew each time, and much of its time goes into the pages that the system gives it for it; "
    "where the heap is kept, the ratio is about 6"
)


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields masking times, bytes on the wire and memory; targets are for the full sizes only."""
    sizes, clients, repeats = ((1_000, 20_000), 10, 3) if quick else ((100_000, 1_000_000), 100, 9)
    entries = sizes[-1]
    try:
        flower = _flower()
    except MissingExtra as missing:
        for name, work in _ours(sizes, clients).items():
            yield single_row(name, cpu_seconds(work, repeats) * 1e3, "ms", str(missing))
        yield single_row("bytes a parameter on the wire", _wire_bytes(entries), "B", str(missing))
        yield single_row("peak memory of masking", peak_bytes(_one(entries)) / entries, "B/param", str(missing))
    else:
        yield from _against_flower(flower, sizes, clients, repeats, full=not quick)
    for count in (1, 16):
        ours, (best, how) = _many(entries, count), _floor(entries, count)
        pair = side_by_side(ours, best, repeats)
        name = f"{_keys(count)}, d = {entries:,}, against raw AES and add"
        # At most 1.1 times the floor.
        yield timed_row(name, pair, None if quick else 1 / 1.1, f"floor: {how}, all set-up left out")


def _against_flower(flower: Any, sizes: tuple[int, ...], clients: int, repeats: int, full: bool) -> Iterator[Row]:
    ours, theirs = _ours(sizes, clients), _theirs(flower, sizes, clients)
    for place, name in enumerate(ours):
        bits = {len(sizes): 32, len(sizes) + 1: 16}.get(place)
        target = TARGETS[bits] if full and bits is not None else None
        note = f"AES by {_mode()}" + (f"; {PAGES}" if bits is None else "")
        yield timed_row(name, side_by_side(ours[name], theirs[name], repeats), target, note)
    entries = sizes[-1]
    sent = sum(len(flower.ndarray_to_bytes(array)) for array in flower.client(_vector(entries), _keys_of(2)))
    yield comparison_row("bytes a parameter on the wire", _wire_bytes(entries), sent / entries, "B")
    note = "tracemalloc; ours also holds an AES state of about 1 KiB for each key outside of Python"
    mask, their_mask = peak_bytes(_one(entries)), peak_bytes(flower.one(entries))
    yield comparison_row("peak memory of masking", mask / entries, their_mask / entries, "B/param", note=note)
    vector = _vector(entries)
    client = peak_bytes(lambda: _client(vector, _keys_of(4)))
    their_client = peak_bytes(lambda: flower.client(vector, _keys_of(4)))
    note = "the result counted in, the input not; does not depend on the number of neighbours"
    yield comparison_row(
        "peak memory of quantize and mask", client / entries, their_client / entries, "B/param", note=note
    )


def _ours(sizes: tuple[int, ...], clients: int) -> dict[str, Work]:
    works = {_mask_name(entries): _one(entries) for entries in sizes}
    vector, keys = _vector(sizes[-1]), _keys_of(clients)
    return works | {_client_name(sizes, clients, bits): partial(_client, vector, keys, bits) for bits in TARGETS}


def _theirs(flower: Any, sizes: tuple[int, ...], clients: int) -> dict[str, Work]:
    works = {_mask_name(entries): flower.one(entries) for entries in sizes}
    vector, keys = _vector(sizes[-1]), _keys_of(clients)
    return works | {_client_name(sizes, clients, bits): partial(flower.client, vector, keys) for bits in TARGETS}


def _mode() -> str:
    """Returns the mode that masks.py found to be faster on this machine."""
    return masks._fastest().name


def _mask_name(entries: int) -> str:
    return f"one neighbour's mask, d = {entries:,}"


def _client_name(sizes: tuple[int, ...], clients: int, bits: int) -> str:
    return f"a client's quantize and mask, {bits} bits, N = {clients} complete, d = {sizes[-1]:,}"


def _keys(count: int) -> str:
    return "1 mask" if count == 1 else f"{count} masks"


def _keys_of(clients: int) -> list[bytes]:
    """Returns the keys of a client: its own seed, then one for each other client of a complete graph."""
    return [number.to_bytes(32) for number in range(1, clients + 1)]


def _vector(entries: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, entries).astype(np.float32)


def _one(entries: int) -> Work:
    return _many(entries, 1)


def _many(entries: int, count: int) -> Work:
    vector, keys = np.zeros(entries, np.uint32), _keys_of(count)
    return lambda: add_masks(vector, keys)


def _client(vector: np.ndarray, keys: list[bytes], bits: int = BITS) -> np.ndarray:
    own, *pairwise = keys
    half = len(pairwise) // 2
    encoded = FixedPoint(bits, CLIP, len(keys), len(vector)).encode(Update(vector, 1.0))
    add_masks(encoded, [own, *pairwise[:half]], pairwise[half:])
    return encoded


def _wire_bytes(entries: int) -> float:
    ring = FixedPoint(BITS, CLIP, 100, entries)
    return memoryview(ring.pack(ring.encode(Update(_vector(entries), 1.0)))).nbytes / entries


def _floor(entries: int, count: int) -> tuple[Work, str]:
    """Returns the fastest of the ways to add raw keystreams, with all memory and keys prepared beforehand."""
    modes = {"CTR": CTR(bytes(16)), "GCM": GCM(bytes(12))}
    vector = np.zeros(entries, np.uint32)

    def way(mode: str, chunk: int) -> Work:
        zeros, room = bytes(4 * chunk), bytearray(4 * chunk)
        mask = np.frombuffer(room, np.uint32)
        # The stream continues from call to call, which does not change its speed.
        streams = [Cipher(AES(key), modes[mode]).encryptor() for key in _keys_of(count)]
        parts = [vector[start : start + chunk] for start in range(0, entries, chunk)]
        views = [
            (part, memoryview(zeros)[: part.nbytes], memoryview(room)[: part.nbytes], mask[: len(part)])
            for part in parts
        ]

        def work() -> None:
            for part, blank, out, stream_part in views:
                for stream in streams:
                    stream.update_into(blank, out)
                    np.add(part, stream_part, out=part)

        return work

    ways = {(mode, 1 << log): way(mode, 1 << log) for mode, log in product(modes, (14, 15, 16, 17, 18))}
    (mode, chunk), best = min(ways.items(), key=lambda item: cpu_seconds(item[1], 5))
    return best, f"AES-256-{mode} in chunks of {4 * chunk // 1024} KiB"


def _flower() -> SimpleNamespace:
    """Returns the work of Flower's client between its fit and its reply, by the functions of its `secaggplus_mod`."""
    if find_spec("flwr") is None:
        raise MissingExtra("flwr", "flower")
    from flwr.common import ndarray_to_bytes
    from flwr.common.secure_aggregation.ndarrays_arithmetic import (
        factor_combine,
        parameters_addition,
        parameters_mod,
        parameters_multiply,
        parameters_subtraction,
    )
    from flwr.common.secure_aggregation.quantization import quantize
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    def one(entries: int) -> Callable[[], Any]:
        shapes = [(1,), (entries,)]
        parameters, seed = [np.zeros(shape, np.int64) for shape in shapes], _keys_of(1)[0]
        return lambda: parameters_addition(parameters, pseudo_rand_gen(seed, MOD_RANGE, shapes))

    def client(vector: np.ndarray, keys: list[bytes]) -> list[np.ndarray]:
        own, *pairwise = keys
        masked = factor_combine(TARGET_RANGE, quantize(parameters_multiply([vector], 1.0), CLIP, TARGET_RANGE))
        shapes = [array.shape for array in masked]
        masked = parameters_addition(masked, pseudo_rand_gen(own, MOD_RANGE, shapes))
        for i, key in enumerate(pairwise):
            add = parameters_addition if i < len(pairwise) // 2 else parameters_subtraction
            masked = add(masked, pseudo_rand_gen(key, MOD_RANGE, shapes))
        return parameters_mod(masked, MOD_RANGE)

    return SimpleNamespace(one=one, client=client, ndarray_to_bytes=ndarray_to_bytes)
