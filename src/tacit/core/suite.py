"""Interfaces of arithmetic (`Ring`) and cryptography (`Suite`), as protocol code sees them.

Each has two implementations: one with real numbers and real cryptography, and a symbolic one for audits, in which keys
are tokens and masks are unknowns. Both exchange bytes, so the same coroutines, messages and drivers work with both, and
a protocol cannot tell them apart.
"""

import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy

Party: TypeAlias = str
Buffer: TypeAlias = bytes | memoryview
"""Bytes, or a view of bytes."""
Vector: TypeAlias = NDArray[Any]
Words: TypeAlias = Callable[[int], NDArray[np.uint64]]
"""Source of fresh uniform words: returns `count` of them."""

SERVER: Party = "server"
ONLOOKER: Party = "onlooker"
"""Name of the eavesdropper, who observes links and takes no part. It is reserved for audits; no party may have it."""
WHOLE = Fraction(1)
"""All of a vector. Parts of vectors are exact fractions: a third of a third is 1/9, not 0.1111111111111111."""


class Parties(tuple[Party, ...]):
    """The parties of a roster in order, without the server. The place of a party is its index.

    >>> parties = Parties(["ann", "bob", "eve"])
    >>> parties.place("bob"), parties.names_at([0, 2])
    (1, ('ann', 'eve'))
    """

    def __new__(cls, names: Iterable[Party]) -> "Parties":
        """Creates a roster from distinct names."""
        made = super().__new__(cls, names)
        made._places = {name: place for place, name in enumerate(made)}
        return made

    _places: dict[Party, int]

    def __contains__(self, party: object) -> bool:
        return party in self._places

    def place(self, party: Party) -> int:
        """Returns the index of a party."""
        return self._places[party]

    def places(self, parties: Collection[Party]) -> list[int]:
        """Returns the indices of some parties, ascending."""
        return sorted(self._places[party] for party in parties)

    def names_at(self, places: Iterable[int]) -> tuple[Party, ...]:
        """Returns the parties at the given indices, in the order of the indices."""
        return tuple([self[place] for place in places])

    def __reduce__(self) -> tuple[type["Parties"], tuple[tuple[Party, ...]]]:
        return Parties, (tuple(self),)


class Secret:
    """Bytes that cannot be printed or pickled, and compare in constant time."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Returns the bytes. The name is conspicuous on purpose, so that reviewers notice its uses."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> NoReturn:
        raise TypeError("a Secret cannot be hashed: dictionaries compare in variable time")

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


class KeyPair(NamedTuple):
    """A key-agreement key pair."""

    secret: Secret
    public: bytes


class Update(NamedTuple):
    """A party's input to a round: its vector, its weight, and the lineage of its model."""

    vector: Vector
    weight: float = 1.0
    lineage: bytes = b""
    """Lineage of the model that the vector continues from (`core.lineage`). Empty for that of the party's state."""
    changes: bool = False
    """Whether the vector is a change to that model. Averages of changes add up, so none of them may be missing."""


class Ring(ABC):
    """Arithmetic of exact sums: it encodes, adds and sends vectors, and decodes a sum to an average."""

    length: int
    """Number of entries of an encoded vector, including those of the weight."""
    element_bytes: int
    """Bytes of an encoded entry on the wire."""
    dumped_bytes: int
    """Bytes of an entry that `dump_vector` writes."""

    def draws_from(self, words: Words) -> None:
        """Sets the source of noise and of stochastic rounding. A ring of symbols has neither."""
        del words

    @property
    def draws(self) -> bool:
        """Whether encoding is randomized. If so, an input must be encoded once and reused."""
        return False

    @abstractmethod
    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector with noise, followed by the weight, as ring elements."""

    def units(self) -> bytes:
        """Returns the units of a sum as bytes. Equal sums in equal units have equal averages."""
        return b""

    def convert_sum(self, data: Buffer, units: bytes) -> Vector:
        """Converts a sum in other units to a sum in this ring's units with the same average."""
        raise NotImplementedError

    def check_sum(self, total: Vector, contributors: int) -> None:
        """Raises WireError if that many contributors cannot have produced this sum. Sums of symbols are not checked."""
        del total, contributors

    @abstractmethod
    def mean(self, total: Vector, *, spent: bool = False) -> Vector:
        """Returns the weighted average of a sum of encoded vectors. A `spent` sum may be overwritten."""

    def apply_weight(self, vector: Vector, weight: Any) -> Vector:
        """Returns a vector times its weight."""
        return np.asarray(vector * weight)

    @abstractmethod
    def clip_vector(self, vector: Vector, clip: float) -> Vector:
        """Returns a plain vector scaled down to the norm and clipped. Counts the clipped entries."""

    @abstractmethod
    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Encodes a fraction (above 0, up to 1) of a vector of any length as ring elements, without a weight."""

    def encode_with_noise(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Encodes a fraction of a party's input with its noise as ring elements, without a weight.

        Every call samples fresh noise, so an input that a round uses several times is encoded once.
        """
        return self.values(vector, part)

    def add_noise(self, vector: Vector) -> Vector:
        """Returns a party's input plus its noise as a plain vector; the vector itself if there is no noise."""
        return vector

    @abstractmethod
    def floats(self, total: Vector) -> Vector:
        """Decodes a sum of `values` to numbers."""

    @abstractmethod
    def zeros(self, length: int | None = None) -> Vector:
        """Returns zeros to sum into: the length of an encoded vector, or the given length."""

    @abstractmethod
    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns a fraction of each ring element, so that subtracting it leaves exactly the remainder."""

    @abstractmethod
    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of one such vector per party could overflow."""

    def is_zero(self, vector: Vector) -> bool:
        """Says whether ring elements are all zero."""
        return not vector.any()

    @abstractmethod
    def ratio(self, total: Vector) -> Vector:
        """Returns all entries but the last, divided by the last."""

    def step(self, total: Vector, vector: Vector, weight: Any) -> Vector:
        """Returns `weight` times the difference between a vector and `ratio(total)`, encoded with noise, and a zero."""
        return np.append(self.encode_with_noise((vector - self.ratio(total)) * weight), self.zeros(1))

    def mix(self, own: Vector, total: Vector, times: Mapping[Fraction, Vector]) -> Vector:
        """Returns own · (1 − Σ weight · times), plus the decoded sum `total` of `values`."""
        kept = np.ones(len(own))
        for weight, counts in sorted(times.items()):
            kept -= float(weight) * counts
        kept = kept * own  # not in place, because a symbolic vector has another type
        kept += self.floats(total)
        return kept

    @abstractmethod
    def dump_vector(self, vector: Vector) -> memoryview:
        """Returns a plain vector as bytes, for storage between rounds and later comparison."""

    @abstractmethod
    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns the magnitude of each entry, or of its change since a dumped vector."""

    @abstractmethod
    def pack(self, vector: Vector) -> bytes | memoryview:
        """Returns an encoded vector as the bytes to send."""

    @abstractmethod
    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns received ring elements; raises WireError unless they have the expected or the given length."""


class Suite(ABC):
    """A party's identity, randomness, ring and cryptography in one round."""

    me: Party
    entropy: Entropy
    ring: Ring

    @abstractmethod
    def forget(self) -> None:
        """Deletes the keys and seeds of the finished round. Channel keys remain usable."""

    @abstractmethod
    def key_pair(self) -> KeyPair:
        """Generates a fresh key pair for key agreement."""

    @abstractmethod
    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a secret key."""

    @abstractmethod
    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the key agreed from our secret and the peer's public key, bound to one purpose and context."""

    @abstractmethod
    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the key agreed between our identity and that of `peer`, bound to one purpose and context."""

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the key that seals envelopes between us and `peer` in one session."""
        return self.pairwise(peer, "tacit/v1/channel", session)

    @staticmethod
    @abstractmethod
    def words(seed: bytes, count: int) -> NDArray[np.uint32]:
        """Returns uniform words derived from a public seed."""

    @abstractmethod
    def seed(self) -> Secret:
        """Samples a fresh secret."""

    @abstractmethod
    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a hiding and binding commitment to a seed."""

    @abstractmethod
    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Encrypts and authenticates the plaintext, and authenticates the context with it.

        Sealing is deterministic. A key and nonce never seal two different plaintexts, whatever the caller does.
        """

    def seal_pieces(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the bytes of `seal` piece by piece, for a plaintext that is given in parts."""
        yield self.seal(key, b"".join(plaintext), context)

    def stamp(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns a short fingerprint of the sealed plaintext."""
        return self.seal(key, b"".join(plaintext), context)[-16:]

    @abstractmethod
    def open(self, key: Secret, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext; raises WireError if the key, the context or any byte is wrong.

        The plaintext may overwrite the sealed bytes if these are writable, so the caller must not use them afterwards.
        """

    @abstractmethod
    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns an authentication tag of a statement under a key (a MAC)."""

    @abstractmethod
    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is valid for the statement and the key."""

    @abstractmethod
    def sign(self, statement: bytes) -> bytes:
        """Returns a signature of the statement by our identity."""

    @abstractmethod
    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""

    @abstractmethod
    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds the mask streams of the seeds in `plus` to ring elements in place, and subtracts those in `minus`."""

    @abstractmethod
    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the first `length` elements of the mask stream of a seed, with the type of `like`."""

    @abstractmethod
    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Splits the secret into one share for each holder (numbers ≥ 1), any `threshold` of which recover it."""

    @abstractmethod
    def recover(self, shares: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret from at least `threshold` shares; raises WireError if these are not of one secret."""
