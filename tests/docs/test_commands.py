"""Commands in README.md and on other pages: each is run as it is printed, or in a quick form that is written down here.

A page's commands are run in its order, in a folder that has what the page says is there. What starts a server, waits
for others or takes minutes has a quick form in `INSTEAD`, with the reason; those that only take long are run as printed
by a slow test, and so is README.md from top to bottom, in a fresh clone.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.authorities import Authority
from support.paths import ROOT
from tacit.app.cli.main import app

pytestmark = pytest.mark.long

PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)

INSTALLS = "installs things from elsewhere; test_readme_in_a_fresh_clone runs it"
ITSELF = "it is this"
LONG = "takes long"
SERVES = "waits for others; tests/app/cli/test_node_commands.py and examples/three_hospitals.py run it"
FLOWER = "needs Flower's own processes; tests/integrations/flower runs what is ours in it"
DOCTOR = "needs a federation; tests/app/doctor/test_doctor.py runs it"
EXAMPLES = "tests/docs/test_examples.py runs it"

INSTEAD: dict[str, tuple[str | None, str]] = {
    "make demo": ("tacit demo --parties 3 --rounds 1", INSTALLS),
    "make setup": (None, INSTALLS),
    "pip install 'tacit[metrics]'": (None, INSTALLS),
    ". .venv/bin/activate": (None, INSTALLS),
    "make test": (None, ITSELF),
    "make lint types": (None, ".ci/run runs it"),
    ".ci/run": (None, ITSELF),
    ".venv/bin/pytest tests/house -k changelog": (None, ITSELF),
    '.venv/bin/pytest tests/replay -m "not slow"': (None, ITSELF),
    ".venv/bin/python -m benchmarks masks": (None, "tests/house/test_benchmarks.py runs small sizes"),
    ".venv/bin/python -m benchmarks masks --quick": (None, "tests/house/test_benchmarks.py runs small sizes"),
    "make bench": (None, "takes a quarter of an hour; tests/house/test_benchmarks.py runs small sizes"),
    ".venv/bin/python -m benchmarks masks shamir": (None, "tests/house/test_benchmarks.py runs small sizes"),
    ".venv/bin/python -m benchmarks --quick": (None, "tests/house/test_benchmarks.py runs small sizes"),
    ".venv/bin/python -m benchmarks --json mine.json": (None, "tests/house/test_benchmarks.py runs small sizes"),
    "tacit ui": ("tacit ui --help", "waits for others; tests of the page start it"),
    "tacit plan 12 --coalition-size 2 --rounds 50": ("tacit plan 4 --coalition-size 2 --rounds 2", LONG),
    "tacit plan 10 --coalition-size 2 --rounds 20 --dropout 0.05": ("tacit plan 4 --rounds 2 --dropout 0.05", LONG),
    "tacit plan 3 --rounds 100 --entries 1000000": ("tacit plan 3 --rounds 2 --entries 1000000", LONG),
    "tacit train scenario.toml --folder runs/first": ("tacit train quick.toml --folder runs/first", LONG),
    "tacit compare --picture compare.png": ("tacit compare --rounds 1 --protocol secagg --picture compare.png", LONG),
    "tacit compare scenario.toml --protocol fedavg --protocol 'cesar share=0.3'": (
        "tacit compare quick.toml --rounds 1 --protocol fedavg --protocol 'cesar share=0.3'",
        LONG,
    ),
    "tacit compare clinics.toml": ("tacit compare clinics.toml --rounds 1", LONG),
    "tacit serve federation.toml": ("tacit serve --help", SERVES),
    "tacit relay federation.toml": ("tacit relay --help", SERVES),
    "tacit serve federation.toml --log-json": ("tacit serve --help", SERVES),
    "tacit serve federation.toml --metrics localhost:9464": ("tacit serve --help", SERVES),
    "tacit node scenario.toml --me a": ("tacit node --help", SERVES),
    "tacit status a.rounds": ("tacit status --help", SERVES),
    "tacit status a.rounds --watch": ("tacit status --help", SERVES),
    "tacit status a.rounds --json": ("tacit status --help", SERVES),
    "tacit status hospital-a.rounds --watch": ("tacit status --help", SERVES),
    "tacit status server.rounds --watch": ("tacit status --help", SERVES),
    "tacit doctor federation.toml --me hospital-a": ("tacit doctor --help", DOCTOR),
    "tacit doctor federation.toml --me hospital-a --json": ("tacit doctor --help", DOCTOR),
    "tacit doctor federation.toml --me hospital-a --proxy http://proxy.hospital-a.example:3128": (
        "tacit doctor --help",
        DOCTOR,
    ),
    "tacit audit --flower path/to/app": ("tacit audit --flower examples/flower_app", "the path is the reader's"),
    "cd examples/flower_app": (None, FLOWER),
    "flwr run . --federation-config num-supernodes=10 --stream": (None, FLOWER),
    "pip install '.[flower,ray]'": (None, INSTALLS),
    "python examples/three_hospitals.py": (None, EXAMPLES),
    "python hospital.py hospital-a": (None, "tests/docs/test_guide.py runs it"),
    "python examples/your_trainer.py lightning": (None, EXAMPLES),
    "python examples/your_trainer.py lora": (None, EXAMPLES),
    "python examples/sensors.py": (None, EXAMPLES),
    "python examples/compare.py": (None, EXAMPLES),
    "python examples/audit_your_setup.py": (None, EXAMPLES),
}
"""By command as it is printed: what is run in its place, if anything, and why."""
FLOWERS = ("flower-supernode ", "flwr run . consortium ", "python -m tacit.integrations.flower.worker ")
CONTAINERS = ("pip wheel ", "podman", "kubectl ", "helm ", "sudo ", "cd deploy/", "for name in server ")
"""Beginnings of commands that need containers, a cluster or a service manager; tests/deploy checks what they use."""


def blocks(page: Path, language: str) -> list[str]:
    """Returns the blocks of a language."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return pattern.findall(page.read_text(encoding="utf-8"))


def commands(page: Path) -> list[str]:
    """Returns the commands of a page, without comments."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)#.*$", "", line).strip())]


def quick(command: str) -> str | None:
    """Returns what is run in the place of a command."""
    if command.startswith(FLOWERS + CONTAINERS):
        return None
    return INSTEAD.get(command, (command, ""))[0]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Returns the function that goes to a folder which has what a page says is there."""

    def there(page: Path) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        shutil.copytree(ROOT / "examples", "examples")
        if page.name == "for-officers.md":
            parties = ",".join(f"hospital-{letter}=localhost:740{place}" for place, letter in enumerate("abc", 1))
            given = ["keygen", "--federation", "study", "--parties", parties, "--server", "localhost:7400"]
            assert CliRunner().invoke(app, given).exit_code == 0
        if page.name == "federations.md":
            Path("ca.pem").write_bytes(Authority("hospital-b").pem)
        if page.name == "learning.md":
            clinics, scenario = blocks(page, "toml")[:2]
            Path("scenario.toml").write_text(scenario, encoding="utf-8")
            Path("quick.toml").write_text(scenario.replace("rounds = 20", "rounds = 1"), encoding="utf-8")
            Path("clinics.toml").write_text(clinics, encoding="utf-8")
            exec(compile(blocks(page, "python")[0], str(page), "exec"), {})  # noqa: S102 (our own page)

    return there


def finished(command: str) -> None:
    """Runs a command of ours in this process."""
    first, *given = shlex.split(command)
    assert first == "tacit", f"{command} is not run; say in INSTEAD what is"
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, f"{command}\n{done.output}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_in_their_order(page: Path, place: Callable[[Path], None]) -> None:
    place(page)
    for command in filter(None, map(quick, commands(page))):
        finished(command)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_what_takes_long_works_as_printed(page: Path, place: Callable[[Path], None]) -> None:
    place(page)
    for command in commands(page):
        if INSTEAD.get(command, ("", ""))[1] == LONG:
            finished(command)


def test_nothing_is_left_out_that_no_page_has() -> None:
    printed = {command for page in PAGES for command in commands(page)}
    assert len(printed) > 40
    assert sorted(INSTEAD.keys() - printed) == []
    assert all(any(command.startswith(start) for command in printed) for start in FLOWERS + CONTAINERS)


@pytest.mark.slow
def test_readme_in_a_fresh_clone(tmp_path: Path) -> None:
    """Every command of README.md, in one shell, as somebody new would type them."""
    clone = tmp_path / "tacit"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # noqa: S603, S607
    lines = commands(ROOT / "README.md")
    assert {"make demo", "make setup", "tacit ui"} <= set(lines)
    # The tests are these. The page is there until somebody ends it: after ten seconds, by timeout, which then says 124.
    script = ["set -e"]
    for line in lines:
        if line == "tacit ui":
            script.append("set +e; timeout 10 tacit ui; test $? -eq 124 || exit 1; set -e")
        elif line != "make test":
            script.append(line)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    shell = ["bash", "-c", "\n".join(script)]
    done = subprocess.run(shell, cwd=clone, env=env, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "only the sum" in done.stdout
