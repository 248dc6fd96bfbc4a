"""Instruments of the numeric auditor: they record secrets, and shift unknowns, in rounds with real keys."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np

from tacit.core.entropy import RecordingEntropy
from tacit.crypto.suite import RealSuite
from tacit.designs import Batches, Everyone, Family, Partition, Random, Sampled
from tacit.vectors.fixedpoint import FixedPoint

POLICIES = (Batches, Everyone, Family, Partition, Random, Sampled)
"""The policies by which servers sample."""
MASK_STEP = 2**40
"""Ring elements by which a mask stream is shifted."""


@dataclass
class Secrets:
    """Every secret that passed through the parties' cryptography in a run, and who handled it."""

    handled: dict[bytes, set[str]] = field(default_factory=dict)
    """Parties that sampled, agreed on, recovered or used each secret."""
    publics: dict[bytes, bytes] = field(default_factory=dict)
    """The secret behind each public key."""
    agreed: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    """Two public keys, and a key that follows from them."""
    split: list[tuple[bytes, int, frozenset[bytes]]] = field(default_factory=list)
    """A secret, its threshold, and its shares."""
    sealed: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    """The key and the plaintext of each ciphertext."""

    def handle(self, party: str, *secrets: bytes) -> None:
        """Records that a party has some secrets."""
        for secret in secrets:
            self.handled.setdefault(secret, set()).add(party)

    def known_to(self, coalition: Collection[str], seen: Iterable[bytes]) -> set[bytes]:
        """Returns the secrets that members have, or can compute from the byte strings that they saw."""
        known = {secret for secret, parties in self.handled.items() if parties & set(coalition)}
        strings = set(seen)
        while True:
            found = set(strings & self.handled.keys())
            for ciphertext in strings & self.sealed.keys():
                key, plaintext = self.sealed[ciphertext]
                if key in known:
                    strings = strings | set(byte_strings(msgspec.msgpack.decode(plaintext)))
            found |= {secret for secret, threshold, shares in self.split if len(shares & strings) >= threshold}
            for one, other, key in self.agreed:
                if {self.publics.get(one), self.publics.get(other)} & known:
                    found.add(key)
            if found <= known:
                return known
            known |= found


@dataclass
class Shifts:
    """The entry in which each unknown is shifted, by its name. Nothing is shifted while `active` is false."""

    entries: int
    step: float
    """Amount by which vectors and noise are shifted."""
    active: bool = False
    columns: dict[tuple[Any, ...], int] = field(default_factory=dict)
    drawn: dict[tuple[Any, ...], int] = field(default_factory=dict)
    """Number of draws of each kind by each party in each round."""
    starts: dict[int, float] = field(default_factory=dict)
    """Shift of each random start, by its entry."""
    round: int = 0
    noisy: bool = False
    """Whether parties act as with noise: they encode a vector once, and not again for each attempt."""
    whole: tuple[Any, ...] | None = None
    """The only unknown to shift, in all of its entries; for settings that treat entries differently."""

    def column(self, *name: Any) -> Any:
        """Returns the entry of an unknown, or all entries; None if it is not shifted now."""
        place = self.columns.setdefault(name, len(self.columns))
        if self.whole is not None:
            return slice(None) if name == self.whole else None
        return place if self.active and place < self.entries else None

    def next_column(self, kind: str, party: str) -> Any:
        """Returns the entry of a party's next draw."""
        count = self.drawn[kind, party, self.round] = self.drawn.get((kind, party, self.round), 0) + 1
        return self.column(kind, party, self.round, count)


@contextmanager
def instrumented(secrets: Secrets, shifts: Shifts) -> Iterator[None]:
    """Records secrets, and shifts mask streams, random starts and noise, in all rounds inside the block."""
    real: dict[str, Callable[..., Any]] = {
        name: getattr(RealSuite, name)
        for name in ("__init__", "seed", "public", "agree", "pairwise", "seal", "mask", "stream", "share", "recover")
    }
    encode_real = FixedPoint._encode_noisy
    start_real = RecordingEntropy.secret_vector

    def init(self: Any, keys: Any, entropy: Any, ring: Any) -> None:
        real["__init__"](self, keys, entropy, ring)
        ring.owner = entropy.owner = self.me

    def returning(name: str) -> Callable[..., Any]:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            secret = real[name](self, *given, **named)
            secrets.handle(self.me, secret.reveal())
            return secret

        return call

    def public(self: Any, secret: Any) -> bytes:
        half = real["public"](self, secret)
        secrets.publics[half] = secret.reveal()
        return bytes(half)

    def agree(self: Any, secret: Any, other: bytes, label: str, context: bytes) -> Any:
        key = real["agree"](self, secret, other, label, context)
        secrets.handle(self.me, key.reveal())
        secrets.agreed.append((self.public(secret), bytes(other), key.reveal()))
        return key

    def seal(self: Any, key: Any, plaintext: Any, context: bytes) -> bytes:
        ciphertext = real["seal"](self, key, plaintext, context)
        if len(ciphertext) < 4096:
            secrets.sealed[ciphertext] = key.reveal(), bytes(plaintext)
        return bytes(ciphertext)

    def share(self: Any, secret: Any, threshold: int, holders: Any) -> dict[int, bytes]:
        shares: dict[int, bytes] = real["share"](self, secret, threshold, holders)
        secrets.split.append((secret.reveal(), threshold, frozenset(shares.values())))
        return shares

    def mask(self: Any, vector: Any, plus: Sequence[Any] = (), minus: Sequence[Any] = ()) -> None:
        real["mask"](self, vector, plus, minus)
        for seeds, sign in ((plus, 1), (minus, -1)):
            for seed in seeds:
                secrets.handle(self.me, seed.reveal())
                if (place := shifts.column("mask", seed.reveal())) is not None:
                    vector.view(f"i{vector.itemsize}")[place] += sign * MASK_STEP

    def stream(self: Any, seed: Any, like: Any, length: int) -> Any:
        drawn = np.array(real["stream"](self, seed, like, length))
        secrets.handle(self.me, seed.reveal())
        if (place := shifts.column("mask", seed.reveal())) is not None:
            drawn[place] += np.asarray(MASK_STEP, drawn.dtype)
        return drawn

    def encode_noisy(self: Any, encoded: Any, vector: Any, part_of: float) -> None:
        encode_real(self, encoded, vector, part_of)
        if (place := shifts.next_column("noise", self.owner)) is not None:
            encoded.view(self._signed)[place] += round(part_of * shifts.step * self.scale)

    def add_noise(self: Any, vector: Any) -> Any:
        place = shifts.next_column("noise", self.owner)
        noisy = np.array(vector, dtype=np.float64)
        if place is not None:
            noisy[place] += shifts.step
        return noisy

    def start(self: Any, name: str, length: int) -> Any:
        drawn = np.array(start_real(self, name, length))
        if (place := shifts.next_column("start", self.owner)) is not None:
            # The result stays in [0, 1), which the ring can represent; the shift is a half in either direction.
            shifts.starts[place] = 0.5 if drawn[place] < 0.5 else -0.5
            drawn[place] += shifts.starts[place]
        return drawn

    replaced = {"__init__": init, "public": public, "agree": agree, "seal": seal, "share": share, "mask": mask}
    replaced |= {"stream": stream} | {name: returning(name) for name in ("seed", "pairwise", "recover")}
    with ExitStack() as stack:
        for name, call in replaced.items():
            stack.enter_context(patch.object(RealSuite, name, call))
        stack.enter_context(patch.object(FixedPoint, "_encode_noisy", encode_noisy))
        stack.enter_context(patch.object(FixedPoint, "add_noise", add_noise))
        stack.enter_context(patch.object(FixedPoint, "draws", property(lambda _: shifts.noisy)))
        stack.enter_context(patch.object(RecordingEntropy, "secret_vector", start))
        yield


class ScriptedSampler:
    """Stands in for the randomness of a server: it returns the samples that a script names, by number."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script, self.sizes = list(script), list[int]()

    def sample(self, items: Sequence[Any], count: int) -> list[Any]:
        """Returns the sample with the number that the script has for this call; the first one after its end."""
        samples = list(combinations(items, count))
        place = len(self.sizes)
        self.sizes.append(len(samples))
        return list(samples[self.script[place] if place < len(self.script) else 0])

    def next_script(self) -> list[int] | None:
        """Returns the script after this one, of all possible ones; None after the last."""
        script = [*self.script, *[0] * (len(self.sizes) - len(self.script))]
        while script and script[-1] + 1 == self.sizes[len(script) - 1]:
            script.pop()
        return [*script[:-1], script[-1] + 1] if script else None


@contextmanager
def scripted_samples(sampler: ScriptedSampler) -> Iterator[None]:
    """Makes servers sample by a script, from its start in each round, in all rounds inside the block."""
    real = {(kind, name): getattr(kind, name) for kind in POLICIES for name in ("ask", "choose")}

    def asking(kind: type) -> Callable[..., Any]:
        def ask(self: Any, present: Any, counts: Any, _: Any) -> list[int]:
            sampler.sizes.clear()
            return list(real[kind, "ask"](self, present, counts, sampler))

        return ask

    def choosing(kind: type) -> Callable[..., Any]:
        return lambda self, delivered, _: real[kind, "choose"](self, delivered, sampler)

    with ExitStack() as stack:
        for kind in POLICIES:
            stack.enter_context(patch.object(kind, "ask", asking(kind)))
            stack.enter_context(patch.object(kind, "choose", choosing(kind)))
        yield


def byte_strings(value: Any) -> Iterator[bytes]:
    """Yields every byte string in a message, at any depth."""
    if isinstance(value, bytes | memoryview):
        yield bytes(value)
    elif isinstance(value, Mapping):
        yield from (each for inner in value.values() for each in byte_strings(inner))
    elif isinstance(value, list | tuple):
        yield from (each for inner in value for each in byte_strings(inner))
    elif isinstance(value, msgspec.Struct):
        yield from (each for name in value.__struct_fields__ for each in byte_strings(getattr(value, name)))
