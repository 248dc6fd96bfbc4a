"""Takes docs/ui/VIEW.png: every view of the page, light and dark, on a desktop and on a phone.

`python docs/screenshots.py` trains two small runs, writes the status of a federation, serves the page of that folder
and takes its pictures with Chromium. `python docs/screenshots.py run plan` takes those of two views. It needs
`pip install 'tacit[ui,report,pictures]'`, playwright and Chromium.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tacit.net.observability.status import PeerStatus, RoundSummary, Status, write_status

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from support.page_visits import PROGRAM, Visit, page_of  # noqa: E402

FOLDER = Path(__file__).with_name("ui")
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
DEVICES = {"": (1280, 1700), "-phone": (390, 2000)}
"""Width of each device in pixels, and the height at which a picture ends."""
SCHEMES = {"": "light", "-dark": "dark"}
COLOURS = 256
FIRST_SCREEN = 800
"""Height of the picture of README.md."""
TWO_RECEIVERS = "[[4,0],[4,1],[4,2],[5,0],[5,1],[5,2],[5,3],[3,0],[3,1],[3,2],[0,1],[0,2]]"
VIEWS = {
    "runs": ("/", ".row >> nth=1"),
    "run": ("/run?id=runs%2Fclinics", ".chart >> nth=2"),
    "compare": ("/compare?run=runs%2Fclinics&run=runs%2Fdigits", "tbody tr"),
    "federation": ("/federation", "tbody tr"),
    "adversary": (
        f"/adversary?protocol=cesar&parties=6&set=masking%3D2&set=graph%3D{TWO_RECEIVERS}&coalition=p4,p5",
        ".proof:has-text('Replayed')",
    ),
    "dropouts": (
        "/adversary?protocol=secagg&parties=6&rounds=3&dropout=0.2&coalition=server",
        ".proof:has-text('Replayed')",
    ),
    "plan": ("/plan?parties=5&colluders=1&rounds=2&dropout=0&entries=100000", ".proposal"),
    "start": ("/start", ".gutter span >> nth=5"),
    "glossary": ("/glossary", ".terms"),
    "not-found": ("/runz", ".empty"),
    "report": ("", "h1"),
}
"""Address of each view, and what is there when it is complete."""
DIGITS = """title = "digits, six parties"
rounds = 12
seed = 4
dropout = 0.1
[data]
parties = 6
[local]
rate = 0.3
[protocol]
name = "gossip"
graph = "ring"
"""
CLINICS = """title = "four clinics, own data"
rounds = 10
seed = 2
dropout = 0.1
protocol = "secagg"
[data]
folder = "samples"
parties = 4
[local]
rate = 0.05
"""
OFFLINE = "connection refused at 10.0.0.14:7001. The party is offline, or a firewall blocks it. Trying again every 5 s"
ABORTED = "Round 7 aborted: 2 of 4 parties delivered, 3 are needed (threshold=3). Timed out: clinic-c, clinic-d."


def train_runs(folder: Path) -> None:
    """Trains the runs that the pictures show, as `tacit train` does."""
    rng = np.random.default_rng(7)
    weights = rng.normal(size=12)
    (folder / "samples").mkdir()
    for name in ("harbour", "hillside", "north", "south"):
        x = rng.normal(size=(150, 12)).astype(np.float32)
        noise = rng.normal(size=150) / 2
        np.savez(folder / "samples" / f"{name}.npz", x=x, y=(x @ weights + noise > 0).astype(np.int64))
    for name, scenario in (("digits", DIGITS), ("clinics", CLINICS)):
        (folder / f"{name}.toml").write_text(scenario, encoding="utf-8")
        command = [*PROGRAM, "train", f"{name}.toml", "--folder", f"runs/{name}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)  # noqa: S603
    (folder / "runs" / "clinics" / "tags.json").write_text('["pilot", "board"]', encoding="utf-8")


def write_federation(folder: Path) -> None:
    """Writes what three of four parties say of their rounds; one of them stopped a while ago."""
    names = [f"clinic-{letter}" for letter in "abcd"]
    done = dict.fromkeys(names[1:], 61000)
    lasts = {
        "clinic-a": (8, RoundSummary(7, (), {}, {"code": "not_enough", "text": ABORTED}, {names[1]: 900}, {}, 60.2)),
        "clinic-b": (8, RoundSummary(8, tuple(names[:3]), {names[3]: "timed out"}, None, done, {}, 2.4)),
        "clinic-c": (6, RoundSummary(6, tuple(names), {}, None, done, {}, 2.1)),
    }
    for name, (number, last) in lasts.items():
        place = folder / f"{name}.rounds"
        place.mkdir(exist_ok=True)
        peers = [
            PeerStatus(peer, 8, 96.0, 3, 95.0, OFFLINE) if peer == names[3] else PeerStatus(peer, 8, 0.4, 0, None, "")
            for peer in names
            if peer != name
        ]
        over = name == "clinic-b"
        write_status(place, Status(name, 0.0, number, 9 * over, over, "" if over else "MaskedInput", peers, "", last))
    stopped = time.time() - 700
    os.utime(folder / "clinic-c.rounds" / "status.json", (stopped, stopped))


def take_picture(page: Page, path: Path, height: int) -> None:
    """Takes a picture of a page down to some height, with few colours, so that the file is small."""
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.screenshot(path=path, full_page=True)
    with Image.open(path) as picture:
        shown = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, height)))
        shown.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def crop_first_screen() -> None:
    """Cuts the picture of README.md out of that of the adversary view."""
    with Image.open(FOLDER / "adversary.png") as picture:
        picture.crop((0, 0, picture.width, FIRST_SCREEN)).save(FOLDER / "first-screen.png", optimize=True)


def show_dropout(page: Page) -> None:
    """Moves a run to its first round from which somebody was missing."""
    slider = page.get_by_label("Round", exact=True)
    for number in range(1, int(slider.get_attribute("max")) + 1):
        slider.fill(str(number))
        if page.locator(".node.absent").count():
            return


def main() -> None:
    """Takes the pictures of the views that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", choices=[*VIEWS, []], help="views to take; all unless given")
    wanted = parser.parse_args().views or list(VIEWS)
    folder = Path(gettempdir()) / "study"
    folder.mkdir()  # its path is in the pictures, so it is always the same one
    try:
        train_runs(folder)
        with page_of(folder) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            for device, (width, height) in DEVICES.items():
                for suffix, scheme in SCHEMES.items():
                    visit = Visit(
                        browser,
                        address,
                        color_scheme=scheme,
                        viewport={"width": width, "height": 800},
                        reduced_motion="reduce",
                    )
                    for view in wanted:
                        write_federation(folder)
                        path, complete = VIEWS[view]
                        page = visit.open(path or VIEWS["run"][0])
                        if view == "report":
                            page.goto(visit.base + page.locator("a", has_text="Open the report").get_attribute("href"))
                        page.locator(complete).first.wait_for()
                        if view == "run":
                            show_dropout(page)
                        page.wait_for_timeout(500)  # nodes move to their places
                        take_picture(page, FOLDER / f"{view}{device}{suffix}.png", height)
                    visit.close()
            browser.close()
        if "adversary" in wanted:
            crop_first_screen()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
