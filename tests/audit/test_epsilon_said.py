"""Audits and plans say ε beside who is exposed: by whose noise, of what, and at worst."""

import json
import math

import pytest
from typer.testing import CliRunner

import tacit
from tacit.app.cli import app
from tacit.audit.report import Auditor
from tacit.audit.scope import Scope
from tacit.core.suite import Parties
from tacit.privacy import shared_noise
from tacit.protocols import REGISTRY

NOISED = {"noise": 1.0, "norm": 1.0, "prior": 1.0}


def worth(protocol, parties, honest, rounds=1, sensitivity=None, **options):
    """Returns the ε that the noise of so many honest ones is worth, from the settings alone."""
    settings = REGISTRY[protocol].settings_from({"noise": 1.0, "norm": 1.0, "allow_leaks": True, **options})
    terms = settings.bind(Parties(f"p{i}" for i in range(parties)))
    return shared_noise(terms, 100_000, honest=honest, sensitivity=sensitivity).epsilon(1e-5, rounds)


@pytest.mark.parametrize(
    ("protocol", "coalition", "options", "honest"),
    [
        ("fedavg", ["server"], {}, 1),
        ("fedavg", ["p0"], {}, 6),
        ("secagg", ["server"], {}, 7),
        ("secagg", ["server", "p0", "p1"], {}, 5),
        ("secagg", ["p0", "p1", "p2"], {}, 4),
        ("gossip", ["p0"], {"graph": "ring"}, 1),
        ("cesar", ["p0"], {}, 6),
        ("cesar", ["p0", "p1"], {}, 5),
        ("pushsum", ["p0"], {}, 1),
        ("pushsum", ["p0"], {"masked": True}, 6),
        ("admm", ["p0"], {"masked": True, "group_size": None}, 6),
    ],
)
@pytest.mark.parametrize("rounds", [1, 2])
def test_what_counts_is_the_noise_of_those_behind_whatever_is_seen(protocol, coalition, options, honest, rounds):
    report = tacit.audit(protocol, parties=7, coalition=coalition, rounds=rounds, **NOISED, **options)
    assert report.epsilon == pytest.approx(worth(protocol, 7, honest, rounds, **options))
    assert report.delta == 1e-5


def test_what_was_drawn_besides_masks_and_noise_does_not_count():
    """Behind λ⁰, which is uniform, vectors of a group are hidden from algebra; for ε it is as if λ⁰ were known."""
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=2, **NOISED)
    assert report.exposed == {}
    assert report.smallest_group > 1
    assert report.epsilon == pytest.approx(worth("admm", 9, 1, group_size=3, iterations=2))


def test_of_many_rounds_too():
    report = tacit.audit("secagg", parties=7, coalition=["server"], rounds=40, **NOISED)
    assert report.epsilon == pytest.approx(worth("secagg", 7, 7, 40))


def test_at_worst_as_many_drop_out_as_may():
    report = tacit.audit("secagg", parties=9, coalition=["server", "p0"], threshold=6, **NOISED)
    assert report.epsilon == pytest.approx(worth("secagg", 9, 8))
    assert report.fewest == 6
    assert report.epsilon_at_worst == pytest.approx(worth("secagg", 9, 5))
    assert report.epsilon_at_worst > report.epsilon


def test_whoever_sees_nothing_has_no_epsilon_to_speak_of():
    report = tacit.audit("secagg", parties=5, coalition=["onlooker"], **NOISED)
    assert report.epsilon == 0.0


def test_without_noise_or_a_bound_nothing_is_said():
    assert tacit.audit("secagg", parties=5, coalition=["server"]).epsilon is None
    assert tacit.audit("secagg", parties=5, coalition=["server"], noise=1.0).epsilon is None
    assert tacit.audit("secagg", parties=5, coalition=["server"], norm=1.0).epsilon is None


def test_per_sample_it_is_by_the_sensitivity():
    report = tacit.audit("secagg", parties=5, coalition=["server"], noise=1.0, sensitivity=0.02)
    assert report.epsilon == pytest.approx(worth("secagg", 5, 5, sensitivity=0.02))
    assert report.epsilon < tacit.audit("secagg", parties=5, coalition=["server"], **NOISED).epsilon


def test_long_vectors_of_few_bits_are_rounded_by_more():
    question = {"parties": 5, "coalition": ["server"], "bits": 16, "clip": 16.0, **NOISED}
    short, long = (tacit.audit("secagg", length=length, **question).epsilon for length in (10, 1_000_000))
    assert long > 1.3 * short


def test_noise_is_a_setting_and_may_be_given_as_one():
    names = tuple(f"p{i}" for i in range(5))
    one, two = (
        Scope.of("secagg", names, {"norm": 1.0, **options}, noise=noise)
        for options, noise in (({"noise": 0.7}, 0.0), ({}, 0.7))
    )
    assert one.noise == two.noise == 0.7
    assert one.terms.settings == two.terms.settings
    assert Auditor(one).report(("server",)).epsilon == Auditor(two).report(("server",)).epsilon


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"sensitivity": math.nan}, "sensitivity"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"length": 0}, "length"),
    ],
)
def test_what_cannot_be_asked_is_named(wrong, named):
    with pytest.raises(tacit.ConfigError, match=named):
        tacit.audit("secagg", parties=5, coalition=["server"], **{**NOISED, **wrong})


def test_what_is_exposed_is_exposed_noise_and_all_and_its_recipe_is_proved():
    report = tacit.audit("fedavg", parties=4, coalition=["server"], **NOISED)
    assert set(report.exposed) == {"p0", "p1", "p2", "p3"}
    assert max(report.errors.values()) < 1e-9
    assert max(report.bits.values()) < 1.0


def test_the_command_says_so_too():
    asked = ["audit", "secagg", "--parties", "5", "--coalition", "server", "--set", "noise=1.0", "--set", "norm=1.0"]
    shown = CliRunner().invoke(app, asked)
    assert "ε = " in shown.output
    assert "if as many drop out as may" in " ".join(shown.output.split())
    (report,) = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert report["epsilon"] == pytest.approx(worth("secagg", 5, 5))
    assert report["epsilon_at_worst"] > report["epsilon"]
    silent = CliRunner().invoke(app, asked[:6])
    assert "ε = " not in silent.output


def test_a_plan_says_how_much_noise_each_of_its_proposals_takes():
    proposed = tacit.plan(7, coalition_size=1, rounds=5, entries=100)
    alone = tacit.privacy.local_sigma(1.0, 1e-5, sensitivity=1.0, rounds=5)
    assert proposed.sigma == pytest.approx(alone / math.sqrt(6))
    for proposal in proposed.proposals:
        assert proposal.sigma == pytest.approx(alone / math.sqrt(proposal.company))
        if proposal.verdict == "leaks by design":
            assert proposal.company == 1
    whole = next(
        each for each in proposed.proposals if each.protocol == "secagg" and "participation" not in each.options
    )
    # Of the 5 who must be there at least, one colludes.
    assert whole.company == whole.options["threshold"] - 1
    shown = CliRunner().invoke(app, ["plan", "7", "--rounds", "5", "--entries", "100"]).output
    assert f"{whole.sigma:.3g}" in shown
