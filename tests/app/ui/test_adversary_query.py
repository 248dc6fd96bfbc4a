"""Questions of the adversary view: what an address asks, what the command line would, and what a plan proposes."""

import shlex

import pytest
from starlette.datastructures import QueryParams
from typer.testing import CliRunner

import tacit
from tacit.app.cli.main import app
from tacit.app.ui.adversary_query import AdversaryQuery
from tacit.app.ui.claims import list_claims
from tacit.app.ui.graph_view import describe_graph
from tacit.app.ui.setting_controls import describe_controls
from tacit.core.errors import ConfigError
from tacit.protocols import REGISTRY

EDGES = "[[4,0],[4,1],[4,2],[5,0],[5,1],[5,2],[5,3],[3,0],[3,1],[3,2],[0,1],[0,2]]"
CESAR = f"protocol=cesar&parties=6&set=masking=2&set=graph={EDGES}&coalition=p4,p5"
ADMM = "protocol=admm&parties=9&set=group_size=3&set=iterations=5&coalition=p0"


def asked(address):
    return AdversaryQuery.of(QueryParams(address))


def test_the_command_asks_the_same():
    command = shlex.split(asked(CESAR).command())
    assert command[:3] == ["tacit", "audit", "cesar"]
    told = CliRunner().invoke(app, [*command[1:], "--json"])
    assert told.exit_code == 0, told.output
    assert '"p3": {' in told.output


def test_everything_that_cannot_be_asked_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        asked("parties=many&rounds=0&dropout=2")
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError, match="ask for more by tacit audit"):
        asked("parties=100000")
    with pytest.raises(ConfigError, match="there is no protocol"):
        asked("protocol=nosuch").scope()


@pytest.mark.parametrize("address", [CESAR, ADMM, "protocol=secagg&parties=6&rounds=3&dropout=0.2&coalition=server"])
def test_hardened_settings_show_the_same_coalition_nothing(address):
    open_, closed = asked(address), asked(f"{address}&hardened=yes")
    reports = [
        tacit.audit(
            each.protocol,
            parties=each.parties,
            coalition=each.coalition,
            rounds=each.rounds,
            dropout=each.dropout,
            **each.options(),
        )
        for each in (open_, closed)
    ]
    assert [bool(report.exposed) for report in reports] == [True, False]


def test_what_leaks_by_design_has_no_hardened_mode():
    with pytest.raises(ConfigError, match="by design"):
        asked("protocol=fedavg&hardened=yes").options()


def test_one_run_serves_every_coalition_unless_settings_follow_from_it():
    first, second = asked(ADMM), asked(ADMM.replace("coalition=p0", "coalition=p1,p2"))
    assert first.key == second.key
    assert asked(f"{ADMM}&hardened=yes").key != asked(ADMM.replace("p0", "p1,p2") + "&hardened=yes").key


def test_claims_are_those_for_the_very_setting():
    scope = asked(ADMM).scope()
    lemma, theorem = list_claims(scope, ["p0"], ["p1", "p2"])
    assert (lemma["verdict"], theorem["verdict"]) == ("", "refuted here")
    assert "5 of 7" in theorem["about"]
    assert list_claims(scope, ["p0"], [])[1]["verdict"] == "holds here"
    assert list_claims(scope, ["p0"], None)[1]["verdict"] == "claimed"
    assert list_claims(asked(ADMM.replace("iterations=5", "iterations=8")).scope(), ["p0"], ["p1"])[1]["verdict"] == ""
    everybody = asked(ADMM.replace("group_size=3", "group_size=all")).scope()
    assert list_claims(everybody, ["p0"], [f"p{i}" for i in range(1, 9)])[0]["verdict"] == "holds here"
    one, several = list_claims(asked(CESAR).scope(), ["p4", "p5"], ["p3"])
    assert (one["verdict"], several["verdict"]) == ("", "refuted here")


@pytest.mark.parametrize("name", REGISTRY)
def test_every_protocol_has_controls_and_can_be_drawn(name):
    told = describe_controls(REGISTRY[name])
    assert all(each["kind"] in ("switch", "number", "choice", "graph", "text") for each in told["settings"])
    scope = asked(f"protocol={name}&parties=8").scope()
    picture = describe_graph(scope.protocol, scope.terms)
    assert picture["kind"] == ("star" if told["server"] else "groups" if name in ("admm", "rotating") else "graph")
    assert all(0 <= end < 8 for phase in picture["phases"] for edge in phase.get("edges", ()) for end in edge)
