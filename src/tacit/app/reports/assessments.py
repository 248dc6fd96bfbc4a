"""Assessment templates filled from an audit: data-protection impact (GDPR) and differential privacy (NIST SP 800-226).

The audit answers what it measured. Every other question is left to whoever signs, and the report says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tacit.app.reports.audit_matrix import list_late_victims, seeds_by_victim
from tacit.app.reports.audit_sections import AuditData, find_parties
from tacit.auditing.findings import StepCode
from tacit.auditing.render.epsilon import PROOFS
from tacit.auditing.render.verdicts import ANONYMITY_SET
from tacit.core.average import format_count
from tacit.learn.scenario import Privacy
from tacit.privacy.epsilon_bounds import BoundKind

NOT_IN_AUDIT = "The audit has no answer."


class Answered(StrEnum):
    """Extent to which an audit answers a question."""

    YES = "answered"
    PARTLY = "in part"
    NO = "no answer"


@dataclass(frozen=True)
class AssessmentRow:
    """One question of an assessment, with the audit's answer."""

    question: str
    answer: Sequence[str]
    answered: Answered = Answered.YES


@dataclass(frozen=True)
class AssessmentPart:
    """Questions of an assessment under one heading."""

    heading: str
    rows: Sequence[AssessmentRow]


@dataclass(frozen=True)
class RunFacts:
    """Facts of a training run that its audit does not have."""

    rounds: int = 0
    score: str = ""
    """Last test score, in words."""
    epsilon: float | None = None
    """Largest ε that a party has spent."""
    privacy: Privacy | None = None


def _open(question: str) -> AssessmentRow:
    return AssessmentRow(question, [NOT_IN_AUDIT], Answered.NO)


# --- data-protection impact assessment -------------------------------------------------------------------------------


def assess_impact(audit: AuditData) -> list[AssessmentPart]:
    """Returns the parts of a data-protection impact assessment, by Article 35(7) of the GDPR."""
    return [
        AssessmentPart("Description of the processing (Article 35(7)(a))", list(_describe_processing(audit))),
        AssessmentPart("Necessity and proportionality (Article 35(7)(b))", list(_judge_necessity(audit))),
        AssessmentPart("Risks for people (Article 35(7)(c))", list(_list_risks(audit))),
        AssessmentPart("Measures (Article 35(7)(d))", list(_list_measures(audit))),
        AssessmentPart(
            "Consultation",
            [
                _open("What does the data protection officer advise (Article 35(2))?"),
                _open("What do the people concerned, or their representatives, say (Article 35(9))?"),
                _open("Does a high risk remain, so that the authority must be consulted first (Article 36)?"),
            ],
        ),
    ]


def _describe_processing(audit: AuditData) -> Iterator[AssessmentRow]:
    parties = find_parties(audit)
    if "app" in audit:
        what = [f"The Flower app {audit['app']} averages the models of its nodes by: {audit['averages']}."]
    else:
        count = format_count(len(parties), "party averages its vector", "parties average their vectors")
        what = [f"{count} by {audit['protocol']} ({audit['summary']})."]
    yield AssessmentRow("What is computed?", what)
    yield AssessmentRow(
        "What leaves a party's machine?",
        ["Messages of the protocol, made from model vectors. The protocols send no training samples."],
        Answered.PARTLY,
    )
    if trusted := list(audit.get("trusted", ())):
        yield AssessmentRow("Who is trusted with what?", trusted)
    yield _open("What is the purpose, and what is the legal basis?")
    yield _open("Whose data are processed, and which categories of data?")
    yield _open("How long are data, models and logs kept, and who receives the final model?")


def _judge_necessity(audit: AuditData) -> Iterator[AssessmentRow]:
    smallest = min((report["smallest_group"] for report in audit["reports"]), default=None)
    if any(map(seeds_by_victim, audit["reports"])):
        smallest = 1
    if smallest is not None:
        words = "1: somebody's vector stands out" if smallest == 1 else f"{smallest} parties"
        measured = (
            f"The smallest {ANONYMITY_SET} in the findings is {words}. Whether that suffices is to be judged here."
        )
        yield AssessmentRow("Is as little as possible shown of each party?", [measured], Answered.PARTLY)
    yield _open("Could the purpose be reached with less data, or without personal data?")
    yield _open("How are people informed, and how can they access, correct or erase their data?")


def _list_risks(audit: AuditData) -> Iterator[AssessmentRow]:
    static = audit.get("still")
    verdict = [audit["verdict"], *([f"If models were static: {static['verdict']}"] if static else [])]
    yield AssessmentRow("Can another party, the server or a coalition recover a party's vector?", verdict)
    yield AssessmentRow("Under which assumptions was this analysed?", list(audit["assumed"]))
    yield AssessmentRow("What if more parties drop out?", *_describe_dropouts(audit["reports"]))
    epsilon = find_epsilon(audit["reports"])
    if epsilon is None:
        average = "Nothing limits this: no ε follows from the settings."
    else:
        average = f"The noise limits it: {epsilon}."
    yield AssessmentRow("Can something about a person be inferred from the averages?", [average], Answered.PARTLY)
    yield AssessmentRow("Which risks were not analysed?", list(audit["not_covered"]), Answered.PARTLY)
    yield _open("How severe and how likely is each risk for people?")


def _describe_dropouts(reports: Sequence[Mapping[str, Any]]) -> tuple[list[str], Answered]:
    """Returns what more dropouts would change. One round by itself says nothing about several rounds together."""
    fewest = [report["fewest"] for report in reports if report["fewest"] is not None]
    coverage = [report.get("coverage", {}) for report in reports]
    recovering = [victims for report in reports if (victims := list_late_victims(report))]
    if any(map(seeds_by_victim, reports)):
        late = dict.fromkeys(victim for victims in recovering for victim in victims)
        more = [f"In one round with {min(fewest)} contributors, so are those of {', '.join(late)}."] if late else []
        return ["Vectors are recovered without further dropouts (see the findings).", *more], Answered.YES
    if any(report["at_worst"] is None for report in reports):
        return ["The round with the fewest contributors was not analysed for every adversary."], Answered.PARTLY
    if all(each.get("argument") for each in coverage) and not recovering:
        return ["No vector is recovered, whoever drops out. This is proved (see Coverage)."], Answered.YES
    if not fewest:
        return ["No further dropouts are possible: the round then ends without an average."], Answered.YES
    if recovering:
        late = dict.fromkeys(victim for victims in recovering for victim in victims)
        some = format_count(len(recovering), "adversary recovers", "adversaries recover")
        return [
            f"In one round with {min(fewest)} contributors, the fewest allowed, {some} vectors: {', '.join(late)}."
        ], Answered.YES
    one = f"One round with {min(fewest)} contributors, the fewest that the settings allow, exposes nobody."
    if any(each.get("uncompared") for each in coverage):
        return [one, "Rounds with different contributors were not compared. Ask again with --dropout."], Answered.PARTLY
    if any(report["rounds"] > 1 and report.get("drawings", 0) for report in reports):
        return [one, "Of the rounds together, some patterns of dropouts were tried, and not all."], Answered.PARTLY
    return [one], Answered.YES


def _list_measures(audit: AuditData) -> Iterator[AssessmentRow]:
    if "settings" in audit:
        changed = "All settings are listed in this report under Settings."
        yield AssessmentRow("Which settings protect the vectors?", [changed])
    yield AssessmentRow("Which noise is added?", [_describe_noise(audit)])
    steps = [
        f"{each['why'][:1].upper()}{each['why'][1:]}: {each['command']}"
        for each in audit["next"]
        if not (
            audit["exposed"] and each.get("code") in (StepCode.WITH_SLIGHT_DRIFT, StepCode.WITH_DRIFT)
        )  # an assumption, and no measure
    ]
    question = (
        "Which settings would protect more?" if audit["exposed"] else "Which harder questions can be audited next?"
    )
    if steps:
        yield AssessmentRow(question, steps, Answered.PARTLY)
    yield _open("Which organisational measures apply: contracts, access to machines and keys, training?")
    yield _open("Which risk remains, and who accepts it?")


def _find_noise(audit: AuditData) -> float | None:
    """Returns the standard deviation of the noise of each party; None if it is not known, as in files of Tacit 0.2."""
    known: list[float] = [report["noise"] for report in audit["reports"] if "noise" in report]
    setting: float | None = audit.get("settings", {}).get("noise")
    return max(known) if known else setting


def _describe_noise(audit: AuditData) -> str:
    noise = _find_noise(audit)
    if noise is None:
        return NOT_IN_AUDIT
    if not noise:
        return "None. The settings of this audit add no noise."
    return f"Each party adds noise of standard deviation {noise:g} to every entry of its vector, in every round."


# --- differential privacy --------------------------------------------------------------------------------------------


def find_epsilon(reports: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the largest ε of some reports in words, with its worst case; None if there is none."""
    bounds = [report for report in reports if report["epsilon"] is not None]
    if not bounds:
        return None
    most = max(bounds, key=lambda report: report["epsilon"])
    worst = max((report.get("epsilon_at_worst") or 0.0 for report in bounds), default=0.0)
    more = f", and {worst:.3g} with the fewest contributors" if worst > most["epsilon"] else ""
    rounds = format_count(most["rounds"], "round")
    return f"ε = {most['epsilon']:.3g} at δ = {most['delta']:g} over {rounds}{more}"


def assess_privacy_claims(audit: AuditData, run: RunFacts | None = None) -> list[AssessmentRow]:
    """Returns the questions about a claim of differential privacy, by the topics of NIST SP 800-226.

    Args:
        audit: The audit as plain data.
        run: Facts of the training run, if the audit is of one.
    """
    run = run or RunFacts()
    reports, settings = audit["reports"], audit.get("settings", {})
    epsilon = find_epsilon(reports)
    rows = list(_describe_guarantee(reports, settings, epsilon, run) if epsilon or run.privacy else _deny(audit))
    if run.score:
        utility = AssessmentRow(
            "Is the result accurate enough?", [f"{run.score}. Whether that is enough is to be judged."]
        )
    else:
        utility = _open("Is the result accurate enough?")
    return [
        *rows,
        utility,
        _open("Does the noise affect groups of people unequally (bias)?"),
        AssessmentRow(
            "Is the algorithm implemented correctly?",
            [
                "The audit runs the deployed code on unknowns, and tries recipes on recorded messages of a test run.",
                "It does not prove the code that draws the noise.",
            ],
            Answered.PARTLY,
        ),
        AssessmentRow(
            "Can side channels reveal data?",
            [
                "Not analysed: timing, memory and other side channels of the machines.",
                "Whoever carries messages sees addresses, times and lengths.",
            ],
            Answered.NO,
        ),
        AssessmentRow(
            "How are data secured, and who has access?",
            [
                "Messages are sealed from party to party.",
                "The audit says nothing about the parties' machines, keys, files and backups.",
            ],
            Answered.PARTLY,
        ),
        _open("Which risks come from collecting the data in the first place?"),
    ]


def _deny(audit: AuditData) -> Iterator[AssessmentRow]:
    """Yields why there is no claim."""
    noise = _find_noise(audit)
    if noise is None:
        why = "No. The audit has no ε."
    elif noise:
        why = f"No. Noise is added (σ = {noise:g}), but without a bound on vectors (norm) no ε follows from it."
    else:
        why = "No. The settings add no noise, so there is no ε. Masks hide vectors, and not what their average tells."
    yield AssessmentRow("Is differential privacy claimed?", [why])
    for question in (
        "What are ε and δ?",
        "What is the unit of privacy?",
        "How do rounds, and other releases of the same data, add up?",
        "Who adds the noise, and who is trusted to do so (trust model)?",
    ):
        yield AssessmentRow(question, ["Does not apply without a claim."], Answered.YES)


def _describe_guarantee(
    reports: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], epsilon: str | None, run: RunFacts
) -> Iterator[AssessmentRow]:
    yield AssessmentRow("Is differential privacy claimed?", ["Yes, under the assumptions of this report."])
    bounds = [f"{epsilon}, against the adversary that it limits least among those analysed."] if epsilon else []
    if run.privacy is not None:
        target = f"Planned for the run: ε = {run.privacy.epsilon:g} at δ = {run.privacy.delta:g}."
        if run.privacy.sigma == "paper":
            target = "The run has the noise of paper 003's formula, which is known to be too low for the planned ε."
        spent = (
            "" if run.epsilon is None else f" Spent after {format_count(run.rounds, 'round')}: ε = {run.epsilon:.3g}."
        )
        bounds.append(f"{target}{spent}")
    yield AssessmentRow("What are ε and δ?", bounds)
    yield AssessmentRow("What is the unit of privacy?", *_describe_unit(settings, run.privacy))
    yield AssessmentRow(
        "Which data sets count as neighbours?",
        ["Those that differ in one unit, which is replaced by another. Who takes part is not secret."],
    )
    if proofs := dict.fromkeys(report["epsilon_bound"] for report in reports if report.get("epsilon_bound")):
        named = "; ".join(PROOFS[BoundKind(proof)] for proof in proofs)
        yield AssessmentRow(
            "How is ε proved?",
            [
                f"By {named}.",
                "The proofs are for exact draws. The sampler is within 2⁻⁵⁷ of them in total variation, for each draw; "
                "that is not in ε.",
            ],
        )
    rounds = max((report["rounds"] for report in reports), default=run.rounds)
    yield AssessmentRow(
        "How do rounds, and other releases of the same data, add up?",
        [
            f"ε of the audit is for {format_count(rounds, 'round')} together.",
            "Other runs and releases of the same data are not in it. A ledger (tacit ledger) adds up those of Tacit.",
        ],
        Answered.PARTLY,
    )
    yield AssessmentRow("Who adds the noise, and who is trusted to do so (trust model)?", _describe_trust(reports, run))


def _describe_unit(settings: Mapping[str, Any], privacy: Privacy | None) -> tuple[list[str], Answered]:
    if privacy is not None and privacy.unit == "sample":
        return [f"One sample. Each sample's gradient is clipped to length {privacy.clip:g}."], Answered.YES
    norm = privacy.clip if privacy is not None else settings.get("norm")
    if norm is None:
        return [NOT_IN_AUDIT], Answered.NO
    moved = f"Each party's vector is shortened to length {norm:g} (L2), so one replaced party moves it by {2 * norm:g}."
    return [
        "All data of one party.",
        moved,
        "If a party holds data of many people, each of them is covered.",
    ], Answered.YES


def _describe_trust(reports: Sequence[Mapping[str, Any]], run: RunFacts) -> list[str]:
    if run.privacy is not None and run.privacy.noise == "central":
        return ["A server that is trusted with the sum adds the noise once."]
    counted = [report["company"] for report in reports if report["epsilon"] is not None and report.get("company")]
    lines = ["Each party adds noise to its own vector before anything is sent."]
    if counted:
        few = min(counted)
        honest = format_count(few, "party", "parties")
        lines.append(f"ε counts the noise of {honest}. The parties behind it must add it, and must not reveal it.")
    return lines
