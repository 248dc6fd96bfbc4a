"""One hospital of three, on its own machine: it trains, averages with the others, and survives a restart.

`python hospital.py NAME`, beside `federation.toml` and `NAME.identity`. Replace `make_model` and `train` by your own.
"""

import sys
from pathlib import Path

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("error: torch is not installed\ntry: pip install 'tacit[torch]'")

import tacit

ROUNDS = 100


def make_model() -> nn.Module:
    """Returns the model with which all hospitals begin."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Returns a new optimizer, whose momentum begins at zero."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Trains for one epoch. Read your own data here."""
    model.train()
    for _ in range(5):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
        optimizer.step()


def main(me: str) -> None:
    """Trains and averages until `ROUNDS` rounds have begun."""
    tacit.log_lines()  # warnings, such as a server that cannot be reached
    checkpoint = Path(f"{me}.pt")  # beside the journal, NAME.rounds
    model = make_model()
    optimizer = make_optimizer(model)
    if checkpoint.exists():  # after a restart: what only this hospital has
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    with tacit.join("federation.toml", me=me) as peer:
        peer.restore(model)  # after a restart: the last average that this hospital adopted
        while peer.rounds < ROUNDS or peer.resuming:
            train(model, optimizer)
            try:
                outcome = peer.average(model, weight=1.0)  # the model is changed in place
            except (tacit.NotEnough, tacit.PeerFault) as error:  # no average in this round: the model is unchanged
                print(f"round {peer.rounds}: {error.code}: {error}")
                continue
            print(
                f"round {peer.rounds}: average of {len(outcome.contributors)}, missing: {outcome.dropped or 'nobody'}"
            )
            if outcome.replaced:  # this hospital was behind, so its momentum belongs to another model
                optimizer = make_optimizer(model)
            saving = checkpoint.with_suffix(".new")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saving)
            saving.replace(checkpoint)  # complete or not at all


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: the name of the hospital is missing\ntry: python hospital.py hospital-a")
    main(sys.argv[1])
