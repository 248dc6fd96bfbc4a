"""A SuperExec for a Flower node that forks the process of each message from one that has made the imports already.

    flower-supernode --isolation process --port 9094 …
    python -m tacit.integrations.flower.worker --insecure --runtime-api-address 127.0.0.1:9094

Flower starts a Python process for each message, which imports Flower and the app for longer than it computes. This
command takes the options of `flower-superexec` and takes its place. At its start it imports Flower, Tacit and the
modules of `--preload`, and forks a spawner, which does nothing but fork. So the process of a message begins with these
imports, and with nothing of other messages. The spawner opens no file of the federation and starts no thread.

**What is lost.** All messages share what the imports have left in memory: the layout of addresses, the seed of Python's
hashes, and whatever a preloaded module computes when it is imported. An exploit that learns addresses in one message
knows them in the next. Python's and NumPy's global generators get fresh seeds. Preload libraries, never an app.
"""

import argparse
import importlib
import json
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import seed as seed_python

import numpy as np
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult, SubprocessExecutor

from tacit.core.errors import ConfigError, TacitError
from tacit.protocols import REGISTRY, find

MODULES = ("flwr.supernode.cli.flwr_clientapp", "tacit.integrations.flower.api", "tacit.api.checked_run")
"""Modules that the processes of messages begin with."""
POLL_INTERVAL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Environment variable of Flower: seconds between two questions for a message."""
SHORTEST_POLL = "0.1"
MOST_BYTES = 1 << 16
LOG = logging.getLogger("tacit.flower")


class ForkingExecutor(SubprocessExecutor):
    """Flower's executor of subprocesses, except that the processes of ClientApps are forked."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        """Imports modules, and starts the spawner.

        Raises:
            ConfigError: If a module cannot be imported, or this system cannot fork.
        """
        if not hasattr(os, "fork"):
            raise ConfigError("this system cannot fork processes; try: flower-superexec")
        for name in (*MODULES, *modules):
            try:
                importlib.import_module(name)
            except ImportError as error:
                raise ConfigError(f"{name} cannot be imported: {error}; try: another --preload") from None
        for protocol in REGISTRY:
            with suppress(TacitError):  # A broken plug-in matters only to rounds that use it.
                find(protocol)
        self._channel = _start_spawner()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Starts the process of a task."""
        if spec.task_type == TaskType.CLIENT_APP and not spec.runtime_dependency_install:
            try:
                self._channel.send(json.dumps(list_arguments(spec)).encode())
            except OSError as error:
                LOG.warning("the spawner is gone (%s), so messages take longer; try: start the worker again", error)
            else:
                return LaunchResult.accepted()
        return super().launch(spec)

    def close(self) -> None:
        """Ends the spawner. Processes of messages go on to their end."""
        self._channel.close()


def list_arguments(spec: ExecutionSpec) -> list[str]:
    """Returns the command line of Flower's process for a message."""
    arguments = ["flwr-clientapp", "--runtime-api-address", spec.runtime_api_address, "--token", spec.token]
    if spec.insecure:
        arguments.append("--insecure")
    elif spec.root_certificates_path is not None:
        arguments += ["--root-certificates", spec.root_certificates_path]
    if spec.parent_pid is not None:
        arguments += ["--parent-pid", str(spec.parent_pid)]
    return arguments


def _start_spawner() -> socket.socket:
    """Forks the spawner; returns the socket that takes command lines, whose end ends it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if _fork():
        theirs.close()
        return ours
    ours.close()
    arguments = spawn_processes(theirs)
    if arguments is None:
        os._exit(0)
    run_app(arguments)
    sys.exit()


def spawn_processes(channel: socket.socket) -> list[str] | None:
    """Forks a process for each command line that arrives.

    Returns:
        In a forked process, its command line. In the spawner None, once the other end is closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which then closes its end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The system clears processes that have ended.
    while data := channel.recv(MOST_BYTES):
        if not _fork():
            channel.close()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            arguments: list[str] = json.loads(data)
            return arguments
    return None


def run_app(arguments: list[str]) -> None:
    """Answers a message as Flower's own process does, which it then ends."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    seed_python()
    np.random.seed()
    sys.argv = arguments
    flwr_clientapp()


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns when a process with threads forks. Those of BLAS take care of themselves.
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        return os.fork()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs Flower's SuperExec with the forking executor."""
    parser = argparse.ArgumentParser(
        "python -m tacit.integrations.flower.worker",
        description="A flower-superexec that forks the process of each message. It takes all options of that command.",
        epilog="Example: --insecure --runtime-api-address 127.0.0.1:9094 --preload torch",
    )
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE", help="a library of the app")
    chosen, others = parser.parse_known_args(arguments)
    # Flower's packages have functions with the names of these modules.
    command = importlib.import_module("flwr.supercore.cli.flower_superexec")
    superexec = importlib.import_module("flwr.supercore.superexec.run_superexec")
    try:
        executor = ForkingExecutor(chosen.preload)
    except TacitError as error:
        sys.exit(str(error))
    vars(superexec)["get_executor"] = lambda *_, **__: executor  # Flower offers no other way
    os.environ.setdefault(POLL_INTERVAL, SHORTEST_POLL)
    sys.argv = ["flower-superexec", *others]
    command.flower_superexec()


if __name__ == "__main__":
    main()
