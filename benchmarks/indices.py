"""Encoding of sets of positions: speed in both directions, and size relative to the entropy of the set."""

from collections.abc import Iterator
from functools import partial
from math import log2

import numpy as np

from benchmarks.measure import Row, Work, cpu_seconds
from tacit.vectors import index_sets

SHARES = (0.01, 0.05, 0.1, 0.3, 0.5, 0.6)
# A processor learns the branches for one small set, which would make figures too good. So several sets alternate.
SETS = 16
FASTEST, CLOSEST = 50, 1.05
CODINGS = {0: "bitmap", 1: "Elias gamma"}


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields positions per second in both directions, and bytes relative to entropy; targets are for the full sizes
    only."""
    sizes, repeats = ((2_000,), 3) if quick else ((89_834, 1_000_000), 9)
    for entries in sizes:
        for share in SHARES:
            yield from _one_share(entries, share, repeats, full=not quick)


def _one_share(entries: int, share: float, repeats: int, full: bool) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    masks = [rng.random(entries) < share for _ in range(SETS)]
    places = [np.flatnonzero(mask) for mask in masks]
    coded = [index_sets.encode_mask(mask) for mask in masks]
    for mask, positions, data in zip(masks, places, coded, strict=True):
        assert (index_sets.decode_mask(data, entries) == mask).all()
        assert (index_sets.decode(data, entries) == positions).all()

    ways: dict[str, tuple[Work, Work]] = {
        "write": (
            lambda: [index_sets.encode_mask(mask) for mask in masks],
            lambda: [index_sets.encode(positions, entries) for positions in places],
        ),
        "read": (
            lambda: [index_sets.decode_mask(data, entries) for data in coded],
            lambda: [index_sets.decode(data, entries) for data in coded],
        ),
    }
    what, selected = f"share {share:g}, d = {entries:,}", sum(map(len, places))
    for name, (of_masks, of_positions) in ways.items():
        mask_seconds, position_seconds = (cpu_seconds(work, repeats) for work in (of_masks, of_positions))
        rate = partial(_millions, SETS * entries)
        note = (
            f"{_millions(selected, mask_seconds):.0f}M selected positions/s as a mask, "
            f"{_millions(selected, position_seconds):.0f}M as an array of positions; {_coding(coded[0])}"
        )
        target = f"at least {FASTEST}M positions/s" if full else None
        met = rate(mask_seconds) >= FASTEST and rate(position_seconds) >= FASTEST if full else None
        yield Row(f"{name} a set, {what}", rate(mask_seconds), None, "M positions/s", None, target, met, note)

    size, least = sum(map(len, coded)) / SETS, sum(_entropy(mask) for mask in masks) / SETS
    target, met = (f"at most {CLOSEST} of entropy", size <= CLOSEST * least) if full else (None, None)
    note = f"{size / least:.4f} of the entropy; {_coding(coded[0])}"
    yield Row(f"bytes of a set against entropy, {what}", size, least, "B", least / size, target, met, note)


def _millions(count: int, seconds: float) -> float:
    return count / seconds / 1e6


def _entropy(mask: np.ndarray) -> float:
    """Returns the fewest bytes for a random set of that density."""
    share = np.count_nonzero(mask) / len(mask)
    return -len(mask) * (share * log2(share) + (1 - share) * log2(1 - share)) / 8


def _coding(data: bytes) -> str:
    """Returns the name of the coding that was the smallest."""
    code = data[0] % 128
    return CODINGS.get(code, f"Rice, k = {code - 2}")
