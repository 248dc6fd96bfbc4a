"""A party's identity on disk, and the card that it gives to other parties.

An identity has keys for signatures (Ed25519) and for sealing (X25519). It may have one for TLS (P-256), with the
certificate on its card. Otherwise TLS keys are short-lived, or come from an authority (`TlsProof`). An identity is
stored in one file that only its owner can read.

A card has the public halves and the address. The party signs its card, so that a typo or a replaced key is detected. A
signature cannot show that the card belongs to the right party, so people compare fingerprints.
"""

import hashlib
import os
import re
import shlex
import stat
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import ClassVar

import msgspec

from tacit.core.config_file import ConfigSource, Problem, Section, format_toml
from tacit.core.entropy import Entropy, SystemEntropy
from tacit.core.errors import ConfigError, PeerFault, WireError
from tacit.core.link import frame_parts
from tacit.core.suite import SERVER, Party, Secret
from tacit.crypto.certificates import (
    certificate_pem,
    check_authority,
    check_certificate,
    check_issuer_certificate,
    check_owner,
    issuer_certificate,
    key_pem,
    self_signed,
    tls_key,
)
from tacit.crypto.keys import Identity, Keys, Member, Roster
from tacit.crypto.tls_anchor import TlsAnchor, TlsProof
from tacit.net.membership.passphrase import read_passphrase
from tacit.net.membership.sealed_identity import SealedIdentity
from tacit.runtime.agreement import name_problems
from tacit.runtime.atomic_files import check_key_folder, create_private, open_file, open_key_file, replace_file

MAX_BYTES = 1 << 16
"""Most bytes of an identity file or a card. Real ones have one or two thousand."""
GROUPS, DIGITS = 8, 4
"""Number of groups of a fingerprint, and of digits in a group."""
TLS_FOLDER = ".tls"
"""Suffix of the folder beside an identity into which a tool puts key and certificate of an authority."""
KEY_FILE, CERTIFICATE_FILE = "tls.key", "tls.crt"
"""Names of the files in it, which are those of Kubernetes."""
CURE = "restore the file from a copy, or make new keys: tacit keygen"


class Card(Section, frozen=True, kw_only=True):
    """The public data of a party: its name, its address, and the public halves of its keys."""

    newer: ClassVar[frozenset[str]] = frozenset({"tls", "tls_name"})

    name: Party
    address: str = ""
    """Where others reach it, as host:port; empty if it only dials out."""
    verify_key: bytes
    channel_key: bytes
    certificate: bytes
    """The party's TLS certificate, or that of whoever issues its certificates."""
    signature: bytes
    """The party's own signature of all other fields."""
    tls: TlsProof = TlsProof.PINNED
    """How the party proves itself in TLS."""
    tls_name: str = ""
    """The host name in certificates of an authority; otherwise empty."""

    @classmethod
    def load(cls, path: str | Path) -> "Card":
        """Returns the card in a file; raises ConfigError with every problem."""
        text = _read_text(_open_file(path), str(path))
        if "PRIVATE KEY" in text or re.search(r"^\s*(signing_key|sealed)\s*=", text, re.MULTILINE):
            raise ConfigError(
                f"{path} contains secret keys, which must stay with their party; try: give the card beside it, and "
                f"if anybody received this file, make new keys: tacit keygen"
            )
        source = ConfigSource.parse(text, str(path))
        card, problems = source.read(cls)
        if card is not None and not problems:
            problems = card.problems()
        if card is None or problems:
            raise source.error(problems)
        return card

    def save(self, path: Path) -> None:
        """Writes the card, and replaces an existing file."""
        whose = f"# The card of {self.name}: give it to whoever keeps the roster. There is nothing secret in it.\n"
        try:
            replace_file(path, (whose + format_toml(self)).encode(), private=False)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; try: use another folder") from None

    @property
    def member(self) -> Member:
        """The party's public keys, as rounds use them."""
        return Member(self.name, self.verify_key, self.channel_key)

    @property
    def anchor(self) -> TlsAnchor:
        """The certificates that prove the party in TLS."""
        return TlsAnchor(self.name, self.tls, self.certificate, self.tls_name or tls_host(self.member))

    @property
    def fingerprint(self) -> str:
        """Digits that identify the name and all three keys, which people can compare by telephone.

        Digits are used because their names are hard to confuse in any language; those of letters are not. There are 32
        digits, or 106 bits, so nobody can find other keys with the same fingerprint. The address is not included, so
        that a party may change it without another comparison.
        """
        parts = self.name.encode(), self.verify_key, self.channel_key, self.certificate, *_tls_parts(self)
        number = int.from_bytes(hashlib.sha256(frame_parts(b"tacit/v1/fingerprint", *parts)).digest())
        digits = f"{number % 10 ** (GROUPS * DIGITS):0{GROUPS * DIGITS}}"
        return " ".join(digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))

    def problems(self) -> list[Problem]:
        """Returns every problem of the card."""
        problems: list[Problem] = [(("name",), problem) for problem in _name_problems(self.name)]
        try:
            if self.address:
                host_and_port(self.address)
        except ConfigError as error:
            problems += [(("address",), problem) for problem in error.problems]
        if problems:
            return problems
        cure = f"ask {self.name} for its card again"
        if self.member.problems():
            return [(("verify_key",), f"the keys of {self.name} cannot be used; try: {cure}")]
        try:
            Roster([self.member]).verify(self.name, _statement(self), self.signature)
        except PeerFault:
            return [(("name",), f"the card of {self.name} is not as {self.name} signed it; try: {cure}")]
        try:
            check_anchor(self.anchor, self.verify_key, self.tls_name)
        except WireError as error:
            return [
                (("certificate",), f"the certificate of {self.name} does not go with its keys: {error}; try: {cure}")
            ]
        return []


def _statement(card: Card) -> bytes:
    """Returns the statement that the card's signature covers."""
    said = card.name.encode(), card.address.encode(), card.verify_key, card.channel_key, card.certificate
    return frame_parts(b"tacit/v1/card", *said, *_tls_parts(card))


def _tls_parts(card: Card) -> tuple[bytes, ...]:
    """Returns what a statement says of TLS; nothing for a pinned certificate, as in release 0.2."""
    return () if card.tls is TlsProof.PINNED else (card.tls.encode(), card.tls_name.encode())


def check_anchor(anchor: TlsAnchor, verify_key: bytes, tls_name: str) -> None:
    """Raises WireError unless a card may have this certificate."""
    if anchor.proof is not TlsProof.AUTHORITY and tls_name:
        raise WireError("only certificates of an authority carry a name of their own (tls_name)")
    if anchor.proof is TlsProof.PINNED:
        check_certificate(anchor.certificate, anchor.party, anchor.host)
    elif anchor.proof is TlsProof.ISSUED:
        check_issuer_certificate(anchor.certificate, verify_key, anchor.host)
    else:
        check_authority(anchor.certificate)
        if problem := _tls_name_problem(tls_name):
            raise WireError(problem)


def _tls_name_problem(name: str) -> str:
    labels, plain = name.split("."), name == name.lower() and not re.fullmatch("[0-9.]+", name)
    if plain and len(labels) > 1 and len(name) <= 253 and all(map(_LABEL.fullmatch, labels)):
        return ""
    return f"{name!r} is no host name; try: one such as tacit.hospital-a.example, in lower case and without *"


def _name_problems(name: Party) -> list[str]:
    """Returns the problems of a name that people read: it must not be confused with another name.

    Letters of other alphabets may still look alike. So people compare fingerprints, not names.
    """
    if name == SERVER:
        return []
    if problems := name_problems([name]):
        return problems
    if name != name.strip():
        return [f"{name!r} is no name: it begins or ends with a blank, which nobody sees; try: leave that out"]
    if "".join(unicodedata.normalize("NFKC", name).casefold().split()) == SERVER:
        return [f"{name!r} would be taken for {SERVER!r}, which is another; try: call the party something else"]
    return []


def tls_host(member: Member) -> str:
    """Returns the host name in a party's certificate.

    It is derived from the other two keys, because a party's name need not be a valid host name. No such host exists.
    """
    digest = hashlib.sha256(frame_parts(b"tacit/v1/host", member.verify_key, member.channel_key)).hexdigest()
    return f"{digest[:40]}.tacit.invalid"


def file_stem(party: Party) -> str:
    """Returns the name of a party's files without suffix. A party's name need not be a valid file name."""
    return re.sub(r"[^\w.-]+", "-", party).strip(".-") or "party"


@dataclass(frozen=True)
class Credentials:
    """A party's secret keys and its certificate, or that of whoever issues its certificates."""

    identity: Identity
    tls: Secret
    """The key of a pinned certificate; otherwise empty."""
    certificate: bytes = field(repr=False)
    proof: TlsProof = TlsProof.PINNED
    tls_name: str = ""
    """The host name in certificates of an authority; otherwise empty."""
    tls_folder: Path | None = field(default=None, compare=False)
    """Where an authority's tool puts key and certificate; unknown for keys that are not on disk."""

    @classmethod
    def generate(
        cls,
        name: Party,
        entropy: Entropy,
        proof: TlsProof = TlsProof.PINNED,
        authority: bytes = b"",
        tls_name: str = "",
    ) -> "Credentials":
        """Generates fresh keys; raises ConfigError for an invalid name.

        Args:
            name: The party.
            entropy: Source of the keys.
            proof: How the party proves itself in TLS.
            authority: The certificate of its organisation's authority, in DER.
            tls_name: The host name in certificates of that authority.
        """
        if problems := _name_problems(name):
            raise ConfigError(problems)
        identity = Identity.generate(name, entropy)
        if proof is TlsProof.PINNED:
            tls = tls_key(entropy)
            return cls(identity, tls, self_signed(tls, name, tls_host(identity.member()), entropy))
        if proof is TlsProof.ISSUED:
            authority = issuer_certificate(identity.signing, tls_host(identity.member()))
        made = cls(identity, Secret(b""), authority, proof, tls_name)
        try:
            check_anchor(made.anchor, made.member.verify_key, tls_name)
        except WireError as error:
            raise ConfigError(f"the certificates of {name} cannot be used: {error}") from None
        return made

    @property
    def name(self) -> Party:
        """The name of the party."""
        return self.identity.name

    @cached_property
    def member(self) -> Member:
        """The public keys, without the certificate."""
        return self.identity.member()

    @cached_property
    def anchor(self) -> TlsAnchor:
        """The certificates that prove the party in TLS."""
        return TlsAnchor(self.name, self.proof, self.certificate, self.tls_name or tls_host(self.member))

    @property
    def key_pem(self) -> Secret:
        """The key of a pinned certificate, as PEM."""
        return key_pem(self.tls)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate of the card, as PEM."""
        return certificate_pem(self.certificate)

    def card(self, address: str) -> Card:
        """Returns a card with an address, empty for a party that only dials out; raises ConfigError if it is none."""
        if address:
            host_and_port(address)
        unsigned = Card(
            name=self.name,
            address=address,
            verify_key=self.member.verify_key,
            channel_key=self.member.channel_key,
            certificate=self.certificate,
            signature=b"",
            tls=self.proof,
            tls_name=self.tls_name,
        )
        signature = Keys(self.identity, Roster([self.member])).sign(_statement(unsigned))
        return msgspec.structs.replace(unsigned, signature=signature)

    # --- on disk ---------------------------------------------------------------------------------------------------

    def create(self, path: Path, passphrase: Secret | None = None) -> None:
        """Writes the identity to a file that only our user can read; raises ConfigError if the file exists.

        With a passphrase the secret keys in it are encrypted.

        Raises UnsafePath if others can change its folder, because the file would be refused later.
        """
        stored = _StoredIdentity(
            name=self.name,
            signing_key=self.identity.signing.reveal(),
            channel_key=self.identity.channel.reveal(),
            tls_key=self.tls.reveal(),
            certificate=self.certificate,
            tls=self.proof,
            tls_name=self.tls_name,
        )
        whose = (
            f"# The secret keys of {self.name}. Who reads them can speak as {self.name}: keep them where they are.\n"
        )
        content = format_toml(stored)
        if passphrase is not None:
            content = format_toml(SealedIdentity.seal(self.name, content.encode(), passphrase, SystemEntropy()))
        try:
            check_key_folder(path.parent)
            create_private(path, (whose + content).encode())
        except FileExistsError:
            raise ConfigError(
                f"{path} exists already, and keys are never overwritten; try: move it away first"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}; try: use another folder") from None

    @classmethod
    def load(cls, path: str | Path) -> "Credentials":
        """Returns the identity in a file; raises ConfigError unless only our user can read it, and it is valid."""
        source = ConfigSource.parse(_read_text(_open_secret_file(path), str(path)), str(path))
        if "signature" in source.given and "signing_key" not in source.given:
            raise ConfigError(f"{path} is a card, which is public; try: give the identity file with the secret keys")
        if "sealed" in source.given:
            source = _unseal(source, str(path))
        stored, problems = source.read(_StoredIdentity)
        if stored is None or problems:
            raise ConfigError([f"{problem}; try: {CURE}" for problem in source.error(problems).problems])
        identity = Identity(stored.name, Secret(stored.signing_key), Secret(stored.channel_key))
        folder = Path(path).with_suffix(TLS_FOLDER)
        found = cls(identity, Secret(stored.tls_key), stored.certificate, stored.tls, stored.tls_name, folder)
        # The certificate contains the name and depends on the other two keys, so it is invalid if any of them changed.
        try:
            check_anchor(found.anchor, found.member.verify_key, found.tls_name)
            if found.proof is TlsProof.PINNED:
                check_owner(found.certificate, found.tls)
        except (WireError, ValueError):
            raise ConfigError(f"{path}: its keys do not match, so the file was changed; try: {CURE}") from None
        return found


class _StoredIdentity(Section, frozen=True, kw_only=True):
    """The content of an identity file."""

    secret: ClassVar[bool] = True
    newer: ClassVar[frozenset[str]] = frozenset({"tls", "tls_name"})

    name: Party
    signing_key: bytes
    channel_key: bytes
    tls_key: bytes
    certificate: bytes
    tls: TlsProof = TlsProof.PINNED
    tls_name: str = ""

    def __repr__(self) -> str:
        return f"_StoredIdentity({self.name!r}, …)"


def _unseal(source: ConfigSource, path: str) -> ConfigSource:
    """Returns the content of an encrypted identity; raises ConfigError if it cannot be decrypted."""
    found, problems = source.read(SealedIdentity)
    if found is None or problems or found.problems():
        raise ConfigError(f"{path} is encrypted, and was changed; try: {CURE}")
    return ConfigSource.parse(found.open(read_passphrase(path), path).decode(), path)


def _open_file(path: str | Path, opens: Callable[[str | Path], int] = open_file) -> int:
    """Opens a file for reading; raises ConfigError if that is impossible."""
    try:
        return opens(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}; try: make one: tacit keygen") from None
    except PermissionError:
        raise ConfigError(f"{path} cannot be read by this user; try: run this as its owner") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _open_secret_file(path: str | Path) -> int:
    """Opens a file with secrets; raises ConfigError if others can read it, UnsafePath if they can change its folder."""
    number = _open_file(path, open_key_file)
    # The checks examine the opened file, because the path may lead to another file by now.
    found, quoted = os.fstat(number), shlex.quote(str(path))
    problem = ""
    if found.st_uid not in (0, os.geteuid()):
        problem = f"{path} belongs to another user ({found.st_uid}); try: run this as that user"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        problem = f"{path} can be read by others, who could then act as this party; try: chmod 600 {quoted}"
    if problem:
        os.close(number)
        raise ConfigError(problem)
    return number


def _read_text(number: int, name: str) -> str:
    """Returns the text of an open file, and closes it."""
    with open(number, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        if len(data) <= MAX_BYTES:
            return data.decode()
    except UnicodeDecodeError:
        pass
    raise ConfigError(f"{name} is not a file that tacit keygen made")


# --- addresses -----------------------------------------------------------------------------------------------------

_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def host_and_port(address: str) -> tuple[str, int]:
    """Returns host and port of an address in normal form, so that equal ones compare equal; raises ConfigError."""
    host, colon, port = address.rpartition(":")
    wrong = f"{address!r} is no address; try: host:port, such as tacit.hospital-a.example:7400"
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ConfigError(f"{wrong}, with a port from 1 to 65535")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(f"{wrong}, and IPv6 in brackets, such as [2001:db8::1]:7400")
    try:
        if host.startswith("["):
            parsed: IPv4Address | IPv6Address = IPv6Address(host[1:-1])
        elif re.fullmatch("[0-9.]+", host):
            parsed = IPv4Address(host)
        elif len(host) <= 253 and all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
            return host.lower().removesuffix("."), int(port)
        else:
            raise ConfigError(f"{wrong}; other letters than a to z have to be written as xn--")
    except ValueError:
        raise ConfigError(wrong) from None
    if parsed.is_unspecified:
        raise ConfigError(
            f"{address!r} means every address of a machine; try: give the address at which others reach it"
        )
    return str(parsed), int(port)
