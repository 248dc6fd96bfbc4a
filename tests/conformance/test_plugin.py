"""A protocol in a package of its own, installed with pip into a fresh environment, works everywhere.

The package is the one of docs/adding-a-protocol.md, taken from the page as printed.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import venv
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import tacit
from support.federations import free_ports
from support.paths import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "adding-a-protocol.md"
SCENARIO = """
rounds = 2

[data]
name = "digits"
parties = 3

[protocol]
name = "roundtrip"
"""


class Environment:
    """A fresh environment in which packages of this one can be imported, and its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        library = next((folder / "lib").glob("python*/site-packages"))
        # Neither builds nor packages are fetched: what is installed here is found there.
        shared = [str(Path(tacit.__file__).parents[1]), sysconfig.get_path("purelib")]
        (library / "shared.pth").write_text("\n".join(shared), encoding="utf-8")
        self.variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def install(self, package: Path) -> None:
        how = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
        self.run(sys.executable, "-m", "pip", "--python", self.python, "install", *how, package)

    def run(self, *command, code=0, **options) -> str:
        done = subprocess.run(  # noqa: S603
            list(map(str, command)), capture_output=True, text=True, check=False, env=self.variables, **options
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def tacit(self, *given, **options) -> str:
        return self.run(self.python, "-m", "tacit", *given, **options)


def write_package(folder: Path, **changes: str) -> Path:
    """Writes the two files of the page, with some text replaced."""
    page = PAGE.read_text(encoding="utf-8")
    project = re.search(r"^```toml[^\n]*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    module = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert project
    assert module
    folder.mkdir()
    for name, text in (("pyproject.toml", project[1]), ("roundtrip.py", module[1])):
        for before, after in changes.items():
            text = text.replace(before, after)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with the package of the page, and with another one that cannot be imported."""
    folder = tmp_path_factory.mktemp("plugin")
    environment = Environment(folder / "environment")
    environment.install(write_package(folder / "roundtrip"))
    broken = write_package(folder / "broken", roundtrip="shipwreck")
    (broken / "roundtrip.py").unlink()
    (broken / "shipwreck.py").write_text("import no_such_module\n", encoding="utf-8")
    environment.install(broken)
    return environment


def test_it_is_listed_and_the_broken_one_is_told_in_one_line(installed):
    listed = {each["name"]: each for each in json.loads(installed.tacit("protocols", "--json"))}
    assert listed["roundtrip"]["summary"].startswith("a masked sum")
    assert listed["shipwreck"]["package"] == "tacit-shipwreck 1.0"
    assert "no_such_module" in listed["shipwreck"]["problem"]
    text = installed.tacit("protocols")
    assert [line for line in text.splitlines() if "tacit-shipwreck 1.0 is not available" in line]


def test_it_is_audited_planned_and_averaged_with(installed, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import warnings

            import tacit

            out = tacit.aggregate([[1.0], [2.0], [6.0]], "roundtrip")
            assert abs(out.average["p0"][0] - 3.0) < 1e-6
            federation = tacit.Federation("roundtrip", ["a", "b", "c", "d"])
            assert len(federation.average([[1.0]] * 4).contributors) == 4
            assert not tacit.audit("roundtrip", parties=4, coalition="p1").exposed
            assert set(tacit.audit("roundtrip", parties=4, coalition=["p0", "p2"]).exposed) == {"p1", "p3"}
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                plan = tacit.plan(4, rounds=2, entries=100)
            assert sum("shipwreck" in str(each.message) for each in told) == 1, told
            (proposal,) = [each for each in plan.proposals if each.protocol == "roundtrip"]
            assert proposal.bytes_per_party > 0
            assert proposal.fine, proposal
            """
        ),
        encoding="utf-8",
    )
    installed.run(installed.python, script)
    assert "roundtrip" in installed.tacit("audit", "roundtrip", "--parties", "4", "--coalition", "p1")
    installed.tacit("audit", "roundtrip", "--parties", "4", "--coalition", "p0,p2", "--fail-if-exposed", code=1)


def test_the_page_lists_and_audits_it(installed, tmp_path):
    program = [installed.python, "-m", "tacit", "ui", ".", "--port", "0"]
    with subprocess.Popen(  # noqa: S603
        program, cwd=tmp_path, env=installed.variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as page:
        base, token = page.stdout.readline().strip().split("/?token=")

        def ask(path):
            headers = {"Authorization": f"Bearer {token}"}
            with urlopen(Request(base + path, headers=headers), timeout=120) as answer:  # noqa: S310
                return answer.read().decode()

        try:
            listed = json.loads(ask("/api/protocols"))
            answers = [ask(f"/api/ask?protocol=roundtrip&parties=4&coalition={each}") for each in ("p1", "p0,p2")]
        finally:
            page.kill()
    assert "roundtrip" in {each["name"] for each in listed["protocols"]}
    assert [each["name"] for each in listed["unavailable"]] == ["shipwreck"]
    victims = []
    for answer in answers:
        events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line]
        verdict, proof = (next(each for each in events if each["event"] == kind) for kind in ("verdict", "proof"))
        assert proof["exposed"] == bool(verdict["victims"])
        victims.append(set(verdict["victims"]))
    assert victims == [set(), {"p1", "p3"}]


FLOWER = """
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
from support.flower_fleet import NODES, Trial, asked

ENTRIES = 12
trial = Trial.of(sys.argv[2], "roundtrip", 4)
fleet = trial.fleet(ENTRIES)
grid = trial.grid(fleet)
for number, played in enumerate(trial.played(ENTRIES, 2), 1):
    grid.send_and_receive(asked(fleet, ENTRIES, number))
    assert grid.lost == {}
    for answer in grid.send_and_receive(asked(fleet, ENTRIES, number, "evaluate")):
        party = f"p{answer.metadata.src_node_id - NODES}"
        assert np.array_equal(answer.content["arrays"]["w"].numpy(), played.endings[party].average), party
        print(number, party)
"""


def test_it_averages_on_flower_as_in_the_simulator(installed, tmp_path):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")
    (tmp_path / "fleet.py").write_text(FLOWER, encoding="utf-8")
    told = installed.run(installed.python, "fleet.py", ROOT / "tests", tmp_path / "parties", cwd=tmp_path)
    assert told.split("\n")[:-1] == [f"{number} p{place}" for number in (1, 2) for place in range(4)]


def test_it_is_compared_and_trained_with(installed, tmp_path):
    (tmp_path / "scenario.toml").write_text(SCENARIO, encoding="utf-8")
    compared = installed.tacit(
        "compare", "scenario.toml", "--protocol", "roundtrip", "--protocol", "fedavg", "--json", cwd=tmp_path
    )
    assert {each["protocol"] for each in json.loads(compared)} == {"roundtrip", "fedavg"}
    installed.tacit("train", "scenario.toml", "--folder", "run", cwd=tmp_path)
    rounds = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rounds) >= 2


def make_federation(environment, folder: Path) -> None:
    """Makes a roster of three parties on free ports, with their identities."""
    places = zip("abc", free_ports(3), strict=True)
    parties = ",".join(f"{name}=127.0.0.1:{port}" for name, port in places)
    environment.tacit(
        "keygen", "--federation", "three", "--parties", parties, "--protocol", "roundtrip", "--folder", ".", cwd=folder
    )


PARTY = """
import sys

import numpy as np

import tacit

name, number = sys.argv[1:]
with tacit.join("federation.toml", me=name) as peer:
    outcome = peer.average(np.array([float(number), 1.0]))
    print(outcome.average[name].round(6).tolist())
"""


def test_it_runs_between_processes(installed, tmp_path):
    make_federation(installed, tmp_path)
    (tmp_path / "party.py").write_text(PARTY, encoding="utf-8")
    running = [
        subprocess.Popen(  # noqa: S603
            [installed.python, "party.py", name, str(number)],
            cwd=tmp_path,
            env=installed.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, number in (("a", 1), ("b", 2), ("c", 6))
    ]
    try:
        for each in running:
            output, errors = each.communicate(timeout=120)
            assert (each.returncode, output.strip()) == (0, "[3.0, 1.0]"), errors
    finally:
        for each in running:
            each.kill()


def test_nodes_train_with_it(installed, tmp_path):
    make_federation(installed, tmp_path)
    (tmp_path / "scenario.toml").write_text(SCENARIO, encoding="utf-8")
    running = [
        subprocess.Popen(  # noqa: S603
            [installed.python, "-m", "tacit", "node", "scenario.toml", "--me", name],
            cwd=tmp_path,
            env=installed.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in "abc"
    ]
    try:
        for each in running:
            output, _ = each.communicate(timeout=180)
            assert each.returncode == 0, output
    finally:
        for each in running:
            each.kill()
    assert all((tmp_path / f"{name}.run").is_dir() for name in "abc")
