"""The page of an audit, as one attaches it to an assessment."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.paths import ROOT
from tacit import __version__
from tacit.app.cli.main import app
from tacit.app.reports.html_reports import prepare_audit, render_report
from tacit.auditing.render.trust import describe_trust
from tacit.core.suite import Parties
from tacit.protocols import REGISTRY, find


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Returns what audits and reads the page."""
    monkeypatch.chdir(tmp_path)

    def audit(*options):
        done = CliRunner().invoke(app, ["audit", *options, "--report", "audit.html", "--json"])
        assert done.exit_code == 0, done.output
        return Path("audit.html").read_text(encoding="utf-8"), json.loads(done.stdout)

    return audit


def test_a_leak_is_said_first_and_worked_out(asked):
    page, found = asked("admm", "--coalition", "p0", "--set", "iterations=5")
    assert found["exposed"]
    assert page.index("<b>Exposed</b>") < page.index("Who can recover whose vector") < page.index("<h2>Recipes</h2>")
    assert page.index("<h2>Recipes</h2>") < page.index("<h2>Assumptions</h2>") < page.index("<h2>Sign-off</h2>")
    assert "p0: p1 is" in page
    assert "tacit audit admm --parties 9 --coalition p0 --set iterations=5" in page
    assert "Theorem III.2" in page


def test_where_nobody_was_found_the_page_says_what_that_rests_on(asked):
    page, found = asked("secagg", "--parties", "4", "--rounds", "2")
    assert not found["exposed"]
    for each in (*found["assumed"], *found["not_covered"], *found["trusted"]):
        assert each.replace("'", "&#39;") in page
    assert "<h2>Recipes</h2>" not in page
    assert f"Tacit {__version__}" in page
    assert found["settings"]["bits"] == 32, "settings that were not set are there too"
    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ), "nothing is wanted from elsewhere; what a figure names are kinds of data"


def test_every_open_question_has_a_field_to_type_into_and_the_page_sends_nothing(asked):
    page, _ = asked("secagg", "--parties", "3")
    assert "default-src 'none'" in page, "a browser runs and loads nothing, whatever somebody pastes into a field"
    assert "<form" not in page
    rows = page.count('<td class="blank">')
    assert page.count('contenteditable="true"') == rows + 4 * 3, "one field for each question and each cell to sign"
    assert 'aria-label="your answer: What is the purpose, and what is the legal basis?"' in page
    assert rows > 20


def test_parties_have_the_names_that_were_given(asked):
    page, found = asked("secagg", "--parties", "north,east,south,st mary", "--coalition", "server,north")
    assert found["parties"] == ["north", "east", "south", "st mary"]
    for name in found["parties"]:
        assert f'<th scope="col"><span>{name}</span></th>' in page, "a column of the matrix"
    assert "--parties &#39;north,east,south,st mary&#39; --coalition server,north" in page, "a command that runs again"
    assert not re.search(r"\bp\d\b", page)


def test_whatever_is_said_in_settings_is_text(asked):
    page, _ = asked("gossip", "--parties", "3", "--set", 'graph={"kind":"ring"}')
    assert "{&#34;kind&#34;:&#34;ring&#34;}" in page


def test_a_page_must_be_called_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", "secagg", "--report", "audit.pdf"])
    assert done.exit_code == 2
    assert "must end in .html" in done.output


@pytest.mark.parametrize(
    ("parties", "options", "helpers", "unknown"),
    [(4, {}, 1, 2), (9, {}, 4, 3), (100, {}, 33, 34), (3, {}, 1, 2), (5, {"threshold": 5}, 3, 2)],
)
def test_how_many_may_help_a_server_follows_from_the_threshold_and_leaves_two(parties, options, helpers, unknown):
    protocol = find("secagg")
    terms = protocol.settings(**options).bind(Parties(f"p{place}" for place in range(parties)))
    some, left, *_ = describe_trust(protocol, terms)
    assert f"{helpers} {'party helps' if helpers == 1 else 'parties help'} it" in some
    assert f"at least {helpers + unknown} vectors" in some
    assert f"at least {unknown} vectors in such a sum are unknown" in left
    assert terms.secure_sum.colluders >= helpers
    assert terms.secure_sum.smallest == helpers + unknown


@pytest.mark.parametrize("protocol", REGISTRY.values(), ids=lambda each: each.name)
def test_baselines_are_called_that_and_nothing_else_is(protocol):
    terms = protocol.settings_from({}).bind(Parties(f"p{place}" for place in range(9)))
    assert ("hides nothing" in describe_trust(protocol, terms)[0]) == protocol.leaks_by_design


@pytest.mark.parametrize("run", ["finished", "cut-off"])
def test_a_report_can_be_made_of_an_audit_of_release_0_2(run):
    found = json.loads((ROOT / "tests/golden/0.2.0/run" / run / "audit.json").read_text(encoding="utf-8"))
    sections = prepare_audit(found, found["asked"])
    page = render_report("audit.html", "old", audit=sections, images=[], missing_figures="")
    assert sections["heading"] in page
    for each in found["not_covered"]:
        assert each.replace("'", "&#39;") in page
