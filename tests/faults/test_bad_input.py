"""Input that cannot work is refused with every problem in one ConfigError, before anything is sent."""

import re
import warnings
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest

import tacit
from tacit.core.errors import ConfigError
from tacit.core.suite import Update
from tacit.designs import Batches, Partition, Random
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulated_round import SimulatedRound
from tacit.runtime.simulation.simulator import Simulation

NAN, INF = float("nan"), float("inf")
VECTORS = [np.full(3, float(place)) for place in range(5)]
PARTIES = tuple(f"p{place}" for place in range(5))

every_protocol = pytest.mark.parametrize("protocol", REGISTRY)


with_weights = pytest.mark.parametrize("protocol", [name for name, protocol in REGISTRY.items() if protocol.weighted])


@pytest.fixture
def refused(monkeypatch):
    """Returns the function that calls `aggregate`, or what it is given, and returns the problems it was refused for."""

    def never(*_):
        pytest.fail("something was sent")

    monkeypatch.setattr(SimulatedRound, "run", never)

    def problems(*args, call=tacit.aggregate, **options):
        with pytest.raises(ConfigError) as caught:
            call(*args, **options)
        assert caught.value.code == "config"
        assert all(problem in str(caught.value) for problem in caught.value.problems)
        assert len(set(caught.value.problems)) == len(caught.value.problems), "no problem is told twice"
        return caught.value.problems

    return problems


# --- vectors -------------------------------------------------------------------------------------------------------

BAD_MODELS = {
    "NaN": (np.array([1.0, NAN, 3.0]), "p1: the array has 1 NaN entries of 3"),
    "infinite": (np.array([INF, 1.0, -INF]), "p1: the array has 2 infinite entries of 3"),
    "objects": (np.array([1.0, None, 3.0], dtype=object), r"p1: .*object.* not an array of real numbers"),
    "text": (np.array(["a", "b", "c"]), r"p1: .*<U1.* not an array of real numbers"),
    "bytes": (np.array([b"a", b"b", b"c"]), r"p1: .*S1.* not an array of real numbers"),
    "complex": (np.array([1j, 2, 3]), r"p1: .*complex128.* not an array of real numbers"),
    "booleans": (np.array([True, False, True]), r"p1: .*bool.* not an array of real numbers"),
    "dates": (np.array(["2020-01-01"] * 3, dtype="M8[D]"), r"p1: .*datetime64.* not an array of real numbers"),
    "None": (None, r"p1: .*object.* not an array of real numbers"),
    "a word": ("abc", r"p1: .* not an array of real numbers"),
    "nothing": (np.array([]), "p1: the model is empty"),
    "an empty dict": ({}, "p1: the model is empty"),
    "shorter": (np.zeros(2), r"p1: compared with p0's model, the array is float64 \(2,\), not float64 \(3,\)"),
    "longer": (np.zeros(4), r"p1: compared with p0's model, .*\(4,\), not"),
    "a matrix": (np.zeros((3, 1)), r"p1: compared with p0's model, .*\(3, 1\), not"),
    "a number": (1.0, r"p1: compared with p0's model, the array is float64 \(\), not"),
    "another type": (np.zeros(3, dtype=np.float32), r"p1: compared with p0's .* is float32 .* not float64"),
    "a dict": ({"w": np.array(["a"])}, r"p1: w \(<U1 \(1,\)\) is not an array of real numbers"),
}


@every_protocol
@pytest.mark.parametrize("what", BAD_MODELS)
def test_a_model_that_cannot_be_averaged(refused, protocol, what):
    model, problem = BAD_MODELS[what]
    (found,) = refused([VECTORS[0], model, *VECTORS[2:]], protocol)
    assert re.search(problem, found)


@every_protocol
def test_every_model_at_fault_is_named(refused, protocol):
    models = [np.array([NAN, 1.0]), np.zeros(2), np.array([INF, NAN]), np.array(["a", "b"])]
    found = refused(models, protocol)
    assert [problem.split(":")[0] for problem in found] == ["p0, p2", "p2", "p3"]
    found = refused([np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(4)], protocol)
    assert [problem.split(":")[0] for problem in found] == ["p1", "p3"]


def test_the_array_at_fault_is_named_by_its_path(refused):
    good = {"conv": {"w": np.zeros((2, 2)), "b": np.zeros(2)}}
    bad = {"conv": {"w": np.full((2, 2), NAN), "b": np.array([1.0, INF])}}
    assert refused([good, bad], "fedavg") == (
        "p1: conv.w has 4 NaN entries of 4",
        "p1: conv.b has 1 infinite entries of 2",
    )


def test_arrays_that_are_missing_or_too_many_are_named(refused):
    found = refused([np.zeros(3), {"w": np.zeros(3)}, np.zeros(3)], "fedavg")
    assert found == (
        "p1: compared with p0's model, the array (float64 (3,)) is missing",
        "p1: compared with p0's model, w (float64 (3,)) is one too many",
    )


def test_of_seventeen_layers_the_one_that_differs_is_named(refused):
    layers = {f"layer{place}.weight": np.zeros((3 + place, 4)) for place in range(17)}
    odd = layers | {"layer9.weight": np.zeros((5, 5))}
    assert refused([layers, layers, odd], "secagg") == (
        "p2: compared with p0's model, layer9.weight is float64 (5, 5), not float64 (12, 4)",
    )
    found = refused([layers, *[{name: np.zeros(1) for name in layers}] * 7], "secagg")
    assert len(found) == 4
    assert all(problem.startswith("p1, p2, p3, p4, p5 and 2 more: ") for problem in found)
    assert found[-1].endswith("and 14 more of the kind")


def test_dicts_in_another_order_are_laid_out_differently(refused):
    one, two = OrderedDict(a=np.zeros(1), b=np.zeros(1)), OrderedDict(b=np.zeros(1), a=np.zeros(1))
    (found,) = refused([one, two], "fedavg")
    assert found == "p1: compared with p0's model, the arrays are in another order"


@pytest.mark.parametrize("vectors", [None, 3, 1.5, object()], ids=["None", "a number", "a float", "anything"])
def test_what_is_no_list_of_vectors(refused, vectors):
    kind = type(vectors).__name__
    assert refused(vectors, "fedavg") == (f"vectors must be a dict by party, or a list, not of type {kind}",)


def _in_itself(kind):
    model = [1.0] if kind is list else {"w": np.zeros(1)}
    model.append(model) if kind is list else model.update(model=model)
    return model


@pytest.mark.parametrize("kind", [list, dict])
def test_a_model_that_contains_itself(refused, kind):
    problem = "the model contains itself, or is nested too deeply"
    assert refused([_in_itself(kind)] * 3, "fedavg") == (f"p0, p1, p2: {problem}",)


def test_entries_beyond_any_float(refused):
    assert refused([[10**400], [1.0], [10**400]], "fedavg")[0].startswith("p0, p2: 0 (object ()) is not an array")
    assert refused([10**400, 1.0, 1.0], "fedavg")[0].startswith("p0: the array (object ()) is not an array")


def test_a_wrong_value_does_not_hide_a_wrong_shape(refused):
    assert len(refused([np.zeros(3), np.array([NAN, 1.0, 1.0]), np.zeros(4)], "fedavg")) == 2


# --- what is averaged of a model -----------------------------------------------------------------------------------


def network(count, head=2, **more):
    """Returns the arrays of a model with a counter and a switch, as a state dict has them."""
    return {
        "body.weight": np.full(3, 0.5),
        "norm.num_batches_tracked": np.array(count),
        "norm.frozen": np.array(False),
        "head.weight": np.full(head, float(count)),
        **more,
    }


@every_protocol
def test_counters_and_switches_stay_with_their_owner(protocol, protected):
    models = [network(10**6 + place) for place in range(4)]
    out = tacit.aggregate(models, protocol, exclude="head.*", **protected.get(protocol, {}))
    assert out.clipped == {}
    for place, model in enumerate(models):
        average = out.average[f"p{place}"]
        assert list(average) == list(model)
        assert average["norm.num_batches_tracked"] == 10**6 + place
        assert not average["norm.frozen"]
        assert average["head.weight"].tolist() == model["head.weight"].tolist()
        np.testing.assert_allclose(average["body.weight"], model["body.weight"], atol=1e-6)


def test_what_stays_local_may_differ(refused):
    models = [network(1, head=2), network(2, head=5), network(3, head=7, extra=np.zeros(1))]
    (found, extra) = refused(models, "secagg", exclude=["norm.*"])[:2]
    assert found == "p1: compared with p0's model, head.weight is float64 (5,), not float64 (2,)"
    assert extra.startswith("p2: compared with p0's model, extra (float64 (1,)) is one too many")
    federation = tacit.Federation("gossip", PARTIES[:3], exclude=["head.*", "extra"])
    assert federation._checked.terms.settings.exclude == ("head.*", "extra")


def test_a_federation_averages_the_same_of_every_round():
    federation = tacit.Federation("gossip", PARTIES[:3], include=["body.*", "norm.num_batches_tracked"])
    for number in (1, 2):
        out = federation.average([network(number, head=place) for place in (1, 2, 3)])
        assert out.average["p2"]["norm.num_batches_tracked"] == number
        assert out.average["p2"]["head.weight"].shape == (3,)


def test_names_that_are_no_arrays(refused):
    models = [network(1)] * 3
    assert refused(models, "secagg", exclude="heads.weight") == (
        "exclude='heads.weight' is the name of no array; did you mean 'head.weight'?",
    )
    assert refused(models, "secagg", include=["head", "body.weight"]) == (
        "include='head' is the name of no array; did you mean 'head.*'?",
    )
    assert refused(models, "secagg", include=[]) == (
        "p0, p1, p2: nothing would be averaged: body.weight, norm.num_batches_tracked, norm.frozen, head.weight are "
        "left out, or not of floats; try: name what to average in include=",
    )
    assert "exclude=7: expected a list" in refused(models, "secagg", exclude=7)[0]


def test_a_warning_names_the_array_and_the_cure():
    models = [network(390_000)] * 3
    with pytest.warns(tacit.ClippedWarning) as caught:
        tacit.aggregate(models, "secagg")
    assert str(caught[0].message) == (
        "p0: 2 of 5 entries were cut off at ±32 in head.weight; the largest is 3.9e+05, so pass clip=524288, bits=64 "
        "(twice the bytes; without, every entry is rounded 16,384 times as coarsely); or leave it local: "
        "exclude=['head.weight']"
    )
    out = tacit.aggregate(models, "secagg", clip=524288, bits=64)
    np.testing.assert_allclose(out.average["p0"]["body.weight"], models[0]["body.weight"], atol=1e-9)
    assert tacit.aggregate(models, "secagg", exclude=["head.weight"]).clipped == {}


# --- parties -------------------------------------------------------------------------------------------------------


@every_protocol
@pytest.mark.parametrize("parties", [0, 1])
def test_too_few_parties(refused, protocol, parties):
    assert "an average needs at least 2 parties" in refused(VECTORS[:parties], protocol)[0]
    assert (
        "an average needs at least 2 parties"
        in refused(dict(zip(PARTIES, VECTORS[:parties], strict=False)), protocol)[0]
    )


@every_protocol
@pytest.mark.parametrize("parties", [0, 1])
def test_too_few_parties_of_a_federation(refused, protocol, parties):
    assert "at least 2 parties" in refused(protocol, PARTIES[:parties], 3, call=Simulation.of)[0]


@pytest.mark.parametrize("parties", [None, 3, [["a"], ["b"]], [{}, "a"], [("a", []), "b"]], ids=repr)
def test_parties_that_are_no_list_of_names(refused, parties):
    assert refused("fedavg", parties, call=tacit.Federation) == ("parties must be a list of names",)


def test_parties_may_come_one_by_one():
    assert tacit.Federation("fedavg", (name for name in "abc")).parties == ("a", "b", "c")


@pytest.mark.parametrize("adversary", ["x", None, 1.5, 1.0, NAN, [1], np.ones(2), 0, -1, 5, 10**30], ids=repr)
def test_an_adversary_that_is_no_number_of_parties(refused, adversary):
    (found,) = refused(VECTORS, "secagg", adversary=adversary)
    assert (
        found == f"adversary={adversary!r} must be a whole number from 1 to 4: at least one party must be outside; "
        f"try: use adversary=4 or less"
    )


NAMES = {
    "the server's": ("server", "is the name of the server"),
    "none": ("", "is no name"),
    "too long": ("x" * 65, "is no name"),
    "too long in bytes": ("é" * 33, "is no name"),
    "a number": (7, "is no name"),
    "nothing": (None, "is no name"),
    "bytes": (b"p1", "is no name"),
    "two lines": ("p0\n", "is no name"),
}


@every_protocol
@pytest.mark.parametrize("what", NAMES)
def test_names_that_will_not_do(refused, protocol, what):
    name, problem = NAMES[what]
    (found,) = refused({"p0": VECTORS[0], name: VECTORS[1], "p2": VECTORS[2]}, protocol)
    assert problem in found
    assert repr(name) in found


def test_a_name_that_is_no_text(refused):
    assert "is no name" in refused({"p0": VECTORS[0], "\ud800": VECTORS[1]}, "fedavg")[0]


@pytest.mark.parametrize("name", ["x" * 64, "é" * 32, "a b", "Server", "日本"])
def test_names_that_will_do(name):
    out = tacit.aggregate({"p0": VECTORS[0], name: VECTORS[4]}, "fedavg")
    assert set(out.contributors) == {"p0", name}


@every_protocol
def test_names_must_differ(refused, protocol):
    found = refused(protocol, ("a", "b", "a", "c", "b", "a"), 3, call=Simulation.of)
    assert found == ("3 parties are called 'a'; names must differ", "2 parties are called 'b'; names must differ")


# --- weights -------------------------------------------------------------------------------------------------------


@with_weights
@pytest.mark.parametrize("weight", [NAN, INF, -INF, 0, 0.0, -1.0, "1", True, None, [1.0], np.ones(2)], ids=repr)
def test_a_weight_that_cannot_count(refused, protocol, weight):
    (found,) = refused(VECTORS, protocol, weights=[1.0, weight, 2.0, 1.0, 1.0])
    assert found.startswith("the weight of p1 is ")
    assert "above 0 and at most max_weight" in found


@with_weights
@pytest.mark.parametrize("weight", [10**400, 10**5000, Fraction(10**400)], ids=["400", "5000", "a fraction"])
def test_a_weight_beyond_any_float(refused, protocol, weight):
    (found,) = refused(VECTORS, protocol, weights=[1.0, weight, 2.0, 1.0, 1.0])
    assert found.startswith("the weight of p1 is inf; it must be above 0 and at most max_weight")


@every_protocol
@pytest.mark.parametrize("weights", [3, 1.5, object()], ids=["a number", "a float", "anything"])
def test_what_is_no_list_of_weights(refused, protocol, weights):
    kind = type(weights).__name__
    assert refused(VECTORS, protocol, weights=weights) == (
        f"weights must be a dict by party, or a list, not of type {kind}",
    )


@with_weights
def test_every_weight_at_fault_is_named(refused, protocol):
    found = refused(VECTORS, protocol, weights=[NAN, 1.0, -1.0, 0.0, 5.0])
    assert [problem.split()[3] for problem in found] == ["p0", "p2", "p3"]


@every_protocol
@pytest.mark.parametrize(
    "weights",
    [[1.0] * 4, [1.0] * 6, [], {}, {"p0": 1.0}, dict.fromkeys((*PARTIES, "p9"), 1.0), dict.fromkeys("abcde", 1.0)],
    ids=["too few", "too many", "none", "no names", "one name", "a name too many", "other names"],
)
def test_weights_of_others_than_the_parties(refused, protocol, weights):
    (found,) = refused(VECTORS, protocol, weights=weights)
    assert found.startswith("weights must name exactly the parties that have vectors: ")
    names = [*weights] if isinstance(weights, dict) else [f"p{place}" for place in range(len(weights))]
    assert all(party in found for party in {*names} ^ {*PARTIES})


@with_weights
def test_a_weight_beyond_the_largest_allowed(refused, protocol):
    (found,) = refused(VECTORS, protocol, weights=[1.0, 2.0, 3.0, 2.0, 1.0], max_weight=2.5)
    assert "the weight of p2 is 3.0; it must be above 0 and at most max_weight, which is 2.5" in found


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_weights_may_come_in_an_array(dtype):
    out = tacit.aggregate(VECTORS, "fedavg", weights=np.array([1, 2, 3, 4, 5], dtype=dtype))
    np.testing.assert_allclose(out.average["p0"], np.full(3, 40 / 15), atol=1e-6)


# --- settings ------------------------------------------------------------------------------------------------------


@every_protocol
@pytest.mark.parametrize("clip", [0, 0.0, -1.0, NAN, INF, 1e-200, "1", None, True])
def test_a_clip_that_is_no_positive_number(refused, protocol, clip):
    (found,) = refused(VECTORS, protocol, clip=clip)
    assert f"not {clip!r}" in found
    assert "clip must be a positive number" in found


@every_protocol
@pytest.mark.parametrize("bits", [8, 0, -32, 33, 128])
def test_bits_that_there_are_not(refused, protocol, bits):
    assert refused(VECTORS, protocol, bits=bits) == (f"bits must be 16, 32 or 64, not {bits!r}",)


@every_protocol
@pytest.mark.parametrize("bits", [np.array([32, 16]), np.array([]), np.array(["32"])], ids=repr)
def test_bits_that_are_an_array(refused, protocol, bits):
    assert refused(VECTORS, protocol, bits=bits) == (f"bits must be 16, 32 or 64, not {bits.tolist()!r}",)


@every_protocol
@pytest.mark.parametrize("bits", ["32", None, NAN])
def test_bits_that_are_no_number(refused, protocol, bits):
    assert refused(VECTORS, protocol, bits=bits) == (f"bits must be 16, 32 or 64, not {bits!r}",)


@every_protocol
@pytest.mark.parametrize("weight", [0, -1.0, NAN, INF, "1"])
def test_a_largest_weight_that_is_no_positive_number(refused, protocol, weight):
    (found,) = refused(VECTORS, protocol, max_weight=weight)
    assert f"max_weight must be a positive number from 1e-100 to 1e+100, not {weight!r}" in found


OPTIONS = {
    "threshold of nobody": ("secagg", {"threshold": 0}, "threshold=0 cannot hold.* 2 to 5"),
    "threshold of one": ("secagg", {"threshold": 1}, "threshold=1 cannot hold.* 2 to 5"),
    "threshold below zero": ("secagg", {"threshold": -3}, "threshold=-3 cannot hold"),
    "threshold beyond all": ("secagg", {"threshold": 6}, "threshold=6 cannot hold.* 2 to 5"),
    "threshold of less than half": ("secagg", {"threshold": 2}, "unmask anybody; try: threshold=3 or more"),
    "threshold beyond the neighbours": (
        "secagg",
        {"neighbours": 2, "threshold": 4},
        "threshold=4 cannot hold.* 3 hold",
    ),
    "threshold beyond the sampled": ("secagg", {"sampled": 3, "oversampled": 3, "threshold": 4}, "threshold=4 cannot"),
    "threshold beyond the batches": ("secagg", {"participation": Random(3), "threshold": 4}, "threshold=4 cannot"),
    "threshold that nobody reaches": (
        "fedavg",
        {"threshold": 0},
        "threshold must be from 2 to the number of participants, not 0",
    ),
    "threshold below nobody": (
        "fedavg",
        {"threshold": -1},
        "threshold must be from 2 to the number of participants, not -1",
    ),
    "threshold that all do not reach": (
        "fedavg",
        {"threshold": 6},
        "threshold must be from 2 to the number of participants, not 6",
    ),
    "no neighbours": ("secagg", {"neighbours": 0}, "neighbours=0 must be .* at least 2"),
    "one neighbour": ("secagg", {"neighbours": 1}, "neighbours=1 must be .* at least 2"),
    "fewer than no neighbours": ("secagg", {"neighbours": -2}, "neighbours=-2 must be .* at least 2"),
    "some neighbours": ("secagg", {"neighbours": "some"}, "neighbours='some' must be .* at least 2"),
    "half a neighbour": ("secagg", {"neighbours": 2.5}, "neighbours=2.5 must be .* at least 2"),
    "neighbours of None": ("secagg", {"neighbours": None}, "neighbours=None must be .* at least 2"),
    "N no multiple of T": ("*", {"participation": Batches(4, 2)}, "users=5 is no multiple of the batch size 2"),
    "more asked than there are": ("*", {"participation": Random(6)}, "per_round=6 is more than the 5 users"),
    "one asked": ("*", {"participation": Random(1)}, "per_round=1 leaves nobody to hide among"),
    "a partition that leaves some": ("*", {"participation": Partition(3)}, "users=5 is no multiple"),
    "batches of none": ("*", {"participation": Batches(5, 0)}, "privacy=0 must be at least 1"),
    "batches of another number": ("*", {"participation": Batches(5, 5, users=10)}, "made for 10 users, not 5"),
    "no such participation": ("*", {"participation": "sometimes"}, "must be one of everyone"),
    "participation of a number": ("*", {"participation": 4}, "must be one of everyone"),
    "participation with a word too many": (
        "*",
        {"participation": {"kind": "random", "per_round": 3, "x": 1}},
        "has no 'x'",
    ),
    "more sampled than asked": ("*", {"sampled": 4, "oversampled": 3}, "of=3 is too few to sum exactly=4"),
    "more sampled than there are": ("*", {"sampled": 6}, "exactly=6 is more than the 5 users"),
    "more asked than there are of them": ("*", {"sampled": 4, "oversampled": 6}, "of=6 is more than the 5 users"),
    "one sampled": ("*", {"sampled": 1}, "exactly=1 leaves nobody to hide among"),
    "asked but not sampled": ("*", {"oversampled": 4}, "goes with sampled"),
    "sampled twice over": ("*", {"sampled": 3, "participation": Random(4)}, "set one of them"),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_settings_that_cannot_hold(refused, what):
    only, options, problem = OPTIONS[what]
    for protocol in ("fedavg", "secagg") if only == "*" else (only,):
        (found,) = refused(VECTORS, protocol, **options)
        assert re.search(problem, found)


def test_a_round_that_is_no_multiple_of_its_batches(refused):
    (found,) = refused([*VECTORS, VECTORS[0]], "secagg", participation=Batches(3, 2))
    assert "per_round=3 is no multiple of the batch size 2" in found
    found = refused(VECTORS, "secagg", participation=Batches(3, 2))
    assert len(found) == 2, "neither the round nor the roster is"


def test_a_low_threshold_may_be_allowed_knowingly():
    out = tacit.aggregate(VECTORS, "secagg", threshold=2, allow_leaks=True)
    assert out.contributors == PARTIES


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("fedavg", {"threshold": "3"}),
        ("secagg", {"threshold": "3"}),
        ("secagg", {"threshold": 3.5}),
        ("fedavg", {"sampled": "4"}),
        ("secagg", {"sampled": 2.5}),
        ("secagg", {"sampled": 4, "oversampled": "5"}),
    ],
    ids=str,
)
def test_settings_of_the_wrong_type(protocol, options):
    with pytest.raises(ConfigError):
        tacit.aggregate(VECTORS, protocol, **options)


def test_a_protocol_that_there_is_not(refused):
    (found,) = refused(VECTORS, "secag")
    assert "there is no protocol 'secag'" in found
    assert all(name in found for name in REGISTRY)
    assert refused("secag", PARTIES, 3, call=Simulation.of) == (found,)
    for name in (None, "", "FEDAVG", 7):
        assert "there is no protocol" in refused(VECTORS, name)[0]


@every_protocol
def test_an_option_that_there_is_not(refused, protocol):
    assert refused(VECTORS, protocol, clipp=4.0) == (f"{protocol} has no option 'clipp'; did you mean 'clip'?",)
    (found,) = refused(VECTORS, protocol, zzz=1)
    assert f"{protocol} has no option 'zzz'; it has " in found
    assert " bits, " in found
    assert len(refused(VECTORS, protocol, zzz=1, clipp=4.0, bit=32)) == 3


def test_an_option_of_another_protocol(refused):
    assert "fedavg has no option 'neighbours'" in refused(VECTORS, "fedavg", neighbours=2)[0]
    assert "did you mean 'neighbours'?" in refused(VECTORS, "secagg", nieghbours=2)[0]
    assert "did you mean 'threshold'?" in refused(VECTORS, "secagg", treshold=3)[0]


# --- faults --------------------------------------------------------------------------------------------------------


@every_protocol
def test_faults_of_parties_that_are_not_there(refused, protocol):
    faults = [Fault(action="crash", party="p9"), Fault(action="drop", to="mallory"), {"action": "drop", "party": "P0"}]
    assert refused(VECTORS, protocol, faults=faults) == tuple(
        f"a fault names {name!r}, who is not in the federation" for name in ("P0", "mallory", "p9")
    )


@pytest.mark.parametrize(
    "fault",
    [{"action": "explode"}, {"party": "p1"}, {"action": "drop", "number": "one"}, {"action": "crash", "step": 1.5}],
)
def test_dictionaries_that_are_no_faults(refused, fault):
    (found,) = refused(VECTORS, "fedavg", faults=[{"action": "drop"}, fault])
    assert found.startswith("faults[1]: ")


def test_a_key_that_faults_do_not_have(refused):
    """Left out, it would have been everybody who crashes."""
    assert refused(VECTORS, "secagg", faults=[{"action": "crash", "paty": "p1"}]) == (
        "faults[0]: there is no paty; did you mean 'party'?",
    )
    assert refused(VECTORS, "secagg", faults={"action": "crash"}) == (
        "faults must be a list of faults, such as [{'action': 'crash'}]",
    )


def test_faults_may_come_one_by_one():
    out = tacit.aggregate(VECTORS, "fedavg", faults=(Fault(action="crash", party=name) for name in ("p1",)))
    assert out.dropped.keys() == {"p1"}


@pytest.mark.parametrize(
    "faults",
    [[42], {"action": "drop"}, 5, [Fault(action="explode", party="p0")], [Fault(action="drop", message="Maskedinput")]],
    ids=["a number", "no list", "not iterable", "no such action", "no such message"],
)
def test_other_things_that_are_no_faults(refused, faults):
    assert refused(VECTORS, "secagg", faults=faults)


# --- several problems at once --------------------------------------------------------------------------------------


def mentions(problems, *words):
    """Says whether each of the words is in some problem."""
    return all(any(word in problem for problem in problems) for word in words)


@with_weights
def test_problems_of_models_weights_faults_and_options_come_together(refused, protocol):
    found = refused(
        [np.array([NAN, 1.0]), np.array([1.0, INF]), np.zeros(2), np.zeros(2)],
        protocol,
        weights=[1.0, -1.0, 1.0, 1.0],
        faults=[Fault(action="crash", party="p7")],
        clipp=3,
        zzz=1,
    )
    assert mentions(found, "p0: the array has 1 NaN", "p1: the array has 1 infinite", "the weight of p1", "'p7'")
    assert mentions(found, "'clipp'", "'zzz'")
    assert len(found) == 6


@with_weights
def test_problems_of_names_come_with_the_others(refused, protocol):
    models = dict(zip(("server", "", "p2", "p3"), VECTORS, strict=False))
    found = refused(models, protocol, zzz=1, weights=dict.fromkeys(models, 1.0) | {"server": 0.0})
    assert mentions(found, "name of the server", "'' is no name", "'zzz'", "the weight of server")
    assert len(found) == 4


@every_protocol
def test_problems_of_the_ring_come_together(refused, protocol):
    assert mentions(
        refused(VECTORS, protocol, bits=8, clip=0, max_weight=-1), "bits must", "clip must", "max_weight must"
    )


def test_an_unknown_protocol_does_not_hide_what_is_wrong_with_the_models(refused):
    found = refused([np.array([NAN]), np.array([1.0])], "nope", weights=[0.0, 1.0])
    assert mentions(found, "no protocol 'nope'", "p0: the array has 1 NaN", "the weight of p0")


HIDDEN = {
    "the ring, by an unknown option": ({"zzz": 1, "bits": 8}, ("'zzz'", "bits must")),
    "the ring, by the neighbours": ({"neighbours": 1, "bits": 8, "clip": -1}, ("neighbours", "bits must", "clip must")),
    "the threshold, by the neighbours": ({"neighbours": 1, "threshold": 0}, ("neighbours=1", "threshold=0")),
    "the neighbours, by the participation": ({"participation": "no", "neighbours": 1}, ("'no'", "neighbours=1")),
    "the ring, by a fault": ({"faults": [{"action": "explode"}], "bits": 8}, ("faults[0]", "bits must")),
    "a fault, by a fault": (
        {"faults": [{"action": "explode"}, {"action": "drop", "party": "p9"}]},
        ("faults[0]", "'p9'"),
    ),
    "the neighbours, by a type": ({"threshold": "3", "neighbours": 1}, ("threshold='3'", "neighbours=1")),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_no_problem_hides_another(refused, what):
    options, words = HIDDEN[what]
    assert mentions(refused(VECTORS, "secagg", **options), *words)


# --- values beyond the clip ----------------------------------------------------------------------------------------


@every_protocol
def test_values_beyond_the_clip_are_counted_exactly(protocol, protected):
    models = [
        np.array([1.0, -1.0, 0.5, 0.0]),  # the clip itself is not beyond it
        np.array([1.0000001, -1.0000001, 0.0, 0.0]),
        np.array([0.1, 0.2, 0.3, -17.5]),
        np.array([5.0, 5.0, -5.0, 5.0]),
    ]
    with pytest.warns(tacit.ClippedWarning) as caught:
        out = tacit.aggregate(models, protocol, clip=1.0, **protected.get(protocol, {}))
    assert out.clipped == {"p1": 2, "p2": 1, "p3": 4}
    assert tuple(str(warning.message) for warning in caught) == out.warnings
    assert len(out.warnings) == 3
    assert (
        "p2: 1 of 4 entries were cut off at ±1; the largest is 17.5, so pass clip=32, bits=64 (twice the bytes; "
        "without, every entry is rounded 32 times as coarsely)"
    ) in out.warnings
    assert {warning.filename for warning in caught} == {__file__}, "it points at the caller"
    if REGISTRY[protocol].server:
        expected = np.mean([np.clip(model, -1, 1) for model in models], axis=0)
        np.testing.assert_allclose(out.average["p0"], expected, atol=1e-8)


@every_protocol
def test_values_within_the_clip_are_not_warned_about(protocol, protected):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models = [np.array([32.0, -32.0]), *[np.zeros(2)] * 3]
        out = tacit.aggregate(models, protocol, **protected.get(protocol, {}))
    assert out.clipped == {}
    assert out.warnings == ()


def test_what_was_cut_off_is_counted_round_by_round():
    federation = Simulation.of("fedavg", ("p0", "p1"), 2, clip=1.0, seed=0)
    counts = []
    for vector in ([2.0, 0.0], [2.0, 2.0], [0.0, 0.0]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tacit.ClippedWarning)
            out = federation.average({"p0": Update(np.array(vector)), "p1": Update(np.zeros(2))})
        counts.append(out.clipped)
    assert counts == [{"p0": 1}, {"p0": 2}, {}]


@pytest.mark.parametrize(
    ("clip", "value"),
    [
        (32.0, 32.000001),
        (32.0, -33.0),
        (32.0, 64.0),
        (32.0, 1e6),
        (1e-4, 3e-4),
        (1e-4, 0.75),
        (0.5, 1.0),
        (32.0, 1e30),
        (32.0, 2.0**21),
        (32.0, 1e100),
    ],
)
def test_the_clip_that_a_warning_suggests_works(clip, value):
    models = [np.array([value, 0.0]), np.zeros(2)]
    with pytest.warns(tacit.ClippedWarning, match="pass clip=") as caught:
        out = tacit.aggregate(models, "fedavg", clip=clip)
    assert out.clipped == {"p0": 1}
    suggested = float(re.search(r"pass clip=([^\s,]+)", str(caught[0].message)).group(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tacit.ClippedWarning)
        assert tacit.aggregate(models, "fedavg", clip=suggested).clipped == {}


@pytest.mark.parametrize("value", [1.1e100, -1e200, 1.7e308])
def test_values_that_no_clip_holds_are_counted_too(value):
    with pytest.warns(tacit.ClippedWarning, match="p0: 1 of 2 entries were cut off") as caught:
        out = tacit.aggregate([np.array([value, 0.0]), np.zeros(2)], "fedavg")
    assert out.clipped == {"p0": 1}
    assert "pass clip" not in str(caught[0].message)
