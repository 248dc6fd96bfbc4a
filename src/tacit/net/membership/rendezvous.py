"""Rendezvous of parties before a round: the progress of each peer, and when the next round can begin.

Parties exchange hellos with their progress and whether they are ready for the next round. A server begins a round when
all parties are ready, or after a timeout with those that are, and the parties begin after the server. It does not wait
for parties that left, unless the others are too few for an average. Without a server, a party begins when all its peers
are ready, when one of them has begun, or after a timeout, unless the protocol needs every party. A party that is behind
continues at the round of most others, because the rounds that it missed are no longer available.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from tacit.core.errors import ConfigError, Drop, ErrorText, JournalError, PeerFault, TacitError, TransportError
from tacit.core.suite import SERVER, Party
from tacit.core.version import RELEASE
from tacit.runtime.agreement import Agreement, first_difference
from tacit.runtime.round_numbers import AHEAD, RoundNumber, estimate_progress

MAX_AGREEMENT_BYTES = 1 << 15
"""Most bytes of an agreement in a hello."""
WIRE_VERSION = 5
"""Version of everything that nodes send. It rises when nodes of the release before could not take part any longer."""
WIRE_RELEASES: Mapping[int, str] = {4: " (Tacit 0.2)"}
"""Releases of other versions, where they are known."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a party, which it sends to its peers. Later releases may add fields at its end."""

    party: Party
    version: int
    """The wire version. It has this position in every release."""
    incarnation: bytes
    """Identifier of the party's journal. With another journal, the party's earlier messages are unknown."""
    session: bytes = b""
    """The party's session; empty until it knows the length of the vectors."""
    entries: Annotated[int, msgspec.Meta(ge=0)] = 0
    begun: RoundNumber = 0
    """Number of the last round that the party began."""
    over: bool = True
    """Whether that round is over."""
    ready: RoundNumber = 0
    """Number of the round that the party is ready to begin; 0 if none."""
    left: bool = False
    """Whether the party has left."""
    known: bytes = b""
    """Incarnation with which the party first saw the receiver in this session; empty if it has not seen it."""
    told: bytes = b""
    """The party's agreement as JSON; empty if it is too long."""
    release: str = ""
    """The party's release of Tacit."""
    revision: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The revision of the party's roster."""


class Rendezvous:
    """The peers of a party, and the progress of each according to its hello."""

    def __init__(
        self,
        me: Party,
        peers: Sequence[Party],
        seen: Callable[[bytes, Party, bytes], bytes],
        ours: bytes,
        revision: int = 0,
    ) -> None:
        """Starts without hellos.

        Args:
            me: The party.
            peers: Its peers.
            seen: Returns the incarnation under which a peer was first seen in a session.
            ours: The incarnation of our own journal.
            revision: The revision of our roster.
        """
        self.awaits_revisions = False
        """Whether to wait for peers with another revision of the roster, because each takes it over at its own time."""
        self._apart: set[Party] = set()
        """Peers with another revision, for which we wait."""
        self.me, self.peers, self._seen, self._ours = me, peers, seen, ours
        self._revision = revision
        self.needed = 0
        """Number of peers that have to confirm our journal before we begin; 0 after the first round of a session."""
        self.known: dict[Party, bytes] = {}
        """Incarnation with which each peer was first seen."""
        self.others: dict[Party, tuple[Hello, float]] = {}
        """Last hello of each peer, and its time."""
        self.lost: dict[Party, str] = {}
        """Peers whose messages are refused because they lost their journal, with the reason."""
        self.disagreements: dict[Party, TacitError] = {}
        """Peers with another agreement, and the first difference."""
        self.ready = 0
        """Number of the round that we are ready to begin; 0 if none."""
        self._agreement: Agreement | None = None

    def nobody(self, protocol: str, links: Mapping[Party, Any], seconds: float) -> TacitError:
        """Returns the error for a round that cannot begin after a timeout."""
        if SERVER in self.peers:
            why, remedy = ErrorText.parse(self._describe_trouble(SERVER, links) or "it has not begun a round")
            return PeerFault(SERVER, Drop.SILENT, f"after {seconds:g} s: {why}", remedy=remedy)
        if (peer := self.missing()) is not None:
            gone = "it has left" if self.is_gone(peer) else "it is not ready"
            why, remedy = ErrorText.parse(self._describe_trouble(peer, links) or gone)
            return TransportError(
                f"{peer} was not ready after {seconds:g} s, and {protocol} needs every party ({why})",
                remedy=remedy or f"start {peer}",
            )
        troubles = filter(None, (self._describe_trouble(peer, links) for peer in self.peers))
        why, remedy = ErrorText.parse(next(troubles, "none is ready"))
        if self.may_begin_without_all():
            return TransportError(
                f"too few peers were ready after {seconds:g} s: {self.needed} must have confirmed our journal before "
                f"the first round of a session ({why})",
                remedy=remedy or "start the missing parties",
            )
        return TransportError(
            f"no peer was ready after {seconds:g} s: {why}", remedy=remedy or "start the missing parties"
        )

    def _describe_trouble(self, peer: Party, links: Mapping[Party, Any]) -> str:
        """Returns why a peer cannot take part; empty if that is not known."""
        return str(links[peer].trouble or self.disagreements.get(peer) or "")

    def hello(self, to: Party, begun: int, over: bool, left: bool) -> Hello:
        """Returns our hello to a peer."""
        agreement = self._agreement
        if agreement is None:
            return Hello(self.me, WIRE_VERSION, self._ours, left=left, release=RELEASE, revision=self._revision)
        told = msgspec.json.encode(agreement.described)
        return Hello(
            self.me,
            WIRE_VERSION,
            self._ours,
            agreement.session,
            agreement.entries,
            begun,
            over,
            self.ready,
            left,
            self.known.get(to, b""),
            told if len(told) <= MAX_AGREEMENT_BYTES else b"",
            RELEASE,
            self._revision,
        )

    def sit(self, agreement: Agreement, needed: int = 0) -> None:
        """Sets the agreement once it is known, and the number of peers that have to confirm our journal."""
        self._agreement, self.needed = agreement, needed
        for peer, (hello, _) in self.others.items():
            self._compare(peer, hello)

    def listen(self, sender: Party, hello: Hello, at: float) -> bool:
        """Processes a hello. Returns whether it differs from the peer's last one."""
        before, _ = self.others.get(sender, (None, 0.0))
        self.others[sender] = hello, at
        self._compare(sender, hello)
        return before != hello

    def _compare(self, sender: Party, hello: Hello) -> None:
        """Records whether a peer has another agreement, or has lost its journal."""
        self.disagreements.pop(sender, None)
        self._apart.discard(sender)
        if self._agreement is None or not hello.session:
            return
        session = self._agreement.session
        if hello.session != session:
            older = _compare_revisions(self.me, self._revision, hello, starts_again=not self.awaits_revisions)
            if (difference := older or _find_difference(self._agreement, sender, hello)) is not None:
                self.disagreements[sender] = difference
            if older is not None and self.awaits_revisions:
                self._apart.add(sender)
            return
        if sender not in self.known:
            self.known[sender] = self._seen(session, sender, hello.incarnation)
        if self.known[sender] != hello.incarnation:
            self.lost[sender] = f"{sender} has lost its journal, and could contradict itself in a round"

    def foreign(self, sender: Party, version: int) -> None:
        """Records a peer of another version, whose hello cannot be read."""
        self.others.pop(sender, None)
        self._apart.discard(sender)
        theirs = f"version {version}{WIRE_RELEASES.get(version, '')}"
        older = sender if version < WIRE_VERSION else self.me
        self.disagreements[sender] = ConfigError(
            f"{sender} uses {theirs} of the wire format, and {self.me} version {WIRE_VERSION}; try: "
            f"install a newer release of Tacit at {older}"
        )

    @property
    def wrong(self) -> TacitError | None:
        """The error that prevents us from beginning a round, if any."""
        session = None if self._agreement is None else self._agreement.session
        hellos = [hello for hello, _ in self.others.values() if hello.session == session]
        strangers = [hello.party for hello in hellos if hello.known not in (b"", self._ours)]
        # A server continues with the peers that know its journal, as long as these may be the majority.
        if strangers and (self.me != SERVER or 2 * len(strangers) > len(self.peers)):
            return JournalError(
                f"{strangers[0]} refuses messages of {self.me}, which has lost its journal: it could contradict "
                "itself in a round; try: begin a new session (tacit roster renew)"
            )
        if self.me == SERVER:
            return None
        return next((why for peer, why in self.disagreements.items() if peer not in self._apart), None)

    # --- progress of peers -----------------------------------------------------------------------------------------

    def confirmed_hello(self, peer: Party) -> Hello | None:
        """Returns a peer's hello if it is in our session and both sides know each other's journal.

        We send nothing in a round before a peer has confirmed our journal, because it may know that we lost one.
        """
        hello, _ = self.others.get(peer, (None, 0.0))
        if hello is None or self._agreement is None or hello.session != self._agreement.session:
            return None
        return hello if hello.known == self._ours and peer not in self.lost else None

    def is_gone(self, peer: Party) -> bool:
        """Returns whether a peer has left or has lost its journal, so that nobody waits for it."""
        hello, _ = self.others.get(peer, (None, 0.0))
        return peer in self.lost or (hello is not None and hello.left)

    def is_absent(self, peer: Party, number: int) -> bool:
        """Returns whether a peer sends nothing in a round: it is gone, or is back and goes on at a later round."""
        hello, _ = self.others.get(peer, (None, 0.0))
        return self.is_gone(peer) or (hello is not None and hello.begun < number < hello.ready)

    def is_ready(self, peer: Party, number: int) -> bool:
        """Returns whether a peer is ready for a round, or has begun it."""
        hello = self.confirmed_hello(peer)
        return hello is not None and (hello.ready >= number or hello.begun >= number)

    def has_begun(self, peer: Party, number: int) -> bool:
        """Returns whether a peer has begun a round."""
        hello = self.confirmed_hello(peer)
        return hello is not None and hello.begun >= number

    def is_there(self, peer: Party) -> bool:
        """Returns whether a peer is ready for the round that we are ready for."""
        return self.ready > 0 and self.is_ready(peer, self.ready)

    # --- beginning of a round --------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """The length of the vectors, if half of our peers claim it and fewer claim another one; otherwise 0.

        A malicious peer must not make us allocate memory for vectors that nobody contributes.
        """
        said = Counter(hello.entries for hello, _ in self.others.values() if hello.entries).most_common(2)
        (entries, times), (_, less), *_ = [*said, (0, 0), (0, 0)]
        return entries if times > less and 2 * times >= len(self.peers) else 0

    def next(self, own: int) -> int:
        """Returns the round to be ready for: our own next one or, if we are behind, that of most other parties."""
        others = [hello.begun + hello.over for peer in self.peers if (hello := self.confirmed_hello(peer)) is not None]
        if not others or self.me == SERVER:
            return own
        # The limit keeps a malicious server from using up all round numbers.
        return max(own, min(estimate_progress(others), own + AHEAD))

    @property
    def assured(self) -> bool:
        """Whether enough peers have confirmed our journal, so that colluding ones cannot outvote the others."""
        return len([peer for peer in self.peers if self.confirmed_hello(peer) is not None]) >= self.needed

    def may_begin(self, number: int) -> bool:
        """Returns whether a round can begin now."""
        if SERVER in self.peers:
            server = self.confirmed_hello(SERVER)
            return server is not None and server.begun >= number and not server.over
        others = [peer for peer in self.peers if not self.is_gone(peer)]
        if self._needs_everybody and len(others) < len(self.peers):
            return False
        if self.me == SERVER and len(others) < self._fewest:
            return False  # such a round cannot have an average; parties that left may join again
        confirmed = [peer for peer in others if self.confirmed_hello(peer) is not None]
        if self.me != SERVER and 2 * len(confirmed) < len(others):
            return False  # the few peers that are reachable may claim anything
        if self.me != SERVER and any(self.has_begun(peer, number) for peer in others):
            return True
        return bool(others) and all(self.is_ready(peer, number) for peer in others)

    def may_begin_without_all(self) -> bool:
        """Returns whether a round can begin without the missing peers, after the timeout."""
        some = any(self.confirmed_hello(peer) is not None for peer in self.peers)
        return SERVER not in self.peers and some and not self._needs_everybody

    def missing(self) -> Party | None:
        """Returns a missing peer, if the protocol needs every party; otherwise None."""
        absent = (peer for peer in self.peers if self.is_gone(peer) or not self.is_there(peer))
        return next(absent, None) if self._needs_everybody else None

    @property
    def _needs_everybody(self) -> bool:
        return self._agreement is not None and self._agreement.protocol.needs_everybody

    @property
    def _fewest(self) -> int:
        """The fewest parties with which a round can have an average."""
        return 0 if self._agreement is None else self._agreement.terms.fewest_present


def _compare_revisions(me: Party, revision: int, hello: Hello, *, starts_again: bool) -> TacitError | None:
    """Returns the error for a peer that has another revision of the roster; None if it has the same, or none."""
    if not revision or not hello.revision or revision == hello.revision:
        return None
    older = me if revision < hello.revision else hello.party
    return ConfigError(
        f"{hello.party} has revision {hello.revision} of federation.toml, and {me} revision {revision}; try: have "
        f"{older} take the newest one{', and start it again' if starts_again else ''}"
    )


def _find_difference(agreement: Agreement, sender: Party, hello: Hello) -> TacitError | None:
    """Returns the first difference to a peer's agreement; None if there is none, or if the hello has no agreement."""
    try:
        theirs = msgspec.json.decode(hello.told, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    words = first_difference(agreement.described, theirs, sender)
    return None if words is None else ConfigError(words)
