"""The registry of protocols: those shipped with Tacit, and those that installed packages add.

A package adds a protocol through an entry point of the group `tacit.protocols`, whose name is the protocol's name and
whose object is a `Protocol`. A protocol is imported when it is first used. An unusable plug-in is reported in one line
and does not affect the others.
"""

import warnings
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from tacit.core.errors import ConfigError
from tacit.core.protocol import PROTOCOL_API, Origin, Protocol

GROUP = "tacit.protocols"
SHIPPED_AT = {
    "fedavg": "tacit.protocols.fedavg:FEDAVG",
    "secagg": "tacit.protocols.secagg:SECAGG",
    "gossip": "tacit.protocols.gossip:GOSSIP",
    "admm": "tacit.protocols.admm:ADMM",
    "pushsum": "tacit.protocols.pushsum:PUSHSUM",
    "cesar": "tacit.protocols.cesar:CESAR",
    "rotating": "tacit.protocols.rotating:ROTATING",
}
"""The entry points of the shipped protocols, as `pyproject.toml` declares them. The copy here makes them available in a
source checkout that is not installed, and keeps other packages from taking their names."""
RESERVED = ("local", "centralized")
"""Names that scenarios use for training without a protocol. No plug-in may use them."""
DEFAULT_PROTOCOL = "secagg"
"""The default protocol."""


class PluginWarning(UserWarning):
    """An installed package declares a protocol that cannot be used."""


@dataclass(frozen=True)
class PluginProblem:
    """An unusable plug-in, and the reason."""

    name: str
    """Name of the entry point."""
    package: str
    """Name and version of the package that declares it."""
    reason: str

    def __str__(self) -> str:
        return f"protocol {self.name!r} of {self.package} is not available: {self.reason}"


class Registry(MutableMapping[str, Protocol]):
    """Protocols by name. All names are known without an import; a protocol is loaded when it is first used."""

    def __init__(self) -> None:
        self._loaded: dict[str, Protocol] = {}
        self._problems: dict[tuple[str, str], PluginProblem] = {}
        self._found: dict[str, EntryPoint] | None = None

    @property
    def problems(self) -> tuple[PluginProblem, ...]:
        """Plug-ins that are known to be unusable. A plug-in that was never loaded is not among them."""
        self._plugins()
        return tuple(self._problems.values())

    def __getitem__(self, name: str) -> Protocol:
        if name not in self._loaded:
            if name in SHIPPED_AT:
                self._loaded[name] = _load_shipped(name)
            else:
                self._load_plugin(name)
        return self._loaded[name]

    def __setitem__(self, name: str, protocol: Protocol) -> None:
        self._loaded[name] = protocol

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*SHIPPED_AT, *self._plugins(), *self._loaded)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in SHIPPED_AT or name in self._loaded or name in self._plugins()

    def usable(self) -> list[Protocol]:
        """Loads all protocols, and returns those that can be loaded, in the registry's order."""
        return [each for name in tuple(self) if (each := self.get(name)) is not None]

    def _plugins(self) -> dict[str, EntryPoint]:
        """Returns the entry points of other packages, by name."""
        if self._found is None:
            self._found = {}
            declared = (each for each in entry_points(group=GROUP) if SHIPPED_AT.get(each.name) != each.value)
            for point in sorted(declared, key=lambda each: (each.name, str(_origin(each)))):
                owner = self._found.get(point.name)
                if point.name in SHIPPED_AT or point.name in RESERVED:
                    self._report(point, "Tacit itself has that name; the package must choose another")
                elif owner is not None and str(_origin(owner)) != str(_origin(point)):
                    self._report(point, f"{_origin(owner)} has that name already; try: uninstall one of them")
                else:
                    self._found[point.name] = point
        return self._found

    def _load_plugin(self, name: str) -> None:
        """Loads a plug-in; raises KeyError if its name is unknown, or if it cannot be used."""
        point = self._plugins()[name]
        try:
            protocol = point.load()
        except (Exception, SystemExit) as error:
            text = str(error).partition("\n")[0]
            reason = f"importing {point.value} failed with {type(error).__name__}{f': {text}' if text else ''}"
        else:
            reason = _mismatch(point, protocol)
            if not reason:
                self._loaded[name] = replace(protocol, origin=_origin(point))
                return
        del self._plugins()[name]
        self._report(point, reason)
        raise KeyError(name)

    def _report(self, point: EntryPoint, reason: str) -> None:
        problem = PluginProblem(point.name, str(_origin(point)), reason)
        self._problems[problem.name, problem.package] = problem
        warnings.warn(str(problem), PluginWarning, stacklevel=4)


def _mismatch(point: EntryPoint, protocol: object) -> str:
    """Returns the reason why a loaded object is not what its entry point declares; an empty text if it is."""
    if not isinstance(protocol, Protocol):
        return f"{point.value} is a {type(protocol).__name__} and not a tacit.core.protocol.Protocol"
    if protocol.api_version not in (None, PROTOCOL_API):
        return f"it is written for version {protocol.api_version} of the protocol API, and this is {PROTOCOL_API}"
    if protocol.name != point.name:
        return f"its entry point is called {point.name!r} and the protocol {protocol.name!r}"
    return ""


def _origin(point: EntryPoint) -> Origin:
    package = point.dist
    return Origin("unknown", "unknown") if package is None else Origin(package.name, package.version)


def _load_shipped(name: str) -> Protocol:
    module, _, attribute = SHIPPED_AT[name].partition(":")
    protocol: Protocol = getattr(import_module(module), attribute)
    return protocol


REGISTRY = Registry()


def is_shipped(protocol: Protocol) -> bool:
    """Returns whether a protocol is an unmodified one of Tacit, whose tests check that audits see all its messages."""
    return protocol.name in SHIPPED_AT and protocol == _load_shipped(protocol.name)


def find(name: str | Protocol) -> Protocol:
    """Returns the protocol with a name; raises ConfigError with all known names if there is none.

    >>> find("secagg").summary
    'secure aggregation: the server learns the sum and nothing else'

    A `Protocol` is returned as it is, or with its `origin` if it is registered.
    """
    if isinstance(name, Protocol):
        registered = REGISTRY.get(name.name)
        return registered if registered is not None and registered == name else name
    if isinstance(name, str) and (found := REGISTRY.get(name)) is not None:
        return found
    for problem in REGISTRY.problems:
        if problem.name == name:
            raise ConfigError(str(problem))
    near = get_close_matches(str(name).lower(), REGISTRY, n=1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    raise ConfigError(f"there is no protocol {name!r}; {hint} {', '.join(REGISTRY)}")
