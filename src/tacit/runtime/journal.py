"""Journal of one party's round, from which the round is resumed after a crash (see the contract in `round`).

A journal is a list of records, one for each call of `start`, `deliver` or `expire` that has an effect: the input of
the call, the state if it was saved, and a digest of every message that it sent. In a state, digests stand for what is
long. Each record carries a digest of all before it, and the newest digest, the `tip`, is stored separately:
by whoever drives the round, next to its number and state, and never in one file or backup with the records. So a
journal that is cut short, reordered, changed, or restored from an older copy is refused. Envelopes need not be hashed
for that: whatever was changed in one no longer opens.
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
    """The inputs of a round. The update, which may be large, is represented by its fingerprint."""

    session: bytes
    party: Party
    number: int
    seed: bytes
    state: bytes
    update: bytes

    def __repr__(self) -> str:
        return f"Beginning({self.party}, round {self.number})"


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call of a round, and its result."""

    state: bytes | None
    """The last state that the call saved."""
    outbox: bytes
    """Digest of the messages to send."""
    before: bytes
    """Digest of all records before this one."""
    detached: dict[bytes, memoryview]
    """Long vectors of the states, by the digests that stand for them there, unless they are stored elsewhere."""
    event: Beginning | memoryview | None
    """The inputs of the round, the bytes of an envelope, or None for a timeout. The bytes are not copied."""

    def digest(self) -> bytes:
        """Returns the digest of this record and all before it."""
        event = self.event
        if isinstance(event, Beginning):
            stands = b"begun" + msgspec.msgpack.encode(event)
        else:
            # The end of an envelope is its tag, which nothing else in it can change without.
            stands = b"deadline" if event is None else b"bytes" + len(event).to_bytes(8) + event[-64:]
        return _hash_parts(self.before, stands, self.state or b"", self.outbox)

    def parts(self) -> tuple[Buffer, ...]:
        """Returns the encoded record in parts, without copying long ones."""
        return *self.head(), *_pack_field(self.event)

    def head(self) -> tuple[Buffer, ...]:
        """Returns the parts before the event, which is the last field."""
        fields = (self.state, self.outbox, self.before, self.detached)
        return b"\x95", *(part for field in fields for part in _pack_field(field))  # msgpack's list of five

    def __repr__(self) -> str:
        return f"Record({self.event if isinstance(self.event, Beginning) else '…'})"


def fingerprint_update(update: Update | None, key: bytes = b"") -> bytes:
    """Returns a digest of an update; with a secret key a faster keyed one, which only its owner can compare."""
    if update is None:
        return b""
    vector = np.asarray(update.vector)
    if vector.dtype.hasobject:
        numbers: Buffer = repr(vector.tolist()).encode()
    else:
        numbers = np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data
    if key:
        numbers = gmac(_hash_parts(b"tacit/v1/fingerprint", key), (numbers,))
    # Left out unless they are set, so that updates without them have the digests of earlier releases.
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
    if isinstance(field, dict):  # msgpack's map, of fewer than 2¹⁶
        pairs = (each for pair in field.items() for each in pair)
        return b"\xde" + len(field).to_bytes(2), *(part for each in pairs for part in _pack_field(each))
    return (msgspec.msgpack.encode(field),)


def _encode_weight(weight: object) -> bytes:
    """Returns bytes that are equal for equal weights of any type; a weight that no float can hold is spelled out."""
    try:
        return struct.pack(">d", weight)
    except (struct.error, TypeError, OverflowError):
        return repr(weight).encode()


def digest_posts(posts: Iterable[Post]) -> bytes:
    """Returns the digest of messages: their addresses, and stamps that change with the content.

    Greetings are left out: they answer envelopes that are discarded, and are not in the journal.
    """
    digest = hashlib.sha256()
    for post in posts:
        if isinstance(post, GreetingPost):
            continue
        digest.update(frame_parts(msgspec.msgpack.encode(post.address), post.stamp))
    return digest.digest()


@dataclass
class Journal:
    """The records of one party's round, as bytes, and the digest of the newest, which is stored separately."""

    records: list[bytes] = field(default_factory=list)
    tip: bytes = b""
    kept: bool = True
    """Whether records are kept here. A driver that keeps them elsewhere needs the tip alone."""
    detached: Mapping[bytes, Buffer] = field(default_factory=dict)
    """Long vectors of states that are not in the records, by the digests that stand for them."""

    def record(self, protocol: Protocol, session: bytes, party: Party, actions: Sequence[Action]) -> Record | None:
        """Records a call by the actions it returned; returns the record, or None if there is nothing to record."""
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
            raise JournalError(f"a record of the journal cannot be read: {error}; {CURE}") from None
        if not records or not isinstance(records[0].event, Beginning):
            raise JournalError(f"the journal does not say how the round was begun; {CURE}")
        tip = b""
        for number, record in enumerate(records):
            if any(blob_digest(part) != digest for digest, part in record.detached.items()):
                raise JournalError(f"what is long in record {number} of the journal was changed; {CURE}")
            if record.before != tip or (number and isinstance(record.event, Beginning)):
                raise JournalError(f"record {number} of the journal does not follow the one before it; {CURE}")
            tip = record.digest()
        if tip != self.tip:
            raise JournalError(f"the journal ends before what was last written, or was changed; {CURE}")
        return records

    def encode(self) -> bytes:
        """Returns the records as bytes. The tip is left out, so that an older copy can be detected by it."""
        return msgspec.msgpack.encode((VERSION, self.records))

    @classmethod
    def decode(cls, data: bytes, tip: bytes) -> "Journal":
        """Returns the journal of bytes and a tip; raises JournalError if they are invalid or of another version."""
        try:
            version, *rest = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
            if (number := msgspec.msgpack.decode(version, type=int)) != VERSION:
                raise JournalError(f"the journal is of version {number}, not {VERSION}; go on with the release of it")
            (records,) = rest
            return cls(msgspec.msgpack.decode(records, type=list[bytes]), tip)
        except (msgspec.DecodeError, ValueError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"this is no journal: {error}; {CURE}") from None

    def __repr__(self) -> str:
        return f"Journal({len(self.records)} records)"


def _make_beginning(
    protocol: Protocol, session: bytes, party: Party, begun: RoundBegun, detached: dict[bytes, memoryview]
) -> Beginning:
    state = protocol.encode_state(begun.state, apart=detached)
    return Beginning(session, party, begun.number, begun.seed, state, fingerprint_update(begun.update, begun.seed))


def _view_bytes(data: Buffer | None) -> memoryview | None:
    return None if data is None else memoryview(data)
