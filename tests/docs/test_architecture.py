"""The page of the architecture: every function, class, module and file that it names exists."""

import re
from importlib import import_module

import pytest

from support.paths import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(tacit(?:\.\w+){2,})`", PAGE)))
PACKAGES = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)


def resolve(name):
    """Returns what a dotted name stands for; raises AttributeError if there is no such thing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_walk_names_exists(name):
    assert resolve(name) is not None


def test_walks_have_hops():
    assert len(NAMES) > 25
    with pytest.raises(AttributeError):
        resolve("tacit.api.aggregate.no_such_function")


def test_the_page_lists_every_package_and_no_other():
    folders = {path.name for path in (ROOT / "src" / "tacit").iterdir() if (path / "__init__.py").exists()}
    assert set(PACKAGES) == folders


@pytest.mark.parametrize("path", re.findall(r"`([a-z]+/[\w/]*(?:\.py)?)`", PAGE))
def test_files_on_the_page_exist(path):
    assert (ROOT / "src" / "tacit" / path).exists() or (ROOT / path).exists()
