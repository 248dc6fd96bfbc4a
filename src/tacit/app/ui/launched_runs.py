"""Runs that the page started: each is a `tacit train` process with a folder and a log of its own."""

import asyncio
import os
import signal
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path

from tacit.app.ui.daemon_threads import DaemonThreads
from tacit.app.ui.regular_files import read_file
from tacit.app.ui.run_folders import RUNS, check_text
from tacit.app.ui.worker_pool import PYTHON
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.run_folder import folder_name

PROGRAM = (*PYTHON, "-c", "from tacit.app.cli.main import main; main()", "train")
LOG = "run.log"
LAST_LINES, LOG_BYTES = 5, 10_000
"""Lines shown of the log of a failed run, and bytes read for them."""
MOST_RUNNING = 4
"""Runs at a time: more would only slow each other down."""
MOST_FOLDERS = 1000
"""Folders for runs of one scenario."""
PATIENCE = 5.0
"""Seconds that runs have to end by themselves after Ctrl-C on the page."""


class LaunchedRuns:
    """Processes of the runs that this page started, by the name of their folder."""

    def __init__(self, root: Path, threads: DaemonThreads) -> None:
        self._root, self._threads = root, threads
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._starting = 0
        """Runs that count towards the limit but have no process yet."""

    async def start(self, text: str) -> str:
        """Starts a scenario and returns the name of its folder; raises ConfigError with what is wrong with it."""
        scenario = await self._threads.run(check_text, text)
        # There is no await between this check and the count, so two requests cannot take the last slot.
        if len(self.list_running()) + self._starting >= MOST_RUNNING:
            raise ConfigError(f"{MOST_RUNNING} runs are in progress; try: wait until one ends")
        self._starting += 1
        try:
            folder = await self._threads.run(create_run_folder, self._root, scenario, text)
            with (folder / LOG).open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *PROGRAM,
                    str(folder / "scenario.toml"),
                    "--folder",
                    str(folder),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in a terminal reaches the page, which then signals each run once
                )
        finally:
            self._starting -= 1
        name = f"{RUNS}/{folder.name}"
        self._processes[name] = process
        return name

    def list_failures(self) -> dict[str, str]:
        """Returns the last lines of the log of every failed run, by name; runs whose folder is gone are left out."""
        failures = {}
        for name, process in list(self._processes.items()):
            if process.returncode:
                try:
                    log = read_file(self._root / name / LOG, LOG_BYTES, tail=True)
                except ConfigError as error:
                    failures[name] = str(error)
                    continue
                if log is not None:
                    failures[name] = "\n".join(log.data.decode(errors="replace").splitlines()[-LAST_LINES:])
        return failures

    def list_running(self) -> list[str]:
        """Returns the names of the runs that are in progress."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    async def close(self) -> None:
        """Interrupts the runs in progress, so that they can be resumed; kills those that do not end in time."""
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


def create_run_folder(root: Path, scenario: Scenario, text: str) -> Path:
    """Creates a new folder with the scenario in it and returns its path; raises ConfigError if that fails."""
    runs, name = root / RUNS, folder_name(scenario)
    try:
        with suppress(FileExistsError):
            runs.mkdir()
        if not stat.S_ISDIR(runs.lstat().st_mode):
            raise ConfigError(f"{RUNS} is a link or not a folder, so nothing is written there; try: move it away")
        for number in count(1):
            folder = runs / (name if number == 1 else f"{name}--{number}")
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                if number == MOST_FOLDERS:
                    raise
                continue
            with (folder / "scenario.toml").open("x", encoding="utf-8") as file:
                file.write(text)
            return folder
    except OSError as error:
        raise ConfigError(f"{RUNS}/{name} cannot be made: {error.strerror}") from None
    raise AssertionError  # count() does not end
