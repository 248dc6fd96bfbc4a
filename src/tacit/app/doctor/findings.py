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
    federation: Path,
    me: Party | None = None,
    identity: Path | None = None,
    folder: Path | None = None,
    proxy: str | None = None,
) -> list[CheckResult]:
    """Returns the findings of all checks. All that is sent is one signed hello to each peer, which changes nothing.

    Args:
        federation: The roster.
        me: The party of this machine. Without it, only the roster and the paths to all parties are checked.
        identity: File with the party's keys. Default: beside the roster.
        folder: Folder of the party's rounds. Default: beside the roster.
        proxy: HTTP proxy through which the party dials others, as http://host:port.

    Raises:
        ConfigError: If the roster or the proxy cannot be used, or the roster does not list the party.
    """
    # Imported here, because both modules use `CheckResult`.
    from tacit.app.doctor import local_checks, peer_checks, proxy_checks
    from tacit.net.membership.identity import Card, file_stem
    from tacit.net.membership.roster import RosterFile
    from tacit.net.transport.proxy import Proxy

    through = None if proxy is None else Proxy.parse(proxy)
    roster = RosterFile.load(federation)
    version = local_checks.check_version()
    found = [local_checks.check_roster(roster, federation), version]
    mine, place = None, federation.parent
    files = [federation]
    if me is not None:
        card = roster.card_of(me)
        keys = federation.with_name(f"{file_stem(me)}.identity") if identity is None else identity
        place = federation.with_name(f"{file_stem(me)}.rounds") if folder is None else folder
        mine, told = local_checks.check_identity(roster, me, keys)
        running = local_checks.is_in_use(place)
        found += told
        found += [] if mine is None else local_checks.check_certificate(mine, roster.deadlines.certificate)
        found += local_checks.check_revision(roster, me, mine, place)
        found += local_checks.check_folder(place, running)
        found += local_checks.check_listening(card.address, running)
        files += [keys, place]
    found += local_checks.check_clock(files)
    if through is not None:
        found.append(proxy_checks.check_proxy(through, min(roster.deadlines.connect, peer_checks.MOST_SECONDS)))
    others = [card for card in (*roster.parties, *roster.relays) if card.name != me]

    def check(card: Card) -> list[CheckResult]:
        if through is None or not card.address:
            return peer_checks.check_peer(roster, card, mine)
        return proxy_checks.check_through_proxy(roster, card, mine, through)

    with ThreadPoolExecutor(max(len(others), 1)) as pool:
        for told in pool.map(check, others):
            found += told
    if mine is None or me not in roster.entry.everyone(roster.names) or version.level is Level.FAILED:
        return found
    from tacit.app.doctor import peer_answers  # which needs grpc

    failed = {each.party for each in found if each.level in (Level.FAILED, Level.UNCHECKED)}
    peers = [peer for peer in roster.terms.peers(mine.name) if peer not in (me, *failed)]
    asked = [peer for peer in peers if roster.address_of(peer) or not roster.address_of(mine.name)]
    silent = [
        CheckResult("hello", Level.UNCHECKED, "it only dials out: run tacit doctor on its machine", party=peer)
        for peer in peers
        if peer not in asked
    ]
    return [*found, *peer_answers.check_answers(roster, mine, asked, place, through), *silent]
