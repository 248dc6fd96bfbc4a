"""One call that averages models by any protocol, in process."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core.errors import ConfigError
from tacit.core.outcome import Outcome
from tacit.core.suite import Party, Update
from tacit.drivers.federation import Federation
from tacit.protocols import find
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.flatten import Layout, problems


def aggregate(
    vectors: Mapping[Party, Any] | Sequence[Any],
    protocol: str,
    *,
    seed: int | None = 0,
    weights: Mapping[Party, float] | Sequence[float] | None = None,
    faults: Sequence[Any] = (),
    record: bool = False,
    **options: Any,
) -> Outcome:
    """Averages arrays, or dicts of arrays, by a protocol run in this process.

    `vectors` is a dict by party, or a list, whose parties are then called p0, p1, … The options are those of the
    protocol. Raises ConfigError with every problem before anything is sent, and the protocol's own error if it aborts.

    >>> import tacit
    >>> out = tacit.aggregate([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], "secagg")
    >>> out.average["p0"].round(6).tolist()
    [3.0, 5.0]
    """
    models = _named(vectors)
    shares = _named(weights) if weights is not None else dict.fromkeys(models, 1.0)
    found = _model_problems(models)
    if shares.keys() != models.keys():
        found.append("weights must name exactly the parties that bring vectors")
    heaviest = options.setdefault("max_weight", _heaviest(shares))
    options.setdefault("weighted", len(set(shares.values())) > 1)
    found += FixedPoint.problems(32, 1.0, 1, heaviest, shares)
    try:
        entries = 1 if found else Layout.of(next(iter(models.values()))).size
        federation = Federation(
            find(protocol).name, tuple(models), entries, seed=seed, faults=faults, record=record, **options
        )
    except ConfigError as error:
        found += [problem for problem in error.problems if problem not in found]
    if found:
        raise ConfigError(found)
    layout = Layout.of(next(iter(models.values())))
    outcome = federation.average(
        {party: Update(layout.flatten(model), shares[party]) for party, model in models.items()}
    )
    outcome.average = {party: layout.restore(vector) for party, vector in outcome.average.items()}
    return outcome


def _named(given: Any) -> dict[Party, Any]:
    """Returns what was given for each party, by name."""
    if isinstance(given, Mapping):
        return {party: _array(value) for party, value in given.items()}
    return {f"p{place}": _array(value) for place, value in enumerate(given)}


def _array(model: Any) -> Any:
    """Returns plain numbers and arrays of whole numbers as arrays of floats, so that their mean is not rounded."""
    numbers = isinstance(model, list | tuple) and all(isinstance(entry, int | float) for entry in model)
    if numbers or (isinstance(model, np.ndarray) and model.dtype.kind in "iu"):
        return np.asarray(model, dtype=np.float64)
    return model


def _model_problems(models: Mapping[Party, Any]) -> list[str]:
    found = [f"{party}: {problem}" for party, model in models.items() for problem in problems(model)]
    if found or not models:
        return found
    layouts = {party: Layout.of(model) for party, model in models.items()}
    first, expected = next(iter(layouts.items()))
    for party, layout in layouts.items():
        if layout != expected:
            found.append(
                f"{party}'s model ({_shape(layout)}) is laid out differently from {first}'s ({_shape(expected)})"
            )
    return found


def _shape(layout: Layout) -> str:
    return ", ".join(map(str, layout.entries))


def _heaviest(weights: Mapping[Party, Any]) -> float:
    numbers = [weight for weight in weights.values() if isinstance(weight, int | float) and np.isfinite(weight)]
    return float(max([weight for weight in numbers if weight > 0], default=1.0))
