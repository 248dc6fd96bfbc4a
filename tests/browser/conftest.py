"""What browser tests share: a Chromium without a window, the page of a folder, and eyes for what goes wrong in it."""

import shutil
from pathlib import Path

import pytest

from support.page_visits import Visit

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium():
    """Returns a browser; of one module, for as long as it runs no other test of this process can have a loop."""
    playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright (make setup)")
    if not Path(CHROMIUM).exists():
        pytest.skip("browser tests need chromium (make chromium installs it as root: apt-get install chromium)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Returns the function that visits a page: `visit(address, color_scheme="dark")`. Nothing may go wrong in it."""
    visits = []

    def begin(address, **options):
        visits.append(Visit(chromium, address, **options))
        return visits[-1]

    yield begin
    for each in visits:
        each.close()
    assert [wrong for each in visits for wrong in each.wrong] == []
