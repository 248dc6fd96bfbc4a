"""Report on one coalition: whose vectors it recovers, how, and what was analysed."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.auditing.engine.multi_round import Together
from tacit.auditing.engine.recipes import Recipe, SumRecipe
from tacit.auditing.findings import Accounting, AccountingMethod, Coverage, EntryExposure, Remark, Verdict
from tacit.auditing.search.seeds import SeedResult
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.average import list_names
from tacit.core.suite import Party
from tacit.privacy.epsilon_bounds import EpsilonBound


@dataclass
class Report:
    """Findings of the audit on one coalition. `tacit.audit` returns it.

    >>> import tacit
    >>> report = tacit.audit("secagg", parties=4, coalition="server")
    >>> report.exposed, report.smallest_group
    ({}, 4)
    """

    protocol: str
    parties: tuple[Party, ...]
    coalition: tuple[Party, ...]
    rounds: int
    drift: Drift | float
    exposed: dict[Party, Recipe | SumRecipe | Together]
    """Parties whose vectors the coalition recovers, each with its recipe."""
    safe_rounds: int
    """Number of rounds after which nobody is exposed yet."""
    smallest_group: int
    """Anonymity set, the T of paper 002: the fewest parties whose contributions the coalition cannot tell apart. It is
    the number of all parties if the coalition can compute nothing. It is 1 if some party stands out, exposed or not. It
    is at most the size of a sum that shows as many `bits`: ½ log₂(T/(T − 1)) of each entry."""
    bits: dict[Party, float] = field(default_factory=dict)
    """Most bits that the coalition knows of an entry of each other party; empty if there are too many parties."""
    most_bits: float = 0.0
    """Number of bits that represent an entry."""
    epsilon_bound: EpsilonBound | None = None
    """Smallest proved bound on `epsilon`, and the kind of proof."""
    accounting: Accounting | None = None
    """How `epsilon` was computed: by sums, or by the matrix accountant; None without `epsilon`."""
    company: int | None = None
    """Number of parties whose noise `epsilon` counts: the fewest contributors to any sum that the coalition saw. It is
    1 over several rounds of a protocol in which others pass on values that it did not see, and None if it saw
    nothing."""
    epsilon_bound_at_worst: EpsilonBound | None = None
    """Smallest proved bound on `epsilon_at_worst`, and the kind of proof."""
    delta: float = 0.0
    """Probability δ with which the bound `epsilon` may fail."""
    nearly: tuple[Party, ...] = ()
    """Parties whose entries the coalition recovers not exactly, but so closely that it makes no difference."""
    unsure: tuple[Party, ...] = ()
    """Parties that would be exposed if models were static. There are too many parties to compute the effect of drift or
    noise."""
    drowned: tuple[Party, ...] = ()
    """Parties whose vectors rounding hides: with more digits per entry they would be exposed."""
    at_worst: tuple[Party, ...] | None = None
    """Parties exposed in the analysed rounds, or in one more round with the fewest contributors: the worst case of
    dropouts and samples. It contains all `victims`. None if the worst case was not analysed."""
    worst_contributors: tuple[Party, ...] | None = None
    """Contributors to the sum of that worst case; None if no sum is smaller than in the analysed rounds."""
    worst_samples: tuple[tuple[Party, ...], ...] = ()
    """The samples of contributors that are the worst case, by round; empty if it is one of dropouts. Any sample may
    occur, and a malicious server can choose it. With static models, several rounds may single out a party that no one
    round does."""
    uncompared: bool = False
    """Whether dropouts, which the question leaves out, could make rounds with different contributors. Two such sums
    can be subtracted from each other."""
    argument: str = ""
    """Name of a proved argument that covers all rounds, dropouts and samples in question; empty if none does."""
    dropout: float = 0.0
    """Probability with which each party drops out of each round."""
    watched: int = 0
    """Number of rounds that were analysed."""
    averages: int = 0
    """Number of analysed rounds that ended with an average."""
    seed: int = 0
    """Seed with which participation was sampled."""
    seeds_tried: int = 0
    """Number of seeds that were tried, this one and the next ones; 0 if nothing is sampled."""
    exposing_seeds: tuple[SeedResult, ...] = ()
    """Other seeds with which some party is exposed. All other fields are about `seed`."""
    first_seed: int | None = None
    """First of the seeds, if this report is on the worst of them; None if the worst was not asked for."""
    fractions: dict[Party, float] = field(default_factory=dict)
    """Expected fraction of each victim's entries that is exposed."""
    sparse: EntryExposure | None = None
    """Exposed entries at the full length of the model, where parties select the entries that they share."""
    entries: int = 1
    """Number of entries that recipes were replayed on; 1 if one stands for all."""
    errors: dict[Party, float] = field(default_factory=dict)
    """Error of each recipe when replayed on a real transcript: the largest distance of an entry from the victim's
    vector. It includes the noise of the settings. Without noise it equals `proof_errors`."""
    noise: float = 0.0
    """Standard deviation of the noise that each party adds to every entry, by the settings."""
    proof_errors: dict[Party, float] = field(default_factory=dict)
    """Error of each recipe when replayed without noise and in a ring of 64 bits, which proves the algebra. With fewer
    bits it may be larger, as `bits` says."""
    heard: dict[tuple[Party, Party], tuple[int, int]] = field(default_factory=dict)
    """Metadata that an eavesdropper learns from sealed links: messages and bytes by sender and receiver."""
    notes: tuple[Remark, ...] = ()
    """Notes that the reader should know."""
    faults: int = 0
    """Number of faults that were injected besides dropouts."""
    known_draws: tuple[str, ...] = ()
    """Names of secret numbers of the protocol that count as known to the coalition."""
    rows: NDArray[np.int64] | None = field(default=None, repr=False)
    """Basis of what the coalition knows of the others' vectors alone, modulo a small prime."""

    def __repr__(self) -> str:
        found = [
            f"{name}: {list_names(victims)}"
            for name, victims in (
                ("exposed", list(self.exposed)),
                ("nearly", self.nearly),
                ("at_worst", () if self.victims else self.at_worst),
                ("unsure", self.unsure),
            )
            if victims
        ]
        if (worst := self.worst_other_seed) is not None:
            found.append(f"seed {worst.seed}: {list_names(worst.victims)}")
        who = f"{len(self.parties)} parties, coalition of {list_names(self.coalition)}"
        return f"<Report: {self.protocol}, {who}: {'; '.join([self.verdict.value, *found, str(self.coverage)])}>"

    @property
    def verdict(self) -> Verdict:
        """Verdict on this coalition, for what was analysed."""
        if self.exposed:
            return Verdict.EXPOSED
        if self.nearly:
            return Verdict.NEARLY_EXPOSED
        if self.at_worst or self.worst_other_seed is not None:
            return Verdict.EXPOSED_IN_WORST_CASE
        if self.unsure:
            return Verdict.UNDECIDED
        return Verdict.HOLDS if self.coverage.exhaustive else Verdict.NOTHING_FOUND

    @property
    def coverage(self) -> Coverage:
        """Part of the question that was analysed."""
        return Coverage(
            rounds=self.rounds,
            rounds_analysed=self.watched,
            rounds_with_average=self.averages,
            drift=self.drift,
            dropout=self.dropout,
            faults=self.faults,
            seeds=self.seeds_tried,
            worst_seed=self.first_seed is not None,
            sparse=self.sparse,
            fewest=self.fewest,
            worst_case=self.at_worst is not None,
            uncompared=self.uncompared,
            argument=self.argument,
        )

    @property
    def fewest(self) -> int | None:
        """Number of contributors of the worst case."""
        return None if self.worst_contributors is None else len(self.worst_contributors)

    @property
    def epsilon(self) -> float | None:
        """Privacy loss ε of any other party's data over all rounds, from the noise of `company` parties.

        None without noise, or without a bound on how far data can move a vector.
        """
        return None if self.epsilon_bound is None else self.epsilon_bound.epsilon

    @property
    def by_matrix(self) -> bool:
        """Whether the matrix accountant gave `epsilon`."""
        return self.accounting is not None and self.accounting.method is AccountingMethod.MATRIX

    @property
    def epsilon_at_worst(self) -> float | None:
        """Privacy loss ε in the worst case of dropouts; None if that was not analysed."""
        return None if self.epsilon_bound_at_worst is None else self.epsilon_bound_at_worst.epsilon

    @property
    def victims(self) -> list[Party]:
        """Parties whose vectors the coalition recovers, exactly or nearly."""
        return [party for party in self.parties if party in self.exposed or party in self.nearly]

    @cached_property
    def smallest_support(self) -> int | None:
        """The relaxed T of paper 002: the fewest vectors on which anything that the coalition can compute depends.

        None if there are too many sets of parties to try, or if entries are treated differently.
        """
        return None if self.entries > 1 or self.rows is None else smallest_support(self.rows)

    @property
    def worst_other_seed(self) -> SeedResult | None:
        """The other seed that exposes most parties, if it exposes more than this one."""
        found = max(self.exposing_seeds, key=lambda each: (len(each.victims), -each.safe_rounds), default=None)
        here = len(self.exposed) + len(self.nearly) + len(self.unsure)
        return found if found is not None and len(found.victims) > here else None

    @property
    def worst(self) -> SeedResult:
        """The seed that exposes most parties: this one, unless another exposes more."""
        return self.worst_other_seed or self.this_seed

    @property
    def this_seed(self) -> SeedResult:
        """The parties exposed with this report's own seed."""
        return SeedResult(self.seed, tuple(self.victims), self.safe_rounds)
