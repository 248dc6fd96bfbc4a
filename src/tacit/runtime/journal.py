"""Journal of one party's round, from which the round is resumed after a crash (see the contract in `round`).

A journal is a list of records, one for each call of `start`, `deliver` or `expire` that has an effect. A record has the
input of the call, the state if it was saved, and a digest of every message that the call sent. Long vectors of a state
are replaced by digests. Each record has a digest of all records before it. The newest digest, the `tip`, is stored
separately: the driver stores it next to the number and state of the round, and never in the same file or backup as the
records. So a journal that is truncated, reordered, changed, or restored from an older copy is refused. Envelopes need
not be hashed for that: a changed envelope cannot be opened.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tacit.core.errors import JournalError
from tacit.core.link import frame_parts
from tacit.core.messages import binary
from tacit.core.protocol import Protocol
from tacit.core.state_blobs import blob_digest
from tacit.core.suite import Buffer, Party, Update
from tacit.crypto.sealing import gmac
from tacit.runtime.round import Action, GreetingPost, InputTaken, Post, RoundBegun, StateSaved

VERSION = 5
CURE = "restore the journal, or begin a new session"


class Beginning(msgspec.Struct, frozen=True, tag="Beginning", forbid_unknown_fields=True):
    """The inputs of a round. A fingerprint stands for the update, which may be large."""

    session: bytes
    party: Party
    number: int
    seed: bytes
    state: bytes
    update: bytes

    def __repr__(self) -> str:
        return f"Beginning({self.party}, round {self.number})"


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call of a round, with its result."""

    state: bytes | None
    """The last state that the call saved."""
    outbox: bytes
    """Digest of the messages to send."""
    before: bytes
    """Digest of all records before this one."""
    detached: dict[bytes, memoryview]
    """Long vectors of the states, by digest, unless they are stored elsewhere."""
    event: Beginning | memoryview | None
    """The inputs of the round, the bytes of an envelope, or None for a timeout. The bytes are not copied."""

    def digest(self) -> bytes:
        """Returns the digest of this record and all before it."""
        event = self.event
        if isinstance(event, Beginning):
            stands = b"begun" + msgspec.msgpack.encode(event)
        else:
            # An envelope ends with its authentication tag, which changes with any other part of it.
            stands = b"deadline" if event is None else b"bytes" + len(event).to_bytes(8) + event[-64:]
        return _hash_parts(self.before, stands, self.state or b"", self.outbox)

    def parts(self) -> tuple[Buffer, ...]:
        """Returns the encoded record in parts, without copying long ones."""
        return *self.head(), *_pack_field(self.event)

    def head(self) -> tuple[Buffer, ...]:
        """Returns the encoded parts before the event, which is the last field."""
        fields = (self.state, self.outbox, self.before, self.detached)
        return b"\x95", *(part for field in fields for part in _pack_field(field))  # msgpack's list of five

    def __repr__(self) -> str:
        return f"Record({self.event if isinstance(self.event, Beginning) else '…'})"


def fingerprint_update(update: Update | None, key: bytes = b"") -> bytes:
    """Returns a digest of an update. With a secret key it is faster, and only the key's owner can compare it."""
    if update is None:
        return b""
    vector = np.asarray(update.vector)
    if vector.dtype.hasobject:
        numbers: Buffer = repr(vector.tolist()).encode()
    else:
        numbers = np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data
    if key:
        numbers = gmac(_hash_parts(b"tacit/v1/fingerprint", key), (numbers,))
    # Unset fields are left out, so that updates without them have the digests of earlier releases.
    more = (update.lineage, b"changes" if update.changes else b"") if update.lineage or update.changes else ()
    return _hash_parts(vector.dtype.str.encode(), _encode_weight(update.weight), numbers, *more)


def _hash_parts(*parts: Buffer) -> bytes:
    """Returns the hash of framed parts, without copying them."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


def _pack_field(field: Beginning | Buffer | dict[bytes, memoryview] | None) -> tuple[Buffer, ...]:
    if isinstance(field, bytes | memoryview):
        return binary(len(field)), field
    if isinstance(field, dict):  # msgpack's map with a 16-bit length
        pairs = (each for pair in field.items() for each in pair)
        return b"\xde" + len(field).to_bytes(2), *(part for each in pairs for part in _pack_field(each))
    return (msgspec.msgpack.encode(field),)


def _encode_weight(weight: object) -> bytes:
    """Returns bytes that are equal for equal weights of any type. A weight that does not fit a float is written out."""
    try:
        return struct.pack(">d", weight)
    except (struct.error, TypeError, OverflowError):
        return repr(weight).encode()


def digest_posts(posts: Iterable[Post]) -> bytes:
    """Returns a digest of messages: their addresses, and stamps that depend on the content.

    Greetings are left out: they answer envelopes that are discarded, and the journal does not record these.
    """
    digest = hashlib.sha256()
    for post in posts:
        if isinstance(post, GreetingPost):
            continue
        digest.update(frame_parts(msgspec.msgpack.encode(post.address), post.stamp))
    return digest.digest()


@dataclass
class Journal:
    """The records of one party's round, and the digest of the newest one, which is stored separately."""

    records: list[bytes] = field(default_factory=list)
    tip: bytes = b""
    kept: bool = True
    """Whether records are kept in memory. A driver that stores them elsewhere needs only the tip."""
    detached: Mapping[bytes, Buffer] = field(default_factory=dict)
    """Long vectors of states that are not in the records, by digest."""

    def record(self, protocol: Protocol, session: bytes, party: Party, actions: Sequence[Action]) -> Record | None:
        """Records a call, given the actions it returned. Returns the record; None if the call had no effect."""
        first = actions[0] if actions else None
        if not isinstance(first, RoundBegun | InputTaken):
            return None
        saved = [action.state for action in actions if isinstance(action, StateSaved)]
        detached: dict[bytes, memoryview] = {}
        written = Record(
            protocol.encode_state(saved[-1], apart=detached) if saved else None,
            digest_posts(action for action in actions if isinstance(action, Post)),
            self.tip,
            detached,
            _make_beginning(protocol, session, party, first, detached)
            if isinstance(first, RoundBegun)
            else _view_bytes(first.data),
        )
        if self.kept:
            self.records.append(b"".join(written.parts()))
        self.tip = written.digest()
        return written

    def read(self) -> list[Record]:
        """Returns the records; raises JournalError unless they are complete and unchanged."""
        try:
            records = [msgspec.msgpack.decode(data, type=Record) for data in self.records]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"a record of the journal cannot be read: {error}; try: {CURE}") from None
        if not records or not isinstance(records[0].event, Beginning):
            raise JournalError(f"the journal lacks the beginning of the round; try: {CURE}")
        tip = b""
        for number, record in enumerate(records):
            if any(blob_digest(part) != digest for digest, part in record.detached.items()):
                raise JournalError(f"a vector of record {number} of the journal was changed; try: {CURE}")
            if record.before != tip or (number and isinstance(record.event, Beginning)):
                raise JournalError(f"record {number} of the journal does not follow the one before it; try: {CURE}")
            tip = record.digest()
        if tip != self.tip:
            raise JournalError(f"the journal is incomplete, or was changed; try: {CURE}")
        return records

    def encode(self) -> bytes:
        """Returns the records as bytes, without the tip, which serves to detect an older copy."""
        return msgspec.msgpack.encode((VERSION, self.records))

    @classmethod
    def decode(cls, data: bytes, tip: bytes) -> "Journal":
        """Returns the journal for some bytes and a tip; raises JournalError if they are invalid."""
        try:
            version, *rest = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            if (number := msgspec.msgpack.decode(version, type=int)) != VERSION:
                raise JournalError(
                    f"the journal is of version {number}, not {VERSION}; try: use the release that wrote it"
                )
            (records,) = rest
            return cls(msgspec.msgpack.decode(records, type=list[bytes]), tip)
        except (msgspec.DecodeError, ValueError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"the journal cannot be read: {error}; try: {CURE}") from None

    def __repr__(self) -> str:
        return f"Journal({len(self.records)} records)"


def _make_beginning(
    protocol: Protocol, session: bytes, party: Party, begun: RoundBegun, detached: dict[bytes, memoryview]
) -> Beginning:
    state = protocol.encode_state(begun.state, apart=detached)
    return Beginning(session, party, begun.number, begun.seed, state, fingerprint_update(begun.update, begun.seed))


def _view_bytes(data: Buffer | None) -> memoryview | None:
    return None if data is None else memoryview(data)
