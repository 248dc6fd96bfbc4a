"""Mutations of bytes and of the values they encode, by choices of a generator or of a fuzzer."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

import msgspec

from tacit.core.suite import SERVER

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode

# --- what is drawn -------------------------------------------------------------------------------------------------


class Draws(Protocol):
    """Where choices come from: chance, or what a fuzzer gives."""

    def below(self, bound: int) -> int:
        """Returns a number from 0 on, below a bound."""

    def octets(self, count: int) -> bytes:
        """Returns so many bytes."""


class Chance:
    """Choices that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311

    def below(self, bound: int) -> int:
        """Returns a number from 0 on, below a bound."""
        return int(self._random.random() * bound)

    def octets(self, count: int) -> bytes:
        """Returns so many bytes."""
        return self._random.randbytes(count)


def chosen(draw: Draws, among: Sequence[Any]) -> Any:
    """Returns one of several."""
    return among[draw.below(len(among))]


# --- damage --------------------------------------------------------------------------------------------------------


def _nest_values(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


NUMBERS = (0, 1, 2, 3, -1, 127, 255, 2**16, 2**31, 2**32 - 1, 2**48, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
ODD: tuple[Any, ...] = (
    *NUMBERS,
    0.5,
    math.nan,
    math.inf,
    None,
    True,
    "",
    "p0",
    "p9",
    SERVER,
    "\u2603",
    "x" * 300,
    b"",
    bytes(16),
    bytes(32),
    bytes(33),
    bytes(300),
    [],
    {},
    {0: b""},
    {"": ""},
    _nest_values(64),
    msgspec.msgpack.Ext(5, b"ext"),
)
"""What is put in the place of something else."""
MARKS = bytes((0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCF, 0xD3, 0xD9, 0xDB, 0xDD, 0xDF, 0xFF))
"""What msgpack begins values with, the longest ones included."""


def spoilt(data: bytes, draw: Draws) -> bytes:
    """Returns bytes with a few of them changed, cut out, put in, or repeated."""
    found = bytearray(data)
    for _ in range(1 + draw.below(3)):
        at, count = draw.below(len(found) + 1), 1 + draw.below(9)
        what = draw.below(7)
        if what == 0 and at < len(found):
            found[at] ^= 1 << draw.below(8)
        elif what == 1:
            del found[at:]
        elif what == 2:
            del found[at : at + count]
        elif what == 3:
            found[at:at] = draw.octets(count)
        elif what == 4:
            found[at : at + 1] = MARKS[(mark := draw.below(len(MARKS))) : mark + 1]
        elif what == 5:
            found += draw.octets(count) if draw.below(2) else bytes(1 << draw.below(12))
        else:
            found[at:at] = found[draw.below(len(found) + 1) :][:64]
    return bytes(found)


def bend_value(value: Any, draw: Draws) -> Any:
    """Returns a value with something in it changed: another value, of another type, left out, or there twice."""
    if isinstance(value, dict | list | tuple) and value and draw.below(5):
        return _within(value, draw)
    what = draw.below(4)
    if what == 0 and isinstance(value, int | float) and not isinstance(value, bool):
        return chosen(draw, NUMBERS)
    if what == 1 and isinstance(value, bytes):
        return spoilt(value, draw)
    if what == 2 and isinstance(value, list | tuple):
        return [*value, chosen(draw, ODD)]
    if what == 2 and isinstance(value, dict):
        return {**value, chosen(draw, ("", "type", 0, 3, 2**40)): chosen(draw, ODD)}
    if what == 3:
        return [value]
    return chosen(draw, ODD)


def _within(value: Any, draw: Draws) -> Any:
    items = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    key = chosen(draw, list(items))
    what = draw.below(8)
    if what == 0:
        del items[key]
    elif what == 1:
        items[key] = items[chosen(draw, list(items))]
    else:
        items[key] = bend_value(items[key], draw)
    return items if isinstance(value, dict) else list(items.values())


def damage_bytes(data: bytes, draw: Draws) -> bytes:
    """Returns packed bytes with what they say changed or, as often, the bytes themselves."""
    if draw.below(2):
        return spoilt(data, draw)
    try:
        value = unpack(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return spoilt(data, draw)
    return pack(bend_value(value, draw))


ODD_TEXTS = (
    b"",
    b"{",
    b"[]",
    b'{"clip": 1e999}',
    b'{"clip": 123456789012345678901234567890}',
    b'{"clip": "\\ud800"}',
    b'{"parties": [[[1]]], "keys": {"0": null}}',
    b'{"keys": ["", "", "", "", "", "", "", ""]}',
    b'{"clip": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"clip": ' + b"[" * 9000,
)
"""JSON in which a reader may stumble."""


def miswritten(text: bytes, draw: Draws) -> bytes:
    """Returns JSON that says something else, or is none."""
    what = draw.below(3)
    if what == 0:
        return chosen(draw, ODD_TEXTS)
    if what == 1:
        return spoilt(text, draw)
    try:
        return msgspec.json.encode(bend_value(msgspec.json.decode(text), draw))
    except (TypeError, ValueError):  # not everything that is odd can be said in JSON
        return spoilt(text, draw)
