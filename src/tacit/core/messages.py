"""Messages, and the envelopes they travel in.

A message is a frozen msgspec struct, tagged with its kind, that refuses unknown fields. An envelope addresses it. The
address (session, round, step, kind, sender, receiver) is authenticated with the sealed message, and names at most one
message: a second one with the same address is a replay and is thrown away.

A greeting is the one thing that travels outside of envelopes: two parties of different sessions have no key in common,
and a signed greeting tells each what the other holds to be agreed. It answers one session and round of its receiver's,
and means nothing in any other.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import Buffer, Party, Secret, Suite

SESSION_BYTES = 32
SEAL_BYTES = 28
"""What a seal adds to a message of one piece: a nonce and a tag."""
SIGNATURE_BYTES = 64
PIECE = 2**20
"""Bytes that are sealed, and travel, in one piece."""
MAX_MESSAGE = 2**32 - 2**24
"""Longest message, in bytes: what msgpack has lengths for, less some room for fields around a vector, and for seals."""
LONG = 2**16
"""Bytes from which on a vector in a message is not copied."""
MAX_NAME = 64
"""Longest name of a party, in bytes."""
GREETING = "Greeting"
"""Kind of a greeting, in its tag and its address."""
MAX_GREETING = 2**20
"""Longest greeting, in bytes."""

Session: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """What parties say to each other. Subclasses declare their fields, their size, and what they carry."""

    from_server: ClassVar[bool] = False
    """Whether the server says this, and not a party."""
    per_party: ClassVar[int] = 0
    """Bytes a well-formed message may take for each party of the federation …"""
    per_entry: ClassVar[int] = 0
    """… and for each entry of the vector, beyond a fixed allowance."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """Fields that carry model parameters,"""
    metadata: ClassVar[tuple[str, ...]] = ()
    """and fields that say which parameters those are. Everything else is the protocol's own cost."""

    def __repr__(self) -> str:
        # Fields may be shares of secrets or somebody's vector, so only their sizes are shown.
        sizes = (f"{name}: {_length(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{self.kind()}({', '.join(sizes)})"

    @classmethod
    @cache
    def kind(cls) -> str:
        """Returns the name of this kind of message, as addresses, faults and errors have it.

        It is the tag that the class was declared with, which stays when the class is renamed. A class that was declared
        without one goes by its own name.
        """
        return str(cls.__struct_config__.tag)

    @classmethod
    def limit(cls, parties: int, entries: int) -> int:
        """Returns the size, in bytes, above which a message of this kind is refused unread."""
        return 1024 + cls.per_party * parties + cls.per_entry * entries


class Abort(Message, frozen=True, tag="Abort"):
    """The sender gave up. Carries only the stable code of the error, never its text."""

    code: str


class Address(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where an envelope belongs. No two messages share one."""

    session: Session
    round: int
    step: int
    kind: str
    sender: Party
    to: Party


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An address anyone may read and a message only its receiver can."""

    address: Address
    sealed: Buffer


class Greeting(msgspec.Struct, frozen=True, tag=GREETING, forbid_unknown_fields=True):
    """What its sender holds to be agreed, for all to read, and signed."""

    address: Address
    """Where its sender is, and whom it is for."""
    session: Session
    round: int
    """What it answers: mail of this session and round of its receiver's."""
    agreed: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"Greeting({self.address.sender} -> {self.address.to})"


_pack = msgspec.msgpack.Encoder().encode
_unpack_envelope = msgspec.msgpack.Decoder(tuple[Address, memoryview]).decode
_unpack_address = msgspec.msgpack.Decoder(tuple[Address, msgspec.Raw]).decode
_unpack_greeting = msgspec.msgpack.Decoder(Greeting).decode
_NOTHING = memoryview(b"")
_BINARY = {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}  # what msgpack puts before a length of so many bytes


def _length_bytes(length: int) -> int:
    return 1 if length < 2**8 else 2 if length < 2**16 else 4


def binary(length: int) -> bytes:
    """Returns what msgpack puts before so many bytes."""
    size = _length_bytes(length)
    return _BINARY[size] + length.to_bytes(size)


def sealed_length(length: int) -> int:
    """Returns how long a message of so many bytes is, once it is sealed: every piece of it has a tag."""
    return length + SEAL_BYTES + 16 * ((length - 1) // PIECE if length > PIECE else 0)


class Codec:
    """Turns the messages of one protocol into sealed envelopes and back, with every length checked first."""

    def __init__(self, kinds: tuple[type[Message], ...], parties: int, entries: int) -> None:
        everything: tuple[type[Message], ...] = (*kinds, Abort)
        self.kinds = {kind.kind(): kind for kind in everything}
        if len(self.kinds) < len(everything):
            names = ", ".join(kind.kind() for kind in everything)
            raise ConfigError(f"each message of a protocol needs a kind of its own, not {names}; give each its own tag")
        self._decoders = {kind.kind(): msgspec.msgpack.Decoder(kind) for kind in everything}
        self._limits = {kind.kind(): kind.limit(parties, entries) for kind in everything}
        self._last: tuple[Message | None, tuple[Buffer, ...]] = None, ()
        self.longest = max(self._limits.values()) + 1024 + 2 * MAX_NAME
        """Bytes of the longest envelope."""
        self.room = sum(self._limits.values())
        """Bytes that one sender may leave unread: as much as one message of each kind takes."""

    def encode(self, message: Message) -> tuple[Buffer, ...]:
        """Returns the bytes of a message, in parts: a long vector, which is the last field then, is not copied.

        The last one is kept, for a broadcast sends the same message many times.
        """
        if message is not self._last[0]:
            self._last = message, _parts(message)
        return self._last[1]

    def decode(self, kind: str, payload: Buffer) -> Message:
        """Returns the message that `kind` claims the bytes to be, or raises WireError."""
        if kind not in self._decoders:
            raise WireError(f"there is no message {kind!r} in this protocol")
        if len(payload) > self._limits[kind]:
            raise WireError(f"{kind}: {len(payload)} bytes, more than the {self._limits[kind]} it may have")
        try:
            message: Message = self._decoders[kind].decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"{kind}: {error}") from None
        return message

    def seal(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns an encoded message, sealed for its address and nowhere else."""
        return suite.seal(key, payload[0] if len(payload) == 1 else b"".join(payload), _pack(address))

    def pieces(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> Iterator[bytes]:
        """Yields the bytes of an envelope, of which there are never many at once."""
        yield self.front(address, payload)
        yield from suite.sealed(key, payload, _pack(address))

    def stamp(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns a few bytes that are others for any other message at that address."""
        return suite.stamp(key, payload, _pack(address))

    def front(self, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns what an envelope begins with: all but the sealed message."""
        return b"".join((b"\x92", _pack(address), binary(sealed_length(sum(map(len, payload))))))

    def enveloped(self, address: Address, sealed: bytes) -> bytes:
        """Returns the bytes of an envelope around a sealed message."""
        # The bytes that msgspec would pack, but for a long message without the half as much again that it allocates.
        return b"".join((b"\x92", _pack(address), binary(len(sealed)), sealed))

    def sealed_size(self, address: Address, payload: Sequence[Buffer]) -> int:
        """Returns how long the envelope will be."""
        sealed = sealed_length(sum(map(len, payload)))
        return 2 + len(_pack(address)) + _length_bytes(sealed) + sealed

    def read(self, data: Buffer) -> Envelope | Greeting:
        """Returns the envelope, still sealed, or the greeting; raises WireError if it is neither or too long."""
        greets = len(data) > 0 and 0x80 <= data[0] < 0x90  # a map, as no envelope is
        if len(data) > (MAX_GREETING if greets else self.longest):
            raise WireError(f"envelope of {len(data)} bytes, more than any message of this protocol takes")
        try:
            return _unpack_greeting(data) if greets else Envelope(*_unpack_envelope(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"envelope: {error}") from None

    def address(self, data: Buffer) -> Address | None:
        """Returns the address of an envelope that is too long for this protocol; None if there is none to be read."""
        try:
            return _unpack_address(data)[0] if len(data) > self.longest else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def open(self, suite: Suite, key: Secret, envelope: Envelope, *, keep: bool = False) -> Buffer:
        """Returns the encoded message inside; raises WireError unless sender, address and content are authentic.

        It may lie where the envelope was, unless that is to be kept.
        """
        sealed = envelope.sealed
        if keep and isinstance(sealed, memoryview):
            sealed = sealed.toreadonly()
        return suite.open(key, sealed, _pack(envelope.address))


def _parts(message: Message) -> tuple[Buffer, ...]:
    vector = getattr(message, message.__struct_fields__[-1]) if message.__struct_fields__ else None
    if not isinstance(vector, memoryview) or vector.nbytes < LONG:
        return (_pack(message),)
    short = _pack(msgspec.structs.replace(message, **{message.__struct_fields__[-1]: _NOTHING}))
    return short[: -len(binary(0))] + binary(vector.nbytes), vector.cast("B")


def size_by_class(message: Message, envelope_bytes: int) -> tuple[int, int, int]:
    """Splits the bytes of one envelope into those of protocol, parameters and metadata."""
    if not message.parameters and not message.metadata:
        return envelope_bytes, 0, 0
    parameters = sum(_length(getattr(message, name)) for name in message.parameters)
    metadata = sum(_length(getattr(message, name)) for name in message.metadata)
    return envelope_bytes - parameters - metadata, parameters, metadata


def _length(field: Any) -> int:
    if isinstance(field, bytes | str):
        return len(field)
    if isinstance(field, memoryview):
        return field.nbytes
    if isinstance(field, dict):
        return sum(_length(value) for value in field.values())
    return sum(map(_length, field)) if isinstance(field, tuple) else 1
