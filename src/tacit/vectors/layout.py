"""Layout of a model as a vector: the averaged arrays, concatenated, and their conversion back to a model."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import format_count, list_names
from tacit.core.errors import ConfigError
from tacit.vectors.model_tree import (
    ALL,
    FLOATS,
    ArraySelection,
    Entry,
    Leaf,
    Node,
    assemble_model,
    copy_local,
    explore_model,
)


class EntriesBeyond(NamedTuple):
    """Number of entries of one array beyond a bound, and their largest magnitude."""

    name: str
    entries: int
    largest: float


class EntriesBelow(NamedTuple):
    """Number of nonzero entries of one array, and how many of them are within a bound."""

    name: str
    nonzero: int
    entries: int


@dataclass(frozen=True)
class Layout:
    """Layout of the averaged arrays of a model as a vector. Models of equal layouts can be averaged.

    >>> model = {"w": np.eye(2), "b": np.zeros(2), "steps": np.array([7])}
    >>> layout = Layout.of(model)
    >>> layout.size, layout.local
    (6, ('steps',))
    >>> vector = layout.flatten(model)
    >>> layout.restore(2 * vector, model)["w"].tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    entries: tuple[Entry, ...]
    root: Node = field(compare=False, repr=False)
    selection: ArraySelection = field(default=FLOATS, compare=False)
    local: tuple[str, ...] = field(default=(), compare=False)
    """Names of the arrays that are not averaged."""

    @classmethod
    def of(cls, model: Any, selection: ArraySelection = FLOATS) -> "Layout":
        """Returns the layout of an array, tensor or module, or of dicts, lists and tuples of these, at any depth.

        The order of a dict's keys is the order of the vector. A list of plain numbers is an array, and a PyTorch module
        stands for its state dict.
        """
        layout, wrong = _make_layout(*explore_model(model, selection), selection)
        if wrong:
            raise ConfigError(wrong)
        return layout

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return sum(entry.size for entry in self.entries)

    def flatten(self, model: Any, *, narrow: bool = False) -> NDArray[Any]:
        """Returns the averaged arrays of a model as one new vector; raises ConfigError if its layout differs.

        With `narrow` the vector has single precision if that represents all arrays, which halves its memory.
        """
        _, leaves = self._match(model)
        single = narrow and all(np.can_cast(entry.dtype, np.float32) for entry in self.entries)
        vector = np.empty(self.size, np.float32 if single else np.float64)
        arrays = (leaf.array for leaf in leaves if leaf.averaged)
        for (entry, values), array in zip(self._parts(vector), arrays, strict=True):
            values.reshape(entry.shape)[...] = array
        return vector

    def restore(self, vector: NDArray[Any], model: Any = None) -> Any:
        """Returns a new model with the numbers of a vector, in the structure, shapes and types of this layout.

        Local arrays are copied from `model`. Without it, dicts omit them, and lists and tuples contain None. Integers
        are rounded to the nearest. Tensors are on the CPU, and a module is returned as a state dict.
        """
        vector = np.asarray(vector)
        if vector.shape != (self.size,) or vector.dtype.kind not in "fiu":
            expected = f"a vector of {self.size} real numbers"
            raise ConfigError(f"expected {expected}, not one of shape {vector.shape} and type {vector.dtype}")
        parts, wrong = [], []
        for entry, part in self._parts(vector):
            values = _round_entry(part.reshape(entry.shape), entry)
            if misfits := _misfits(values, np.dtype(entry.dtype)):
                wrong.append(f"{format_count(misfits, 'entry does', 'entries do')} not fit {entry}")
            else:
                parts.append(_cast_entry(values, entry))
        if wrong:
            raise ConfigError(wrong)
        if model is None:
            return assemble_model(self.root, iter(parts), None)
        root, leaves = self._match(model)
        return assemble_model(root, iter(parts), (copy_local(leaf.part) for leaf in leaves if not leaf.averaged))

    def beyond(self, vector: NDArray[Any], bound: float) -> list[EntriesBeyond]:
        """Returns the arrays with entries beyond a bound, in descending order of their largest entry."""
        found = []
        for entry, values in self._parts(vector):
            sizes = np.abs(values)
            if many := int(np.count_nonzero(sizes > bound)):
                found.append(EntriesBeyond(entry.name, many, float(sizes.max())))
        return sorted(found, key=lambda each: -each.largest)

    def below(self, vector: NDArray[Any], bound: float) -> list[EntriesBelow]:
        """Returns the arrays in which most nonzero entries are within a bound."""
        found = []
        for entry, values in self._parts(vector):
            sizes = np.abs(values)
            larger = int(np.count_nonzero(sizes > bound))
            # If at least half of all entries are larger, the nonzero ones need not be counted.
            if 2 * larger < entry.size and 2 * larger < (nonzero := int(np.count_nonzero(sizes))):
                found.append(EntriesBelow(entry.name, nonzero, nonzero - larger))
        return found

    def misfits(self, vectors: Iterable[NDArray[Any]], clip: float, margin: float) -> list[str]:
        """Returns the arrays whose type cannot hold an average of clipped vectors with an error of up to `margin`."""
        ends = [
            [(float(values.min()), float(values.max())) if entry.size else (0.0, 0.0) for entry, values in parts]
            for parts in map(self._parts, vectors)
        ]
        wrong = []
        for place, entry in enumerate(self.entries):
            if entry.size and ends:
                low, high = min(each[place][0] for each in ends), max(each[place][1] for each in ends)
                farthest = np.clip([low, high], -clip, clip) + np.array([-margin, margin])
                if _misfits(_round_entry(farthest, entry), np.dtype(entry.dtype)):
                    wrong.append(f"{entry} has entries from {low:g} to {high:g}")
        return wrong

    def _parts(self, vector: NDArray[Any]) -> Iterator[tuple[Entry, NDArray[Any]]]:
        """Yields each array's entry and its slice of the vector, as a view."""
        start = 0
        for entry in self.entries:
            end = start + entry.size
            yield entry, vector[start:end]
            start = end

    def differences(self, other: "Layout") -> list[str]:
        """Returns the differences between this layout and another, array by array."""
        ours, theirs = ({entry.name: entry for entry in each.entries} for each in (self, other))
        wrong = [f"{entry} is missing" for name, entry in ours.items() if name not in theirs]
        wrong += [f"{entry} is one too many" for name, entry in theirs.items() if name not in ours]
        shared = [(entry, theirs[name]) for name, entry in ours.items() if name in theirs]
        wrong += [f"{now.name} is {now.kind}, not {before.kind}" for before, now in shared if before != now]
        return wrong or ["the arrays are in another order"]

    def _match(self, model: Any) -> tuple[Node, list[Leaf]]:
        """Returns the structure and arrays of a model; raises ConfigError if its layout differs."""
        root, leaves = explore_model(model, self.selection)
        found = tuple(leaf.entry for leaf in leaves if leaf.averaged)
        if found != self.entries:
            raise ConfigError(self.differences(Layout(found, root)))
        if wrong := _masked_problems(leaves):
            raise ConfigError(wrong)
        return root, leaves


def inspect_model(model: Any, selection: ArraySelection = FLOATS) -> tuple[Layout | None, list[str], list[str]]:
    """Returns the layout of a model, all problems that prevent averaging, and the names of its arrays.

    The layout is None if an array cannot be part of it, for example because it does not hold numbers.
    """
    root, leaves = explore_model(model, selection)
    layout, wrong = _make_layout(root, leaves, selection)
    found = list(wrong)
    for entry, array, _, averaged in leaves:
        if averaged and array.dtype.kind == "f":
            nans, infinite = int(np.count_nonzero(np.isnan(array))), int(np.count_nonzero(np.isinf(array)))
            found += [f"{entry.name} has {nans} NaN entries of {entry.size}"] * (nans > 0)
            found += [f"{entry.name} has {infinite} infinite entries of {entry.size}"] * (infinite > 0)
    return None if wrong else layout, found, [leaf.entry.name for leaf in leaves]


def _make_layout(root: Node, leaves: list[Leaf], selection: ArraySelection) -> tuple[Layout, list[str]]:
    """Returns the layout of the arrays, and its problems."""
    wrong, odd = [], [leaf.entry for leaf in leaves if leaf.averaged and leaf.array.dtype.kind not in "fiu"]
    if odd:
        kind = "is not an array" if len(odd) == 1 else "are not arrays"
        said = f"{list_names(list(map(str, odd)))} {kind} of real numbers"
        more = f"; try: leave {'it' if len(odd) == 1 else 'them'} local by exclude={[entry.name for entry in odd]}"
        if sum(leaf.averaged for leaf in leaves) == len(odd):
            # Leaving them local would leave no array to average.
            named = list(selection.include or ())
            more = f"; try: name arrays of real numbers in include=, and not only {named}" if named else ""
        wrong.append(said + more)
    elif not any(leaf.averaged and leaf.entry.size for leaf in leaves):
        if any(leaf.entry.size for leaf in leaves):
            names = list_names([leaf.entry.name for leaf in leaves])
            wrong.append(
                f"nothing would be averaged: {names} are left out, or not of floats; try: "
                "name what to average in include="
            )
        else:
            wrong.append("the model is empty")
    wrong += _masked_problems(leaves)
    averaged = tuple(leaf.entry for leaf in leaves if leaf.averaged)
    return Layout(averaged, root, selection, tuple(leaf.entry.name for leaf in leaves if not leaf.averaged)), wrong


def _masked_problems(leaves: Sequence[Leaf]) -> list[str]:
    """Returns a problem for each masked array of NumPy: its masked entries would be averaged too."""
    return [
        f"{entry} is a masked array, and what is under the mask would be averaged and sent like the rest; try: "
        "pass its "
        f"filled(…)" + (f", or leave it local: exclude={[entry.name]}" if entry.name != ALL else "")
        for entry, _, part, averaged in leaves
        if averaged and isinstance(part, np.ma.MaskedArray)
    ]


def _round_entry(values: NDArray[Any], entry: Entry) -> NDArray[Any]:
    """Returns the values, rounded to the nearest integer if the array has an integer type."""
    return np.asarray(np.rint(values)) if np.dtype(entry.dtype).kind in "iu" else values


def _misfits(values: NDArray[Any], dtype: np.dtype[Any]) -> int:
    """Returns the number of values that a type cannot hold, and that a plain cast would silently change."""
    if dtype.kind == "f":
        largest = np.finfo(dtype).max
        if np.can_cast(values.dtype, dtype):
            return 0
        # Two cheap passes decide almost every case. NaN and infinities need the exact count below; floats hold them.
        if values.size and values.min() >= -largest and values.max() <= largest:
            return 0
        return int(np.count_nonzero(np.isfinite(values) & (np.abs(values) > largest)))
    bounds = np.iinfo(dtype)
    # max + 1 is a power of two and exact as a float; the maximum of a 64-bit type is not. NaN fails both comparisons.
    fits = (values >= float(bounds.min)) & (values < float(int(bounds.max) + 1))
    return values.size - int(np.count_nonzero(fits))


def _cast_entry(values: NDArray[Any], entry: Entry) -> Any:
    array = np.array(values, dtype=entry.dtype)  # a copy; also an array where a ufunc returned a scalar
    if not entry.tensor:
        return array
    torch = sys.modules["torch"]
    return torch.from_numpy(array).to(getattr(torch, entry.tensor.removeprefix("torch.")))
