"""Noise that parties add in the ring, each its part of it: what the noise of all honest ones is worth in their sum.

With the setting `noise=σ` every party adds whole numbers from a discrete Gaussian to its encoded vector, under its
masks. Whoever sees the sum, the server included, sees it with the noise of all who are in it; whoever colludes can take
its own off. So what counts is the noise of those who are honest *and* did not drop out (`count_honest`).

**The bound.** A sum of discrete Gaussians is not quite one. For n of them, each of σ ≥ 1/2 steps, on d entries, if a
change moves the sum by at most Δ steps (L2), the Rényi divergence of order α is at most

    min( α Δ²/(2 n σ²) + τ d,  α (Δ/(√n σ) + τ √d)²/2 )    with τ = 10 Σ_{k<n} exp(−2 π² σ² k/(k + 1))

(Kairouz, Liu and Steinke 2021, Proposition 14). That is ρ-zCDP with ρ = min(Δ²/(2 n σ²) + τ d, (Δ/(√n σ) + τ √d)²/2),
for α > 1. Beyond three steps τ is nothing. Skellam noise adds up exactly, but takes a Poisson sampler of any mean, and
its own bound has a term beyond the Gaussian's that does not vanish as fast; here steps are fine, and τ does.

**What rounding adds to Δ.** Two vectors that are rounded to steps can be further apart by a step an entry, √d in all.
Of two that are no longer than `norm`, each is at most as long as `tacit.vectors.fixedpoint.longest` says, and they are
at most twice that apart. The smaller one counts.

**Whose noise.** Parties fall into classes that are alike in all that somebody saw: summed with the same factor, or not
at all. Then everything that was seen follows from the sums over classes, each with the noise of all in it. So it is as
private as the sum over the smallest class is, whose size audits call the smallest group.
"""

import math
from dataclasses import dataclass

from tacit.core.errors import ConfigError
from tacit.core.protocol import FARTHEST, Terms
from tacit.privacy.ledger import Spent
from tacit.privacy.noise import Accountant, checked, epsilon_of, local_sigma, of_user
from tacit.vectors.fixedpoint import FixedPoint, longest

DOUBLINGS = 60
"""How often the noise for numbers without steps is doubled, at most, before it is said that no noise will do."""
PRECISION = 1e-6
"""How close to the least noise that will do is close enough."""


@dataclass(frozen=True)
class SharedNoise:
    """The noise in one sum, of which each honest party adds its part."""

    sigma: float
    """σ of each one's own, in the units of an entry."""
    step: float
    """The step of the ring, in the same units."""
    sensitivity: float
    """How far one sample, or one user, can move a vector before it is rounded (L2)."""
    honest: int = 1
    """Whose noise can be counted on."""
    entries: int = 1
    norm: float | None = None
    """How long a vector may be, if the sensitivity is that of all a user has."""
    stochastic: bool = False
    releases: int = 1
    """How often a vector is encoded with other noise."""

    @property
    def moved(self) -> float:
        """Δ: by how many steps the sum is moved at most, once vectors are rounded."""
        moved = self.sensitivity / self.step + math.sqrt(self.entries)
        if self.norm is not None:
            moved = min(moved, 2 * longest(self.norm / self.step, self.entries, stochastic=self.stochastic))
        return moved

    @property
    def tau(self) -> float:
        """τ: how far a sum of discrete Gaussians may be from one."""
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
        """Returns the ε of so many rounds."""
        return epsilon_of(rounds * self.rho, delta, accountant, gaussian=False)

    def event(self) -> Spent:
        """Returns what a round takes of the privacy of whoever is in it, for a ledger."""
        return Spent(self.rho, gaussian=False)


def count_honest(parties: int, dropouts: float = 0.0, colluders: int = 0) -> int:
    """Returns whose noise can be counted on, if that part of the parties may drop out and so many others collude."""
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
    """Returns the noise of some terms with vectors of so many entries.

    The sensitivity is that of a user whose vectors are as long as the `norm` of the settings, unless given. Honest are,
    unless given, all in the smallest sum that `secagg` allows but for the colluders; elsewhere only a party itself,
    since others may see its vector alone: an audit says how many are behind whatever they see.
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

    That is against everybody who sees the sums, the server included, if up to that part of the parties drop out of
    each and so many others collude. Per user, `norm` is how long vectors may be; per sample, the sensitivity is how far
    one can move a vector. Sums of fewer than were counted on must be refused: set a threshold of as many and the
    colluders. Raises ConfigError if no noise will do, for the ring is too coarse.
    """
    if (sensitivity is None) == (norm is None):
        raise ConfigError("give the norm of vectors, for privacy per user, or the sensitivity, for privacy per sample")
    far = of_user(norm) if norm is not None else float(sensitivity or 0.0)
    checked(delta, epsilon=epsilon, rounds=rounds, parties=parties, entries=entries, sensitivity=far)
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
