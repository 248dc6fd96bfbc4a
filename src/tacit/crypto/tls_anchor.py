"""What the roster trusts in TLS: the certificate of each party, or its issuer and the name in it.

Trust is per party: an issuer on one card vouches for that party only, although the TLS of a listener accepts all
issuers of the roster. So every call is checked here too, and a certificate that has expired since the handshake is
refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tacit.core.errors import WireError
from tacit.core.suite import Party
from tacit.crypto.certificates import UNREADABLE, certificate_pem, check_dates, host_names, is_authority


class TlsProof(StrEnum):
    """Way in which a party proves itself in TLS."""

    PINNED = ""
    """By the certificate on its card. The value is empty, so that cards without a way are of this one."""
    ISSUED = "issued"
    """By short-lived certificates that its identity key issues."""
    AUTHORITY = "authority"
    """By certificates of its organisation's authority, which carry an agreed name."""


@dataclass(frozen=True)
class TlsAnchor:
    """What the roster says about the certificates of one party."""

    party: Party
    proof: TlsProof
    certificate: bytes = field(repr=False)
    """The party's certificate, or that of its issuer, in DER."""
    host: str
    """The host name that the party's certificates carry."""

    @cached_property
    def pem(self) -> bytes:
        """The certificate, as PEM."""
        return certificate_pem(self.certificate)

    @property
    def key(self) -> bytes:
        """The public key of the certificate."""
        return self._issuer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @cached_property
    def _issuer(self) -> x509.Certificate:
        return x509.load_der_x509_certificate(self.certificate)

    def issued(self, shown: x509.Certificate) -> bool:
        """Returns whether a certificate is the pinned one, or is signed by the issuer of this party."""
        if self.proof is TlsProof.PINNED:
            return shown.public_bytes(Encoding.DER) == self.certificate
        try:
            shown.verify_directly_issued_by(self._issuer)
        except UNREADABLE:
            return False
        return True

    def check(self, shown: x509.Certificate, now: float) -> None:
        """Raises WireError, with the reason, unless a certificate proves now that its owner is this party."""
        if not self.issued(shown):
            what = "the one on its card" if self.proof is TlsProof.PINNED else "of the issuer on its card"
            raise WireError(f"the certificate is not {what}")
        if self.proof is TlsProof.PINNED:
            return
        if self.host not in (names := host_names(shown)):
            raise WireError(f"the certificate is for {', '.join(names) or 'no name'}, and not for {self.host}")
        if is_authority(shown):
            raise WireError("the certificate is that of an authority")
        check_dates(shown, "the certificate", now)
        check_dates(self._issuer, "the certificate of its authority", now)


def identify(shown: x509.Certificate, anchors: Iterable[TlsAnchor], now: float) -> Party:
    """Returns the one party that a certificate proves; raises WireError with the reason if there is none, or two.

    A certificate of one party's issuer in the name of another party is refused with both names.
    """
    listed = list(anchors)
    candidates = [each for each in listed if each.issued(shown)]
    if not candidates:
        named = [each.party for each in listed if each.proof is not TlsProof.PINNED and each.host in host_names(shown)]
        if named:
            raise WireError(f"the issuer of the certificate is not the one on the card of {', '.join(named)}")
        raise WireError("the certificate is not on the roster, and its issuer is not either")
    names = host_names(shown)
    matching = [each for each in candidates if each.proof is TlsProof.PINNED or each.host in names]
    if len(matching) > 1:
        raise WireError(f"the certificate stands for {' and '.join(each.party for each in matching)}")
    found = (matching or candidates)[0]
    try:
        found.check(shown, now)
    except WireError as error:
        raise WireError(f"of {found.party}: {error}") from None
    return found.party
