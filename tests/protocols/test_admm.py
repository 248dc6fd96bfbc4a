"""ADMM: linear convergence, masks that cancel, and refusal beyond what the pattern protects."""

import numpy as np
import pytest

import tacit
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Update
from tacit.designs import groups
from tacit.drivers.simulator import Simulation
from tacit.protocols import admm

N, D = 9, 50
PARTIES = tuple(f"p{i}" for i in range(N))
RNG = np.random.default_rng(5)
VECTORS = {party: RNG.normal(size=D) for party in PARTIES}
UPDATES = {party: Update(vector) for party, vector in VECTORS.items()}
MEAN = np.mean(list(VECTORS.values()), axis=0)


def run(**options):
    federation = Simulation.of("admm", PARTIES, D, record=True, seed=0, twin=True, **options)
    return federation, federation.average(UPDATES)


@pytest.mark.parametrize("rho", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("masked", [False, True])
def test_error_shrinks_by_rho_over_rho_plus_two(rho, masked):
    """Lemma II.2. Measured over grouped and masked runs of 1 to 8 iterations."""
    errors = []
    for iterations in range(1, 9):
        _, outcome = run(rho=rho, iterations=iterations, masked=masked, allow_leaks=True, bits=64)
        errors.append(np.abs(outcome.average["p0"] - MEAN).max())
    ratios = np.array(errors[1:]) / np.array(errors[:-1])
    large = np.array(errors[:-1]) > 1e-9  # below, the ring's rounding takes over
    assert large.sum() >= 3
    np.testing.assert_allclose(ratios[large], rho / (rho + 2), rtol=1e-3)


def test_the_first_iterate_is_that_of_the_paper():
    """Written out from Equations 4 to 6 with the λ⁰ that the peers drew."""
    rho = 0.5
    _, outcome = run(rho=rho, iterations=1, bits=64)
    replay = Simulation.of("admm", PARTIES, D, rho=rho, iterations=1, bits=64, seed=0, twin=True)
    lambdas = [SeededEntropy(replay.seed_of(party, 1)).secret_vector("lambda0", D) for party in PARTIES]
    x = [(2 * VECTORS[party] - lambda_) / (2 + rho) for party, lambda_ in zip(PARTIES, lambdas, strict=True)]
    z = np.mean([x_k + lambda_ / rho for x_k, lambda_ in zip(x, lambdas, strict=True)], axis=0)
    np.testing.assert_allclose(outcome.average["p3"], z, atol=1e-12)


def test_masked_and_plain_give_the_same_bits():
    _, plain = run()
    _, masked = run(masked=True)
    for party in PARTIES:
        np.testing.assert_array_equal(plain.average[party], masked.average[party])


def test_everybody_ends_with_the_same():
    _, outcome = run(masked=True)
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], outcome.average["p0"])


def test_peers_meet_only_in_their_groups():
    _, outcome = run(iterations=4)
    pattern = groups(N, 3)
    for passed in outcome.transcript:
        address = passed.envelope.address
        if address.kind == "GroupPart":
            pair = {PARTIES.index(address.sender), PARTIES.index(address.to)}
            assert any(pair <= set(group) for group in pattern.partitions[address.step - 1])
    met = [
        (p.envelope.address.sender, p.envelope.address.to)
        for p in outcome.transcript
        if p.envelope.address.kind == "GroupPart"
    ]
    assert len(met) == len(set(met)), "nobody meets twice within the gap"


def test_masked_shares_are_uniform():
    updates = {party: Update(np.zeros(D)) for party in PARTIES}
    federation = Simulation.of("admm", PARTIES, D, record=True, masked=True, lambda0=(0.0, 0.0), seed=0, twin=True)
    outcome = federation.average(updates)
    seen = [
        np.frombuffer(message.vector, dtype="<u4")
        for address, message in outcome.transcript.opened("p0")
        if isinstance(message, admm.GroupPart) and address.to == "p0"
    ]
    assert len(seen) == 4 * 2
    assert np.count_nonzero(np.concatenate(seen) == 0) == 0
    np.testing.assert_array_equal(outcome.average["p0"], np.zeros(D))


def test_iterations_default_to_what_the_pattern_protects():
    federation, _ = run()
    assert federation.agreement.terms.iterations == groups(N, 3).gap == 4
    _, outcome = run(group_size=None, masked=True)
    np.testing.assert_allclose(outcome.average["p0"], MEAN, atol=1e-5)


def test_so_few_parties_that_no_pattern_protects_them_are_refused():
    with pytest.raises(tacit.LeakRefused, match="use masked=True and group_size=None"):
        tacit.aggregate([np.ones(3)] * 5, "admm")
    outcome = tacit.aggregate([np.ones(3)] * 5, "admm", masked=True, group_size=None)
    np.testing.assert_allclose(outcome.average["p0"], np.ones(3), atol=1e-5)
    assert outcome.warnings == ()


def test_an_average_that_is_far_off_says_so():
    _, outcome = run(iterations=2)
    assert "may be off by" in outcome.warnings[0]
    error = np.abs(outcome.average["p0"] - MEAN).max()
    told = float(outcome.warnings[0].split("off by ")[1].split(",")[0])
    assert error < told + 0.1 * np.abs(MEAN).max()


@pytest.mark.parametrize("options", [{"iterations": 5}, {"group_size": None, "iterations": 2}])
def test_more_iterations_than_protected_are_refused(options):
    with pytest.raises(tacit.LeakRefused, match="more than the"):
        run(**options)
    run(allow_leaks=True, **options)


def test_weights():
    weights = {party: float(i + 1) for i, party in enumerate(PARTIES)}
    outcome = tacit.aggregate(
        VECTORS, "admm", weights=weights, masked=True, group_size=None, bits=64, rho=0.1, clip=64.0
    )
    expected = np.average(list(VECTORS.values()), axis=0, weights=list(weights.values()))
    np.testing.assert_allclose(outcome.average["p0"], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"group_size": 10}, "group_size=10"),
        ({"group_size": 1}, "group_size=1"),
        ({"iterations": 0}, "iterations=0"),
        ({"rho": 0.0}, "rho="),
        ({"lambda0": (1.0, 0.0)}, "lambda0="),
    ],
)
def test_bad_settings(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        run(**options)


@pytest.mark.parametrize("step", range(0, 20, 3))
def test_a_crash_ends_in_an_abort_that_names_somebody(step):
    fault = tacit.Fault(action="crash", party="p4", step=step)
    with pytest.raises(tacit.TacitError, match=r"p\d"):
        run(faults=[fault])
