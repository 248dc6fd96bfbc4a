"""Distributed noise: each party adds a part of it in the ring, and the sum has the noise of all honest contributors.

With the setting `noise=σ` every party adds integers from a discrete Gaussian to its encoded vector, under its masks.
The sum has the noise of all contributors, also for the server; colluding parties can subtract their own. So only the
noise of parties that are honest *and* did not drop out counts (`count_honest`).

**The bound.** A sum of discrete Gaussians is not quite one. For n of them, each of σ ≥ 1/2 steps, on d entries, if a
change moves the sum by at most Δ steps (L2), the Rényi divergence of order α is at most

    min( α Δ²/(2 n σ²) + τ d,  α (Δ/(√n σ) + τ √d)²/2 )    with τ = 10 Σ_{k<n} exp(−2 π² σ² k/(k + 1))

(Kairouz, Liu and Steinke 2021, Proposition 14). That is ρ-zCDP with ρ = min(Δ²/(2 n σ²) + τ d, (Δ/(√n σ) + τ √d)²/2),
for α > 1. Beyond three steps τ is negligible. Skellam noise adds up exactly, but needs a Poisson sampler of any mean,
and its bound has a term beyond the Gaussian's that vanishes more slowly; here steps are fine, and τ vanishes.

**What rounding adds to Δ.** Rounding to steps can increase the distance of two vectors by a step per entry, √d in all.
A vector no longer than `norm` is at most `tacit.vectors.fixedpoint.longest` after rounding, and two of them are at most
twice that from each other. The smaller bound counts.

**Whose noise.** Parties fall into classes that the adversary's view treats alike: summed with the same factor, or not
at all. The view then follows from the sums over classes, each with the noise of all its members. So it is as private as
the sum over the smallest class, whose size is the anonymity set of an audit.
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
"""Most doublings of the noise before the search for a sufficient one gives up."""
PRECISION = 1e-6
"""Relative precision of the least sufficient noise."""


@dataclass(frozen=True)
class SharedNoise:
    """The noise in one sum, to which each honest party adds its part."""

    sigma: float
    """Standard deviation σ of each party's noise, in the units of an entry."""
    step: float
    """The step of the ring, in the same units."""
    sensitivity: float
    """Sensitivity: how far one sample, or one user, can move a vector before rounding (L2)."""
    honest: int = 1
    """Number of contributors whose noise counts."""
    entries: int = 1
    norm: float | None = None
    """Largest length (L2) of a vector, if the sensitivity is per user."""
    stochastic: bool = False
    releases: int = 1
    """Number of times a vector is encoded with fresh noise in a round."""

    @property
    def moved(self) -> float:
        """Δ: the largest change of the sum, in steps, once vectors are rounded."""
        moved = self.sensitivity / self.step + math.sqrt(self.entries)
        if self.norm is not None:
            moved = min(moved, 2 * longest(self.norm / self.step, self.entries, stochastic=self.stochastic))
        return moved

    @property
    def tau(self) -> float:
        """τ: the distance of a sum of discrete Gaussians from one."""
        exponent = -2 * math.pi**2 * (self.sigma / self.step) ** 2
        return 10 * sum(math.exp(exponent * k / (k + 1)) for k in range(1, self.honest))

    @property
    def rho(self) -> float:
        """ρ of zero-concentrated privacy, of one round."""
        steps, d, tau = self.sigma / self.step, self.entries, self.tau
        if steps < 0.5:
            return math.inf
        moved = self.moved / (steps * math.sqrt(self.honest))
        return self.releases * min(moved**2 / 2 + tau * d, (moved + tau * math.sqrt(d)) ** 2 / 2)

    def epsilon(self, delta: float, rounds: int = 1, accountant: Accountant = "zcdp") -> float:
        """Returns the ε of a number of rounds, by one way to account for them."""
        return epsilon_of(rounds * self.rho, delta, accountant, gaussian=False)

    def best_epsilon(self, delta: float, rounds: int = 1) -> EpsilonBound:
        """Returns the least ε of a number of rounds that is proved, and by what."""
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
    """Returns how many parties' noise counts if a part of them drops out and others collude."""
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
            f"be counted on; have more parties, or each add all of the noise (local_sigma)"
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
    """Returns the noise of some terms for vectors with a number of entries.

    The sensitivity defaults to that of a user whose vectors are as long as the `norm` of the settings. `honest`
    defaults to all contributors of the smallest sum that `secagg` allows but the colluders; elsewhere to one, because
    others may see a party's vector alone: an audit determines the anonymity set.
    """
    settings = terms.settings
    wrong = [] if settings.noise else ["the settings have no noise; set noise= to its standard deviation"]
    if sensitivity is None and settings.norm is None:
        wrong.append("how far a vector can be moved is not bounded; set norm=, or give the sensitivity")
    if wrong:
        raise ConfigError(wrong)
    if honest is None:
        honest = 1 if terms.secure_sum is None else terms.secure_sum.smallest - colluders
        if honest < 1:
            raise ConfigError(f"{colluders} colluders may be all there are in a sum; set a larger threshold")
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

    That holds against everyone who sees the sums, including the server. Sums of fewer contributors than counted must be
    refused: set a threshold of that many plus the colluders. Raises ConfigError if no noise suffices because the ring
    is too coarse.

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        parties: Number of parties.
        sensitivity: How far one sample can move a vector (L2), for privacy per sample.
        norm: Largest length (L2) of a vector, for privacy per user.
        dropouts: Part of the parties that may drop out of a round.
        colluders: Number of other parties that may collude.
        rounds: Number of rounds T.
        entries: Entries of a vector.
        bits: Bits of a ring element.
        clip: Largest magnitude of an entry.
        stochastic: Whether rounding is stochastic; by default it is in a ring of 16 bits.
        accountant: How rounds are composed.
    """
    if (sensitivity is None) == (norm is None):
        raise ConfigError("give the norm of vectors, for privacy per user, or the sensitivity, for privacy per sample")
    far = of_user(norm) if norm is not None else float(sensitivity or 0.0)
    check_positive(delta, epsilon=epsilon, rounds=rounds, parties=parties, entries=entries, sensitivity=far)
    honest = count_honest(parties, dropouts, colluders)
    by_chance = bits == 16 if stochastic is None else stochastic
    if accountant == "pld":
        epsilon_of(1.0, delta, accountant, gaussian=False)  # says why not

    step = FixedPoint(bits, clip, parties, entries).resolution / clip  # for each unit of what the ring holds

    def suffices(sigma: float) -> bool:
        span = clip + FARTHEST * sigma / math.sqrt(parties)
        noise = SharedNoise(sigma, step * span, far, honest, entries, norm, by_chance)
        return noise.epsilon(delta, rounds, accountant) <= epsilon

    # Rounding only ever adds to what real numbers would take.
    low = high = local_sigma(epsilon, delta, sensitivity=far, rounds=rounds, accountant=accountant) / math.sqrt(honest)
    for _ in range(DOUBLINGS):
        if suffices(high):
            break
        low, high = high, 2 * high
    else:
        raise ConfigError(
            f"no noise gives ε = {epsilon:g} with {entries} entries of {bits} bits and clip={clip:g}, for rounding "
            f"moves sums by as much as noise hides; use more bits, a smaller clip, or fewer entries"
        )
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
