"""Rounds between processes that are killed, frozen, restarted and cut off from each other, at random from a seed.

Nothing is measured here but what came of it. Parties and server are processes of their own, with mutual TLS between
them and a link in between that can be cut (`links`). Each writes down what it did (`party`), and when all is
over that is judged (`verdicts`): whether any average is wrong, anybody hung, mass or a result was lost, two messages
had one address, or somebody's vector could be worked out from everything that was ever sent.
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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.faults import party
from benchmarks.faults.links import Links
from benchmarks.faults.verdicts import ALONE, Judge, Verdict
from benchmarks.measure import Row, alone
from tacit.api.federation import Checked
from tacit.core.entropy import SystemEntropy
from tacit.core.suite import Party
from tacit.drivers.network.identity import Credentials
from tacit.drivers.network.roster import Deadlines, RosterFile
from tacit.drivers.network.status import STATUS
from tacit.protocols import find

Say = Callable[[str], None]

PROCESSES = multiprocessing.get_context("forkserver")
"""They are forked from one that has imported everything and has no threads: to import takes longer than a round."""
PROCESSES.set_forkserver_preload(["__main__", party.__name__])
DEADLINES = Deadlines(phase=1.0, start=2.0, connect=1.0)
KINDS = {"kill": 6, "kill two": 1, "freeze": 3, "cut off": 2, "stall": 1, "part": 2}
"""What goes wrong, and how often of all times: processes are killed, and started again with other models to bring, or
frozen; all links of a party are cut, or hold everything back; or those between two parties are cut."""
APART = (1, 3)
"""Rounds from one fault to the next."""
WITHIN = 0.5
"""Seconds within a round at which it strikes, at most."""
LOOK = 0.05
"""Seconds between looks at what the processes have written."""
SILENT = 90.0
"""Seconds without a word after which a party that nothing keeps from going on hangs."""
SHOWN = 3
"""Of what must not happen, how much is written out."""
QUICK = 12
"""Rounds, to see that it all works."""
FIRST, EPHEMERAL = 10_000, 32_768
"""The first port that may be used, and the first of those that the system gives to whoever wants any."""
MOST_HANGS = 20
"""After so many there is nothing more to be learnt."""
LEAVING = 20.0
"""Seconds that all of them together have to leave in the end."""


@dataclass(frozen=True)
class Case:
    """A federation, and what is tried with it."""

    protocol: str
    parties: int
    options: dict[str, Any]
    rounds: int = 200
    limit: float = 1200.0
    """Seconds after which it is over in any case."""


CASES = (
    Case("secagg", 8, {"threshold": 5, "clip": 4.0}),
    Case("cesar", 6, {"masking": 2, "clip": 4.0}),
    Case("pushsum", 6, {"masked": True, "graph": "exponential", "clip": 64.0}),
    Case("admm", 6, {"masked": True, "group_size": "all", "rho": 0.01, "iterations": 4, "clip": 4.0}),
)


@dataclass(frozen=True)
class Struck:
    """A fault, and when it is over."""

    kind: str
    who: tuple[Party, ...]
    until: float
    mend: Callable[[], None]


@dataclass
class Federation:
    """The processes of a case, in a folder, and what has befallen them."""

    case: Case
    folder: Path
    seed: int
    running: dict[Party, BaseProcess] = field(default_factory=dict)
    lives: Counter[Party] = field(default_factory=Counter)
    struck: list[Struck] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    """All that were, with when and in which round."""
    hung: list[str] = field(default_factory=list)
    """Who hung, and in what."""
    rounds: dict[Party, int] = field(default_factory=dict)
    done: set[Party] = field(default_factory=set)
    """Who has begun all rounds,"""
    idle: set[Party] = field(default_factory=set)
    """and who has last found nobody to begin one with."""
    _read: Counter[Party] = field(default_factory=Counter)
    _spoke: dict[Party, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        case, entropy = self.case, SystemEntropy()
        names = tuple(f"p{place}" for place in range(case.parties))
        Checked.of(case.protocol, names, (), 1, case.options)  # as everybody does who joins
        self.everyone = find(case.protocol).everyone(names)
        ports = dict(zip(self.everyone, free_ports(len(self.everyone)), strict=True))
        made = {name: Credentials.generate(name, entropy) for name in self.everyone}
        cards = [made[name].card(f"127.0.0.1:{port}") for name, port in ports.items()]
        roster = RosterFile.new("faults", case.protocol, dict(case.options), entropy, cards)
        self.roster = roster = msgspec.structs.replace(roster, deadlines=DEADLINES)
        pairs = [(one, other) for one in self.everyone for other in roster.terms.peers(one) if one != other]
        self.links = Links(pairs, ports)
        for name in self.everyone:
            # Addresses are not part of what is agreed, so everybody may have others on its roster.
            there = {other: port for (one, other), port in self.links.ports.items() if one == name}
            cards = [made[each].card(f"127.0.0.1:{there.get(each, ports[each])}") for each in self.everyone]
            msgspec.structs.replace(roster, parties=tuple(cards)).save(self.folder / f"{name}.toml")
            made[name].create(self.folder / f"{name}.identity")
        self.chance = random.Random(f"{case.protocol} {self.seed}")  # noqa: S311 (faults, not secrets)

    # --- processes -------------------------------------------------------------------------------------------------

    def start(self, name: Party) -> None:
        """Starts a process, for another life."""
        self.lives[name] += 1
        given = str(self.folder), name, self.lives[name], self.case.rounds
        self.running[name] = process = PROCESSES.Process(target=party.run, args=given, name=name)
        process.start()
        self._spoke[name] = time.monotonic()

    def kill(self, name: Party) -> None:
        """Ends a process without a word."""
        self.running[name].kill()
        self.running[name].join()

    def close(self) -> None:
        """Ends everything."""
        for name in self.running:
            self.kill(name)
        self.links.close()

    # --- faults ----------------------------------------------------------------------------------------------------

    def strike(self) -> None:
        """Has something go wrong for somebody who is well, for a while. No more than two things at once."""
        chance, now = self.chance, time.monotonic()
        ill = {name for each in self.struck for name in each.who}
        well = [name for name in self.everyone if name not in ill]
        near = [pair for pair in self.links.ports if not ill.intersection(pair)]
        if len(self.struck) >= 2 or not near:
            return
        kind = chance.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        who = chance.choice(near) if kind == "part" else tuple(chance.sample(well, 2 if kind == "kill two" else 1))
        lasts, mends = self._struck(kind, who)
        self.struck.append(Struck(kind, who, now + lasts, mends))
        self.faults.append({"kind": kind, "who": who, "seconds": round(lasts, 2), "round": self.round})

    def _struck(self, kind: str, who: tuple[Party, ...]) -> tuple[float, Callable[[], None]]:
        """Does it, and returns for how long and what undoes it."""
        chance, phase, start = self.chance, DEADLINES.phase, DEADLINES.start
        if kind in ("kill", "kill two"):
            for name in who:
                self.kill(name)
            return chance.choice((0.0, chance.uniform(0, 2 * start))), lambda: self._start_all(who)
        if kind == "freeze":
            number = self.running[who[0]].pid or 0
            os.kill(number, signal.SIGSTOP)
            return chance.uniform(1.2 * phase, 3 * start), lambda: os.kill(number, signal.SIGCONT)
        links = self.links.between(*who)
        self.links.have(links, "stall" if kind == "stall" else "cut")
        return chance.uniform(0.3 * phase, 3 * start), lambda: self.links.have(links, "mend")

    def _start_all(self, names: Iterable[Party]) -> None:
        for name in names:
            self.start(name)

    def mend(self, *, everything: bool = False) -> None:
        """Undoes what has lasted long enough, or all of it."""
        now = time.monotonic()
        for each in [each for each in self.struck if everything or each.until <= now]:
            self.struck.remove(each)
            each.mend()
            for name in each.who:
                self._spoke[name] = now

    # --- what is going on ------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The last round that anybody began."""
        return max(self.rounds.values(), default=0)

    def look(self) -> None:
        """Reads what was written since the last look, and notices who is gone that nobody killed, or hangs."""
        now = time.monotonic()
        for name in self.everyone:
            for line in self._news(name):
                self._spoke[name] = now
                if "round" in line:
                    self.rounds[name] = max(self.rounds.get(name, 0), line["round"])
                if line["what"] == "done":
                    self.done.add(name)
                (self.idle.add if line["what"] == "waited" else self.idle.discard)(name)
            if any(name in each.who for each in self.struck):
                continue
            ended = not self.running[name].is_alive()
            if ended or (now - self._spoke[name] > SILENT and name not in self.done):
                self.hung.append(self._errors(name) if ended else self._status(name))
                if len(self.hung) > MOST_HANGS:
                    raise AssertionError(f"nothing goes on: {self.hung[0]}")
                self.kill(name)
                self.start(name)

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
        """Runs all rounds, with faults until the last few, and has everybody leave."""
        case, begun = self.case, time.monotonic()
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
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                self.hung.append(f"in the end {self._status(name)}")


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens at, and that the system gives to nobody who does not ask for them.

    A party that is down has none of its own, and finds it taken otherwise when it is back.
    """
    found: dict[int, None] = {}
    while len(found) < count:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", SystemEntropy().below(EPHEMERAL - FIRST) + FIRST))
            found[tried.getsockname()[1]] = None
    return list(found)


def happened(case: Case, folder: Path, seed: int, say: Say = lambda _: None) -> Verdict:
    """Runs a case in a folder that is empty, leaves there what happened, and returns what is to be said of it."""
    federation, begun = Federation(case, folder, seed), time.monotonic()
    try:
        federation.run(say)
    finally:
        federation.close()
        run = {"hung": federation.hung, "faults": federation.faults, "seconds": time.monotonic() - begun}
        (folder / "run.json").write_text(json.dumps({"seed": seed, "case": asdict(case), **run}, indent=1))
    say(f"{case.protocol}: judging {federation.round} rounds")
    return Judge(folder).judged()


# --- rows ----------------------------------------------------------------------------------------------------------


def rows(quick: bool = False, say: Say = lambda _: None, seed: int | None = None) -> Iterator[Row]:
    """Yields what came of each case. What must not happen has a target of 0, whatever the size."""
    drawn = int.from_bytes(SystemEntropy().bytes(4)) if seed is None else seed
    for case in CASES:
        folder = Path(tempfile.mkdtemp(prefix=f"tacit-faults-{case.protocol}-"))
        tried = replace(case, rounds=QUICK) if quick else case
        verdict = happened(tried, folder, drawn, say)
        run = json.loads((folder / "run.json").read_text())
        found = list(_rows(tried, verdict, run))
        if all(row.met is not False for row in found):
            shutil.rmtree(folder)
        else:
            found[0] = replace(found[0], note=f"{found[0].note}; everything is left in {folder}")
        yield from found


def _rows(case: Case, verdict: Verdict, run: dict[str, Any]) -> Iterator[Row]:
    server = " and a server" if find(case.protocol).server is not None else ""
    name = f"{case.protocol}, {case.parties} parties{server}"

    def counted(what: str, count: int, unit: str, note: str = "") -> Row:
        return alone(f"{name}: {what}", count, unit, note)

    def none(what: str, found: Sequence[str], unit: str, note: str) -> Row:
        seen = "; ".join([note, *found[:SHOWN]])
        return Row(f"{name}: {what}", len(found), None, unit, None, "none", not found, seen)

    options = ", ".join(f"{key}={value}" for key, value in case.options.items())
    note = f"{options}; seed {run['seed']}; {run['seconds']:.0f} s; deadlines: {_for_people(DEADLINES)}"
    enough = verdict.rounds >= case.rounds
    yield Row(f"{name}: rounds", verdict.rounds, None, "", None, f"at least {case.rounds}", enough, note)
    kinds = Counter(each["kind"] for each in run["faults"])
    yield counted("faults", len(run["faults"]), "", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    yield counted("finished", verdict.finished, "rounds", "somebody has an average")
    for why, count in verdict.aborted.most_common():
        yield counted(
            f"aborted, {why}",
            count,
            "rounds",
            "nobody has an average; the reason that most gave who did not only hear of it",
        )
    for why, count in verdict.waited.most_common():
        yield counted(f"waited in vain, {why}", count, "times", "no round was begun")
    yield counted(
        "cut off, and gone on with", verdict.resumed, "times", "with what was brought before, by another life"
    )
    judged = f"of {verdict.endings} endings"
    yield none("wrong averages", verdict.wrong, "", judged)
    yield none(
        "hangs",
        verdict.hung,
        "",
        f"silent for {SILENT:g} s, ended by itself, no ending of a round, or more than {ALONE} rounds with nobody",
    )
    if case.protocol == "pushsum":
        yield none("mass error", verdict.mass, "", "states and what is under way add up to all that was brought")
    yield none("results lost", verdict.lost, "", "what was told, or on disk, is there after a kill and in the end")
    yield none("another model in a round that was begun", verdict.changed, "", "")
    said = f"{verdict.addresses} addresses, {verdict.said} times something was said there"
    yield none("addresses with two messages", verdict.twice, "", said)
    exposures = (
        f"to any single party or the server, by an audit of all that was said in {verdict.replayed} rounds, on "
        "unknowns, in the order in which it was heard; vectors are new in every round, as they were"
    )
    if verdict.replayed < verdict.rounds:
        exposures += "; and of all rounds by the recurrence that all states were found to follow"
    if verdict.standing is not None:
        exposures += f"; had nobody's model ever changed it would be {len(verdict.standing)}"
    yield none("exposures", verdict.exposed, "", exposures)
    yield none("rounds that no audit could follow", verdict.strayed, "", "unknowns went the same way as numbers")


def _for_people(deadlines: Deadlines) -> str:
    return ", ".join(f"{name} {getattr(deadlines, name):g} s" for name in deadlines.__struct_fields__)
