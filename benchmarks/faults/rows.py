"""Table rows of a fault run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.faults.stalls import LATE
from benchmarks.faults.verdicts import Verdict
from benchmarks.measure import Row, single_row
from tacit.net.membership.roster import Deadlines
from tacit.protocols import find

SHOWN = 3
"""The largest number of violations that a row lists."""


def rows_of(verdict: Verdict, run: dict[str, Any], deadlines: Deadlines) -> Iterator[Row]:
    """Yields the results of a run. Violations have a target of 0."""
    case, protocol = run["case"], run["case"]["protocol"]
    server = " and a server" if find(protocol).server is not None else ""
    name = f"{protocol}, {case['parties']} parties{server}"

    def counted(what: str, count: int, unit: str, note: str = "") -> Row:
        return single_row(f"{name}: {what}", count, unit, note)

    def none(what: str, found: Sequence[str], unit: str, note: str) -> Row:
        seen = "; ".join([note, *found[:SHOWN]])
        return Row(f"{name}: {what}", len(found), None, unit, None, "none", not found, seen)

    options = ", ".join(f"{key}={value}" for key, value in case["options"].items())
    note = f"{options}; seed {run['seed']}; {run['seconds']:.0f} s; deadlines: {_for_people(deadlines)}"
    enough = verdict.rounds >= case["rounds"]
    yield Row(f"{name}: rounds", verdict.rounds, None, "", None, f"at least {case['rounds']}", enough, note)
    kinds = Counter(each["kind"] for each in run["faults"])
    yield counted("faults", len(run["faults"]), "", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    yield counted("finished", verdict.finished, "rounds", "somebody has an average")
    for why, count in verdict.aborted.most_common():
        yield counted(
            f"aborted, {why}",
            count,
            "rounds",
            "nobody has an average; the reason that most gave who did not only hear of it",
        )
    for why, count in verdict.waited.most_common():
        yield counted(f"waited in vain, {why}", count, "times", "no round was begun")
    yield counted(
        "cut off, and gone on with", verdict.resumed, "times", "with what was brought before, by another life"
    )
    judged = f"of {verdict.endings} endings"
    yield none("wrong averages", verdict.wrong, "", judged)
    yield none(
        "hangs",
        verdict.hung,
        "",
        f"averaged with nobody though those it needs were well, {LATE:g} s behind a deadline of its own, ended by "
        "itself, or no ending of a round",
    )
    recovered = f"until who could be averaged was, {len(verdict.recoveries)} times after something struck or was over"
    yield single_row(f"{name}: longest recovery", max(verdict.recoveries, default=0.0), "s", recovered)
    if protocol == "pushsum":
        yield none("mass error", verdict.mass, "", "states and what is under way add up to all that was brought")
    yield none("results lost", verdict.lost, "", "what was told, or on disk, is there after a kill and in the end")
    yield none("another model in a round that was begun", verdict.changed, "", "")
    said = f"{verdict.addresses} addresses, {verdict.said} times something was said there"
    yield none("addresses with two messages", verdict.twice, "", said)
    exposures = (
        f"to any single party or the server, by an audit of all that was said in {verdict.replayed} rounds, on "
        "unknowns, in the order in which it was heard; vectors are new in every round, as they were"
    )
    if verdict.replayed < verdict.rounds:
        exposures += "; and of all rounds by the recurrence that all states were found to follow"
    if verdict.standing is not None:
        exposures += f"; had nobody's model ever changed it would be {len(verdict.standing)}"
    yield none("exposures", verdict.exposed, "", exposures)
    yield none("rounds that no audit could follow", verdict.strayed, "", "unknowns went the same way as numbers")


def _for_people(deadlines: Deadlines) -> str:
    return ", ".join(f"{name} {getattr(deadlines, name):g} s" for name in deadlines.__struct_fields__)
