"""Structure of a model: a tree of arrays or tensors, and the selection of those that are averaged.

PyTorch tensors are supported if the caller has imported PyTorch. This module never imports it, because that takes a
second and most uses of Tacit do not need it.
"""

import contextlib
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import list_names
from tacit.core.protocol import Settings

ALL = "the array"
"""Name that stands for the whole model if it is a single array."""


@dataclass(frozen=True)
class ArraySelection:
    """Selection of the arrays of a model that are averaged: by default those of floats. The others stay local.

    A name may be a pattern, such as "head.*". By default integers and booleans stay local: in most models they are
    counters and switches, and their mean has no meaning.
    """

    include: tuple[str, ...] | None = None
    """Names of the arrays that are averaged, whatever their type; None for all arrays of floats."""
    exclude: tuple[str, ...] = ()
    """Names of arrays that stay local."""

    @classmethod
    def of(cls, settings: Settings) -> "ArraySelection":
        """Returns the selection that some settings state."""
        return cls(settings.include, settings.exclude)

    def takes(self, name: str, kind: str) -> bool:
        """Returns whether an array of the given name and kind of type is averaged."""
        if _matches(name, self.exclude):
            return False
        # Arrays of other types, such as complex numbers, are refused later rather than left out silently.
        return kind not in "iub" if self.include is None else _matches(name, self.include)

    def problems(self, names: Collection[str]) -> list[str]:
        """Returns a problem for each name in the selection that matches no array."""
        return [
            f"{option}={pattern!r} is the name of no array; {_nearest(pattern, names)}"
            for option, patterns in (("include", self.include or ()), ("exclude", self.exclude))
            for pattern in patterns
            if not any(_matches(name, (pattern,)) for name in names)
        ]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _nearest(pattern: str, names: Collection[str]) -> str:
    near = get_close_matches(pattern, names, n=1)
    if any(name.startswith(f"{pattern}.") for name in names):
        near = [f"{pattern}.*"]
    return f"did you mean {near[0]!r}?" if near else f"there are {list_names(list(names))}"


FLOATS = ArraySelection()


@dataclass(frozen=True)
class Entry:
    """One averaged array of a model: its name (the path to it), shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    tensor: str = ""
    """The type of a PyTorch tensor, such as "torch.bfloat16"; empty for a NumPy array."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def kind(self) -> str:
        """Type and shape as text for people."""
        return f"{self.tensor or np.dtype(self.dtype)} {self.shape}"

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


@dataclass(frozen=True)
class LocalArray:
    """An array of the model that is not averaged."""

    name: str


@dataclass(frozen=True)
class Branch:
    """A dict, list or tuple of arrays or further branches."""

    kind: type
    keys: tuple[Any, ...]
    children: tuple["Node", ...]


Node: TypeAlias = Entry | LocalArray | Branch


class Leaf(NamedTuple):
    """An array found in a model, and the object (`part`) that holds it."""

    entry: Entry
    array: NDArray[Any]
    part: Any
    averaged: bool


def explore_model(model: Any, selection: ArraySelection) -> tuple[Node, list[Leaf]]:
    """Returns the structure of a model, and its arrays in order."""
    leaves: list[Leaf] = []

    def visit(part: Any, path: tuple[str, ...]) -> Node:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(part, torch.nn.Module):
            part = part.state_dict()
        if isinstance(part, Mapping):
            keys = tuple(part)
            return Branch(dict, keys, tuple(visit(part[key], (*path, str(key))) for key in keys))
        tensor = torch is not None and isinstance(part, torch.Tensor)
        array = _numbers(part)
        if array is None and isinstance(part, list | tuple):
            kind = list if isinstance(part, list) else tuple
            children = tuple(visit(child, (*path, str(place))) for place, child in enumerate(part))
            return Branch(kind, tuple(range(len(part))), children)
        if array is None:
            array = _read(part) if tensor else np.asarray(part)
        dtype = str(part.dtype) if tensor else ""
        if not path and array.dtype.kind in "iu":
            # An array of integers without a name is data and not a counter, so its mean is not rounded.
            array, dtype = array.astype(np.float64), "torch.float64" if tensor else ""
        entry = Entry(".".join(path) or ALL, array.shape, array.dtype.str, dtype)
        averaged = not path or selection.takes(
            entry.name, array.dtype.kind
        )  # a model that is one array is always averaged
        leaves.append(Leaf(entry, array, part, averaged))
        return entry if averaged else LocalArray(entry.name)

    return visit(model, ()), leaves


def _numbers(part: Any) -> NDArray[np.float64] | None:
    """Returns nested lists of plain numbers, if they have equal lengths, as an array; None for anything else."""
    if isinstance(part, list | tuple) and _are_numbers(part):
        # A ragged list, or one with a number beyond floats, is read item by item, so that errors name the item's path.
        with contextlib.suppress(ValueError, OverflowError):
            return np.asarray(part, dtype=np.float64)
    return None


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_are_numbers, value))
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _read(tensor: Any) -> NDArray[Any]:
    """Returns a tensor as an array, without a copy if NumPy has its type."""
    torch = sys.modules["torch"]
    try:
        dense = tensor.detach().cpu()
        if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
            dense = dense.to(torch.float32)  # bfloat16 and narrower types, which float32 represents exactly
        array: NDArray[Any] = dense.numpy()
    except (TypeError, RuntimeError):
        return np.empty(tuple(tensor.shape), dtype=object)  # sparse, quantised or "meta": reported as not numeric
    return array


def copy_local(part: Any) -> Any:
    """Returns a copy of an array or other object that is not averaged."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(part, torch.Tensor):
        return part.detach().cpu().clone()
    return deepcopy(part)


def assemble_model(node: Node, parts: Iterator[Any], kept: Iterator[Any] | None) -> Any:
    """Returns a model with the given structure, from its averaged parts and, if given, its local ones."""
    if isinstance(node, Entry):
        return next(parts)
    if isinstance(node, LocalArray):
        return None if kept is None else next(kept)
    children = [assemble_model(child, parts, kept) for child in node.children]
    if node.kind is not dict:
        return node.kind(children)
    pairs = zip(node.keys, node.children, children, strict=True)
    return {key: made for key, child, made in pairs if kept is not None or not isinstance(child, LocalArray)}
