"""Store of a party on a network: its rounds on disk, so that it can be killed at any moment and resume.

    store = RoundStore(folder, "north", "clinics")
    found = store.load(agreement.session)
    state = found.state_of(protocol)
    unfinished = found.journal is not None
    party = KeyedParticipant(agreement, identity, number=found.number, state=state, unfinished=unfinished)

A folder has an *index*, a database of short entries: the number of the last round, its session, the tip of its journal,
the state, the ending. Beside it are files: the *log* of the present round (its update and its records), the *average*
that the party adopted last, a *state* that is too long for the index, and *blobs*, which are vectors in a state that
are not written again while they do not change. The average and the state, which has its lineage, are committed
together. There are two logs, so that a server can begin a round while the previous one, which is over, is still on
disk. So its average never needs a file of its own.

**Writes and crashes.** A call of a participant is on disk after two fsyncs, whatever its length: the record is appended
to the log, and then one commit replaces the previous tip by the new one. A long message takes a third fsync, because it
is written before it is opened in place (`stage`). As the contract of `runtime.round` requires, the tip is stored
separately from the records. A record names the tip before it, so the record can be written first. Wherever a crash
interrupts this, the newest record is that of the tip, or the one that follows it. No action was performed for a record
that follows. It is adopted if it is valid, and its tip is written before anything is sent; otherwise it is truncated.
Therefore

- an older copy of the log ends before the tip, and is refused;
- an older copy of the index has a tip that several records follow, or a number below that of the last finished round in
  the header of the log, and is refused. If one record follows, nothing is lost;
- an index without logs, however old, is refused: both logs have had a header since they were created;
- older copies of both, from the same moment, are the folder as it was then. Only the peers can detect that, by the
  round number.

A long message is staged before its sender is authenticated. So bytes chosen by an adversary may follow the records.
They are never mistaken for a record, for the reason given in `log`.

**Numbers** and states continue across all sessions of a folder. A number that is used up is never begun again, even
after a return to an earlier session, because its masks are derived from session and number.

**Secrets.** A seed and an update are stored in the log only. They are truncated when the round is over or given up, and
earlier entries are erased from the database and its write-ahead log. Truncated bytes may stay on the disk for a while:
encrypt the disk against theft.

Only one process at a time can open a folder. Times are given by the caller.
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
from tacit.net.store.blobs import BlobFiles
from tacit.net.store.disk_errors import RENEW, damage_error, translate_disk_errors
from tacit.net.store.index import (
    INDEX_FILE,
    AdoptedAverage,
    StoredEnding,
    StoredRound,
    StoredState,
    StoreIndex,
    StoreOwner,
)
from tacit.net.store.record_log import LogEntry, RecordLog
from tacit.net.store.round_entries import (
    UPDATE_ENTRIES,
    decode_record,
    decode_update,
    encode_update,
    state_in,
    without_detached,
)
from tacit.net.store.store_folder import StoreFolder
from tacit.net.store.vector_files import (
    FileChecksum,
    compute_checksum,
    read_checked,
    truncate_file,
    view_octets,
    write_file,
)
from tacit.runtime.atomic_files import sync_folder
from tacit.runtime.journal import Beginning, Journal, Record

INCARNATION_BYTES, KEY_BYTES = 16, 32
SHORT_STATE = 1 << 16
"""Most bytes of a state that is stored in the index."""


@dataclass(frozen=True)
class ResumePoint:
    """Everything that a party needs to resume."""

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
    """Lineage of a model that adopts it; empty if the protocol signs none."""
    is_change: bool
    """Whether the vector is a change to add to a model. Otherwise it is a model."""


class RoundStore:
    """The folder of one party. Data is on disk when a call returns. After a TransportError, repeat the call."""

    def __init__(self, folder: str | Path, party: Party, federation: str) -> None:
        """Opens a folder, or creates it if there is none.

        Raises ConfigError if another process has it open, or if it belongs to another party or federation. Raises
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
                raise damage_error(self._folder, "the index is missing, but the logs are there")
            for folder in (self._folder, self._folder.absolute().parent):
                sync_folder(folder)
            entropy = SystemEntropy()
            made = StoreOwner(party, federation, entropy.bytes(INCARNATION_BYTES), entropy.bytes(KEY_BYTES))
            for file in records:  # before the index, because an index with headerless logs means that these are lost
                RecordLog(file, made.incarnation, made.key).make()
            book.make(made, StoredRound(), StoredState())
        book.check()
        owner, self._round, self._saved = book.read(StoreOwner), book.read(StoredRound), book.read(StoredState)
        if (owner.party, owner.federation) != (party, federation):
            raise ConfigError(
                f"{self._folder} is of {owner.party} in {owner.federation}, not of {party} in {federation}; try: "
                f"give each party a folder of its own"
            )
        self._adopted = book.read(AdoptedAverage, self._adopted_by_ending(book))
        self.incarnation = owner.incarnation
        """Random identifier of this folder. A folder that replaces it has a different one."""
        self._logs, self._log_end = tuple(RecordLog(file, owner.incarnation, owner.key) for file in records), 0
        if any(each.gone for each in self._logs):
            raise damage_error(self._folder, "its logs are gone, so an older copy of it could not be detected")
        self._blobs = BlobFiles(self._folder, files.open)
        self._staged: tuple[object, int] | None = None
        """The object of a long message that is already on disk, and the offset after it."""

    def _adopted_by_ending(self, book: StoreIndex) -> AdoptedAverage:
        """Returns the average of the last ending, for a folder of release 0.2, which stored no other average."""
        told = book.read(StoredEnding) if self._round.ended else None
        return AdoptedAverage() if told is None else AdoptedAverage(told.round, told.dtype, told.file)

    def close(self) -> None:
        """Closes the folder, so that another process can open it."""
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
        """Returns whether the last round that was begun is of this session."""
        return self._round.session == session

    @property
    def entries(self) -> int:
        """Length of the vectors in the last round; 0 if there was none."""
        return self._round.entries

    @property
    def folder(self) -> Path:
        """Path of the folder."""
        return self._folder

    def first_seen(self, session: bytes, party: Party, incarnation: bytes) -> bytes:
        """Returns the incarnation with which a peer was first seen in a session."""
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
            raise ConfigError(f"{self._folder} was closed; try: open it again")
        return self._open_index

    # --- resuming --------------------------------------------------------------------------------------------------

    def load(self, session: bytes) -> ResumePoint:
        """Returns the data to resume from in a session, and cleans up after a crash. Call it before any write.

        Raises JournalError if a round of this session was interrupted and cannot be resumed. A round of another
        session is kept until the next round is begun.
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
        """Drops leftovers. Returns the log entries of the present round, and the error if they are damaged."""
        if self._round.under_way and self._other_log.over() == self._round.number:
            # The other log may contain a new round whose tip was not committed, while the previous round was over.
            pieces = self._other_log.pieces()
            if len(pieces) > UPDATE_ENTRIES:
                self._adopt_beginning(pieces, 1 - self._round.file)
        round_, over = self._round, self._log.over()
        if over is not None and over > round_.number - round_.under_way:
            raise damage_error(self._folder, f"the folder is an older copy, from before round {over} ended")
        pieces = self._log.pieces()
        if not round_.under_way and (over != round_.number or len(pieces) <= UPDATE_ENTRIES):
            # The log is empty, has leftovers of the last round, or has an incomplete first record.
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
        """Commits the first record of a round whose tip was not written; raises JournalError for an older index."""
        record = decode_record(pieces[UPDATE_ENTRIES].data)
        event = record.event
        next_ = isinstance(event, Beginning) and event.party == self.party and event.number > self._round.number
        if not next_ or len(pieces) > UPDATE_ENTRIES + 1:
            raise damage_error(self._folder, f"the folder is an older copy, from before round {self._round.number + 1}")
        self._advance(record, decode_update(pieces)[0], self._round.last, file, self._blobs.found())

    def _adopt_record(self, pieces: list[LogEntry]) -> None:
        """Commits a last record whose tip was not written; raises JournalError if the records do not match the tip."""
        round_, records = self._round, [piece.data for piece in pieces[UPDATE_ENTRIES:]]
        last = decode_record(records[-1]) if records else None
        if last is None or round_.tip not in (last.digest(), last.before):
            raise self._missing()
        Journal(records, last.digest()).read()
        if last.before == round_.tip:
            self._advance(last, round_.entries, round_.last, round_.file, self._blobs.found())

    def _missing(self) -> JournalError:
        number = self._round.number
        return JournalError(
            f"the records in {self._folder} are not those of round {number}; try: restore them, or {RENEW}"
        )

    def _state(self, pieces: list[LogEntry]) -> bytes | None:
        """Returns the last saved state, from the index, the log or its file."""
        if self._saved.data:
            return self._saved.data
        if self._round.under_way:
            states = (state_in(decode_record(piece.data)) for piece in reversed(pieces[UPDATE_ENTRIES:]))
            return next((state for state in states if state is not None), None)
        return bytes(read_checked(self._state_file, self._saved.file, "the state")) if self._saved.file.size else None

    def _ending(self, told: StoredEnding) -> Ending:
        if not told.dtype:
            return told.ending(None)
        average = read_checked(self._average_file, told.file, f"the average of round {told.round}")
        return told.ending(np.frombuffer(average, np.dtype(told.dtype)))

    def load_adopted(self, lineage: bytes = b"") -> StoredAverage | None:
        """Returns the last average that was stored; None if there was none.

        An average that release 0.2 stored has the given lineage.
        """
        kept = self._adopted
        if not kept.dtype:
            return None
        with translate_disk_errors(self._folder):
            data = read_checked(self._average_file, kept.file, f"the average of round {kept.round}")
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
            raise ConfigError(f"a round of {self.party} cannot begin with this record")
        if round_.under_way and event.session == round_.session and not over:
            raise ConfigError(f"round {round_.number} is in progress; try: finish or abandon it before the next one")
        if event.number <= round_.number:
            raise ConfigError(
                f"round {event.number} cannot begin, because round {round_.number} was begun; try: a later number"
            )
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
        self._clean_up(erase=round_.under_way)

    def stage(self, message: Buffer) -> None:
        """Writes a long message to disk before it is delivered, so that it may be opened in place, in memory.

        It counts only if the next record refers to it. If it is discarded, the next message overwrites it.
        """
        with translate_disk_errors(self._folder):
            self._staged = None
            self._staged = memoryview(message).obj, self._log.add(self._next_offset(), (message,), ahead=True)

    def record(self, record: Record, at: float = 0.0) -> None:
        """Writes another record, and commits its tip."""
        if not self._round.under_way or record.before != self._round.tip:
            raise ConfigError(f"this record does not follow the last record of round {self._round.number}")
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
        """Writes the ending of a round, and the state with its party and number. Drops all other data of the round."""
        self._finish(number, state, ending, at, apart or {})

    def give_up(self, number: int, state: bytes, at: float = 0.0, apart: Mapping[bytes, Buffer] | None = None) -> None:
        """Drops a round, except its number, and the last saved state with its party and number."""
        self._finish(number, state, None, at, apart or {})

    def _next_offset(self) -> int:
        """Returns the offset of the next record."""
        if not self._log_end:
            raise ConfigError(f"{self._folder} has to be loaded before anything is written")
        return self._log_end

    def _advance(self, record: Record, entries: int, at: float, file: int, places: dict[bytes, int]) -> None:
        """Commits a record that is on disk, with the file numbers of the blobs in its states."""
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
            raise ConfigError(
                f"round {number} is not in progress; the last round that was begun is {self._round.number}"
            )
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
        """Ends a round. The files of state and average are not in use while a round is in progress."""
        if len(state) > SHORT_STATE:
            write_file(self._state_file, state)
            saved = StoredState(file=compute_checksum(state), owner=owner, parts=places)
        else:
            saved = StoredState(state, owner=owner, parts=places)
        told, dtype, file, adopted = [], "", FileChecksum(), self._adopted
        if ending is not None:
            if ending.average is not None:
                vector = np.asarray(ending.average)
                numbers = view_octets(vector)
                write_file(self._average_file, numbers)
                dtype, file = vector.dtype.str, compute_checksum(numbers)
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

    def _clean_up(self, *, erase: bool = True) -> None:
        """Drops data that is no longer needed. If that fails now, it is repeated at the next load.

        Args:
            erase: Whether to erase earlier entries of the index, too. After a round that was cleaned up when it ended
                there are none but the state before the next round, which is erased when that round ends.
        """
        with suppress(OSError):
            self._drop_unused()
            self._other_log.clear(self._round.number - self._round.under_way)
            if not self._round.under_way:
                self._log.clear(self._round.number)
            if erase:
                self._index.tidy()

    def _drop_unused(self) -> None:
        """Empties files to which the index does not refer."""
        if not self._adopted.dtype:
            truncate_file(self._average_file)
        if not self._saved.file.size:
            truncate_file(self._state_file)
        self._blobs.drop(self._saved.parts.values())
