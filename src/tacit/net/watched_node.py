"""Node that takes newer revisions of its roster over while it runs, between two rounds.

A revision makes a new session, so it is taken over as by a restart: the old node delivers what others wait for and is
closed, and a new one is opened on the same folder. Its connections are new too, so a party that was removed is cut off,
with the streams that it holds open. A round that is under way ends first; its deadlines bound how long that takes.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tacit.core.average import Ending
from tacit.core.errors import TacitError, TransportError
from tacit.core.suite import Update
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.roster_watch import RosterWatch
from tacit.net.node import OFTEN, Node
from tacit.runtime.agreement import Agreement


class WatchedNode:
    """A node, and the watch over its roster. Between `start` and `close` it has one node at a time."""

    def __init__(self, roster: RosterFile, open_node: Callable[[RosterFile], Node], watch: RosterWatch) -> None:
        """Opens the node of a roster.

        Args:
            roster: The present roster.
            open_node: Returns a node of a roster, which has not started, on the folder of the party.
            watch: The watch over the roster.
        """
        self.node = open_node(roster)
        """The present node."""
        self.agreement: Agreement | None = None
        """The agreement of the last round that `average` returned."""
        self._open, self._rosters = open_node, watch
        self._newer: RosterFile | None = None
        """A revision that counts, and has not been taken over yet."""
        self._turn, self._look_turn = asyncio.Lock(), asyncio.Lock()
        self._places: tuple[str | None, str | None] = None, None
        self._task: asyncio.Task[None] | None = None
        self._said = ""
        self._ends = False
        """Whether the node drains or closes for good."""

    async def start(self, address: str | None = None, metrics: str | None = None) -> None:
        """Starts the node, as `Node.start`, and the watch."""
        self._places = address, metrics
        await self.node.start(address, metrics)
        self._task = asyncio.create_task(self._watch(), name=f"roster of {self.node.me}")

    async def average(self, update: Update | None) -> Ending:
        """Takes part in the next round, as `Node.average`, under the newest revision."""
        async with self._turn:
            while True:
                await self._take_over()
                if self._rosters.stopped is not None and not self.node.resuming:
                    raise self._rosters.stopped
                try:
                    ending = await self.node.average(update)
                except TransportError:
                    if self._ends or self.node.resuming or not self.node.lifecycle.draining:
                        raise
                    continue  # a revision came while the node waited for its peers
                self.agreement = self.node.agreement
                return ending

    async def serve(self, report: Callable[[Ending], None], rounds: int | None = None) -> None:
        """Takes part in one round after another, as `Node.serve`."""
        while (rounds is None or self.node.rounds < rounds) and (self.node.resuming or not self._ends):
            try:
                report(await self.average(None))
            except TransportError:
                if not self._ends:
                    raise

    def drain(self) -> None:
        """Lets the present round finish, and begins no other."""
        self._ends = True
        self.node.drain()

    async def flush(self, seconds: float) -> bool:
        """Waits until all messages are acknowledged, up to a timeout; returns whether they are."""
        return await self.node.flush(seconds)

    async def close(self, *, leaving: bool = False) -> None:
        """Stops the watch and the node. A waiting call of `average` gets an error."""
        self._ends = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._close_node(leaving)
        async with self._turn:  # a call of `average` may just have opened the node of another revision
            await self._close_node(leaving)

    async def _close_node(self, leaving: bool) -> None:
        if not self.node.lifecycle.closing:  # it may have been closed for a revision that could not be taken over
            await self.node.close(leaving=leaving)

    # --- revisions -------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(OFTEN)
            await self._look()
            if self._newer is not None:
                async with self._turn:
                    with suppress(TacitError):  # the next call of `average` gets it, and it is tried again
                        await self._take_over()

    async def _look(self) -> None:
        """Looks at the roster file. The present node begins no other round if there is a newer revision."""
        async with self._look_turn:
            newer = await asyncio.to_thread(self._rosters.look)
        self._newer = newer or self._newer
        why = self._rosters.stopped or self._rosters.refused
        if str(why or "") != self._said:
            self._said = str(why or "")
            if why is not None:
                self.node.telemetry.report_refused_revision(why)
        if self._newer is not None or self._rosters.stopped is not None:
            self.node.drain()

    async def _take_over(self) -> None:
        """Replaces the node by one of the newer revision, if there is one and no round is under way."""
        newer, before = self._newer, self.node
        if newer is None or before.resuming or self._ends:
            return
        if not before.lifecycle.closing:
            await before.flush(before.roster.deadlines.phase)
            await before.close()
        after = self._open(newer)
        try:
            await after.start(*self._places)
        except BaseException:
            await after.close()
            raise
        after.last = after.last or before.last
        self.node, self._newer = after, None
        if self._ends:  # since we began to take the revision over
            after.drain()
        after.telemetry.report_revision(newer.revision, before.roster.verify_keys, newer.verify_keys)
