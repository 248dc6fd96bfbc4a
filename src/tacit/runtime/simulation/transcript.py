"""Transcript of a recorded round: every envelope, and every party's secrets.

It is plain data and can be pickled. It contains secrets by design, because computing what a coalition can recover takes
the keys of its members. Only simulations are recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.messages import Address, Envelope, Message
from tacit.core.suite import Party, Secret, Update
from tacit.crypto.keys import Identity, Keys
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.vectors.fixedpoint import FixedPoint


@dataclass(frozen=True)
class SentEnvelope:
    """An envelope as the transport sees it, the time it was sent, and whether it was delivered."""

    time: float
    envelope: Envelope
    delivered: bool


@dataclass(frozen=True)
class Holdings:
    """One party's update and secrets in a round."""

    update: Update | None = field(repr=False)
    identity: tuple[bytes, bytes] = field(repr=False)
    """The party's long-lived secret keys, for signing and for sealing."""
    secrets: tuple[bytes, ...] = field(repr=False)
    """The keys and seeds that the party sampled, in order."""
    vectors: tuple[NDArray[Any], ...] = field(repr=False)
    """The secret vectors that the party sampled, in order."""


@dataclass
class Transcript:
    """The sealed envelopes of one round, and each party's keys to open them."""

    agreement: Agreement
    bits: int | None = None
    """Bits of the ring, if they differ from the agreed ones."""
    passed: list[SentEnvelope] = field(default_factory=list)
    holdings: dict[Party, Holdings] = field(default_factory=dict)

    def __iter__(self) -> Iterator[SentEnvelope]:
        return iter(self.passed)

    def __len__(self) -> int:
        return len(self.passed)

    def ring(self) -> FixedPoint:
        """Returns the ring of the vectors."""
        return self.agreement.ring(self.bits)

    def open_messages(self, party: Party) -> Iterator[tuple[Address, Message]]:
        """Yields the messages that a party sent or received, opened with its own keys."""
        signing, channel = self.holdings[party].identity
        keys = Keys(Identity(party, Secret(signing), Secret(channel)), self.agreement.roster)
        codec = self.agreement.codec(self.ring().length)
        suite = RealSuite(keys, SeededEntropy(), self.ring())
        for passed in self.passed:
            address = passed.envelope.address
            if party in (address.sender, address.to) and address.kind in codec.kinds:
                peer = address.to if party == address.sender else address.sender
                payload = codec.open(suite, suite.channel(peer, address.session), passed.envelope)
                yield address, codec.decode(address.kind, payload)

    def __repr__(self) -> str:
        return f"Transcript({len(self.passed)} envelopes of {self.agreement.protocol.name})"
