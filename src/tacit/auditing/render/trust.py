"""Sentences about trust: which parties a protocol trusts, and with what."""

from collections.abc import Iterator

from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import SecureSum
from tacit.protocols import is_shipped

EVERYWHERE = (
    "Everybody trusts the roster: whoever can put keys on it can be as many parties as they like.",
    "Everybody trusts their own machine, this code and the libraries under it, and their own settings; parties whose "
    "settings differ cannot read each other's messages.",
    "Messages are sealed from party to party. Whoever carries them sees addresses, times and lengths.",
    "Nobody checks what a party brings: wrong or poisoned vectors are averaged like any others.",
)


def describe_trust(protocol: Protocol, terms: Terms) -> tuple[str, ...]:
    """Returns what each role is trusted to do, and what it may learn."""
    return (*_by(protocol, terms), *EVERYWHERE)


def _by(protocol: Protocol, terms: Terms) -> Iterator[str]:
    if protocol.leaks_by_design:
        who = "The server is" if protocol.server else "Neighbours are"
        yield f"{who} trusted with everything: {protocol.name} is a baseline, and hides nothing."
    elif is_shipped(protocol) and (secure := terms.secure_sum) is not None:
        yield (
            f"The server may lie about anything but the sum that it announces, together with {_friends(secure)}, and "
            f"in a round still learns only sums of at least {secure.smallest}. It can leave parties out, "
            f"and stop rounds."
        )
        yield "Parties may pool what they know: all but one in a sum always learn that one's vector."
    else:
        yield (
            "The other parties are taken to be curious, not malicious: they keep to the protocol, and may pool what "
            "they saw. Whoever lies in it is outside of what was looked at."
        )


def _friends(secure: SecureSum) -> str:
    if secure.colluders is None:
        return "as many of the parties as the number of neighbours was chosen for, but for a small chance"
    return f"up to {secure.colluders} of the parties" if secure.colluders else "none of the parties"
