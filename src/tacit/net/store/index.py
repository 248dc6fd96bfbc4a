"""Index of a store: the progress of a party, in a few short entries of an SQLite database.

The database has a write-ahead log: a commit takes one fsync and is atomic, and another process can read at the same
time. SQLite does not detect changed bytes, so every entry has a digest. Peers that were seen may be many, so each has a
row, and one digest covers all rows in the order in which they were added.
"""

import hashlib
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from tacit.core.average import Ending, Phase
from tacit.core.errors import ConfigError, Drop, TacitError
from tacit.core.link import frame_parts
from tacit.core.suite import Party, Vector
from tacit.net.store.disk_errors import damage_error, translate_disk_errors
from tacit.net.store.vector_files import FileChecksum

INDEX_FILE = "book.db"
VERSION = 3
"""Version of everything in the folder."""
_TABLES = (
    "CREATE TABLE pages (name TEXT PRIMARY KEY, page BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE peers (place INTEGER PRIMARY KEY, session BLOB NOT NULL, party TEXT NOT NULL, "
    "incarnation BLOB NOT NULL)",
    f"PRAGMA user_version = {VERSION}",
)


class IndexEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of the index, written atomically. There is one entry of each kind."""

    row: ClassVar[str]
    """Name of its row in the database, and part of its digest. It stays when the class is renamed."""


class StoreOwner(IndexEntry, frozen=True):
    """The party and federation of the folder."""

    row: ClassVar[str] = "Owner"

    party: Party
    federation: str
    incarnation: bytes
    """Random identifier of the folder. With another folder, the party's earlier messages are unknown."""
    key: bytes
    """Secret key of the log's checksums. It never leaves the folder."""

    def __repr__(self) -> str:
        return f"StoreOwner({self.party}, {self.federation})"


class SeenPeers(IndexEntry, frozen=True):
    """Digest of the rows of all peers that were seen."""

    row: ClassVar[str] = "Seen"

    tip: bytes = b""
    """Digest of all rows."""


class StoredRound(IndexEntry, frozen=True):
    """Progress of the last round that was begun."""

    row: ClassVar[str] = "Standing"

    number: int = 0
    session: bytes = b""
    entries: int = 0
    """Length of the vectors."""
    under_way: bool = False
    """Whether the round is in progress."""
    tip: bytes = b""
    """Tip of the journal, while the round is under way."""
    records: int = 0
    """Number of records in the journal."""
    begun: float = 0.0
    """Time of the beginning, on the driver's clock."""
    last: float = 0.0
    """Time of the last record, on the driver's clock."""
    ended: bool = False
    """Whether the ending is stored."""
    file: int = 0
    """Number of the log file in use, 0 or 1."""

    def __repr__(self) -> str:
        return f"StoredRound(round {self.number}{', under way' if self.under_way else ''})"


class StoredState(IndexEntry, frozen=True):
    """The last saved state."""

    row: ClassVar[str] = "Held"

    data: bytes = b""
    """The state, if it is short. A long state is in the log while a round is in progress, and otherwise in a file."""
    file: FileChecksum = FileChecksum()
    owner: int | None = None
    """Round number in the encoded state; None for a state from the log, which contains no number and no party."""
    parts: dict[bytes, int] = {}
    """File numbers of the blobs of this state, and of the state before the round, by digest."""

    def __repr__(self) -> str:
        return "StoredState(…)"


class PastError(TacitError):
    """Error of a round that was given up, restored from its code and text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.__dict__["code"] = code  # otherwise the code of the class applies


class StoredEnding(IndexEntry, frozen=True):
    """The ending of the last round, without the entries of the average."""

    row: ClassVar[str] = "Told"

    party: Party
    round: int
    contributors: tuple[Party, ...]
    dropped: dict[Party, Drop]
    error: tuple[str, str] | None
    """Code and text of the error."""
    clipped: int
    largest: float
    rounded: float
    sent: dict[str, int]
    received: dict[str, int]
    phases: tuple[Phase, ...]
    dtype: str
    """Type of the average's entries; empty without an average."""
    file: FileChecksum
    replaces: bool = False

    @classmethod
    def of(cls, ending: Ending, dtype: str, file: FileChecksum) -> "StoredEnding":
        """Returns the entry for an ending. Its average is stored in a file."""
        return cls(
            ending.party,
            ending.round,
            ending.contributors,
            dict(ending.dropped),
            None if ending.error is None else (ending.error.code, str(ending.error)),
            int(ending.clipped),
            float(ending.largest),
            float(ending.rounded),
            dict(ending.sent),
            dict(ending.received),
            ending.phases,
            dtype,
            file,
            ending.replaces,
        )

    def ending(self, average: Vector | None) -> Ending:
        """Returns the ending with the given average."""
        return Ending(
            self.party,
            self.round,
            average,
            self.contributors,
            self.dropped,
            None if self.error is None else PastError(*self.error),
            self.clipped,
            self.largest,
            self.rounded,
            self.sent,
            self.received,
            self.phases,
            self.replaces,
        )


class AdoptedAverage(IndexEntry, frozen=True):
    """The last average that the party adopted. It stays when later rounds fail. Its vector is in a file."""

    row: ClassVar[str] = "Adopted"

    round: int = 0
    dtype: str = ""
    """Type of the average's entries; empty without an average."""
    file: FileChecksum = FileChecksum()
    lineage: bytes = b""
    """Lineage of a model that adopts it. The state may have a newer one, of an average that was never stored."""
    is_change: bool = False
    """Whether the vector is a change to add to a model. Otherwise it is a model."""


P = TypeVar("P", bound=IndexEntry)


class StoreIndex:
    """Reads and writes the entries of the index."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Opens the index at a path. Calls may come from any thread, one at a time."""
        self._folder, uri = path.parent, f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._peers: dict[tuple[bytes, Party], bytes] | None = None
        self._seen = SeenPeers()
        try:
            if read_only:
                self._db.execute("BEGIN")  # so that all entries are read from one snapshot
            else:
                for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                    self._db.execute(f"PRAGMA {setting}")
            self._version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            tables = int(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
            self.blank = not self._version and not tables
            """Whether nothing was ever written to the database."""
        except BaseException:
            self._db.close()
            raise

    def make(self, *pages: IndexEntry) -> None:
        """Writes the first entries."""
        self._commit(*((table, ()) for table in _TABLES), *map(_replace_row, (*pages, self._seen)))
        self._version, self.blank = VERSION, False

    def check(self) -> None:
        """Raises JournalError unless the index has this version and is intact."""
        if self._version != VERSION:
            raise damage_error(self._folder, f"it is of version {self._version}, not {VERSION}")
        if (found := self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise damage_error(self._folder, str(found))
        self._peers = self._load_peers()

    def _load_peers(self) -> dict[tuple[bytes, Party], bytes]:
        """Returns the peers that were seen; raises JournalError if their rows were changed."""
        self._seen, tip, peers = self.read(SeenPeers), b"", {}
        for row in self._db.execute("SELECT session, party, incarnation FROM peers ORDER BY place"):
            session, party, incarnation = row
            if tuple(map(type, row)) != (bytes, str, bytes):
                raise damage_error(self._folder, "the peers that were seen were changed")
            peers[session, party] = incarnation
            tip = _chain_peer(tip, session, party, incarnation)
        if tip != self._seen.tip:
            raise damage_error(self._folder, "the peers that were seen were changed")
        return peers

    def read(self, kind: type[P], default: P | None = None) -> P:
        """Returns an entry, or the default if there is none; raises JournalError if it is missing or changed."""
        name = kind.row
        row = self._db.execute("SELECT page, digest FROM pages WHERE name = ?", (name,)).fetchone()
        if row is None and default is not None:
            return default
        if row is None or not isinstance(row[0], bytes) or _digest(name, row[0]) != row[1]:
            raise damage_error(self._folder, f"entry {name} was changed")
        return msgspec.msgpack.decode(row[0], type=kind)

    def write(self, *pages: IndexEntry) -> None:
        """Replaces the entries of some kinds. They are on disk when this returns."""
        self._commit(*map(_replace_row, pages))

    def first_seen(self, session: bytes, party: Party, incarnation: bytes) -> bytes:
        """Returns the incarnation with which a peer was first seen in a session. Stores this one if it is the first."""
        peers = self._load_peers() if self._peers is None else self._peers
        if (session, party) not in peers:
            seen, row = (
                SeenPeers(_chain_peer(self._seen.tip, session, party, incarnation)),
                (session, party, incarnation),
            )
            self._peers = None  # a commit that fails may still be on disk, so the rows are read again
            self._commit(("INSERT INTO peers VALUES (?, ?, ?, ?)", (len(peers), *row)), _replace_row(seen))
            peers[session, party], self._seen = incarnation, seen
        self._peers = peers
        return peers[session, party]

    def tidy(self) -> None:
        """Erases earlier entries from the write-ahead log, unless a reader prevents that now."""
        with suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def _commit(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in statements:
                self._db.execute(statement, values)
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise


def _replace_row(page: IndexEntry) -> tuple[str, tuple[object, ...]]:
    name, data = page.row, msgspec.msgpack.encode(page)
    return "INSERT OR REPLACE INTO pages VALUES (?, ?, ?)", (name, data, _digest(name, data))


def _digest(name: str, page: bytes) -> bytes:
    return hashlib.sha256(frame_parts(name.encode(), page)).digest()


def _chain_peer(tip: bytes, session: bytes, party: Party, incarnation: bytes) -> bytes:
    return hashlib.sha256(frame_parts(b"peer", tip, session, party.encode(), incarnation)).digest()


# --- reading from another process ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoreSummary:
    """Public content of a store folder."""

    party: Party
    federation: str
    incarnation: bytes
    session: bytes
    number: int
    """Number of the last round that was begun."""
    under_way: bool
    """Whether that round is still in progress."""
    records: int
    """Number of records in its journal."""
    begun: float
    """Time of its beginning, on the driver's clock."""
    last: float
    """Time of its last record, on the driver's clock."""
    ending: Ending | None
    """Its ending without the average, if it is over."""


def summarize_store(folder: str | Path) -> StoreSummary:
    """Returns the public content of a folder, which another process may have open; raises ConfigError if it is none."""
    path = Path(folder)
    if not (path / INDEX_FILE).is_file():
        raise ConfigError(f"{path} is not the folder of a party; try: give the path of NAME.rounds")
    with translate_disk_errors(path), closing(StoreIndex(path / INDEX_FILE, read_only=True)) as book:
        if book.blank:
            raise ConfigError(f"the party of {path} was never started; try: start it first")
        book.check()
        owner, now = book.read(StoreOwner), book.read(StoredRound)
        return StoreSummary(
            owner.party,
            owner.federation,
            owner.incarnation,
            now.session,
            now.number,
            now.under_way,
            now.records,
            now.begun,
            now.last,
            book.read(StoredEnding).ending(None) if now.ended else None,
        )
