"""What an audit is doing, for whoever waits for it.

Audits are asked from many places, and take long far below these: in a round on unknowns, or in the sums of a hundred
rounds. So what is being done is told to whoever listens around the call, and nobody in between passes anything on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Told: TypeAlias = Callable[[str], None]


def _nobody(doing: str) -> None:
    del doing


_listening: ContextVar[Told] = ContextVar("listening", default=_nobody)


def tell(doing: str) -> None:
    """Tells whoever listens what is being done."""
    _listening.get()(doing)


@contextmanager
def listening(told: Told) -> Iterator[None]:
    """Has someone told what audits are doing, until the end of the block."""
    before = _listening.set(told)
    try:
        yield
    finally:
        _listening.reset(before)
