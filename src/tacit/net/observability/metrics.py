"""What a node has counted, as OpenMetrics text, and a small server that gives it to whoever collects such things.

It speaks as much HTTP as that takes: one GET a connection. Who asks for anything else, too slowly, or with too many at
a time is hung up on; rounds do not notice. Nothing in it is secret, but who may read it is not asked either: it is
for this machine, unless told otherwise.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import accumulate

from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.core.version import RELEASE
from tacit.net.observability.status import PeerStatus, Status
from tacit.net.observability.telemetry import BOUNDS, Histogram, LinkState, Telemetry

CONTENT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PATH = "/metrics"
HERE = "127.0.0.1"
MOST = 8
"""Connections at a time."""
PATIENCE = 5.0
"""Seconds that one may take."""
LONGEST = 1 << 13
"""Bytes of a request."""


Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""What is behind the name of the family, the labels, and the value."""


# --- the text ------------------------------------------------------------------------------------------------------


def render_metrics(telemetry: Telemetry, status: Status, lines: Mapping[Party, LinkState]) -> str:
    """Returns all that is counted, and how it stands, as OpenMetrics text."""
    who = {"version": RELEASE, "protocol": telemetry.protocol, "federation": telemetry.federation}
    peers = status.peers
    troubles = {peer.party: telemetry.troubles[peer.party] for peer in peers}
    retries = {peer.party: lines[peer.party].retries for peer in peers}
    text = [
        *_family("tacit_node", "info", "The node.", [("_info", {"party": telemetry.party, **who}, 1)]),
        *_family("tacit_round", "gauge", "The round that was begun last.", [("", {}, status.round)]),
        *_family("tacit_under_way", "gauge", "Whether that round goes on.", [("", {}, not status.over)]),
        *_counts("tacit_rounds", "Rounds that are over, by result.", "result", telemetry.results),
        *_family(
            "tacit_phase_seconds", "histogram", "How long messages were waited for.", _phases(telemetry), "seconds"
        ),
        *_counts("tacit_sent_bytes", "Bytes sent in rounds.", "class", telemetry.sent, "bytes"),
        *_counts("tacit_received_bytes", "Bytes received in rounds.", "class", telemetry.received, "bytes"),
        *_counts("tacit_exclusions", "Parties that a round went on without.", "reason", telemetry.excluded),
        *_counts("tacit_troubles", "How often a peer could not be reached.", "peer", troubles),
        *_counts("tacit_retries", "How often something was sent again.", "peer", retries),
        *_family("tacit_parcels_waiting", "gauge", "Frames that have not arrived.", _gauge(peers, "waiting")),
        *_family("tacit_heard_seconds", "gauge", "How long ago a peer was heard.", _gauge(peers, "heard"), "seconds"),
        *_family(
            "tacit_missing_seconds", "gauge", "For how long it is waited for.", _gauge(peers, "missing"), "seconds"
        ),
        *_family("tacit_in_trouble", "gauge", "Whether a peer is out of reach.", _gauge(peers, "trouble")),
    ]
    return "".join(f"{line}\n" for line in (*text, "# EOF"))


def _family(name: str, kind: str, about: str, samples: Iterable[Sample], unit: str = "") -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    if unit:
        yield f"# UNIT {name} {unit}"
    yield f"# HELP {name} {about}"
    for behind, labels, value in samples:
        named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{behind}{f'{{{named}}}' if named else ''} {float(value)!r}"


def _counts(name: str, about: str, label: str, found: Mapping[str, int], unit: str = "") -> Iterator[str]:
    samples = [("_total", {label: key}, count) for key, count in sorted(found.items())]
    return _family(name, "counter", about, samples, unit)


def _gauge(peers: Iterable[PeerStatus], what: str) -> Iterator[Sample]:
    for peer in peers:
        value = getattr(peer, what)
        if value is not None:
            yield "", {"peer": peer.party}, bool(value) if isinstance(value, str) else value


def _phases(telemetry: Telemetry) -> Iterator[Sample]:
    for kind, found in sorted(telemetry.phases.items()):
        yield from _buckets({"kind": kind}, found)


def _buckets(labels: Labels, found: Histogram) -> Iterator[Sample]:
    sums = list(accumulate(found.counts))
    for bound, count in zip((*map(repr, BOUNDS), "+Inf"), sums, strict=True):
        yield "_bucket", {**labels, "le": bound}, count
    yield "_count", labels, sums[-1]
    yield "_sum", labels, found.total


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- the server ----------------------------------------------------------------------------------------------------


class MetricsEndpoint:
    """Gives a text to whoever asks for it."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""
        """Where it is to be had."""

    async def start(self, address: str) -> None:
        """Listens at host:port, or at a port of this machine; raises ConfigError if that cannot be."""
        host, port = _place(address)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=LONGEST)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"metrics cannot be had at {address}: {why}; use another host:port") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.sockets[0].getsockname()[1]}{PATH}"

    async def close(self) -> None:
        """Listens no longer, and hangs up."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if len(self._open) >= MOST or task is None:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(PATIENCE):
                    writer.write(self._answer(await _head(reader)))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()
            self._open.discard(task)

    def _answer(self, head: bytes) -> bytes:
        """Returns the answer to the first lines of a request."""
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path, _, spoken = rest.partition(b" ")
        if not spoken.startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST)
        if path.partition(b"?")[0] not in (PATH.encode(), b"/"):
            return _response(HTTPStatus.NOT_FOUND)
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED)
        whole = _response(HTTPStatus.OK, self._text().encode(), CONTENT)
        return whole if method == b"GET" else whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Returns the first lines of a request, nothing if they are none, or too long."""
    with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return await reader.readuntil(b"\r\n\r\n")
    return b""


def _response(status: HTTPStatus, body: bytes = b"", kind: str = "text/plain; charset=utf-8") -> bytes:
    body = body or f"{status.phrase}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *(["Allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
        "Connection: close",
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


def _place(address: str) -> tuple[str, int]:
    """Returns host and port; the host is this machine unless it is given."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in host and host[:1] != "["):
        raise ConfigError(f"metrics at {address!r}: write it as host:port, such as {HERE}:9464")
    return host.strip("[]") or HERE, int(port)
