"""One job for several simulators: 48 parties with 256 images each train a perceptron and are averaged, round by round.

It is run by the interpreter that has the simulator: `python benchmarks/peers.py NAME JOB.npz ROUNDS`. So it imports
only NumPy and the named simulator. It prints a line of JSON: wall-clock and CPU time of each round without the first
ones, and the final accuracy.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 2
"""Number of rounds that are not counted, because compilers, caches and processes start up in them."""


class Job:
    """The training job."""

    def __init__(self, path: str) -> None:
        with np.load(path) as stored:
            self.x, self.y, self.x_test, self.y_test = (stored[name] for name in ("x", "y", "x_test", "y_test"))
            self.hidden, self.batch = int(stored["hidden"]), int(stored["batch"])
            self.rate = float(stored["rate"])
            self.weights = [stored["w0"], stored["w1"]]
            """What everybody starts from, (outs × ins), with biases of zero."""
        self.parties, self.samples, self.features = self.x.shape
        self.classes = int(self.y.max()) + 1

    def torch_model(self) -> Any:
        """Returns the perceptron as a PyTorch module."""
        import torch
        from torch import nn

        made = nn.Sequential(nn.Linear(self.features, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.classes))
        with torch.no_grad():
            for layer, weights in zip(made[::2], self.weights, strict=True):
                layer.weight.copy_(torch.from_numpy(weights))
                layer.bias.zero_()
        return made

    def accuracy(self, scores: Any) -> float:
        """Returns the share of test images that are classified correctly."""
        return float((np.asarray(scores).argmax(axis=1) == self.y_test).mean())


class Watch:
    """Records the wall-clock time, and the CPU time of this process and its children, after each round."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.stamps: list[tuple[float, float]] = []

    def round(self) -> None:
        """Records the end of a round, or at first the beginning of all rounds."""
        self.stamps.append((time.perf_counter(), cpu_seconds_of_all()))

    def report(self, name: str, version: str, accuracy: float) -> dict[str, Any]:
        """Returns the results."""
        kept = np.array(self.stamps[WARM_UP:])
        wall, cpu = np.diff(kept, axis=0).T
        first = self.stamps[1][0] - self.began
        return {
            "name": name,
            "version": version,
            "wall": float(np.median(wall)),
            "cpu": float(cpu.mean()),
            "first": first,
            "accuracy": accuracy,
            "rounds": len(wall),
        }


def cpu_seconds_of_all() -> float:
    """Returns the CPU time of this process and of all its running children."""
    parents, times, tick = {}, {}, os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
            times[int(folder.name)] = (int(fields[11]) + int(fields[12])) / tick
    mine, found = os.getpid(), 0.0
    for process in times:
        above = process
        while above in parents and above != mine:
            above = parents[above]
        found += times[process] if above == mine and process != mine else 0.0
    own, gone = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return found + own.ru_utime + own.ru_stime + gone.ru_utime + gone.ru_stime


# --- ours ----------------------------------------------------------------------------------------------------------


def tacit(job: Job, rounds: int, workers: int = 1, protocol: str | None = "fedavg") -> dict[str, Any]:
    """Runs the job with Tacit: a cohort trains, and a protocol averages; None is a plain mean over its matrix."""
    import tacit
    from tacit.learn.data.samples import Dataset
    from tacit.learn.models.registry import build
    from tacit.learn.training.cohort import Cohort
    from tacit.learn.training.local_training import LocalTraining
    from tacit.learn.training.loop import Training
    from tacit.runtime.simulation.simulator import Simulation

    watch = Watch()
    x, y = job.x.reshape(-1, job.features), job.y.reshape(-1)
    data = Dataset("job", x, y, job.x_test, job.y_test, "features", job.classes)
    parts = np.split(np.arange(len(y)), job.parties)
    model = build("mlp", data, hidden=[job.hidden])
    cohort = Cohort(model, data, parts, LocalTraining(rate=job.rate, batch=job.batch), 0, workers)
    flat = [part for weights in job.weights for part in (weights.reshape(-1), np.zeros(len(weights), np.float32))]
    cohort.matrix[:] = np.concatenate(flat)
    parties = tuple(f"p{place}" for place in range(job.parties))
    watch.round()
    if protocol is None:
        for number in range(1, rounds + 1):
            cohort.work(range(job.parties), number)
            cohort.matrix[:] = cohort.matrix.mean(axis=0)
            watch.round()
        shared = cohort.matrix[0]
    else:
        simulation = Simulation.of(protocol, parties, model.parameters, seed=0)
        training = Training(cohort, parties, simulation)
        for _ in training.steps(rounds):
            watch.round()
        shared = training.consensus()
    score = model.evaluate(shared, data.inputs(job.x_test), job.y_test)
    cohort.close()
    averaged = protocol or "mean"
    return watch.report(f"tacit, {averaged}, workers={workers}", tacit.__version__, score.accuracy or 0.0)


# --- theirs --------------------------------------------------------------------------------------------------------


def pfl(job: Job, rounds: int) -> dict[str, Any]:
    """Runs the job with pfl-research's SimulatedBackend, which does not shuffle a user's samples."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.version import __version__

    watch = Watch()

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = job.torch_model()

        def forward(self, x: Any) -> Any:
            return self.layers(x)

        def loss(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.cross_entropy(self(x), y)

        def metrics(self, _x: Any, _y: Any) -> dict[str, Any]:
            return {}

    class Stamp(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, _aggregate: Any, _model: Any, *, central_iteration: int) -> tuple[bool, Any]:
            del central_iteration
            watch.round()
            return False, Metrics()

    torch.manual_seed(0)
    net = Net()
    users = {str(i): (torch.from_numpy(job.x[i]), torch.from_numpy(job.y[i])) for i in range(job.parties)}
    dataset = FederatedDataset(
        lambda user: Dataset(raw_data=users[user]), get_user_sampler("minimize_reuse", list(users))
    )
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=job.rate, local_batch_size=job.batch)
    # Only the first round, which does not count, is evaluated.
    params = NNAlgorithmParams(rounds, evaluation_frequency=10**6, train_cohort_size=job.parties, val_cohort_size=None)
    watch.round()
    FederatedAveraging().run(params, SimulatedBackend(dataset, None), model, local, callbacks=[Stamp()])
    with torch.no_grad():
        accuracy = job.accuracy(net(torch.from_numpy(job.x_test)))
    return watch.report("pfl", __version__, accuracy)


def flower(job: Job, rounds: int) -> dict[str, Any]:
    """Runs the job with Flower's simulation on Ray, with one core per client."""
    for name, value in {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_DEDUP_LOGS": "0"}.items():
        os.environ.setdefault(name, value)
    import warnings

    warnings.filterwarnings("ignore")
    import logging

    import flwr
    import torch
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    watch, final = Watch(), [0.0]
    path = sys.argv[2]
    client, server = ClientApp(), ServerApp()

    @client.train()  # type: ignore[untyped-decorator]
    def train(message: Message, context: Context) -> Message:
        # Each process reads the job once.
        kept = globals().setdefault("_kept", {})
        mine = kept.get("job") or kept.setdefault("job", Job(path))
        torch.set_num_threads(1)
        place = int(context.node_config["partition-id"])
        model = mine.torch_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=mine.rate)
        x, y = torch.from_numpy(mine.x[place]), torch.from_numpy(mine.y[place])
        order = torch.randperm(len(y))
        for start in range(0, len(y), mine.batch):
            chosen = order[start : start + mine.batch]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        found = RecordDict(
            {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        )
        return Message(content=found, reply_to=message)

    @server.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, _context: Context) -> None:
        def after(number: int, arrays: ArrayRecord) -> None:
            watch.round()
            if number == rounds:
                model = job.torch_model()
                model.load_state_dict(arrays.to_torch_state_dict())
                with torch.no_grad():
                    final[0] = job.accuracy(model(torch.from_numpy(job.x_test)))

        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=job.parties, min_available_nodes=job.parties)
        torch.manual_seed(0)
        strategy.start(grid, ArrayRecord(job.torch_model().state_dict()), rounds, evaluate_fn=after)

    run_simulation(server, client, job.parties, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    return watch.report("flower", flwr.__version__, final[0])


def fedjax(job: Job, rounds: int) -> dict[str, Any]:
    """Runs the job with fedjax: compiled code, with XLA's own choice of threads."""
    import jax

    for name in ("tree_map", "tree_leaves", "tree_flatten", "tree_unflatten"):
        # JAX has moved these names since the last release of fedjax.
        if not hasattr(jax, name):
            setattr(jax, name, getattr(jax.tree_util, name))
    import fedjax
    import jax.numpy as jnp
    from fedjax.version import __version__

    watch = Watch()
    params = [{"w": jnp.asarray(weights.T), "b": jnp.zeros(len(weights))} for weights in job.weights]

    def scores(params: Any, x: Any) -> Any:
        return jax.nn.relu(x @ params[0]["w"] + params[0]["b"]) @ params[1]["w"] + params[1]["b"]

    def loss(params: Any, batch: Any, _rng: Any) -> Any:
        picked = jax.nn.log_softmax(scores(params, batch["x"]))[jnp.arange(len(batch["y"])), batch["y"]]
        return -picked.mean()

    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(job.rate),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=job.batch, num_epochs=1),
    )
    clients = [
        (str(i), fedjax.ClientDataset({"x": job.x[i], "y": job.y[i].astype(np.int32)}), jax.random.PRNGKey(i))
        for i in range(job.parties)
    ]
    state = algorithm.init(params)
    watch.round()
    for _ in range(rounds):
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        watch.round()
    return watch.report("fedjax", str(__version__), job.accuracy(scores(state.params, job.x_test)))


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "pfl": pfl,
    "flower": flower,
    "fedjax": fedjax,
    "tacit": tacit,
    "tacit-2": lambda job, rounds: tacit(job, rounds, workers=2),
    "tacit-mean": lambda job, rounds: tacit(job, rounds, protocol=None),
    "tacit-mean-2": lambda job, rounds: tacit(job, rounds, workers=2, protocol=None),
}


if __name__ == "__main__":
    if "torch" in sys.modules or sys.argv[1] in ("pfl", "flower"):
        import torch

        torch.set_num_threads(1)
    found = JOBS[sys.argv[1]](Job(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(f"\n{json.dumps(found)}\n")
