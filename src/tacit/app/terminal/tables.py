"""Results as tables in a terminal."""

from collections import Counter
from collections.abc import Iterator, Sequence
from shlex import quote
from statistics import mean
from typing import Any

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.app.cli.demo import DemoDropout, DemoReport
from tacit.app.cli.options import to_json
from tacit.app.terminal.narrow_table import make_table
from tacit.app.terminal.verdict_layout import NEXT, arrange_result, format_command
from tacit.auditing.questions import Question
from tacit.auditing.render.assumptions import StepText
from tacit.auditing.render.names import name_parties
from tacit.core.average import format_count
from tacit.core.errors import Drop
from tacit.core.protocol import Protocol
from tacit.lab.comparison import ComparisonResult
from tacit.lab.papers.minutes import MINUTES
from tacit.lab.papers.reproduction import Reproduction, Result
from tacit.lab.papers.rules import Estimate, RowVerdict
from tacit.learn.scenario import Scenario
from tacit.learn.training.train import Run
from tacit.net.membership.roster import RosterFile
from tacit.protocols import REGISTRY

WHOLE_NAME = 11
"""Length of the longest protocol name, which is not broken in a narrow window."""
VERDICTS = {
    RowVerdict.AGREES: "agrees",
    RowVerdict.DIFFERS: "differs",
    RowVerdict.NOT_COMPARABLE: "not comparable",
}
"""Words for the verdict of a row."""


def render_demo(report: DemoReport) -> RenderableType:
    """Returns what the demo found: the verdict, how well each did, what the server saw, and what that looked like."""
    return Group(Text(_summarize_demo(report), "bold"), Text(""), *_paragraphs(report))


def _summarize_demo(report: DemoReport) -> str:
    """Returns the verdict of the demo: whether masks changed the model, and what each server saw."""
    saw = ", ".join(f"the {run.protocol} server saw {run.server_saw}" for run in report.runs.values())
    differ = f"models that differ by up to {report.largest_difference:g}"
    models = f"Both ways gave {'the same model, bit for bit' if report.identical else differ}; {saw}."
    return f"{report.parties} parties learnt to read handwritten digits. {models}"


def _paragraphs(report: DemoReport) -> Iterator[RenderableType]:
    yield _runs(report)
    yield Text("")
    for dropout in report.dropouts:
        yield Text(_describe_dropout(dropout))
    party, round_ = report.glimpse.party, report.glimpse.round
    count = len(report.glimpse.true)
    yield Text(f"\nThe first {count} numbers that the server received from {party} in round {round_}, decoded:\n")
    yield _glimpse(report)
    yield Text("\nThat is what one server saw. What each protocol exposes, the audit computes:\n")
    table = make_table()
    table.add_column("averaging", max_width=17)
    table.add_column(f"in one round of {report.audited} parties, each of them curious and alone")
    for leak in report.leaks:
        table.add_row(leak.averaging, Text(leak.verdict))
    yield table
    yield Text(f"\n{NEXT}", "bold")
    yield from (format_command(command) for command in (report.leaks[1].command, *_next(report.audited)))


def _next(parties: int) -> Iterator[str]:
    """Yields the commands to try after the demo. For two parties there is nothing to plan."""
    yield Question("secagg", parties, rounds=10, dropout=0.1).command
    if parties > 2:
        yield f"tacit plan {parties} --rounds 10 --dropout 0.1"


def _runs(report: DemoReport) -> Table:
    table = make_table("averaging")
    for heading in ("test\naccuracy", "rounds", "missing\na party", "bytes each\na round"):
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


def _describe_dropout(dropout: DemoDropout) -> str:
    who = " and ".join(f"{party} ({reason})" for party, reason in dropout.dropped.items())
    if set(dropout.dropped.values()) == {Drop.BEHIND}:
        again = f", and contributed again in round {dropout.back}" if dropout.back == dropout.round + 1 else ""
        return f"In round {dropout.round}, {' and '.join(dropout.dropped)} only received the average{again}."
    back = f" Back in round {dropout.back}." if dropout.back == dropout.round + 1 else ""
    return f"Round {dropout.round} lost {who}. The other {dropout.averaged} received their average.{back}"


def _glimpse(report: DemoReport) -> Table:
    table = make_table("")
    for _ in report.glimpse.true:
        table.add_column("", justify="right")
    table.add_column("correlation", justify="right")
    table.add_row(f"{report.glimpse.party}'s model", *(f"{value:.3f}" for value in report.glimpse.true), "")
    for protocol, seen in report.glimpse.seen.items():
        # Adding zero turns −0.00 into 0.00.
        correlation = round(report.runs[protocol].correlation, 2) + 0.0
        table.add_row(f"{protocol} server", *(f"{value:.3f}" for value in seen), f"{correlation:.2f}")
    return table


# --- learning ------------------------------------------------------------------------------------------------------


def format_bytes(count: float) -> str:
    """Returns a number of bytes with a unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def format_duration(seconds: float) -> str:
    """Returns a duration with a unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def format_score(accuracy: float | None, rmse: float | None) -> str:
    """Returns the score of a model: its accuracy or, for numbers, its root mean squared error."""
    if accuracy is not None:
        return f"{accuracy:.1%}"
    return "" if rmse is None else f"{rmse:.4g} off"


def summarize_run(run: Run) -> list[tuple[str, str]]:
    """Returns the result of a run in a few words."""
    if not run.history:
        return [("rounds", "none were left")]
    scenario, last = run.scenario, run.history[-1]
    serverless = last.consensus is not None
    rows = [
        (
            "learnt",
            f"{scenario.data.display_name}, by {len(run.sizes)} parties with {_samples(run.sizes)}"
            if len(run.sizes) > 1
            else f"{scenario.data.display_name}, {_samples(run.sizes)}",
        ),
        ("model", f"{scenario.model['name']}, {format_count(run.model.parameters, 'parameter')}"),
        ("averaged by", scenario.protocol["name"]),
        ("rounds", str(len(run.history))),
        ("test score" + (", mean over parties" if serverless else ""), format_score(run.accuracy, last.rmse)),
    ]
    if serverless:
        together = format_score(last.consensus, None) if last.rmse is None else format_score(None, last.consensus)
        rows.append(("score if all were averaged", together))
    each = format_bytes(run.bytes / len(run.history) / len(run.sizes))
    rows.append(
        ("sent by all", f"{format_bytes(run.bytes)}, {each} a party a round")
        if len(run.sizes) > 1
        else ("sent", f"{format_bytes(run.bytes)}, {each} a round")
    )
    if run.exposed:
        rows.append(("models exposed", run.exposed))
    if last.epsilon is not None:
        rows.append(("privacy spent", f"ε = {last.epsilon:.3g}"))
    failed = sum(not each.contributors for each in run.history) if scenario.protocol["name"] in REGISTRY else 0
    if failed:
        rows.append(("rounds without an average", str(failed)))
    rows += [(f"without {name_parties(party, run.names)}", why) for party, why in last.left_out.items()]
    return rows


def _samples(sizes: Sequence[int]) -> str:
    """Returns the numbers of samples of parties, from the fewest to the most."""
    fewest, most = min(sizes), max(sizes)
    if fewest < most:
        return f"{fewest:,} to {most:,} samples"
    return f"{format_count(most, 'sample')}{' each' if len(sizes) > 1 else ''}"


def render_run(done: Run) -> RenderableType:
    """Returns the result of a run."""
    table = make_table("", "")
    table.show_header = False
    for row in summarize_run(done):
        table.add_row(*row)
    notes = [Text(f"\nNote: {name_parties(note, done.names)}.") for note in done.notes]
    return Group(table, *notes, Text(f"\nAll of it is in {done.folder}."))


def list_rounds(done: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the headings, and a row for each round."""
    headings = ("round", "loss", "test score", "score if all were averaged", "averaged", "sent", "ε")
    return headings, [
        (
            str(each.round),
            "" if each.loss is None else f"{each.loss:.4f}",
            format_score(each.accuracy, each.rmse),
            "" if each.consensus is None else f"{each.consensus:.4g}",
            str(each.contributors),
            format_bytes(each.bytes),
            "" if each.epsilon is None else f"{each.epsilon:.3g}",
        )
        for each in done.history
    ]


def render_comparison(scenario: Scenario, found: list[ComparisonResult]) -> RenderableType:
    """Returns how protocols did on one scenario, and which of them expose a model."""
    table = make_table()
    table.add_column("averaging", overflow="fold", min_width=WHOLE_NAME)
    names = Counter(each.name for each in found)
    for heading in ("test\nscore", "score if all\nwere averaged", "sent a party\na round", "seconds"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("models exposed in\na round, and to whom", overflow="fold")
    for each in found:
        # Settings are written out below, where no edge of a window breaks them, unless they tell two from each other.
        called = each.label if names[each.name] > 1 else each.name
        if each.last is None:
            table.add_row(called, "", "", "", "", f"refused: {each.refused}")
            continue
        last = each.repeats
        together = [one.consensus for one in last]
        table.add_row(
            called,
            _format_mean([one.accuracy for one in last], "{:.1%}") or _format_mean([one.rmse for one in last]),
            _format_mean(together, "{:.1%}" if last[0].rmse is None else "{:.4g}"),
            format_bytes(each.bytes_per_party),
            _format_mean([one.seconds for one in last], "{:.2f}"),
            each.exposed,
        )
    data = scenario.data
    learn = format_count(data.parties, "party learns", "parties learn")
    what = f"{learn} {data.display_name} ({data.split_text}) with {scenario.model['name']}"
    seeds = max((len(each.repeats) for each in found), default=1)
    over = f"{format_count(scenario.rounds, 'round')}, {format_count(seeds, 'seed')}"
    alone = "any single party, or the server, is curious and colludes with nobody"
    colluding = f"any {scenario.adversary} parties collude, and the server can be one of them"
    assumed = [
        f"The audit is of one round, in which {alone if scenario.adversary == 1 else colluding}.",
        "Seconds are those of all parties together on this machine, after one round that is not measured.",
    ]
    if seeds > 1:
        assumed.append(
            f"Scores and seconds are means over seeds {scenario.seed} to {scenario.seed + seeds - 1}; ± is the "
            "standard deviation over seeds. Half of the 95 % interval of a mean (Student's t) is "
            f"{_interval_factor(seeds):.2g} times that. Each seed has its own split and first weights."
        )
    else:
        assumed.append("One seed says nothing about chance: use --seeds 3 to see the spread.")
    return arrange_result(
        _summarize_comparison(found),
        Text(f"{what}, {over}\n"),
        table,
        assumptions=assumed,
        gaps=(
            "Several rounds and dropouts: tacit audit analyses them. Larger coalitions: set adversary in the scenario.",
            "Inference about the data from the average itself. Only noise limits that.",
        ),
        steps=[
            StepText(f"to run {each.name} again with its settings, add", f"--protocol {quote(each.label)}")
            for each in found
            if each.options
        ],
    )


def _summarize_comparison(found: Sequence[ComparisonResult]) -> str:
    """Returns the verdict of a comparison: which protocols expose a model."""
    ran = [each for each in found if each.last is not None]
    names = Counter(each.name for each in found)
    leaky = [each.label if names[each.name] > 1 else each.name for each in ran if each.leaks]
    refused = len(found) - len(ran)
    not_run = f" {format_count(refused, 'row')} did not run, for the reason in the table." if refused else ""
    if not ran:
        return not_run.strip()
    if not leaky:
        return f"No model is exposed in a round{', in any row that ran' if len(ran) > 1 else ''}.{not_run}"
    return f"Models are exposed in {len(leaky)} of {format_count(len(ran), 'row')}: {', '.join(leaky)}.{not_run}"


def _interval_factor(seeds: int) -> float:
    """Returns half the 95 % interval of a mean, in standard deviations over seeds."""
    return Estimate(0.0, 1.0, seeds).half_width


def _format_mean(values: Sequence[float | None], form: str = "{:.4g}") -> str:
    """Returns the mean of some values, with their standard deviation if there are several; empty if any is missing."""
    given = [value for value in values if value is not None]
    if not given or len(given) < len(values):
        return ""
    estimate = Estimate.over(given)
    if estimate.deviation is None:
        return form.format(estimate.mean)
    return f"{form.format(estimate.mean)}±{form.format(estimate.deviation).removesuffix('%')}"


def render_reproductions(listed: list[Reproduction]) -> RenderableType:
    """Returns the tables and figures that can be reproduced."""
    table = make_table("name")
    table.add_column("minutes", justify="right")
    table.add_column("table or figure")
    table.add_column("needs")
    for each in listed:
        table.add_row(
            each.name, format_minutes(MINUTES.get(each.name)), each.title, ", ".join([*each.extras, *each.data])
        )
    notes = (
        "\nMinutes are CPU minutes of one core at --scale small, the default. "
        f"The quickest are {', '.join(list_quickest())}.",
        "docs/reproductions.md has all results, and explains them.",
    )
    return Group(table, *map(Text, notes))


QUICKEST = 6
"""Number of reproductions that are named as the quickest."""


def list_quickest() -> list[str]:
    """Returns the names of the quickest reproductions, the quickest first."""
    return sorted(MINUTES, key=lambda name: (MINUTES[name], name))[:QUICKEST]


def format_minutes(minutes: float | None) -> str:
    """Returns CPU minutes as text. They were measured to a tenth."""
    if minutes is None:
        return ""
    return f"{minutes:g}" if minutes else "under 0.1"


def render_reproduction(what: Reproduction, found: Result, scale: str) -> RenderableType:
    """Returns a table or figure of a paper next to ours: a few lines for each row, then the rules."""
    counts = Counter(row.verdict for row in found.rows)
    summary = ", ".join(f"{VERDICTS[each]}: {counts[each]}" for each in RowVerdict)
    head = f"{format_count(len(found.rows), 'row')} at scale {scale}. {summary.capitalize()}."
    lines: list[RenderableType] = [Text(f"{what.name}: {what.title}", "bold"), Text(f"{head}\n")]
    rules = {
        rule: f"{place}" for place, rule in enumerate(dict.fromkeys(row.rule for row in found.rows if row.rule), 1)
    }
    for row in found.rows:
        reason = "; ".join(text for text in (what.explain(row), row.why) if text)
        by = f" (rule {rules[row.rule]})" if row.rule else ""
        result = Table.grid(padding=(0, 1))
        result.add_row(" ", Text(f"ours {row.ours}; paper: {row.paper or 'no number'}; {VERDICTS[row.verdict]}{by}"))
        if reason:
            result.add_row(" ", Text(reason))
        lines += [Text(row.what, "bold"), result]
    lines += [Text("\nA row agrees if this holds:", "bold")] if rules else []
    for rule, number in rules.items():
        condition, _, why = rule.partition(": ")
        lines.append(Text(f"{number}: {condition}. Reason: {why}."))
    lines.append(
        Text(f"\n± is the standard deviation over seeds. docs/reproductions/{what.name[:3]}.md has all results.")
    )
    lines += [Text(f"\nNot stated in the paper: {each}") for each in what.unstated]
    lines += [Text(f"\nChanged here: {each}") for each in what.changed]
    return Group(*lines)


def render_roster(listed: RosterFile, audited: list[str]) -> RenderableType:
    """Returns the parties of a federation, its settings, and the audit of these."""
    table = make_table("name", "address", "fingerprint")
    for card in (*listed.parties, *listed.relays):
        digits = card.fingerprint.split()
        half = len(digits) // 2
        # `Text` is used, because names and addresses may contain brackets, which rich would interpret in strings.
        name = Text(f"{card.name} (relay)" if card in listed.relays else card.name)
        place = Text(card.address or "only dials out")
        table.add_row(name, place, f"{' '.join(digits[:half])}\n{' '.join(digits[half:])}")
    settings = ", ".join(f"{name}={_default(value)}" for name, value in listed.settings.items())
    title = Text(f"{listed.federation}: {listed.protocol}{f' with {settings}' if settings else ''}\n")
    return Group(title, table, *[Text(f"\n{each[:1].upper()}{each[1:]}.") for each in audited])


def describe_protocol(protocol: Protocol) -> dict[str, Any]:
    """Returns the description of a protocol as plain data."""
    return {
        "name": protocol.name,
        "summary": protocol.summary,
        "server": protocol.server is not None,
        "leaks_by_design": protocol.leaks_by_design,
        "options": {
            option.name: msgspec.to_builtins(_unset(option)) for option in msgspec.structs.fields(protocol.settings)
        },
    }


def _unset(option: msgspec.structs.FieldInfo) -> Any:
    """Returns the default of an option."""
    return option.default if option.default_factory is msgspec.NODEFAULT else option.default_factory()


def render_protocols(descriptions: list[dict[str, Any]]) -> RenderableType:
    """Returns the protocols with the defaults of their options."""
    table = make_table("protocol", "what it does", "server", "leaks by\ndesign")
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
    """Returns a default as a user would write it. A policy without settings is written as its name."""
    return repr(value["kind"] if isinstance(value, dict) and len(value) == 1 else value)


def show_result(as_json: bool, data: Any, table: RenderableType, *written: str | None) -> None:
    """Writes a result to standard output, as JSON or as a table.

    Args:
        as_json: Whether to write JSON.
        data: The result as plain data.
        table: The result as a table.
        written: Files that the command wrote, which it names on standard error; None for a file that was not wanted.
    """
    if as_json:
        typer.echo(to_json(data))
    else:
        print_result(table)
    for file in filter(None, written):
        typer.echo(f"wrote {file}", err=True)


def print_result(table: RenderableType) -> None:
    """Writes to standard output."""
    Console(highlight=False).print(table, crop=False)
