"""Glossary of the page: every term that a view explains is in it, and every verdict."""

import json
import re

import pytest

from support.paths import ROOT
from tacit.auditing.render.verdicts import HEADLINES

STATIC = ROOT / "src/tacit/app/ui/static"
TERMS = {each["term"]: each for each in json.loads((STATIC / "glossary.json").read_text(encoding="utf-8"))["terms"]}
SCRIPTS = sorted(STATIC.glob("*.js"))
CALL = re.compile(r"\bexplain(?:Beside)?\(\s*\"([^\"]+)\"")
FIELD = re.compile(r"\{[^{}]*\}, \"(party|round|dropout|colluders|learning rate|batch|epoch)\"\)")


def explained():
    """Returns the terms that scripts explain, by file."""
    return {path.name: {*CALL.findall(text), *FIELD.findall(text)} for path in SCRIPTS if (text := path.read_text())}


@pytest.mark.parametrize("script", [path.name for path in SCRIPTS])
def test_every_term_that_a_view_explains_is_in_the_glossary(script):
    assert explained()[script] - TERMS.keys() == set()


def test_views_explain_terms():
    found = set().union(*explained().values())
    assert {"coalition", "coverage", "anonymity set", "contributor", "dropout", "learning rate"} <= found


def test_every_verdict_is_a_term():
    assert {heading.lower() for heading in HEADLINES.values()} <= TERMS.keys()


@pytest.mark.parametrize("term", TERMS)
def test_an_explanation_is_short_and_does_not_only_repeat_the_term(term):
    short = TERMS[term]["short"]
    assert short.endswith(".")
    assert len(short) <= 130
    assert all(len(sentence.split()) <= 20 for sentence in re.split(r"[.:] ", short))
    assert TERMS[term]["group"]
