"""Recipes replayed with the noise of the settings: the error is that of the vector, noise included."""

import numpy as np
import pytest

import tacit
from tacit.auditing.engine.noisy_replay import NotingRing
from tacit.auditing.render.json_report import describe_report
from tacit.core.suite import Update
from tacit.runtime.simulation.simulator import Simulation


@pytest.mark.parametrize(
    ("protocol", "coalition", "options"),
    [
        ("gossip", ["p0"], {"graph": "ring"}),
        ("fedavg", ["server"], {"norm": 1.0}),
        ("secagg", ["p0", "p1", "p2", "p3"], {}),
        ("pushsum", ["p0"], {"rounds": 3}),
    ],
)
def test_the_error_has_the_noise_in_it(protocol, coalition, options):
    report = tacit.audit(protocol, parties=5, coalition=coalition, noise=0.1, **options)
    assert report.errors.keys() == report.proof_errors.keys() == report.exposed.keys() != set()
    for victim, error in report.errors.items():
        assert 0.1 < error < 0.5, "the largest of 16 entries' noise; members take off their own"
        assert report.proof_errors[victim] < 1e-9
        assert describe_report(report)["exposed"][victim]["error"] == error
    assert not report.notes


def test_sums_of_many_rounds_are_replayed_with_noise_too():
    asked = {"parties": 5, "coalition": ["p0", "p1", "p2"], "rounds": 20, "participation": tacit.designs.Random(3)}
    quiet = tacit.audit("secagg", **asked)
    noisy = tacit.audit("secagg", noise=0.1, **asked)
    assert noisy.errors
    assert max(quiet.errors.values()) < 1e-9
    assert min(noisy.errors.values()) > 0.05
    assert max(noisy.proof_errors.values()) < 1e-9


def test_without_noise_both_errors_are_the_same():
    report = tacit.audit("fedavg", parties=3, coalition=["server"])
    assert report.errors == report.proof_errors


def test_noise_is_noted_as_it_was_drawn():
    options = {"noise": 0.5, "norm": 1.0, "clip": 4.0}
    agreement = Simulation.of("secagg", ("a", "b", "c"), 200, seed=1, **options).agreement
    ring = NotingRing(agreement)
    ring.draws_from(lambda count: np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64))
    encoded = ring.encode(Update(np.full(200, 0.01)))
    (noise,) = ring.noted
    assert np.allclose(ring.floats(encoded[:200]), 0.01 + noise, atol=1e-6)
    assert np.std(noise) == pytest.approx(0.5, rel=0.2)
