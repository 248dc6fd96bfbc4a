"""Pairwise masks within a group, which cancel in the sum over the group."""

from collections.abc import Collection

from tacit.core.link import Link
from tacit.core.suite import Party, Suite, Vector


def mask_among(link: Link, suite: Suite, vector: Vector, others: Collection[Party], label: str, context: bytes) -> None:
    """Masks this party's part of a group's sum in place, with one mask per other party; the smaller name adds it."""
    keys = {party: suite.pairwise(party, label, context) for party in others}
    plus = [key for party, key in keys.items() if link.me < party]
    suite.mask(vector, plus, [key for party, key in keys.items() if link.me > party])
