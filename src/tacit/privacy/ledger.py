"""Ledger of spent privacy: the rounds of each party, the privacy loss of each round, and their total.

    ledger = Ledger("scenario 4f2a", budget=8.0, delta=1e-5, path="ledger.json")
    for number in range(1, 1001):
        ledger.spend(parties, event, round=number)  # raises BudgetSpent before a round that would exceed it
        outcome = federation.average(...)

A round is recorded before its vectors leave, and is not refunded if it fails, because nobody knows who saw it. A round
number is recorded once, so a round that is resumed after a restart, with the same noise, costs nothing more. A training
loop has a ledger of all parties, and a node on a network its own.

Losses add up as ρ of zero-concentrated privacy. ε is the accountant's result for the sum: exact for Gaussian noise,
whose rounds compose to one Gaussian, and for other noise the bound that follows from ρ. Parties are accounted
separately, so a party's ε is about its own data; data that several parties hold is spent by all of them.

Accidental changes and partial writes are detected. An attacker with write access can forge a valid file or restore an
older one, so a run that stores other files also stores the result of `encode` and checks it with `covers`. A deleted
ledger leaves its lock file, which distinguishes a `lost` ledger from one that was never written.
"""

import fcntl
import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.errors import BudgetSpent, ConfigError, JournalError
from tacit.core.suite import Party
from tacit.privacy.noise import Accountant, check_positive, epsilon_of
from tacit.runtime.atomic_files import check_folder, open_private, read_own_file, replace_file, sync_folder

VERSION = 1
"""Version of the file format."""
CURE = "an older copy forgets what was spent since, so add to it what it lacks, or begin a new run"
"""Remedy for a ledger that cannot be continued."""


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
    """Index of the loss in `LedgerState.events`."""


class LedgerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a ledger file."""

    kind: str
    version: int
    run: str
    events: tuple[Spent, ...]
    spent: dict[Party, tuple[Span, ...]]
    digest: str
    """Hash of all other fields. It has no key: it detects accidental changes and partial writes, not forgeries."""

    def with_digest(self) -> "LedgerState":
        """Returns the state with its correct digest."""
        plain = msgspec.json.encode(msgspec.structs.replace(self, digest=""))
        return msgspec.structs.replace(self, digest=hashlib.sha256(plain).hexdigest())


class Ledger:
    """Spent privacy of each party, within a budget."""

    def __init__(
        self,
        run: str,
        *,
        delta: float = 1e-5,
        budget: float | None = None,
        accountant: Accountant = "zcdp",
        path: str | Path | None = None,
    ) -> None:
        """Opens the ledger of a run, or starts it if there is none at the path yet.

        `run` identifies it: the hash of a scenario, or the name of a federation. Raises JournalError for a ledger of
        another run, or one that was changed by accident or written in part.
        """
        check_positive(delta, **({} if budget is None else {"budget": budget}))
        epsilon_of(1.0, delta, accountant)  # refuses an unknown accountant now
        self.run, self.delta, self.budget, self.accountant = run, delta, budget, accountant
        self._path = None if path is None else Path(path)
        self._state = LedgerState("tacit ledger", VERSION, run, (), {}, "").with_digest()
        if self._path is not None and self._path.parent.exists():
            check_folder(self._path.parent)
        found = self._found()
        if found is not None:
            self._state = self._read(found, self._where())
        self._epsilons: dict[tuple[float, bool], float] = {}

    # --- spending ---------------------------------------------------------------------------------------------------

    def spend(self, parties: Party | Iterable[Party], event: Spent, round: int | None = None) -> None:  # noqa: A002
        """Records that parties are about to take part in a round, the next one unless its number is given.

        Raises BudgetSpent, and records nothing, if a party would exceed the budget, and JournalError if that round was
        recorded with another loss.
        """
        names = [parties] if isinstance(parties, str) else list(dict.fromkeys(parties))
        number = self._next() if round is None else round
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ConfigError(f"round {number!r} cannot be; give a whole number from 0 on, or none for the next one")
        if not isinstance(event.rho, int | float) or isinstance(event.rho, bool) or not 0 <= event.rho < math.inf:
            raise ConfigError(f"ρ = {event.rho!r} cannot be; give a number from 0 on")
        event = Spent(float(event.rho), event.gaussian)  # in the form that a file is read into
        fresh = [party for party in names if not self._paid(party, event, number)]
        if self.budget is not None:
            after = {party: self._compose([*self._events(party), (event, 1)]) for party in fresh}
            over = {party: epsilon for party, epsilon in after.items() if not epsilon <= self.budget}
            if over:
                raise BudgetSpent(over, self.budget)
        if fresh:
            self._write(self._with(fresh, event, number))

    def epsilon(self, party: Party) -> float:
        """Returns the ε that a party has spent."""
        return self._compose(self._events(party))

    def rho(self, party: Party) -> float:
        """Returns the ρ that a party has spent."""
        return math.fsum(event.rho * times for event, times in self._events(party))

    def rounds(self, party: Party) -> dict[int, Spent]:
        """Returns the rounds that a party took part in, and the loss of each."""
        spans = self._state.spent.get(party, ())
        return {n: self._state.events[span.event] for span in spans for n in range(span.first, span.last + 1)}

    @property
    def parties(self) -> tuple[Party, ...]:
        """All parties that have spent privacy."""
        return tuple(self._state.spent)

    def _next(self) -> int:
        return 1 + max((span.last for spans in self._state.spent.values() for span in spans), default=0)

    def _events(self, party: Party) -> Iterator[tuple[Spent, int]]:
        for span in self._state.spent.get(party, ()):
            yield self._state.events[span.event], span.last - span.first + 1

    def _compose(self, events: Iterable[tuple[Spent, int]]) -> float:
        every = list(events)
        rho = math.fsum(event.rho * times for event, times in every)
        gaussian = all(event.gaussian for event, _ in every)
        if (rho, gaussian) not in self._epsilons:  # most parties have the same losses
            self._epsilons[rho, gaussian] = epsilon_of(rho, self.delta, self.accountant, gaussian=gaussian)
        return self._epsilons[rho, gaussian]

    def _paid(self, party: Party, event: Spent, number: int) -> bool:
        """Returns whether a round of a party is recorded; raises JournalError if it is with another loss."""
        for span in self._state.spent.get(party, ()):
            if span.first <= number <= span.last:
                if self._state.events[span.event] != event:
                    raise JournalError(
                        f"round {number} took ρ = {self._state.events[span.event].rho:g} of {party} and cannot take "
                        f"{event.rho:g} now; rounds are paid for once, so give this one another number"
                    )
                return True
        return False

    def _with(self, parties: Iterable[Party], event: Spent, number: int) -> LedgerState:
        """Returns the state with one more round."""
        events = self._state.events if event in self._state.events else (*self._state.events, event)
        spent, kind = dict(self._state.spent), events.index(event)
        for party in parties:
            spans = spent.get(party, ())
            last = spans[-1] if spans else None
            if last is not None and (last.last + 1, last.event) == (number, kind):
                spent[party] = (*spans[:-1], Span(last.first, number, kind))
            else:
                spent[party] = (*spans, Span(number, number, kind))
        return msgspec.structs.replace(self._state, events=events, spent=spent).with_digest()

    # --- on disk ----------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Returns the content of the ledger file, to store with other files."""
        return msgspec.json.encode(self._state)

    def restore(self, data: bytes) -> None:
        """Goes on from what `encode` returned; raises JournalError if that is of another run, or not whole.

        Not if there is a file, which may know of more.
        """
        if self._path is not None:
            raise ConfigError(
                f"a ledger is kept in a file or with other things, and this one has a file{self._where()}"
            )
        self._state = self._read(data)

    def covers(self, data: bytes, parties: Iterable[Party] | None = None) -> None:
        """Raises JournalError if this ledger lacks rounds that were in it when `encode` returned that.

        A run that goes on asks so whether its ledger was deleted since, or an older one put in its place. If parties
        are named, only what they spent is looked at.
        """
        earlier = self._read(data, " (as it was kept with other things)")
        for party in earlier.spent if parties is None else parties:
            here, spans = self.rounds(party), earlier.spent.get(party, ())
            for span in spans:
                event = earlier.events[span.event]
                lacks = next((n for n in range(span.first, span.last + 1) if here.get(n) != event), None)
                if lacks is not None:
                    raise JournalError(
                        f"the ledger does not have what {party} spent in round {lacks}{self._where()}: it was deleted, "
                        f"or is an older copy; {CURE}"
                    )

    @property
    def lost(self) -> bool:
        """Whether a ledger was written at the path and is gone."""
        return self._path is not None and self._found() is None and _is_marked(_lock_of(self._path))

    def _read(self, data: bytes, where: str = "") -> LedgerState:
        try:
            header: dict[str, Any] = msgspec.json.decode(data)
            if not isinstance(header, dict) or header.get("kind") != self._state.kind:
                raise JournalError(f"this is no ledger{where}; give it a file of its own")
            if header.get("version") != VERSION:
                raise JournalError(
                    f"this is a ledger of version {header.get('version')}, not {VERSION}{where}; go on with "
                    f"the release that wrote it"
                )
            state = msgspec.json.decode(data, type=LedgerState)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"the ledger cannot be read: {error}{where}; {CURE}") from None
        if state.with_digest() != state:
            raise JournalError(f"the ledger was changed by accident or written in part{where}; {CURE}")
        if state.run != self.run:
            raise JournalError(
                f"this is the ledger of {state.run!r}, not of {self.run!r}{where}; begin a new run elsewhere"
            )
        return state

    def _where(self) -> str:
        return "" if self._path is None else f" ({self._path})"

    def _found(self) -> bytes | None:
        """Returns the content of the file, or None if there is none."""
        try:
            return None if self._path is None else read_own_file(self._path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(
                f"the ledger cannot be read: {error.strerror}{self._where()}; give it a file that can be"
            ) from None

    def _write(self, state: LedgerState) -> None:
        """Replaces the file on disk atomically."""
        if self._path is None:
            self._state = state
            return
        try:
            with _lock_file(self._path) as lock:
                if self._found() not in (None, self.encode()):
                    raise JournalError(
                        f"somebody else has written to the ledger{self._where()}; have one for each process"
                    )
                replace_file(self._path, msgspec.json.encode(state))
                self._state = state
                sync_folder(self._path.parent)
                _mark(lock)
        except OSError as error:
            raise JournalError(
                f"the ledger cannot be written: {error.strerror}{self._where()}; no round begins before it can, so "
                f"free disk space, or give it a folder that exists"
            ) from None


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _mark(lock: int) -> None:
    """Marks in the lock file that a ledger was written. A process that is killed earlier has lost none."""
    with suppress(OSError):  # the round is recorded, whether or not the disk has space for this
        if not os.fstat(lock).st_size:
            os.write(lock, b"written\n")


def _is_marked(lock: Path) -> bool:
    try:
        return lock.stat().st_size > 0
    except OSError:
        return False


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    """Locks out other writers of a file.

    A lock is on a file, not on its name, and every state is a new file: so a separate file is locked, which stays.
    """
    file = open_private(_lock_of(path))
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
