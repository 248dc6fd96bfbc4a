"""Lineage of a model: a hash chain over all inputs from other parties that the model was trained from.

A malicious server can give parties different models, and then learn one party's update from the next sum, whatever the
masks do (Pasquini et al. 2022). Therefore a party signs the lineage of the model that its contribution continues from,
and masks only with parties of equal lineage:

    L_0 = START, or a digest of the inputs that a program starts from
    L_t = H(L_{t−1}, round, contributors, units, sum)

An average replaces only the model of its own length. So a party keeps the L_t of its last sum of each length, and signs
all of them together (`merge_lineages`): a sum of one length does not replace a missing sum of another.

Parties of equal lineage have received the same inputs in the same order. Local training is not part of the lineage:
after a failed round each party keeps its own training, and must still be able to take part.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from tacit.core.link import frame_parts
from tacit.core.suite import Buffer, Party

LINEAGE_BYTES = 32
START = bytes(LINEAGE_BYTES)
"""Lineage of a model that has adopted no average yet."""


def extend_lineage(before: bytes, round_: int, contributors: tuple[Party, ...], units: bytes, total: Buffer) -> bytes:
    """Returns the lineage of a model that adopts a sum.

    Args:
        before: The lineage that the contributors signed.
        round_: The number of their round.
        contributors: Their names, in the order of their roster.
        units: The units of the ring. The same sum in other units would be another average.
        total: The sum, as the bytes that are sent.
    """
    names = _frame_names(contributors)
    return _hash_buffers(b"tacit/v1/lineage sum", before, round_.to_bytes(8), names, units, total)


@lru_cache(maxsize=4)  # a process that simulates all parties frames the same names for each of them
def _frame_names(names: tuple[Party, ...]) -> bytes:
    return frame_parts(*(name.encode() for name in names))


def merge_lineages(lineages: Mapping[int, bytes]) -> bytes:
    """Returns one lineage for all models of a party, from the lineage of its last sum of each length.

    It is empty if there is no sum. For a single length it is the lineage of that length itself, without another hash.
    """
    if len(lineages) < 2:
        return next(iter(lineages.values()), b"")
    parts = (part for length in sorted(lineages) for part in (length.to_bytes(8), lineages[length]))
    return _hash_buffers(b"tacit/v1/lineage lengths", *parts)


def digest_inputs(what: str, *inputs: Buffer) -> bytes:
    """Returns the lineage of a model that is computed from the given inputs alone.

    Args:
        what: The purpose. Equal inputs for another purpose have another lineage.
        inputs: Everything that the contribution is computed from. The order matters.
    """
    return _hash_buffers(b"tacit/v1/lineage inputs", what.encode(), *inputs)


def _hash_buffers(*parts: Buffer) -> bytes:
    """Returns the SHA-256 of `frame_parts`, without copying long parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(memoryview(part).nbytes.to_bytes(8))
        digest.update(part)
    return digest.digest()
