"""Coverage-guided fuzzer of a peer's input: envelopes, handshakes, hellos and frames (see README.md)."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["tacit"]):
    from fuzz import damage, frames


class GuidedDraws:
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
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        sinks = loop.run_until_complete(_sinks(Path(folder)))

        def one(given: bytes) -> None:
            draw = GuidedDraws(given)
            loop.run_until_complete(_taken(damage.chosen(draw, sinks), draw))

        atheris.Setup(sys.argv, one)
        atheris.Fuzz()


async def _sinks(folder: Path) -> list[Any]:
    """Returns everything that takes frames in, of every protocol."""
    sinks: list[Any] = []
    for protocol in frames.REGISTRY:
        made = frames.Federation.of(protocol)
        sinks += [kind(made) for kind in (frames.Seats, frames.Inboxes, frames.Rounds, frames.Parcels, _Plain)]
        sinks.append(frames.Hellos(made, folder))
    return sinks


async def _taken(sink: Any, draw: GuidedDraws) -> None:
    taken = sink.take(draw)
    if asyncio.iscoroutine(taken):
        await taken


class _Plain:
    """A seat that is handed what the fuzzer makes of bytes, without any frame to begin with."""

    def __init__(self, made: frames.Federation) -> None:
        self._made, self._seats = made, frames.Seats(made)

    def take(self, draw: GuidedDraws) -> None:
        """Hands the rest of the choices over as they are."""
        to = damage.chosen(draw, list(self._made.heard))
        self._seats.given(to, draw.octets(1 << 16))


if __name__ == "__main__":
    main()
