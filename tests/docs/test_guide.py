"""The program of the guide for three machines, as printed: it survives a crash, and all end with one model."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

PAGE = ROOT / "docs" / "three-machines.md"
ROUNDS = 4
EXAMPLE = ROOT / "examples" / "hospital.py"
CRASH = """    import os
    if os.environ.get("CRASH") and Path("hospital-a.pt").exists():
        os._exit(3)  # after the first round that was saved
    model.train()
"""


def printed() -> str:
    """Returns the program of the page."""
    (found,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(found)


def program() -> str:
    """Returns the program of the page, which ends after a few rounds and crashes if told to."""
    text = printed()
    assert text.count("ROUNDS = 100\n") == text.count("    model.train()\n") == 1
    return text.replace("ROUNDS = 100\n", f"ROUNDS = {ROUNDS}\n").replace("    model.train()\n", CRASH)


def test_the_page_prints_the_example() -> None:
    assert printed() == EXAMPLE.read_text("utf-8")


def start(folder: Path, me: str, **env: str) -> "subprocess.Popen[bytes]":
    """Starts one hospital in a process of its own."""
    path = folder / "hospital.py"
    path.write_text(program(), encoding="utf-8")
    command = [sys.executable, str(path), me]
    extra = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PATH": "", **env}
    with (folder / f"{me}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=extra, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603


def free_ports(count: int) -> list[int]:
    """Returns ports at which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.slow
def test_the_program_of_the_guide_survives_a_crash(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tacit = [sys.executable, "-c", "from tacit.app.cli.main import main; main()"]
    server_port, *ports = free_ports(4)
    names = [f"hospital-{letter}" for letter in "abc"]
    parties = ",".join(f"{name}=localhost:{port}" for name, port in zip(names, ports, strict=True))
    keys = [
        "keygen",
        "--federation",
        "three",
        "--parties",
        parties,
        "--server",
        f"localhost:{server_port}",
        "--folder",
        ".",
    ]
    subprocess.run([*tacit, *keys], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603
    serve = [*tacit, "serve", "federation.toml", "--rounds", str(ROUNDS)]
    server = subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    running = {name: start(tmp_path, name, **({"CRASH": "1"} if name == names[0] else {})) for name in names}
    try:
        assert running[names[0]].wait(timeout=120) == 3, "it crashed where it was told to"
        running[names[0]] = start(tmp_path, names[0])
        codes = {name: process.wait(timeout=120) for name, process in running.items()}
    finally:
        for process in (*running.values(), server):
            process.kill()
            process.wait()
    said = "\n".join((tmp_path / f"{name}.log").read_text("utf-8") for name in names)
    assert not any(codes.values()), said
    saved = [torch.load(tmp_path / f"{name}.pt") for name in names]
    for key, weights in saved[0]["model"].items():
        if weights.is_floating_point():
            assert all(torch.equal(weights, other["model"][key]) for other in saved[1:]), said
