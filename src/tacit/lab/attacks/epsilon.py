"""Attack on the noise of paper 003: its real ε, accounted for, and bounded from below by a distinguishing game.

Theorem 1 claims (ε, δ) for a σ that is meant for one noise vector on the average of m users. Algorithm 1 lets each user
add its own, so that for E = m the average carries √m times too little noise (see `tacit.privacy.noise`).

**Accounted.** What an accountant finds for that noise: an upper bound by zCDP, and the tight figure by privacy loss
distributions (PLD). Only the tight one can refute a claim: at m = 1 zCDP gives 1.02 where 1 is claimed and kept.

**Played.** An adversary knows every sample but one and sees T noisy sums. It has to decide whether that sample, the
canary, is present or its opposite. Its gradient is as long as G allows, so these are neighbouring data at their most
different. The sums come from the deployed `secagg`; those of 100 users are added up plainly to save time, which gives
the same numbers. All noise has the same law in all T rounds, so the sum of the sums tells all there is to tell, and a
threshold on it is the best test (Neyman and Pearson). (ε, δ)-privacy forces the error rates of every test:

    1 − δ ≤ FNR + e^ε FPR    and    1 − δ ≤ FPR + e^ε FNR    (Kairouz, Oh and Viswanath 2015)

so upper bounds on both rates (Clopper and Pearson, 97.5 % each) give a lower bound on ε that holds with 95 %. The
threshold is fixed beforehand from what is known of the noise, never from the trials that it is tested on. The lower
bound says something of the real noise path that no formula can; it stays well below the true ε at a δ this small.

**In the ring.** The same game is played against the noise that `secagg` adds itself, whole numbers under its masks,
while some users drop out of every round after they have masked, and others reveal to the server what they encoded,
noise included. Only the noise of the rest hides the canary, and ε is accounted for by that.
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
"""How accountants are written, where not in capitals."""
PRESCRIBED = f"as {PAPERS['003']} prescribes it"

EPSILON, DELTA = 1.0, 1e-5
"""What is claimed."""
G, SAMPLES, ROUNDS = 1.0, 100, 100
"""G, n₍₁₎ and T of Theorem 1. The ratio of the real ε to the claimed one depends on none of them."""
BITS, CLIP = 32, 2.0
"""The ring in which `secagg` adds noise. Mean gradients are no longer than G."""
DROPOUTS, COLLUDERS = 0.2, 3
"""Fraction of the users that drops out of every round, and number of colluding users."""
FARTHEST = 9.0
"""No draw of `noisy` is this many σ away: −2 log 2⁻⁵³ is less than 9²."""

Vector: TypeAlias = NDArray[np.float64]
Summation: TypeAlias = Callable[[Sequence[Vector]], Vector]
"""Callable that returns the sum of the users' vectors of a round."""


@dataclass(frozen=True)
class Game:
    """Distinguishing game: how much noise each user adds to its gradients, and who takes part."""

    noise: str
    """How σ was found."""
    users: int
    """Number of users (the paper's m); every round sums all of them."""
    sigma: float
    rounds: int
    colluding: int = 0
    """Colluding users: they reveal their encoded vectors, noise included."""
    dropped: int = 0
    """Number of users that drop out of each round; which ones differs from round to round."""
    in_ring: bool = False
    """Whether the protocol adds the noise, and not its users beforehand."""

    @property
    def honest(self) -> int:
        """Number of honest contributors to every sum."""
        return self.users - self.colluding - self.dropped

    @property
    def separation(self) -> float:
        """How many standard deviations the canary moves the sum over all rounds (GDP's μ; Dong et al. 2022)."""
        return math.sqrt(self.rounds) * of_sample(SAMPLES, G) / (self.sigma * math.sqrt(self.honest))

    def account(self, accountant: Accountant) -> float:
        """Returns the ε that an accountant finds."""
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
        """Where the paper says how much noise that is, if it does."""
        return "Theorem 1" if self.noise.startswith(PRESCRIBED) else ""

    @property
    def target(self) -> str:
        """What is attacked."""
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
    """Returns the game against 10 users, of whom `honest` add what the sum needs; by PLD, no more than that."""
    sigma = user_sigma(
        EPSILON, DELTA, honest=honest, samples=SAMPLES, rounds=rounds, lipschitz=G, accountant=accountant
    )
    return Game(_describe_noise(honest, accountant), 10, sigma, rounds, colluding)


def _describe_noise(honest: int, accountant: Accountant) -> str:
    who = "one honest user needs" if honest == 1 else f"{honest} honest users need"
    return f"that {who} by {NAMES[accountant]} accounting"


def ring_game(rounds: int, sigma: float | None = None) -> Game:
    """Returns the game against noise in the ring: 10 users, of whom 2 drop out of every round, and 3 others collude.

    The noise is that of Theorem 1 if its σ is given, and otherwise what those who are left have to add.
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
    """Returns what the adversary makes of each trial: with the opposite in the canary's place, and with the canary.

    Every entry of the users' vectors is a trial of its own, so that one run of T rounds plays them all.
    """
    brings, known = _make_vectors(game, trials, seed)
    honest = game.honest  # user 0, who has the canary, is one of them
    entropies = [SeededEntropy(seed, NAME, user) for user in range(game.users)]
    heard = np.zeros(2 * trials)
    for _ in range(game.rounds):
        vectors = [noisy(vector, game.sigma, own) for vector, own in zip(brings, entropies, strict=True)]
        heard += summed(vectors) - add_plainly(vectors[honest:]) - sum(known[:honest])
    heard /= game.sigma * math.sqrt(honest * game.rounds)
    return heard[:trials], heard[trials:]


def ring_statistics(game: Game, trials: int, seed: int) -> tuple[Vector, Vector]:
    """Returns the same of noise that the deployed protocol adds, with dropouts and real cryptography."""
    brings, known = _make_vectors(game, trials, seed)
    parties = [f"p{place}" for place in range(game.users)]
    updates = {party: Update(vector) for party, vector in zip(parties, brings, strict=True)}
    colluding, last = parties[game.users - game.colluding :], game.users - game.colluding
    # Neither user 0 nor those who collude drop out, and of the others not the same ones in every round.
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
    """Returns what users bring before noise, and what of it is known of each: all but the canary of user 0."""
    rng = np.random.default_rng(seed)
    # The loss ⟨θ, x⟩ has the gradient x, whatever θ: nothing that was released before changes what comes next.
    gradients = [clip_gradients(rng.normal(size=(SAMPLES, 1)), G)[:, 0] for _ in range(game.users)]
    without, there = gradients[0].copy(), gradients[0].copy()
    without[0], there[0] = -G, G
    known = [float(gradients[0][1:].sum()) / SAMPLES, *(float(gradient.mean()) for gradient in gradients[1:])]
    brings = [np.full(2 * trials, gradient.mean()) for gradient in gradients]
    brings[0] = np.repeat([without.mean(), there.mean()], trials)
    return brings, known


def _reveal_encoding(simulation: Simulation, party: str, update: Update) -> Vector:
    """Returns what a user who colludes tells of its round: the numbers that it encoded, noise and all."""
    seed = simulation.seed_of(party, simulation.number)
    ring = simulation.participants[party].suite(simulation.number, seed).ring
    numbers: Vector = ring.floats(ring.encode(update))[: len(update.vector)]
    return numbers


def lower_bound(false_alarms: int, misses: int, trials: int) -> float:
    """Returns the ε that these errors in so many trials of each kind refute at 95 % confidence, 0 if none."""
    fpr, fnr = (proportion_finding(NAME, "", "", wins=errors, tries=trials).high for errors in (false_alarms, misses))
    ratio = max((1 - DELTA - fnr) / fpr, (1 - DELTA - fpr) / fnr)
    return math.log(max(ratio, 1.0))


def choose_threshold(separation: float, trials: int) -> float:
    """Returns the threshold with the best lower bound, if errors are as frequent as they can be expected to be."""
    from scipy.stats import norm  # takes a second to import

    def expected_bound(place: float) -> float:
        false_alarms, misses = norm.sf(place + separation / 2), norm.cdf(place - separation / 2)
        return lower_bound(round(trials * false_alarms), round(trials * misses), trials)

    # By symmetry the lower half has nothing better to offer.
    return float(max(np.linspace(0, 4, 41), key=expected_bound))


def play_game(game: Game, trials: int, seed: int, summed: Summation = add_plainly) -> Finding:
    """Plays the game and returns what it proves of ε, up to the closest figure from an accountant."""
    heard = ring_statistics(game, trials, seed) if game.in_ring else sample_statistics(game, trials, seed, summed)
    place = choose_threshold(game.separation, trials)
    bound = lower_bound(int(np.sum(heard[0] > place)), int(np.sum(heard[1] <= place)), trials)
    # Of sums of discrete noise only concentrated privacy is proved, and Rényi DP says most about it.
    accountant: Accountant = "rdp" if game.in_ring else "pld"
    measure = f"lower bound on ε from a distinguishing game, with 95 % confidence, where {EPSILON:g} is claimed"
    bracket = f"proved, to accounted ({accountant.upper()})"
    most = game.account(accountant)
    return Finding(NAME, game.target, measure, bound, bound, most, 2 * trials, bound > EPSILON, bracket, game.paper)


def account_game(game: Game) -> Finding:
    """Returns the ε that is accounted for by zCDP; the lower end is by PLD, and decides."""
    most, tight = game.account("zcdp"), game.account("pld")
    measure = f"privacy loss ε by an accountant, where {EPSILON:g} is claimed"
    bracket = "tight (PLD), to simple (zCDP)"
    return Finding(NAME, game.target, measure, most, tight, most, 1, tight > EPSILON, bracket, game.paper)


# --- the experiment ------------------------------------------------------------------------------------------------


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns ε as accounted for and as played for: with the noise of Theorem 1, then with noise that suffices."""
    rounds, trials = (ROUNDS, 50_000) if full else (ROUNDS // 20, 20_000)
    theorem = theorem_game(10, rounds)
    ringed = ring_game(rounds, theorem.sigma)
    broken = [theorem, theorem_game(100, rounds), sum_game(rounds, honest=10, colluding=9), ringed]
    sound = [sum_game(rounds, honest=10), sum_game(rounds, honest=1, colluding=9), ring_game(rounds)]
    results = []
    for done, game in enumerate([*broken, *sound]):
        progress(f"playing against {game.target}", done / 7)
        few = trials if game.users <= 10 else trials // 10  # who is so much easier to tell needs fewer trials
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
