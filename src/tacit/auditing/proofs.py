"""Arguments: what is proved about coalitions without an audit, for any number of parties.

A protocol gives its arguments itself (`Terms.arguments`), wherever its terms meet the conditions. `docs/arguments.md`
states and proves each under its name. All are about parties that follow the protocol.
"""

from dataclasses import replace
from typing import Any

from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument
from tacit.protocols import is_shipped


def argument_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> PrivacyArgument | None:
    """Returns the best of all arguments: one that allows for dropouts or, if none does, by which least is learnt."""
    found = arguments_for(protocol, terms, coalition_size, rounds, drift)
    return min(found, key=lambda each: (not each.dropouts, each.bits), default=None)


def arguments_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> list[PrivacyArgument]:
    """Returns what is proved of the coalitions of a size, over some rounds on these terms.

    Only shipped protocols are asked, whose tests try every argument. Another one may reuse their terms with other code.
    """
    if not is_shipped(protocol) or not 1 <= coalition_size < len(terms.parties):
        return []
    query = CoalitionQuery(coalition_size, rounds == 1 or drift == "free", rounds)
    return [_complete_statement(each, protocol, terms, query) for each in terms.arguments(query)]


def _complete_statement(
    argument: PrivacyArgument, protocol: Protocol, terms: Terms, query: CoalitionQuery
) -> PrivacyArgument:
    """Returns an argument whose statement says which coalitions, rounds and dropouts it covers."""
    who, when = _who(protocol, terms, query.size), _when(query, argument.dropouts)
    return replace(argument, statement=argument.statement.format(who=who, when=when))


def _who(protocol: Protocol, terms: Terms, size: int) -> str:
    """Returns whom an argument is about. With a server, one fewer may be with it."""
    parties = f"any {size} of {len(terms.parties)} parties" if size > 1 else "single parties"
    if protocol.server is None:
        return parties
    return f"{parties}, or the server with any {size - 1}," if size > 1 else f"{parties}, or the server,"


def _when(query: CoalitionQuery, dropouts: bool) -> str:
    how = "whoever drops out" if dropouts else "if nobody drops out"
    if query.rounds == 1:
        return f"in one round, {how}"
    return f"in any number of rounds {'of new vectors' if query.fresh else 'of the same vectors'}, {how}"
