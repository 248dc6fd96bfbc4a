"""Protocols without a server on the same tasks: bytes, mixing, accuracy, exposure to colluding parties, and ε.

All protocols have the same parties, data and start. Bytes and mixing are those of rounds of random vectors that nobody
trains. Mixing is the spread of the models that is left after some rounds: the standard deviation between parties, as a
share of that of the start. Exposure is the share of coalitions of a size that recover some new vector in a few rounds;
of many coalitions some are sampled. ε is that of an audit of single parties; the noise of `NOISE` at a norm of 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, islice
from math import comb
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.measure import Row, single_row
from tacit.auditing.auditor import Auditor
from tacit.auditing.scope import Scope
from tacit.core.suite import Update
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset
from tacit.learn.scenario import Data, Scenario, Split
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.local_training import LocalTraining
from tacit.runtime.simulation.simulator import Simulation

ENTRIES = 2_000
MIXED_ROUNDS = 3
"""Rounds after which the spread of the models is measured."""
AUDITED_ROUNDS = 3
TRAINED_ROUNDS = 15
NOISE, NOISY_ROUNDS = 6.0, 5
MOST_COALITIONS = 300
"""Most coalitions of a size that are analysed; of more, this many are sampled."""
COLLUDERS = (1, 2, 3)


@dataclass(frozen=True)
class Setting:
    """A protocol and its settings for a number of parties."""

    title: str
    protocol: str
    options: Mapping[str, Any]


def _regular(degree: int, girth: int) -> dict[str, Any]:
    return {"kind": "regular", "degree": degree, "girth": girth}


SETTINGS: dict[int, tuple[Setting, ...]] = {
    16: (
        Setting("rotating, groups of 4", "rotating", {"group_size": 4, "minimum": 4}),
        Setting("rotating, groups of 5", "rotating", {"group_size": 5, "minimum": 5}),
        Setting("rotating, groups of 4, two stages", "rotating", {"group_size": 4, "minimum": 4, "stages": 2}),
        Setting("cesar, degree 3, girth 5", "cesar", {"graph": _regular(3, 5), "masking": 2}),
        Setting("pushsum, masked, exponential", "pushsum", {"graph": "exponential", "masked": True}),
        Setting("admm, masked, all to all", "admm", {"group_size": "all", "masked": True, "iterations": 2}),
        Setting("gossip, degree 3", "gossip", {"graph": _regular(3, 5)}),
    ),
    48: (
        Setting("rotating, groups of 6", "rotating", {"group_size": 6, "minimum": 5}),
        Setting("rotating, groups of 8", "rotating", {"group_size": 8, "minimum": 5}),
        Setting("rotating, groups of 6, two stages", "rotating", {"group_size": 6, "minimum": 5, "stages": 2}),
        Setting("cesar, degree 6, girth 4", "cesar", {"graph": _regular(6, 4), "masking": 3}),
        Setting("pushsum, masked, exponential", "pushsum", {"graph": "exponential", "masked": True}),
        Setting("admm, masked, all to all", "admm", {"group_size": "all", "masked": True, "iterations": 2}),
        Setting("gossip, degree 6", "gossip", {"graph": _regular(6, 4)}),
    ),
}


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields the rows of each setting; with `quick`, of 16 parties, fewer rounds and single colluders only."""
    for parties, settings in SETTINGS.items():
        if quick and parties > 16:
            return
        for setting in settings:
            yield from compare_setting(parties, setting, quick)


def compare_setting(parties: int, setting: Setting, quick: bool) -> Iterator[Row]:
    """Yields the rows of one setting."""
    name = f"{parties} parties, {setting.title}"
    sent, most, spread = exchange_vectors(parties, setting)
    yield single_row(f"{name}: sent by a party, {ENTRIES:,} entries", sent, "bytes", f"at most {most:,.0f}")
    yield single_row(f"{name}: spread after {MIXED_ROUNDS} rounds", 100 * spread, "%", "")
    rounds = 2 if quick else TRAINED_ROUNDS
    yield single_row(f"{name}: accuracy after {rounds} rounds", train_setting(parties, setting, rounds), "%", "digits")
    auditor = Auditor(_scope(parties, setting, AUDITED_ROUNDS))
    for size in COLLUDERS[: 1 if quick else None]:
        coalitions = list_coalitions(parties, size)
        exposing = sum(bool(auditor.assess(members).victims) for members in coalitions)
        told = f"{len(coalitions):,} of {comb(parties, size):,} coalitions analysed"
        yield single_row(f"{name}: coalitions of {size} that expose", 100 * exposing / len(coalitions), "%", told)
    noisy = Auditor(_scope(parties, setting, NOISY_ROUNDS, noise=NOISE, norm=1.0, clip=1.0))
    report = noisy.report(("p1",))
    if report.epsilon is not None:
        told = f"noise {NOISE:g}, norm 1, δ = {report.delta:g}"
        yield single_row(f"{name}: ε of {NOISY_ROUNDS} rounds, one party", report.epsilon, "", told)


def _scope(parties: int, setting: Setting, rounds: int, **more: Any) -> Scope:
    names = [f"p{place}" for place in range(parties)]
    return Scope.of(setting.protocol, names, {**setting.options, **more}, rounds=rounds, drift="free")


def list_coalitions(parties: int, size: int) -> list[tuple[str, ...]]:
    """Returns the coalitions of a size, or a sample of them."""
    if comb(parties, size) <= MOST_COALITIONS:
        return [tuple(f"p{place}" for place in places) for places in combinations(range(parties), size)]
    source, found = np.random.default_rng(size), dict[tuple[int, ...], None]()
    while len(found) < MOST_COALITIONS:
        found[tuple(sorted(source.choice(parties, size, replace=False).tolist()))] = None
    return [tuple(f"p{place}" for place in places) for places in islice(found, MOST_COALITIONS)]


def exchange_vectors(parties: int, setting: Setting) -> tuple[float, int, float]:
    """Returns the mean bytes that a party sends in a round, the most, and the spread after some rounds."""
    names = tuple(f"p{place}" for place in range(parties))
    options = {**setting.options, "allow_leaks": True}
    simulation = Simulation.of(setting.protocol, names, ENTRIES, seed=0, **options)
    models = dict(zip(names, np.random.default_rng(0).normal(size=(parties, ENTRIES)), strict=True))
    start, sent = np.std(list(models.values()), axis=0).mean(), []
    for _ in range(MIXED_ROUNDS):
        outcome = simulation.average({name: Update(model) for name, model in models.items()})
        sent += [sum(each.values()) for each in outcome.traffic.sent.values()]
        models = outcome.average
    return fmean(sent), max(sent), float(np.std(list(models.values()), axis=0).mean() / start)


def train_setting(parties: int, setting: Setting, rounds: int) -> float:
    """Returns the mean accuracy of the parties, in per cent."""
    scenario = Scenario(
        seed=0,
        rounds=rounds,
        evaluate=rounds,
        data=Data(name="digits", parties=parties, split=Split(kind="dirichlet", alpha=0.5)),
        model={"name": "softmax"},
        local=LocalTraining(rate=0.1, batch=16),
        protocol={"name": setting.protocol, **setting.options, "allow_leaks": True},
    )
    *_, last = assemble_run(scenario, _data()).rounds()
    if last.accuracy is None:
        raise AssertionError("the last round was not evaluated")
    return 100 * last.accuracy


@cache
def _data() -> Dataset:
    return datasets.load("digits")
