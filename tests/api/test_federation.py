"""The façade: models and weights as people have them, refusals as of `aggregate`, and first causes of failures."""

import copy
import dataclasses
import pickle
import sys

import numpy as np
import pytest

import tacit
from tacit.api import given_models
from tacit.app.cli.learning_commands import Stopped
from tacit.core import errors
from tacit.core.errors import Drop, TacitError
from tacit.core.protocol import Settings, Unset
from tacit.core.suite import SERVER, Update
from tacit.net.store.index import PastError
from tacit.net.transport.hold_keeper import StreamReplaced
from tacit.privacy.ledger import LedgerState, PlanExceeds
from tacit.protocols import REGISTRY
from tacit.protocols.admm import GroupPart, GroupSum, peer
from tacit.protocols.admm.settings import MOST_ITERATIONS
from tacit.protocols.secagg import user
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors import layout, model_tree

NAMES = ("a", "b", "c", "d")
SAFE = {"admm": {"masked": True, "group_size": None}, "pushsum": {"masked": True}}


def model(value):
    return {"w": np.full((2, 2), value), "b": np.array([value])}


@pytest.mark.parametrize("protocol", REGISTRY)
def test_models_go_in_and_come_out(protocol):
    federation = tacit.Federation(protocol, NAMES, **SAFE.get(protocol, {}))
    for number in (1, 2):
        out = federation.average({name: model(float(place + number)) for place, name in enumerate(NAMES)})
        assert federation.rounds == number
        for name in NAMES:
            np.testing.assert_allclose(out.average[name]["w"], np.full((2, 2), 1.5 + number), atol=1e-4)
            assert out.average[name]["b"].shape == (1,)


def test_models_may_be_given_in_the_order_of_the_parties():
    out = tacit.Federation("secagg", NAMES).average([model(float(i)) for i in range(4)])
    assert out.average.keys() == set(NAMES)
    np.testing.assert_allclose(out.average["d"]["b"], [1.5], atol=1e-6)


@pytest.mark.parametrize("weights", [[1, 2, 3, 4], dict(zip(NAMES, [1.0, 2.0, 3.0, 4.0], strict=True))], ids=type)
def test_weights_are_taken_as_aggregate_takes_them(weights):
    federation = tacit.Federation("secagg", NAMES, max_weight=4.0, weighted=True)
    out = federation.average([model(float(i)) for i in range(4)], weights)
    np.testing.assert_allclose(out.average["a"]["b"], [2.0], atol=1e-6)


@pytest.mark.parametrize("protocol", [name for name, each in REGISTRY.items() if each.weighted])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, np.int8, np.uint64])
def test_weights_may_be_of_any_type(protocol, kind):
    """In the digits of a half or a single float, a weight of 1 would have been more than all."""
    models, options = [np.full(2, float(i)) for i in range(4)], {"allow_leaks": True}
    for weights in ([1, 1, 1, 1], [3, 1, 2, 2]):
        out = tacit.aggregate(models, protocol, weights=[kind(weight) for weight in weights], seed=1, **options)
        same = tacit.aggregate(models, protocol, weights=[float(weight) for weight in weights], seed=1, **options)
        np.testing.assert_array_equal(out.average["p0"], same.average["p0"])
    federation = tacit.Federation(protocol, NAMES, max_weight=4.0, weighted=True, **options)
    federation.average(models, [kind(weight) for weight in (3, 1, 2, 2)])


def test_a_federation_and_a_call_give_the_same():
    models = [np.arange(3.0) + i for i in range(4)]
    one = tacit.aggregate(models, "secagg", seed=7)
    two = tacit.Federation("secagg", ("p0", "p1", "p2", "p3"), seed=7).average(models)
    assert one.average.keys() == two.average.keys()
    np.testing.assert_array_equal(one.average["p0"], two.average["p0"])
    assert one.warnings == two.warnings


WRONG = {
    "a wrong length": (
        {"a": np.zeros(3), "b": np.zeros(3), "c": np.zeros(4), "d": np.zeros(3)},
        None,
        r"c: compared with a's model, the array is float64 \(4,\), not float64 \(3,\)",
    ),
    "NaN": ({name: np.full(3, np.nan if name == "b" else 1.0) for name in NAMES}, None, "b: the array has 3 NaN"),
    "a weight above the maximum": (
        dict.fromkeys(NAMES, np.zeros(3)),
        [1, 2, 9, 1],
        "the weight of c is 9.* max_weight, which is 4",
    ),
    "an update": (
        {name: Update(np.zeros(3), 1.0) for name in NAMES},
        None,
        "a, b, c, d: give the model itself",
    ),
    "too few": ({"a": np.zeros(3)}, None, "a model of each of a, b, c, d, and of nobody else"),
    "a stranger": (dict.fromkeys((*NAMES, "e"), np.zeros(3)), None, "of nobody else"),
    "None": (None, None, "models must be a dict by party, or a list, not of type NoneType"),
    "a number": (7, None, "models must be a dict by party, or a list, not of type int"),
    "weights that are a number": (dict.fromkeys(NAMES, np.zeros(3)), 7, "weights must be a dict .* not of type int"),
    "weights of others": (dict.fromkeys(NAMES, np.zeros(3)), [1, 2], "exactly the parties"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_told_before_anything_is_sent(what):
    models, weights, complaint = WRONG[what]
    federation = tacit.Federation("secagg", NAMES, max_weight=4.0, weighted=True)
    with pytest.raises(tacit.ConfigError, match=complaint):
        federation.average(models, weights)
    assert federation.rounds == 0
    assert federation.average(dict.fromkeys(NAMES, np.zeros(3))).contributors == NAMES, "and the next round is well"


def test_a_model_of_another_layout_than_before_is_refused():
    federation = tacit.Federation("gossip", NAMES)
    federation.average([model(1.0)] * 4)
    with pytest.raises(tacit.ConfigError, match="the models of the rounds before") as caught:
        federation.average([np.zeros(5)] * 4)
    assert len(caught.value.problems) == 3, "two arrays are missing and one is new, in all models alike"
    assert caught.value.code == "config"
    assert federation.average([model(2.0)] * 4).average.keys() == set(NAMES)


def test_a_model_of_another_length_leaves_every_lineage_as_it_was():
    federation = tacit.Federation("secagg", NAMES)
    federation.average([np.zeros(3)] * 4)
    simulation = federation._simulation
    before = list(simulation._encoded_states())
    with pytest.raises(tacit.ConfigError, match="the models of the rounds before"):
        federation.average([np.zeros(5)] * 4)
    assert federation._simulation is simulation
    assert list(simulation._encoded_states()) == before
    assert federation.average([np.ones(3)] * 4).contributors == NAMES


def test_settings_are_refused_as_aggregate_refuses_them():
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.Federation("pushsum", NAMES)
    assert caught.value.report.exposed
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.Federation("admm", NAMES, iterations=5)
    assert caught.value.report.exposed, "also where the settings alone say so"
    with pytest.raises(tacit.ConfigError, match="adversary=4"):
        tacit.Federation("secagg", NAMES, adversary=4)
    with pytest.raises(tacit.ConfigError) as caught:
        tacit.Federation("secagg", ("a", "a"), bits=8, treshold=2, faults=[{"paty": "a"}])
    assert len(caught.value.problems) >= 4
    assert tacit.Federation("pushsum", NAMES, allow_leaks=True).rounds == 0


@pytest.mark.parametrize("iterations", [MOST_ITERATIONS + 1, 10**30])
def test_what_nobody_would_wait_for_is_refused_at_once(iterations):
    for options in ({}, {"masked": True, "group_size": None}, {"allow_leaks": True}):
        with pytest.raises(tacit.ConfigError, match="at least 1 and at most 10000"):
            tacit.Federation("admm", NAMES, iterations=iterations, **options)


def test_a_refusal_does_not_first_audit_what_takes_too_long(monkeypatch):
    def never(*_):
        pytest.fail("it was audited")

    monkeypatch.setattr(sys.modules["tacit.auditing.preflight"], "exposure", never)
    with pytest.raises(tacit.LeakRefused, match="10000 iterations are more than") as caught:
        tacit.Federation("admm", NAMES, iterations=MOST_ITERATIONS)
    assert caught.value.report is None
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.Federation("admm", [f"p{place}" for place in range(60)], iterations=40)
    assert caught.value.report is None
    federation = tacit.Federation("admm", NAMES, iterations=200, masked=True, group_size=None)
    out = federation.average([np.ones(2)] * 4)
    assert any("not audited" in warning for warning in out.warnings)


def test_a_slow_penalty_does_not_take_forever():
    terms = tacit.Federation("admm", NAMES, masked=True, group_size=None, rho=1e9)._checked.terms
    assert terms.iterations == MOST_ITERATIONS
    assert terms.notes()


def pickled(anything, protocol=None):
    return pickle.loads(pickle.dumps(anything, protocol))  # noqa: S301  # our own


def everything_raised():
    yield from (
        errors.TacitError("a"),
        errors.ConfigError(["a: x", "b: y; z"]),
        errors.WireError("a"),
        errors.PeerFault("a", Drop.SILENT, "no Sum from it"),
        errors.NotEnough("Sum", 1, 2, {"a": Drop.SILENT, "b": Drop.BEHIND}, {"a": "why"}),
        errors.LeakRefused("a", {"b": 1}),
        errors.Behind("a"),
        errors.NotRestored("a"),
        errors.UnsafePath("a"),
        errors.NotLinear("a"),
        errors.NotAuditable("a"),
        errors.NotAudited("a"),
        errors.JournalError("a"),
        errors.OtherProtocol("secagg", "fedavg"),
        errors.BudgetSpent({"a": 1.5}, 1.0),
        errors.TransportError("a"),
        errors.WorkerLost("a"),
        errors.ProtocolMistake("a"),
        errors.StepError("a"),
        errors.SecretField("a"),
        errors.MissingExtra("torch", "torch"),
        Unset(["a", "b"], Settings(bits=16)),
        PastError("not-enough", "a"),
        StreamReplaced("a"),
        PlanExceeds(LedgerState(budget=1.0), 0.5),
        Stopped("a"),
    )


def test_every_error_survives_a_pickle_and_a_copy():
    def kinds(kind):
        return {kind}.union(*(kinds(each) for each in kind.__subclasses__() if each.__module__.startswith("tacit")))

    raised = list(everything_raised())
    assert {type(error) for error in raised} == kinds(TacitError)
    for error in raised:
        error.add_note("in a test")
        for again in (*(pickled(error, protocol) for protocol in range(6)), copy.deepcopy(error)):
            assert type(again) is type(error)
            assert (str(again), again.args, again.__dict__) == (str(error), error.args, error.__dict__)


def test_an_outcome_and_a_refusal_survive_a_pickle():
    cut = [{"action": "drop", "party": SERVER, "to": "p1", "message": "Sum"}]
    out = pickled(tacit.aggregate([np.ones(2)] * 4, "fedavg", faults=cut))
    assert out.endings["p1"].error.peer == SERVER
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.aggregate([np.ones(2)] * 4, "admm", iterations=5)
    assert pickled(caught.value).report.exposed.keys() == caught.value.report.exposed.keys()


def test_the_first_cause_comes_out_and_not_what_follows_from_it():
    """p1's model leaves the ring's range in mid-run; that is what is said, not that its message is missing."""
    federation = tacit.Federation("pushsum", NAMES, masked=True, clip=1.0)
    models = {name: np.full(3, 0.9) for name in NAMES}

    def drift(models):
        for _ in range(40):
            out = federation.average(models)
            models = {name: out.average[name] + 0.9 for name in NAMES}

    with pytest.raises(tacit.ConfigError, match="larger clip"):
        drift(models)


@pytest.mark.parametrize(("kind", "size"), [(GroupPart, None), (GroupPart, 2), (GroupSum, 2)])
def test_whoever_sends_no_vector_in_admm_is_named(kind, size):
    """Nobody can go on without it, and the others should know without whose."""

    async def liar(link, *rest):
        honest = link.send

        async def send(to, message, **more):
            await honest(to, kind(memoryview(b"xy")) if isinstance(message, kind) else message, **more)

        link.send = send
        return await peer(link, *rest)

    options = {"masked": True, "group_size": size, "iterations": 2, "allow_leaks": True}
    simulation = Simulation.of("admm", NAMES, 3, stand_ins={"d": liar}, **options)
    with pytest.raises(errors.PeerFault, match="d: malformed") as caught:
        simulation.average({name: Update(np.ones(3)) for name in NAMES})
    assert (caught.value.peer, caught.value.reason) == ("d", Drop.MALFORMED)
    assert not any(isinstance(each.error, errors.WireError) for each in simulation.last.rounds.values())


def test_the_first_error_is_the_cause_of_the_servers(monkeypatch):
    def refuse(*_):
        raise user.blame_server("for the test")

    federation = tacit.Federation("secagg", NAMES)  # audited as it is
    monkeypatch.setattr(user, "check_consents", refuse)
    with pytest.raises(tacit.NotEnough) as caught:
        federation.average([model(1.0)] * 4)
    assert "Unmask" in str(caught.value)
    assert "for the test" in str(caught.value.__cause__)


def test_warnings_point_at_the_caller():
    for call in (
        lambda: tacit.aggregate([np.full(2, 99.0)] * 3, "fedavg"),
        lambda: tacit.Federation("fedavg", NAMES).average([np.full(2, 99.0)] * 4),
    ):
        with pytest.warns(tacit.ClippedWarning) as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}


def test_faults_and_records_go_through():
    faults = [{"action": "crash", "party": "b", "round": 2}]
    federation = tacit.Federation("secagg", (*NAMES, "e"), record=True, faults=faults, threshold=3)
    first, second = (federation.average([np.full(3, float(i)) for i in range(5)]) for _ in range(2))
    assert first.contributors == (*NAMES, "e")
    assert second.contributors == ("a", "c", "d", "e")
    assert [address.sender for address, _ in second.transcript.open_messages(SERVER)].count("b") == 0
    assert given_models.weight_bound({"a": 3, "b": 2.5}) == 4.0


# --- what was meant ------------------------------------------------------------------------------------------------

VECTORS = [[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]]
MISTAKES = {
    "a fault's key": (
        lambda: tacit.aggregate(VECTORS, "secagg", faults=[{"action": "crash", "paty": "p1"}]),
        "faults[0]: there is no paty; did you mean 'party'?",
    ),
    "who crashes": (
        lambda: tacit.aggregate(VECTORS, "secagg", faults=[tacit.Fault(action="crash", step=4)]),
        "faults[0]: who is to crash? Give a party, each of several in a fault; there are p0, p1, p2",
    ),
    "who restarts": (
        lambda: tacit.Federation("secagg", NAMES, faults=[{"action": "restart", "message": "MaskedInput"}]),
        "faults[0]: who is to restart? Give a party",
    ),
    "weight": (
        lambda: tacit.aggregate(VECTORS, "secagg", weight=[1, 2, 3]),
        "secagg has no option 'weight'; did you mean 'weights'?",
    ),
    "weights of a federation": (
        lambda: tacit.Federation("secagg", NAMES, weights=[1] * 4),
        "weights go with the models",
    ),
    "round": (
        lambda: tacit.audit("secagg", parties=4, coalition="p0", round=3),
        "secagg has no option 'round'; did you mean 'rounds'?",
    ),
    "a protocol": (lambda: tacit.aggregate(VECTORS, "SecAgg"), "there is no protocol 'SecAgg'; did you mean 'secagg'?"),
    "a seed": (lambda: tacit.aggregate(VECTORS, "secagg", seed="1"), "seed must be a whole number"),
    "vectors of text": (lambda: tacit.aggregate("abc", "secagg"), "vectors must be a dict by party, or a list, not"),
    "a negative number": (
        lambda: tacit.audit("secagg", parties=-3, coalition="p0"),
        "parties must be a whole number of at least 2, or a list of names, not -3",
    ),
    "lists for names": (lambda: tacit.audit("secagg", parties=[["a"], ["b"]]), "parties must be a whole number"),
    "a number for names": (
        lambda: tacit.audit("secagg", parties=4, coalition=1),
        "coalition must be a list of names, or one name, not 1",
    ),
    "a member": (
        lambda: tacit.audit("secagg", parties=4, coalition="sever"),
        "sever is nobody here; did you mean 'server'?",
    ),
    "both": (
        lambda: tacit.audit("secagg", parties=4, coalition="p0", coalition_size=1),
        "give only one",
    ),
    "an array of drifts": (
        lambda: tacit.audit("secagg", parties=4, coalition="p0", drift=np.ones(2)),
        "drift must be",
    ),
    "places for names": (
        lambda: tacit.audit("cesar", parties=4, coalition="onlooker", links=[(0, 1)]),
        "links must be a list of pairs of names",
    ),
    "a word for a number": (
        lambda: tacit.aggregate(VECTORS, "admm", group_size="3"),
        "group_size='3': expected 'all' or a number",
    ),
    "the path of a scenario": (lambda: tacit.train("a.toml"), "tacit.Scenario.load('a.toml')"),
    "tables": (lambda: tacit.train({"rounds": 1}), "tacit.Scenario.of"),
    "a scenario that was not checked": (
        lambda: tacit.train(tacit.Scenario(rounds="3")),
        "rounds = '3': expected a whole number",
    ),
    "no path": (lambda: tacit.Scenario.load(None), "give the path of a file, not None"),
    "a folder": (lambda: tacit.train(tacit.Scenario(rounds=1), folder=3), "folder must be a path, not 3"),
    "data": (lambda: tacit.train(tacit.Scenario(rounds=1), data=np.ones(3)), "data must be a tacit.learn"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_with_what_was_meant(what):
    call, said = MISTAKES[what]
    with pytest.raises(tacit.ConfigError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_name_is_one_party():
    assert tacit.audit("secagg", parties=4, coalition="server").coalition == ("server",)
    federation = tacit.Federation("fedavg", NAMES)
    assert federation.average([np.ones(2)] * 4, absent="a").contributors == ("b", "c", "d")
    every = tacit.audit("secagg", parties=3)
    assert [each.coalition for each in every] == [("server",), ("p0",), ("p1",), ("p2",)]


def test_numbers_from_numpy_will_do():
    out = tacit.aggregate(
        [[np.int64(1), 2.0], [3, np.float32(4)], [5, 9]], "secagg", clip=np.float32(16), seed=np.int64(1)
    )
    np.testing.assert_allclose(out.average["p0"], [3.0, 5.0], atol=1e-6)


def test_a_protocol_may_be_given_itself():
    own = dataclasses.replace(REGISTRY["secagg"], name="mine")
    assert tacit.aggregate(VECTORS, own).contributors == ("p0", "p1", "p2")
    assert tacit.audit(own, parties=3, coalition="p0").protocol == "mine"
    assert tacit.Federation(own, NAMES).average([np.ones(2)] * 4).contributors == NAMES


@pytest.mark.parametrize(
    ("protocol", "parties", "lost", "cure"),
    [
        (
            "secagg",
            3,
            1,
            "3 needed (threshold=3); timed out: p0; try: run it again when they are back, or add parties: with 4, 1 "
            "may be missing from a round",
        ),
        (
            "secagg",
            5,
            2,
            "4 needed (threshold=4); timed out: p0, p1; try: run it again when they are back",
        ),
        ("fedavg", 3, 2, "2 needed (threshold=2); timed out: p0, p1; try: run it again when they are back"),
        ("admm", 3, 1, "2 needed (admm needs every party); timed out: p0; try: run it again when all are back"),
    ],
)
def test_too_few_are_told_with_what_to_change_and_what_it_costs(protocol, parties, lost, cure):
    faults = [{"action": "crash", "party": f"p{place}"} for place in range(lost)]
    with pytest.raises(tacit.NotEnough) as caught:
        tacit.aggregate([np.ones(2)] * parties, protocol, faults=faults, **SAFE.get(protocol, {}))
    assert cure in str(caught.value)


def test_what_is_returned_says_in_a_line_what_it_is():
    faults = [{"action": "crash", "party": "p3"}]
    out = tacit.aggregate([np.ones(2)] * 4, "secagg", seed=1, faults=faults)
    assert repr(out) == (
        f"<Outcome: the average of p0, p1, p2, for p0, p1, p2; without p3 (crashed); {out.traffic.total:,} bytes>"
    )
    sent = sum(out.endings["p0"].sent.values())
    assert repr(out.endings["p0"]) == f"<Ending: p0, round 1: the average of p0, p1, p2; {sent:,} bytes sent>"
    report = tacit.audit("fedavg", parties=3, coalition="server")
    assert repr(report) == (
        "<Report: fedavg, 3 parties, coalition of server: exposed; exposed: p0, p1, p2; rounds=1/1 drift=static "
        "dropout=0 faults=0 seeds=0 fewest=2>"
    )
    assert repr(report.exposed["p1"]).startswith("<Recipe: p1 = ")
    assert repr(tacit.Federation("secagg", NAMES)) == "<Federation: secagg, 4 parties, 0 rounds so far>"
    assert repr(tacit.plan(3, rounds=1)).startswith("<Plan for 3 parties, 1 colluding, 1 round: secagg (everybody")
    assert all("\n" not in repr(each) for each in (out, report, tacit.plan(3, rounds=1)))


def test_a_run_says_in_a_line_what_it_is(tmp_path):
    scenario = tacit.Scenario.of({"rounds": 1, "protocol": "secagg", "data": {"parties": 3, "train": 90, "test": 30}})
    run = tacit.train(scenario, folder=tmp_path)
    assert repr(run) == (
        f"<Run: digits by secagg, 1 round, accuracy {run.accuracy:.1%}, {run.bytes:,} bytes, in {tmp_path}>"
    )


def test_what_was_not_averaged_is_named():
    models = [{"w": np.full(2, float(place)), "steps": np.array([place]), "on": np.array([True])} for place in range(4)]
    assert tacit.aggregate(models, "secagg").local == ("steps", "on")
    assert tacit.aggregate(models, "secagg", include=["w", "steps"]).local == ("on",)
    assert tacit.aggregate([model["w"] for model in models], "secagg").local == ()


def test_each_party_gets_its_average_in_the_structure_of_its_own_model():
    first, second = np.array([1.0, 2.0]), np.array([[3.0]])
    models = {"a": {"0": first, "1": second}, "b": [first, second], "c": {0: first, 1: second}}
    for average in (
        tacit.aggregate(models, "secagg").average,
        tacit.Federation("secagg", models).average(models).average,
    ):
        assert list(average["a"]) == ["0", "1"]
        assert isinstance(average["b"], list)
        assert list(average["c"]) == [0, 1]
        assert average["b"][1].shape == (1, 1)


def test_local_arrays_are_copied_from_each_partys_own_model():
    models = [{"w": np.array([1.0 + i]), "steps": np.array([i])} for i in range(3)]
    average = tacit.aggregate(models, "secagg").average
    assert [average[party]["steps"].tolist() for party in ("p0", "p1", "p2")] == [[0], [1], [2]]
    average["p1"]["steps"][0] = 7
    assert models[1]["steps"].tolist() == [1]


def test_a_model_without_local_arrays_is_read_twice(monkeypatch):
    """Once to check it, and once to make its vector."""
    read = []
    explore = model_tree.explore_model
    monkeypatch.setattr(layout, "explore_model", lambda model, *rest: read.append(model) or explore(model, *rest))
    models = [{"w": np.ones(2) * i} for i in range(4)]
    tacit.aggregate(models, "secagg")
    assert [sum(each is model for each in read) for model in models] == [2, 2, 2, 2]
