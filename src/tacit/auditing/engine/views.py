"""View of a coalition after a symbolic run: everything that follows from what its members made and saw.

The coalition knows a token if a member made it, if it can decrypt a message that carries it, derive it from a private
key that it holds, or reconstruct it from enough shares. This module knows no protocol: it searches messages for byte
strings, and the `World` says what each one stands for. The way in which each token became known is kept, so that an
attack can be replayed on a real transcript.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from tacit.auditing.symbolic.forms import INPUT, PLAIN, Form, rename_entries
from tacit.auditing.symbolic.suite import SECRETS, Agreed, KeyShare, Made, Public, Sealed, World
from tacit.core.errors import NotLinear
from tacit.core.messages import Address, Envelope
from tacit.core.suite import Party, Vector

Number: TypeAlias = tuple[int, int]
"""Identifier of an envelope: the round (from 1), and its number in the round's transcript."""


@dataclass(frozen=True)
class KeyAt:
    """A step of a path: to a key of a table, by its place."""

    place: int


@dataclass(frozen=True)
class ItemAt:
    """A step of a path: to the value of a table entry whose key is itself data, by its place."""

    place: int


@dataclass(frozen=True)
class WholeVector:
    """A path of one step: the whole content of a box, not decoded."""


class Location(NamedTuple):
    """Place of a byte string: an envelope's sealed content, or a path inside a sealed box (see `follow`)."""

    box: bytes | None
    path: tuple[Any, ...]


@dataclass(frozen=True)
class OwnSecret:
    """A member drew the token: the party, the round, and the number of the draw in the round. Round 0 has its
    identity."""

    party: Party
    round: int
    number: int


@dataclass(frozen=True)
class FromKeys:
    """The token was agreed between a known private key and a public key."""

    private: bytes
    public: bytes


@dataclass(frozen=True)
class FromShares:
    """The token was reconstructed from shares."""

    shares: tuple[bytes, ...]


@dataclass(frozen=True)
class InClear:
    """The token was sent in clear, or was readable in a decrypted box."""


@dataclass(frozen=True)
class OpenLink:
    """An eavesdropper recorded the envelope on a link that was not sealed."""

    round: int
    number: int


Provenance: TypeAlias = OwnSecret | FromKeys | FromShares | InClear | OpenLink


@dataclass(frozen=True)
class KnownVector:
    """A known vector of forms, with the token of its packed bytes, or of the seed of which it is the mask."""

    vector: Vector
    token: bytes
    is_mask: bool


class View:
    """The knowledge of a coalition, with the source of each part."""

    def __init__(
        self,
        world: World,
        session: bytes,
        coalition: Collection[Party],
        seen: Mapping[Number, Envelope],
        unsealed: Collection[Number] = (),
        views: Sequence["View"] = (),
    ) -> None:
        """Takes the envelopes that the coalition saw, those of them that were not sealed for it, and views of its
        members.

        The given views must be of the same world. Their contents are taken over without computing them again.
        """
        self.world, self.session, self.coalition = world, session, list(coalition)
        self.seen: dict[Number, Envelope] = {}
        self.how: dict[bytes, Provenance] = {}
        self.packed: dict[bytes, KnownVector] = {}
        """Every known vector, by the token of its packed bytes or of its mask's seed."""
        self.shares: dict[bytes, dict[int, bytes]] = defaultdict(dict)
        """The known shares of each secret."""
        self.locked: dict[bytes, list[Sealed]] = defaultdict(list)
        """Sealed boxes that were seen and cannot be opened so far, by the key that opens them."""
        self.opened: dict[Sealed, None] = {}
        """The boxes that were opened, in this order."""
        self._places: dict[bytes, Location] = {}
        self._fresh: list[bytes] = []
        for view in views:
            self._join(view)
        for party in coalition:
            for token in (world.identity(party), *world.made_by(party)):
                meaning = world.meaning(token)
                if isinstance(meaning, Made):
                    self._learn(token, OwnSecret(party, meaning.round, meaning.number))
        self.seen |= seen
        for number, envelope in seen.items():
            data = bytes(envelope.sealed)
            if number in unsealed and isinstance(meaning := world.meaning(data), Sealed):
                self._learn(meaning.key, OpenLink(*number))
            self._see(data)
        self._close()

    def _join(self, view: "View") -> None:
        """Takes over the contents of another view, and derives what follows from both."""
        self.coalition += view.coalition
        self.seen |= view.seen
        self.how = view.how | self.how
        self.opened |= view.opened
        self.packed = view.packed | self.packed
        for key, boxes in view.locked.items():
            self.locked[key] += boxes
        for secret, held in view.shares.items():
            self.shares[secret] |= held
            share = self.world.meaning(next(iter(held.values())))
            if isinstance(share, KeyShare):
                self._put_together(share)
        for key in [key for key in self.locked if key in self.how]:
            for box in self.locked.pop(key):
                self._read(box)

    @cached_property
    def vectors(self) -> list[KnownVector]:
        """Every known vector and mask."""
        known, weighted = list(self.packed.values()), self.world.weighted()
        return _resolve_vectors(known, self.coalition, weighted) if weighted else known

    def forms(self) -> list[Form]:
        """Returns every known form, entry by entry of all vectors."""
        return [form for known in self.vectors for form in known.vector]

    def locate(self, token: bytes) -> Location | None:
        """Returns the place at which a token was first seen; None if it was not seen.

        Few tokens are ever located, so places are searched for and not recorded.
        """
        if token not in self._places:
            found = self._search(token)
            if found is None:
                return None
            self._places[token] = found
        return self._places[token]

    def _search(self, token: bytes) -> Location | None:
        if token in self._envelopes:
            return Location(None, self._envelopes[token])
        for box in self.opened:
            if token in box.plaintext:
                for path, data in contents(self.world, box.plaintext):
                    if data == token:
                        return Location(self.world.box(*box), path)
        return None

    @cached_property
    def _envelopes(self) -> dict[bytes, Number]:
        """The first envelope with each content."""
        return {bytes(envelope.sealed): number for number, envelope in reversed(self.seen.items())}

    def place_of(self, token: bytes) -> Location:
        """Returns the place at which a token was first seen; raises LookupError if it was not seen."""
        found = self.locate(token)
        if found is None:
            raise LookupError("the view did not see this token")
        return found

    def address_of(self, token: bytes) -> Address:
        """Returns the address of the envelope that carried a token, also if the token was in nested boxes."""
        found = self.place_of(token)
        while found.box is not None:
            found = self.place_of(found.box)
        return self.seen[found.path].address  # The path of an envelope is its number.

    def owners(self, agreed: Agreed) -> list[Party]:
        """Returns the owners of the two keys that a secret was agreed with."""
        halves = [self.world.meaning(half) for half in agreed.between]
        keys = [self.world.meaning(half.of) for half in halves if isinstance(half, Public)]
        return [key.by for key in keys if isinstance(key, Made)]

    def _close(self) -> None:
        while self._fresh:
            token = self._fresh.pop()
            if token in self.world.masked:
                self.packed[token] = KnownVector(self.world.mask(token), token, is_mask=True)
            # One private key is enough: public keys are public, so the other one counts as seen.
            for public, agreed in self.world.agreements(token):
                self._learn(agreed, FromKeys(token, public))
            for box in self.locked.pop(token, ()):
                self._read(box)

    def _learn(self, token: bytes, how: Provenance) -> None:
        if token not in self.how:
            self.how[token] = how
            self._fresh.append(token)

    def _see(self, data: bytes) -> None:
        """Derives what follows from a byte string that was sent in clear, or was in an opened box."""
        meaning = self.world.meaning(data)
        if meaning is None:
            if data not in self.packed and (vector := self.world.vector_of(data)) is not None:
                self.packed[data] = KnownVector(vector, data, is_mask=False)
        elif isinstance(meaning, Sealed):
            if meaning.key in self.how:
                self._read(meaning)
            else:
                self.locked[meaning.key].append(meaning)
        elif isinstance(meaning, KeyShare):
            if meaning.secret not in self.how:
                self.shares[meaning.secret][meaning.holder] = data
                self._put_together(meaning)
        elif isinstance(meaning, SECRETS):
            self._learn(data, InClear())

    def _put_together(self, share: KeyShare) -> None:
        """Derives the secret that a share belongs to, if enough of its shares are known."""
        held = self.shares[share.secret]
        if len(held) >= share.threshold:
            self._learn(share.secret, FromShares(tuple(held.values())))

    def _read(self, box: Sealed) -> None:
        """Opens a box, once."""
        if box not in self.opened:
            self.opened[box] = None
            for data in list_contents(self.world, box.plaintext):
                self._see(data)


def _resolve_vectors(
    vectors: Sequence[KnownVector], coalition: Collection[Party], weighted: Mapping[Any, int]
) -> list[KnownVector]:
    """Returns vectors in which each party's contribution is of one kind, either weighted or not.

    If a vector is seen only without its weight, it can be taken as the input itself. A vector seen both with and
    without its weight is not linear, because one is the other times an unknown. Members know their own weights.

    Args:
        vectors: The vectors.
        coalition: The members.
        weighted: The owners of vectors that were multiplied by a weight, with the number of entries.
    """
    kinds: dict[Any, set[str]] = defaultdict(set)
    for known in vectors:
        for form in known.vector:
            for unknown in form.terms:
                if unknown[0] == PLAIN or (unknown[0] == INPUT and unknown[2] < weighted.get(unknown[1], 0)):
                    kinds[unknown[1]].add(unknown[0])
    plain = {owner for owner, seen in kinds.items() if PLAIN in seen}
    for owner in plain:
        party = owner[0] if isinstance(owner, tuple) else owner
        if len(kinds[owner]) > 1 and party not in coalition:
            who = " and ".join(sorted(coalition)) or "an eavesdropper"
            raise NotLinear(
                f"{who} would see the vector of {party} with its weight and without, so that what they see is not "
                f"linear and the audit does not guess what that shows; try: send one of the two"
            )
    if not plain:
        return list(vectors)
    return [
        replace(known, vector=np.array([rename_entries(form, plain) for form in known.vector], dtype=object))
        for known in vectors
    ]


# --- contents of a box ---------------------------------------------------------------------------------------------


def list_contents(world: World, plaintext: bytes) -> list[bytes]:
    """Returns every byte string in a box, in the order of `contents`, without paths."""
    found: list[bytes] = []
    try:
        _collect(_decode_box(world, plaintext), found)
    except NotAMessage:
        return [plaintext]
    return found


def contents(world: World, plaintext: bytes) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Yields every byte string in a box with its path: the fields of a message, or the whole content if it is no
    message."""
    try:
        value = _decode_box(world, plaintext)
    except NotAMessage:
        yield (WholeVector(),), plaintext
    else:
        yield from byte_strings(value)


class NotAMessage(Exception):
    """The content of a box is a token, a packed vector, or bytes that no codec wrote."""


def _decode_box(world: World, plaintext: bytes) -> Any:
    """Returns the decoded message in a box; raises NotAMessage if the content is none."""
    if world.knows(plaintext):
        raise NotAMessage
    try:
        return msgspec.msgpack.decode(plaintext)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAMessage from None


def _collect(value: Any, found: list[bytes]) -> None:
    """Appends every byte string in a decoded message, in the order of `byte_strings`."""
    if isinstance(value, bytes):
        found.append(value)
    elif isinstance(value, msgspec.msgpack.Ext):
        found.append(bytes(value.data))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str | int):
                _collect(key, found)
            _collect(item, found)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            if type(item) is bytes:
                found.append(item)
            else:
                _collect(item, found)


def byte_strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bytes]]:
    """Yields every byte string in a decoded message, including table keys, with its path."""
    if isinstance(value, bytes):
        yield path, value
    elif isinstance(value, msgspec.msgpack.Ext):
        yield (*path, "data"), bytes(value.data)
    elif isinstance(value, Mapping):
        for place, (key, item) in enumerate(value.items()):
            plain = isinstance(key, str | int)
            if not plain:
                yield from byte_strings(key, (*path, KeyAt(place)))
            step = (*path, key if plain else ItemAt(place))
            if isinstance(item, bytes):
                yield step, item
            else:
                yield from byte_strings(item, step)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, item in enumerate(value):
            yield from byte_strings(item, (*path, place))


def follow(plaintext: bytes, path: tuple[Any, ...]) -> bytes:
    """Returns the byte string at the end of a path into a box."""
    if path == (WholeVector(),):
        return plaintext
    value = msgspec.msgpack.decode(plaintext)
    for step in path:
        if isinstance(step, KeyAt | ItemAt):
            value = list(value if isinstance(step, KeyAt) else value.values())[step.place]
        else:
            value = value.data if isinstance(value, msgspec.msgpack.Ext) else value[step]
    return bytes(value)
