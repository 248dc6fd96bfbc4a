"""Preflight audit: refuses settings that would expose a party's vector, before anything is sent."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec
from numpy.typing import NDArray

from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import NOT_AUDITED_CODES, EntryExposure, NoteCode, Remark, remark_selections
from tacit.auditing.proofs import arguments_for, best_argument
from tacit.auditing.render.notes import render_argued_refusal, render_refusal, render_unaudited
from tacit.auditing.report import Report
from tacit.auditing.scope import LENGTH, Scope
from tacit.auditing.search.coalitions import choose_by_size, count_coalitions, list_coalitions
from tacit.auditing.search.worst_case import WorstCase
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.errors import OPT_IN, UNKNOWN_OPT_IN, LeakRefused, NotAudited, NotLinear, TacitError
from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import PrivacyArgument
from tacit.core.suite import Party
from tacit.protocols import is_shipped

MOST_WORK, MOST_STEPS = 20_000, 128
"""Limits up to which settings are audited before a run: messages, shares and masks of a round times its steps, and
steps."""
QUICK_WORK = 10_000
"""The same limit for settings that an argument already decides. Below it an audit takes about a second."""
STILL_ROUNDS = 2
"""The least number of rounds over which static models are analysed."""
MOST_SCREENED = 2_000
"""The largest number of coalitions of one size that are all screened for exposed entries of sparse vectors."""
REMEMBERED = 256

_found: OrderedDict[Any, tuple[tuple[Report, str] | None, tuple[Remark, ...]]] = OrderedDict()


def preflight(
    protocol: Protocol,
    terms: Terms,
    *,
    adversary: int,
    rounds: int,
    vectors: Mapping[Party, NDArray[Any]] | None = None,
    length: int = LENGTH,
) -> tuple[Remark, ...]:
    """Raises LeakRefused, with the report, if settings expose a party's vector; returns notes otherwise.

    The analysis covers the worst case of dropouts, and drifting models. An exposure of static models is a note.
    Settings that are too large for an audit need an argument. With `allow_leaks` nothing is refused, and the notes say,
    as far as it is known, why there is neither an audit nor an argument.

    Args:
        protocol: The protocol.
        terms: Its settings, bound to the parties.
        adversary: Size of the coalitions to analyse besides single parties and the server.
        rounds: Number of rounds that the adversary observes.
        vectors: Vectors by whose size entries are selected, if the protocol does that.
        length: Length of the vectors. It matters if entries are selected; protocols that are not shipped are run on it.

    Raises:
        LeakRefused: If a party's vector is exposed.
        NotAudited: If there is neither an audit nor an argument.
    """
    # The baselines are documented to leak by design.
    if protocol.leaks_by_design:
        return ()
    if terms.settings.allow_leaks:
        return _find_gaps(protocol, terms, adversary, rounds, length)
    if (long := too_long(protocol, terms)) or _count_work(protocol, terms) > QUICK_WORK:
        argument = _find_argument(protocol, terms, adversary, rounds)
        if argument is not None and not argument.exposes:
            own = argument.statement
            return (Remark.of(NoteCode.TOO_LONG, argument=argument.name, statement=own, **argument.facts),)
        if argument is not None and long:
            raise LeakRefused(render_argued_refusal(protocol.name, argument, terms.settings), detail=OPT_IN)
        if long:
            raise NotAudited(render_unaudited(Remark.of(NoteCode.TOO_LONG, argument="")), detail=UNKNOWN_OPT_IN)
    if vectors is not None and terms.selective:
        refused, notes = _look(protocol, terms, adversary, rounds, vectors, length)
    else:
        refused, notes = _look_once(protocol, terms, adversary, rounds, length)
    if refused is not None:
        raise LeakRefused(refused[1], refused[0], detail=OPT_IN)
    if gaps := [note for note in notes if note.code in NOT_AUDITED_CODES]:
        raise NotAudited(render_unaudited(gaps[0]), detail=UNKNOWN_OPT_IN)
    return notes


def _look_once(
    protocol: Protocol, terms: Terms, adversary: int, rounds: int, length: int
) -> tuple[tuple[Report, str] | None, tuple[Remark, ...]]:
    """Returns the result of `_look`, cached by its arguments."""
    tried = length if terms.selective or not is_shipped(protocol) else LENGTH
    key = protocol, tuple(terms.parties), adversary, rounds, tried, msgspec.json.encode(terms.settings)
    if key not in _found:
        _found[key] = _look(protocol, terms, adversary, rounds, None, tried)
        while len(_found) > REMEMBERED:
            _found.popitem(last=False)
    return _found[key]


def _find_gaps(protocol: Protocol, terms: Terms, adversary: int, rounds: int, length: int) -> tuple[Remark, ...]:
    """Returns the reason why settings that may leak have neither an audit nor an argument.

    Shipped protocols whose audit is quick can be audited on request. Other protocols may be ones that the audit cannot
    analyse.
    """
    if too_long(protocol, terms):
        known = _find_argument(protocol, terms, adversary, rounds)
        return () if known is not None else (Remark.of(NoteCode.TOO_LONG, argument=""),)
    if is_shipped(protocol):
        return ()
    try:
        _, notes = _look_once(protocol, terms, adversary, rounds, length)
    except TacitError as error:  # For example, if no round ends with an average.
        return (Remark.of(NoteCode.FAILED, error=str(error)),)
    return tuple(note for note in notes if note.code in NOT_AUDITED_CODES)


def _find_argument(protocol: Protocol, terms: Terms, adversary: int, rounds: int) -> PrivacyArgument | None:
    """Returns an argument that decides about settings: one that shows an exposure, or else the best one that excludes
    it.

    Where dropouts make sums smaller, an argument about rounds without dropouts does not decide.
    """
    found = arguments_for(protocol, terms, adversary, rounds, "free")
    if (shown := next((each for each in found if each.exposes), None)) is not None:
        return shown
    best = best_argument(found)
    return None if best is None or not (best.dropouts or _needs_everybody(terms, adversary)) else best


def _needs_everybody(terms: Terms, adversary: int) -> bool:
    """Says whether dropouts make no sum smaller, whichever neighbours collude."""
    around = ((party, *islice(terms.peers(party), adversary - 1)) for party in terms.parties)
    return all(terms.worst_dropouts(members, 1) is None for members in around)


def too_long(protocol: Protocol, terms: Terms) -> bool:
    """Says whether an audit takes too long to wait for."""
    return _count_steps(protocol, terms) > MOST_STEPS or _count_work(protocol, terms) > MOST_WORK


def _count_steps(protocol: Protocol, terms: Terms) -> int:
    return max(len(terms.steps(kind)) for kind in protocol.messages)


def _count_work(protocol: Protocol, terms: Terms) -> int:
    """Returns an estimate of the number of messages, shares and masks in all steps of a round."""
    return _count_steps(protocol, terms) * terms.work


def evidence(protocol: Protocol, terms: Terms) -> Report | None:
    """Returns the report on the first party, or the server, that recovers a vector in one round.

    Returns None if none does, or if the audit would take too long.
    """
    if too_long(protocol, terms):
        return None
    scope = Scope(protocol, terms, 1, "free")
    singles = (kind.coalition for kind in choose_by_size(scope, 1)[0].kinds)
    found = exposure(Auditor(scope, rehearse=True), singles)
    return None if found is None else Auditor(scope).report(found)


def exposure(auditor: Auditor, coalitions: Iterable[tuple[Party, ...]]) -> tuple[Party, ...] | None:
    """Returns the first coalition that recovers a vector; None if none does."""
    return next((coalition for coalition in coalitions if auditor.assess(coalition).victims), None)


def _look(
    protocol: Protocol,
    terms: Terms,
    adversary: int,
    rounds: int,
    vectors: Mapping[Party, NDArray[Any]] | None,
    length: int,
) -> tuple[tuple[Report, str] | None, tuple[Remark, ...]]:
    """Returns the report to refuse settings with and the reason, or None; and the notes."""

    def scope(rounds: int, drift: Drift) -> Scope:
        return Scope(protocol, terms, rounds, drift, vectors=vectors, length=length)

    if terms.selective and (screened := _screen(scope(rounds, "free"), adversary)) is not None:
        return (screened, render_refusal(screened, terms.settings)), ()

    notes: list[Remark] = []
    several: list[tuple[Party, ...]] = []
    for sample in choose_by_size(scope(1, "free"), adversary):
        several += [kind.coalition for kind in sample.kinds]
        if not sample.exhaustive:
            counts = {"size": sample.size, "coalitions": sample.coalitions, "analysed": sample.covered}
            notes.append(Remark.of(NoteCode.COALITIONS_SAMPLED, **counts))
    suspects, worst_case, exposures = several, WorstCase(scope(rounds, "free")), list[EntryExposure]()
    try:
        # What nobody learns about static models, nobody learns about drifting ones, so most need no second audit.
        still = Auditor(scope(max(rounds, STILL_ROUNDS), "static"), rehearse=True, worst_case=worst_case)
        verdicts = {coalition: still.assess(coalition) for coalition in several}
        suspects = [coalition for coalition, verdict in verdicts.items() if verdict.victims]
        exposures += _list_exposures(still, [coalition for coalition in several if coalition not in suspects])
        if suspects:
            first = min(suspects, key=lambda coalition: verdicts[coalition].safe_rounds)
            within, victims = verdicts[first].safe_rounds + 1, tuple(verdicts[first].victims)
            notes.append(Remark.of(NoteCode.EXPOSED_IF_STATIC, rounds=within, members=first, victims=victims))
    except NotLinear as error:
        notes.append(Remark.of(NoteCode.PARTLY_NOT_LINEAR, error=str(error)))
    try:
        found = None
        if suspects:
            free = Auditor(scope(rounds, "free"), rehearse=True, worst_case=worst_case)
            found = exposure(free, suspects)
            exposures += _list_exposures(free, suspects)
        if found is not None:
            report = Auditor(scope(rounds, "free")).report(found)
            return (report, render_refusal(report, terms.settings)), ()
        if (worst := _worst(worst_case, several)) is not None:
            report, missing, contributors = worst
            return (report, render_refusal(report, terms.settings, missing, contributors)), ()
    except NotLinear as error:
        return None, (Remark.of(NoteCode.NOT_LINEAR, error=str(error)),)
    if exposures:
        notes.append(remark_selections(NoteCode.SELECTIONS, exposures))
    if missed := sum(not worst_case.is_covered(coalition) for coalition in several):
        notes.append(Remark.of(NoteCode.WORST_CASE_SKIPPED, skipped=missed, coalitions=len(several)))
    return None, tuple(notes)


def _list_exposures(auditor: Auditor, coalitions: Iterable[tuple[Party, ...]]) -> list[EntryExposure]:
    """Returns the exposed entries of sparse vectors for coalitions that were assessed; none if vectors are sent
    whole."""
    sparse = auditor.sparse
    return [] if sparse is None else [sparse.search(coalition).exposure for coalition in coalitions]


def _screen(scope: Scope, adversary: int) -> Report | None:
    """Returns the report on the coalition that recovers most entries of sparse vectors; None if no coalition recovers
    any."""
    auditor, protocol, parties = Auditor(scope), scope.protocol, scope.parties
    if auditor.sparse is None:
        return None
    for size in sorted({1, adversary}):
        if count_coalitions(protocol, parties, size) <= MOST_SCREENED:
            found = auditor.sparse.screen(list_coalitions(protocol, parties, size))
            report = None if found is None else auditor.report(found)
            if report is not None and report.victims:
                return report
    return None


def _worst(
    worst_case: WorstCase, coalitions: Iterable[tuple[Party, ...]]
) -> tuple[Report, list[Party], tuple[Party, ...]] | None:
    """Returns the report on a coalition that recovers a vector in the worst case, and the dropouts or the sample."""
    for coalition in coalitions:
        known = worst_case.knowledge(coalition) if worst_case.is_covered(coalition) else None
        if known is not None and known.victims:
            alone = known.run.scope
            report = Auditor(alone).report(worst_case.members(coalition))
            if report.victims:
                sample = known.run.contributors[0] if worst_case.is_sample(known) else ()
                return report, [fault.party or "" for fault in alone.faults], sample
    return None
