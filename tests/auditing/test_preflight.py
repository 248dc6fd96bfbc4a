"""Nothing is sent under settings that would show somebody's vector, unless that is wanted."""

import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.auditing import preflight
from tacit.auditing.render.notes import render_note
from tacit.designs import Random, graphs
from tacit.protocols import find
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.simulated_round import SimulatedRound


def vectors(count):
    return [np.full(3, float(i)) for i in range(count)]


@pytest.fixture
def silence(monkeypatch):
    """Makes sure that no real message is sent: rounds on numbers fail at once."""
    honest = SimulatedRound._send

    def send(self, party, post):
        assert self.transcript is not None, "sent before it was refused"
        honest(self, party, post)

    monkeypatch.setattr(SimulatedRound, "_send", send)


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize(
    ("count", "protocol", "options", "cure"),
    [
        (5, "pushsum", {}, "masked=True"),
        (2, "secagg", {}, "add a party"),
        (2, "cesar", {}, None),
        pytest.param(
            15, "admm", {"iterations": 6}, "masked=True", marks=pytest.mark.slow
        ),  # within the gap of 7, which the settings alone allow
        pytest.param(15, "admm", {"iterations": 7, "masked": True}, "tacit plan", marks=pytest.mark.slow),
        (9, "admm", {"iterations": 5}, None),
    ],
)
def test_leaks_are_refused_before_anything_is_sent(count, protocol, options, cure):
    if (protocol, count) == ("cesar", 2):
        with pytest.raises(tacit.ConfigError, match="neighbours"):
            tacit.aggregate(vectors(count), protocol, **options)
        return
    with pytest.raises(tacit.LeakRefused, match=cure) as caught:
        tacit.aggregate(vectors(count), protocol, **options)
    report = caught.value.report
    assert report.exposed
    assert max(report.errors.values()) < 1e-2, "the report is proved on a real transcript"
    assert "allow_leaks=True" in str(caught.value)


def test_whoever_allows_leaks_goes_on():
    out = tacit.aggregate(vectors(5), "pushsum", allow_leaks=True)
    np.testing.assert_allclose(out.average["p0"], 2.0, atol=1e-6)


@pytest.mark.parametrize("protocol", ["fedavg", "gossip"])
def test_the_baselines_leak_by_design_and_say_so(protocol):
    from tacit.protocols import REGISTRY

    assert REGISTRY[protocol].leaks_by_design
    assert "see" in REGISTRY[protocol].summary
    assert tacit.aggregate(vectors(4), protocol).warnings == ()


def test_the_adversary_can_be_told_to_be_several():
    edges = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (5, 3), (3, 0), (3, 1)]
    assert tacit.aggregate(vectors(6), "cesar", graph=edges).warnings == ()
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.aggregate(vectors(6), "cesar", graph=edges, adversary=2)
    assert len(caught.value.report.coalition) == 2
    assert tacit.aggregate(vectors(10), "cesar", graph=graphs.regular(10, 3, 5), masking=2, adversary=2).warnings == ()
    with pytest.raises(tacit.ConfigError, match="adversary=6"):
        tacit.aggregate(vectors(6), "cesar", graph=edges, adversary=6)


def test_what_would_leak_only_if_models_stood_still_is_a_warning():
    out = tacit.aggregate([np.arange(64.0) % (i + 2) for i in range(9)], "cesar", share=0.5, clip=64)
    assert any("stayed static" in warning for warning in out.warnings)


def test_what_takes_too_long_is_not_audited_and_that_is_said():
    out = tacit.aggregate(vectors(30), "cesar", clip=64)
    assert any("not audited" in warning and "tacit audit" in warning for warning in out.warnings)
    assert any("private neighbours" in warning for warning in out.warnings), "what is known without is cited"


def test_single_parties_and_the_server_are_looked_at_whatever_the_adversary():
    """Several coalitions are more than there is time for; each party alone, and the server, are not."""
    secagg = find("secagg")
    terms = terms_for(secagg, tuple(f"p{i}" for i in range(40)), {"participation": Random(30)})
    notes = preflight.preflight(secagg, terms, adversary=3, rounds=1)
    assert any("64 of 10,660 coalitions of 3 were analysed" in render_note(note) for note in notes)
    with pytest.raises(tacit.LeakRefused):
        tacit.aggregate(vectors(12), "pushsum", adversary=2)


def test_private_weights_alone_are_refused_like_plain_masses():
    with pytest.raises(tacit.LeakRefused, match=r"once it knows y0 and p_ii.*masked=True") as refused:
        tacit.aggregate(vectors(5), "pushsum", private=True)
    assert refused.value.report.victims == ["p1", "p2", "p3", "p4"]
    assert tacit.aggregate(vectors(5), "pushsum", private=True, allow_leaks=True).average
    assert tacit.aggregate(vectors(5), "pushsum", private=True, masked=True).average


def test_an_audit_is_done_once_for_the_same_settings(monkeypatch):
    preflight._found.clear()
    times = []
    honest = preflight._look
    monkeypatch.setattr(preflight, "_look", lambda *question: times.append(question) or honest(*question))
    for graph in (nx.cycle_graph(5), nx.cycle_graph(5), nx.complete_graph(5)):
        tacit.aggregate(vectors(5), "cesar", graph=graph)
    assert len(times) == 2, "one question for each of the two graphs"


@pytest.mark.parametrize("protocol", ["secagg", "cesar", "admm"])
def test_defaults_are_not_refused(protocol):
    assert tacit.aggregate(vectors(9), protocol).average.keys() == {f"p{i}" for i in range(9)}
