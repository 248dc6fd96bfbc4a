"""Links that can be disconnected: a port for every ordered pair of parties, behind which the other one listens.

Bytes go through as they are. A link that is cut hangs up on everybody; one that is stalled takes bytes and holds them
until it flows again, as a network does that loses packets.
"""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from tacit.core.entropy import SystemEntropy
from tacit.net.event_loop_thread import EventLoopThread

CHUNK = 1 << 16
FIRST, EPHEMERAL = 10_000, 32_768
"""The first port that may be used, and the first of those that the system gives to whoever wants any."""


class Link:
    """The way from one party to another: a port of its own, and the connections through it."""

    def __init__(self, port: int) -> None:
        """Leads to a port of this machine."""
        self._behind = port
        self._cut, self._flowing = False, asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Listens, and returns at which port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Hangs up on everybody, from now on."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Lets nothing through."""
        self._flowing.clear()

    def mend(self) -> None:
        """Lets everything through again."""
        self._cut = False
        self._flowing.set()

    async def close(self) -> None:
        """Listens no longer, and waits until everybody has gone."""
        if self._server is not None:
            self._server.close()
        self.mend()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if (task := asyncio.current_task()) is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            if self._cut:
                return
            there, back = await asyncio.open_connection("127.0.0.1", self._behind)
            self._writers.add(back)
            try:
                await asyncio.gather(self._copied(reader, back), self._copied(there, writer))
            finally:
                self._hang_up(back)
        except OSError:
            pass  # nobody listens there at present, or somebody hung up
        finally:
            self._hang_up(writer)

    async def _copied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        finally:
            with suppress(OSError, RuntimeError):
                writer.close()  # so that the other direction ends too

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()


class Links:
    """All links of a federation, run by a thread."""

    def __init__(self, pairs: Iterable[tuple[str, str]], ports: dict[str, int]) -> None:
        """Opens a link from the first to the second of each pair, who listens at a port."""
        self._background = EventLoopThread("links")
        self.ports: dict[tuple[str, str], int] = {}
        """Where the first of a pair finds the second."""
        self._links: dict[tuple[str, str], Link] = {}
        self._background.run(self._open(list(pairs), ports))

    async def _open(self, pairs: list[tuple[str, str]], ports: dict[str, int]) -> None:
        for pair in pairs:
            self._links[pair] = link = Link(ports[pair[1]])
            self.ports[pair] = await link.open()

    def between(self, one: str, other: str | None = None) -> list[tuple[str, str]]:
        """Returns the links of a party, or those of two with each other, in both directions."""
        return [pair for pair in self._links if one in pair and (other is None or other in pair)]

    def have(self, pairs: Iterable[tuple[str, str]], what: str) -> None:
        """Has links cut, stalled or mended."""

        async def done() -> None:
            for pair in pairs:
                getattr(self._links[pair], what)()

        self._background.run(done())

    def close(self) -> None:
        """Ends all of them."""
        self._background.run(self._close())
        self._background.close()

    async def _close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens at, and that the system gives to nobody who does not ask for them.

    A party that is down has none of its own, and finds it taken otherwise when it is back.
    """
    found: dict[int, None] = {}
    while len(found) < count:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", SystemEntropy().below(EPHEMERAL - FIRST) + FIRST))
            found[tried.getsockname()[1]] = None
    return list(found)
