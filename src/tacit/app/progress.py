"""How far something is, for whoever waits: a bar in a terminal, plain lines where output goes to a file or a pipe."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from tacit.api.prepare import Metrics
from tacit.app import tables

MOST_MISSING = 4
"""Parties up to which those who are missing are named."""


class Following:
    """Told what is being done, and how much of it is done; shows it, on standard error."""

    def __init__(self, bar: Progress | None, quiet: bool) -> None:
        self._bar, self._quiet, self._last = bar, quiet, ""
        self._job = None if bar is None else bar.add_task("starting", total=None)

    def __call__(self, doing: str, done: float, of: float = 1.0) -> None:
        """Moves the bar. There is no line for it: it is said too often."""
        if self._bar is not None and self._job is not None:
            self._bar.update(self._job, description=doing, completed=done, total=of)

    def part(self, doing: str, done: float) -> None:
        """Moves the bar or, where there is none, says what is begun, once."""
        self(doing, done)
        if doing != self._last and done < 1.0:
            self.line(f"{done:4.0%}  {doing}")
        self._last = doing

    def line(self, text: str) -> None:
        """Says a line where there is no bar."""
        if self._bar is None and not self._quiet:
            typer.echo(text, err=True)

    def round(self, metrics: Metrics, rounds: int, parties: int) -> None:
        """Says how a round of learning ended."""
        said = ended(metrics, rounds, parties)
        self(said, metrics.round, rounds)
        self.line(said)


@contextmanager
def following(as_json: bool, *, counted: bool = False) -> Iterator[Following]:
    """Yields what to tell. Its bar is gone when all is done; with JSON there are no lines."""
    if not sys.stderr.isatty():
        yield Following(None, quiet=as_json)
        return
    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),) if counted else ()
    bar = Progress(
        # What is being done is cut off at the edge of the terminal, and never takes a second line.
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=2)),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8)),
        *counts,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bar:
        yield Following(bar, quiet=False)


def ended(metrics: Metrics, rounds: int, parties: int) -> str:
    """Returns how a round ended, in one line: its score, what it cost, and who was missing."""
    said = [f"round {metrics.round} of {rounds}"]
    if score := tables.score(metrics.accuracy, metrics.rmse):
        said.append(score)
    if metrics.bytes:
        said.append(f"{tables.size(metrics.bytes / max(parties, 1))} a party")
    if 0 < metrics.contributors < parties:
        # Those who were not there from the start are in no list of who was lost.
        said.append(f"{metrics.contributors} of {parties} averaged")
    elif metrics.notes and not metrics.contributors:
        said.append("no average")
    if metrics.left_out:
        named = list(metrics.left_out)
        more = f" and {len(named) - MOST_MISSING} more" if len(named) > MOST_MISSING else ""
        said.append(f"without {', '.join(named[:MOST_MISSING])}{more}")
    return ", ".join(said)
