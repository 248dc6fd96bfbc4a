"""Protocols that leak, each in a way of its own. An audit shows what they leak or says that it cannot tell.

`FOUND` says of each which it is: "exposed", or the code of the error.
"""

import importlib

import pytest

import tacit
from support.paths import TESTS
from tacit import protocols
from tacit.auditing.engine.soundness.checks import check_soundness
from tacit.auditing.scope import Scope

NAMES = sorted(path.stem for path in (TESTS / "auditing" / "leaky").glob("[a-z]*.py"))
PARTIES = tuple(f"p{i}" for i in range(4))


def found(module):
    """Returns how an audit ends: "exposed", "nobody", or the code of the error with which it refuses."""
    rounds = getattr(module, "ROUNDS", 1)
    try:
        check_soundness(Scope.of("leaky", PARTIES, {}, rounds=rounds))
        report = tacit.audit("leaky", parties=PARTIES, coalition=["p0"], rounds=rounds)
    except tacit.NotLinear as error:
        return error.code
    assert max(report.errors.values(), default=0.0) < 1e-8
    return "exposed" if report.exposed else "nobody"


@pytest.mark.parametrize("name", NAMES)
def test_no_leak_passes_an_audit(monkeypatch, name):
    module = importlib.import_module(f"leaky.{name}")
    monkeypatch.setitem(protocols.REGISTRY, "leaky", module.PROTOCOL)
    assert found(module) == module.FOUND


def test_what_they_have_in_common_does_not_leak(monkeypatch):
    base = importlib.import_module("leaky._base")

    async def party(link, update, _terms, suite, _state):
        return await base.averaged(link, update, suite)

    monkeypatch.setitem(protocols.REGISTRY, "leaky", base.leaky(party))
    module = type("module", (), {"ROUNDS": 2})
    assert found(module) == "nobody"
