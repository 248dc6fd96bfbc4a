"""Store of a party on a network: its rounds on disk, so that it can be killed at any moment and resume.

    store = RoundStore(folder, "north", "clinics")
    found = store.load(agreement.session)
    state = found.state_of(protocol)
    unfinished = found.journal is not None
    party = KeyedParticipant(agreement, identity, number=found.number, state=state, unfinished=unfinished)

A folder has an *index*, a database of short entries: the number of the last round, its session, the tip of its journal,
the state, the ending. Beside it, each in a file of its own, are the *log* of the present round (its update and its
records), the *average* that the party adopted last, a *state* that is too long for the index, and *blobs*: vectors in
a state, which are not written again as long as they do not change. The average and the state, which has its lineage,
are committed together. There are two logs, so that a server can begin a round while the previous one, which is over, is
still complete: its average then never takes a file of its own.

**Writes and crashes.** A call of a participant is on disk with two fsyncs, whatever its length: the record is appended
to the log, and then its tip replaces the previous one in one commit. A long message takes a third, because it is
written before it is opened in place (`stage`). As the contract of `runtime.round` asks, the tip is stored separately
from the records. A record names the tip before it, so the record can be written first: wherever a crash interrupts
this, the newest record is that of the tip, or follows it. A record that follows was not acted upon. It is adopted if it
is valid, with its tip written before anything is sent, and truncated otherwise. Therefore

- an older copy of the log ends before the tip, and is refused;
- an older copy of the index has a tip that several records follow, or a number below that of the last round that was
  over, which is in the header of the log, and is refused. If one record follows, nothing is lost;
- an index without logs, of whatever time, is refused: both logs have had a header since they were created;
- older copies of both, from one moment, are the folder as it was then. Only the peers can detect that, by the round.

A long message is staged before its sender is authenticated, so bytes that an adversary has chosen may follow the
records. They are never mistaken for a record: `log` says why.

**Numbers** and states continue over all sessions of a folder. A number that is used up is never begun again, also not
after a return to an earlier session: its masks follow from session and number.

**Secrets.** A seed and an update are in the log and nowhere else. They are truncated when the round is over or given
up, and earlier entries are erased from the database and its write-ahead log. Truncated bytes may stay on the disk for a
while: encrypt the disk against theft.

One process at a time has a folder open. Clocks are the caller's.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec
import numpy as np

from tacit.core.average import Ending
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, JournalError, OtherProtocol
from tacit.core.protocol import Protocol, State
from tacit.core.suite import Buffer, Party, Update, Vector
from tacit.net.store import log
from tacit.net.store.blobs import BlobFiles
from tacit.net.store.index import (
    INDEX_FILE,
    AdoptedAverage,
    StoredEnding,
    StoredRound,
    StoredState,
    StoreIndex,
    StoreOwner,
)
from tacit.net.store.log import RENEW, FileChecksum, LogEntry, RecordLog, damage_error, translate_disk_errors
from tacit.net.store.round_entries import (
    UPDATE_ENTRIES,
    decode_record,
    decode_update,
    encode_update,
    state_in,
    without_detached,
)
from tacit.net.store.store_folder import StoreFolder
from tacit.runtime.atomic_files import sync_folder
from tacit.runtime.journal import Beginning, Journal, Record

INCARNATION_BYTES, KEY_BYTES = 16, 32
SHORT_STATE = 1 << 16
"""Bytes up to which a state is in the index."""


@dataclass(frozen=True)
class ResumePoint:
    """Everything that a party resumes from."""

    party: Party
    number: int
    """Number of the last round that is used up."""
    journal: Journal | None = None
    """Journal of the interrupted round of this session, if there is one."""
    update: Update | None = None
    """Update of the interrupted round."""
    ending: Ending | None = None
    """Ending of the last round of this session, if it is over."""
    _state: bytes | None = None
    _owner: int | None = None
    _blobs: Mapping[bytes, Buffer] = field(default_factory=dict)
    _folder: Path = Path()

    def state_of(self, protocol: Protocol) -> State | None:
        """Returns the last saved state, or None; raises JournalError if it is another party's or protocol's."""
        if self._state is None:
            return None
        try:
            whose = None if self._owner is None else (self.party, self._owner)
            return protocol.decode_state(self._state, whose, self._blobs)
        except OtherProtocol as error:
            # The state protects its party in later rounds of its protocol, so the folder is renamed, never emptied.
            raise OtherProtocol(error.before, error.now, keep_folder(self._folder, error.before)) from None

    def __repr__(self) -> str:
        return f"ResumePoint({self.party}, round {self.number}{'' if self.journal is None else ', interrupted'})"


def keep_folder(folder: Path, label: str) -> str:
    """Returns the advice to keep a folder under another name and to let a new one begin."""
    return (
        f"keep {folder.name}, which protects the model in it, under another name, and start again: "
        f"mv {folder} {folder.with_name(f'{folder.stem}.{label}{folder.suffix}')}"
    )


class StoredAverage(NamedTuple):
    """The last average that a party has adopted."""

    round: int
    vector: Vector
    lineage: bytes
    """Lineage of a model that has adopted it; empty if the protocol has none."""
    is_change: bool
    """Whether it is to be added to a model, and is none itself."""


class RoundStore:
    """The folder of one party. A call that returns is on disk, and one that raises TransportError can be repeated."""

    def __init__(self, folder: str | Path, party: Party, federation: str) -> None:
        """Opens a folder, or creates it if there is none.

        Raises ConfigError if another process has it open, or if it belongs to another party or federation, and
        JournalError if it is damaged.
        """
        self._folder, self.party = Path(folder), party
        self._opened: StoreFolder | None = None
        self._open_index: StoreIndex | None = None
        with translate_disk_errors(self._folder):
            try:
                self._open(party, federation)
            except BaseException:
                self.close()
                raise

    def _open(self, party: Party, federation: str) -> None:
        self._opened = files = StoreFolder(self._folder)
        records = files.open("records"), files.open("records.other")
        self._average_file, self._state_file = files.open("average"), files.open("state")
        files.check_database()
        self._open_index = book = StoreIndex(self._folder / INDEX_FILE)
        if book.blank:
            if not all(map(RecordLog.is_unused, records)):
                raise damage_error(self._folder, "it is gone, and the logs are not")
            for folder in (self._folder, self._folder.absolute().parent):
                sync_folder(folder)
            entropy = SystemEntropy()
            made = StoreOwner(party, federation, entropy.bytes(INCARNATION_BYTES), entropy.bytes(KEY_BYTES))
            for file in records:  # before the book: where there is one, records without a head are gone
                RecordLog(file, made.incarnation, made.key).make()
            book.make(made, StoredRound(), StoredState())
        book.check()
        owner, self._round, self._saved = book.read(StoreOwner), book.read(StoredRound), book.read(StoredState)
        if (owner.party, owner.federation) != (party, federation):
            raise ConfigError(
                f"{self._folder} is of {owner.party} in {owner.federation}, not of {party} in {federation}; "
                f"give each party a folder of its own"
            )
        self._adopted = book.read(AdoptedAverage, self._adopted_by_ending(book))
        self.incarnation = owner.incarnation
        """Random identifier of this folder. A folder that replaces it has another one."""
        self._logs, self._log_end = tuple(RecordLog(file, owner.incarnation, owner.key) for file in records), 0
        if any(each.gone for each in self._logs):
            raise damage_error(self._folder, "its logs are gone, so an older copy of it could not be detected")
        self._blobs = BlobFiles(self._folder, files.open)
        self._staged: tuple[object, int] | None = None
        """A long message that is on disk already, and the offset of its end."""

    def _adopted_by_ending(self, book: StoreIndex) -> AdoptedAverage:
        """Returns the average of the last ending, for a folder of 0.2, which kept no other."""
        told = book.read(StoredEnding) if self._round.ended else None
        return AdoptedAverage() if told is None else AdoptedAverage(told.round, told.dtype, told.file)

    def close(self) -> None:
        """Closes the folder, for others to open."""
        if self._open_index is not None:
            self._open_index.close()
            self._open_index = None
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> "RoundStore":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def has_begun(self, session: bytes) -> bool:
        """Says whether the last round that was begun is of this session."""
        return self._round.session == session

    @property
    def entries(self) -> int:
        """How many entries vectors had in the last round, 0 if there was none."""
        return self._round.entries

    @property
    def folder(self) -> Path:
        """Path of the folder."""
        return self._folder

    def first_seen(self, session: bytes, party: Party, incarnation: bytes) -> bytes:
        """Returns the incarnation under which a peer was first seen in a session."""
        with translate_disk_errors(self._folder):
            return self._index.first_seen(session, party, incarnation)

    @property
    def _log(self) -> RecordLog:
        return self._logs[self._round.file]

    @property
    def _other_log(self) -> RecordLog:
        return self._logs[1 - self._round.file]

    @property
    def _index(self) -> StoreIndex:
        if self._open_index is None:
            raise ConfigError(f"{self._folder} was closed; open it again")
        return self._open_index

    # --- resuming --------------------------------------------------------------------------------------------------

    def load(self, session: bytes) -> ResumePoint:
        """Returns what to resume from in a session, and cleans up after a crash. Call it before any write.

        Raises JournalError if a round of this session was interrupted and cannot be resumed. A round of another
        session is kept until the next one is begun.
        """
        with translate_disk_errors(self._folder):
            pieces, broken = self._recover()
            round_, here = self._round, self._round.session == session
            if broken is not None and (here or not self._saved.data):
                raise broken
            state, journal, update, ending = self._state(pieces), None, None, None
            parts = self._blobs.read(self._saved.parts)
            if here and round_.under_way:
                journal = Journal([piece.data for piece in pieces[UPDATE_ENTRIES:]], round_.tip, detached=parts)
                update = decode_update(pieces)[1]
            elif here and round_.ended:
                ending = self._ending(self._index.read(StoredEnding))
            self._log_end = pieces[-1].end if pieces else RecordLog.start
            return ResumePoint(
                self.party, round_.number, journal, update, ending, state, self._saved.owner, parts, self._folder
            )

    def _recover(self) -> tuple[list[LogEntry], JournalError | None]:
        """Returns the log entries of the present round, and the error if they are damaged; drops leftovers."""
        if self._round.under_way and self._other_log.over() == self._round.number:
            # The other log may have a beginning whose tip was not written, while the previous round was over.
            pieces = self._other_log.pieces()
            if len(pieces) > UPDATE_ENTRIES:
                self._adopt_beginning(pieces, 1 - self._round.file)
        round_, over = self._round, self._log.over()
        if over is not None and over > round_.number - round_.under_way:
            raise damage_error(self._folder, f"it is an older copy, from before round {over} was over")
        pieces = self._log.pieces()
        if not round_.under_way and (over != round_.number or len(pieces) <= UPDATE_ENTRIES):
            # No entries, or leftovers of the last round, or half a beginning.
            self._log.clear(round_.number)
            pieces = []
        elif not round_.under_way:
            self._adopt_beginning(pieces, round_.file)
        else:
            try:
                self._adopt_record(pieces)
            except JournalError as error:
                return [], error
        self._log.cut(pieces[-1].end if pieces else RecordLog.start)
        self._other_log.clear(round_.number - round_.under_way)
        self._drop_unused()
        return pieces, None

    def _adopt_beginning(self, pieces: list[LogEntry], file: int) -> None:
        """Commits a beginning whose tip was not written; raises JournalError if the index is older than that."""
        record = decode_record(pieces[UPDATE_ENTRIES].data)
        event = record.event
        next_ = isinstance(event, Beginning) and event.party == self.party and event.number > self._round.number
        if not next_ or len(pieces) > UPDATE_ENTRIES + 1:
            raise damage_error(self._folder, f"it is an older copy, from before round {self._round.number + 1}")
        self._advance(record, decode_update(pieces)[0], self._round.last, file, self._blobs.found())

    def _adopt_record(self, pieces: list[LogEntry]) -> None:
        """Commits a last record whose tip was not written; raises JournalError if the records do not fit the tip."""
        round_, records = self._round, [piece.data for piece in pieces[UPDATE_ENTRIES:]]
        last = decode_record(records[-1]) if records else None
        if last is None or round_.tip not in (last.digest(), last.before):
            raise self._missing()
        Journal(records, last.digest()).read()
        if last.before == round_.tip:
            self._advance(last, round_.entries, round_.last, round_.file, self._blobs.found())

    def _missing(self) -> JournalError:
        number = self._round.number
        return JournalError(f"the records in {self._folder} are not those of round {number}; restore them, or {RENEW}")

    def _state(self, pieces: list[LogEntry]) -> bytes | None:
        """Returns the last saved state, from the index, the log or its file."""
        if self._saved.data:
            return self._saved.data
        if self._round.under_way:
            states = (state_in(decode_record(piece.data)) for piece in reversed(pieces[UPDATE_ENTRIES:]))
            return next((state for state in states if state is not None), None)
        return (
            bytes(log.read_checked(self._state_file, self._saved.file, "the state")) if self._saved.file.size else None
        )

    def _ending(self, told: StoredEnding) -> Ending:
        if not told.dtype:
            return told.ending(None)
        average = log.read_checked(self._average_file, told.file, f"the average of round {told.round}")
        return told.ending(np.frombuffer(average, np.dtype(told.dtype)))

    def load_adopted(self, lineage: bytes = b"") -> StoredAverage | None:
        """Returns the last average that was stored; None if there was none.

        An average that release 0.2 stored has the given lineage.
        """
        kept = self._adopted
        if not kept.dtype:
            return None
        with translate_disk_errors(self._folder):
            data = log.read_checked(self._average_file, kept.file, f"the average of round {kept.round}")
        vector = np.frombuffer(data, np.dtype(kept.dtype))
        return StoredAverage(kept.round, vector, kept.lineage or lineage, kept.is_change)

    # --- a round ---------------------------------------------------------------------------------------------------

    def begin(
        self, record: Record, update: Update | None, entries: int, at: float = 0.0, *, over: bool = False
    ) -> None:
        """Writes the first record of a round, its tip, and its update. The number is then used up.

        An interrupted round of another session is given up.

        Args:
            record: The record of the round's beginning.
            update: The party's update; None for the server.
            entries: The length of the vectors.
            at: The time on the caller's clock, for status displays.
            over: Whether the previous round is over without having been finished here. Its ending stays available
                until the new round has begun.
        """
        event, round_ = record.event, self._round
        if not isinstance(event, Beginning) or event.party != self.party or record.before:
            raise ConfigError(f"this is not how a round of {self.party} begins")
        if round_.under_way and event.session == round_.session and not over:
            raise ConfigError(f"round {round_.number} is under way; finish it, or give it up, before the next")
        if event.number <= round_.number:
            raise ConfigError(f"round {event.number} is used up, for {round_.number} was begun; begin a later one")
        self._next_offset()
        with translate_disk_errors(self._folder):
            file = 1 - round_.file if round_.under_way and over else round_.file
            if round_.under_way and not over:
                self._abandon_round(at)
            self._logs[file].clear(self._round.number)
            places = self._blobs.add(record.detached, self._saved.parts)
            metadata, vector = encode_update(entries, update)
            end = self._logs[file].add(RecordLog.start, (metadata,), (vector,), without_detached(record).parts())
            self._advance(record, entries, at, file, places)
            self._log_end, self._staged = end, None
        self._clean_up()

    def stage(self, message: Buffer) -> None:
        """Writes a long message that is about to be delivered. It counts only if the next record is about it.

        So it may be opened in place, in memory. If it is discarded, the next one overwrites it.
        """
        with translate_disk_errors(self._folder):
            self._staged = None
            self._staged = memoryview(message).obj, self._log.add(self._next_offset(), (message,), ahead=True)

    def record(self, record: Record, at: float = 0.0) -> None:
        """Writes another record, and its tip."""
        if not self._round.under_way or record.before != self._round.tip:
            raise ConfigError(f"this record does not follow the last of round {self._round.number}")
        with translate_disk_errors(self._folder):
            written, event, staged = without_detached(record), record.event, self._staged
            place, parts = self._next_offset(), written.parts()
            if staged is not None and isinstance(event, memoryview) and event.obj is staged[0]:
                place, parts = staged[1], (*written.head(), msgspec.msgpack.encode(None))
            places = self._blobs.add(record.detached, self._saved.parts)
            end = self._log.add(place, parts)
            self._advance(record, self._round.entries, at, self._round.file, places)
            self._log_end, self._staged = end, None

    def finish(
        self, number: int, state: bytes, ending: Ending, at: float = 0.0, apart: Mapping[bytes, Buffer] | None = None
    ) -> None:
        """Writes the ending of a round, and the state with its party and number, and drops the rest."""
        self._finish(number, state, ending, at, apart or {})

    def give_up(self, number: int, state: bytes, at: float = 0.0, apart: Mapping[bytes, Buffer] | None = None) -> None:
        """Drops a round, except its number and the last saved state with its party and number."""
        self._finish(number, state, None, at, apart or {})

    def _next_offset(self) -> int:
        """Returns the offset of the next record."""
        if not self._log_end:
            raise ConfigError(f"{self._folder} has to be loaded before anything is written")
        return self._log_end

    def _advance(self, record: Record, entries: int, at: float, file: int, places: dict[bytes, int]) -> None:
        """Commits a record that is on disk, and the file numbers of the blobs in its states."""
        round_, event = self._round, record.event
        if isinstance(event, Beginning):
            round_ = StoredRound(event.number, event.session, entries, under_way=True, begun=at, file=file)
        else:
            places = self._saved.parts | places  # blobs of the state before the round are needed until it is over
        round_ = msgspec.structs.replace(round_, tip=record.digest(), records=round_.records + 1, last=at)
        state = state_in(record)
        if state is not None:
            self._commit(round_, StoredState(state if len(state) <= SHORT_STATE else b"", parts=places))
        else:
            self._commit(round_, self._saved)

    def _finish(
        self, number: int, state: bytes, ending: Ending | None, at: float, apart: Mapping[bytes, Buffer]
    ) -> None:
        if not self._round.under_way or number != self._round.number:
            raise ConfigError(f"round {number} is not under way; {self._round.number} was begun last")
        self._next_offset()
        with translate_disk_errors(self._folder):
            self._end_round(state, number, ending, at, self._blobs.add(apart, self._saved.parts))

    def _abandon_round(self, at: float) -> None:
        """Gives up a round of another session, with its last saved state."""
        state = self._state([] if self._saved.data else self._log.pieces())
        if state is None:
            raise self._missing()
        self._end_round(state, self._saved.owner, None, at, self._saved.parts)

    def _end_round(
        self, state: bytes, owner: int | None, ending: Ending | None, at: float, places: dict[bytes, int]
    ) -> None:
        """Ends a round. The files of state and average are unused while one is under way."""
        if len(state) > SHORT_STATE:
            log.write_file(self._state_file, state)
            saved = StoredState(file=log.compute_checksum(state), owner=owner, parts=places)
        else:
            saved = StoredState(state, owner=owner, parts=places)
        told, dtype, file, adopted = [], "", FileChecksum(), self._adopted
        if ending is not None:
            if ending.average is not None:
                vector = np.asarray(ending.average)
                numbers = log.view_octets(vector)
                log.write_file(self._average_file, numbers)
                dtype, file = vector.dtype.str, log.compute_checksum(numbers)
                adopted = AdoptedAverage(ending.round, dtype, file, ending.lineage, ending.is_change)
            told = [StoredEnding.of(ending, dtype, file)]
        round_ = msgspec.structs.replace(self._round, under_way=False, tip=b"", last=at, ended=bool(told))
        self._commit(round_, saved, *told, adopted)
        self._adopted, self._log_end = adopted, RecordLog.start
        self._clean_up()

    def _commit(self, round_: StoredRound, saved: StoredState, *told: StoredEnding | AdoptedAverage) -> None:
        changed = () if saved is self._saved else (saved,)
        self._index.write(round_, *changed, *told)
        self._round, self._saved = round_, saved

    def _clean_up(self) -> None:
        """Drops what is no longer needed. What cannot be dropped now is dropped at the next load."""
        with suppress(OSError):
            self._drop_unused()
            self._other_log.clear(self._round.number - self._round.under_way)
            if not self._round.under_way:
                self._log.clear(self._round.number)
            self._index.tidy()

    def _drop_unused(self) -> None:
        """Empties files to which the index does not refer."""
        if not self._adopted.dtype:
            log.truncate_file(self._average_file)
        if not self._saved.file.size:
            log.truncate_file(self._state_file)
        self._blobs.drop(self._saved.parts.values())
