"""Ledger of spent privacy: the rounds of each party, the privacy loss of each round, and their total.

    ledger = Ledger("scenario 4f2a", budget=8.0, delta=1e-5, path="ledger.json")
    for number in range(1, 1001):
        ledger.spend(parties, event, round=number)  # raises BudgetSpent before a round that would exceed it
        outcome = federation.average(...)

A round is recorded before its vectors are sent. It is not refunded if it fails, because nobody knows who saw the
vectors. A round number is recorded once. So a round that is resumed after a restart, with the same noise, costs nothing
more. If the caller passes a digest of what the round releases, every distinct release is recorded. A training loop has
one ledger for all parties; a node on a network has its own.

Privacy belongs to data, not to a run. With `data=`, the digest of the data, the file is the ledger **of the data**: all
runs on the data pay into it, and none exceeds the budget that the data's owner set for all of them (`set_budget`).
Changed data are refused until a user states whether they are of the same people.

Losses add up as ρ of zero-concentrated differential privacy. ε is the accountant's result for the sum. It is exact for
Gaussian noise, whose rounds compose to one Gaussian; for other noise it is the bound that follows from ρ. Parties are
accounted separately, so a party's ε is about its own data; data that several parties hold is spent by all of them. Over
several runs, the party that spent most counts in each run, because another run may assign its samples to another party.

The ledger detects accidental changes and partial writes. By the hash in its lock file it also detects an older copy. An
attacker with write access can forge or restore both. So a run that stores other files also stores the result of
`encode` and checks it with `covers`. A deleted ledger leaves its lock file, which distinguishes a `lost` ledger from
one that was never written.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import chain, count
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from tacit.core.errors import BudgetSpent, ConfigError, JournalError
from tacit.core.suite import Party
from tacit.privacy.ledger_file import (
    CURE,
    LedgerState,
    RunRecord,
    Spent,
    decode_ledger,
    load_ledger,
    lock_ledger,
    read_bytes,
    was_written,
    write_ledger,
)
from tacit.privacy.noise import Accountant, check_positive, epsilon_of
from tacit.runtime.atomic_files import check_folder

__all__ = ["Ledger", "LedgerState", "People", "RunRecord", "Spent", "read_ledger", "set_budget"]

People: TypeAlias = Literal["same", "new"]
"""Origin of changed data: the same people, whose budget continues, or only new people."""


class Ledger:
    """Privacy that each party of a run has spent, within a budget, and that all runs on the same data have spent.

    >>> ledger = Ledger("my run", budget=1.0)
    >>> ledger.spend(["a", "b"], Spent.of(20.0))
    >>> round(ledger.epsilon("a"), 3), ledger.rounds("a")
    (0.241, {1: Spent(rho=0.00125, gaussian=True)})
    """

    def __init__(
        self,
        run: str,
        *,
        delta: float = 1e-5,
        budget: float | None = None,
        accountant: Accountant = "zcdp",
        path: str | Path | None = None,
        data: str | None = None,
        people: People | None = None,
        began: str = "",
        unit: str = "",
        mechanism: str = "",
    ) -> None:
        """Opens the ledger of a run, or starts it if there is no file at the path yet.

        Args:
            run: Identifies the run: the hash of a scenario, or the name of a federation.
            delta: The δ of this run.
            budget: The ε that each party may spend in this run; None for no limit.
            accountant: How rounds are composed.
            path: File of the ledger; None for a ledger in memory, which ends with the process.
            data: Digest of the data. If given, the file is the ledger of these data and has all runs on them.
            people: Whether changed data are of the same people or of new ones.
            began: Time to record for a new run.
            unit: Unit of privacy, "user" or "sample".
            mechanism: Description of the noise.

        Raises:
            JournalError: The ledger is of another run, is lost, was changed by accident, or was written in part.
            ConfigError: The ledger is of other data, and `people` is not given.
        """
        check_positive(delta, **({} if budget is None else {"budget": budget}))
        epsilon_of(1.0, delta, accountant)  # raises an error for an unknown accountant
        if people not in (None, "same", "new"):
            raise ConfigError(f'people={people!r} must be "same" or "new"')
        self.run, self.delta, self.budget, self.accountant = run, delta, budget, accountant
        self._path = None if path is None else Path(path).absolute()
        self._data, self._people = data, people
        self._mine = RunRecord(run, began=began, unit=unit, mechanism=mechanism)
        self._state = LedgerState(data=data or "", delta=delta)
        self._epsilons: dict[tuple[float, bool], float] = {}
        if self._path is not None and self._path.parent.exists():
            check_folder(self._path.parent)
        found = None if self._path is None else load_ledger(self._path, self._where())
        if found is not None:
            self._adopt(found)
        elif data is not None and self.lost:
            raise JournalError(f"{self._path} is missing, and rounds were charged to it; try: restore it")

    def _adopt(self, state: LedgerState) -> None:
        """Continues from a state read from the file; raises an error if it is of another run, or of other data."""
        if self._data is None:
            known = {each.run for each in state.runs}
            if state.data or known - {self.run}:
                name = f"data {state.data[:16]}" if state.data else next(iter(known))
                raise JournalError(
                    f"this is the ledger of {name!r}, not of {self.run!r}{self._where()}; try: "
                    "begin a new run in another folder"
                )
        if self._people == "new" and state.runs and self._data in (state.data, *state.earlier):
            raise ConfigError(f"the ledger already has these data{self._where()}; try: leave out --new-people")
        self._state = self._with_data(state)
        self._mine = self._state.record_of(self.run) or self._mine

    def _with_data(self, state: LedgerState) -> LedgerState:
        """Returns the state for the present data; raises ConfigError if the data changed and `people` is not given."""
        data = self._data
        if data is None:
            return state
        if data == state.data or data in state.earlier or not (state.data or state.runs):
            return state if state.data else msgspec.structs.replace(state, data=data)
        if self._people == "same":
            earlier = (*state.earlier, *([state.data] if state.data else []))
            return msgspec.structs.replace(state, data=data, earlier=earlier)
        if self._people == "new":
            return LedgerState(data=data, delta=state.delta, budget=state.budget)
        whose = f"data {state.data[:16]}, not of {data[:16]}" if state.data else "a run that names no data"
        raise ConfigError(
            f'this ledger belongs to {whose}{self._where()}; try: --same-people (people="same") if these '
            f'data are of the same people, or --new-people (people="new") if all of them are new'
        )

    # --- spending ---------------------------------------------------------------------------------------------------

    def spend(
        self,
        parties: Party | Iterable[Party],
        event: Spent,
        round: int | None = None,  # noqa: A002
        release: str = "",
    ) -> None:
        """Records that parties are about to take part in a round. Call it before the round.

        Args:
            parties: A party, or several.
            event: The privacy loss of the round.
            round: The number of the round; None for the next one.
            release: Digest of what the round releases. If given, each distinct release of a round is recorded.

        Raises:
            BudgetSpent: A party, or all runs together, would exceed a budget. Nothing is recorded.
            JournalError: The round is recorded already, with another loss.
        """
        names = [parties] if isinstance(parties, str) else list(dict.fromkeys(parties))
        number = self._next() if round is None else round
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ConfigError(f"round must be a whole number of at least 0, or None for the next round, not {number!r}")
        if not isinstance(event.rho, int | float) or isinstance(event.rho, bool) or not 0 <= event.rho < math.inf:
            raise ConfigError(f"ρ must be a number of at least 0, not {event.rho!r}")
        event = Spent(float(event.rho), event.gaussian)  # in the form that a file is read into
        fresh = [party for party in names if not self._paid(party, event, number, release)]
        if self.budget is not None:
            after = {party: self._compose([*self._mine.losses(party), (event, 1)]) for party in fresh}
            over = {party: epsilon for party, epsilon in after.items() if not epsilon <= self.budget}
            if over:
                raise BudgetSpent(over, self.budget)
        if fresh:
            self._write(self._mine.with_payment(fresh, event, number, release))

    def record_without_noise(self) -> None:
        """Records that this run has no noise. Call it before the run. Raises BudgetSpent if the data have a budget.

        No ε bounds what such a run reveals. So it is counted as a run without noise, and not added to ε.
        """
        if not self._mine.without_noise:
            self._write(msgspec.structs.replace(self._mine, without_noise=True))

    def check_plan(self, event: Spent, rounds: int) -> None:
        """Raises BudgetSpent if that many more rounds would exceed the budget of all runs on the data.

        Each round is checked again when it is recorded, because other runs may spend in the meantime.
        """
        planned = event.rho * rounds
        if self._state.exceeds(planned):
            raise PlanExceeds(self._state, planned, self._where())

    def epsilon(self, party: Party) -> float:
        """Returns the ε that a party has spent in this run."""
        return self._compose(self._mine.losses(party))

    def rho(self, party: Party) -> float:
        """Returns the ρ that a party has spent in this run."""
        return self._mine.rho_of(party)

    def rounds(self, party: Party) -> dict[int, Spent]:
        """Returns the rounds of this run that a party took part in, and the loss of each."""
        return dict(self._mine.payments(party))

    @property
    def parties(self) -> tuple[Party, ...]:
        """All parties that have spent privacy in this run."""
        return tuple(self._mine.spent)

    @property
    def path(self) -> Path | None:
        """The file; None for a ledger in memory."""
        return self._path

    @property
    def state(self) -> LedgerState:
        """All runs of the ledger, as of this run's last payment."""
        return self._state

    def _next(self) -> int:
        return 1 + max((span.last for spans in self._mine.spent.values() for span in spans), default=0)

    def _compose(self, events: Iterable[tuple[Spent, int]]) -> float:
        every = list(events)
        rho = math.fsum(event.rho * times for event, times in every)
        gaussian = all(event.gaussian for event, _ in every)
        if (rho, gaussian) not in self._epsilons:  # most parties have the same losses
            self._epsilons[rho, gaussian] = epsilon_of(rho, self.delta, self.accountant, gaussian=gaussian)
        return self._epsilons[rho, gaussian]

    def _paid(self, party: Party, event: Spent, number: int, release: str) -> bool:
        """Returns whether a release is already recorded for a party; raises JournalError if its loss was different."""
        if release and release not in self._mine.releases.get(number, ()):
            return False
        for span in self._mine.spent.get(party, ()):
            if span.first <= number <= span.last:
                if self._mine.events[span.event] != event:
                    raise JournalError(
                        f"round {number} was charged ρ = {self._mine.events[span.event].rho:g} of {party} and cannot "
                        f"be charged {event.rho:g} "
                        "now; try: another round number"
                    )
                return True
        return False

    # --- on disk ----------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Returns this run's payments as bytes, to store with other files. Without `data`, it is the file's content."""
        if self._data is None:
            return self._state.with_record(self._mine).encode()
        return LedgerState(runs=(self._mine,)).encode()

    def restore(self, data: bytes) -> None:
        """Continues from the result of `encode`; raises JournalError if it is of another run, or incomplete.

        A ledger with a file cannot be restored, because the file may have later payments.
        """
        if self._path is not None:
            raise ConfigError(
                f"a ledger is kept in a file or with other things, and this one has a file{self._where()}"
            )
        self._mine = self._decode_record(data)
        self._state = self._state.with_record(self._mine)

    def covers(self, data: bytes, parties: Iterable[Party] | None = None) -> None:
        """Raises JournalError if this ledger lacks payments that a result of `encode` has.

        A run calls it when it resumes, to find out whether its ledger was deleted or replaced by an older one. With
        `parties`, only their payments are compared.
        """
        earlier = self._decode_record(data, " (as it was kept with other things)")
        for party in earlier.spent if parties is None else parties:
            lacks = Counter(earlier.payments(party)) - Counter(self._mine.payments(party))
            if lacks:
                number = min(number for number, _ in lacks)
                raise JournalError(
                    f"the ledger does not have what {party} spent in round {number}{self._where()}: it was deleted, "
                    f"or is an older copy; try: {CURE}"
                )

    def take_over(self, data: bytes) -> None:
        """Records this run's payments from an earlier file, if it has none here yet. The budget is not checked."""
        earlier = self._decode_record(data, " (of an earlier release)")
        if earlier.spent and not self._mine.spent:
            self._write(msgspec.structs.replace(self._mine, events=earlier.events, spent=earlier.spent), checked=False)

    def _decode_record(self, data: bytes, where: str = "") -> RunRecord:
        """Returns this run's record from a result of `encode`; raises JournalError if that is of another run."""
        state = decode_ledger(data, where)
        record = state.record_of(self.run)
        if record is None and state.runs:
            raise JournalError(
                f"this is the ledger of {state.runs[0].run!r}, not of {self.run!r}{where}; try: "
                "begin a new run in another folder"
            )
        return record or RunRecord(self.run)

    @property
    def lost(self) -> bool:
        """Whether a ledger was written at the path and no longer exists."""
        return self._path is not None and read_bytes(self._path) is None and was_written(self._path)

    def _where(self) -> str:
        return "" if self._path is None else f" ({self._path})"

    def _write(self, record: RunRecord, *, checked: bool = True) -> None:
        """Replaces this run's record in the file, within the budget of all runs, while holding the lock."""
        with nullcontext(-1) if self._path is None else lock_ledger(self._path) as lock:
            state, found = self._latest()
            if checked and record.without_noise and state.budget is not None:
                raise PlanExceeds(state, math.inf, self._where())
            if checked and state.exceeds(record.rho - self._mine.rho):
                after = state.epsilon_of(state.rho + record.rho - self._mine.rho)
                raise BudgetSpent({"all runs on these data": after}, state.budget or 0.0)
            state = state.with_record(record)
            if self._path is not None:
                if found is not None and found.data != state.data and state.data not in found.earlier:
                    self._set_aside(found)
                write_ledger(self._path, state, lock)
            self._state, self._mine = state, record

    def _latest(self) -> tuple[LedgerState, LedgerState | None]:
        """Returns the present state for these data, and the content of the file; None for a missing file."""
        found = None if self._path is None else load_ledger(self._path, self._where(), locked=True)
        if found is None:
            if self._data is not None and self.lost:
                raise JournalError(f"{self._path} is missing, and rounds were charged to it; try: restore it")
            return self._state, None
        mine = found.record_of(self.run)
        others = self._data is None and len(found.runs) > 1
        if others or (mine is None and self._mine.spent) or (mine is not None and mine != self._mine):
            raise JournalError(
                f"another process has written to the ledger{self._where()}; try: one ledger for each process"
            )
        return self._with_data(found), found

    def _set_aside(self, found: LedgerState) -> None:
        """Keeps a copy of a ledger whose people's data were replaced, beside the new ledger."""
        if self._path is None or self._people != "new" or not found.runs:
            return
        stem = f"{self._path.stem}-{found.data[:8] or 'earlier'}"
        for name in chain([stem], (f"{stem}-{number}" for number in count(2))):
            try:
                os.link(self._path, self._path.with_name(f"{name}{self._path.suffix}"))
            except FileExistsError:
                continue
            return


class PlanExceeds(BudgetSpent):
    """A run was not started, because its rounds would exceed the budget of its data."""

    def __init__(self, state: LedgerState, planned: float, where: str = "") -> None:
        after, alone = state.epsilon_of(state.rho + planned), state.epsilon_of(planned)
        self.left = state.left
        """The largest ε that one more run may spend."""
        super().__init__(
            {"all runs on these data": after},
            state.budget or 0.0,
            f"this run would spend ε = {alone:.4g}, and {self.left:.4g} is left of the budget of {state.budget:g} at "
            f"δ = {state.delta:g}{where}",
            remedy=f"plan for ε = {self.left:.4g} or less",
        )


def read_ledger(path: str | Path) -> LedgerState:
    """Returns the content of a ledger file; raises ConfigError if there is none, and JournalError if it is damaged.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/ledger.json"
    ...     Ledger("my run", path=path).spend(["a", "b"], Spent.of(20.0))
    ...     round(read_ledger(path).epsilon, 3)
    0.241
    """
    state = load_ledger(Path(path), f" ({path})")
    if state is None:
        gone = " any more, though one was written" if was_written(Path(path)) else ""
        raise ConfigError(f"there is no ledger {path}{gone}; try: give the ledger file that the run named")
    return state


def set_budget(path: str | Path, budget: float, delta: float | None = None) -> LedgerState:
    """Sets the ε that all runs on some data may spend together, and returns the new state.

    It may be called before the first run.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     set_budget(f"{folder}/ledger.json", 8.0).budget
    8.0

    Args:
        path: File of the ledger.
        budget: The ε for all runs.
        delta: The δ of the budget; None to keep the present one.
    """
    check_positive(delta or 0.5, budget=budget)
    place = Path(path).absolute()
    with lock_ledger(place) as lock:
        found = load_ledger(place, f" ({path})", locked=True)
        if found is None and was_written(place):
            raise JournalError(f"{path} is missing, and rounds were charged to it; try: restore it")
        state = LedgerState() if found is None else found
        state = msgspec.structs.replace(state, budget=float(budget), delta=delta or state.delta)
        write_ledger(place, state, lock)
    return state
