"""The protocols, one file or folder each, and the registry that finds them and those of other packages."""

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
