"""Restrictions of the systemd units, put on a federation of this machine without systemd."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from support.federations import free_ports
from support.paths import ROOT

pytestmark = pytest.mark.slow

UNIT = ROOT / "deploy" / "systemd" / "tacit-node@.service"
TACIT = Path(sys.executable).with_name("tacit")
REFUSED = {"mbind", "fchown"}
"""Calls outside the filter that may fail: OpenBLAS places memory; SQLite, as root, sets owners."""
WITHOUT_NEW_CODE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
assert libc.prctl(65, 1, 0, 0, 0) == 0, "PR_SET_MDWE, as MemoryDenyWriteExecute= does"
os.execv(sys.argv[1], sys.argv[1:])
"""


def members(name):
    """Returns the calls of a group, with those of the groups in it."""
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)  # noqa: S603, S607
    words = [line.strip() for line in done.stdout.splitlines()[1:]]
    listed = {word for word in words if word and not word.startswith("#")}
    inner = {word for word in listed if word.startswith("@")}
    return (listed - inner).union(*map(members, inner))


def allowed_calls():
    """Returns the calls that the unit allows."""
    found = set()
    for line in re.findall(r"^SystemCallFilter=(.+)$", UNIT.read_text(), re.MULTILINE):
        groups = set().union(*map(members, line.removeprefix("~").split()))
        found = found - groups if line.startswith("~") else found | groups
    return found


def used_calls(path):
    """Returns the calls that strace counted."""
    rows = [line.split() for line in path.read_text().splitlines()]
    return {row[-1] for row in rows if len(row) > 4 and re.fullmatch(r"[0-9.]+", row[0])} - {"total"}


def test_a_federation_runs_with_the_system_calls_that_the_units_allow(tmp_path, monkeypatch):
    for tool in ("strace", "systemd-analyze"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed here")
    if subprocess.run([sys.executable, "-c", WITHOUT_NEW_CODE, shutil.which("true")], check=False).returncode:  # noqa: S603
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert "MemoryDenyWriteExecute=yes" in UNIT.read_text()
    monkeypatch.chdir(tmp_path)
    server, *ports = free_ports(4)
    parties = ",".join(f"{name}=localhost:{port}" for name, port in zip("abc", ports, strict=True))
    keys = [
        "keygen",
        "--federation",
        "three",
        "--parties",
        parties,
        "--server",
        f"localhost:{server}",
        "--set",
        "clip=8",
    ]
    subprocess.run([TACIT, *keys], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    scenario = (ROOT / "deploy" / "compose" / "scenario.toml").read_text().replace("rounds = 5", "rounds = 2")
    Path("scenario.toml").write_text(scenario)
    commands = {"server": ["serve", "federation.toml", "--rounds", "2"]}
    commands |= {name: ["node", "scenario.toml", "--me", name] for name in "abc"}
    refuse = f"inject={','.join(sorted(REFUSED))}:error=EPERM"
    processes = {}
    try:
        for name, command in commands.items():
            traced = [shutil.which("strace"), "-f", "-qq", "-c", "-e", refuse, "-o", f"{name}.calls", TACIT, *command]
            confined = [sys.executable, "-c", WITHOUT_NEW_CODE, *traced]
            with Path(f"{name}.log").open("wb") as log:
                given = {"stdout": log, "stderr": log, "start_new_session": True}
                processes[name] = subprocess.Popen(list(map(str, confined)), **given)  # noqa: S603
        for name, process in processes.items():
            assert process.wait(300) == 0, Path(f"{name}.log").read_text()
    finally:
        for process in processes.values():
            # strace leaves its program running when it is killed, so the whole group ends.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    allowed = allowed_calls()
    assert {"read", "sendmsg", "prlimit64"} <= allowed
    assert {"mount", "setuid", "mbind"} & allowed == set()
    used = set().union(*(used_calls(Path(f"{name}.calls")) for name in commands))
    assert {"read", "fsync", "sendmsg"} <= used
    assert sorted(used - allowed - REFUSED) == []
