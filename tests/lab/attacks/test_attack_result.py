"""What may be said of an attack's result."""

import pytest

import tacit
from tacit.lab.attacks.attack_result import mean_finding, proportion_finding
from tacit.lab.attacks.registry import ATTACKS, find_attack

pytestmark = pytest.mark.long


def test_a_failed_attack_is_never_called_secure():
    failed = proportion_finding("x", "target", "wins", wins=0, tries=50)
    assert failed.verdict == "not_broken_by_this"
    assert failed.low == 0
    assert 0.05 < failed.high < 0.08, "fifty failures say little about the next one"


def test_a_win_counts_only_above_chance():
    assert proportion_finding("x", "t", "wins", wins=30, tries=50, chance=0.5).verdict == "not_broken_by_this"
    assert proportion_finding("x", "t", "wins", wins=45, tries=50, chance=0.5).verdict == "broken"
    assert proportion_finding("x", "t", "wins", wins=50, tries=50).high == 1


def test_the_interval_of_a_mean_covers_it():
    found = mean_finding("x", "t", "error", [1.0, 2.0, 3.0], broken=False)
    assert found.low < found.value == 2.0 < found.high
    assert mean_finding("x", "t", "error", [1.0, 1.0], broken=True).low == 1.0
    assert mean_finding("x", "t", "error", [1.0], broken=True).high == float("inf"), (
        "one measurement says nothing of others"
    )


def test_attacks_are_found_by_name():
    with_server = {"disaggregate", "epsilon", "inversion", "lies"}
    without = {"admm", "collusion", "decode", "eavesdropper", "receiver", "rotation"}
    assert set(ATTACKS) == with_server | without
    assert all(find_attack(name).name == name for name in ATTACKS)
    assert find_attack("onlooker").name == "eavesdropper", "its former name"
    with pytest.raises(tacit.ConfigError, match="decode"):
        find_attack("decoder")
