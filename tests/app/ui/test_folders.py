"""Runs and parties as the page finds them: what is in a folder is data, and nothing in it leads out of it."""

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from tacit.app.ui import regular_files, run_folders
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.metrics import Metrics
from tacit.net.observability.status import PeerStatus, RoundSummary, Status, write_status

SCENARIO = {"rounds": 3, "title": "first", "protocol": "secagg", "data": {"parties": 4}}


def run_in(place, name, rounds=3, over=True, **scenario):
    """Writes a run as `tacit train` leaves it."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "scenario.json").write_bytes(Scenario.of({**SCENARIO, **scenario}).encode())
    lines = [
        Metrics(round=n, accuracy=n / 10, bytes=100, contributors=4, averaged=("p0", "p1", "p2", "p3"))
        for n in range(1, rounds + 1)
    ]
    (folder / "metrics.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    if over:
        (folder / "model.safetensors").write_bytes(b"model")
    return folder


def aged(folder, seconds):
    for path in folder.iterdir():
        stat = path.stat()
        os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))


def states(place):
    return {run["id"]: run["state"] for run in run_folders.list_runs(place)}


def test_runs_are_found_here_and_where_tacit_run_puts_them(tmp_path):
    run_in(tmp_path, "here")
    run_in(tmp_path, "runs/there")
    (tmp_path / "something-else").mkdir()
    assert states(tmp_path) == {"here": "finished", "runs/there": "finished"}


def test_a_run_is_running_as_long_as_it_writes_and_cut_off_when_it_stops(tmp_path):
    folder = run_in(tmp_path, "one", rounds=2, over=False)
    assert states(tmp_path) == {"one": "running"}
    aged(folder, 3600)
    assert states(tmp_path) == {"one": "interrupted"}


def test_all_there_is_to_show_of_a_run(tmp_path):
    folder = run_in(tmp_path, "one", protocol={"name": "admm", "masked": True, "group_size": 2, "iterations": 2})
    (folder / "audit.json").write_text(json.dumps({"says": "nobody", "reports": []}))
    told = run_folders.describe_run("one", folder)
    assert told["says"] == "nobody"
    assert [at.round for at in told["history"]] == [1, 2, 3]
    assert told["picture"]["kind"] == "groups"
    assert sorted(i for group in told["picture"]["phases"][0]["groups"] for i in group) == [0, 1, 2, 3]


def test_what_cannot_be_read_is_said_to_be_and_stops_nothing(tmp_path):
    run_in(tmp_path, "fine")
    broken = run_in(tmp_path, "broken")
    (broken / "scenario.json").write_text("{]")
    cut = run_in(tmp_path, "cut", over=False)
    with (cut / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 4, "accu')
    (run_in(tmp_path, "odd") / "audit.json").write_text("[1]")
    assert states(tmp_path) == {"fine": "finished", "broken": "unreadable", "cut": "running", "odd": "finished"}
    assert len(run_folders.describe_run("cut", cut)["history"]) == 3
    assert "cannot be read" in run_folders.describe_run("odd", tmp_path / "odd")["says"]


DEEP = "[" * 200_000 + "]" * 200_000
NESTED = {"name": "softmax", "a": msgspec.Raw(b"[" * 900 + b"]" * 900)}


def linked(path):
    path.unlink(missing_ok=True)
    path.symlink_to("/etc/passwd")


def directory(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


ODD = {
    "a pipe as its rounds": (lambda run: pipe(run / "metrics.jsonl"), "metrics.jsonl is no plain file"),
    "a pipe as its scenario": (lambda run: pipe(run / "scenario.json"), "scenario.json is no plain file"),
    "a folder as its scenario": (lambda run: directory(run / "scenario.json"), "scenario.json is no plain file"),
    "a folder as its rounds": (lambda run: directory(run / "metrics.jsonl"), "metrics.jsonl is no plain file"),
    "a link as its scenario": (lambda run: linked(run / "scenario.json"), "scenario.json is no plain file"),
    "rounds that are nested deep": (
        lambda run: (run / "metrics.jsonl").write_text(f'{{"round":1,"x":{DEEP}}}'),
        "nested too deep",
    ),
    "a scenario that is nested deep": (
        lambda run: (run / "scenario.json").write_bytes(msgspec.json.encode({**SCENARIO, "model": NESTED})),
        "nested too deep",
    ),
    "a scenario without an end": (
        lambda run: (run / "scenario.json").write_text(" " * (regular_files.MOST_BYTES + 1)),
        "longer than",
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_one_odd_folder_is_told_as_such_and_stops_nothing(tmp_path, what):
    make, why = ODD[what]
    run_in(tmp_path, "fine")
    make(run_in(tmp_path, "odd"))
    told = {run["id"]: run for run in run_folders.list_runs(tmp_path)}
    assert told["fine"]["state"] == "finished"
    assert run_folders.describe_run("fine", tmp_path / "fine")["state"] == "finished"
    assert run_folders.list_parties(tmp_path) == []
    odd = run_folders.describe_run("odd", tmp_path / "odd")
    assert odd["state"] == "unreadable"
    assert told["odd"]["state"] == "unreadable"
    assert why in told["odd"]["why"]
    assert why in odd["why"]


def test_odd_audits_and_odd_states_of_parties_are_told_as_such(tmp_path):
    for number, text in enumerate((b'{"says":"\xff\xfe"}', DEEP.encode(), b'{"says":3}')):
        run = run_in(tmp_path, str(number))
        (run / "audit.json").write_bytes(text)
        assert "cannot be read" in run_folders.describe_run(str(number), run)["says"]
        assert states(tmp_path)[str(number)] == "finished"
    for name, make in {
        "pipe.rounds": os.mkfifo,
        "folder.rounds": os.mkdir,
        "deep.rounds": lambda path: path.write_text(f'{{"party":"a","x":{DEEP}}}'),
    }.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "status.json")
    told = run_folders.list_parties(tmp_path)
    assert [each["id"] for each in told] == ["deep.rounds", "folder.rounds", "pipe.rounds"]
    assert all("cannot be read: " in each["trouble"] for each in told)


def test_names_that_are_not_letters_are_told_and_opened(tmp_path):
    run = run_in(tmp_path, "odd", title="")
    os.rename(run, os.fsencode(tmp_path) + b"/o\xffdd")
    (told,) = run_folders.list_runs(tmp_path)
    assert (told["id"], told["title"], told["state"]) == ("o\\xffdd", "o\\xffdd", "finished")
    assert msgspec.json.encode(told)
    assert run_folders.describe_run("o\\xffdd", run_folders.list_folders(tmp_path)["o\\xffdd"])["state"] == "finished"


def test_of_more_rounds_than_anybody_looks_at_the_first_are_read_and_that_is_said(tmp_path, monkeypatch):
    run = run_in(tmp_path, "long", over=False)
    (run / "metrics.jsonl").write_bytes(b'{"round":1,"accuracy":0.5}\n' * 600_000)
    told = run_folders.describe_run("long", run)
    assert len(told["history"]) == run_folders.MOST_ROUNDS
    assert told["truncated"] == f"only the first {run_folders.MOST_ROUNDS} rounds are read"
    assert len(told["curve"]) <= run_folders.MOST_POINTS + 1
    monkeypatch.setattr(run_folders, "MOST_BYTES", 1000)
    assert len(run_folders.describe_run("long", run)["history"]) == 1000 // len(b'{"round":1,"accuracy":0.5}\n')
    assert run_folders.list_runs(tmp_path)[0]["truncated"]
    short = run_folders.describe_run("short", run_in(tmp_path, "short"))
    assert (short["truncated"], short["curve"]) == ("", [(1, 0.1), (2, 0.2), (3, 0.3)])


def test_of_more_folders_than_anybody_looks_at_some_are_left_out_and_that_is_said(tmp_path, monkeypatch):
    for name in "abc":
        run_in(tmp_path, name)
    assert run_folders.describe_unlisted(tmp_path) == ""
    monkeypatch.setattr(run_folders, "MOST_FOLDERS", 2)
    assert set(states(tmp_path)) == {"a", "b"}
    assert run_folders.describe_unlisted(tmp_path).startswith("1 more folders are here")


def test_parties_are_not_named_before_they_are_counted(tmp_path):
    run = run_in(tmp_path, "crowd", data={"parties": 10**15})
    told = run_folders.describe_run("crowd", run)
    assert (told["parties"], told["names"], told["picture"]) == (10**15, [], None)


def test_what_did_not_change_is_not_read_again_and_what_is_gone_is_forgotten(tmp_path):
    run, known = run_in(tmp_path, "one"), {}
    (before,) = run_folders.list_runs(tmp_path, known)
    assert run_folders.list_runs(tmp_path, known)[0] is before
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round":4}\n')
    assert run_folders.list_runs(tmp_path, known)[0]["done"] == 4
    shutil.rmtree(run)
    assert run_folders.list_runs(tmp_path, known) == []
    assert known == {}
    assert run_folders.summarize_run("one", run) is None
    assert run_folders.describe_run("one", run) is None


def test_links_that_lead_elsewhere_are_not_followed(tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "place"
    secret = run_in(outside, "secret", title="secret")
    place.mkdir()
    (place / "linked").symlink_to(secret, target_is_directory=True)
    own = run_in(place, "own")
    (own / "metrics.jsonl").unlink()
    (own / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    (place / "runs").symlink_to(outside, target_is_directory=True)
    assert set(run_folders.list_folders(place)) == {"own"}
    assert states(place) == {"own": "unreadable"}
    assert run_folders.list_runs(place)[0]["why"] == "metrics.jsonl is no plain file"


@pytest.mark.parametrize("name", ["../outside", "/etc", "..", ".", "runs/../../outside", "one/../one", "one\0"])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    run_in(tmp_path / "place", "one")
    run_in(tmp_path, "outside")
    assert name not in run_folders.list_folders(tmp_path / "place")


def test_a_party_tells_how_it_stands(tmp_path):
    folder = tmp_path / "a.rounds"
    folder.mkdir()
    peers = [PeerStatus("b", 1, 0.5, 0, None, ""), PeerStatus("c", 0, None, 2, 12.0, "refused")]
    last = RoundSummary(1, ("a", "b"), {"c": "silent"}, None, {}, {}, 1.0)
    write_status(folder, Status("a", 0.0, 2, 0, False, "GroupPart", peers, "", last))
    (told,) = run_folders.list_parties(tmp_path)
    assert told["running"]
    assert [peer["party"] for peer in told["peers"] if peer["missing"] is not None] == ["c"]
    aged(folder, 60)
    assert not run_folders.list_parties(tmp_path)[0]["running"]
    (folder / "status.json").write_text("{")
    assert "cannot be read" in run_folders.list_parties(tmp_path)[0]["trouble"]


def test_a_scenario_is_checked_with_the_line_of_each_problem():
    good = 'rounds = 3\n[data]\nparties = 4\n[protocol]\nname = "secagg"\n'
    assert run_folders.check_text(good).rounds == 3
    with pytest.raises(ConfigError) as caught:
        run_folders.check_text(good.replace("rounds", "round").replace("parties = 4", 'parties = "many"'))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "scenario.toml, line 1",
        "scenario.toml, line 3",
    ]
    with pytest.raises(ConfigError, match=r"line 6: .*treshold"):
        run_folders.check_text(good + "treshold = 3\n")


@pytest.mark.parametrize("name", ["../../out", "/srv/out", ".out", "", "a\\u0000b", "a/b", "a\\\\b", "a b", "x\\n"])
def test_names_that_could_lead_out_of_a_folder_are_problems(name):
    with pytest.raises(ConfigError, match=r"line 3: data\.name=.* cannot be part of a folder's name"):
        run_folders.check_text(f'rounds = 3\n[data]\nname = "{name}"\nparties = 4\n')


def test_more_parties_than_a_page_takes_are_a_problem_before_anything_is_made_for_them():
    with pytest.raises(ConfigError, match=r"line 3: data\.parties=10{15} is more than the page takes"):
        run_folders.check_text(f'rounds = 3\n[data]\nparties = {10**15}\n[protocol]\nname = "secagg"\n')


def test_a_scenario_that_is_nested_deep_is_a_problem():
    with pytest.raises(ConfigError, match=r"nested too deep|depth|recursion"):
        run_folders.check_text("model = {name = 'softmax', a = " + "[" * 950 + "]" * 950 + "}\n")


def test_stamps_change_with_what_is_shown(tmp_path, monkeypatch):
    folder = run_in(tmp_path, "one", over=False)
    before = run_folders.read_stamps(tmp_path)
    with (Path(folder) / "metrics.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(Metrics(round=4)) + b"\n")
    assert (now := run_folders.read_stamps(tmp_path)) != before
    assert run_folders.read_stamps(tmp_path) == now
    # What was written long ago is shown as something else, without a change of any file.
    monkeypatch.setattr(run_folders, "QUIET", 0.0)
    assert run_folders.read_stamps(tmp_path) != now


# --- verdicts, reports, tags and names -------------------------------------------------------------------------------


def test_the_verdict_is_read_from_the_audit_and_missing_without_one(tmp_path):
    folder = run_in(tmp_path, "one")
    assert run_folders.summarize_run("one", folder)["verdict"] == {"code": "", "heading": "", "exposed": False}
    audit = {
        "heading": "Exposed",
        "verdict": "Exposed. p0 …",
        "verdict_code": "exposed",
        "exposed": True,
        "assumed": ["a"],
    }
    (folder / "audit.json").write_text(json.dumps(audit))
    assert run_folders.summarize_run("one", folder)["verdict"] == {
        "code": "exposed",
        "heading": "Exposed",
        "exposed": True,
    }
    assert run_folders.describe_run("one", folder)["audit"].assumed == ["a"]
    (folder / "audit.json").write_text(json.dumps({"says": "too long", "verdict_code": "not_audited"}))
    assert run_folders.summarize_run("one", folder)["verdict"]["heading"] == "Not audited"


def test_tags_are_written_read_and_checked(tmp_path):
    folder = run_in(tmp_path, "one")
    assert run_folders.read_tags(folder) == []
    run_folders.write_tags(folder, [" board ", "pilot", "board", ""])
    assert run_folders.read_tags(folder) == ["board", "pilot"]
    assert run_folders.summarize_run("one", folder)["tags"] == ["board", "pilot"]
    for wrong in (["x" * 31], ["a\nb"], ["a,b"], [str(number) for number in range(9)]):
        with pytest.raises(ConfigError):
            run_folders.write_tags(folder, wrong)
    assert run_folders.read_tags(folder) == ["board", "pilot"]


def test_tags_are_only_written_to_runs_and_never_through_a_link(tmp_path):
    outside = tmp_path / "outside.json"
    outside.write_text("[]")
    folder = run_in(tmp_path, "one")
    (folder / "tags.json").symlink_to(outside)
    assert run_folders.read_tags(folder) == []
    run_folders.write_tags(folder, ["board"])
    assert outside.read_text() == "[]"
    assert run_folders.read_tags(folder) == ["board"]
    (tmp_path / "plain").mkdir()
    with pytest.raises(ConfigError, match="is no run"):
        run_folders.write_tags(tmp_path / "plain", ["board"])


def test_what_others_wrote_as_tags_is_shown_only_if_it_could_be_tags(tmp_path):
    folder = run_in(tmp_path, "one")
    for text in ("{", '{"a": 1}', '["x", 1]', '["a\\u0000b"]', json.dumps(["x" * 1000])):
        (folder / "tags.json").write_text(text)
        assert run_folders.read_tags(folder) == []


def test_a_report_is_a_plain_file_of_the_run(tmp_path):
    folder = run_in(tmp_path, "one")
    assert run_folders.read_report(folder) is None
    assert not run_folders.summarize_run("one", folder)["report"]
    (folder / "report.html").write_text("<h1>")
    assert run_folders.read_report(folder) == b"<h1>"
    assert run_folders.summarize_run("one", folder)["report"]
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "one" / "scenario.json")
    assert run_folders.read_report(folder) is None


def test_parties_have_real_names_if_there_is_one_for_each(tmp_path):
    folder = run_in(tmp_path, "one")
    for text, labels in (
        ('["a", "b", "c", "d"]', {"p0": "a", "p1": "b", "p2": "c", "p3": "d"}),
        ('["a", "b"]', {}),
        ("{", {}),
    ):
        (folder / "parties.json").write_text(text)
        assert run_folders.describe_run("one", folder)["labels"] == labels


def test_values_of_a_text_are_known_while_it_has_problems():
    text = 'rounds = 0\nwhen = 2020-01-01\nprotocol = "secagg"\n[data]\nparties = 3\nlist = [1]\n'
    assert run_folders.parse_toml(text) == {"rounds": 0, "protocol": "secagg", "data": {"parties": 3}}
    assert run_folders.parse_toml("rounds = ") == {}
