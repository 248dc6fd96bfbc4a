"""Recipes: how a coalition recovers a victim's vector, replayed on a real transcript with real cryptography.

The symbolic and the real run with one seed make the same choices and exchange the same envelopes in the same order. So
what the audit found in a symbolic envelope is at the same place in the real one. It is decrypted there with the keys
that the coalition really has: its members' own keys, and keys that it agrees on, decrypts or reconstructs from shares.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from textwrap import shorten
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.views import (
    FromKeys,
    FromShares,
    InClear,
    KnownVector,
    Location,
    OpenLink,
    OwnSecret,
    View,
    follow,
)
from tacit.auditing.symbolic.forms import ONE, Unknown
from tacit.auditing.symbolic.suite import Agreed, KeyShare, Public, Sealed
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import Party, Secret, Vector
from tacit.crypto.keys import Identity, Keys
from tacit.crypto.masks import stream
from tacit.crypto.suite import RealSuite
from tacit.runtime.simulation.transcript import Transcript

SHOWN = 200
"""The largest number of characters in the `repr` of a recipe."""

Source: TypeAlias = KnownVector | Unknown
"""A vector that was seen or derived, or an unknown that belongs to a member."""


@dataclass(frozen=True)
class Part:
    """A whole multiple of one entry of something that is known."""

    times: int
    source: Source
    place: int


@dataclass(frozen=True)
class RecipePiece:
    """A factor times a sum in the ring. Masks cancel in the sum, which has whole factors only."""

    factor: Fraction
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Recipe:
    """Linear combinations of known vectors that equal the victim's entries."""

    victim: Party
    view: View
    pieces: Mapping[int, tuple[RecipePiece, ...]]
    """The combination for each exposed entry."""
    entries: int
    """Number of entries that were audited. If it is 1, that entry stands for all, and the recipe fits vectors of any
    length."""

    def recover(self, transcript: Transcript | Sequence[Transcript]) -> NDArray[np.float64]:
        """Returns the victim's vector, recovered from the recorded transcripts of a real run with the same settings.

        Entries that are not exposed are NaN.
        """
        replay = Replay(self.view, check_transcripts(transcript))
        if self.entries != 1 and replay.entries != self.entries:
            raise ConfigError(f"the recipe is for vectors of {self.entries} entries, not {replay.entries}")
        try:
            return self._combine(replay)
        except LookupError as error:
            raise ConfigError(
                "the transcripts do not have the messages that the recipe uses; try: pass those of a run "
                "with the settings, faults and seed of the audit"
            ) from error

    def _combine(self, replay: "Replay") -> NDArray[np.float64]:
        if self.entries == 1:
            return replay.combine(self.pieces[0])
        recovered = np.full(self.entries, np.nan)
        for entry, pieces in self.pieces.items():
            recovered[entry] = replay.combine(pieces, alone=True)[0]
        return recovered

    def __str__(self) -> str:
        return _render(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shorten(str(self), SHOWN)}>"


@dataclass(frozen=True)
class SumRecipe:
    """A linear combination of the sums that were announced in some rounds."""

    victim: Party
    listener: Party
    """The party that received the sums."""
    factors: Mapping[int, float]
    """The factor of the sum of each round."""
    own: Mapping[tuple[Party, int], float]
    """The factors of the members' own vectors, by member and round, which are subtracted."""

    def __str__(self) -> str:
        return _render(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {shorten(str(self), SHOWN)}>"

    def recover(self, transcript: Transcript | Sequence[Transcript]) -> NDArray[np.float64]:
        """Returns the victim's vector, recovered from the recorded transcripts of a real run with the same settings."""
        transcripts = check_transcripts(transcript)
        return self.combine(transcripts, lambda round_: announced_sum(transcripts[round_ - 1], self.listener))

    def combine(self, transcripts: Sequence[Transcript], sum_of: Callable[[int], Vector]) -> NDArray[np.float64]:
        """Returns the victim's vector, recovered from the sums that `sum_of` returns for a round."""
        ring, entries = transcripts[0].ring(), transcripts[0].agreement.entries
        total = np.zeros(entries)
        for round_, factor in self.factors.items():
            total += factor * ring.floats(sum_of(round_))[:entries]
        for (party, round_), factor in self.own.items():
            total -= factor * read_input(transcripts[round_ - 1], party)
        return total


def announced_sum(transcript: Transcript, listener: Party) -> Vector:
    """Returns the sum that a party received, or announced itself, in a recorded round. Raises ConfigError without
    one."""
    choice = transcript.agreement.protocol.choice
    kind = None if choice is None else choice.announcement
    for _, message in transcript.open_messages(listener):
        if kind is not None and isinstance(message, kind):
            vector: memoryview = getattr(message, "vector")  # noqa: B009 (the field that `Choice` names)
            return transcript.ring().unpack(vector)
    raise ConfigError("the recipe uses a round in which no sum was announced")


def check_transcripts(transcript: Transcript | Sequence[Transcript]) -> list[Transcript]:
    """Returns transcripts of rounds with real vectors; raises ConfigError for others."""
    transcripts = [transcript] if isinstance(transcript, Transcript) else list(transcript)
    if not transcripts or not all(isinstance(each, Transcript) and each.holdings for each in transcripts):
        raise ConfigError("a recipe needs transcripts recorded (record=True) in a run with real vectors")
    return transcripts


def read_input(transcript: Transcript, party: Party) -> NDArray[np.float64]:
    """Returns the vector that a party contributed to a recorded round, clipped as it was when it was encoded."""
    update = transcript.holdings[party].update
    if update is None:
        raise ConfigError(f"{party} brought no vector")
    most = transcript.agreement.settings.reach
    return np.clip(np.asarray(update.vector, dtype=np.float64), -most, most)


class Replay:
    """Finds the real values in real transcripts of what a view found in symbolic ones."""

    def __init__(self, view: View, transcripts: Sequence[Transcript]) -> None:
        self.view, self.transcripts = view, transcripts
        self.agreement, self.ring = transcripts[0].agreement, transcripts[0].ring()
        self.entries = self.agreement.entries
        # This suite is used only to compute: the results do not depend on its owner.
        self.suite = RealSuite(self.keys(next(iter(transcripts[0].holdings))), SeededEntropy(), self.ring)
        self._secrets: dict[bytes, Secret] = {}

    def keys(self, party: Party) -> Keys:
        """Returns the keys of a party."""
        signing, channel = self.transcripts[0].holdings[party].identity
        return Keys(Identity(party, Secret(signing), Secret(channel)), self.agreement.roster)

    def combine(self, pieces: Sequence[RecipePiece], *, alone: bool = False) -> NDArray[np.float64]:
        """Returns a linear combination of real vectors, or of single entries of them.

        Each piece is summed in the ring, where its masks cancel exactly, and is converted to floats only then.
        """
        entries = 1 if alone else self.entries
        total = np.zeros(entries)
        for piece in pieces:
            first = piece.parts[0]
            if len(piece.parts) == 1 and not isinstance(first.source, KnownVector) and first.source[0] != "input":
                # A secret number that a member drew was never encoded in the ring.
                which = slice(first.place, first.place + 1) if alone else slice(entries)
                total += float(piece.factor * first.times) * self.own(first.source)[which]
                continue
            summed = self.ring.zeros(entries)
            for part in piece.parts:
                which = slice(part.place, part.place + 1) if alone else slice(entries)
                summed += self.elements(part.source)[which] * self.ring.dtype.type(part.times % 2**self.ring.bits)
            total += float(piece.factor) * self.ring.floats(summed)
        return total

    def elements(self, source: Source) -> Vector:
        """Returns a known vector, mask or number as ring elements."""
        if not isinstance(source, KnownVector):
            return np.asarray(self.ring.values(self.own(source)))
        if source.is_mask:
            length = max(self.entries, len(source.vector))
            return stream(self.secret(source.token).reveal(), length, self.ring.element_bytes)
        return np.frombuffer(self.data(source.token), dtype=self.ring.dtype)

    def own(self, unknown: Unknown) -> NDArray[np.float64]:
        """Returns a vector that a member contributed or drew itself, or a vector of ones."""
        if unknown == ONE:
            return np.ones(self.entries)
        kind, owner, _ = unknown
        if kind == "input":
            party, round_ = owner if isinstance(owner, tuple) else (owner, 1)
            return read_input(self.transcripts[round_ - 1], party)
        party, round_, number, _ = owner
        return np.asarray(self.transcripts[round_ - 1].holdings[party].vectors[number - 1])

    def data(self, token: bytes) -> bytes:
        """Returns the real bytes at the place where a token was found."""
        found = self.view.place_of(token)
        if found.box is None:
            round_, number = found.path
            return bytes(self.transcripts[round_ - 1].passed[number].envelope.sealed)
        return follow(self.open_box(found), found.path)

    def open_box(self, found: Location) -> bytes:
        """Returns the real plaintext of the sealed box in which something was found."""
        box = found.box or b""
        meaning = self.view.world.meaning(box)
        if not isinstance(meaning, Sealed):
            raise ConfigError(
                "the recipe refers to a sealed message that this run does not have; try: use the transcripts "
                "of the audited run"
            )
        context = self.here(meaning.context)
        if (outer := self.view.place_of(box)).box is None:
            round_, number = outer.path
            context = msgspec.msgpack.encode(self.transcripts[round_ - 1].passed[number].envelope.address)
        return bytes(self.suite.open(self.secret(meaning.key), self.data(box), context))

    def here(self, context: bytes) -> bytes:
        """Returns a context of the symbolic run with the session of the real run. Nothing else in it differs."""
        return context.replace(self.view.session, self.agreement.session)

    def secret(self, token: bytes) -> Secret:
        """Returns the real key or seed that a token stands for, derived in the way in which the coalition learnt it."""
        if token not in self._secrets:
            self._secrets[token] = self._derive_secret(token)
        return self._secrets[token]

    def _derive_secret(self, token: bytes) -> Secret:
        how, meaning = self.view.how[token], self.view.world.meaning(token)
        if isinstance(how, OwnSecret):
            if how.round == 0:
                return Secret(self.transcripts[0].holdings[how.party].identity[1])
            return Secret(self.transcripts[how.round - 1].holdings[how.party].secrets[how.number - 1])
        if isinstance(how, FromKeys) and isinstance(meaning, Agreed):
            context = self.here(meaning.context)
            return self.suite.agree(self.secret(how.private), self.public(how.public), meaning.label, context)
        if isinstance(how, FromShares):
            meanings = {share: self.view.world.meaning(share) for share in how.shares}
            shares = {each.holder: self.data(share) for share, each in meanings.items() if isinstance(each, KeyShare)}
            threshold = next(each.threshold for each in meanings.values() if isinstance(each, KeyShare))
            return self.suite.recover(shares, threshold)
        if isinstance(how, InClear):
            return Secret(self.data(token))
        if isinstance(how, OpenLink):
            address = self.transcripts[how.round - 1].passed[how.number].envelope.address
            return self.keys(address.sender).channel(address.to, address.session)
        raise ConfigError("the view has no message that reveals a key that the recipe needs")

    def public(self, token: bytes) -> bytes:
        """Returns the real public key that a token stands for: from the roster, from a message, or from the coalition's
        own key."""
        if self.view.locate(token) is not None:
            return self.data(token)
        meaning = self.view.world.meaning(token)
        if not isinstance(meaning, Public):
            raise ConfigError("the recipe uses a public key that the coalition never received")
        for party, member in self.agreement.roster.items():
            if self.view.world.identity(party) == meaning.of:
                return member.channel_key
        return self.suite.public(self.secret(meaning.of))


def _render(recipe: Recipe | SumRecipe) -> str:
    from tacit.auditing.render.formulas import render_formula  # it imports this module

    return render_formula(recipe)
