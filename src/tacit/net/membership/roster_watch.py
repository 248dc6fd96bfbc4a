"""Watch over the roster file of a running node: finds newer signed revisions, and says why others do not count.

The file is the only way in: whoever keeps the roster sends it, and the party puts it in the place of the old one. A
revision counts by the rules of `revision_guard`. Rosters without a quorum count at the next start only, because nothing
but the file shows that somebody wanted them.
"""

from collections.abc import Callable
from pathlib import Path

from tacit.core.errors import ConfigError, TacitError
from tacit.net.membership.identity import Credentials
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.membership.roster import RosterFile


class RosterWatch:
    """Looks at one roster file, again and again. It reads the disk and may audit, so it is called in a thread."""

    def __init__(
        self,
        path: Path,
        roster: RosterFile,
        mine: Credentials,
        guard: RevisionGuard,
        check: Callable[[RosterFile], None],
    ) -> None:
        """Begins with the roster that the node runs.

        Args:
            path: The roster file.
            roster: The present roster.
            mine: The party's own keys.
            guard: The guard of the party's revisions.
            check: Raises TacitError if the party must not run a roster, although it counts.
        """
        self._path, self._roster, self._mine, self._guard, self._check = path, roster, mine, guard, check
        self._seen: tuple[int, ...] | None = None
        self.refused: TacitError | None = None
        """Why the newest file does not count; None if it does."""
        self.stopped: TacitError | None = None
        """Why this party cannot go on under the newest revision, which counts; None if it can."""

    def look(self) -> RosterFile | None:
        """Returns a newer revision to run, once; None if there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None  # it is being replaced
        seen = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
        if seen == self._seen:
            return None
        self._seen, self.refused = seen, None
        try:
            newer = RosterFile.load(self._path)
            if newer.statement == self._roster.statement:
                return None
            self._admit(newer)
        except TacitError as error:
            self.refused = error
            return None
        self.stopped = None
        try:
            self._check_own_part(newer)
        except TacitError as error:
            self.stopped = error
            return None
        self._roster = newer
        return newer

    def _admit(self, newer: RosterFile) -> None:
        if not self._roster.is_signed:
            raise ConfigError(
                f"revision {newer.revision} of {newer.federation} counts from the next start on, because revision "
                f"{self._roster.revision} names no quorum; try: start {self._mine.name} again"
            )
        self._guard.admit(newer, self._mine)

    def _check_own_part(self, newer: RosterFile) -> None:
        newer.check(self._mine)
        if newer.protocol != self._roster.protocol:
            raise ConfigError(
                f"revision {newer.revision} of {newer.federation} has the protocol {newer.protocol}, and this node "
                f"runs {self._roster.protocol}; try: stop it, keep its folder under another name, and start it again"
            )
        self._check(newer)
