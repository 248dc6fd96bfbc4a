"""Summary of the reports on one question: overall verdict, assumptions, gaps and next steps, as typed findings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tacit.auditing.findings import (
    AssumptionCode,
    GapCode,
    Remark,
    Step,
    StepCode,
    Verdict,
    remark_selections,
    worst_verdict,
)
from tacit.auditing.questions import Question
from tacit.auditing.report import Report
from tacit.core.suite import SERVER
from tacit.protocols import REGISTRY

MANY = 10
"""Number of rounds that the next question proposes, if the last one had a single round."""
SOME = 0.1
"""Dropout probability, or drift of an entry, that the next question proposes if the last one had none."""


@dataclass(frozen=True)
class Summary:
    """Findings of all reports on one question."""

    reports: tuple[Report, ...]
    verdict: Verdict
    """Most severe verdict of the reports."""
    assumptions: tuple[Remark, ...]
    """Assumptions that the verdict rests on."""
    gaps: tuple[Remark, ...]
    """Attacks and inferences that the audit does not cover."""
    steps: tuple[Step, ...]
    """Commands to run next."""
    undecided: Remark | None = None
    """Reason for an undecided verdict that is not in the reports."""
    needs_drift: bool = False
    """Whether the verdict holds only as long as models drift."""
    part: tuple[int, int] | None = None
    """Number of rounds that were analysed, and number of all, if only the first ones were."""

    @property
    def exposed(self) -> bool:
        """Whether a party is exposed, be it only in the worst case, or this could not be excluded."""
        return self.verdict.leaks


def summarize_reports(reports: Sequence[Report], question: Question) -> Summary:
    """Returns the findings of the reports on one question."""
    verdict = worst_verdict(report.verdict for report in reports)
    steps = _steps_after_exposure(question) if verdict.leaks else _harder_questions(reports, question)
    return Summary(
        tuple(reports), verdict, tuple(_assumptions(reports, question)), tuple(_gaps(reports, question)), tuple(steps)
    )


# --- assumptions ---------------------------------------------------------------------------------------------------


def _assumptions(reports: Sequence[Report], question: Question) -> Iterator[Remark]:
    code, remark, first = AssumptionCode, Remark.of, reports[0]
    fewest = min((report.fewest for report in reports if report.fewest is not None), default=None)
    if first.faults:
        yield remark(code.FAULTS, faults=first.faults, fewest=None if first.dropout else fewest)
    if first.dropout:
        yield remark(code.DROPOUTS, probability=first.dropout, fewest=fewest, argument=_find_argument(reports))
    elif not first.faults:
        uncompared = any(report.uncompared for report in reports)
        argument = _find_argument(reports) if first.rounds > 1 else ""
        yield remark(code.NO_DROPOUTS, fewest=fewest, rounds=first.rounds, uncompared=uncompared, argument=argument)
    if not _find_argument(reports):
        yield from _seed_assumptions(reports)
    yield _collusion(reports)
    coverage = first.coverage
    yield remark(
        code.ROUNDS,
        rounds=coverage.rounds,
        analysed=coverage.rounds_analysed,
        with_average=coverage.rounds_with_average,
    )
    if first.rounds > 1:
        yield _drift_assumption(first, question)
    if first.noise:
        yield remark(code.NOISE, sigma=first.noise)
    if question.prior is not None:
        yield remark(code.PRIOR, sigma=question.prior)
    yield remark(code.SEMI_HONEST)
    if first.known_draws:
        yield remark(code.KNOWN_DRAWS, names=first.known_draws)
    if exposures := [report.sparse for report in reports if report.sparse is not None]:
        yield remark_selections(code.SELECTIONS, exposures)
    if question.open_links:
        yield remark(code.OPEN_LINKS)


def _find_argument(reports: Sequence[Report]) -> str:
    """Returns the argument that covers all dropouts and samples; empty if some report has none, or exposes somebody."""
    covered = all(report.argument and report.verdict is Verdict.HOLDS for report in reports)
    return ", ".join(dict.fromkeys(report.argument for report in reports)) if covered else ""


def _seed_assumptions(reports: Sequence[Report]) -> Iterator[Remark]:
    """Yields the seeds with which participation, or numbers that count as known, were sampled."""
    first = reports[0]
    seed = first.seed if first.first_seed is None else first.first_seed
    seeds = min(report.seeds_tried for report in reports)
    if seeds == 1:
        yield Remark.of(AssumptionCode.ONE_SEED, seed=seed, dropouts=bool(first.dropout), drawn=first.known_draws)
    elif seeds:
        last = seed + seeds - 1
        yield Remark.of(
            AssumptionCode.SEEDS,
            seeds=seeds,
            first=seed,
            last=last,
            dropouts=bool(first.dropout),
            drawn=first.known_draws,
        )


def _collusion(reports: Sequence[Report]) -> Remark:
    if len(reports) == 1:
        return Remark.of(AssumptionCode.COALITION, members=reports[0].coalition)
    server, largest = any(SERVER in report.coalition for report in reports), largest_coalition(reports)
    if largest == 1:
        return Remark.of(AssumptionCode.EACH_ALONE, server=server)
    return Remark.of(AssumptionCode.ANY_OF_SIZE, size=largest, server=server)


def _drift_assumption(report: Report, question: Question) -> Remark:
    if report.drift == "static":
        return Remark.of(AssumptionCode.STATIC)
    if report.drift == "free":
        return Remark.of(AssumptionCode.FRESH)
    entry = REGISTRY.get(question.protocol)
    clip = None if entry is None else entry.settings_from(dict(question.options)).clip
    return Remark.of(AssumptionCode.DRIFTING, sigma=report.drift, clip=clip)


def largest_coalition(reports: Sequence[Report]) -> int:
    """Returns the size of the largest coalition in some reports."""
    return max(len(report.coalition) for report in reports)


# --- gaps ----------------------------------------------------------------------------------------------------------


def _gaps(reports: Sequence[Report], question: Question) -> Iterator[Remark]:
    epsilon = max((report.epsilon for report in reports if report.epsilon is not None), default=None)
    if epsilon is None:
        yield Remark.of(GapCode.AVERAGE)
    else:
        yield Remark.of(GapCode.AVERAGE_WITH_NOISE, epsilon=epsilon)
    entry = REGISTRY.get(question.protocol)
    yield Remark.of(GapCode.MALICIOUS, searchable=entry is not None and "lies" in entry.attacks)
    yield Remark.of(GapCode.PRIOR_KNOWLEDGE)
    yield Remark.of(GapCode.METADATA)
    if reports[0].sparse is not None:
        yield Remark.of(GapCode.SELECTED_ENTRIES)
    if any(report.uncompared for report in reports):
        yield Remark.of(GapCode.DIFFERENT_CONTRIBUTORS)


# --- next steps ----------------------------------------------------------------------------------------------------


def _steps_after_exposure(question: Question) -> Iterator[Step]:
    entry = REGISTRY.get(question.protocol)
    if entry is None:
        return
    options = dict(question.options)
    remedy = entry.settings_from(options).remedy(dropouts=False)
    if remedy is not None and remedy.value is not None:
        command = replace(question, options={**options, remedy.option: remedy.value}).command
        yield Step(StepCode.OTHER_SETTING, command, (("option", remedy.option),))
    if other := entry.alternative:
        command = replace(question, protocol=other, options={}).command
        yield Step(StepCode.OTHER_PROTOCOL, command, (("protocol", other),))
    if question.rounds > 1 and question.drift == "static":
        yield Step(StepCode.WITH_SLIGHT_DRIFT, replace(question, drift=SOME).command)
    if question.rounds > 1 and question.drift != "free":
        yield Step(StepCode.WITH_DRIFT, replace(question, drift="free").command)
    colluding = max(question.coalition_size or 1, len(question.coalition or ()))
    if colluding <= question.parties - 2:  # With all but one other colluding, no average hides the last party.
        size = f" --coalition-size {colluding}" if colluding > 1 else ""
        command = f"tacit plan {question.parties}{size} --rounds {question.rounds} --dropout {question.dropout:g}"
        yield Step(StepCode.PLAN, command)


def _harder_questions(reports: Sequence[Report], question: Question) -> Iterator[Step]:
    rounds = max(question.rounds, MANY)
    entry = REGISTRY.get(question.protocol)
    if not question.dropout and not (entry is not None and entry.needs_everybody) and not _find_argument(reports):
        yield Step(StepCode.WITH_DROPOUTS, replace(question, dropout=SOME, rounds=rounds).command)
    elif question.rounds == 1:
        yield Step(StepCode.MORE_ROUNDS, replace(question, rounds=rounds).command)
    if question.drift != "static":
        yield Step(StepCode.STATIC, replace(question, drift="static").command)
    larger = _larger_coalition(reports, question)
    if larger is not None:
        yield Step(StepCode.LARGER_COALITION, larger.command)


def _larger_coalition(reports: Sequence[Report], question: Question) -> Question | None:
    """Returns the question with one colluding party more, if two others remain to hide each other; otherwise None."""
    members = max((report.coalition for report in reports), key=len)
    parties = reports[0].parties
    if len(set(members) & set(parties)) + 1 > len(parties) - 2:
        return None
    unspecified = question.coalition is None and question.coalition_size is None
    if unspecified and any(SERVER in each.coalition for each in reports):
        return replace(
            question, coalition=(SERVER, question.names[0])
        )  # The coalition of two that is analysed fastest.
    if question.coalition is None:
        return replace(question, coalition_size=(question.coalition_size or 1) + 1)
    newcomer = next(name for name in question.names if name not in question.coalition)
    return replace(question, coalition=(*question.coalition, newcomer))
