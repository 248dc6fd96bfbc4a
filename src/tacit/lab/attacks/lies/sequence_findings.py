"""Findings of the searches over sequences of rounds, between machines and on Flower."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import TypeAlias

from tacit.core.average import format_count
from tacit.lab.attacks.attack_result import Finding
from tacit.lab.attacks.lies.cases import CLOSE, NAME
from tacit.lab.attacks.lies.programs import PROGRAM, STATE, Driver
from tacit.lab.attacks.lies.sequence_variants import SEQUENCE_VARIANTS
from tacit.lab.attacks.lies.sequences import ROSTERS, SequenceBreak, SequenceCase, SequenceSearch
from tacit.lab.attacks.lies.variants import Replacements, replace_functions

Step: TypeAlias = tuple[str, Callable[[], list[Finding]]]
"""A search, with its description for a progress display."""
RECOVERED = "without a precaution: error of the victim's update that the server gets from a sum over different models"
FOUND = "as deployed: kinds of groups that mask together while their members hold different models"
FOUND_ON_FLOWER = "as deployed: pairs of requests for which nodes mask together while their apps see different ones"
GROUPS = "groups given each other's keys"
UNBOUND = "nodes on Flower do not sign what they are asked"
SAME_RING = ("one roster", "the roster is renewed", "models become changes")
"""Rosters under which sums have the same units, so that there are fewer different sums."""
QUICK_ROSTERS = ("one roster",)
"""Rosters of three rounds in the short run."""
GRAPHS = ((0, (3,)), (2, ()), (2, (3,)))
"""Numbers of neighbours, and colluding users, tried besides a complete graph of honest users."""


@dataclass
class SequenceTally:
    """Counts over several cases."""

    settings: int = 0
    states: int = 0
    groups: int = 0
    masking: int = 0
    breaks: list[SequenceBreak] = field(default_factory=list)

    def take(self, search: SequenceSearch) -> None:
        """Searches the sequences of a case."""
        self.breaks += search.breaks()
        self.settings += 1
        self.states += search.states
        self.groups += search.groups
        self.masking += search.masking

    def finding(self, target: str) -> Finding:
        """Returns how many groups mask together that must not. All were tried, so there is no interval."""
        seen = (
            f"{format_count(self.settings, 'setting')}, {format_count(self.states, 'state')} of a party; "
            f"{format_count(self.masking, 'group masks', 'groups mask')} together"
        )
        example = f"; for example {self.breaks[0]}" if self.breaks else ""
        value = float(len(self.breaks))
        return _count_finding(f"{target}; {seen}{example}", FOUND, value, self.groups)


def _count_finding(target: str, measure: str, value: float, groups: int) -> Finding:
    return Finding(NAME, target, measure, value, value, value, groups, bool(value), bracket="", tried=GROUPS)


def first_sequence_break(name: str) -> tuple[SequenceSearch, SequenceBreak | None]:
    """Returns the first sequence that works on a variant, and the search that found it."""
    chosen = SEQUENCE_VARIANTS[name]
    with replace_functions(chosen.replaced):
        search = SequenceSearch(replace(chosen.case), chosen.rounds)
        return search, next(search.breaks(), None)


def run_sequence_control(name: str) -> list[Finding]:
    """Returns the server's error when it repeats, with real keys, a sequence that works on a variant."""
    search, found = first_sequence_break(name)
    error = float("nan")
    if found is not None:
        with replace_functions(SEQUENCE_VARIANTS[name].replaced):
            error = found.error()
    return [_error_finding(f"{name}; {found or search.case}", error, search.groups)]


def _error_finding(target: str, error: float, groups: int) -> Finding:
    broken = error < CLOSE
    return Finding(NAME, target, RECOVERED, error, error, error, groups, broken, bracket="", tried=GROUPS)


def list_sequences(full: bool) -> dict[str, list[tuple[SequenceCase, int]]]:
    """Returns the cases to search, each with its last round, grouped by the finding that reports them."""
    found: dict[str, list[tuple[SequenceCase, int]]] = {}
    for rounds in (2, 3):
        for rosters in ROSTERS if full or rounds == 2 else QUICK_ROSTERS:
            cases = [SequenceCase(rosters, *each) for each in _list_kinds(rosters, rounds, full)]
            found[f"{rounds} rounds of 4 users, {rosters}"] = [(case, rounds) for case in cases]
        graphs = [
            SequenceCase(driver=STATE, changes=changes, neighbours=neighbours, colluders=colluders)
            for neighbours, colluders in GRAPHS
            for changes in (False, True)
        ]
        if full or rounds == 2:
            text = f"{rounds} rounds of 4 users, one roster, with one who colludes or each sharing masks with 2"
            found[text] = [(case, rounds) for case in graphs]
    return found


def _list_kinds(rosters: str, rounds: int, full: bool) -> Iterator[tuple[Driver, bool]]:
    """Yields the combinations of driver and kind of contribution that are searched with some rosters."""
    for driver in (STATE, PROGRAM):
        if driver == PROGRAM and rounds > 2 and rosters not in SAME_RING:
            continue  # A party has too many states.
        if full or driver == STATE or rounds == 2:
            yield driver, False
        if not any(roster.changes for roster in ROSTERS[rosters]):
            yield driver, True


def search_sequences(target: str, cases: Iterable[tuple[SequenceCase, int]]) -> list[Finding]:
    """Returns the findings on the deployed code."""
    tally = SequenceTally()
    for case, rounds in cases:
        tally.take(SequenceSearch(case, rounds))
    return [tally.finding(target)]


def unbound_requests() -> Replacements:
    """Returns replacements that make Flower nodes sign nothing of the server's requests."""
    from tacit.integrations.flower import driver

    return ((driver, "_digest_request", lambda *_: b""),)


def run_flower_control() -> list[Finding]:
    """Returns the error of a Flower server when nodes do not sign its requests."""
    from tacit.lab.attacks.lies.flower_messages import FlowerSearch

    with replace_functions(unbound_requests()):
        search = FlowerSearch()
        found = next(search.breaks(), None)
        error = float("nan") if found is None else found.error()
    return [_error_finding(f"{UNBOUND}; {found}", error, search.groups)]


def search_flower() -> list[Finding]:
    """Returns the findings on the deployed driver of Flower."""
    from tacit.lab.attacks.lies.flower_messages import FlowerSearch

    search = FlowerSearch()
    found = list(search.breaks())
    example = f"; for example {found[0]}" if found else ""
    target = f"a round of 4 nodes on Flower; {format_count(len(search.requests), 'request')}{example}"
    return [_count_finding(target, FOUND_ON_FLOWER, float(len(found)), search.groups)]


def list_sequence_steps(full: bool) -> list[Step]:
    """Returns all searches over sequences: variants first, and Flower only if it is installed."""
    flower = find_spec("flwr") is not None
    steps: list[Step] = [
        (f"lying over rounds without a precaution: {name}", partial(run_sequence_control, name))
        for name in SEQUENCE_VARIANTS
    ]
    if flower:
        steps.append((f"lying over rounds without a precaution: {UNBOUND}", run_flower_control))
    for target, cases in list_sequences(full).items():
        steps.append((f"lying over rounds to clients as deployed: {target}", partial(search_sequences, target, cases)))
    if flower:
        steps.append(("asking nodes on Flower for different things", search_flower))
    return steps
