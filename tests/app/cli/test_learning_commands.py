"""`tacit train`, `tacit compare` and `tacit reproduce`, as people use them."""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from support.paths import ROOT
from support.printed_errors import read_errors
from tacit import Scenario, train
from tacit.app.cli.main import app
from tacit.app.reports import html_reports
from tacit.app.terminal import progress
from tacit.lab import comparison, papers
from tacit.lab.papers.reproduction import Reproduction
from tacit.learn.data.datasets import of_arrays

SCENARIO = """
title = "<first> & only"
rounds = 3
protocol = "{protocol}"
[data]
parties = 4
[local]
rate = 0.5
"""


@pytest.fixture
def tacit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def called(*given):
        return CliRunner().invoke(app, list(given))

    return called


def written(text, name="scenario.toml"):
    Path(name).write_text(text, encoding="utf-8")
    return name


class Links(HTMLParser):
    """What a page wants from elsewhere."""

    def __init__(self):
        super().__init__()
        self.wanted = []

    def handle_starttag(self, tag, attrs):
        del tag
        given = [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.wanted += [value for value in given if not value.startswith(("#", "data:"))]


@pytest.mark.parametrize("protocol", ["secagg", "gossip", "local"])
def test_a_run_leaves_a_folder_with_a_page_that_needs_nothing_else(tacit, protocol):
    done = tacit("train", written(SCENARIO.format(protocol=protocol)), "--folder", "out")
    assert done.exit_code == 0, done.output
    assert "test score" in done.output
    names = {path.name for path in Path("out").iterdir()}
    assert {"scenario.json", "metrics.jsonl", "model.safetensors", "progress.svg", "labels.svg", "report.html"} <= names
    page = Path("out/report.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(page)
    assert links.wanted == []
    assert "&lt;first&gt; &amp; only" in page
    assert page.count("<svg") == 2
    assert ("what this audit does not cover" in page) == (protocol != "local"), "what was audited is assessed"


def test_a_run_as_json_and_again(tacit):
    scenario = written(SCENARIO.format(protocol="secagg"))
    first = tacit("train", scenario, "--folder", "out", "--json")
    assert [each["round"] for each in json.loads(first.stdout)["history"]] == [1, 2, 3]
    again = tacit("train", scenario, "--folder", "out")
    assert again.exit_code == 2
    assert "already has a run" in again.output
    resumed = tacit("train", scenario, "--folder", "out", "--resume", "--json")
    assert json.loads(resumed.stdout)["history"] == json.loads(first.stdout)["history"]


def test_the_former_name_of_train_still_works_with_a_note_on_stderr(tacit):
    done = tacit("run", written(SCENARIO.format(protocol="secagg")), "--folder", "out", "--json")
    assert len(json.loads(done.stdout)["history"]) == 3
    assert "note: tacit run is now called tacit train" in done.stderr
    assert " run " not in tacit("--help").stdout


def test_a_run_that_goes_on_is_found_and_nothing_begins_anew_without_a_word(tacit):
    scenario = written(SCENARIO.format(protocol="secagg"))
    none = tacit("train", scenario, "--resume")
    assert none.exit_code == 2
    assert (
        "there is no run of this scenario in the folder runs to go on with; try: give the folder"
        in read_errors(none.output)[0]
    )
    assert not Path("runs").exists()
    assert tacit("train", scenario, "--folder", "runs/mine").exit_code == 0
    assert tacit("train", written(SCENARIO.format(protocol="fedavg"), "other.toml")).exit_code == 0
    resumed = tacit("train", scenario, "--resume", "--json")
    assert json.loads(resumed.stdout)["folder"] == "runs/mine"
    again = tacit("train", scenario, "--folder", "runs/mine")
    assert "--resume" in again.output


# --- own data ------------------------------------------------------------------------------------------------------

OWN = """
rounds = 2
[data]
folder = "four clinics"
parties = 4
[local]
rate = 0.2
"""


def of_four_clinics():
    """Four clinics, each of which knows one diagnosis and no other."""
    rng = np.random.default_rng(0)
    Path("four clinics").mkdir()
    for place, name in enumerate(("east", "north", "south", "west")):
        np.savez(f"four clinics/{name}.npz", x=rng.normal(place, 1, (20, 3)), y=np.full(20, place))


def test_samples_of_own_stay_where_they_are_and_go_by_their_name(tacit):
    of_four_clinics()
    done = tacit("train", written(OWN))
    assert done.exit_code == 0, done.output
    assert "four clinics, by 4 parties with 16 samples each" in done.stdout
    assert re.search(r"^models exposed +nobody", done.stdout, re.MULTILINE)
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("four-clinics-secagg-")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h1>four clinics by secagg</h1>" in page
    for text in (done.output, page, *(path.read_text(encoding="utf-8") for path in folder.glob("*.svg"))):
        assert not re.search("iid|digits by|digits,", text)
    compared = tacit("compare", "scenario.toml", "--protocol", "fedavg", "--picture", "all.svg")
    assert "4 parties learn four clinics (each its own samples) with softmax, 2 rounds" in " ".join(
        compared.stdout.split()
    )
    assert "<!-- 4 parties learn four clinics by each protocol -->" in Path("all.svg").read_text(encoding="utf-8")
    one = train(Scenario.load("scenario.toml"), folder="out")
    assert one.labels.tolist() == [[16, 0, 0, 0], [0, 16, 0, 0], [0, 0, 16, 0], [0, 0, 0, 16]]
    mixed = tacit("train", written(OWN.replace("parties", 'split = "iid"\nparties'), "mixed.toml"), "--folder", "mixed")
    assert mixed.exit_code == 0, "who wants it mixed may have it"
    assert train(Scenario.load("mixed.toml")).labels.min() > 0


@pytest.mark.parametrize("command", [("train",), ("compare", "--protocol", "fedavg")])
def test_a_folder_of_samples_lies_beside_the_scenario(tacit, command, monkeypatch, tmp_path):
    of_four_clinics()
    path = Path(written(OWN)).resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = tacit(*command, str(path))
    assert done.exit_code == 0, done.output
    assert "four clinics" in done.stdout
    # What is learnt is the same from wherever it is started.
    assert Scenario.load(path).digest == Scenario.parse(OWN, "scenario.toml").digest
    path.with_name("four clinics").rename("four clinics")
    assert Scenario.load(path).data.place == Path("four clinics"), "as the page has it, whose scenarios lie with runs"
    Path("four clinics").rename("five clinics")
    assert f"there is no folder {path.with_name('four clinics')}" in tacit(*command, str(path)).stderr


def test_arrays_with_owners_are_those_of_their_owners(tacit):
    del tacit
    rng = np.random.default_rng(0)
    data = of_arrays(rng.normal(size=(60, 3)), np.arange(60) % 3, owner=np.arange(60) % 3, name="our wards")
    run = train(Scenario.of({"rounds": 1, "data": {"parties": 3}}), data=data)
    assert run.labels.tolist() == np.diag([16, 16, 16]).tolist()
    assert "our-wards by secagg, 1 round," in repr(run)
    assert run.folder.name.startswith("our-wards-secagg-")


# --- what the audit of a run is of ---------------------------------------------------------------------------------


def audit_of(folder):
    return json.loads((Path(folder) / "audit.json").read_text(encoding="utf-8"))


def test_a_run_is_audited_with_its_rounds_and_dropouts(tacit):
    scenario = "rounds = 40\ndropout = 0.05\n[data]\nparties = 9\n[local]\nrate = 0.5\n"
    assert tacit("train", written(scenario), "--folder", "out").exit_code == 0
    found = audit_of("out")
    assert {report["rounds"] for report in found["reports"]} == {40}
    assert {report["dropout"] for report in found["reports"]} == {0.05}
    kept = [json.loads(line) for line in Path("out/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    failed = sum(not each["contributors"] for each in kept)
    assert {report["averages"] for report in found["reports"]} == {40 - failed}, "these very dropouts are looked at"
    assert found["still"]["verdict"].startswith("Exposed")
    asked = tacit(*shlex.split(found["still"]["asked"])[1:], "--json")
    assert json.loads(asked.stdout)["verdict"].startswith(found["still"]["verdict"][:30])
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<b>Holds, as long as models drift</b>" in page
    assert "<b>If models were static</b>Exposed" in page
    assert "The adversary observes 40 rounds" in page
    assert "No party misses" not in page


def test_faults_of_a_scenario_are_part_of_its_audit(tacit):
    assert tacit("train", written(LONG.replace("40000", "3")), "--folder", "out").exit_code == 0
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "1 fault is injected" in page
    assert "No party misses" not in page
    assert "no dropouts" not in page
    assert {report["coverage"]["faults"] for report in audit_of("out")["reports"]} == {1}


def test_rounds_that_are_too_many_to_look_at_are_not_spoken_of(tacit, monkeypatch):
    monkeypatch.setattr("tacit.learn.training.run_audit.MOST_WORK", 100)
    scenario = SCENARIO.format(protocol="pushsum").replace('"pushsum"', '{ name = "pushsum", masked = true }')
    assert tacit("train", written(scenario.replace("rounds = 3", "rounds = 9")), "--folder", "out").exit_code == 0
    found = audit_of("out")
    assert found["part"] == "the first 8 of 9 rounds"
    assert found["verdict"].startswith("Analysed: the first 8 of 9 rounds, and no others. ")
    assert found["assumed"][0].startswith("Only the first 8 of 9 rounds were analysed")
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "<b>No exposure found in the first 8 of 9 rounds</b>" in page
    assert found["says"].endswith("in the first 8 of 9 rounds")


LONG = """
rounds = 40000
protocol = "secagg"
[data]
parties = 4
[local]
rate = 0.5
[[faults]]
action = "crash"
message = "MaskedInput"
party = "p2"
round = 2
"""


def test_rounds_are_plain_lines_where_there_is_no_terminal(tacit, monkeypatch):
    for name in ("SHORT", "OFTEN"):
        monkeypatch.setattr(progress, name, 0.0)
    scenario = written(LONG.replace("40000", "3"))
    done = tacit("train", scenario, "--folder", "out")
    assert done.exit_code == 0, done.output
    first, second, third = [line for line in done.stderr.splitlines() if "%  round" in line and ": " not in line]
    assert re.fullmatch(r" 33%  round 1 of 3, [\d.]+%, [\d.]+ kB a party", first)
    assert second.endswith("a party, 3 of 4 averaged, without p2")
    assert third.startswith("100%  round 3 of 3")
    as_json = tacit("train", scenario, "--folder", "other", "--json")
    assert "round 3 of 3" in as_json.stderr
    assert json.loads(as_json.stdout)


def stop_after(process, rounds):
    """Presses Ctrl-C once so many rounds are over. What is printed is for people, and comes later."""
    metrics = Path("out/metrics.jsonl")
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < rounds:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)


def measured(folder):
    """Returns the rounds of a run but for their seconds: one that has no checkpoint yet is played again."""
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


@pytest.fixture
def heeded():
    """Has programs heed Ctrl-C, also where tests run in the background: there shells have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_leaves_a_run_that_goes_on_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = written(LONG)
    command = [sys.executable, "-m", "tacit", "train", scenario, "--folder", "out"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    stop_after(process, 3)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    last = err.splitlines()[-1]
    assert "Traceback" not in err
    assert last == f"stopped: finished rounds are kept; to resume, run: tacit train {scenario} --folder out --resume"
    kept = measured("out")
    assert 3 <= len(kept) < 40_000
    # The rest would take long, so that a round or two more will do to see that it goes on from there.
    shorter = Path("out/checkpoint").stat().st_mtime_ns
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", *shlex.split(last.partition("run: ")[2])], stderr=subprocess.PIPE, text=True
    )
    stop_after(process, len(kept) + 2)  # for a checkpoint follows what is measured
    process.communicate(timeout=120)
    assert measured("out")[: len(kept)] == kept
    assert Path("out/checkpoint").stat().st_mtime_ns > shorter


def test_what_is_wrong_with_a_scenario_is_a_line_each(tacit):
    done = tacit("train", written("round = 3\n[data]\npartis = 4\n"))
    assert done.exit_code == 2
    assert len(read_errors(done.output)) == 2
    assert "line 1" in done.output
    assert "did you mean 'parties'?" in done.output


def test_what_leaks_is_refused_by_name_and_leaves_no_folder(tacit):
    done = tacit("train", written(SCENARIO.format(protocol="pushsum")))
    assert done.exit_code == 1
    assert "error[leak]" in done.output
    assert not Path("runs").exists()
    Path("mine").mkdir()
    assert tacit("train", "scenario.toml", "--folder", "mine").exit_code == 1
    assert Path("mine").is_dir(), "a folder that was there stays"
    assert tacit("train", "scenario.toml", "--folder", "new").exit_code == 1
    assert not Path("new").exists()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from tacit.app.cli.main import main
main()
"""


def test_a_file_that_cannot_grow_is_one_line_and_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", LIMITED, "train", written(SCENARIO.format(protocol="secagg")), "--folder", "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 1
    *_, message, remedy = done.stderr.splitlines()
    assert message.startswith("error[disk]: ")
    assert message.endswith("cannot be written: File too large")
    assert remedy == "try: free disk space, then run the command again"
    assert "Traceback" not in done.stderr


def test_compare_repeats_over_seeds_and_shows_intervals(tacit):
    asked = ("compare", "--rounds", "1", "--protocol", "fedavg", "--protocol", "secagg")
    one, several = (json.loads(tacit(*asked, "--seeds", n, "--json").stdout) for n in ("1", "2"))
    assert [each["seeds"] for each in one] == [1, 1]
    assert [each["seeds"] for each in several] == [2, 2]
    for first, both in zip(one, several, strict=True):
        own, other = both["last_of_each_seed"]
        assert own["accuracy"] == both["history"][-1]["accuracy"] == first["history"][-1]["accuracy"]
        assert own["accuracy"] != other["accuracy"]
    text = tacit(*asked, "--seeds", "2").stdout
    assert text.startswith("Models are exposed in 1 of 2 rows: fedavg.\n")
    assert text.count("%±") >= 2
    assert "means over seeds 0 to 1" in " ".join(text.split())
    headings = [text.index(f"\n{heading}\n") for heading in ("Assumptions", "Not covered")]
    assert headings == sorted(headings)


def test_compare_audits_coalitions_of_the_scenarios_size(tacit):
    scenario = "rounds = 1\nadversary = {}\n[data]\nparties = 6\n[local]\nrate = 0.5\n"
    for adversary, exposed, says in (
        (1, "2 of 5", "colludes with nobody"),
        (2, "4 of 4", "any 2 parties collude, and the server can be one of them"),
    ):
        asked = ("compare", written(scenario.format(adversary)), "--seeds", "1", "--protocol", "gossip graph=ring")
        (found,) = json.loads(tacit(*asked, "--json").stdout)
        assert found["exposed"].startswith(exposed)
        assert says in " ".join(tacit(*asked).stdout.split())


def test_a_protocol_runs_on_the_same_graph_whether_or_not_it_is_named():
    base = comparison.STANDARD
    listed = {each["name"]: each for each in comparison.list_variants(base)}
    named = comparison.with_same_graph(base, {"name": "cesar", "share": 0.3})
    assert named == {"name": "cesar", "share": 0.3, "graph": listed["cesar"]["graph"]}
    assert comparison.with_same_graph(base, {"name": "gossip", "graph": "ring"})["graph"] == "ring"
    assert comparison.with_same_graph(base, {"name": "secagg"}) == {"name": "secagg"}
    few = msgspec.structs.replace(base, data=msgspec.structs.replace(base.data, parties=4))
    assert comparison.with_same_graph(few, {"name": "gossip"}) == {"name": "gossip"}, "no degree of 4 among 4"
    own = msgspec.structs.replace(base, protocol={"name": "gossip"})
    assert comparison.with_same_graph(own, {"name": "gossip"}) == {"name": "gossip"}


def test_compare_measures_no_start_up(monkeypatch):
    """The round of the first assembly is not measured: every measured round comes after one of its own kind."""
    begun = []
    honest = comparison.assemble_run
    monkeypatch.setattr(comparison, "assemble_run", lambda given: begun.append(given.protocol["name"]) or honest(given))
    base = msgspec.structs.replace(comparison.STANDARD, rounds=1)
    comparison.compare(base, [{"name": "fedavg"}, {"name": "secagg"}])
    assert begun == ["fedavg", "fedavg", "secagg", "secagg"]


def test_protocols_are_compared_on_the_same_work(tacit):
    done = tacit(
        "compare", "--rounds", "2", "--protocol", "fedavg", "--protocol", "secagg bits=64", "--protocol", "pushsum",
        "--protocol", "local", "--picture", "all.png", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    plain, masked, refused, alone = json.loads(done.stdout)
    assert plain["history"][-1]["accuracy"] == pytest.approx(masked["history"][-1]["accuracy"], abs=0.02)
    assert plain["exposed"] == "9 of 9 to server"
    assert masked["exposed"] == "nobody"
    assert "pushsum would show" in refused["refused"]
    assert alone["bytes_per_party_per_round"] == 0
    assert Path("all.png").stat().st_size > 10_000


# --- what is printed can be pasted ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ('gossip graph={"kind":"regular","degree":4}', {"graph": {"kind": "regular", "degree": 4}}),
        ('gossip graph={"kind": "regular", "degree": 4}', {"graph": {"kind": "regular", "degree": 4}}),
        ("gossip graph={'kind': 'ring'}", {"graph": {"kind": "ring"}}),
        ("admm masked=True group_size=None rho=[3, 0.1]", {"masked": True, "group_size": None, "rho": [3, 0.1]}),
        ("secagg 'rounding=nearest' bits=16", {"rounding": "nearest", "bits": 16}),
        ('secagg rounding="a \\" b"', {"rounding": 'a " b'}),
        ("  cesar   share=0.3 ", {"share": 0.3}),
    ],
)
def test_a_protocol_is_written_as_it_is_read(typed, options):
    read = comparison.parse_variant(typed)
    assert read == {"name": typed.split()[0], **options}
    assert comparison.parse_variant(comparison.write_variant(read["name"], options)) == read


@pytest.mark.parametrize("columns", ["40", "80"])
def test_what_compare_prints_of_a_protocol_can_be_pasted(tacit, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    asked = ['gossip graph={"kind":"regular","degree":4}', 'cesar graph={"kind":"regular","degree":4}']
    done = tacit("compare", "--rounds", "1", *(word for each in asked for word in ("--protocol", each)))
    assert "…" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("--protocol ")]
    assert [shlex.split(line)[1] for line in lines] == asked
    again = tacit("compare", "--rounds", "1", *shlex.split(" ".join(lines)), "--json")
    assert [each["protocol"] for each in json.loads(again.stdout)] == ["gossip", "cesar"]


def test_what_is_wrong_with_a_setting_is_told_by_its_option(tacit):
    done = tacit("compare", "--protocol", "gossip graph=[ring")
    assert done.exit_code == 2
    assert done.output.startswith("error[config]: --protocol graph=[ring: ")


def test_compare_tells_what_it_is_doing(tacit, monkeypatch):
    for name in ("SHORT", "OFTEN"):
        monkeypatch.setattr(progress, name, 0.0)
    done = tacit("compare", "--rounds", "3", "--seeds", "1", "--protocol", "secagg", "--protocol", "pushsum")
    told = [line.partition("%  ")[2] for line in done.stderr.splitlines()]
    rounds = [f"secagg, round {number} of 3" for number in (1, 2, 3)]
    asked = "secagg: asking who could learn whose model"
    assert [line for line in told if line in ("secagg: begins", *rounds, asked)] == ["secagg: begins", *rounds, asked]
    assert f"{asked}: analysing the view of server" in told
    monkeypatch.setattr(progress, "SHORT", 1e9)
    assert tacit("compare", "--rounds", "1", "--protocol", "fedavg").stderr == ""


PRIVATE = """
rounds = 1
[data]
parties = 9
[privacy]
epsilon = 8.0
clip = 1.0
noise = "{noise}"
"""


@pytest.mark.parametrize(("noise", "cannot"), [("distributed", set()), ("central", {"gossip", "cesar"})])
def test_what_cannot_be_had_with_a_scenario_is_left_out_and_told(tacit, noise, cannot):
    scenario = written(PRIVATE.format(noise=noise))
    done = tacit("compare", scenario, "--json")
    assert done.exit_code == 0, done.output
    found = {each["protocol"]: each for each in json.loads(done.stdout)}
    assert list(found)[:2] == ["local", "centralized"]
    for name in ("local", "centralized"):
        assert "needs averages" in found[name]["refused"]
    assert {name for name in ("secagg", "fedavg", "gossip", "cesar") if not found[name]["history"]} == cannot
    assert all("has no server" in found[name]["refused"] for name in cannot)
    asked = tacit("compare", scenario, "--protocol", "local")
    assert asked.exit_code == 2, "who asks for it is told that it cannot be"
    assert "needs averages" in asked.output


def test_a_protocol_that_comes_to_nothing_leaves_the_others_their_rows(tacit):
    rng = np.random.default_rng(0)
    for place in range(3):
        x, y = rng.normal(size=(40, 4)), rng.integers(0, 2, 40)
        Path("mine").mkdir(exist_ok=True)
        np.savez(Path("mine") / f"p{place}.npz", x=x * (1e200 if place == 0 else 1.0), y=y)
    scenario = written('rounds = 1\n[data]\nparties = 3\nfolder = "mine"\n')
    with np.errstate(all="ignore"):
        done = tacit("compare", scenario, "--protocol", "centralized", "--protocol", "gossip", "--json")
    assert done.exit_code == 0, done.output
    centralized, gossip = json.loads(done.stdout)
    assert centralized["refused"].startswith("in round 1: no party's loss is finite any more")
    assert gossip["history"]


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (('"softmax"', '"sofmax"'), 4, "did you mean 'softmax'?"),
        (('"softmax"', '"softmax"\nwidth = 3'), 5, "softmax has no option 'width'"),
        (('"secagg"', '"secag"'), 6, "did you mean 'secagg'?"),
        (('"secagg"', '"secagg"\nthreshold = 99'), 7, "threshold=99 cannot hold"),
        (("parties = 4", 'name = "digit"'), 2, "did you mean 'digits'?"),
        (("parties = 4", "options = { by = 3 }"), 2, "digits has no option 'by'"),
    ],
)
def test_what_shows_only_when_it_is_run_is_told_with_its_line_too(tacit, change, line, said):
    text = '[data]\nparties = 4\n[model]\nname = "softmax"\n[protocol]\nname = "secagg"\n'
    done = tacit("train", written(text.replace(*change)))
    assert done.exit_code == 2
    assert f", line {line}: " in done.output
    assert said in done.output


@pytest.mark.parametrize("protocol", ["fedavg", "gossip"])
def test_who_was_missing_is_told_round_by_round(tacit, protocol):
    text = f'rounds = 2\nprotocol = "{protocol}"\n[data]\nparties = 4\ntrain = 100\n'
    silent = '[[faults]]\naction = "silence"\nparty = "p3"\nround = 2\n'
    done = tacit("train", written(text + silent), "--json")
    assert done.exit_code == 0, done.output
    first, second = json.loads(done.stdout)["history"]
    assert (first["left_out"], first["contributors"]) == ({}, 4)
    assert (second["left_out"], second["averaged"]) == ({"p3": "silent"}, ["p0", "p1", "p2"])


def test_without_samples_to_be_tested_on_a_run_has_no_scores(tacit):
    Path("mine").mkdir()
    for place in range(3):
        np.savez(Path("mine") / f"p{place}.npz", x=np.eye(4) + place, y=np.arange(4) % 2)
    done = tacit(
        "train", written('rounds = 1\n[data]\nparties = 3\nfolder = "mine"\noptions = { share = 1.0 }\n'), "--json"
    )
    assert done.exit_code == 0, done.output
    (only,) = json.loads(done.stdout)["history"]
    assert (only["accuracy"], only["contributors"]) == (None, 3)


def test_what_is_wrong_with_the_scenario_itself_is_no_table_of_refusals(tacit):
    done = tacit("compare", written(PRIVATE.format(noise="central").replace("[data]", '[data]\nname = "digit"')))
    assert done.exit_code == 2
    assert len(read_errors(done.output)) == 1


@pytest.mark.parametrize("rounds", ["0", "-1"])
def test_nothing_is_compared_in_no_rounds(tacit, rounds):
    done = tacit("compare", f"--rounds={rounds}")
    assert done.exit_code == 2
    assert f"--rounds {rounds}: use a whole number of at least 1" in done.output


def test_a_protocol_that_is_none_is_told(tacit):
    done = tacit("compare", "--protocol", "secag")
    assert done.exit_code == 2
    assert "there is no protocol 'secag'" in done.output


def test_every_reproduction_is_listed_and_says_what_it_is(tacit):
    done = tacit("reproduce", "--list", "--json")
    assert [each["name"] for each in json.loads(done.stdout)] == list(papers.names())
    text = " ".join(tacit("reproduce").stdout.split())
    assert "The quickest are 001-steps, 002-optimality, " in text
    assert re.search(r"000-fig3 5\.5 Test accuracy", text)
    assert {name[:3] for name in papers.names()} == {"000", "001", "002", "003", "004"}
    for name in papers.names():
        found = papers.find(name)
        assert isinstance(found, Reproduction)
        assert found.name == name


@pytest.mark.slow
def test_a_table_is_run_again_and_drawn(tacit):
    done = tacit("reproduce", "004-table2", "--picture", "table.svg")
    assert done.exit_code == 0, done.output
    assert "43.8" in done.output
    assert "at scale small. Agrees: " in done.output
    assert "1: equal to the printed number." in done.output
    assert "docs/reproductions/004.md" in done.output
    assert Path("table.svg").exists()


@pytest.mark.parametrize("given", [["000-fig99"], ["004-table2", "--scale", "huge"]])
def test_what_cannot_be_reproduced_is_told(tacit, given):
    assert tacit("reproduce", *given).exit_code == 2


def test_the_page_of_reproductions_is_that_of_what_is_kept():
    check = subprocess.run([sys.executable, ROOT / "docs" / "reproductions.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/reproductions.py"


def test_a_run_without_jinja2_says_that_it_has_no_report(tacit, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    html_reports.load_templates.cache_clear()
    done = tacit("train", written(SCENARIO.format(protocol="local")), "--folder", "out", "--json")
    assert done.exit_code == 0, done.output
    assert "note: no report.html: jinja2 is not installed" in done.stderr
    assert not Path("out/report.html").exists()
