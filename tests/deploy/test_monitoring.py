"""Alert rules and dashboard of deploy/monitoring, which name only metrics and labels that nodes have."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from support.paths import ROOT
from tacit.net.observability.metrics import NodeMetrics, render_metrics
from tacit.net.observability.status import PeerStatus, Status
from tacit.net.observability.telemetry import Histogram, Telemetry

ALERTS = ROOT / "deploy" / "monitoring" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "monitoring" / "dashboard.json"
OF_PROMETHEUS = {"up", "instance", "job"}
"""A metric and labels that Prometheus adds."""


def node():
    """Returns what the metrics of a node are made of, with every label in use."""
    telemetry = Telemetry("a", "three", "secagg")
    telemetry.phases["Sum"] = Histogram()
    telemetry.phases["Sum"].add(0.5)
    for counter in (telemetry.excluded, telemetry.sent, telemetry.received, telemetry.troubles):
        counter["x"] = 1
    status = Status("a", 0.0, 3, 4, False, "Sum", [PeerStatus("b", 3, 1.0, 0, 2.0, "down")])
    return telemetry, status, {"b": SimpleNamespace(retries=1, trouble="down", arrivals=0)}


def samples():
    """Returns the labels of each sample that a node has."""
    found = {}
    for family in NodeMetrics(*node()).collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries():
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [rule["expr"] for rule in rules] + [each["expr"] for panel in panels for each in panel["targets"]]


def unknown(query):
    """Returns the metrics and labels of a query that no node has."""
    known = samples()
    names = set(re.findall(r"\b(?:tacit_\w+|up)\b", query))
    wrong = {name for name in names if name not in known and name not in OF_PROMETHEUS}
    labels = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", query))
    for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        labels |= set(re.split(r",\s*", listed))
    allowed = set().union(OF_PROMETHEUS, *(known[name] for name in names & known.keys()))
    return wrong | (labels - allowed)


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ('sum by (instance, result) (rate(tacit_rounds_total{result="averaged"}[1h]))', set()),
        ("tacit_rounds", {"tacit_rounds"}),
        ("sum by (party) (tacit_round)", {"party"}),
        ('tacit_round{peer="a"}', {"peer"}),
        ("histogram_quantile(0.9, sum by (le, kind) (tacit_phase_seconds_bucket))", set()),
    ],
)
def test_a_metric_or_label_that_no_node_has_is_noticed(query, wrong):
    assert unknown(query) == wrong


def test_alerts_and_dashboard_name_only_what_nodes_have():
    found = queries()
    assert len(found) > 20
    assert {query: unknown(query) for query in found if unknown(query)} == {}


def test_every_metric_is_on_the_dashboard():
    shown = " ".join(each["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for each in panel["targets"])
    families = {family.name for family in NodeMetrics(*node()).collect()}
    assert sorted(name for name in families if name not in shown) == []
    assert "tacit_round" in render_metrics(*node())


def test_each_alert_says_what_to_try_and_each_panel_has_its_place():
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["description"].startswith("try: ")
            assert "allow_leaks" not in rule["annotations"]["description"]
    places = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells)), "panels do not overlap"
    assert max(x for x, _ in cells) < 24


@pytest.mark.long
def test_promtool_accepts_the_rules_and_they_fire(tmp_path):
    """Rules are tried on series of a party that is unreachable, and of one whose rounds fail."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    cases = {
        "rule_files": ["alerts.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": 'tacit_in_trouble{instance="a", peer="b"}', "values": "1x60"},
                    {"series": 'tacit_in_trouble{instance="a", peer="c"}', "values": "0x60"},
                    {"series": 'tacit_rounds_total{instance="a", result="not-enough"}', "values": "0+1x60"},
                    {"series": 'tacit_rounds_total{instance="a", result="averaged"}', "values": "0+1x60"},
                    {"series": 'tacit_under_way{instance="a"}', "values": "1x60"},
                    {"series": 'tacit_round{instance="a"}', "values": "7x60"},
                ],
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": "50m",
                     "exp_samples": [{"labels": "{}", "value": 1}]}
                    for name in ("TacitPeerUnreachable", "TacitRoundsFail", "TacitRoundHangs")
                ] + [
                    {"expr": f'count(ALERTS{{alertname="{name}"}})', "eval_time": "50m", "exp_samples": []}
                    for name in ("TacitDown", "TacitPeerSilent", "TacitNoRound", "TacitManyRetries")
                ],
            }
        ],
    }  # fmt: skip
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "cases.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stdout + done.stderr
