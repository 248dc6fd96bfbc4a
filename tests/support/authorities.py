"""Certificate authorities of organisations, and the certificates that they issue."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEARS = timedelta(days=3650)
MAKERS = {
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
    "rsa-1024": lambda: rsa.generate_private_key(65537, 1024),  # noqa: S505 (which has to be refused)
}


def moment(seconds):
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)


@dataclass(frozen=True)
class Leaf:
    """A certificate that an authority issued, with its key."""

    certificate: x509.Certificate
    key: Any

    @property
    def pem(self):
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self):
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def write(self, folder):
        """Writes both files as tools for certificates do."""
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, data, mode in (("tls.key", self.key_pem, 0o600), ("tls.crt", self.pem, 0o644)):
            new = folder / f"{name}.new"
            new.touch(mode)
            new.write_bytes(data)
            new.replace(folder / name)


class Authority:
    """An authority of an organisation."""

    def __init__(self, name, kind="p256", since=None, until=None, names=(), seed=0):
        del seed  # each authority has a key of its own, also of an equal name
        now = datetime.now(UTC)
        self.key = MAKERS[kind]()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self.name, self.key, moment(since) or now - YEARS, moment(until) or now + YEARS, names)
        self.certificate = self._sign(
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        )

    @property
    def pem(self):
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def der(self):
        return self.certificate.public_bytes(Encoding.DER)

    def issue(self, *names, since=None, until=None):
        """Returns a certificate for some host names."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        since, until = moment(since) or now - YEARS, moment(until) or now + YEARS
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a machine")])
        builder = self._builder(subject, key, since, until, names)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return Leaf(self._sign(builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)), key)

    def _builder(self, subject, key, since, until, names):
        serial = x509.random_serial_number()
        builder = x509.CertificateBuilder(self.name, subject, key.public_key(), serial, since, until)
        if names:
            listed = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
            builder = builder.add_extension(listed, critical=False)
        return builder

    def _sign(self, builder):
        return builder.sign(self.key, None if isinstance(self.key, ed25519.Ed25519PrivateKey) else SHA256())
