"""Tacit: average models with people you don't fully trust, and know exactly what still leaks.

Names are loaded when they are first used, so that `import tacit` stays cheap and extras (gRPC, Flower) stay optional.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.core.version import RELEASE

if TYPE_CHECKING:
    from tacit import designs as designs
    from tacit import learn as learn
    from tacit import privacy as privacy
    from tacit import protocols as protocols
    from tacit.api.aggregate import aggregate
    from tacit.api.audit import audit
    from tacit.api.checked_run import ClippedWarning, NotAuditedWarning, VanishedWarning
    from tacit.api.federation import Federation
    from tacit.api.join import Peer, join, log_lines
    from tacit.auditing.report import Report
    from tacit.auditing.search.planner import Plan, plan
    from tacit.core.errors import (
        BudgetSpent,
        ConfigError,
        JournalError,
        LeakRefused,
        NotAuditable,
        NotAudited,
        NotEnough,
        NotLinear,
        PeerFault,
        TacitError,
        TransportError,
        WireError,
    )
    from tacit.learn.scenario import Scenario
    from tacit.learn.training.train import Run, train
    from tacit.runtime.outcome import Outcome
    from tacit.runtime.simulation.faults import Fault

__all__ = [
    "BudgetSpent",
    "ClippedWarning",
    "ConfigError",
    "Fault",
    "Federation",
    "JournalError",
    "LeakRefused",
    "NotAuditable",
    "NotAudited",
    "NotAuditedWarning",
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

_HOMES = {
    "tacit.api.aggregate": ("aggregate",),
    "tacit.api.audit": ("audit",),
    "tacit.api.checked_run": ("ClippedWarning", "NotAuditedWarning", "VanishedWarning"),
    "tacit.api.federation": ("Federation",),
    "tacit.api.join": ("Peer", "join", "log_lines"),
    "tacit.auditing.report": ("Report",),
    "tacit.auditing.search.planner": ("Plan", "plan"),
    "tacit.core.errors": (
        "BudgetSpent",
        "ConfigError",
        "JournalError",
        "LeakRefused",
        "NotAuditable",
        "NotAudited",
        "NotEnough",
        "NotLinear",
        "PeerFault",
        "TacitError",
        "TransportError",
        "WireError",
    ),
    "tacit.learn.scenario": ("Scenario",),
    "tacit.learn.training.train": ("Run", "train"),
    "tacit.runtime.simulation.faults": ("Fault",),
    "tacit.runtime.outcome": ("Outcome",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_PACKAGES = ("api", "auditing", "core", "crypto", "designs", "learn", "privacy", "protocols", "runtime", "vectors")
_SUBMODULES = {name: f"tacit.{name}" for name in _PACKAGES} | {"flower": "tacit.integrations.flower.api"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _SUBMODULES:
        value = import_module(_SUBMODULES[name])
    else:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
