"""Progress of long work: what is being done, and which fraction of it is done."""

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, float], None]
"""Called with what is being done and the fraction of the whole, from 0 to 1, that is done."""


def ignore_progress(doing: str, done: float) -> None:
    """Reports progress to nobody."""
    del doing, done
