"""What is checked before anything is sent: would these settings show somebody's vector?"""

from collections import OrderedDict
from typing import Any

import msgspec

from tacit.audit.coalitions import coalitions, number
from tacit.audit.report import Auditor, Report
from tacit.audit.runs import Scope
from tacit.audit.symbolic.simulation import Drift
from tacit.core.errors import LeakRefused, NotLinear
from tacit.core.protocol import Protocol, Settings, Terms
from tacit.core.suite import Party

MOST_PARTIES, MOST_COALITIONS, MOST_STEPS = 32, 64, 512
"""With more of any, an audit takes longer than somebody who only wants an average would wait. Steps add up over all."""
STILL_ROUNDS = 3
"""Rounds over which it is looked at what would leak if models stood still."""
REMEMBERED = 256

_found: OrderedDict[Any, tuple[Report | None, tuple[str, ...]]] = OrderedDict()


def preflight(protocol: Protocol, terms: Terms, *, adversary: int, rounds: int) -> tuple[str, ...]:
    """Raises LeakRefused, with the report, if settings show somebody's vector; returns what else there is to say.

    The adversary is any so many parties, and the server with one party fewer. Models change from round to round; what
    would leak only if they stood still is a warning.
    """
    parties, settings = terms.parties, terms.settings
    # The baselines say of themselves that they leak by design, and nobody takes them for anything else.
    if settings.allow_leaks or protocol.leaks_by_design:
        return ()
    if too_long(protocol, terms, adversary):
        return ("not audited, for that takes longer than the average; run: tacit audit",)
    key = protocol.name, tuple(parties), adversary, rounds, msgspec.json.encode(settings)
    if key not in _found:
        _found[key] = _look(protocol, terms, adversary, rounds)
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    report, notes = _found[key]
    if report is not None:
        raise LeakRefused(refusal(report, settings), report)
    return notes


def too_long(protocol: Protocol, terms: Terms, adversary: int) -> bool:
    """Says whether an audit takes longer than somebody would wait for it."""
    steps = len(terms.parties) * max(len(terms.steps(kind)) for kind in protocol.messages)
    coalitions = number(protocol, terms.parties, adversary)
    return len(terms.parties) > MOST_PARTIES or steps > MOST_STEPS or coalitions > MOST_COALITIONS


def evidence(protocol: Protocol, terms: Terms) -> Report | None:
    """Returns the report on the first party, or the server, that learns a vector in one round.

    None if nobody does, or if it takes too long to say.
    """
    found = None if too_long(protocol, terms, 1) else exposure(protocol, terms, 1, 1, "free")
    return found[0].report(found[1]) if found else None


def exposure(
    protocol: Protocol, terms: Terms, adversary: int, rounds: int, drift: Drift
) -> tuple[Auditor, tuple[Party, ...]] | None:
    """Returns an auditor and the first coalition that learns a vector, if there is one."""
    auditor = Auditor(Scope(protocol, terms, rounds, drift))
    for coalition in coalitions(protocol, terms.parties, adversary):
        if auditor.verdict(coalition).victims:
            return auditor, coalition
    return None


def refusal(report: Report, settings: Settings) -> str:
    """Returns why settings are refused, and what to do."""
    if len(report.parties) == 2:
        return "of two parties an average shows each the other's vector; add a party, or pass allow_leaks=True"
    victims = list(report.exposed)
    whose = f"the vector of {victims[0]}" + (f" and {len(victims) - 1} more" if len(victims) > 1 else "")
    cure = "masked=True" if getattr(settings, "masked", None) is False else "other settings (see tacit plan)"
    return (
        f"{report.protocol} would show {' and '.join(report.coalition)} {whose}, as the report says; use {cure}, "
        f"or pass allow_leaks=True to go on knowingly"
    )


def _look(protocol: Protocol, terms: Terms, adversary: int, rounds: int) -> tuple[Report | None, tuple[str, ...]]:
    try:
        # What nobody learns even if models stand still, nobody learns if they change, so most need no second audit.
        still = exposure(protocol, terms, adversary, max(rounds, STILL_ROUNDS), "static")
        if still is None:
            return None, ()
        auditor, coalition = still
        victims, safe, _ = auditor.verdict(coalition)
        note = f"if models stood still for {safe + 1} rounds, {' and '.join(coalition)} could work out that of "
        note += ", ".join(victims)
    except NotLinear as error:
        note = f"not audited in full: {error}"
    try:
        found = exposure(protocol, terms, adversary, rounds, "free")
    except NotLinear as error:
        return None, (f"not audited: {error}",)
    return (None, (note,)) if found is None else (found[0].report(found[1]), ())
