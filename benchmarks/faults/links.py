"""Links that can be disconnected: a relay with its own port for every ordered pair of parties.

Bytes are forwarded unchanged. A cut link closes all its connections. A stalled link accepts bytes and holds them until
it is mended, as a network does that loses packets.
"""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from tacit.core.entropy import SystemEntropy
from tacit.net.event_loop_thread import EventLoopThread

CHUNK = 1 << 16
FIRST, EPHEMERAL = 10_000, 32_768
"""The first port that may be used, and the first port that the system assigns automatically."""


class Link:
    """The relay from one party to another, with a port and its connections."""

    def __init__(self, port: int) -> None:
        """Forwards to a port of this machine."""
        self._behind = port
        self._cut, self._flowing = False, asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Starts to listen, and returns the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Closes all connections, and refuses new ones."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Forwards nothing."""
        self._flowing.clear()

    def mend(self) -> None:
        """Forwards everything again."""
        self._cut = False
        self._flowing.set()

    async def close(self) -> None:
        """Stops listening, and waits until all connections are closed."""
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
            pass  # Nobody listens there at present, or one side closed the connection.
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
                writer.close()  # This also ends the other direction.

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()


class Links:
    """All links of a federation, run by a thread."""

    def __init__(self, pairs: Iterable[tuple[str, str]], ports: dict[str, int]) -> None:
        """Opens a link from the first to the second of each pair, which listens at a port."""
        self._background = EventLoopThread("links")
        self.ports: dict[tuple[str, str], int] = {}
        """The port at which the first of a pair reaches the second."""
        self._links: dict[tuple[str, str], Link] = {}
        self._background.run(self._open(list(pairs), ports))

    async def _open(self, pairs: list[tuple[str, str]], ports: dict[str, int]) -> None:
        for pair in pairs:
            self._links[pair] = link = Link(ports[pair[1]])
            self.ports[pair] = await link.open()

    def between(self, one: str, other: str | None = None) -> list[tuple[str, str]]:
        """Returns the links of a party, or those between two parties, in both directions."""
        return [pair for pair in self._links if one in pair and (other is None or other in pair)]

    def have(self, pairs: Iterable[tuple[str, str]], what: str) -> None:
        """Cuts, stalls or mends links."""

        async def done() -> None:
            for pair in pairs:
                getattr(self._links[pair], what)()

        self._background.run(done())

    def close(self) -> None:
        """Closes all links."""
        self._background.run(self._close())
        self._background.close()

    async def _close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))


def free_ports(count: int) -> list[int]:
    """Returns free ports that the system does not assign automatically.

    A party that is down does not hold its port. Another process could otherwise be using it when the party restarts.
    """
    found: dict[int, None] = {}
    while len(found) < count:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", SystemEntropy().below(EPHEMERAL - FIRST) + FIRST))
            found[tried.getsockname()[1]] = None
    return list(found)
