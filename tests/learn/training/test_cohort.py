"""Cohorts: the same as a plain loop over parties, whoever else is in them and however many workers there are."""

import gc
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, TacitError, WorkerLost
from tacit.learn.data.samples import Dataset
from tacit.learn.models.registry import NumpyModel, build
from tacit.learn.privacy import gradient_noise
from tacit.learn.privacy.gradient_noise import NOISE_KEY_BYTES, GradientNoise
from tacit.learn.training import cohort as cohorts
from tacit.learn.training.cohort import BATCH_BYTES, Cohort
from tacit.learn.training.local_training import LocalBatches, LocalTraining, draw_batches
from tacit.learn.training.threads import _pools, one_thread
from tacit.learn.training.workers import TrainingWorkers

pytestmark = pytest.mark.long

SIZES = (23, 40, 1, 17, 40, 8, 31, 40, 2, 16, 33)
"""Samples of each party: more and less than a batch, and as many as one; more parties than work together."""
SEED = 5


@pytest.fixture(autouse=True)
def single():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parts_of(sizes=SIZES):
    order = np.random.default_rng(1).permutation(sum(sizes))
    return np.split(order, np.cumsum(sizes)[:-1])


def images(*shape, classes=5, sizes=SIZES):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (sum(sizes), *shape)).astype(np.uint8), rng.integers(0, classes, sum(sizes))
    return Dataset("pictures", x, y, x[:9], y[:9], "images", classes)


def features(classes=0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(SIZES), 6)).astype(np.float32)
    y = rng.integers(0, classes, len(x)) if classes else rng.normal(size=len(x)).astype(np.float32)
    return Dataset("numbers", x, y, x[:9], y[:9], "features", classes)


def ratings():
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 5, sum(SIZES)), rng.integers(0, 8, sum(SIZES))], axis=1)
    return Dataset("stars", x, rng.integers(1, 11, len(x)) / 2, x[:9], np.ones(9), "ratings", 0)


def text():
    x = np.random.default_rng(0).integers(0, 9, (sum(SIZES), 4))
    return Dataset("verses", x, np.roll(x, -1, axis=1), x[:9], x[:9], "text", 9)


def conv():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))


class Normed(nn.Module):
    """What else a module may have: running means, a count of batches, and dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8, momentum=None), nn.Dropout(0.3), nn.Linear(8, 5)
        )

    def forward(self, x):
        return self.layers(x)


CASES = {
    "softmax": (images(4, 4), {}),
    "mlp": (images(4, 4), {"hidden": [9, 7]}),
    "linear": (features(), {}),
    "logistic": (features(classes=2), {"l2": 0.05}),
    "factorization": (ratings(), {"factors": 4, "biases": True}),
    "gru": (text(), {"embedding": 3, "hidden": 4}),
    "conv": (images(4, 4), {}),
}


def made(name):
    data, options = CASES[name]
    return build(conv if name == "conv" else name, data, **options), data


# --- the plain loop --------------------------------------------------------------------------------------------------


class Plain(nn.Module):
    """A model in NumPy as a PyTorch module whose parameters are the arrays of its layout."""

    def __init__(self, model, name):
        super().__init__()
        self.kind, self.names = name, [entry.name for entry in model.layout.entries]
        for entry in model.layout.entries:
            self.register_parameter(entry.name.replace(".", "_"), nn.Parameter(torch.zeros(entry.shape)))

    def forward(self, x):
        arrays = {name: getattr(self, name.replace(".", "_")) for name in self.names}
        if self.kind == "factorization":
            u, v = x[:, 0], x[:, 1]
            return (arrays["users"][u] * arrays["items"][v]).sum(1) + arrays["user_bias"][u] + arrays["item_bias"][v]
        said = x.flatten(1)
        layers = [name.removesuffix("weights") for name in self.names if name.endswith("weights")]
        for layer in layers:
            said = nn.functional.linear(said, arrays[f"{layer}weights"], arrays[f"{layer}bias"])
            said = torch.relu(said) if layer != layers[-1] else said
        return said


def loss_of(name, data, module, x, y):
    said = module(x)
    if name == "logistic":
        theta = torch.cat([tensor.flatten() for tensor in module.parameters()])
        loss = nn.functional.binary_cross_entropy_with_logits(said[:, 0], y.float())
        return loss + CASES["logistic"][1]["l2"] / 2 * theta.square().sum(), loss
    if not data.classes:
        loss = (said.reshape(y.shape) - y.float()).square().mean()
    else:
        loss = nn.functional.cross_entropy(said.reshape(-1, data.classes), y.reshape(-1))
    return loss, loss


def plain_loop(name, model, data, local, rows, parties, round_):
    """Does the same work party by party, with PyTorch's optimizers; returns models and losses."""
    parts, models, losses = parts_of(), rows.copy(), []
    for party in parties:
        module = Plain(model, name) if isinstance(model, NumpyModel) else model.module(rows[party])
        nn.utils.vector_to_parameters(torch.tensor(rows[party]), module.parameters())
        tensors = list(module.parameters())
        optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[local.optimizer](
            tensors, lr=1.0, weight_decay=local.weight_decay, **({"momentum": local.momentum} if local.momentum else {})
        )
        batches = draw_batches(local, len(parts[party]), SEED, party, round_)
        noise = GradientNoise(SeededEntropy(SEED, "noise").bytes(NOISE_KEY_BYTES), party, round_, local.noise)
        seen = []
        for step in range(len(batches)):
            chosen = parts[party][batches.batch(step)]
            x, y = torch.from_numpy(data.inputs(data.x[chosen])), torch.from_numpy(data.y[chosen])
            loss, free = loss_of(name, data, module, x, y)
            gradient = flat_gradient(loss, tensors)
            if local.clip is not None:
                clipped = [
                    shortened(
                        flat_gradient(loss_of(name, data, module, x[i : i + 1], y[i : i + 1])[1], tensors), local.clip
                    )
                    for i in range(len(x))
                ]
                penalty = flat_gradient(loss, tensors) - flat_gradient(free, tensors) if name == "logistic" else 0
                gradient = sum(clipped) / len(x) + penalty
            if local.noise:
                gradient = gradient.detach().clone()
                noise.add_to(gradient.numpy())
            start = 0
            for tensor in tensors:
                tensor.grad = gradient[start : start + tensor.numel()].view(tensor.shape).clone()
                start += tensor.numel()
            optimizer.param_groups[0]["lr"] = local.rate_at(round_, step)
            optimizer.step()
            seen.append(float(loss.detach()))
        models[party] = nn.utils.parameters_to_vector(tensors).detach().numpy()
        losses.append(np.mean(seen))
    return models, np.array(losses)


def flat_gradient(loss, tensors):
    gradients = torch.autograd.grad(loss, tensors, retain_graph=True)
    return torch.cat([gradient.flatten() for gradient in gradients])


def shortened(gradient, clip):
    return gradient * min(1.0, clip / float(gradient.norm()))


LOCALS = {
    "plain": LocalTraining(rate=0.1, batch=16),
    "epochs and decay": LocalTraining(rate=0.3, batch=16, epochs=2, weight_decay=0.1, decay="inverse", delay=1.0),
    "steps": LocalTraining(rate=0.1, batch=7, steps=4, decay="root", count="steps"),
    "momentum": LocalTraining(rate=0.05, batch=16, momentum=0.9, weight_decay=0.05),
    "adam": LocalTraining(rate=0.01, batch=16, optimizer="adam", weight_decay=0.01, epochs=3),
    "rmsprop": LocalTraining(rate=0.003, batch=16, optimizer="rmsprop", epochs=2),
    "clip": LocalTraining(rate=0.2, batch=16, clip=0.3),
    "clip and noise": LocalTraining(rate=0.1, batch=100, steps=3, clip=0.3, noise=0.2, momentum=0.5),
}


# Single samples of a GRU go through it one by one, which takes long enough once.
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "how"), [(name, how) for name in CASES for how in LOCALS if (name, how) != ("gru", "clip and noise")]
)
def test_a_cohort_does_what_a_plain_loop_does(name, how, monkeypatch):
    # Gradients agree but for their last digits, which noise would follow from.
    monkeypatch.setattr(gradient_noise, "digest_contribution", lambda _: b"")
    model, data = made(name)
    cohort = Cohort(model, data, parts_of(), LOCALS[how], SEED)
    cohort.start()
    cohort.matrix += np.random.default_rng(2).normal(size=cohort.matrix.shape) * 0.1  # everybody is somewhere else
    before, working = cohort.matrix.copy(), [10, 0, 3, 7, 2, 1, 9, 8, 6, 5]
    losses = cohort.work(working, 3)
    models, expected = plain_loop(name, model, data, LOCALS[how], before, working, 3)
    np.testing.assert_allclose(losses, expected, rtol=2e-4)
    np.testing.assert_allclose(cohort.matrix, models, rtol=2e-3, atol=3e-5)
    assert np.array_equal(cohort.matrix[4], before[4]), "who is not named does nothing"
    assert not np.allclose(models[working], before[working], atol=1e-3)


def test_everybody_starts_from_the_same_model_and_repeats():
    model, data = made("mlp")
    first, again = (Cohort(model, data, parts_of(), LocalTraining(), SEED) for _ in range(2))
    for cohort in (first, again):
        cohort.start()
        assert (cohort.matrix == cohort.matrix[0]).all()
        cohort.work(range(11), 1)
    assert np.array_equal(first.matrix, again.matrix)
    # A run that is resumed repeats the round, whatever came before.
    again.start()
    again.work(range(11), 7)
    again.matrix[:] = first.matrix
    assert np.array_equal(first.work(range(11), 2), again.work(range(11), 2))
    assert np.array_equal(first.matrix, again.matrix)
    other = Cohort(model, data, parts_of(), LocalTraining(), SEED + 1)
    other.start()
    assert not np.array_equal(other.matrix[0], model.initial(np.random.default_rng(0)))
    assert not np.array_equal(other.work(range(11), 1), first.work(range(11), 1))


@pytest.mark.parametrize("name", ["softmax", "conv"])
def test_labels_of_any_width_count(name):
    model, data = made(name)
    narrow = replace(data, y=data.y.astype(np.uint8), y_test=data.y_test.astype(np.uint8))
    wide, small = (Cohort(model, each, parts_of(), LocalTraining(batch=64), SEED) for each in (data, narrow))
    for cohort in (wide, small):
        cohort.start()
    assert np.array_equal(wide.work(range(11), 1), small.work(range(11), 1))
    x = data.inputs(data.x_test)
    assert small.evaluate([1], x, narrow.y_test) == wide.evaluate([1], x, data.y_test)


@pytest.mark.parametrize("name", ["softmax", "conv"])
def test_another_gradient_has_other_noise_and_the_same_one_the_same(name):
    model, data = made(name)
    local = LocalTraining(rate=1.0, batch=100, steps=1, clip=1e-6, noise=1.0)
    first, again, other = (Cohort(model, data, parts_of(), local, SEED) for _ in range(3))
    for cohort in (first, again, other):
        cohort.start()
    other.matrix[1] += 0.01 * np.arange(other.matrix.shape[1]) % 0.1
    before = [cohort.matrix.copy() for cohort in (first, again, other)]
    for cohort in (first, again, other):
        cohort.work(range(11), 1)
    one, two, three = (cohort.matrix - start for cohort, start in zip((first, again, other), before, strict=True))
    assert np.array_equal(one, two)
    assert np.array_equal(np.delete(one, 1, 0), np.delete(three, 1, 0))
    assert abs(np.corrcoef(one[1], three[1])[0, 1]) < 0.2, "all of a step is noise"
    assert one.std() == pytest.approx(1.0, rel=0.05)


def test_nobody_works_if_nobody_is_named():
    model, data = made("softmax")
    assert Cohort(model, data, parts_of(), LocalTraining(), SEED).work([], 1).shape == (0,)


@pytest.mark.parametrize("name", ["softmax", "conv", "mlp"])
def test_samples_are_converted_batch_by_batch_where_all_are_too_many(name, monkeypatch):
    model, data = made(name)
    kept = Cohort(model, data, parts_of(), LocalTraining(), SEED)
    monkeypatch.setattr(cohorts, "CACHED_BYTES", 0)
    converted = Cohort(model, data, parts_of(), LocalTraining(), SEED)
    assert converted._kept is None
    for cohort in (kept, converted):
        cohort.start()
    assert np.array_equal(kept.work(range(11), 1), converted.work(range(11), 1))
    assert np.array_equal(kept.matrix, converted.matrix)


def test_fewer_parties_work_together_where_batches_are_large(monkeypatch):
    model, data = made("softmax")
    sizes = {BATCH_BYTES: [6, 5], 3 * 40 * 64: [3, 3, 3, 2], 1: [1] * 11}
    found = []
    for room, expected in sizes.items():
        monkeypatch.setattr(cohorts, "BATCH_BYTES", room)
        cohort = Cohort(model, data, parts_of(), LocalTraining(batch=100), SEED)
        assert [len(chunk) for chunk in cohort._chunks(list(range(11)))] == expected
        cohort.start()
        found.append((cohort.work(range(11), 1), cohort.matrix))
    for losses, matrix in found[1:]:
        np.testing.assert_allclose(losses, found[0][0], rtol=1e-5)
        np.testing.assert_allclose(matrix, found[0][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("how", ["plain", "adam", "clip and noise"])
@pytest.mark.parametrize("name", ["softmax", "mlp", "linear", "factorization", "conv"])
def test_a_party_that_diverges_is_told_and_spoils_no_other(name, how):
    model, data = made(name)
    fine = Cohort(model, data, parts_of(), LOCALS[how], SEED)
    spoilt = Cohort(model, data, parts_of(), LOCALS[how], SEED)
    for cohort in (fine, spoilt):
        cohort.start()
        cohort.matrix += np.random.default_rng(2).normal(size=cohort.matrix.shape).astype(np.float32) * 0.1
    spoilt.matrix[3] = 3e38
    before = spoilt.matrix[3].copy()
    expected, losses = fine.work(range(11), 1), spoilt.work(range(11), 1)
    assert np.isnan(losses[3])
    assert np.array_equal(spoilt.matrix[3], before), "its model is what it was"
    others = [party for party in range(11) if party != 3]
    assert np.array_equal(losses[others], expected[others])
    assert np.array_equal(spoilt.matrix[others], fine.matrix[others])


def test_a_rate_that_is_too_large_ends_in_no_number():
    model, data = made("linear")
    cohort = Cohort(model, data, parts_of(), LocalTraining(rate=1e4, steps=40), SEED)
    cohort.start()
    losses = cohort.work(range(11), 1)
    assert np.isnan(losses).all()
    assert not cohort.matrix.any()


# --- modules ---------------------------------------------------------------------------------------------------------


def test_a_batch_norm_sets_its_buffers_and_no_gradient_touches_them():
    sizes, data = (20, 33, 17), images(4, 4, sizes=(20, 33, 17))
    model, local = build(Normed(), data), LocalTraining(batch=17, weight_decay=0.5, noise=0.1)
    cohort, again = (Cohort(model, data, parts_of(sizes), local, SEED) for _ in range(2))
    cohort.start()
    before = model.layout.restore(cohort.matrix[0])
    cohort.work([0, 2], 1)
    # Of a single batch, with momentum=None, the running mean is the mean: neither decay nor noise has come near it.
    x = torch.from_numpy(data.inputs(data.x[parts_of(sizes)[2]])).flatten(1)
    weight, bias = (torch.from_numpy(before[f"layers.1.{name}"]) for name in ("weight", "bias"))
    expected = nn.functional.linear(x, weight, bias).mean(0).numpy()
    after = model.layout.restore(cohort.matrix[2])
    np.testing.assert_allclose(after["layers.2.running_mean"], expected, rtol=1e-4, atol=1e-6)
    assert not np.array_equal(after["layers.1.weight"], before["layers.1.weight"])
    assert np.array_equal(model.initial(np.random.default_rng(0)), cohort.matrix[1]), "it still starts where it did"
    again.start()
    again.work([2, 0], 1)
    assert np.array_equal(again.matrix, cohort.matrix), "counts of batches and dropout are each party's own"


def test_a_batch_norm_needs_more_than_one_sample():
    data = images(4, 4)
    with pytest.raises(ConfigError, match=r"party 2 has one sample.*more samples"):
        Cohort(build(Normed(), data), data, parts_of(), LocalTraining(), SEED)
    with pytest.raises(ConfigError, match=r"batch norm, which mixes samples.*group norm"):
        Cohort(build(Normed(), data), data, parts_of((100, 151)), LocalTraining(clip=1.0), SEED)


# --- workers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def forked():
    """Returns what makes a cohort of two workers with its start, and ends them all."""
    made = []

    def make(model, data, parts=None, local=None, **options):
        made.append(Cohort(model, data, parts or parts_of(), local or LocalTraining(), SEED, 2, **options))
        made[-1].start()
        return made[-1]

    yield make
    for cohort in made:
        cohort.close()


@pytest.mark.parametrize(
    ("name", "how"),
    [(name, how) for name in ("softmax", "mlp", "factorization", "conv") for how in ("plain", "clip and noise")]
    + [("gru", "plain")],
)
def test_two_workers_give_the_same_bits(name, how, forked):
    model, data = made(name)
    alone, shared = Cohort(model, data, parts_of(), LOCALS[how], SEED), forked(model, data, local=LOCALS[how])
    alone.start()
    for round_, working in ((1, range(11)), (2, [5, 0, 9]), (3, [4])):
        assert np.array_equal(alone.work(working, round_), shared.work(working, round_))
        assert np.array_equal(alone.matrix, shared.matrix)
    # What is written between rounds, such as averages, is what workers go on from.
    for cohort in (alone, shared):
        cohort.matrix[:] = cohort.matrix.mean(axis=0)
        cohort.work(range(11), 4)
    assert np.array_equal(alone.matrix, shared.matrix)
    x, y = data.inputs(data.x_test), data.y_test
    assert alone.evaluate([3, 1, 2], x, y) == shared.evaluate([3, 1, 2], x, y)
    assert alone.evaluate([3], x, y) == [model.evaluate(alone.matrix[3], x, y)]


def test_dropout_and_batch_norm_do_not_depend_on_workers(forked):
    sizes, data = (20, 33, 17, 9), images(4, 4, sizes=(20, 33, 17, 9))
    model = build(Normed, data)
    alone = Cohort(model, data, parts_of(sizes), LocalTraining(batch=8), SEED)
    shared = forked(model, data, parts_of(sizes), LocalTraining(batch=8))
    alone.start()
    for round_ in (1, 2):
        assert np.array_equal(alone.work(range(4), round_), shared.work(range(4), round_))
    assert np.array_equal(alone.matrix, shared.matrix)


def test_a_worker_that_is_killed_is_missed_and_not_waited_for(forked):
    model, data = made("softmax")
    cohort = forked(model, data)
    cohort.work(range(11), 1)
    os.kill(cohort._pool.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerLost, match=r"by signal 9.*begin the round again"):
        cohort.work(range(11), 2)
    assert not cohort._pool.pids, "the other one is ended too"
    assert np.isfinite(cohort.work(range(11), 2)).all(), "and new ones are forked"


def test_a_worker_that_kills_itself_in_the_middle_of_its_work():
    def task(job):
        if job == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    with TrainingWorkers(task, 2) as pool, pytest.raises(WorkerLost, match="signal 9"):
        pool.run(range(6))


def test_a_worker_that_hangs_is_given_up():
    with TrainingWorkers(lambda job: job if job < 3 else signal.pause(), 2, patience=0.2) as pool:
        assert pool.run([0, 1, 2]) == [0, 1, 2]
        pids = pool.pids
        with pytest.raises(WorkerLost, match=r"0\.2 s"):
            pool.run([3, 4])
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_a_worker_raises_is_raised():
    class Odd(Exception):
        """Cannot be pickled, as it is defined here."""

    def task(job):
        raise ConfigError(["no"]) if job else Odd("strange")

    with TrainingWorkers(task, 2) as pool, pytest.raises(ConfigError, match="no"):
        pool.run([1])
    with TrainingWorkers(task, 2) as pool, pytest.raises(TacitError, match="Odd: strange"):
        pool.run([0])


def test_a_copy_of_the_owner_ends_nothing_of_it():
    with TrainingWorkers(lambda job: job + 1, 1) as pool:
        with TrainingWorkers(lambda _: pool.close(), 1) as inner:
            inner.run([0])
        assert pool.run([1]) == [2]


def test_workers_end_with_their_cohort():
    model, data = made("softmax")
    cohort = Cohort(model, data, parts_of(), LocalTraining(), SEED, 2)
    cohort.start()
    cohort.work(range(11), 1)
    pids = cohort._pool.pids
    assert len(pids) == 2
    del cohort
    gc.collect()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


ORPHANS = """
import os, signal
import numpy as np
from tacit.learn.training.cohort import Cohort
from tacit.learn.training.local_training import LocalTraining
from tacit.learn.models.registry import build
from tacit.learn.data.samples import Dataset
x, y = np.zeros((8, 3), np.float32), np.arange(8) % 2
data = Dataset("numbers", x, y, x, y, "features", 2)
cohort = Cohort(build("softmax", data), data, np.split(np.arange(8), 4), LocalTraining(), 0, workers=2)
cohort.work(range(4), 1)
print(*cohort._pool.pids, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_when_their_owner_is_killed():
    done = subprocess.run([sys.executable, "-c", ORPHANS], capture_output=True, text=True, timeout=120)  # noqa: S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = done.stdout.split()
    assert len(pids) == 2

    def there(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    for _ in range(600):
        if not any(map(there, pids)):
            return
        time.sleep(0.05)
    raise AssertionError("workers outlive their owner")


# --- settings --------------------------------------------------------------------------------------------------------


def test_epochs_go_through_all_samples_and_steps_through_as_many_as_asked():
    rng = np.random.default_rng(0)
    batches = LocalBatches.of(LocalTraining(batch=8, epochs=3), 21, rng)
    assert batches.sizes.tolist() == [8, 8, 5] * 3
    assert LocalTraining(batch=8, epochs=3).steps_of(21) == len(batches) == 9
    for epoch in range(3):
        seen = np.concatenate([batches.batch(step) for step in range(3 * epoch, 3 * epoch + 3)])
        assert sorted(seen) == list(range(21))
    assert not np.array_equal(batches.batch(0), batches.batch(3))
    assert LocalBatches.of(LocalTraining(batch=8, steps=5), 21, rng).sizes.tolist() == [8, 8, 5, 8, 8]
    assert LocalBatches.of(LocalTraining(batch=8), 5, rng).sizes.tolist() == [5]
    assert LocalBatches.of(LocalTraining(batch=8), 17, rng, least=2).sizes.tolist() == [8, 9]
    assert LocalBatches.of(LocalTraining(batch=8), 1, rng, least=2).sizes.tolist() == [1]
    grid = batches.grid(10)
    assert grid.shape == (9, 10)
    assert grid[2].tolist() == [*batches.batch(2), *[batches.batch(2)[-1]] * 5]


def test_batches_follow_from_seed_party_and_round_alone():
    orders = [
        draw_batches(LocalTraining(), 30, *of).order.tolist()
        for of in ((1, 2, 3), (1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))
    ]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 4


def test_rates_fall_as_they_should():
    assert [LocalTraining(rate=0.5).rate_at(t) for t in (1, 2, 9)] == [0.5] * 3
    assert [LocalTraining(rate=0.5, decay="inverse").rate_at(t, 7) for t in (1, 2, 4)] == [0.5, 0.25, 0.125]
    assert [LocalTraining(rate=0.5, decay="root").rate_at(t) for t in (1, 4)] == [0.5, 0.25]
    # Paper 003, Theorem 4: 2/(λ (t + γ)) over steps, with λ = 0.1, γ = 7 and 3 steps a round.
    local = LocalTraining(rate=20.0, decay="inverse", delay=7.0, count="steps", steps=3)
    found = [local.rate_at(round_, step) for round_ in (1, 2) for step in range(3)]
    assert found == pytest.approx([2 / (0.1 * (t + 7)) for t in range(1, 7)])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 0.0}, "rate=0.0 must be above 0"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"rate": float("inf")}, "rate=inf"),
        ({"batch": 0}, "batch=0 must be at least 1"),
        ({"epochs": 0}, "epochs=0"),
        ({"steps": 0}, "steps=0"),
        ({"epochs": 1, "steps": 1}, "exclude each other"),
        ({"momentum": 1.0}, "momentum=1.0 must be at least 0 and below 1"),
        ({"momentum": 0.5, "optimizer": "adam"}, 'momentum=0.5 is for optimizer="sgd"'),
        ({"weight_decay": -1.0}, "weight_decay=-1.0"),
        ({"clip": 0.0}, "clip=0.0 must be above 0"),
        ({"noise": -0.1}, "noise=-0.1"),
        ({"delay": -1.0}, "delay=-1.0"),
        ({"count": "steps"}, "set steps"),
    ],
)
def test_settings_that_cannot_work_are_told(given, told):
    assert any(told in problem for problem in LocalTraining(**given).problems())
    model, data = made("softmax")
    with pytest.raises(ConfigError):
        Cohort(model, data, parts_of(), LocalTraining(**given), SEED)


def test_settings_that_work_have_no_problems():
    assert [local.problems() for local in (LocalTraining(), *LOCALS.values())] == [[]] * (len(LOCALS) + 1)


def test_everything_that_is_wrong_is_told_at_once():
    model, data = made("softmax")
    parts = [np.array([], np.int64), np.array([0, 10**6])]
    with pytest.raises(ConfigError) as caught:
        Cohort(model, data, parts, LocalTraining(batch=0), SEED, workers=0)
    told = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4
    for part in ("batch=0", "workers=0", "party 0 has no samples", "count from 0 to 250"):
        assert part in told
    with pytest.raises(ConfigError, match="no party"):
        Cohort(model, data, [], LocalTraining(), SEED)


@pytest.mark.parametrize(("parties", "round_"), [([0], 0), ([0, 0], 1), ([11], 1), ([-1], 1)])
def test_rounds_and_parties_that_are_not_there_are_refused(parties, round_):
    model, data = made("softmax")
    with pytest.raises(ConfigError, match="parties from 0 to 10"):
        Cohort(model, data, parts_of(), LocalTraining(), SEED).work(parties, round_)


# --- memory and threads ----------------------------------------------------------------------------------------------


def test_local_work_takes_little_memory_beside_the_matrix():
    data = images(16, 16, sizes=(8,) * 48)
    model = build("mlp", data, hidden=[256])
    cohort = Cohort(model, data, parts_of((8,) * 48), LocalTraining(batch=4), SEED)
    cohort.start()
    cohort.work(range(48), 1)
    tracemalloc.start()
    cohort.work(range(48), 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < cohort.matrix.nbytes / 4, "a chunk of 8 of 48 rows, and its batches"


def test_threads_are_given_back():
    pools = [*_pools(), (torch.get_num_threads, torch.set_num_threads)]
    before = [count() for count, _ in pools]
    with one_thread():
        assert [count() for count, _ in pools] == [1] * len(pools)
    assert [count() for count, _ in pools] == before


def test_parties_learn_by_themselves_and_by_averaging():
    from tacit.learn.data.datasets import load

    data = load("digits")
    parts = np.array_split(np.random.default_rng(0).permutation(len(data.y)), 9)
    cohort = Cohort(build("softmax", data), data, parts, LocalTraining(rate=0.5, batch=16, epochs=2), SEED)
    cohort.start()
    first = cohort.work(range(9), 1)
    for round_ in range(2, 16):
        cohort.matrix[:] = cohort.matrix.mean(axis=0)
        last = cohort.work(range(9), round_)
    scores = cohort.evaluate(range(9), data.inputs(data.x_test), data.y_test)
    assert (last < first).all()
    assert min(score.accuracy for score in scores) > 0.88
