"""TLS certificates: one per party, self-signed, and trusted only because the roster lists it.

They use P-256, because the TLS of gRPC does not support Ed25519. There is no certificate authority, so no party can
issue a certificate in another's name. Certificates do not expire: the roster decides on membership and keys, and an
expiry date would end a federation that nobody changed, or end it early on a wrong clock.
"""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.core.entropy import Entropy
from tacit.core.errors import WireError
from tacit.core.suite import Party, Secret

KEY_BYTES = 32
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_UNREADABLE = (
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
    private, name = _private(key), _subject_name(party)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder(name, name, private.public_key(), 1 + entropy.below(2**159 - 1), _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    )
    return builder.sign(private, SHA256(), ecdsa_deterministic=True).public_bytes(Encoding.DER)


def check_certificate(data: bytes, party: Party, host: str) -> None:
    """Raises WireError unless the bytes are a certificate that `self_signed` could have made for party and host."""
    try:
        found = x509.load_der_x509_certificate(data)
        found.verify_directly_issued_by(found)
        hosts = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        key = found.public_key()
    except _UNREADABLE:
        raise WireError("the certificate is unreadable or was changed") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1) or authority:
        raise WireError("this is not a certificate that tacit keygen makes")
    if found.subject != _subject_name(party) or hosts != x509.SubjectAlternativeName([x509.DNSName(host)]):
        raise WireError("it is somebody else's")


def check_owner(certificate: bytes, key: Secret) -> None:
    """Raises WireError unless the certificate contains the public half of the private key."""
    try:
        fits = x509.load_der_x509_certificate(certificate).public_key() == _private(key).public_key()
    except _UNREADABLE:
        fits = False
    if not fits:
        raise WireError("the certificate belongs to another key")


def key_pem(key: Secret) -> Secret:
    """Returns a private key as PEM."""
    return Secret(_private(key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def certificate_pem(certificate: bytes) -> bytes:
    """Returns a certificate as PEM."""
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)


def _private(key: Secret) -> ec.EllipticCurvePrivateKey:
    """Returns the private key; raises ValueError if the bytes are out of range."""
    return ec.derive_private_key(int.from_bytes(key.reveal()), _CURVE)


def _subject_name(party: Party) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
