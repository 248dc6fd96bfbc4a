"""Tacit: average models with people you don't fully trust, and know exactly what still leaks."""

from tacit.api.aggregate import aggregate
from tacit.api.federation import ClippedWarning, Federation
from tacit.api.train import Run, train
from tacit.audit.plan import Plan, plan
from tacit.audit.report import Report, audit
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
from tacit.drivers.faults import Fault
from tacit.learn.scenario import Scenario

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
    "PeerFault",
    "Plan",
    "Report",
    "Run",
    "Scenario",
    "TacitError",
    "TransportError",
    "WireError",
    "aggregate",
    "audit",
    "plan",
    "train",
]
__version__ = "0.1.0"
