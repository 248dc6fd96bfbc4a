"""Results as tables that a person reads at a glance."""

from collections.abc import Iterator
from dataclasses import asdict
from statistics import mean
from typing import Any

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.api.train import Run
from tacit.app.comparison import Compared
from tacit.app.demo import DemoReport, Dropout
from tacit.audit.attacks.findings import Finding
from tacit.audit.flower import FlowerAudit
from tacit.audit.plan import Plan
from tacit.audit.report import Report
from tacit.core.errors import Drop
from tacit.core.protocol import Protocol
from tacit.drivers.network.roster import RosterFile
from tacit.learn.scenario import Scenario
from tacit.papers.reproduction import Reproduction, Result
from tacit.protocols import REGISTRY

MOST_ROWS = 20
"""Coalitions, and parties, up to which a matrix fits a terminal."""


def demo(report: DemoReport) -> RenderableType:
    """Returns what the demo found out: who did how well, what the server saw, and what that looked like."""
    return Group(*_paragraphs(report))


def _paragraphs(report: DemoReport) -> Iterator[RenderableType]:
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


def _runs(report: DemoReport) -> Table:
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
    back = f" Back in round {dropout.back}." if dropout.back == dropout.round + 1 else ""
    if set(dropout.dropped.values()) == {Drop.BEHIND}:
        return f"Round {dropout.round} went on without {who}, who heard its average.{back}"
    return f"Round {dropout.round} lost {who} and ended with the other {dropout.averaged}.{back}"


def _glimpse(report: DemoReport) -> Table:
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


def audit(reports: list[Report]) -> RenderableType:
    """Returns who can learn whose vector, one coalition a row."""
    table = _table("coalition", "learns the vectors of")
    for heading in ("first in\nround", "smallest\ngroup", "bits of\nan entry", "recipe off\nby at most"):
        table.add_column(heading, justify="right")
    for report in reports:
        exposed = report.exposed or report.nearly
        table.add_row(
            ", ".join(report.coalition),
            ", ".join(_victim(report, victim) for victim in report.parties if _is_known(report, victim)) or "nobody",
            str(report.safe_rounds + 1) if exposed else "",
            str(report.smallest_group),
            f"{max(report.bits.values()):.1f}" if report.bits else "",
            f"{max(report.errors.values()):.0e}" if report.errors else "",
        )
    first = reports[0]
    title = Text(f"{first.protocol}, {len(first.parties)} parties: {first.looked_at}\n")
    bits = f"An entry has {first.most_bits:.1f} bits, and who knows one more knows it twice as well."
    notes = [Text(f"\nNote: {note}.") for note in dict.fromkeys(note for report in reports for note in report.notes)]
    return Group(
        title,
        table,
        Text(f"\n{bits}"),
        *_epsilon(reports),
        *_matrix(reports),
        *_worst(reports),
        *_recipe(reports),
        *notes,
        *_overheard(reports),
    )


def flower(found: FlowerAudit) -> RenderableType:
    """Returns what the server of a Flower app learns, by what that is told, and the audit."""
    known = {"Read": found.facts.read, "Assumed": found.facts.assumed}
    told = [Text(f"{name}: {'; '.join(each.values())}.") for name, each in known.items() if each]
    said = [Text(f"\n{sentence}") for sentence in found.says]
    return Group(Text(f"{found.app} averages by: {found.averages}"), *told, *said, Text(""), audit(found.reports))


def _epsilon(reports: list[Report]) -> Iterator[Text]:
    """Yields what the noise is worth, against the coalition that it hides least from."""
    most = max(reports, key=lambda report: report.epsilon or 0.0)
    if most.epsilon is not None:
        worst = max(report.epsilon_at_worst or 0.0 for report in reports)
        dropped = f", and {worst:.3g} if as many drop out as may" if worst > most.epsilon else ""
        yield Text(f"\nBy the noise, ε = {most.epsilon:.3g} at δ = {most.delta:g} for all rounds{dropped}.")


def _is_known(report: Report, party: str) -> bool:
    return party in report.exposed or party in report.nearly


def _worst(reports: list[Report]) -> Iterator[Text]:
    """Yields what happens if as many drop out as the settings allow, where that is worse."""
    worse = [report for report in reports if report.at_worst and not report.exposed]
    if worse:
        first = worse[0]
        more = f", and {len(worse) - 1} coalitions more likewise" if len(worse) > 1 else ""
        yield Text(
            f"\nIf so many drop out that {first.fewest} are summed, {', '.join(first.coalition)} can work out the "
            f"vector of {', '.join(first.at_worst or ())}{more}."
        )


def _recipe(reports: list[Report]) -> Iterator[Text]:
    """Yields the shortest recipe, for an example."""
    recipes = [(report, recipe) for report in reports for recipe in report.exposed.values()]
    if recipes:
        report, recipe = min(recipes, key=lambda each: len(str(each[1])))
        yield Text(f"\nFor example, {', '.join(report.coalition)} can compute\n  {recipe}")


def _matrix(reports: list[Report]) -> Iterator[Text]:
    """Yields who is exposed to whom as a matrix, if there is one to see at a glance."""
    parties = reports[0].parties
    if not 2 <= len(reports) <= MOST_ROWS or len(parties) > MOST_ROWS or not any(report.exposed for report in reports):
        return
    names = [", ".join(report.coalition) for report in reports]
    margin, wide = max(map(len, names)), max(map(len, parties))
    lines = [f"{'':{margin}} {' '.join(f'{party:>{wide}}' for party in parties)}"]
    for name, report in zip(names, reports, strict=True):
        cells = (f"{_cell(report, party):>{wide}}" for party in parties)
        lines.append(f"{name:{margin}} {' '.join(cells)}")
    yield Text("\nWho is exposed (█ all, ▒ some entries or nearly) to whom:\n\n" + "\n".join(lines))


def _cell(report: Report, party: str) -> str:
    if party in report.coalition:
        return ""
    fraction = report.fractions.get(party, 0.0)
    return "█" if fraction == 1.0 else "▒" if fraction or party in report.nearly else "·"


def _victim(report: Report, victim: str) -> str:
    """Returns a victim's name and, if not all of its entries are exposed, or not exactly, how many are or how far."""
    if victim in report.nearly:
        return f"{victim} (nearly, {report.bits[victim]:.1f} bits)"
    fraction = report.fractions.get(victim, 1.0)
    return victim if fraction == 1.0 else f"{victim} ({fraction:.0%})"


def _overheard(reports: list[Report]) -> Iterator[Text]:
    for report in reports:
        if report.heard:
            messages = sum(count for count, _ in report.heard.values())
            size = sum(size for _, size in report.heard.values())
            yield Text(f"\nThe onlooker heard {messages} messages on {len(report.heard)} links, {size:,} bytes in all.")


def attacks(listed: list[dict[str, str]]) -> RenderableType:
    """Returns the attacks there are."""
    table = _table("attack", "what it does", "paper")
    for each in listed:
        table.add_row(each["name"], each["summary"], each["paper"])
    return table


def found(finding: Finding) -> dict[str, Any]:
    """Returns what an attack found about one target, as plain data."""
    return {**asdict(finding), "verdict": finding.verdict}


def findings(results: list[Finding]) -> RenderableType:
    """Returns what an attack found, one target a row, under what was measured."""
    parts: list[RenderableType] = []
    for measure in dict.fromkeys(finding.measure for finding in results):
        table = _table("target")
        for heading in ("value", "95 % interval", "tries"):
            table.add_column(heading, justify="right")
        table.add_column("verdict")
        for finding in results:
            if finding.measure == measure:
                interval = f"{finding.low:.3g} to {finding.high:.3g}"
                table.add_row(finding.target, f"{finding.value:.3g}", interval, str(finding.samples), finding.verdict)
        parts += [Text(f"{measure}\n"), table, Text()]
    return Group(*parts[:-1])


def planned(proposed: Plan) -> dict[str, Any]:
    """Returns a plan as plain data, with every verdict as it is told."""
    told = [{**asdict(proposal), "told": proposal.told} for proposal in proposed.proposals]
    return {**asdict(proposed), "proposals": told}


def plan(proposed: Plan) -> RenderableType:
    """Returns proposals, those that hold first."""
    table = _table("protocol", "settings")
    table.add_column("MB a party\na round", justify="right")
    table.add_column(f"noise for\nε = {proposed.epsilon:g}", justify="right")
    table.add_column("verdict, and what was looked at")
    for proposal in proposed.proposals:
        options = ", ".join(f"{name}={_default(value)}" for name, value in proposal.options.items())
        table.add_row(
            proposal.protocol,
            f"{proposal.why}\n{options}" if options else proposal.why,
            f"{proposal.bytes_per_party / 1e6:.2f}",
            f"{proposal.sigma:.3g}",
            proposal.told,
        )
    title = Text(
        f"{proposed.parties} parties, any {proposed.coalition_size} colluding, {proposed.rounds} rounds, "
        f"{proposed.dropout:.0%} dropouts, {proposed.entries:,} entries\n"
    )
    noise = Text(
        f"\nFor ε = {proposed.epsilon:g} at δ = {proposed.delta:g} over all rounds, each party adds noise of so many "
        f"times what one sample, or one user, can move its vector by; {proposed.sigma:.3g} would do in one sum of all "
        f"who do not collude."
    )
    return Group(title, table, noise)


# --- learning ------------------------------------------------------------------------------------------------------


def size(count: float) -> str:
    """Returns so many bytes, as people say it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def score(accuracy: float | None, rmse: float | None) -> str:
    """Returns how good a model is: how much of the test it gets right or, of numbers, by how much it is off."""
    if accuracy is not None:
        return f"{accuracy:.1%}"
    return "" if rmse is None else f"{rmse:.4g} off"


def summary(run: Run) -> list[tuple[str, str]]:
    """Returns what a run comes to, in few words."""
    if not run.history:
        return [("rounds", "none were left")]
    scenario, last = run.scenario, run.history[-1]
    serverless = last.consensus is not None
    rows = [
        (
            "learnt",
            f"{scenario.data.name}, by {len(run.sizes)} parties with {min(run.sizes)} to {max(run.sizes)} samples"
            if len(run.sizes) > 1
            else f"{scenario.data.folder or scenario.data.name}, {run.sizes[0]} samples",
        ),
        ("model", f"{scenario.model['name']}, {run.model.parameters:,} parameters"),
        ("averaged by", scenario.protocol["name"]),
        ("rounds", str(len(run.history))),
        ("test score" + (", mean over parties" if serverless else ""), score(run.accuracy, last.rmse)),
    ]
    if serverless:
        together = last.consensus
        rows.append(("mean of all models", score(together, None) if last.rmse is None else score(None, together)))
    each = size(run.bytes / len(run.history) / len(run.sizes))
    rows.append(
        ("sent by all", f"{size(run.bytes)}, {each} a party a round")
        if len(run.sizes) > 1
        else ("sent", f"{size(run.bytes)}, {each} a round")
    )
    if last.epsilon is not None:
        rows.append(("privacy spent", f"ε = {last.epsilon:.3g}"))
    failed = sum(not each.contributors for each in run.history) if scenario.protocol["name"] in REGISTRY else 0
    if failed:
        rows.append(("rounds without an average", str(failed)))
    rows += [(f"without {party}", why) for party, why in last.left_out.items()]
    return rows


def run(done: Run) -> RenderableType:
    """Returns what came of a run."""
    table = _table("", "")
    table.show_header = False
    for row in summary(done):
        table.add_row(*row)
    notes = [Text(f"\nNote: {note}.") for note in done.notes]
    return Group(table, *notes, Text(f"\nAll of it is in {done.folder}."))


def rounds(done: Run) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns headings, and a row for each round."""
    headings = ("round", "loss", "test score", "mean of models", "averaged", "sent", "ε")
    return headings, [
        (
            str(each.round),
            "" if each.loss is None else f"{each.loss:.4f}",
            score(each.accuracy, each.rmse),
            "" if each.consensus is None else f"{each.consensus:.4g}",
            str(each.contributors),
            size(each.bytes),
            "" if each.epsilon is None else f"{each.epsilon:.3g}",
        )
        for each in done.history
    ]


def compared(scenario: Scenario, found: list[Compared]) -> RenderableType:
    """Returns how protocols did on one scenario."""
    table = _table("averaging")
    for heading in ("test\nscore", "mean of\nmodels", "sent a party\na round", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("whose model could be worked out\nin a round, and by whom")
    for each in found:
        last = each.last
        if last is None:
            table.add_row(each.label, "", "", "", "", f"refused: {each.refused}")
            continue
        together = "" if last.consensus is None else score(last.consensus, None)
        if last.accuracy is None and last.consensus is not None:
            together = score(None, last.consensus)
        table.add_row(
            each.label,
            score(last.accuracy, last.rmse),
            together,
            size(each.bytes_per_party),
            f"{last.seconds:.1f}",
            each.exposed,
        )
    data = scenario.data
    what = f"{data.parties} parties learn {data.name} ({data.split.kind}) with {scenario.model['name']}"
    return Group(Text(f"{what}, {scenario.rounds} rounds\n"), table)


def reproductions(listed: list[Reproduction]) -> RenderableType:
    """Returns the tables and figures that can be reproduced."""
    table = _table("name", "what it is", "needs")
    for each in listed:
        table.add_row(each.name, each.title, ", ".join([*each.extras, *each.data]))
    return table


def reproduced(what: Reproduction, found: Result) -> RenderableType:
    """Returns a table or figure of a paper beside ours."""
    table = _table("what", "paper", "ours", "agrees", "")
    for row in found.rows:
        agrees = {True: "yes", False: "no", None: ""}[row.agrees]
        table.add_row(row.what, row.paper, row.ours, agrees, row.why)
    unstated = [Text(f"\nNot stated in the paper: {each}") for each in what.unstated]
    return Group(Text(f"{what.name}: {what.title}\n"), table, *unstated)


def roster(listed: RosterFile, audited: list[str]) -> RenderableType:
    """Returns who is in a federation, on what terms, and what the audit says of these."""
    table = _table("name", "address", "fingerprint")
    for card in listed.parties:
        digits = card.fingerprint.split()
        half = len(digits) // 2
        # Texts, for names and addresses may have brackets, which strings would lose.
        table.add_row(Text(card.name), Text(card.address), f"{' '.join(digits[:half])}\n{' '.join(digits[half:])}")
    settings = ", ".join(f"{name}={_default(value)}" for name, value in listed.settings.items())
    title = Text(f"{listed.federation}: {listed.protocol}{f' with {settings}' if settings else ''}\n")
    return Group(title, table, *[Text(f"\n{each[:1].upper()}{each[1:]}.") for each in audited])


def described(protocol: Protocol) -> dict[str, Any]:
    """Returns what there is to know of a protocol before running it, as plain data."""
    return {
        "name": protocol.name,
        "summary": protocol.summary,
        "server": protocol.server is not None,
        "leaks_by_design": protocol.leaks_by_design,
        "options": {
            option.name: msgspec.to_builtins(option.default) for option in msgspec.structs.fields(protocol.settings)
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
