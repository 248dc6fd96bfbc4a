"""What `audit` takes besides the options of a protocol, for editors and type checkers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from tacit.auditing.symbolic.simulation import Drift
from tacit.core.protocol import Role
from tacit.core.suite import Party
from tacit.protocols.options import (
    AdmmOptions,
    CesarOptions,
    FedAvgOptions,
    GossipOptions,
    PushSumOptions,
    SecAggOptions,
)
from tacit.runtime.faults import Fault


class AuditOptions(TypedDict, total=False):
    """Options of `audit` itself. Noise is one of the settings."""

    rounds: int
    drift: Drift | float
    dropout: float
    prior: float | None
    sensitivity: float | None
    delta: float
    length: int
    seed: int
    entries: int | None
    vectors: Mapping[Party, Any] | Sequence[Any] | None
    links: Collection[tuple[Party, Party]] | None
    sealed: bool
    faults: Iterable[Fault | Mapping[str, Any]]
    stand_ins: Mapping[Party, Role] | None


class FedAvgAudit(AuditOptions, FedAvgOptions, total=False):
    """Options of an audit of `fedavg`."""


class SecAggAudit(AuditOptions, SecAggOptions, total=False):
    """Options of an audit of `secagg`."""


class GossipAudit(AuditOptions, GossipOptions, total=False):
    """Options of an audit of `gossip`."""


class AdmmAudit(AuditOptions, AdmmOptions, total=False):
    """Options of an audit of `admm`."""


class PushSumAudit(AuditOptions, PushSumOptions, total=False):
    """Options of an audit of `pushsum`."""


class CesarAudit(AuditOptions, CesarOptions, total=False):
    """Options of an audit of `cesar`."""
