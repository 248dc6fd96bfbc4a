"""The call: who can learn whose vector, for a protocol, parties and settings as people give them."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Unpack, overload

import numpy as np

from tacit.api.audit_options import (
    AdmmAudit,
    AuditOptions,
    CesarAudit,
    FedAvgAudit,
    GossipAudit,
    PushSumAudit,
    SecAggAudit,
)
from tacit.auditing.report import Auditor, Report
from tacit.auditing.scope import Scope, is_count
from tacit.auditing.search.coalitions import coalitions, of_size
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol, Role
from tacit.core.suite import Party
from tacit.runtime.faults import Fault

Several: TypeAlias = int | Iterable[Party]
"""Parties: how many, or their names."""
Members: TypeAlias = Party | Iterable[Party]
"""A coalition: one party, or several."""
Size: TypeAlias = int | None
BESIDE = ("parties", "coalition", "coalition_size", *AuditOptions.__annotations__)
"""What is taken besides the options of a protocol."""


@overload
def audit(
    protocol: Literal["fedavg"], *, parties: Several, coalition: Members, **options: Unpack[FedAvgAudit]
) -> Report: ...
@overload
def audit(
    protocol: Literal["fedavg"], *, parties: Several, coalition_size: Size = None, **options: Unpack[FedAvgAudit]
) -> list[Report]: ...
@overload
def audit(
    protocol: Literal["secagg"], *, parties: Several, coalition: Members, **options: Unpack[SecAggAudit]
) -> Report: ...
@overload
def audit(
    protocol: Literal["secagg"], *, parties: Several, coalition_size: Size = None, **options: Unpack[SecAggAudit]
) -> list[Report]: ...
@overload
def audit(
    protocol: Literal["gossip"], *, parties: Several, coalition: Members, **options: Unpack[GossipAudit]
) -> Report: ...
@overload
def audit(
    protocol: Literal["gossip"], *, parties: Several, coalition_size: Size = None, **options: Unpack[GossipAudit]
) -> list[Report]: ...
@overload
def audit(
    protocol: Literal["admm"], *, parties: Several, coalition: Members, **options: Unpack[AdmmAudit]
) -> Report: ...
@overload
def audit(
    protocol: Literal["admm"], *, parties: Several, coalition_size: Size = None, **options: Unpack[AdmmAudit]
) -> list[Report]: ...
@overload
def audit(
    protocol: Literal["pushsum"],
    *,
    parties: Several,
    coalition: Party | Iterable[Party],
    **options: Unpack[PushSumAudit],
) -> Report: ...
@overload
def audit(
    protocol: Literal["pushsum"],
    *,
    parties: Several,
    coalition_size: int | None = None,
    **options: Unpack[PushSumAudit],
) -> list[Report]: ...
@overload
def audit(
    protocol: Literal["cesar"], *, parties: Several, coalition: Members, **options: Unpack[CesarAudit]
) -> Report: ...
@overload
def audit(
    protocol: Literal["cesar"], *, parties: Several, coalition_size: Size = None, **options: Unpack[CesarAudit]
) -> list[Report]: ...
@overload
def audit(protocol: Protocol, *, parties: Several, coalition: Members, **options: Any) -> Report: ...
@overload
def audit(protocol: Protocol, *, parties: Several, coalition_size: Size = None, **options: Any) -> list[Report]: ...
def audit(
    protocol: str | Protocol,
    *,
    parties: Several,
    coalition: Members | None = None,
    coalition_size: Size = None,
    rounds: int = 1,
    drift: Drift | float = "static",
    dropout: float = 0.0,
    noise: float | None = None,
    prior: float | None = None,
    sensitivity: float | None = None,
    delta: float = 1e-5,
    length: int = 100_000,
    seed: int = 0,
    entries: int | None = None,
    vectors: Mapping[Party, Any] | Sequence[Any] | None = None,
    links: Collection[tuple[Party, Party]] | None = None,
    sealed: bool = True,
    faults: Iterable[Fault | Mapping[str, Any]] = (),
    stand_ins: Mapping[Party, Role] | None = None,
    **options: Any,
) -> Report | list[Report]:
    """Returns what a coalition can learn in some rounds of a protocol.

    That is a `Report` for the `coalition` that is named; or a list of them, for all coalitions of `coalition_size`: so
    many parties or, where there is a server, that and one fewer. If neither is given it is 1: every party alone, and
    the server.

    `drift="static"` is the worst case, in which parties bring the same vector every round; "free" has new ones in each,
    and a number ones that change by so much a round (as a standard deviation of an entry). `dropout` is the chance
    with which each party is lost to each round, and `faults` go wrong as in a simulation. What chance decides is drawn
    by `seed`, and a report says of some of the next seeds whether they expose anybody. How many bits of an entry are
    learnt depends on what it may be: `prior` is its standard deviation, and `noise` that of what its owner adds to it
    anew each round, which is a setting like others. With noise, ε is said as well, at that `delta` and for vectors of
    that `length`, if it is known how far data can move a vector: by the setting `norm`, for all that a user has, or by
    `sensitivity`.

    The server may be in a coalition, and so may an "onlooker", who hears all `links`, or those given as pairs of names;
    `sealed=False` asks what it would learn if they were not sealed. If entries fare differently, as in sparsification,
    `entries` says how many positions are looked at, and `vectors` gives the ones by whose size entries are selected.
    Settings are those of the protocol, and are audited whether they leak or not. `stand_ins` puts other coroutines in
    the place of some parties', to see what one that lies would learn.
    """
    names = named_parties(parties)
    brought: Any = vectors
    if isinstance(vectors, Sequence | np.ndarray) and len(vectors) == len(names):
        brought = dict(zip(names, vectors, strict=True))
    scope = Scope.of(
        protocol,
        names,
        options,
        faults=faults,
        rounds=rounds,
        drift=drift,
        dropout=dropout,
        noise=noise,
        prior=prior,
        sensitivity=sensitivity,
        delta=delta,
        length=length,
        seed=seed,
        entries=entries,
        vectors=brought,
        links=links,
        sealed=sealed,
        stand_ins=stand_ins,
        beside=BESIDE,
    )
    members = None if coalition is None else _members(coalition)
    if coalition_size is not None:
        every = of_size(scope.protocol, names, coalition_size, members)
    else:
        every = list(coalitions(scope.protocol, names, 1)) if members is None else [members]
    for each in every:
        scope.check(each)
    auditor = Auditor(scope, guard=True)
    reports = [auditor.report(each) for each in every]
    return reports if members is None else reports[0]


def _members(coalition: Any) -> tuple[Party, ...]:
    """Returns the members of a coalition, of which a single one may be given as it is."""
    if not isinstance(coalition, Iterable):
        raise ConfigError(f"coalition must be a list of names, or one name, not {coalition!r}")
    return (coalition,) if isinstance(coalition, str) else tuple(coalition)


def named_parties(parties: Several) -> tuple[Party, ...]:
    """Returns the names of parties, p0, p1, … if only their number is given."""
    if is_count(parties) and isinstance(parties, int | np.integer):
        return tuple(f"p{i}" for i in range(parties))
    names = tuple(parties) if isinstance(parties, Iterable) and not isinstance(parties, str | bytes) else ()
    if not names or not all(isinstance(name, Hashable) for name in names):
        raise ConfigError(f"parties must be a whole number of at least 2, or a list of names, not {parties!r}")
    return names
