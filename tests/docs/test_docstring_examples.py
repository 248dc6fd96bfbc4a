"""Examples in docstrings: each one runs, and prints what the docstring shows."""

import doctest
from importlib import import_module
from inspect import isroutine, unwrap
from pathlib import Path

import pytest

from support.paths import ROOT

SOURCE = ROOT / "src"


def modules_with_examples() -> list[str]:
    """Returns the names of the modules whose source has an example."""
    found = [path for path in sorted(SOURCE.rglob("*.py")) if "    >>> " in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in found]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_of_a_module_print_what_they_show(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_public_functions_of_designs_and_privacy_have_examples() -> None:
    missing = []
    for package in ("tacit.designs", "tacit.privacy"):
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if isroutine(unwrap(value)) and ">>> " not in (value.__doc__ or ""):
                missing.append(f"{package}.{name}")
    assert missing == []
