"""Gaussian noise on gradients: the σ that each user adds, and the resulting ε (paper 003, Section 2).

Letters are those of the paper: m users, at least h of them honest; n₍₁₎ samples at the user with the fewest; T updates,
each with one aggregation (K = 1); losses that are G-Lipschitz, so that no sample's gradient is longer than G. If a loss
is not G-Lipschitz, `clip_gradients` enforces the bound. Neighbouring data differ in one sample of one user, which is
replaced.

Theorem 1 calibrates **one** noise vector on the average over all m users. In Algorithm 1 every user adds its own noise
vector, and averaging divides the variance by the number of summed users: for E = m, by m. So the noise of Theorem 1 is
too small by a factor of √m. `paper_sigma` is for comparison only.

`user_sigma` divides the noise that the **sum** needs among the h users that are assumed honest: the others know their
own noise and can subtract it. `accounted_epsilon` is its inverse, and the figure to report. If a round sums a random E
of the users, count the honest ones among those E. Amplification by sampling is not accounted for.

`local_sigma` is the noise that suffices if all other parties collude. `central_sigma` is the noise of a party that is
trusted with the sum. `tacit.privacy.distributed_noise` covers noise that protocols add in the ring.

**Limits.** `noisy` samples with 53 bits and adds in floating point. The last bits of its results can reveal more than
real numbers would (Mironov 2012). Rounding to a ring of 32 bits removes them, but nothing is proved here about the
result. Noise that protocols add in the ring consists of integers, and so does that of `noisy_on_grid`, which training
uses. Neither has such bits.
"""

import math
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, MissingExtra
from tacit.crypto import masks
from tacit.vectors.gaussian import discrete_gaussian

GRID = 2.0**40
"""Number of grid steps of `noisy_on_grid` in one standard deviation."""
Accountant: TypeAlias = Literal["zcdp", "rdp", "pld"]
"""Accountants: "zcdp" (zero-concentrated DP) is a closed upper bound, "rdp" (Rényi DP) a closer one, and "pld" (privacy
loss distributions) tight."""


def clip_gradients(gradients: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """Returns gradients, one per row, scaled down to the length `norm` (G) where they are longer.

    >>> clip_gradients(np.array([[3.0, 4.0], [0.3, 0.4]]), norm=1.0).tolist()
    [[0.6000000000000001, 0.8], [0.3, 0.4]]
    """
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    shortened: NDArray[np.float64] = gradients * np.minimum(1.0, norm / np.maximum(lengths, norm))
    return shortened


def of_sample(samples: int, lipschitz: float = 1.0) -> float:
    """Returns the sensitivity of a sum to one sample: its user's mean gradient changes by at most 2 G/n₍₁₎.

    >>> of_sample(500, lipschitz=1.0)
    0.004
    """
    return 2 * lipschitz / samples


def of_user(norm: float) -> float:
    """Returns the sensitivity of a sum to one user: a vector of length at most `norm` changes by at most twice that.

    >>> of_user(norm=1.0)
    2.0
    """
    return 2 * norm


def noisy(vector: NDArray[np.float64], sigma: float, entropy: Entropy) -> NDArray[np.float64]:
    """Returns a vector with Gaussian noise of standard deviation `sigma` on every entry (Algorithm 1, line 4).

    >>> from tacit.core.entropy import SeededEntropy
    >>> noisy(np.zeros(3), 1.0, SeededEntropy("example")).shape
    (3,)
    """
    # Box-Muller: two uniform numbers give two normal ones. 1 − u is never 0, so the logarithm is finite.
    pairs = (len(vector) + 1) // 2
    u = entropy.secret_vector("noise", 2 * pairs)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:pairs])), 2 * np.pi * u[pairs:]
    z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: len(vector)]
    noised: NDArray[np.float64] = vector + sigma * z
    return noised


def noisy_on_grid(vector: NDArray[Any], sigma: float, entropy: Entropy) -> NDArray[np.float64]:
    """Returns a vector on a grid of σ/2⁴⁰, with discrete Gaussian noise of standard deviation `sigma` on every entry.

    >>> from tacit.core.entropy import SeededEntropy
    >>> noisy_on_grid(np.zeros(3), 1.0, SeededEntropy("example")).shape
    (3,)

    Entries are rounded to the grid before noise is added, so that the last digits of floats reveal nothing. Rounding
    moves a vector of d entries by at most √d σ/2⁴¹. As in protocols, the noise comes from the AES key stream of a key
    that is sampled from `entropy`. Entries beyond 2¹³ σ are not exact.
    """

    def words(count: int) -> NDArray[np.uint64]:
        return masks.stream(entropy.bytes(masks.KEY_BYTES), count, 8).view(np.uint64)

    step = sigma / GRID
    drawn = discrete_gaussian(GRID).draw(len(vector), words)
    whole = np.rint(np.asarray(vector, np.float64) / step) + drawn
    return np.asarray(whole * step, np.float64)


def paper_sigma(
    epsilon: float, delta: float, *, users: int, samples: int, rounds: int, lipschitz: float = 1.0
) -> float:
    """Returns σ of Theorem 1 as printed, σ² = 8 G² T log(1/δ) / (m² n₍₁₎² ε²). It is too small for Algorithm 1.

    >>> round(paper_sigma(1.0, 1e-5, users=10, samples=500, rounds=10), 5)
    0.00607

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        users: Number of users, m.
        samples: Samples of the user with the fewest, n₍₁₎.
        rounds: Number of updates, T.
        lipschitz: Bound G on the length of a sample's gradient.
    """
    check_positive(delta, epsilon=epsilon, users=users, samples=samples, rounds=rounds, lipschitz=lipschitz)
    m, n, t, g = users, samples, rounds, lipschitz
    return math.sqrt(8 * g**2 * t * math.log(1 / delta) / (m**2 * n**2 * epsilon**2))


def user_sigma(
    epsilon: float,
    delta: float,
    *,
    honest: int,
    samples: int,
    rounds: int,
    lipschitz: float = 1.0,
    accountant: Accountant = "zcdp",
) -> float:
    """Returns the σ that each user must add so that T sums with the noise of `honest` users are (ε, δ)-private.

    >>> round(user_sigma(1.0, 1e-5, honest=8, samples=500, rounds=10), 5)
    0.02192

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        honest: Number of contributors that are assumed honest.
        samples: Samples of the user with the fewest, n₍₁₎.
        rounds: Number of sums, T.
        lipschitz: Bound G on the length of a sample's gradient.
        accountant: How rounds are composed.
    """
    check_positive(delta, epsilon=epsilon, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _multiplier(epsilon, delta, rounds, accountant) * of_sample(samples, lipschitz) / math.sqrt(honest)


def local_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ with which a party's own noise makes T of its vectors (ε, δ)-private, even if all others collude.

    >>> round(local_sigma(1.0, 1e-5, sensitivity=of_user(1.0), rounds=10), 2)
    30.99

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        sensitivity: Largest change of the vector when one sample or user changes: see `of_sample` and `of_user`.
        rounds: Number of vectors, T.
        accountant: How rounds are composed.
    """
    check_positive(delta, epsilon=epsilon, sensitivity=sensitivity, rounds=rounds)
    return _multiplier(epsilon, delta, rounds, accountant) * sensitivity


def central_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ of a single noise vector on each of T sums that makes the sums (ε, δ)-private.

    >>> round(central_sigma(1.0, 1e-5, sensitivity=of_user(1.0)), 2)
    9.8

    The party that adds the noise knows the exact sums. To publish averages, divide sum and σ by the same number.

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        sensitivity: Largest change of the sum when one sample or user changes: see `of_sample` and `of_user`.
        rounds: Number of sums, T.
        accountant: How rounds are composed.
    """
    return local_sigma(epsilon, delta, sensitivity=sensitivity, rounds=rounds, accountant=accountant)


def accounted_epsilon(
    sigma: float,
    delta: float,
    *,
    honest: int,
    samples: int,
    rounds: int,
    lipschitz: float = 1.0,
    accountant: Accountant = "zcdp",
) -> float:
    """Returns the ε of T sums, if each has the noise of `honest` users that each added σ.

    >>> round(accounted_epsilon(0.02192, 1e-5, honest=8, samples=500, rounds=10), 2)
    1.0

    Args:
        sigma: Standard deviation of each user's noise.
        delta: Probability with which ε may be exceeded.
        honest: Number of contributors that are assumed honest.
        samples: Samples of the user with the fewest, n₍₁₎.
        rounds: Number of sums, T.
        lipschitz: Bound G on the length of a sample's gradient.
        accountant: How rounds are composed.
    """
    check_positive(delta, sigma=sigma, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _epsilon(sigma * math.sqrt(honest) / of_sample(samples, lipschitz), delta, rounds, accountant)


def epsilon_of(rho: float, delta: float, accountant: Accountant = "zcdp", *, gaussian: bool = True) -> float:
    """Returns the ε of a mechanism that is ρ-zCDP in total.

    >>> round(epsilon_of(0.1, 1e-5), 3)
    2.246

    Args:
        rho: The total ρ.
        delta: Probability with which ε may be exceeded.
        accountant: "zcdp" is a closed form, "rdp" a closer bound. "pld" is exact, and for Gaussian noise only.
        gaussian: Whether the noise is Gaussian. Then all rounds compose to one Gaussian with the total ρ.
    """
    if accountant == "pld" and not gaussian:
        raise ConfigError(
            "of sums of discrete noise, concentrated privacy is proved and no more; try: "
            'use the accountant "rdp" or "zcdp"'
        )
    if not 0 < rho < math.inf:
        return rho
    return _epsilon(1 / math.sqrt(2 * rho), delta, 1, accountant)


def _epsilon(multiplier: float, delta: float, rounds: int, accountant: Accountant) -> float:
    """Returns the ε of T sums whose noise has a standard deviation of `multiplier` sensitivities."""
    if accountant == "zcdp":
        rho = rounds / (2 * multiplier**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke 2016, Proposition 1.3
    spent = _fresh(accountant)
    spent.compose(_event(multiplier, rounds))
    return float(spent.get_epsilon(delta))


def _multiplier(epsilon: float, delta: float, rounds: int, accountant: Accountant) -> float:
    """Returns the smallest multiplier of the sensitivity for which `_epsilon` is at most ε."""
    # ε = ρ + 2 √(ρ log(1/δ)), solved for √ρ.
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    most = math.sqrt(rounds / 2) / root
    if accountant == "zcdp":
        return most
    # The other accountants need less noise. The search starts from above, because accounting is slow for large ε.
    least = most
    while (spent := _epsilon(least, delta, rounds, accountant)) <= epsilon:
        least /= 2
    # Accountants use a limited number of orders or steps. Beyond their range, no amount of noise seems to suffice.
    if spent == math.inf or (least == most and _epsilon(2 * most, delta, rounds, accountant) > epsilon):
        raise ConfigError(
            f'the accountant "{accountant}" does not reach ε = {epsilon:g} at δ = {delta:g}; try: '
            'use "zcdp", which holds '
            f"for all of them, or a larger ε or δ"
        )
    dp = _dp_accounting()
    found = dp.calibrate_dp_mechanism(
        lambda: _fresh(accountant),
        lambda multiplier: _event(multiplier, rounds),
        epsilon,
        delta,
        dp.ExplicitBracketInterval(least, 2 * least),
        tol=1e-6 * least,
    )
    return float(found)


def _event(multiplier: float, rounds: int) -> Any:
    dp = _dp_accounting()
    return dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), rounds)


def _fresh(accountant: Accountant) -> Any:
    dp = _dp_accounting()
    if accountant == "rdp":
        return dp.rdp.RdpAccountant()
    if accountant == "pld":
        # Privacy losses are rounded up to whole steps. Ten times the default step is ten times as fast, and the result
        # at ε = 1 still has six correct digits.
        return dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    raise ConfigError(f"accountant must be zcdp, rdp or pld, not {accountant!r}")


def _dp_accounting() -> Any:
    try:
        import dp_accounting  # slow to import, and an optional dependency
    except ImportError:
        raise MissingExtra("dp-accounting", "dp") from None
    return dp_accounting


def check_positive(delta: float, **positive: float) -> None:
    """Raises ConfigError that lists all values out of range."""
    wrong = [
        f"{name}={value!r} must be a positive number"
        for name, value in positive.items()
        if not isinstance(value, Real) or not 0 < value < math.inf
    ]
    if not isinstance(delta, Real) or not 0 < delta < 1:
        wrong.append(f"delta={delta!r} must be a number between 0 and 1")
    if wrong:
        raise ConfigError(wrong)
