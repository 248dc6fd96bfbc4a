"""Log entries of one round: the metadata of the update, its vector, and then the records of the journal."""

from collections.abc import Sequence

import msgspec
import numpy as np

from tacit.core.errors import JournalError
from tacit.core.suite import Buffer, Update
from tacit.net.store.disk_errors import RENEW
from tacit.net.store.record_log import LogEntry
from tacit.net.store.vector_files import view_octets
from tacit.runtime.journal import Beginning, Record

UPDATE_ENTRIES = 2
"""Log entries before the records: the metadata of the update, and its vector."""


class UpdateMetadata(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An update without the numbers of its vector. Entries of release 0.2 have no lineage."""

    dtype: str
    weight: float
    lineage: bytes = b""
    changes: bool = False

    @classmethod
    def of(cls, update: Update) -> "UpdateMetadata":
        """Returns the metadata of an update."""
        return cls(np.asarray(update.vector).dtype.str, float(update.weight), update.lineage, update.changes)

    def update(self, numbers: Buffer) -> Update:
        """Returns the update with the numbers of its vector."""
        return Update(np.frombuffer(numbers, np.dtype(self.dtype)), self.weight, self.lineage, self.changes)


def encode_update(entries: int, update: Update | None) -> tuple[bytes, Buffer]:
    """Returns two log entries: the length of the vectors with the metadata of the update, and its vector."""
    if update is None:
        return msgspec.msgpack.encode((entries, None)), b""
    return msgspec.msgpack.encode((entries, UpdateMetadata.of(update))), view_octets(np.asarray(update.vector))


def decode_update(pieces: Sequence[LogEntry]) -> tuple[int, Update | None]:
    """Returns the length of the vectors, and the update."""
    entries, about = msgspec.msgpack.decode(pieces[0].data, type=tuple[int, UpdateMetadata | None])
    return entries, None if about is None else about.update(pieces[1].data)


def decode_record(record: bytes) -> Record:
    """Returns a record; raises JournalError if it cannot be read."""
    try:
        return msgspec.msgpack.decode(record, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"a record cannot be read: {error}; try: {RENEW}") from None


def without_detached(record: Record) -> Record:
    """Returns a record without its detached vectors, which are stored as blobs."""
    return msgspec.structs.replace(record, detached={})


def state_in(record: Record) -> bytes | None:
    """Returns the state after a record; None if the record does not contain it."""
    if record.state is None and isinstance(record.event, Beginning):
        return record.event.state
    return record.state
