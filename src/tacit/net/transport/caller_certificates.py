"""Certificates of callers: which party each proves, and until when.

A listener's TLS accepts every issuer of the roster. Whether an issuer may vouch for a party is decided here, on every
call, so that a connection does not outlive its certificate.
"""

import math
from collections.abc import Callable, Iterable
from time import time
from typing import NamedTuple

from tacit.core.errors import WireError
from tacit.core.suite import Party
from tacit.crypto.certificates import read_certificate, validity_of
from tacit.crypto.tls_anchor import TlsProof, identify
from tacit.net.transport.peer_link import PeerEndpoint

LONGEST = 30 * 86400.0
"""Seconds after which nothing has to be done, because connections are replaced earlier."""
REMEMBERED = 4096
"""Most certificates that are remembered, beyond pinned ones."""


class Caller(NamedTuple):
    """The party that a certificate proves, and its first and last moment, in seconds since 1970."""

    party: Party
    since: float = -math.inf
    until: float = math.inf


class CallerCertificates:
    """Finds the party that a certificate proves."""

    def __init__(self, peers: Iterable[PeerEndpoint], clock: Callable[[], float] = time) -> None:
        """Knows the certificates of some peers, and the issuers of others."""
        listed, self._clock = list(peers), clock
        pinned = (peer for peer in listed if peer.proof is TlsProof.PINNED)
        self._pinned = {_plain(peer.certificate): Caller(peer.name) for peer in pinned}
        self._anchors = [peer.anchor for peer in listed if peer.proof is not TlsProof.PINNED]
        self._known: dict[bytes, Caller] = {}

    def find(self, shown: bytes) -> Caller:
        """Returns whom a certificate in PEM proves now; raises WireError with the reason if it proves nobody."""
        plain = _plain(shown)
        if (found := self._pinned.get(plain)) is not None:
            return found
        if not self._anchors:
            raise WireError("this certificate is not on the roster")
        known, now = self._known.get(plain), self._clock()
        if known is not None and known.since <= now <= known.until:
            return known
        certificate = read_certificate(shown)
        party = identify(certificate, self._anchors, now)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        caller = self._known[plain] = Caller(party, *validity_of(certificate))
        return caller

    def remaining(self, caller: Caller) -> float | None:
        """Returns for how many seconds a caller's certificate is valid; None if it does not expire soon."""
        left = caller.until - self._clock()
        return left if left < LONGEST else None


def _plain(certificate: bytes) -> bytes:
    """Returns a PEM certificate without whitespace, so that two copies compare equal."""
    return b"".join(certificate.split())
