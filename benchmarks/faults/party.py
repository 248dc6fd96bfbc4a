"""Party or server in a process that is killed, frozen and restarted.

It takes part in round after round with an unchanged node, and logs everything that is judged afterwards: its inputs,
the messages that it received in their order, every message that it sent with its address and a hash, its longest waits,
and the results of rounds. Each line is appended by one system call, so that it survives the process. Its vectors depend
on its name, its restarts and the number of the attempt, so no two of them are equal.
"""

import asyncio
import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.api.join import Membership
from tacit.core.average import Ending
from tacit.core.errors import TacitError
from tacit.core.suite import SERVER, Update
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.net.node import Node
from tacit.net.relay_node import RelayNode
from tacit.net.transport.peer_link import PeerLink
from tacit.runtime.journal import Record
from tacit.runtime.round import GreetingPost, Post, Round

ENTRIES = 6
"""Length of a vector. It is short, because size is not tested here."""
STEP = 1 / 64
"""Approximate change of a model between rounds."""
PERIOD = 0.1
"""Seconds between checks whether to leave, or whether the parent process is gone."""


class Log:
    """Log whose lines survive the process."""

    def __init__(self, path: Path, life: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._life = life

    def note(self, what: str, **more: Any) -> None:
        """Appends a line by one system call."""
        line = json.dumps({"what": what, "life": self._life, "at": time.time(), **more})
        os.write(self._file, (line + "\n").encode())


def describe_ending(ending: Ending | None) -> dict[str, Any] | None:
    """Returns the result of a round, in the form in which results are compared."""
    if ending is None:
        return None
    return {
        "round": ending.round,
        "average": None if ending.average is None else np.asarray(ending.average).tolist(),
        "contributors": list(ending.contributors),
        "dropped": {party: str(reason) for party, reason in ending.dropped.items()},
        "error": None if ending.error is None else [ending.error.code, str(ending.error)],
    }


def watch(node: Node, log: Log) -> None:
    """Logs everything that is written to disk and everything that is sent."""
    store, agreement = node.store, node.roster.agreement(ENTRIES)
    codec = agreement.codec(agreement.ring().length)

    def heard(read: Record) -> dict[str, Any]:
        state = None if read.state is None else bytes(read.state).hex()
        if read.event is None:
            return {"place": None, "state": state}
        address = codec.read(read.event).address  # type: ignore[arg-type] # The event is incoming bytes.
        return {"place": [address.sender, address.kind, address.step], "state": state}

    def first(read: Record, update: Update | None) -> dict[str, Any]:
        begun: Any = read.event
        return {
            "round": begun.number,
            "vector": None if update is None else np.asarray(update.vector).tolist(),
            "before": bytes(begun.state).hex(),
            "state": None if read.state is None else bytes(read.state).hex(),
        }

    def begin(record: Record, update: Update | None, *rest: Any, **more: Any) -> None:
        log.note(
            "begins", **first(record, update)
        )  # Logged before the beginning: if the process is killed here, nothing was sent.
        honest["begin"](record, update, *rest, **more)

    def record(read: Record, *rest: Any, **more: Any) -> None:
        honest["record"](read, *rest, **more)
        log.note("heard", round=node.rounds, **heard(read))

    def load(session: bytes) -> Any:
        found = honest["load"](session)
        if found.journal is not None:
            records = found.journal.read()
            log.note("resumes", **first(records[0], found.update), heard=[heard(each) for each in records[1:]])
        return found

    honest: dict[str, Callable[..., Any]] = {name: getattr(store, name) for name in ("begin", "record", "load")}
    for name, mine in (("begin", begin), ("record", record), ("load", load)):
        setattr(store, name, mine)
    setattr(node._timer, "follow", _time_rounds(node, log))  # noqa: B010 (Replaces a method of this alarm alone)
    for line in node.courier.links.values():
        setattr(line, "send", _log_link(line, log))  # noqa: B010 (Replaces a method of this link alone)


def _time_rounds(node: Node, log: Log) -> Callable[[Round | None], None]:
    """Returns a method that logs how long each wait of a round may take."""
    follow, phase, last = node._timer.follow, node.roster.deadlines.phase, (0, 0)

    def timed(round_: Round | None) -> None:
        nonlocal last
        follow(round_)
        if round_ is not None and round_.wait is not None and not round_.over and last != (node.rounds, round_.waits):
            last = node.rounds, round_.waits
            log.note("waits", round=node.rounds, seconds=round_.wait.patience * phase)

    return timed


def _log_link(line: PeerLink, log: Log) -> Callable[..., None]:
    send = line.send

    def noted(post: Post, number: int, arrived: Callable[[], None]) -> None:
        address = post.address
        if not isinstance(post, GreetingPost):
            said = hashlib.sha256(post.data).hexdigest()
            log.note("says", round=address.round, to=address.to, kind=address.kind, step=address.step, hash=said)
        send(post, number, arrived)

    return noted


def model(node: Node, life: int, attempt: int) -> NDArray[np.float64]:
    """Returns the next vector: the last model with a small change. No vector is ever repeated."""
    rng = np.random.default_rng([node.roster.names.index(node.me), life, attempt])
    last = node.last.average if node.last is not None and node.last.average is not None else np.zeros(ENTRIES)
    return np.asarray(last + rng.normal(0, STEP, ENTRIES))


async def live(folder: Path, name: str, life: int, rounds: int) -> None:
    """Takes part until that many rounds were begun, and then stays for the others until it is told to leave."""
    log, seated = Log(folder / f"{name}.log", life), Membership.of(folder / f"{name}.toml", name)
    node, stop, attempt = seated.node(), folder / "stop", 0
    watch(node, log)
    guard = asyncio.create_task(_guard())
    await node.start()
    log.note("up", round=node.rounds, resuming=node.resuming, last=describe_ending(node.last))
    while node.rounds < rounds and not stop.exists():
        attempt += 1
        if not node.resuming:
            # A server waits without limit until some party is ready.
            log.note("waits", round=node.rounds, seconds=None if name == SERVER else node._max_wait)
        try:
            update = None if name == SERVER else Update(model(node, life, attempt))
            log.note("ends", **(describe_ending(await node.average(update)) or {}))
        except TacitError as error:
            log.note("waited", round=node.rounds, error=[error.code, str(error)])
    log.note("done", round=node.rounds)
    while not stop.exists():
        await asyncio.sleep(PERIOD)
    log.note("leaves", flushed=await node.flush(2 * seated.roster.deadlines.start), round=node.rounds)
    await node.close(leaving=True)
    guard.cancel()


async def _guard() -> None:
    """Ends this process when its parent process is gone."""
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        await asyncio.sleep(10 * PERIOD)
    os._exit(1)


def run_relay(folder: str, name: str) -> None:
    """Relays in a process of its own, until it is killed."""
    place = Path(folder)
    said = os.open(place / f"{name}.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(said, stream)
    node = RelayNode(RosterFile.load(place / f"{name}.toml"), Credentials.load(place / f"{name}.identity"))
    asyncio.run(_relay(node))


async def _relay(node: RelayNode) -> None:
    await node.start()
    await _guard()


def run(folder: str, name: str, life: int, rounds: int) -> None:
    """Runs once, in a process of its own, and writes unexpected errors to a file."""
    said = os.open(Path(folder) / f"{name}.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(said, stream)
    asyncio.run(live(Path(folder), name, life, rounds))
