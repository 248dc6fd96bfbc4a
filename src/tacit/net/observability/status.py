"""Status of a running node, for people and programs. It contains no secrets."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tacit.core.average import Ending
from tacit.core.suite import SERVER, Party
from tacit.net.membership.rendezvous import Rendezvous
from tacit.runtime.atomic_files import replace_file

if TYPE_CHECKING:
    from tacit.net.transport.peer_link import PeerLink

STATUS = "status.json"
"""Name of the status file in a party's folder."""
ABSENT = 5.0
"""Seconds without a sign of life after which an awaited peer counts as missing."""


@dataclass(frozen=True)
class PeerStatus:
    """Status of one peer, as a node sees it."""

    party: Party
    begun: int
    """Number of the last round that the peer has begun, according to its hello."""
    heard: float | None
    """Seconds since the peer's last hello; None if there was none."""
    waiting: int
    """Frames that the peer has not acknowledged."""
    missing: float | None
    """Seconds since the last sign of life of an awaited peer; None if it is not awaited, or gave one just now."""
    trouble: str
    """Reason why the peer cannot be reached, or why its messages are refused; empty if there is none."""

    @classmethod
    def of(
        cls, peer: Party, rendezvous: Rendezvous, link: "PeerLink", now: float, since: float, pending: bool
    ) -> "PeerStatus":
        """Returns the status of a peer.

        Args:
            peer: The peer.
            rendezvous: The hellos of all peers.
            link: The link to the peer.
            now: The present time.
            since: The time since which messages are awaited.
            pending: Whether a message of the peer is awaited in the present round.
        """
        hello, at = rendezvous.others.get(peer, (None, 0.0))
        # A server that is ready may die before it begins the round, and is asked every second.
        awaited = pending or hello is None
        awaited = awaited or (rendezvous.ready > 0 and (peer == SERVER or not rendezvous.is_there(peer)))
        # Hellos are sent between rounds. In a round, the sign of life is the message that began the wait.
        silent = now - (max(at, since) if pending or hello is None else at)
        return cls(
            peer,
            0 if hello is None else hello.begun,
            None if hello is None else round(now - at, 1),
            link.waiting,
            round(silent, 1) if awaited and silent >= ABSENT else None,
            str(rendezvous.lost.get(peer) or rendezvous.disagreements.get(peer) or link.trouble),
        )


@dataclass(frozen=True)
class RoundSummary:
    """The ending of a round, without any vector."""

    round: int
    contributors: tuple[Party, ...]
    dropped: dict[Party, str]
    error: dict[str, str] | None
    """Code and text of the error."""
    sent: dict[str, int]
    received: dict[str, int]
    seconds: float

    @classmethod
    def of(cls, ending: Ending) -> "RoundSummary":
        """Returns the summary of an ending."""
        return cls(
            ending.round,
            ending.contributors,
            {party: reason.value for party, reason in ending.dropped.items()},
            None if ending.error is None else {"code": ending.error.code, "text": str(ending.error)},
            dict(ending.sent),
            dict(ending.received),
            round(sum(phase.seconds for phase in ending.phases), 3),
        )

    def __str__(self) -> str:
        text = f"{len(self.contributors)} averaged" if self.error is None else self.error["text"]
        unnamed = [f"{party} {reason}" for party, reason in self.dropped.items() if party not in text]
        begins = "" if text.startswith(f"round {self.round} ") else f"round {self.round}: "
        without = f" (without {', '.join(unnamed)})" if unnamed else ""
        return f"{begins}{text}{without}"


@dataclass(frozen=True)
class Status:
    """Status of a node. It contains no secrets."""

    party: Party
    at: float
    """Time of the status, in seconds since 1970."""
    round: int
    """Number of the last round that was begun."""
    ready: int
    """Number of the round that the node is ready to begin; 0 if none."""
    over: bool
    waits_for: str
    """Kinds of messages that are awaited in the present round."""
    peers: list[PeerStatus]
    trouble: str = ""
    """Reason why the node cannot continue; empty if it can."""
    last: RoundSummary | None = None
    """Summary of the last round that is over."""


def write_status(folder: Path, status: Status) -> None:
    """Writes the status file; does nothing if that is impossible."""
    # It need not survive a crash, and a full disk is reported elsewhere.
    with suppress(OSError):
        replace_file(folder / STATUS, msgspec.json.encode(status), durable=False)
