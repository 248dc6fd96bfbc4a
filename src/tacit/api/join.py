"""Averaging between machines: the function `join`, and the `Peer` that it returns."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tacit.api.checked_run import CheckedRun, warn_of_clipping
from tacit.api.given_models import model_problems, weight_problems
from tacit.api.held_model import HeldModel
from tacit.api.membership import Membership
from tacit.core.average import Ending, format_count
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party, Update, Vector
from tacit.net.event_loop_thread import EventLoopThread
from tacit.net.membership.roster import RosterFile
from tacit.net.node import Node
from tacit.net.observability.status import Status
from tacit.net.observability.telemetry import log_lines
from tacit.net.store.round_store import StoredAverage
from tacit.net.watched_node import WatchedNode
from tacit.runtime.outcome import Outcome, merge_endings
from tacit.vectors.layout import Layout
from tacit.vectors.model_tree import ArraySelection

__all__ = ["Peer", "join", "log_lines"]
FAREWELL = 5.0
"""Seconds for which a leaving party continues to deliver messages that others wait for."""


class Peer:
    """One party of a federation between machines. `tacit.join` returns it."""

    def __init__(self, membership: Membership, checked: CheckedRun, metrics: str | None = None) -> None:
        self.name, self.notes = membership.mine.name, checked.notes
        """Name of this party, and the notes of the audit that ran before anything was sent."""
        self._layout, self._held = None, HeldModel()
        self._runs = {membership.roster.revision: checked}
        """The checks of each revision of the roster that this party has run, or is about to."""
        self._background = EventLoopThread(f"tacit {self.name}")
        try:
            self._watched = self._background.run(_start_node(membership, self._check_revision, metrics))
        except BaseException:
            self._background.close()
            raise

    _layout: Layout | None

    @property
    def _node(self) -> Node:
        return self._watched.node

    @property
    def _checked(self) -> CheckedRun:
        return self._runs[self._node.roster.revision]

    def _check_revision(self, roster: RosterFile) -> None:
        """Audits a newer revision of the roster, in a thread, before the node runs it."""
        self._runs[roster.revision] = check_roster(roster)

    @property
    def rounds(self) -> int:
        """Number of the last round that this party began, also before a restart."""
        return self._node.rounds

    @property
    def last(self) -> Ending | None:
        """Result of the last round that ended, also before a restart; None if it is not known."""
        return self._node.last

    @property
    def resuming(self) -> bool:
        """Whether a round was interrupted. The next `average` then completes it with its original input."""
        return self._node.resuming

    @property
    def adopted(self) -> str:
        """Lineage of the last average that this party adopted, also before a restart; empty if there was none."""
        return self._node.lineage.hex()

    def load_adopted(self) -> StoredAverage | None:
        """Returns the last average that this party adopted, from disk; None if there is none."""
        return self._background.run(_load_adopted(self._node))

    @property
    def lineage(self) -> str:
        """Lineage of the model that the program holds, to be saved with the model; empty before the first average.

        Parties mask only with parties of equal lineage (`tacit.core.lineage`).
        """
        return self._held.lineage.hex()

    def average(self, model: Any, weight: float = 1.0, *, changes: bool = False) -> Outcome:
        """Averages a model with those of the other parties, and returns the outcome for this party.

        If a round was interrupted before, this call completes that round with its original input. If `outcome.replaced`
        is true, this party was behind: the average replaces its model, and the program must discard what it derived
        from the old model, such as momentum.

        Args:
            model: An array, a dict or list of arrays, a state dict or a PyTorch module. A module is changed in place;
                for other models the average is `outcome.average[name]`.
            weight: Weight of the model in the average.
            changes: Whether the model is a change to the model that all parties share. The program then adds the
                average to that model, and a party that lacks an average cannot continue (`Behind`). With `norm=` and a
                server, only changes are averaged, because a whole model would be scaled down to that length.

        Raises:
            NotRestored: After a restart, unless the program took over the last average (`restore`, `continue_from`).
            TacitError: If the round failed for this party. The program then keeps its model.
        """
        layout, update = self._prepare_update(model, weight, changes)
        return self._adopt(self._background.run(self._watched.average(update)), layout, model, update)

    async def average_async(self, model: Any, weight: float = 1.0, *, changes: bool = False) -> Outcome:
        """Does the same as `average`, without blocking an event loop."""
        layout, update = self._prepare_update(model, weight, changes)
        return self._adopt(await self._background.run_from_loop(self._watched.average(update)), layout, model, update)

    def restore(self, model: Any) -> Any:
        """Writes the last average that this party adopted into a model, and returns the model. Without one, does
        nothing.

        Call it when a program starts, so that a restarted program continues where its party stopped. Modules and arrays
        are changed in place. Raises ConfigError if the average is a change (`norm`, `changes`), which is not a model.
        """
        adopted = self.load_adopted()
        if adopted is None:
            return model
        if adopted.is_change:
            raise ConfigError(
                "the last average is a change, which alone is no model; try: "
                "load the model that the program saved, and call continue_from with the lineage that it saved beside it"
            )
        layout = self._layout = Layout.of(model, ArraySelection.of(self._checked.terms.settings))
        restored = _put_back(layout, adopted.vector, model)
        _write_in_place(model, restored)
        if adopted.lineage:
            self._held.continue_from(adopted.lineage.hex(), self._node.lineage)
        return restored

    def continue_from(self, lineage: str) -> None:
        """Declares the lineage of the model that the program averages next, such as a model that it saved itself.

        Save `lineage` together with the model, in one file. Parties of another lineage do not mask with this one until
        it has caught up.
        """
        self._held.continue_from(lineage, self._node.lineage)

    def status(self) -> Status:
        """Returns the current round, the missing parties, and how long they have been missing."""
        return self._background.run(_read_status(self._node))

    def drain(self) -> None:
        """Lets the present round finish, and begins no other: an `average` that waits for its round raises
        TransportError.

        It returns at once and may be called from any thread, and by a handler of signals.
        """
        if self._background.alive:
            self._background.loop.call_soon_threadsafe(self._watched.drain)

    def leave(self) -> None:
        """Leaves the federation: the others no longer wait for this party. It can join again."""
        self._close(leaving=True)

    def close(self) -> None:
        """Stops at once, as if the machine were switched off. Others wait for this party until their deadlines."""
        self._close(leaving=False)

    def _close(self, *, leaving: bool) -> None:
        if self._background.alive:
            try:
                self._background.run(_close_node(self._watched, leaving))
            finally:
                self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()

    def __repr__(self) -> str:
        protocol, rounds = self._checked.protocol.name, format_count(self.rounds, "round")
        return f"<Peer: {self.name} of {len(self._checked.terms.parties)} parties, {protocol}, {rounds}>"

    def _prepare_update(self, model: Any, weight: float, changes: bool) -> tuple[Layout, Update]:
        selection = ArraySelection.of(self._checked.terms.settings)
        found = model_problems({self.name: model}, selection, self._layout)
        found += weight_problems({self.name: model}, {self.name: weight}, self._checked.terms.settings.max_weight)
        norm = self._checked.terms.settings.norm
        if norm is not None and not changes and self._checked.protocol.server is not None:
            found.append(
                f"norm={norm:g} would scale the whole model down to this length; try: "
                f"average what training changed, peer.average(change, changes=True), and add the average to the model"
            )
        elif changes and hasattr(model, "state_dict"):
            found.append(
                "the average of changes would overwrite this module; try: pass the change as a dict of arrays, and add "
                "the average to the module"
            )
        if found:
            raise ConfigError(found)
        self._held.check(self.name, self._node.lineage, self._node.interrupted, adds_up=changes)
        layout = self._layout = self._layout or Layout.of(model, selection)
        self._checked.check_length(layout.size)
        return layout, Update(layout.flatten(model, narrow=True), float(weight), self._held.lineage, changes)

    def _adopt(self, ending: Ending, layout: Layout, model: Any, update: Update) -> Outcome:
        """Returns the outcome, and writes the average into the model. Until then the program does not hold the
        average."""
        agreement = self._watched.agreement or self._node.agreement
        outcome = merge_endings(agreement, {self.name: ending}, ended=[self.name])
        warn_of_clipping(agreement, outcome, layout, {self.name: update}, 3)
        outcome.warnings = (*self.notes, *outcome.warnings)
        vector: NDArray[np.float64] = outcome.average[self.name]
        outcome.average, outcome.local = {self.name: _put_back(layout, vector, model)}, layout.local
        self._held.take(self._node.lineage)
        return outcome


def _write_in_place(model: Any, restored: Any) -> None:
    """Writes restored arrays into those of a model, so that a program that keeps using the model has them."""
    if isinstance(model, dict):
        for name, part in model.items():
            _write_in_place(part, restored[name])
    elif isinstance(model, list | tuple):
        for part, new in zip(model, restored, strict=True):
            _write_in_place(part, new)
    elif isinstance(model, np.ndarray) and model.flags.writeable:
        model[...] = restored
    elif hasattr(model, "copy_") and hasattr(model, "detach"):
        model.detach().copy_(restored)


def _put_back(layout: Layout, vector: Vector, model: Any) -> Any:
    """Returns a model with the entries of a vector. A PyTorch module is changed in place."""
    restored = layout.restore(vector, model)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        model.load_state_dict(restored)
    return restored


def join(
    federation: str | Path,
    me: Party,
    *,
    identity: str | Path | None = None,
    folder: str | Path | None = None,
    metrics: str | None = None,
    proxy: str | None = None,
) -> Peer:
    """Joins a federation as one party, and returns the peer that averages models with the others.

    Args:
        federation: The roster file, which all parties share.
        me: Name of this party.
        identity: File of this party's identity. Default: in the folder of the roster.
        folder: Folder for everything that must survive a crash. Default: in the folder of the roster.
        metrics: Address, as host:port, at which metrics are served. `tacit.log_lines()` logs events.
        proxy: HTTP proxy through which this party dials all others, as http://host:port. Variables of the environment
            are never used.

    Returns:
        The peer. Use it in a `with` statement, so that it leaves at the end.

    Raises:
        ConfigError: With all problems.
        LeakRefused: With the audit's report, if the roster's `adversary` number of colluding parties would learn a
            model.

    See `examples/three_hospitals.py` for a complete program:

        with tacit.join("federation.toml", me="a") as peer: outcome = peer.average(model)
    """
    membership = Membership.of(federation, me, identity, folder, proxy)
    if me == SERVER:
        raise ConfigError("the server has no model; try: tacit serve")
    return Peer(membership, check_roster(membership.roster), metrics)


def check_roster(roster: RosterFile) -> CheckedRun:
    """Checks and audits the settings of a roster; raises ConfigError or LeakRefused."""
    return CheckedRun.of(roster.protocol, roster.names, (), roster.adversary, roster.settings)


async def _start_node(membership: Membership, check: Callable[[RosterFile], None], metrics: str | None) -> WatchedNode:
    node = membership.watched_node(check)
    try:
        await node.start(metrics=metrics)
    except BaseException:
        await node.close()
        raise
    return node


async def _load_adopted(node: Node) -> StoredAverage | None:
    return node.load_adopted()


async def _read_status(node: Node) -> Status:
    return node.status()


async def _close_node(node: WatchedNode, leaving: bool) -> None:
    if leaving:
        await node.flush(FAREWELL)
    await node.close(leaving=leaving)
