"""What the audit says of a run: of its own rounds, with what goes wrong in them, as far as there is time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tacit.api.exposure import Exposure
from tacit.api.federation import Checked
from tacit.auditing.preflight import MOST_COALITIONS, POSITIONS, too_long
from tacit.auditing.questions import Question
from tacit.auditing.render.json_report import about, answer
from tacit.auditing.render.text import Words, in_words, who
from tacit.auditing.report import Auditor
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import chosen
from tacit.auditing.search.orbits import Kind
from tacit.core.errors import TacitError
from tacit.learn.scenario import Scenario

MOST_SUMS, MOST_REHEARSED = 4_000_000, 1_000
"""Rounds times the cube of parties, and rounds, that a run's audit looks at where only their sums count,"""
MOST_WORK, MOST_RUN = 5_000, 16
"""and what parties say and do in all rounds together, and rounds, where each is run whole."""


def audit_run(checked: Checked, scenario: Scenario) -> bytes:
    """Returns what the audit says of a run, as it lies in its folder: of its rounds, with what goes wrong in them."""
    told: dict[str, Any] = {"says": "", **about(checked.protocol, checked.terms), "reports": []}
    try:
        if too_long(checked.protocol, checked.terms):
            told["says"] = "not audited, for that takes long; run: tacit audit"
        else:
            told |= _looked_at(checked, scenario)
    except TacitError as error:  # such as what is not linear, or rounds none of which has an average
        told["says"] = f"not audited: {error}"
    return msgspec.json.format(msgspec.json.encode(told), indent=2)


def _looked_at(checked: Checked, scenario: Scenario) -> dict[str, Any]:
    """Returns what single parties, the server, and as many as the scenario fears, could learn from a run.

    What nobody learns of models that stand still, nobody learns of ones that change. So the harder question is asked
    first, and only if it finds somebody the other, which is that of the run, with the first beside it.
    """
    rounds = _watched(checked, scenario)
    entries = POSITIONS if checked.terms.selective else None
    still = Scope(
        checked.protocol,
        checked.terms,
        rounds,
        "static",
        scenario.seed,
        checked.faults,
        entries=entries,
        dropout=scenario.dropout,
    )
    kinds, missed = _kinds(still, checked.adversary)
    options = {name: value for name, value in scenario.protocol.items() if name != "name"}
    asked = Question(
        checked.protocol.name, len(still.parties), options, rounds=rounds, drift="static", dropout=scenario.dropout
    )
    more: dict[str, Any] = {}
    sums = _rehearsable(checked, scenario)
    auditor = Auditor(still, rehearse=sums)
    found = {kind.coalition: auditor.verdict(kind.coalition).victims for kind in kinds}
    worst = max(found, key=lambda coalition: len(found[coalition]))
    if rounds > 1 and found[worst]:
        alone = replace(asked, coalition=worst)
        more["still"] = {"verdict": in_words([auditor.report(worst)], alone).verdict, "asked": alone.command}
        asked, auditor = replace(asked, drift="free"), Auditor(replace(still, drift="free"), rehearse=sums)
    reports = [auditor.report(kind.coalition) for kind in kinds]
    said = _qualified(in_words(reports, asked), scenario, rounds, [*missed, *_alike(kinds)])
    says = str(Exposure(tuple(reports)))
    if more and not said.exposed:
        says, more["as_long_as"] = f"{says}, as long as models change", "as long as models change"
    told = {"says": says, **answer(reports, said), "asked": asked.command, **more}
    if rounds < scenario.rounds:
        told |= {"says": f"{told['says']}, in {_part(rounds, scenario)}", "part": _part(rounds, scenario)}
    if scenario.faults:
        for report in told["reports"]:
            report["looked_at"] = report["looked_at"].replace("nobody drops out", "the faults of the scenario")
    return told


def _watched(checked: Checked, scenario: Scenario) -> int:
    """Returns how many rounds of a run can be looked at in little time, from the first on."""
    protocol, terms = checked.protocol, checked.terms
    if _rehearsable(checked, scenario):
        cheap = min(MOST_REHEARSED, MOST_SUMS // len(terms.parties) ** 3)
    else:
        steps = max(len(terms.steps(kind)) for kind in protocol.messages)
        cheap = min(MOST_RUN, MOST_WORK // (steps * terms.work))
    return min(scenario.rounds, max(1, cheap))


def _rehearsable(checked: Checked, scenario: Scenario) -> bool:
    """Says whether sums of rounds are all there is to look at; what faults show besides is seen in whole rounds."""
    return checked.protocol.choice is not None and checked.terms.rounds_alike and not scenario.faults


def _kinds(scope: Scope, adversary: int) -> tuple[list[Kind], list[str]]:
    """Returns one coalition of each kind, and what to say of those that are left out."""
    every: list[Kind] = []
    missed = []
    for size in sorted({1, adversary}):
        kinds, total = chosen(scope, size, len(scope.parties) + 1 if size == 1 else MOST_COALITIONS)
        every += kinds
        looked = sum(kind.many for kind in kinds)
        if looked < total:
            missed.append(f"Of {total:,} coalitions of {size}, {looked:,} were looked at.")
    return every, missed


def _alike(kinds: Sequence[Kind]) -> list[str]:
    """Returns for how many others a coalition stands, if it does."""
    return [
        f"{said[:1].upper() if said.startswith('the ') else said[:1]}{said[1:]} stands for {kind.many} that fare alike."
        for kind in kinds
        if kind.many > 1
        for said in [who(kind.coalition)]
    ]


def _qualified(said: Words, scenario: Scenario, rounds: int, more: Sequence[str]) -> Words:
    """Returns what an audit says, with what it was not asked: what goes wrong in the scenario, and what is left out."""
    assumed = [*said.assumed, *more]
    if scenario.faults:
        has = "a fault" if len(scenario.faults) == 1 else f"{len(scenario.faults)} faults"
        happens = f"The scenario has {has}, with what follows as in the run"
        assumed = [line.replace("Nobody drops out", happens) for line in assumed]
        if scenario.dropout:
            assumed.insert(0, f"{happens}.")
        assumed.append("Commands that ask again know nothing of the faults.")
    if rounds == scenario.rounds:
        return replace(said, assumed=tuple(assumed))
    part = _part(rounds, scenario)
    return replace(
        said,
        verdict=f"In {part}, and the rest was not looked at: {said.verdict}",
        assumed=(f"Only {part} were looked at; more would take long.", *assumed),
    )


def _part(rounds: int, scenario: Scenario) -> str:
    return f"the first {rounds} of {scenario.rounds} rounds" if rounds > 1 else f"one of {scenario.rounds} rounds"
