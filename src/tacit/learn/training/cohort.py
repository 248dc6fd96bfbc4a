"""Cohort: local training of all parties, on one (parties × parameters) matrix of float32.

Each row is a party's model. Protocols read rows and write averages back into them; there is no other copy.

The way in which steps are taken was chosen by measurement (`python -m benchmarks simulation`). The baseline was a plain
loop over parties in PyTorch, with 48 parties and one thread:

- **together**, for NumPy models: every step is taken for a chunk of parties at once. A party with fewer samples or
  steps leaves the chunk as soon as it is done, and a smaller batch is filled up with samples of weight zero.
- **in turn**, for PyTorch modules: one module, whose tensors are views of a row, trains party by party. Vectorizing
  over parties (`vmap`) ran convolutions at 0.5 to 0.8 of the speed of the loop.

Both draw the same batches and noise, and give the same results up to floating-point error. With workers, forked
processes do the same jobs, with bit-for-bit the same results.
"""

import mmap
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.learn.data.samples import Dataset, Indices
from tacit.learn.models.model import Array, Floats, Model, Score
from tacit.learn.models.numpy_models import DescentStep, NumpyModel
from tacit.learn.models.torch_module import Batch, TorchModel
from tacit.learn.privacy.gradient_noise import NOISE_KEY_BYTES, GradientNoise
from tacit.learn.random_streams import generator
from tacit.learn.training.local_training import LocalBatches, LocalTraining, draw_batches
from tacit.learn.training.optimizers import Descent
from tacit.learn.training.threads import one_thread
from tacit.learn.training.workers import PATIENCE, TrainingWorkers

__all__ = ["Cohort", "LocalTraining"]

CHUNK = 8
"""The largest number of parties that take a step together: fewer cost more calls, more cost memory.

Speed relative to the loop, with chunks of 1, 4, 8, 16 and 48 of 48 parties: softmax 3.1, 4.8, 4.9, 6.3, 6.3; an MLP of
128 units 2.1, 2.5, 2.7, 2.8, 2.8; of 200 and 200 units 1.6, 2.0, 2.3, 2.0, 2.1.
"""
BATCH_BYTES = 2**25
"""The largest number of bytes of samples in a joint step. Large batches make smaller chunks of parties."""
CACHED_BYTES = 2**28
"""The largest number of bytes of samples that are stored as model inputs. Larger sets are converted batch by batch."""


class Cohort:
    """Parties with their own samples and models, which train locally between averages."""

    def __init__(
        self,
        model: Model,
        data: Dataset,
        parts: Sequence[Indices],
        local: LocalTraining,
        seed: int,
        workers: int = 1,
        *,
        patience: float = PATIENCE,
        noise_key: bytes | None = None,
        first: int = 0,
    ) -> None:
        """Creates the cohort of a model.

        Args:
            model: Model that all parties train.
            data: Samples of all parties.
            parts: Places of each party's samples.
            local: Local training of a round.
            seed: Seed of the initial model and of the batches.
            workers: Number of processes.
            patience: Seconds without an answer after which workers are given up.
            noise_key: Secret key of the noise. Default: a key derived from `seed`, which anybody can compute.
            first: Number of the first party, so that a single party draws the same batches as it would among all.
        """
        if problems := _problems(model, data, parts, local, workers):
            raise ConfigError(problems)
        self.model, self.data, self.local, self.seed = model, data, local, seed
        self.workers, self.patience, self._first = workers, patience, first
        self.noise_key = noise_key or SeededEntropy(seed, "noise").bytes(NOISE_KEY_BYTES)
        self.sizes = np.array([len(part) for part in parts])
        """Number of samples of each party."""
        shape = len(parts), model.parameters
        self.matrix: Floats = _shared_zeros(shape) if workers > 1 else np.zeros(shape, np.float32)
        # A party's samples are adjacent, so that a batch is read from few places.
        self._held = np.concatenate(parts)
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._y = data.y[self._held].astype(np.int64 if model.classes else np.float32)
        sample = self._inputs(data.x[:1]).nbytes
        self._kept = self._inputs(data.x[self._held]) if sample * len(self._held) <= CACHED_BYTES else None
        batch = sample * min(local.batch, int(self.sizes.max()))
        self._most = max(1, min(CHUNK, BATCH_BYTES // max(1, batch)))
        self._before = np.empty(0 if isinstance(model, NumpyModel) else model.parameters, np.float32)
        self._pool: TrainingWorkers | None = None

    def start(self) -> None:
        """Sets every party's model to the initial one."""
        self.matrix[:] = self.model.initial(generator(self.seed, "model"))

    def work(self, parties: Sequence[int], round_: int) -> NDArray[np.float64]:
        """Trains some parties locally in a round, counted from 1, and returns their losses.

        A loss is the mean over the party's steps. It is NaN if a loss or the final model was not finite; that party's
        row is then restored.
        """
        if round_ < 1 or len(set(parties)) < len(parties) or not set(parties) <= set(range(len(self.matrix))):
            raise ConfigError(f"rounds count from 1 and parties from 0 to {len(self.matrix) - 1}, each named once")
        chunks = self._chunks([int(party) for party in parties])
        jobs = [(chunk, round_) for chunk in chunks]
        losses = dict.fromkeys(map(int, parties), np.nan)
        for chunk, found in zip(chunks, self._run_jobs(jobs), strict=True):
            losses |= dict(zip(chunk, found, strict=True))
        return np.array([losses[int(party)] for party in parties], np.float64)

    def evaluate(self, rows: Sequence[int], x: Array, y: Array) -> list[Score]:
        """Scores some parties' models, on samples as `Dataset.inputs` gives them."""
        if self.workers == 1 or len(rows) < 2 or isinstance(self.model, NumpyModel):
            with one_thread():
                return self.model.scores(self.matrix, rows, x, y)
        # Forked now, because the other workers were forked without these samples.
        with TrainingWorkers(
            lambda row: self.model.scores(self.matrix, [row], x, y)[0], self.workers, self.patience
        ) as pool:
            return pool.run(list(rows))

    def close(self) -> None:
        """Ends the workers, if there are any. They are forked again when needed."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    # --- jobs ------------------------------------------------------------------------------------------------------

    def _chunks(self, parties: list[int]) -> list[list[int]]:
        """Returns the chunks of parties that train together. They do not depend on the number of workers.

        Parties with equal numbers of steps share a chunk. The number of chunks is even, so that two workers have equal
        work.
        """
        if not isinstance(self.model, NumpyModel):
            return [[party] for party in parties]
        ordered = sorted(parties, key=lambda party: (-self.sizes[party], party))
        count = min(len(parties), 2 * -(-len(parties) // (2 * self._most)))
        return [[int(party) for party in chunk] for chunk in np.array_split(ordered, count)] if parties else []

    def _run_jobs(self, jobs: list[tuple[list[int], int]]) -> list[list[float]]:
        """Runs jobs in this process or in workers, and returns the losses of each."""
        if self.workers == 1 or len(jobs) < 2:
            with one_thread():
                return [self._run_job(job) for job in jobs]
        if self._pool is None or not self._pool.pids:
            self._pool = TrainingWorkers(self._run_job, self.workers, self.patience)
            weakref.finalize(self, self._pool.close)
        return self._pool.run(jobs)

    def _run_job(self, job: tuple[list[int], int]) -> list[float]:
        parties, round_ = job
        if isinstance(self.model, NumpyModel):
            with np.errstate(all="ignore"):  # Overflow is detected at the end.
                return self._train_together(self.model, parties, round_)
        if not isinstance(self.model, TorchModel):
            raise TypeError(f"{type(self.model).__name__} is neither Fused nor Module")
        return [self._train_alone(self.model, party, round_) for party in parties]

    def _train_together(self, model: NumpyModel, parties: list[int], round_: int) -> list[float]:
        """Takes the steps of a chunk of parties at once, on a copy of their rows."""
        batches = [self._batches(party, round_) for party in parties]
        # Parties with the most steps come first, so that the parties that are still training are the first rows.
        order = sorted(range(len(parties)), key=lambda i: -len(batches[i]))
        parties, batches = [parties[i] for i in order], [batches[i] for i in order]
        models = self.matrix[parties]
        steps = np.array([len(each) for each in batches])
        losses = np.zeros(len(parties))
        noises = [self._noise(party, round_) for party in parties] if self.local.noise else []
        path = _ChunkDescent(self.local, models, noises)
        for step, (x, y, weights) in enumerate(self._stack_batches(parties, batches)):
            losses[: len(x)] += path.step(model, x, y, weights, self.local.rate_at(round_, step))
        losses /= steps
        for i, party in enumerate(parties):
            if np.isfinite(losses[i]) and _finite(models[i]):
                self.matrix[party] = models[i]
            else:
                losses[i] = np.nan
        found = np.empty(len(parties))
        found[order] = losses
        return [float(loss) for loss in found]

    def _stack_batches(self, parties: list[int], batches: list[LocalBatches]) -> Iterator[tuple[Array, Array, Floats]]:
        """Yields the samples of each step, one party per row, with their weights."""
        steps = np.array([len(each) for each in batches])
        width = max(int(each.sizes.max()) for each in batches)
        places = np.zeros((len(parties), steps[0], width), np.int64)
        sizes = np.ones((len(parties), steps[0]), np.int64)
        for row, (party, each) in enumerate(zip(parties, batches, strict=True)):
            places[row, : len(each)] = each.grid(width) + self._starts[party]
            sizes[row, : len(each)] = each.sizes
        room = None if self._kept is None else np.empty((places[:, 0].size, self._kept.shape[1]), self._kept.dtype)
        for step in range(steps[0]):
            active = int(np.count_nonzero(steps > step))
            widest = int(sizes[:active, step].max())
            chosen, many = places[:active, step, :widest], sizes[:active, step, np.newaxis]
            weights = (np.arange(widest) < many) / many
            if room is None or self._kept is None:
                x = self._take_samples(chosen)
            else:
                x = room[
                    : chosen.size
                ]  # The same memory is used in every step, because allocating it each time doubles the cost.
                np.take(self._kept, chosen.reshape(-1), axis=0, out=x, mode="clip")
                x = x.reshape(*chosen.shape, -1)
            yield x, self._y[chosen], weights.astype(np.float32)

    def _train_alone(self, model: TorchModel, party: int, round_: int) -> float:
        """Takes one party's steps on its row."""
        batches, row = self._batches(party, round_, 2 if model.mixes else 1), self.matrix[party]
        np.copyto(self._before, row)

        def each() -> Iterator[Batch]:
            for step in range(len(batches)):
                chosen = batches.batch(step) + self._starts[party]
                yield self._take_samples(chosen), self._y[chosen], self.local.rate_at(round_, step)

        noised = self._noise(party, round_) if self.local.noise else None
        chance = int.from_bytes(SeededEntropy(self.seed, "module", self._first + party, round_).bytes(7))
        loss = model.work(row, each(), self.local, noised, chance)
        if not (np.isfinite(loss) and _finite(row)):
            row[:] = self._before
            return float("nan")
        return loss

    def _batches(self, party: int, round_: int, least: int = 1) -> LocalBatches:
        return draw_batches(self.local, int(self.sizes[party]), self.seed, self._first + party, round_, least)

    def _noise(self, party: int, round_: int) -> GradientNoise:
        return GradientNoise(self.noise_key, self._first + party, round_, self.local.noise)

    def _take_samples(self, places: Indices) -> Array:
        """Returns some samples as model inputs."""
        if self._kept is not None:
            return self._kept[places]
        flat = self._inputs(self.data.x[self._held[places.reshape(-1)]])
        return flat.reshape(*places.shape, *flat.shape[1:])

    def _inputs(self, x: Array) -> Array:
        made = self.data.inputs(x)
        return made.reshape(len(made), -1) if isinstance(self.model, NumpyModel) else made


class _ChunkDescent:
    """Descent of a chunk of parties: in place for plain steps, otherwise with an optimizer."""

    def __init__(self, local: LocalTraining, models: Floats, noise: list[GradientNoise]) -> None:
        self.local, self.models, self.noise = local, models, noise
        self.descent = None if local.plain else Descent(local, models)
        self._gradients = None if local.plain else np.empty_like(models)

    def step(self, model: NumpyModel, x: Array, y: Array, weights: Floats, rate: float) -> Array:
        """Takes one step for the first parties, as many as there are samples of; returns the losses before it."""
        models, local = self.models[: len(x)], self.local
        if self.descent is None or self._gradients is None:
            return model.descend(models, x, y, weights, DescentStep(rate, 1 - rate * local.weight_decay, local.clip))
        gradients = self._gradients[: len(x)]
        losses = model.gradients(models, x, y, weights, gradients, local.clip)
        if local.noise:
            for gradient, noise in zip(gradients, self.noise, strict=False):  # The noise of the first parties.
                noise.add_to(gradient)
        self.descent.step(models, gradients, rate)
        return losses


def _finite(row: Floats) -> bool:
    """Says whether all numbers are finite. A finite sum proves it; otherwise each number is checked."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(row.sum())) or bool(np.isfinite(row).all())


def _shared_zeros(shape: tuple[int, int]) -> Floats:
    """Returns a matrix of zeros in memory that forked processes share."""
    memory: Any = mmap.mmap(-1, shape[0] * shape[1] * 4)
    return np.frombuffer(memory, np.float32).reshape(shape)


def _problems(model: Model, data: Dataset, parts: Sequence[Indices], local: LocalTraining, workers: int) -> list[str]:
    wrong = local.problems()
    if workers < 1:
        wrong.append(f"workers={workers} must be at least 1")
    if not parts:
        wrong.append("there is no party; try: split the samples among at least 1")
    empty = [place for place, part in enumerate(parts) if not len(part)]
    if empty:
        wrong.append(f"party {empty[0]} has no samples, of {len(empty)} such; try: use fewer parties, or another split")
    if any(len(part) and (part.min() < 0 or part.max() >= len(data.x)) for part in parts):
        wrong.append(f"samples of {data.name} count from 0 to {len(data.x) - 1}; try: split these, and no others")
    if (
        isinstance(model, TorchModel)
        and not model.mixes
        and local.clip is not None
        and model.trained < model.parameters
    ):
        wrong.append(
            f"{model.name} has buffers of floats, which are averaged as they are: no clip and no noise touches them; "
            "try: leave them out of its state (persistent=False), or learn without a clip of gradients"
        )
    if isinstance(model, TorchModel) and model.mixes:
        if local.clip is not None:
            wrong.append(
                f"{model.name} has a batch norm, which mixes samples, so that no single sample's gradient can be "
                "clipped; try: use a group norm, or no clip"
            )
        single = [place for place, part in enumerate(parts) if len(part) == 1]
        if single or local.batch == 1:
            who = f"party {single[0]} has one sample" if single else "batch is 1"
            wrong.append(
                f"{model.name} has a batch norm, and {who}: nothing to take a mean over; try: use more samples"
            )
    return wrong
