"""Statements of arguments: what is proved about every coalition of a size."""

from collections.abc import Callable, Mapping
from typing import Any

from tacit.core.protocol_facts import ArgumentCode

Facts = Mapping[str, Any]


def render_argument(name: str, facts: Facts, statement: str = "") -> str:
    """Returns the statement of an argument in words, without a full stop.

    Args:
        name: the name of the argument.
        facts: its facts, and the coalitions, rounds and dropouts that it covers (see `auditing.proofs`).
        statement: the text of an argument that is no `ArgumentCode`.
    """
    render = ARGUMENTS.get(name)
    return statement.format(who=_who(facts), when=_when(facts)) if render is None else render(facts)


def _describe_one_sum(facts: Facts) -> str:
    sharing = facts["sharing"]
    others = "the others" if sharing is None else f"the {sharing} or more others that share an entry"
    return f"{_who(facts)} learn the sum of {others} and no more, {_when(facts)}"


ARGUMENTS: dict[str, Callable[[Facts], str]] = {
    ArgumentCode.ONE_SUM: _describe_one_sum,
    ArgumentCode.CIRCLE: lambda it: (
        f"{_who(it)} learn the sum of the others and no more, {_when(it)}: they are too few to cut a circle in two "
        f"on which everybody is joined to {it['degree']} others"
    ),
    ArgumentCode.WHOLE_BATCHES: lambda it: (
        f"of each batch of {it['batch']} at least {it['left']} are left that nobody can tell apart, {_when(it)}"
    ),
    ArgumentCode.FRESH_SUMS: lambda it: (
        f"a vector is in one sum, with at least {it['others']} of others than the {it['size']} that collude, "
        f"{_when(it)}"
    ),
    ArgumentCode.PRIVATE_NEIGHBOURS: lambda it: (
        f"{_who(it)} learn sums with at least {it['private']} in each who are in no other, {_when(it)}"
    ),
    ArgumentCode.FEW_NEIGHBOURS: lambda it: (
        f"{it['receiver']} receives from {it['neighbours']} others, and with all of them but one it learns the vector "
        f"of that one"
    ),
    ArgumentCode.DISJOINT_GROUPS: lambda it: (
        f"{_who(it)} learn sums with at least {it['others']} others in each, and each vector is in one of them, "
        f"{_when(it)}"
    ),
    ArgumentCode.PLAIN: lambda _: "whoever receives a vector reads it, because vectors are sent as they are",
}


def _who(facts: Facts) -> str:
    """Returns the coalitions that an argument is about. With the server, they have one party fewer."""
    size = facts["size"]
    parties = f"any {size} of {facts['parties']} parties" if size > 1 else "single parties"
    if not facts["server"]:
        return parties
    return f"{parties}, or the server with any {size - 1}," if size > 1 else f"{parties}, or the server,"


def _when(facts: Facts) -> str:
    how = "whoever drops out" if facts["dropouts"] else "if nobody drops out"
    if facts["rounds"] == 1:
        return f"in one round, {how}"
    return f"in any number of rounds {'of new vectors' if facts['fresh'] else 'of the same vectors'}, {how}"
