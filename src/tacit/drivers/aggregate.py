"""One call that averages models by any protocol, in process."""

import contextlib
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from tacit.audit.preflight import evidence, preflight
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.outcome import Outcome
from tacit.core.suite import Party, Update
from tacit.drivers.federation import Federation
from tacit.protocols import find
from tacit.vectors.fixedpoint import LARGEST, FixedPoint
from tacit.vectors.flatten import Layout, problems


def aggregate(
    vectors: Mapping[Party, Any] | Sequence[Any],
    protocol: str,
    *,
    seed: int | None = 0,
    weights: Mapping[Party, float] | Sequence[float] | None = None,
    faults: Sequence[Any] = (),
    record: bool = False,
    adversary: int = 1,
    **options: Any,
) -> Outcome:
    """Averages arrays, or dicts of arrays, by a protocol run in this process.

    `vectors` is a dict by party, or a list, whose parties are then called p0, p1, … The options are those of the
    protocol. Before anything is sent, raises ConfigError with every problem, and LeakRefused with the report of the
    audit if any `adversary` parties, or the server with one fewer, would learn a vector and `allow_leaks` is not set.
    Raises the protocol's own error if it aborts.

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
    numbers = {weight for weight in shares.values() if isinstance(weight, Real)}
    options.setdefault("weighted", len(numbers) > 1)
    found += FixedPoint.problems(32, 1.0, 1, heaviest, shares)
    try:
        entries = 1 if found or not models else Layout.of(next(iter(models.values()))).size
        federation = Federation(
            find(protocol).name, tuple(models), entries, seed=seed, faults=faults, record=record, **options
        )
        notes = () if found else _checked(federation, options, adversary)
    except ConfigError as error:
        found += [problem for problem in error.problems if problem not in found]
    except LeakRefused as refused:
        if not found:
            # What the settings themselves refuse has not been audited yet.
            report = refused.report or evidence(protocol, tuple(models), options)
            raise LeakRefused(str(refused), report) from None
    if found:
        raise ConfigError(found)
    layout = Layout.of(next(iter(models.values())))
    outcome = federation.average(
        {party: Update(layout.flatten(model), shares[party]) for party, model in models.items()}
    )
    outcome.average = {party: layout.restore(vector) for party, vector in outcome.average.items()}
    outcome.warnings = (*notes, *outcome.warnings)
    return outcome


def _checked(federation: Federation, options: Mapping[str, Any], adversary: int) -> tuple[str, ...]:
    """Returns what the audit has to say before anything is sent; raises LeakRefused."""
    parties = federation.parties
    if not 1 <= adversary < len(parties):
        raise ConfigError(f"adversary={adversary} must be from 1 to {len(parties) - 1}, for somebody must be left")
    return preflight(federation.config, federation.protocol.name, parties, options, adversary=adversary, rounds=1)


def _named(given: Any) -> dict[Party, Any]:
    """Returns what was given for each party, by name."""
    if isinstance(given, Mapping):
        return {party: _array(value) for party, value in given.items()}
    return {f"p{place}": _array(value) for place, value in enumerate(given)}


def _array(model: Any) -> Any:
    """Returns plain numbers and arrays of whole numbers as arrays of floats, so that their mean is not rounded."""
    if isinstance(model, np.ndarray) and model.dtype.kind in "iu":
        return model.astype(np.float64)
    if isinstance(model, list | tuple) and _is_numbers(model):
        with contextlib.suppress(ValueError):  # ragged: a list of lists of its own kind
            return np.asarray(model, dtype=np.float64)
    return model


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _model_problems(models: Mapping[Party, Any]) -> list[str]:
    found = [f"{party}: {problem}" for party, model in models.items() for problem in problems(model)]
    layouts: dict[Party, Layout] = {}
    for party, model in models.items():
        with contextlib.suppress(ConfigError):  # reported above
            layouts[party] = Layout.of(model)
    first = next(iter(layouts), None)
    for party, layout in layouts.items():
        if first is not None and layout != layouts[first]:
            theirs, ours = (", ".join(map(str, each.entries)) for each in (layouts[first], layout))
            found.append(f"{party}'s model ({ours}) is laid out differently from {first}'s ({theirs})")
    return found


def _heaviest(weights: Mapping[Party, Any]) -> float:
    """Returns a bound on the weights, up to the next power of two, for the bound is public and a weight is not."""
    numbers: list[Any] = [weight for weight in weights.values() if isinstance(weight, Real)]
    return float(
        2.0 ** np.ceil(np.log2(max([float(each) for each in numbers if 0 < float(each) <= LARGEST], default=1.0)))
    )
