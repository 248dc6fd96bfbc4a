"""Paper 002: average number C of participating users, fairness gap F, and privacy T.

The theorem: with N users, K asked, and each absent with probability p, batches of T give privacy T, fairness gap F = 0,
and C(T) = K · P(at least K/T of N/T batches are complete); N = 120, K = 12, p = 0.2 give C(6) = 11.77. The last figure
shows C against T for users with different probabilities of absence p_i ~ {0.1, …, 0.5}.

We compute C(T), and let the deployed protocol's own functions choose round by round, with different users as in the
figure. A batch is complete with probability Π(1 − p_i). If batches are formed at random, they are complete as often as
if every user had the mean p = 0.3, for which the theorem gives 8.40 and not 11.77. If users are sorted by availability,
some batches are complete most of the time, and C is nearly unchanged. The price is fairness: the theorem's F = 0 holds
for equal p, and a batch that is complete less often than its turn comes cannot be asked as often as others.

T is the audit's result: the fewest users in any sum that the server can single out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit import audit
from tacit.core.entropy import SeededEntropy
from tacit.core.link import Link
from tacit.core.progress import Progress
from tacit.core.suite import SERVER
from tacit.designs import Batches, Participation, Partition, Random
from tacit.designs.history import cardinality, fairness_gap
from tacit.designs.participation import Policy
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber
from tacit.learn.random_streams import generator
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

USERS, PER_ROUND = 120, 12
PRIVACY = (1, 2, 3, 4, 6, 12)
"""Values of T that divide both N and K."""
EQUAL, ABSENT = (0.1, 0.2, 0.3, 0.4, 0.5), 0.2
"""The paper's dropout probabilities, and that of its example."""
GIVEN = 11.77
"""C(6) of the example."""
DRAWS = 20
"""Number of draws of the p_i of all users."""
ROUNDS: dict[Scale, int] = {"small": 2_000, "paper": 10_000}
SIMULATED: dict[Scale, int] = {"small": 3, "paper": 5}
"""Number of draws for which rounds are simulated; with equal p, number of simulations."""
AUDITED = 240
SAME_FREQUENCY = 0.02
"""Shares of rounds that differ by less count as equal, because they are never equal in finitely many rounds."""

FORMULA = 1_000_000
"""Number of runs assigned to a value from a formula, which has no spread."""
ROUNDED = 1e-9
"""Largest rounding error of sums of floats."""

Absence: TypeAlias = NDArray[np.float64]
"""Probability of absence of each user."""


def expected_cardinality(absence: Absence, per_round: int, privacy: int) -> float:
    """Returns C for given probabilities of absence: K times the probability that K/T batches are complete.

    The number of complete batches has a Poisson binomial distribution, which is computed batch by batch.
    """
    there = np.prod((1 - absence).reshape(-1, privacy), axis=1)
    chances = np.ones(1)
    for chance in there:
        chances = np.append(chances * (1 - chance), 0) + np.append(0, chances * chance)
    return per_round * (1 - float(chances[: per_round // privacy].sum()))


def policy_of(privacy: int, per_round: int = PER_ROUND) -> Policy:
    """Returns the paper's policy for a T; 1 is the baseline with users drawn at random, K the one with fixed groups."""
    if privacy == 1:
        return Random(per_round)
    return Partition(per_round) if privacy == per_round else Batches(per_round, privacy)


def play_rounds(policy: Participation, absence: Absence, rounds: int, seed: int) -> NDArray[np.bool_]:
    """Returns the users that are summed in each round, by the choices of the `secagg` server."""
    protocol, users = find("secagg"), len(absence)
    terms = terms_for(protocol, [f"p{user}" for user in range(users)], {"participation": policy})
    if (choice := protocol.choice) is None:
        raise TypeError("secagg has no server that chooses")
    away = generator(seed, "availability").random((rounds, users)) < absence
    state, taken = protocol.state(), np.zeros((rounds, users), np.bool_)
    for number in range(rounds):
        entropy = SeededEntropy(seed, "cardinality", number)
        asked, state = choice.select_asked(terms, state, np.flatnonzero(~away[number]).tolist(), entropy)
        if asked:
            link = Link(SERVER, terms.parties, b"", number + 1)
            taken[number, choice.select_summed(terms, link, asked, asked, entropy)] = True
    return taken


@dataclass(frozen=True)
class Cardinality:
    """C and F for one T and one distribution of availability."""

    formula: tuple[float, ...]
    """C by the formula, for each draw."""
    played: tuple[float, ...]
    """C of the simulated rounds, for the first draws."""
    error: float
    """Predicted standard error of the mean of `played`."""
    gaps: tuple[float, ...]
    """Fairness gap F of the simulated rounds."""

    @property
    def exact(self) -> float:
        """C by the formula, mean over draws."""
        return fmean(self.formula)

    @property
    def over_draws(self) -> Estimate:
        """C by the formula over draws; exact if all are equal."""
        same = max(self.formula) - min(self.formula) < ROUNDED
        return Estimate.certain(self.exact) if same else Estimate.over(self.formula, "draws")

    @property
    def consistent(self) -> bool:
        """Whether the simulated rounds agree with the formula."""
        return abs(fmean(self.played) - fmean(self.formula[: len(self.played)])) <= 4 * self.error + ROUNDED


def measure_cardinality(
    absences: Sequence[Absence], privacy: int, rounds: int, simulated: int, per_round: int = PER_ROUND
) -> Cardinality:
    """Returns C of all draws by the formula, and C and F of those that are played."""
    some = absences[:simulated]
    tables = [play_rounds(policy_of(privacy, per_round), each, rounds, seed) for seed, each in enumerate(some)]
    every = tuple(expected_cardinality(each, per_round, privacy) for each in absences)
    # In a round K users take part or none, so the variance is C (K − C).
    error = sqrt(sum(each * (per_round - each) for each in every[:simulated]) / rounds) / len(tables)
    return Cardinality(every, tuple(map(cardinality, tables)), error, tuple(map(fairness_gap, tables)))


def spread_absences() -> dict[str, list[Absence]]:
    """Returns the distributions of availability over batches, each with equally many draws."""
    mixed = [generator(draw, "dropouts").choice(EQUAL, USERS) for draw in range(DRAWS)]
    return {
        **{f"p = {p:g}": [np.full(USERS, p)] * DRAWS for p in EQUAL},
        "mixed": mixed,
        "sorted": [np.sort(each) for each in mixed],
    }


# --- rows ----------------------------------------------------------------------------------------------------------


CAREFUL = "half a user of twelve: less than one step of T changes C by for most T"
EXAMPLE = DeclaredRow(
    f"C(6), p = {ABSENT:g}, by the theorem", PaperNumber(GIVEN, rounding=0.005), Near(0.1, "computed"), form=".3f"
)
PLAYED = DeclaredRow(
    f"C(6), p = {ABSENT:g}, as the protocol chooses",
    PaperNumber(GIVEN, rounding=0.005, runs=FORMULA),
    Near(0.5, CAREFUL),
)
MIXED = DeclaredRow(
    f"C(6), p_i from 0.1 to 0.5, batches in any order; the theorem has p = {fmean(EQUAL):g}",
    PaperNumber(expected_cardinality(np.full(USERS, fmean(EQUAL)), PER_ROUND, 6), runs=FORMULA),
    Near(0.5, CAREFUL),
)
SORTED = DeclaredRow(
    "C(6), the same users, batches sorted by availability", None, NotCompared("the paper does not sort")
)
UNFAIR = DeclaredRow(
    "F, T = 6, batches sorted by availability, and F of Random",
    None,
    NotCompared("the theorem is on equal users and batches in any order"),
    form=".3f",
)
CONSISTENT = DeclaredRow(
    "settings in which C as played is not C(T) by the formula",
    PaperNumber(0),
    Near(0.5, "by more than 4 standard errors, which chance alone gives in one of 16,000"),
    form=".0f",
)


def declare_fairness(which: str) -> DeclaredRow:
    """Declares the row of the fairness gap of batches, which is 0 by the theorem."""
    reason = "F = 0 is for ever; in finitely many rounds frequencies differ by a few standard errors"
    return DeclaredRow(f"F, T = 6, {which}", "0", Between(reason, high=SAME_FREQUENCY), form=".3f")


FAIR = declare_fairness(f"p = {ABSENT:g}")
FAIR_MIXED = declare_fairness("p_i from 0.1 to 0.5, batches in any order")


def declare_curve(privacy: int) -> DeclaredRow:
    """Returns the row of one T of the last figure."""
    name = f"C({privacy})" if privacy > 1 else "C of Random"
    return DeclaredRow(f"{name}: p = {ABSENT:g}, mixed, sorted", None, NotCompared("the figure has no numbers"))


def declare_privacy(privacy: int) -> DeclaredRow:
    """Returns the row of T by the audit."""
    name = {1: "Random", PER_ROUND: "User Partitioning"}.get(privacy, f"Batches of {privacy}")
    return DeclaredRow(
        f"T by the audit, {name}", PaperNumber(privacy), Near(0.5, "T is a whole number, and computed"), form=".0f"
    )


def example_rows(equal: Cardinality) -> list[Row]:
    """Returns the paper's example."""
    return [
        EXAMPLE.measure(Estimate.certain(equal.exact)),
        PLAYED.measure(Estimate.over(equal.played), f"standard error {equal.error:.2f} by the formula"),
        FAIR.measure(Estimate.over(equal.gaps)),
    ]


def spread_rows(table: Mapping[tuple[str, int], Cardinality]) -> list[Row]:
    """Returns C and F for users with different availability."""
    mixed, ordered = table["mixed", 6], table["sorted", 6]
    rows = [
        MIXED.measure(mixed.over_draws, f"the mean p counts, and that is not the {ABSENT:g} of the example"),
        SORTED.measure(ordered.over_draws, f"sorting gains {ordered.exact - mixed.exact:.2f} users a round"),
        FAIR_MIXED.measure(Estimate.over(mixed.gaps), "the theorem has one p for all"),
        UNFAIR.measure(
            (Estimate.over(ordered.gaps), Estimate.over(table["mixed", 1].gaps)),
            "what sorting gains is at the cost of those who are seldom there; Random is not fair to them, either",
        ),
    ]
    for privacy in PRIVACY:
        some = [table[name, privacy] for name in (f"p = {ABSENT:g}", "mixed", "sorted")]
        why = "as played: " + ", ".join(f"{fmean(each.played):.2f}" for each in some)
        rows.append(declare_curve(privacy).measure(tuple(each.over_draws for each in some), why))
    off = [name for name, each in table.items() if not each.consistent]
    rows.append(CONSISTENT.measure(Estimate.certain(len(off)), f"of {len(table)}"))
    return rows


def audited_rows(privacy: Sequence[int], rounds: int = AUDITED) -> list[Row]:
    """Returns T as the audit of the server reports it."""
    rows = []
    for t in privacy:
        report = audit(
            "secagg", parties=USERS, coalition=[SERVER], rounds=rounds, participation=policy_of(t), drift="static"
        )
        learnt = f"all {USERS}" if len(report.exposed) == USERS else str(len(report.exposed))
        why = f"{learnt} models known after {report.safe_rounds + 1} rounds" if report.exposed else f"{rounds} rounds"
        rows.append(declare_privacy(t).measure(Estimate.certain(report.smallest_group or 0), why))
    return rows


def charts_of(table: Mapping[tuple[str, int], Cardinality]) -> tuple[Chart, ...]:
    """Returns C and F against T."""
    names = list(dict.fromkeys(name for name, _ in table))
    formulas = {f"{name}, formula": (PRIVACY, [table[name, t].exact for t in PRIVACY]) for name in names}
    rounds = {name: (PRIVACY, [fmean(table[name, t].played) for t in PRIVACY]) for name in names}
    gaps = {name: (PRIVACY, [fmean(table[name, t].gaps) for t in PRIVACY]) for name in names}
    spread = {name: [stdev(table[name, t].gaps) for t in PRIVACY] for name in names}
    return (
        Chart(
            "Users that take part",
            "users behind any sum (T)",
            "users summed in a round, on average (C)",
            {**rounds, **formulas},
            dashed=tuple(formulas),
        ),
        Chart("Fairness gap", "users behind any sum (T)", "fairness gap (F)", gaps, spread=spread),
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Simulates rounds for every T and availability, and audits."""
    absences = spread_absences()
    todo = [(name, privacy) for name in absences for privacy in PRIVACY]
    table: dict[tuple[str, int], Cardinality] = {}
    for done, (name, privacy) in enumerate(todo):
        progress(f"T = {privacy}, {name}", 0.9 * done / len(todo))
        table[name, privacy] = measure_cardinality(absences[name], privacy, ROUNDS[scale], SIMULATED[scale])
    progress("audit", 0.9)
    rows = [*example_rows(table[f"p = {ABSENT:g}", 6]), *spread_rows(table), *audited_rows(PRIVACY)]
    progress("cardinality", 1.0)
    return Result(tuple(rows), charts_of(table))


REPRODUCTION = Reproduction(
    name="002-cardinality",
    title="How many users take part, how fairly, and how private that is",
    run=run,
    declared=(
        EXAMPLE,
        PLAYED,
        FAIR,
        MIXED,
        SORTED,
        FAIR_MIXED,
        UNFAIR,
        *map(declare_curve, PRIVACY),
        CONSISTENT,
        *map(declare_privacy, PRIVACY),
    ),
    unstated=(
        "Whether 11.77 is rounded: the formula gives 11.777, and 11.77 is its first four digits.",
        "Values of the figures other than C(6) = 11.77: they are only drawn.",
        f"How p_i ~ {{0.1, …, 0.5}} fall on batches: at random, {DRAWS} times, and then sorted.",
        "Rounds with too few available batches: nobody is asked, as in the formula.",
        f"Rounds simulated: {ROUNDS['small']:,} ({ROUNDS['paper']:,} at paper scale).",
    ),
)
