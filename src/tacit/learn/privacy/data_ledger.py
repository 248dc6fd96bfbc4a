"""Location of a training run's ledger: with the data that it accounts for, or in the folder of the run.

| data | ledger | | --- | --- | | the user's own folder (`data.folder`) | `ledger.json` in that folder; a node's may be
`NAME.ledger.json` | | samples given in Python (`data=`) | the file given as `ledger=`; without one the run is refused |
| a named public set, such as digits | `ledger.json` in the folder of the run, or the file given as `ledger=` |
"""

import math
from dataclasses import dataclass
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
from tacit.privacy.ledger_file import was_written

NOISE_LABEL = ", noise "
"""Separates the digest of the noise key from the rest of a run's name. Each run has its own key."""


@dataclass(frozen=True)
class LedgerPlace:
    """File of a ledger, and whether the ledger belongs to the data or to one run."""

    path: Path | None = None
    """The file; None for a ledger in memory, which ends with the run."""
    of_data: bool = False
    people: People | None = None
    """The people whose data the changed data are, if the caller said so."""

    def open(self, run: str, privacy: Privacy, data: Dataset, mechanism: str) -> Ledger:
        """Opens or starts the ledger for a run."""
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
                    f"this is the ledger of {other.run!r}, not of {run!r} ({self.path}); try: begin a new run "
                    "in another folder"
                )
        return ledger


def choose_ledger(
    scenario: Scenario, folder: Path, given: str | Path | None, people: People | None, *, own_data: bool
) -> LedgerPlace:
    """Returns the location of a run's ledger, which depends on its data; raises ConfigError if it is not determined."""
    if own_data:
        if given is None:
            raise ConfigError(
                "data passed by data= need a ledger file; try: ledger=, with the same file for every run on these data"
            )
        return LedgerPlace(Path(given), True, people)
    if scenario.data.folder is not None or given is not None:
        return place_beside_data(scenario, given, people)
    if people is not None:
        raise ConfigError("people= needs a run on your own data; try: leave it out")
    return LedgerPlace(folder / LEDGER)


def place_beside_data(scenario: Scenario, given: str | Path | None = None, people: People | None = None) -> LedgerPlace:
    """Returns the ledger in the folder of the data; for a named public set, one that ends with the run.

    A given file takes precedence, but must not replace a ledger that the data already have. ConfigError is raised then,
    and also if parties keep ledgers of their own in the folder, because a run of all parties would not update these.
    """
    if scenario.data.folder is None:
        return LedgerPlace() if given is None else LedgerPlace(Path(given), True, people)
    beside = scenario.data.place / LEDGER
    if not _was_begun(beside) and (single := sorted(scenario.data.place.glob(f"*.{LEDGER}"))):
        raise ConfigError(
            f"{single[0]} is the ledger of one party, and a run of all parties would not be charged "
            "to it; try: give every party its own folder, or move that ledger away"
        )
    return LedgerPlace(_prefer_begun(beside, given), True, people)


def choose_node_ledger(
    scenario: Scenario,
    folder: Path,
    me: Party,
    given: str | Path | None,
    people: People | None,
    data: Dataset,
    *,
    own_data: bool,
) -> LedgerPlace:
    """Returns the location of a party's ledger. In a folder with samples of several parties it contains the party's
    name.

    A ledger in the folder that names the party's data is used, whatever its file name is.

    Args:
        scenario: The scenario, which names the folder of the data.
        folder: The folder of the run.
        me: The party.
        given: The path that the caller gave; None if it gave none.
        people: The people whose data the changed data are.
        data: The party's data.
        own_data: Whether the data were given in Python.

    Raises:
        ConfigError: If the existing ledger of a whole folder would be ignored.
    """
    if own_data or scenario.data.folder is None:
        return choose_ledger(scenario, folder, given, people, own_data=own_data)
    place = scenario.data.place
    whole, here = place / LEDGER, [file_stem(path.stem) for path in sorted(place.glob("*.npz"))]
    mine = place / f"{file_stem(me)}.{LEDGER}" if len(here) > 1 else whole
    if not _was_begun(mine):
        mine = _find_ledger(place, data.source_digest, here) or mine
    if given is not None and _is_same(Path(given), whole):
        mine = whole
    if mine != whole and _was_begun(whole):
        raise ConfigError(
            f"{whole} is the ledger of this folder, and rounds of {me} would not be charged "
            "to it; try: give every party its own folder, or move that ledger and its lock file away"
        )
    return LedgerPlace(_prefer_begun(mine, given), True, people)


def _find_ledger(place: Path, digest: str, here: list[str]) -> Path | None:
    """Returns the ledger in a folder that names some data; None if there is none.

    Raises ConfigError if there are several, or if one belongs to a party without samples here, which may have been
    renamed.
    """
    states = {path: read_ledger(path) for path in sorted(place.glob("*ledger*.json"))}
    found = [path for path, state in states.items() if digest in (state.data, *state.earlier)]
    if len(found) > 1:
        raise ConfigError(
            f"{found[0]} and {found[1]} are both ledgers of these data; try: keep the one with all rounds, "
            "and move the other away"
        )
    if found:
        return found[0]
    single = {path.name.removesuffix(f".{LEDGER}"): path for path in states if path.name.endswith(f".{LEDGER}")}
    if gone := [path for name, path in single.items() if name not in here]:
        raise ConfigError(
            f"{gone[0]} belongs to a party without samples here; "
            "try: rename the ledger if the party was renamed; otherwise move it away"
        )
    return single[here[0]] if len(here) == 1 and single else None


def _prefer_begun(beside: Path, given: str | Path | None) -> Path:
    """Returns the given file, or the one in the folder of the data; raises ConfigError if an existing ledger would be
    ignored."""
    if given is None:
        return beside
    if not _is_same(Path(given), beside) and _was_begun(beside):
        raise ConfigError(
            f"these data already have the ledger {beside}, and the given one is {given}; try: name the first, "
            "or leave out --ledger (ledger=)"
        )
    return Path(given)


def _was_begun(path: Path) -> bool:
    """Says whether a ledger exists, or existed, at a path."""
    return path.exists() or was_written(path)


def _is_same(one: Path, other: Path) -> bool:
    """Says whether two paths have the same name in the same folder. A link becomes a different file once it is
    replaced."""
    return one.name == other.name and one.parent.resolve() == other.parent.resolve()


def refuse_without_noise(place: LedgerPlace) -> None:
    """Raises BudgetSpent for a run without noise on data with a budget, because such a run would exceed any budget."""
    if place.of_data and place.path is not None and place.path.exists():
        state = read_ledger(place.path)
        if state.budget is not None:
            raise PlanExceeds(state, math.inf, f" ({place.path})")


def record_without_noise(place: LedgerPlace, run: str, data: Dataset) -> None:
    """Records a run without noise in the ledger of its data, if there is one. Its ε does not count the run.

    Data without a ledger do not get one by this, because nobody accounts for their ε.
    """
    if not place.of_data or place.path is None or not place.path.exists():
        return
    began = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())
    ledger = Ledger(f"{run}, without noise", path=place.path, data=data.source_digest, people=place.people, began=began)
    ledger.record_without_noise()


def describe_total(ledger: Ledger | None, place: LedgerPlace) -> tuple[str, ...]:
    """Returns a note on what all runs on some data have spent together."""
    if ledger is None or not place.of_data:
        return ()
    # A run that was finished before pays nothing now, so the ledger that it opened may be empty.
    state = ledger.state if ledger.path is not None or place.path is None else read_ledger(place.path)
    others = f"; not counted: {format_count(state.without_noise, 'run')} without noise" if state.without_noise else ""
    return (
        f"{format_count(len(state.with_noise), 'run')} on these data spent ε = {state.epsilon:.4g} together, "
        f"per {state.unit} at δ = {state.delta:g} ({place.path}){others}",
    )


def check_planned_rounds(ledger: Ledger, event: Spent, rounds: int) -> None:
    """Raises BudgetSpent if the unpaid rounds of a run exceed the budget of its data."""
    paid = max((len(ledger.rounds(party)) for party in ledger.parties), default=0)
    ledger.check_plan(event, max(rounds - paid, 0))


def describe_mechanism(scenario: Scenario, sigma: float, honest: int) -> str:
    """Returns a short description of a run's noise for its ledger."""
    if scenario.privacy is None:
        return ""
    counted = f", noise of {honest} counted" if scenario.privacy.noise == "distributed" else ""
    return f"{scenario.privacy.noise} noise, σ = {sigma:.4g}, {scenario.protocol['name']}{counted}"
