"""Declared rows, and the page of all reproductions with its summary."""

import re
import runpy
from dataclasses import asdict, is_dataclass, replace
from importlib import import_module
from pathlib import Path

import pytest

from tacit.lab import papers
from tacit.lab.papers import minutes
from tacit.lab.papers.reproduction import DeclaredRow
from tacit.lab.papers.rules import Between, Estimate, NotCompared, PaperNumber, RowVerdict, SameSign

ROOT = Path(__file__).parents[3]
GAP = DeclaredRow("gap", PaperNumber(-0.51, rounding=0.01), SameSign("the size depends on the data"), "points", "+.2f")


@pytest.fixture(scope="module")
def page_module():
    return runpy.run_path(str(ROOT / "docs" / "reproductions.py"))


def test_a_row_has_both_numbers_the_spread_and_the_verdict():
    row = GAP.measure(Estimate.over([-3.0, -3.1, -3.2]), "8 rounds")
    assert (row.paper, row.ours) == ("-0.51 points", "-3.10 ± 0.10 points (3 seeds)")
    assert (row.verdict, row.why) == (RowVerdict.AGREES, "8 rounds")
    assert "the size depends on the data" in row.rule


def test_a_run_that_went_wrong_differs():
    assert GAP.fail("round 3 aborted").verdict is RowVerdict.DIFFERS


def test_words_and_nothing_are_shown_as_they_are():
    assert DeclaredRow("a", "lower", SameSign("", sign=-1)).paper_text == "lower"
    assert DeclaredRow("a", None, NotCompared("")).paper_text == ""


def test_what_was_run_was_declared(page_module):
    for key, result in page_module["kept"]().items():
        declared = {row.what for row in papers.find(key.split()[0]).declared}
        if declared:
            assert {row["what"] for row in result["rows"]} <= declared, key


def test_the_summary_counts_every_row_once(page_module):
    found = page_module["kept"]()
    lines = [line for line in page_module["_summary"](found) if line.startswith("| 0")]
    for line in lines:
        number, (total, *parts) = line[2:5], [int(cell) for cell in line.strip("| ").split(" | ")[1:]]
        assert total == sum(parts)
        whats = {
            (name := key.split()[0], papers.find(name).identify(row["what"]))
            for key, result in found.items()
            if key.startswith(number)
            for row in result["rows"]
        }
        assert total - parts[-1] == len(whats)


def test_rows_that_were_not_run_come_with_the_command(page_module):
    what = papers.find("000-fig6")
    lines = "\n".join(page_module["_not_run"](type(what)("000-fig6", "", what.run, declared=(GAP,)), {}))
    assert "--run 000-fig6" in lines
    assert "- gap" in lines


def sizes_of(name):
    """Returns the sizes of both scales as plain data; None where there are none."""
    module = import_module(papers.find(name).run.__module__)
    sizes = getattr(module, "SIZES", None)
    return {scale: asdict(size) for scale, size in sizes.items()} if sizes and is_dataclass(sizes["small"]) else None


def flatten(value):
    if isinstance(value, dict):
        return [each for part in value.values() for each in flatten(part)]
    if isinstance(value, (list, tuple)):
        return [each for part in value for each in flatten(part)]
    return [value]


@pytest.mark.parametrize("name", [name for name in papers.names() if sizes_of(name)])
def test_sizes_that_differ_from_the_papers_are_listed_as_changed(name):
    sizes, changed = sizes_of(name), "\n".join(papers.find(name).changed)
    for key, small in sizes["small"].items():
        if small != sizes["paper"][key]:
            numbers = [each for each in flatten(small) if each not in flatten(sizes["paper"][key])]
            missing = [each for each in numbers if isinstance(each, (int, float)) and f"{each:,}" not in changed]
            assert not missing, f"{name}: {key} {missing}"


@pytest.mark.parametrize("name", ["002-convergence", "003-lemmas"])
def test_rows_that_differ_only_in_the_size_of_the_scale_count_once(page_module, name):
    found, what = page_module["kept"](), papers.find(name)
    small, paper = ({row["what"] for row in found[f"{name} {scale}"]["rows"]} for scale in ("small", "paper"))
    assert small != paper
    assert {what.identify(each) for each in small} == {what.identify(each) for each in paper}
    assert len(page_module["_verdicts"](name, found)) == len(small) == len(paper)
    assert page_module["_missing"](what, found) == []


def test_a_row_says_why_its_spread_decides_nothing():
    near = DeclaredRow("share", "all", Between("one picture", low=0.9), identity="share of runs")
    what = replace(papers.find("000-fig6"), declared=(near, GAP))
    row = near.measure(Estimate.share(33, 40))
    assert row.verdict is RowVerdict.NOT_COMPARABLE
    assert re.fullmatch(r"the 95% interval, 0\.\d+ to 0\.\d+, includes 0\.9", what.explain(row))
    assert what.explain(near.measure(Estimate.certain(1.0))) == ""
    assert what.explain(GAP.measure(Estimate.over([-3.0, 3.0]))).endswith("includes 0")
    assert what.identify("share") == "share of runs"
    assert what.identify("gap") == "gap"


def test_the_minutes_of_the_list_are_those_that_were_measured(page_module):
    assert page_module["minutes_module"](page_module["kept"]()) == Path(minutes.__file__).read_text(encoding="utf-8")
    assert minutes.MINUTES.keys() == set(papers.names())
