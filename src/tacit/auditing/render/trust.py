"""Sentences about trust: which parties a protocol trusts, and with what."""

from collections.abc import Iterator

from tacit.core.average import format_count
from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import SecureSum
from tacit.protocols import is_shipped

EVERYWHERE = (
    "Everybody trusts the roster: whoever can put keys on it can pose as several parties.",
    "Everybody trusts their own machine, this code and its libraries.",
    "Messages are sealed from party to party. Whoever carries them sees addresses, times and lengths.",
    "Nobody checks what a party contributes: wrong vectors are averaged like any others.",
)


def describe_trust(protocol: Protocol, terms: Terms) -> tuple[str, ...]:
    """Returns what each role is trusted to do, and what it may learn."""
    return (*_by(protocol, terms), *EVERYWHERE)


def _by(protocol: Protocol, terms: Terms) -> Iterator[str]:
    if protocol.leaks_by_design:
        who = "The server is" if protocol.server else "Neighbours are"
        yield f"{who} trusted with everything: {protocol.name} is a baseline, and hides nothing."
    elif is_shipped(protocol) and (secure := terms.secure_sum) is not None:
        yield from _describe_secure_sum(secure)
    else:
        yield (
            "The other parties are trusted to follow the protocol. They may be curious: they keep what they receive, "
            "and may pool it."
        )


def _describe_secure_sum(secure: SecureSum) -> Iterator[str]:
    """Yields what a server learns that does not follow the protocol, with helpers among the parties."""
    if secure.colluders is None:
        yield (
            f"Even if the server does not follow the protocol, it sees only sums of at least {secure.smallest} vectors "
            f"in a round. The number of neighbours limits how many parties may help it, but for a small chance."
        )
    else:
        # With more helpers, a sum may contain a single vector that they do not know.
        helpers = max(0, min(secure.colluders, secure.smallest - 2))
        some = f"{format_count(helpers, 'party helps', 'parties help')} it" if helpers else "no party helps it"
        known = " of which the helpers know their own" if helpers else ""
        yield (
            f"Even if the server does not follow the protocol, and {some}, it sees only sums of at least "
            f"{secure.smallest} vectors in a round,{known or ' and no single vector'}."
        )
        if helpers:
            left = secure.smallest - helpers
            yield f"So at least {left} vectors in such a sum are unknown. More helpers are not covered."
    yield (
        "This follows from the design of the protocol (docs/threat-model.md). The audit itself assumes that everybody "
        "follows the protocol, and compares rounds."
    )
    yield "The server can leave parties out, stop rounds, and announce a wrong sum."
    yield "If all parties of a sum but one pool what they know, they learn the vector of the one."
