"""Models as vectors: any nesting of arrays or tensors laid end to end, and back again.

PyTorch is served if the caller has imported it, and never imported from here: it takes a second, and most runs of Tacit
do without.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.protocol import Settings

SHOWN = 5
"""Names that are told of many."""
ALL = "the array"
"""What a model is called that is itself an array."""


@dataclass(frozen=True)
class Selection:
    """Which arrays of a model are averaged: those of floats, unless told by name. The others stay as they are.

    A name may be a pattern, such as "head.*". Whole numbers and truth values are counters and switches in most models,
    of which a mean says nothing.
    """

    include: tuple[str, ...] | None = None
    """The only ones that are averaged, whole numbers or not."""
    exclude: tuple[str, ...] = ()
    """Those of them that are not."""

    @classmethod
    def of(cls, settings: Settings) -> "Selection":
        """Returns what settings select."""
        return cls(settings.include, settings.exclude)

    def takes(self, name: str, kind: str) -> bool:
        """Says whether an array of that name and kind is averaged."""
        if _matches(name, self.exclude):
            return False
        # What is no number at all is refused, rather than left out without a word.
        return kind not in "iub" if self.include is None else _matches(name, self.include)

    def problems(self, names: Collection[str]) -> list[str]:
        """Returns which of the names that it gives are those of no array."""
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
    return f"did you mean {near[0]!r}?" if near else f"there are {_few(names)}"


FLOATS = Selection()


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

    @property
    def kind(self) -> str:
        """Its type and shape, for people."""
        return f"{self.tensor or np.dtype(self.dtype)} {self.shape}"

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


@dataclass(frozen=True)
class Local:
    """An array that is not averaged."""

    name: str


@dataclass(frozen=True)
class Branch:
    """A dict, list or tuple of arrays or further branches."""

    kind: type
    keys: tuple[Any, ...]
    children: tuple["Node", ...]


Node: TypeAlias = Entry | Local | Branch


class Leaf(NamedTuple):
    """An array met on the way through a model, and what stood there."""

    entry: Entry
    array: NDArray[Any]
    part: Any
    averaged: bool


class EntriesBeyond(NamedTuple):
    """How many entries of an array are beyond a bound, and the largest magnitude among them."""

    name: str
    entries: int
    largest: float


class EntriesBelow(NamedTuple):
    """How many entries of an array are not zero, and of those within a bound."""

    name: str
    nonzero: int
    entries: int


@dataclass(frozen=True)
class Layout:
    """How what is averaged of a model is laid out as a vector. Equal layouts mean vectors that can be averaged."""

    entries: tuple[Entry, ...]
    root: Node = field(compare=False, repr=False)
    selection: Selection = field(default=FLOATS, compare=False)
    local: tuple[str, ...] = field(default=(), compare=False)
    """The names of arrays that are not averaged."""

    @classmethod
    def of(cls, model: Any, selection: Selection = FLOATS) -> "Layout":
        """Returns the layout of an array, tensor or module, or of a dict, list or tuple of such, nested as you like.

        The keys of a dict keep their order, which is the order of the vector. A list of plain numbers is an array, and
        a PyTorch module counts as its state dict.
        """
        layout, wrong = _laid_out(*_explore(model, selection), selection)
        if wrong:
            raise ConfigError(wrong)
        return layout

    @property
    def size(self) -> int:
        """How many numbers are averaged."""
        return sum(entry.size for entry in self.entries)

    def flatten(self, model: Any, *, narrow: bool = False) -> NDArray[Any]:
        """Returns what is averaged of a model as one new vector; ConfigError if it is laid out differently.

        With `narrow` it is one of singles, if all of them fit, which takes half.
        """
        _, leaves = self._met(model)
        single = narrow and all(np.can_cast(entry.dtype, np.float32) for entry in self.entries)
        vector = np.empty(self.size, np.float32 if single else np.float64)
        start = 0
        for leaf in leaves:
            if leaf.averaged:
                size = leaf.entry.size
                vector[start : start + size].reshape(leaf.entry.shape)[...] = leaf.array
                start += size
        return vector

    def restore(self, vector: NDArray[Any], model: Any = None) -> Any:
        """Returns a new model with the numbers of the vector, and the structure, shapes and types of this layout.

        What is not averaged is that of the model, as a copy. Without one it is left out of dicts, and None elsewhere.
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
            values = _rounded(values, entry)
            if misfits := _misfits(values, np.dtype(entry.dtype)):
                wrong.append(f"{format_count(misfits, 'entry does', 'entries do')} not fit {entry}")
            else:
                parts.append(_typed(values, entry))
        if wrong:
            raise ConfigError(wrong)
        if model is None:
            return _assemble(self.root, iter(parts), None)
        root, leaves = self._met(model)
        return _assemble(root, iter(parts), (_copied(leaf.part) for leaf in leaves if not leaf.averaged))

    def beyond(self, vector: NDArray[Any], bound: float) -> list[EntriesBeyond]:
        """Returns in which arrays a vector has entries beyond a bound, those with the largest first."""
        found, start = [], 0
        for entry in self.entries:
            sizes = np.abs(vector[start : start + entry.size])
            start += entry.size
            if many := int(np.count_nonzero(sizes > bound)):
                found.append(EntriesBeyond(entry.name, many, float(sizes.max())))
        return sorted(found, key=lambda each: -each.largest)

    def below(self, vector: NDArray[Any], bound: float) -> list[EntriesBelow]:
        """Returns in which arrays most of what is not zero in a vector is within a bound."""
        found, start = [], 0
        for entry in self.entries:
            sizes = np.abs(vector[start : start + entry.size])
            start += entry.size
            larger = int(np.count_nonzero(sizes > bound))
            # Where half of all entries are larger there is nothing to count.
            if 2 * larger < entry.size and 2 * larger < (nonzero := int(np.count_nonzero(sizes))):
                found.append(EntriesBelow(entry.name, nonzero, nonzero - larger))
        return found

    def misfits(self, vectors: Iterable[NDArray[Any]], clip: float, margin: float) -> list[str]:
        """Returns which arrays could not hold an average of vectors within a clip, if that is off by up to a margin."""
        ends = [(self._ends(vector, np.min), self._ends(vector, np.max)) for vector in vectors]
        wrong = []
        for place, entry in enumerate(self.entries):
            if entry.size and ends:
                low, high = min(each[0][place] for each in ends), max(each[1][place] for each in ends)
                farthest = np.clip([low, high], -clip, clip) + np.array([-margin, margin])
                if _misfits(_rounded(farthest, entry), np.dtype(entry.dtype)):
                    wrong.append(f"{entry} has entries from {low:g} to {high:g}")
        return wrong

    def _ends(self, vector: NDArray[Any], end: Callable[[NDArray[Any]], Any]) -> list[float]:
        """Returns the smallest or largest entry of each array."""
        starts = np.cumsum([0, *(entry.size for entry in self.entries)])
        return [float(end(vector[a:b])) if b > a else 0.0 for a, b in pairwise(starts.tolist())]

    def differences(self, other: "Layout") -> list[str]:
        """Returns in what arrays another layout is not this one."""
        ours, theirs = ({entry.name: entry for entry in each.entries} for each in (self, other))
        wrong = [f"{entry} is missing" for name, entry in ours.items() if name not in theirs]
        wrong += [f"{entry} is one too many" for name, entry in theirs.items() if name not in ours]
        shared = [(entry, theirs[name]) for name, entry in ours.items() if name in theirs]
        wrong += [f"{now.name} is {now.kind}, not {before.kind}" for before, now in shared if before != now]
        return wrong or ["the arrays are in another order"]

    def _met(self, model: Any) -> tuple[Node, list[Leaf]]:
        """Returns the structure and the arrays of a model of this layout; raises ConfigError for another."""
        root, leaves = _explore(model, self.selection)
        found = tuple(leaf.entry for leaf in leaves if leaf.averaged)
        if found != self.entries:
            raise ConfigError(self.differences(Layout(found, root)))
        if wrong := _under_masks(leaves):
            raise ConfigError(wrong)
        return root, leaves


def inspect_model(model: Any, selection: Selection = FLOATS) -> tuple[Layout | None, list[str], list[str]]:
    """Returns the layout of a model, all that keeps it from being averaged, and the names of its arrays.

    There is no layout of what has anything but numbers in it.
    """
    root, leaves = _explore(model, selection)
    layout, wrong = _laid_out(root, leaves, selection)
    found = list(wrong)
    for entry, array, _, averaged in leaves:
        if averaged and array.dtype.kind == "f":
            nans, infinite = int(np.count_nonzero(np.isnan(array))), int(np.count_nonzero(np.isinf(array)))
            found += [f"{entry.name} has {nans} NaN entries of {entry.size}"] * (nans > 0)
            found += [f"{entry.name} has {infinite} infinite entries of {entry.size}"] * (infinite > 0)
    return None if wrong else layout, found, [leaf.entry.name for leaf in leaves]


def _laid_out(root: Node, leaves: list[Leaf], selection: Selection) -> tuple[Layout, list[str]]:
    """Returns a layout, and what is wrong with it."""
    wrong, odd = [], [leaf.entry for leaf in leaves if leaf.averaged and leaf.array.dtype.kind not in "fiu"]
    if odd:
        said = f"{_few(list(map(str, odd)))} {'is not an array' if len(odd) == 1 else 'are not arrays'} of real numbers"
        more = f"; to leave {'it' if len(odd) == 1 else 'them'} local, pass exclude={[entry.name for entry in odd]}"
        if sum(leaf.averaged for leaf in leaves) == len(odd):
            # Without them nothing would be left.
            named = list(selection.include or ())
            more = f"; include={named} takes nothing else, so name arrays of real numbers in it" if named else ""
        wrong.append(said + more)
    elif not any(leaf.averaged and leaf.entry.size for leaf in leaves):
        if any(leaf.entry.size for leaf in leaves):
            names = _few([leaf.entry.name for leaf in leaves])
            wrong.append(
                f"nothing would be averaged: {names} are left out, or not of floats; name what to average in include="
            )
        else:
            wrong.append("the model is empty")
    wrong += _under_masks(leaves)
    averaged = tuple(leaf.entry for leaf in leaves if leaf.averaged)
    return Layout(averaged, root, selection, tuple(leaf.entry.name for leaf in leaves if not leaf.averaged)), wrong


def _under_masks(leaves: Sequence[Leaf]) -> list[str]:
    """Returns which arrays have a mask of NumPy's, and what would become of what is under it."""
    return [
        f"{entry} is a masked array, and what is under the mask would be averaged and sent like the rest; pass its "
        f"filled(…)" + (f", or leave it local: exclude={[entry.name]}" if entry.name != ALL else "")
        for entry, _, part, averaged in leaves
        if averaged and isinstance(part, np.ma.MaskedArray)
    ]


def _few(names: Collection[str]) -> str:
    """Returns some names."""
    shown = list(names)[:SHOWN]
    return f"{', '.join(shown)} and {len(names) - len(shown)} more" if len(names) > len(shown) else ", ".join(shown)


def _explore(model: Any, selection: Selection) -> tuple[Node, list[Leaf]]:
    """Returns the structure of a model and its arrays, in order."""
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
        told = str(part.dtype) if tensor else ""
        if not path and array.dtype.kind in "iu":
            # Somebody who brings numbers, and no model with counters in it, does not want their mean rounded.
            array, told = array.astype(np.float64), "torch.float64" if tensor else ""
        entry = Entry(".".join(path) or ALL, array.shape, array.dtype.str, told)
        averaged = not path or selection.takes(entry.name, array.dtype.kind)  # what is all there is cannot be left out
        leaves.append(Leaf(entry, array, part, averaged))
        return entry if averaged else Local(entry.name)

    return visit(model, ()), leaves


def _numbers(part: Any) -> NDArray[np.float64] | None:
    """Returns a list of plain numbers, of one length in each of its lists, as an array; None for anything else."""
    if isinstance(part, list | tuple) and _are_numbers(part):
        # What is ragged is a list of lists of its own kind, and what is beyond any float is told with its place.
        with contextlib.suppress(ValueError, OverflowError):
            return np.asarray(part, dtype=np.float64)
    return None


def _are_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_are_numbers, value))
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _read(tensor: Any) -> NDArray[Any]:
    """Returns the numbers of a tensor, without a copy where NumPy knows their type."""
    torch = sys.modules["torch"]
    try:
        dense = tensor.detach().cpu()
        if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
            dense = dense.to(torch.float32)  # bfloat16 and narrower, all of which a float32 holds exactly
        array: NDArray[Any] = dense.numpy()
    except (TypeError, RuntimeError):
        return np.empty(tuple(tensor.shape), dtype=object)  # sparse, quantised or "meta": reported as not numeric
    return array


def _rounded(values: NDArray[Any], entry: Entry) -> NDArray[Any]:
    """Returns values as an array takes them: those of whole numbers to the nearest."""
    return np.asarray(np.rint(values)) if np.dtype(entry.dtype).kind in "iu" else values


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


def _copied(part: Any) -> Any:
    """Returns what is not averaged as it is, so that nothing that is done to the one is seen in the other."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(part, torch.Tensor):
        return part.detach().cpu().clone()
    return deepcopy(part)


def _assemble(node: Node, parts: Iterator[Any], kept: Iterator[Any] | None) -> Any:
    if isinstance(node, Entry):
        return next(parts)
    if isinstance(node, Local):
        return None if kept is None else next(kept)
    children = [_assemble(child, parts, kept) for child in node.children]
    if node.kind is not dict:
        return node.kind(children)
    pairs = zip(node.keys, node.children, children, strict=True)
    return {key: made for key, child, made in pairs if kept is not None or not isinstance(child, Local)}
