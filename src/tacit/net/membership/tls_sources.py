"""Sources of a party's TLS certificate: fixed, issued by its own identity key, or files that a tool replaces.

A source is asked at every handshake and for every new connection, so a certificate changes while a node runs.
"""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import time

from tacit.core.entropy import Entropy, SystemEntropy
from tacit.core.errors import ConfigError, TacitError, WireError
from tacit.core.suite import Party, Secret
from tacit.crypto.certificates import (
    BACKDATE,
    certificate_pem,
    check_key_pem,
    issue_certificate,
    key_pem,
    read_certificate,
    tls_key,
)
from tacit.crypto.tls_anchor import TlsAnchor, TlsProof
from tacit.net.membership.identity import CERTIFICATE_FILE, KEY_FILE, MAX_BYTES, Credentials
from tacit.net.transport.tls import Tls, TlsSource
from tacit.runtime.atomic_files import open_key_file


def open_tls_source(mine: Credentials, lifetime: float) -> TlsSource:
    """Returns the source of a party's TLS certificate, which may have none at present (`problem`)."""
    if mine.proof is TlsProof.PINNED:
        return Tls(mine.key_pem.reveal(), mine.certificate_pem)
    if mine.proof is TlsProof.ISSUED:
        return IssuedCertificates(mine, lifetime)
    if mine.tls_folder is None:
        raise ConfigError(f"the certificates of {mine.name} come from files, and its identity is not in a file")
    return CertificateFiles(mine.name, mine.tls_folder, mine.anchor)


class IssuedCertificates:
    """Certificates that a party issues to itself, each with a fresh key that is never on disk."""

    problem = ""

    def __init__(
        self,
        mine: Credentials,
        lifetime: float,
        clock: Callable[[], float] = time,
        entropy: Entropy | None = None,
    ) -> None:
        """Issues certificates for some seconds each.

        Args:
            mine: The party's keys.
            lifetime: Seconds until a certificate expires.
            clock: Returns the present time, in seconds since 1970.
            entropy: Source of keys and serial numbers; by default the operating system.
        """
        self._mine, self._lifetime, self._clock, self._entropy = mine, lifetime, clock, entropy or SystemEntropy()
        self._lock = Lock()  # handshakes are in threads of gRPC
        self._tls: Tls | None = None
        self._at = 0.0

    def current(self) -> Tls:
        """Returns the present certificate, which has at least half of its lifetime left."""
        with self._lock:
            now = self._clock()
            # A clock that was set back would make the certificate one of the future.
            if self._tls is None or not self._at - BACKDATE / 2 <= now < self._at + self._lifetime / 2:
                self._tls, self._at = self._issue(now), now
            return self._tls

    def _issue(self, now: float) -> Tls:
        key, anchor = tls_key(self._entropy), self._mine.anchor
        signing = self._mine.identity.signing
        data = issue_certificate(signing, key, anchor.party, anchor.host, now, self._lifetime, self._entropy)
        return Tls(key_pem(key).reveal(), certificate_pem(data))


class CertificateFiles:
    """Certificates of an authority, which a tool of the organisation puts into two files and replaces in time.

    A pair of files is taken over as soon as it is complete and right. Until then the last right pair stays in use.
    """

    def __init__(self, me: Party, folder: Path, anchor: TlsAnchor, clock: Callable[[], float] = time) -> None:
        """Reads files of a folder.

        Args:
            me: The party.
            folder: The folder with both files.
            anchor: The authority and the name on the party's card.
            clock: Returns the present time, in seconds since 1970.
        """
        self._me, self._folder, self._anchor, self._clock = me, folder, anchor, clock
        self._lock = Lock()
        self._seen: tuple[object, ...] | None = None
        self._tls = Tls(b"", b"")
        self._unread = ""
        """Why the newest files cannot be used; empty if they are in use."""

    def current(self) -> Tls:
        """Returns the newest right certificate; an empty one if there was none."""
        with self._lock:
            self._look()
            return self._tls

    @property
    def problem(self) -> str:
        """Why the party cannot prove itself now, with a remedy; empty if it can."""
        with self._lock:
            self._look()
            why = self._unread
            if self._tls.certificate:
                try:
                    self._anchor.check(read_certificate(self._tls.certificate), self._clock())
                except WireError as error:
                    why = why or str(error)
                else:
                    return ""
        where = shlex.quote(str(self._folder))
        return (
            f"{self._me} cannot prove itself in TLS: {why}; try: have the tool of the authority renew {KEY_FILE} and "
            f"{CERTIFICATE_FILE} in {where}, and check this clock"
        )

    def _look(self) -> None:
        """Reads the files if they have changed."""
        try:
            seen = tuple(_identify_file(self._folder / name) for name in (KEY_FILE, CERTIFICATE_FILE))
        except OSError as error:
            self._seen, self._unread = None, f"{self._folder} has no {KEY_FILE} and {CERTIFICATE_FILE} to read"
            self._unread += f" ({error.strerror})"
            return
        if seen == self._seen:
            return
        try:
            key = _read(self._folder / KEY_FILE, secret=True)
            certificates = _read(self._folder / CERTIFICATE_FILE)
            certificate = read_certificate(certificates)
            check_key_pem(Secret(key), certificate)
            self._anchor.check(certificate, self._clock())
        except (OSError, TacitError) as error:
            # The tool may be about to replace the other file too. One that is not valid yet is looked at again.
            self._unread = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            return
        self._seen, self._unread, self._tls = seen, "", Tls(key, certificates)


def _identify_file(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path, *, secret: bool = False) -> bytes:
    """Returns the content of a file that nobody else can replace and, if it is secret, nobody else can read."""
    with open(open_key_file(path), "rb") as file:
        found = os.fstat(file.fileno())
        if secret and (found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077):
            raise WireError(f"{path} can be read by others (chmod 600 {shlex.quote(str(path))})")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise WireError(f"{path} is too long")
    return data
