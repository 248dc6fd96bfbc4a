"""Leaks in the digits of numbers: below the rounding, beyond the clip, around zero, and in powers of two."""

import contextlib
from fractions import Fraction

import numpy as np
from leaky._base import Bytes, Vector, tell
from leaky.tables._table import EXPOSED, REFUSED, Leaks, Stepped, on_numbers, packed

from tacit.core.errors import ConfigError
from tacit.core.messages import Message

LEAKS = Leaks()


def digit(update, suite, place, base=16):
    """Returns one digit of each entry in the ring; zeros on symbols."""
    return (suite.ring.encode(update) // base**place % base).astype(suite.ring.zeros().dtype)


@LEAKS.add(REFUSED, Vector, settings=Stepped)
async def a_vector_digit_by_digit(link, update, suite, _state):
    """Every digit is a residue within what rounding may do to nothing."""
    for place in range(16):
        digits = digit(update, suite, place) if on_numbers(update) else suite.ring.zeros()
        await tell(link, Vector(memoryview(suite.ring.pack(digits))), step=place)


@LEAKS.shows()
def a_digit_of_a_public_number(update, suite, _link):
    public = suite.ring.values(np.full(len(update.vector), 0.5))
    return public + digit(update, suite, 11)[: len(public)] if on_numbers(update) else public


@LEAKS.add(REFUSED, Vector, Bytes)
async def a_digit_of_a_drawn_number(link, update, suite, _state):
    """The number is told as well, so the difference is the digit."""
    drawn = suite.entropy.secret_vector("drawn", len(update.vector))
    exact = suite.ring.values(drawn)
    shown = exact + digit(update, suite, 10)[: len(exact)] if on_numbers(update) else exact
    await tell(link, Vector(memoryview(suite.ring.pack(shown))))


@LEAKS.add(REFUSED, Vector)
async def a_digit_of_the_sum_of_a_pair(link, update, suite, _state):
    """p1 and p2 mask for each other; their sum carries a digit of one of them."""
    own = suite.ring.zeros()
    if link.me in ("p1", "p2"):
        key = suite.pairwise("p2" if link.me == "p1" else "p1", "test/pair", b"")
        suite.mask(own, **{"plus" if link.me == "p1" else "minus": [key]})
        if on_numbers(update) and link.me == "p1":
            own += digit(update, suite, 10)
    await tell(link, Vector(memoryview(suite.ring.pack(own))))


@LEAKS.shows()
def what_the_clip_cuts_off(update, suite, _link):
    return suite.ring.values(update.vector - suite.ring.clip_vector(update.vector, 32.0))


@LEAKS.shows()
def what_a_smaller_clip_cuts_off(update, suite, _link):
    return suite.ring.values(update.vector - suite.ring.clip_vector(update.vector, 1.0))


@LEAKS.add(REFUSED, Vector)
async def what_the_clip_cuts_off_in_a_sum(link, update, suite, _state):
    """p1 and p2 mask for each other; their sum carries what the clip cut off of one of them."""
    own = suite.ring.encode(update)
    if link.me in ("p1", "p2"):
        key = suite.pairwise("p2" if link.me == "p1" else "p1", "test/pair", b"")
        suite.mask(own, **{"plus" if link.me == "p1" else "minus": [key]})
        if on_numbers(update) and link.me == "p1":
            beyond = update.vector - np.clip(update.vector, -32.0, 32.0)
            own[: len(beyond)] += np.rint(beyond * 1000).astype(np.int64).view(own.dtype)
    else:
        own = suite.ring.zeros()
    await tell(link, Vector(memoryview(suite.ring.pack(own))))


@LEAKS.tells()
def how_many_entries_were_clipped(update, suite, _link):
    suite.ring.encode(update)
    return b"%d" % getattr(suite.ring, "clipped", 0)


@LEAKS.tells()
def the_largest_entry_that_was_clipped(update, suite, _link):
    suite.ring.encode(update)
    return str(getattr(suite.ring, "largest", 0.0)).encode()


@LEAKS.tells()
def whether_it_overflows(update, suite, _link):
    with contextlib.suppress(ConfigError):
        suite.ring.within(suite.ring.encode(update) * 4)
        return b"fits"
    return b"overflows"


@LEAKS.shows()
def zeros_unless_it_overflows(update, suite, _link):
    try:
        suite.ring.within(suite.ring.encode(update) * 2)
    except ConfigError:
        return suite.ring.values(np.ones(len(update.vector)))
    return suite.ring.values(np.zeros(len(update.vector)))


@LEAKS.add(REFUSED)
async def a_round_that_ends_if_it_overflows(_link, update, suite, _state):
    suite.ring.within(suite.ring.encode(update) * 8)


@LEAKS.tells()
def where_it_is_zero(update, _suite, _link):
    return bytes(np.flatnonzero(update.vector == 0.0).tolist()) if on_numbers(update) else b""


@LEAKS.tells()
def where_neighbours_are_equal(update, _suite, _link):
    return bytes(np.flatnonzero(np.diff(update.vector) == 0).tolist()) if on_numbers(update) else b""


@LEAKS.tells()
def where_entries_are_whole(update, _suite, _link):
    return bytes(np.flatnonzero(update.vector % 1 == 0).tolist()) if on_numbers(update) else b""


@LEAKS.tells()
def where_entries_are_large(update, _suite, _link):
    return bytes(np.flatnonzero(np.abs(update.vector) > 5.0).tolist()) if on_numbers(update) else b""


@LEAKS.tells()
def where_entries_are_tiny(update, _suite, _link):
    return bytes(np.flatnonzero(np.abs(update.vector) < 1e-9).tolist()) if on_numbers(update) else b""


@LEAKS.shows()
def under_another_entry_that_wraps_around(update, suite, _link):
    """In a ring of 32 bits nothing is left of the second summand."""
    own = suite.ring.encode(update)
    return own + np.roll(own, 1) * 2**32


@LEAKS.tells()
def the_sign_bits(update, _suite, _link):
    return np.packbits(np.signbit(update.vector)).tobytes() if on_numbers(update) else b""


@LEAKS.tells()
def the_exponents(update, _suite, _link):
    return bytes((np.frexp(update.vector)[1] % 256).tolist()) if on_numbers(update) else bytes(len(update.vector))


class Weighing(Message, frozen=True):
    """A weight as a number."""

    weight: float


@LEAKS.add(REFUSED, Weighing)
async def bits_of_an_entry_in_a_weight(link, update, _suite, _state):
    """The last bits of a float that should be 1."""
    low = int(abs(update.vector[0]) * 2**20) % 256 if on_numbers(update) else 0
    await tell(link, Weighing(1.0 + low * 2.0**-52))


@LEAKS.shows(EXPOSED)
def the_vector_times_three(update, suite, _link):
    return suite.ring.encode(update) * 3


@LEAKS.shows("not-linear")
def a_tenth_of_the_vector(update, suite, _link):
    return suite.ring.values(update.vector, Fraction(1, 10))


@LEAKS.tells()
def a_packed_vector_upside_down(update, suite, _link):
    return packed(update, suite)[::-1]
