"""Compact InceptionTime, the network of the eavesdropper in paper 001, Section 4.2 (its reference [32]).

Fawaz et al. 2020: inception modules of parallel convolutions over time, of several lengths, each after a bottleneck,
with a parallel max-pool; a residual connection around the modules; the average over time; one linear layer. The
original has six modules of 4 × 32 filters and is an ensemble of five. The time series here need less.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.learn.models.torch_module import import_torch

Series = NDArray[np.float64]
"""Time series, one per row: runs × channels × rounds."""
Labels = NDArray[np.int64]

KERNELS = (39, 19, 9)
"""Number of rounds that the parallel convolutions of a module span, as in the original."""
STILL = 1e-9
"""Values that differ by less than this between training runs differ only by rounding errors."""


@dataclass(frozen=True)
class ClassifierSettings:
    """Settings of the training."""

    epochs: int = 10
    batch: int = 32
    width: int = 8
    """Filters of each of the four branches of a module."""
    modules: int = 3
    rate: float = 5e-3
    """The largest step size of Adam: it rises to this value and falls again (one cycle)."""


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Seeds torch and limits it to one thread, which is fastest for networks this small; restores both afterwards."""
    torch = import_torch()
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def build_network(channels: int, rounds: int, classes: int, width: int, modules: int) -> Any:
    """Returns an untrained network from (runs, channels, rounds) to one score per class."""
    torch = import_torch()
    nn = torch.nn
    # Parts of a kernel that extend beyond both ends from any position would only multiply padding.
    kernels = [min(kernel, 2 * rounds - 1) for kernel in KERNELS]

    class InceptionModule(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.bottleneck = nn.Conv1d(channels, width, 1, bias=False)
            self.branches = nn.ModuleList(nn.Conv1d(width, width, k, padding="same", bias=False) for k in kernels)
            self.pooled = nn.Sequential(nn.MaxPool1d(3, stride=1, padding=1), nn.Conv1d(channels, width, 1, bias=False))
            self.norm = nn.BatchNorm1d(4 * width)

        def forward(self, x: Any) -> Any:
            narrow = self.bottleneck(x)
            return self.norm(torch.cat([*(branch(narrow) for branch in self.branches), self.pooled(x)], dim=1)).relu()

    class InceptionTime(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            widths = [channels, *[4 * width] * (modules - 1)]
            self.modules_in_turn = nn.Sequential(*map(InceptionModule, widths))
            self.shortcut = nn.Sequential(nn.Conv1d(channels, 4 * width, 1, bias=False), nn.BatchNorm1d(4 * width))
            self.scores = nn.Linear(4 * width, classes)

        def features(self, x: Any) -> Any:
            return (self.modules_in_turn(x) + self.shortcut(x)).relu().mean(dim=2)

        def forward(self, x: Any) -> Any:
            return self.scores(self.features(x))

    return InceptionTime()


class Classifier:
    """Network that is trained to classify time series."""

    def __init__(self, series: Series, labels: Labels, training: ClassifierSettings, seed: int) -> None:
        torch = import_torch()
        self.loss: list[float] = []
        """Mean training loss of each epoch."""
        self.accuracy: list[float] = []
        """Share of correctly classified training series of each epoch."""
        # Each value is normalised by the values at the same place and time in other runs. Quartiles are used, because a
        # few runs with a y_i(t) near 0 would distort the mean and the deviation.
        low, self._median, high = np.quantile(series, [0.25, 0.5, 0.75], axis=0)
        self._spread = np.where(high - low > STILL, high - low, 1.0)
        with repeatable(seed):
            classes = int(labels.max()) + 1
            self._network = build_network(series.shape[1], series.shape[2], classes, training.width, training.modules)
            self._fit(self._tensor(series), torch.tensor(labels), training)

    def _tensor(self, series: Series) -> Any:
        torch = import_torch()
        # The inverse hyperbolic sine is linear for small values and logarithmic for large ones.
        return torch.tensor(np.arcsinh((series - self._median) / self._spread), dtype=torch.float32)

    def _fit(self, x: Any, labels: Any, training: ClassifierSettings) -> None:
        torch = import_torch()
        steps = training.epochs * -(-len(x) // training.batch)
        adam = torch.optim.Adam(self._network.parameters(), fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(adam, training.rate, total_steps=steps)
        self._network.train()
        for _ in range(training.epochs):
            losses, right = 0.0, 0
            for chosen in torch.randperm(len(x)).split(training.batch):
                scores = self._network(x[chosen])
                loss = torch.nn.functional.cross_entropy(scores, labels[chosen])
                adam.zero_grad()
                loss.backward()
                adam.step()
                cycle.step()
                losses += loss.item() * len(chosen)
                right += int((scores.argmax(dim=1) == labels[chosen]).sum())
            self.loss.append(losses / len(x))
            self.accuracy.append(right / len(x))
        self._network.eval()

    def look(self, series: Series) -> tuple[Labels, NDArray[np.float64]]:
        """Returns the most likely class of each series, and the features of the last layer."""
        torch = import_torch()
        with repeatable(0), torch.no_grad():
            features = self._network.features(self._tensor(series))
            return self._network.scores(features).argmax(dim=1).numpy(), features.double().numpy()


def principal_plane(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the features in the plane of largest variance, two coordinates each, for a plot."""
    _, _, axes = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
    plane: NDArray[np.float64] = (features - features.mean(axis=0)) @ axes[:2].T
    return plane
