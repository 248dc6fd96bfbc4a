"""Place of a training run's ledger: beside the data that it is of, or in the folder of the run.

| data | ledger |
| --- | --- |
| a folder of your own (`data.folder`) | `ledger.json` in that folder |
| samples that are given in Python (`data=`) | the file that `ledger=` names; without one the run is refused |
| a named public set, such as digits | `ledger.json` in the folder of the run, unless `ledger=` names a file |
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from time import gmtime, strftime

from tacit.core.average import format_count
from tacit.core.errors import ConfigError, JournalError
from tacit.core.suite import Party
from tacit.learn.data.samples import Dataset
from tacit.learn.scenario import Privacy, Scenario
from tacit.learn.training.run_folder import LEDGER
from tacit.net.membership.identity import file_stem
from tacit.privacy import Ledger, People, PlanExceeds, Spent, read_ledger

NOISE_LABEL = ", noise "
"""What stands before the digest of the noise key at the end of a run's name. A key is of one run."""


@dataclass(frozen=True)
class LedgerPlace:
    """File of a ledger, and whether it is that of the data or of one run."""

    path: Path | None = None
    """The file; None for a ledger that ends with the run."""
    of_data: bool = False
    people: People | None = None
    """Whose data changed data are, if somebody said so."""

    def open(self, run: str, privacy: Privacy, data: Dataset, mechanism: str) -> Ledger:
        """Opens the ledger for a run, or starts it."""
        ledger = Ledger(
            run,
            delta=privacy.delta,
            budget=privacy.budget,
            accountant=privacy.accountant,
            path=self.path,
            data=data.source_digest if self.of_data else None,
            people=self.people,
            began=strftime("%Y-%m-%dT%H:%M:%SZ", gmtime()),
            unit=privacy.unit,
            mechanism=mechanism,
        )
        _, named, key = run.rpartition(NOISE_LABEL)
        for other in ledger.state.runs:
            if named and other.run != run and other.run.endswith(f"{named}{key}"):
                raise JournalError(
                    f"this is the ledger of {other.run!r}, not of {run!r} ({self.path}); begin a new run elsewhere"
                )
        return ledger


def choose_ledger(
    scenario: Scenario, folder: Path, given: str | Path | None, people: People | None, *, own_data: bool
) -> LedgerPlace:
    """Returns where the ledger of a run is, by what its data are; raises ConfigError if nobody says."""
    if given is not None:
        return LedgerPlace(Path(given), True, people)
    if own_data:
        raise ConfigError(
            "what these data spend is kept in a file of theirs; name it (ledger=), the same one for every run on them"
        )
    if scenario.data.folder is not None:
        return LedgerPlace(scenario.data.place / LEDGER, True, people)
    if people is not None:
        raise ConfigError("people= is about the ledger of your own data, and this run has none; leave it out")
    return LedgerPlace(folder / LEDGER)


def place_beside_data(scenario: Scenario) -> LedgerPlace:
    """Returns the ledger in the data's own folder; for a named public set, one that ends with the run."""
    return LedgerPlace() if scenario.data.folder is None else LedgerPlace(scenario.data.place / LEDGER, True)


def choose_node_ledger(
    scenario: Scenario, folder: Path, me: Party, given: str | Path | None, people: People | None, *, own_data: bool
) -> LedgerPlace:
    """Returns where the ledger of a party is. In a folder with samples of several parties it has the party's name."""
    found = choose_ledger(scenario, folder, given, people, own_data=own_data)
    if given is None and found.of_data and len(list(scenario.data.place.glob("*.npz"))) > 1:
        return replace(found, path=scenario.data.place / f"{file_stem(me)}.{LEDGER}")
    return found


def refuse_without_noise(place: LedgerPlace) -> None:
    """Raises BudgetSpent for a run without noise on data that have a budget, which nothing would be left of."""
    if place.of_data and place.path is not None and place.path.exists():
        state = read_ledger(place.path)
        if state.budget is not None:
            raise PlanExceeds(state, math.inf, f" ({place.path})")


def describe_total(ledger: Ledger | None, place: LedgerPlace) -> tuple[str, ...]:
    """Returns a note on what all runs on some data have spent together."""
    if ledger is None or not place.of_data:
        return ()
    state = ledger.state
    return (
        f"{format_count(len(state.runs), 'run')} on these data spent ε = {state.epsilon:.4g} together, "
        f"per {state.unit} at δ = {state.delta:g} ({place.path})",
    )


def check_planned_rounds(ledger: Ledger, event: Spent, rounds: int) -> None:
    """Raises BudgetSpent if the rounds of a run that are not paid for yet exceed the budget of its data."""
    paid = max((len(ledger.rounds(party)) for party in ledger.parties), default=0)
    ledger.check_plan(event, max(rounds - paid, 0))


def describe_mechanism(scenario: Scenario, sigma: float, honest: int) -> str:
    """Returns a short description of a run's noise, for its ledger."""
    if scenario.privacy is None:
        return ""
    counted = f", noise of {honest} counted" if scenario.privacy.noise == "distributed" else ""
    return f"{scenario.privacy.noise} noise, σ = {sigma:.4g}, {scenario.protocol['name']}{counted}"
