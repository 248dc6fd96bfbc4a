"""Many more protocols that leak (`leaky/tables`), in themes: none of them passes an audit."""

import importlib
import inspect
import re

import pytest
from leaky.tables import _invisible
from leaky.tables._invisible import INVISIBLE

import tacit
from support.paths import ROOT, TESTS
from tacit.auditing.engine.soundness.checks import check_soundness
from tacit.auditing.scope import Scope

pytestmark = pytest.mark.long

THEMES = sorted(path.stem for path in (TESTS / "auditing" / "leaky" / "tables").glob("[a-z]*.py"))
LEAKS = {
    f"{theme}: {name.replace('_', ' ')}": leak
    for theme in THEMES
    for name, leak in importlib.import_module(f"leaky.tables.{theme}").LEAKS.items()
}


def found(leak):
    """Returns how an audit ends: the verdict, or the code of the error with which it refuses."""
    names = tuple(f"p{place}" for place in range(leak.parties))
    try:
        check_soundness(Scope.of(leak.protocol, names, {}, rounds=leak.rounds))
        report = tacit.audit(leak.protocol, parties=names, coalition=leak.coalition, rounds=leak.rounds)
    except tacit.NotLinear as error:
        return error.code
    return "exposed" if report.exposed else "exposed-in-worst-case" if report.at_worst else "nobody"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LEAKS)
def test_no_leak_of_a_table_passes_an_audit(name):
    assert found(LEAKS[name]) == LEAKS[name].found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INVISIBLE)
def test_what_the_page_lists_as_invisible_is(name):
    assert found(INVISIBLE[name]) == "nobody"


def test_the_page_lists_them_with_the_examples_that_were_run():
    page = (ROOT / "docs" / "adding-a-protocol.md").read_text()
    rows = dict(
        re.findall(
            r"^\| ([a-z ]+) \| `(.+?)` \|", page.partition("Leaks that an audit does not detect")[2], re.MULTILINE
        )
    )
    assert rows.keys() == {name.replace("_", " ") for name in INVISIBLE}
    source = inspect.getsource(_invisible)
    assert [example for example in rows.values() if example not in source] == []
