"""Writes docs/specimen.html, the report that docs/for-officers.md explains, and docs/specimen.png, its first screen.

`python docs/specimen.py` runs the command in `COMMAND`. The picture needs playwright and Chromium. With `--check`
nothing is written; exit code 1 then says that the report is out of date.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

REPORT = Path(__file__).with_name("specimen.html")
PICTURE = REPORT.with_suffix(".png")
COMMAND = (
    "tacit audit secagg --parties hospital-a,hospital-b,hospital-c,hospital-d,hospital-e --rounds 20 --dropout 0.05 "
    "--coalition-size 2"
)
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
WIDTH, HEIGHT = 1000, 1240
"""Size of the picture: down to the findings by adversary."""
MADE = re.compile(r"(?<=<dd>)[^<]* UTC(?=</dd>)|(?<=<footer><p>)[^<]*|(?<=<dd>)Tacit [^<]*")
"""Date and versions, which differ from run to run."""


def write_report() -> str:
    """Returns the report that the command writes, by an account called analyst."""
    program = [sys.executable, "-c", "from tacit.app.cli.main import main; main()"]
    with TemporaryDirectory() as folder:
        command = [*program, *shlex.split(COMMAND)[1:], "--report", "report.html"]
        named = {**os.environ, "LOGNAME": "analyst"}
        subprocess.run(command, cwd=folder, env=named, check=True, capture_output=True)  # noqa: S603 (our own command)
        return (Path(folder) / "report.html").read_text(encoding="utf-8")


def is_current(text: str) -> bool:
    """Returns whether a report is what the command writes now, apart from its date and versions."""
    return MADE.sub("", text) == MADE.sub("", write_report())


def take_picture() -> None:
    """Takes the picture of the report's first screen."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(REPORT.as_uri())
        page.screenshot(path=PICTURE)
        browser.close()
    with Image.open(PICTURE) as picture:
        picture.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE).save(PICTURE, optimize=True)


def main() -> int:
    """Writes the report and its picture, or checks the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the report is out of date")
    if parser.parse_args().check:
        if not is_current(REPORT.read_text(encoding="utf-8")):
            sys.stderr.write("docs/specimen.html is out of date; run: python docs/specimen.py\n")
            return 1
        return 0
    REPORT.write_text(write_report(), encoding="utf-8")
    take_picture()
    return 0


if __name__ == "__main__":
    sys.exit(main())
