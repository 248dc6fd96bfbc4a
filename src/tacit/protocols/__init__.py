"""The shipped protocols, one file or folder each, and the registry of these and of other packages' protocols."""

from tacit.protocols.registry import (
    DEFAULT_PROTOCOL,
    REGISTRY,
    PluginProblem,
    PluginWarning,
    Registry,
    find,
    is_shipped,
)

__all__ = ["DEFAULT_PROTOCOL", "REGISTRY", "PluginProblem", "PluginWarning", "Registry", "find", "is_shipped"]
