"""Fault run: rounds between processes that are killed, frozen, restarted and disconnected, at random from a seed.

Nothing is measured; only the results are checked. Parties and server are separate processes with mutual TLS, and relays
between them that can be cut (`links`). Each process logs what it does (`party`), and `verdicts` judges the logs at the
end: whether an average is wrong, a party hung, mass or a result was lost, two messages had one address, or a vector
could be computed from everything that was ever sent.
"""

import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.faults import party
from benchmarks.faults.links import Links, free_ports
from benchmarks.faults.rows import rows_of
from benchmarks.faults.stalls import KILLED, Pulse, is_averaged
from benchmarks.faults.verdicts import Judge, Verdict
from benchmarks.measure import Row
from tacit.api.checked_run import CheckedRun
from tacit.core.entropy import SystemEntropy
from tacit.core.suite import SERVER, Party
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.net.observability.status import STATUS
from tacit.protocols import find

Say = Callable[[str], None]

PROCESSES = multiprocessing.get_context("forkserver")
"""Processes are forked from one that has imported everything and has no threads, because importing takes longer than a
round."""
PROCESSES.set_forkserver_preload(["__main__", party.__name__])
DEADLINES = Deadlines(phase=1.0, start=2.0, connect=1.0)
KINDS = {"kill": 6, "kill two": 1, "freeze": 3, "cut off": 2, "stall": 1, "part": 2}
"""Kinds of faults with their relative frequencies: processes are killed and restarted with other models, or frozen; all
links of a party are cut or stalled; or the links between two parties are cut."""
HOW_MANY = {"kill two": 2, "kill relay": 0}
"""Whom a fault strikes, where that is not one party; 0 stands for everybody."""
RELAY = "relay"
APART = (1, 3)
"""Number of rounds between two faults."""
WITHIN = 0.5
"""The largest number of seconds within a round at which a fault begins."""
LOOK = 0.05
"""Seconds between two readings of the logs."""
BETWEEN = 12
"""Number of faults after which everything is mended until all parties were averaged, so that no later fault excuses a
party that fails to recover."""
CALM = 60.0
"""Seconds after which faults continue in any case."""
QUICK = 12
"""Number of rounds of a quick run."""
MOST_HANGS = 20
"""Number of hangs after which the run is stopped."""
LEAVING = 20.0
"""Seconds that all processes together have to leave at the end."""


@dataclass(frozen=True)
class Case:
    """A federation, and the faults to inject."""

    protocol: str
    parties: int
    options: dict[str, Any]
    rounds: int = 200
    limit: float = 1200.0
    """Seconds after which the run ends in any case."""
    outbound: bool = False
    """Whether parties only dial out: to the server or, without one, to a relay, which is killed too."""


CASES = (
    Case("secagg", 8, {"threshold": 5, "clip": 4.0}),
    Case("cesar", 6, {"masking": 2, "clip": 4.0}),
    Case("pushsum", 6, {"masked": True, "graph": "exponential", "clip": 64.0}),
    Case("admm", 6, {"masked": True, "group_size": "all", "rho": 0.01, "iterations": 4, "clip": 4.0}),
)


@dataclass(frozen=True)
class Struck:
    """A fault, and the time at which it ends."""

    kind: str
    who: tuple[Party, ...]
    until: float
    mend: Callable[[], None]
    noted: dict[str, Any]
    """Log entry of the fault, by the clock that all processes use."""


@dataclass
class Federation:
    """The processes of a case, in a folder, with the faults so far."""

    case: Case
    folder: Path
    seed: int
    running: dict[Party, BaseProcess] = field(default_factory=dict)
    lives: Counter[Party] = field(default_factory=Counter)
    struck: list[Struck] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    """All faults, with their times and rounds."""
    hung: list[str] = field(default_factory=list)
    """Parties that hung, with the reason."""
    rounds: dict[Party, int] = field(default_factory=dict)
    done: set[Party] = field(default_factory=set)
    """Parties that have begun all rounds."""
    idle: set[Party] = field(default_factory=set)
    """Parties that last found no other party to begin a round with."""
    _read: Counter[Party] = field(default_factory=Counter)
    _pulses: dict[Party, Pulse] = field(default_factory=lambda: defaultdict(lambda: Pulse(time.monotonic)))
    _averaged: dict[Party, float] = field(default_factory=dict)
    _calm: float | None = None
    """Start of the current calm period; None outside of one."""
    _before: int = 0
    """Number of faults before the last calm period."""

    def __post_init__(self) -> None:
        case, entropy = self.case, SystemEntropy()
        names = tuple(f"p{place}" for place in range(case.parties))
        CheckedRun.of(case.protocol, names, (), 1, case.options)  # Every joining party makes the same check.
        self.everyone = find(case.protocol).everyone(names)
        self.relay = RELAY if case.outbound and SERVER not in self.everyone else ""
        known = (*self.everyone, self.relay) if self.relay else self.everyone
        ports = dict(zip(known, free_ports(len(known)), strict=True))
        self.port = ports[known[-1]]
        made = {name: Credentials.generate(name, entropy) for name in known}
        cards = [made[name].card(f"127.0.0.1:{ports[name]}") for name in self.everyone]
        roster = RosterFile.new("faults", case.protocol, dict(case.options), entropy, cards)
        self.roster = roster = msgspec.structs.replace(roster, deadlines=DEADLINES)
        pairs = [(one, other) for one in self.everyone for other in roster.terms.peers(one) if one != other]
        if case.outbound:
            pairs = [(name, known[-1]) for name in names]  # the server, or the relay, is the last
        self.links = Links(pairs, ports)
        for name in known:
            # Addresses are not part of the agreement, so rosters may differ in them.
            there = {other: port for (one, other), port in self.links.ports.items() if one == name}
            cards = [
                made[each].card("" if case.outbound and each in names else f"127.0.0.1:{there.get(each, ports[each])}")
                for each in known
            ]
            told = msgspec.structs.replace(
                roster, parties=tuple(cards[: len(self.everyone)]), relays=tuple(cards[len(self.everyone) :])
            )
            told.save(self.folder / f"{name}.toml")
            made[name].create(self.folder / f"{name}.identity")
        self.chance = random.Random(f"{case.protocol} {self.seed}")  # noqa: S311 (For faults, not secrets)

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, name: Party) -> None:
        """Starts a party's process, again if necessary."""
        self.lives[name] += 1
        given = str(self.folder), name, self.lives[name], self.case.rounds
        self.running[name] = process = PROCESSES.Process(target=party.run, args=given, name=name)
        process.start()
        self._pulses[name].started()

    def start_relay(self) -> None:
        """Starts the relay, and waits until it can be called."""
        self.running[self.relay] = process = PROCESSES.Process(
            target=party.run_relay, args=(str(self.folder), self.relay), name=self.relay
        )
        process.start()
        until = time.monotonic() + LEAVING
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                return
            time.sleep(LOOK)
        raise AssertionError("the relay does not start")

    def kill(self, name: Party) -> None:
        """Kills a process."""
        self.running[name].kill()
        self.running[name].join()

    def close(self) -> None:
        """Ends everything."""
        for name in self.running:
            self.kill(name)
        self.links.close()

    # --- faults ----------------------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Begins a fault at a healthy party. At most two faults are active at once."""
        chance, now = self.chance, time.monotonic()
        ill = {name for each in self.struck for name in each.who}
        well = [name for name in self.everyone if name not in ill]
        near = [pair for pair in self.links.ports if not ill.intersection(pair)]
        if len(self.struck) >= 2 or not near:
            return
        kinds = KINDS | ({"kill relay": 3} if self.relay and not ill else {})
        kind = chance.choices(tuple(kinds), tuple(kinds.values()))[0]
        if kind == "kill relay":
            well = list(self.everyone)
        who = chance.choice(near) if kind == "part" else tuple(chance.sample(well, HOW_MANY.get(kind, 1) or len(well)))
        at = time.time()
        lasts, mends = self._struck(kind, who)
        noted = {"kind": kind, "who": who, "seconds": round(lasts, 2), "round": self.round, "at": at, "over": None}
        self.struck.append(Struck(kind, who, now + lasts, mends, noted))
        self.faults.append(noted)

    def _struck(self, kind: str, who: tuple[Party, ...]) -> tuple[float, Callable[[], None]]:
        """Begins a fault, and returns its duration and the function that undoes it."""
        chance, phase, start = self.chance, DEADLINES.phase, DEADLINES.start
        if kind in ("kill", "kill two"):
            for name in who:
                self.kill(name)
            return chance.choice((0.0, chance.uniform(0, 2 * start))), lambda: self._start_all(who)
        if kind == "kill relay":
            self.kill(self.relay)
            return chance.choice((0.0, chance.uniform(0, 2 * start))), self.start_relay
        if kind == "freeze":
            number = self.running[who[0]].pid or 0
            os.kill(number, signal.SIGSTOP)
            return chance.uniform(1.2 * phase, 3 * start), lambda: self._thaw(who[0], number)
        links = self.links.between(*who)
        self.links.have(links, "stall" if kind == "stall" else "cut")
        return chance.uniform(0.3 * phase, 3 * start), lambda: self.links.have(links, "mend")

    def _start_all(self, names: Iterable[Party]) -> None:
        for name in names:
            self.start(name)

    def _thaw(self, name: Party, number: int) -> None:
        os.kill(number, signal.SIGCONT)
        self._pulses[name].thawed()

    def mend(self, *, everything: bool = False) -> None:
        """Undoes faults that have lasted long enough, or all of them."""
        now = time.monotonic()
        for each in [each for each in self.struck if everything or each.until <= now]:
            self.struck.remove(each)
            each.mend()
            each.noted["over"] = time.time()

    def calm(self) -> bool:
        """Says whether there is a calm period: after some faults all are mended until all parties were averaged with
        others."""
        if self._calm is None and len(self.faults) - self._before >= BETWEEN:
            self.mend(everything=True)
            self._calm, self._before = time.time(), len(self.faults)
        if self._calm is not None:
            missing = set(self.everyone) - self.done - {name for name, at in self._averaged.items() if at > self._calm}
            if not missing or time.time() - self._calm > CALM:
                self._calm = None
        return self._calm is not None

    # --- observation -----------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The last round that any party began."""
        return max(self.rounds.values(), default=0)

    def look(self) -> None:
        """Reads new log lines, and notices processes that ended without being killed or make no progress."""
        for name in self.everyone:
            for line in self._news(name):
                self._take(name, line)
            # A party whose links are cut continues alone.
            if any(name in each.who and each.kind in (*KILLED, "freeze") for each in self.struck):
                continue
            ended = not self.running[name].is_alive()
            if ended or self._pulses[name].stopped:
                self.hung.append(self._errors(name) if ended else self._status(name))
                if len(self.hung) > MOST_HANGS:
                    raise AssertionError(f"nothing goes on: {self.hung[0]}")
                self.kill(name)
                self.start(name)

    def _take(self, name: Party, line: dict[str, Any]) -> None:
        what = line["what"]
        self._pulses[name].heard(line)
        if "round" in line:
            self.rounds[name] = max(self.rounds.get(name, 0), line["round"])
        if what == "done":
            self.done.add(name)
        if what == "ends" and is_averaged(name, line):
            self._averaged[name] = line["at"]
        if what != "waits":
            (self.idle.add if what == "waited" else self.idle.discard)(name)

    def _news(self, name: Party) -> Iterator[dict[str, Any]]:
        path = self.folder / f"{name}.log"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read[name])
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        yield from map(json.loads, whole.splitlines())

    def _status(self, name: Party) -> str:
        path = self.folder / f"{name}.rounds" / STATUS
        return f"{name} hangs: {path.read_text() if path.exists() else 'it never said anything'}"

    def _errors(self, name: Party) -> str:
        path = self.folder / f"{name}.err"
        return f"{name} ended by itself: {path.read_text()[-2000:] if path.exists() else 'without a word'}"

    # --- from the first round to the last --------------------------------------------------------------------------

    def run(self, say: Say) -> None:
        """Runs all rounds, with faults until the last few, and lets all parties leave."""
        case, begun = self.case, time.monotonic()
        if self.relay:
            self.start_relay()
        for name in self.everyone:
            self.start(name)
        calm = case.rounds - APART[1]
        due, strikes = self.chance.randint(*APART) + 1, 0.0
        while time.monotonic() - begun < case.limit:
            time.sleep(LOOK)
            self.mend()
            self.look()
            say(f"{case.protocol}: round {self.round} of {case.rounds}, {len(self.faults)} faults, seed {self.seed}")
            now = time.monotonic()
            if self.round >= calm:
                self.mend(everything=True)
                if self.done and not set(self.everyone) - self.done - self.idle:
                    break
            elif self.calm():
                due, strikes = self.round + self.chance.randint(*APART), 0.0
            elif self.round >= due:
                due, strikes = self.round + self.chance.randint(*APART), now + self.chance.uniform(0, WITHIN)
            if strikes and now >= strikes and self.round < calm:
                strikes = 0.0
                self.strike()
        else:
            self.hung += [self._status(name) for name in self.everyone if name not in self.done]
        self.mend(everything=True)
        self._leave()

    def _leave(self) -> None:
        (self.folder / "stop").touch()
        until = time.monotonic() + LEAVING
        for name, process in self.running.items():
            if name == self.relay:
                continue  # it keeps nothing, and is killed like any other time
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                self.hung.append(f"in the end {self._status(name)}")


def run_case(case: Case, folder: Path, seed: int, say: Say = lambda _: None) -> Verdict:
    """Runs a case in an empty folder, leaves the logs there, and returns the verdict."""
    federation, begun = Federation(case, folder, seed), time.time()
    try:
        federation.run(say)
    finally:
        federation.close()
        run = {"hung": federation.hung, "faults": federation.faults, "begun": begun, "seconds": time.time() - begun}
        (folder / "run.json").write_text(json.dumps({"seed": seed, "case": asdict(case), **run}, indent=1))
    say(f"{case.protocol}: judging {federation.round} rounds")
    return Judge(folder).judged()


# --- rows ----------------------------------------------------------------------------------------------------------


def rows(quick: bool = False, say: Say = lambda _: None, seed: int | None = None) -> Iterator[Row]:
    """Yields the results of each case. Violations have a target of 0 for every size."""
    drawn = int.from_bytes(SystemEntropy().bytes(4)) if seed is None else seed
    for case in CASES:
        folder = Path(tempfile.mkdtemp(prefix=f"tacit-faults-{case.protocol}-"))
        tried = replace(case, rounds=QUICK) if quick else case
        verdict = run_case(tried, folder, drawn, say)
        run = json.loads((folder / "run.json").read_text())
        found = list(rows_of(verdict, run, DEADLINES))
        if all(row.met is not False for row in found):
            shutil.rmtree(folder)
        else:
            found[0] = replace(found[0], note=f"{found[0].note}; everything is left in {folder}")
        yield from found
