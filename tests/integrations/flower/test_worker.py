"""The worker that forks the process of each message: processes share imports, and nothing else."""

import json
import subprocess
import sys
import time

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")

from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResultStatus, SubprocessExecutor

from tacit.integrations.flower import worker

PLAIN = {
    "task_type": TaskType.CLIENT_APP,
    "runtime_api_address": "127.0.0.1:9094",
    "token": "secret",
    "insecure": True,
    "root_certificates_path": None,
    "runtime_dependency_install": False,
    "parent_pid": 7,
    "suppress_output": False,
    "task_id": 1,
}
SPECS = [{}, {"parent_pid": None}, {"insecure": False, "root_certificates_path": "/ca.pem"}, {"insecure": False}]
WORKER = """
import importlib, json, os, random, sys, threading
from pathlib import Path
import numpy as np
from flwr.supercore.superexec.executor import ExecutionSpec
from tacit.integrations.flower import worker
command = importlib.import_module("flwr.supernode.cli.flwr_clientapp")

folder, seen = Path(sys.argv[1]), []

def answer():
    seen.append(sys.argv)
    fields = {
        "process": os.getpid(), "seen": seen, "random": random.random(), "numpy": np.random.random(),
        "threads": threading.active_count(), "preloaded": {"colorsys", "tacit.protocols.secagg"} <= sys.modules.keys(),
    }
    fresh = folder / f"{sys.argv[-1]}.new"
    fresh.write_text(json.dumps(fields))
    fresh.rename(folder / sys.argv[-1])
    sys.exit(0)

command.flwr_clientapp = answer
executor = worker.ForkingExecutor(["colorsys"])
for parent in (11, 12, 13):
    spec = ExecutionSpec(**{**json.loads(sys.argv[2]), "parent_pid": parent})
    print(executor.launch(spec).status.value, flush=True)
sys.stdin.read()
executor.close()
"""


def spec(**changes):
    return ExecutionSpec(**{**PLAIN, **changes})


def test_processes_begin_with_the_imports_and_nothing_of_other_messages(tmp_path):
    command = [sys.executable, "-c", WORKER, str(tmp_path), json.dumps(PLAIN)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:  # noqa: S603
        names = [tmp_path / str(number) for number in (11, 12, 13)]
        for _ in range(1200):
            if all(name.exists() for name in names) or running.poll() is not None:
                break
            time.sleep(0.05)
        out, _ = running.communicate()
    assert out.split() == ["accepted"] * 3
    found = [json.loads(name.read_text()) for name in names]
    assert [each["seen"] for each in found] == [[worker.list_arguments(spec(parent_pid=n))] for n in (11, 12, 13)]
    for field in ("process", "random", "numpy"):
        assert len({each[field] for each in found}) == 3
    assert {each["threads"] for each in found} == {1}
    assert all(each["preloaded"] for each in found)


@pytest.mark.parametrize("changes", SPECS, ids=str)
def test_the_command_line_is_that_of_flower(monkeypatch, changes):
    called = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: called.append(command))
    SubprocessExecutor().launch(spec(**changes))
    assert called == [worker.list_arguments(spec(**changes))]


class NoSpawner(worker.ForkingExecutor):
    """An executor whose spawner is gone."""

    def __init__(self):
        self._channel, other = worker.socket.socketpair(worker.socket.AF_UNIX, worker.socket.SOCK_SEQPACKET)
        other.close()


def test_other_tasks_and_messages_without_a_spawner_start_processes_as_in_flower(monkeypatch, caplog):
    called = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: called.append(command[0]))
    executor = NoSpawner()
    for given in ({"task_type": TaskType.SERVER_APP}, {"runtime_dependency_install": True}, {}):
        assert executor.launch(spec(**given)).status is LaunchResultStatus.ACCEPTED
    executor.close()
    assert called == ["flwr-serverapp", "flwr-clientapp", "flwr-clientapp"]
    assert "the spawner is gone" in caplog.text


def test_a_module_that_cannot_be_preloaded_is_named():
    with pytest.raises(SystemExit) as ended:
        worker.main(["--preload", "no_such_library", "--insecure"])
    assert "no_such_library cannot be imported" in str(ended.value)


def test_help_names_the_command_that_it_replaces(capsys):
    with pytest.raises(SystemExit):
        worker.main(["--help"])
    assert "flower-superexec" in capsys.readouterr().out
