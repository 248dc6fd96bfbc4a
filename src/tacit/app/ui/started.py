"""Scenarios that were started from the page: each is a `tacit run` of its own, with its folder and its log."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from tacit.app.ui.folders import RUNS, checked
from tacit.core.errors import ConfigError

PROGRAM = (sys.executable, "-c", "from tacit.app.cli import main; main()", "run")
LOG = "run.log"
MOST_RUNNING = 4
"""Runs at once, beyond which a machine only gets slower."""


class Started:
    """Runs that this page has started."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, text: str) -> str:
        """Starts a scenario and returns the name of its folder; raises ConfigError with what is wrong with it."""
        scenario = checked(text)
        if sum(each.returncode is None for each in self._processes.values()) >= MOST_RUNNING:
            raise ConfigError(f"{MOST_RUNNING} runs are under way already; wait for one of them")
        name = f"{RUNS}/{scenario.data.name}-{scenario.protocol['name']}-{scenario.digest[:8]}"
        for number in count(2):
            folder = self._place / name
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                name = f"{name.rsplit('--', 1)[0]}--{number}"
                continue
            except OSError as error:
                raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None
            break
        path = folder / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        with (folder / LOG).open("wb") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                *PROGRAM, str(path), "--folder", str(folder), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        return name

    def failed(self) -> dict[str, str]:
        """Returns why runs that were started here ended with an error, by name."""
        return {
            name: "\n".join((self._place / name / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            for name, process in self._processes.items()
            if process.returncode
        }

    def running(self) -> list[str]:
        """Returns which of them are under way."""
        return [name for name, process in self._processes.items() if process.returncode is None]

    async def close(self) -> None:
        """Ends those that are under way as Ctrl-C would: they can be resumed."""
        for process in self._processes.values():
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGINT)
                await process.wait()
