"""Signatures of a roster: what they cover, and how many of them a revision needs."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from tacit.core.config_file import Section
from tacit.core.errors import ConfigError, PeerFault
from tacit.core.link import frame_parts
from tacit.crypto.keys import Identity, Keys, Member, Roster

NO_QUORUM, ALL, ALL_BUT_ONE = "none", "all", "all-but-one"
"""Values of `quorum` that are not numbers."""
_SIGNER = "signer"


class RosterSignature(Section, frozen=True, kw_only=True):
    """Signature of a revision by one key. Whose key it is follows from a roster, and is not written here."""

    verify_key: bytes
    signature: bytes

    @classmethod
    def create(cls, identity: Identity, statement: bytes) -> "RosterSignature":
        """Returns the signature of a statement by an identity."""
        member = identity.member()
        signature = Keys(identity, Roster([member])).sign(statement)
        return cls(verify_key=member.verify_key, signature=signature)

    def is_valid(self, statement: bytes) -> bool:
        """Returns whether the key signed the statement."""
        try:
            Roster([Member(_SIGNER, self.verify_key, b"")]).verify(_SIGNER, statement, self.signature)
        except PeerFault:
            return False
        return True


def required_signatures(quorum: int | str, parties: int) -> int:
    """Returns how many of some parties must sign. Of two parties both must, because one must not decide for both."""
    if isinstance(quorum, int):
        return quorum
    return {ALL: parties, ALL_BUT_ONE: max(parties - 1, min(parties, 2))}.get(quorum, 0)


def quorum_problems(quorum: int | str) -> list[str]:
    """Returns the problems of a quorum."""
    if quorum in (NO_QUORUM, ALL, ALL_BUT_ONE) or (isinstance(quorum, int) and quorum >= 1):
        return []
    return [f"quorum={quorum!r} must be a number from 1, or one of {ALL_BUT_ONE!r}, {ALL!r}, {NO_QUORUM!r}"]


def state(section: Section, leave_out: Collection[str]) -> bytes:
    """Returns the statement that signatures of a section cover.

    Empty values are left out, so that a later release can add fields without a change of what was signed.
    """
    try:
        content = msgspec.msgpack.encode(_fields(section, leave_out), order="sorted")
    except (OverflowError, TypeError):
        raise ConfigError("a setting of the roster cannot be signed; try: write it as a shorter value") from None
    return frame_parts(b"tacit/v1/roster", content)


def _fields(section: Section, leave_out: Collection[str]) -> Mapping[str, Any]:
    given = {name: getattr(section, name) for name in section.__struct_fields__ if name not in leave_out}
    return {name: _plain(value) for name, value in given.items() if value or value == 0}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return _fields(value, ()) if isinstance(value, Section) else value
