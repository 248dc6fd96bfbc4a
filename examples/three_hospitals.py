"""Three hospitals train one PyTorch model, each in its own process, and none sees another's model.

`python examples/three_hospitals.py` makes keys and a roster in a temporary folder, starts the server and the three
hospitals, and waits for them. They communicate over real sockets, with mutual TLS and the protocol `secagg`: the server
learns the sum of the three models and nothing else. On separate machines every party makes its own keys
(docs/federations.md). A hospital then runs the function `hospital` below, unchanged.

The data have ten kinds of digits. Each hospital has mostly its own three or four, so a model trained alone reads few of
the others.
"""

import multiprocessing
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("error: torch is not installed\ntry: pip install 'tacit[torch]'")

import tacit
from tacit.learn.data.datasets import load

HOSPITALS = {"north": range(4), "east": range(4, 7), "south": range(7, 10)}
FORK = multiprocessing.get_context("fork")
TACIT = [sys.executable, "-c", "from tacit.app.cli.main import main; main()"]


def hospital(roster: str, me: str, rounds: int) -> None:
    """Trains and averages as one hospital, round by round."""
    torch.manual_seed(0)  # All hospitals start with the same model.
    torch.set_num_threads(1)  # Three processes share this machine.
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    x, y, x_test, y_test = samples(me)
    with tacit.join(roster, me=me) as peer:
        model.load_state_dict(peer.restore(floats(model)), strict=False)  # After a restart, this is the last average.
        while peer.rounds < rounds:
            trained(model, x, y)
            alone = accuracy(model, x_test, y_test)
            outcome = peer.average(floats(model), weight=1.0)
            model.load_state_dict(outcome.average[me], strict=False)
            together = accuracy(model, x_test, y_test)
            print(f"{me}, round {peer.rounds}: {alone:.0%} alone, {together:.0%} together")


def floats(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the averaged tensors: all except whole numbers, such as a batch norm's number of batches."""
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}


def trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Trains a model for one pass over a hospital's own samples."""
    model.train()
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    for start in range(0, len(y) - 16, 16):
        descent.zero_grad()
        nn.functional.cross_entropy(model(x[start : start + 16]), y[start : start + 16]).backward()
        descent.step()


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Returns the share of the test images that a model classifies correctly."""
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def samples(me: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the samples of one hospital, with many of its own digits and few of the others, and the test samples."""
    data = load("digits")
    mine = [place for place, label in enumerate(data.y) if label in HOSPITALS[me] or place % 20 == 0]
    images = [torch.tensor(data.inputs(x).reshape(len(x), -1)) for x in (data.x[mine], data.x_test)]
    return images[0], torch.tensor(data.y[mine]), images[1], torch.tensor(data.y_test)


def run_parties(work: Callable[[str, str, int], None], rounds: int) -> int:
    """Makes the keys, starts a process for the server and each hospital, and returns how many of them failed."""
    with tempfile.TemporaryDirectory() as folder:
        ports = free_ports(len(HOSPITALS) + 1)
        parties = ",".join(f"{name}=localhost:{port}" for name, port in zip(HOSPITALS, ports[1:], strict=True))
        server = ["--server", f"localhost:{ports[0]}"]
        keys = ["keygen", "--federation", "three", "--parties", parties, *server, "--folder", folder]
        subprocess.run([*TACIT, *keys], check=True, stdout=subprocess.DEVNULL)
        roster = str(Path(folder) / "federation.toml")
        hospitals = [FORK.Process(target=work, args=(roster, name, rounds)) for name in HOSPITALS]
        for process in hospitals:
            process.start()
        served = subprocess.run([*TACIT, "serve", roster, "--rounds", str(rounds)], check=False)
        for process in hospitals:
            process.join()
        return served.returncode + sum(process.exitcode != 0 for process in hospitals)


def free_ports(count: int) -> list[int]:
    """Returns free ports of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    sys.exit(run_parties(hospital, rounds=int(sys.argv[1]) if sys.argv[1:] else 5))
