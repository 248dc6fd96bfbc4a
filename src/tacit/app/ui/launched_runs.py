"""Scenarios that were started from the page: each is a `tacit train` of its own, with its folder and its log."""

import asyncio
import os
import signal
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path

from tacit.app.ui import files
from tacit.app.ui.daemon_threads import Aside
from tacit.app.ui.folders import RUNS, checked
from tacit.app.ui.workers import PYTHON
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.train import folder_name

PROGRAM = (*PYTHON, "-c", "from tacit.app.cli.main import main; main()", "train")
LOG = "run.log"
LAST_LINES, LOG_BYTES = 5, 10_000
"""Of the log of a run that failed, which are shown."""
MOST_RUNNING = 4
"""Runs at once, beyond which a machine only gets slower."""
MOST_FOLDERS = 1000
"""Runs of one scenario."""
PATIENCE = 5.0
"""Seconds that runs have to end by themselves when the page is stopped."""


class Started:
    """Runs that this page has started."""

    def __init__(self, place: Path, aside: Aside) -> None:
        self._place, self._aside = place, aside
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._begun = 0
        """How many are about to be processes."""

    async def start(self, text: str) -> str:
        """Starts a scenario and returns the name of its folder; raises ConfigError with what is wrong with it."""
        scenario = await self._aside.do(checked, text)
        # From here to where it counts nobody else has a turn, so that no two take the last place.
        if len(self.running()) + self._begun >= MOST_RUNNING:
            raise ConfigError(f"{MOST_RUNNING} runs are under way already; wait for one of them")
        self._begun += 1
        try:
            folder = await self._aside.do(made, self._place, scenario, text)
            with (folder / LOG).open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *PROGRAM,
                    str(folder / "scenario.toml"),
                    "--folder",
                    str(folder),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in a terminal is for the page, which tells each run once
                )
        finally:
            self._begun -= 1
        name = f"{RUNS}/{folder.name}"
        self._processes[name] = process
        return name

    def failed(self) -> dict[str, str]:
        """Returns why runs that were started here ended with an error, by name. One without a folder is forgotten."""
        told = {}
        for name, process in list(self._processes.items()):
            if process.returncode:
                try:
                    log = files.read(self._place / name / LOG, LOG_BYTES, last=True)
                except ConfigError as error:
                    told[name] = str(error)
                    continue
                if log is not None:
                    told[name] = "\n".join(log.data.decode(errors="replace").splitlines()[-LAST_LINES:])
        return told

    def running(self) -> list[str]:
        """Returns which of them are under way."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    async def close(self) -> None:
        """Ends those that are under way as Ctrl-C would, so that they can be resumed; or at once, if they do not."""
        left = [process for process in self._processes.values() if process.returncode is None]
        for sent in (signal.SIGINT, signal.SIGKILL):
            for process in left:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, sent)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    for process in left:
                        await process.wait()
                    return


def made(place: Path, scenario: Scenario, text: str) -> Path:
    """Makes a new folder for a run, with its scenario, and returns it; raises ConfigError if it would be elsewhere."""
    runs, name = place / RUNS, folder_name(scenario)
    try:
        with suppress(FileExistsError):
            runs.mkdir()
        if not stat.S_ISDIR(runs.lstat().st_mode):
            raise ConfigError(f"{RUNS} is a link, or no folder: what it leads to is not written to; move it away")
        for number in count(1):
            folder = runs / (name if number == 1 else f"{name}--{number}")
            try:
                folder.mkdir()
            except FileExistsError:
                if number == MOST_FOLDERS:
                    raise
                continue
            with (folder / "scenario.toml").open("x", encoding="utf-8") as file:
                file.write(text)
            return folder
    except OSError as error:
        raise ConfigError(f"{RUNS}/{name} cannot be made: {error.strerror}") from None
    raise AssertionError  # there are always more numbers
