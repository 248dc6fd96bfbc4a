"""What a party on a network keeps on disk, so that it can be killed at any moment and go on.

    store = Store(folder, "north", "clinics")
    found = store.load(agreement.session)
    state = found.state_of(protocol)
    unfinished = found.journal is not None
    party = KeyedParticipant(agreement, identity, number=found.number, state=state, unfinished=unfinished)

A folder has a *book*, a database of short pages: the number of the last round, its session, the tip of its journal, the
state, how it ended. Beside it, each in a file of its own, are the *records* of the round that is under way, with what
was brought to it in front, the *average* that the last round ended with, a *state* that is too long for a page, and
*parts*: vectors in a state, which are not written again as long as they stay the same. There are two files of records,
so that a round can begin while all of the one before, which is over, is still there: its average then never takes a
file of its own.

**What a call takes, and what a cut leaves.** A call of a participant is on disk with two fsyncs, whatever its length:
the record is written behind those before it, and then, in one commit, its tip in the place of the one before. A long
message takes a third, for it is written before it is opened, in the memory that it lies in (`stage`). The contract
of `runtime.round` has the tip apart from the records, and it is. It also has the new tip written beside the one before,
then the record, and then the one before dropped, which takes three. But a record names the tip before it, so it is the
record that can come first: wherever that is cut off, the newest record is that of the tip, or follows it. One that
follows was not acted upon. It is taken over if it is whole, with its tip written before anything is said of it, and
otherwise cut off. So

- an older copy of the records ends before the tip, and is refused;
- an older copy of the book has a tip that several records follow, or a number below that of the last round that was
  over, which the file of records has in front, and is refused. If one record follows, nothing is lost;
- a book without records, of whatever time it is, is refused: both files have had something in front since they were
  made;
- older copies of both, from one moment, are the folder as it was then, and nobody can tell but the peers, by the round.

A long message is staged before anybody knows whose it is, so that behind the records may lie what somebody else has
chosen. It is not taken for a record, whatever it is: `records` says why.

**Numbers** go on over all sessions of a folder, and so do states. A number that is used up is never begun again, also
not by somebody who returns to an earlier session: its masks follow from session and number.

**Secrets.** A seed, and what was brought, are in the records and nowhere else. They are cut off when the round is over
or given up, and earlier pages are dropped from the database and its log. What is cut off may be on the disk for a while
longer: against those who take the disk away, encrypt it.

One process at a time has a folder open. Clocks are the caller's.
"""

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec
import numpy as np

from tacit.core.average import Ending
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, JournalError
from tacit.core.protocol import Protocol, State
from tacit.core.suite import Buffer, Party, Update
from tacit.net.store import log as files
from tacit.net.store.blobs import Parts, paths
from tacit.net.store.index import BOOK, Book, Held, Owner, Standing, Told
from tacit.net.store.log import RENEW, Piece, Records, Sum, careful, damaged
from tacit.runtime.atomic_files import sync_folder
from tacit.runtime.journal import Beginning, Journal, Record

INCARNATION_BYTES, KEY_BYTES = 16, 32
SHORT = 1 << 16
"""Bytes up to which a state has a place in the book."""
BROUGHT = 2
"""Pieces in front of the records: what was brought, and its entries."""
FILES = ("lock", "records", "records.other", "average", "state", BOOK, f"{BOOK}-wal", f"{BOOK}-shm")


@dataclass(frozen=True)
class Found:
    """Where a party is to go on from."""

    party: Party
    number: int
    """The last that is used up."""
    journal: Journal | None = None
    """Of the round that was cut off, if one was, in this session;"""
    update: Update | None = None
    """and what was brought to it."""
    ending: Ending | None = None
    """How the last round ended, if it did, in this session."""
    _state: bytes | None = None
    _owner: int | None = None
    _parts: Mapping[bytes, Buffer] = field(default_factory=dict)

    def state_of(self, protocol: Protocol) -> State | None:
        """Returns the state that was saved last, None if none ever was; raises JournalError if it is another's."""
        whose = None if self._owner is None else (self.party, self._owner)
        return None if self._state is None else protocol.decode_state(self._state, whose, self._parts)

    def __repr__(self) -> str:
        return f"Found({self.party}, round {self.number}{'' if self.journal is None else ', cut off'})"


class Store:
    """The folder of one party. A call that returns is on disk, and one that raises TransportError can be repeated."""

    def __init__(self, folder: str | Path, party: Party, federation: str) -> None:
        """Opens a folder, or makes it if there is none.

        Raises ConfigError if another process has it open, or if it is anything but this party's in this federation, and
        JournalError if it cannot be gone on from.
        """
        self._folder, self.party = Path(folder), party
        self._files: list[int] = []
        self._pages: Book | None = None
        with careful(self._folder):
            try:
                self._open(party, federation)
            except BaseException:
                self.close()
                raise

    def _open(self, party: Party, federation: str) -> None:
        self._make()
        self._lock(self._file("lock"))
        records = self._file("records"), self._file("records.other")
        self._average, self._long = self._file("average"), self._file("state")
        os.close(files.private(self._folder / BOOK))
        self._pages = book = Book(self._folder / BOOK)
        if book.blank:
            if not all(map(Records.unused, records)):
                raise damaged(self._folder, "it is gone, and the records are not")
            for folder in (self._folder, self._folder.absolute().parent):
                sync_folder(folder)
            entropy = SystemEntropy()
            made = Owner(party, federation, entropy.bytes(INCARNATION_BYTES), entropy.bytes(KEY_BYTES))
            for file in records:  # before the book: where there is one, records without a head are gone
                Records(file, made.incarnation, made.key).make()
            book.make(made, Standing(), Held())
        book.check()
        owner, self._standing, self._held = book.read(Owner), book.read(Standing), book.read(Held)
        if (owner.party, owner.federation) != (party, federation):
            raise ConfigError(
                f"{self._folder} is of {owner.party} in {owner.federation}, not of {party} in {federation}; "
                f"give each party a folder of its own"
            )
        self.incarnation = owner.incarnation
        """What tells this folder from another one that was made in its place."""
        self._both, self._end = tuple(Records(file, owner.incarnation, owner.key) for file in records), 0
        if any(each.gone for each in self._both):
            raise damaged(self._folder, "its records are gone, without which nobody can tell whether it is the newest")
        self._parts = Parts(self._folder, self._file)
        self._staged: tuple[object, int] | None = None
        """A long message that is on disk already, and where it ends there."""

    def _make(self) -> None:
        folder = self._folder
        ours = (folder / BOOK).exists() or not folder.exists()
        if not ours and (
            not folder.is_dir() or {*folder.iterdir()} - {*(folder / name for name in FILES), *paths(folder)}
        ):
            raise ConfigError(f"{folder} is there already, and no folder of a party; give it one that is not there")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)

    def _file(self, name: str) -> int:
        self._files.append(files.private(self._folder / name))
        return self._files[-1]

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(file, 20, 0).decode(errors="replace").strip()
            by = f"process {who}" if who.isdecimal() else "another process"
            raise ConfigError(f"{self._folder} is in use by {by}; end that first") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Closes the folder, for others to open."""
        if self._pages is not None:
            self._pages.close()
            self._pages = None
        while self._files:
            os.close(self._files.pop())

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def has_begun(self, session: bytes) -> bool:
        """Says whether the last round that was begun is of this session."""
        return self._standing.session == session

    @property
    def entries(self) -> int:
        """How many entries vectors had in the last round, 0 if there was none."""
        return self._standing.entries

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._folder

    def first_seen(self, session: bytes, party: Party, incarnation: bytes) -> bytes:
        """Returns the incarnation of the folder that a peer had when it was first seen in a session."""
        with careful(self._folder):
            return self._book.first_seen(session, party, incarnation)

    @property
    def _records(self) -> Records:
        return self._both[self._standing.file]

    @property
    def _other(self) -> Records:
        return self._both[1 - self._standing.file]

    @property
    def _book(self) -> Book:
        if self._pages is None:
            raise ConfigError(f"{self._folder} was closed; open it again")
        return self._pages

    # --- going on --------------------------------------------------------------------------------------------------

    def load(self, session: bytes) -> Found:
        """Returns where to go on from in a session, and tidies up after a cut. Nothing is written down before that.

        Raises JournalError if a round of this session was cut off and cannot be gone on with. A round of another
        session is left as it is until the next one is begun.
        """
        with careful(self._folder):
            pieces, broken = self._recovered()
            standing, here = self._standing, self._standing.session == session
            if broken is not None and (here or not self._held.data):
                raise broken
            state, journal, update, ending = self._state(pieces), None, None, None
            parts = self._parts.read(self._held.parts)
            if here and standing.under_way:
                journal = Journal([piece.data for piece in pieces[BROUGHT:]], standing.tip, detached=parts)
                update = _brought(pieces)[1]
            elif here and standing.ended:
                ending = self._ending(self._book.read(Told))
            self._end = pieces[-1].end if pieces else Records.start
            return Found(self.party, standing.number, journal, update, ending, state, self._held.owner, parts)

    def _recovered(self) -> tuple[list[Piece], JournalError | None]:
        """Returns what there is of the round that is under way, and what is wrong with it; drops what was left over."""
        if self._standing.under_way and self._other.over() == self._standing.number:
            self._go_over(self._other.pieces())
        standing, over = self._standing, self._records.over()
        if over is not None and over > standing.number - standing.under_way:
            raise damaged(self._folder, f"it is an older copy, from before round {over} was over")
        pieces = self._records.pieces()
        if not standing.under_way and (over != standing.number or len(pieces) <= BROUGHT):
            # Nothing, or what was left of the last round, or half a beginning.
            self._records.clear(standing.number)
            pieces = []
        elif not standing.under_way:
            self._take_over(pieces, standing.file)
        else:
            try:
                self._follow(pieces)
            except JournalError as error:
                return [], error
        self._records.cut(pieces[-1].end if pieces else Records.start)
        self._other.clear(standing.number - standing.under_way)
        self._drop()
        return pieces, None

    def _go_over(self, pieces: list[Piece]) -> None:
        """Commits a beginning, in the other file, that was cut off from its tip while the round before it was over."""
        if len(pieces) > BROUGHT:
            self._take_over(pieces, 1 - self._standing.file)

    def _take_over(self, pieces: list[Piece], file: int = 0) -> None:
        """Commits a beginning that was cut off from its tip; raises JournalError if the book is older than that."""
        record = _decoded(pieces[BROUGHT].data)
        event = record.event
        next_ = isinstance(event, Beginning) and event.party == self.party and event.number > self._standing.number
        if not next_ or len(pieces) > BROUGHT + 1:
            raise damaged(self._folder, f"it is an older copy, from before round {self._standing.number + 1}")
        self._advance(record, _brought(pieces)[0], self._standing.last, file, self._parts.found())

    def _follow(self, pieces: list[Piece]) -> None:
        """Commits a record that was cut off from its tip; raises JournalError if neither is what records end with."""
        standing, records = self._standing, [piece.data for piece in pieces[BROUGHT:]]
        last = _decoded(records[-1]) if records else None
        if last is None or standing.tip not in (last.digest(), last.before):
            raise self._missing()
        Journal(records, last.digest()).read()
        if last.before == standing.tip:
            self._advance(last, standing.entries, standing.last, standing.file, self._parts.found())

    def _missing(self) -> JournalError:
        number = self._standing.number
        return JournalError(f"the records in {self._folder} are not those of round {number}; restore them, or {RENEW}")

    def _state(self, pieces: list[Piece]) -> bytes | None:
        """Returns the state that was saved last, wherever it is."""
        if self._held.data:
            return self._held.data
        if self._standing.under_way:
            states = (_state_in(_decoded(piece.data)) for piece in reversed(pieces[BROUGHT:]))
            return next((state for state in states if state is not None), None)
        return bytes(files.read(self._long, self._held.file, "the state")) if self._held.file.size else None

    def _ending(self, told: Told) -> Ending:
        if not told.dtype:
            return told.ending(None)
        average = files.read(self._average, told.file, f"the average of round {told.round}")
        return told.ending(np.frombuffer(average, np.dtype(told.dtype)))

    # --- a round ---------------------------------------------------------------------------------------------------

    def begin(
        self, record: Record, update: Update | None, entries: int, at: float = 0.0, *, over: bool = False
    ) -> None:
        """Writes down the first record of a round, its tip, and what is brought to it. The number is then used up.

        `entries` is how many a vector has, for the server too, who brings none. `at` is the time on the caller's clock,
        for those who look. A round of another session that was cut off is given up. One that is `over` need not have
        been finished: its ending is there until the new round has begun, and then nobody wants it any more.
        """
        event, standing = record.event, self._standing
        if not isinstance(event, Beginning) or event.party != self.party or record.before:
            raise ConfigError(f"this is not how a round of {self.party} begins")
        if standing.under_way and event.session == standing.session and not over:
            raise ConfigError(f"round {standing.number} is under way; finish it, or give it up, before the next")
        if event.number <= standing.number:
            raise ConfigError(f"round {event.number} is used up, for {standing.number} was begun; begin a later one")
        self._place()
        with careful(self._folder):
            file = 1 - standing.file if standing.under_way and over else standing.file
            if standing.under_way and not over:
                self._leave(at)
            self._both[file].clear(self._standing.number)
            vector = None if update is None else np.asarray(update.vector)
            kind = None if update is None or vector is None else (vector.dtype.str, float(update.weight))
            brought = msgspec.msgpack.encode((entries, kind))
            numbers = b"" if vector is None else files.octets(vector)
            places = self._parts.add(record.detached, self._held.parts)
            end = self._both[file].add(Records.start, (brought,), (numbers,), _bare(record).parts())
            self._advance(record, entries, at, file, places)
            self._end, self._staged = end, None
        self._tidy()

    def stage(self, message: Buffer) -> None:
        """Writes a long message down that is about to be delivered, and counts only if the next record is of it.

        So it may be opened in the memory that it lies in. If it is thrown away, the next one is written in its place.
        """
        with careful(self._folder):
            self._staged = None
            self._staged = memoryview(message).obj, self._records.add(self._place(), (message,), ahead=True)

    def record(self, record: Record, at: float = 0.0) -> None:
        """Writes down a further record, and its tip."""
        if not self._standing.under_way or record.before != self._standing.tip:
            raise ConfigError(f"this record does not follow the last of round {self._standing.number}")
        with careful(self._folder):
            place, parts, event, staged = self._place(), _bare(record).parts(), record.event, self._staged
            if staged is not None and isinstance(event, memoryview) and event.obj is staged[0]:
                place, parts = staged[1], (*_bare(record).head(), msgspec.msgpack.encode(None))
            places = self._parts.add(record.detached, self._held.parts)
            end = self._records.add(place, parts)
            self._advance(record, self._standing.entries, at, self._standing.file, places)
            self._end, self._staged = end, None

    def finish(
        self, number: int, state: bytes, ending: Ending, at: float = 0.0, apart: Mapping[bytes, Buffer] | None = None
    ) -> None:
        """Writes down how a round ended, and the state with its party and number, and drops the rest of it."""
        self._finish(number, state, ending, at, apart or {})

    def give_up(self, number: int, state: bytes, at: float = 0.0, apart: Mapping[bytes, Buffer] | None = None) -> None:
        """Drops a round, but for its number, and the state that was saved last with its party and number."""
        self._finish(number, state, None, at, apart or {})

    def _place(self) -> int:
        """Returns where the next record goes."""
        if not self._end:
            raise ConfigError(f"what is in {self._folder} has to be loaded before more is written")
        return self._end

    def _advance(self, record: Record, entries: int, at: float, file: int, places: dict[bytes, int]) -> None:
        """Commits a record that is on disk, and where what is long in its states is."""
        standing, event = self._standing, record.event
        if isinstance(event, Beginning):
            standing = Standing(event.number, event.session, entries, under_way=True, begun=at, file=file)
        else:
            places = self._held.parts | places  # what the state before the round has is needed until it is over
        standing = msgspec.structs.replace(standing, tip=record.digest(), records=standing.records + 1, last=at)
        state = _state_in(record)
        if state is not None:
            self._commit(standing, Held(state if len(state) <= SHORT else b"", parts=places))
        else:
            self._commit(standing, self._held)

    def _finish(
        self, number: int, state: bytes, ending: Ending | None, at: float, apart: Mapping[bytes, Buffer]
    ) -> None:
        if not self._standing.under_way or number != self._standing.number:
            raise ConfigError(f"round {number} is not under way; {self._standing.number} was begun last")
        self._place()
        with careful(self._folder):
            self._over(state, number, ending, at, self._parts.add(apart, self._held.parts))

    def _leave(self, at: float) -> None:
        """Gives up a round of another session, with the state as it was left."""
        state = self._state([] if self._held.data else self._records.pieces())
        if state is None:
            raise self._missing()
        self._over(state, self._held.owner, None, at, self._held.parts)

    def _over(
        self, state: bytes, owner: int | None, ending: Ending | None, at: float, places: dict[bytes, int]
    ) -> None:
        """Ends a round. The files of state and average are not in use while one is under way."""
        if len(state) > SHORT:
            files.write(self._long, state)
            held = Held(file=files.known(state), owner=owner, parts=places)
        else:
            held = Held(state, owner=owner, parts=places)
        told, dtype, file = [], "", Sum()
        if ending is not None:
            if ending.average is not None:
                vector = np.asarray(ending.average)
                numbers = files.octets(vector)
                files.write(self._average, numbers)
                dtype, file = vector.dtype.str, files.known(numbers)
            told = [Told.of(ending, dtype, file)]
        standing = msgspec.structs.replace(self._standing, under_way=False, tip=b"", last=at, ended=bool(told))
        self._commit(standing, held, *told)
        self._end = Records.start
        self._tidy()

    def _commit(self, standing: Standing, held: Held, *told: Told) -> None:
        changed = () if held is self._held else (held,)
        self._book.write(standing, *changed, *told)
        self._standing, self._held = standing, held

    def _tidy(self) -> None:
        """Drops what is no longer needed. What cannot be dropped now is when the folder is next loaded."""
        with suppress(OSError):
            self._drop()
            self._other.clear(self._standing.number - self._standing.under_way)
            if not self._standing.under_way:
                self._records.clear(self._standing.number)
            self._book.tidy()

    def _drop(self) -> None:
        """Cuts off what no page names."""
        if not self._standing.ended:
            files.forget(self._average)
        if not self._held.file.size:
            files.forget(self._long)
        self._parts.drop(self._held.parts.values())


def _bare(record: Record) -> Record:
    """Returns a record without what has a file of its own."""
    return msgspec.structs.replace(record, detached={})


def _decoded(record: bytes) -> Record:
    try:
        return msgspec.msgpack.decode(record, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"a record cannot be read: {error}; {RENEW}") from None


def _state_in(record: Record) -> bytes | None:
    """Returns the state after a record, if it is in it."""
    if record.state is None and isinstance(record.event, Beginning):
        return record.event.state
    return record.state


def _brought(pieces: list[Piece]) -> tuple[int, Update | None]:
    """Returns how many entries a vector has, and what was brought."""
    entries, kind = msgspec.msgpack.decode(pieces[0].data, type=tuple[int, tuple[str, float] | None])
    return entries, None if kind is None else Update(np.frombuffer(pieces[1].data, np.dtype(kind[0])), kind[1])
