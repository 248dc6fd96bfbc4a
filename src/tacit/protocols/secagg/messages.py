"""What users and server of `secagg` say to each other."""

from typing import Annotated, ClassVar

import msgspec

from tacit.core.messages import Message

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
ShareBytes = Annotated[bytes, msgspec.Meta(min_length=33, max_length=33)]
SignatureBytes = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
SignedKeys = tuple[Key, Key, SignatureBytes]


class AdvertiseKeys(Message, frozen=True):
    """c_u^PK to seal shares, s_u^PK to agree on masks, and the signature over both."""

    c: Key
    s: Key
    signature: SignatureBytes


class KeyList(Message, frozen=True):
    """U2, and the keys of this user's neighbours in it (everyone's, in a complete graph)."""

    members: bytes
    keys: dict[int, SignedKeys]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 160


class ShareKeys(Message, frozen=True):
    """e_{u,v} for each neighbour v, and the commitment to b_u."""

    sealed: dict[int, bytes]
    commitment: Key
    per_party: ClassVar[int] = 160


class SealedShares(Message, frozen=True):
    """U3, and e_{v,u} from each neighbour v in it."""

    members: bytes
    sealed: dict[int, bytes]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 160


class MaskedInput(Message, frozen=True):
    """y_u, which is useless without b_u and the keys of those who drop out."""

    vector: memoryview
    per_entry: ClassVar[int] = 8
    parameters: ClassVar[tuple[str, ...]] = ("vector",)


class Chosen(Message, frozen=True):
    """U5. There is no way to ask for shares but this: it settles for each user which of its two shares is given."""

    members: bytes
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 1


class Consent(Message, frozen=True):
    """A user's signature over U5."""

    signature: SignatureBytes


class Consents(Message, frozen=True):
    """The signatures of `threshold` users of U6 who hold this user's shares."""

    signatures: dict[int, SignatureBytes]
    from_server: ClassVar[bool] = True
    per_party: ClassVar[int] = 80


class Unmask(Message, frozen=True):
    """Shares of b_v for v ∈ U5, and of s_v^SK for v ∈ U3 without U5."""

    seeds: dict[int, ShareBytes]
    keys: dict[int, ShareBytes]
    per_party: ClassVar[int] = 48


class SharePair(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is inside e_{u,v}: u ‖ v ‖ share of s_u^SK ‖ share of b_u."""

    u: int
    v: int
    key: ShareBytes
    seed: ShareBytes

    def __repr__(self) -> str:
        return f"SharePair({self.u} -> {self.v})"
