"""Which ε the noise of paper 003 really gives: accounted for, and bounded from below by playing against it.

Theorem 1 claims (ε, δ) for a σ that is meant for one noise vector on the average of m users. Algorithm 1 lets each user
add its own, so that for E = m the average carries √m times too little noise (see `tacit.privacy.noise`).

**Accounted.** What an accountant finds for that noise: an upper bound by zCDP, and the tight figure by privacy loss
distributions (PLD). Only the tight one can refute a claim: at m = 1 zCDP gives 1.02 where 1 is claimed and kept.

**Played.** Somebody who knows every sample but one, and hears T noisy sums, has to tell whether that sample, the
canary, is there or its opposite. Its gradient is as long as G allows, so these are neighbouring data at their most
different. The sums come from the deployed `secagg`; those of 100 users are added up plainly to save time, which gives
the same numbers. All noise has the same law in all T rounds, so the sum of the sums tells all there is to tell, and a
threshold on it is the best test (Neyman and Pearson). (ε, δ)-privacy forces the error rates of every test:

    1 − δ ≤ FNR + e^ε FPR    and    1 − δ ≤ FPR + e^ε FNR    (Kairouz, Oh and Viswanath 2015)

so upper bounds on both rates (Clopper and Pearson, 97.5 % each) give a lower bound on ε that holds with 95 %. The
threshold is fixed beforehand from what is known of the noise, never from the trials that it is tested on. The lower
bound says something of the real noise path that no formula can; it stays well below the true ε at a δ this small.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.audit.attacks.findings import Attack, Finding, Progress, proportion
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Update
from tacit.drivers.simulator import Simulation
from tacit.privacy.noise import Accountant, accounted_epsilon, clipped, noisy, paper_sigma, user_sigma

NAME = "epsilon"

EPSILON, DELTA = 1.0, 1e-5
"""What is claimed."""
G, SAMPLES, ROUNDS = 1.0, 100, 100
"""G, n₍₁₎ and T of Theorem 1. The ratio of the real ε to the claimed one depends on none of them."""
FARTHEST = 9.0
"""No draw of `noisy` is this many σ away: −2 log 2⁻⁵³ is less than 9²."""

Vector: TypeAlias = NDArray[np.float64]
Summed: TypeAlias = Callable[[Sequence[Vector]], Vector]
"""Returns the sum of what the users bring to a round."""


@dataclass(frozen=True)
class Game:
    """How much noise each user adds to its gradients, and who plays."""

    noise: str
    """How σ was found."""
    users: int
    """m, all of which are summed in every round."""
    sigma: float
    rounds: int
    colluding: int = 0
    """Users that tell what they brought, noise and all."""

    @property
    def separation(self) -> float:
        """How many standard deviations the canary moves the sum over all rounds (GDP's μ; Dong et al. 2022)."""
        moved, deviation = 2 * G / SAMPLES, self.sigma * math.sqrt(self.users - self.colluding)
        return math.sqrt(self.rounds) * moved / deviation

    def accounted(self, accountant: Accountant) -> float:
        """Returns the ε that an accountant finds."""
        return accounted_epsilon(
            self.sigma,
            DELTA,
            honest=self.users - self.colluding,
            samples=SAMPLES,
            rounds=self.rounds,
            lipschitz=G,
            accountant=accountant,
        )

    @property
    def target(self) -> str:
        """What is attacked."""
        collude = f", {self.colluding} of them collude" if self.colluding else ""
        return f"ε = {EPSILON:g} by {self.noise}, m = {self.users}, T = {self.rounds}{collude}"


def by_theorem(users: int, rounds: int) -> Game:
    """Returns the game against Algorithm 1 with the σ of Theorem 1."""
    sigma = paper_sigma(EPSILON, DELTA, users=users, samples=SAMPLES, rounds=rounds, lipschitz=G)
    return Game("Theorem 1", users, sigma, rounds)


def by_sum(rounds: int, honest: int, colluding: int = 0, accountant: Accountant = "pld") -> Game:
    """Returns the game against 10 users, of whom `honest` add what the sum needs; by PLD, no more than that."""
    sigma = user_sigma(
        EPSILON, DELTA, honest=honest, samples=SAMPLES, rounds=rounds, lipschitz=G, accountant=accountant
    )
    return Game(f"user_sigma for {honest} honest by {accountant}", 10, sigma, rounds, colluding)


# --- the game ------------------------------------------------------------------------------------------------------


def plainly(vectors: Sequence[Vector]) -> Vector:
    """Returns the sum of some vectors."""
    total: Vector = np.sum(vectors, axis=0)
    return total


def by_secagg(game: Game, entries: int, seed: int) -> Summed:
    """Returns a function that sums by rounds of the deployed protocol, real cryptography included."""
    parties = [f"p{place}" for place in range(game.users)]
    clip = G + FARTHEST * game.sigma
    simulation = Simulation.of("secagg", parties, entries, seed=seed, bits=64, clip=clip)

    def summed(vectors: Sequence[Vector]) -> Vector:
        brought = {party: Update(vector, 1.0) for party, vector in zip(parties, vectors, strict=True)}
        outcome = simulation.average(brought)
        total: Vector = outcome.average[parties[0]] * len(outcome.contributors)
        return total

    return summed


def statistics(game: Game, trials: int, seed: int, summed: Summed) -> tuple[Vector, Vector]:
    """Returns what the adversary makes of each trial: with the opposite in the canary's place, and with the canary.

    Every entry of the users' vectors is a trial of its own, so that one run of T rounds plays them all.
    """
    rng = np.random.default_rng(seed)
    # The loss ⟨θ, x⟩ has the gradient x, whatever θ: nothing that was released before changes what comes next.
    gradients = [clipped(rng.normal(size=(SAMPLES, 1)), G)[:, 0] for _ in range(game.users)]
    without, there = gradients[0].copy(), gradients[0].copy()
    without[0], there[0] = -G, G
    honest = game.users - game.colluding  # user 0, who has the canary, is one of them
    known = sum(float(gradient.mean()) for gradient in gradients[1:honest]) + float(gradients[0][1:].sum()) / SAMPLES

    brings = [np.full(2 * trials, gradient.mean()) for gradient in gradients]
    brings[0] = np.repeat([without.mean(), there.mean()], trials)
    entropies = [SeededEntropy(seed, NAME, user) for user in range(game.users)]
    heard = np.zeros(2 * trials)
    for _ in range(game.rounds):
        vectors = [noisy(vector, game.sigma, own) for vector, own in zip(brings, entropies, strict=True)]
        heard += summed(vectors) - plainly(vectors[honest:]) - known
    heard /= game.sigma * math.sqrt(honest * game.rounds)
    return heard[:trials], heard[trials:]


def lower_bound(false_alarms: int, misses: int, trials: int) -> float:
    """Returns the ε that these errors in so many trials of each kind refute at 95 % confidence, 0 if none."""
    fpr, fnr = (proportion(NAME, "", "", wins=errors, tries=trials).high for errors in (false_alarms, misses))
    ratio = max((1 - DELTA - fnr) / fpr, (1 - DELTA - fpr) / fnr)
    return math.log(max(ratio, 1.0))


def threshold(separation: float, trials: int) -> float:
    """Returns the threshold with the best lower bound, if errors are as frequent as they can be expected to be."""
    from scipy.stats import norm  # takes a second to import

    def expected(place: float) -> float:
        false_alarms, misses = norm.sf(place + separation / 2), norm.cdf(place - separation / 2)
        return lower_bound(round(trials * false_alarms), round(trials * misses), trials)

    # By symmetry the lower half has nothing better to offer.
    return float(max(np.linspace(0, 4, 41), key=expected))


def played(game: Game, trials: int, seed: int, summed: Summed) -> Finding:
    """Plays the game and returns what it proves of ε, up to the tight figure from the accountant."""
    without, there = statistics(game, trials, seed, summed)
    place = threshold(game.separation, trials)
    bound = lower_bound(int(np.sum(without > place)), int(np.sum(there <= place)), trials)
    measure = "ε, at least (95 %), and at most by PLD"
    return Finding(NAME, game.target, measure, bound, bound, game.accounted("pld"), 2 * trials, bound > EPSILON)


def accounted(game: Game) -> Finding:
    """Returns the ε that is accounted for by zCDP; the lower end is by PLD, and decides."""
    most, tight = game.accounted("zcdp"), game.accounted("pld")
    return Finding(NAME, game.target, "ε by zCDP; the lower end by PLD", most, tight, most, 1, tight > EPSILON)


# --- the experiment ------------------------------------------------------------------------------------------------


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns ε as accounted for and as played for: with the noise of Theorem 1, then with noise that suffices."""
    rounds, trials = (ROUNDS, 50_000) if full else (ROUNDS // 20, 20_000)
    broken = [by_theorem(10, rounds), by_theorem(100, rounds), by_sum(rounds, honest=10, colluding=9)]
    sound = [by_sum(rounds, honest=10), by_sum(rounds, honest=1, colluding=9)]
    results = []
    for done, game in enumerate([*broken, *sound]):
        progress(game.target, done / 5)
        few = trials if game.users <= 10 else trials // 10  # who is so much easier to tell needs fewer trials
        summed = by_secagg(game, 2 * few, seed) if game.users <= 10 else plainly
        results.append(played(game, few, seed, summed))
    progress(NAME, 1.0)
    return [
        *(accounted(by_theorem(users, ROUNDS)) for users in (10, 100, 1000)),
        *results[: len(broken)],
        *(accounted(game) for game in (by_theorem(1, ROUNDS), by_sum(ROUNDS, honest=10, accountant="zcdp"))),
        *results[len(broken) :],
    ]


ATTACK = Attack(
    name=NAME,
    summary="accounts for the noise of paper 003, and tells a canary from its opposite by the noisy sums",
    paper="003",
    run=run,
)
