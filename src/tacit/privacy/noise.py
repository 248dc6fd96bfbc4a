"""Gaussian noise on gradients: the σ of each user, and the resulting ε (paper 003, Section 2).

Letters are the paper's: m users of whom at least h are honest, n₍₁₎ samples at the user that has fewest, T updates with
one aggregation each (K = 1), and losses that are G-Lipschitz, so that no sample's gradient is longer than G.
`clip_gradients` ensures the latter where a loss does not. Neighbouring data differ in one sample of one user, which is
replaced.

Theorem 1 calibrates **one** noise vector on the average over all m users. In Algorithm 1 every user adds one of its
own, and averaging divides the variance by the number of users summed: for E = m by m. So the noise of Theorem 1 is too
little by √m, and `paper_sigma` is here to be compared with, not to be used.

`user_sigma` distributes the noise that the **sum** needs among the h users that must be assumed honest: the others know
what they added and can subtract it. `accounted_epsilon` is its inverse, and the figure to report. If a round sums a
random E of the users, count the honest ones among those E; amplification by sampling is not accounted for.

`local_sigma` is the noise that suffices if all others collude, and `central_sigma` that of a party that is trusted with
the sum. Noise that protocols add themselves, in the ring, is in `tacit.privacy.distributed_noise`.

**Limits.** `noisy` draws with 53 bits and adds in floating point, whose last bits can tell more than real numbers would
(Mironov 2012). Rounding to a ring of 32 bits takes these off, but nothing is proved here about what is left. What
protocols add in the ring is whole numbers, and has no such bits; neither has `noisy_on_grid`, which training uses.
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
"""Steps of the grid of `noisy_on_grid` in a standard deviation."""
Accountant: TypeAlias = Literal["zcdp", "rdp", "pld"]
"""Zero-concentrated DP in closed form, an upper bound; Rényi DP, a closer one; privacy loss distributions, tight."""


def clip_gradients(gradients: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """Returns gradients, one a row, with those that are longer than `norm` (G) shortened to it."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    shortened: NDArray[np.float64] = gradients * np.minimum(1.0, norm / np.maximum(lengths, norm))
    return shortened


def of_sample(samples: int, lipschitz: float = 1.0) -> float:
    """Returns the sensitivity of a sum to one sample: its user's mean gradient moves by at most 2 G/n₍₁₎."""
    return 2 * lipschitz / samples


def of_user(norm: float) -> float:
    """Returns the sensitivity of a sum to one user: its vector, of that length at most, moves by twice the length."""
    return 2 * norm


def noisy(vector: NDArray[np.float64], sigma: float, entropy: Entropy) -> NDArray[np.float64]:
    """Returns a vector with Gaussian noise of this standard deviation on every entry (Algorithm 1, line 4)."""
    # Box and Muller: a pair of uniform numbers makes a pair of normal ones. 1 − u is never 0, so the logarithm exists.
    pairs = (len(vector) + 1) // 2
    u = entropy.secret_vector("noise", 2 * pairs)
    radius, angle = np.sqrt(-2 * np.log(1 - u[:pairs])), 2 * np.pi * u[pairs:]
    z = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: len(vector)]
    noised: NDArray[np.float64] = vector + sigma * z
    return noised


def noisy_on_grid(vector: NDArray[Any], sigma: float, entropy: Entropy) -> NDArray[np.float64]:
    """Returns a vector on a grid of σ/2⁴⁰ with discrete Gaussian noise of this standard deviation on every entry.

    Entries are rounded to the grid before noise is added, so that the last digits of floats tell nothing. Rounding
    moves a vector of d entries by at most √d σ/2⁴¹. Noise comes from the AES key stream of a key that is drawn from the
    entropy, as the noise of protocols does. Entries beyond 2¹³ σ are not exact.
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
    """Returns σ of Theorem 1 as printed, σ² = 8 G² T log(1/δ) / (m² n₍₁₎² ε²): too little for Algorithm 1."""
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

    Args:
        epsilon: Privacy to reach over all rounds.
        delta: Probability with which ε may be exceeded.
        honest: Number of contributors that are assumed honest.
        samples: Samples of the user that has fewest, n₍₁₎.
        rounds: Number of sums, T.
        lipschitz: Bound G on the length of a sample's gradient.
        accountant: How rounds are composed.
    """
    check_positive(delta, epsilon=epsilon, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _multiplier(epsilon, delta, rounds, accountant) * of_sample(samples, lipschitz) / math.sqrt(honest)


def local_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ with which a party's own noise makes T of its vectors (ε, δ)-private, whatever others do.

    The sensitivity is how far one sample, or one user, can move its vector: see `of_sample` and `of_user`.
    """
    check_positive(delta, epsilon=epsilon, sensitivity=sensitivity, rounds=rounds)
    return _multiplier(epsilon, delta, rounds, accountant) * sensitivity


def central_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ of a single noise vector on each of T sums that makes these (ε, δ)-private.

    The party that adds it knows the sums without it. To publish averages, divide both by the same number.
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
    """Returns the ε of T sums, each with the noise of `honest` users that added σ each.

    Args:
        sigma: Standard deviation of each user's noise.
        delta: Probability with which ε may be exceeded.
        honest: Number of contributors that are assumed honest.
        samples: Samples of the user that has fewest, n₍₁₎.
        rounds: Number of sums, T.
        lipschitz: Bound G on the length of a sample's gradient.
        accountant: How rounds are composed.
    """
    check_positive(delta, sigma=sigma, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _epsilon(sigma * math.sqrt(honest) / of_sample(samples, lipschitz), delta, rounds, accountant)


def epsilon_of(rho: float, delta: float, accountant: Accountant = "zcdp", *, gaussian: bool = True) -> float:
    """Returns the ε of a mechanism that is ρ-zCDP in total.

    Rényi DP gives a closer bound than the closed form; privacy loss distributions apply to `gaussian` noise only, whose
    rounds compose to one Gaussian with that ρ.
    """
    if accountant == "pld" and not gaussian:
        raise ConfigError(
            'of sums of discrete noise, concentrated privacy is proved and no more; use the accountant "rdp" or "zcdp"'
        )
    if not 0 < rho < math.inf:
        return rho
    return _epsilon(1 / math.sqrt(2 * rho), delta, 1, accountant)


def _epsilon(multiplier: float, delta: float, rounds: int, accountant: Accountant) -> float:
    """Returns the ε of T sums whose noise is a multiple of the sensitivity."""
    if accountant == "zcdp":
        rho = rounds / (2 * multiplier**2)
        return rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke 2016, Proposition 1.3
    spent = _fresh(accountant)
    spent.compose(_event(multiplier, rounds))
    return float(spent.get_epsilon(delta))


def _multiplier(epsilon: float, delta: float, rounds: int, accountant: Accountant) -> float:
    """Returns the least multiple of the sensitivity for which `_epsilon` is no more than ε."""
    # ε = ρ + 2 √(ρ log(1/δ)), solved for √ρ.
    root = math.sqrt(math.log(1 / delta) + epsilon) - math.sqrt(math.log(1 / delta))
    most = math.sqrt(rounds / 2) / root
    if accountant == "zcdp":
        return most
    # The other accountants need less. Search from above, because accounting takes long where ε is large.
    least = most
    while (spent := _epsilon(least, delta, rounds, accountant)) <= epsilon:
        least /= 2
    # Accountants use a limited number of orders, or steps. Beyond these, no noise seems to suffice.
    if spent == math.inf or (least == most and _epsilon(2 * most, delta, rounds, accountant) > epsilon):
        raise ConfigError(
            f'the accountant "{accountant}" does not reach ε = {epsilon:g} at δ = {delta:g}; use "zcdp", which holds '
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
        # Privacy losses are rounded up to whole steps. Ten times the default step is ten times as fast, and at ε = 1
        # still right to six digits.
        return dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    raise ConfigError(f"there is no accountant {accountant!r}; use zcdp, rdp or pld")


def _dp_accounting() -> Any:
    try:
        import dp_accounting  # takes a second to import, and is an extra
    except ImportError:
        raise MissingExtra("dp-accounting", "dp") from None
    return dp_accounting


def check_positive(delta: float, **positive: float) -> None:
    """Raises ConfigError with all values that are out of range."""
    wrong = [
        f"{name}={value!r} must be a positive number"
        for name, value in positive.items()
        if not isinstance(value, Real) or not 0 < value < math.inf
    ]
    if not isinstance(delta, Real) or not 0 < delta < 1:
        wrong.append(f"delta={delta!r} must be a number between 0 and 1")
    if wrong:
        raise ConfigError(wrong)
