"""Results as tables that a person reads at a glance."""

from collections.abc import Iterator
from statistics import mean
from typing import Any

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.app.demo import Dropout, Report
from tacit.audit.report import Report as AuditReport
from tacit.core.protocol import Protocol


def demo(report: Report) -> RenderableType:
    """Returns what the demo found out: who did how well, what the server saw, and what that looked like."""
    return Group(*_paragraphs(report))


def _paragraphs(report: Report) -> Iterator[RenderableType]:
    yield Text(f"{report.parties} parties learnt to read handwritten digits, each from samples of its own.\n")
    yield _runs(report)
    same = "the same bit for bit" if report.identical else "not the same"
    yield Text(f"\nThe two final models are {same}; their largest difference is {report.largest_difference:g}.")
    for dropout in report.dropouts:
        yield Text(_told(dropout))
    party, round_ = report.glimpse.party, report.glimpse.round
    yield Text(f"\nWhat the server received from {party} in round {round_}, as it decodes it, in part:\n")
    yield _glimpse(report)


def _table(*headings: str) -> Table:
    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _runs(report: Report) -> Table:
    table = _table("averaging")
    for heading in ("test\naccuracy", "rounds", "with a\ndropout", "bytes a\nparty a\nround"):
        table.add_column(heading, justify="right")
    table.add_column("the server saw")
    for run in report.runs.values():
        table.add_row(
            run.protocol,
            f"{run.accuracy:.1%}",
            str(run.rounds),
            str(run.rounds_with_dropout),
            f"{run.bytes_per_party_per_round:,}",
            run.server_saw,
        )
    best = max(report.alone, key=lambda party: report.alone[party])
    table.add_row("alone (mean)", f"{mean(report.alone.values()):.1%}", "", "", "0", "nothing")
    table.add_row(f"alone (best, {best})", f"{report.alone[best]:.1%}", "", "", "0", "nothing")
    return table


def _told(dropout: Dropout) -> str:
    who = " and ".join(f"{party} ({reason})" for party, reason in dropout.dropped.items())
    back = f" Back in round {dropout.back}." if dropout.back else ""
    return f"Round {dropout.round} lost {who} and ended with the other {dropout.averaged}.{back}"


def _glimpse(report: Report) -> Table:
    table = _table("")
    for _ in report.glimpse.true:
        table.add_column("", justify="right")
    table.add_column("correlation,\nall rounds", justify="right")
    table.add_row(f"{report.glimpse.party}'s model", *(f"{value:.3f}" for value in report.glimpse.true), "")
    for protocol, seen in report.glimpse.seen.items():
        # Adding zero turns −0.00 into 0.00.
        correlation = round(report.runs[protocol].correlation, 2) + 0.0
        table.add_row(f"{protocol} server", *(f"{value:.3f}" for value in seen), f"{correlation:.2f}")
    return table


def audited(report: AuditReport) -> dict[str, Any]:
    """Returns what an audit found, as plain data."""
    return {
        "protocol": report.protocol,
        "coalition": report.coalition,
        "rounds": report.rounds,
        "drift": report.drift,
        "exposed": {victim: {"error": report.errors[victim]} for victim in report.exposed},
        "safe_rounds": report.safe_rounds,
        "smallest_group": report.smallest_group,
    }


def audit(reports: list[AuditReport]) -> RenderableType:
    """Returns who can learn whose vector, one coalition a row."""
    table = _table("coalition", "learns the vectors of")
    for heading in ("safe\nrounds", "smallest\ngroup", "recipe off\nby at most"):
        table.add_column(heading, justify="right")
    for report in reports:
        victims = ", ".join(sorted(report.exposed)) or "nobody"
        error = f"{max(report.errors.values()):.0e}" if report.errors else ""
        table.add_row(", ".join(report.coalition), victims, str(report.safe_rounds), str(report.smallest_group), error)
    first = reports[0]
    rounds = "1 round" if first.rounds == 1 else f"{first.rounds} rounds"
    title = Text(f"{first.protocol}, {len(first.parties)} parties, {rounds}, {first.drift} vectors\n")
    return Group(title, table)


def described(protocol: Protocol) -> dict[str, Any]:
    """Returns what there is to know of a protocol before running it, as plain data."""
    return {
        "name": protocol.name,
        "summary": protocol.summary,
        "server": protocol.server is not None,
        "leaks_by_design": protocol.leaks_by_design,
        "options": {
            option.name: msgspec.to_builtins(option.default) for option in msgspec.structs.fields(protocol.config)
        },
    }


def protocols(descriptions: list[dict[str, Any]]) -> RenderableType:
    """Returns the protocols there are, with their options as they are unless set."""
    table = _table("protocol", "what it does", "server", "leaks by\ndesign")
    table.add_column("options", no_wrap=True)
    for place, description in enumerate(descriptions):
        table.add_row(
            description["name"],
            description["summary"],
            "yes" if description["server"] else "no",
            "yes" if description["leaks_by_design"] else "no",
            "\n".join(f"{name}={_default(value)}" for name, value in description["options"].items()),
            end_section=place < len(descriptions) - 1,
        )
    return table


def _default(value: Any) -> str:
    """Returns a default as one would write it; a policy without settings goes by its name."""
    return repr(value["kind"] if isinstance(value, dict) and len(value) == 1 else value)


def show(table: RenderableType) -> None:
    """Writes to standard output."""
    Console(highlight=False).print(table)
