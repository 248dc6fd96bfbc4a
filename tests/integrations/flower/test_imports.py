"""Imports of a node on Flower, which starts a process for each message."""

import subprocess
import sys

import pytest
from msgspec.structs import replace

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from support.flower_fleet import Trial
from tacit.core.errors import ConfigError, JournalError
from tacit.integrations.flower import api

ENTRIES = 6
HEAVY = ("tacit.auditing", "tacit.learn", "tacit.net.node", "tacit.net.transport.courier", "scipy", "networkx", "torch")
MESSAGE = """
import sys
from tacit import flower

party = flower._load_party(flower.Path(sys.argv[1]), "p0")
before = set(sys.modules)
print(*sorted(before), sep="\\n")
party.audit_settings()
assert "tacit.auditing.preflight" in sys.modules
"""


def test_a_message_in_mid_round_loads_no_auditor_and_no_network(tmp_path):
    path = api.trial(tmp_path / "federation.toml", "secagg", 4)
    done = subprocess.run([sys.executable, "-c", MESSAGE, str(path)], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = done.stdout.split()
    assert "tacit.integrations.flower.driver" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_a_process_audits_before_it_introduces_itself_or_begins_and_only_once(tmp_path):
    trial, audited = Trial.of(tmp_path, "secagg", 4), []
    p0 = trial.participant("p0")
    p0._audit = audited.append
    p0.advance({}, 0, [])
    assert audited == []
    p0.begin({}, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    p0.begin({}, 2, trial.brought(ENTRIES)["p0"], ENTRIES)
    assert audited == [trial.roster]


def test_a_refused_audit_begins_nothing(tmp_path):
    trial = Trial.of(tmp_path, "secagg", 4)
    p0, storage = trial.participant("p0"), {}

    def refuse(_):
        raise ConfigError("these settings leak")

    p0._audit = refuse
    for number in (1, 2):  # and not only the first time
        with pytest.raises(ConfigError, match="these settings leak"):
            p0.begin(storage, number, trial.brought(ENTRIES)["p0"], ENTRIES)
    assert (storage, p0.rounds) == ({}, 0)


def test_a_round_does_not_go_on_with_settings_that_were_not_audited(tmp_path):
    """A message in mid-round is answered without an audit, so other settings must not fit the round."""
    trial = Trial.of(tmp_path, "secagg", 4)
    storage = {}
    trial.participant("p0").begin(storage, 1, trial.brought(ENTRIES)["p0"], ENTRIES)
    trial.roster = replace(trial.roster, settings={"clip": 16.0})
    with pytest.raises(JournalError, match="was changed, or is from another round"):
        trial.participant("p0").advance(storage, 1, [])
