"""The site: every page is on it, no link leads nowhere, and nothing is fetched from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from support.paths import ROOT

pytestmark = pytest.mark.long


def test_the_site_is_whole_and_keeps_to_itself(tmp_path: Path) -> None:
    """One test for all of it, so that it is built once."""
    site = built(tmp_path / "site")
    every_page_is_on_it(site)
    nothing_is_fetched_from_elsewhere(site)
    the_reference_has_everything_that_is_public(site)
    the_search_finds_a_page_when_the_site_is_opened_from_disk(site)


def built(folder: Path) -> Path:
    """Returns the site as `make docs` builds it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)  # noqa: S603 (our own)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def every_page_is_on_it(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file()
    for program in (ROOT / "examples").glob("*.*"):
        name = "index" if program.stem == "README" else program.stem
        assert (site / "examples" / f"{name}.html").is_file()
    assert "Average models with people" in (site / "index.html").read_text(encoding="utf-8")


def nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)", text)
        assert fetched == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name


def the_search_finds_a_page_when_the_site_is_opened_from_disk(site: Path) -> None:
    if (chromium := shutil.which("chromium")) is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page, asked, wrong = browser.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "protocols" / "admm.html").as_uri())
        page.click(".md-search__input")
        page.keyboard.type("not-restored", delay=20)  # the search listens to keys
        page.wait_for_selector(".md-search-result__link")
        found = [link.get_attribute("href") for link in page.locator(".md-search-result__link").all()]
        browser.close()
    assert any("troubleshooting.html" in str(address) for address in found)
    assert wrong == []
    assert [address for address in asked if not address.startswith("file:")] == []


def the_reference_has_everything_that_is_public(site: Path) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    for name in tacit.__all__:
        assert re.search(rf'id="tacit(\.\w+)*\.{name}"', text), f"docs/reference.md has no ::: tacit.{name}"
    assert "&gt;&gt;&gt; " in text
    assert "<blockquote>" not in text, "examples of docstrings are shown as quotations"
