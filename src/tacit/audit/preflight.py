"""What is checked before anything is sent: would these settings show somebody's vector?"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import msgspec
import networkx as nx

from tacit.audit.report import Auditor, Report
from tacit.audit.runs import Drift, Question
from tacit.core.errors import LeakRefused, NotLinear
from tacit.core.protocol import Config
from tacit.core.suite import SERVER, Party
from tacit.protocols import find

MOST_PARTIES, MOST_COALITIONS = 32, 64
"""With more of either an audit takes longer than somebody who only wants an average would wait."""
STILL_ROUNDS = 3
"""Rounds over which it is looked at what would leak if models stood still."""
REMEMBERED = 256

_found: OrderedDict[Any, tuple[Report | None, tuple[str, ...]]] = OrderedDict()


def preflight(
    config: Config, protocol: str, parties: Sequence[Party], options: Mapping[str, Any], *, adversary: int, rounds: int
) -> tuple[str, ...]:
    """Raises LeakRefused, with the report, if settings show somebody's vector; returns what else there is to say.

    The adversary is any so many parties, and the server with one party fewer. Models change from round to round; what
    would leak only if they stood still is a warning.
    """
    # The baselines say of themselves that they leak by design, and nobody takes them for anything else.
    if config.allow_leaks or find(protocol).leaks_by_design:
        return ()
    many = sum(1 for _ in islice(coalitions(protocol, parties, adversary), MOST_COALITIONS + 1))
    if len(parties) > MOST_PARTIES or many > MOST_COALITIONS:
        return (f"not audited, for with {len(parties)} parties that takes longer than the average; run: tacit audit",)
    key = protocol, tuple(parties), adversary, rounds, _plain(config)
    if key not in _found:
        _found[key] = _look(protocol, tuple(parties), options, adversary, rounds)
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    report, notes = _found[key]
    if report is not None:
        raise LeakRefused(refusal(report, config), report)
    return notes


def evidence(protocol: str, parties: Sequence[Party], options: Mapping[str, Any]) -> Report | None:
    """Returns the report on the first party, or the server, that learns a vector in one round, if there is one."""
    found = exposure(protocol, parties, options, 1, 1, "free")
    return found[0].report(found[1]) if found else None


def exposure(
    protocol: str, parties: Sequence[Party], options: Mapping[str, Any], adversary: int, rounds: int, drift: Drift
) -> tuple[Auditor, tuple[Party, ...]] | None:
    """Returns an auditor and the first coalition that learns a vector, if there is one."""
    auditor = Auditor(Question(protocol, tuple(parties), rounds, drift, 0, options))
    for coalition in coalitions(protocol, parties, adversary):
        if auditor.glance(coalition)[0]:
            return auditor, coalition
    return None


def coalitions(protocol: str, parties: Sequence[Party], size: int) -> Iterator[tuple[Party, ...]]:
    """Yields every so many parties and, if there is one, the server with one party fewer."""
    if find(protocol).server is not None:
        yield from ((SERVER, *members) for members in combinations(parties, size - 1))
    if size < len(parties):
        yield from combinations(parties, size)


def refusal(report: Report, config: Config) -> str:
    """Returns why settings are refused, and what to do."""
    if len(report.parties) == 2:
        return "of two parties an average shows each the other's vector; add a party, or pass allow_leaks=True"
    victims = list(report.exposed)
    whose = f"the vector of {victims[0]}" + (f" and {len(victims) - 1} more" if len(victims) > 1 else "")
    cure = "masked=True" if getattr(config, "masked", None) is False else "other settings (see tacit plan)"
    return (
        f"{report.protocol} would show {' and '.join(report.coalition)} {whose}, as the report says; use {cure}, "
        f"or pass allow_leaks=True to go on knowingly"
    )


def _look(
    protocol: str, parties: tuple[Party, ...], options: Mapping[str, Any], adversary: int, rounds: int
) -> tuple[Report | None, tuple[str, ...]]:
    try:
        # What nobody learns even if models stand still, nobody learns if they change, so most need no second audit.
        still = exposure(protocol, parties, options, adversary, max(rounds, STILL_ROUNDS), "static")
        if still is None:
            return None, ()
        auditor, coalition = still
        victims, safe, _ = auditor.glance(coalition)
        note = f"if models stood still for {safe + 1} rounds, {' and '.join(coalition)} could work out that of "
        note += ", ".join(victims)
    except NotLinear as error:
        note = f"not audited in full: {error}"
    try:
        found = exposure(protocol, parties, options, adversary, rounds, "free")
    except NotLinear as error:
        return None, (f"not audited: {error}",)
    return (None, (note,)) if found is None else (found[0].report(found[1]), ())


def _plain(value: Any) -> Any:
    """Returns settings as something that can be compared and hashed."""
    if isinstance(value, nx.Graph):
        return value.is_directed(), tuple(value.nodes), tuple(sorted(value.edges))
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, *(_plain(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return repr(value)
