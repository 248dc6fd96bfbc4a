"""Progress display: a bar in a terminal, plain lines where output goes to a file or a pipe.

Both are on standard error, so that what is found can be piped, as JSON too. Lines are few: none of what is over at
once, one when something else is being done or a tenth more is, and the same again where nothing has changed for long.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import perf_counter

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from tacit.app.terminal import tables
from tacit.core.progress import Progress, listen_for_steps
from tacit.learn.training.metrics import Metrics

MOST_MISSING = 4
"""Parties up to which those who are missing are named."""
SHORT = 2.0
"""Seconds of work before the first line, where there is no bar."""
OFTEN, RARELY = 5.0, 10.0
"""Seconds between two lines: the fewest, and the most without a change."""
STEP = 0.1
"""Share of the work after which a new line is due."""
LOOKED = 0.5
"""Seconds after which it is looked at again whether a line is due."""
WITH_BAR = 60
"""Columns from which on there is room for a bar beside what is being done."""


class ProgressBar:
    """A bar, which is drawn again several times a second, with the time that has passed."""

    def __init__(self, bar: rich_progress.Progress) -> None:
        self._bar, self._job = bar, bar.add_task("starting", total=None)

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Moves the bar."""
        self._bar.update(self._job, description=doing, completed=done, total=total)


def _print_line(line: str) -> None:
    # Work goes on whether or not anybody is left to read how far it is.
    with suppress(OSError, ValueError):
        typer.echo(line, err=True)


class ProgressLines:
    """Plain lines, and few of them. Whoever waits for others, which may take days, says nothing twice."""

    def __init__(
        self, *, waits: bool = False, now: Callable[[], float] = perf_counter, say: Callable[[str], None] = _print_line
    ) -> None:
        self._waits, self._now, self._say, self._lock = waits, now, say, Lock()
        self._begun = self._last = now()
        self._doing, self._part = "starting", 0.0
        self._said: tuple[str, float] | None = None

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Takes what is being done, and says it if a line is due."""
        with self._lock:
            self._doing, self._part = doing, done / total if total else 0.0
        self.look()

    def look(self) -> None:
        """Says a line if one is due."""
        with self._lock:
            now = self._now()
            quiet = now - self._last
            if quiet < (SHORT if self._said is None else OFTEN):
                return
            doing, part = self._said or ("", 0.0)
            changed = self._doing != doing or self._part >= part + STEP
            if not changed and (self._waits or quiet < RARELY):
                return
            still = "" if changed else f" (still, after {tables.format_duration(now - self._begun)})"
            self._said, self._last = (self._doing, self._part), now
            self._say(f"{self._part:4.0%}  {self._doing}{still}")


class ProgressDisplay:
    """Told what is being done, and how much of it is done; shows it, on standard error."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._last: tuple[str, float, float] = "starting", 0.0, 1.0

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Shows what is being done, and how much of the total is done."""
        self._last = doing, done, total
        self._shown(doing, done, total)

    def show_step(self, step: str, *_: float) -> None:
        """Shows a step of the current work, whose amount done stays as it was."""
        doing, done, total = self._last
        self._shown(f"{doing}: {step}", done, total)

    def round(self, metrics: Metrics, rounds: int, parties: int) -> None:
        """Shows how a round of learning ended."""
        self(describe_round(metrics, rounds, parties), metrics.round, rounds)


@contextmanager
def show_progress(*, counted: bool = False, waits: bool = False) -> Iterator[ProgressDisplay]:
    """Yields what to tell. Its bar is gone when all is done."""
    console = Console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        with _repeat_lines(ProgressLines(waits=waits)) as lines, _follow_audits(lines) as told:
            yield told
        return
    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),) if counted else ()
    wide = console.width >= WITH_BAR
    bar = rich_progress.Progress(
        # What is being done is cut off at the edge of the terminal, and never takes a second line.
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=2)),
        *((BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8)),) if wide else ()),
        *counts,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        expand=True,
    )
    with bar, _follow_audits(ProgressBar(bar)) as told:
        yield told


@contextmanager
def _follow_audits(shown: Progress) -> Iterator[ProgressDisplay]:
    """Yields what is told of work, and of audits that are a part of it."""
    told = ProgressDisplay(shown)
    with listen_for_steps(told.show_step):
        yield told


@contextmanager
def _repeat_lines(lines: ProgressLines) -> Iterator[ProgressLines]:
    """Has lines said also while nothing is told."""
    over = Event()

    def watch() -> None:
        while not over.wait(LOOKED):
            lines.look()

    watching = Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield lines
    finally:
        over.set()
        watching.join()


def describe_round(metrics: Metrics, rounds: int, parties: int) -> str:
    """Returns how a round ended, in one line: its score, what it cost, and who was missing."""
    said = [f"round {metrics.round} of {rounds}"]
    if score := tables.format_score(metrics.accuracy, metrics.rmse):
        said.append(score)
    if metrics.bytes:
        said.append(f"{tables.format_bytes(metrics.bytes / max(parties, 1))} a party")
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
