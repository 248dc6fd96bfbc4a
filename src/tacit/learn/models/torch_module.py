"""Any PyTorch module as a model: one module for all parties, whose tensors are views of a row of their matrix.

The vector, which is averaged, contains:

- parameters that require a gradient;
- after them, the buffers of floats in the module's state dict, such as the running mean and variance of a batch norm.
  Each party's forward pass sets them. They are averaged like the rest, but have no gradient, decay, clip or noise.

The vector does not contain:

- frozen parameters, which keep the values of the given module;
- buffers of integers, such as a batch norm's number of batches. In every round each party starts from the values of the
  given module;
- buffers outside the state dict, which are constants or caches.

Numbers are float32 on the CPU, whatever their original type. The given module is copied and never changed.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from math import isfinite, nan
from typing import Any, TypeAlias

import numpy as np

from tacit.core.errors import ConfigError, MissingExtra
from tacit.learn.data.samples import Dataset
from tacit.learn.models.model import Array, Floats, Model, Score, ScoreSums, make_layout
from tacit.learn.privacy.gradient_noise import GradientNoise
from tacit.learn.training.local_training import LocalTraining

Batch: TypeAlias = tuple[Array, Array, float]
"""Samples, their labels, and the learning rate of the step."""
Loss: TypeAlias = Callable[[Any, Any], Any]
"""Takes the module's predictions and the targets, and returns a loss for each sample."""

TESTED = 256
"""Samples per forward pass when models are tested."""
GRADIENTS = 2**26
"""Bytes that the gradients of single samples may occupy before they are summed."""


class TorchModel(Model):
    """A model that is a PyTorch module.

    A given module starts from its own numbers. A callable that returns a module, such as a class, is called with
    PyTorch's generator seeded, so that the start follows from the seed of the run. Batches come from `Dataset.inputs`.
    The module returns scores (batch, classes), for text (batch, length, classes), or numbers (batch,) or (batch, 1). If
    it returns a tuple, the first item counts. The loss is cross-entropy or the squared error by default.

    Args:
        source: A module, or a callable that returns one.
        classes: Number of labels or tokens; 0 for regression.
        name: Name of the model.
        loss: Returns a loss for each sample.
    """

    def __init__(self, source: Any, classes: int = 0, *, name: str = "", loss: Loss | None = None) -> None:
        torch = import_torch()
        self._make = None if isinstance(source, torch.nn.Module) else source
        made = deepcopy(source) if self._make is None else _make_seeded(self._make, 0)
        if not isinstance(made, torch.nn.Module):
            raise ConfigError(f"expected a PyTorch module, and {source!r} made a {type(made).__name__}")
        self.name, self.classes, self._loss = name or type(made).__name__, classes, loss
        if problems := _problems(made):
            raise ConfigError([f"{self.name}: {problem}" for problem in problems])
        self._module = made.float().cpu()
        arrays = _arrays(self._module)
        self.layout = make_layout({name: tuple(tensor.shape) for name, tensor in arrays.items()})
        self._given = _numbers(arrays) if self._make is None else np.empty(0, np.float32)
        self._tensors = [(tensor, tensor.shape) for tensor in arrays.values()]
        self._lengths = [tensor.numel() for tensor in arrays.values()]
        self._learnt = [tensor for tensor in arrays.values() if tensor.requires_grad]
        self._trained: int = sum(tensor.numel() for tensor in self._learnt)
        self._counts = [(each, each.clone()) for each in self._module.buffers() if not each.is_floating_point()]
        nn = torch.nn
        kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
        self.mixes = any(isinstance(part, kinds) for part in self._module.modules())
        """Whether a prediction depends on the rest of the batch, as with a batch norm."""
        self._at_once: bool | None = (
            None  # Whether gradients of single samples can be computed in one pass; None if not tried yet.
        )

    @property
    def trained(self) -> int:
        """Number of trained entries of the vector."""
        return self._trained

    def initial(self, rng: np.random.Generator) -> Floats:
        """Returns the initial vector, the same for every party."""
        if self._make is None:
            return self._given.copy()
        return _numbers(_arrays(_make_seeded(self._make, int(rng.integers(2**63))).float().cpu()))

    def describe(self) -> bytes:
        """Returns bytes that identify this module, including its frozen parameters and constant buffers.

        They do not detect code that looks the same but computes something else.
        """
        loss = self._loss and f"{getattr(self._loss, '__module__', '')}.{getattr(self._loss, '__qualname__', '')}"
        found = hashlib.sha256(repr((repr(self._module), type(self._module).__qualname__, loss)).encode())
        for name, tensor in self._module.state_dict().items():
            if name not in {entry.name for entry in self.layout.entries}:
                found.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        return super().describe() + found.digest()

    def module(self, vector: Floats) -> Any:
        """Returns a new PyTorch module with the numbers of a vector."""
        self.point(np.array(vector, np.float32))
        self._reset()
        return deepcopy(self._module)

    def unfit(self, data: Dataset) -> list[str]:
        """Returns the reasons why the model cannot be trained on the data."""
        torch = import_torch()
        x, y = data.inputs(data.x[:2]), data.y[:2]
        self._module.eval()
        with torch.no_grad():
            try:
                said = self._predict(torch.from_numpy(x))
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                return [f"{self.name} cannot take samples of shape {x.shape[1:]} of {data.name}: {why}"]
        if self._loss is not None:
            return []
        wanted = (*y.shape, self.classes) if self.classes else y.shape
        found = tuple(said.shape)
        if found != wanted and (self.classes or found != (*wanted, 1)):
            return [f"{self.name} returns {found[1:]} for a sample of {data.name}, where {wanted[1:]} is needed"]
        return []

    def point(self, row: Floats) -> None:
        """Makes the module's tensors views of a vector, so that a change to one changes the other."""
        pieces = import_torch().from_numpy(row).split(self._lengths)
        for (tensor, shape), piece in zip(self._tensors, pieces, strict=True):
            tensor.data = piece.view(shape)

    def scores(self, matrix: Floats, rows: Sequence[int], x: Array, y: Array) -> list[Score]:
        """Returns the scores of the models in some rows of a matrix."""
        torch = import_torch()
        found = []
        self._module.eval()
        for row in rows:
            self.point(np.require(matrix[row], np.float32, ["C", "W"]))
            tally = ScoreSums()
            with torch.no_grad():
                for start in range(0, len(y), TESTED):
                    some = torch.from_numpy(np.ascontiguousarray(x[start : start + TESTED]))
                    kind = np.int64 if self.classes else np.float32
                    truth = torch.from_numpy(np.ascontiguousarray(y[start : start + TESTED], kind))
                    said = self._predict(some)
                    tally.losses += float(self._losses(said, truth).sum())
                    tally.samples += len(truth)
                    tally.answers += truth.numel()
                    if self.classes:
                        tally.right += int((said.argmax(-1) == truth).sum())
                    else:
                        tally.squares += float((said.reshape(truth.shape) - truth).square().sum())
            found.append(tally.score(self.classes))
        return found

    # --- training --------------------------------------------------------------------------------------------------

    def work(
        self, row: Floats, batches: Iterable[Batch], local: LocalTraining, noise: GradientNoise | None, seed: int
    ) -> float:
        """Takes one party's steps on its row, in place. Returns the mean loss; NaN as soon as a loss is not a number.

        `seed` is for the module's own random choices, such as dropout of units.
        """
        torch = import_torch()
        self.point(row)
        self._reset()
        if not self._module.training:
            self._module.train()
        # torch.manual_seed searches for other devices each time, and takes fifty times as long as this generator.
        generator = torch.default_generator
        before = generator.get_state()
        generator.manual_seed(seed)
        try:
            return self._steps(batches, local, noise)
        finally:
            generator.set_state(before)

    def _steps(self, batches: Iterable[Batch], local: LocalTraining, noise: GradientNoise | None) -> float:
        torch = import_torch()
        optimizer = None if local.plain else _optimizer(self._learnt, local)
        losses = []
        for x, y, rate in batches:
            loss, gradients = self._gradients(torch.from_numpy(x), torch.from_numpy(y), local.clip)
            if not isfinite(loss):
                return nan
            losses.append(loss)
            if noise is not None:
                gradients = self._add_noise(gradients, noise)
            with torch.no_grad():
                for tensor, gradient in zip(self._learnt, gradients, strict=True):
                    if optimizer is not None:
                        tensor.grad = gradient
                        continue
                    if local.weight_decay:
                        tensor.mul_(1 - rate * local.weight_decay)
                    if gradient is not None:
                        tensor.add_(gradient, alpha=-rate)
            if optimizer is not None:
                optimizer.param_groups[0]["lr"] = rate
                optimizer.step()
                optimizer.zero_grad()
        return float(np.mean(losses))

    def _gradients(self, x: Any, y: Any, clip: float | None) -> tuple[float, Sequence[Any]]:
        """Returns the mean loss over a batch and its gradients; None for tensors that do not take part in it."""
        torch = import_torch()
        if clip is not None:
            return self._clip_gradients(x, y, clip)
        said = self._predict(x)
        if self._loss is None and self.classes:
            loss = torch.nn.functional.cross_entropy(said.reshape(-1, self.classes), y.reshape(-1))
        else:
            loss = self._losses(said, y).mean()
        return float(loss.detach()), torch.autograd.grad(loss, self._learnt, allow_unused=True)

    def _clip_gradients(self, x: Any, y: Any, clip: float) -> tuple[float, Sequence[Any]]:
        """Returns the mean loss and the mean of the samples' gradients, each clipped to the norm `clip`."""
        torch = import_torch()
        sums = [torch.zeros_like(tensor) for tensor in self._learnt]
        total = 0.0
        some = max(1, GRADIENTS // (4 * self.trained))
        for start, end in pairwise([*range(0, len(x), some), len(x)]):
            losses, gradients = self._single(x[start:end], y[start:end])
            squares = sum(gradient.reshape(len(losses), -1).square().sum(1) for gradient in gradients)
            factors = clip / squares.sqrt().clamp(min=clip) / len(x)
            for summed, gradient in zip(sums, gradients, strict=True):
                summed += torch.tensordot(factors, gradient, dims=1)
            total += float(losses.sum())
        return total / len(x), sums

    def _single(self, x: Any, y: Any) -> tuple[Any, Sequence[Any]]:
        """Returns the loss of each sample, and gradients with one row per sample."""
        torch = import_torch()
        if self._at_once is not False:
            try:
                found = self._vectorize_gradients(x, y)
            except (RuntimeError, NotImplementedError, UserWarning):
                # For example, a GRU has no rule for vmap. If one pass fails, the later ones fail too.
                if self._at_once:
                    raise
            else:
                self._at_once = True
                return found
        self._at_once = False
        losses, rows = [], []
        for i in range(len(x)):
            loss = self._losses(self._predict(x[i : i + 1]), y[i : i + 1]).sum()
            gradients = torch.autograd.grad(loss, self._learnt, allow_unused=True, materialize_grads=True)
            losses.append(loss.detach())
            rows.append(gradients)
        return torch.stack(losses), [torch.stack(column) for column in zip(*rows, strict=True)]

    def _vectorize_gradients(self, x: Any, y: Any) -> tuple[Any, Sequence[Any]]:
        func = import_torch().func
        learnt = {id(tensor) for tensor in self._learnt}
        named = {name: each.detach() for name, each in self._module.named_parameters() if id(each) in learnt}

        def loss(parameters: Any, x: Any, y: Any) -> Any:
            said = func.functional_call(self._module, parameters, (x.unsqueeze(0),))
            return self._losses(said[0] if isinstance(said, tuple) else said, y.unsqueeze(0)).sum()

        each = func.vmap(func.grad_and_value(loss), in_dims=(None, 0, 0), randomness="different")
        with warnings.catch_warnings():
            warnings.simplefilter(
                "error"
            )  # A warning says that an operation will be looped over, which is slower than a loop over samples.
            gradients, losses = each(named, x, y)
        return losses, list(gradients.values())

    def _predict(self, x: Any) -> Any:
        said = self._module(x)
        return said[0] if isinstance(said, tuple) else said

    def _losses(self, said: Any, y: Any) -> Any:
        """Returns the loss of each sample."""
        functional = import_torch().nn.functional
        if self._loss is not None:
            return self._loss(said, y)
        if not self.classes:
            return (said.reshape(y.shape) - y).square()
        losses = functional.cross_entropy(said.reshape(-1, self.classes), y.reshape(-1), reduction="none")
        return losses.reshape(len(y), -1).mean(1)

    def _add_noise(self, gradients: Sequence[Any], noise: GradientNoise) -> list[Any]:
        torch = import_torch()
        flat = [
            torch.zeros(tensor.numel()) if gradient is None else gradient.detach().reshape(-1)
            for tensor, gradient in zip(self._learnt, gradients, strict=True)
        ]
        vector = torch.cat(flat)
        noise.add_to(vector.numpy())
        pieces = vector.split([tensor.numel() for tensor in self._learnt])
        return [piece.view(tensor.shape) for tensor, piece in zip(self._learnt, pieces, strict=True)]

    def _reset(self) -> None:
        for tensor, before in self._counts:
            tensor.copy_(before)


def import_torch() -> Any:
    """Returns PyTorch; raises MissingExtra if it is not installed."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch") from None
    return torch


def _make_seeded(make: Callable[[], Any], seed: int) -> Any:
    """Calls `make` with PyTorch's generator seeded, and restores the generator's state."""
    torch = import_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _arrays(module: Any) -> dict[str, Any]:
    """Returns the tensors of the vector by name, trained ones first."""
    kept = module.state_dict(keep_vars=True)
    trained = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    buffers = {name: tensor for name, tensor in module.named_buffers() if name in kept and tensor.is_floating_point()}
    return {**trained, **buffers}


def _numbers(arrays: Mapping[str, Any]) -> Floats:
    """Returns the numbers of tensors as one new vector."""
    return np.concatenate([tensor.detach().numpy().reshape(-1) for tensor in arrays.values()])


def _problems(module: Any) -> list[str]:
    torch = import_torch()
    lazy = torch.nn.parameter.UninitializedTensorMixin
    wrong = [
        f"{name} has no shape yet; try: pass one batch through the module first"
        for name, tensor in module.named_parameters()
        if isinstance(tensor, lazy)
    ]
    wrong += [
        f"{name} is complex; try: use real numbers" for name, each in module.named_parameters() if each.is_complex()
    ]
    if not any(tensor.requires_grad for tensor in module.parameters()):
        wrong.append("there is nothing to train; try: let some parameters require a gradient")
    return wrong


def _optimizer(tensors: Sequence[Any], local: LocalTraining) -> Any:
    optim, decay = import_torch().optim, local.weight_decay
    if local.optimizer == "sgd":
        return optim.SGD(tensors, lr=local.rate, momentum=local.momentum, weight_decay=decay)
    kind = optim.Adam if local.optimizer == "adam" else optim.RMSprop
    return kind(tensors, lr=local.rate, weight_decay=decay)
