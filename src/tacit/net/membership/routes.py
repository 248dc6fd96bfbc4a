"""Routes between the parties of a roster: who dials whom, who holds streams open, and who may relay.

A party without an address only dials out. Two parties can connect if one of them has an address. Where neither has one,
a relay of the roster carries their messages, or a party with an address that is a peer of both.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tacit.core.suite import SERVER, Party

if TYPE_CHECKING:
    from tacit.net.membership.roster import RosterFile


def list_relays(roster: "RosterFile", one: Party, other: Party) -> tuple[Party, ...]:
    """Returns who may relay between two peers, relays of the roster first; nobody where a server has all messages."""
    if one not in roster.names or other not in roster.names or other not in roster.terms.peers(one):
        return ()
    ours, theirs = roster.terms.peers(one), roster.terms.peers(other)
    common = [
        each
        for each in ours
        if each in theirs
        and each not in (one, other, SERVER)
        and _can_connect(roster, one, each)
        and _can_connect(roster, each, other)
    ]
    return (*(card.name for card in roster.relays), *common)


def list_listeners(roster: "RosterFile", me: Party) -> tuple[Party, ...] | None:
    """Returns at whom a party without an address holds streams open; None for a party that listens."""
    if roster.address_of(me):
        return None
    peers = [peer for peer in roster.terms.peers(me) if peer != me and roster.address_of(peer)]
    return (*peers, *(card.name for card in roster.relays if SERVER not in peers))


def find_separated(roster: "RosterFile") -> Iterator[tuple[Party, Party]]:
    """Yields the pairs of peers that have no way to exchange messages."""
    for one in roster.names:
        if roster.relays or roster.address_of(one):
            continue
        for other in roster.terms.peers(one):
            if one < other and not roster.address_of(other) and not list_relays(roster, one, other):
                yield one, other


def _can_connect(roster: "RosterFile", one: Party, other: Party) -> bool:
    return bool(roster.address_of(one) or roster.address_of(other))
