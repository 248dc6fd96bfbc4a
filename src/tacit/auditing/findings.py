"""Typed findings of the auditor: verdicts, coverage, and remarks with stable codes.

Decisions (exit codes, colours, refusals, files) read these types. Sentences are made from them in `render/` alone, so a
sentence can be reworded without changing what the program does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from tacit.auditing.symbolic.simulation import Drift
from tacit.core.suite import Party
from tacit.privacy.epsilon_bounds import EpsilonBound
from tacit.privacy.matrix.accountant import PartyShare


class Verdict(StrEnum):
    """Verdict of an audit. The values are stable codes, which JSON contains too."""

    EXPOSED = "exposed"
    """A coalition recovers somebody's vector."""
    EXPOSED_IN_WORST_CASE = "exposed_in_worst_case"
    """A coalition recovers a vector only if the most parties drop out that the settings allow, or with another seed."""
    NEARLY_EXPOSED = "nearly_exposed"
    """A coalition does not recover a vector exactly, but so closely that it makes no difference."""
    UNDECIDED = "undecided"
    """An exposure could not be ruled out."""
    NOTHING_FOUND = "nothing_found"
    """The analysis found no exposure, and did not cover everything."""
    HOLDS = "holds"
    """No coalition recovers a vector, and the analysis, or a proved argument, covers everything that was asked."""
    LEAKS_BY_DESIGN = "leaks_by_design"
    """The protocol is a baseline that hides nothing."""
    NOT_AUDITED = "not_audited"
    """There was no audit."""

    @property
    def clear(self) -> bool:
        """Whether the audit found nothing against it."""
        return self in (Verdict.HOLDS, Verdict.NOTHING_FOUND)

    @property
    def leaks(self) -> bool:
        """Whether somebody is exposed, or an exposure could not be ruled out."""
        return not self.clear and self is not Verdict.NOT_AUDITED


SEVERITY = (
    Verdict.LEAKS_BY_DESIGN,
    Verdict.EXPOSED,
    Verdict.NEARLY_EXPOSED,
    Verdict.EXPOSED_IN_WORST_CASE,
    Verdict.UNDECIDED,
    Verdict.NOT_AUDITED,
    Verdict.NOTHING_FOUND,
    Verdict.HOLDS,
)
"""Verdicts from the worst to the best."""


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the most severe of several verdicts; `NOT_AUDITED` if there are none."""
    return min(verdicts, key=SEVERITY.index, default=Verdict.NOT_AUDITED)


class AttackVerdict(StrEnum):
    """Result of an attack on one target. A failed attack shows only that this attack fails, never security."""

    BROKEN = "broken"
    NOT_BROKEN_BY_THIS = "not_broken_by_this"


class ClaimVerdict(StrEnum):
    """Relation of a paper's claim to the audit of one setting."""

    NOT_APPLICABLE = "not_applicable"
    """The claim is not about this setting."""
    CLAIMED = "claimed"
    """The claim is about this setting, which was not audited."""
    HOLDS = "holds"
    REFUTED = "refuted"


class NoteCode(StrEnum):
    """Code of a note on an audit."""

    ROUNDS_NOT_ANALYSED = "rounds_not_analysed"
    NO_AVERAGE = "no_average"
    LOST_IN_ROUNDING = "lost_in_rounding"
    ONLY_SUMS = "only_sums"
    NOT_REPLAYED = "not_replayed"
    UNMASKED_WITHOUT_RECIPE = "unmasked_without_recipe"
    REPLAY_FAILED = "replay_failed"
    NOISE_OF_ONE = "noise_of_one"
    TOO_LONG = "too_long"
    NOT_LINEAR = "not_linear"
    PARTLY_NOT_LINEAR = "partly_not_linear"
    FAILED = "failed"
    COALITIONS_SAMPLED = "coalitions_sampled"
    SELECTIONS = "selections"
    EXPOSED_IF_STATIC = "exposed_if_static"
    WORST_CASE_SKIPPED = "worst_case_skipped"


NOT_AUDITED_CODES = frozenset({NoteCode.TOO_LONG, NoteCode.NOT_LINEAR, NoteCode.FAILED})
"""Notes that say why there was no audit."""


class AccountingMethod(StrEnum):
    """Method that gave the reported ε: the smaller of two proved bounds."""

    SMALLEST_SUM = "smallest_sum"
    """Every round counts with the noise of the fewest parties behind anything that the coalition sees."""
    MATRIX = "matrix"
    """The rows that the coalition sees and that honest parties train on were accounted together."""


class AccountingGap(StrEnum):
    """Reason why the matrix accountant gives no ε."""

    NOT_LINEAR = "not_linear"
    """What the coalition sees, or what a party trains on, is no linear form."""
    FACTORS_DRAWN = "factors_drawn"
    """Parties multiply by secret numbers, and one draw of them says nothing of others."""
    ENTRIES_DIFFER = "entries_differ"
    """Entries of a vector are treated differently."""
    WITHIN_ROUND = "within_round"
    """A party encodes what it received in the same round."""
    ROUND_FAILED = "round_failed"
    """A round failed, and what parties train on afterwards is not known."""
    STAND_INS = "stand_ins"
    """Some parties run other programs, and the accountant assumes that all follow the protocol."""
    ROUNDING = "rounding"
    """Rounding moves a vector by more than its data can."""
    ROUNDED = "rounded"
    """Noisy values are rounded again on their way, so only a party's own noise is proved to hide its vector."""
    TOO_LARGE = "too_large"
    """The run has too many messages, shares and masks."""


@dataclass(frozen=True)
class Accounting:
    """How the ε of a report was computed."""

    method: AccountingMethod
    by_sums: EpsilonBound
    """The bound that counts the noise of the fewest parties in every round."""
    by_matrix: EpsilonBound | None = None
    """The bound of the matrix accountant; None if it gives none."""
    gap: AccountingGap | None = None
    """Why the matrix accountant gives no bound."""
    victim: Party | None = None
    """The party of which most is seen."""
    leverage: float | None = None
    """The number of vectors that would show as much of the victim if they were seen alone."""
    view_only: EpsilonBound | None = None
    """The bound if contributions were fixed in advance. Where parties train on what they receive it is not proved."""
    shares: tuple[PartyShare, ...] | None = field(default=None, repr=False)
    """How much is seen of every honest party's vectors, whatever their noise; None if there is no account."""


class AssumptionCode(StrEnum):
    """Code of an assumption that a verdict rests on."""

    ROUNDS_LIMITED = "rounds_limited"
    FAULTS = "faults"
    NO_DROPOUTS = "no_dropouts"
    DROPOUTS = "dropouts"
    ONE_SEED = "one_seed"
    SEEDS = "seeds"
    COALITION = "coalition"
    EACH_ALONE = "each_alone"
    ANY_OF_SIZE = "any_of_size"
    ROUNDS = "rounds"
    STATIC = "static"
    FRESH = "fresh"
    DRIFTING = "drifting"
    NOISE = "noise"
    PRIOR = "prior"
    SEMI_HONEST = "semi_honest"
    SELECTIONS = "selections"
    OPEN_LINKS = "open_links"
    KNOWN_DRAWS = "known_draws"
    COALITIONS_SAMPLED = "coalitions_sampled"
    REPRESENTATIVE = "representative"
    FAULTS_NOT_REPEATED = "faults_not_repeated"


class GapCode(StrEnum):
    """Code of something that an audit does not cover."""

    AVERAGE = "average"
    AVERAGE_WITH_NOISE = "average_with_noise"
    MALICIOUS = "malicious"
    PRIOR_KNOWLEDGE = "prior_knowledge"
    METADATA = "metadata"
    SELECTED_ENTRIES = "selected_entries"
    DIFFERENT_CONTRIBUTORS = "different_contributors"


class StepCode(StrEnum):
    """Code of a next step that a report proposes."""

    OTHER_SETTING = "other_setting"
    OTHER_PROTOCOL = "other_protocol"
    WITH_SLIGHT_DRIFT = "with_slight_drift"
    WITH_DRIFT = "with_drift"
    PLAN = "plan"
    WITH_DROPOUTS = "with_dropouts"
    NODES_DROP_OUT = "nodes_drop_out"
    MORE_ROUNDS = "more_rounds"
    STATIC = "static"
    LARGER_COALITION = "larger_coalition"


class UndecidedCode(StrEnum):
    """Code of a reason for an undecided verdict, other than the number of parties."""

    APP_NOT_READ = "app_not_read"
    SAMPLING_NOT_ANALYSED = "sampling_not_analysed"
    SMALL_SUMS = "small_sums"


@dataclass(frozen=True)
class Remark:
    """One statement of a report: a stable code and its parameters. `render/` turns it into a sentence."""

    code: StrEnum
    """Member of an enumeration of this module, or of one of an integration."""
    parameters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, code: StrEnum, **parameters: Any) -> "Remark":
        """Returns a remark with some parameters."""
        return cls(code, tuple(parameters.items()))

    def __getitem__(self, name: str) -> Any:
        """Returns a parameter by its name."""
        return dict(self.parameters)[name]

    def plain(self) -> dict[str, Any]:
        """Returns the remark as plain data."""
        return {"code": self.code.value, **dict(self.parameters)}


Sentences: TypeAlias = Mapping[StrEnum, Callable[["Remark"], str]]
"""Table of a renderer: how each code is put in words."""


@dataclass(frozen=True)
class Step:
    """A proposed next step: a code, and the command to run."""

    code: StepCode
    command: str
    parameters: tuple[tuple[str, Any], ...] = ()


class PatternBasis(StrEnum):
    """Code of how often the selections of a sparse vector occur, as an audit counts them."""

    PROBABILITY = "probability"
    """Chance selects entries. The probabilities of all selections are computed."""
    ASSUMED = "assumed"
    """Vectors that were not given select entries. Parties are assumed to select them independently, at their share."""
    VECTORS = "vectors"
    """The given vectors select entries. All of them are counted."""
    SAMPLED = "sampled"
    """Too many selections, or an unknown rule: some are sampled."""


LEAST_PROBABILITY = 1e-6
"""Probability of at least one exposed entry from which on a coalition counts as exposing somebody."""
CONFIDENCE = 0.999
"""Confidence of the upper bound on the probability that an entry is exposed, where selections are sampled."""


@dataclass(frozen=True)
class EntryExposure:
    """Entries of sparse vectors that one coalition recovers, over all entries of a model."""

    basis: PatternBasis
    """How selections are counted."""
    length: int
    """Entries of a vector."""
    rounds: int
    """Number of rounds that are counted."""
    exposed_entries: float
    """Expected number of entries at which somebody is exposed, over all rounds; exact if vectors are given."""
    probability: float
    """Probability that there is at least one such entry."""
    by_victim: Mapping[str, float]
    """Expected number of exposed entries of each party that has any."""
    patterns: int
    """Number of selections that were analysed. One may stand for many that are alike."""
    vectors: int = 1
    """Number of vectors that each party contributes in these rounds: one if they are static."""
    most_entries: float | None = None
    """Upper bound on `exposed_entries` with confidence `CONFIDENCE`, if selections were sampled."""
    if_static: bool = False
    """Whether the numbers are those of static models, and so upper bounds for models that drift little."""
    exact: bool = False
    """Whether nothing was sampled or assumed, and the code is known to treat entries of a selection alike."""
    safe_rounds: int = 0
    """Number of rounds after which the probability is still below `LEAST_PROBABILITY`."""

    @property
    def exposes(self) -> bool:
        """Whether the probability is large enough to count."""
        return self.probability >= LEAST_PROBABILITY

    @property
    def fractions(self) -> dict[str, float]:
        """Expected fraction of the entries of each party that is exposed."""
        return {victim: count / (self.length * self.vectors) for victim, count in self.by_victim.items()}

    def plain(self) -> dict[str, Any]:
        """Returns the exposure as plain data."""
        return {**asdict(self), "by_victim": dict(self.by_victim), "exposes": self.exposes}


@dataclass(frozen=True)
class Coverage:
    """Part of a question that the report on one coalition analysed."""

    rounds: int
    """Number of rounds in question."""
    rounds_analysed: int
    """Number of rounds that were analysed."""
    rounds_with_average: int
    """Number of analysed rounds that ended with an average."""
    drift: Drift | float
    """How vectors change between rounds: "static", "free", or the standard deviation of an entry's change."""
    dropout: float = 0.0
    """Probability with which each party drops out of each round."""
    faults: int = 0
    """Number of faults that were injected besides dropouts."""
    seeds: int = 0
    """Number of seeds tried for who takes part; 0 if nothing is sampled."""
    worst_seed: bool = False
    """Whether the report is on the worst of these seeds."""
    sparse: EntryExposure | None = None
    """Selections that were analysed, where parties select entries; None if one entry stands for all."""
    fewest: int | None = None
    """Fewest contributors to a sum that the settings allow, if that worst case was analysed and is smaller."""
    worst_case: bool = False
    """Whether the worst case that the settings allow was analysed."""
    uncompared: bool = False
    """Whether dropouts, which the question leaves out, could make rounds with different contributors. Their sums were
    not compared."""
    argument: str = ""
    """Name of a proved argument that covers all rounds, dropouts and samples in question; empty if none does."""

    @property
    def exhaustive(self) -> bool:
        """Whether nothing of the question was sampled or left out, or an argument covers what was."""
        return self.computed or (bool(self.argument) and self.worst_case)

    @property
    def computed(self) -> bool:
        """Whether nothing of the question was sampled or left out."""
        return (
            self.rounds_analysed == self.rounds == self.rounds_with_average
            and not self.seeds
            and not self.uncompared
            and (self.sparse is None or (self.sparse.exact and not self.sparse.exposed_entries))
            and self.worst_case
        )

    def __str__(self) -> str:
        rounds = f"rounds={self.rounds_analysed}/{self.rounds} drift={self.drift} dropout={self.dropout:g}"
        patterns = "" if self.sparse is None else f" length={self.sparse.length} patterns={self.sparse.patterns}"
        return f"{rounds} faults={self.faults} seeds={self.seeds}{patterns} fewest={self.fewest}"

    def plain(self) -> dict[str, Any]:
        """Returns the coverage as plain data."""
        return {**asdict(self), "exhaustive": self.exhaustive}


@dataclass(frozen=True)
class PlanCoverage:
    """Part of all coalitions and rounds that the audit of a proposal analysed."""

    coalitions: int
    """Number of covered coalitions: those analysed, and those that a symmetry maps to one of them."""
    of_coalitions: int
    """Number of all coalitions of the size in question."""
    kinds: int
    """Number of coalitions that were analysed."""
    rounds: int
    """Number of rounds that were analysed."""
    of_rounds: int
    """Number of rounds in question."""
    dropout: float
    """Probability with which each party drops out of each round."""
    fewest: int | None
    """Fewest contributors to a sum in any analysed worst case; None if rounds do not get smaller."""

    @property
    def everything(self) -> bool:
        """Whether all coalitions and all rounds are covered."""
        return self.coalitions == self.of_coalitions and self.rounds == self.of_rounds


def remark_selections(code: StrEnum, exposures: Sequence[EntryExposure]) -> Remark:
    """Returns how the selections of sparse vectors were counted for some coalitions, with the largest numbers."""
    bases = [each.basis for each in exposures]
    return Remark.of(
        code,
        basis=max(bases, key=list(PatternBasis).index).value,
        length=exposures[0].length,
        probability=max(each.probability for each in exposures),
        most=max(each.exposed_entries if each.most_entries is None else each.most_entries for each in exposures),
    )


def plain_remarks(remarks: Iterable[Remark]) -> list[Mapping[str, Any]]:
    """Returns remarks as plain data."""
    return [each.plain() for each in remarks]
