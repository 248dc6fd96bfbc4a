"""What a party knows of its peers between rounds, and when it is time to begin the next one.

Parties say hello to each other, which says how far each is and whether it is ready for the next round. Where there is a
server it begins when all are ready, or after so long with those who are, and parties begin when it has. Without a
server a party begins when all of its peers are ready, when one of them has begun, or after so long, unless the protocol
needs everybody. Whoever is behind goes on where most of the others are: rounds that it was not in are no longer to be
had.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from tacit.core.errors import ConfigError, Drop, JournalError, PeerFault, TacitError, TransportError
from tacit.core.suite import SERVER, Party
from tacit.runtime.agreement import VERSION, Agreement, first_difference
from tacit.runtime.round_numbers import AHEAD, RoundNumber, estimate_progress

MAX_AGREEMENT_BYTES = 1 << 15
"""Bytes of what was agreed that a hello may carry."""


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far a party is. Only peers hear it, and only from itself."""

    party: Party
    version: int
    """Of everything that is sent. It is in this place in every release, whatever follows."""
    incarnation: bytes
    """Of its journal. Another one is another journal, which does not know what was said before."""
    session: bytes = b""
    """Empty as long as it does not know how long vectors are."""
    entries: Annotated[int, msgspec.Meta(ge=0)] = 0
    begun: RoundNumber = 0
    """The last round that it began,"""
    over: bool = True
    """whether that is over,"""
    ready: RoundNumber = 0
    """and the one that it is ready to begin, if any."""
    left: bool = False
    known: bytes = b""
    """As which incarnation it first saw whom it says hello to in this session; empty if it has not."""
    told: bytes = b""
    """What it holds to be agreed, unless that is too long."""


class Rendezvous:
    """Those whom we exchange messages with, and how far each of them said to be."""

    def __init__(
        self, me: Party, peers: Sequence[Party], seen: Callable[[bytes, Party, bytes], bytes], ours: bytes
    ) -> None:
        """Knows nobody yet. `seen` gives the journal that a peer first had in a session; `ours` is the one we have."""
        self.me, self.peers, self._seen, self._ours = me, peers, seen, ours
        self.needed = 0
        """How many have to know our journal before we begin: after the first round of a session, none in particular."""
        self.known: dict[Party, bytes] = {}
        """Which journal each of them had when it was first seen."""
        self.others: dict[Party, tuple[Hello, float]] = {}
        """The last hello of each, and when it came."""
        self.lost: dict[Party, str] = {}
        """From whom we take nothing any more, and why."""
        self.disagreements: dict[Party, TacitError] = {}
        """Who disagrees with us, and on what."""
        self.ready = 0
        """The round that we are ready to begin, if any."""
        self._agreement: Agreement | None = None

    def nobody(self, protocol: str, links: Mapping[Party, Any], seconds: float) -> TacitError:
        """Returns why nothing can begin, after so long."""
        if SERVER in self.peers:
            why = links[SERVER].trouble or "it has not begun a round"
            return PeerFault(SERVER, Drop.SILENT, f"after {seconds:g} s: {why}")
        if (peer := self.missing()) is not None:
            gone = "it has left" if self.is_gone(peer) else "it is not ready"
            why = f"{protocol} needs everybody ({links[peer].trouble or gone})"
            return TransportError(f"{peer} was not there after {seconds:g} s, and {why}")
        why = next((link.trouble for link in links.values() if link.trouble), "nobody is ready")
        if self.may_begin_without_all():
            why = (
                f"before the first round of a session {self.needed} have to know our journal, or one could lie ({why})"
            )
            return TransportError(f"too few peers were there after {seconds:g} s: {why}")
        return TransportError(f"no peer was there after {seconds:g} s: {why}")

    def hello(self, to: Party, begun: int, over: bool, left: bool) -> Hello:
        """Returns what we say to a peer: the last round that we began, whether it is over, and what we know."""
        agreement = self._agreement
        if agreement is None:
            return Hello(self.me, VERSION, self._ours, left=left)
        told = msgspec.json.encode(agreement.described)
        return Hello(
            self.me,
            VERSION,
            self._ours,
            agreement.session,
            agreement.entries,
            begun,
            over,
            self.ready,
            left,
            self.known.get(to, b""),
            told if len(told) <= MAX_AGREEMENT_BYTES else b"",
        )

    def sit(self, agreement: Agreement, needed: int = 0) -> None:
        """Takes note of what is agreed, now that it is known, and of how many have to know our journal."""
        self._agreement, self.needed = agreement, needed
        for peer, (hello, _) in self.others.items():
            self._compare(peer, hello)

    def listen(self, sender: Party, hello: Hello, at: float) -> bool:
        """Takes a hello in; says whether there was anything new in it."""
        before, _ = self.others.get(sender, (None, 0.0))
        self.others[sender] = hello, at
        self._compare(sender, hello)
        return before != hello

    def _compare(self, sender: Party, hello: Hello) -> None:
        """Notices whom we cannot go on with: one that disagrees, or has lost its journal."""
        self.disagreements.pop(sender, None)
        if self._agreement is None or not hello.session:
            return
        session = self._agreement.session
        if hello.session != session:
            if (difference := _find_difference(self._agreement, sender, hello)) is not None:
                self.disagreements[sender] = difference
            return
        if sender not in self.known:
            self.known[sender] = self._seen(session, sender, hello.incarnation)
        if self.known[sender] != hello.incarnation:
            self.lost[sender] = f"{sender} has lost its journal, and may say two things in one round"

    def foreign(self, sender: Party, version: int) -> None:
        """Takes note of a peer of another version, of which nothing else can be read."""
        self.others.pop(sender, None)
        self.disagreements[sender] = ConfigError(
            f"{sender} speaks version {version} of what is sent, and {self.me} version {VERSION}; have both run the "
            f"same release of Tacit"
        )

    @property
    def wrong(self) -> TacitError | None:
        """What keeps us from beginning anything."""
        session = None if self._agreement is None else self._agreement.session
        hellos = [hello for hello, _ in self.others.values() if hello.session == session]
        strangers = [hello.party for hello in hellos if hello.known not in (b"", self._ours)]
        # A server goes on with those who know it as it is, as long as that may be most of them, and agree with it.
        if strangers and (self.me != SERVER or 2 * len(strangers) > len(self.peers)):
            return JournalError(
                f"{strangers[0]} takes nothing from {self.me}, and says that {self.me} has lost its journal: it could "
                "say two things in one round; begin a new session (tacit roster renew)"
            )
        return None if self.me == SERVER else next(iter(self.disagreements.values()), None)

    # --- who is where ----------------------------------------------------------------------------------------------

    def heard(self, peer: Party) -> Hello | None:
        """Returns how far a peer is, if it is in our session and we know each other's journals.

        We say nothing in a round before a peer has said as which journal it knows us: it may know that we lost one.
        """
        hello, _ = self.others.get(peer, (None, 0.0))
        if hello is None or self._agreement is None or hello.session != self._agreement.session:
            return None
        return hello if hello.known == self._ours and peer not in self.lost else None

    def is_gone(self, peer: Party) -> bool:
        """Says whether a peer is not to be waited for."""
        hello, _ = self.others.get(peer, (None, 0.0))
        return peer in self.lost or (hello is not None and hello.left)

    def is_ready(self, peer: Party, number: int) -> bool:
        """Says whether a peer could begin a round, or has."""
        hello = self.heard(peer)
        return hello is not None and (hello.ready >= number or hello.begun >= number)

    def has_begun(self, peer: Party, number: int) -> bool:
        """Says whether a peer has begun a round."""
        hello = self.heard(peer)
        return hello is not None and hello.begun >= number

    def is_there(self, peer: Party) -> bool:
        """Says whether a peer is ready for what we are ready for."""
        return self.ready > 0 and self.is_ready(peer, self.ready)

    # --- when to begin ---------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """How many entries vectors have, if half of our peers say so and fewer say anything else; otherwise 0.

        One that lies must not have us sit down for vectors that nobody brings, or make room for them.
        """
        said = Counter(hello.entries for hello, _ in self.others.values() if hello.entries).most_common(2)
        (entries, times), (_, less), *_ = [*said, (0, 0), (0, 0)]
        return entries if times > less and 2 * times >= len(self.peers) else 0

    def next(self, own: int) -> int:
        """Returns the round to be ready for: our own next one or, for whoever is behind, that of most others."""
        others = [hello.begun + hello.over for peer in self.peers if (hello := self.heard(peer)) is not None]
        if not others or self.me == SERVER:
            return own
        # A server must not use up all numbers that there are.
        return max(own, min(estimate_progress(others), own + AHEAD))

    @property
    def assured(self) -> bool:
        """Says whether enough peers know our journal for the lies of as many as may collude not to count."""
        return len([peer for peer in self.peers if self.heard(peer) is not None]) >= self.needed

    def may_begin(self, number: int) -> bool:
        """Says whether it is time to begin a round."""
        if SERVER in self.peers:
            server = self.heard(SERVER)
            return server is not None and server.begun >= number and not server.over
        others = [peer for peer in self.peers if not self.is_gone(peer)]
        if self._needs_everybody and len(others) < len(self.peers):
            return False
        if self.me != SERVER and 2 * len([peer for peer in others if self.heard(peer) is not None]) < len(others):
            return False  # those who are heard may be few, and say anything
        if self.me != SERVER and any(self.has_begun(peer, number) for peer in others):
            return True
        return bool(others) and all(self.is_ready(peer, number) for peer in others)

    def may_begin_without_all(self) -> bool:
        """Says whether we begin without those who are not there, once there was time enough."""
        some = any(self.heard(peer) is not None for peer in self.peers)
        return SERVER not in self.peers and some and not self._needs_everybody

    def missing(self) -> Party | None:
        """Returns somebody without whom no round can be, and who is not there."""
        absent = (peer for peer in self.peers if self.is_gone(peer) or not self.is_there(peer))
        return next(absent, None) if self._needs_everybody else None

    @property
    def _needs_everybody(self) -> bool:
        return self._agreement is not None and self._agreement.protocol.needs_everybody


def _find_difference(agreement: Agreement, sender: Party, hello: Hello) -> TacitError | None:
    """Returns on what a peer disagrees, if it said enough to tell."""
    try:
        theirs = msgspec.json.decode(hello.told, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    words = first_difference(agreement.described, theirs, sender)
    return None if words is None else ConfigError(words)
