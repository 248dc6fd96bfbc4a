"""What a party can do with numbers and keys, as protocol code sees it.

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
"""Bytes, wherever they lie."""
Vector: TypeAlias = NDArray[Any]
Words: TypeAlias = Callable[[int], NDArray[np.uint64]]
"""Returns so many uniform words that nobody was ever given before."""

SERVER: Party = "server"
ONLOOKER: Party = "onlooker"
"""Who takes no part, and hears links. Audits ask about it, so no party has that name."""
WHOLE = Fraction(1)
"""All of a vector. Parts of vectors are fractions, for a third of a third is a ninth and not 0.11111111111111112."""


class Parties(tuple[Party, ...]):
    """Everyone on a roster but the server, in its order. Places in it serve as short names."""

    def __new__(cls, names: Iterable[Party]) -> "Parties":
        """Makes them of names, which must differ."""
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

    def named(self, places: Iterable[int]) -> tuple[Party, ...]:
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
    """A key-agreement key: the secret half and the half to show."""

    secret: Secret
    public: bytes


class Update(NamedTuple):
    """What a party brings to a round: its vector and how much it counts."""

    vector: Vector
    weight: float = 1.0


class Ring(ABC):
    """Numbers that add up exactly: how vectors are encoded, added, sent and turned back into an average."""

    length: int
    """Entries of an encoded vector, those of the weight included."""
    element_bytes: int
    """Bytes that an entry takes, packed."""
    kept_bytes: int
    """Bytes that an entry of a plain vector takes, kept."""

    def draws_from(self, words: Words) -> None:
        """Takes what noise and rounding are drawn from. Symbols have neither."""
        del words

    @property
    def draws(self) -> bool:
        """Whether what a party brings is another thing each time it is encoded, and so is encoded once and kept."""
        return False

    @abstractmethod
    def encode(self, update: Update) -> Vector:
        """Returns the weighted vector, with noise, and behind it the weight, as one vector of ring elements."""

    @abstractmethod
    def mean(self, total: Vector, *, spent: bool = False) -> Vector:
        """Returns the weighted average that a sum of encoded vectors stands for, in its place if it is `spent`."""

    def weighted(self, vector: Vector, weight: Any) -> Vector:
        """Returns a vector times its weight."""
        return np.asarray(vector * weight)

    @abstractmethod
    def limited(self, vector: Vector, clip: float) -> Vector:
        """Returns a plain vector, as long as it may be and cut off at the clip, and counts what was cut off."""

    @abstractmethod
    def values(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns that part (above 0, up to 1) of a vector of any length as ring elements, without a weight."""

    def brought(self, vector: Vector, part: Fraction = WHOLE) -> Vector:
        """Returns that part of what a party brings to a round as ring elements, with its noise, without a weight.

        Noise is drawn anew in every call. Whatever is encoded several times in one round is brought once.
        """
        return self.values(vector, part)

    def noised(self, vector: Vector) -> Vector:
        """Returns what a party brings with its noise, as a plain vector: itself, if there is none."""
        return vector

    @abstractmethod
    def floats(self, total: Vector) -> Vector:
        """Returns the numbers that a sum of `values` stands for."""

    @abstractmethod
    def zeros(self, length: int | None = None) -> Vector:
        """Returns ring elements of zero, to sum into: as many as an encoded vector has, or as asked."""

    @abstractmethod
    def portion(self, vector: Vector, part: Fraction) -> Vector:
        """Returns that part of each ring element, so that the vector minus it is exactly what is left."""

    @abstractmethod
    def within(self, vector: Vector) -> Vector:
        """Returns the vector; raises ConfigError if a sum of as many such as there are parties could overflow."""

    @abstractmethod
    def ratio(self, total: Vector) -> Vector:
        """Returns the numbers of all entries but the last, divided by the last."""

    def step(self, total: Vector, vector: Vector, weight: Any) -> Vector:
        """Returns how far a vector is from a ratio, times its weight, as it is brought, and behind it a zero."""
        return np.append(self.brought((vector - self.ratio(total)) * weight), self.zeros(1))

    def mixed(self, own: Vector, total: Vector, times: Mapping[Fraction, Vector]) -> Vector:
        """Returns own (1 − Σ weight · times) and what a sum of `values` stands for, added up."""
        kept = np.ones(len(own))
        for weight, counts in sorted(times.items()):
            kept -= float(weight) * counts
        kept = kept * own  # not in place, for symbols have another type
        kept += self.floats(total)
        return kept

    @abstractmethod
    def kept(self, vector: Vector) -> memoryview:
        """Returns a plain vector as bytes, to be kept from round to round and compared with later."""

    @abstractmethod
    def magnitudes(self, vector: Vector, since: memoryview | None = None) -> Vector:
        """Returns how large each entry of a plain vector is, or how far from that of one that was kept."""

    @abstractmethod
    def pack(self, vector: Vector) -> bytes | memoryview:
        """Returns an encoded vector as the bytes to send."""

    @abstractmethod
    def unpack(self, data: bytes | memoryview, length: int | None = None) -> Vector:
        """Returns the ring elements that were sent; WireError unless as many as an encoding has, or as asked."""


class Suite(ABC):
    """A party's hands in one round: its identity, its randomness, its numbers, and the cryptography it may use."""

    me: Party
    entropy: Entropy
    ring: Ring

    @abstractmethod
    def forget(self) -> None:
        """Drops the keys and seeds of the round, which is over. Channels can still be used."""

    @abstractmethod
    def key_pair(self) -> KeyPair:
        """Makes a fresh key-agreement key."""

    @abstractmethod
    def public(self, secret: Secret) -> bytes:
        """Returns the public half of a secret key."""

    @abstractmethod
    def agree(self, secret: Secret, public: bytes, label: str, context: bytes) -> Secret:
        """Returns the key that our secret and their public half agree on, for one purpose and context only."""

    @abstractmethod
    def pairwise(self, peer: Party, label: str, context: bytes) -> Secret:
        """Returns the key that our identity and that of `peer` agree on, for one purpose and context only."""

    def channel(self, peer: Party, session: bytes) -> Secret:
        """Returns the key that seals envelopes between us and `peer` in one session."""
        return self.pairwise(peer, "tacit/v1/channel", session)

    @staticmethod
    @abstractmethod
    def words(seed: bytes, count: int) -> NDArray[np.uint32]:
        """Returns uniform words that follow from a seed anybody may know."""

    @abstractmethod
    def seed(self) -> Secret:
        """Draws a fresh secret."""

    @abstractmethod
    def commit(self, secret: Secret, context: bytes) -> bytes:
        """Returns a commitment that hides a seed and can be opened to nothing else."""

    @abstractmethod
    def seal(self, key: Secret, plaintext: Buffer, context: bytes) -> bytes:
        """Encrypts and authenticates the plaintext, and authenticates the context beside it.

        The same three give the same bytes, and no key and nonce ever seal two plaintexts, whatever the caller does.
        """

    def sealed(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> Iterator[bytes]:
        """Yields the same piece by piece, of a plaintext in parts."""
        yield self.seal(key, b"".join(plaintext), context)

    def stamp(self, key: Secret, plaintext: Sequence[Buffer], context: bytes) -> bytes:
        """Returns a few bytes of what is sealed that are others for any other plaintext."""
        return self.seal(key, b"".join(plaintext), context)[-16:]

    @abstractmethod
    def open(self, key: Secret, sealed: Buffer, context: bytes) -> Buffer:
        """Returns the plaintext, or raises WireError if anything was changed.

        Memory that may be written is given away with the call: the plaintext may be put there.
        """

    @abstractmethod
    def tag(self, key: Secret, statement: bytes) -> bytes:
        """Returns what only those who have the key can say about a statement."""

    @abstractmethod
    def check_tag(self, key: Secret, statement: bytes, tag: bytes) -> None:
        """Raises WireError unless the tag is that of the statement under the key."""

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
        """Returns the first elements of the mask stream of a seed, of the same kind as those of a vector."""

    @abstractmethod
    def share(self, secret: Secret, threshold: int, holders: Sequence[int]) -> dict[int, bytes]:
        """Splits the secret into one share for each holder (numbers ≥ 1), any `threshold` of which recover it."""

    @abstractmethod
    def recover(self, shares: Mapping[int, bytes], threshold: int) -> Secret:
        """Returns the secret from at least `threshold` shares; raises WireError if they cannot be shares of one."""
