"""Splits of samples over parties. Each sample goes to at most one party, and each party gets at least one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.learn.data.samples import Array, Indices

__all__ = ["Indices", "by_owner", "check_split", "dirichlet", "iid", "label_table", "shards"]


def iid(count: int, parties: int, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party: a random split into parts whose sizes differ by at most one."""
    _check(count, parties)
    return [np.sort(part) for part in np.array_split(rng.permutation(count), parties)]


def shards(y: Array, parties: int, per_party: int, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party: `per_party` random chunks of the samples sorted by label.

    The number of chunks equals the number given out. Their sizes differ by at most one sample. With two chunks a party
    has at most four labels, if no chunk is larger than the rarest label (paper 004, 4.3).
    """
    _check_labels(y)
    _check(len(y), parties)
    if not 1 <= per_party <= len(y) // parties:
        raise ConfigError(
            f"{len(y)} samples give {parties} parties 1 to {len(y) // parties} chunks each, not {per_party}"
        )
    # Samples of one label are shuffled, so that the content of a chunk does not depend on the stored order.
    shuffled = rng.permutation(len(y))
    chunks = np.array_split(shuffled[np.argsort(y[shuffled], kind="stable")], parties * per_party)
    dealt = rng.permutation(len(chunks)).reshape(parties, per_party)
    return [np.sort(np.concatenate([chunks[chunk] for chunk in own])) for own in dealt]


def dirichlet(y: Array, parties: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party, with each label spread over the parties in Dirichlet(alpha) proportions.

    A small alpha gives every party a few labels of its own; a large one gives all parties the same mix. A party that
    drew no sample gets one from the party with the most, so that every party has at least one.
    """
    _check_labels(y)
    _check(len(y), parties)
    if not 1e-3 <= alpha <= 1e6:
        raise ConfigError(f"alpha must lie between 0.001 (one party a label) and 1000000 (even), not {alpha}")
    owner = np.empty(len(y), dtype=np.int64)
    for label in np.unique(y):
        samples = rng.permutation(np.flatnonzero(y == label))
        shares = rng.dirichlet(np.full(parties, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(samples)).astype(np.int64)
        for party, part in enumerate(np.split(samples, cuts)):
            owner[part] = party
    for poorest in np.flatnonzero(np.bincount(owner, minlength=parties) == 0):
        richest = np.bincount(owner, minlength=parties).argmax()
        owner[rng.choice(np.flatnonzero(owner == richest))] = poorest
    return [np.flatnonzero(owner == party) for party in range(parties)]


def by_owner(owner: Array | None, parties: int, rng: np.random.Generator) -> list[Indices]:
    """Returns the samples of each party: those of one owner or, if there are more owners than parties, of several.

    With as many parties as owners, the first party is the first owner, and so on. Otherwise owners are assigned one by
    one in descending order of samples, each to the party with the fewest samples so far. Only ties are decided at
    random.
    """
    if owner is None:
        raise ConfigError("the samples of this data set have no owners; try: split it as iid, shards or dirichlet")
    _check(len(owner), parties)
    names, whose, counts = np.unique(owner, return_inverse=True, return_counts=True)
    if parties > len(names):
        raise ConfigError(
            f"{len(names)} owners cannot be {parties} parties; try: "
            f"take at most {len(names)}, or split the set as iid, shards or dirichlet"
        )
    if parties == len(names):
        return [np.flatnonzero(whose == place) for place in range(parties)]
    order = rng.permutation(len(names))
    order = order[np.argsort(-counts[order], kind="stable")]
    held, party = np.zeros(parties, np.int64), np.empty(len(names), np.int64)
    for place in order:
        party[place] = held.argmin()
        held[party[place]] += counts[place]
    # Otherwise the order of parties would follow from the owners' numbers of samples.
    numbers = rng.permutation(parties)
    return [np.flatnonzero(numbers[party][whose] == number) for number in range(parties)]


def check_split(parts: Sequence[Array], count: int) -> list[Indices]:
    """Returns a given split, sorted; raises ConfigError if it is not a split of `count` samples."""
    made = [np.sort(np.asarray(part, np.int64).ravel()) for part in parts]
    problems = [
        f"party {party} has no samples; try: give it some, or take fewer parties"
        for party, part in enumerate(made)
        if not len(part)
    ]
    problems += [
        f"party {party} has sample {part[0] if part[0] < 0 else part[-1]}, but they are numbered 0 to {count - 1}"
        for party, part in enumerate(made)
        if len(part) and not 0 <= part[0] <= part[-1] < count
    ]
    everything = np.sort(np.concatenate(made)) if made else np.empty(0, np.int64)
    if twice := everything[1:][everything[1:] == everything[:-1]].tolist():
        problems.append(f"sample {twice[0]} is given out twice; each sample can be at one party only")
    if not made:
        problems.append("a split needs at least 1 party")
    if problems:
        raise ConfigError(problems)
    return made


def label_table(y: Array, parts: Sequence[Indices], classes: int) -> NDArray[np.int64]:
    """Counts the samples of each label at each party, one row per party. If y is a number, there is a single column."""
    if not classes:
        return np.array([[len(part)] for part in parts], np.int64)
    return np.array([np.bincount(y[part].ravel(), minlength=classes) for part in parts], np.int64)


def _check(count: int, parties: int) -> None:
    if not count:
        raise ConfigError("there are no samples to split")
    if not 1 <= parties <= count:
        raise ConfigError(
            f"{format_count(count, 'sample')} can be split among 1 to "
            f"{format_count(count, 'party', 'parties')}, not {parties:,}"
            + "; try: take fewer parties, or more samples"
            * (parties > count)
        )


def _check_labels(y: Array) -> None:
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        what = "a label at every place" if y.ndim != 1 else "numbers in place of labels"
        raise ConfigError(
            f"these samples have {what}, so they cannot be split by label; try: split them as iid or by owner"
        )
