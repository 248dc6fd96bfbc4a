"""Conversion of models, weights and seeds from callers to one value per party, and checks for problems."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import msgspec
import numpy as np

from tacit.core.average import list_names
from tacit.core.errors import ConfigError
from tacit.core.protocol import Settings, names_from
from tacit.core.suite import Party, Update
from tacit.core.values import convert_value
from tacit.vectors.layout import Layout, inspect_model
from tacit.vectors.model_tree import ALL, ArraySelection
from tacit.vectors.ring_limits import LARGEST, ring_problems

SHOWN = 3
"""The largest number of problems of one model that an error lists."""


def name_by_party(given: Any, what: str, parties: Sequence[Party] | None = None) -> dict[Party, Any]:
    """Returns the given values by party. Values without names get the names p0, p1, …."""
    if isinstance(given, Mapping):
        return dict(given)
    try:
        # Modules and strings are iterable, but their items are no parties.
        values = None if isinstance(given, str | bytes) or hasattr(given, "state_dict") else list(given)
    except TypeError:
        values = None
    if values is None:
        raise ConfigError(f"{what} must be a dict by party, or a list, not of type {type(given).__name__}")
    names = [f"p{place}" for place in range(len(values))]
    if parties is not None:
        names[: len(parties)] = parties[: len(values)]
    return dict(zip(names, values, strict=True))


def seed_problems(seed: Any) -> list[str]:
    """Returns the problems of a seed."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    return [] if seed is None or whole else [f"seed must be a whole number, or None for chance, not {seed!r}"]


def read_weights(given: Any, models: Mapping[Party, Any], parties: Sequence[Party] | None = None) -> dict[Party, Any]:
    """Returns the weights by party, numbers as floats. Without given weights, all are equal."""
    if given is None:
        return dict.fromkeys(models, 1.0)
    return {party: _float(weight) for party, weight in name_by_party(given, "weights", parties).items()}


def _float(weight: Any) -> Any:
    """Returns a number of any type as a double, which keeps its precision."""
    if isinstance(weight, bool) or not isinstance(weight, Real):
        return weight
    try:
        return float(weight)
    except OverflowError:
        return math.inf


def read_selection(options: Mapping[str, Any]) -> ArraySelection:
    """Returns the arrays that options select. Problems of the options are reported with the other settings."""
    found: dict[str, Any] = {}
    for name, wanted in (("include", tuple[str, ...] | None), ("exclude", tuple[str, ...])):
        with contextlib.suppress(msgspec.ValidationError):
            found[name] = convert_value(names_from(options.get(name, getattr(Settings(), name))), wanted)
    return ArraySelection(**found)


def inspect_models(
    models: Mapping[Party, Any], selection: ArraySelection, expected: Layout | None = None
) -> tuple[dict[Party, Layout], list[str]]:
    """Returns the layout of each model, and the problems of averaging the models with each other or with earlier
    rounds."""
    problems: dict[str, list[Party]] = {}
    layouts: dict[Party, Layout] = {}
    names: dict[str, None] = {}

    def note(party: Party, found: Sequence[str]) -> None:
        # A model of the wrong kind has very many problems.
        more = [f"and {len(found) - SHOWN} more of the kind"] if len(found) > SHOWN else []
        for problem in (*found[:SHOWN], *more):
            problems.setdefault(problem, []).append(party)

    for party, model in models.items():
        if isinstance(model, Update):
            note(party, ["give the model itself, and its weight in weights="])
            continue
        try:
            layout, wrong, met = inspect_model(model, selection)
        except RecursionError:
            layout, wrong, met = None, ["the model contains itself, or is nested too deeply"], []
        note(party, wrong)
        names |= dict.fromkeys(met)
        if layout is not None:
            layouts[party] = layout
    first = next(iter(layouts), "")
    wanted = expected or layouts.get(first)
    whose = f"{first}'s model" if expected is None else "the models of the rounds before"
    for party, layout in layouts.items():
        if wanted is not None and layout != wanted:
            note(party, [f"compared with {whose}, {each}" for each in wanted.differences(layout)])
    found = [f"{list_names(parties)}: {problem}" for problem, parties in problems.items()]
    # If nothing is a model, there are no names to select from.
    return layouts, found + (selection.problems(names) if names.keys() - {ALL} or layouts else [])


def model_problems(models: Mapping[Party, Any], selection: ArraySelection, expected: Layout | None = None) -> list[str]:
    """Returns the problems of averaging models with each other or with earlier rounds."""
    return inspect_models(models, selection, expected)[1]


def weight_problems(models: Mapping[Party, Any], weights: Mapping[Party, Any], max_weight: float) -> list[str]:
    """Returns the problems of weights."""
    found = ring_problems(32, 1.0, 1, max_weight, weights)
    if weights.keys() != models.keys():
        missing, strange = ([*(one.keys() - other.keys())] for one, other in ((models, weights), (weights, models)))
        who = [
            *([f"{list_names(sorted(missing, key=str))} without one"] if missing else []),
            *([f"{list_names(sorted(strange, key=str))} without a vector"] if strange else []),
        ]
        found.append(f"weights must name exactly the parties that have vectors: {' and '.join(who)}")
    return found


def weight_bound(weights: Mapping[Party, Any]) -> float:
    """Returns the next power of two above the weights. The bound is public and the weights are not."""
    numbers = [float(weight) for weight in weights.values() if isinstance(weight, Real)]
    return float(2.0 ** np.ceil(np.log2(max([each for each in numbers if 0 < each <= LARGEST], default=1.0))))
