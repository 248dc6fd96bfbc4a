"""Run of all attacks on a federation: the answer to each attempt, and its effect on honest parties.

`python -m benchmarks intruders` runs honest parties in separate processes, over real connections. It makes the attempts
of outsiders and of a malicious party on the roster; lets malicious servers lie to real users; passes a million damaged
frames to the code that reads frames; and runs the coverage-guided fuzzer if it is installed.
"""

import argparse
import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzz.frames import fuzz_frames
from rich.console import Console
from rich.table import Table

from benchmarks.intruders import insiders, lying_servers, strangers
from benchmarks.intruders.attempts import MORE, WITH_KEYS, Attempt, Result, Scene, try_attempt
from benchmarks.intruders.honest_parties import GONE, ROOT, Federation, Processes, memory
from tacit.core.suite import SERVER, Party
from tacit.net.membership.roster import Deadlines

RESULTS = ROOT / "benchmarks" / "results" / "intruders.json"
NAMES = ("p0", "p1", "p2", WITH_KEYS)
DEADLINES = Deadlines(phase=6.0, start=8.0, connect=5.0)
LONG, FEW = 300_000, 50
"""Lengths of a vector whose message takes several pieces, and of a short one."""
FRAMES, GUIDED = 1_000_000, 310
"""Number of damaged frames, and seconds of the coverage-guided fuzzer."""
Say = Callable[[str], None]
Groups = Sequence[tuple[str, Sequence[Attempt]]]

STRANGERS: Groups = (
    ("a stranger says", strangers.PLAIN),
    ("a stranger shows", strangers.KEYS),
    ("strangers open", strangers.FLOODS),
)
WITH_A_KEY: Groups = (
    ("a parcel,", insiders.PARCELS),
    ("envelopes,", insiders.ENVELOPES),
    ("hellos,", insiders.HELLOS),
    ("too much:", insiders.TOO_MUCH),
)


@dataclass
class IntruderRow:
    """One result in the form of a table row."""

    where: str
    what: str
    answers: dict[str, int]
    honest: str
    """Effect on honest parties."""
    held: bool
    memory: tuple[float, float] | None = None
    """Peak memory in MB, without and with the attempt."""
    more: dict[str, Any] = field(default_factory=dict)


# --- over the network ----------------------------------------------------------------------------------------------


async def on_the_wire(protocol: str, target: Party, entries: int, groups: Groups, say: Say) -> list[IntruderRow]:
    """Returns the results of every attempt on a party of a federation."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"threshold": 3} if protocol == "secagg" else {}
        made = Federation.of(Path(folder), protocol, NAMES, DEADLINES, **options)
        company = Processes(made, [each for each in made.credentials if each not in (WITH_KEYS, GONE)], entries)
        node = made.node(WITH_KEYS)
        try:
            await company.start()
            await node.start()
            scene, found, number = Scene(company, target, node), [], 0
            for _ in range(2):  # Undisturbed rounds for comparison.
                number += 1
                alone = await try_attempt(scene, Attempt("nothing", lambda scene: scene.over.wait(), ("",)), number, "")
                if alone.right < alone.honest:
                    raise AssertionError(f"nobody disturbs them, and yet: {alone.errors}")
            for kind, attempts in groups:
                for attempt in attempts:
                    number += 1
                    say(f"{protocol}, {target}: {kind} {attempt.name}")
                    result = await try_attempt(scene, attempt, number, kind, alone.peak)
                    found.append(_row(f"{target} of {protocol}", result))
                    say(f"{result.name}: {result.answers} {found[-1].honest}")
            return found
        finally:
            await node.close()
            await company.close()


def _row(where: str, result: Result) -> IntruderRow:
    honest = f"{result.right} of {result.honest} averaged right"
    if result.stopped:
        honest = f"{len(result.errors)} of {result.honest} stopped, and told by whom: {result.errors[0]}"
    more = {"refused": result.refused, "errors": result.errors}
    memory_ = result.before, result.peak
    return IntruderRow(where, f"{result.kind} {result.name}", result.answers, honest, result.held, memory_, more)


# --- malicious servers ---------------------------------------------------------------------------------------------


def liars(say: Say, quick: bool = False) -> Iterator[IntruderRow]:
    """Yields the reactions of users."""
    where = "users of secagg"
    for each in lying_servers.stories(["U3 signed by nobody"] if quick else list(lying_servers.VARIANTS)):
        say(f"lying servers: {each.name}")
        refused = _count_errors(each.told.errors.values())
        without = len(each.without.shares)
        if each.smallest:
            honest = f"no effect: on symbols, the server knows a sum of {each.smallest} users, as it may, and no less"
            held = each.smallest >= each.allowed
        else:
            honest, held = "no shares were given", not each.told.shares
        more = {"without the precaution": f"{without} users gave their shares", "shares": len(each.told.shares)}
        what = f"a lie for users with “{each.name}”: {each.told.name}"
        yield IntruderRow(
            where,
            what,
            refused,
            f"{honest}; without the precaution {without} users gave theirs",
            held and without > 0,
            None,
            more,
        )
    for lie in lying_servers.LIES[:2] if quick else lying_servers.LIES:
        say(f"lying servers: {lie.name}")
        with tempfile.TemporaryDirectory() as folder:
            told = asyncio.run(lying_servers.told_lie(lie, Path(folder)))
        users = {party: each for party, each in told.endings.items() if party != SERVER}
        if lie.rounds > 1:
            right = sum(each["right"] and "p2" not in each["contributors"] for each in users.values())
            yield IntruderRow(
                where,
                lie.name,
                {"behind": 1},
                f"p2 was left out; {right} of {len(users)} averaged right",
                right == len(users),
            )
            continue
        held = len(told.errors) == len(users) and not told.shares and all(lie.words in e for e in told.errors.values())
        yield IntruderRow(where, lie.name, _count_errors(told.errors.values()), "no shares were given", held)


def _count_errors(errors: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for error in errors:
        words = re.sub(r"\bp\d\b", "p…", error)
        found[words] = found.get(words, 0) + 1
    return found


# --- frames --------------------------------------------------------------------------------------------------------


def run_damaged(count: int, seed: int, say: Say) -> Iterator[IntruderRow]:
    """Yields the results for damaged frames, by the code that read them."""
    with tempfile.TemporaryDirectory() as folder:
        fuzz_frames(2000, seed, Path(folder) / "first")  # Fills caches before memory is measured.
        before = memory(afresh=True)
        start = time.process_time()
        seen = fuzz_frames(
            count, seed + 1, Path(folder) / "then", told=lambda done: say(f"frames: {done:,} of {count:,}")
        )
        rate = count / (time.process_time() - start)
    usage = before, memory()
    for name, each in seen.items():
        yield IntruderRow(
            "frames", f"{each.frames:,} to {name}", dict(each.outcomes.most_common()), "nothing was raised", True
        )
    what = f"{count:,} in all, {rate:,.0f} a second of CPU time"
    yield IntruderRow("frames", what, {}, "nothing was raised", usage[1] <= usage[0] + MORE, usage, {"rate": rate})


def run_guided(seconds: int) -> IntruderRow:
    """Returns the findings of the coverage-guided fuzzer within some seconds."""
    with tempfile.TemporaryDirectory() as corpus:
        command = [sys.executable, "-m", "fuzz.envelopes", corpus, f"-max_total_time={seconds}", "-rss_limit_mb=2000"]
        ran = subprocess.run([*command, f"-artifact_prefix={corpus}/"], cwd=ROOT, capture_output=True, text=True)  # noqa: S603
        said = ran.stderr + ran.stdout
    runs = re.findall(r"Done (\d+) runs in (\d+) second", said)
    last = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", said)
    held = ran.returncode == 0 and bool(runs) and bool(last)
    if not held:
        return IntruderRow("frames", "guided by coverage", {}, f"it found something: {said[-1500:]}", False)
    (count, took), (edges, features, inputs) = runs[-1], last[-1]
    figures = {"executions": int(count), "seconds": int(took), "corpus": int(inputs)}
    figures |= {"edges": int(edges), "features": int(features)}
    return IntruderRow("frames", "guided by coverage (atheris)", figures, "nothing was raised", held, None, figures)


# --- all attacks ---------------------------------------------------------------------------------------------------


def rows(quick: bool, frames: int, seconds: int, say: Say) -> Iterator[IntruderRow]:
    """Yields all results."""
    some: Groups = [(kind, attempts[:2]) for kind, attempts in (*STRANGERS, *WITH_A_KEY)]
    entries = FEW if quick else LONG
    yield from asyncio.run(on_the_wire("secagg", SERVER, entries, some if quick else (*STRANGERS, *WITH_A_KEY), say))
    if not quick:
        # Users of secagg send no messages to each other, so there are no envelopes between them to damage.
        quiet = [(kind, attempts) for kind, attempts in WITH_A_KEY if attempts is not insiders.ENVELOPES]
        yield from asyncio.run(on_the_wire("secagg", "p0", FEW, (*STRANGERS, *quiet), say))
        going_on = [(kind, [each for each in attempts if not each.may_stop]) for kind, attempts in WITH_A_KEY]
        yield from asyncio.run(on_the_wire("gossip", "p0", LONG, going_on, say))
        for kind, attempts in WITH_A_KEY:
            for each in attempts:
                if each.may_stop:
                    yield from asyncio.run(on_the_wire("gossip", "p0", FEW, [(kind, [each])], say))
    yield from liars(say, quick)
    yield from run_damaged(frames, 0, say)
    if seconds and importlib.util.find_spec("atheris") is None:
        print("\nthe guided fuzzer was not run: pip install atheris", file=sys.stderr)
    elif seconds:
        say(f"the guided fuzzer, for {seconds} s")
        yield run_guided(seconds)


def make_table(found: Sequence[IntruderRow]) -> Table:
    """Returns the printed table."""
    table = Table("where", "what is tried", "answered", "honest parties", "MB before, with", "held", show_lines=True)
    for row in found:
        answers = "; ".join(f"{answer}: {times:,}" for answer, times in row.answers.items())
        usage = "" if row.memory is None else f"{row.memory[0]:,.0f}, {row.memory[1]:,.0f}"
        table.add_row(row.where, row.what, answers, row.honest, usage, "[green]yes" if row.held else "[bold red]no")
    return table


def main(arguments: Sequence[str]) -> int:
    """Returns 0, or 1 if an attempt succeeded or an honest party was harmed."""
    parser = argparse.ArgumentParser("python -m benchmarks intruders", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few of each kind, to see that it all works")
    parser.add_argument("--frames", type=int, help=f"how many are fuzzed ({FRAMES:,})")
    parser.add_argument(
        "--guided", type=int, metavar="SECONDS", help=f"how long, with atheris; 0 for not at all ({GUIDED})"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="PATH", help="where to write (%(default)s)")
    given = parser.parse_args(arguments)
    frames = given.frames or (5_000 if given.quick else FRAMES)
    seconds = (0 if given.quick else GUIDED) if given.guided is None else given.guided

    def say(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)

    found = []
    for row in rows(given.quick, frames, seconds, say):
        found.append(row)
        if not row.held:
            print(f"\n{row.where}: {row.what}: {row.answers}; {row.honest} {row.more}", file=sys.stderr, flush=True)
    say("")
    from benchmarks.__main__ import machine

    about = {"command": " ".join(["python -m benchmarks intruders", *arguments]), "machine": machine()}
    given.json.write_text(json.dumps(about | {"rows": [asdict(row) for row in found]}, indent=2) + "\n")
    Console(width=None if sys.stdout.isatty() else 180).print(make_table(found), f"\nAll of it: {given.json}")
    return 0 if all(row.held for row in found) else 1
