"""Long federations: rounds while nodes are killed and restarted, in which nothing grows that must not.

`TACIT_SOAK=60` runs for an hour. What was measured is printed.
"""

import os
import random
import time
from pathlib import Path
from statistics import median

import pytest

from support.federations import Made
from support.outbound import outbound
from support.releases import Release
from support.serviced_machines import assert_right, machines
from tacit.core.suite import SERVER
from tacit.net.membership.roster import Deadlines

pytestmark = pytest.mark.slow

MINUTES = float(os.environ.get("TACIT_SOAK", "3"))
PARTIES = ("p0", "p1", "p2", "p3", "p4")
STEADY = {"secagg": (SERVER, "p0"), "gossip": ("p0",)}
"""Nodes that run all the time, so that growth would be seen. The others are killed."""
PAUSE = (0.5, 4.0)
"""Seconds between two restarts."""
MOST = {"memory": (1.1, 8e6), "files": (1.0, 12), "threads": (1.0, 4), "folder": (1.5, 1e6)}
"""Most that the last third may have, in multiples of the first third and beyond them."""


def measure(process, folder):
    """Returns what a process and its folder take."""
    place = Path("/proc") / str(process.pid)
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
    return {
        "memory": int(status["VmRSS"].split()[0]) * 1024,
        "files": len(list((place / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "folder": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    }


@pytest.mark.parametrize("protocol", STEADY)
def test_nothing_grows_while_nodes_are_killed_and_restarted(protocol, tmp_path, capsys):
    settings = {"threshold": 3} if protocol == "secagg" else {}
    made = Made.of(tmp_path, protocol, PARTIES, Deadlines(phase=2.0, start=20.0, connect=2.0), **settings)
    server = (SERVER,) if protocol == "secagg" else ()
    made.roster = outbound(made, *(server or PARTIES[:2]))
    chance, here, taken, struck = random.Random(5), Release.here(), {name: [] for name in STEADY[protocol]}, 0
    with machines(made) as found:
        found.start(here, *server, *PARTIES)
        found.until_further(*PARTIES)
        end = time.monotonic() + 60 * MINUTES / len(STEADY)
        while time.monotonic() < end:
            time.sleep(chance.uniform(*PAUSE))
            name = chance.choice([each for each in PARTIES if each not in STEADY[protocol]])
            if chance.random() < 0.7:
                found.kill(name)
            else:
                found.stop(name)
            found.start(here, name)
            struck += 1
            for each, measured in taken.items():
                measured.append(measure(found.running[each], tmp_path / f"{each}.rounds"))
        found.until_further(*PARTIES)  # everybody is back
        folders = {name: measure(found.running[name], tmp_path / f"{name}.rounds")["folder"] for name in PARTIES}
        found.stop(*PARTIES)
        found.stop(*server)
    rounds = len(found.rounds("p0"))
    assert_right({name: found.told(name) for name in PARTIES}, bool(server))
    grown = {}
    for name, measured in taken.items():
        third = max(len(measured) // 3, 1)
        for what, (times, beyond) in MOST.items():
            first, last = (median(each[what] for each in part) for part in (measured[:third], measured[-third:]))
            grown[name, what] = (first, last)
            assert last <= first * times + beyond, (name, what, first, last)
    assert max(folders.values()) < 5 * median(folders.values()) + 1e6
    with capsys.disabled():
        print(f"\n{protocol}: {rounds} rounds, {struck} restarts")  # noqa: T201
        for (name, what), (first, last) in grown.items():
            print(f"  {name} {what}: {first:,.0f} -> {last:,.0f}")  # noqa: T201
