"""Listener of a node: gRPC's server with our certificate, and its successor when the certificate changes.

A server keeps the certificate that it began with. gRPC can also ask for one at every handshake, but a handshake that
another thread begins while the certificate changes then reads freed memory, and ends the process. So the listener stops
accepting with the old certificate and begins with the new one, at the same addresses. Calls of old connections, also
held streams, go on until their callers have replaced the connections.
"""

import asyncio
from collections.abc import Sequence
from math import inf

import grpc.aio

from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.net.transport.tls import Tls, TlsSource

OFTEN = 1.0
"""Seconds between looks at the certificate."""
SOON = 0.02
"""Seconds between attempts to listen where the old server has just stopped."""


class Listener:
    """Accepts connections at some addresses, with the present certificate."""

    def __init__(
        self,
        me: Party,
        tls: TlsSource,
        roots: bytes,
        handlers: grpc.GenericRpcHandler,
        options: Sequence[tuple[str, int]],
        connection_age: float,
    ) -> None:
        """Prepares a listener.

        Args:
            me: Our name.
            tls: Source of our key and certificate.
            roots: The certificates and issuers that may connect, in PEM.
            handlers: What handles calls.
            options: Options of the server.
            connection_age: Seconds after which callers have replaced their connections.
        """
        self._me, self._tls, self._roots, self._handlers, self._options = me, tls, roots, handlers, options
        self._age = connection_age
        self._server: grpc.aio.Server | None = None
        self._shown: Tls | None = None
        self._addresses: Sequence[str] = ()
        self._task: asyncio.Task[None] | None = None
        self._older: dict[asyncio.Task[None], grpc.aio.Server] = {}
        """Servers that accept nothing more, by the task that waits for their calls."""

    async def start(self, addresses: Sequence[str], asked: str) -> None:
        """Listens at numeric addresses, which stand for the one that was asked for.

        Raises ConfigError if one of them is taken.
        """
        self._addresses = addresses
        if (taken := await self._begin()) is not None:
            raise ConfigError(f"{self._me} cannot listen at {asked}: {taken} is taken; try: use another one")
        if self._age < inf:
            self._task = asyncio.create_task(self._follow(), name=f"certificate of {self._me}")

    async def close(self, grace: float) -> None:
        """Stops listening. Calls in progress get some seconds to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        servers = [*self._older.values(), *([] if self._server is None else [self._server])]
        await asyncio.gather(*(server.stop(grace) for server in servers))
        await asyncio.gather(*self._older, return_exceptions=True)

    async def _begin(self) -> str | None:
        """Begins to listen with the present certificate. Returns an address that is taken, if one is."""
        tls = self._tls.current()
        server = grpc.aio.server(options=self._options)
        server.add_generic_rpc_handlers((self._handlers,))
        credentials = grpc.ssl_server_credentials([(tls.key, tls.certificate)], self._roots, require_client_auth=True)
        for where in self._addresses:
            try:
                server.add_secure_port(where, credentials)
            except RuntimeError:  # somebody took it a moment ago
                await server.stop(None)
                return where
        await server.start()
        self._server, self._shown = server, tls
        return None

    async def _follow(self) -> None:
        """Replaces the server whenever the certificate has changed."""
        while True:
            await asyncio.sleep(OFTEN)
            if self._tls.current() is self._shown:
                continue
            if self._server is not None:
                # Its callers open other connections within this time, on which they continue.
                waiting = asyncio.create_task(self._server.stop(2 * self._age))
                self._older[waiting] = self._server
                waiting.add_done_callback(lambda done: self._older.pop(done, None))
                self._server = None
            await asyncio.sleep(0)  # so that it stops accepting
            while await self._begin() is not None:
                await asyncio.sleep(SOON)
