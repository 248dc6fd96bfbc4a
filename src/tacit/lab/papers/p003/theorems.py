"""Theorem 4 of paper 003, the constants of our loss in it, and the exact ε of Gaussian noise."""

import math
from dataclasses import dataclass

LIPSCHITZ = 1.0
"""G. With samples of length 1 no gradient of a sample's loss is longer."""
CONVEXITY = 0.1
"""Strong convexity λ."""
SMOOTHNESS = 0.25 + CONVEXITY
"""L. The second derivative of the logistic loss is at most 1/4."""
DELTA = 1e-5


def theorem_delay(every: int, smoothness: float = SMOOTHNESS, convexity: float = CONVEXITY) -> float:
    """Returns γ of Theorem 4."""
    return max(8 * smoothness / convexity - 1, every)


@dataclass(frozen=True)
class TheoremConstants:
    """Constants of Theorem 4, with the paper's symbols."""

    gap: float
    """Heterogeneity Γ."""
    distance: float
    """Squared distance ‖θ⁰ − θ*‖²."""
    entries: int
    """Dimension d."""
    smoothness: float = SMOOTHNESS
    """Smoothness L."""
    convexity: float = CONVEXITY
    """Strong convexity λ."""
    lipschitz: float = LIPSCHITZ
    """Lipschitz constant G."""


def theorem_4(given: TheoremConstants, *, steps: int, every: int, users: int, summed: int, sigma: float) -> float:
    """Returns Theorem 4's bound on the excess risk after T steps, with an average over E of m users after every K.

    The theorem contains the σ² of Theorem 1; here σ is arbitrary.
    """
    smooth, convex, g = given.smoothness, given.convexity, given.lipschitz
    b = 6 * smooth * given.gap + 8 * (every - 1) ** 2 * g**2 + given.entries * sigma**2
    if summed < users:
        b += (users - summed) / (users - 1) * 4 / summed * every**2 * g**2
    gamma = theorem_delay(every, smooth, convex)
    return 2 * smooth / (convex * (gamma + steps)) * (b / convex + 2 * smooth * given.distance)


def exact_epsilon(rho: float) -> float:
    """Returns the exact ε of Gaussian noise that is ρ-zCDP in total. Only the exact value can refute a claim.

    It is Gaussian differential privacy with μ = √(2 ρ): δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018).
    """
    from scipy.optimize import brentq
    from scipy.stats import norm  # Importing it takes a second.

    mu = math.sqrt(2 * rho)

    def missing(epsilon: float) -> float:
        # e^ε Φ is computed with logarithms, because e^ε alone may overflow.
        more = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - more - DELTA

    if rho <= 0 or missing(0.0) <= 0:
        return 0.0
    return float(brentq(missing, 0.0, rho + 2 * math.sqrt(rho * math.log(1 / DELTA)), xtol=1e-9))
