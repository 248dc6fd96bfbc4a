"""Metrics and health of a node, and a small HTTP server for collectors such as Prometheus and for orchestrators.

`/metrics` has the metrics in the OpenMetrics format. `/healthz` answers while the process runs. `/readyz` answers 503
with the reason while the node cannot begin a round. The server answers one GET per connection. It closes the
connection on any other request, on a slow one, and if there are too many at a time, so that rounds are not disturbed.
Metrics are not secret, but readers are not authenticated either. So by default the server listens on this machine only.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import accumulate
from typing import TYPE_CHECKING

from tacit.core.errors import ConfigError, MissingExtra
from tacit.core.suite import Party
from tacit.core.version import RELEASE
from tacit.net.observability.status import PeerStatus, Status
from tacit.net.observability.telemetry import BOUNDS, LinkState, Telemetry

if TYPE_CHECKING:  # an optional dependency, needed only for metrics
    from prometheus_client.core import GaugeMetricFamily, Metric

CONTENT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PATH, ALIVE, READY = "/metrics", "/healthz", "/readyz"
HERE = "127.0.0.1"
MOST = 8
"""Most simultaneous connections."""
PATIENCE = 5.0
"""Timeout of a connection, in seconds."""
LONGEST = 1 << 13
"""Most bytes of a request."""


# --- OpenMetrics text ----------------------------------------------------------------------------------------------


class NodeMetrics:
    """Collector of a node's metrics, with the interface of `prometheus_client`."""

    def __init__(self, telemetry: Telemetry, status: Status, links: Mapping[Party, LinkState]) -> None:
        self._telemetry, self._status, self._links = telemetry, status, links

    def collect(self) -> "Iterator[Metric]":
        """Yields all metric families."""
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        telemetry, status, peers = self._telemetry, self._status, self._status.peers
        who = {"version": RELEASE, "protocol": telemetry.protocol, "federation": telemetry.federation}
        yield InfoMetricFamily("tacit_node", "The node.", {"party": telemetry.party, **who})
        yield GaugeMetricFamily("tacit_round", "Number of the last round that was begun.", status.round)
        yield GaugeMetricFamily("tacit_under_way", "Whether that round is under way.", not status.over)
        yield _count("tacit_rounds", "Rounds that are over, by result.", "result", telemetry.results)
        yield self._phases()
        yield _count("tacit_sent_bytes", "Bytes sent in rounds.", "class", telemetry.sent, "bytes")
        yield _count("tacit_received_bytes", "Bytes received in rounds.", "class", telemetry.received, "bytes")
        yield _count("tacit_exclusions", "Parties excluded from rounds.", "reason", telemetry.excluded)
        troubles = {peer.party: telemetry.troubles[peer.party] for peer in peers}
        yield _count("tacit_troubles", "Times that a peer became unreachable.", "peer", troubles)
        retries = {peer.party: self._links[peer.party].retries for peer in peers}
        yield _count("tacit_retries", "Frames that were sent again.", "peer", retries)
        yield _gauge("tacit_parcels_waiting", "Frames that are not acknowledged.", peers, "waiting")
        yield _gauge("tacit_heard_seconds", "Seconds since the last hello of a peer.", peers, "heard", "seconds")
        yield _gauge(
            "tacit_missing_seconds",
            "Seconds since the last sign of life of an awaited peer.",
            peers,
            "missing",
            "seconds",
        )
        yield _gauge("tacit_in_trouble", "Whether a peer is unreachable.", peers, "trouble")

    def _phases(self) -> "Metric":
        from prometheus_client.core import HistogramMetricFamily

        text = "Seconds for which messages were awaited."
        family = HistogramMetricFamily("tacit_phase_seconds", text, labels=["kind"], unit="seconds")
        for kind, found in sorted(self._telemetry.phases.items()):
            counts = zip((*map(repr, BOUNDS), "+Inf"), accumulate(found.counts), strict=True)
            family.add_metric([kind], list(counts), found.total)
        return family


def render_metrics(telemetry: Telemetry, status: Status, links: Mapping[Party, LinkState]) -> str:
    """Returns the metrics of a node as OpenMetrics text."""
    require_prometheus()
    from prometheus_client.openmetrics.exposition import generate_latest

    text: bytes = generate_latest(NodeMetrics(telemetry, status, links))  # type: ignore[no-untyped-call]
    return text.decode()


def require_prometheus() -> None:
    """Raises MissingExtra unless `prometheus_client` is installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise MissingExtra("prometheus-client", "metrics") from None


def _count(name: str, text: str, label: str, found: Mapping[str, int], unit: str = "") -> "Metric":
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=[label], unit=unit)
    for key, count in sorted(found.items()):
        family.add_metric([key], count)
    return family


def _gauge(name: str, text: str, peers: Iterable[PeerStatus], what: str, unit: str = "") -> "GaugeMetricFamily":
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=["peer"], unit=unit)
    for peer in peers:
        value = getattr(peer, what)
        if value is not None:
            family.add_metric([peer.party], bool(value) if isinstance(value, str) else value)
    return family


# --- the server ----------------------------------------------------------------------------------------------------


class MetricsEndpoint:
    """HTTP server for the metrics and the health of a node.

    Args:
        text: Returns the metrics.
        obstacle: Returns the reason why the node itself cannot take part in a round, or an empty text.
    """

    def __init__(self, text: Callable[[], str], obstacle: Callable[[], str] = str) -> None:
        self._text, self._obstacle = text, obstacle
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""
        """URL of the metrics, once the server listens."""

    async def start(self, address: str) -> None:
        """Listens at host:port, or at a port of this machine; raises ConfigError if that is impossible."""
        require_prometheus()
        host, port = _place(address)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=LONGEST)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"metrics cannot be served at {address}: {why}; try: use another host:port") from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.sockets[0].getsockname()[1]}{PATH}"

    async def close(self) -> None:
        """Stops listening, and closes all connections."""
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
        respond = self._pages().get(path.partition(b"?")[0].decode("ascii", "replace"))
        if respond is None:
            return _response(HTTPStatus.NOT_FOUND)
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED)
        whole = respond()
        return whole if method == b"GET" else whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _pages(self) -> Mapping[str, Callable[[], bytes]]:
        """Returns what answers each path."""

        def metrics() -> bytes:
            return _response(HTTPStatus.OK, self._text().encode(), CONTENT)

        def ready() -> bytes:
            why = self._obstacle()
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n".encode()) if why else _response(HTTPStatus.OK)

        return {PATH: metrics, "/": metrics, ALIVE: lambda: _response(HTTPStatus.OK), READY: ready}


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Returns the header of a request; empty if it is incomplete or too long."""
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
    """Returns host and port of an address; the host defaults to this machine."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in host and host[:1] != "["):
        raise ConfigError(f"{address!r} is not an address for metrics; try: host:port, such as {HERE}:9464")
    return host.strip("[]") or HERE, int(port)
