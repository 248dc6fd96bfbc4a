"""Checks of what peers say of themselves: their release, the revision of their roster, and their rounds.

Each peer gets one signed hello, directly or through a relay, and answers with its own. The hello does not repeat the
mark that a peer demands, so peers take it for a replay: they answer it, and record nothing.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from tacit.app.doctor.findings import CheckResult, Level
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, ErrorText, TransportError
from tacit.core.suite import Buffer, Party
from tacit.core.version import RELEASE
from tacit.crypto.keys import Keys
from tacit.net.membership.hello import open_hello, sign_hello
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import WIRE_RELEASES, WIRE_VERSION, Hello
from tacit.net.membership.replay_guard import MARK_BYTES, ReplayGuard
from tacit.net.membership.roster import RosterFile
from tacit.net.observability.telemetry import Telemetry
from tacit.net.party_courier import build_courier
from tacit.net.store.index import StoreSummary, summarize_store
from tacit.net.transport.proxy import Proxy


class _Asker:
    """Owner of a courier that receives nothing, because it does not listen."""

    def max_frame_bytes(self, sender: Party) -> int:
        del sender
        return 0

    async def accept_frame(self, sender: Party, data: Buffer) -> bool:
        del sender, data
        raise NotImplementedError

    def answer_hello(self, sender: Party, hello: bytes) -> bytes:
        del sender, hello
        raise NotImplementedError


def check_answers(
    roster: RosterFile, mine: Credentials, peers: Iterable[Party], folder: Path, proxy: Proxy | None = None
) -> list[CheckResult]:
    """Asks peers, and returns findings about their answers.

    Args:
        roster: The roster.
        mine: Our own keys.
        peers: The peers to ask.
        folder: The folder of our rounds, which need not exist.
        proxy: The proxy through which we dial.
    """
    own = None
    with suppress(ConfigError):
        own = summarize_store(folder)
    answers = asyncio.run(_ask(roster, mine, list(peers), proxy))
    found = []
    for peer, answer in answers.items():
        if isinstance(answer, TransportError):
            why, remedy = ErrorText.parse(str(answer))
            found.append(CheckResult("hello", Level.FAILED, why, remedy or f"check that {peer} runs", peer))
        else:
            found += explain_answer(roster, mine.name, peer, answer, own)
    return found


async def _ask(
    roster: RosterFile, mine: Credentials, peers: list[Party], proxy: Proxy | None
) -> dict[Party, Hello | int | TransportError]:
    """Returns the answer of each peer: its hello, its wire version if that differs from ours, or an error."""
    keys, guard = Keys(mine.identity, roster.members), ReplayGuard(SystemEntropy())
    telemetry = Telemetry(mine.name, roster.federation, roster.protocol)
    courier = build_courier(roster, mine, _Asker(), telemetry, proxy=proxy)
    ours = Hello(mine.name, WIRE_VERSION, bytes(MARK_BYTES), release=RELEASE, revision=roster.revision)

    async def ask(peer: Party) -> Hello | int | TransportError:
        try:
            said = await courier.links[peer].exchange_hello(sign_hello(keys, peer, guard.stamp(peer), ours))
        except TransportError as error:
            return error
        answer = open_hello(keys, peer, said)
        if answer is None or not guard.is_fresh(peer, answer.stamp):
            return TransportError(f"{peer} does not answer with a hello of its own; try: have it run the same release")
        return answer.hello

    try:
        return dict(zip(peers, await asyncio.gather(*map(ask, peers)), strict=True))
    finally:
        await courier.close()


def explain_answer(
    roster: RosterFile, me: Party, peer: Party, hello: Hello | int, own: StoreSummary | None
) -> list[CheckResult]:
    """Returns the findings about the hello of a peer, or about its wire version if that differs from ours.

    Args:
        roster: The roster.
        me: Our name.
        peer: The peer.
        hello: What it answered.
        own: Our own rounds; None if there are none.
    """
    if isinstance(hello, int):
        text = f"it has wire version {hello}{WIRE_RELEASES.get(hello, '')}, and {me} {WIRE_VERSION}"
        older = peer if hello < WIRE_VERSION else me
        return [CheckResult("version", Level.FAILED, text, f"install a newer release of Tacit at {older}", peer)]
    release = "".join(each for each in hello.release[:20] if each.isprintable())
    version = CheckResult("version", Level.OK, f"it runs tacit {release} (wire version {WIRE_VERSION})", party=peer)
    return [version, _explain_revision(roster, me, hello), *_explain_rounds(roster, me, hello, own)]


def _explain_revision(roster: RosterFile, me: Party, hello: Hello) -> CheckResult:
    peer = hello.party
    if hello.revision != roster.revision:
        text = f"it has revision {hello.revision} of the roster, and {me} revision {roster.revision}"
        older = me if roster.revision < hello.revision else peer
        remedy = f"have {older} take the newest federation.toml, and start it again"
        return CheckResult("revision", Level.FAILED, text, remedy, peer)
    if _session_of(hello) not in ("", roster.nonce):
        text = f"it is in another session of {roster.federation}, with a roster of the same revision"
        remedy = f"compare the federation.toml of {me} and {peer}, and have both take the same one"
        return CheckResult("revision", Level.FAILED, text, remedy, peer)
    return CheckResult("revision", Level.OK, f"it has revision {hello.revision} of the roster", party=peer)


def _session_of(hello: Hello) -> str:
    """Returns the nonce of a peer's session; empty if the hello does not have it."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return str(msgspec.json.decode(hello.told, type=dict[str, object]).get("nonce", ""))
    return ""


def _explain_rounds(roster: RosterFile, me: Party, hello: Hello, own: StoreSummary | None) -> list[CheckResult]:
    peer = hello.party
    if _session_of(hello) != roster.nonce:
        text = "it has begun no round since its start, and waits for its own model"
        return [CheckResult("rounds", Level.OK, text, party=peer)]
    done = f"it is in round {hello.begun}" if not hello.over else f"its last round is {hello.begun}"
    same = own is not None and own.session == hello.session
    if own is not None and same and hello.known not in (b"", own.incarnation):
        text = f"{done}; it knows another journal of {me}, whose messages it refuses"
        remedy = "begin a new session: tacit roster renew federation.toml, on every machine the new file"
        return [CheckResult("rounds", Level.FAILED, text, remedy, peer)]
    ours = own.number if own is not None and same else 0
    if ours > hello.begun + 1:
        text = f"{done}, and the last of {me} is {ours}: it seems to have lost its journal"
        return [CheckResult("rounds", Level.WARNING, text, f"ask {peer} whether it has another --folder now", peer)]
    behind = f"; {me} is behind at {ours}, and goes on where the others are" if ours < hello.begun else ""
    return [CheckResult("rounds", Level.OK, f"{done}{behind}", party=peer)]
