"""Checks of the paths to peers through an HTTP proxy."""

import socket
from contextlib import suppress

from tacit.app.doctor.findings import CheckResult, Level
from tacit.app.doctor.peer_checks import MOST_SECONDS, check_tls, make_context
from tacit.core.errors import ErrorText
from tacit.core.suite import Party
from tacit.net.membership.identity import Card, Credentials, host_and_port
from tacit.net.membership.roster import RosterFile
from tacit.net.transport.proxy import Proxy

HEAD_BYTES = 1 << 14
"""Most bytes of a proxy's answer."""
UNREACHABLE = "Failed to connect to remote host"
"""Words by which gRPC, too, says that nothing answers at the proxy's address."""


def check_proxy(proxy: Proxy, wait: float) -> CheckResult:
    """Checks that something listens at the address of a proxy."""
    try:
        _connect(proxy, wait).close()
    except OSError:
        return _explain(proxy, UNREACHABLE)
    return CheckResult("proxy", Level.OK, f"{proxy.address} is open; every peer is dialled through it")


def check_through_proxy(roster: RosterFile, card: Card, mine: Credentials | None, proxy: Proxy) -> list[CheckResult]:
    """Checks that a proxy connects to a peer, and that the peer has the certificate of its card."""
    peer, wait = card.name, min(roster.deadlines.connect, MOST_SECONDS)
    shown = f"{card.address} through the proxy"
    try:
        connection = _connect(proxy, wait)
    except OSError:
        return [CheckResult("port", Level.UNCHECKED, f"{shown}: the proxy does not answer", party=peer)]
    with connection:
        try:
            connection.sendall(_request(proxy, card.address))
            said = _read_head(connection)
        except OSError:
            said = ""
        version, _, status = said.partition(" ")
        if not version.startswith("HTTP/") or not status[:3].isdecimal():
            return [_explain(proxy, "Failed parsing HTTP", card.address, peer)]
        if status[:3] != "200":
            return [_explain(proxy, f"HTTP proxy returned response code {status[:3]}", card.address, peer)]
        with make_context(roster, peer, mine) as context:
            secured = check_tls(connection, context, roster.host_of(peer), shown, peer, mine is not None)
    return [CheckResult("port", Level.OK, f"{shown} is open", party=peer), secured]


def _connect(proxy: Proxy, wait: float) -> socket.socket:
    host, port = host_and_port(proxy.address)
    return socket.create_connection((host, port), wait)


def _request(proxy: Proxy, address: str) -> bytes:
    """Returns the request that gRPC sends to the proxy."""
    headers = dict(proxy.options(address)).get("grpc.http_connect_headers", "")
    lines = [f"CONNECT {address} HTTP/1.0", f"Host: {address}", *([str(headers)] if headers else []), "", ""]
    return "\r\n".join(lines).encode()


def _read_head(connection: socket.socket) -> str:
    """Returns a proxy's answer up to its empty line, byte by byte: what follows belongs to the peer."""
    said = b""
    with suppress(TimeoutError):
        while not said.endswith(b"\r\n\r\n") and len(said) < HEAD_BYTES and (byte := connection.recv(1)):
            said += byte
    return said.decode("latin-1")


def _explain(proxy: Proxy, details: str, where: str = "", peer: Party = "") -> CheckResult:
    why, remedy = ErrorText.parse(proxy.explain(details, where) or details)
    return CheckResult("proxy", Level.FAILED, why, remedy, peer)
