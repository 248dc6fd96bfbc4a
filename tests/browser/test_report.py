"""Reports in a real browser: for everybody, on a phone, in the dark and on paper."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.app.cli.main import app

pytestmark = pytest.mark.long

AXE = Path(__file__).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Writes the report of an audit that exposes somebody, and returns its address."""
    path = tmp_path_factory.mktemp("report") / "audit.html"
    asked = ["audit", "secagg", "--parties", "6", "--rounds", "3", "--dropout", "0.2", "--report", str(path)]
    assert CliRunner().invoke(app, asked).exit_code == 0
    return path.as_uri()


@pytest.fixture
def opened(chromium, report):
    """Returns the function that opens the report in a window of its own."""
    contexts = []

    def begin(**options):
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(report)
        return page

    yield begin
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_the_way_of_a_reader(opened, scheme):
    page = opened(color_scheme=scheme)
    page.evaluate(AXE)
    told = page.evaluate("axe.run({resultTypes: ['violations']})")
    assert told["passes"]
    assert [each["id"] for each in told["violations"] if each["impact"] in ("serious", "critical")] == []


def test_a_phone_shows_the_report_without_moving_sideways(opened):
    page = opened(viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_paper_is_white_and_the_annexes_begin_on_a_page_of_their_own(opened):
    page = opened(color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) != "rgb(255, 255, 255)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.annex')).breakBefore") == "page"
    printed = page.pdf()
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") >= 5


def test_answers_are_typed_into_the_page_and_printed(opened):
    page = opened()
    field = page.get_by_role("textbox", name="your answer: What is the purpose, and what is the legal basis?")
    field.click()
    page.keyboard.type("Study of sepsis; consent.")
    page.keyboard.press("Enter")
    page.keyboard.type("Ethics board 7/26.")
    assert field.inner_text().splitlines()[0] == "Study of sepsis; consent."
    signer = page.get_by_role("textbox", name="data protection officer: who advises, name")
    signer.fill("A. Officer")
    page.emulate_media(media="print")
    before = "getComputedStyle(document.querySelector('.answer:empty'), '::before').content"
    assert page.evaluate(before) == "none", "empty fields are empty on paper"
    assert field.is_visible()
    assert signer.inner_text() == "A. Officer"
    assert page.pdf().startswith(b"%PDF")


PASTE = """() => new Promise((done) => {
  const refused = new Set();
  document.addEventListener("securitypolicyviolation", (event) => {
    if (refused.add(event.effectiveDirective).size === 2) done([...refused].sort());
  });
  const pasted = '<img src="https://outside.example/x.png" onerror="window.ran = 1">';
  document.querySelector(".answer").innerHTML = pasted;
})"""


def test_nothing_that_is_pasted_into_a_field_is_fetched_or_run(opened):
    page = opened()
    assert page.evaluate(PASTE) == ["img-src", "script-src-attr"]
    assert page.evaluate("window.ran") is None


def test_the_report_can_be_signed(opened):
    page = opened()
    rows = page.locator(".sign-off tbody tr")
    assert rows.locator("th").all_inner_texts() == [
        "requested by: who wants to train",
        "checked by: who ran the command",
        "data protection officer: who advises",
        "accepted by: the controller, who decides",
    ]
    facts = dict(
        zip(page.locator("header dt").all_inner_texts(), page.locator("header dd").all_inner_texts(), strict=True)
    )
    assert facts["Command"] == "tacit audit secagg --parties 6 --rounds 3 --dropout 0.2"
    assert facts["Date"].endswith("UTC")
    assert facts["Made with"].startswith("Tacit ")
    assert facts["Asked by"].startswith("account ")
