"""Training parties: local work compared with a plain loop, two workers, growth, memory, and other simulators.

The plain loop is the obvious program: a PyTorch module and an optimizer for each party, one party after the other.
Other simulators need environments of their own, so each needs the path of an interpreter that has it: `python -m
benchmarks simulation --python pfl=/tmp/pfl/bin/python --python fedjax=… --python flower=…`.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import Row, comparison_row, peak_bytes, side_by_side, single_row
from benchmarks.peers import WARM_UP
from tacit.core.errors import ConfigError
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset
from tacit.learn.models.model import Model
from tacit.learn.models.numpy_models import NumpyModel
from tacit.learn.models.registry import build
from tacit.learn.training.cohort import Cohort
from tacit.learn.training.local_training import LocalTraining

Say = Callable[[str], None]

PARTIES = 48
GROWTH = (16, 48, 96, 288)
FASTER = {"pfl": 1.2, "flower": 5.0, "fedjax": None}
"""Required ratio of rounds per second, by wall-clock time."""
CLOSE = 0.03
"""The largest difference of accuracies on the same job."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Case:
    """A model, the samples that it is trained on, and their number per party."""

    model: str
    shape: tuple[int, ...]
    samples: int
    batch: int
    options: Mapping[str, Any] = field(default_factory=dict)
    classes: int = 10
    at_least: float | None = None

    def data(self, parties: int) -> Dataset:
        """Returns random samples. Their content does not influence the time."""
        rng, count = np.random.default_rng(0), parties * self.samples
        y: np.ndarray = rng.integers(0, self.classes, count)
        if self.model == "gru":
            x = rng.integers(0, self.classes, (count, *self.shape))
            return Dataset("noise", x, np.roll(x, -1, axis=1), x[:2], x[:2], "text", self.classes)
        if self.model == "factorization":
            x = np.stack([rng.integers(0, most, count) for most in self.shape], axis=1)
            x[0] = np.array(self.shape) - 1
            return Dataset("noise", x, y / 2 + 0.5, x[:2], y[:2] / 2, "ratings", 0)
        x = rng.integers(0, 256, (count, *self.shape)).astype(np.uint8)
        return Dataset("noise", x, y, x[:2], y[:2], "images", self.classes)

    def cohort(self, parties: int, workers: int = 1) -> Cohort:
        """Returns parties with the initial model."""
        data = self.data(parties)
        parts = np.split(np.arange(len(data.y)), parties)
        local = LocalTraining(rate=0.01, batch=self.batch)
        made = Cohort(build(self.model, data, **self.options), data, parts, local, 0, workers)
        made.start()
        return made

    def steps(self, parties: int) -> int:
        """Returns the number of steps of all parties in a round."""
        return parties * -(-self.samples // self.batch)

    def __str__(self) -> str:
        size = f" {list(self.options['hidden'])}" if "hidden" in self.options else ""
        return f"{self.model}{size}, batches of {self.batch}"


CASES = (
    Case("softmax", (28, 28), 256, 32, at_least=4),
    Case("mlp", (28, 28), 256, 32, at_least=1.7),
    Case("mlp", (28, 28), 256, 32, {"hidden": (200, 200)}),
    Case("factorization", (610, 9724), 128, 64),
    Case("lenet", (32, 32, 3), 64, 8, at_least=1),
    Case("gn-lenet", (32, 32, 3), 48, 8, at_least=1),
    Case("femnist-cnn", (28, 28), 96, 32, at_least=1),
    Case("gru", (50,), 96, 32, classes=80),
)
SMALL = (
    Case("softmax", (8, 8), 20, 8),
    Case("mlp", (8, 8), 20, 8, {"hidden": (16,)}),
    Case("lenet", (16, 16), 8, 8),
)


def rows(quick: bool = False, say: Say = lambda _: None, pythons: Mapping[str, str] | None = None) -> Iterator[Row]:
    """Yields the cost of local work, and of whole rounds. `pythons` are interpreters that have other simulators."""
    import torch

    torch.set_num_threads(1)
    parties, cases = (4, SMALL) if quick else (PARTIES, CASES)
    for case in cases:
        say(f"a plain loop, {case}")
        yield _against_a_loop(case, parties, quick)
    for case in cases[:3] if quick else (cases[1], cases[5], cases[6]):
        say(f"two workers, {case}")
        yield _two_workers(case, parties, quick)
    for case in cases[:1] if quick else (cases[0], cases[1], cases[4]):
        yield from _growth(case, (2, 4) if quick else GROWTH, say)
    for case in cases[:2] if quick else cases[:3]:
        say(f"memory, {case}")
        yield _memory_of_work(case, parties)
    if not quick:
        say(f"memory, {cases[6]}")
        yield _memory_of_a_process(cases[6], parties)
    say("other simulators")
    yield from _peers(quick, say, pythons or {})


# --- the plain loop ------------------------------------------------------------------------------------------------


def _against_a_loop(case: Case, parties: int, quick: bool) -> Row:
    cohort = case.cohort(parties)
    rounds = iter(range(1, 10**6))
    pair = side_by_side(
        lambda: cohort.work(range(parties), next(rounds)), _plain(case, cohort, parties), 3 if quick else 7
    )
    steps = case.steps(parties)
    note = (
        f"ratios {pair.low:.3g} to {pair.high:.3g}; {parties} parties; CPU time, one thread; "
        f"{steps / pair.ours:,.0f} steps a second, the loop {steps / pair.theirs:,.0f}"
    )
    at_least = None if quick else case.at_least
    return comparison_row(
        f"one party's step, {case}, against a loop",
        pair.ours / steps * 1e6,
        pair.theirs / steps * 1e6,
        "µs",
        at_least,
        note,
    )


def _plain(case: Case, cohort: Cohort, parties: int) -> Callable[[], None]:
    """Returns a round of the same work, as a loop over parties that each have a module and an optimizer."""
    import torch
    from torch import nn

    data = cohort.data
    x, y = torch.from_numpy(data.inputs(data.x)), torch.from_numpy(data.y)
    parts = [torch.from_numpy(part) for part in np.split(np.arange(len(data.y)), parties)]
    modules = [_module(cohort.model, case, cohort.matrix[party]) for party in range(parties)]
    optimizers = [torch.optim.SGD(module.parameters(), lr=cohort.local.rate) for module in modules]

    def loss(module: Any, chosen: Any) -> Any:
        said = module(x[chosen])
        if not data.classes:
            return nn.functional.mse_loss(said, y[chosen].float())
        return nn.functional.cross_entropy(said.reshape(-1, data.classes), y[chosen].reshape(-1))

    def work() -> None:
        for module, optimizer, part in zip(modules, optimizers, parts, strict=True):
            order = part[torch.randperm(len(part))]
            for start in range(0, len(order), case.batch):
                optimizer.zero_grad()
                loss(module, order[start : start + case.batch]).backward()
                optimizer.step()

    return work


def _module(model: Model, case: Case, vector: np.ndarray) -> Any:
    """Returns the model as a PyTorch module."""
    from torch import nn

    if not isinstance(model, NumpyModel):
        made = model.module(vector)  # type: ignore[attr-defined]
        # Plain layers in sequence: our networks rearrange images in memory first.
        return nn.Sequential(*made) if isinstance(made, nn.Sequential) else made
    if case.model == "factorization":

        class Factors(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.users, self.items = (nn.Embedding(count, 20) for count in case.shape)

            def forward(self, x: Any) -> Any:
                return (self.users(x[:, 0]) * self.items(x[:, 1])).sum(1)

        return Factors()
    sizes = [entry.shape for entry in model.layout.entries if len(entry.shape) == 2]
    layers: list[Any] = [nn.Flatten()]
    for outs, ins in sizes:
        layers += [nn.Linear(ins, outs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# --- workers and growth --------------------------------------------------------------------------------------------


def _two_workers(case: Case, parties: int, quick: bool) -> Row:
    """Returns the wall-clock time of a round with two workers, compared with one."""
    one, two = case.cohort(parties), case.cohort(parties, workers=2)
    samples = []
    try:
        for number in range(1, (3 if quick else 8) + 1):
            began = time.perf_counter(), time.process_time()
            one.work(range(parties), number)
            first = time.perf_counter() - began[0], time.process_time() - began[1]
            before = _time_work(two)
            began = time.perf_counter(), 0.0
            two.work(range(parties), number)
            spent = [now - then for now, then in zip(_time_work(two), before, strict=False)]
            samples.append((*first, time.perf_counter() - began[0], max(spent, default=0.0)))
        assert np.array_equal(one.matrix, two.matrix), "two workers gave another result than one"
    finally:
        two.close()
    alone_wall, alone_cpu, wall, busiest = (median(values) for values in zip(*samples[1:], strict=True))
    path = f"; the busier worker took {alone_cpu / busiest:.2f} times less CPU time" if busiest else ""
    note = f"{parties} parties, wall time, and the same bits{path}"
    return comparison_row(
        f"a round with 2 workers, {case}, against 1", wall * 1e3, alone_wall * 1e3, "ms", None if quick else 1.5, note
    )


def _time_work(cohort: Cohort) -> list[float]:
    """Returns the CPU time of each worker so far; empty if the system does not report it."""
    files = [Path(f"/proc/{pid}/schedstat") for pid in (cohort._pool.pids if cohort._pool is not None else [])]
    return [int(file.read_text().split()[0]) / 1e9 for file in files if file.exists()]


def _growth(case: Case, counts: tuple[int, ...], say: Say) -> Iterator[Row]:
    """Yields the CPU time of one party's step among few and among more parties."""
    first = case.cohort(counts[0])
    rounds = iter(range(1, 10**6))
    for parties in counts[1:]:
        say(f"growth, {case}, {parties} parties")
        many = case.cohort(parties)
        pair = side_by_side(
            lambda many=many, parties=parties: many.work(range(parties), next(rounds)),
            lambda: first.work(range(counts[0]), next(rounds)),
            3,
        )
        ours, theirs = pair.ours / case.steps(parties) * 1e6, pair.theirs / case.steps(counts[0]) * 1e6
        note = (
            f"{1e6 / ours:,.0f} steps a second, among {counts[0]} parties {1e6 / theirs:,.0f}; ratio 1 is linear growth"
        )
        yield comparison_row(
            f"one party's step among {parties}, {case}, against {counts[0]}", ours, theirs, "µs", None, note
        )


# --- memory --------------------------------------------------------------------------------------------------------


def _memory_of_work(case: Case, parties: int) -> Row:
    cohort = case.cohort(parties)
    rounds = iter(range(1, 10**6))
    peak = peak_bytes(lambda: cohort.work(range(parties), next(rounds)))
    copies = 1 + peak / cohort.matrix.nbytes
    note = f"{parties} parties; the matrix of {cohort.matrix.nbytes / 1e6:.1f} MB, and what Python and NumPy add to it"
    return single_row(f"memory of local work, {case}, in matrices", copies, "copies", note)


def _memory_of_a_process(case: Case, parties: int) -> Row:
    """Returns the memory if PyTorch does the work, which only the system can measure."""
    options = f"{case.model!r}, {case.shape!r}, {case.samples}, {case.batch}"
    code = f"from benchmarks.simulation import Case, measure_growth\nprint(*measure_growth(Case({options}), {parties}))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD
    )
    more, matrix = map(int, done.stdout.split())
    note = (
        f"{parties} parties; a matrix of {matrix / 1e6:.1f} MB, and resident memory beyond samples and a small cohort"
    )
    return single_row(f"memory of local work, {case}, in matrices", more / matrix, "copies", note)


def measure_growth(case: Case, parties: int) -> tuple[int, int]:
    """Returns the growth of this process in bytes with a cohort and its work, and the size of the matrix."""
    case.cohort(2).work(range(2), 1)  # Loads libraries and their caches.
    data = case.data(parties)
    before = _resident("VmRSS")
    cohort = case.cohort(parties)
    for number in range(1, 3):
        cohort.work(range(parties), number)
    # Samples exist in their stored form, and as model inputs.
    samples = data.x.nbytes + (cohort._kept.nbytes if cohort._kept is not None else 0)
    return _resident("VmHWM") - before - samples, cohort.matrix.nbytes


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))


# --- other simulators ----------------------------------------------------------------------------------------------


def _peers(quick: bool, say: Say, pythons: Mapping[str, str]) -> Iterator[Row]:
    rounds = WARM_UP + (2 if quick else 12)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.npz"
        known = _job(path, quick)
        ours = {name: [] for name in ("tacit", "tacit-2", "tacit-mean")} if not quick else {"tacit-mean": []}
        found: dict[str, list[Any]] = {**ours, **{name: [] for name in FASTER if name in pythons}}
        # Simulators alternate and are repeated, so that other load affects all.
        for number in range(1 if quick else 3):
            for name in found:
                say(f"pass {number + 1}, {name}")
                found[name].append(_ran(name, path, rounds, pythons.get(name, sys.executable)))
    best = {name: _middle(reports) for name, reports in found.items()}
    for name, report in best.items():
        assert not known or abs(report["accuracy"] - best["tacit-mean"]["accuracy"]) < CLOSE, f"{name} did another job"
    job = "48 × 256, mlp" if not quick else "4 × 20, mlp"
    for name, how in (("tacit-mean", "a plain mean"), ("tacit", "fedavg"), ("tacit-2", "fedavg, 2 workers")):
        if name in best:
            yield single_row(
                f"a round of {job}, {how}, wall", best[name]["wall"] * 1e3, "ms", _describe_report(best[name])
            )
    for name, at_least in FASTER.items():
        if name not in best:
            reason = f"not compared with {name}: give --python {name}=PATH, an interpreter that has it"
            yield single_row(f"a round of {job}, {name} skipped", best["tacit-mean"]["cpu"] * 1e3, "ms", reason)
            continue
        theirs, one, two = best[name], best["tacit"], best["tacit-2"]
        # pfl has one process; the others use both cores, and so do we there.
        fair = one if name == "pfl" else two
        note = f"ours: {_describe_report(fair)}; theirs: {_describe_report(theirs)}"
        yield comparison_row(
            f"a round of {job}, {name}, wall", fair["wall"] * 1e3, theirs["wall"] * 1e3, "ms", at_least, note
        )
        yield comparison_row(f"a round of {job}, {name}, CPU", one["cpu"] * 1e3, theirs["cpu"] * 1e3, "ms", None, note)
        mean = best["tacit-mean"]
        note = f"ours: {_describe_report(mean)}; theirs: {_describe_report(theirs)}"
        yield comparison_row(
            f"a round of {job} and a plain mean, {name}, CPU", mean["cpu"] * 1e3, theirs["cpu"] * 1e3, "ms", None, note
        )


def _job(path: Path, quick: bool) -> bool:
    """Writes the job; says whether it uses real digits, so that accuracies can be compared."""
    rng = np.random.default_rng(0)
    parties, samples, hidden = (4, 20, 8) if quick else (PARTIES, 256, 128)
    try:
        if quick:
            raise ConfigError("small")
        data = datasets.load("mnist", download=False)
        chosen, real = rng.permutation(len(data.y))[: parties * samples], True
        x, y = data.inputs(data.x[chosen]), data.y[chosen]
        tested, truth = data.inputs(data.x_test[:2000]), data.y_test[:2000]
    except ConfigError:
        x, real = rng.random((parties * samples, 784), dtype=np.float32), False
        y = np.arange(len(x)) % 10
        tested, truth = x[:20], y[:20]
    sizes = 784, hidden, 10
    weights = {f"w{i}": rng.normal(size=sizes[i : i + 2][::-1]) * np.sqrt(2 / sizes[i]) for i in range(2)}
    np.savez(
        path,
        x=x.reshape(parties, samples, 784),
        y=y.reshape(parties, samples).astype(np.int64),
        x_test=tested.reshape(len(tested), 784),
        y_test=truth.astype(np.int64),
        hidden=hidden,
        batch=32,
        rate=0.1,
        **{name: values.astype(np.float32) for name, values in weights.items()},
    )
    return real


def _ran(name: str, path: Path, rounds: int, python: str) -> dict[str, Any]:
    script = Path(__file__).with_name("peers.py")
    done = subprocess.run(  # noqa: S603
        [python, str(script), name, str(path), str(rounds)], capture_output=True, text=True, env=os.environ | ONE_THREAD
    )
    if done.returncode:
        raise ConfigError(
            f"{name} failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'silently'}"
        )
    report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def _middle(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the report with the median wall and CPU time of several."""
    return reports[0] | {key: median(report[key] for report in reports) for key in ("wall", "cpu", "first")}


def _describe_report(report: Mapping[str, Any]) -> str:
    return (
        f"{report['name']} {report['version']}, {report['wall'] * 1e3:.0f} ms wall and {report['cpu'] * 1e3:.0f} ms "
        f"CPU a round, the first after {report['first']:.1f} s, accuracy {report['accuracy']:.3f}"
    )
