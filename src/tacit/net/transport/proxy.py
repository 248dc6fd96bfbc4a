"""HTTP proxy through which a party dials all others, by CONNECT.

The proxy sees addresses, times and lengths; TLS goes through it from one party to the other. gRPC reads proxies from
environment variables, and dials directly where it cannot use one. Neither happens here: a channel without a proxy
ignores the environment, and a channel with one dials the proxy itself, so that it never goes past it.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field

from tacit.core.errors import ConfigError
from tacit.net.membership.identity import host_and_port

DIRECT = (("grpc.enable_http_proxy", 0),)
"""Options of a channel that dials directly, whatever the environment says."""
FORM = "try: http://host:port, or http://name:password@host:port"


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy."""

    address: str
    """Its address, as host:port."""
    login: str = field(default="", repr=False)
    """Name and password, as name:password; empty without."""

    @classmethod
    def parse(cls, url: str) -> "Proxy":
        """Returns the proxy of a URL; raises ConfigError, without the password, if it cannot be used."""
        scheme, mark, rest = url.partition("://")
        if not mark:
            raise ConfigError(f"proxy: there is no scheme; {FORM}")
        if scheme.lower() != "http":
            shown = scheme if re.fullmatch("[A-Za-z0-9+.-]{1,20}", scheme) else "this"
            raise ConfigError(
                f"proxy: {shown}:// is not supported, only http://, through which TLS goes unread; {FORM}"
            )
        login, _, address = rest.removesuffix("/").rpartition("@")
        try:
            host_and_port(address)
        except ConfigError:
            shown = repr(address) if address.isprintable() else "this"
            raise ConfigError(f"proxy: {shown} is no host and port; {FORM}") from None
        if login and (":" not in login or not login.isprintable()):
            raise ConfigError(f"proxy: there is no password for its name; {FORM}")
        return cls(address, login)

    def options(self, address: str) -> tuple[tuple[str, str | int], ...]:
        """Returns options of a channel to the proxy that has it connect to an address."""
        headers = f"Proxy-Authorization:Basic {b64encode(self.login.encode()).decode()}" if self.login else ""
        login = (("grpc.http_connect_headers", headers),) if headers else ()
        return (*DIRECT, ("grpc.http_connect_server", address), *login)

    def explain(self, details: str, where: str) -> str | None:
        """Returns why the proxy did not connect to a peer, and what to do; None if it is not the proxy's doing."""
        if (found := re.search(r"HTTP proxy returned response code (\d+)", details)) is not None:
            code = found[1]
            if code == "407":
                return f"the proxy at {self.address} wants a name and a password (HTTP 407); {FORM}"
            return f"the proxy at {self.address} refuses to connect to {where} (HTTP {code}); try: have it allow that"
        if "HTTP proxy" in details or "Failed parsing HTTP" in details:
            return f"{self.address} does not answer as an HTTP proxy; try: correct the proxy of this party"
        if "Failed to connect to remote host" in details or "DNS" in details or "not known" in details:
            return f"no proxy answers at {self.address}; try: correct the proxy of this party, or start it"
        return None
