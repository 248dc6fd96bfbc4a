"""An HTTP proxy for tests, which connects where it is asked to: `connect_proxy.py PORT_FILE [HOST]` in a process."""

import asyncio
import sys
from base64 import b64encode
from contextlib import ExitStack, suppress
from pathlib import Path


class ConnectProxy:
    """Connects callers by CONNECT, and keeps what it was asked for."""

    def __init__(self, login="", code=200):
        self.wanted, self.code = f"Basic {b64encode(login.encode()).decode()}" if login else "", code
        self.asked, self.address = [], ""
        self._server, self._calls = None, set()

    async def start(self, host="127.0.0.1", port=0):
        self._server = await asyncio.start_server(self._called, host, port)
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self):
        self._server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await asyncio.sleep(0.01)  # in which the closed connections end

    async def _called(self, reader, writer):
        self._calls.add(asyncio.current_task())
        with ExitStack() as stack, suppress(ConnectionError, asyncio.IncompleteReadError):
            stack.callback(writer.close)
            first, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, target, _ = first.split()
            self.asked.append(target)
            given = dict(field.split(":", 1) for field in fields if ":" in field)
            login = {name.lower(): value.strip() for name, value in given.items()}.get("proxy-authorization", "")
            code = 407 if login != self.wanted else self.code
            if method != "CONNECT" or code != 200:
                writer.write(f"HTTP/1.1 {code} No\r\nContent-Length: 0\r\n\r\n".encode())
                return
            host, _, port = target.rpartition(":")
            there = await asyncio.open_connection(host.strip("[]"), int(port))
            stack.callback(there[1].transport.abort)
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await asyncio.gather(_carry(reader, there[1]), _carry(there[0], writer))


async def _carry(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(path, host):
    proxy = ConnectProxy()
    await proxy.start(host)
    Path(path).write_text(proxy.address)
    while True:
        await asyncio.sleep(0.1)
        Path(f"{path}.asked").write_text("\n".join(proxy.asked))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *sys.argv[2:] or ["127.0.0.1"]))
