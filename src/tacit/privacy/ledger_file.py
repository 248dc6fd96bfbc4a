"""File of a ledger: its two formats, its lock, and its atomic replacement.

Version 1 has the rounds of one run. Version 2 has those of all runs on some data, a common budget, and the digest of
the data. Both are read. A ledger that version 1 can express is still written in version 1.

The lock file distinguishes the latest ledger from an older copy. It has two slots for hashes of ledgers:

    before a ledger is replaced     old new
    after it                        new new

Only one slot is written at a time, and the other one names the ledger on disk. So after a crash or power failure the
lock file accepts the ledger on disk. The first ledger is written before its lock file has hashes. A lock file of
release 0.2 contains "written" and accepts every ledger.
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
CURE = "begin a new run, or add to an older copy what it lacks: an older copy forgets what was spent since"
"""Remedy for a ledger that cannot be continued."""
OLDER = "it is an older copy; try: put the newest back"
"""Cause and remedy of a ledger that its lock file does not know."""
KEPT_RELEASES = 2
"""Number of rounds whose releases a run remembers. Repeating an earlier round, from a checkpoint, is paid for again."""
ROUNDING = 1e-9
"""Relative excess over a budget that counts as a rounding error."""
SLOT = 65
"""Bytes of a slot in a lock file: a SHA-256 hash in hexadecimal, and a newline."""
_HASH = re.compile(rb"[0-9a-f]{64}\n")


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Privacy loss of one round for each participant."""

    rho: float
    """The loss ρ of zero-concentrated differential privacy."""
    gaussian: bool = True
    """Whether the noise is Gaussian on real numbers, for which tight accountants apply."""

    @classmethod
    def of(cls, multiplier: float, times: int = 1) -> "Spent":
        """Returns the loss of `times` sums with Gaussian noise.

        `multiplier` is the standard deviation of the noise divided by the sensitivity.
        """
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
    """Payments of one run. A round with two distinct releases has two payments."""

    run: str
    events: tuple[Spent, ...] = ()
    spent: dict[Party, tuple[Span, ...]] = msgspec.field(default_factory=dict)
    releases: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Digests of the releases of the last rounds, by round. Each release was paid for once."""
    began: str = ""
    """Time of the run's first payment."""
    unit: str = ""
    """Unit of privacy: "user" or "sample"."""
    mechanism: str = ""
    """Description of the noise."""
    without_noise: bool = False
    """Whether the run has no noise. No ε bounds what it reveals, so it is counted and not added up."""

    def payments(self, party: Party) -> list[tuple[int, Spent]]:
        """Returns every payment of a party: the round and its loss."""
        spans = self.spent.get(party, ())
        return [(n, self.events[span.event]) for span in spans for n in range(span.first, span.last + 1)]

    def losses(self, party: Party) -> Iterator[tuple[Spent, int]]:
        """Yields each loss of a party with the number of times it occurred."""
        for span in self.spent.get(party, ()):
            yield self.events[span.event], span.count

    def rho_of(self, party: Party) -> float:
        """Returns the ρ that a party spent."""
        return math.fsum(event.rho * times for event, times in self.losses(party))

    @property
    def rho(self) -> float:
        """ρ of the party that spent most. Other runs may assign its samples to another party."""
        return max(map(self.rho_of, self.spent), default=0.0)

    @property
    def rounds(self) -> int:
        """Number of payments of the party with the most payments."""
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
    """Digest of the data; empty for the ledger of one run, and before the first run on some data."""
    earlier: tuple[str, ...] = ()
    """Earlier digests of the data, of the same people."""
    delta: float = 1e-5
    """The δ of the budget, and of every ε that covers several runs."""
    budget: float | None = None
    """The ε that all runs together may spend; None for no limit."""
    runs: tuple[RunRecord, ...] = ()
    digest: str = ""
    """Hash of all other fields. It has no key: it detects accidental changes and partial writes, not forgeries."""

    @property
    def rho(self) -> float:
        """ρ that all runs together have spent."""
        return math.fsum(run.rho for run in self.runs)

    @property
    def unit(self) -> str:
        """Unit of the total: "user" if every run with noise protects users, "sample" otherwise."""
        return "user" if all(run.unit == "user" for run in self.with_noise) else "sample"

    @property
    def with_noise(self) -> tuple[RunRecord, ...]:
        """The runs with noise, which ε covers."""
        return tuple(run for run in self.runs if not run.without_noise)

    @property
    def without_noise(self) -> int:
        """Number of runs without noise, which ε does not cover."""
        return len(self.runs) - len(self.with_noise)

    def epsilon_of(self, rho: float) -> float:
        """Returns the ε for some ρ at the ledger's δ."""
        return epsilon_of(rho, self.delta)

    @property
    def epsilon(self) -> float:
        """ε that all runs together have spent."""
        return self.epsilon_of(self.rho)

    def exceeds(self, rho: float) -> bool:
        """Returns whether spending another `rho` would exceed the budget."""
        return self.budget is not None and not self.epsilon_of(self.rho + rho) <= self.budget * (1 + ROUNDING)

    @property
    def left(self) -> float:
        """The largest ε that another run may spend; infinite without a budget."""
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
        """Returns the content of the file, in version 1 if that can express it."""
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
    """Returns the state of a ledger file; raises JournalError if the bytes are no ledger, or were changed."""
    try:
        header: Any = msgspec.json.decode(data)
        if not isinstance(header, dict) or header.get("kind") != KIND:
            raise JournalError(f"this file is not a ledger{where}; try: another file")
        if header.get("version") not in (1, VERSION):
            raise JournalError(
                f"this is a ledger of version {header.get('version')}, not {VERSION}{where}; try: go on with "
                f"the release that wrote it"
            )
        stored: LedgerState | _FirstFormat = (
            msgspec.json.decode(data, type=_FirstFormat)
            if header["version"] == 1
            else msgspec.json.decode(data, type=LedgerState)
        )
        whole = msgspec.json.decode(_encode_digested(stored)) == header
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"the ledger cannot be read: {error}{where}; try: {CURE}") from None
    records = (RunRecord(stored.run, stored.events, stored.spent),) if isinstance(stored, _FirstFormat) else stored.runs
    if not whole or not all(map(_is_sound, records)):
        raise JournalError(f"the ledger is damaged or incomplete{where}; try: {CURE}")
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
        raise ConfigError(
            f"the ledger cannot be read: {error.strerror} ({path}); try: give it a file that can be"
        ) from None


def load_ledger(path: Path, where: str = "", *, locked: bool = False) -> LedgerState | None:
    """Returns the state of a ledger file, or None if there is none; raises JournalError if it is an older copy.

    Args:
        path: The ledger.
        where: The location to name in errors.
        locked: Whether the caller holds its lock.
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
            raise JournalError(f"the ledger is not the newest one{where}: {OLDER}")
        fcntl.flock(lock, fcntl.LOCK_SH)  # another process may be replacing it; wait, and read again
        return load_ledger(path, where, locked=True)
    finally:
        os.close(lock)


def write_ledger(path: Path, state: LedgerState, lock: int) -> None:
    """Replaces a ledger file while the caller holds its lock. Returns when the file is on disk."""
    data, found = state.encode(), read_bytes(path)
    name = _hash_ledger(data)
    if found is not None and _read_slots(lock)[0] != _hash_ledger(found):
        _write_slot(lock, 0, _hash_ledger(found))
    if os.fstat(lock).st_size:  # an empty lock file means that no ledger was written yet
        _write_slot(lock, 1, name)
    replace_file(path, data)
    sync_folder(path.parent)
    with suppress(OSError):  # the round is recorded even if the disk has no space left for this slot
        _write_slot(lock, 0, name)


def _hash_ledger(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def _read_slots(lock: int) -> tuple[bytes, bytes]:
    """Returns the hashes in a lock file. A slot that is empty or incomplete gives empty bytes."""
    first, second = (os.pread(lock, SLOT, SLOT * number) for number in range(2))
    return first if _HASH.fullmatch(first) else b"", second if _HASH.fullmatch(second) else b""


def _write_slot(lock: int, number: int, name: bytes) -> None:
    """Writes a hash to a slot of a lock file. Returns when it is on disk."""
    if os.pwrite(lock, name, SLOT * number) != SLOT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(lock)


def lock_path(path: Path) -> Path:
    """Returns the lock file of a ledger. It is never deleted, and shows whether a ledger was ever written."""
    return path.with_name(f"{path.name}.lock")


def was_written(path: Path) -> bool:
    """Returns whether a ledger was ever written at a path, even if it was deleted since.

    If the first write is interrupted the result is False, but no round was released then.
    """
    try:
        return lock_path(path).stat().st_size > 0
    except OSError:
        return False


@contextmanager
def lock_ledger(path: Path) -> Iterator[int]:
    """Locks out other writers of a ledger; raises JournalError if it cannot be written.

    A lock belongs to a file and not to its name, and every state is a new file. So a separate lock file is used, which
    is never replaced.
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
            f"the ledger cannot be written: {error.strerror} ({path}), so no round begins; try: "
            f"free disk space, or give it a folder that exists"
        ) from None
