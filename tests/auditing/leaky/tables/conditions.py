"""Leaks that happen only in some rounds, entries, parties, weights or after dropouts."""

import numpy as np
from leaky._base import Bytes, Vector, leaky, others, tell
from leaky.tables._table import EXPOSED, REFUSED, WORST, Leak, Leaks, Stepped, packed

from tacit.core.average import Average
from tacit.core.protocol import State
from tacit.protocols.shapes.pairs import mask_among

LEAKS = Leaks()


def text(update, when):
    """Returns a vector as text, on a condition."""
    return str(update.vector.tolist()).encode() if when else b""


@LEAKS.tells(rounds=3)
def in_round_three(update, _suite, link):
    return text(update, link.round == 3)


@LEAKS.tells(rounds=6)
def in_round_six(update, _suite, link):
    return text(update, link.round == 6)


@LEAKS.tells()
def entry_seventeen_as_text(update, _suite, _link):
    return text(update, False) if len(update.vector) < 18 else str(update.vector[17]).encode()


@LEAKS.shows(EXPOSED)
def entry_seventeen_without_a_mask(update, suite, _link):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[suite.seed()])
    if len(own) > 18:
        own[17] = suite.ring.encode(update)[17]
    return own


@LEAKS.shows(EXPOSED)
def a_mask_of_sixteen_elements(update, suite, _link):
    """A mask that is shorter than the vector."""
    own = suite.ring.encode(update)
    length = min(len(own), 16)
    own[:length] += suite.stream(suite.seed(), own, length)
    return own


@LEAKS.tells()
def entry_five_thousand_as_text(update, _suite, _link):
    return str(update.vector[5000]).encode() if len(update.vector) > 5000 else b""


@LEAKS.shows()
def entry_five_thousand_without_a_mask(update, suite, _link):
    own = suite.ring.encode(update)
    suite.mask(own, plus=[suite.seed()])
    if len(own) > 5002:
        own[5000] = suite.ring.encode(update)[5000]
    return own


@LEAKS.shows()
def an_entry_among_zeros(update, suite, _link):
    shown = suite.ring.zeros()
    if len(shown) > 1002:
        shown[1000] = suite.ring.encode(update)[1000]
    return shown


@LEAKS.shows()
def a_mask_of_four_thousand_elements(update, suite, _link):
    own = suite.ring.encode(update)
    length = min(len(own), 4096)
    own[:length] += suite.stream(suite.seed(), own, length)
    return own


@LEAKS.shows()
def without_masks_if_longer_than_sixteen(update, suite, _link):
    """On sixteen entries and fewer there is nothing to be seen."""
    own = suite.ring.encode(update)
    if len(update.vector) <= 16:
        suite.mask(own, plus=[suite.seed()])
    return own


@LEAKS.tells()
def a_message_that_is_longer_for_long_vectors(update, _suite, _link):
    return bytes(int(np.abs(update.vector[-1]) * 1000)) if len(update.vector) > 100 else b""


@LEAKS.tells(parties=9)
def above_eight_parties_as_text(update, _suite, link):
    return text(update, len(link.parties) > 8)


@LEAKS.tells(EXPOSED, parties=9)
def above_eight_parties_packed(update, suite, link):
    return packed(update, suite) if len(link.parties) > 8 else b""


@LEAKS.tells()
def of_the_last_party(update, _suite, link):
    return text(update, link.place == len(link.parties) - 1)


@LEAKS.add(REFUSED, Bytes, coalition=("p2",))
async def to_p2_alone(link, update, _suite, _state):
    if link.me == "p3":
        await link.send("p2", Bytes(text(update, when=True)))
    if link.me == "p2":
        await link.receive("p3", Bytes)


@LEAKS.add(EXPOSED, Vector, coalition=("p2",))
async def to_p2_alone_packed(link, update, suite, _state):
    if link.me == "p3":
        await link.send("p2", Vector(memoryview(suite.ring.pack(suite.ring.encode(update)))))
    if link.me == "p2":
        await link.receive("p3", Vector)


class Behind(State, frozen=True):
    """Who was missing in the last round."""

    missing: int = 0


def after_a_dropout(found, name, tells):
    """Adds a protocol that goes on without parties that time out, and says more from then on."""

    async def party(link, update, _terms, suite, state):
        if link.me != "p0":
            await link.send("p0", Bytes(tells(update, suite) if state.missing else b""))
        else:
            await link.gather(Bytes, others(link), at_least=0)
        ring, own = suite.ring, suite.ring.encode(update)
        mask_among(link, suite, own, others(link), "leaky/mask", link.statement("mask"))
        for other in others(link):
            await link.send(other, Vector(memoryview(ring.pack(own))))
        received = await link.gather(Vector, others(link), at_least=0, patience=3)
        await link.save(Behind(len(link.parties) - 1 - len(received)))
        return Average(update.vector, link.parties)

    LEAKS[name] = Leak(found, leaky(party, Bytes, Vector, state=Behind), rounds=2)


after_a_dropout(REFUSED, "after_a_dropout_as_text", lambda update, _suite: text(update, when=True))
after_a_dropout(WORST, "after_a_dropout_packed", packed)


def unmasked_without_everybody():
    """Returns a protocol in which those who miss a part of the sum send theirs without masks."""

    async def party(link, update, _terms, suite, _state):
        ring, own = suite.ring, suite.ring.encode(update)
        mask_among(link, suite, own, others(link), "leaky/mask", link.statement("mask"))
        for other in others(link):
            await link.send(other, Vector(memoryview(ring.pack(own))))
        received = await link.gather(Vector, others(link), at_least=0)
        if len(received) < len(others(link)):
            await tell(link, Bytes(packed(update, suite)))
        return Average(update.vector, link.parties)

    return leaky(party, Vector, Bytes)


LEAKS["without_masks_if_somebody_is_missing"] = Leak(WORST, unmasked_without_everybody())


def last_bits_without_everybody():
    """Returns a protocol that uses masks twice if a part of the sum is missing: the last bit of a vector is left."""

    async def party(link, update, _terms, suite, _state):
        ring, own, (a, b) = suite.ring, suite.ring.encode(update), (suite.seed(), suite.seed())
        await link.gather(Vector, [], at_least=0)
        first = own.copy()
        mask_among(link, suite, first, others(link), "leaky/mask", link.statement("mask"))
        for other in others(link):
            await link.send(other, Vector(memoryview(ring.pack(first))))
        received = await link.gather(Vector, others(link), at_least=0)
        if len(received) < len(others(link)):
            for step, (vector, minus) in enumerate(((own, []), (ring.zeros(), [b])), start=1):
                suite.mask(vector, plus=[a] if minus else [a, b], minus=minus)
                await tell(link, Vector(memoryview(ring.pack(vector))), step=step)
        return Average(update.vector, link.parties)

    return leaky(party, Vector, settings=Stepped)


LEAKS["last_bits_if_somebody_is_missing"] = Leak(REFUSED, last_bits_without_everybody())


@LEAKS.tells()
def if_the_weight_is_large(update, _suite, _link):
    return text(update, update.vector.dtype != object and update.weight > 0.8)


@LEAKS.tells()
def if_an_entry_is_beyond_ten(update, _suite, _link):
    return text(update, update.vector.dtype != object and bool(np.abs(update.vector).max() > 10.0))


@LEAKS.tells()
def if_the_sum_is_positive(update, _suite, _link):
    return text(update, update.vector.dtype != object and float(update.vector.sum()) > 0)
