"""Start-up loads little: the modules that are loaded after an import or a command, in a fresh process. Never a time."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tacit

FOUNDATION = {"numpy", "msgspec", "cryptography", "_cffi_backend", "_openssl", "typing_extensions"}
"""Packages that averaging needs, and what these load themselves."""
TERMINAL = {"typer", "click", "rich", "shellingham", "typing_extensions"} | {
    "attr",  # the rest is loaded by rich
    "markdown_it",
    "mdurl",
    "pygments",
    "ipywidgets",
}
SHOWN = "import sys, json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
BY_NAME = [name for name in tacit.__all__ if name not in ("Peer", "join", "log_lines", "Run", "Scenario", "train")]
"""What needs no extra and trains nothing."""


def loaded(code: str) -> set[str]:
    """Returns the modules that a fresh process has loaded after some code."""
    command = [sys.executable, "-c", f"{code}\n{SHOWN}"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (code of this file)
    return set(json.loads(run.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return loaded("")


def packages(modules: set[str]) -> set[str]:
    """Returns the packages from elsewhere, without the traces that compiled modules leave."""
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"tacit"}
    return {name for name in tops if not name.startswith(("_cython", "cython_runtime", "__m"))}


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "tacit"}


def test_import_tacit_loads_no_other_package(bare: set[str]) -> None:
    modules = loaded("import tacit") - bare
    assert packages(modules) == set()
    assert ours(modules) == {"tacit", "tacit.core", "tacit.core.version"}


def test_averaging_and_auditing_load_only_their_foundation(bare: set[str]) -> None:
    modules = loaded(f"from tacit import {', '.join(BY_NAME)}") - bare
    assert packages(modules) <= FOUNDATION
    assert "tacit.auditing.report" in modules


def test_training_loads_no_framework(bare: set[str]) -> None:
    assert packages(loaded("from tacit import Scenario, train") - bare) <= FOUNDATION | {"safetensors"}


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["--nosuch"]])
def test_help_loads_no_command(arguments: list[str], bare: set[str]) -> None:
    called = f"from tacit.app.cli.main import app\ntry:\n    app({arguments!r})\nexcept SystemExit:\n    pass"
    modules = loaded(called) - bare
    assert packages(modules) <= TERMINAL
    cli = {f"tacit.app.cli{each}" for each in ("", ".main", ".command_table", ".options")}
    assert ours(modules) == cli | {"tacit", "tacit.app", "tacit.core", "tacit.core.version", "tacit.core.errors"}


def test_a_command_loads_no_other_commands() -> None:
    modules = ours(
        loaded("from tacit.app.cli.main import app\ntry:\n    app(['keygen', '-h'])\nexcept SystemExit:\n    pass")
    )
    assert "tacit.app.cli.key_commands" in modules
    assert not modules & {"tacit.app.cli.audit_commands", "tacit.app.cli.bench"}


def test_each_public_name_is_there_and_where_editors_look() -> None:
    assert all(getattr(tacit, name).__name__ == name for name in tacit.__all__)
    assert set(tacit.__all__) <= set(dir(tacit))
    tree = ast.parse(Path(tacit.__file__).read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom) and node.module != "tacit"
        for alias in node.names
    }
    assert found == tacit._HOME
    assert set(found) == set(tacit.__all__)


@pytest.mark.parametrize(
    "use", ["tacit.designs.groups(15, 3)", "tacit.learn", "tacit.privacy.Ledger", "tacit.protocols.REGISTRY"]
)
def test_packages_are_attributes(use: str) -> None:
    loaded(f"import tacit\n{use}")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'tacit' has no attribute 'nosuch'"):
        _ = tacit.nosuch
    assert not hasattr(tacit, "nosuch")
