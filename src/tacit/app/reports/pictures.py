"""Results as pictures, PNG or SVG by the name of the file, for those who would rather look than read."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.app.reports import figure_style
from tacit.app.reports.figure_style import GRID, LEAK, MEMBER, SAFE, WARNING, WORST
from tacit.auditing.findings import AttackVerdict, Verdict
from tacit.auditing.render.plan import name_verdict
from tacit.auditing.render.verdicts import ATTACK_VERDICTS, describe_coverage
from tacit.auditing.report import Report
from tacit.auditing.search.planner import Plan, Proposal
from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.lab.attacks.attack_result import Finding, Grid, group_by_measure
from tacit.lab.comparison import ComparisonResult, write_variant
from tacit.lab.papers.reproduction import Chart
from tacit.learn.scenario import Scenario
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.train import Run

KINDS = (".png", ".svg")
MARKS = {
    Verdict.HOLDS: (SAFE, ""),
    Verdict.NOTHING_FOUND: (WARNING, ""),
    Verdict.EXPOSED: (LEAK, ""),
    Verdict.EXPOSED_IN_WORST_CASE: (LEAK, "\\\\"),
    Verdict.NEARLY_EXPOSED: (LEAK, "--"),
    Verdict.UNDECIDED: (MEMBER, ""),
    Verdict.LEAKS_BY_DESIGN: (LEAK, "xx"),
    Verdict.NOT_AUDITED: (MEMBER, ".."),
}
"""Colour and hatch of a verdict's bar."""
NEEDS_DRIFT = "//"
"""Hatch of a verdict that holds only as long as models drift."""
MOST_LABELS = 40
"""Rows up to which each one is named."""
MOST_MARKED = 12
"""Points of a line that have markers, about."""
WRAPPED = 60
"""Letters of what was attacked in a line."""
SHADES = (SAFE, WARNING, LEAK, MEMBER, WORST)
"""Colours of a matrix: not exposed, in part or nearly, exposed, member of the coalition, exposed in the worst case."""


def check(path: str | None) -> None:
    """Raises ConfigError unless a picture can be written there, and MissingExtra if nothing can draw it."""
    if path is not None:
        check_file("--picture", path, KINDS)
        figure_style.figure(1, 1)


def check_file(option: str, path: str, endings: Sequence[str]) -> None:
    """Raises ConfigError unless an option names a file that can be written, with one of some endings."""
    if Path(path).suffix.lower() not in endings:
        raise ConfigError(f"{option} {path}: the name must end in {' or '.join(endings)}")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigError(f"{option} {path}: folder not found: {Path(path).resolve().parent}")
    if Path(path).is_dir():
        raise ConfigError(f"{option} {path} is a folder; try: give the name of a file")


def exposure(reports: Sequence[Report], path: str, options: Mapping[str, Any] | None = None) -> None:
    """Draws who is exposed to whom: a row for each coalition, a column for each party."""
    parties, first = reports[0].parties, reports[0]
    shown = np.array([[_shade(report, party) for party in parties] for report in reports])
    height = 2.3 + 0.28 * min(len(reports), MOST_LABELS)
    figure, axes = figure_style.figure(max(6.4, 2.2 + 0.36 * len(parties)), height)
    axes.imshow(
        shown, cmap=figure_style.colours(SHADES), vmin=0, vmax=len(SHADES) - 1, aspect="auto", interpolation="nearest"
    )
    # Lines between the cells, so that one can count them.
    axes.set_xticks(np.arange(len(parties) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(reports) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2 if len(reports) <= MOST_LABELS else 0.0)
    axes.tick_params(which="both", length=0)
    axes.set_xticks(range(len(parties)), parties, rotation=90 if len(parties) > 12 else 0)
    axes.set_xlabel("whose vector")
    if len(reports) <= MOST_LABELS:
        axes.set_yticks(range(len(reports)), [", ".join(report.coalition) for report in reports])
        axes.set_ylabel("coalition")
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(reports)} coalitions")
    name = write_variant(first.protocol, options or {})
    figure_style.add_titles(
        axes, f"{name}, {len(parties)} parties: who can recover whose vector", describe_coverage(first.coverage)
    )
    meant = {
        "all of it": LEAK,
        "in the worst case (other seeds, more dropouts)": WORST,
        "some entries, or nearly": WARNING,
        "none of it": SAFE,
        "their own": MEMBER,
    }
    used = {SHADES[int(each)] for each in np.unique(shown)}
    figure_style.legend(figure, {name: colour for name, colour in meant.items() if colour in used})
    figure_style.save(figure, path)


def _shade(report: Report, party: str) -> int:
    if party in report.coalition:
        return 3
    fraction = report.fractions.get(party, 0.0)
    if fraction == 1.0:
        return 2
    if fraction or party in report.nearly:
        return 1
    late = any(party in each.victims for each in report.exposing_seeds) or party in (report.at_worst or ())
    return 4 if late else 0


def costs(plan: Plan, path: str) -> None:
    """Draws what proposals cost, and what the audit says of them."""
    proposals = plan.proposals[::-1]
    figure, axes = figure_style.figure(9.5, 2.2 + 0.5 * len(proposals))
    places = range(len(proposals))
    values = [proposal.bytes_per_party / 1e6 for proposal in proposals]
    for place, value, proposal in zip(places, values, proposals, strict=True):
        colour, hatch = _mark(proposal)
        axes.barh(place, value, color=colour, height=0.62, hatch=hatch, edgecolor="white", linewidth=0)
    axes.set_yticks(places, [f"{proposal.protocol}\n{proposal.why}" for proposal in proposals], fontsize=8)
    for place, proposal, value in zip(places, proposals, values, strict=True):
        # Beside the picture, so that the scale ends where the bars do.
        beside = {"xy": (1, place), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(f"{value:.3g} MB, {_name(proposal)}", **beside, xytext=(6, 0), va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 2, max(values) * 1.3)
    figure_style.plain_numbers(axes)
    axes.set_xlabel("megabytes that a party sends and receives in a round")
    axes.grid(axis="x", **GRID)
    figure_style.add_titles(
        axes,
        f"What {plan.parties} parties can run, and what it costs",
        f"any {plan.coalition_size} colluding, {format_count(plan.rounds, 'round')}, {plan.dropout:.0%} dropouts, "
        f"{format_count(plan.entries, 'entry', 'entries')}",
    )
    ordered = sorted(proposals, key=lambda each: (list(MARKS).index(each.verdict), each.needs_drift))
    figure_style.legend(figure, {_name(each): _mark(each) for each in ordered})
    figure_style.save(figure, path)


def _mark(proposal: Proposal) -> tuple[str, str]:
    """Returns the colour and the hatch of a proposal's bar."""
    colour, hatch = MARKS[proposal.verdict]
    return colour, NEEDS_DRIFT if proposal.needs_drift else hatch


def _name(proposal: Proposal) -> str:
    return name_verdict(proposal.verdict, proposal.needs_drift)


def intervals(findings: Sequence[Finding], path: str, settings: str = "") -> None:
    """Draws what attacks found, with what it lies between: one panel for each thing that was measured."""
    groups = [rows[::-1] for rows in group_by_measure(findings)]
    measures = [rows[0].measure for rows in groups]
    heights = [0.9 + sum(0.17 + 0.13 * len(wrap(each.target, WRAPPED)) for each in rows) for rows in groups]
    figure, panels = figure_style.figure(10, 0.9 + sum(heights), len(measures), heights)
    for axes, measure, rows in zip(np.atleast_1d(panels), measures, groups, strict=True):
        for place, finding in enumerate(rows):
            colour, marker = (LEAK, "X") if finding.broken else (SAFE, "o")
            axes.plot([finding.low, finding.high], [place, place], color=colour, linewidth=2.5, solid_capstyle="butt")
            axes.plot([finding.value], [place], marker, color=colour, markersize=7)
        axes.set_yticks(range(len(rows)), ["\n".join(wrap(each.target, WRAPPED)) for each in rows], fontsize=7)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        figure_style.set_limits(axes, [value for each in rows for value in (each.low, each.high)], measure, "x")
        counted = all(float(each.value).is_integer() and each.low == each.high for each in rows)
        if counted:
            figure_style.whole_numbers(axes, "x")
        bracket = f"; the line is {_bracket(rows[0])}" if rows[0].bracket else ""
        axes.set_xlabel(f"{measure}{bracket}", fontsize=8)
        axes.grid(axis="x", **GRID)
    figure_style.add_titles(np.atleast_1d(panels)[0], f"tacit attack {findings[0].attack}", settings)
    marks = {AttackVerdict.BROKEN: ("X", LEAK), AttackVerdict.NOT_BROKEN_BY_THIS: ("o", SAFE)}
    used = {each.verdict for each in findings}
    shown = {f"{mark}  {ATTACK_VERDICTS[code]}": colour for code, (mark, colour) in marks.items() if code in used}
    figure_style.legend(figure, shown)
    figure_style.save(figure, path)


def _bracket(finding: Finding) -> str:
    return f"the {finding.bracket}" if finding.has_interval else f"from {finding.bracket.replace(', ', ' ')}"


def planes(named: Sequence[tuple[str, NDArray[np.float64], NDArray[np.int64]]], path: str) -> None:
    """Draws points in a plane, coloured by class: what a classifier makes of time series of two classes."""
    figure, panels = figure_style.figure(3.2 * len(named), 4.1, 1, None, len(named))
    for axes, (name, points, labels) in zip(np.atleast_1d(panels), named, strict=True):
        for kind, colour, marker in ((0, SAFE, "o"), (1, LEAK, "^")):
            chosen = points[labels == kind]
            axes.scatter(chosen[:, 0], chosen[:, 1], s=12, c=colour, marker=marker, alpha=0.7, linewidths=0)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xlabel("first direction of its last layer", fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
    np.atleast_1d(panels)[0].set_ylabel("second direction", fontsize=8)
    figure.suptitle(
        "What an eavesdropper's classifier makes of runs of two kinds: can it distinguish them?", fontsize=10
    )
    figure_style.legend(figure, {"o  the baseline": SAFE, "^  one client's loss changed": LEAK})
    figure_style.save(figure, path)


def images(shown: Grid, path: str) -> None:
    """Draws rows of square images, with a heading over each column."""
    columns, rows = shown.headings, shown.rows
    figure, panels = figure_style.figure(
        1.55 * len(columns) + 0.6, 1.1 + 1.25 * len(rows), len(rows), None, len(columns)
    )
    grid = np.atleast_2d(panels)
    for line, row in zip(grid, rows, strict=True):
        for axes, image in zip(line, row, strict=True):
            side = int(np.sqrt(image.size))
            axes.imshow(np.asarray(image).reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
    for axes, heading in zip(grid[0], columns, strict=True):
        axes.set_title(heading, fontsize=9)
    for place, line in enumerate(grid):
        line[0].set_ylabel(f"client {place}", fontsize=8)
    figure.suptitle("\n".join(wrap(shown.title, 60)), fontsize=10)
    figure_style.save(figure, path)


def labels(table: NDArray[np.int64], path: str, parties: Sequence[str] = (), classes: Sequence[str] = ()) -> None:
    """Draws who holds how many samples of which label: a row for each party, a column for each label, and the sums."""
    rows, columns = table.shape
    named, most = rows <= 2 * MOST_LABELS, max(1, int(table.max()))
    figure, axes = figure_style.figure(
        3.0 + 0.46 * min(max(columns, 8), MOST_LABELS), 1.9 + 0.22 * min(rows, 2 * MOST_LABELS)
    )
    if columns == 1:
        axes.barh(range(rows), table[:, 0], color=SAFE)
        axes.set_ylim(rows - 0.4, -0.6)
    else:
        drawn = axes.imshow(table, cmap="Blues", vmin=0, vmax=most, aspect="auto", interpolation="nearest")
        if named and columns <= MOST_LABELS // 2:
            for (row, column), count in np.ndenumerate(table):
                # What lies inside takes no room of its own, and to work that out takes seconds.
                style = {"fontsize": 7, "color": "white" if count > 0.6 * most else "black", "in_layout": False}
                if count:
                    axes.text(column, row, f"{count}", ha="center", va="center", **style)
        else:
            figure.colorbar(drawn, ax=axes, shrink=0.8).set_label("samples", fontsize=8)
        if columns <= 2 * MOST_LABELS:
            turned = 90 if any(len(name) > 3 for name in classes) else 0
            axes.set_xticks(range(columns), [*map(figure_style.literal, classes)] or range(columns), rotation=turned)
    if named:
        names = parties or [f"p{party}" for party in range(rows)]
        sums = [
            f"{figure_style.literal(name)} ({count:,})" for name, count in zip(names, table.sum(axis=1), strict=True)
        ]
        axes.set_yticks(range(rows), sums)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("label" if columns > 1 else "samples", fontsize=8)
    axes.set_ylabel("party (samples in all)" if named else f"{rows} parties", fontsize=8)
    what = "samples of each label" if columns > 1 else "samples"
    axes.set_title(f"how many {what} a party holds", fontsize=9, loc="left")
    figure_style.save(figure, path)


def curves(
    named: dict[str, tuple[Sequence[float], Sequence[float]]],
    labels: tuple[str, str],
    path: str,
    dashed: Collection[str] = (),
    title: tuple[str, str] = ("", ""),
) -> None:
    """Draws lines, some of them dashed, the values on a logarithmic scale; what is zero is not drawn."""
    figure, axes = figure_style.figure(7.5, 4.6)
    for place, (name, (x, y)) in enumerate(named.items()):
        kept = [(a, b) for a, b in zip(x, y, strict=True) if b > 0]
        if kept:
            axes.plot(*zip(*kept, strict=True), label=name, **figure_style.style(place, name in dashed))
    axes.set_yscale("log")
    figure_style.whole_numbers(axes, "x")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.grid(**GRID)
    figure_style.add_titles(axes, *title)
    figure.legend(loc="outside lower center", fontsize=8, ncols=3, frameon=False, handlelength=4.2)
    figure_style.save(figure, path)


def progress(run: Run, path: str) -> bool:
    """Draws how a run went: test score and loss by round. Says whether there was anything to draw."""
    tested = [each for each in run.history if each.accuracy is not None or each.rmse is not None]
    if not tested:
        return False
    figure, (left, right) = figure_style.figure(9.5, 3.9, 1, None, 2)
    rounds = [each.round for each in tested]
    numbers, alone = tested[0].accuracy is None, tested[0].consensus is not None
    shared = [each.rmse if numbers else each.accuracy for each in tested]
    what = "root mean square error" if numbers else "test accuracy"
    left.plot(rounds, shared, label="mean over parties" if alone else "the model they share", **figure_style.style(0))
    if alone:
        left.plot(
            rounds,
            [each.consensus for each in tested],
            label="if all were averaged",
            **figure_style.style(1, dashed=True),
        )
        under = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2}
        left.legend(**under, fontsize=8, frameon=False, handlelength=4.2)
    figure_style.set_limits(left, shared, what, "y")
    losses = [each for each in run.history if each.loss is not None]
    right.plot([each.round for each in losses], [each.loss for each in losses], **figure_style.style(0))
    right.set_ylim(bottom=0)
    for axes, y in ((left, what), (right, "training loss, mean over parties")):
        axes.set_xlabel("round")
        axes.set_ylabel(y)
        figure_style.whole_numbers(axes, "x")
        axes.grid(**GRID)
    scenario = run.scenario
    many = f"{len(run.sizes)} parties" if len(run.sizes) > 1 else "one party"
    figure_style.add_titles(
        left,
        scenario.title or run.name,
        f"{many}, {scenario.protocol['name']}, {scenario.model['name']}, {format_count(len(run.history), 'round')}",
    )
    figure_style.save(figure, path)
    return True


def draw_comparison(scenario: Scenario, found: Sequence[ComparisonResult], path: str) -> None:
    """Draws accuracy against bytes and against time, each protocol a line, and whether the audit found a leak."""
    ran = [each for each in found if each.history]
    if not ran:
        raise ConfigError("every protocol was refused, so there is nothing to draw; try: leave out --picture")
    figure, (left, right) = figure_style.figure(11, 5.6, 1, None, 2)
    numbers = all(each.history[-1].accuracy is None for each in ran)
    what = "root mean square error" if numbers else "test accuracy, mean over parties"
    for place, each in enumerate(ran):
        tested = [
            (sent, one) for sent, one in zip(_sum_sent(each), each.history, strict=True) if _find_score(one) is not None
        ]
        scores = [_find_score(one) for _, one in tested]
        named = figure_style.literal(f"{each.label}: {each.exposed}")
        style = {**figure_style.style(place, each.leaks), "label": named, "markersize": 4}
        if any(sent for sent, _ in tested):
            left.plot([sent for sent, _ in tested], scores, **style)
        elif scores:
            left.axhline(scores[-1], **{**style, "marker": ""})
        right.plot([one.seconds for _, one in tested], scores, **style)
    left.set_xscale("log")
    figure_style.plain_numbers(left)
    every = [score for each in ran for one in each.history if (score := _find_score(one)) is not None]
    for axes, x in ((left, "megabytes that a party has sent"), (right, "seconds on this machine, for all parties")):
        axes.set_xlabel(x)
        axes.set_ylabel(what)
        figure_style.set_limits(axes, every, what, "y")
        axes.grid(**GRID)
    right.set_xlim(left=0)
    data = scenario.data
    figure_style.add_titles(
        left,
        f"{format_count(data.parties, 'party learns', 'parties learn')} {data.display_name} by each protocol",
        f"{scenario.model['name']}, {data.split_text}, {format_count(scenario.rounds, 'round')}, seed {scenario.seed}",
    )
    handles, labels = right.get_legend_handles_labels()
    title = "whose model could be worked out in a round, and by whom (dashed: somebody's)"
    style = {"fontsize": 8, "ncols": 2, "title": title, "title_fontsize": 8, "frameon": False, "handlelength": 4.2}
    figure.legend(handles, labels, loc="outside lower center", **style)
    figure_style.save(figure, path)


def _find_score(metrics: Metrics) -> float | None:
    return metrics.accuracy if metrics.accuracy is not None else metrics.rmse


def _sum_sent(each: ComparisonResult) -> list[float]:
    return [float(sent) for sent in np.cumsum([one.bytes / 1e6 / each.parties for one in each.history])]


def charts(drawn: Sequence[Chart], path: str, title: str = "") -> None:
    """Draws the charts of a reproduction side by side; what is dashed is the paper's, or a bound."""
    if not drawn:
        raise ConfigError("this attack has no picture; try: leave out --picture")
    rows = [-(-len(chart.lines) // _columns(chart.lines)) for chart in drawn]
    figure, panels = figure_style.figure(5.8 * len(drawn), 4.6 + 0.17 * max(rows), 1, None, len(drawn))
    for axes, chart in zip(np.atleast_1d(panels), drawn, strict=True):
        for place, (name, (x, y)) in enumerate(chart.lines.items()):
            # Of many points some are marked, so that one can still see the line.
            every = max(1, len(x) // MOST_MARKED)
            look = _beside(chart, place, name)
            axes.plot(x, y, label=name, markevery=(place % every, every), **look)
            if name in chart.spread:
                low, high = ([a + s * b for a, b in zip(y, chart.spread[name], strict=True)] for s in (-1, 1))
                axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        values = [float(each) for _, y in chart.lines.values() for each in y]
        places = [float(each) for x, _ in chart.lines.values() for each in x]
        if chart.logarithmic:
            axes.set_yscale("log")
        else:
            figure_style.set_limits(axes, values, chart.y, "y")
        for numbers, axis in ((places, "x"), ([] if chart.logarithmic else values, "y")):
            if numbers and all(each.is_integer() for each in numbers):
                figure_style.whole_numbers(axes, axis)
        axes.set_xlabel(chart.x)
        axes.set_ylabel(chart.y)
        axes.grid(**GRID)
        axes.set_title(chart.title, fontsize=9, loc="left")
        # Under the picture, where it hides no line; and long enough to tell dashes from lines.
        under = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": _columns(chart.lines)}
        axes.legend(**under, fontsize=7, frameon=False, handlelength=4.2)
    if title:
        figure.suptitle("\n".join(wrap(title, 75 * len(drawn))), fontsize=10, x=0.01, ha="left")
    figure_style.save(figure, path)


def _beside(chart: Chart, place: int, name: str) -> dict[str, Any]:
    """Returns how a line looks: what is dashed, and of another line by its name, has the looks of that, but hollow."""
    other = name.rpartition(", ")[0]
    if name in chart.dashed and other in chart.lines:
        return {**figure_style.style([*chart.lines].index(other), dashed=True), "markerfacecolor": "white"}
    return figure_style.style(place, name in chart.dashed)


def _columns(names: Collection[str]) -> int:
    """Returns how many names of lines stand beside each other under a chart."""
    return max(1, min(3, 66 // (12 + max(map(len, names), default=0))))
