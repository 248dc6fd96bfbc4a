"""Writes shamir.json: sharings and recoveries by the textbook formulas, with cases that must be refused.

Shares no code with tacit: powers instead of Horner's rule, exact fractions instead of arithmetic in the field, and a
primality test of its own. Run from anywhere: python tests/crypto/vectors/write_shamir.py
"""

import hashlib
import json
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any


def is_prime(n: int) -> bool:
    """Miller and Rabin with forty fixed bases."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        powers = [pow(base, odd << k, n) for k in range(twos)]
        if powers[0] != 1 and n - 1 not in powers:
            return False
    return True


P = next(n for n in range(2**256 + 1, 2**256 + 1000, 2) if is_prime(n))


def number(name: str) -> int:
    return int.from_bytes(hashlib.sha512(name.encode()).digest(), "big") >> 128


def share(coefficients: list[int], x: int) -> str:
    """The polynomial at x, lowest coefficient first, as 33 bytes."""
    return (sum(c * x**k for k, c in enumerate(coefficients)) % P).to_bytes(33, "big").hex()


def at_zero(points: dict[int, int]) -> int:
    total = sum(y * prod(Fraction(other, other - x) for other in points if other != x) for x, y in points.items())
    fraction = Fraction(total)
    return fraction.numerator * pow(fraction.denominator, -1, P) % P


def good(name: str, secret: int, random: list[int], holders: list[int]) -> dict[str, Any]:
    """`random` holds the 384-bit draws in the order they are made: the highest coefficient first."""
    coefficients = [secret, *(draw % P for draw in reversed(random))]
    shares = {x: share(coefficients, x) for x in holders}
    lowest = sorted(holders)[: len(coefficients)]
    assert at_zero({x: int(shares[x], 16) for x in lowest}) == secret
    return {
        "name": name,
        "secret": secret.to_bytes(32, "big").hex(),
        "threshold": len(coefficients),
        "random": "".join(draw.to_bytes(48, "big").hex() for draw in random),
        "holders": holders,
        "shares": {str(x): value for x, value in shares.items()},
    }


def bad_split(name: str, **changes: Any) -> dict[str, Any]:
    fine = {"secret": "11" * 32, "threshold": 2, "holders": [1, 2, 3], "random": "00" * 48}
    return {"name": name, **fine, **changes}


def bad_combine(name: str, threshold: int, shares: dict[int, str]) -> dict[str, Any]:
    return {"name": name, "threshold": threshold, "shares": {str(x): value for x, value in shares.items()}}


def vectors() -> dict[str, Any]:
    seed = number("seed") >> 128
    draws = [number(f"draw {i}") for i in range(66)]
    line = [seed, draws[0] % P]
    two = {x: share(line, x) for x in (1, 2)}
    return {
        "prime": str(P),
        "split": [
            good("one_of_one", seed, [], [1]),
            good("one_of_three", seed, [], [1, 2, 3]),
            good("two_of_three", seed, draws[:1], [1, 2, 3]),
            good("zero_secret", 0, draws[:2], [1, 2, 3, 4]),
            good("greatest_secret", 2**256 - 1, draws[:2], [3, 1, 2]),
            good("wide_apart", seed, draws[:3], [2**32 - 1, 7, 2**31, 1, 65536]),
            good("greatest_share", 0, [(P - 1) * pow(5, -1, P) % P], [5, 6]),
            good("draws_above_the_prime", seed, [2**384 - 1, P, P + 1], [1, 2, 3, 4, 5]),
            good("seventeen_of_twenty", seed, draws[:16], list(range(1, 21))),
            good("sixty_seven_of_a_hundred", seed, draws, list(range(1, 101))),
        ],
        "bad_split": [
            bad_split("bad_secret_short", secret="11" * 31),
            bad_split("bad_secret_long", secret="11" * 33),
            bad_split("bad_threshold_zero", threshold=0, random=""),
            bad_split("bad_threshold_negative", threshold=-1, random=""),
            bad_split("bad_threshold_above_holders", threshold=4, random="00" * 144),
            bad_split("bad_holder_zero", holders=[0, 1, 2]),
            bad_split("bad_holder_negative", holders=[-1, 1, 2]),
            bad_split("bad_holder_too_great", holders=[1, 2, 2**32]),
            bad_split("bad_holder_twice", holders=[1, 2, 2]),
            bad_split("bad_no_holders", holders=[]),
            bad_split("bad_too_little_randomness", random="00" * 47),
        ],
        "bad_combine": [
            bad_combine("bad_too_few", 3, two),
            bad_combine("bad_none", 1, {}),
            bad_combine("bad_share_empty", 2, {**two, 1: ""}),
            bad_combine("bad_share_short", 2, {**two, 1: two[1][2:]}),
            bad_combine("bad_share_long", 2, {**two, 2: "00" + two[2]}),
            bad_combine("bad_share_is_the_prime", 2, {**two, 2: P.to_bytes(33, "big").hex()}),
            bad_combine("bad_share_all_ones", 2, {**two, 1: "ff" * 33}),
            bad_combine("bad_holder_zero", 2, {**two, 0: two[1]}),
            bad_combine("bad_holder_too_great", 2, {1: two[1], 2**32: two[2]}),
            bad_combine("bad_constant_term_2_to_256", 2, {x: share([2**256, 5], x) for x in (1, 2)}),
            bad_combine("bad_constant_term_greatest", 2, {x: share([P - 1, 5], x) for x in (1, 2)}),
        ],
    }


if __name__ == "__main__":
    Path(__file__).with_name("shamir.json").write_text(json.dumps(vectors(), indent=1) + "\n")
