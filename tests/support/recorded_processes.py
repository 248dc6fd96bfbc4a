"""Federations in processes that record every word, and the comparison with what the simulator says."""

import hashlib
import json
import subprocess
import sys
import time

import msgspec
import numpy as np

from support.federations import written
from support.paths import SUPPORT
from tacit.core.suite import SERVER

SAID = SUPPORT / "recorded_party_process.py"
ENTRIES, ROUNDS = 5, 2
LONG = 120
"""Seconds after which processes that should have ended have not."""


def told(made, prefix=None, proxies=None, meanwhile=lambda: None):
    """Runs everybody in a process of its own, and returns what each of them said and averaged.

    Some may dial through a proxy. `meanwhile` is called again and again while they run.
    """
    running, parties = {}, [*made.roster.entry.everyone(made.roster.names)]
    written(made)
    try:
        for name in parties:
            command = [*(prefix(name) if prefix else []), sys.executable, SAID, made.folder, name, ENTRIES, ROUNDS]
            command += [(proxies or {}).get(name, "")]
            with (made.folder / f"{name}.err").open("wb") as err:
                running[name] = subprocess.Popen(list(map(str, command)), stderr=err)  # noqa: S603
        until = time.monotonic() + LONG
        while any(process.poll() is None for process in running.values()) and time.monotonic() < until:
            meanwhile()
            time.sleep(0.1)
        for name, process in running.items():
            assert process.poll() == 0, (made.folder / f"{name}.err").read_text()
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return {name: json.loads((made.folder / f"{name}.said").read_text()) for name in parties}


def same_as_simulated(made, found):
    expected = {}
    for number, played in enumerate(made.played(ENTRIES, ROUNDS)):
        for each in played.transcript:
            address = msgspec.json.encode(each.envelope.address).decode()
            expected[address] = hashlib.sha256(each.envelope.sealed).hexdigest()
        for name, said in found.items():
            contributors, average, error = said["averages"][number]
            ending = played.endings[name]
            assert (tuple(contributors), error) == (ending.contributors, "")
            narrow = np.float32 if name == SERVER else np.float64
            np.testing.assert_array_equal(average, ending.average.astype(narrow))
    assert {address: digest for said in found.values() for address, digest in said["envelopes"].items()} == expected
