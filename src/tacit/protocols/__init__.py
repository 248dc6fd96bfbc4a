"""The protocols, one file each, and the registry: one line each."""

from difflib import get_close_matches

from tacit.core.errors import ConfigError
from tacit.core.protocol import Protocol
from tacit.protocols.admm import ADMM
from tacit.protocols.cesar import CESAR
from tacit.protocols.fedavg import FEDAVG
from tacit.protocols.gossip import GOSSIP
from tacit.protocols.pushsum import PUSHSUM
from tacit.protocols.secagg import SECAGG

REGISTRY: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        FEDAVG,
        SECAGG,
        GOSSIP,
        ADMM,
        PUSHSUM,
        CESAR,
    )
}

SHIPPED = tuple(REGISTRY.values())
"""Those that came with the library, of which its tests know that audits see all they do."""


def find(name: str | Protocol) -> Protocol:
    """Returns the protocol of that name, or raises ConfigError listing those there are. A protocol is itself."""
    if isinstance(name, Protocol):
        return name
    if not isinstance(name, str) or name not in REGISTRY:
        near = get_close_matches(str(name).lower(), REGISTRY, n=1)
        hint = f"did you mean {near[0]!r}? There are" if near else "there are"
        raise ConfigError(f"there is no protocol {name!r}; {hint} {', '.join(REGISTRY)}")
    return REGISTRY[name]
