"""Tables from the papers' lines and symbols to functions and names, in every protocol's docstring and page."""

import re
from importlib import import_module
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "tacit"
PROTOCOLS = ("admm", "cesar", "fedavg", "gossip", "pushsum", "secagg")
HEAD = "| paper | here |"


def rows_of(text):
    """Returns the rows of the table."""
    assert text.count(HEAD) == 1
    lines = text[text.index(HEAD) :].splitlines()[2:]
    return list(takewhile(lambda line: line.startswith("|"), lines))


def words_of(name):
    """Returns every word in the code of a protocol and of what it is built from."""
    folder = SOURCES / "protocols" / name
    files = [*(folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")])]
    files += [*(SOURCES / "protocols" / "shapes").glob("*.py"), *(SOURCES / "designs").glob("*.py")]
    files += [*(SOURCES / "core").glob("*.py")]
    code = "\n".join(re.sub(r'^""".*?"""', "", path.read_text("utf-8"), count=1, flags=re.DOTALL) for path in files)
    return set(re.findall(r"\w+", code))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_module_and_page_have_the_same_table(name):
    doc = import_module(f"tacit.protocols.{name}").__doc__
    page = (ROOT / "docs" / "protocols" / f"{name}.md").read_text("utf-8")
    assert rows_of(doc) == rows_of(page)
    assert len(rows_of(doc)) >= 5


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_name_in_the_table_is_in_the_code(name):
    rows = rows_of((ROOT / "docs" / "protocols" / f"{name}.md").read_text("utf-8"))
    named = {part for row in rows for text in re.findall(r"`([^`]+)`", row) for part in text.split(".")}
    assert named
    assert named - words_of(name) == set()
