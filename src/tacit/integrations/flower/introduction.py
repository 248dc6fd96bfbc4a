"""Introduction of a Flower node: its party, the progress of the party, and the party's signature.

The server sends a new node a fresh challenge. The node signs its answer together with the challenge. So no node can
impersonate another party or repeat an earlier answer.
"""

from typing import Any, TypeGuard

import msgspec
from flwr.app import ConfigRecord

from tacit.core.errors import ConfigError, PeerFault
from tacit.core.link import frame_parts
from tacit.core.suite import Party
from tacit.integrations.flower.node_state import INCARNATION_BYTES
from tacit.integrations.flower.party import SIZE, FlowerParty
from tacit.net.membership.roster import RosterFile

CHALLENGE_BYTES = 16


class NodeIntroduction(msgspec.Struct, frozen=True):
    """A node's answer to a hello. Field names are part of the message."""

    party: Party
    place: int
    """Place of the party on the roster."""
    rounds: int
    """Number of the last round that the party has used up."""
    incarnation: bytes
    """Random identifier of the party's folder."""
    server: bool
    """Whether the protocol of the party's roster has a server."""
    signature: bytes = b""

    def statement(self, roster: RosterFile, challenge: bytes) -> bytes:
        """Returns the bytes that the party signs."""
        numbers = self.place.to_bytes(SIZE, signed=True), self.rounds.to_bytes(SIZE, signed=True)
        about = self.party.encode(), *numbers, self.incarnation, bytes([self.server])
        return frame_parts(b"tacit/v1/flower introduction", roster.nonce.encode(), *about, challenge)

    def is_signed(self, roster: RosterFile, challenge: bytes) -> bool:
        """Says whether the party itself signed this introduction for the challenge, at its place on the roster."""
        try:
            roster.members.verify(self.party, self.statement(roster, challenge), self.signature)
        except (PeerFault, OverflowError):
            return False
        return roster.names[self.place : self.place + 1] == (self.party,)


def introduce_node(party: FlowerParty, challenge: Any) -> ConfigRecord:
    """Returns the introduction of a node as a record.

    Raises ConfigError if the challenge is invalid, and LeakRefused if the settings of the roster leak.
    """
    party.audit_settings()
    if not isinstance(challenge, bytes) or len(challenge) != CHALLENGE_BYTES:
        raise ConfigError("the server's hello has no challenge; try: use the same release of Tacit everywhere")
    place, has_server = party.roster.names.index(party.name), party.roster.entry.server is not None
    made = NodeIntroduction(party.name, place, party.rounds, party.incarnation, has_server)
    signed = msgspec.structs.replace(made, signature=party.sign(made.statement(party.roster, challenge)))
    return ConfigRecord(msgspec.structs.asdict(signed))


def is_incarnation(value: Any) -> TypeGuard[bytes]:
    """Says whether a value has the form of an incarnation."""
    return isinstance(value, bytes) and len(value) <= INCARNATION_BYTES
