"""Guard of roster revisions: a file that keeps the revision that a party accepted last, and which one it signed last.

A party accepts its first revision by its own signature: trust on first use. From then on it accepts a revision only if
its number is higher, and the quorum of the accepted revision has signed it, with keys of the accepted revision. A party
signs at most one revision of a number, and none below it, so two revisions of one number cannot both have a quorum
unless parties cheat.

The file is beside the folder of rounds, because that folder is moved away for another model or protocol. If the folder
is a mounted volume, the file is in it, because what is beside a volume is often not kept. Without the file a party is
at its first use again.
"""

import fcntl
import hashlib
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.net.membership.identity import Credentials, file_stem
from tacit.net.membership.roster import RosterFile
from tacit.net.store.store_folder import ACCEPTED
from tacit.runtime.atomic_files import check_key_folder, open_private, read_own_file, replace_file, sync_folder

FORMAT = 1


class RevisionMark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Number and digest of a revision."""

    revision: int
    digest: bytes

    @classmethod
    def of(cls, roster: RosterFile) -> "RevisionMark":
        """Returns the mark of a roster."""
        return cls(revision=roster.revision, digest=hashlib.sha256(roster.statement).digest())


class GuardState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of the guard's file."""

    format: int = FORMAT
    federation: str
    party: Party
    accepted: RevisionMark
    required: int
    """Number of signatures that the next revision needs."""
    keys: dict[Party, bytes]
    """Keys of the accepted revision, whose signatures count for the next one."""
    signed: RevisionMark | None = None
    """The last revision that the party signed."""


class RevisionGuard:
    """Decides which revisions one party accepts and signs."""

    def __init__(self, folder: Path, me: Party) -> None:
        """Keeps its file beside the folder of a party's rounds, or in it if it is a mounted volume."""
        self.me = me
        self.path = folder / ACCEPTED if folder.is_mount() else folder.with_name(f"{file_stem(me)}.accepted")

    def admit(self, roster: RosterFile, mine: Credentials) -> None:
        """Accepts a revision, durably; raises ConfigError with the reason and a remedy if it does not count.

        Without a quorum in the roster or in an accepted revision, every revision counts, and nothing is kept.
        """
        if not roster.required_signatures and not os.path.lexists(self.path):
            return
        with self._lock() as state:
            if self._is_admissible(state, roster, mine):
                self._write(self._accept(roster, None if state is None else state.signed))

    def check(self, roster: RosterFile, mine: Credentials) -> bool:
        """Returns whether `admit` would newly accept a revision; raises what it would raise. Writes nothing."""
        if not roster.required_signatures and not os.path.lexists(self.path):
            return False
        return self._is_admissible(self._read(), roster, mine)

    def _is_admissible(self, state: GuardState | None, roster: RosterFile, mine: Credentials) -> bool:
        """Returns whether a revision is to be accepted, and was not before; raises ConfigError if it does not count."""
        if state is None:
            if not roster.signers({self.me: mine.member.verify_key}):
                raise ConfigError(
                    f"{self.me} has not signed revision {roster.revision} of {roster.federation}, its first one; "
                    f"try: compare the fingerprints, then run tacit roster sign federation.toml "
                    f"--me {shlex.quote(self.me)}"
                )
            return True
        if not self._is_newer(state, RevisionMark.of(roster), roster):
            return False
        self._check_quorum(state, roster)
        return True

    def sign(self, roster: RosterFile, mine: Credentials) -> RosterFile:
        """Returns a roster with our signature, after it is on disk that we sign this revision.

        The first revision is accepted by this. Raises ConfigError if we accepted or signed another one.
        """
        if not roster.required_signatures and not os.path.lexists(self.path):
            raise ConfigError(
                f"{roster.federation} names no quorum, so signatures do not count; try: write quorum = "
                f'"all-but-one" into federation.toml, and run tacit roster renew'
            )
        mark = RevisionMark.of(roster)
        with self._lock() as state:
            if state is None or mine.member.verify_key not in state.keys.values():  # who leaves signs with the old key
                roster.check(mine)
            if state is None:
                self._write(self._accept(roster, mark))
                return roster.sign(mine)
            self._is_newer(state, mark, roster)
            if (last := state.signed) is not None and mark != last and mark.revision <= last.revision:
                raise ConfigError(
                    f"{self.me} signed {_another(mark, last)}revision {last.revision} of {roster.federation} already; "
                    f"try: have whoever keeps the roster make the next revision (tacit roster renew)"
                )
            self._write(msgspec.structs.replace(state, signed=mark))
        return roster.sign(mine)

    def _is_newer(self, state: GuardState, mark: RevisionMark, roster: RosterFile) -> bool:
        """Returns whether a revision is newer than the accepted one; raises ConfigError if it is older or a fork."""
        if mark == state.accepted:
            return False
        if roster.federation != state.federation:
            raise ConfigError(
                f"{self.me} accepted rosters of {state.federation}, and this one is of {roster.federation}; try: take "
                f"the federation.toml of {state.federation}"
            )
        if mark.revision <= state.accepted.revision:
            what = "is older than" if mark.revision < state.accepted.revision else "is another one than"
            raise ConfigError(
                f"revision {mark.revision} of {roster.federation} {what} revision {state.accepted.revision}, which "
                f"{self.me} accepted; try: take the newest federation.toml"
            )
        return True

    def _check_quorum(self, state: GuardState, roster: RosterFile) -> None:
        signed = roster.signers(state.keys)
        if len(signed) >= state.required:
            return
        missing = ", ".join(party for party in state.keys if party not in signed)
        changed = not all(each.is_valid(roster.statement) for each in roster.signatures)
        invalid = " (others are of another content)" if changed else ""
        raise ConfigError(
            f"revision {roster.revision} of {roster.federation} has {len(signed)} of the {state.required} signatures "
            f"that revision {state.accepted.revision} requires{invalid}; not signed by: {missing}; try: have them run "
            f"tacit roster sign, and collect their copies (tacit roster collect)"
        )

    def _accept(self, roster: RosterFile, signed: RevisionMark | None) -> GuardState:
        return GuardState(
            federation=roster.federation,
            party=self.me,
            accepted=RevisionMark.of(roster),
            required=roster.required_signatures,
            keys=roster.verify_keys,
            signed=signed,
        )

    # --- on disk ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _lock(self) -> Iterator[GuardState | None]:
        """Yields the state, while no other process changes it."""
        try:
            check_key_folder(self.path.parent)  # who can remove the file takes us back to the first use
            number = open_private(self.path.with_name(f"{self.path.name}.lock"))
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be locked: {error.strerror}; try: another --folder") from None
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield self._read()
        finally:
            os.close(number)

    def _read(self) -> GuardState | None:
        try:
            state = msgspec.json.decode(read_own_file(self.path), type=GuardState)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            state = None
        if state is None or state.format != FORMAT or state.party != self.me:
            raise ConfigError(
                f"{self.path} has no revision that {self.me} accepted; try: restore it, or move it away, compare the "
                f"fingerprints and run tacit roster sign"
            )
        return state

    def _write(self, state: GuardState) -> None:
        try:
            replace_file(self.path, msgspec.json.encode(state))
            sync_folder(self.path.parent)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}; try: another --folder") from None


def _another(mark: RevisionMark, last: RevisionMark) -> str:
    return "another " if mark.revision == last.revision else ""
