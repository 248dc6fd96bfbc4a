"""Progress of long work: the interface between code that works and code that shows how far the work is.

Work that knows how much there is to do takes a `Progress` as an argument and calls it. Steps deep inside an audit,
which is called from many places, are reported with `report_step` to the listener around the call, so that no function
in between passes anything on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Callable that is notified of progress."""

    def __call__(self, doing: str, done: float, total: float = 1.0, /) -> None:
        """Receives what is being done, and how much of the total is done."""


def ignore_progress(doing: str, done: float, total: float = 1.0, /) -> None:
    """Reports progress to nobody."""
    del doing, done, total


def part_of_progress(progress: Progress, begin: float, end: float, prefix: str = "") -> Progress:
    """Returns the progress of a part of some work: its 0 is `begin` of the whole and its 1 is `end`.

    >>> part_of_progress(print, 0.5, 1.0, "second half: ")("adding", 1, 4)
    second half: adding 0.625
    """

    def report(doing: str, done: float, total: float = 1.0, /) -> None:
        progress(f"{prefix}{doing}", begin + (end - begin) * done / total)

    return report


_listener: ContextVar[Progress] = ContextVar("progress_listener", default=ignore_progress)


def report_step(doing: str) -> None:
    """Reports one step of the current work to the listener of this context; a step has no amount of its own."""
    _listener.get()(doing, 0.0)


@contextmanager
def listen_for_steps(listener: Progress) -> Iterator[None]:
    """Sends the steps that are reported inside the block to a listener."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
