"""Real names of parties: in every text of an audit, and in no command."""

import json

import numpy as np

import tacit
from support.paths import ROOT
from tacit.app.reports.html_reports import write_run_report
from tacit.auditing.render.names import RUNNABLE, name_parties, name_parties_in
from tacit.lab.comparison import compare
from tacit.learn.scenario import Scenario

NAMES = ["north", "p0", "st mary"]


def test_names_that_look_simulated_are_not_renamed_twice():
    assert name_parties("p0, p1 and p2, not p3 nor xp1", NAMES) == "north, p0 and st mary, not p3 nor xp1"
    assert name_parties("p0 leaks", ()) == "p0 leaks"


def test_an_audit_has_the_names_everywhere_but_in_commands():
    found = json.loads((ROOT / "tests/golden/0.2.0/run/finished/audit.json").read_text(encoding="utf-8"))
    names = [f"hospital {letter}" for letter in "abcdefghij"]
    named = name_parties_in(found, names)
    assert named["parties"] == names[: len(found["parties"])]
    assert [*named["reports"][0]["bits"]] == [name_parties(party, names) for party in found["reports"][0]["bits"]]
    for field in RUNNABLE:
        assert named.get(field) == found.get(field)
    assert [each["command"] for each in named["next"]] == [each["command"] for each in found["next"]]
    assert name_parties_in(found, ()) == found


def test_runs_and_comparisons_of_files_show_the_names_of_the_files(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "samples").mkdir()
    for name in ("harbour", "north", "south", "west"):
        x = rng.normal(size=(20, 3)).astype(np.float32)
        np.savez(tmp_path / "samples" / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    scenario = Scenario.of(
        {
            "rounds": 1,
            "data": {"folder": str(tmp_path / "samples"), "parties": 4},
            "protocol": {"name": "gossip", "graph": {"kind": "edges", "edges": [[0, 1], [1, 2], [1, 3]]}},
        }
    )
    run = tacit.train(scenario, folder=tmp_path / "run")
    write_run_report(run)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for name in run.names:
        assert f'<th scope="col"><span>{name}</span></th>' in page, "a column of the matrix"
    assert "p0 is harbour, p1 is north, p2 is south, p3 is west" in page, "as commands name them"
    assert "north" in compare(scenario, [scenario.protocol])[0].exposed, "the middle of the star sees every model"
