"""Leaks through everything that is no vector: who is sent what, when, how often, in which words and in which order."""

import hashlib
import math
import zlib
from typing import ClassVar

import msgspec
import numpy as np
from leaky._base import Bytes, Vector, others, tell
from leaky.tables._table import EXPOSED, REFUSED, Leaks, Stepped, on_numbers, packed

from tacit.core.errors import Drop, NotEnough, PeerFault
from tacit.core.messages import Message
from tacit.core.protocol import State

LEAKS = Leaks()


def positive(update):
    """Says whether the first entry is positive; it is not on symbols."""
    return bool(on_numbers(update) and update.vector[0] > 0)


class Field(Message, frozen=True):
    """A field of any kind."""

    value: object
    per_entry: ClassVar[int] = 100


class Other(Bytes, frozen=True):
    """Another kind of message."""


async def say(link, *messages):
    """Sends messages to p0, which waits for any of them."""
    if link.me != "p0":
        for to, message, step in messages:
            await link.send(to, message, step=step)
    else:
        await link.gather(Bytes, others(link), at_least=0)


# --- when, how often, to whom --------------------------------------------------------------------------------------


@LEAKS.add(REFUSED, Bytes)
async def a_send_that_waits(link, update, _suite, _state):
    if positive(update) and link.me != "p0":
        await link.gather(Bytes, [], at_least=0)
        await link.gather(Bytes, [each for each in others(link) if each != "p0"], at_least=0)
    await say(link, ("p0", Bytes(b""), 0))


@LEAKS.add(REFUSED, Bytes)
async def a_message_that_is_left_out(link, update, _suite, _state):
    await say(link, *[("p0", Bytes(b""), 0)] * positive(update))


@LEAKS.add(REFUSED, Bytes, settings=Stepped)
async def the_step_of_a_message(link, update, _suite, _state):
    await say(link, ("p0", Bytes(b""), int(positive(update))))


@LEAKS.add(REFUSED, Bytes, settings=Stepped)
async def as_many_messages_as_an_entry_has_digits(link, update, _suite, _state):
    count = len(str(abs(update.vector[0]))) % 7 if on_numbers(update) else 3
    await say(link, *[("p0", Bytes(b""), step) for step in range(count)])


@LEAKS.add(REFUSED, Bytes)
async def the_order_of_recipients(link, update, _suite, _state):
    order = others(link)[:: -1 if positive(update) else 1]
    for other in order:
        await link.send(other, Bytes(b""))
    await link.gather(Bytes, others(link))


@LEAKS.add(REFUSED, Bytes)
async def another_recipient(link, update, _suite, _state):
    if link.me == "p3":
        await link.send("p1" if positive(update) else "p2", Bytes(b""))
    if link.me in ("p1", "p2"):
        await link.gather(Bytes, ["p3"], at_least=0)


@LEAKS.add(REFUSED, Bytes, Other)
async def another_kind_of_message(link, update, _suite, _state):
    kind = Other if positive(update) else Bytes
    if link.me != "p0":
        await link.send("p0", kind(b""))
        return
    for other in others(link):
        await link.receive(other, Bytes, Other)


@LEAKS.add(REFUSED, Bytes, Other)
async def the_order_of_two_messages(link, update, _suite, _state):
    if link.me != "p0":
        for kind in (Other, Bytes) if positive(update) else (Bytes, Other):
            await link.send("p0", kind(b""))
        return
    await link.gather(Bytes, others(link))
    await link.gather(Other, others(link))


@LEAKS.tells()
def how_long_a_message_is(update, _suite, _link):
    return bytes(int(abs(update.vector[0]) * 1000)) if on_numbers(update) else b""


# --- in which words ------------------------------------------------------------------------------------------------


@LEAKS.tells()
def a_checksum(update, suite, _link):
    return b"%d" % zlib.crc32(packed(update, suite))


@LEAKS.tells()
def a_salted_hash(update, suite, _link):
    return hashlib.sha256(suite.entropy.bytes(16) + packed(update, suite)).digest()


@LEAKS.tells()
def a_hash_of_a_rounded_entry(update, _suite, _link):
    return hashlib.sha256(b"%d" % (round(update.vector[0] * 10) if on_numbers(update) else 0)).digest()


@LEAKS.tells()
def a_sorted_vector(update, _suite, _link):
    return np.sort(update.vector).tobytes() if on_numbers(update) else bytes(len(update.vector) * 8)


@LEAKS.tells()
def every_second_byte(update, suite, _link):
    return packed(update, suite)[::2]


@LEAKS.tells()
def a_vector_under_exclusive_or(update, suite, _link):
    return bytes(a ^ 0x55 for a in packed(update, suite))


@LEAKS.tells()
def a_vector_behind_a_word(update, suite, _link):
    return b"vector: " + packed(update, suite)


@LEAKS.tells()
def a_compressed_vector(update, suite, _link):
    return zlib.compress(packed(update, suite))


@LEAKS.tells()
def the_norm(update, _suite, _link):
    return str(round(float(np.linalg.norm(update.vector)), 3)).encode() if on_numbers(update) else b""


@LEAKS.tells()
def the_place_of_the_largest_entry(update, _suite, _link):
    return b"%d" % (int(update.vector.argmax()) if on_numbers(update) else 0)


@LEAKS.tells()
def a_signature_of_an_entry(update, suite, _link):
    return suite.sign(b"%d" % (round(update.vector[0] * 100) if on_numbers(update) else 0))


@LEAKS.tells()
def a_commitment_without_blinding(update, suite, _link):
    """The seed is a public one of p0, so whoever guesses the context can compare."""
    return suite.commit(suite.pairwise("p0", "test/seed", b""), packed(update, suite))


@LEAKS.tells()
def a_tag_that_p0_can_compute(update, suite, _link):
    return suite.tag(
        suite.pairwise("p0", "test/tag", b""), b"%d" % (round(update.vector[0] * 9) if on_numbers(update) else 0)
    )


# --- in which field ------------------------------------------------------------------------------------------------

FIELDS = {
    "a_boolean": positive,
    "a_whole_number": lambda update: int(update.vector[0] * 1e6) if on_numbers(update) else 0,
    "a_float": lambda update: float(update.vector[0]) if on_numbers(update) else 0.0,
    "nothing_or_something": lambda update: None if positive(update) else 0,
    "a_name": lambda update: "alice" if positive(update) else "bob",
    "the_name_of_a_field": lambda update: {"alice" if positive(update) else "bob": 1},
    "the_key_of_a_table": lambda update: {int(positive(update)): b""},
    "the_order_of_a_list": lambda update: [1, 0] if positive(update) else [0, 1],
    "the_depth_of_a_list": lambda update: [[]] if positive(update) else [],
    "the_length_of_a_list": lambda update: [0] * (1 + positive(update)),
    "whole_or_float": lambda update: 1.0 if positive(update) else 1,
    "the_sign_of_zero": lambda update: math.copysign(0.0, 1 if positive(update) else -1),
    "the_kind_of_not_a_number": lambda update: msgspec.msgpack.Ext(1 + positive(update), b""),
    "text_or_bytes": lambda update: "" if positive(update) else b"",
    "the_type_of_an_extension": lambda update: msgspec.msgpack.Ext(int(positive(update)), b"x"),
}


def add_field(name, value):
    """Adds a protocol that tells p0 something in a field."""

    async def before(link, update, _suite, _state):
        await tell(link, Field(value(update)))

    before.__name__ = name
    LEAKS.add(REFUSED, Field)(before)


for each, what in FIELDS.items():
    add_field(each, what)


# --- by errors, state and rounds -----------------------------------------------------------------------------------


@LEAKS.add(REFUSED)
async def the_text_of_an_error(_link, update, _suite, _state):
    raise PeerFault("p0", Drop.SILENT, str(update.vector[0]) if on_numbers(update) else "")


@LEAKS.add(REFUSED)
async def the_kind_of_an_error(_link, update, _suite, _state):
    if positive(update):
        raise PeerFault("p0", Drop.SILENT, "")
    raise NotEnough("Part", 1, 2, {})


@LEAKS.add(REFUSED)
async def who_is_excluded(link, update, _suite, _state):
    if positive(update):
        link.exclude("p1", Drop.SILENT)


@LEAKS.add(REFUSED)
async def why_somebody_is_excluded(link, update, _suite, _state):
    link.exclude("p1", Drop.SILENT if positive(update) else Drop.BAD_SIGNATURE)


class Kept(State, frozen=True):
    """Something of the last round."""

    before: bytes = b""


@LEAKS.add(REFUSED, Bytes, rounds=2, state=Kept)
async def a_sign_a_round_later(link, update, _suite, state):
    await tell(link, Bytes(state.before))
    await link.save(Kept(b"%d" % positive(update)))


@LEAKS.add(EXPOSED, Bytes, rounds=2, state=Kept)
async def a_packed_vector_a_round_later(link, update, suite, state):
    await tell(link, Bytes(state.before))
    await link.save(Kept(packed(update, suite)))


@LEAKS.add(REFUSED, Bytes, rounds=3, state=Kept)
async def a_sign_two_rounds_later(link, update, _suite, state):
    await tell(link, Bytes(state.before[:1]))
    await link.save(Kept((state.before or b"??")[1:] + b"%d" % positive(update)))


@LEAKS.add(EXPOSED, Vector)
async def through_a_friend(link, update, suite, _state):
    """p1 sends its vector to p2, which passes it on."""
    if link.me == "p1":
        await link.send("p2", Vector(memoryview(suite.ring.pack(suite.ring.encode(update)))))
    if link.me == "p2":
        await link.send("p0", await link.receive("p1", Vector))
    if link.me == "p0":
        await link.receive("p2", Vector, patience=4)
