"""Parties that only dial out, and the relay, while processes are killed and frozen and connections cut and stalled.

`TACIT_FAULTS=200` runs a longer campaign. The longest recovery is printed.
"""

import json
import os
from importlib import import_module

import pytest

from support.paths import ROOT

pytestmark = pytest.mark.slow

FAULTS = int(os.environ.get("TACIT_FAULTS", "40"))
NEVER = ("wrong", "hung", "mass", "lost", "changed", "twice", "exposed", "strayed")
CASES = {
    "secagg": {"parties": 4, "options": {"threshold": 3, "clip": 4.0}},
    "pushsum": {"parties": 4, "options": {"masked": True, "clip": 64.0}},
}
ROUNDS = {"secagg": 4, "pushsum": 14}
"""Rounds for each fault: those of pushsum are short."""


@pytest.fixture(scope="module")
def faults():
    """The module, which is found from the root of the repository alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield import_module("benchmarks.faults.run")


@pytest.mark.parametrize("protocol", CASES)
def test_nothing_goes_wrong_that_must_not(protocol, faults, tmp_path, capsys):
    each = FAULTS // len(CASES)
    rounds = ROUNDS[protocol] * each + 10
    case = faults.Case(protocol, **CASES[protocol], rounds=rounds, limit=60.0 * each, outbound=True)
    verdict = faults.run_case(case, tmp_path, seed=5)
    struck = json.loads((tmp_path / "run.json").read_text())["faults"]
    with capsys.disabled():
        kinds = sorted({fault["kind"] for fault in struck})
        longest = max(verdict.recoveries, default=0.0)
        print(f"\n{protocol}: {len(struck)} faults ({', '.join(kinds)}), longest recovery {longest:.1f} s")  # noqa: T201
    assert {name: getattr(verdict, name) for name in NEVER if getattr(verdict, name)} == {}
    assert len(struck) >= each
    assert verdict.finished
    assert verdict.finished + sum(verdict.aborted.values()) == verdict.rounds
