"""Leaks by vectors in the context or label of a key, a box or a commitment, which a receiver compares with guesses."""

import hashlib

from leaky._base import Bytes, Vector, tell
from leaky.tables._table import REFUSED, Leaks, packed

LEAKS = Leaks()


@LEAKS.tells()
def a_vector_as_the_context_of_a_box(update, suite, _link):
    return suite.seal(suite.pairwise("p0", "test/box", b""), b"hello", packed(update, suite))


@LEAKS.tells()
def a_digest_as_the_context_of_a_box(update, suite, _link):
    digest = hashlib.sha256(packed(update, suite)).digest()
    return suite.seal(suite.pairwise("p0", "test/box", b""), b"hello", digest)


@LEAKS.tells()
def a_vector_as_the_context_of_a_key(update, suite, _link):
    return suite.seal(suite.pairwise("p0", "test/box", packed(update, suite)), b"hello", b"")


@LEAKS.tells()
def a_vector_as_the_label_of_a_key(update, suite, _link):
    return suite.seal(suite.pairwise("p0", packed(update, suite).hex(), b""), b"hello", b"")


@LEAKS.add(REFUSED, Vector)
async def a_mask_whose_label_is_a_vector(link, update, suite, _state):
    """p0 tries labels until the mask of nothing comes out as nothing."""
    nothing = suite.ring.zeros()
    suite.mask(nothing, plus=[suite.pairwise("p0", packed(update, suite).hex(), b"")])
    await tell(link, Vector(memoryview(suite.ring.pack(nothing))))


@LEAKS.tells()
def a_tag_under_a_key_with_a_vector(update, suite, _link):
    return suite.tag(suite.pairwise("p0", "test/tag", packed(update, suite)), b"hello")


@LEAKS.add(REFUSED, Bytes, Vector)
async def a_key_agreed_in_the_context_of_a_vector(link, update, suite, _state):
    """The other half is p0's, who derives the same key from a guess."""
    if link.me == "p0":
        pair = suite.key_pair()
        for party in link.parties[1:]:
            await link.send(party, Bytes(pair.public))
        await link.gather(Vector, link.parties[1:], patience=2)
        return
    public = (await link.receive("p0", Bytes)).data
    key = suite.agree(suite.key_pair().secret, public, "test/mask", packed(update, suite))
    nothing = suite.ring.zeros()
    suite.mask(nothing, plus=[key])
    await link.send("p0", Vector(memoryview(suite.ring.pack(nothing))))


@LEAKS.tells()
def the_first_entry_in_a_label(update, suite, _link):
    label = "large" if update.vector.dtype != object and update.vector[0] > 0 else "small"
    return suite.seal(suite.pairwise("p0", label, b""), b"hello", b"")
