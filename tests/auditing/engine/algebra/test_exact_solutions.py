"""Exact solutions are those of plain fractions, however many digits these have."""

import random
from fractions import Fraction

import pytest

from tacit.auditing.engine.algebra import exact_solutions
from tacit.auditing.engine.algebra.exact_solutions import combine_forms, is_prime, rational, solve_exactly
from tacit.auditing.symbolic.forms import Form

UNKNOWNS = [("input", f"p{place}", 0) for place in range(6)]


def make_forms(count, digits, seed=1):
    entropy = random.Random(seed)

    def draw():
        return Fraction(entropy.randrange(1, 10**digits), entropy.randrange(1, 10**digits))

    return [Form({unknown: draw() for unknown in UNKNOWNS}) for _ in range(count)]


@pytest.mark.parametrize("digits", [1, 6, 12])
def test_every_unknown_follows_from_as_many_independent_forms(digits):
    forms = make_forms(len(UNKNOWNS), digits)
    found = solve_exactly(forms, UNKNOWNS)
    assert set(found) == set(UNKNOWNS)
    for unknown, factors in found.items():
        assert combine_forms(forms, factors).terms == {unknown: 1}


def test_what_does_not_follow_is_left_out():
    forms = [Form({UNKNOWNS[0]: 1, UNKNOWNS[1]: 1}), Form({UNKNOWNS[0]: Fraction(1, 3), UNKNOWNS[2]: 5})]
    assert solve_exactly(forms, [UNKNOWNS[0]]) == {}
    assert solve_exactly([*forms, Form({UNKNOWNS[2]: 2})], UNKNOWNS[:3]).keys() == set(UNKNOWNS[:3])


def test_a_solution_with_more_digits_than_the_primes_tell_apart_is_left_out(monkeypatch):
    monkeypatch.setattr(exact_solutions, "LAST", exact_solutions.FIRST)
    assert solve_exactly(make_forms(len(UNKNOWNS), 40), UNKNOWNS) == {}


def test_a_prime_that_makes_forms_dependent_is_passed_over(monkeypatch):
    primes = [2**31 - 1, *range(2**31 - 3, 2**31 - 4000, -2)]
    unlucky = Form({UNKNOWNS[0]: primes[0]})
    monkeypatch.setattr(exact_solutions, "_primes", lambda: (each for each in primes if is_prime(each)))
    assert solve_exactly([unlucky], [UNKNOWNS[0]]) == {UNKNOWNS[0]: {0: Fraction(1, primes[0])}}


def test_a_residue_is_read_as_the_small_fraction_that_it_is():
    prime = 2**521 - 1
    for fraction in (Fraction(0), Fraction(-7, 21**9), Fraction(12345678901234567890, 7), Fraction(-1)):
        assert rational(fraction.numerator * pow(fraction.denominator, -1, prime) % prime, prime) == fraction


def test_primes_are_told_from_what_looks_like_one():
    assert [number for number in range(41, 100, 2) if is_prime(number)] == [
        41,
        43,
        47,
        53,
        59,
        61,
        67,
        71,
        73,
        79,
        83,
        89,
        97,
    ]
    assert not is_prime(3_215_031_751), "a strong pseudoprime to the bases 2, 3, 5 and 7"
    assert is_prime(2**61 - 1)
