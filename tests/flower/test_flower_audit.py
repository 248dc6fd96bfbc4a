"""`tacit audit --flower`: what is read off an app, what is assumed, and whether what is said of it is so."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tacit
from tacit.app.cli import app as command
from tacit.audit.flower import audit_app, collusion
from tacit.core.errors import ConfigError

ROOT = Path(__file__).parents[2]

PYPROJECT = """
[project]
name = "ward"

[tool.flwr.app.components]
serverapp = "ward.server_app:app"
clientapp = "ward.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 6
fraction-fit = 0.5
num-shares = 5
reconstruction-threshold = 3

[tool.flwr.federations]
default = "here"

[tool.flwr.federations.here]
options.num-supernodes = 10
"""
PLUS = """
raise SystemExit("this must not be run")

def main(grid, context):
    config = context.run_config
    rounds = config["num-server-rounds"]
    strategy = FedAvg(fraction_fit=config["fraction-fit"], min_fit_clients=2)
    legacy = LegacyContext(context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    workflow = SecAggPlusWorkflow(
        num_shares=int(config["num-shares"]),
        reconstruction_threshold=config["reconstruction-threshold"],
        clipping_range=4.0,
        max_weight=heaviest(),
    )
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
"""
PLAIN = """
def main(grid, context):
    FedAvg(fraction_train=1.0, min_available_nodes=4).start(grid=grid, num_rounds=3)
"""
CLIENT = "app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])\n"


def written(folder, server, client=CLIENT, pyproject=PYPROJECT):
    (folder / "ward").mkdir()
    (folder / "pyproject.toml").write_text(pyproject)
    (folder / "ward" / "server_app.py").write_text(server)
    (folder / "ward" / "client_app.py").write_text(client)
    return folder


def test_a_plain_strategy_shows_every_model(tmp_path):
    found = audit_app(written(tmp_path, PLAIN, pyproject=PYPROJECT.partition("[tool.flwr.fed")[0]), parties=9, rounds=1)
    assert found.averages == "plain"
    assert found.facts.values["nodes"] == 4
    assert found.facts.values["rounds"] == 3
    assert set(found.reports[0].exposed) == {"p0", "p1", "p2", "p3"}
    assert "4 of 4 nodes" in found.says[0]


def test_settings_of_secagg_are_read_and_none_of_it_is_run(tmp_path):
    found = audit_app(written(tmp_path, PLUS), parties=9, rounds=1)
    assert found.averages == "SecAgg+"
    wanted = {
        "rounds": 6,
        "nodes": 10,
        "fraction": 0.5,
        "fewest sampled": 2,
        "num_shares": 5,
        "reconstruction_threshold": 3,
        "clipping_range": 4.0,
    }
    assert found.facts.values == {**wanted, "max_weight": 1000.0}
    assert found.facts.read.keys() == wanted.keys()
    assert found.facts.assumed == {"max_weight": "max_weight = 1000.0 (Flower's default)"}
    assert "config: num-shares" in found.facts.read["num_shares"]
    assert "source, line" in found.facts.read["clipping_range"]


def test_differences_of_rounds_with_sampled_nodes_are_told(tmp_path):
    folder = written(tmp_path, PLUS, pyproject=PYPROJECT.replace("rounds = 6", "rounds = 60"))
    found = audit_app(folder, parties=9, rounds=1)
    server = found.reports[0]
    again = tacit.audit(
        "secagg",
        parties=10,
        coalition=["server"],
        rounds=60,
        threshold=3,
        clip=4.0,
        max_weight=1000.0,
        participation={"kind": "random", "per_round": 5},
        allow_leaks=True,
    )
    assert server.exposed.keys() == again.exposed.keys()
    assert server.exposed
    assert (
        f"expose {len(server.exposed)} of 10 nodes, the first in round {server.safe_rounds + 1} of 60" in found.says[1]
    )


def test_everybody_in_every_round_exposes_nobody_unless_somebody_drops_out(tmp_path):
    everybody = PLUS.replace('config["fraction-fit"]', "1.0").replace('int(config["num-shares"])', "1.0")
    everybody = everybody.replace('config["reconstruction-threshold"]', "0.6")
    folder = written(
        tmp_path, everybody, pyproject=PYPROJECT.replace("rounds = 6", "rounds = 30").replace("= 10", "= 6")
    )
    assert not audit_app(folder, parties=9, rounds=1).reports[0].exposed
    found = audit_app(folder, parties=9, rounds=1, dropout=0.05)
    assert found.reports[0].exposed
    assert "each lost to a round with a chance of 0.05" in found.says[0]


def test_a_threshold_of_half_is_warned_of(tmp_path):
    low = PYPROJECT.replace("reconstruction-threshold = 3", "reconstruction-threshold = 2")
    found = audit_app(written(tmp_path, PLUS, pyproject=low), parties=9, rounds=1)
    assert any("set it above 2" in sentence for sentence in found.says)


def test_a_missing_mod_is_told(tmp_path):
    found = audit_app(written(tmp_path, PLUS, client="app = ClientApp()\n"), parties=9, rounds=1)
    assert any("No mod of SecAgg was found" in sentence for sentence in found.says)


@pytest.mark.parametrize(("nodes", "threshold"), [(4, 3), (5, 3), (5, 4)])
def test_as_many_as_are_said_to_can_read_a_model_together_and_no_fewer(nodes, threshold):
    needed = collusion(threshold, nodes)
    for friends, exposed in ((needed - 1, False), (needed, True)):
        members = ["server", *(f"p{place}" for place in range(friends))]
        report = tacit.audit("secagg", parties=nodes, coalition=members, threshold=threshold)
        assert bool(report.exposed) == exposed


def test_an_app_of_ours_is_audited_by_its_protocol(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))  # where the example's roster would be
    found = audit_app(ROOT / "examples" / "flower_app", parties=6, rounds=1)
    assert found.averages == "Tacit"
    assert found.facts.values["rounds"] == 5
    assert found.facts.values["protocol"] == "secagg"
    assert "roster" in found.facts.assumed
    assert not any(report.exposed for report in found.reports)


def test_what_is_no_app_is_told_in_one_line(tmp_path):
    for change, said in (
        (lambda: None, "cannot be read"),
        (lambda: (tmp_path / "pyproject.toml").write_text("x = ["), "cannot be read"),
        (lambda: (tmp_path / "pyproject.toml").write_text("[tool.flwr]"), "has no"),
        (lambda: (tmp_path / "pyproject.toml").write_text(PYPROJECT), "which has the server, cannot be read"),
    ):
        change()
        with pytest.raises(ConfigError, match=said):
            audit_app(tmp_path, parties=9, rounds=1)


def test_the_command_says_what_was_read_and_what_assumed(tmp_path):
    folder = str(written(tmp_path, PLUS))
    said = CliRunner().invoke(command, ["audit", "--flower", folder])
    assert said.exit_code == 0
    assert "ward averages by: SecAgg+" in said.output
    assert "max_weight = 1000.0 (Flower's default)" in said.output
    assert "nobody signs keys" in said.output.replace("\n", " ")
    ours = str(ROOT / "examples" / "flower_app")
    found = json.loads(CliRunner().invoke(command, ["audit", "--flower", ours, "--parties", "4", "--json"]).output)
    assert found["averages"] == "Tacit"
    assert ["server"] in [report["coalition"] for report in found["reports"]]
    assert CliRunner().invoke(command, ["audit"]).exit_code != 0
