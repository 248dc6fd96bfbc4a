"""Shamir's secret sharing of 32-byte secrets over the integers modulo the smallest prime above 2^256.

The secret is the constant term of a random polynomial of degree threshold - 1. The share of holder x is the value at x,
as 33 bytes. Any `threshold` shares recover the polynomial; fewer reveal nothing about the secret. Shares carry no
proof. A wrong share changes the result, so callers must check the result against a commitment or a public key. Python's
integer arithmetic is not constant-time, so there is no protection against an adversary that can time this process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import mul

from tacit.core.errors import WireError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
MAX_HOLDER = 2**32 - 1

_DRAW_BYTES = 48
_RUN = 16  # multiplications by holder numbers between two reductions; measured at half the time of reducing each time


def split(
    secret: bytes, threshold: int, holders: Sequence[int], random_bytes: Callable[[int], bytes]
) -> dict[int, bytes]:
    """Returns one share for each holder, any `threshold` of which recover the secret."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if len(set(holders)) != len(holders) or not all(1 <= x <= MAX_HOLDER for x in holders):
        raise ValueError(f"holders are distinct numbers from 1 to {MAX_HOLDER}")
    if not 1 <= threshold <= len(holders):
        raise ValueError(f"the threshold must be between 1 and the {len(holders)} holders, not {threshold}")
    # 384 random bits modulo a 257-bit prime are uniform up to 2^-127. Rejection sampling would be exactly uniform, but
    # it consumes a random number of bytes, and a replay must consume the same number.
    sampled = random_bytes(_DRAW_BYTES * (threshold - 1))
    # With fewer bytes the polynomial would have a lower degree, so fewer shares would recover the secret.
    if len(sampled) != _DRAW_BYTES * (threshold - 1):
        raise ValueError(f"asked for {_DRAW_BYTES * (threshold - 1)} random bytes, got {len(sampled)}")
    falling = [int.from_bytes(sampled[i : i + _DRAW_BYTES]) % PRIME for i in range(0, len(sampled), _DRAW_BYTES)]
    falling.append(int.from_bytes(secret))
    runs = [falling[i : i + _RUN] for i in range(0, threshold, _RUN)]
    return {x: _value(runs, x).to_bytes(SHARE_BYTES) for x in holders}


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Returns the secret from the `threshold` lowest-numbered shares; raises WireError if they are inconsistent."""
    if threshold < 1:
        raise ValueError(f"the threshold must be at least 1, not {threshold}")
    if len(shares) < threshold:
        raise WireError(f"{len(shares)} shares, of at least {threshold}")
    holders = tuple(sorted(shares)[:threshold])
    if holders[0] < 1 or holders[-1] > MAX_HOLDER:
        raise WireError(f"a share belongs to a holder numbered from 1 to {MAX_HOLDER}")
    values = [_parse(x, shares[x]) for x in holders]
    secret: int = sum(map(mul, values, _at_zero(holders))) % PRIME
    if secret >= 2**256:
        raise WireError("the shares do not belong to one secret")
    return secret.to_bytes(SECRET_BYTES)


def _value(runs: Sequence[Sequence[int]], x: int) -> int:
    """Returns the polynomial at x by Horner's rule. The coefficients are in runs, highest degree first."""
    # Holder numbers are small, so a run lets the value grow by a few words only, and one reduction per run suffices.
    value = 0
    for run in runs:
        for coefficient in run:
            value = value * x + coefficient
        value %= PRIME
    return value


def _parse(holder: int, share: bytes) -> int:
    if len(share) != SHARE_BYTES:
        raise WireError(f"the share of holder {holder} has {len(share)} bytes instead of {SHARE_BYTES}")
    value = int.from_bytes(share)
    if value >= PRIME:
        raise WireError(f"the share of holder {holder} is not below the prime")
    return value


@lru_cache(maxsize=128)  # a server recovers many secrets from the same holders, or a few sets of holders
def _at_zero(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the Lagrange coefficients that interpolate at zero from values at the holders."""
    # Coefficient i is the product of all x, divided by x_i Π (x_j - x_i), j ≠ i. Inverting the product of all these
    # denominators, and dividing step by step, costs one inversion instead of one per holder.
    denominators = []
    for x in holders:
        value = x
        for i in range(0, len(holders), _RUN):
            value = value * prod(other - x for other in holders[i : i + _RUN] if other != x) % PRIME
        denominators.append(value)
    products = [1]
    for value in denominators:
        products.append(products[-1] * value % PRIME)
    rest = pow(products.pop(), -1, PRIME) * prod(holders) % PRIME
    coefficients = []
    for before, value in zip(reversed(products), reversed(denominators), strict=True):
        coefficients.append(rest * before % PRIME)
        rest = rest * value % PRIME
    return tuple(reversed(coefficients))
