"""Leaks by masks that do not hide: chains that vanish modulo 2^k, shared, reused and recovered seeds."""

from typing import ClassVar

from leaky._base import Bytes, Vector, others, tell
from leaky.tables._table import EXPOSED, REFUSED, Leaks, Stepped

from tacit.core.messages import Message
from tacit.core.protocol import State
from tacit.core.suite import Secret

LEAKS = Leaks()


def masked(suite, vector, plus=(), minus=()):
    """Returns the packed sum of a vector and masks."""
    total = vector.copy()
    suite.mask(total, plus=list(plus), minus=list(minus))
    return Vector(memoryview(suite.ring.pack(total)))


@LEAKS.add(REFUSED, Vector, settings=Stepped)
async def the_last_bit_under_two_masks(link, update, suite, _state):
    """x + a + b and x + a − b differ by 2b, and add up to 2x + 2a: the last bits of both cancel."""
    a, b, own = suite.seed(), suite.seed(), suite.ring.encode(update)
    await tell(link, masked(suite, own, [a, b]), step=0)
    await tell(link, masked(suite, suite.ring.zeros(), [a], [b]), step=1)


@LEAKS.add(REFUSED, Vector, settings=Stepped)
async def a_cycle_of_three_masks(link, update, suite, _state):
    """a + b, b + c and c + a add up to an even number."""
    a, b, c = (suite.seed() for _ in range(3))
    vectors = suite.ring.encode(update), suite.ring.zeros(), suite.ring.zeros()
    for step, (vector, seeds) in enumerate(zip(vectors, ((a, b), (b, c), (c, a)), strict=True)):
        await tell(link, masked(suite, vector, seeds), step=step)


class Vectors(Message, frozen=True):
    """Many packed vectors."""

    vectors: tuple[memoryview, ...]
    per_entry: ClassVar[int] = 2000


@LEAKS.add(REFUSED, Vectors)
async def a_chain_that_vanishes(link, update, suite, _state):
    """Each mask is twice the one before, by factors of ±1 alone: the last is 2^64 times the first, which is nothing."""
    zeros, mask, chain = suite.ring.zeros(), suite.seed(), []
    for _ in range(64):
        copy, double = suite.seed(), suite.seed()
        chain += [masked(suite, zeros, [copy], [mask]), masked(suite, zeros, [double], [mask, copy])]
        mask = double
    chain.append(masked(suite, suite.ring.encode(update), [mask]))
    await tell(link, Vectors(tuple(each.vector for each in chain)))


@LEAKS.add(REFUSED, Vector, coalition=("p0", "p1"))
async def halves_of_a_cycle_for_two_parties(link, update, suite, _state):
    """p0 is sent x + a + b and p1 a − b. Neither sees anything alone."""
    a, b = suite.seed(), suite.seed()
    if link.me in ("p0", "p1"):
        await link.gather(Vector, [each for each in others(link) if each not in ("p0", "p1")])
        return
    await link.send("p0", masked(suite, suite.ring.encode(update), [a, b]))
    await link.send("p1", masked(suite, suite.ring.zeros(), [a], [b]))


@LEAKS.add(REFUSED, Vector, settings=Stepped)
async def a_determinant_of_two_to_the_third(link, update, suite, _state):
    """Hadamard's matrix of order four: every sum of its rows is even."""
    seeds, own = [suite.seed() for _ in range(4)], suite.ring.encode(update)
    for row in range(4):
        signs = [bin(row & column).count("1") % 2 for column in range(4)]
        plus = [seed for seed, sign in zip(seeds, signs, strict=True) if not sign]
        minus = [seed for seed, sign in zip(seeds, signs, strict=True) if sign]
        await tell(link, masked(suite, own if row == 0 else suite.ring.zeros(), plus, minus), step=row)


@LEAKS.shows(EXPOSED)
def one_element_of_a_mask_for_all_entries(update, suite, _link):
    """The last element of an encoded vector is zero, and shows the mask."""
    own = suite.ring.encode(update)
    return own + suite.stream(suite.seed(), own, len(own))[0]


@LEAKS.shows(EXPOSED)
def a_mask_that_the_receiver_shares(update, suite, link):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[suite.pairwise("p0", "test/mask", link.statement("mask"))])
    return own


@LEAKS.shows(EXPOSED)
def a_mask_that_is_taken_off_again(update, suite, _link):
    own, seed = suite.ring.encode(update), suite.seed()
    suite.mask(own, plus=[seed, seed], minus=[seed, seed])
    return own


@LEAKS.shows("not-auditable")
def a_mask_from_the_session(update, suite, link):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[Secret(link.session[:16] * 2)])
    return own


@LEAKS.shows("not-auditable")
def a_mask_from_a_public_key(update, suite, _link):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[Secret(suite.key_pair().public)])
    return own


@LEAKS.add(EXPOSED, Vector, Bytes)
async def a_threshold_of_one(link, update, suite, _state):
    own, seed = suite.ring.encode(update), suite.seed()
    shares = suite.share(seed, 1, [1, 2, 3])
    await tell(link, masked(suite, own, [seed]))
    await tell(link, Bytes(shares[1]))


@LEAKS.add(EXPOSED, Vector, Bytes, settings=Stepped)
async def two_shares_for_one_holder(link, update, suite, _state):
    own, seed = suite.ring.encode(update), suite.seed()
    shares = suite.share(seed, 2, [1, 2, 3])
    await tell(link, masked(suite, own, [seed]))
    for step, holder in enumerate((1, 3)):
        await tell(link, Bytes(shares[holder]), step=step)


class Seed(State, frozen=True):
    """A seed of the last round."""

    seed: bytes = b""


@LEAKS.add(EXPOSED, Vector, Bytes, rounds=2, state=Seed)
async def a_seed_a_round_later(link, update, suite, state):
    seed = suite.seed()
    await tell(link, masked(suite, suite.ring.encode(update), [seed]))
    await tell(link, Bytes(state.seed))
    await link.save(Seed(seed.reveal()))


@LEAKS.add(EXPOSED, Vector, rounds=2, state=Seed, settings=Stepped)
async def one_mask_for_all_rounds(link, update, suite, state):
    """The second time the mask hides nothing but zeros."""
    seed = Secret(state.seed) if state.seed else suite.seed()
    await tell(link, masked(suite, suite.ring.encode(update) if link.round == 1 else suite.ring.zeros(), [seed]))
    await link.save(Seed(seed.reveal()))


@LEAKS.add(EXPOSED, Vector, Bytes)
async def a_key_agreed_with_a_key_that_is_shown(link, update, suite, _state):
    ours, theirs = suite.key_pair(), suite.key_pair()
    await tell(link, masked(suite, suite.ring.encode(update), [suite.agree(ours.secret, theirs.public, "test", b"")]))
    await tell(link, Bytes(theirs.secret.reveal()))
