"""Releases of a noisy run: another contribution has other noise and is paid for, and the same one is paid for once."""

import numpy as np
import pytest

from tacit.core.errors import JournalError
from tacit.learn.scenario import Scenario
from tacit.learn.training import train as training
from tacit.learn.training.checkpoint import Checkpoint
from tacit.learn.training.run_folder import LEDGER
from tacit.learn.training.train import train
from tacit.privacy import read_ledger

torch = pytest.importorskip("torch")

MODES = [{}, {"noise": "local"}, {"noise": "central"}, {"unit": "sample"}, {"unit": "sample", "noise": "local"}]


def scenario(protocol="secagg", **privacy):
    given = {
        "rounds": 3,
        "data": {"parties": 4, "train": 200},
        "local": {"rate": 0.5, "batch": 50, "steps": 1},
        "protocol": protocol,
        "privacy": {"epsilon": 2.0, "clip": 1.0, **privacy},
    }
    return Scenario.of(given)


def module(offset=0.0):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Flatten(1), torch.nn.Linear(64, 10))
    with torch.no_grad():
        made[1].weight += offset
    return made


class Hidden(torch.nn.Module):
    """A module that computes something else after it was looked at: nothing that it says of itself tells."""

    twist = 1.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1) * type(self).twist)


class Killed(Exception):
    pass


@pytest.fixture
def kill(monkeypatch):
    """Returns a function that trains until a round is over and its checkpoint is not written, and gives the model."""

    def cut(wanted, folder, after, **more):
        seen = {}

        def killed(checkpoint, path):
            if checkpoint.round < after:
                write(checkpoint, path)
                return
            seen["model"] = np.frombuffer(checkpoint.models, np.float32).copy()
            raise Killed

        write = Checkpoint.write
        with monkeypatch.context() as patched:
            patched.setattr(training.Checkpoint, "write", killed)
            with pytest.raises(Killed):
                train(wanted, folder=folder, **more)
        return seen["model"]

    return cut


def spent(folder):
    """Returns how many rounds p0 has paid for."""
    return len(read_ledger(folder / LEDGER).runs[0].payments("p0"))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_run_with_another_model_is_another_run(mode, kill, tmp_path):
    """Such a round was once had for nothing, under the same noise: the two releases had a correlation of 0.99998."""
    kill(scenario(**mode), tmp_path, 1, model=module())
    for other in (module(0.5), torch.nn.Sequential(torch.nn.Flatten(1), torch.nn.Linear(64, 10, bias=False))):
        with pytest.raises(
            JournalError, match=r"ledger of 'scenario .*, model .*, noise .*; try: begin a new run in another folder"
        ):
            train(scenario(**mode), folder=tmp_path, resume=True, model=other)
    assert spent(tmp_path) == 1


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_same_contribution_is_paid_for_once_and_has_the_same_noise(mode, kill, tmp_path):
    first = kill(scenario(**mode), tmp_path, 1, model=module())
    again = kill(scenario(**mode), tmp_path, 1, model=module(), resume=True)
    assert np.array_equal(first, again)
    assert spent(tmp_path) == 1
    run = train(scenario(**mode), folder=tmp_path, resume=True, model=module())
    assert len(run.history) == 3
    assert spent(tmp_path) == 3


@pytest.mark.parametrize("protocol", ["secagg", "fedavg", "gossip"])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_another_contribution_has_other_noise_and_is_paid_for(mode, protocol, kill, tmp_path, monkeypatch):
    """Whatever a module says of itself, what it computes decides."""
    if protocol == "gossip" and mode.get("noise") == "central":
        pytest.skip("there is no server")
    wanted = scenario(protocol, epsilon=2.0, **mode)
    first = kill(wanted, tmp_path, 1, model=Hidden())
    before = first.reshape(-1, 650) - np.concatenate([each.detach().numpy().ravel() for each in Hidden().parameters()])
    monkeypatch.setattr(Hidden, "twist", 1.001)
    second = kill(wanted, tmp_path, 1, model=Hidden(), resume=True)
    after = second.reshape(-1, 650) - np.concatenate([each.detach().numpy().ravel() for each in Hidden().parameters()])
    for one, two in zip(before, after, strict=True):
        # At this ε nearly all of a change is noise.
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.3
    assert spent(tmp_path) == 2


def test_what_is_left_of_a_budget_ends_repeated_contributions(kill, tmp_path, monkeypatch):
    """A run has as many releases as it planned rounds, whatever they are of."""
    wanted = scenario()
    for number in range(3):
        monkeypatch.setattr(Hidden, "twist", 1.0 + number / 100)
        kill(wanted, tmp_path, 1, model=Hidden(), resume=number > 0)
    monkeypatch.setattr(Hidden, "twist", 2.0)
    run = train(wanted, folder=tmp_path, resume=True, model=Hidden())
    assert run.history == []
    assert "budget" in run.notes[-1]
    assert spent(tmp_path) == 3


def test_a_run_without_a_server_that_cannot_pay_leaves_models_as_they_were(kill, tmp_path, monkeypatch):
    wanted = scenario("gossip", noise="local")
    for number in range(3):
        monkeypatch.setattr(Hidden, "twist", 1.0 + number / 100)
        kill(wanted, tmp_path, 1, model=Hidden(), resume=number > 0)
    monkeypatch.setattr(Hidden, "twist", 2.0)
    run = train(wanted, folder=tmp_path, resume=True, model=Hidden())
    assert np.array_equal(
        run.parameters, np.concatenate([each.detach().numpy().ravel() for each in Hidden().parameters()])
    )
