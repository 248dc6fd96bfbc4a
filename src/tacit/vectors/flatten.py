"""Models as vectors: any nesting of arrays or tensors laid end to end, and back again.

PyTorch is served if the caller has imported it, and never imported from here: it takes a second, and most runs of Tacit
do without.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError


@dataclass(frozen=True)
class Entry:
    """One array of a model: its name (the path to it), shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    tensor: str = ""
    """The type of a PyTorch tensor, such as "torch.bfloat16"; empty for a NumPy array."""

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name} ({self.tensor or np.dtype(self.dtype)} {self.shape})"


@dataclass(frozen=True)
class Branch:
    """A dict, list or tuple of arrays or further branches."""

    kind: type
    keys: tuple[Any, ...]
    children: tuple["Node", ...]


Node: TypeAlias = Entry | Branch


class Leaf(NamedTuple):
    """An array met on the way through a model."""

    entry: Entry
    array: NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """How a model is laid out as a vector. Equal layouts mean vectors that can be averaged."""

    root: Node
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, model: Any) -> "Layout":
        """Returns the layout of an array, tensor or module, or of a dict, list or tuple of such, nested as you like.

        The keys of a dict keep their order, which is the order of the vector. Plain numbers count as arrays of no
        dimension, and a PyTorch module as its state dict.
        """
        root, leaves = _explore(model)
        if wrong := _type_problems(leaves):
            raise ConfigError(wrong)
        return cls(root, tuple(leaf.entry for leaf in leaves))

    @property
    def size(self) -> int:
        """How many numbers the whole model holds."""
        return sum(entry.size for entry in self.entries)

    def flatten(self, model: Any, *, narrow: bool = False) -> NDArray[Any]:
        """Returns the numbers of the model as one new vector; ConfigError if it is laid out differently.

        With `narrow` it is one of singles, if all of them fit, which takes half.
        """
        root, leaves = _explore(model)
        if root != self.root:
            raise ConfigError(_differences(self.entries, tuple(leaf.entry for leaf in leaves)))
        single = narrow and all(np.can_cast(entry.dtype, np.float32) for entry in self.entries)
        vector = np.empty(self.size, np.float32 if single else np.float64)
        start = 0
        for entry, array in leaves:
            vector[start : start + entry.size].reshape(entry.shape)[...] = array
            start += entry.size
        return vector

    def restore(self, vector: NDArray[Any]) -> Any:
        """Returns a new model with the numbers of the vector, and the structure, shapes and types of this layout.

        Integers are rounded to the nearest. Tensors come back on the CPU, and a module as a state dict.
        """
        vector = np.asarray(vector)
        if vector.shape != (self.size,) or vector.dtype.kind not in "fiu":
            expected = f"a vector of {self.size} real numbers"
            raise ConfigError(f"expected {expected}, not one of shape {vector.shape} and type {vector.dtype}")
        parts, wrong, start = [], [], 0
        for entry in self.entries:
            values = vector[start : start + entry.size].reshape(entry.shape)
            start += entry.size
            if np.dtype(entry.dtype).kind in "iu":
                values = np.rint(values)
            if misfits := _misfits(values, np.dtype(entry.dtype)):
                wrong.append(f"{misfits} entries do not fit {entry}")
            else:
                parts.append(_typed(values, entry))
        if wrong:
            raise ConfigError(wrong)
        return _assemble(self.root, iter(parts))


def problems(model: Any) -> list[str]:
    """Returns everything that keeps a model from being averaged, naming the arrays at fault."""
    _, leaves = _explore(model)
    wrong = _type_problems(leaves)
    for entry, array in leaves:
        if array.dtype.kind == "f":
            nans, infinite = int(np.count_nonzero(np.isnan(array))), int(np.count_nonzero(np.isinf(array)))
            wrong += [f"{entry.name} has {nans} NaN entries of {entry.size}"] * (nans > 0)
            wrong += [f"{entry.name} has {infinite} infinite entries of {entry.size}"] * (infinite > 0)
    return wrong


def _explore(model: Any) -> tuple[Node, list[Leaf]]:
    """Returns the structure of a model and its arrays, in order."""
    leaves: list[Leaf] = []

    def visit(part: Any, path: tuple[str, ...]) -> Node:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(part, torch.nn.Module):
            part = part.state_dict()
        if isinstance(part, Mapping):
            keys = tuple(part)
            return Branch(dict, keys, tuple(visit(part[key], (*path, str(key))) for key in keys))
        if isinstance(part, list | tuple):
            kind = list if isinstance(part, list) else tuple
            children = tuple(visit(child, (*path, str(place))) for place, child in enumerate(part))
            return Branch(kind, tuple(range(len(part))), children)
        tensor = torch is not None and isinstance(part, torch.Tensor)
        array = _read(part) if tensor else np.asarray(part)
        name = ".".join(path) or "the array"
        entry = Entry(name, array.shape, array.dtype.str, str(part.dtype) if tensor else "")
        leaves.append(Leaf(entry, array))
        return entry

    return visit(model, ()), leaves


def _read(tensor: Any) -> NDArray[Any]:
    """Returns the numbers of a tensor, without a copy where NumPy knows their type."""
    torch = sys.modules["torch"]
    dense = tensor.detach().cpu()
    if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
        dense = dense.to(torch.float32)  # bfloat16 and narrower, all of which a float32 holds exactly
    try:
        array: NDArray[Any] = dense.numpy()
    except (TypeError, RuntimeError):
        return np.empty(tuple(tensor.shape), dtype=object)  # sparse or quantised: reported as not numeric
    return array


def _type_problems(leaves: list[Leaf]) -> list[str]:
    wrong = [f"{entry} is not an array of real numbers" for entry, array in leaves if array.dtype.kind not in "fiu"]
    if not any(entry.size for entry, _ in leaves):
        wrong.append("the model is empty")
    return wrong


def _differences(expected: tuple[Entry, ...], found: tuple[Entry, ...]) -> list[str]:
    ours, theirs = {entry.name: entry for entry in expected}, {entry.name: entry for entry in found}
    wrong = [f"{entry} is missing" for name, entry in ours.items() if name not in theirs]
    wrong += [f"{entry} is not part of the layout" for name, entry in theirs.items() if name not in ours]
    shared = [(entry, theirs[name]) for name, entry in ours.items() if name in theirs]
    wrong += [f"expected {before}, not {now}" for before, now in shared if before != now]
    return wrong or ["the arrays are in a different order or nested differently"]


def _misfits(values: NDArray[Any], dtype: np.dtype[Any]) -> int:
    """Returns how many values a type cannot hold. A plain cast would turn them into others without a word."""
    if dtype.kind == "f":
        return int(np.count_nonzero(np.isfinite(values) & (np.abs(values) > np.finfo(dtype).max)))
    bounds = np.iinfo(dtype)
    # max + 1 is a power of two and exact as a float, which the maximum of a 64-bit type is not. NaN fits neither way.
    fits = (values >= float(bounds.min)) & (values < float(int(bounds.max) + 1))
    return values.size - int(np.count_nonzero(fits))


def _typed(values: NDArray[Any], entry: Entry) -> Any:
    array = np.array(values, dtype=entry.dtype)  # a copy, and an array even where a ufunc returned a scalar
    if not entry.tensor:
        return array
    torch = sys.modules["torch"]
    return torch.from_numpy(array).to(getattr(torch, entry.tensor.removeprefix("torch.")))


def _assemble(node: Node, parts: Iterator[Any]) -> Any:
    if isinstance(node, Entry):
        return next(parts)
    children = [_assemble(child, parts) for child in node.children]
    return dict(zip(node.keys, children, strict=True)) if node.kind is dict else node.kind(children)
