"""Progress display: a bar in a terminal, plain lines if the output goes to a file or a pipe.

Both are on standard error, so that results can be piped, as JSON too. There are few lines: none for short work, one
when the step changes or another tenth is done, and a repetition if nothing changes for long.
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
"""The largest number of missing parties that are named."""
SHORT = 2.0
"""Seconds of work before the first line, without a bar."""
OFTEN, RARELY = 5.0, 10.0
"""Seconds between two lines: the minimum, and the maximum without a change."""
STEP = 0.1
"""Fraction of the work after which a new line is due."""
LOOKED = 0.5
"""Seconds between checks whether a line is due."""
WITH_BAR = 60
"""Width from which on a bar fits next to the description."""


class ProgressBar:
    """A bar with the elapsed time, redrawn several times a second."""

    def __init__(self, bar: rich_progress.Progress) -> None:
        self._bar, self._job = bar, bar.add_task("starting", total=None)

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Moves the bar."""
        self._bar.update(self._job, description=doing, completed=done, total=total)


def _print_line(line: str) -> None:
    # Work continues even if nobody reads the progress any more.
    with suppress(OSError, ValueError):
        typer.echo(line, err=True)


class ProgressLines:
    """A few plain lines. With `waits`, for waits that may take days, no line is repeated."""

    def __init__(
        self, *, waits: bool = False, now: Callable[[], float] = perf_counter, say: Callable[[str], None] = _print_line
    ) -> None:
        self._waits, self._now, self._say, self._lock = waits, now, say, Lock()
        self._begun = self._last = now()
        self._doing, self._part = "starting", 0.0
        self._said: tuple[str, float] | None = None

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Takes the current step, and prints it if a line is due."""
        with self._lock:
            self._doing, self._part = doing, done / total if total else 0.0
        self.look()

    def look(self) -> None:
        """Prints a line if one is due."""
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
    """Receives the current step and the amount done, and shows them on standard error."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._last: tuple[str, float, float] = "starting", 0.0, 1.0

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Shows the current step, and the amount done of the total."""
        self._last = doing, done, total
        self._shown(doing, done, total)

    def show_step(self, step: str, *_: float) -> None:
        """Shows a step of the current work. The amount done does not change."""
        doing, done, total = self._last
        self._shown(f"{doing}: {step}", done, total)

    def round(self, metrics: Metrics, rounds: int, parties: int) -> None:
        """Shows the result of a round of learning."""
        self(describe_round(metrics, rounds, parties), metrics.round, rounds)


@contextmanager
def show_progress(*, counted: bool = False, waits: bool = False) -> Iterator[ProgressDisplay]:
    """Yields the display. Its bar disappears at the end."""
    console = Console(stderr=True)
    if not sys.stderr.isatty() or console.is_dumb_terminal:
        with _repeat_lines(ProgressLines(waits=waits)) as lines, _follow_audits(lines) as told:
            yield told
        return
    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),) if counted else ()
    wide = console.width >= WITH_BAR
    bar = rich_progress.Progress(
        # The description is cut off at the edge of the terminal, and never takes a second line.
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
    """Yields a display that also receives the progress of audits within the work."""
    told = ProgressDisplay(shown)
    with listen_for_steps(told.show_step):
        yield told


@contextmanager
def _repeat_lines(lines: ProgressLines) -> Iterator[ProgressLines]:
    """Prints due lines also while no progress is reported."""
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
    """Returns the result of a round in one line: its score, its cost, and the missing parties."""
    said = [f"round {metrics.round} of {rounds}"]
    if score := tables.format_score(metrics.accuracy, metrics.rmse):
        said.append(score)
    if metrics.bytes:
        said.append(f"{tables.format_bytes(metrics.bytes / max(parties, 1))} a party")
    if 0 < metrics.contributors < parties:
        # Parties that were absent from the start are in no list of dropouts.
        said.append(f"{metrics.contributors} of {parties} averaged")
    elif metrics.notes and not metrics.contributors:
        said.append("no average")
    if metrics.left_out:
        named = list(metrics.left_out)
        more = f" and {len(named) - MOST_MISSING} more" if len(named) > MOST_MISSING else ""
        said.append(f"without {', '.join(named[:MOST_MISSING])}{more}")
    return ", ".join(said)
