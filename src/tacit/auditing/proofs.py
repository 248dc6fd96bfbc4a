"""Arguments: proved statements about coalitions, which hold without an audit and for any number of parties.

A protocol gives its arguments itself (`Terms.arguments`) if its terms meet their conditions. `docs/claims.md` states
and proves each under its name. All assume that parties follow the protocol.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import CoalitionQuery, PrivacyArgument
from tacit.core.suite import ONLOOKER, Party
from tacit.protocols import is_shipped

if TYPE_CHECKING:
    from tacit.auditing.scope import Scope


def argument_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> PrivacyArgument | None:
    """Returns the best argument for these coalitions; None if there is none."""
    return best_argument(arguments_for(protocol, terms, coalition_size, rounds, drift))


def best_argument(found: Iterable[PrivacyArgument]) -> PrivacyArgument | None:
    """Returns the best argument: one that allows dropouts or, without one, the one with the fewest exposed bits."""
    return min(found, key=lambda each: (not each.dropouts, each.bits), default=None)


def arguments_for(
    protocol: Protocol, terms: Terms, coalition_size: int, rounds: int = 1, drift: Any = "static"
) -> list[PrivacyArgument]:
    """Returns the arguments about all coalitions of a size, over some rounds on these terms.

    The facts of each say which coalitions, rounds and dropouts it covers. `render/arguments.py` makes the sentence.
    Only shipped protocols are asked, because tests check all their arguments. Another protocol may reuse their terms
    with different code.
    """
    if not is_shipped(protocol) or not 1 <= coalition_size < len(terms.parties):
        return []
    query = CoalitionQuery(coalition_size, rounds == 1 or drift == "free", rounds)
    asked = {"parties": len(terms.parties), "server": protocol.server is not None, **asdict(query)}
    return [replace(each, facts={**each.facts, **asked, "dropouts": each.dropouts}) for each in terms.arguments(query)]


def name_covering_argument(scope: "Scope", coalition: Collection[Party]) -> str:
    """Returns the name of an argument that covers all rounds, dropouts and samples of a scope; empty if none does.

    No argument is about eavesdroppers, injected faults, other coroutines, given vectors, or which entries are selected.
    """
    if (
        ONLOOKER in coalition
        or scope.injected_faults
        or scope.stand_ins
        or scope.vectors is not None
        or scope.terms.selective
    ):
        return ""
    # What nobody learns about static models, nobody learns about models that drift.
    drift = "free" if scope.drift == "free" else "static"
    found = arguments_for(scope.protocol, scope.terms, len(coalition), scope.rounds, drift)
    best = best_argument(each for each in found if each.dropouts and not each.exposes)
    return "" if best is None else best.name
