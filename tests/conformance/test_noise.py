"""Noise that protocols add: that it is there, how much of it, whom it hides vectors from, and what is refused."""

import math

import numpy as np
import pytest

import tacit
from tacit.core.suite import SERVER, Update
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

D = 4000
NOISE = 0.5


def names(count):
    return tuple(f"p{place}" for place in range(count))


def federation(protocol, parties=6, entries=D, **options):
    return Simulation.of(protocol, names(parties), entries, **{"seed": 0, "noise": NOISE, **options})


def zeros(parties=6, entries=D):
    return {name: Update(np.zeros(entries)) for name in names(parties)}


# How much of everybody's noise is left in an average of six, by protocol. A node of `gossip` and `cesar` does not hear
# its own.
LEFT = {
    "fedavg": ({}, 1 / math.sqrt(6)),
    "secagg": ({}, 1 / math.sqrt(6)),
    "gossip": ({}, math.sqrt(5) / 6),
    "cesar": ({}, math.sqrt(5) / 6),
    "rotating": ({"stages": 2}, 1 / math.sqrt(6)),
    "admm": ({"masked": True, "group_size": None}, 1 / math.sqrt(6)),
    "pushsum": ({"masked": True}, 1 / math.sqrt(6)),
}
assert LEFT.keys() == REGISTRY.keys(), "a new protocol that sums in the ring says what noise does in it"
every_protocol = pytest.mark.parametrize("protocol", LEFT)


@every_protocol
@pytest.mark.parametrize("bits", [16, 32])
def test_the_average_has_the_noise_of_all_who_are_in_it(protocol, bits):
    options, left = LEFT[protocol]
    average = federation(protocol, bits=bits, clip=1.0, **options).average(zeros()).average["p0"]
    # ADMM has few digits left in 16 bits, where λ/ρ takes most of them.
    assert average.std() == pytest.approx(NOISE * left, rel=0.25 if (protocol, bits) == ("admm", 16) else 0.05)
    assert abs(average.mean()) < 5 * NOISE * left / math.sqrt(D)


@every_protocol
def test_it_is_new_in_every_round(protocol):
    options, left = LEFT[protocol]
    running = federation(protocol, **options)
    one, two = (running.average(zeros()).average["p1"] for _ in range(2))
    if protocol == "pushsum":
        two = two - one  # what is brought is a step from the model that there is
        left *= math.sqrt(2) if np.corrcoef(one, two)[0, 1] < -0.5 else 1.0
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.1 or protocol == "pushsum"
    assert two.std() == pytest.approx(NOISE * left, rel=0.1)


@every_protocol
def test_without_noise_nothing_is_drawn(protocol, updates_for):
    """Rounds to the nearest and no noise: the same average, whatever the seed."""
    options, _ = LEFT[protocol]
    options = {**options, "rounding": "nearest", "noise": 0.0}
    if protocol == "admm":
        options |= {"lambda0": (0.0, 0.0)}
    updates = updates_for(names(6), 50)
    one, two = (federation(protocol, entries=50, seed=seed, **options).average(updates) for seed in (1, 2))
    for party in names(6):
        np.testing.assert_array_equal(one.average[party], two.average[party])


def test_masked_and_plain_averages_agree_bit_for_bit_noise_and_all(updates_for):
    """Noise and rounding follow from the seed of a party's round, and not from the protocol."""
    for options in (
        {"noise": 0.3},
        {"noise": 0.0},
        {"noise": 0.2, "bits": 16, "norm": 2.0},
        {"rounding": "stochastic"},
    ):
        updates = updates_for(names(5), 300)
        averages = [
            federation(protocol, 5, 300, twin=True, **options).average(updates).average["p2"]
            for protocol in ("fedavg", "secagg")
        ]
        np.testing.assert_array_equal(*averages)


@pytest.mark.parametrize("protocol", ["fedavg", "secagg"])
def test_whoever_drops_out_takes_its_noise_along(protocol):
    kind = {"fedavg": "Plain", "secagg": "MaskedInput"}[protocol]
    faults = [Fault(action="drop", party="p5", message=kind)]
    outcome = federation(protocol, faults=faults, threshold=5).average(zeros())
    assert outcome.contributors == names(5)
    assert outcome.average["p0"].std() == pytest.approx(NOISE / math.sqrt(5), rel=0.05)


def test_the_server_of_secagg_sees_no_vector_without_masks_and_the_sum_with_noise():
    running = federation("secagg", record=True)
    outcome = running.average(zeros())
    ring = outcome.transcript.ring()
    seen = {
        message.kind(): ring.floats(ring.unpack(message.vector))[:D]
        for _, message in outcome.transcript.open_messages(SERVER)
        if hasattr(message, "vector")
    }
    assert seen["MaskedInput"].std() > 10 * NOISE
    assert seen["Sum"].std() == pytest.approx(NOISE * math.sqrt(6), rel=0.05)


@every_protocol
def test_what_is_too_long_is_shortened(protocol, updates_for):
    options, _ = LEFT[protocol]
    options = {**options, "noise": 0.0, "norm": 1.0, "bits": 64}
    updates = updates_for(names(6), 40)
    average = federation(protocol, entries=40, **options).average(updates).average["p3"]
    short = {name: update.vector / np.linalg.norm(update.vector) for name, update in updates.items()}
    # A node of `gossip` and `cesar` keeps its own model as it is.
    own = {"p3": updates["p3"].vector} if protocol in ("gossip", "cesar") else {}
    np.testing.assert_allclose(average, np.mean(list((short | own).values()), axis=0), atol=1e-4)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [name for name, protocol in REGISTRY.items() if protocol.weighted])
def test_weights_do_not_go_with_noise(protocol):
    with pytest.raises(
        tacit.ConfigError, match=r"weighted=True does not go with noise=0\.5: the sum of weights is shown"
    ):
        federation(protocol, weighted=True, **LEFT[protocol][0])


@pytest.mark.parametrize("protocol", ["fedavg", "secagg"])
def test_nor_do_weights_that_nobody_spoke_of(protocol):
    federated = tacit.Federation(protocol, names(4), noise=0.5)
    assert federated.average([np.zeros(3)] * 4).average
    with pytest.raises(tacit.ConfigError, match=r"with noise=0\.5 all weigh max_weight=1: the sum of weights is shown"):
        federated.average([np.zeros(3)] * 4, weights=[1.0, 1.0, 0.5, 1.0])
    with pytest.raises(tacit.ConfigError, match="weighted=True does not go with noise"):
        tacit.aggregate([[1.0], [2.0], [3.0]], protocol, weights=[1.0, 2.0, 3.0], noise=0.1)
    # A party that is played by itself leaves the round, before its vector does.
    updates = {name: Update(np.zeros(3), 0.5 if name == "p1" else 1.0) for name in names(6)}
    outcome = federation(protocol, entries=3).average(updates)
    assert "p1" not in outcome.contributors
    assert "all weigh max_weight" in str(outcome.endings["p1"].error)


@pytest.mark.parametrize("protocol", ["gossip", "cesar"])
def test_selections_by_size_do_not_go_with_noise(protocol):
    with pytest.raises(
        tacit.ConfigError, match=r'not which ones are largest, as .topk. tells; try: use sparsifier="random"'
    ):
        federation(protocol, share=0.5, sparsifier="topk")
    assert federation(protocol, share=0.5, sparsifier="random").average(zeros()).average


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"noise": -0.1}, "noise must be a standard deviation"),
        ({"noise": 1e-9}, "less than a step of the ring"),
        ({"noise": 1e-3, "bits": 16}, "less than a step of the ring"),
        ({"noise": 1e300}, "noise must be a standard deviation"),
        ({"norm": 0.0}, "norm must be a positive number"),
        ({"rounding": "up"}, "rounding='up'"),
    ],
)
@every_protocol
def test_impossible_settings_are_named(protocol, options, named):
    with pytest.raises(tacit.ConfigError, match=named):
        federation(protocol, **LEFT[protocol][0], **options)


def test_parts_of_noise_must_be_a_step_too():
    """The seventh part of the noise is added to the seventh part of a vector, which neighbours are sent."""
    step = federation("gossip", 7).agreement.ring().resolution
    with pytest.raises(tacit.ConfigError, match="less than a step of the ring"):
        federation("gossip", 7, noise=3 * step, clip=27.0)
    assert federation("gossip", 7, noise=8 * step, clip=27.0)


# --- rounding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "by_chance"),
    [
        ({}, False),
        ({"bits": 16}, True),
        ({"bits": 64}, False),
        ({"bits": 16, "rounding": "nearest"}, False),
        ({"bits": 32, "rounding": "stochastic"}, True),
    ],
)
def test_sixteen_bits_are_rounded_by_chance_unless_told_otherwise(options, by_chance):
    running = federation("secagg", entries=4, noise=0.0, **options)
    assert running.agreement.settings.stochastic is by_chance
    assert running.agreement.ring().stochastic is by_chance


def test_by_chance_the_average_of_16_bits_is_right_on_average():
    vector = np.full(D, 0.3 * federation("secagg", 20, bits=16, noise=0.0).agreement.ring().resolution)
    averages = {}
    for rounding in ("nearest", "stochastic"):
        running = federation("secagg", 20, bits=16, noise=0.0, rounding=rounding)
        averages[rounding] = running.average({name: Update(vector) for name in names(20)}).average["p0"]
    assert not averages["nearest"].any()
    assert averages["stochastic"].mean() == pytest.approx(vector[0], rel=0.02)
