"""Lineage of a model: a hash chain over everything from outside that it was trained from.

Where everybody adopts one average, a malicious server can give parties different models and then learn one party's
update from the next sum, whatever the masks do (Pasquini et al. 2022). So a party signs the lineage of the model that
its contribution continues from, and masks only with parties of equal lineage:

    L_0 = START, or a digest of what a program starts from
    L_t = H(L_{t−1}, round, contributors, units, sum)

An average replaces the model of its own length and no other. So a party keeps the L_t of its last sum of each length,
and signs all of them together (`merge_lineages`): rounds of one length do not make up for a missing sum of another.

Parties of equal lineage have received the same inputs from outside, in the same order. Local work is not part of it:
after a failed round every party keeps work of its own, and must not be locked out for that.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from tacit.core.link import frame_parts
from tacit.core.suite import Buffer, Party

LINEAGE_BYTES = 32
START = bytes(LINEAGE_BYTES)
"""The lineage of a model that has adopted nothing yet."""


def extend_lineage(before: bytes, round_: int, contributors: tuple[Party, ...], units: bytes, total: Buffer) -> bytes:
    """Returns the lineage of a model that adopts a sum.

    Args:
        before: The lineage that the contributors to the sum signed.
        round_: The number of their round.
        contributors: Their names, in the order of their roster.
        units: The units of the ring, without which the sum could stand for another average.
        total: The sum, as it is sent.
    """
    names = _frame_names(contributors)
    return _hash_buffers(b"tacit/v1/lineage sum", before, round_.to_bytes(8), names, units, total)


@lru_cache(maxsize=4)  # The names are the same for every party of a process that plays them all.
def _frame_names(names: tuple[Party, ...]) -> bytes:
    return frame_parts(*(name.encode() for name in names))


def merge_lineages(lineages: Mapping[int, bytes]) -> bytes:
    """Returns the lineage of all models of a party, given that of its last sum of each length; empty if there is none.

    That of a single length is the lineage of that length itself, so nothing is hashed twice where there is one model.
    """
    if len(lineages) < 2:
        return next(iter(lineages.values()), b"")
    parts = (part for length in sorted(lineages) for part in (length.to_bytes(8), lineages[length]))
    return _hash_buffers(b"tacit/v1/lineage lengths", *parts)


def digest_inputs(what: str, *inputs: Buffer) -> bytes:
    """Returns the lineage of a model that comes from some inputs alone.

    Args:
        what: The purpose, so that equal inputs for another purpose have another lineage.
        inputs: Everything that the contribution is computed from, in an order that matters.
    """
    return _hash_buffers(b"tacit/v1/lineage inputs", what.encode(), *inputs)


def _hash_buffers(*parts: Buffer) -> bytes:
    """Returns the hash of `frame_parts`, without a copy of long parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(memoryview(part).nbytes.to_bytes(8))
        digest.update(part)
    return digest.digest()
