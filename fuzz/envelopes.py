"""A fuzzer guided by coverage: what a peer hands over, as envelopes, greetings, hellos and parcels (see README.md)."""

import asyncio
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["tacit"]):
    from fuzz import damage, frames


class Guided:
    """Choices that a fuzzer makes."""

    def __init__(self, given: bytes) -> None:
        self._given = atheris.FuzzedDataProvider(given)

    def below(self, bound: int) -> int:
        """Returns a number from 0 on, below a bound."""
        return self._given.ConsumeIntInRange(0, bound - 1)

    def octets(self, count: int) -> bytes:
        """Returns so many bytes, or as many as there are."""
        return self._given.ConsumeBytes(count)


def main() -> None:
    """Runs until something is raised that must not be, or for as long as libFuzzer is told."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(Path(folder)))


async def _run(folder: Path) -> None:
    sinks = []
    for protocol in frames.REGISTRY:
        made = frames.Federation.of(protocol)
        sinks += [kind(made) for kind in (frames.Seats, frames.Inboxes, frames.Rounds, frames.Parcels)]
        sinks.append(frames.Hellos(made, folder))
        sinks.append(_Plain(made))

    def one(given: bytes) -> None:
        draw = Guided(given)
        taken = damage.chosen(draw, sinks).take(draw)
        if asyncio.iscoroutine(taken):
            _finished(taken)

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


class _Plain:
    """A seat that is handed what the fuzzer makes of bytes, without any frame to begin with."""

    def __init__(self, made: frames.Federation) -> None:
        self._made, self._seats = made, frames.Seats(made)

    def take(self, draw: Guided) -> None:
        """Hands the rest of the choices over as they are."""
        to = damage.chosen(draw, list(self._made.heard))
        self._seats.given(to, draw.octets(1 << 16))


def _finished(work: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine that has nothing to wait for, within the loop that is running."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


if __name__ == "__main__":
    main()
