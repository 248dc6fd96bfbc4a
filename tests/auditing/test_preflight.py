"""Nothing is sent under settings that would show somebody's vector, unless that is wanted."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from leaky import compared

import tacit
from tacit.auditing import preflight
from tacit.auditing.render.notes import render_note
from tacit.core.average import Average
from tacit.core.errors import SecretField
from tacit.core.messages import Message
from tacit.core.suite import Secret
from tacit.designs import Random, graphs
from tacit.protocols import find
from tacit.protocols.gossip import GOSSIP
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
    assert "allow_leaks" not in caught.value.remedy, "a remedy exposes nobody"
    assert "allow_leaks=True runs these settings anyway, and exposes" in caught.value.detail


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


def test_large_settings_without_audit_or_argument_are_refused():
    """Six iterations in groups of three leak, and nothing is proved of any number of peers."""
    with pytest.raises(tacit.LeakRefused, match=r"no argument.*tacit plan") as caught:
        tacit.aggregate(vectors(99), "admm", iterations=6, clip=128)
    assert (caught.value.code, caught.value.report) == ("not-audited", None)
    assert "allow_leaks=True runs these settings anyway" in caught.value.detail


def test_an_argument_is_enough_for_what_an_audit_takes_long_for(monkeypatch):
    monkeypatch.setattr(preflight, "_look", lambda *_: pytest.fail("it was audited"))
    secagg = find("secagg")
    terms = terms_for(secagg, tuple(f"p{i}" for i in range(100)), {})
    assert not preflight.too_long(secagg, terms)
    (note,) = preflight.preflight(secagg, terms, adversary=1, rounds=1)
    assert "fresh sums" in render_note(note)


def test_large_settings_that_an_argument_says_to_leak_are_refused(monkeypatch):
    monkeypatch.setattr(preflight, "MOST_WORK", 0)
    with pytest.raises(tacit.LeakRefused, match=r"docs/claims.md, plain.*masked=True") as caught:
        tacit.aggregate(vectors(9), "pushsum")
    assert caught.value.code == "leak"


def test_an_argument_about_rounds_without_dropouts_does_not_settle_sums_that_may_shrink(monkeypatch):
    """A sum of three, the fewest that these settings allow, shows two that collude the vector of the third."""
    monkeypatch.setattr(preflight, "MOST_WORK", 0)
    secagg = find("secagg")
    terms = terms_for(secagg, tuple(f"p{i}" for i in range(5)), {"threshold": 3})
    assert terms.smallest_sum == 3
    assert [each.name for each in preflight.arguments_for(secagg, terms, 2)] == ["one sum"]
    with pytest.raises(tacit.NotAudited):
        preflight.preflight(secagg, terms, adversary=2, rounds=1)
    larger = terms_for(secagg, tuple(f"p{i}" for i in range(9)), {})
    assert [note["argument"] for note in preflight.preflight(secagg, larger, adversary=2, rounds=1)] == ["fresh sums"]


def test_large_settings_run_with_a_warning_if_leaks_are_allowed(monkeypatch):
    monkeypatch.setattr(preflight, "MOST_WORK", 0)
    with pytest.raises(tacit.NotAudited):
        tacit.aggregate(vectors(9), "admm", clip=64)
    with pytest.warns(tacit.NotAuditedWarning, match="not audited"):
        out = tacit.aggregate(vectors(9), "admm", clip=64, allow_leaks=True)
    assert any("not audited" in warning for warning in out.warnings)
    assert tacit.aggregate(vectors(9), "secagg", allow_leaks=True, clip=64).warnings == ()


def test_a_protocol_that_cannot_be_audited_is_refused():
    """It branches on the values of vectors, which no linear form says anything about."""
    with pytest.raises(tacit.LeakRefused, match=r"not linear.*tacit plan") as caught:
        tacit.aggregate(vectors(3), compared.PROTOCOL)
    assert caught.value.code == "not-audited"
    with pytest.warns(tacit.NotAuditedWarning, match="not linear"):
        out = tacit.aggregate(vectors(3), compared.PROTOCOL, allow_leaks=True)
    assert any("not linear" in warning for warning in out.warnings)


class BareSeed(Message, frozen=True):
    """Carries a secret as it is."""

    seed: Secret


@pytest.mark.parametrize(
    "ask",
    [
        lambda protocol: tacit.audit(protocol, parties=3, coalition=["p0"]),
        lambda protocol: tacit.aggregate([[1.0], [2.0], [3.0]], protocol),
    ],
    ids=["audit", "aggregate"],
)
def test_a_secret_in_a_field_is_named_and_not_taken_for_arithmetic(ask):
    async def node(link, update, _terms, suite, _state):
        if link.place == 0:
            await link.send(link.parties[1], BareSeed(suite.seed()))
        return Average(update.vector, link.parties)

    bare = replace(GOSSIP, name="bare", party=node, messages=(BareSeed,), leaks_by_design=False)
    with pytest.raises(SecretField, match=r"^a Secret cannot be a field of BareSeed; try: ") as caught:
        ask(bare)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, tacit.ConfigError)
