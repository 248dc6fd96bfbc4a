"""Reproduction of a table or figure of a paper: the paper's figures beside ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tacit.core.progress import Progress

Scale: TypeAlias = Literal["small", "paper"]
"""Size of a reproduction: minutes on two cores, or the paper's own size as far as it fits in an hour."""


@dataclass(frozen=True)
class Row:
    """One figure of a paper, and ours."""

    what: str
    paper: str
    """Figure of the paper; empty if it gives none."""
    ours: str
    agrees: bool | None
    """Whether ours agrees with the paper's; None without a figure to compare with."""
    why: str = ""
    """Reason for a disagreement, or the coverage of the measurement."""


@dataclass(frozen=True)
class Chart:
    """Chart: lines by name, each with its places and values."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    logarithmic: bool = False
    dashed: tuple[str, ...] = ()
    """Names of dashed lines: those of the paper, and bounds."""


@dataclass(frozen=True)
class Result:
    """Rows and charts of a finished reproduction."""

    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper that can be run again."""

    name: str
    """Number of the paper and name of the table or figure, such as "000-table2"."""
    title: str
    run: Callable[[Scale, Progress], Result]
    unstated: tuple[str, ...] = ()
    """Choices that the paper does not state, and ours."""
    extras: tuple[str, ...] = ()
    """Required extras, such as "torch"."""
    data: tuple[str, ...] = ()
    """Required data sets besides the bundled ones."""
