"""README.md and docs/: code that runs as printed, links that lead somewhere, and figures that commands wrote."""

import contextlib
import dataclasses
import io
import json
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import tacit.protocols
from support.paths import ROOT
from tacit.core.protocol import Settings

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]

BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n^```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def shown(page: Path) -> list[tuple[str, str | None]]:
    """Returns the Python blocks of a page, each with the output shown right below it."""
    return [(found["code"], found["output"]) for found in BLOCK.finditer(page.read_text(encoding="utf-8"))]


LONGER = {"admm", "audit", "audit-flower", "choosing", "learning", "secagg"}
"""Pages whose code audits many settings, or learns with many."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page.stem in LONGER else []) for page in PAGES if shown(page)],
    ids=lambda page: page.stem,
)
def test_the_code_of_a_page_runs_as_printed(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # some write runs
    # A page may register a protocol of its own; the next test shall not find it there.
    registry = tacit.protocols.REGISTRY
    monkeypatch.setattr(registry, "_loaded", dict(registry.items()))
    names: dict[str, object] = {"__name__": page.stem}
    for code, output in shown(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)  # noqa: S102 (our own pages)
        assert printed.getvalue() == (output or "")


def test_every_page_that_promises_code_has_some() -> None:
    with_code = {page.name for page in PAGES if shown(page)}
    protocols = {f"{name}.md" for name in tacit.protocols.REGISTRY}
    assert {"README.md", "tutorial.md", "adding-a-protocol.md"} | protocols <= with_code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = (page.parent / path) if path else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_protocol_has_a_page_that_names_its_messages_and_its_own_options() -> None:
    for protocol in tacit.protocols.REGISTRY.values():
        page = ROOT / "docs" / "protocols" / f"{protocol.name}.md"
        assert page.exists(), f"{protocol.name} has no page; docs/adding-a-protocol.md says what belongs on it"
        text = page.read_text(encoding="utf-8")
        options = set(protocol.settings.__struct_fields__) - set(Settings.__struct_fields__)
        for name in (*(kind.kind() for kind in protocol.messages), *sorted(options)):
            assert f"`{name}`" in text, f"{protocol.name}.md does not mention {name}"


# --- what scripts wrote ---------------------------------------------------------------------------------------------


def script(name: str) -> ModuleType:
    """Returns a script of docs/ as a module."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    return script("figures")


NAMES = ("name", "ours", "theirs", "unit", "ratio", "target", "met", "note")
ROWS = (
    ("one mask", 0.5, 7.25, "ms", 14.5, "at least 10x", True, "a note"),
    ("a | round", 12345.6, 23456.7, "ms", 1.9, None, None, ""),
    ("a client", 12.0, None, "ms", None, None, None, ""),
    ("memory", 4.0, 2.0, "B", 0.5, "at least 1x", False, "a reason"),
)
TABLE = (
    "| one mask | 0.5 ms | 7.25 ms | 14.5× | at least 10x, met |",
    "| a / round | 12,346 ms | 23,457 ms | 1.9× |  |",
    "| a client | 12 ms |  |  |  |",
    "| memory | 4 B | 2 B | 0.5× | at least 1x, **missed** |",
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with a few rows."""
    rows = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
    command = "python -m benchmarks masks --json /home/me/x.json --python pfl=/home/me/bin/python"
    (tmp_path / "latest.json").write_text(json.dumps({"rows": rows, "command": command}))
    tried = [{"where": where, "held": held} for where, held in (("a", True), ("a", False), ("b", True))]
    (tmp_path / "intruders.json").write_text(json.dumps({"rows": tried}))
    return tmp_path


def test_the_page_of_figures_has_every_row_and_nobodys_folders(figures: ModuleType, results: Path) -> None:
    page = figures.tables(results)
    assert [line for line in page.splitlines() if line in TABLE] == list(TABLE)
    assert "Written by `python -m benchmarks masks` on" in page
    assert "/home/me" not in page
    assert "| a | 2 | 1 |" in page


def test_readme_has_the_headlines_and_nothing_else(
    figures: ModuleType, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "HEADLINES", {"memory": "memory of it", "one mask": "a mask"})
    lines = figures.headlines(results / "latest.json").splitlines()
    assert lines[2:4] == ["| memory of it | 4 B | 2 B | 0.5× |", "| a mask | 0.5 ms | 7.25 ms | 14.5× |"]
    assert lines[4] == ""
    monkeypatch.setattr(figures, "HEADLINES", {"a row of the past": ""})
    with pytest.raises(SystemExit, match="a row of the past"):
        figures.headlines(results / "latest.json")


def test_the_specimen_report_is_the_one_that_its_command_writes() -> None:
    specimen = script("specimen")
    assert specimen.COMMAND in (ROOT / "docs" / "for-officers.md").read_text(encoding="utf-8")
    assert specimen.is_current(specimen.REPORT.read_text(encoding="utf-8")), "run python docs/specimen.py"


def test_missed_targets_are_listed_with_their_notes(figures: ModuleType, results: Path) -> None:
    assert figures.missed(results).splitlines()[2:] == [f"{TABLE[3]} a reason |"]
    path = results / "latest.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "rows": found["rows"][:3]}))
    assert figures.missed(results) == "No target is missed."


def test_the_demo_is_cut_after_its_first_tables(figures: ModuleType) -> None:
    printed = "a title\n\nhead\n────\nrow 1\nrow 2\n\ntext\n\nhead\n──\nrow 3\n\nmore\n"
    assert figures.first_tables(printed, 1)[-1] == "row 2"
    assert figures.first_tables(printed, 2)[-1] == "row 3"
    assert figures.first_tables(printed.removesuffix("\nmore\n"), 2)[-1] == "row 3"
    with pytest.raises(SystemExit):
        figures.first_tables(printed, 3)


def test_figures_that_are_not_there_are_no_error(figures: ModuleType, tmp_path: Path) -> None:
    assert "`make bench`" in figures.headlines(tmp_path / "latest.json")


def test_readme_has_the_places_that_are_written_by_commands(figures: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("demo", "figures"):
        assert "new part\n" in figures.replaced(text, name, "new part")
    with pytest.raises(SystemExit):
        figures.replaced("nothing", "demo", "new part")


def test_pages_show_what_the_commands_print_now(figures: ModuleType) -> None:
    text = figures.README.read_text(encoding="utf-8")
    assert text == figures.replaced(text, "figures", figures.headlines(figures.LATEST)), "run python docs/figures.py"
    page = figures.PAGE.read_text(encoding="utf-8")
    assert page == figures.page(page, figures.RESULTS), "run python docs/figures.py"
    printed = figures.replaced(text, "demo", figures.demo())
    assert hide_masked_numbers(text) == hide_masked_numbers(printed), "run python docs/figures.py"


def hide_masked_numbers(text: str) -> str:
    """Returns the page without the numbers of the masked model, which follow from the last bits of every sum.

    Those bits depend on the kernels that NumPy chooses for a processor. Widths of columns follow from the numbers.
    """
    text = re.sub(r"^(secagg server) .*$", r"\1 masked", text, flags=re.MULTILINE)
    return re.sub(r"─+", "─", re.sub(r" +", " ", text))


def test_other_masked_numbers_are_no_other_page_but_a_model_in_clear_is() -> None:
    shown = "               correlation\n──────\nfedavg server   0.108   1.00\nsecagg server   55.720   -0.01\n"
    wider = "                correlation\n───────\nfedavg server    0.108   1.00\nsecagg server   -189.883   0.01\n"
    assert hide_masked_numbers(shown) == hide_masked_numbers(wider)
    assert hide_masked_numbers(shown) != hide_masked_numbers(shown.replace("0.108", "0.109"))


def test_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert lines.index("<!-- /demo -->") < 50
    table = lines[lines.index("<!-- figures -->") : lines.index("<!-- /figures -->")]
    assert sum(line.startswith("| ") for line in table) == 2 + 5
    start = lines.index("```python")
    assert lines.index("```", start) - start - 1 <= 12


KINDS = ("Tutorial", "How-to", "Reference", "Explanation")
MARKED = [
    page
    for page in PAGES
    if page.parent.name != "decisions" and page.stem != "CODE_OF_CONDUCT" and page != ROOT / "README.md"
]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.stem)
def test_a_page_says_at_its_top_which_kind_it_is(page: Path) -> None:
    title, empty, first = page.read_text(encoding="utf-8").splitlines()[:3]
    assert title.startswith("# ")
    assert empty == ""
    assert re.match(rf"\*({'|'.join(KINDS)})\b", first), f"{page.name} does not say of which kind it is"


@pytest.mark.parametrize("protocol", sorted(tacit.protocols.REGISTRY))
def test_diagrams_are_of_rounds_as_they_run_now(protocol: str) -> None:
    sequences = script("sequences")
    case = sequences.CASES[protocol]
    path = ROOT / "docs" / "protocols" / f"{protocol}-round.svg"
    arrows = sequences.recorded(protocol, case)
    assert path.read_text(encoding="utf-8") == sequences.drawn(protocol, case, arrows), "run python docs/sequences.py"
    assert f"]({path.name})" in path.with_name(f"{protocol}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("protocol", "kind", "options", "read"),
    [
        ("fedavg", "Plain", {}, "model"),
        ("secagg", "MaskedInput", {}, "noise"),
        ("secagg", "Sum", {}, "sum"),
        ("pushsum", "Mass", {"masked": False, "allow_leaks": True}, "model"),
        ("pushsum", "Mass", {}, "noise"),
        ("admm", "GroupPart", {"masked": False, "allow_leaks": True}, "model"),
        ("admm", "GroupPart", {}, "noise"),
    ],
)
def test_a_diagram_tells_models_from_sums_and_from_noise(
    protocol: str, kind: str, options: dict[str, bool], read: str
) -> None:
    sequences = script("sequences")
    case = dataclasses.replace(sequences.CASES[protocol], options={**sequences.CASES[protocol].options, **options})
    # Of several iterations, the first.
    found = [arrow for arrow in sequences.recorded(protocol, case) if arrow.address.kind == kind]
    first = [arrow.kind for arrow in found if arrow.time == found[0].time]
    assert first
    assert set(first) == {read}
