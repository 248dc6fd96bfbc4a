"""Addresses at which a node listens: all that callers may use. If one is taken, that is an error.

gRPC binds as many addresses of a name as it can, and accepts if only one works. A node whose port is taken on IPv4
would then listen on IPv6 alone, where nobody calls. So names are resolved here, every address is tried, and a taken one
is an error. Addresses that this machine does not have belong to a router or proxy in front of it. In that case the node
listens at all addresses of the machine.
"""

import asyncio
import errno
import socket
from ipaddress import ip_address

from tacit.core.errors import ConfigError

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 (used if the address on the card is not one of this machine)
LOOPBACKS = ("127.0.0.1", "::1")
TRIES = 20
"""Most free ports to try until one is free at all addresses."""
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
"""Errors for an address that this machine does not have, or an unsupported address family."""


async def find_listen_addresses(address: str) -> list[str]:
    """Returns the numeric addresses, as host:port, at which to listen for calls to an address.

    With port 0, all get the same free port.

    Raises:
        ConfigError: One of them is taken, or this user may not listen there.
    """
    host, _, text = address.rpartition(":")
    port = int(text)
    hosts = await _resolve(host.removeprefix("[").removesuffix("]"))
    for _ in range(TRIES if not port else 1):
        try:
            return _try_all(hosts, port)
        except OSError as error:
            problem = _explain(error)
    raise ConfigError(f"cannot listen at {address}: {problem}")


async def _resolve(host: str) -> list[str]:
    """Returns the numeric addresses of a host; none if it cannot be resolved here."""
    if host == "localhost":
        return list(LOOPBACKS)  # whatever the resolver returns, because callers try both
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _try_all(hosts: list[str], port: int) -> list[str]:
    """Returns those hosts that are addresses of this machine, or all its addresses; raises OSError if one is taken."""
    if any(ip_address(host).is_unspecified for host in hosts):
        hosts = []
    found, last = [], WILDCARDS[0]
    for host in hosts:
        bound = _try_address(host, port)
        if bound:
            port = bound
            found.append(_join(host, port))
        elif not ip_address(host).is_loopback:
            break  # another machine forwards calls, to any of our addresses
    else:
        if found:
            return found
    for host in WILDCARDS:
        if bound := _try_address(host, port):
            port, last = bound, host
    return [_join(last, port)]  # one wildcard is enough: gRPC then listens on both families


def _try_address(host: str, port: int) -> int:
    """Returns the port at which an address can be listened at; 0 if this machine does not have the address.

    Raises OSError, with the address as its file name, if the address is taken or not allowed.
    """
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As gRPC does, so that connections which were closed a moment ago do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
            probe.listen(1)
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise OSError(error.errno, error.strerror, _join(host, port)) from None


def _explain(error: OSError) -> str:
    where = error.filename
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken by another process; try: end that, or use another one"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not listen at {where}; try: use another one, with a port from 1024 on"
    return f"{where} cannot be used ({error.strerror}); try: use another one"


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
