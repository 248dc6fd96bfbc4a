"""Arguments: what is proved about coalitions without an audit, for any number of parties.

A protocol gives its arguments itself (`Terms.arguments`), wherever its terms meet the conditions. `docs/claims.md`
states and proves each under its name. All are about parties that follow the protocol.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument
from tacit.protocols import is_shipped


def argument_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> PrivacyArgument | None:
    """Returns the best of all arguments for these coalitions, if there is one."""
    return best_argument(arguments_for(protocol, terms, coalition_size, rounds, drift))


def best_argument(found: Iterable[PrivacyArgument]) -> PrivacyArgument | None:
    """Returns the best of some arguments: one that allows for dropouts or, if none does, by which least is learnt."""
    return min(found, key=lambda each: (not each.dropouts, each.bits), default=None)


def arguments_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> list[PrivacyArgument]:
    """Returns what is proved of the coalitions of a size, over some rounds on these terms.

    The facts of each say which coalitions, rounds and dropouts it covers. `render/arguments.py` makes the sentence.
    Only shipped protocols are asked, whose tests try every argument. Another one may reuse their terms with other code.
    """
    if not is_shipped(protocol) or not 1 <= coalition_size < len(terms.parties):
        return []
    query = CoalitionQuery(coalition_size, rounds == 1 or drift == "free", rounds)
    asked = {"parties": len(terms.parties), "server": protocol.server is not None, **asdict(query)}
    return [replace(each, facts={**each.facts, **asked, "dropouts": each.dropouts}) for each in terms.arguments(query)]
