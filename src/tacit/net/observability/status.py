"""How it stands with a party that is running: what it tells people, with nothing secret in it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tacit.core.average import Ending
from tacit.core.suite import Party
from tacit.net.membership.rendezvous import Rendezvous
from tacit.runtime.atomic_files import replace_file

if TYPE_CHECKING:
    from tacit.net.transport.peer_link import PeerLink

STATUS = "status.json"
"""Where, in its folder, a party writes it."""


@dataclass(frozen=True)
class PeerStatus:
    """How it stands between a node and one of its peers."""

    party: Party
    begun: int
    """The last round that it said to have begun,"""
    heard: float | None
    """and how many seconds ago it was last heard; None if never."""
    waiting: int
    """Frames that have not arrived there."""
    missing: float | None
    """For how many seconds something of it is waited for; None if nothing is."""
    trouble: str
    """Why nothing arrives there, or why nothing of it counts, in words; empty if all is well."""

    @classmethod
    def of(
        cls, peer: Party, rendezvous: Rendezvous, link: "PeerLink", now: float, since: float, pending: bool
    ) -> "PeerStatus":
        """Returns how it stands with a peer, of which something may be waited for since a time."""
        hello, at = rendezvous.others.get(peer, (None, 0.0))
        late = pending or (rendezvous.ready > 0 and not rendezvous.is_there(peer))
        return cls(
            peer,
            0 if hello is None else hello.begun,
            None if hello is None else round(now - at, 1),
            link.waiting,
            round(now - since, 1) if late else None,
            str(rendezvous.lost.get(peer) or rendezvous.disagreements.get(peer) or link.trouble),
        )


@dataclass(frozen=True)
class RoundSummary:
    """How a round ended, without any vector."""

    round: int
    contributors: tuple[Party, ...]
    dropped: dict[Party, str]
    error: dict[str, str] | None
    """Its code and its text."""
    sent: dict[str, int]
    received: dict[str, int]
    seconds: float

    @classmethod
    def of(cls, ending: Ending) -> "RoundSummary":
        """Returns what can be told of an ending."""
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
        missing = ", ".join(f"{party} {reason}" for party, reason in self.dropped.items())
        what = f"{len(self.contributors)} averaged" if self.error is None else self.error["text"]
        return f"round {self.round}: {what}{f' (without {missing})' if missing else ''}"


@dataclass(frozen=True)
class Status:
    """How it stands with a node: for people, and without anything secret."""

    party: Party
    at: float
    """The time of day, in seconds since 1970."""
    round: int
    ready: int
    """The round that it waits to begin, or 0."""
    over: bool
    waits_for: str
    """The kinds of messages that it waits for in its round."""
    peers: list[PeerStatus]
    trouble: str = ""
    """Why it cannot go on, in words; empty if it can."""
    last: RoundSummary | None = None
    """How the last round ended that is over."""


def write_status(folder: Path, status: Status) -> None:
    """Writes down how it stands, for those who look."""
    # It need not outlive a crash, and on a full disk others have more to say.
    with suppress(OSError):
        replace_file(folder / STATUS, msgspec.json.encode(status), durable=False)
