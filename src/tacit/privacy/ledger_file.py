"""File of a ledger: its two formats, its lock, and how it is replaced.

Version 1 has the rounds of one run. Version 2 has those of all runs on some data, a budget for them together, and the
data's digest. Both are read. A ledger that version 1 can express is still written in version 1.

The lock file tells the ledger that was written last from an older copy. It has two slots for hashes of ledgers:

    before a ledger is replaced     old new
    after it                        new new

Only one slot is written at a time, the other one names the ledger that is there. So a process that is killed, or a
machine without power, leaves a ledger that its lock accepts. The first ledger is written before its lock, which has no
hashes until then. A lock of release 0.2 says "written", and accepts every ledger.
"""

import errno
import fcntl
import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, JournalError
from tacit.core.suite import Party
from tacit.privacy.noise import check_positive, epsilon_of
from tacit.runtime.atomic_files import (
    check_folder,
    open_own_file,
    open_private,
    read_own_file,
    replace_file,
    sync_folder,
)

KIND = "tacit ledger"
VERSION = 2
"""Version of the file format."""
CURE = "an older copy forgets what was spent since, so add to it what it lacks, or begin a new run"
"""Remedy for a ledger that cannot be continued."""
OLDER = "it is an older copy; put the newest back"
"""Cause and remedy of a ledger that its lock file does not know."""
KEPT_RELEASES = 2
"""Rounds whose releases a run remembers. Earlier ones are in its checkpoint, and are paid for again if repeated."""
ROUNDING = 1e-9
"""Relative excess of a budget that is taken for rounding."""
SLOT = 65
"""Bytes of a slot in a lock file: a SHA-256 in hexadecimal, and the end of the line."""
_HASH = re.compile(rb"[0-9a-f]{64}\n")


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Privacy loss of one round for each participant."""

    rho: float
    """The loss ρ of zero-concentrated privacy."""
    gaussian: bool = True
    """Whether it is Gaussian noise on real numbers, for which tight accountants apply."""

    @classmethod
    def of(cls, multiplier: float, times: int = 1) -> "Spent":
        """Returns the loss of `times` sums whose Gaussian noise is a multiple of the sensitivity."""
        check_positive(0.5, multiplier=multiplier, times=times)
        return cls(times / (2 * multiplier**2))


class Span(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Consecutive rounds with equal losses."""

    first: int
    last: int
    event: int
    """Index of the loss in `RunRecord.events`."""

    @property
    def count(self) -> int:
        """Number of rounds."""
        return self.last - self.first + 1


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Payments of one run. A round that was released twice is there twice."""

    run: str
    events: tuple[Spent, ...] = ()
    spent: dict[Party, tuple[Span, ...]] = msgspec.field(default_factory=dict)
    releases: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Digests of what the last rounds released, by round. Each was paid for once."""
    began: str = ""
    """Time of the run's first payment."""
    unit: str = ""
    """Unit of privacy: "user" or "sample"."""
    mechanism: str = ""
    """Description of the noise."""
    without_noise: bool = False
    """Whether the run has no noise. No ε bounds what its results tell, so it is counted and not added up."""

    def payments(self, party: Party) -> list[tuple[int, Spent]]:
        """Returns every payment of a party: the round, and its loss."""
        spans = self.spent.get(party, ())
        return [(n, self.events[span.event]) for span in spans for n in range(span.first, span.last + 1)]

    def losses(self, party: Party) -> Iterator[tuple[Spent, int]]:
        """Yields the losses of a party, and how often each occurred."""
        for span in self.spent.get(party, ()):
            yield self.events[span.event], span.count

    def rho_of(self, party: Party) -> float:
        """Returns the ρ that a party spent."""
        return math.fsum(event.rho * times for event, times in self.losses(party))

    @property
    def rho(self) -> float:
        """The ρ of the party that spent most. Other runs may give its samples to another party."""
        return max(map(self.rho_of, self.spent), default=0.0)

    @property
    def rounds(self) -> int:
        """Number of payments of the party that paid most often."""
        return max((sum(span.count for span in spans) for spans in self.spent.values()), default=0)

    def with_payment(self, parties: Iterable[Party], event: Spent, number: int, release: str) -> "RunRecord":
        """Returns the record with one more round."""
        events = self.events if event in self.events else (*self.events, event)
        spent, kind = dict(self.spent), events.index(event)
        for party in parties:
            spans = spent.get(party, ())
            last = spans[-1] if spans else None
            if last is not None and (last.last + 1, last.event) == (number, kind):
                spent[party] = (*spans[:-1], Span(last.first, number, kind))
            else:
                spent[party] = (*spans, Span(number, number, kind))
        releases = self.releases
        if release:
            releases = {**releases, number: (*releases.get(number, ()), release)}
            releases = {n: releases[n] for n in sorted(releases)[-KEPT_RELEASES:]}
        return msgspec.structs.replace(self, events=events, spent=spent, releases=releases)


class LedgerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of a ledger file."""

    kind: str = KIND
    version: int = VERSION
    data: str = ""
    """Digest of the data; empty if the ledger is of one run, or of no data yet."""
    earlier: tuple[str, ...] = ()
    """Digests that the data of the same people had before."""
    delta: float = 1e-5
    """The δ of the budget, and of every ε over several runs."""
    budget: float | None = None
    """The ε that all runs together may spend; None without a limit."""
    runs: tuple[RunRecord, ...] = ()
    digest: str = ""
    """Hash of all other fields. It has no key: it detects accidental changes and partial writes, not forgeries."""

    @property
    def rho(self) -> float:
        """The ρ that all runs have spent together."""
        return math.fsum(run.rho for run in self.runs)

    @property
    def unit(self) -> str:
        """Unit of the total: "user" if every run with noise protects users, "sample" otherwise."""
        return "user" if all(run.unit == "user" for run in self.with_noise) else "sample"

    @property
    def with_noise(self) -> tuple[RunRecord, ...]:
        """The runs that ε is of."""
        return tuple(run for run in self.runs if not run.without_noise)

    @property
    def without_noise(self) -> int:
        """Number of recorded runs without noise, which ε does not count."""
        return len(self.runs) - len(self.with_noise)

    def epsilon_of(self, rho: float) -> float:
        """Returns the ε of some ρ at the δ of the ledger."""
        return epsilon_of(rho, self.delta)

    @property
    def epsilon(self) -> float:
        """The ε that all runs have spent together."""
        return self.epsilon_of(self.rho)

    def exceeds(self, rho: float) -> bool:
        """Says whether some more ρ would exceed the budget."""
        return self.budget is not None and not self.epsilon_of(self.rho + rho) <= self.budget * (1 + ROUNDING)

    @property
    def left(self) -> float:
        """The largest ε that one more run may spend; infinite without a budget."""
        if self.budget is None:
            return math.inf
        log = math.log(1 / self.delta)
        most = (math.sqrt(log + self.budget) - math.sqrt(log)) ** 2  # ε = ρ + 2 √(ρ log(1/δ)), solved for ρ
        return self.epsilon_of(max(most - self.rho, 0.0))

    def record_of(self, run: str) -> RunRecord | None:
        """Returns the record of a run; None if it has paid nothing yet."""
        return next((each for each in self.runs if each.run == run), None)

    def with_record(self, record: RunRecord) -> "LedgerState":
        """Returns the state with a run's record replaced or added."""
        known = self.record_of(record.run) is not None
        runs = tuple(record if each.run == record.run else each for each in self.runs)
        return msgspec.structs.replace(self, runs=runs if known else (*runs, record))

    def encode(self) -> bytes:
        """Returns the content of the file."""
        if len(self.runs) == 1 and not self.data and self.budget is None:
            record = self.runs[0]
            if record == RunRecord(record.run, record.events, record.spent):
                return _encode_digested(_FirstFormat(KIND, 1, record.run, record.events, record.spent, ""))
        return _encode_digested(msgspec.structs.replace(self, version=VERSION))


class _FirstFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a ledger file of version 1."""

    kind: str
    version: int
    run: str
    events: tuple[Spent, ...]
    spent: dict[Party, tuple[Span, ...]]
    digest: str


def _encode_digested(state: LedgerState | _FirstFormat) -> bytes:
    plain = msgspec.json.encode(msgspec.structs.replace(state, digest=""))
    return msgspec.json.encode(msgspec.structs.replace(state, digest=hashlib.sha256(plain).hexdigest()))


def decode_ledger(data: bytes, where: str = "") -> LedgerState:
    """Returns the state of a ledger file; raises JournalError if it is none, or not as it was written."""
    try:
        header: Any = msgspec.json.decode(data)
        if not isinstance(header, dict) or header.get("kind") != KIND:
            raise JournalError(f"this is no ledger{where}; give it a file of its own")
        if header.get("version") not in (1, VERSION):
            raise JournalError(
                f"this is a ledger of version {header.get('version')}, not {VERSION}{where}; go on with "
                f"the release that wrote it"
            )
        stored: LedgerState | _FirstFormat = (
            msgspec.json.decode(data, type=_FirstFormat)
            if header["version"] == 1
            else msgspec.json.decode(data, type=LedgerState)
        )
        whole = msgspec.json.decode(_encode_digested(stored)) == header
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"the ledger cannot be read: {error}{where}; {CURE}") from None
    records = (RunRecord(stored.run, stored.events, stored.spent),) if isinstance(stored, _FirstFormat) else stored.runs
    if not whole or not all(map(_is_sound, records)):
        raise JournalError(f"the ledger was changed by accident or written in part{where}; {CURE}")
    return LedgerState(runs=records) if isinstance(stored, _FirstFormat) else stored


def _is_sound(record: RunRecord) -> bool:
    spans = [span for spans in record.spent.values() for span in spans]
    return all(0 <= span.first <= span.last and 0 <= span.event < len(record.events) for span in spans)


def read_bytes(path: Path) -> bytes | None:
    """Returns the content of a ledger file, or None if there is none."""
    try:
        return read_own_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"the ledger cannot be read: {error.strerror} ({path}); give it a file that can be") from None


def load_ledger(path: Path, where: str = "", *, locked: bool = False) -> LedgerState | None:
    """Returns the state of a ledger file, or None if there is none; raises JournalError if it is an older copy.

    Args:
        path: The ledger.
        where: Its place, for errors.
        locked: Whether we hold its lock.
    """
    data = read_bytes(path)
    if data is None:
        return None
    state = decode_ledger(data, where)
    try:
        lock = open_own_file(lock_path(path))
    except FileNotFoundError:
        return state
    try:
        known = _read_slots(lock)
        if not any(known) or _hash_ledger(data) in known:
            return state
        if locked:
            raise JournalError(f"the ledger is not the one that was written last{where}: {OLDER}")
        fcntl.flock(lock, fcntl.LOCK_SH)  # somebody may have replaced it just now
        return load_ledger(path, where, locked=True)
    finally:
        os.close(lock)


def write_ledger(path: Path, state: LedgerState, lock: int) -> None:
    """Replaces a ledger file, whose lock is held; returns when it is on disk."""
    data, found = state.encode(), read_bytes(path)
    name = _hash_ledger(data)
    if found is not None and _read_slots(lock)[0] != _hash_ledger(found):
        _write_slot(lock, 0, _hash_ledger(found))
    if os.fstat(lock).st_size:  # a lock that is empty says that no ledger was written yet
        _write_slot(lock, 1, name)
    replace_file(path, data)
    sync_folder(path.parent)
    with suppress(OSError):  # the round is recorded, whether or not the disk has space for this
        _write_slot(lock, 0, name)


def _hash_ledger(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def _read_slots(lock: int) -> tuple[bytes, bytes]:
    """Returns the hashes in a lock file; an empty one for a slot that has none, or that was written in part."""
    first, second = (os.pread(lock, SLOT, SLOT * number) for number in range(2))
    return first if _HASH.fullmatch(first) else b"", second if _HASH.fullmatch(second) else b""


def _write_slot(lock: int, number: int, name: bytes) -> None:
    """Writes a hash to a lock file; returns when it is on disk."""
    if os.pwrite(lock, name, SLOT * number) != SLOT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(lock)


def lock_path(path: Path) -> Path:
    """Returns the lock file of a ledger. It stays, and says whether a ledger was ever written."""
    return path.with_name(f"{path.name}.lock")


def was_written(path: Path) -> bool:
    """Says whether a ledger was written at a path, even if it is gone. A process killed earlier has lost none."""
    try:
        return lock_path(path).stat().st_size > 0
    except OSError:
        return False


@contextmanager
def lock_ledger(path: Path) -> Iterator[int]:
    """Locks out other writers of a ledger; raises JournalError if it cannot be written.

    A lock is on a file, not on its name, and every state is a new file: so a separate file is locked, which stays.
    """
    try:
        check_folder(path.parent)
        file = open_private(lock_path(path))
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield file
            finally:
                fcntl.flock(
                    file, fcntl.LOCK_UN
                )  # a process that was forked meanwhile also has the file, and would hold the lock
        finally:
            os.close(file)
    except OSError as error:
        raise JournalError(
            f"the ledger cannot be written: {error.strerror} ({path}); no round begins before it can, so "
            f"free disk space, or give it a folder that exists"
        ) from None
