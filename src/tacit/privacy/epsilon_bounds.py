"""Upper bounds on the ε of rounds with discrete Gaussian noise, and the smallest of them.

**Rényi.** A mechanism that is ρ-zCDP has a Rényi divergence of at most αρ for every α > 1, which gives

    ε = min over α of  αρ + log(1 − 1/α) + (log(1/δ) − log α)/(α − 1)

(Canonne, Kamath and Steinke 2020, Proposition 12). It is always less than the closed form ρ + 2 √(ρ log(1/δ)).

**Gaussian.** T adaptive rounds of Gaussian noise with standard deviation s, on a change of length Δ, are as private as
one round with μ = √T Δ/s (Dong, Roth and Su 2022), whose δ is known exactly for each ε (Balle and Wang 2018). The same
noise rounded to integers is no less private, because changes are integers. Sampled integers have slightly different
probabilities. Let s be the standard deviation of the total noise of all n honest parties, in steps of the ring, and k
an integer with |k| ≤ B s, B ≥ 1:

- At k, the sum of n discrete Gaussians has the probability of one discrete Gaussian up to a factor of e^(τ/2), for all
  k (Kairouz, Liu and Steinke 2021, Corollary 12).
- One discrete Gaussian has the probability of the rounded Gaussian up to a factor of e^η, η = B²/24s² + 3 e^(−2π²s²).
  Their quotient is ∫ exp(−u²/2s²) cosh(ku/s²) du over u from −1/2 to 1/2, times 1 + 2 Σ exp(−2π²s²j²) from the
  normalization. The integral is at least exp(−1/24s²) by Jensen's inequality, and at most sinh(a)/a ≤ exp(a²/6) for
  a = B/2s.
- Beyond B s both have at most 2 exp(−(B − 1/2s)²/2) of their mass, because both are sub-Gaussian.

The noise of different entries and rounds is independent, whatever a round's input depends on, so the logarithms of the
factors add up. With m entries in all rounds, probabilities of views are within a factor of e^h, h = m (τ/2 + η), except
on a set of probability q = 2m exp(−(B − 1/2s)²/2). Passing from the sampled noise to the Gaussian one and back gives

    ε = ε(δ₀) + 2h    for δ = q + e^h δ₀ + e^(ε(δ₀) + h) q

where ε(δ₀) is that of the Gaussian. B is chosen so that q takes at most a thousandth of δ. Where steps are coarse h is
large, and the Rényi bound is the smaller one.

**Limits.** Both bounds are proved for exact samples, like those of the papers. The sampler is within 2⁻⁵⁷ of the exact
distribution in total variation, per sample (`tacit.vectors.gaussian`). Rounding errors of the computation here are
always added to ε, never subtracted.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

SPARED = 0.001
"""Fraction of δ reserved for noise beyond B standard deviations."""
HALVINGS = 100
"""Number of bisection steps; more would exceed the precision of floats."""
ULPS = 2.0**-48
"""Bound on the relative error of a term: that of `math.erfc`, `math.exp` and `math.log` is below 2⁻⁵⁰."""
LEAST_DELTA = 1e-290
"""Smallest δ of the Gaussian bound. Below it, floats cannot represent the probabilities."""
GOLDEN = (math.sqrt(5) - 1) / 2


class BoundKind(StrEnum):
    """Kind of proof of an ε. The values are stable codes, also in JSON."""

    RENYI = "renyi"
    """Rényi divergences of all orders, derived from zero-concentrated differential privacy."""
    GAUSSIAN = "gaussian"
    """The exact ε of Gaussian noise, plus a bound on the difference to sums of discrete noise."""
    NOTHING_SEEN = "nothing_seen"
    """The adversary sees nothing that depends on the data, so ε is 0."""
    UNBOUNDED = "unbounded"
    """No ε is proved: somebody learns a vector without noise, or what parties learn could not be accounted for."""


class EpsilonBound(NamedTuple):
    """An upper bound on ε, and the kind of its proof."""

    epsilon: float
    kind: BoundKind


def best_epsilon(rho: float, mu: float, delta: float, *, sigma: float, tau: float, drawn: int) -> EpsilonBound:
    """Returns the smallest proved bound on the ε of rounds with discrete Gaussian noise.

    Args:
        rho: ρ of zero-concentrated differential privacy, for all rounds together.
        mu: Sensitivity of all rounds together, in standard deviations of the sum's noise.
        delta: Probability with which ε may be exceeded.
        sigma: Standard deviation of the sum's noise, in steps.
        tau: Twice the largest logarithm of the ratio between the sum's probabilities and one discrete Gaussian's.
        drawn: Number of entries with fresh noise, in all rounds.
    """
    by_divergence = EpsilonBound(renyi_epsilon(rho, delta), BoundKind.RENYI)
    exact = discrete_gaussian_epsilon(mu, delta, sigma=sigma, tau=tau, drawn=drawn)
    return min(by_divergence, EpsilonBound(exact, BoundKind.GAUSSIAN), key=lambda bound: bound.epsilon)


def renyi_epsilon(rho: float, delta: float) -> float:
    """Returns the smallest ε at δ that ρ-zCDP implies."""
    if not 0 < rho < math.inf:
        return rho

    def at_order(log_excess: float) -> float:
        excess = math.exp(log_excess)  # α − 1
        order = 1 + excess
        terms = (order * rho, -math.log1p(1 / excess), -math.log(delta) / excess, -math.log(order) / excess)
        return max(0.0, math.fsum(terms) + ULPS * math.fsum(map(abs, terms)))

    # Every order gives a valid bound, so a search that misses the smallest one is safe. It starts around the best order
    # of the closed form.
    middle = math.log(math.log(1 / delta) / rho) / 2
    low, high = middle - 6, middle + 6
    for _ in range(HALVINGS):
        one, other = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, other) if at_order(one) <= at_order(other) else (one, high)
    return min(at_order(low), at_order(middle))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Returns the δ of a single Gaussian sum whose sensitivity is μ standard deviations (Balle and Wang 2018)."""
    inner, outer = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # For x above 1, rounding x changes the tail above x by a factor of at most exp(|x| · change of x).
    above = _upper_tail(inner) * (1 + ULPS * (1 + inner**2 + epsilon / mu * (1 + abs(inner))))
    exponent = epsilon + _log_upper_tail(outer)
    below = math.exp(exponent) * (1 - ULPS * (1 + epsilon + outer**2))
    return max(0.0, above - max(0.0, below))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Returns the smallest ε at δ of a single Gaussian sum whose sensitivity is μ standard deviations."""
    if not LEAST_DELTA <= delta < 1:
        return math.inf
    return _least_above(lambda epsilon: gaussian_delta(epsilon, mu) <= delta)


def _least_above(suffices: Callable[[float], bool]) -> float:
    """Returns a number that suffices. It is close to the smallest one, if all larger ones suffice."""
    low, high = 0.0, 1.0
    if suffices(low):
        return low
    while not suffices(high):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _upper_tail(x: float) -> float:
    """Returns the probability that a standard normal variable is above x."""
    return math.erfc(x / math.sqrt(2)) / 2


def _log_upper_tail(x: float) -> float:
    """Returns the logarithm of `_upper_tail`, or a slightly smaller number where the tail is too small for a float."""
    if x < 20:
        return math.log(_upper_tail(x))
    return -(x**2) / 2 - math.log(math.sqrt(2 * math.pi) * (x + 1 / x))  # the tail is at least φ(x) x/(1 + x²)


def discrete_gaussian_epsilon(mu: float, delta: float, *, sigma: float, tau: float, drawn: int) -> float:
    """Returns the ε at δ of rounds with discrete noise: that of Gaussian noise, plus a bound on the difference.

    It is infinite if steps are too coarse for this bound. The arguments are those of `best_epsilon`.
    """
    if not 0 < mu < math.inf:
        return mu
    # Assumed upper bound on ε(δ₀), which is checked in the last line.
    most = renyi_epsilon(mu**2 / 2, delta / 2)
    inside = math.sqrt(2 * (most + 1 + math.log(8 * drawn / (SPARED * delta))))  # B − 1/2s
    beyond = inside + 1 / (2 * sigma)
    eta = beyond**2 / (24 * sigma**2) + 3 * math.exp(-2 * math.pi**2 * sigma**2)
    apart = drawn * (tau / 2 + eta)
    if not apart < 1:
        return math.inf  # the Rényi bound is smaller long before
    # By the choice of B, q e^(most + h) is at most a quarter of the reserved part of δ, and q is less.
    left = delta * (1 - SPARED) * math.exp(-apart)
    exact = gaussian_epsilon(mu, left)
    return (exact + 2 * apart) * (1 + ULPS) if exact <= most else math.inf
