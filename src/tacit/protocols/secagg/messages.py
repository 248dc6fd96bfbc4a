"""Messages between users and server of `secagg`. A field of known length must have exactly that length."""

from typing import Annotated, ClassVar

import msgspec

from tacit.core.messages import MAX_NAME, SEAL_BYTES, SIGNATURE_BYTES, Message
from tacit.core.suite import Party

PAIR = 83
"""Bytes of an encoded pair of shares (`SharePair`)."""

Place = Annotated[bytes, msgspec.Meta(min_length=4, max_length=4)]
Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
ShareBytes = Annotated[bytes, msgspec.Meta(min_length=33, max_length=33)]
SealedPair = Annotated[bytes, msgspec.Meta(min_length=PAIR + SEAL_BYTES, max_length=PAIR + SEAL_BYTES)]
SignatureBytes = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
TagBytes = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
SignedKeys = tuple[Key, Key, SignatureBytes]


class AdvertiseKeys(Message, frozen=True, tag="AdvertiseKeys"):
    """c_u^PK to seal shares, s_u^PK to agree on masks, the lineage of u's model, and a signature over all of these."""

    c: Key
    s: Key
    lineage: Key
    signature: SignatureBytes


class KeyList(Message, frozen=True, tag="KeyList"):
    """U2, and the keys of this user's neighbours in it. In a complete graph, all users of U2 are neighbours."""

    members: bytes
    keys: dict[int, SignedKeys]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 160


class LastSum(Message, frozen=True, tag="LastSum"):
    """The sum of an earlier round, for parties that lack it when too few others are left for a round.

    It contains everything that its lineage is computed from. Contributors may be on an earlier roster, so they are
    given by name.
    """

    before: Key
    """Lineage that the contributors signed."""
    round: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    contributors: tuple[Party, ...]
    current: bytes
    """Bitmap of the parties whose lineage already includes this sum."""
    vector: memoryview
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 2 * (MAX_NAME + 4)
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Sum(Message, frozen=True, tag="Sum"):
    """The server's result: the lineage that contributors signed, the contributors, and their sum with its weight."""

    before: Key
    members: bytes
    vector: memoryview
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 1
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class ShareKeys(Message, frozen=True, tag="ShareKeys"):
    """e_{u,v} for each neighbour v, and the commitment to b_u."""

    sealed: dict[int, SealedPair]
    commitment: Key
    per_party: ClassVar[int] = 120


class SealedShares(Message, frozen=True, tag="SealedShares"):
    """U3, and e_{v,u} from each neighbour v in it."""

    members: bytes
    sealed: dict[int, SealedPair]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 120


class MaskedInput(Message, frozen=True, tag="MaskedInput"):
    """y_u, useless without b_u and the keys of dropouts, and u's tag over U2 and U3 for each neighbour."""

    views: dict[int, TagBytes]
    vector: memoryview
    per_party: ClassVar[int] = 32
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Chosen(Message, frozen=True, tag="Chosen"):
    """U5, and the tag of each neighbour in it over its U2 and U3.

    It is the only request for shares. It determines, for each user, which of its two secrets the holders give shares
    of.
    """

    members: bytes
    views: dict[int, TagBytes]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 32


class Consent(Message, frozen=True, tag="Consent"):
    """A user's signature over U2, U3 and U5."""

    signature: SignatureBytes


class Consents(Message, frozen=True, tag="Consents"):
    """As many users of U6 as a user requires, and their signatures, concatenated in the roster's order."""

    members: bytes
    signatures: memoryview
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 80


class Unmask(Message, frozen=True, tag="Unmask"):
    """Shares of b_v for v ∈ U5, and of s_v^SK for v ∈ U3 \\ U5."""

    seeds: dict[int, ShareBytes]
    keys: dict[int, ShareBytes]
    per_party: ClassVar[int] = 48


class SharePair(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Plaintext of e_{u,v}: u ‖ v ‖ share of s_u^SK ‖ share of b_u."""

    u: Place
    v: Place
    key: ShareBytes
    seed: ShareBytes

    def __repr__(self) -> str:
        return f"SharePair({int.from_bytes(self.u)} -> {int.from_bytes(self.v)})"
