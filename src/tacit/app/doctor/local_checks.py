"""Checks of this machine: roster, identity, state folder, disk, ports, clock and version."""

import asyncio
import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from time import time

from tacit.app.doctor.findings import CheckResult, Level
from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.core.version import RELEASE
from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import WIRE_VERSION
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.tls_sources import open_tls_source
from tacit.net.transport.listen_addresses import WILDCARDS, find_listen_addresses
from tacit.runtime.atomic_files import check_folder as check_owner_of_folder

LEAST_FREE = 1 << 30
"""Free bytes of the disk below which a warning is given. A model of 100 million entries takes 400 MB."""
LEAST_FREE_TO_START = 100 << 20
"""Free bytes of the disk below which no round should begin."""
TOLERANCE = 300.0
"""Seconds by which a file may be newer than the present time, as on a network disk with a clock of its own."""


def check_roster(roster: RosterFile, path: Path) -> CheckResult:
    """Says who is on the roster, which was read without problems."""
    count = len(roster.names)
    text = f"{path.name} is valid: {roster.federation}, {roster.protocol}, {count} parties, session {roster.nonce[:8]}"
    return CheckResult("roster", Level.OK, text)


def check_version() -> CheckResult:
    """Says which release runs, and whether it can connect to peers."""
    text = f"tacit {RELEASE} (wire version {WIRE_VERSION}), Python {platform.python_version()}"
    if find_spec("grpc") is None:
        return CheckResult("version", Level.FAILED, f"{text}: grpc is not installed", "pip install 'tacit[grpc]'")
    return CheckResult("version", Level.OK, text)


def check_identity(roster: RosterFile, me: Party, path: Path) -> tuple[Credentials | None, list[CheckResult]]:
    """Checks the permissions and content of an identity file, and that it belongs to the party's card."""
    try:
        mine = Credentials.load(path)
    except ConfigError as error:
        return None, CheckResult.failure("identity", error)
    if mine.name != me:
        text = f"{path} is the identity of {mine.name}, not of {me}"
        return None, [CheckResult("identity", Level.FAILED, text, f"give the identity of {me}: --identity FILE")]
    found = [CheckResult("identity", Level.OK, f"{path} is readable by its owner only")]
    try:
        roster.check(mine)
    except ConfigError as error:
        return None, [*found, *CheckResult.failure("identity-card", error)]
    return mine, [*found, CheckResult("identity-card", Level.OK, f"its keys are those on the card of {me}")]


def check_certificate(mine: Credentials, lifetime: float) -> list[CheckResult]:
    """Checks that this party can prove itself now, if its certificate expires."""
    if mine.proof is TlsProof.PINNED:
        return []
    if problem := open_tls_source(mine, lifetime).problem:
        return CheckResult.failure("certificate", ConfigError(problem))
    how = "issues its TLS certificates itself" if mine.proof is TlsProof.ISSUED else f"has one for {mine.tls_name}"
    return [CheckResult("certificate", Level.OK, f"{mine.name} {how}")]


def check_revision(roster: RosterFile, me: Party, mine: Credentials | None, folder: Path) -> list[CheckResult]:
    """Checks that the roster is not older than the revision that the party accepted, and that it is signed."""
    if mine is None:
        return []
    try:
        newer = RevisionGuard(folder, me).check(roster, mine)
    except ConfigError as error:
        return CheckResult.failure("revision", error)
    if not roster.required_signatures:
        text = f"revision {roster.revision}; the roster names no quorum, so nobody has to sign it"
    else:
        state = "which the party accepts when it starts" if newer else "which the party accepted"
        text = f"revision {roster.revision}, {state}"
    return [CheckResult("revision", Level.OK, text)]


# --- the state folder ----------------------------------------------------------------------------------------------


def is_in_use(folder: Path) -> bool:
    """Returns whether a process has the folder of a party open."""
    try:
        file = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def check_folder(folder: Path, running: bool) -> list[CheckResult]:
    """Checks owner, permissions and writability of the state folder, and the free space of its disk."""
    exists = folder.exists()
    try:
        if exists:
            check_owner_of_folder(folder)
    except ConfigError as error:
        return CheckResult.failure("folder", error)
    except OSError as error:
        return [
            CheckResult("folder", Level.FAILED, f"{folder} cannot be opened: {error.strerror}", "give another --folder")
        ]
    there = next(each for each in (folder, *folder.resolve().parents) if each.is_dir())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        remedy = f"let this user write there, or give another folder (ls -ld {quote(str(there))})"
        return [CheckResult("folder", Level.FAILED, f"{there} is not writable: {error.strerror}", remedy)]
    state = "in use by a running process" if running else "writable" if exists else "not there yet, and can be made"
    return [CheckResult("folder", Level.OK, f"{folder} is {state}"), _check_space(there)]


def _check_space(folder: Path) -> CheckResult:
    free = shutil.disk_usage(folder).free
    text = f"{free / (1 << 30):.1f} GiB are free on the disk of {folder}"
    if free >= LEAST_FREE:
        return CheckResult("disk", Level.OK, text)
    level = Level.WARNING if free >= LEAST_FREE_TO_START else Level.FAILED
    return CheckResult("disk", level, text, "free disk space, or put the folder on another disk: --folder")


# --- port and clock ------------------------------------------------------------------------------------------------


def check_listening(address: str, running: bool) -> list[CheckResult]:
    """Checks that this machine can listen at the party's address, on each address family that it has."""
    if not address:
        return [CheckResult("listen", Level.OK, "the card has no address: this party only dials out")]
    if running:
        return [CheckResult("listen", Level.UNCHECKED, f"{address}: the running process listens there")]
    try:
        found = asyncio.run(find_listen_addresses(address))
    except ConfigError as error:
        return CheckResult.failure("listen", error)
    text = f"can listen at {', '.join(found)}"
    if any(each.rpartition(":")[0].strip("[]") in WILDCARDS for each in found):
        text = f"{address} is no address of this machine, so a router has to forward it; {text}"
        return [
            CheckResult(
                "listen", Level.WARNING, text, f"have a peer run tacit doctor, and see that it reaches {address}"
            )
        ]
    return [CheckResult("listen", Level.OK, text)]


def check_clock(files: Iterable[Path]) -> list[CheckResult]:
    """Checks that no file of the party is from the future. Certificates are checked when peers are connected to."""
    now, newest, which = time(), 0.0, Path()
    for path in files:
        with suppress(OSError):
            entries = [path, *path.iterdir()] if path.is_dir() else [path]
            for entry in entries:
                if (changed := entry.stat().st_mtime) > newest:
                    newest, which = changed, entry
    if newest > now + TOLERANCE:
        text = f"{which} was written {newest - now:.0f} s after the present time of this clock"
        return [CheckResult("clock", Level.FAILED, text, "set the clock, such as by NTP: timedatectl")]
    text = "no file is newer than this clock; clocks of peers: no message carries the time"
    return [CheckResult("clock", Level.OK, text)]
