"""What `aggregate` and `Federation` take besides the options of a protocol, for editors and type checkers."""

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from tacit.protocols.options import (
    AdmmOptions,
    CesarOptions,
    FedAvgOptions,
    GossipOptions,
    PushSumOptions,
    SecAggOptions,
)
from tacit.runtime.faults import Fault


class RunOptions(TypedDict, total=False):
    """Options of a run in this process."""

    seed: int | None
    faults: Iterable[Fault | Mapping[str, Any]]
    record: bool
    adversary: int


class FedAvgRun(RunOptions, FedAvgOptions, total=False):
    """Options of a run of `fedavg`."""


class SecAggRun(RunOptions, SecAggOptions, total=False):
    """Options of a run of `secagg`."""


class GossipRun(RunOptions, GossipOptions, total=False):
    """Options of a run of `gossip`."""


class AdmmRun(RunOptions, AdmmOptions, total=False):
    """Options of a run of `admm`."""


class PushSumRun(RunOptions, PushSumOptions, total=False):
    """Options of a run of `pushsum`."""


class CesarRun(RunOptions, CesarOptions, total=False):
    """Options of a run of `cesar`."""
