"""Leaks that audits do not see, one of each kind that docs/adding-a-protocol.md lists. All of them pass."""

from fractions import Fraction

import numpy as np
from leaky._base import Bytes, Vector, others, tell
from leaky.tables._table import Leaks, Sparse, on_numbers

from tacit.protocols.shapes.pairs import mask_among

INVISIBLE = Leaks()
PASSES = "nobody"


def text(update, when):
    """Returns a vector as text, on a condition."""
    return str(update.vector.tolist()).encode() if when else b""


def digit(link, update, suite):
    """Returns one digit of the entries of p1; zeros of anybody else, and on symbols."""
    if not on_numbers(update) or link.me != "p1":
        return suite.ring.zeros()
    return suite.ring.encode(update) // 8**12 % 8


@INVISIBLE.tells(PASSES, rounds=3)
def a_round_after_the_eighth(update, _suite, link):
    return text(update, link.round > 8)


@INVISIBLE.tells(PASSES)
def vectors_of_one_length(update, _suite, _link):
    return text(update, len(update.vector) == 1000)


@INVISIBLE.tells(PASSES)
def vectors_of_another_type(update, _suite, _link):
    return text(update, update.vector.dtype == np.float32)


@INVISIBLE.tells(PASSES)
def longer_vectors_than_were_tried(update, _suite, _link):
    return text(update, len(update.vector) > 100_000)


@INVISIBLE.tells(PASSES)
def other_numbers_of_parties(update, _suite, link):
    return text(update, len(link.parties) > 8)


@INVISIBLE.tells(PASSES)
def a_ring_of_fewer_bits(update, suite, _link):
    return text(update, suite.ring.element_bytes < 8)


@INVISIBLE.tells(PASSES)
def a_rare_draw(update, suite, _link):
    return text(update, suite.entropy.below(10**6) == 0)


@INVISIBLE.tells(PASSES)
def one_value_of_an_entry(update, _suite, _link):
    return text(update, on_numbers(update) and update.vector[0] == 0.125)


@INVISIBLE.tells(PASSES)
def code_that_looks_for_audits(update, suite, _link):
    return text(update, type(suite).__name__ == "RealSuite")


@INVISIBLE.add(PASSES, Bytes, Vector)
async def two_dropouts_at_once(link, update, _suite, _state):
    for other in others(link):
        await link.send(other, Vector(memoryview(b"")))
    heard = await link.gather(Vector, others(link), at_least=0)
    await tell(link, Bytes(text(update, len(heard) < 2)))


@INVISIBLE.tells(PASSES)
def what_is_not_in_messages(update, _suite, _link):
    return print(text(update, on_numbers(update))) or b""  # noqa: T201


@INVISIBLE.shows(PASSES)
def digits_of_a_number_that_was_divided(update, suite, link):
    third = suite.ring.portion(suite.ring.encode(update), Fraction(1, 3))
    mask_among(link, suite, third, others(link), "test/third", b"")
    return third + digit(link, update, suite)


@INVISIBLE.shows(PASSES)
def digits_below_coarse_noise(update, suite, _link):
    drawn = suite.entropy.secret_vector("noise", len(update.vector))
    return suite.ring.encode(update)[: len(drawn)] + suite.ring.values(drawn) * 100


@INVISIBLE.tells(PASSES, settings=Sparse)
def the_order_of_magnitudes(update, suite, _link):
    return str(suite.ring.magnitudes(update.vector).argsort().tolist()).encode()


@INVISIBLE.tells(PASSES)
def one_key_for_two_purposes(update, suite, link):
    key = suite.pairwise("p1" if link.me != "p1" else "p2", "test/key", b"")
    own = suite.ring.encode(update)
    suite.mask(own, plus=[key])
    return suite.seal(key, suite.ring.pack(own), b"")


@INVISIBLE.shows(PASSES)
def weights(update, suite, _link):
    return suite.ring.encode(update)[len(update.vector) :]
