"""How many bits of an entry a coalition learns: against formulas, brute force, and what exact algebra gets wrong."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit import protocols
from tacit.auditing.engine.algebra.precision import NEAR, Spread, estimate_bits, of_sums
from tacit.auditing.symbolic.forms import Form
from tacit.core.average import Average
from tacit.protocols.gossip import GOSSIP, SharedEntries

SPREAD = Spread(prior=1.0, resolution=1e-6)


def x(i, factor=1):
    return Form({("input", f"p{i}", 0): factor})


def bits(forms, count=3, spread=SPREAD):
    others = [("input", f"p{i}", 0) for i in range(count)]
    rounded = [any(Fraction(factor).denominator > 1 for factor in form.terms.values()) for form in forms]
    return list(estimate_bits(forms, rounded, others, spread).values())


# --- what exact algebra gets wrong ---------------------------------------------------------------------------------


def test_a_tiny_residue_hides_nobody():
    """x₀ + x₁/10¹⁷ is no x₀, to the letter. It shows every digit of it."""
    found = bits([x(0, Fraction(1, 3)) + x(1, Fraction(1, 10**17))])
    assert found[0] > 15
    assert found[1:] == [0.0, 0.0]


def test_a_huge_factor_exposes_nobody():
    """Two rounded numbers that differ by x₀/10¹⁸ give x₀ exactly, to the letter, and nothing of it in any ring."""
    large = (x(0) + x(1) + x(2)) * Fraction(1, 3)
    assert bits([large, large + x(0, Fraction(1, 10**18))])[0] < 1


def test_reports_go_by_numbers_and_not_by_letters(monkeypatch):
    """p1 hands p2 a third of what p0 gave it, and a 10¹⁷th of its own."""

    async def node(link, update, _terms, suite, _state):
        ring, (first, second, third) = suite.ring, link.parties
        if link.me == first:
            await link.send(second, SharedEntries(b"", memoryview(ring.pack(ring.values(update.vector)))))
        elif link.me == second:
            given = await link.receive(first, SharedEntries)
            theirs = ring.floats(ring.unpack(given.vector, len(update.vector)))
            mixed = theirs * (1 / 3) + update.vector * 1e-17
            await link.send(third, SharedEntries(b"", memoryview(ring.pack(ring.values(mixed)))))
        else:
            await link.receive(second, SharedEntries)
        return Average(update.vector, link.parties)

    monkeypatch.setitem(protocols.REGISTRY, "relay", replace(GOSSIP, name="relay", party=node))
    report = tacit.audit("relay", parties=3, coalition=["p2"])
    assert report.exposed == {}
    assert report.nearly == ("p0",)
    assert report.bits["p0"] >= NEAR > report.bits["p1"]


# --- against formulas ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 10])
def test_a_sum_of_n_shows_little_of_each(n):
    total = sum((x(i) for i in range(n)), Form())
    assert bits([total], count=n) == pytest.approx([math.log2(n / (n - 1)) / 2] * n, abs=1e-6)
    report = tacit.audit("secagg", parties=n + 1, coalition=["p0"])
    assert list(report.bits.values()) == pytest.approx([math.log2(n / (n - 1)) / 2] * n, abs=1e-6)


def test_masks_hide_everything_until_they_cancel():
    mask = Form({("mask", b"seed", 0): 1})
    assert bits([x(0) + mask]) == [0, 0, 0]
    assert bits([x(0) + mask, x(1) - mask])[:2] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert bits([x(0) + mask, mask])[0] > 15


def test_an_entry_has_as_many_bits_as_its_ring():
    for size in (16, 32):
        report = tacit.audit("fedavg", parties=4, coalition=["server"], bits=size)
        assert set(report.bits.values()) == {report.most_bits}
        assert size - 6 < report.most_bits < size
    assert tacit.audit("fedavg", parties=4, coalition=["server"], prior=1e-3).most_bits < 16


def test_what_is_drawn_hides_as_much_as_it_is_large():
    """λ⁰ of ADMM is uniform in [0, 1): it hides entries of a model of that size, and none of hundreds."""
    small, large = (
        max(tacit.audit("admm", parties=9, coalition=["p0"], iterations=2, prior=prior).bits.values())
        for prior in (0.1, 1000.0)
    )
    assert small < 1 < NEAR < large


def test_noise_is_averaged_away_over_rounds():
    """n rounds of x + noise show x as one round with noise of 1/√n does, and what the audit says is that."""
    for rounds in (1, 4, 16):
        report = tacit.audit("fedavg", parties=3, coalition=["server"], rounds=rounds, noise=1.0, prior=1.0)
        assert report.bits["p0"] == pytest.approx(math.log2(1 + rounds) / 2, abs=1e-3)
        assert set(report.exposed) == {"p0", "p1", "p2"}, "what is brought is seen, noise and all"


@pytest.mark.slow
def test_models_that_drift_are_known_less_well():
    """Between models that stand still and ones that are new in every round lies everything else."""
    known = []
    for drift in ("static", 1e-6, 0.01, 1.0, "free"):
        report = tacit.audit("secagg", parties=12, coalition=["server"], rounds=40, dropout=0.02, drift=drift)
        known.append(max(report.bits.values()))
    assert known == sorted(known, reverse=True)
    assert known[0] > 25
    assert known[-1] < 0.2
    exact, far = (
        tacit.audit("secagg", parties=4, coalition=["server"], rounds=3, drift=drift, faults=[LOST])
        for drift in ("static", 0.5)
    )
    assert set(exact.exposed) == {"p3"}
    assert far.exposed == {}
    assert 3 < far.bits["p3"] < exact.bits["p3"]


LOST = {"action": "drop", "message": "MaskedInput", "party": "p3", "round": 2}


@given(st.integers(0, 10**6))
def test_sums_of_many_rounds_agree_with_the_textbook(seed):
    """Against the formula for normal variables, with covariances written out and inverted."""
    rng = np.random.default_rng(seed)
    n, rounds = int(rng.integers(2, 6)), int(rng.integers(1, 6))
    rows = rng.integers(0, 2, (rounds, n))
    spread = Spread(1.0, 1e-3, drift=0.0, noise=0.3)
    error = spread.noise**2 * rows.sum(axis=1)
    kept = rows[error > 0]
    joint = kept @ kept.T + np.diag(error[error > 0])
    left = np.diag(np.eye(n) - kept.T @ np.linalg.inv(joint) @ kept) if len(kept) else np.ones(n)
    np.testing.assert_allclose(of_sums(list(rows), range(1, rounds + 1), spread, n)[0], -np.log2(left) / 2, atol=1e-6)


@given(st.integers(0, 10**6))
def test_estimates_agree_with_the_textbook(seed):
    """With masks as normal variables of a variance that nothing else comes near."""
    rng = np.random.default_rng(seed)
    n, rows, masks = int(rng.integers(1, 5)), int(rng.integers(1, 7)), int(rng.integers(0, 5))
    factors, hidden = rng.integers(-2, 3, (rows, n)), rng.integers(-1, 2, (rows, masks))
    forms = [
        sum((x(i, Fraction(int(factors[r, i]), 7)) for i in range(n)), Form())
        + sum((Form({("mask", bytes([m]), 0): int(hidden[r, m])}) for m in range(masks)), Form())
        for r in range(rows)
    ]
    spread = Spread(1.0, 0.1)
    plain = factors / 7
    joint = plain @ plain.T + 1e9 * hidden @ hidden.T + np.eye(rows) * spread.resolution**2 / 12
    left = np.diag(np.eye(n) - plain.T @ np.linalg.solve(joint, plain))
    found = bits(forms, count=n, spread=spread)
    rounded = [any(Fraction(factor).denominator > 1 for factor in form.terms.values()) for form in forms]
    # A form without a fraction in it is exact, and so known better than the rounding has it.
    if all(rounded):
        np.testing.assert_allclose(found, np.minimum(-np.log2(left) / 2, spread.most), atol=2e-2)
    else:
        assert all(ours >= theirs - 0.02 for ours, theirs in zip(found, -np.log2(left) / 2, strict=True))
