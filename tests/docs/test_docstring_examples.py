"""Examples in docstrings: they run, and the public calls and results have one."""

import doctest
from importlib import import_module

import pytest

import tacit
from support.paths import ROOT

SOURCE = ROOT / "src"
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in sorted((SOURCE / "tacit").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
PUBLIC = ("aggregate", "audit", "plan", "train", "Federation", "Plan", "Report", "Scenario")
"""Public names whose docstrings have an example. `join` and `Peer` need processes: examples/ has their program."""


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    found = doctest.testmod(import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_an_example(name):
    assert ">>>" in getattr(tacit, name).__doc__
