"""Secret sharing, compared with Flower's, which shares 16 bytes at a time over GF(2^128) in Python."""

from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace

from benchmarks.measure import Row, Work, cpu_seconds, side_by_side, single_row, timed_row
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import MissingExtra
from tacit.crypto import shares

SEED = bytes(range(32))


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the times to share and to recover a mask seed and a private key; targets are for the full size only."""
    holders, threshold, repeats = (10, 7, 3) if quick else (100, 67, 3)
    size = f"N = {holders}, t = {threshold}"
    ours = _ours(holders, threshold)
    try:
        flower = _flower()
    except MissingExtra as missing:
        for name, work in ours.items():
            yield single_row(f"{name}, {size}", cpu_seconds(work) * 1e3, "ms", str(missing))
        return
    secrets = {"a seed": SEED, "a private key": flower.private_key()}
    for what, secret in secrets.items():
        note = f"{len(secret)} bytes of theirs, 32 of ours"
        dealt = flower.create_shares(secret, threshold, holders)[:threshold]
        assert flower.combine_shares(dealt) == secret
        pair = side_by_side(
            ours["share"], lambda secret=secret: flower.create_shares(secret, threshold, holders), repeats
        )
        yield timed_row(f"share {what}, {size}", pair, None if quick else 200, note)
        for how in ("recover", "recover again"):
            pair = side_by_side(ours[how], lambda dealt=dealt: flower.combine_shares(dealt), repeats)
            yield timed_row(f"{how} {what}, {size}", pair, None if quick else 200, f"{note}; t shares each")


def _ours(holders: int, threshold: int) -> dict[str, Work]:
    numbers, draw = range(1, holders + 1), SystemEntropy().bytes
    dealt = dict(list(shares.split(SEED, threshold, numbers, draw).items())[:threshold])
    assert shares.combine(dealt, threshold) == SEED

    def cold() -> bytes:
        shares._at_zero.cache_clear()
        return shares.combine(dealt, threshold)

    return {
        "share": lambda: shares.split(SEED, threshold, numbers, draw),
        "recover": cold,
        "recover again": lambda: shares.combine(dealt, threshold),
    }


def _flower() -> SimpleNamespace:
    if find_spec("flwr") is None:
        raise MissingExtra("flwr", "flower")
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
    from flwr.supercore.primitives.asymmetric import generate_key_pairs, private_key_to_bytes

    return SimpleNamespace(
        create_shares=create_shares,
        combine_shares=combine_shares,
        private_key=lambda: private_key_to_bytes(generate_key_pairs()[0]),
    )
