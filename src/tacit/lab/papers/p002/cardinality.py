"""Paper 002: how many users take part on average, C, how fairly, F, and how private that is, T.

The theorem: with N users, K asked, and each absent with probability p, batches of T give privacy T, fairness gap F = 0,
and C(T) = K · P(at least K/T of N/T batches are there as a whole); N = 120, K = 12, p = 0.2 give C(6) = 11.77. The last
figure has C against T for users that are absent with p_i ~ {0.1, …, 0.5}, each its own.

We compute C(T), and let the deployed protocol's own functions choose, round after round. Then users differ, as in the
figure. A batch is there if all of it is, with Π(1 − p_i). Put together at random, batches are there as often as if
everybody had the mean p = 0.3, for which the theorem gives 8.40 and not 11.77. Sorted by availability, some batches are
there most of the time, and C is nearly what it was. The price is fairness: the theorem's F = 0 holds for equal p, and a
batch that is there less often than its turn comes cannot be asked as often as others.

T is what the audit of the server finds behind any sum that it can single out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
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
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.learn.random_streams import generator
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

USERS, PER_ROUND = 120, 12
PRIVACY = (1, 2, 3, 4, 6, 12)
"""T: what divides both N and K."""
EQUAL, ABSENT = (0.1, 0.2, 0.3, 0.4, 0.5), 0.2
"""The paper's dropout probabilities, and that of its example."""
GIVEN = 11.77
"""C(6) of the example."""
DRAWS = 20
"""How often p_i are drawn for everybody."""
ROUNDS: dict[Scale, int] = {"small": 2_000, "paper": 10_000}
SIMULATED: dict[Scale, int] = {"small": 3, "paper": 10}
"""In how many of the draws rounds are played."""
AUDITED = 240
SAME_FREQUENCY = 0.02
"""Shares of rounds that differ by less are taken as equal: with finitely many rounds none are."""

ROUNDED = 1e-9
"""What sums of floats may be off by."""

Absence: TypeAlias = NDArray[np.float64]
"""How often each user is absent."""


def expected_cardinality(absence: Absence, per_round: int, privacy: int) -> float:
    """Returns C if each user is absent as often as it is: K times the chance that K/T batches are there.

    How many of some batches are there follows a Poisson binomial distribution, built up batch by batch.
    """
    there = np.prod((1 - absence).reshape(-1, privacy), axis=1)
    chances = np.ones(1)
    for chance in there:
        chances = np.append(chances * (1 - chance), 0) + np.append(0, chances * chance)
    return per_round * (1 - float(chances[: per_round // privacy].sum()))


def policy_of(privacy: int, per_round: int = PER_ROUND) -> Policy:
    """Returns the paper's policy for a T; 1 is the baseline that draws users at random, K the one of fixed groups."""
    if privacy == 1:
        return Random(per_round)
    return Partition(per_round) if privacy == per_round else Batches(per_round, privacy)


def play_rounds(policy: Participation, absence: Absence, rounds: int, seed: int) -> NDArray[np.bool_]:
    """Returns whose vectors are summed in each round, as the server of `secagg` chooses."""
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
    """C and F for one T and one way that availability is spread."""

    exact: float
    """C by the formula."""
    played: float
    """C of the simulated rounds."""
    error: float
    """Standard error of C that follows from the formula."""
    gap: float
    """Fairness gap F of the simulated rounds."""
    lowest: float
    """C by the formula, of the draw with the lowest C."""
    highest: float
    """C by the formula, of the draw with the highest C."""

    @property
    def ranged(self) -> str:
        """C by the formula, and how far apart draws are."""
        return f"{self.exact:.2f} ({self.lowest:.2f} to {self.highest:.2f} from draw to draw)"

    @property
    def consistent(self) -> bool:
        """Whether the rounds that were played are those that the formula is about."""
        return abs(self.played - self.exact) <= 4 * self.error + ROUNDED


def measure_cardinality(
    absences: Sequence[Absence], privacy: int, rounds: int, simulated: int, per_round: int = PER_ROUND
) -> Cardinality:
    """Returns C of all draws by the formula, and C and F of those that are played."""
    some = absences[:simulated]
    tables = [play_rounds(policy_of(privacy, per_round), each, rounds, seed) for seed, each in enumerate(some)]
    every = [expected_cardinality(each, per_round, privacy) for each in absences]
    # The two are compared on the draws that were played; what is reported is the mean over all.
    off = fmean(cardinality(each) for each in tables) - fmean(every[:simulated])
    # In a round K take part or nobody, so that its variance is C (K − C).
    error = sqrt(sum(each * (per_round - each) for each in every[:simulated]) / rounds) / len(tables)
    exact = fmean(every)
    return Cardinality(exact, exact + off, error, fmean(map(fairness_gap, tables)), min(every), max(every))


def spread_absences() -> dict[str, list[Absence]]:
    """Returns the ways that availability is spread over batches, with as many draws of each."""
    mixed = [generator(draw, "dropouts").choice(EQUAL, USERS) for draw in range(DRAWS)]
    return {
        **{f"p = {p:g}": [np.full(USERS, p)] for p in EQUAL},
        "mixed": mixed,
        "sorted": [np.sort(each) for each in mixed],
    }


# --- rows ----------------------------------------------------------------------------------------------------------


def example_rows(equal: Cardinality) -> list[Row]:
    """Returns the paper's example."""
    return [
        unruled_row(
            f"C(6), p = {ABSENT:g}, by the theorem",
            f"{GIVEN:.2f}",
            f"{equal.exact:.3f}",
            abs(equal.exact - GIVEN) < 0.01,
        ),
        unruled_row(
            f"C(6), p = {ABSENT:g}, as the protocol chooses",
            f"{GIVEN:.2f}",
            f"{equal.played:.2f}",
            abs(equal.played - GIVEN) <= 4 * equal.error + 0.01,
            f"standard error {equal.error:.2f}",
        ),
        fairness_row(f"F, T = 6, p = {ABSENT:g}", equal),
    ]


def fairness_row(what: str, each: Cardinality, why: str = "") -> Row:
    """Returns the fairness gap of batches, of which the theorem says that there is none."""
    return unruled_row(what, "0", f"{each.gap:.3f}", each.gap <= SAME_FREQUENCY, why)


def spread_rows(table: Mapping[tuple[str, int], Cardinality]) -> list[Row]:
    """Returns what becomes of C and F where users differ."""
    mixed, ordered, mean = table["mixed", 6], table["sorted", 6], table[f"p = {fmean(EQUAL):g}", 6]
    rows = [
        unruled_row(
            "C(6), p_i from 0.1 to 0.5, batches in any order",
            f"{mean.exact:.2f} (the theorem, p = {fmean(EQUAL):g})",
            mixed.ranged,
            abs(mixed.exact - mean.exact) < 0.5,
            f"the mean p counts, and that is not the {ABSENT:g} of the example",
        ),
        unruled_row(
            "C(6), the same users, batches sorted by availability",
            "",
            ordered.ranged,
            None,
            f"sorting gains {ordered.exact - mixed.exact:.2f} users a round; the paper does not sort",
        ),
        fairness_row("F, T = 6, p_i from 0.1 to 0.5, batches in any order", mixed, "the theorem has one p for all"),
        unruled_row(
            "F, T = 6, batches sorted by availability, and F of Random",
            "",
            f"{ordered.gap:.3f}, {table['mixed', 1].gap:.3f}",
            None,
            "what sorting gains is at the cost of those who are seldom there; Random is not fair to them, either",
        ),
    ]
    for privacy in PRIVACY:
        some = [table[name, privacy] for name in ("p = 0.2", "mixed", "sorted")]
        rows.append(
            unruled_row(
                f"C({privacy}): p = 0.2, mixed, sorted" if privacy > 1 else "C of Random: p = 0.2, mixed, sorted",
                "",
                ", ".join(f"{each.exact:.2f}" for each in some),
                None,
                "as played: " + ", ".join(f"{each.played:.2f}" for each in some),
            )
        )
    off = [name for name, each in table.items() if not each.consistent]
    rows.append(
        unruled_row(
            "settings in which rounds as played are not as computed",
            "0",
            f"{len(off)} of {len(table)}",
            not off,
            "by more than 4 standard errors",
        )
    )
    return rows


def audited_rows(privacy: Sequence[int], rounds: int = AUDITED) -> list[Row]:
    """Returns T as the audit of the server reports it."""
    rows = []
    for t in privacy:
        report = audit(
            "secagg", parties=USERS, coalition=[SERVER], rounds=rounds, participation=policy_of(t), drift="static"
        )
        name = {1: "Random", PER_ROUND: "User Partitioning"}.get(t, f"Batches of {t}")
        learnt = f"all {USERS}" if len(report.exposed) == USERS else str(len(report.exposed))
        why = f"{learnt} models known after {report.safe_rounds + 1} rounds" if report.exposed else f"{rounds} rounds"
        rows.append(
            unruled_row(f"T by the audit, {name}", str(t), str(report.smallest_group), report.smallest_group == t, why)
        )
    return rows


def charts_of(table: Mapping[tuple[str, int], Cardinality]) -> tuple[Chart, ...]:
    """Returns C and F against T."""
    names = list(dict.fromkeys(name for name, _ in table))
    formulas = {f"{name}, formula": (PRIVACY, [table[name, t].exact for t in PRIVACY]) for name in names}
    rounds = {name: (PRIVACY, [table[name, t].played for t in PRIVACY]) for name in names}
    gaps = {name: (PRIVACY, [table[name, t].gap for t in PRIVACY]) for name in names}
    return (
        Chart(
            "Users that take part",
            "users behind any sum (T)",
            "users summed in a round, on average (C)",
            {**rounds, **formulas},
            dashed=tuple(formulas),
        ),
        Chart("Fairness gap", "users behind any sum (T)", "fairness gap (F)", gaps),
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Plays rounds for every T and availability, and audits."""
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
    unstated=(
        "what values the figures have besides C(6) = 11.77: they are in pictures alone",
        f"how p_i ~ {{0.1, …, 0.5}} fall on batches: at random, {DRAWS} times, and then sorted",
        "what becomes of a round in which too few batches are there: nobody is asked, as the formula has it",
        f"how long to play: {ROUNDS['small']:,} rounds ({ROUNDS['paper']:,} at paper scale)",
    ),
)
