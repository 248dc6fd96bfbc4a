"""Messages, and the envelopes they travel in.

A message is a frozen msgspec struct that is tagged with its kind and refuses unknown fields. An envelope addresses it.
The address (session, round, step, kind, sender, receiver) is authenticated with the sealed message. No two messages
share an address: a second message with the same one is a replay and is discarded.

A greeting is the only message outside an envelope. Two parties of different sessions share no key, so a greeting is
signed and not sealed. It states the agreement that its sender holds. It answers one session and round of its receiver,
and is invalid in any other.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from tacit.core.errors import ConfigError, SecretField, WireError
from tacit.core.suite import Buffer, Party, Secret, Suite

SESSION_BYTES = 32
SEAL_BYTES = 28
"""Bytes that sealing adds to a message of one piece: nonce and tag."""
SIGNATURE_BYTES = 64
PIECE = 2**20
"""Bytes of one piece, the unit of sealing and transport."""
MAX_MESSAGE = 2**32 - 2**24
"""Longest message, in bytes: msgpack's limit, minus an allowance for seals and for the fields beside a vector."""
LONG = 2**16
"""Size, in bytes, from which a vector of a message is referenced instead of copied."""
MAX_NAME = 64
"""Longest name of a party, in bytes."""
GREETING = "Greeting"
"""Kind of a greeting, used in its tag and in its address."""
MAX_GREETING = 2**20
"""Longest greeting, in bytes."""

Session: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=SESSION_BYTES, max_length=SESSION_BYTES)]


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base class of messages. A subclass declares its fields, its size limits, and the data that its fields carry.

    >>> class Part(Message, frozen=True, tag="Part"):
    ...     vector: bytes
    ...     per_entry = 8
    >>> Part.kind(), Part.limit(parties=3, entries=1000)
    ('Part', 9024)
    """

    from_server: ClassVar[bool] = False
    """Whether the server sends this message. Otherwise a party does."""
    per_party: ClassVar[int] = 0
    """Bytes that a valid message may have per party, beyond a fixed allowance."""
    per_entry: ClassVar[int] = 0
    """Bytes that a valid message may have per entry of the vector, beyond a fixed allowance."""
    parameters: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that carry model parameters."""
    metadata: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that state which parameters a message carries. Other fields count as protocol overhead."""

    def __repr__(self) -> str:
        # Fields may hold shares of secrets or a party's vector, so only sizes are printed.
        sizes = (f"{name}: {_length(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{self.kind()}({', '.join(sizes)})"

    @classmethod
    @cache
    def kind(cls) -> str:
        """Returns the name of this kind of message, which appears in addresses, faults and errors.

        It is the tag in the class statement, which stays the same when the class is renamed. Without a tag it is the
        name of the class.
        """
        return str(cls.__struct_config__.tag)

    @classmethod
    def limit(cls, parties: int, entries: int) -> int:
        """Returns the largest valid size in bytes. A longer message of this kind is refused without decoding."""
        return 1024 + cls.per_party * parties + cls.per_entry * entries


class Abort(Message, frozen=True, tag="Abort"):
    """Notice that the sender aborted. It carries only the error's stable code, never its text."""

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
    """A readable address, and a sealed message that only the receiver can open."""

    address: Address
    sealed: Buffer


class Greeting(msgspec.Struct, frozen=True, tag=GREETING, forbid_unknown_fields=True):
    """A signed, unsealed statement of the agreement that its sender holds."""

    address: Address
    """Session and round of the sender, and the names of sender and receiver."""
    session: Session
    round: int
    """Round of the receiver that the greeting answers, in the session of the field `session`."""
    agreed: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"Greeting({self.address.sender} -> {self.address.to})"


def _refuse_field(field: Any) -> Any:
    """Raises the error for a field that no message can carry."""
    if isinstance(field, Secret):
        raise SecretField
    raise TypeError(f"a field of a message has no bytes: it is of {type(field)}")


_pack = msgspec.msgpack.Encoder(enc_hook=_refuse_field).encode
_unpack_envelope = msgspec.msgpack.Decoder(tuple[Address, memoryview]).decode
_unpack_address = msgspec.msgpack.Decoder(tuple[Address, msgspec.Raw]).decode
_unpack_greeting = msgspec.msgpack.Decoder(Greeting).decode
_NOTHING = memoryview(b"")
_BINARY = {1: b"\xc4", 2: b"\xc5", 4: b"\xc6"}  # msgpack's type byte, by the number of length bytes


def _length_bytes(length: int) -> int:
    return 1 if length < 2**8 else 2 if length < 2**16 else 4


def binary(length: int) -> bytes:
    """Returns msgpack's header of a byte string of the given length."""
    size = _length_bytes(length)
    return _BINARY[size] + length.to_bytes(size)


def sealed_length(length: int) -> int:
    """Returns the length of a message once sealed: every piece adds a tag."""
    return length + SEAL_BYTES + 16 * ((length - 1) // PIECE if length > PIECE else 0)


class Codec:
    """Converts messages of one protocol to sealed envelopes and back, and checks every length before it decodes."""

    def __init__(self, kinds: tuple[type[Message], ...], parties: int, entries: int) -> None:
        everything: tuple[type[Message], ...] = (*kinds, Abort)
        self.kinds = {kind.kind(): kind for kind in everything}
        if len(self.kinds) < len(everything):
            names = ", ".join(kind.kind() for kind in everything)
            raise ConfigError(
                f"message classes of a protocol need different kinds, not {names}; try: give each its own tag"
            )
        self._decoders = {kind.kind(): msgspec.msgpack.Decoder(kind) for kind in everything}
        self._limits = {kind.kind(): kind.limit(parties, entries) for kind in everything}
        self._last: tuple[Message | None, tuple[Buffer, ...]] = None, ()
        self.longest = max(self._limits.values()) + 1024 + 2 * MAX_NAME
        """Size in bytes of the longest valid envelope."""
        self.unread_limit = sum(self._limits.values())
        """Most bytes of unread messages held for one sender: one message of each kind."""

    def encode(self, message: Message) -> tuple[Buffer, ...]:
        """Returns the bytes of a message in one or two parts, without copying a long vector in its last field.

        The last result is cached, because a broadcast encodes the same message once per receiver.
        """
        if message is not self._last[0]:
            try:
                self._last = message, _parts(message)
            except SecretField:
                raise SecretField(message.kind()) from None
        return self._last[1]

    def decode(self, kind: str, payload: Buffer) -> Message:
        """Returns the message of the given kind; raises WireError if the bytes are not one."""
        if kind not in self._decoders:
            raise WireError(f"there is no message {kind!r} in this protocol")
        if len(payload) > self._limits[kind]:
            raise WireError(f"{kind}: {len(payload)} bytes, and at most {self._limits[kind]} are allowed")
        try:
            message: Message = self._decoders[kind].decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"{kind}: {error}") from None
        return message

    def seal(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns an encoded message, sealed for one address."""
        return suite.seal(key, payload[0] if len(payload) == 1 else b"".join(payload), _pack(address))

    def pieces(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> Iterator[bytes]:
        """Yields the bytes of an envelope piece by piece, which bounds memory."""
        yield self.front(address, payload)
        yield from suite.seal_pieces(key, payload, _pack(address))

    def stamp(self, suite: Suite, key: Secret, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns a short fingerprint of a message at one address."""
        return suite.stamp(key, payload, _pack(address))

    def front(self, address: Address, payload: Sequence[Buffer]) -> bytes:
        """Returns the header of an envelope: all bytes before the sealed message."""
        return b"".join((b"\x92", _pack(address), binary(sealed_length(sum(map(len, payload))))))

    def wrap_sealed(self, address: Address, sealed: bytes) -> bytes:
        """Returns the bytes of an envelope around a sealed message."""
        # The bytes are those that msgspec packs. For a long message msgspec would allocate half as much again.
        return b"".join((b"\x92", _pack(address), binary(len(sealed)), sealed))

    def sealed_size(self, address: Address, payload: Sequence[Buffer]) -> int:
        """Returns the length of the envelope, in bytes."""
        sealed = sealed_length(sum(map(len, payload)))
        return 2 + len(_pack(address)) + _length_bytes(sealed) + sealed

    def read(self, data: Buffer) -> Envelope | Greeting:
        """Returns the still sealed envelope, or the greeting. Raises WireError if it is neither, or too long."""
        greets = len(data) > 0 and 0x80 <= data[0] < 0x90  # a greeting is a msgpack map, an envelope an array
        if len(data) > (MAX_GREETING if greets else self.longest):
            raise WireError(f"envelope of {len(data)} bytes is longer than any message of this protocol")
        try:
            return _unpack_greeting(data) if greets else Envelope(*_unpack_envelope(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"envelope: {error}") from None

    def address(self, data: Buffer) -> Address | None:
        """Returns the address of an envelope that exceeds this protocol's limit; None if it cannot be read."""
        try:
            return _unpack_address(data)[0] if len(data) > self.longest else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def open(self, suite: Suite, key: Secret, envelope: Envelope, *, keep: bool = False) -> Buffer:
        """Returns the encoded message in an envelope. Raises WireError if it or its address is not authentic.

        The result may reuse the envelope's memory, unless `keep` is set.
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
    """Splits the size of one envelope into bytes of protocol, parameters and metadata."""
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
