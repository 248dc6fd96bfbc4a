"""Attack on the noise of paper 003: its real ε, computed by accountants, and bounded from below by a distinguishing
game.

Theorem 1 claims (ε, δ) for a σ that is meant for one noise vector on the average of m users. In Algorithm 1 each user
adds its own noise, so that for E = m the average carries √m times too little noise (see `tacit.privacy.noise`).

**By accountants.** An upper bound on ε by zCDP, and the tight value by privacy loss distributions (PLD). Only the tight
value can refute a claim: at m = 1 zCDP gives 1.02, where 1 is claimed and true.

**By a game.** An adversary knows every sample but one and sees T noisy sums. It has to decide whether that sample, the
canary, is present, or its opposite. The canary's gradient has the length G, the maximum, so these neighbouring data
differ as much as possible. The sums come from the deployed `secagg`. Sums of 100 users are computed in plain to save
time, which gives the same numbers. The noise has the same distribution in all T rounds, so the sum of the sums is a
sufficient statistic, and a threshold on it is the best test (Neyman and Pearson). (ε, δ)-privacy bounds the error rates
of every test:

    1 − δ ≤ FNR + e^ε FPR    and    1 − δ ≤ FPR + e^ε FNR    (Kairouz, Oh and Viswanath 2015)

So upper bounds on both rates (Clopper and Pearson, 97.5 % each) give a lower bound on ε with 95 % confidence. The
threshold is fixed beforehand from what is known about the noise, never from the trials that it is tested on. The lower
bound tests the code that adds the noise, which no formula can. It stays well below the true ε for a δ this small.

**In the ring.** The same game is played against the noise that `secagg` adds itself, whole numbers under its masks.
Some users drop out of every round after masking, and others collude: they reveal their encoded vectors, noise included.
Only the noise of the remaining users hides the canary, and ε is computed from that.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import format_count
from tacit.core.entropy import SeededEntropy
from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Update
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.privacy.distributed_noise import SharedNoise, count_honest, distributed_sigma
from tacit.privacy.noise import Accountant, accounted_epsilon, clip_gradients, noisy, of_sample, paper_sigma, user_sigma
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint

NAME = "epsilon"
NAMES: dict[Accountant, str] = {"zcdp": "simple", "rdp": "close", "pld": "tight"}
"""Adjectives for the accountants, for sentences."""
PRESCRIBED = f"as {PAPERS['003']} prescribes it"

EPSILON, DELTA = 1.0, 1e-5
"""The claimed ε and δ."""
G, SAMPLES, ROUNDS = 1.0, 100, 100
"""G, n₍₁₎ and T of Theorem 1. The ratio of the real ε to the claimed one does not depend on them."""
BITS, CLIP = 32, 2.0
"""Ring in which `secagg` adds noise. The length of mean gradients is at most G."""
DROPOUTS, COLLUDERS = 0.2, 3
"""Fraction of the users that drops out of every round, and number of colluding users."""
FARTHEST = 9.0
"""Draws of `noisy` are always less than this many σ from 0: −2 log 2⁻⁵³ is less than 9²."""

Vector: TypeAlias = NDArray[np.float64]
Summation: TypeAlias = Callable[[Sequence[Vector]], Vector]
"""Callable that returns the sum of the users' vectors of a round."""


@dataclass(frozen=True)
class Game:
    """Distinguishing game: the noise that each user adds to its gradients, and the participation."""

    noise: str
    """Method by which σ was found."""
    users: int
    """Number of users (the paper's m); every round sums all of them."""
    sigma: float
    rounds: int
    colluding: int = 0
    """Number of colluding users. They reveal their encoded vectors, noise included."""
    dropped: int = 0
    """Number of users that drop out of each round; they differ from round to round."""
    in_ring: bool = False
    """Whether the protocol adds the noise, instead of the users beforehand."""

    @property
    def honest(self) -> int:
        """Number of honest contributors to every sum."""
        return self.users - self.colluding - self.dropped

    @property
    def separation(self) -> float:
        """Number of standard deviations by which the canary moves the sum over all rounds (GDP's μ; Dong et al.
        2022)."""
        return math.sqrt(self.rounds) * of_sample(SAMPLES, G) / (self.sigma * math.sqrt(self.honest))

    def account(self, accountant: Accountant) -> float:
        """Returns the ε computed by an accountant."""
        if self.in_ring:
            step = FixedPoint(BITS, CLIP, self.users, 1, noise=self.sigma).resolution
            noise = SharedNoise(self.sigma, step, of_sample(SAMPLES, G), self.honest)
            return noise.epsilon(DELTA, self.rounds, accountant)
        return accounted_epsilon(
            self.sigma,
            DELTA,
            honest=self.honest,
            samples=SAMPLES,
            rounds=self.rounds,
            lipschitz=G,
            accountant=accountant,
        )

    @property
    def paper(self) -> str:
        """Place in the paper that determines this noise; empty if there is none."""
        return "Theorem 1" if self.noise.startswith(PRESCRIBED) else ""

    @property
    def target(self) -> str:
        """Description of the target."""
        who = []
        if self.dropped:
            who.append(f"{self.dropped} drop out of every round")
        if self.colluding:
            who.append(f"{self.colluding} {'others' if who else 'of them'} collude")
        told = f", {' and '.join(who)}" if who else ""
        return f"{format_count(self.users, 'user')}, {format_count(self.rounds, 'round')}, noise {self.noise}{told}"


def theorem_game(users: int, rounds: int) -> Game:
    """Returns the game against Algorithm 1 with the σ of Theorem 1."""
    sigma = paper_sigma(EPSILON, DELTA, users=users, samples=SAMPLES, rounds=rounds, lipschitz=G)
    return Game(PRESCRIBED, users, sigma, rounds)


def sum_game(rounds: int, honest: int, colluding: int = 0, accountant: Accountant = "pld") -> Game:
    """Returns the game against 10 users, of whom `honest` add just the noise that the sum needs, by PLD as default."""
    sigma = user_sigma(
        EPSILON, DELTA, honest=honest, samples=SAMPLES, rounds=rounds, lipschitz=G, accountant=accountant
    )
    return Game(_describe_noise(honest, accountant), 10, sigma, rounds, colluding)


def _describe_noise(honest: int, accountant: Accountant) -> str:
    who = "one honest user needs" if honest == 1 else f"{honest} honest users need"
    return f"that {who} by {NAMES[accountant]} accounting"


def ring_game(rounds: int, sigma: float | None = None) -> Game:
    """Returns the game against noise in the ring: 10 users, of whom 2 drop out of every round, and 3 others collude.

    The noise is that of Theorem 1 if its σ is given, otherwise what the remaining users have to add.
    """
    if sigma is not None:
        name = f"{PRESCRIBED}, added by the protocol"
        return Game(name, 10, sigma, rounds, COLLUDERS, round(DROPOUTS * 10), in_ring=True)
    honest = count_honest(10, DROPOUTS, COLLUDERS)
    sigma = distributed_sigma(
        EPSILON,
        DELTA,
        parties=10,
        sensitivity=of_sample(SAMPLES, G),
        dropouts=DROPOUTS,
        colluders=COLLUDERS,
        rounds=rounds,
        bits=BITS,
        clip=CLIP,
        accountant="rdp",
    )
    name = f"{_describe_noise(honest, 'rdp')}, added by the protocol"
    return Game(name, 10, sigma, rounds, COLLUDERS, 10 - COLLUDERS - honest, in_ring=True)


# --- the game ------------------------------------------------------------------------------------------------------


def add_plainly(vectors: Sequence[Vector]) -> Vector:
    """Returns the sum of some vectors."""
    total: Vector = np.sum(vectors, axis=0)
    return total


def secagg_summation(game: Game, entries: int, seed: int) -> Summation:
    """Returns a function that sums by rounds of the deployed protocol, real cryptography included."""
    parties = [f"p{place}" for place in range(game.users)]
    clip = G + FARTHEST * game.sigma
    simulation = Simulation.of("secagg", parties, entries, seed=seed, bits=64, clip=clip)

    def sum_vectors(vectors: Sequence[Vector]) -> Vector:
        brought = {party: Update(vector, 1.0) for party, vector in zip(parties, vectors, strict=True)}
        outcome = simulation.average(brought)
        total: Vector = outcome.average[parties[0]] * len(outcome.contributors)
        return total

    return sum_vectors


def sample_statistics(game: Game, trials: int, seed: int, summed: Summation) -> tuple[Vector, Vector]:
    """Returns the adversary's statistic for each trial: with the opposite of the canary, and with the canary.

    Every entry of the users' vectors is a separate trial, so that one run of T rounds performs all of them.
    """
    brings, known = _make_vectors(game, trials, seed)
    honest = game.honest  # User 0, who has the canary, is honest.
    entropies = [SeededEntropy(seed, NAME, user) for user in range(game.users)]
    heard = np.zeros(2 * trials)
    for _ in range(game.rounds):
        vectors = [noisy(vector, game.sigma, own) for vector, own in zip(brings, entropies, strict=True)]
        heard += summed(vectors) - add_plainly(vectors[honest:]) - sum(known[:honest])
    heard /= game.sigma * math.sqrt(honest * game.rounds)
    return heard[:trials], heard[trials:]


def ring_statistics(game: Game, trials: int, seed: int) -> tuple[Vector, Vector]:
    """Returns the same for noise that the deployed protocol adds, with dropouts and real cryptography."""
    brings, known = _make_vectors(game, trials, seed)
    parties = [f"p{place}" for place in range(game.users)]
    updates = {party: Update(vector) for party, vector in zip(parties, brings, strict=True)}
    colluding, last = parties[game.users - game.colluding :], game.users - game.colluding
    # Neither user 0 nor colluding users drop out. The others take turns over the rounds.
    faults = [
        Fault(action="drop", message="MaskedInput", round=number + 1, party=parties[1 + (number + place) % (last - 1)])
        for number in range(game.rounds)
        for place in range(game.dropped)
    ]
    options: dict[str, Any] = {"bits": BITS, "clip": CLIP, "noise": game.sigma}
    simulation = Simulation.of("secagg", parties, 2 * trials, seed=seed, faults=faults, **options)
    heard = np.zeros(2 * trials)
    for _ in range(game.rounds):
        outcome = simulation.average(updates)
        heard += outcome.average[parties[0]] * len(outcome.contributors)
        for party in outcome.contributors:
            heard -= (
                _reveal_encoding(simulation, party, updates[party])
                if party in colluding
                else known[parties.index(party)]
            )
    heard /= game.sigma * math.sqrt(game.honest * game.rounds)
    return heard[:trials], heard[trials:]


def _make_vectors(game: Game, trials: int, seed: int) -> tuple[list[Vector], list[float]]:
    """Returns the users' vectors before noise, and the part of each that is known: everything but the canary of user
    0."""
    rng = np.random.default_rng(seed)
    # The loss ⟨θ, x⟩ has the gradient x for any θ, so earlier releases do not influence later ones.
    gradients = [clip_gradients(rng.normal(size=(SAMPLES, 1)), G)[:, 0] for _ in range(game.users)]
    without, there = gradients[0].copy(), gradients[0].copy()
    without[0], there[0] = -G, G
    known = [float(gradients[0][1:].sum()) / SAMPLES, *(float(gradient.mean()) for gradient in gradients[1:])]
    brings = [np.full(2 * trials, gradient.mean()) for gradient in gradients]
    brings[0] = np.repeat([without.mean(), there.mean()], trials)
    return brings, known


def _reveal_encoding(simulation: Simulation, party: str, update: Update) -> Vector:
    """Returns what a colluding user reveals about its round: its encoded vector, noise included."""
    seed = simulation.seed_of(party, simulation.number)
    ring = simulation.participants[party].suite(simulation.number, seed).ring
    numbers: Vector = ring.floats(ring.encode(update))[: len(update.vector)]
    return numbers


def lower_bound(false_alarms: int, misses: int, trials: int) -> float:
    """Returns the ε that these numbers of errors refute with 95 % confidence; 0 if they refute none."""
    fpr, fnr = (proportion_finding(NAME, "", "", wins=errors, tries=trials).high for errors in (false_alarms, misses))
    ratio = max((1 - DELTA - fnr) / fpr, (1 - DELTA - fpr) / fnr)
    return math.log(max(ratio, 1.0))


def choose_threshold(separation: float, trials: int) -> float:
    """Returns the threshold with the best lower bound, for the expected frequencies of errors."""
    from scipy.stats import norm  # Importing it takes a second.

    def expected_bound(place: float) -> float:
        false_alarms, misses = norm.sf(place + separation / 2), norm.cdf(place - separation / 2)
        return lower_bound(round(trials * false_alarms), round(trials * misses), trials)

    # By symmetry the lower half offers nothing better.
    return float(max(np.linspace(0, 4, 41), key=expected_bound))


def play_game(game: Game, trials: int, seed: int, summed: Summation = add_plainly) -> Finding:
    """Plays the game and returns the ε that it proves, compared with the tightest value of an accountant."""
    heard = ring_statistics(game, trials, seed) if game.in_ring else sample_statistics(game, trials, seed, summed)
    place = choose_threshold(game.separation, trials)
    bound = lower_bound(int(np.sum(heard[0] > place)), int(np.sum(heard[1] <= place)), trials)
    # For sums of discrete noise only concentrated privacy is proved, and Rényi DP gives the best bound from it.
    accountant: Accountant = "rdp" if game.in_ring else "pld"
    measure = f"lower bound on ε from a distinguishing game, with 95 % confidence, where {EPSILON:g} is claimed"
    bracket = f"proved, to accounted ({accountant.upper()})"
    most = game.account(accountant)
    return Finding(NAME, game.target, measure, bound, bound, most, 2 * trials, bound > EPSILON, bracket, game.paper)


def account_game(game: Game) -> Finding:
    """Returns the ε computed by zCDP. The lower end of the interval is by PLD, and decides."""
    most, tight = game.account("zcdp"), game.account("pld")
    measure = f"privacy loss ε by an accountant, where {EPSILON:g} is claimed"
    bracket = "tight (PLD), to simple (zCDP)"
    return Finding(NAME, game.target, measure, most, tight, most, 1, tight > EPSILON, bracket, game.paper)


# --- the experiment ------------------------------------------------------------------------------------------------


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns ε by accountants and by the game: first with the noise of Theorem 1, then with sufficient noise."""
    rounds, trials = (ROUNDS, 50_000) if full else (ROUNDS // 20, 20_000)
    theorem = theorem_game(10, rounds)
    ringed = ring_game(rounds, theorem.sigma)
    broken = [theorem, theorem_game(100, rounds), sum_game(rounds, honest=10, colluding=9), ringed]
    sound = [sum_game(rounds, honest=10), sum_game(rounds, honest=1, colluding=9), ring_game(rounds)]
    results = []
    for done, game in enumerate([*broken, *sound]):
        progress(f"playing against {game.target}", done / 7)
        few = (
            trials if game.users <= 10 else trials // 10
        )  # With this many users the canary is so much easier to distinguish that fewer trials are enough.
        summed = secagg_summation(game, 2 * few, seed) if game.users <= 10 else add_plainly
        results.append(play_game(game, few, seed, summed))
    progress(NAME, 1.0)
    return [
        *(account_game(theorem_game(users, ROUNDS)) for users in (10, 100, 1000)),
        *results[: len(broken)],
        *(account_game(game) for game in (theorem_game(1, ROUNDS), sum_game(ROUNDS, honest=10, accountant="zcdp"))),
        *results[len(broken) :],
    ]


ATTACK = Attack(
    name=NAME,
    summary="computes the ε of the noise, and tells from noisy sums which of two samples a user has",
    paper=PAPERS["003"],
    run=run,
)
