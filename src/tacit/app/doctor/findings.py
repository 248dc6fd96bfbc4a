"""Findings of `tacit doctor`, and the whole examination in order."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tacit.core.errors import ConfigError
from tacit.core.suite import Party


class Level(StrEnum):
    """Result of one check."""

    OK = "ok"
    WARNING = "warning"
    """Rounds can run, but somebody should look at it."""
    FAILED = "failed"
    """Rounds cannot run."""
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check, with a stable code."""

    code: str
    level: Level
    text: str
    remedy: str = ""
    """What to do. Only for warnings and failures."""
    party: Party = ""
    """The peer that it is about; empty for this machine."""

    @classmethod
    def failure(cls, code: str, error: ConfigError) -> "list[CheckResult]":
        """Returns the findings for an error, one for each of its problems."""
        return [cls(code, Level.FAILED, message, remedy) for message, remedy in error.texts]


def examine(
    federation: Path, me: Party | None = None, identity: Path | None = None, folder: Path | None = None
) -> list[CheckResult]:
    """Returns the findings of all checks. Nothing is sent beyond a TLS connection to addresses of the roster.

    Args:
        federation: The roster.
        me: The party of this machine. Without it, only the roster and the paths to all parties are checked.
        identity: File with the party's keys. Default: beside the roster.
        folder: Folder of the party's rounds. Default: beside the roster.

    Raises:
        ConfigError: If the roster cannot be used, or does not list the party.
    """
    # Imported here, because both modules use `CheckResult`.
    from tacit.app.doctor import local_checks, peer_checks
    from tacit.net.membership.identity import file_stem
    from tacit.net.membership.roster import RosterFile

    roster = RosterFile.load(federation)
    found = [local_checks.check_roster(roster, federation), local_checks.check_version()]
    mine = None
    files = [federation]
    if me is not None:
        card = roster.card_of(me)
        keys = federation.with_name(f"{file_stem(me)}.identity") if identity is None else identity
        place = federation.with_name(f"{file_stem(me)}.rounds") if folder is None else folder
        mine, told = local_checks.check_identity(roster, me, keys)
        running = local_checks.is_in_use(place)
        found += told
        found += [] if mine is None else local_checks.check_certificate(mine, roster.deadlines.certificate)
        found += local_checks.check_folder(place, running)
        found += local_checks.check_listening(card.address, running)
        files += [keys, place]
    found += local_checks.check_clock(files)
    others = [card for card in roster.parties if card.name != me]
    with ThreadPoolExecutor(max(len(others), 1)) as pool:
        probes = [pool.submit(peer_checks.check_peer, roster, card, mine) for card in others]
        for probe in probes:
            found += probe.result()
    return found
