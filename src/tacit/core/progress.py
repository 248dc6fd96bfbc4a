"""Progress of long work: the interface between code that works and code that displays progress.

A function that knows its total amount of work takes a `Progress` argument and calls it. Steps deep inside an audit use
`report_step` instead, which notifies the listener of the current context. So the functions in between need no extra
argument.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Callback that is notified of progress."""

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Receives the current activity, and the amount done out of the total."""


def ignore_progress(doing: str, done: float, total: float = 1.0, /) -> None:
    """Discards reports of progress."""
    del doing, done, total


def part_of_progress(progress: Progress, begin: float, end: float, prefix: str = "") -> Progress:
    """Returns the progress callback of one part of some work, which maps 0…1 to `begin`…`end` of the whole.

    >>> part_of_progress(print, 0.5, 1.0, "second half: ")("adding", 1, 4)
    second half: adding 0.625
    """

    def report(doing: str, done: float, total: float = 1.0, /) -> None:
        progress(f"{prefix}{doing}", begin + (end - begin) * done / total)

    return report


_listener: ContextVar[Progress] = ContextVar("progress_listener", default=ignore_progress)


def report_step(doing: str) -> None:
    """Reports one step of the current work to the listener of this context, without an amount of work."""
    _listener.get()(doing, 0.0)


@contextmanager
def listen_for_steps(listener: Progress) -> Iterator[None]:
    """Sends all steps that are reported inside the block to a listener."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
