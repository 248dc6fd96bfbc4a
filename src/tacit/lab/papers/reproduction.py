"""What a reproduction is: a table or figure of a paper, run again, with the paper's figures beside ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tacit.core.progress import Progress

Scale: TypeAlias = Literal["small", "paper"]
"""Minutes on two cores, or what the paper did, as far as that fits in an hour."""


@dataclass(frozen=True)
class Row:
    """One figure of a paper, and ours."""

    what: str
    paper: str
    """As the paper has it; empty if it gives none."""
    ours: str
    agrees: bool | None
    """None if there is nothing to compare with."""
    why: str = ""
    """Why not, where it does not, or how far it was looked at."""


@dataclass(frozen=True)
class Chart:
    """Lines to draw, each with its places and values."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    logarithmic: bool = False
    dashed: tuple[str, ...] = ()
    """The lines that are the paper's, or a bound."""


@dataclass(frozen=True)
class Result:
    """What came of a reproduction."""

    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper that can be run again."""

    name: str
    """The number of the paper and what it is there, such as "000-table-2"."""
    title: str
    run: Callable[[Scale, Progress], Result]
    unstated: tuple[str, ...] = ()
    """What the paper does not state, and what is done here."""
    extras: tuple[str, ...] = ()
    """Extras that it needs, such as "torch"."""
    data: tuple[str, ...] = ()
    """Data sets that it needs besides those that come along."""
