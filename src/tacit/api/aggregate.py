"""One call that averages models by any protocol, in this process."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tacit.api.federation import Checked, heaviest, model_problems, named, weight_problems, weights_of
from tacit.core.suite import Party
from tacit.drivers.faults import Fault
from tacit.drivers.outcome import Outcome
from tacit.vectors.flatten import Layout


def aggregate(
    vectors: Mapping[Party, Any] | Sequence[Any],
    protocol: str,
    *,
    seed: int | None = None,
    weights: Mapping[Party, float] | Sequence[float] | None = None,
    faults: Sequence[Fault | Mapping[str, Any]] = (),
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
    models = named(vectors, "vectors")
    shares = weights_of(weights, models)
    options.setdefault("max_weight", heaviest(shares))
    options.setdefault("weighted", len({weight for weight in shares.values() if isinstance(weight, Real)}) > 1)
    found = model_problems(models)
    found += weight_problems(models, shares, options["max_weight"])
    checked = Checked.of(protocol, tuple(models), faults, adversary, options, found, models)
    layout = Layout.of(next(iter(models.values())))
    return checked.average(checked.simulation(layout, seed, record), layout, models, shares, 2)
