"""Checks of the path to one peer: its name, its port on each address family, and its certificate.

A check opens a TLS connection as gRPC does, with our certificate if there is one, and makes no call on it.
"""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from tacit.app.doctor.findings import CheckResult, Level
from tacit.core.suite import Party
from tacit.net.membership.identity import Card, Credentials, host_and_port
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.tls_sources import open_tls_source

MOST_SECONDS = 10.0
"""Longest timeout of a connection, whatever the roster says."""
FAMILIES = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
EXPIRED, NOT_YET_VALID = 10, 9
"""Codes of OpenSSL for a certificate whose dates do not include the present time."""
PROTOCOL = "h2"
"""Name of HTTP/2 in the TLS handshake, which gRPC demands."""


def check_peer(roster: RosterFile, card: Card, mine: Credentials | None) -> list[CheckResult]:
    """Checks that a peer's name resolves, that its port is reachable, and that it has the certificate of its card."""
    peer = card.name
    if not card.address:
        return [CheckResult("resolve", Level.OK, "its card has no address: it only dials out", party=peer)]
    host, port = host_and_port(card.address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = f"{host} cannot be resolved: {error.strerror or error}"
        remedy = f"correct the address of {peer} on the roster, or this machine's name service"
        return [CheckResult("resolve", Level.FAILED, text, remedy, peer)]
    # The resolver may list an address several times.
    places = list(dict.fromkeys((family, where) for family, _, _, _, where in found if family in FAMILIES))
    resolved = f"{host} is {', '.join(str(where[0]) for _, where in places)}"
    reached: list[CheckResult] = []
    secured: list[CheckResult] = []
    wait = min(roster.deadlines.connect, MOST_SECONDS)
    with make_context(roster, peer, mine) as context:
        for family, where in places:
            shown = f"{where[0]} port {port} ({FAMILIES[family]})"
            try:
                connection = socket.create_connection((str(where[0]), port), wait)
            except OSError as error:
                reached.append(explain_connection(error, shown, peer))
                continue
            with connection:
                reached.append(CheckResult("port", Level.OK, f"{shown} is open", party=peer))
                secured.append(check_tls(connection, context, roster.host_of(peer), shown, peer, mine is not None))
    if secured:
        # gRPC tries all addresses, so one that works is enough.
        reached = [each if each.level is Level.OK else weaken(each) for each in reached]
    return [CheckResult("resolve", Level.OK, resolved, party=peer), *reached, *secured]


def weaken(finding: CheckResult) -> CheckResult:
    """Returns the same finding as a warning."""
    return CheckResult(finding.code, Level.WARNING, finding.text, finding.remedy, finding.party)


def explain_connection(error: OSError, shown: str, peer: Party) -> CheckResult:
    """Returns the finding for a connection that could not be made."""
    if isinstance(error, ConnectionRefusedError):
        text, remedy = f"nobody listens at {shown}", f"start {peer}, then run this again"
    elif isinstance(error, TimeoutError):
        text, remedy = f"{shown} does not answer", f"open the port in the firewalls on the way to {peer}"
    else:
        text, remedy = f"{shown} cannot be reached: {error.strerror or error}", f"check the route to {peer}"
    return CheckResult("port", Level.FAILED, text, remedy, peer)


# --- TLS -----------------------------------------------------------------------------------------------------------


@contextmanager
def make_context(roster: RosterFile, peer: Party, mine: Credentials | None) -> Iterator[ssl.SSLContext]:
    """Makes a TLS context that accepts the peer's certificate only, and presents ours."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=roster.certificate_of(peer).decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: the issuer on a card need not be a root
    context.set_alpn_protocols([PROTOCOL])
    tls = None if mine is None else open_tls_source(mine, roster.deadlines.certificate).current()
    if tls is not None and tls.certificate:
        # The ssl module reads keys from files only. This one is in memory, and never on a disk.
        number = os.memfd_create("tls", os.MFD_CLOEXEC)
        try:
            os.write(number, tls.key + tls.certificate)
            context.load_cert_chain(f"/proc/self/fd/{number}")
        finally:
            os.close(number)
    yield context


def check_tls(
    connection: socket.socket, context: ssl.SSLContext, host: str, shown: str, peer: Party, known: bool
) -> CheckResult:
    """Checks the certificate of a peer and, if we present ours, that the peer accepts it."""
    newest = "have both take the newest federation.toml"
    try:
        with context.wrap_socket(connection, server_hostname=host) as secure:
            if not known:
                text = (
                    f"{shown} has the certificate of the roster; without --me it is not known whether it accepts ours"
                )
                return CheckResult("tls", Level.OK, text, party=peer)
            # A peer that refuses our certificate closes the connection. Otherwise it begins to speak HTTP/2.
            if not secure.recv(1):
                raise ConnectionResetError
        return CheckResult("tls", Level.OK, f"{shown} has the certificate of the roster, and accepts ours", party=peer)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (EXPIRED, NOT_YET_VALID):
            text = f"{shown}: by this clock, {error.verify_message}"
            return CheckResult("clock", Level.FAILED, text, f"set the clocks of {peer} and of this machine", peer)
        return CheckResult("tls", Level.FAILED, f"{shown} has another certificate than the roster", newest, peer)
    except TimeoutError:
        text = f"{shown} is silent after the handshake"
        return CheckResult("tls", Level.FAILED, text, f"check that {peer} runs tacit at this port", peer)
    except (ConnectionError, ssl.SSLEOFError):
        text = f"{shown} hung up: it does not know our certificate, or is no party"
        return CheckResult("tls", Level.FAILED, text, newest, peer)
    except ssl.SSLError as error:
        if "ALERT" in str(error.reason):
            return CheckResult("tls", Level.FAILED, f"{shown} refused our certificate", newest, peer)
        text = f"{shown} does not speak TLS"
        return CheckResult("tls", Level.FAILED, text, f"check that {peer} runs tacit at this port", peer)
