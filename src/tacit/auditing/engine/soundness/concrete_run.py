"""Concrete runs: the rounds of a symbolic run repeated on numbers, with a log of every call to the cryptographic suite.

A concrete run makes the same choices as the symbolic run, in the same session. Its keys follow from the same seed or,
to compare, from another one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tacit.auditing.engine.soundness.guard_vectors import Brought
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.simulation import in_session
from tacit.auditing.symbolic.suite import Page
from tacit.core.entropy import RecordingEntropy, SeededEntropy
from tacit.core.errors import ConfigError, TacitError
from tacit.core.link import frame_parts
from tacit.core.protocol import State
from tacit.core.suite import Buffer, Party, Ring, Secret, Vector
from tacit.crypto.keys import Identity, Keys, Roster
from tacit.crypto.suite import RealSuite
from tacit.runtime.agreement import Agreement
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.simulated_round import SimulatedRound
from tacit.runtime.simulation.simulator import Simulation, entropy_for
from tacit.vectors.fixedpoint import FixedPoint


@dataclass
class TokenLog:
    """Log of the calls to the cryptographic suites in some rounds, and of their results."""

    pages: dict[Party, list[Page]] = field(default_factory=lambda: defaultdict(list))
    """The calls of each party, one list per round, and one more list for each round that is repeated after a
    restart."""
    boxes: dict[bytes, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """The key, the plaintext and the context of each sealed box."""
    contexts: dict[Party, list[tuple[int, str, Party | None, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """For each party, every key and commitment: its round, its kind, the other party if there is one, its label and
    context."""
    magnitudes: list[Vector] = field(default_factory=list)
    """The magnitudes that the rings returned."""
    overflowed: bool = False
    """Whether a number was too large for a ring."""
    statements: dict[bytes, bytes] = field(default_factory=dict)
    """The statement behind each signature and tag."""


class OtherEntropy(RecordingEntropy):
    """Entropy with the choices of the seed, but with keys from other streams, which have another name."""

    def __init__(self, keys: str, seed: bytes) -> None:
        super().__init__(seed)
        self._keys = keys

    def substream(self, name: str) -> SeededEntropy:
        """Returns an independent stream for one purpose and name."""
        return super().substream(f"{self._keys} {name}".strip())


class WritingRing(FixedPoint):
    """A ring that logs the magnitudes it returns, and whether a number was too large for it."""

    def __init__(self, ring: FixedPoint, book: TokenLog) -> None:
        vars(self).update(vars(ring))
        self._book = book

    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns the magnitude of each entry, or of its difference from a dumped vector."""
        sizes = super().magnitudes(vector, since)
        self._book.magnitudes.append(sizes)
        return sizes

    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of one such vector per party could overflow."""
        try:
            return super().within(vector)
        except ConfigError:
            self._book.overflowed = True
            raise


class WritingSuite(RealSuite):
    """A cryptographic suite that logs its results."""

    def __init__(self, keys: Keys, entropy: RecordingEntropy, ring: Ring, book: TokenLog, number: int) -> None:
        super().__init__(keys, entropy, ring)
        self._book, self._number = book, number
        self._page: Page = []
        book.pages[keys.me].append(self._page)

    def seed(self) -> Secret:
        """Draws a fresh 256-bit secret."""
        return self._note_secret("seed", super().seed())

    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a secret key."""
        return self._note_bytes("public", super().public(secret))

    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the key that our secret and their public half agree on."""
        self._note_context("agree", None, label, context)
        return self._note_secret("agree", super().agree(secret, public, label, context))

    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the key that our identity and that of `peer` agree on."""
        self._note_context("pairwise", peer, label, context)
        return self._note_secret("pairwise", super().pairwise(peer, label, context))

    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a commitment."""
        self._note_context("commit", None, "", context)
        return self._note_bytes("commit", super().commit(secret, context))

    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Returns a sealed box."""
        sealed = super().seal(key, plaintext, context)
        self._book.boxes[sealed] = key.reveal(), bytes(plaintext), bytes(context)
        return sealed

    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns a tag."""
        tag = self._note_bytes("tag", super().tag(key, statement))
        self._book.statements[tag] = bytes(statement)
        return tag

    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Checking a tag also computes one, which is not to be logged."""
        page, self._page = self._page, []  # to check one is not to ask for one
        try:
            super().check_tag(key, statement, tag)
        finally:
            self._page = page

    def sign(self, statement: bytes) -> bytes:
        """Returns our signature."""
        signature = self._note_bytes("sign", super().sign(statement))
        self._book.statements[signature] = bytes(statement)
        return signature

    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Returns shares of a secret."""
        shares = super().share(secret, threshold, holders)
        self._page.append(("share", tuple(shares.values())))
        return shares

    def recover(self, shares_: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret that the shares belong to."""
        return self._note_secret("recover", super().recover(shares_, threshold))

    def _note_context(self, what: str, peer: Party | None, label: str, context: bytes) -> None:
        named = frame_parts(label.encode(), bytes(context))
        self._book.contexts[self.me].append((self._number, what, peer, named))

    def _note_secret(self, what: str, secret: Secret) -> Secret:
        self._page.append((what, (secret.reveal(),)))
        return secret

    def _note_bytes(self, what: str, given: bytes) -> bytes:
        self._page.append((what, (given,)))
        return given


class WritingParticipant(KeyedParticipant):
    """A party whose suites log their results."""

    def __init__(
        self,
        agreement: Agreement,
        identity: Identity,
        book: TokenLog,
        named: str,
        *,
        number: int = 0,
        state: State | None = None,
        unfinished: bool = False,
    ) -> None:
        super().__init__(
            agreement, identity, number=number, state=state, unfinished=unfinished, bits=PROOF_BITS, record=True
        )
        self._book, self._named = book, named

    def rebuild(self) -> "WritingParticipant":
        """Returns the participant as it is after a restart."""
        more = {"number": self.number, "state": self.state, "unfinished": self.unfinished}
        return WritingParticipant(self.agreement, self.identity, self._book, self._named, **more)  # type: ignore[arg-type]

    def suite(self, number: int, seed: bytes) -> WritingSuite:
        """Returns the cryptographic suite of this party for a round."""
        ring = WritingRing(self.agreement.ring(PROOF_BITS), self._book)
        return WritingSuite(self.keys, OtherEntropy(self._named, seed), ring, self._book, number)


@dataclass
class Twin:
    """The rounds of a symbolic run, repeated on numbers."""

    updates: Sequence[Brought]
    """The vectors that parties contribute, round by round."""
    rounds: list[SimulatedRound]
    book: TokenLog


def twin(scope: Scope, agreement: Agreement, updates: Sequence[Brought], keys: str = "") -> Twin:
    """Runs the rounds of an agreement on numbers. A value for `keys` changes the keys and nothing else."""
    purpose = (keys,) if keys else ()
    identities = [
        Identity.generate(party, entropy_for(scope.seed, f"identity {party}", *purpose)) for party in agreement.everyone
    ]
    roster = Roster(identity.member() for identity in identities)
    same = in_session(replace(agreement, roster=roster), agreement.session)
    book = TokenLog()
    participants = {each.name: WritingParticipant(same, each, book, keys) for each in identities}
    simulation = Simulation(same, participants, scope.seed, scope.faults, record=True, twin=True)
    rounds = []
    for brought in updates:
        with suppress(TacitError):
            simulation.average(brought)
        if simulation.last is not None:
            rounds.append(simulation.last)
    return Twin(updates, rounds, book)
