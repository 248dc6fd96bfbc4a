"""What a party writes down of a round, so that it can be cut off anywhere and go on (see `round`, the contract).

A journal is a list of records, one for each call of `start`, `deliver` or `expire` that counts: what the call was
given, the state if it was saved, and a digest of every message that came out. In a state, digests stand for what is
long. Each record carries a digest of all before it, and the newest digest, the `tip`, is kept apart from the records:
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

from tacit.core.detached import part_digest
from tacit.core.errors import JournalError
from tacit.core.link import framed
from tacit.core.messages import binary
from tacit.core.protocol import Protocol
from tacit.core.suite import Buffer, Party, Update
from tacit.crypto.sealing import gmac
from tacit.runtime.round import Action, Begun, Greet, Heard, Post, Saved

VERSION = 5
CURE = "restore the journal, or begin a new session"


class Beginning(msgspec.Struct, frozen=True, tag="Beginning", forbid_unknown_fields=True):
    """What a round was begun with. Of the update, which may be large, there is only a fingerprint here."""

    session: bytes
    party: Party
    number: int
    seed: bytes
    state: bytes
    update: bytes

    def __repr__(self) -> str:
        return f"Beginning({self.party}, round {self.number})"


class Record(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call, and what came of it."""

    state: bytes | None
    """The last state that was saved in it."""
    said: bytes
    """A digest of the messages to be sent."""
    before: bytes
    """A digest of all records before this one."""
    apart: dict[bytes, memoryview]
    """What is long in the states, by the digests that stand for it there, unless it lies elsewhere."""
    event: Beginning | memoryview | None
    """The beginning, bytes that came in, or None if time was up. Bytes may be many, and are not copied."""

    def digest(self) -> bytes:
        """Returns what stands for this record and all before it."""
        event = self.event
        if isinstance(event, Beginning):
            stands = b"begun" + msgspec.msgpack.encode(event)
        else:
            # The end of an envelope is its tag, which nothing else in it can change without.
            stands = b"deadline" if event is None else b"bytes" + len(event).to_bytes(8) + event[-64:]
        return _hashed(self.before, stands, self.state or b"", self.said)

    def parts(self) -> tuple[Buffer, ...]:
        """Returns its bytes, in parts: what is long is not copied."""
        return *self.head(), *_packed(self.event)

    def head(self) -> tuple[Buffer, ...]:
        """Returns them but for the event, which is the last."""
        fields = (self.state, self.said, self.before, self.apart)
        return b"\x95", *(part for field in fields for part in _packed(field))  # msgpack's list of five

    def __repr__(self) -> str:
        return f"Record({self.event if isinstance(self.event, Beginning) else '…'})"


def fingerprint(update: Update | None, key: bytes = b"") -> bytes:
    """Returns what tells updates apart; under a secret key, which saves time, for those alone who have it."""
    if update is None:
        return b""
    vector = np.asarray(update.vector)
    if vector.dtype.hasobject:
        numbers: Buffer = repr(vector.tolist()).encode()
    else:
        numbers = np.ascontiguousarray(vector).reshape(-1).view(np.uint8).data
    if key:
        numbers = gmac(_hashed(b"tacit/v1/fingerprint", key), (numbers,))
    return _hashed(vector.dtype.str.encode(), _number(update.weight), numbers)


def _hashed(*parts: Buffer) -> bytes:
    """Returns the hash of parts, framed, without a copy of what is long."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()


def _packed(field: Beginning | Buffer | dict[bytes, memoryview] | None) -> tuple[Buffer, ...]:
    if isinstance(field, bytes | memoryview):
        return binary(len(field)), field
    if isinstance(field, dict):  # msgpack's map, of fewer than 2¹⁶
        pairs = (each for pair in field.items() for each in pair)
        return b"\xde" + len(field).to_bytes(2), *(part for each in pairs for part in _packed(each))
    return (msgspec.msgpack.encode(field),)


def _number(weight: object) -> bytes:
    """Returns what is the same for the same weight, of whatever type; symbols, and what no float holds, are spelled."""
    try:
        return struct.pack(">d", weight)
    except (struct.error, TypeError, OverflowError):
        return repr(weight).encode()


def said(posts: Iterable[Post]) -> bytes:
    """Returns the digest of some messages: their addresses, and the stamps that content cannot change without.

    Greetings are left out: they answer mail that does not count, and is not written down.
    """
    digest = hashlib.sha256()
    for post in posts:
        if isinstance(post, Greet):
            continue
        digest.update(framed(msgspec.msgpack.encode(post.address), post.stamp))
    return digest.digest()


@dataclass
class Journal:
    """The records of one round of one party, as bytes, and the digest that is kept apart from them."""

    records: list[bytes] = field(default_factory=list)
    tip: bytes = b""
    kept: bool = True
    """Whether records are kept here. Whoever keeps them elsewhere needs the tip alone."""
    apart: Mapping[bytes, Buffer] = field(default_factory=dict)
    """What is long in states and not in the records, by the digests that stand for it."""

    def record(self, protocol: Protocol, session: bytes, party: Party, actions: Sequence[Action]) -> Record | None:
        """Writes down a call by what it returned; returns the record, None if nothing has to be."""
        first = actions[0] if actions else None
        if not isinstance(first, Begun | Heard):
            return None
        saved = [action.state for action in actions if isinstance(action, Saved)]
        apart: dict[bytes, memoryview] = {}
        written = Record(
            protocol.encode_state(saved[-1], apart=apart) if saved else None,
            said(action for action in actions if isinstance(action, Post)),
            self.tip,
            apart,
            _beginning(protocol, session, party, first, apart) if isinstance(first, Begun) else _octets(first.data),
        )
        if self.kept:
            self.records.append(b"".join(written.parts()))
        self.tip = written.digest()
        return written

    def read(self) -> list[Record]:
        """Returns the records; raises JournalError unless they are all there and as they were written."""
        try:
            records = [msgspec.msgpack.decode(data, type=Record) for data in self.records]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"a record of the journal cannot be read: {error}; {CURE}") from None
        if not records or not isinstance(records[0].event, Beginning):
            raise JournalError(f"the journal does not say how the round was begun; {CURE}")
        tip = b""
        for number, record in enumerate(records):
            if any(part_digest(part) != digest for digest, part in record.apart.items()):
                raise JournalError(f"what is long in record {number} of the journal was changed; {CURE}")
            if record.before != tip or (number and isinstance(record.event, Beginning)):
                raise JournalError(f"record {number} of the journal does not follow the one before it; {CURE}")
            tip = record.digest()
        if tip != self.tip:
            raise JournalError(f"the journal ends before what was last written, or was changed; {CURE}")
        return records

    def encode(self) -> bytes:
        """Returns the records as bytes. The tip is not among them, or an older copy of both could not be told."""
        return msgspec.msgpack.encode((VERSION, self.records))

    @classmethod
    def decode(cls, data: bytes, tip: bytes) -> "Journal":
        """Returns a journal from bytes and its tip; raises JournalError if they are none, or of another version."""
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


def _beginning(
    protocol: Protocol, session: bytes, party: Party, begun: Begun, apart: dict[bytes, memoryview]
) -> Beginning:
    state = protocol.encode_state(begun.state, apart=apart)
    return Beginning(session, party, begun.number, begun.seed, state, fingerprint(begun.update, begun.seed))


def _octets(data: Buffer | None) -> memoryview | None:
    return None if data is None else memoryview(data)
