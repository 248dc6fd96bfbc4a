"""Results as pictures, PNG or SVG by the name of the file, for those who would rather look than read."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.api.prepare import Metrics
from tacit.api.train import Run
from tacit.app.comparison import Compared
from tacit.audit.attacks.findings import Finding
from tacit.audit.plan import Plan
from tacit.audit.report import Report
from tacit.core.errors import ConfigError, MissingExtra
from tacit.papers.reproduction import Chart

KINDS = (".png", ".svg")
SAFE, WARNING, LEAK, MEMBER = "#3b7a57", "#d9a441", "#b5322f", "#d0d0d0"
"""Colours that differ in lightness too, for those who see few."""
MOST_LABELS = 40
"""Rows up to which each one is named."""


def check(path: str | None) -> None:
    """Raises ConfigError unless a picture can be written there, and MissingExtra if nothing can draw it."""
    if path is None:
        return
    if Path(path).suffix.lower() not in KINDS:
        raise ConfigError(f"--picture {path}: the name must end in {' or '.join(KINDS)}")
    if not Path(path).resolve().parent.is_dir():
        raise ConfigError(f"--picture {path}: there is no folder {Path(path).resolve().parent}")
    _figure(1, 1)


def exposure(reports: Sequence[Report], path: str) -> None:
    """Draws who is exposed to whom: a row for each coalition, a column for each party."""
    parties = reports[0].parties
    shown = np.array([[report.fractions.get(party, 0.0) for party in parties] for report in reports])
    figure, axes = _figure(2.5 + 0.32 * len(parties), 1.6 + 0.26 * min(len(reports), MOST_LABELS))
    axes.imshow(shown, cmap=_scale(), vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    for row, report in enumerate(reports):
        for party in set(report.coalition) & set(parties):
            column = parties.index(party)
            axes.fill_between([column - 0.5, column + 0.5], row - 0.5, row + 0.5, color=MEMBER, linewidth=0)
    axes.set_xticks(range(len(parties)), parties, rotation=90)
    if len(reports) <= MOST_LABELS:
        axes.set_yticks(range(len(reports)), [", ".join(report.coalition) for report in reports])
    else:
        axes.set_ylabel(f"{len(reports)} coalitions")
    first = reports[0]
    legend = "red: exposed (pale: some entries), green: not, grey: in the coalition itself"
    axes.set_title(f"{first.protocol}: who is exposed to whom\n{first.looked_at}\n{legend}", fontsize=9, loc="left")
    _save(figure, path)


def costs(plan: Plan, path: str) -> None:
    """Draws what proposals cost, and what the audit says of them."""
    proposals = plan.proposals[::-1]
    colours = {"holds": SAFE, "holds if models change": WARNING, "nothing found": WARNING}
    figure, axes = _figure(8.5, 1.4 + 0.4 * len(proposals))
    places = range(len(proposals))
    values = [proposal.bytes_per_party / 1e6 for proposal in proposals]
    axes.barh(
        places,
        values,
        color=[colours.get(proposal.verdict, WARNING if proposal.fine else LEAK) for proposal in proposals],
    )
    axes.set_yticks(places, [f"{proposal.protocol}: {proposal.why}" for proposal in proposals], fontsize=8)
    for place, proposal, value in zip(places, proposals, values, strict=True):
        axes.text(value, place, f" {value:.3g} MB, {proposal.told}", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values) * 30)
    axes.set_xlabel("megabytes that a party sends and receives in a round")
    axes.set_title(
        f"{plan.parties} parties, any {plan.coalition_size} of them colluding, {plan.rounds} rounds, "
        f"{plan.entries:,} entries",
        fontsize=9,
        loc="left",
    )
    _save(figure, path)


def intervals(findings: Sequence[Finding], path: str) -> None:
    """Draws what attacks found, with intervals: one panel for each thing that was measured."""
    measures = list(dict.fromkeys(finding.measure for finding in findings))
    heights = [0.6 + 0.24 * sum(finding.measure == measure for finding in findings) for measure in measures]
    figure, panels = _figure(9.5, 0.6 + sum(heights) + 0.35 * len(measures), len(measures), heights)
    for axes, measure in zip(np.atleast_1d(panels), measures, strict=True):
        rows = [finding for finding in findings if finding.measure == measure][::-1]
        for place, finding in enumerate(rows):
            colour = LEAK if finding.broken else SAFE
            axes.plot([finding.low, finding.high], [place, place], color=colour, linewidth=2)
            axes.plot([finding.value], [place], "o", color=colour, markersize=4)
        axes.set_yticks(range(len(rows)), [finding.target for finding in rows], fontsize=7)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_title(f"{measure} (red: broken; green: not broken by this)", fontsize=8, loc="left")
        axes.tick_params(axis="x", labelsize=7)
    _save(figure, path)


def planes(named: Sequence[tuple[str, NDArray[np.float64], NDArray[np.int64]]], path: str) -> None:
    """Draws points in a plane, coloured by class: what a classifier makes of time series of two classes."""
    figure, panels = _figure(3.2 * len(named), 3.2, 1, None, len(named))
    for axes, (name, points, labels) in zip(np.atleast_1d(panels), named, strict=True):
        for label, colour, marker in ((0, SAFE, "o"), (1, LEAK, "^")):
            chosen = points[labels == label]
            axes.scatter(chosen[:, 0], chosen[:, 1], s=9, c=colour, marker=marker, alpha=0.6, linewidths=0)
        axes.set_title(name, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    _save(figure, path)


def images(columns: Sequence[str], rows: Sequence[Sequence[NDArray[np.float64]]], path: str) -> None:
    """Draws rows of square images, with a heading over each column."""
    figure, panels = _figure(1.5 * len(columns), 0.3 + 1.3 * len(rows), len(rows), None, len(columns))
    for line, row in zip(np.atleast_2d(panels), rows, strict=True):
        for axes, image in zip(line, row, strict=True):
            side = int(np.sqrt(image.size))
            axes.imshow(np.asarray(image).reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
    for axes, heading in zip(np.atleast_2d(panels)[0], columns, strict=True):
        axes.set_title(heading, fontsize=8)
    _save(figure, path)


def labels(table: NDArray[np.int64], path: str, parties: Sequence[str] = (), classes: Sequence[str] = ()) -> None:
    """Draws who holds how many samples of which label: a row for each party, a column for each label, and the sums."""
    rows, columns = table.shape
    named, most = rows <= 2 * MOST_LABELS, max(1, int(table.max()))
    figure, axes = _figure(3.0 + 0.46 * min(max(columns, 8), MOST_LABELS), 1.9 + 0.22 * min(rows, 2 * MOST_LABELS))
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
            axes.set_xticks(range(columns), classes or range(columns), rotation=turned)
    if named:
        names = parties or [f"p{party}" for party in range(rows)]
        sums = [f"{name} ({count:,})" for name, count in zip(names, table.sum(axis=1), strict=True)]
        axes.set_yticks(range(rows), sums)
    axes.tick_params(labelsize=7)
    axes.set_xlabel("label" if columns > 1 else "samples", fontsize=8)
    axes.set_ylabel("party (samples in all)" if named else f"{rows} parties", fontsize=8)
    what = "samples of each label" if columns > 1 else "samples"
    axes.set_title(f"how many {what} a party holds", fontsize=9, loc="left")
    _save(figure, path)


def curves(
    named: dict[str, tuple[Sequence[float], Sequence[float]]],
    labels: tuple[str, str],
    path: str,
    dashed: Collection[str] = (),
) -> None:
    """Draws lines, some of them dashed, the values on a logarithmic scale; what is zero is not drawn."""
    figure, axes = _figure(6.5, 3.6)
    for name, (x, y) in named.items():
        kept = [(a, b) for a, b in zip(x, y, strict=True) if b > 0]
        if kept:
            axes.plot(
                *zip(*kept, strict=True),
                label=name,
                linewidth=1.5,
                marker=".",
                linestyle="--" if name in dashed else "-",
            )
    axes.set_yscale("log")
    axes.set_xlabel(labels[0], fontsize=8)
    axes.set_ylabel(labels[1], fontsize=8)
    axes.legend(fontsize=7, ncols=2)
    _save(figure, path)


def progress(run: Run, path: str) -> bool:
    """Draws how a run went: test score and loss by round. Says whether there was anything to draw."""
    tested = [each for each in run.history if each.accuracy is not None or each.rmse is not None]
    if not tested:
        return False
    figure, (left, right) = _figure(9, 3.4, 1, None, 2)
    rounds = [each.round for each in tested]
    numbers = tested[0].accuracy is None
    shared = [each.rmse if numbers else each.accuracy for each in tested]
    alone = tested[0].consensus is not None
    left.plot(rounds, shared, color=SAFE, label="mean over parties" if alone else "the model they share")
    if alone:
        left.plot(rounds, [each.consensus for each in tested], color=LEAK, linestyle="--", label="mean of all models")
    left.set_ylabel("root mean square error" if numbers else "test accuracy", fontsize=8)
    losses = [each for each in run.history if each.loss is not None]
    right.plot([each.round for each in losses], [each.loss for each in losses], color=SAFE, label="training loss")
    for axes in (left, right):
        axes.set_xlabel("round", fontsize=8)
        axes.legend(fontsize=7)
        axes.tick_params(labelsize=7)
    _save(figure, path)
    return True


def compared(found: Sequence[Compared], path: str) -> None:
    """Draws accuracy against bytes and against time, each protocol a line, and whether the audit found a leak."""
    figure, (left, right) = _figure(11, 4.6, 1, None, 2)
    ran = [each for each in found if each.history]
    numbers = all(each.history[-1].accuracy is None for each in ran)
    for place, each in enumerate(ran):
        tested = [(sent, one) for sent, one in zip(_sent(each), each.history, strict=True) if _tested(one) is not None]
        scores = [_tested(one) for _, one in tested]
        style = {
            "color": f"C{place}",
            "linestyle": "--" if each.leaks else "-",
            "label": f"{each.label}: {each.exposed}",
            "marker": "x" if each.leaks else "o",
            "markersize": 3,
        }
        if any(sent for sent, _ in tested):
            left.plot([sent for sent, _ in tested], scores, **style)
        elif scores:
            left.axhline(scores[-1], **style)
        right.plot([one.seconds for _, one in tested], scores, **style)
    left.set_xscale("log")
    for axes, what in ((left, "megabytes that a party has sent"), (right, "seconds on this machine, for all parties")):
        axes.set_xlabel(what, fontsize=8)
        axes.set_ylabel("root mean square error" if numbers else "test accuracy, mean over parties", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    handles, labels = left.get_legend_handles_labels()
    title = "whose model could be worked out in a round, and by whom (dashed: somebody's)"
    figure.legend(handles, labels, loc="outside lower center", fontsize=7, ncols=2, title=title, title_fontsize=8)
    _save(figure, path)


def _tested(metrics: Metrics) -> float | None:
    return metrics.accuracy if metrics.accuracy is not None else metrics.rmse


def _sent(each: Compared) -> list[float]:
    return [float(sent) for sent in np.cumsum([one.bytes / 1e6 / each.parties for one in each.history])]


def charts(drawn: Sequence[Chart], path: str) -> None:
    """Draws the charts of a reproduction side by side; what is dashed is the paper's, or a bound."""
    if not drawn:
        raise ConfigError("there is nothing to draw here; leave --picture out")
    figure, panels = _figure(5.5 * len(drawn), 3.8, 1, None, len(drawn))
    for axes, chart in zip(np.atleast_1d(panels), drawn, strict=True):
        for name, (x, y) in chart.lines.items():
            axes.plot(x, y, label=name, linestyle="--" if name in chart.dashed else "-", marker=".", linewidth=1.3)
        if chart.logarithmic:
            axes.set_yscale("log")
        axes.set_title(chart.title, fontsize=9)
        axes.set_xlabel(chart.x, fontsize=8)
        axes.set_ylabel(chart.y, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7)
    _save(figure, path)


def _figure(width: float, height: float, rows: int = 1, heights: Any = None, columns: int = 1) -> Any:
    try:
        from matplotlib.figure import Figure  # takes a second, and comes with an extra
    except ImportError:
        raise MissingExtra("matplotlib", "pictures") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, height_ratios=heights)


def _scale() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    # The least fraction is clearly not green.
    return LinearSegmentedColormap.from_list("exposure", [(0.0, SAFE), (1e-9, "#f0c0bd"), (1.0, LEAK)])


def _save(figure: Any, path: str) -> None:
    import matplotlib as mpl

    # Without a date and with fixed ids the same picture is the same file, which is kind to version control.
    with mpl.rc_context({"svg.hashsalt": "tacit"}):
        figure.savefig(path, dpi=144, metadata={"Date": None} if path.lower().endswith(".svg") else None)
