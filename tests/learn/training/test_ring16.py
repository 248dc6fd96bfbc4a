"""A ring of 16 bits: learning is as good as in one of 32, at half the bytes, or it is refused or said."""

from statistics import fmean

import numpy as np
import pytest

import tacit
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Data, Scenario, Split
from tacit.learn.training import assemble as fitting
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.local_training import LocalTraining

pytestmark = pytest.mark.long

GRAPH = {"graph": {"kind": "regular", "degree": 4}, "allow_leaks": True}
PROTOCOLS = {"fedavg": {}, "secagg": {}, "gossip": GRAPH, "cesar": GRAPH}
SPREAD = Split(kind="dirichlet", alpha=0.5)


def scenario(protocol, bits, *, model="mlp", rounds=15, parties=6, seed=0, local=None, **options):
    return Scenario(
        seed=seed,
        rounds=rounds,
        evaluate=rounds,
        data=Data(parties=parties, split=SPREAD, test=None),
        model={"name": model},
        local=local or LocalTraining(rate=0.2, batch=16),
        protocol={"name": protocol, "bits": bits, **options},
    )


def learnt(wanted):
    """Returns what is known after the last round, bytes of all rounds, and every note."""
    prepared = assemble_run(wanted)
    rounds = list(prepared.rounds())
    notes = [*prepared.notes, *(note for each in rounds for note in each.notes)]
    return rounds[-1], sum(each.bytes for each in rounds), notes


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", ["softmax", pytest.param("mlp", marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_16_bits_learn_what_32_do(protocol, model):
    few, many = (
        [learnt(scenario(protocol, bits, model=model, seed=seed, **PROTOCOLS[protocol])) for seed in range(2)]
        for bits in (16, 32)
    )
    scores = ("accuracy",) if few[0][0].consensus is None else ("accuracy", "consensus")
    for score in scores:
        ours, theirs = (fmean(getattr(last, score) for last, _, _ in runs) for runs in (few, many))
        assert theirs > 0.85, "there is something to lose"
        assert abs(ours - theirs) <= 0.005
    assert not any("cut off" in note for _, _, notes in few for note in notes)
    if model == "mlp" and protocol != "secagg":
        assert many[0][1] / few[0][1] > 1.9


def test_masks_and_keys_are_as_long_in_any_ring_and_vectors_half_as_long():
    sent = {}
    for bits in (16, 32):
        step = next(assemble_run(scenario("secagg", bits, rounds=1)).training.steps(1))
        sent[bits] = step.outcome.traffic.by_class()
    assert sent[32]["parameters"] == pytest.approx(2 * sent[16]["parameters"], rel=1e-3)
    assert sent[32]["protocol"] == pytest.approx(sent[16]["protocol"], rel=0.02)


# --- what is chosen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_clip_is_chosen_from_the_data_and_said(protocol):
    small, large = (
        assemble_run(
            scenario(protocol, 16, local=LocalTraining(rate=rate, batch=16), model="softmax", **PROTOCOLS[protocol])
        )
        for rate in (0.01, 1.0)
    )
    clips = [each.checked.terms.settings.clip for each in (small, large)]
    assert 8 <= clips[1] / clips[0] <= 400, "about as the rate"
    for prepared, clip in zip((small, large), clips, strict=True):
        assert f"clip={clip:g} was chosen" in prepared.notes[-1]
        assert prepared.checked.terms.settings.stochastic


def test_what_is_set_is_left_alone():
    prepared = assemble_run(scenario("secagg", 16, clip=3.0, rounding="nearest"))
    assert prepared.checked.terms.settings.clip == 3.0
    assert not prepared.checked.terms.settings.stochastic
    assert not any("was chosen" in note for note in prepared.notes)
    assert not any("was chosen" in note for note in assemble_run(scenario("secagg", 32)).notes)


def test_probing_leaves_no_trace():
    first, again = (assemble_run(scenario("gossip", 16, rounds=1, **GRAPH)) for _ in range(2))
    whole = assemble_run(scenario("gossip", 32, rounds=1, **GRAPH))
    assert np.array_equal(first.training.cohort.matrix, whole.training.cohort.matrix)
    for prepared in (first, again):
        list(prepared.rounds())
    assert np.array_equal(first.training.cohort.matrix, again.training.cohort.matrix)


def test_models_grow_and_the_clip_leaves_room_for_that(monkeypatch):
    wanted = scenario(
        "gossip", 16, model="softmax", rounds=60, local=LocalTraining(rate=0.3, batch=8, steps=1), **GRAPH
    )
    _, _, notes = learnt(wanted)
    assert not any("cut off" in note for note in notes)
    monkeypatch.setattr(fitting, "GROWTH", 0.0)
    _, _, notes = learnt(wanted)
    assert any("cut off" in note for note in notes), "four times the largest entry of the first round is too little"


# --- how much rounding adds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rounding_adds_what_is_said(protocol):
    rng = np.random.default_rng(0)
    models = [rng.normal(0, 0.2, 4000) for _ in range(12)]
    options = {"bits": 16, "clip": 1.0, "seed": 0, **PROTOCOLS[protocol]}
    ours = tacit.aggregate(models, protocol, **options).average
    exact = tacit.aggregate(models, protocol, **{**options, "bits": 64}).average
    off = np.std([np.asarray(ours[party]) - np.asarray(exact[party]) for party in ours])
    terms = assemble_run(scenario(protocol, 16, parties=12, clip=1.0, **PROTOCOLS[protocol])).checked.terms
    assert fitting._rounding_error(terms) == pytest.approx(off, rel=0.05)


@pytest.mark.parametrize("protocol", ["gossip", "cesar"])
def test_a_ring_that_is_too_coarse_is_refused(protocol):
    tiny = LocalTraining(rate=1e-5, batch=16, steps=1)
    with pytest.raises(ConfigError, match=r"16 bits are too few for 6 parties.*use bits=32"):
        assemble_run(scenario(protocol, 16, local=tiny, **GRAPH))
    assemble_run(scenario(protocol, 32, local=tiny, **GRAPH))


def test_to_the_nearest_learning_stands_still_where_chance_goes_on():
    coarse = {"clip": 128.0, "rounds": 40, "local": LocalTraining(rate=0.1, batch=16, steps=2)}
    nearest, chance, exact = (
        learnt(scenario("fedavg", bits, rounding=rounding, **coarse))[0].accuracy
        for bits, rounding in ((16, "nearest"), (16, "stochastic"), (32, "auto"))
    )
    assert chance > nearest + 0.05
    assert abs(chance - exact) < 0.015
