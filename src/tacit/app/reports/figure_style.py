"""Style of all figures, drawn by matplotlib, which is an extra and takes a second to import."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from tacit.core.errors import MissingExtra

SAFE, WARNING, LEAK, MEMBER, WORST = "#5aa9d6", "#f2c14e", "#8f1414", "#d9d9d9", "#d0653a"
"""Colours that differ in lightness and not only in hue, so that they can be told apart in grey, and by everybody."""
LINES = ("#0b3c5d", "#d55e00", "#3a9d8f", "#b04a8b", "#e0a100", "#5aa9d6", "#7a4b1e", "#111111")
"""Colours of lines that are drawn together, which have markers besides."""
MARKERS = "osD^vPX*"
SOLID, DASHED = ("-", "-."), ("--", ":")
"""How lines are drawn as long as there is a colour for each, and once colours are used again."""
GREY = "#555555"
GRID = {"color": "#dddddd", "linewidth": 0.7}


def style(place: int, dashed: bool = False) -> dict[str, Any]:
    """Returns how a line looks: colour, marker and stroke tell it from others, in grey too, and no two are alike."""
    turn, colour = divmod(place, len(LINES))
    return {
        "color": LINES[colour],
        # Every colour meets another marker when it is used again; three and eight have no divisor in common.
        "marker": MARKERS[(colour + 3 * turn) % len(MARKERS)],
        "markersize": 4.5,
        "linewidth": 1.5,
        "linestyle": (DASHED if dashed else SOLID)[min(turn, 1)],
    }


def add_titles(axes: Any, title: str, settings: str) -> None:
    """Says over a picture what it is of, and in grey under what settings."""
    text = "\n".join(wrap(literal(settings), 100))
    lines = text.count("\n") + 1 if text else 0
    axes.set_title(literal(title), fontsize=10, loc="left", pad=8 + 11 * lines)
    if text:
        place = {"xy": (0, 1), "xycoords": "axes fraction", "xytext": (0, 5), "textcoords": "offset points"}
        axes.annotate(text, **place, fontsize=8, color=GREY, va="bottom")


def literal(text: str) -> str:
    """Returns what somebody called something such that it is drawn as it is: between dollars would be a formula."""
    return text.replace("$", r"\$")


def set_limits(axes: Any, values: Sequence[float | None], what: str, axis: str) -> None:
    """Gives shares, chances and accuracies the whole scale, so that pictures of them can be compared; and per cents."""
    there = [value for value in values if value is not None and np.isfinite(value)]
    share = any(word in what for word in ("share", "accuracy", "correlation", "fraction"))
    top, limits = 100.0 if "%" in what else 1.0, axes.set_xlim if axis == "x" else axes.set_ylim
    if share and there and min(there) >= -0.001 and max(there) <= top * 1.001:
        limits(-0.02 * top, 1.02 * top)
    elif there and min(there) >= 0:
        # What is zero throughout is still a count from zero on.
        most = max(there) or 1.0
        limits(-0.02 * most, 1.05 * most)


def whole_numbers(axes: Any, axis: str) -> None:
    """Writes whole numbers alone on an axis."""
    from matplotlib.ticker import MaxNLocator

    (axes.xaxis if axis == "x" else axes.yaxis).set_major_locator(MaxNLocator(integer=True))


def plain_numbers(axes: Any) -> None:
    """Writes what is on a logarithmic scale as people say it: 0.01, and not ten to the power of −2."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def legend(drawn: Any, meant: Mapping[str, str | tuple[str, str]]) -> None:
    """Says under a picture what its colours mean, and how they are hatched."""
    from matplotlib.patches import Patch

    handles = []
    for name, mark in meant.items():
        colour, hatch = (mark, "") if isinstance(mark, str) else mark
        handles.append(Patch(facecolor=colour, edgecolor="white", linewidth=0, hatch=hatch, label=name))
    drawn.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=8, frameon=False)


def figure(width: float, height: float, rows: int = 1, heights: Any = None, columns: int = 1) -> Any:
    """Returns a blank picture, and its panels; raises MissingExtra if nothing can draw it."""
    try:
        from matplotlib.figure import Figure  # takes a second, and comes with an extra
    except ImportError:
        raise MissingExtra("matplotlib", "pictures") from None
    blank = Figure(figsize=(width, height), layout="constrained")
    panels = blank.subplots(rows, columns, height_ratios=heights)
    for axes in np.ravel(panels):
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return blank, panels


def colours(several: Sequence[str]) -> Any:
    """Returns colours for the numbers from 0 on."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(several)


def save(drawn: Any, path: str) -> None:
    """Writes a picture."""
    import matplotlib as mpl

    # Without a date and with fixed ids the same picture is the same file, which is kind to version control. Who drew it
    # would be the address of a site, in pages that want nothing from elsewhere.
    plain = {"Date": None, "Creator": None} if path.lower().endswith(".svg") else None
    with mpl.rc_context({"svg.hashsalt": "tacit"}):
        drawn.savefig(path, dpi=144, metadata=plain)
