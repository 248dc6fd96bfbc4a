"""Paper 003, Lemmas 2 and 3, checked at each step of Algorithm 1.

Both lemmas are about expectations, over the noise z and over the E users of a sum. At every step of a run the models
are known. So both sides of each inequality are computed for the next step, given these models, without sampling: from
the variance of independent noise, and, for a mean over E of m users, from (m−E)/((m−1) E) times the variance between
users. The result is the share of steps at which an inequality fails; by the paper it is 0.

(9) is printed for θ_j^t, which line 4 sets *before* users average. With K = 1 its right side is 0, but the left side is
not if gradients differ. Li et al. 2019, who proved the lemma, use the models *after* averaging, θ̄_j^t. Both readings
are checked. Neither (9) nor (10) contains the noise, which drives users apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.core.progress import Progress
from tacit.lab.papers.p003.risk import CLAIMED, UNSTATED, Floats, Risk, load_components
from tacit.lab.papers.p003.theorems import CONVEXITY, DELTA, LIPSCHITZ, SMOOTHNESS, theorem_delay
from tacit.lab.papers.reproduction import DeclaredRow, Reproduction, Result, Scale
from tacit.lab.papers.rules import Between, Estimate
from tacit.learn.data.splits import shards
from tacit.learn.random_streams import generator
from tacit.privacy import paper_sigma, user_sigma

USERS, SUMMED, CHUNKS = 20, 5, 2
"""Numbers m and E of the paper, and the chunks of samples sorted by label that each user holds."""
STEPS: dict[Scale, int] = {"small": 100, "paper": 500}
SAMPLES: dict[Scale, int] = {"small": 4_000, "paper": 12_000}
SEEDS = 3
KS = (1, 5)
NOISES = ("no noise", "Theorem 1's σ", "calibrated σ")
NAMES = ("Lemma 2, (3)", "Lemma 3, (9) after averaging", "Lemma 3, (9) as printed", "Lemma 3, (10)")


@dataclass(frozen=True)
class LemmaSides:
    """Both sides of the inequalities of one step, by `NAMES`."""

    left: tuple[float, ...]
    right: tuple[float, ...]

    @property
    def fails(self) -> tuple[bool, ...]:
        """Whether each inequality fails, by more than rounding."""
        return tuple(left > right * (1 + 1e-9) + 1e-15 for left, right in zip(self.left, self.right, strict=True))


def trace_sides(risk: Risk, sigma: float, every: int, steps: int, seed: int) -> Iterator[LemmaSides]:
    """Runs Algorithm 1, with all users continuing from each average, and yields both sides at every step."""
    rng, users = generator(seed, "lemmas", every), risk.users
    m, d = len(users), len(risk.best)
    mean, gamma = np.zeros((m, d)), theorem_delay(every)
    for t in range(1, steps + 1):
        eta, averages = 2 / (CONVEXITY * (t + gamma)), t % every == 0
        slopes = np.array([user.slope(own) for own, user in zip(mean, users, strict=True)])
        drift = _spread(mean)
        quiet = mean - eta * slopes
        noise = eta**2 * d * sigma**2
        # Expectations over the noise of this step: the distance between users, and, over the choice of E of m users,
        # the distance of the sum's mean from the mean of all.
        apart = _spread(quiet) + noise * (m - 1) / m
        sampled = (m - SUMMED) / ((m - 1) * SUMMED)
        added = sampled * apart if averages else 0.0
        expected = float(((quiet.mean(axis=0) - risk.best) ** 2).sum()) + noise / m
        now = float(((mean.mean(axis=0) - risk.best) ** 2).sum())
        two = (1 - eta * CONVEXITY) * now + 6 * SMOOTHNESS * eta**2 * risk.gap + 2 * drift + noise + added
        nine = 4 * eta**2 * (every - 1) ** 2 * LIPSCHITZ**2
        ten = sampled * 4 * eta**2 * every**2 * LIPSCHITZ**2
        yield LemmaSides((expected + added, drift, apart, added), (two, nine, nine, ten))
        mean = models = quiet - eta * rng.normal(0, sigma, (m, d)) if sigma else quiet
        if averages:
            chosen = rng.choice(m, SUMMED, replace=False)
            mean = np.repeat(models[chosen].mean(axis=0)[None], m, axis=0)


def _spread(models: Floats) -> float:
    """Returns the mean squared distance of users' models from their mean."""
    return float(((models - models.mean(axis=0)) ** 2).sum(axis=1).mean())


def sigma_of(noise: str, samples: int, steps: int) -> float:
    """Returns the noise of each user, for ε = 1."""
    none, _, calibrated = NOISES
    if noise == none:
        return 0.0
    if noise == calibrated:
        return user_sigma(CLAIMED, DELTA, honest=1, samples=samples, rounds=steps)
    return paper_sigma(CLAIMED, DELTA, users=USERS, samples=samples, rounds=steps)


def declare(name: str, every: int, noise: str, scale: Scale) -> DeclaredRow:
    """Returns the row of an inequality."""
    return DeclaredRow(
        f"steps of {STEPS[scale]} at which it fails: {name}, K = {every}, {noise}",
        "0 %",
        Between("a lemma holds at every step, or not", high=0.0),
        "%",
        ".0f",
        f"steps at which it fails: {name}, K = {every}, {noise}",
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Checks Algorithm 1 with each K and each noise, among users with two label-sorted chunks each."""
    progress("principal components", 0.0)
    data = load_components(SAMPLES[scale])
    rows, steps = [], STEPS[scale]
    settings = [(every, noise) for every in KS for noise in NOISES]
    for done, (every, noise) in enumerate(settings):
        progress(f"K = {every}, {noise}", done / len(settings))
        shares: list[list[float]] = [[] for _ in NAMES]
        worst = [0.0] * len(NAMES)
        sigma = 0.0
        for seed in range(SEEDS):
            parts = shards(data.y, USERS, CHUNKS, generator(seed, "lemma users"))
            sigma = sigma_of(noise, min(map(len, parts)), steps)
            traced = list(trace_sides(Risk.of(data, parts), sigma, every, steps, seed))
            for place, share in enumerate(shares):
                share.append(100 * float(np.mean([each.fails[place] for each in traced])))
                ratios = [each.left[place] / each.right[place] for each in traced if each.right[place]]
                worst[place] = max([worst[place], *ratios])
        for place, name in enumerate(NAMES):
            why = f"σ = {sigma:.2g}; the left side is at most {worst[place]:.2g} times the right one"
            if not worst[place]:
                why = f"σ = {sigma:.2g}; the right side is 0"
            rows.append(declare(name, every, noise, scale).measure(Estimate.over(shares[place]), why))
    progress("lemmas", 1.0)
    return Result(tuple(rows))


SCALES: tuple[Scale, ...] = ("small", "paper")
REPRODUCTION = Reproduction(
    name="003-lemmas",
    title="Lemmas 2 and 3, step by step",
    run=run,
    declared=tuple(
        declare(name, every, noise, scale) for scale in SCALES for every in KS for noise in NOISES for name in NAMES
    ),
    unstated=(
        *UNSTATED,
        f"m = {USERS}, E = {SUMMED}, H = G. All users continue from an average.",
    ),
    changed=("(9): its printed form, and besides it the form with the models after averaging, as in Li et al. 2019.",),
)
