"""ADMM: linear convergence, masks that cancel, and refusal beyond what the pattern protects."""

import numpy as np
import pytest

import tacit
from tacit.core.entropy import SeededEntropy
from tacit.core.suite import Update
from tacit.designs import groups
from tacit.protocols import admm
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.fixedpoint import FixedPoint

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


def mean_squared(rho, bits=64, **options):
    """Returns the mean squared error of the average."""
    federation, outcome = run(rho=rho, bits=bits, allow_leaks=True, **options)
    return federation.agreement.ring(), float(np.mean((outcome.average["p0"] - MEAN) ** 2))


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0])
def test_the_mean_squared_error_falls_by_the_square_down_to_what_the_ring_resolves(rho):
    """Figure 4 of the paper: a straight line on a logarithmic axis, and then the floor of 64 bits."""
    rings, errors = zip(*(mean_squared(rho, iterations=iterations) for iterations in range(1, 13)), strict=True)
    # The n parts of z are each off by half a step at most, and what earlier iterations left of that fades.
    floors = [(N * ring.resolution) ** 2 for ring in rings]
    above = [i for i in range(1, 12) if errors[i] > 1e6 * floors[i]]
    assert above == list(range(1, len(above) + 1))
    assert len(above) >= 2
    for i in above:
        assert errors[i] / errors[i - 1] == pytest.approx((rho / (rho + 2)) ** 2, rel=1e-2)
    if rho < 1:
        assert all(error <= floor for error, floor in zip(errors[-2:], floors[-2:], strict=True))


RHOS = (3.0, 0.5, 0.02, 0.7)


@pytest.mark.parametrize("masked", [False, True])
def test_penalties_may_change_from_iteration_to_iteration(masked):
    """Equations 4 to 6 with a different ρ in each iteration, for all peers in one place."""
    _, outcome = run(rho=RHOS, bits=64, masked=masked)
    replay = Simulation.of("admm", PARTIES, D, rho=RHOS, bits=64, seed=0, twin=True)
    lambdas = np.array([SeededEntropy(replay.seed_of(party, 1)).secret_vector("lambda0", D) for party in PARTIES])
    w, z = np.array(list(VECTORS.values())), np.zeros(D)
    for rho in RHOS:
        x = (2 * w - lambdas + rho * z) / (2 + rho)
        z = np.mean(x + lambdas / rho, axis=0)
        lambdas += rho * (x - z)
    np.testing.assert_allclose(outcome.average["p3"], z, atol=1e-11)


@pytest.mark.parametrize("rho", [(3.0, 0.0009), (0.1, 0.00005), (2.0, 1.0, 0.1), (0.01, 5.0)])
def test_the_error_after_changing_penalties_is_what_the_first_leaves_times_the_others(rho):
    _, outcome = run(rho=rho, bits=64)
    replay = Simulation.of("admm", PARTIES, D, rho=rho, bits=64, seed=0, twin=True)
    drawn = np.mean([SeededEntropy(replay.seed_of(each, 1)).secret_vector("lambda0", D) for each in PARTIES], axis=0)
    first = 2 * drawn / (rho[0] * (rho[0] + 2)) - MEAN * rho[0] / (rho[0] + 2)
    expected = first * np.prod([each / (each + 2) for each in rho[1:]])
    np.testing.assert_allclose(outcome.average["p0"] - MEAN, expected, atol=1e-9)
    absolute, relative = replay.agreement.terms.off
    assert (np.abs(expected) <= absolute + relative * np.abs(MEAN)).all()


def test_two_iterations_are_enough_if_the_second_penalty_is_small():
    """And not with one ρ for both, whichever: it would have to be small for the one part of the error and large for
    the other."""
    best = min(mean_squared(rho, iterations=2)[1] for rho in np.geomspace(0.001, 100, 26).tolist())
    assert best > 1e-3
    for rho in ((3.0, 0.0009), (0.1, 0.00005)):
        assert mean_squared(rho)[1] < 1e-7


def test_as_many_penalties_as_iterations():
    terms = Simulation.of("admm", PARTIES, D, rho=RHOS[:3]).agreement.terms
    assert (terms.iterations, terms.rhos) == (3, RHOS[:3])
    assert Simulation.of("admm", PARTIES, D, rho=RHOS, iterations=4).agreement.terms.rhos == RHOS
    assert Simulation.of("admm", PARTIES, D, rho=0.2, iterations=3).agreement.terms.rhos == (0.2,) * 3
    for wrong in (1, 3, 5):
        with pytest.raises(
            tacit.ConfigError, match=f"rho has 4 values for {wrong} iterations?; try: give one for each"
        ):
            Simulation.of("admm", PARTIES, D, rho=RHOS, iterations=wrong)
    with pytest.raises(tacit.LeakRefused, match="5 iterations are more than the 4"):
        Simulation.of("admm", PARTIES, D, rho=(*RHOS, 0.1))
    with pytest.raises(tacit.ConfigError, match="for more than 10000"):
        Simulation.of("admm", PARTIES, D, rho=(0.1,) * 10_001, masked=True, group_size=None)
    assert Simulation.of("admm", PARTIES, D, rho=[1, 2], masked=True).agreement.terms.rhos == (1.0, 2.0)


@pytest.mark.parametrize("rho", [0.001, 0.1, 3.0, RHOS, (3.0, 0.0009), (0.001, 50.0, 1e-6), (0.1, 0.1, 9.0, 0.002)])
@pytest.mark.parametrize("lambda0", [(0.0, 1.0), (-40.0, 40.0), (-1.0, -0.5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_nothing_is_ever_cut_off_on_the_way(rho, lambda0, weighted, monkeypatch):
    """With vectors and λ⁰ at the ends of what they may be, in which the bound on y is nearly reached."""
    extremes = np.random.default_rng(1)

    def drawn(_self, _name, length):
        return extremes.integers(0, 2, length).astype(np.float64)

    monkeypatch.setattr(SeededEntropy, "secret_vector", drawn)
    clip, most = 0.5, 0.0
    signs = extremes.choice([-clip, clip], (N, D))
    signs[:, 0], signs[1:, 1], signs[0, 1] = clip, clip, -clip
    options = {"lambda0": lambda0, "rho": rho, "clip": clip, "weighted": weighted, "group_size": None, "masked": True}
    options |= {"bits": 64} if isinstance(rho, tuple) else {"bits": 64, "iterations": 6}
    federation = Simulation.of("admm", PARTIES, D, seed=0, **options)
    span, encode = federation.agreement.terms.span, FixedPoint.values

    def watched(self, vector, part):
        nonlocal most
        most = max(most, float(np.abs(vector).max()))
        return encode(self, vector, part)

    monkeypatch.setattr(FixedPoint, "values", watched)
    outcome = federation.average({party: Update(vector) for party, vector in zip(PARTIES, signs, strict=True)})
    assert outcome.clipped == {}
    assert span / 8 < most <= span


@pytest.mark.parametrize(("options", "said"), [({}, True), ({"clip": 1.0}, False), ({"bits": 64}, False)])
def test_a_ring_that_is_too_coarse_for_a_small_penalty_says_so(options, said):
    federation, outcome = run(rho=(3.0, 0.0009), **options)
    notes = [warning for warning in outcome.warnings if "times the clip" in warning]
    assert len(notes) == said
    if said:
        assert "for a ρ of 0.0009 the ring holds" in notes[0]
        told = float(notes[0].split("by up to ")[1].split(";")[0])
        absolute, relative = federation.agreement.terms.off
        error = np.abs(outcome.average["p0"] - MEAN) - absolute - relative * np.abs(MEAN)
        assert error.max() < told


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
        for address, message in outcome.transcript.open_messages("p0")
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
        ({"rho": ()}, "rho="),
        ({"rho": (0.1, -1.0)}, "rho="),
        ({"rho": "0.1"}, "rho="),
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
