"""Data sets in one form: training and test samples of any kind."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import ConfigError

Array: TypeAlias = NDArray[Any]
Indices: TypeAlias = NDArray[np.int64]
Kind: TypeAlias = Literal["images", "text", "ratings", "features"]


class Samples(NamedTuple):
    """Samples, one per row, and their labels."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples as they are stored, one per row.

    | kind | x | y | | --- | --- | --- | | images | (n, h, w) or (n, h, w, c), uint8, or floats that are used unchanged
    | (n,) labels | | text | (n, length) tokens | (n, length) tokens: at each place the next one | | ratings | (n, 2):
    user, item | (n,) numbers | | features | (n, f) numbers | (n,) labels, or numbers |

    Models receive the result of `inputs`, not x itself.
    """

    name: str
    x: Array
    y: Array
    x_test: Array
    y_test: Array
    kind: Kind
    classes: int
    """Number of labels or tokens; 0 for regression."""
    owner: Indices | None = None
    """Owner of each training sample; None without owners."""
    owner_test: Indices | None = None
    """Owner of each test sample; None without owners."""
    owners: tuple[str, ...] = ()
    """Names of the owners: owner i is owners[i]; empty without names."""
    labels: tuple[str, ...] = ()
    """Names of the labels; for text, its characters; empty without names."""
    top: float = 255.0
    """Pixel value that is scaled to 1."""
    centre: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    """Divisor of each channel or feature in `inputs`, after the centre is subtracted."""
    source: str = ""
    """Hash of the whole data set, if these samples are a part of it; empty otherwise."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the samples and their owners."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.x, self.y, self.x_test, self.y_test, self.owner, self.owner_test):
            digest.update(repr(None if array is None else (array.dtype.str, array.shape)).encode())
            if array is not None:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    @property
    def source_digest(self) -> str:
        """Hash of the whole data set, whatever part of it is used. Ledgers identify data by it."""
        return self.source or self.fingerprint

    def __str__(self) -> str:
        whose = f" of {len(np.unique(self.owner))} owners" if self.owner is not None else ""
        labels = f", {self.classes} {'characters' if self.kind == 'text' else 'labels'}" if self.classes else ""
        what = {"text": "pieces of text", "features": "rows of features"}.get(self.kind, self.kind)
        return f"{self.name}: {len(self.x)} {what}{whose}, {len(self.x_test)} to be tested on{labels}"

    def inputs(self, x: Array) -> Array:
        """Returns a model's inputs: images as (n, c, h, w), scaled to 0..1 or standardised; numbers as float32, tokens
        as int64."""
        if self.kind in ("text", "ratings"):
            return x.astype(np.int64, copy=False)
        channels = x
        if self.kind == "images":
            channels = x[:, np.newaxis] if x.ndim == 3 else np.moveaxis(x, 3, 1)
        # One new array in the order in which it will be read, whatever the order of the stored array.
        made = np.empty(channels.shape, np.float32)
        whole = self.kind == "images" and np.issubdtype(x.dtype, np.integer)
        np.divide(channels, np.float32(self.top if whole else 1), out=made, casting="unsafe")
        if self.centre:
            shape = (-1,) + (1,) * (made.ndim - 2)
            made -= np.array(self.centre, np.float32).reshape(shape)
            made /= np.array(self.spread, np.float32).reshape(shape)
        return made

    def flat(self) -> Samples:
        """Returns the training samples as rows of float64, with images scaled to 0..1 and nothing centred."""
        top = self.top if self.kind == "images" and np.issubdtype(self.x.dtype, np.integer) else 1.0
        return Samples(self.x.reshape(len(self.x), -1) / top, self.y)

    def subsample(self, train: int | None, test: int | None, rng: np.random.Generator) -> "Dataset":
        """Samples at most `train` training and `test` test samples without replacement; None keeps all."""
        wrong = [
            f"at least 1 sample to {what}, not {count}"
            for what, count in (("learn from", train), ("be tested on", test))
            if count is not None and count < 1
        ]
        if wrong:
            raise ConfigError([f"{self.name} can be limited to {problem}" for problem in wrong])

        def draw(of: int, count: int | None) -> Indices:
            # Both are always drawn, so that a limit on one does not change which of the other are drawn.
            order = rng.permutation(of)
            return np.arange(of) if count is None or count >= of else np.sort(order[:count])

        kept, tested = draw(len(self.x), train), draw(len(self.x_test), test)
        return replace(
            self,
            source=self.source_digest,
            x=self.x[kept],
            y=self.y[kept],
            x_test=self.x_test[tested],
            y_test=self.y_test[tested],
            owner=None if self.owner is None else self.owner[kept],
            owner_test=None if self.owner_test is None else self.owner_test[tested],
        )

    def split_off_tests(self, share: float) -> "Dataset":
        """Returns the data set with test samples: of each owner's samples, the given share is for training, the rest
        for tests."""
        owner = np.zeros(len(self.x), np.int64) if self.owner is None else self.owner
        learnt = choose_training_samples(self.name, owner, share)
        return replace(
            self,
            x=self.x[learnt],
            y=self.y[learnt],
            x_test=self.x[~learnt],
            y_test=self.y[~learnt],
            owner=None if self.owner is None else owner[learnt],
            owner_test=None if self.owner is None else owner[~learnt],
        )


def choose_training_samples(name: str, owner: Indices, share: float) -> NDArray[np.bool_]:
    """Chooses the training samples: round(share · n) of each owner's n samples, and at least one. The rest are test
    samples.

    The choice is pseudorandom and depends only on the name and the number of samples.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"the share of samples to learn from must be above 0 and at most 1, such as 0.8, not {share}")
    keys = np.frombuffer(hashlib.shake_256(name.encode()).digest(8 * len(owner)), "<u8")
    order = np.lexsort((keys, owner))
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    rank = np.arange(len(owner)) - np.repeat(starts, counts)
    learnt = np.empty(len(owner), np.bool_)
    learnt[order] = rank < np.repeat(np.maximum(1, np.rint(share * counts)), counts)
    return learnt
