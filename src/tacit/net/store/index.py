"""The book of a store: where a party stands, on a few short pages of a database.

SQLite with a write-ahead log: a commit takes one fsync and is there whole or not at all, and another process can read
meanwhile. SQLite does not notice bytes that were changed, so every page goes with a digest. So do the peers that were
seen, of whom there may be many: each is a row, and one digest goes over all rows, in the order in which they came.
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
from tacit.net.store.log import Sum, careful, damaged

BOOK = "book.db"
VERSION = 3
"""Of everything in the folder."""
_TABLES = (
    "CREATE TABLE pages (name TEXT PRIMARY KEY, page BLOB NOT NULL, digest BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE peers (place INTEGER PRIMARY KEY, session BLOB NOT NULL, party TEXT NOT NULL, "
    "incarnation BLOB NOT NULL)",
    f"PRAGMA user_version = {VERSION}",
)


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is written whole or not at all. There is one of each kind."""

    row: ClassVar[str]
    """Name of its row in the database, and part of its digest. It stays when the class is renamed."""


class Owner(Page, frozen=True):
    """Whose folder it is."""

    row: ClassVar[str] = "Owner"

    party: Party
    federation: str
    incarnation: bytes
    """Drawn when the folder is made. Another one is another folder, which does not know what was said before."""
    key: bytes
    """Drawn with it, and told to nobody: what tells pieces of records from what others have sent."""

    def __repr__(self) -> str:
        return f"Owner({self.party}, {self.federation})"


class Seen(Page, frozen=True):
    """The peers that were seen, of whom each has a row."""

    row: ClassVar[str] = "Seen"

    tip: bytes = b""
    """A digest of the last row and of all before it."""


class Standing(Page, frozen=True):
    """The round that was begun last."""

    row: ClassVar[str] = "Standing"

    number: int = 0
    session: bytes = b""
    entries: int = 0
    """How many a vector has."""
    under_way: bool = False
    tip: bytes = b""
    """The journal's, while the round is under way."""
    records: int = 0
    """How many there are of it."""
    begun: float = 0.0
    last: float = 0.0
    """When it was begun, and when it last moved, on the clock of whoever drives it."""
    ended: bool = False
    """Whether there is an ending of it."""
    file: int = 0
    """Which of the two files of records is its."""

    def __repr__(self) -> str:
        return f"Standing(round {self.number}{', under way' if self.under_way else ''})"


class Held(Page, frozen=True):
    """The state that was saved last."""

    row: ClassVar[str] = "Held"

    data: bytes = b""
    """The state, if it is short. If not, the records have it while the round is under way, and then a file."""
    file: Sum = Sum()
    owner: int | None = None
    """The number that it names, beside the party. None if it is as records have it, which name nobody."""
    parts: dict[bytes, int] = {}
    """Where the parts are that it has, or that the state before the round has, by their digests."""

    def __repr__(self) -> str:
        return "Held(…)"


class Past(TacitError):
    """Why a round was given up, as it was written down: its code and its text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.__dict__["code"] = code  # otherwise it is its class's


class Told(Page, frozen=True):
    """How the last round ended, but for the entries of the average."""

    row: ClassVar[str] = "Told"

    party: Party
    round: int
    contributors: tuple[Party, ...]
    dropped: dict[Party, Drop]
    error: tuple[str, str] | None
    """Its code and its text."""
    clipped: int
    largest: float
    rounded: float
    sent: dict[str, int]
    received: dict[str, int]
    phases: tuple[Phase, ...]
    dtype: str
    """The type of the average's entries, nothing if there is no average."""
    file: Sum

    @classmethod
    def of(cls, ending: Ending, dtype: str, file: Sum) -> "Told":
        """Returns the page of an ending, whose average is in a file."""
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
        )

    def ending(self, average: Vector | None) -> Ending:
        """Returns the ending, with an average."""
        return Ending(
            self.party,
            self.round,
            average,
            self.contributors,
            self.dropped,
            None if self.error is None else Past(*self.error),
            self.clipped,
            self.largest,
            self.rounded,
            self.sent,
            self.received,
            self.phases,
        )


P = TypeVar("P", bound=Page)


class Book:
    """The pages, as they were last written."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        """Opens the book at a path. Calls may come from any thread, one at a time."""
        self._folder, uri = path.parent, f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        self._peers: dict[tuple[bytes, Party], bytes] | None = None
        self._seen = Seen()
        try:
            if read_only:
                self._db.execute("BEGIN")  # so that all pages are of one moment
            else:
                for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                    self._db.execute(f"PRAGMA {setting}")
            self._version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            tables = int(self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
            self.blank = not self._version and not tables
            """Whether nothing was ever written."""
        except BaseException:
            self._db.close()
            raise

    def make(self, *pages: Page) -> None:
        """Writes the first pages."""
        self._commit(*((table, ()) for table in _TABLES), *map(_written, (*pages, self._seen)))
        self._version, self.blank = VERSION, False

    def check(self) -> None:
        """Raises JournalError unless this is a book of this version, in which everything can be found."""
        if self._version != VERSION:
            raise damaged(self._folder, f"it is of version {self._version}, not {VERSION}")
        if (found := self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
            raise damaged(self._folder, str(found))
        self._peers = self._met()

    def _met(self) -> dict[tuple[bytes, Party], bytes]:
        """Returns the peers that were seen; raises JournalError if they are not there as they were written."""
        self._seen, tip, peers = self.read(Seen), b"", {}
        for row in self._db.execute("SELECT session, party, incarnation FROM peers ORDER BY place"):
            session, party, incarnation = row
            if tuple(map(type, row)) != (bytes, str, bytes):
                raise damaged(self._folder, "the peers that were seen were changed")
            peers[session, party] = incarnation
            tip = _chained(tip, session, party, incarnation)
        if tip != self._seen.tip:
            raise damaged(self._folder, "the peers that were seen were changed")
        return peers

    def read(self, kind: type[P]) -> P:
        """Returns a page; raises JournalError if it is not there as it was written."""
        name = kind.row
        row = self._db.execute("SELECT page, digest FROM pages WHERE name = ?", (name,)).fetchone()
        if row is None or not isinstance(row[0], bytes) or _digest(name, row[0]) != row[1]:
            raise damaged(self._folder, f"page {name} was changed")
        return msgspec.msgpack.decode(row[0], type=kind)

    def write(self, *pages: Page) -> None:
        """Puts pages in the place of those of their kinds. They are on disk when it returns."""
        self._commit(*map(_written, pages))

    def first_seen(self, session: bytes, party: Party, incarnation: bytes) -> bytes:
        """Returns the incarnation that a peer was first seen as in a session, which is now if it never was."""
        peers = self._met() if self._peers is None else self._peers
        if (session, party) not in peers:
            seen, row = Seen(_chained(self._seen.tip, session, party, incarnation)), (session, party, incarnation)
            self._peers = None  # if the commit fails, it may be there all the same, and is looked up
            self._commit(("INSERT INTO peers VALUES (?, ?, ?, ?)", (len(peers), *row)), _written(seen))
            peers[session, party], self._seen = incarnation, seen
        self._peers = peers
        return peers[session, party]

    def tidy(self) -> None:
        """Leaves nothing of earlier pages. Where that cannot be done now, because somebody reads, it is done later."""
        with suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Closes it."""
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


def _written(page: Page) -> tuple[str, tuple[object, ...]]:
    name, data = page.row, msgspec.msgpack.encode(page)
    return "INSERT OR REPLACE INTO pages VALUES (?, ?, ?)", (name, data, _digest(name, data))


def _digest(name: str, page: bytes) -> bytes:
    return hashlib.sha256(frame_parts(name.encode(), page)).digest()


def _chained(tip: bytes, session: bytes, party: Party, incarnation: bytes) -> bytes:
    return hashlib.sha256(frame_parts(b"peer", tip, session, party.encode(), incarnation)).digest()


# --- for those who only look ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Glance:
    """What anybody who may look into a folder can be told."""

    party: Party
    federation: str
    incarnation: bytes
    session: bytes
    number: int
    """The last round that was begun,"""
    under_way: bool
    """whether it is still going on,"""
    records: int
    """and how often it has moved."""
    begun: float
    last: float
    """When it was begun, and when it last moved, on the clock of whoever drove it."""
    ending: Ending | None
    """How it ended, if it did, but for the average."""


def peek(folder: str | Path) -> Glance:
    """Returns how it stands with a folder, which another process may have open; raises ConfigError if it is none."""
    path = Path(folder)
    if not (path / BOOK).is_file():
        raise ConfigError(f"there is no folder of a party at {path}; say where it is")
    with careful(path), closing(Book(path / BOOK, read_only=True)) as book:
        if book.blank:
            raise ConfigError(f"nothing was written in {path} yet; start its party first")
        book.check()
        owner, now = book.read(Owner), book.read(Standing)
        return Glance(
            owner.party,
            owner.federation,
            owner.incarnation,
            now.session,
            now.number,
            now.under_way,
            now.records,
            now.begun,
            now.last,
            book.read(Told).ending(None) if now.ended else None,
        )
