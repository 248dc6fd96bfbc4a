"""No two runs have a key in common, with or without a seed, unless one is the other said again."""

import numpy as np
import pytest

import tacit
from tacit.core.suite import SERVER, Update
from tacit.protocols import REGISTRY
from tacit.protocols.secagg import MaskedInput
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3", "p4", "p5")
ENTRIES = 8
OPTIONS = {"admm": {"masked": True, "iterations": 2, "allow_leaks": True}, "pushsum": {"masked": True}}
RNG = np.random.default_rng(3)
VECTORS = {party: RNG.normal(size=ENTRIES) for party in PARTIES}
CHANGED = {**VECTORS, "p2": VECTORS["p2"] + 1e-9}

every_protocol = pytest.mark.parametrize("protocol", REGISTRY)


def run(protocol, rounds, **options):
    """Plays a run, and returns everything in it that nobody else may have: session, secrets and envelopes."""
    chosen = {"seed": 7, "record": True, **OPTIONS.get(protocol, {}), **options}
    simulation = Simulation.of(protocol, PARTIES, ENTRIES, **chosen)
    found = []
    for vectors in rounds:
        outcome = simulation.average({party: Update(vector) for party, vector in vectors.items()})
        secrets = {secret for held in outcome.transcript.holdings.values() for secret in held.secrets}
        envelopes = {passed.envelope.sealed for passed in outcome.transcript}
        found.append({simulation.agreement.session} | secrets | envelopes)
    return found


@every_protocol
def test_the_same_run_is_the_same_to_the_last_byte(protocol):
    assert run(protocol, [VECTORS, VECTORS]) == run(protocol, [VECTORS, VECTORS])


@every_protocol
def test_other_vectors_have_other_keys(protocol):
    assert not set.union(*run(protocol, [VECTORS])) & set.union(*run(protocol, [CHANGED]))


@every_protocol
def test_runs_that_part_have_other_keys_from_there_on(protocol):
    (first, second), (again, other) = run(protocol, [VECTORS, VECTORS]), run(protocol, [VECTORS, CHANGED])
    assert first == again
    assert not second & other
    assert not first & second


@every_protocol
def test_another_weight_setting_or_fault_has_other_keys(protocol):
    ours = set.union(*run(protocol, [VECTORS]))
    lost = [Fault(action="delay", party="p1", to="p2", seconds=0.5)]
    assert not ours & set.union(*run(protocol, [VECTORS], clip=16.0))
    assert not ours & set.union(*run(protocol, [VECTORS], faults=lost))


@every_protocol
def test_without_a_seed_nothing_is_ever_the_same(protocol):
    assert not set.union(*run(protocol, [VECTORS], seed=None)) & set.union(*run(protocol, [VECTORS], seed=None))


def masked(vectors, **options):
    """Returns what the server receives of p2, in the ring."""
    simulation = Simulation.of("secagg", PARTIES, ENTRIES, record=True, bits=64, **options)
    outcome = simulation.average({party: Update(vector) for party, vector in vectors.items()})
    ring = outcome.transcript.ring()
    for address, message in outcome.transcript.open_messages(SERVER):
        if isinstance(message, MaskedInput) and address.sender == "p2":
            return ring, ring.unpack(message.vector)
    raise AssertionError


OTHERS = {party: 3 * vector for party, vector in VECTORS.items()}


def difference(**options):
    """Returns what a server gets by subtracting what it saw of p2 in one of two calls from the other."""
    ring, once = masked(VECTORS, **options)
    _, again = masked(OTHERS, **options)
    return ring.floats(again - once)[:ENTRIES]


def test_a_loop_of_calls_shows_the_server_nothing_by_subtraction():
    """It did: everything followed from the seed alone, and the seed was 0 unless set."""
    truth = OTHERS["p2"] - VECTORS["p2"]
    np.testing.assert_allclose(difference(seed=0, twin=True), truth, atol=1e-9, err_msg="as it was")
    for options in ({}, {"seed": 0}):
        assert np.abs(difference(**options) - truth).min() > 1e-3


def test_the_outcome_says_that_a_seed_was_used():
    assert tacit.aggregate(VECTORS, "secagg").seed is None
    assert tacit.aggregate(VECTORS, "secagg", seed=5).seed == 5
    federation = tacit.Federation("secagg", PARTIES, seed=6)
    assert federation.average(VECTORS).seed == 6
