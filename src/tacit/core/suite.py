"""Interfaces of arithmetic (`Ring`) and cryptography (`Suite`), as protocol code sees them.

There are two implementations of each: one with real numbers and real cryptography, and a symbolic one for audits, in
which keys are tokens and masks are unknowns. Both deal in bytes, so the same coroutines, messages and
drivers serve both and no protocol can tell which one it runs on.
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
"""Returns that many fresh uniform words."""

SERVER: Party = "server"
ONLOOKER: Party = "onlooker"
"""Name of the eavesdropper, who takes no part and hears links. Audits use it, so no party may have it."""
WHOLE = Fraction(1)
"""All of a vector. Parts of vectors are exact fractions: a third of a third is a ninth, not 0.11111111111111112."""


class Parties(tuple[Party, ...]):
    """All parties of a roster but the server, in order. A party's place is its index."""

    def __new__(cls, names: Iterable[Party]) -> "Parties":
        """Creates them from names, which must differ."""
        made = super().__new__(cls, names)
        made._places = {name: place for place, name in enumerate(made)}
        return made

    _places: dict[Party, int]

    def __contains__(self, party: object) -> bool:
        return party in self._places

    def place(self, party: Party) -> int:
        """Returns the place of a party."""
        return self._places[party]

    def places(self, parties: Collection[Party]) -> list[int]:
        """Returns the places of some parties, ascending."""
        return sorted(self._places[party] for party in parties)

    def names_at(self, places: Iterable[int]) -> tuple[Party, ...]:
        """Returns the parties at some places, in their order."""
        return tuple([self[place] for place in places])

    def __reduce__(self) -> tuple[type["Parties"], tuple[tuple[Party, ...]]]:
        return Parties, (tuple(self),)


class Secret:
    """Bytes that never print, never pickle, and compare in constant time."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """Returns the bytes. The name is meant to be noticed in review."""
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
    """A party's input to a round: its vector, its weight, and what the vector was computed from."""

    vector: Vector
    weight: float = 1.0
    lineage: bytes = b""
    """The lineage of the model that the vector continues from (`core.lineage`); that of the party's state if empty."""
    changes: bool = False
    """Whether the vector is a change to that model, so that averages add up and none of them may be missing."""


class Ring(ABC):
    """Numbers that add up exactly: how vectors are encoded, added, sent and turned back into an average."""

    length: int
    """Entries of an encoded vector, including those of the weight."""
    element_bytes: int
    """Bytes of a packed entry."""
    dumped_bytes: int
    """Bytes of an entry as `dump_vector` stores it."""

    def draws_from(self, words: Words) -> None:
        """Sets the source of noise and of stochastic rounding. Symbols have neither."""
        del words

    @property
    def draws(self) -> bool:
        """Whether encoding is randomized, so that an input must be encoded once and reused."""
        return False

    @abstractmethod
    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector, with noise, followed by the weight, as one vector of ring elements."""

    def units(self) -> bytes:
        """Returns what turns a sum into an average: equal sums in equal units have equal averages."""
        return b""

    def convert_sum(self, data: Buffer, units: bytes) -> Vector:
        """Returns the average of a sum in other units as a sum in ours."""
        raise NotImplementedError

    def check_sum(self, total: Vector, contributors: int) -> None:
        """Raises WireError if so many contributors cannot have produced a sum. Symbols have no size."""
        del total, contributors

    @abstractmethod
    def mean(self, total: Vector, *, spent: bool = False) -> Vector:
        """Returns the weighted average of a sum of encoded vectors, in the sum's memory if it is `spent`."""

    def apply_weight(self, vector: Vector, weight: Any) -> Vector:
        """Returns a vector times its weight."""
        return np.asarray(vector * weight)

    @abstractmethod
    def clip_vector(self, vector: Vector, clip: float) -> Vector:
        """Returns a plain vector shortened to the norm and clipped, and counts the clipped entries."""

    @abstractmethod
    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns a part (above 0, up to 1) of a vector of any length as ring elements, without a weight."""

    def encode_with_noise(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns a part of a party's input as ring elements, with its noise, without a weight.

        Every call samples fresh noise. An input that is used several times in a round is encoded once.
        """
        return self.values(vector, part)

    def add_noise(self, vector: Vector) -> Vector:
        """Returns a party's input with its noise as a plain vector; the vector itself if there is no noise."""
        return vector

    @abstractmethod
    def floats(self, total: Vector) -> Vector:
        """Returns the numbers that a sum of `values` represents."""

    @abstractmethod
    def zeros(self, length: int | None = None) -> Vector:
        """Returns zeros to sum into: the length of an encoded vector, or the given length."""

    @abstractmethod
    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns a part of each ring element; the vector minus it is exactly the rest."""

    @abstractmethod
    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of as many such as there are parties could overflow."""

    def is_zero(self, vector: Vector) -> bool:
        """Says whether ring elements are all zero."""
        return not vector.any()

    @abstractmethod
    def ratio(self, total: Vector) -> Vector:
        """Returns the numbers of all entries but the last, divided by the last."""

    def step(self, total: Vector, vector: Vector, weight: Any) -> Vector:
        """Returns the weighted difference of a vector from a ratio, encoded with noise, followed by a zero."""
        return np.append(self.encode_with_noise((vector - self.ratio(total)) * weight), self.zeros(1))

    def mix(self, own: Vector, total: Vector, times: Mapping[Fraction, Vector]) -> Vector:
        """Returns own (1 − Σ weight · times) plus the numbers that a sum of `values` represents."""
        kept = np.ones(len(own))
        for weight, counts in sorted(times.items()):
            kept -= float(weight) * counts
        kept = kept * own  # not in place, because symbols have another type
        kept += self.floats(total)
        return kept

    @abstractmethod
    def dump_vector(self, vector: Vector) -> memoryview:
        """Returns a plain vector as bytes, to store between rounds and compare with later."""

    @abstractmethod
    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns the magnitude of each entry, or of its difference from a dumped vector."""

    @abstractmethod
    def pack(self, vector: Vector) -> bytes | memoryview:
        """Returns an encoded vector as the bytes to send."""

    @abstractmethod
    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns received ring elements; raises WireError unless they have the expected or the given length."""


class Suite(ABC):
    """A party's tools in one round: its identity, randomness, ring, and cryptography."""

    me: Party
    entropy: Entropy
    ring: Ring

    @abstractmethod
    def forget(self) -> None:
        """Drops the keys and seeds of the finished round. Channels remain usable."""

    @abstractmethod
    def key_pair(self) -> KeyPair:
        """Generates a fresh key-agreement key."""

    @abstractmethod
    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a secret key."""

    @abstractmethod
    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the key agreed from our secret and their public half, for one purpose and context only."""

    @abstractmethod
    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the key agreed between our identity and that of `peer`, for one purpose and context only."""

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
        """Encrypts and authenticates the plaintext, and authenticates the context beside it.

        It is deterministic, and no key and nonce ever seal two plaintexts, whatever the caller does.
        """

    def seal_pieces(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the bytes of `seal` piece by piece, of a plaintext in parts."""
        yield self.seal(key, b"".join(plaintext), context)

    def stamp(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns a short fingerprint of the sealed plaintext."""
        return self.seal(key, b"".join(plaintext), context)[-16:]

    @abstractmethod
    def open(self, key: Secret, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext, or raises WireError if anything was changed.

        Writable memory is handed over with the call: the plaintext may be written there.
        """

    @abstractmethod
    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns an authentication tag of a statement under a key."""

    @abstractmethod
    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is valid for the statement and the key."""

    @abstractmethod
    def sign(self, statement: bytes) -> bytes:
        """Signs with our identity."""

    @abstractmethod
    def verify(self, signer: Party, statement: bytes, signature: bytes) -> None:
        """Raises PeerFault unless `signer` signed the statement."""

    @abstractmethod
    def mask(self, vector: Vector, plus: Sequence[Secret] = (), minus: Sequence[Secret] = ()) -> None:
        """Adds the mask streams of some seeds to ring elements, and subtracts those of others, in place."""

    @abstractmethod
    def stream(self, seed: Secret, like: Vector, length: int) -> Vector:
        """Returns the first elements of the mask stream of a seed, with the type of a vector."""

    @abstractmethod
    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Splits the secret into one share for each holder (numbers ≥ 1), any `threshold` of which recover it."""

    @abstractmethod
    def recover(self, shares: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret from at least `threshold` shares; raises WireError if they cannot be shares of one."""
