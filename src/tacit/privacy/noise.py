"""Gaussian noise on gradients: how much of it each user adds, and which ε that gives (paper 003, Section 2).

Letters are the paper's: m users of whom at least h are honest, n₍₁₎ samples at the user that has fewest, T updates with
one aggregation each (K = 1), and losses that are G-Lipschitz, so that no sample's gradient is longer than G. `clipped`
sees to the latter where a loss does not. Neighbouring data differ in one sample of one user, which is replaced.

Theorem 1 calibrates **one** noise vector on the average over all m users. In Algorithm 1 every user adds one of its
own, and averaging divides the variance by the number of users summed: for E = m by m. So the noise of Theorem 1 is too
little by √m, and `paper_sigma` is here to be compared with, not to be used.

`user_sigma` gives the noise that is needed in the **sum** to the h users that must be assumed honest: the others know
what they added and can take it off again. `accounted_epsilon` is its inverse, and what should be reported. If a round
sums a random E of the users, count the honest ones among those E; that the sampling itself helps is not accounted for.

`local_sigma` is the noise that is enough if all others collude, and `central_sigma` that of somebody who is trusted
with the sum. Noise that protocols add themselves, in the ring, is in `tacit.privacy.distributed_noise`.

**Limits.** `noisy` draws with 53 bits and adds in floating point, whose last bits can tell more than real numbers would
(Mironov 2012). Rounding to a ring of 32 bits takes these off, but nothing is proved here about what is left. What
protocols add in the ring is whole numbers, and has no such bits.
"""

import math
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, MissingExtra

Accountant: TypeAlias = Literal["zcdp", "rdp", "pld"]
"""Zero-concentrated DP in closed form, an upper bound; Rényi DP, a closer one; privacy loss distributions, tight."""


def clipped(gradients: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """Returns gradients, one a row, with those that are longer than `norm` (G) shortened to it."""
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    shortened: NDArray[np.float64] = gradients * np.minimum(1.0, norm / np.maximum(lengths, norm))
    return shortened


def of_sample(samples: int, lipschitz: float = 1.0) -> float:
    """Returns how far one sample can move a sum: its user's mean gradient goes from one side, G/n₍₁₎, to the other."""
    return 2 * lipschitz / samples


def of_user(norm: float) -> float:
    """Returns how far one user can move a sum: its vector, of that length at most, goes from one side to the other."""
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


def paper_sigma(
    epsilon: float, delta: float, *, users: int, samples: int, rounds: int, lipschitz: float = 1.0
) -> float:
    """Returns σ of Theorem 1 as printed, σ² = 8 G² T log(1/δ) / (m² n₍₁₎² ε²): too little for Algorithm 1."""
    checked(delta, epsilon=epsilon, users=users, samples=samples, rounds=rounds, lipschitz=lipschitz)
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
    """Returns the σ that each user must add so that T sums with `honest` such noises in them are (ε, δ)-private."""
    checked(delta, epsilon=epsilon, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _multiplier(epsilon, delta, rounds, accountant) * of_sample(samples, lipschitz) / math.sqrt(honest)


def local_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ with which a party's own noise makes T vectors of it (ε, δ)-private, whatever others do.

    The sensitivity is how far one sample, or one user, can move its vector: see `of_sample` and `of_user`.
    """
    checked(delta, epsilon=epsilon, sensitivity=sensitivity, rounds=rounds)
    return _multiplier(epsilon, delta, rounds, accountant) * sensitivity


def central_sigma(
    epsilon: float, delta: float, *, sensitivity: float, rounds: int = 1, accountant: Accountant = "zcdp"
) -> float:
    """Returns the σ of the one noise vector on each of T sums that makes these (ε, δ)-private, once it is added.

    Whoever adds it knows the sums without it, and divides both by the same number to have an average.
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
    """Returns the ε of T sums, each with the noise of `honest` users that added σ each."""
    checked(delta, sigma=sigma, honest=honest, samples=samples, rounds=rounds, lipschitz=lipschitz)
    return _epsilon(sigma * math.sqrt(honest) / of_sample(samples, lipschitz), delta, rounds, accountant)


def epsilon_of(rho: float, delta: float, accountant: Accountant = "zcdp", *, gaussian: bool = True) -> float:
    """Returns the ε of whatever is ρ-zCDP in all.

    Rényi DP says more of it than the closed form does; privacy loss distributions are of `gaussian` noise alone, whose
    rounds add up to one Gaussian with that ρ.
    """
    if accountant == "pld" and not gaussian:
        raise ConfigError(
            'of sums of discrete noise, concentrated privacy is proved and no more; use the accountant "rdp" or "zcdp"'
        )
    if not 0 < rho < math.inf:
        return rho
    return _epsilon(1 / math.sqrt(2 * rho), delta, 1, accountant)


def _epsilon(multiplier: float, delta: float, rounds: int, accountant: Accountant) -> float:
    """Returns the ε of T sums, the noise in each of which is that multiple of the sensitivity."""
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
    # The others find that less will do. We come from above, for accounting takes long where ε is large.
    least = most
    while (spent := _epsilon(least, delta, rounds, accountant)) <= epsilon:
        least /= 2
    # They reckon with so many orders, or steps, and no more. Where these do not reach, no noise seems to be enough.
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
        import dp_accounting  # takes a second, and comes with an extra
    except ImportError:
        raise MissingExtra("dp-accounting", "dp") from None
    return dp_accounting


def checked(delta: float, **positive: float) -> None:
    """Raises ConfigError with everything that cannot be."""
    wrong = [
        f"{name}={value!r} must be a positive number"
        for name, value in positive.items()
        if not isinstance(value, Real) or not 0 < value < math.inf
    ]
    if not isinstance(delta, Real) or not 0 < delta < 1:
        wrong.append(f"delta={delta!r} must be a number between 0 and 1")
    if wrong:
        raise ConfigError(wrong)
