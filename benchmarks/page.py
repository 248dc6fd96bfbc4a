"""The page of `tacit ui` in a real browser: time to the first paint, and time from a click on a party to its answer.

Wall-clock time is measured, as a user experiences it. The run on symbols starts when settings are chosen, and is
reported separately: a click only asks what one more coalition sees of it.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Row

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
GRAPH = '{"kind":"regular","degree":4}'
SETTINGS = {
    "secagg": "protocol=secagg",
    "secagg, 10 rounds, a tenth drops out": "protocol=secagg&rounds=10&dropout=0.1",
    "cesar, 4 neighbours": f"protocol=cesar&set=graph={GRAPH}",
    "pushsum": "protocol=pushsum&set=graph=exponential",
    "pushsum, masked, 3 rounds": "protocol=pushsum&rounds=3&set=masked=true&set=graph=exponential",
    "admm in threes, masked, 2 iterations": "protocol=admm&set=group_size=3&set=iterations=2&set=masked=true",
    "admm in threes, 5 iterations": "protocol=admm&set=group_size=3&set=iterations=5",
}
CLICKS = ("p3", "p17", "p30", "p41", "p8")
FIRST, ANSWER = 1000.0, 300.0
"""Limits in milliseconds."""


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the time to the first paint, and the median time of answers to clicks among 48 parties, or among 8."""
    from playwright.sync_api import sync_playwright

    parties = 8 if quick else 48
    command = [sys.executable, "-c", "from tacit.app.cli.main import main; main()", "ui", "--port", "0"]
    with TemporaryDirectory() as folder, sync_playwright() as running:
        served = subprocess.Popen([*command, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        try:
            found = re.match(r"(http://\S+)/\?token=\w+", served.stdout.readline() if served.stdout else "")
            if found is None:
                raise AssertionError("the page did not say where it is")
            page = browser.new_page()
            page.goto(found[0])
            page.wait_for_timeout(1000)
            yield _row("first contentful paint", _entries(page, "first-contentful-paint", "startTime")[0], FIRST, quick)
            for name, asked in list(SETTINGS.items())[: 2 if quick else None]:
                page.goto(f"{found[1]}/adversary?parties={parties}&{asked}")
                page.locator(".headline", has_text="Choose who colludes").wait_for(timeout=180_000)
                page.wait_for_timeout(1500)  # The worker uses this time to analyse the view of each single party.
                times = _time_clicks(page, [party for party in CLICKS if int(party[1:]) < parties])
                yield _row(f"answer to a click, {parties} parties, {name}", median(times), ANSWER, quick)
        finally:
            browser.close()
            served.terminate()
            served.wait()


def _time_clicks(page: Any, parties: list[str]) -> list[float]:
    for count, party in enumerate(parties, start=1):
        page.locator(f'[data-party="{party}"]').click()
        while len(_entries(page, "answer", "duration")) < count:
            page.wait_for_timeout(20)
    return _entries(page, "answer", "duration")


def _entries(page: Any, name: str, key: str) -> list[float]:
    return list(
        page.evaluate("([name, key]) => performance.getEntriesByName(name).map((each) => each[key])", [name, key])
    )


def _row(name: str, took: float, target: float, quick: bool) -> Row:
    said = None if quick else f"below {target:g} ms"
    return Row(name, took / 1000, None, "s", None, said, None if quick else took < target, "wall time in a browser")
