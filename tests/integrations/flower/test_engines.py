"""Flower's own engines: a simulation by Ray, and processes with TLS and node authentication. They take minutes."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from support.paths import ROOT
from tacit.core.suite import Update
from tacit.runtime.simulation.simulator import Simulation

ENTRIES = 50

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: pip install 'tacit[flower]'"),
]
by_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'flwr[simulation]'")


@pytest.fixture
def engines(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    return import_module("benchmarks.flower_engines")


def simulated(nodes):
    """Returns the average as the simulator has it."""
    updates = {
        f"p{place}": Update(np.random.default_rng(place).normal(size=ENTRIES).astype(np.float32))
        for place in range(nodes)
    }
    average = Simulation.of("secagg", tuple(updates), ENTRIES).average(updates).average["p0"]
    return average.astype(np.float32)


@by_ray
def test_ten_nodes_in_simulation_get_the_average_of_the_simulator(tmp_path, engines):
    first, second = engines.run_simulated(tmp_path, 10, ENTRIES, 2)
    for found in (first, second):
        assert found["lost"] == {}
        assert found["hops"] == 5
        assert np.array_equal(np.array(found["average"], np.float32), simulated(10))


def check_round(found):
    assert found["lost"] == {}
    assert found["hops"] == 5
    assert np.array_equal(np.array(found["average"], np.float32), simulated(3))


@pytest.mark.parametrize("forked", [False, True], ids=["a process for each message", "forked by the worker"])
def test_three_nodes_over_tls_get_the_average_of_the_simulator(tmp_path, engines, forked):
    for found in engines.run_deployed(tmp_path, 3, ENTRIES, 2, forked=forked):
        check_round(found)


def test_three_nodes_with_the_newest_release_of_flower(tmp_path):
    """The newest release is in a folder of its own, before the installed one, and has the installed dependencies."""
    newest, found = tmp_path / "newest", tmp_path / "found.json"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", newest, "flwr"]
    if subprocess.run([sys.executable, *install], check=False).returncode:  # noqa: S603
        pytest.skip("the newest release of Flower cannot be installed here")
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (newest, ROOT / "src", ROOT)))}
    command = [sys.executable, "-m", "benchmarks.flower_engines", found, "3", str(ENTRIES), "1"]
    subprocess.run(command, env=surroundings, check=True)  # noqa: S603
    (run,) = json.loads(found.read_text())
    check_round(run)


@by_ray
def test_the_example_learns(tmp_path, engines):
    roster = tmp_path / "keys" / "federation.toml"
    options = f'tacit-federation="{roster}" num-server-rounds=2'
    printed = engines.example(tmp_path, ROOT / "examples" / "flower_app", 5, options)
    accuracies = [float(each) for each in re.findall(r"'accuracy': (0\.\d+)", printed)]
    assert accuracies
    assert accuracies[-1] > 0.8
