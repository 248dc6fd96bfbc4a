"""Pages to look things up: every command, error code, reason, warning, verdict and extra has its entry."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module

import pytest

from support.paths import ROOT
from tacit.auditing.findings import Verdict
from tacit.core.errors import Drop, TacitError

DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "src" / "tacit").rglob("*.py"))


def entries(page: str, heading: str) -> dict[str, list[str]]:
    """Returns the rows below a heading of a page: the name in their first cell, and their other cells."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = re.findall(r"^\| `([^`]+)` \|(.+)\|$", section, re.MULTILINE)
    assert len({name for name, _ in rows}) == len(rows), "an entry is there twice"
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in rows}


def declared_codes(source: str) -> set[str]:
    """Returns the codes that errors in a source file have, and those that the command line prints itself."""
    codes = set(re.findall(r"error\[([a-z-]+)\]", source))
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        for each in node.body:
            target = (
                each.target
                if isinstance(each, ast.AnnAssign)
                else each.targets[0]
                if isinstance(each, ast.Assign)
                else None
            )
            if isinstance(target, ast.Name) and target.id == "code" and isinstance(each.value, ast.Constant):
                codes.add(str(each.value.value))
    return codes


def test_codes_are_found_where_errors_declare_them() -> None:
    source = (
        'class A(Exception):\n    code = "a-b"\n\nclass B:\n    code: ClassVar[str] = "c"\n\nx = f"error[d]: {y}"\n'
    )
    assert declared_codes(source) == {"a-b", "c", "d"}
    assert declared_codes('class C:\n    code: str\n\n    def f(self):\n        code = "e"\n') == set()


def test_every_error_code_has_one_entry_with_a_meaning_and_a_fix() -> None:
    codes = set().union(*(declared_codes(path.read_text(encoding="utf-8")) for path in SOURCES))
    assert {TacitError.code, "config", "stopped", "usage", "internal"} <= codes
    listed = entries("troubleshooting.md", "Error codes")
    assert listed.keys() == codes, "docs/troubleshooting.md lists other codes than the source has"
    assert all(len(cells) == 2 and all(cells) for cells in listed.values())


def test_classes_of_errors_have_no_other_codes() -> None:
    """Codes that no class body declares, which reading the source would miss."""
    for path in SOURCES:
        if "errors.py" in path.name or "TacitError" in path.read_text(encoding="utf-8"):
            import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"))
    found, waiting = set(), [TacitError]
    while waiting:
        kind = waiting.pop()
        found.add(kind.code)
        waiting += [each for each in kind.__subclasses__() if each.__module__.startswith("tacit.")]
    assert found <= entries("troubleshooting.md", "Error codes").keys()


def test_every_reason_for_a_missing_party_has_an_entry() -> None:
    assert entries("troubleshooting.md", "Reasons for a missing party").keys() == {str(reason) for reason in Drop}


def test_every_warning_has_an_entry() -> None:
    kinds = {
        found
        for path in SOURCES
        for found in re.findall(r"^class (\w+Warning)\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert len(kinds) > 2
    assert entries("troubleshooting.md", "Warnings").keys() == kinds


def test_every_verdict_has_an_entry() -> None:
    assert entries("glossary.md", "Verdicts").keys() == {verdict.value for verdict in Verdict}


def test_every_extra_has_an_entry() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    listed = entries("installation.md", "Optional parts")
    assert listed.keys() == extras.keys()
    for name in extras.keys() - {"all", "dev", "docs"}:
        packages = {re.split(r"[<>=\[]", each)[0] for each in extras[name]} - {"tacit"}
        assert all(package in listed[name][0] for package in packages), name


TERMS = (
    *("party", "server", "participant", "contributor", "dropout", "adversary", "coalition", "curious", "malicious"),
    *("eavesdropper", "exposed", "view", "worst case", "seed", "static", "drifting", "coverage", "anonymity set"),
    *("envelope", "frame", "acknowledge", "journal", "log", "index", "blob", "checkpoint", "snapshot", "handshake"),
    *("hello", "roster", "session", "rendezvous", "lineage", "recipe", "transcript", "batch", "mask", "ledger"),
)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_in_the_glossary(term: str) -> None:
    rows = re.findall(r"^\| ([^|`]+) \|", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    assert any(re.search(rf"\b{term}\b", row) for row in rows)


def test_the_page_of_commands_is_that_of_the_command_line() -> None:
    check = subprocess.run(  # noqa: S603 (our own script)
        [sys.executable, DOCS / "commands.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_the_page_of_commands_has_every_command_and_no_markup() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    from tacit.app.cli.command_table import COMMANDS

    assert [name for name in COMMANDS if f"\n## tacit {name}\n" not in text] == []
    assert "\n### tacit roster add\n" in text
    assert "[bold" not in text
    assert "\b" not in text


def test_the_table_of_methods_is_that_of_the_source() -> None:
    check = subprocess.run(  # noqa: S603 (our own script)
        [sys.executable, DOCS / "signatures.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_the_table_of_methods_has_every_method_that_the_page_names() -> None:
    text = (DOCS / "adding-a-protocol.md").read_text(encoding="utf-8")
    table = text.partition("<!-- methods -->")[2].partition("<!-- /methods -->")[0]
    used = set(re.findall(r"\b(suite|ring|link)\.([a-z_]+)\(", text.replace(table, "")))
    assert len(used) > 8
    assert [name for owner, name in used if f"{owner}.{name}(" not in table] == []
