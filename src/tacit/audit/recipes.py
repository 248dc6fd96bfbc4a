"""Recipes: how a coalition recovers a victim's vector, replayed on a real transcript with real cryptography.

The symbolic and the real run of one seed exchange the same envelopes in the same order. So what the audit found in an
envelope of the one is in the same place of the other, and is got at there with the keys that the coalition really has:
its members' own, those it can agree on, open, or put together from shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.audit.views import Found, FromKeys, FromShares, InClear, Known, OwnSecret, View
from tacit.core.errors import ConfigError
from tacit.core.forms import Unknown
from tacit.core.outcome import Transcript
from tacit.core.suite import Party, Secret, Vector
from tacit.crypto.masks import stream
from tacit.crypto.symbolic import Agreed, Public, Sealed, Share
from tacit.drivers.federation import Federation

Ingredient: TypeAlias = Known | Unknown
"""A vector that was seen or derived, or an unknown of a member's own."""


@dataclass(frozen=True)
class Recipe:
    """The combination of known vectors that is the victim's."""

    victim: Party
    view: View
    parts: tuple[tuple[Fraction, Ingredient], ...]

    def recover(self, transcript: Transcript | Sequence[Transcript]) -> NDArray[np.float64]:
        """Returns the victim's vector, recovered from the recorded transcripts of a real run with the same settings."""
        transcripts = [transcript] if isinstance(transcript, Transcript) else list(transcript)
        return Replay(self.view, transcripts).combined(self.parts)


class Replay:
    """Looks up in real transcripts what a view found in symbolic ones."""

    def __init__(self, view: View, transcripts: Sequence[Transcript]) -> None:
        federation = transcripts[0].federation
        if not isinstance(federation, Federation) or federation.world is not None or len(transcripts) < 1:
            raise ConfigError("a recipe needs transcripts recorded (record=True) in a run with real vectors")
        self.view, self.federation, self.transcripts = view, federation, transcripts
        self.suites: Mapping[Party, Any] = federation.suites
        self.suite: Any = self.suites[federation.parties[0]]
        self._secrets: dict[bytes, Secret] = {}

    def combined(self, parts: Sequence[tuple[Fraction, Ingredient]]) -> NDArray[np.float64]:
        """Returns a linear combination of real vectors.

        A mask is in exactly two vectors, or in one and known; it cancels only if both have the same factor. So vectors
        of one factor are added up in the ring, where their masks vanish exactly, and only then turned into numbers.
        """
        ring: Any = self.suite.ring
        alike: dict[Fraction, Vector] = {}
        total = np.zeros(self.federation.entries)
        for factor, part in parts:
            if not isinstance(part, Known) and part[0] != "input":
                total += float(factor) * self.own(part)
                continue
            summed = alike.setdefault(abs(factor), ring.zeros(self.federation.entries))
            if factor > 0:
                summed += self.elements(part)
            else:
                summed -= self.elements(part)
        for factor, summed in alike.items():
            total += float(factor) * ring.floats(summed)
        return total

    def elements(self, part: Ingredient) -> Vector:
        """Returns an ingredient as ring elements."""
        ring: Any = self.suite.ring
        if not isinstance(part, Known):
            return np.asarray(ring.values(self.own(part)))
        if part.is_mask:
            return stream(self.secret(part.token).reveal(), self.federation.entries, ring.dtype.itemsize)
        packed = np.frombuffer(self.data(part.token), dtype=ring.dtype)
        return packed[: self.federation.entries]

    def own(self, unknown: Unknown) -> NDArray[np.float64]:
        """Returns what a member itself brought or drew."""
        kind, owner, _ = unknown
        if kind == "input":
            party, round_ = owner if isinstance(owner, tuple) else (owner, 1)
            return np.asarray(self.federation.inputs[round_ - 1][party].vector)
        party, place = owner
        return np.asarray(self.suites[party].entropy.drawn_vectors[place - 1])

    def data(self, token: bytes) -> bytes:
        """Returns the real bytes in the place where a token was found."""
        found = self.view.found[token]
        if found.box is None:
            round_, number = found.path
            return bytes(self.transcripts[round_ - 1].passed[number].envelope.sealed)
        value = msgspec.msgpack.decode(self.opened(found))
        for key in found.path:
            value = value[key]
        return bytes(value)

    def opened(self, found: Found) -> bytes:
        """Returns the real plaintext of the box that something was found in."""
        box = found.box or b""
        meaning = self.view.world.meaning(box)
        if not isinstance(meaning, Sealed):
            raise ConfigError("the view and the transcript are not of the same run")
        context = meaning.context
        if self.view.found[box].box is None:
            round_, number = self.view.found[box].path
            context = msgspec.msgpack.encode(self.transcripts[round_ - 1].passed[number].envelope.address)
        return bytes(self.suite.open(self.secret(meaning.key), self.data(box), context))

    def secret(self, token: bytes) -> Secret:
        """Returns the real key or seed that a token stands for, by the way the coalition came to know it."""
        if token not in self._secrets:
            self._secrets[token] = self._derived(token)
        return self._secrets[token]

    def _derived(self, token: bytes) -> Any:
        how, meaning = self.view.how[token], self.view.world.meaning(token)
        if isinstance(how, OwnSecret):
            suite = self.suites[how.party]
            return suite.identity.channel if how.place < 0 else suite.made[how.place]
        if isinstance(how, FromKeys) and isinstance(meaning, Agreed):
            return self.suite.agree(self.secret(how.private), self.public(how.public), meaning.label, meaning.context)
        if isinstance(how, FromShares):
            meanings = {share: self.view.world.meaning(share) for share in how.shares}
            shares = {each.holder: self.data(share) for share, each in meanings.items() if isinstance(each, Share)}
            threshold = next(each.threshold for each in meanings.values() if isinstance(each, Share))
            return self.suite.recover(shares, threshold)
        if isinstance(how, InClear):
            return Secret(self.data(token))
        raise ConfigError("the view does not say how a key came to be known")

    def public(self, token: bytes) -> bytes:
        """Returns the real public half that a token stands for: from the roster, from a message, or our own."""
        if token in self.view.found:
            return self.data(token)
        meaning = self.view.world.meaning(token)
        if not isinstance(meaning, Public):
            raise ConfigError("the view uses a public key that was never shown")
        for party in self.federation.everyone:
            if self.view.world.identity(party) == meaning.of:
                return bytes(self.suite.roster[party].channel_key)
        return bytes(self.suite.public(self.secret(meaning.of)))
