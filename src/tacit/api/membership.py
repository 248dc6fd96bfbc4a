"""Membership of a party in a federation: its roster and credentials, read from files and checked.

What carries messages between machines is imported when a node is made. Flower has its own, and a process for each
message, so a node there imports no more than it needs.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party
from tacit.net.membership.identity import Credentials, file_stem
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.membership.roster import RosterFile
from tacit.net.transport.proxy import Proxy

if TYPE_CHECKING:
    from tacit.net.node import Node
    from tacit.net.watched_node import WatchedNode


@dataclass(frozen=True)
class Membership:
    """Membership in a federation: the roster, this party's credentials, and the folder of its rounds."""

    roster: RosterFile
    mine: Credentials
    folder: Path
    proxy: Proxy | None = None
    """The proxy through which we dial others."""
    path: Path | None = None
    """The roster file, which a running node watches."""

    @classmethod
    def of(
        cls,
        federation: str | Path,
        me: Party,
        identity: str | Path | None = None,
        folder: str | Path | None = None,
        proxy: str | None = None,
    ) -> "Membership":
        """Reads the roster and the identity, by default from the same folder, and checks that they match."""
        through = None if proxy is None else Proxy.parse(proxy)
        roster = RosterFile.load(federation)
        path = Path(federation)
        roster.card_of(me)
        keys = path.with_name(f"{file_stem(me)}.identity") if identity is None else Path(identity)
        if not os.path.lexists(keys):
            raise ConfigError(
                f"there is no {keys}, and the roster has the card of {me} already; try: check the name, the "
                f"machine and the folder, because {keys.name} lies on the machine of {me}, or give its path "
                f"({'--identity' if me == SERVER else 'identity='}); if the keys are lost, make new ones and have the "
                "card replaced (tacit roster replace)"
            )
        mine = Credentials.load(keys)
        if mine.name != me:
            raise ConfigError(f"this is the identity of {mine.name}, not of {me}; try: give the file of {me}")
        roster.check(mine)
        if me != SERVER and me not in roster.names:
            raise ConfigError(f"{me} is a relay, which has no model; try: tacit relay")
        rounds = path.with_name(f"{file_stem(me)}.rounds") if folder is None else Path(folder)
        RevisionGuard(rounds, me).admit(roster, mine)
        return cls(roster, mine, rounds, through, path)

    def node(self, seed: Callable[[int], bytes] | None = None) -> "Node":
        """Opens the folder and returns a node that has not started."""
        return self._open(self.roster, seed)

    def watched_node(self, check: Callable[[RosterFile], None] = lambda _: None) -> "WatchedNode":
        """Opens the folder and returns a node that takes newer revisions of the roster over. It has not started.

        Before it does, `check` raises TacitError for a revision that the party must not run.
        """
        from tacit.net.membership.roster_watch import RosterWatch
        from tacit.net.watched_node import WatchedNode

        if self.path is None:
            raise ConfigError("this roster is not in a file, so nothing can be watched")
        guard = RevisionGuard(self.folder, self.mine.name)
        watch = RosterWatch(self.path, self.roster, self.mine, guard, check)
        return WatchedNode(self.roster, self._open, watch)

    def _open(self, roster: RosterFile, seed: Callable[[int], bytes] | None = None) -> "Node":
        from tacit.net.node import Node
        from tacit.net.store.round_store import RoundStore

        store = RoundStore(self.folder, self.mine.name, roster.federation)
        return Node(roster, self.mine, store, seed, self.proxy)
