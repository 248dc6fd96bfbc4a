"""Everything in examples/ runs, and says what its pages say it does."""

import json
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from support.paths import ROOT

EXAMPLES = ROOT / "examples"


def ran(name: str, *given: str, code: int = 0) -> str:
    """Returns what an example prints."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 (our own)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["three_hospitals", "hospital"])
def test_an_example_without_torch_says_how_to_install_it(name: str) -> None:
    script = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(EXAMPLES / name) + '.py'!r})"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 (our own)
    assert done.returncode == 1
    assert done.stderr == "error: torch is not installed\ntry: pip install 'tacit[torch]'\n"


@pytest.mark.slow
def test_three_hospitals_have_one_model_after_each_round() -> None:
    told = ran("three_hospitals", "2")
    # Processes may write their lines without waiting for each other's to end.
    said = re.findall(r"(north|east|south), round (\d): (\d+)% alone, (\d+)% together", told)
    everyone = sorted((name, number) for name in ("north", "east", "south") for number in "12")
    assert sorted((name, number) for name, number, _, _ in said) == everyone, told
    for number in "12":
        assert len({together for _, each, _, together in said if each == number}) == 1
        assert all(int(together) > int(alone) for _, each, alone, together in said if each == number)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["lightning", "huggingface", "lora", "sklearn"])
def test_hospitals_that_train_with_a_library_end_with_one_model(library: str) -> None:
    ended = re.findall(r"^(north|east|south): (\d) rounds, weights (.+)$", ran("your_trainer", library), re.MULTILINE)
    assert sorted((name, rounds) for name, rounds, _ in ended) == [("east", "2"), ("north", "2"), ("south", "2")]
    assert len({weights for _, _, weights in ended}) == 1


def test_sensors_agree_better_than_each_alone() -> None:
    told = ran("sensors")
    alone, *rounds = (float(number) for number in re.findall(r"off by up to ([\d.]+)", told))
    assert rounds[-1] < alone / 2
    assert rounds == sorted(rounds, reverse=True)
    assert "masked=False: in one round p0 learns the models of p4 p6" in told
    assert "masked=True: in one round p0 learns the models of nobody" in told


def test_protocols_are_compared_with_who_learns_what() -> None:
    table = {line.split()[0]: line for line in ran("compare").splitlines()[1:]}
    assert list(table) == ["local", "fedavg", "secagg", "cesar", "gossip"]
    assert table["fedavg"].endswith("server 6")
    assert table["secagg"].endswith("nobody")
    accuracy = {name: float(line.split()[1].rstrip("%")) for name, line in table.items()}
    assert accuracy["fedavg"] == accuracy["secagg"] > accuracy["local"]


@pytest.mark.slow
def test_a_setup_is_audited_and_the_exit_code_says_what_came_of_it() -> None:
    as_it_is, batches = ran("audit_your_setup", code=1).split("with whole batches")
    assert "some missing: exposed: p0 p8 p11" in as_it_is
    assert "such as p0 = the sum of round" in as_it_is
    assert "exposed:" not in batches


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own
def test_the_notebook_prints_what_it_shows() -> None:
    path = EXAMPLES / "leaks.ipynb"
    kept = nbformat.read(path, as_version=4)
    anew = nbformat.read(path, as_version=4)
    NotebookClient(anew, timeout=300, kernel_name="python3", record_timing=False).execute()

    def printed(notebook: nbformat.NotebookNode) -> list[str]:
        return ["".join(each.get("text", "") for each in cell.get("outputs", ())) for cell in notebook.cells]

    assert any(printed(kept))
    assert printed(anew) == printed(kept)
    assert "execution" not in json.dumps([cell.metadata for cell in kept.cells])
