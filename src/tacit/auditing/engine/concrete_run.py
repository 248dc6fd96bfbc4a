"""Twins of a symbolic run: the same rounds on numbers, with what every party asked its suite for written down.

A twin makes the choices of the symbolic run, in its session. Its keys are those that follow from the seed, or others.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tacit.auditing.engine.guard_vectors import Brought
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
    """What suites were asked for in some rounds, and what they gave."""

    pages: dict[Party, list[Page]] = field(default_factory=lambda: defaultdict(list))
    """By party, one for each round, and one more for a round that is said again."""
    boxes: dict[bytes, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    """Of everything that was sealed, the key, the plaintext and the context."""
    contexts: dict[Party, list[tuple[int, str, Party | None, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """By party, of every key and commitment: the round, what it is, who has it besides if that is known, and its label
    and context."""
    magnitudes: list[Vector] = field(default_factory=list)
    """Magnitudes that rings were asked for."""
    overflowed: bool = False
    """Whether a number was too large for a ring."""
    statements: dict[bytes, bytes] = field(default_factory=dict)
    """Of every signature and tag, what it is for."""


class OtherEntropy(RecordingEntropy):
    """Makes the choices of the seed, and draws keys, from streams apart, of another name."""

    def __init__(self, keys: str, seed: bytes) -> None:
        super().__init__(seed)
        self._keys = keys

    def substream(self, name: str) -> SeededEntropy:
        """Returns a stream of its own for one purpose and name."""
        return super().substream(f"{self._keys} {name}".strip())


class WritingRing(FixedPoint):
    """A ring that writes down the magnitudes that it is asked for, and whether numbers were too large for it."""

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
    """A suite that writes down what it gives."""

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
        """Raises WireError unless the tag is that of the statement under the key."""
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
    """A party whose suites write down what they give."""

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
        """Returns our hands in a round."""
        ring = WritingRing(self.agreement.ring(PROOF_BITS), self._book)
        return WritingSuite(self.keys, OtherEntropy(self._named, seed), ring, self._book, number)


@dataclass
class Twin:
    """Some rounds on numbers."""

    updates: Sequence[Brought]
    """What was brought, round by round."""
    rounds: list[SimulatedRound]
    book: TokenLog


def twin(scope: Scope, agreement: Agreement, updates: Sequence[Brought], keys: str = "") -> Twin:
    """Plays the rounds of an agreement on numbers. A name for the keys makes other keys, and changes nothing else."""
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
