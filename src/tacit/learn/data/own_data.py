"""Own data of the user: arrays, a torch Dataset, or a folder with one file per party."""

import hashlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.values import convert_value, describe_mismatch
from tacit.learn.data.samples import Array, Dataset, Kind

MOST_LABELS = 1_000_000
PAIRS = (("x", "y"), ("x_test", "y_test"))


def of_arrays(
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    owner: Any = None,
    *,
    name: str = "yours",
    kind: Kind | None = None,
    share: float = 0.8,
    classes: int | None = None,
) -> Dataset:
    """Returns a data set made of the given arrays, with one sample per row.

    Args:
        x: Inputs of the training samples.
        y: Targets: labels as whole numbers 0, 1, 2, …, or floats for regression.
        x_test: Inputs of the test samples.
        y_test: Targets of the test samples.
        owner: Owner of each training sample, by number or name.
        name: Name of the data set.
        kind: Kind of the samples. By default it follows from the shapes: whole numbers with y of the same shape are
            text, pairs of whole numbers with float targets are ratings, arrays of three or four dimensions are images,
            and arrays of two are features.
        share: Share of each owner's samples to train on, if no test samples are given. The rest become test samples.
        classes: Number of labels. Default: the largest label plus one. Other parties may have larger labels.

    Raises:
        ConfigError: With all problems of the arrays.
    """
    _check_types(name=(name, str), kind=(kind, str | None), share=(share, float), classes=(classes, int | None))
    given = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    arrays = {called: np.asarray(each) for called, each in given.items() if each is not None}
    if len(arrays) == 3:
        raise ConfigError("x_test and y_test need each other; try: give both, or neither")
    arrays |= {called: _column(array) for called, array in arrays.items() if called.startswith("y")}
    problems = _array_problems(arrays) or _length_problems(arrays)
    if owner is not None and np.shape(owner) != arrays["y"].shape[:1]:
        problems.append(f"owner must name one owner a sample; it has shape {np.shape(owner)}")
    if problems:
        raise ConfigError(problems)
    kind = kind or _kind(arrays["x"], arrays["y"])
    if problems := _kind_problems(kind, arrays):
        raise ConfigError(problems)
    labels, found = np.issubdtype(arrays["y"].dtype, np.integer), 0
    if labels:
        numbered = [array for called, array in arrays.items() if kind == "text" or called.startswith("y")]
        found = 1 + max(int(array.max()) for array in numbered)
    if classes is not None and (not labels or not found <= classes <= MOST_LABELS):
        raise ConfigError(f"classes={classes} is too small: the largest label is {found - 1}; try: at least {found}")
    for called in arrays:
        if called.startswith("y"):
            arrays[called] = arrays[called].astype(np.int64 if labels else np.float32)
    x, y = arrays["x"], arrays["y"]
    data = Dataset(name, x, y, arrays.get("x_test", x[:0]), arrays.get("y_test", y[:0]), kind, classes or found)
    if owner is not None:
        names, whose = np.unique(np.asarray(owner), return_inverse=True)
        data = replace(data, owner=whose.astype(np.int64), owners=tuple(map(str, names.tolist())))
    return data if len(data.x_test) else data.split_off_tests(share)


def of_torch(train: Any, test: Any = None, *, owner: Any = None, **options: Any) -> Dataset:
    """Returns a data set of all pairs (x, y) of a torch Dataset, or of any other iterable of pairs.

    Args:
        train: Training pairs. Tensors of three dimensions are images in PyTorch's order (c, h, w).
        test: Test pairs.
        owner: Owner of each training sample.
        options: Options of `of_arrays`.
    """
    x, y = _collect_pairs(train, "train")
    x_test, y_test = (None, None) if test is None else _collect_pairs(test, "test")
    return of_arrays(x, y, x_test, y_test, owner, **options)


def of_folder(path: str | Path, only: str | None = None, **options: Any) -> Dataset:
    """Returns a data set of all .npz files of a folder, one per party, each with x and y, and optionally x_test and
    y_test.

    The owner of a sample is its file. If any file has test samples, the data set has no others.

    Args:
        path: The folder.
        only: Name of a party whose file alone is read.
        options: Options of `of_arrays`.
    """
    folder = Path(path)
    if unknown := sorted(set(options) - {"name", "kind", "share", "classes"}):
        raise ConfigError(f"samples in a folder have no option {unknown[0]!r}; try: use kind, share or classes")
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise ConfigError(f"{folder} has no .npz files; try: write one for each party: np.savez('north.npz', x=x, y=y)")
    if only is not None and len(paths) > 1:
        paths = [each for each in paths if each.stem == only]
        if not paths:
            raise ConfigError(
                f"{folder} has several .npz files, and no {only}.npz; try: name the file with the samples of "
                f"{only} {only}.npz"
            )
    stored: list[dict[str, Array]] = []
    problems: list[str] = []
    for each in paths:
        try:
            stored.append(_arrays(each))
        except (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{each} cannot be read ({' '.join(why.split())})")
            continue
        problems += [f"{each}: {problem}" for problem in _party_problems(stored[-1], stored[0])]
    if problems:
        raise ConfigError(problems)
    joined: dict[str, Any] = {
        called: np.concatenate(parts)
        for pair in PAIRS
        for called in pair
        if (parts := [arrays[called] for arrays in stored if called in arrays])
    }
    owner = np.repeat([each.stem for each in paths], [len(arrays["x"]) for arrays in stored])
    made = of_arrays(**joined, owner=owner, **{"name": folder.name, **options})
    return replace(made, source=_digest_files(paths, stored))


def _digest_files(paths: Sequence[Path], stored: Sequence[Mapping[str, Array]]) -> str:
    """Returns the hash of the arrays of some files, which does not depend on options."""
    digest = hashlib.blake2b(digest_size=16)
    for path, arrays in zip(paths, stored, strict=True):
        digest.update(repr((path.stem, [(name, each.dtype.str, each.shape) for name, each in arrays.items()])).encode())
        for each in arrays.values():
            digest.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _arrays(path: Path) -> dict[str, Array]:
    """Returns the arrays of a file. Raises ValueError for unknown names, or the error of reading the file."""
    with path.open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise ValueError("the file has one array without a name; try: write it with np.savez")
        found = {called: stored[called] for pair in PAIRS for called in pair if called in stored.files}
    if wrong := [called for called, each in found.items() if not isinstance(each, np.ndarray)]:
        raise ValueError(f"{wrong[0]} is not an array; try: write the file with np.savez")
    return found


def _check_types(**given: tuple[Any, Any]) -> None:
    """Raises ConfigError for options of the wrong type."""
    problems = []
    for name, (value, wanted) in given.items():
        try:
            convert_value(value, wanted)
        except msgspec.ValidationError as error:
            problems.append(f"{name} = {value!r}: {describe_mismatch(error)}")
    if problems:
        raise ConfigError(problems)


# --- checks of arrays ------------------------------------------------------------------------------------------------


def _column(y: Array) -> Array:
    """Returns y without a second dimension of one, and booleans as whole numbers."""
    flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return flat.astype(np.int64) if flat.dtype == np.bool_ else flat


def _kind(x: Array, y: Array) -> Kind:
    whole = np.issubdtype(x.dtype, np.integer)
    if whole and x.ndim == 2 and x.shape == y.shape:
        return "text"
    if whole and x.ndim == 2 and x.shape[1] == 2 and np.issubdtype(y.dtype, np.floating):
        return "ratings"
    return "images" if x.ndim > 2 else "features"


def _array_problems(arrays: Mapping[str, Array]) -> list[str]:
    """Returns the problems of single arrays."""
    problems = []
    for name, array in arrays.items():
        label, numbers = name.startswith("y"), np.issubdtype(array.dtype, np.number)
        if not numbers or np.issubdtype(array.dtype, np.complexfloating):
            cure = "number the labels: np.unique(y, return_inverse=True)[1]" if label else "give every sample one shape"
            problems.append(f"{name} has entries of type {array.dtype}, which are no numbers; try: {cure}")
        elif array.ndim == 0 or not array.size:
            problems.append(
                f"{name} is empty; try: give at least 1 sample" if array.ndim else f"{name} is a single number"
            )
        elif not np.isfinite(array).all():
            wrong = array.size - int(np.isfinite(array).sum())
            many = format_count(wrong, "entry that is", "entries that are")
            problems.append(f"{name} has {many} not finite; try: leave these samples out, or fill them in")
        elif label and np.issubdtype(array.dtype, np.integer) and not 0 <= array.min() <= array.max() < MOST_LABELS:
            worst = array.min() if array.min() < 0 else array.max()
            problems.append(
                f"labels must be 0, 1, 2, …, not {worst}; try: "
                f"number them by np.unique({name}, return_inverse=True)[1], or give floats for regression"
            )
    if not problems and arrays["x"].ndim == 1:
        problems.append("x has one number a sample; try: give it as a column: x[:, np.newaxis]")
    return problems


def _length_problems(arrays: Mapping[str, Array]) -> list[str]:
    """Returns the differences between the lengths of arrays that must be equal."""
    problems = [
        f"{x} has {len(arrays[x])} samples and {y} {len(arrays[y])}; there must be one {y} a sample"
        for x, y in PAIRS
        if x in arrays and len(arrays[x]) != len(arrays[y])
    ]
    for called, array in arrays.items():
        if _form(array) != _form(arrays[called.removesuffix("_test")]):
            problems.append(
                f"{called} has rows of {_form(array)} and {called.removesuffix('_test')} of "
                f"{_form(arrays[called.removesuffix('_test')])}; they must be alike"
            )
    return problems


def _party_problems(arrays: Mapping[str, Array], first: Mapping[str, Array]) -> list[str]:
    """Returns the problems of one party's arrays, and their differences from those of the first party."""
    problems = [f"it has no {called}" for called in PAIRS[0] if called not in arrays]
    if ("x_test" in arrays) != ("y_test" in arrays):
        problems.append("it has only one of x_test and y_test; try: give both, or neither")
    problems = problems or _array_problems(arrays) or _length_problems(arrays)
    if not problems:
        problems += [
            f"{called} has rows of {_form(arrays[called])}, and of {_form(first[called])} in the first file; "
            "they must be alike"
            for called in PAIRS[0]
            if called in first and _form(arrays[called]) != _form(first[called])
        ]
    return problems


def _form(array: Array) -> str:
    """Returns the kind of numbers in a row of an array, and the row's shape. Bytes are pixels, not only whole
    numbers."""
    kinds = {"u": "whole numbers", "i": "whole numbers", "f": "floats"}
    sort = "bytes" if array.dtype == np.uint8 and array.ndim > 2 else kinds.get(array.dtype.kind, str(array.dtype))
    return f"{sort} {array.shape[1:]}"


def _kind_problems(kind: Kind, arrays: Mapping[str, Array]) -> list[str]:
    """Returns the reasons why arrays cannot be samples of a kind."""
    x, y = arrays["x"], arrays["y"]
    whole, labels = np.issubdtype(x.dtype, np.integer), np.issubdtype(y.dtype, np.integer)
    if kind not in get_args(Kind):
        return [f"there are {', '.join(get_args(Kind))}, not kind={kind!r}"]
    if whole and x.dtype != np.uint8 and kind == "images":
        return [f"pixels are bytes (uint8, 0 to 255) or floats, not {x.dtype}; try: convert them: x.astype(np.uint8)"]
    fits = {
        "images": x.ndim in (3, 4) and y.ndim == 1 and labels,
        "text": whole and labels and x.ndim == 2 and x.shape == y.shape,
        "ratings": whole and x.ndim == 2 and x.shape[1] == 2 and y.ndim == 1 and not labels,
        "features": x.ndim == 2 and y.ndim == 1,
    }
    needs = {
        "images": "x of shape (n, h, w) or (n, h, w, c) and a label, a whole number, for each",
        "text": "whole numbers x of shape (n, length), and y of the same shape: the next token at each place",
        "ratings": "x of shape (n, 2), user and item by whole numbers, and a float for each",
        "features": "x of shape (n, f) and one y for each",
    }
    problems = [] if fits[kind] else [f"{kind} need {needs[kind]}; x has shape {x.shape} and y {y.dtype} {y.shape}"]
    if not problems and kind in ("text", "ratings") and min(arrays[name].min() for name in arrays if "x" in name) < 0:
        problems.append(f"{'tokens' if kind == 'text' else 'users and items'} must be numbered 0, 1, 2, …")
    return problems


# --- collecting samples ----------------------------------------------------------------------------------------------


def _collect_pairs(pairs: Any, called: str) -> tuple[Array, Array]:
    """Returns all x and all y of a torch Dataset."""
    # A Dataset with a length is read by index, because iterating over it may never end.
    sized = hasattr(pairs, "__len__") and hasattr(pairs, "__getitem__")
    xs: list[Array] = []
    ys: list[Array] = []
    for pair in (pairs[place] for place in range(len(pairs))) if sized else pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ConfigError(f"{called} must give pairs (x, y), not {type(pair).__name__}")
        xs.append(_sample(pair[0]))
        ys.append(_sample(pair[1]))
    if not xs:
        raise ConfigError(f"{called} has no samples")
    problems = [
        f"{called} has {what} of different shapes, {' and '.join(map(str, sorted(shapes)[:2]))}; try: make them alike"
        for what, arrays in (("x", xs), ("y", ys))
        if len(shapes := {array.shape for array in arrays}) > 1
    ]
    if problems:
        raise ConfigError(problems)
    return np.stack(xs), np.stack(ys)


def _sample(value: Any) -> Array:
    """Returns a tensor, picture or number as an array, with channels last."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    array: Array = value.detach().cpu().numpy()
    if array.ndim != 3:
        return array
    return array[0] if len(array) == 1 else np.moveaxis(array, 0, 2)
