"""What is kept of a recorded round: everything that passed, and what each party could tell those it colludes with.

Nothing in it is alive, and it pickles. It holds secrets, for that is what it is for: whoever asks what a coalition
could have worked out needs the keys of its members. Only simulations are recorded.
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
class Passed:
    """One envelope on its way: when it was sent, its bytes as the courier saw them, and whether they were delivered."""

    time: float
    envelope: Envelope
    delivered: bool


@dataclass(frozen=True)
class Holdings:
    """What one party brought to a round, and drew in it."""

    update: Update | None = field(repr=False)
    identity: tuple[bytes, bytes] = field(repr=False)
    """Its long-lived secrets, to sign and to seal with."""
    secrets: tuple[bytes, ...] = field(repr=False)
    """The keys and seeds that it drew, in order."""
    vectors: tuple[NDArray[Any], ...] = field(repr=False)
    """The secret vectors that it drew, in order."""


@dataclass
class Transcript:
    """Everything the courier carried in one round, sealed as it was, and what each party had to open it with."""

    agreement: Agreement
    bits: int | None = None
    """Of the ring, if it was another than agreed."""
    passed: list[Passed] = field(default_factory=list)
    holdings: dict[Party, Holdings] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Passed]:
        return iter(self.passed)

    def __len__(self) -> int:
        return len(self.passed)

    def ring(self) -> FixedPoint:
        """Returns the ring that its vectors are in."""
        return self.agreement.ring(self.bits)

    def opened(self, party: Party) -> Iterator[tuple[Address, Message]]:
        """Yields what a party sent or received, opened with its own keys."""
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
