"""TLS certificates of parties: pinned, issued by the party itself, or issued by an authority.

A pinned certificate is self-signed, does not expire, and is on the party's card. An issued one is signed by the party's
own identity key (Ed25519) for a short time. One of an authority is signed by an organisation.

Keys of TLS use P-256, because the TLS of gRPC supports no certificate with an Ed25519 key. It does support issuers with
one. `tls_anchor` decides which certificates prove which party.
"""

import hashlib
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.core.entropy import Entropy
from tacit.core.errors import WireError
from tacit.core.suite import Party, Secret

KEY_BYTES = 32
BACKDATE = 900.0
"""Seconds by which issued certificates begin in the past, for peers whose clocks are behind."""
LEAST_RSA_BITS = 2048
"""Shortest RSA key of an authority."""
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
UNREADABLE = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Errors that the library raises for forged or damaged certificates."""
# RFC 5280's date for certificates without expiry, and a start date before every clock.
_FROM, _UNTIL = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def tls_key(entropy: Entropy) -> Secret:
    """Samples a private key of P-256."""
    return Secret((1 + entropy.below(_ORDER - 1)).to_bytes(KEY_BYTES))


def self_signed(key: Secret, party: Party, host: str, entropy: Entropy) -> bytes:
    """Returns a self-signed certificate, in DER, for a key, with the names of its party and host."""
    private = _private(key)
    builder = _party_certificate(private, party, host, entropy, _subject_name(party), (_FROM, _UNTIL))
    return builder.sign(private, SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.DER)


def _party_certificate(
    private: ec.EllipticCurvePrivateKey,
    party: Party,
    host: str,
    entropy: Entropy,
    issuer: x509.Name,
    dates: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    """Returns an unsigned certificate of a party.

    Args:
        private: The party's TLS key.
        party: The name of the party.
        host: The host name in the certificate.
        entropy: Source of the serial number.
        issuer: The name of the issuer.
        dates: First and last moment at which it is valid.
    """
    return (
        x509.CertificateBuilder(
            issuer, _subject_name(party), private.public_key(), 1 + entropy.below(2**159 - 1), *dates
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def check_certificate(data: bytes, party: Party, host: str) -> None:
    """Raises WireError unless the bytes are a certificate that `self_signed` could have made for party and host."""
    try:
        found = x509.load_der_x509_certificate(data)
        found.verify_directly_issued_by(found)
        hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        key = found.public_key()
    except UNREADABLE:
        raise WireError("the certificate is unreadable or was changed") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1) or authority:
        raise WireError("this is not a certificate that tacit keygen makes")
    if found.subject != _subject_name(party) or hosts != x509.SubjectAlternativeName([x509.DNSName(host)]):
        raise WireError("it is somebody else's")


# --- certificates that a party issues to itself ---------------------------------------------------------------------


def issuer_certificate(signing: Secret, host: str) -> bytes:
    """Returns the certificate of a party's identity key (Ed25519) as an issuer, in DER.

    It depends on nothing else, so a party can make it again. It may issue certificates for its host name only.
    """
    private, name = Ed25519PrivateKey.from_private_bytes(signing.reveal()), _issuer_name(host)
    builder = x509.CertificateBuilder(name, name, private.public_key(), _issuer_serial(private), _FROM, _UNTIL)
    for extension in _issuer_extensions(host):
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(private, None).public_bytes(Encoding.DER)


def check_issuer_certificate(data: bytes, verify_key: bytes, host: str) -> None:
    """Raises WireError unless the bytes are what `issuer_certificate` returns for a key and a host name."""
    try:
        found = x509.load_der_x509_certificate(data)
        found.verify_directly_issued_by(found)
        key, extensions = found.public_key(), [each.value for each in found.extensions if each.critical]
        count = len(found.extensions)
    except UNREADABLE:
        raise WireError("the certificate is unreadable or was changed") from None
    if not isinstance(key, Ed25519PublicKey) or key.public_bytes_raw() != verify_key:
        raise WireError("it is of another key")
    right = found.subject == _issuer_name(host) and extensions == _issuer_extensions(host) and count == len(extensions)
    if not right or (found.not_valid_before_utc, found.not_valid_after_utc) != (_FROM, _UNTIL):
        raise WireError("this is not a certificate that tacit keygen makes")


def _issuer_extensions(host: str) -> list[x509.ExtensionType]:
    return [
        x509.BasicConstraints(ca=True, path_length=0),
        _usage(signs_certificates=True),
        x509.NameConstraints(permitted_subtrees=[x509.DNSName(host)], excluded_subtrees=None),
    ]


def _issuer_name(host: str) -> x509.Name:
    # Issuers are looked up by name, so the name is unique. That of a party may be too long for it.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"issuer.{host}")])


def _issuer_serial(private: Ed25519PrivateKey) -> int:
    return 1 + int.from_bytes(hashlib.sha256(private.public_key().public_bytes_raw()).digest()[:16])


def issue_certificate(
    signing: Secret, tls: Secret, party: Party, host: str, now: float, lifetime: float, entropy: Entropy
) -> bytes:
    """Returns a certificate for a TLS key, in DER, signed by the party's identity key.

    Args:
        signing: The party's identity key.
        tls: The TLS key.
        party: The name of the party.
        host: The host name in the certificate.
        now: The present time, in seconds since 1970.
        lifetime: Seconds from now until it expires. It begins in the past (`BACKDATE`).
        entropy: Source of the serial number.
    """
    since, until = (datetime.fromtimestamp(int(moment), UTC) for moment in (now - BACKDATE, now + lifetime))
    builder = _party_certificate(_private(tls), party, host, entropy, _issuer_name(host), (since, until))
    signed = builder.sign(Ed25519PrivateKey.from_private_bytes(signing.reveal()), None)
    return signed.public_bytes(Encoding.DER)


# --- certificates of an authority -----------------------------------------------------------------------------------


def read_authority(text: bytes) -> bytes:
    """Returns the certificate of an authority in a PEM file, in DER; raises WireError unless there is exactly one."""
    try:
        found = x509.load_pem_x509_certificates(text)
    except UNREADABLE:
        found = []
    if len(found) != 1:
        raise WireError(f"there must be one certificate in PEM, and there are {len(found)}")
    data = found[0].public_bytes(Encoding.DER)
    check_authority(data)
    return data


def check_authority(data: bytes) -> None:
    """Raises WireError unless the bytes are the certificate of an authority, whatever its dates."""
    try:
        found = x509.load_der_x509_certificate(data)
        key = found.public_key()
    except UNREADABLE:
        raise WireError("the certificate is unreadable") from None
    if not is_authority(found):
        raise WireError("it is not the certificate of an authority (it has no CA:TRUE)")
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < LEAST_RSA_BITS:
            raise WireError(f"its RSA key has {key.key_size} bits, and needs {LEAST_RSA_BITS}")
    elif not isinstance(key, ec.EllipticCurvePublicKey | Ed25519PublicKey):
        raise WireError("its key is neither RSA nor of an elliptic curve")


# --- content of certificates -----------------------------------------------------------------------------------------


def check_dates(certificate: x509.Certificate, what: str, now: float) -> None:
    """Raises WireError if a certificate has expired, or is not valid yet."""
    moment = datetime.fromtimestamp(now, UTC)
    clock = f"and it is {moment:%Y-%m-%d %H:%M} UTC by this clock"
    if moment > (until := certificate.not_valid_after_utc):
        raise WireError(f"{what} expired on {until:%Y-%m-%d %H:%M} UTC, {clock}")
    if moment < (since := certificate.not_valid_before_utc):
        raise WireError(f"{what} is valid from {since:%Y-%m-%d %H:%M} UTC on, {clock}")


def host_names(certificate: x509.Certificate) -> list[str]:
    """Returns the host names in a certificate, in lower case and printable."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except UNREADABLE:
        return []
    return [ascii(each)[1:-1].lower() for each in found.get_values_for_type(x509.DNSName)]


def validity_of(certificate: x509.Certificate) -> tuple[float, float]:
    """Returns the first and the last moment at which a certificate is valid, in seconds since 1970."""
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def is_authority(certificate: x509.Certificate) -> bool:
    """Returns whether a certificate may issue others."""
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False
    except UNREADABLE:
        return True  # which is refused


# --- keys and PEM ---------------------------------------------------------------------------------------------------


def read_certificate(pem: bytes) -> x509.Certificate:
    """Returns the first certificate in PEM; raises WireError if there is none."""
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except UNREADABLE:
        raise WireError("there is no certificate in PEM") from None


def check_key_pem(key: Secret, certificate: x509.Certificate) -> None:
    """Raises WireError unless a private key in PEM is that of a certificate, and gRPC can use it."""
    try:
        private = load_pem_private_key(key.reveal(), None)
    except TypeError:
        raise WireError("the key is encrypted; gRPC reads only keys in plain PEM") from None
    except UNREADABLE:
        raise WireError("there is no private key in PEM") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise WireError("the key must be RSA or of an elliptic curve, because the TLS of gRPC knows no other")
    spki = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*spki) != certificate.public_key().public_bytes(*spki):
        raise WireError("the key is not that of the certificate")


def check_owner(certificate: bytes, key: Secret) -> None:
    """Raises WireError unless the certificate contains the public half of the private key."""
    try:
        fits = x509.load_der_x509_certificate(certificate).public_key() == _private(key).public_key()
    except UNREADABLE:
        fits = False
    if not fits:
        raise WireError("the certificate belongs to another key")


def key_pem(key: Secret) -> Secret:
    """Returns a private key as PEM."""
    return Secret(_private(key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def certificate_der(pem: bytes) -> bytes:
    """Returns the first certificate in PEM, in DER; raises WireError if there is none."""
    return read_certificate(pem).public_bytes(Encoding.DER)


def certificate_pem(certificate: bytes) -> bytes:
    """Returns a certificate as PEM."""
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)


def _private(key: Secret) -> ec.EllipticCurvePrivateKey:
    """Returns the private key; raises ValueError if the bytes are out of range."""
    return ec.derive_private_key(int.from_bytes(key.reveal()), _CURVE)


def _subject_name(party: Party) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
