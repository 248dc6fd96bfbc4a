"""Tacit: average models with people you don't fully trust, and know exactly what still leaks."""

from typing import TYPE_CHECKING, Any

from tacit.api.aggregate import aggregate
from tacit.api.audit import audit
from tacit.api.federation import ClippedWarning, Federation, VanishedWarning
from tacit.auditing.report import Report
from tacit.auditing.search.planner import Plan, plan
from tacit.core.errors import (
    BudgetSpent,
    ConfigError,
    JournalError,
    LeakRefused,
    NotAuditable,
    NotEnough,
    NotLinear,
    PeerFault,
    TacitError,
    TransportError,
    WireError,
)
from tacit.core.version import RELEASE
from tacit.learn.scenario import Scenario
from tacit.learn.training.train import Run, train
from tacit.runtime.faults import Fault
from tacit.runtime.outcome import Outcome

if TYPE_CHECKING:
    from tacit.api.join import Peer, join, log_lines

__all__ = [
    "BudgetSpent",
    "ClippedWarning",
    "ConfigError",
    "Fault",
    "Federation",
    "JournalError",
    "LeakRefused",
    "NotAuditable",
    "NotEnough",
    "NotLinear",
    "Outcome",
    "Peer",
    "PeerFault",
    "Plan",
    "Report",
    "Run",
    "Scenario",
    "TacitError",
    "TransportError",
    "VanishedWarning",
    "WireError",
    "aggregate",
    "audit",
    "join",
    "log_lines",
    "plan",
    "train",
]
__version__ = RELEASE


def __getattr__(name: str) -> Any:
    # Between machines takes an extra, which those who stay on one need not have installed.
    if name in ("Peer", "join", "log_lines"):
        from tacit.api import join

        return getattr(join, name)
    if name == "flower":  # which takes another one
        from tacit.integrations.flower import api

        return api
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")
