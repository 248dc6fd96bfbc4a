"""One call that averages models by any protocol, in this process."""

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, Literal, Unpack, overload

from tacit.api.federation import (
    CheckedRun,
    model_problems,
    named,
    read_weights,
    seed_problems,
    selected,
    weight_bound,
    weight_problems,
)
from tacit.api.options import AdmmRun, CesarRun, FedAvgRun, GossipRun, PushSumRun, SecAggRun
from tacit.core.protocol import Protocol
from tacit.core.suite import Party
from tacit.runtime.faults import Fault
from tacit.runtime.outcome import Outcome
from tacit.vectors.layout import Layout

BESIDE = ("seed", "weights", "faults", "record", "adversary")
"""What is taken besides the options of a protocol."""


@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["fedavg"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[FedAvgRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["secagg"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[SecAggRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["gossip"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[GossipRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["admm"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[AdmmRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["pushsum"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[PushSumRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Literal["cesar"],
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Unpack[CesarRun],
) -> Outcome: ...
@overload
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: Protocol,
    *,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    **options: Any,
) -> Outcome: ...
def aggregate(
    vectors: Mapping[Party, Any] | Iterable[Any],
    protocol: str | Protocol,
    *,
    seed: int | None = None,
    weights: Mapping[Party, float] | Iterable[float] | None = None,
    faults: Iterable[Fault | Mapping[str, Any]] = (),
    record: bool = False,
    adversary: int = 1,
    **options: Any,
) -> Outcome:
    """Averages arrays, or dicts of arrays, by a protocol run in this process.

    `vectors` is a dict by party, or a list, whose parties are then called p0, p1, … The options are those of the
    protocol, of which some say what is averaged of a model (`include`, `exclude`): all of floats unless told otherwise,
    and the rest is in everybody's average as everybody has it. A protocol of your own may be given itself, in the place
    of its name. Before anything is sent, raises ConfigError with every problem, and LeakRefused with the report of the
    audit if any `adversary` parties, or the server with one fewer, would learn a vector and `allow_leaks` is not set.
    Raises the protocol's own error if it aborts.

    >>> import tacit
    >>> out = tacit.aggregate([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], "secagg")
    >>> out.average["p0"].round(6).tolist()
    [3.0, 5.0]
    """
    models = named(vectors, "vectors")
    shares = read_weights(weights, models)
    options.setdefault("max_weight", weight_bound(shares))
    options.setdefault("weighted", len({weight for weight in shares.values() if isinstance(weight, Real)}) > 1)
    selection = selected(options)
    found = model_problems(models, selection)
    found += weight_problems(models, shares, options["max_weight"])
    found += seed_problems(seed)
    checked = CheckedRun.of(protocol, tuple(models), faults, adversary, options, found, models, BESIDE)
    layout = Layout.of(next(iter(models.values())), selection)
    return checked.average(checked.simulation(layout, seed, record), layout, models, shares, 2)
