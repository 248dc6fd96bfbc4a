"""Distributed noise: each party adds a share of it in the ring, and the sum has the noise of all contributors.

With the setting `noise=σ` every party adds integers from a discrete Gaussian to its encoded vector, under its masks. So
the server sees only a sum with the noise of all contributors. Colluding parties can subtract their own noise. So only
the noise of parties counts that are honest *and* did not drop out (`count_honest`).

**The bound.** A sum of discrete Gaussians is not exactly a discrete Gaussian. Let n parties add noise of σ ≥ 1/2 steps
to d entries, and let a change of the data move the sum by at most Δ steps (L2). Then the Rényi divergence of order α is
at most

    min( α Δ²/(2 n σ²) + τ d,  α (Δ/(√n σ) + τ √d)²/2 )    with τ = 10 Σ_{k<n} exp(−2 π² σ² k/(k + 1))

(Kairouz, Liu and Steinke 2021, Proposition 14). That is ρ-zCDP with ρ = min(Δ²/(2 n σ²) + τ d, (Δ/(√n σ) + τ √d)²/2),
for α > 1. With σ of more than three steps τ is negligible. Skellam noise would add up exactly. But it needs a Poisson
sampler for any mean, and its bound exceeds the Gaussian's by a term that vanishes more slowly. Steps are fine here, so
that τ vanishes.

**Effect of rounding on Δ.** Rounding to steps can increase the distance of two vectors by one step per entry: √d in
total. A vector of length at most `norm` has at most the length `tacit.vectors.fixedpoint.longest` after rounding, and
two such vectors have at most twice that distance. The smaller of both bounds counts.

**Parties whose noise counts.** The adversary's view divides parties into classes: those summed with the same factor, or
not at all. The view follows from the sums over the classes, and each of these has the noise of all its members. So the
view is as private as the sum over the smallest class, whose size is the anonymity set of an audit.
"""

import math
from dataclasses import dataclass

from tacit.core.errors import ConfigError
from tacit.core.protocol import FARTHEST, Terms
from tacit.privacy.epsilon_bounds import BoundKind, EpsilonBound, best_epsilon
from tacit.privacy.ledger import Spent
from tacit.privacy.noise import Accountant, check_positive, epsilon_of, local_sigma, of_user
from tacit.vectors.fixedpoint import FixedPoint, longest

DOUBLINGS = 60
"""Most doublings of the noise before the search for a sufficient σ gives up."""
PRECISION = 1e-6
"""Relative precision of the smallest sufficient σ."""


@dataclass(frozen=True)
class SharedNoise:
    """Noise of one sum, to which each honest party adds a share. It computes ε.

    >>> noise = SharedNoise(sigma=10.0, step=1e-6, sensitivity=2.0, honest=6, entries=1000)
    >>> round(noise.epsilon(delta=1e-5, rounds=1), 2), noise.best_epsilon(delta=1e-5).kind.value
    (0.4, 'gaussian')
    """

    sigma: float
    """Standard deviation σ of each party's noise, in the units of an entry."""
    step: float
    """The step of the ring, in the same units."""
    sensitivity: float
    """Sensitivity: the largest change (L2) of a vector, before rounding, when one sample or one user changes."""
    honest: int = 1
    """Number of contributors whose noise counts: those that are honest and do not drop out."""
    entries: int = 1
    """Number of entries of a vector."""
    norm: float | None = None
    """Largest length (L2 norm) of a vector, for privacy per user; None for privacy per sample."""
    stochastic: bool = False
    """Whether entries are rounded at random."""
    releases: int = 1
    """Number of times that a round encodes the same vector with fresh noise."""

    @property
    def moved(self) -> float:
        """Δ: the largest change of the sum after rounding, in steps."""
        moved = self.sensitivity / self.step + math.sqrt(self.entries)
        if self.norm is not None:
            moved = min(moved, 2 * longest(self.norm / self.step, self.entries, stochastic=self.stochastic))
        return moved

    @property
    def tau(self) -> float:
        """τ: bound on how far a sum of discrete Gaussians is from a discrete Gaussian."""
        exponent = -2 * math.pi**2 * (self.sigma / self.step) ** 2
        return 10 * sum(math.exp(exponent * k / (k + 1)) for k in range(1, self.honest))

    @property
    def rho(self) -> float:
        """ρ of zero-concentrated differential privacy, for one round."""
        steps, d, tau = self.sigma / self.step, self.entries, self.tau
        if steps < 0.5:
            return math.inf
        moved = self.moved / (steps * math.sqrt(self.honest))
        return self.releases * min(moved**2 / 2 + tau * d, (moved + tau * math.sqrt(d)) ** 2 / 2)

    def epsilon(self, delta: float, rounds: int = 1, accountant: Accountant = "zcdp") -> float:
        """Returns the ε of some rounds, computed by one accountant."""
        return epsilon_of(rounds * self.rho, delta, accountant, gaussian=False)

    def best_epsilon(self, delta: float, rounds: int = 1) -> EpsilonBound:
        """Returns the smallest proved ε of some rounds, and the kind of its proof."""
        if self.rho == math.inf:
            return EpsilonBound(math.inf, BoundKind.RENYI)  # no bound holds for noise of less than half a step
        sigma, releases = self.sigma / self.step * math.sqrt(self.honest), rounds * self.releases
        return best_epsilon(
            rounds * self.rho,
            math.sqrt(releases) * self.moved / sigma,
            delta,
            sigma=sigma,
            tau=self.tau,
            drawn=releases * self.entries,
        )

    def event(self) -> Spent:
        """Returns the privacy loss of one round, for a ledger."""
        return Spent(self.rho, gaussian=False)


def count_honest(parties: int, dropouts: float = 0.0, colluders: int = 0) -> int:
    """Returns the number of parties whose noise counts, after dropouts and collusion.

    >>> count_honest(10, dropouts=0.2, colluders=2)
    6

    Args:
        parties: Number of parties.
        dropouts: Fraction of the parties that may drop out.
        colluders: Number of colluding parties.
    """
    wrong = []
    if not 0 <= dropouts < 1:
        wrong.append(f"dropouts={dropouts} must be a part of the parties, from 0 to less than 1")
    if colluders < 0:
        wrong.append(f"colluders={colluders} must not be negative")
    if wrong:
        raise ConfigError(wrong)
    gone = math.ceil(parties * dropouts - 1e-9)
    if parties - gone - colluders < 1:
        raise ConfigError(
            f"of {parties} parties {gone} may drop out and {colluders} collude, which leaves nobody whose noise could "
            f"be counted on; try: have more parties, or each add all of the noise (local_sigma)"
        )
    return parties - gone - colluders


def shared_noise(
    terms: Terms,
    entries: int,
    *,
    sensitivity: float | None = None,
    honest: int | None = None,
    colluders: int = 0,
) -> SharedNoise:
    """Returns the noise of a sum under some terms, for vectors of a number of entries.

    >>> from tacit.protocols import find
    >>> from tacit.core.suite import Parties
    >>> terms = find("secagg").settings_from({"noise": 0.5, "norm": 1.0}).bind(Parties("abcdefghij"))
    >>> shared_noise(terms, entries=1000).honest
    7

    Args:
        terms: The terms of a protocol, with noise in its settings.
        entries: Number of entries of a vector.
        sensitivity: Largest change of a vector. Default: that of a user whose vectors have the length `norm`.
        honest: Number of contributors whose noise counts. With `secagg` it defaults to the smallest allowed sum minus
            the colluders. With other protocols it defaults to one, because others may see a single party's vector; an
            audit determines the anonymity set.
        colluders: Number of colluding parties.
    """
    settings = terms.settings
    wrong = [] if settings.noise else ["the settings have no noise; try: set noise= to its standard deviation"]
    if sensitivity is None and settings.norm is None:
        wrong.append("how far a vector can be moved is not bounded; try: set norm=, or give the sensitivity")
    if wrong:
        raise ConfigError(wrong)
    if honest is None:
        honest = 1 if terms.secure_sum is None else terms.secure_sum.smallest - colluders
        if honest < 1:
            raise ConfigError(f"a sum may consist of {colluders} colluders alone; try: a larger threshold")
    ring = FixedPoint(
        settings.bits,
        terms.span,
        terms.summands,
        entries,
        settings.max_weight,
        noise=settings.noise,
        alone=terms.alone,
    )
    by_length = settings.norm if sensitivity is None else None
    return SharedNoise(
        settings.noise,
        ring.resolution / terms.part,
        of_user(settings.norm or 0.0) if sensitivity is None else sensitivity,
        honest,
        entries,
        by_length,
        settings.stochastic,
        terms.releases,
    )


def distributed_sigma(
    epsilon: float,
    delta: float,
    *,
    parties: int,
    sensitivity: float | None = None,
    norm: float | None = None,
    dropouts: float = 0.0,
    colluders: int = 0,
    rounds: int = 1,
    entries: int = 1,
    bits: int = 32,
    clip: float = 32.0,
    stochastic: bool | None = None,
    accountant: Accountant = "zcdp",
) -> float:
    """Returns the σ that each party must add, as `noise=`, so that T sums of `secagg` are (ε, δ)-private.

    >>> round(distributed_sigma(1.0, 1e-5, parties=10, norm=1.0, dropouts=0.2, colluders=2, rounds=10), 2)
    12.65

    It protects against everyone who sees the sums, including the server. Sums of too few contributors must be refused:
    set the threshold to the number of honest contributors that count, plus the colluders.

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        parties: Number of parties.
        sensitivity: Largest change (L2) of a vector when one sample changes, for privacy per sample.
        norm: Largest length (L2) of a vector, for privacy per user.
        dropouts: Fraction of the parties that may drop out of a round.
        colluders: Number of colluding parties.
        rounds: Number of rounds T.
        entries: Number of entries of a vector.
        bits: Bits of a ring element.
        clip: Largest magnitude of an entry.
        stochastic: Whether entries are rounded at random. Default: only in a ring of 16 bits.
        accountant: How rounds are composed.

    Raises:
        ConfigError: No noise suffices, because the ring is too coarse.
    """
    if (sensitivity is None) == (norm is None):
        raise ConfigError("give the norm of vectors, for privacy per user, or the sensitivity, for privacy per sample")
    far = of_user(norm) if norm is not None else float(sensitivity or 0.0)
    check_positive(delta, epsilon=epsilon, rounds=rounds, parties=parties, entries=entries, sensitivity=far)
    honest = count_honest(parties, dropouts, colluders)
    by_chance = bits == 16 if stochastic is None else stochastic
    if accountant == "pld":
        epsilon_of(1.0, delta, accountant, gaussian=False)  # raises an error with the reason

    step = FixedPoint(bits, clip, parties, entries).resolution / clip  # relative to the span of the ring

    def suffices(sigma: float) -> bool:
        span = clip + FARTHEST * sigma / math.sqrt(parties)
        noise = SharedNoise(sigma, step * span, far, honest, entries, norm, by_chance)
        return noise.epsilon(delta, rounds, accountant) <= epsilon

    # With real numbers instead of ring elements, less noise suffices. So that σ is a lower bound to start from.
    low = high = local_sigma(epsilon, delta, sensitivity=far, rounds=rounds, accountant=accountant) / math.sqrt(honest)
    for _ in range(DOUBLINGS):
        if suffices(high):
            break
        low, high = high, 2 * high
    else:
        raise ConfigError(
            f"no noise gives ε = {epsilon:g} with {entries} entries of {bits} bits and clip={clip:g}, because "
            "rounding changes sums by as much "
            "as the noise hides; try: use more bits, a smaller clip, or fewer entries"
        )
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
