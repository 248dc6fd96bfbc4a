"""Honest parties that average on request, each in a process of its own.

`python -m benchmarks.intruders.honest_parties FOLDER NAME ENTRIES` is one of them. It reads commands line by line, and
answers each with a line of JSON. A party's vector depends on its name and a number, so that every party can check an
average.
"""

import asyncio
import json
import resource
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.federation import free_ports
from tacit.core.average import Ending
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import TacitError
from tacit.core.suite import SERVER, Party, Update
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import Hello
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.net.node import Node
from tacit.net.store.round_store import RoundStore
from tacit.protocols import find

ROOT = Path(__file__).parents[2]
GONE = "gone"
"""A former party of the roster."""
FILES = 1024
"""Limit on open files of a party, connections included."""
CLOSE = 1e-3
"""The largest error of an average that counts as right."""


def make_vector(party: Party, number: int, entries: int) -> NDArray[np.float64]:
    """Returns the vector of a party."""
    return np.cos(np.arange(entries) * 0.01 + sum(party.encode()) + number)


def expected_average(me: Party, roster: RosterFile, contributors: Iterable[Party], number: int, entries: int) -> Any:
    """Returns the right average of contributors. Where all are neighbours, a node takes the parts of missing ones
    itself."""
    vectors = {party: make_vector(party, number, entries) for party in contributors}
    if roster.entry.server is not None:
        return np.mean(list(vectors.values()), axis=0)
    own = vectors.pop(me)
    return own + sum(vector - own for vector in vectors.values()) / len(roster.names)


@dataclass(frozen=True)
class Federation:
    """All keys and the roster, in a folder."""

    folder: Path
    roster: RosterFile
    credentials: Mapping[Party, Credentials]

    @classmethod
    def of(
        cls, folder: Path, protocol: str, names: Iterable[Party], deadlines: Deadlines, **options: Any
    ) -> "Federation":
        """Creates a federation on free ports of this machine, from whose roster one party was removed."""
        everyone, entropy = (*find(protocol).everyone(tuple(names)), GONE), SystemEntropy()
        made = {name: Credentials.generate(name, entropy) for name in everyone}
        cards = [
            made[name].card(f"127.0.0.1:{port}") for name, port in zip(everyone, free_ports(len(made)), strict=True)
        ]
        roster = RosterFile.new("intruders", protocol, options, entropy, cards).remove_party(GONE, entropy)
        return cls(folder, msgspec.structs.replace(roster, deadlines=deadlines), made)

    def write(self) -> None:
        """Writes the files where the processes look for them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.roster.save(self.folder / "federation.toml")
        for party, mine in self.credentials.items():
            mine.create(self.folder / f"{party}.identity")

    def node(self, party: Party) -> Node:
        """Returns the node of a party."""
        store = RoundStore(self.folder / f"{party}.rounds", party, self.roster.federation)
        return Node(self.roster, self.credentials[party], store)


# --- reports of an honest party ------------------------------------------------------------------------------------


class Witness:
    """A node that takes part in rounds, and reports their results and rejected messages."""

    def __init__(self, node: Node, entries: int) -> None:
        self.node, self._entries = node, entries
        self._furthest: dict[Party, int] = {}
        listen = node._rendezvous.listen

        def listened(sender: Party, hello: Hello, at: float) -> bool:
            self._furthest[sender] = max(hello.begun, self._furthest.get(sender, 0))
            return listen(sender, hello, at)

        node._rendezvous.listen = listened

    async def average(self, number: int) -> dict[str, Any]:
        """Returns the result of a round, and whether its average is right."""
        me = self.node.me
        update = None if me == SERVER else Update(make_vector(me, number, self._entries))
        try:
            ending = await self.node.average(update)
        except TacitError as error:
            return {"error": f"{error.code}: {error}", "contributors": [], "right": False, "round": 0}
        return self._told(ending, number)

    def _told(self, ending: Ending, number: int) -> dict[str, Any]:
        right = False
        if ending.average is not None and ending.error is None:
            wanted = expected_average(self.node.me, self.node.roster, ending.contributors, number, self._entries)
            right = bool(np.abs(np.asarray(ending.average) - wanted).max() < CLOSE)
        return {
            "error": None if ending.error is None else f"{ending.error.code}: {ending.error}",
            "contributors": list(ending.contributors),
            "dropped": {party: str(reason) for party, reason in ending.dropped.items()},
            "right": right,
            "round": ending.round,
        }

    def mail(self) -> dict[str, int]:
        """Returns the numbers of rejected messages and excluded senders of the last round, by reason."""
        if self.node._round is None:
            return {}
        inbox = self.node._round.inbox
        found = {f"thrown away: {reason}": count for reason, count in inbox.discarded.items()}
        return found | {f"excluded: {reason}": 1 for reason in inbox.gone.values()}

    def heard(self, party: Party) -> int:
        """Returns the highest round that a peer claimed since the last call."""
        return self._furthest.pop(party, 0)


def memory(*, afresh: bool = False) -> float:
    """Returns the peak memory of this process, in MB, since it was last reset with `afresh`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    if afresh:
        Path("/proc/self/clear_refs").write_text("5")
    return peak / 1024


async def main(folder: Path, name: Party, entries: int) -> None:
    """Executes commands until the input ends."""
    # The usual limit of open files, so that floods do not find more room here.
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    roster = RosterFile.load(folder / "federation.toml")
    made = Federation(folder, roster, {name: Credentials.load(folder / f"{name}.identity")})
    witness = Witness(made.node(name), entries)
    await witness.node.start()
    print(json.dumps([0, "started"]), flush=True)
    under_way = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        number, *words = line.split()
        task = asyncio.create_task(_answer(witness, int(number), words))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await witness.node.close()


async def _answer(witness: Witness, number: int, words: list[str]) -> None:
    word, *rest = words
    answers: dict[str, Callable[[], Any]] = {
        "mail": witness.mail,
        "heard": lambda: witness.heard(rest[0]),
        "memory": lambda: memory(afresh=bool(rest)),
    }
    answer = await witness.average(int(rest[0])) if word == "average" else answers[word]()
    print(json.dumps([number, answer]), flush=True)


# --- several parties -----------------------------------------------------------------------------------------------


class Processes:
    """Honest parties, each in its own process."""

    def __init__(self, made: Federation, parties: Iterable[Party], entries: int) -> None:
        self.made, self.parties, self.entries = made, tuple(parties), entries
        self._running: dict[Party, Process] = {}
        self._asking: dict[tuple[Party, int], asyncio.Future[Any]] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._numbers = count(1)

    async def start(self) -> None:
        """Starts the processes, and waits until all of them listen."""
        self.made.write()
        for party in self.parties:
            command = [
                sys.executable,
                "-m",
                "benchmarks.intruders.honest_parties",
                str(self.made.folder),
                party,
                str(self.entries),
            ]
            with (self.made.folder / f"{party}.log").open("wb") as log:
                self._running[party] = await asyncio.create_subprocess_exec(
                    *command, stdin=PIPE, stdout=PIPE, stderr=log, cwd=ROOT
                )
            self._asking[party, 0] = asyncio.get_running_loop().create_future()
            self._reading.append(asyncio.create_task(self._read(party)))
        await asyncio.gather(*(self._asking[party, 0] for party in self.parties))

    async def _read(self, party: Party) -> None:
        stream = self._running[party].stdout
        while stream is not None and (line := await stream.readline()):
            number, answer = json.loads(line)
            self._asking[party, number].set_result(answer)
        said = (self.made.folder / f"{party}.log").read_text()
        for (whom, _), asking in self._asking.items():
            if whom == party and not asking.done():
                asking.set_exception(AssertionError(f"{party} ended before its time: {said[-2000:]}"))

    async def _asked(self, party: Party, words: str) -> Any:
        pipe, number = self._running[party].stdin, next(self._numbers)
        if pipe is None:
            raise AssertionError  # There is a pipe.
        asking = self._asking[party, number] = asyncio.get_running_loop().create_future()
        pipe.write(f"{number} {words}\n".encode())
        await pipe.drain()
        try:
            return await asking
        finally:
            del self._asking[party, number]

    async def average(self, number: int) -> dict[Party, dict[str, Any]]:
        """Returns the result of a round for each party."""
        ended = await asyncio.gather(*(self._asked(party, f"average {number}") for party in self.parties))
        return dict(zip(self.parties, ended, strict=True))

    async def mail(self, party: Party) -> dict[str, int]:
        """Returns the numbers of rejected messages and excluded senders of a party in the last round, by reason."""
        return dict(await self._asked(party, "mail"))

    async def heard(self, party: Party, of: Party) -> int:
        """Returns the highest round that another party claimed towards this one since the last call."""
        return int(await self._asked(party, f"heard {of}"))

    async def memory(self, party: Party, *, afresh: bool = False) -> float:
        """Returns the peak memory of a party, in MB."""
        return float(await self._asked(party, "memory afresh" if afresh else "memory"))

    async def close(self) -> None:
        """Ends the processes."""
        for process in self._running.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self._running.values():
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()
        await asyncio.gather(*self._reading)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
