"""Graph of a protocol's exchanges for the page, round by round or step by step."""

from typing import Any

from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import MOST_PHASES, ExchangePattern


def describe_graph(protocol: Protocol, terms: Terms) -> dict[str, Any]:
    """Returns what to draw: a kind, and the edges or groups of each phase, by places."""
    exchange = ExchangePattern("star", ((),)) if protocol.server is not None else terms.exchange()
    name = {"graph": "edges", "groups": "groups"}.get(exchange.kind)
    phases = [
        {name: [list(each) for each in phase]} if name is not None else {} for phase in exchange.phases[:MOST_PHASES]
    ]
    return {"kind": exchange.kind, "phases": phases, "each": exchange.each, "directed": exchange.directed}
