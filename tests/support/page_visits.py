"""The page as served by `tacit ui`, and browser visits to it."""

import re
import subprocess
import sys
from contextlib import contextmanager

PROGRAM = (sys.executable, "-c", "from tacit.app.cli.main import main; main()")
PATIENCE = 60_000
"""Milliseconds that a busy machine may take for one operation."""


@contextmanager
def page_of(folder):
    """Serves the page of a folder by `tacit ui`, and yields the address that it prints."""
    with subprocess.Popen(  # noqa: S603
        [*PROGRAM, "ui", str(folder), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield re.fullmatch(r"(http://127\.0\.0\.1:\d+/\?token=\w+)\n", process.stdout.readline())[1]
        finally:
            process.terminate()


class Visit:
    """A visit to the page: opens its addresses, and records errors of the browser."""

    def __init__(self, browser, address, **options):
        self.base, self.token = address.split("/?token=")
        self.wrong = []
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.another()
        self.page.goto(address)

    def another(self):
        """Returns another tab without a token."""
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        return page

    def open(self, path):
        self.page.goto(self.base + path)
        return self.page

    def close(self):
        self.context.close()
