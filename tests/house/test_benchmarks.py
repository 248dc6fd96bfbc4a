"""That the benchmarks run and write what they say. Nothing here depends on how fast anything is."""

import json
import math
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from support.paths import ROOT

SUITES = (
    "masks",
    "shamir",
    "sealing",
    "secagg",
    "indices",
    "groups",
    "cesar",
    "memory",
    "many",
    "simulation",
    "ring16",
    "audit",
)
LONGER = {"audit", "many", "memory", "simulation", "cesar"}
"""Suites that take seconds even when they are quick."""
COUNTED = {"groups"}
"""Suites that count instead of measuring, so that their targets hold at small sizes too."""

# Flower's dependencies warn of each other when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")


@pytest.fixture(scope="module")
def main() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield import_module("benchmarks.__main__")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "suite", [pytest.param(suite, marks=[pytest.mark.slow] if suite in LONGER else []) for suite in SUITES]
)
def test_a_suite_gives_positive_figures_and_valid_json(
    main: ModuleType, suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "figures.json"
    assert main.main([suite, "--quick", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert found["command"] == f"python -m benchmarks {suite} --quick --json {path}"
    assert found["quick"]
    assert found["date"]
    assert found["machine"]["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert set(found["machine"]["versions"]) == {"numpy", "cryptography", "flwr"}
    assert found["rows"]
    for row in found["rows"]:
        assert row["suite"] == suite
        assert row["target"] is None or suite in COUNTED, "small sizes have no targets"
        figures = [row[name] for name in ("ours", "theirs", "ratio") if row[name] is not None]
        assert all(math.isfinite(figure) and figure > 0 for figure in figures), row
    printed = capsys.readouterr()
    assert all(row["name"] in printed.out for row in found["rows"])
    assert not printed.err, "progress is for terminals only"


def test_a_missed_target_is_an_exit_code(main: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = main.Row("x", 1.0, 2.0, "ms", 2.0, "at least 3x", False)
    monkeypatch.setitem(main.SUITES, "masks", lambda _: [row])
    assert main.main(["masks", "--json", str(tmp_path / "figures.json")]) == 1


def test_errors_take_one_line(
    main: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: bool) -> None:
        raise AssertionError("the average is wrong")

    monkeypatch.setitem(main.SUITES, "masks", broken)
    path = tmp_path / "figures.json"
    assert main.main(["masks", "--json", str(path)]) == 1
    assert not path.exists()
    for arguments in (["maks"], ["--json", str(tmp_path)], ["--quik"], ["--python", "pfl=nowhere"]):
        with pytest.raises(SystemExit) as end:
            main.main(arguments)
        assert end.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert "the average is wrong" in lines[0]
    assert "maks" in lines[1]


def test_cpu_time_is_charged_once(main: ModuleType) -> None:
    cost, outcome = main.secagg.run(main.secagg.Case(10, 100, "all"))
    assert 0 < cost.client * len(outcome.average) + cost.server <= cost.whole
