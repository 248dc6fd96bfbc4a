"""Rules of the files around the source: workflows, changelog, decision records, hooks and templates.

Each rule is a function that returns problems. It is tried on text that breaks it before it is trusted on the checkout.
"""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import tacit

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
RECORDS = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "index.md")
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""What a release of the changelog may have, in this order."""
HEADINGS = ["Context", "Decision", "Consequence"]
"""What a decision record has, in this order."""


def read(path: str | Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def headings(text: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", text, re.MULTILINE)


# --- workflows ------------------------------------------------------------------------------------------------------

MAKEFILE = "setup: x\ncheck: setup lint\nVENV := .venv\nexport A :=\n\t$(BIN)/x: y\n"


def make_targets(makefile: str) -> set[str]:
    """Returns the targets that a person can name."""
    return set(re.findall(r"^([a-z][\w-]*)\s*:(?!=)", makefile, re.MULTILINE))


def workflow_problems(workflow: dict[str, Any], targets: set[str]) -> list[str]:
    """Returns the steps that do anything but check out, set up Python, or call make targets that exist."""
    problems = []
    for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
        if "uses" in step:
            if not step["uses"].startswith(("actions/checkout@", "actions/setup-python@")):
                problems.append(f"uses {step['uses']}")
        else:
            command, *named = step["run"].split()
            if command != "make" or not named or not set(named) <= targets:
                problems.append(f"runs {step['run']}")
    return problems


def test_a_workflow_that_does_more_than_call_make_is_noticed() -> None:
    targets = make_targets(MAKEFILE)
    assert targets == {"setup", "check"}
    steps = [
        {"uses": "actions/checkout@v4"},
        {"run": "make setup check"},
        {"run": "make sparkle"},
        {"run": "make"},
        {"run": "pip install x"},
        {"run": "make setup; curl x"},
        {"uses": "somebody/else@v1"},
    ]
    assert workflow_problems({"jobs": {"all": {"steps": steps[:2]}}}, targets) == []
    assert len(workflow_problems({"jobs": {"all": {"steps": steps}}}, targets)) == 5


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_only_make_targets_that_exist(path: Path) -> None:
    assert workflow_problems(yaml.safe_load(read(path)), make_targets(read("Makefile"))) == []


def test_workflows_run_the_checks_on_every_supported_python_and_the_slow_tests() -> None:
    ran = {path.stem: read(path) for path in WORKFLOWS}
    assert "run: make check\n" in ran["ci"]
    assert "run: make slow\n" in ran["slow"]
    classifiers = tomllib.loads(read("pyproject.toml"))["project"]["classifiers"]
    supported = [found[1] for each in classifiers if (found := re.search(r"Python :: (3\.\d+)$", each))]
    assert yaml.safe_load(ran["ci"])["jobs"]["check"]["strategy"]["matrix"]["python"] == supported


# --- changelog ------------------------------------------------------------------------------------------------------


def changelog_problems(text: str, version: str) -> list[str]:
    """Returns what a changelog lacks: Unreleased on top, the version with a date, known sections with content."""
    problems = []
    releases = headings(text, 2)
    if releases[:1] != ["[Unreleased]"]:
        problems.append("the first release is not [Unreleased]")
    if not any(re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", release) for release in releases):
        problems.append(f"there is no [{version}] with a date")
    for release, content in zip(releases, re.split(r"^## .+$", text, flags=re.MULTILINE)[1:], strict=True):
        listed = headings(content, 3)
        if listed != [section for section in SECTIONS if section in listed]:
            problems.append(f"{release} has the sections {listed}")
        for section, lines in zip(listed, re.split(r"^### .+$", content, flags=re.MULTILINE)[1:], strict=True):
            if "\n- " not in lines:
                problems.append(f"{section} of {release} is empty")
    return problems


def test_a_changelog_that_lacks_something_is_noticed() -> None:
    good = "# Changes\n\n## [Unreleased]\n\n### Added\n\n- a\n\n### Fixed\n\n- b\n"
    good += "\n## [1.0.0] - 2026-01-02\n\n### Added\n\n- c\n"
    assert changelog_problems(good, "1.0.0") == []
    for old, new in (
        ("## [Unreleased]", "## [2.0.0] - 2026-02-03"),
        (" - 2026-01-02", ""),
        ("### Fixed", "### New"),
        ("### Fixed", "### Added"),
        ("- b\n", ""),
    ):
        assert len(changelog_problems(good.replace(old, new), "1.0.0")) == 1


def test_the_changelog_has_unreleased_changes_and_this_version() -> None:
    assert changelog_problems(read("CHANGELOG.md"), tacit.__version__) == []


# --- decision records -----------------------------------------------------------------------------------------------


def record_problems(name: str, text: str) -> list[str]:
    """Returns what a decision record lacks."""
    problems = []
    if not re.fullmatch(r"\d{4}(-[a-z0-9]+)+\.md", name) or not text.startswith(f"# {name[:4]}: "):
        problems.append("the title does not begin with the number of the file")
    if not re.search(r"^Status: \S", text, re.MULTILINE):
        problems.append("there is no status")
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    if headings(text, 2) != HEADINGS or not all(part.strip() for part in parts):
        problems.append(f"the headings are not {', '.join(HEADINGS)}, each with content")
    return problems


def test_a_record_that_lacks_something_is_noticed() -> None:
    good = "# 0007: Seven\n\nStatus: accepted.\n\n## Context\n\na\n\n## Decision\n\nb\n\n## Consequence\n\nc\n"
    assert record_problems("0007-seven.md", good) == []
    assert len(record_problems("0008-seven.md", good)) == 1
    assert len(record_problems("seven.md", good)) == 1
    for old, new in (("Status", "State"), ("## Decision", "## Choice"), ("\nb\n", "\n"), ("## Context\n\na\n", "")):
        assert len(record_problems("0007-seven.md", good.replace(old, new))) == 1


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_decision_records_have_a_number_a_status_and_three_parts(path: Path) -> None:
    assert record_problems(path.name, read(path)) == []


def test_decision_records_are_numbered_without_gaps_and_listed_in_index_and_nav() -> None:
    names = [path.name for path in RECORDS]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    index = re.findall(r"^\| \[\d{4}\]\((.+?)\) \| (.+) \|$", read("docs/decisions/index.md"), re.MULTILINE)
    assert index == [(path.name, headings(read(path), 1)[0].partition(": ")[2]) for path in RECORDS]
    assert re.findall(r"^ +- decisions/(\d.+)$", read("mkdocs.yml"), re.MULTILINE) == names


@pytest.mark.parametrize(
    "path", [*RECORDS, ROOT / "CONTRIBUTING.md", ROOT / "RELEASING.md"], ids=lambda path: path.stem
)
def test_files_and_folders_that_are_named_exist(path: Path) -> None:
    named = re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.py)?)`", read(path))
    places = (ROOT, ROOT / "src" / "tacit", ROOT / "src" / "tacit" / "auditing")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


# --- hooks, templates, and what is kept -----------------------------------------------------------------------------


def test_hooks_before_a_commit_come_from_the_environment_of_the_project() -> None:
    config = yaml.safe_load(read(".pre-commit-config.yaml"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = {hook["id"]: hook for hook in config["repos"][0]["hooks"]}
    assert hooks.keys() == {"ruff-format", "ruff-check", "mypy"}
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")


@pytest.mark.parametrize("path", [each for each in TEMPLATES if each.stem != "config"], ids=lambda path: path.stem)
def test_issue_templates_can_be_read_and_ask_for_something(path: Path) -> None:
    template = yaml.safe_load(read(path))
    assert template["name"]
    assert template["description"]
    fields = [field for field in template["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_sdist_has_every_page_of_the_root() -> None:
    included = set(" ".join(re.findall(r"^include (.+)$", read("MANIFEST.in"), re.MULTILINE)).split())
    assert {path.name for path in ROOT.glob("*.md")} - included == {"README.md"}  # setuptools adds this one


def test_no_file_is_committed_that_is_ignored() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    command = [git, "-C", str(ROOT), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""  # noqa: S603 (our own)
