"""Messages, and the envelopes they travel in.

A message is a frozen msgspec struct, tagged with its kind, that refuses unknown fields. An envelope addresses it. The
address (session, round, step, kind, sender, receiver) is authenticated with the sealed message, and names at most one
message: a second one with the same address is a replay and is discarded.

Only a greeting travels outside envelopes: two parties of different sessions share no key, and a signed greeting states
what its sender holds to be agreed. It answers one session and round of its receiver and is invalid in any other.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import Buffer, Party, Secret, Suite

SESSION_BYTES = 32
SEAL_BYTES = 28
"""Bytes that sealing adds to a message of one piece: a nonce and a tag."""
SIGNATURE_BYTES = 64
PIECE = 2**20
"""Bytes of one piece, the unit of sealing and transport."""
MAX_MESSAGE = 2**32 - 2**24
"""Longest message, in bytes: msgpack's limit, less an allowance for fields around a vector and for seals."""
LONG = 2**16
"""Size, in bytes, from which a vector in a message is not copied."""
MAX_NAME = 64
"""Longest name of a party, in bytes."""
GREETING = "Greeting"
"""Kind of a greeting, in its tag and its address."""
MAX_GREETING = 2**20
"""Longest greeting, in bytes."""

Session: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base class of messages. Subclasses declare their fields, their size limits, and what they carry."""

    from_server: ClassVar[bool] = False
    """Whether the server sends this, and not a party."""
    per_party: ClassVar[int] = 0
    """Bytes that a well-formed message may take per party, beyond a fixed allowance."""
    per_entry: ClassVar[int] = 0
    """Bytes that a well-formed message may take per entry of the vector, beyond a fixed allowance."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """Fields that carry model parameters."""
    metadata: ClassVar[tuple[str, ...]] = ()
    """Fields that state which parameters a message carries. All other fields count as the protocol's own cost."""

    def __repr__(self) -> str:
        # Fields may be shares of secrets or a party's vector, so only their sizes are shown.
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
    """The sender aborted. Carries only the stable code of the error, never its text."""

    code: str


class Address(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Address of an envelope. No two messages share one."""

    session: Session
    round: int
    step: int
    kind: str
    sender: Party
    to: Party


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A readable address and a message that only its receiver can open."""

    address: Address
    sealed: Buffer


class Greeting(msgspec.Struct, frozen=True, tag=GREETING, forbid_unknown_fields=True):
    """A signed, readable statement of what its sender holds to be agreed."""

    address: Address
    """Session, round and name of its sender, and its receiver."""
    session: Session
    round: int
    """Round of its receiver that it answers, in the session above."""
    agreed: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"Greeting({self.address.sender} -> {self.address.to})"


_pack = msgspec.msgpack.Encoder().encode
_unpack_envelope = msgspec.msgpack.Decoder(tuple[Address, memoryview]).decode
_unpack_address = msgspec.msgpack.Decoder(tuple[Address, msgspec.Raw]).decode
_unpack_greeting = msgspec.msgpack.Decoder(Greeting).decode
_NOTHING = memoryview(b"")
_BINARY = {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}  # msgpack's prefix by the size of the length field


def _length_bytes(length: int) -> int:
    return 1 if length < 2**8 else 2 if length < 2**16 else 4


def binary(length: int) -> bytes:
    """Returns msgpack's header of a byte string of that length."""
    size = _length_bytes(length)
    return _BINARY[size] + length.to_bytes(size)


def sealed_length(length: int) -> int:
    """Returns the sealed length of a message: every piece of it has a tag."""
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
        self.unread_limit = sum(self._limits.values())
        """Bytes that one sender may leave unread: those of one message of each kind."""

    def encode(self, message: Message) -> tuple[Buffer, ...]:
        """Returns the bytes of a message, in parts: a long vector, which is the last field then, is not copied.

        The last result is cached, because a broadcast sends the same message many times.
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
        """Yields the bytes of an envelope piece by piece, to bound memory."""
        yield self.front(address, payload)
        yield from suite.seal_pieces(key, payload, _pack(address))

    def stamp(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns a short fingerprint of the message at that address."""
        return suite.stamp(key, payload, _pack(address))

    def front(self, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns the header of an envelope: everything but the sealed message."""
        return b"".join((b"\x92", _pack(address), binary(sealed_length(sum(map(len, payload))))))

    def wrap_sealed(self, address: Address, sealed: bytes) -> bytes:
        """Returns the bytes of an envelope around a sealed message."""
        # The same bytes as msgspec packs, without the extra half that it allocates for a long message.
        return b"".join((b"\x92", _pack(address), binary(len(sealed)), sealed))

    def sealed_size(self, address: Address, payload: Sequence[Buffer]) -> int:
        """Returns the length of the envelope, in bytes."""
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
        """Returns the address of an envelope that is too long for this protocol; None if it cannot be read."""
        try:
            return _unpack_address(data)[0] if len(data) > self.longest else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def open(self, suite: Suite, key: Secret, envelope: Envelope, *, keep: bool = False) -> Buffer:
        """Returns the encoded message inside; raises WireError unless sender, address and content are authentic.

        It may reuse the memory of the envelope, unless `keep` is set.
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
