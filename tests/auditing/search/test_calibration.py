"""Calibration: the smallest noise for (ε, δ), checked by the audit, and requests that have no answer."""

import pytest

import tacit
from tacit.auditing.findings import AccountingMethod
from tacit.auditing.search.calibration import PrivacyTarget, calibrate_noise
from tacit.core.errors import ConfigError

NAMES = [f"p{place}" for place in range(7)]
TARGET = {"epsilon": 2.0, "delta": 1e-5, "unit": "user", "adversary": 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("protocol", "rounds", "options"),
    [
        ("secagg", 20, {}),
        ("fedavg", 2, {"allow_leaks": True}),
        ("cesar", 3, {}),
        ("rotating", 4, {"group_size": 3}),
        ("pushsum", 2, {"masked": True}),
    ],
)
def test_the_audit_confirms_the_noise_and_refutes_less(protocol, rounds, options):
    given = {"rounds": rounds, "norm": 1.0, "length": 1000, **options}
    found = calibrate_noise(protocol, NAMES, privacy=TARGET, **given)
    assert found.bound.epsilon <= TARGET["epsilon"]

    def worst(noise):
        return max(
            each.epsilon for each in tacit.audit(protocol, parties=NAMES, coalition_size=1, noise=noise, **given)
        )

    assert worst(found.noise) == pytest.approx(found.bound.epsilon)
    assert worst(found.noise / 1.01) > TARGET["epsilon"]


def test_rotating_groups_need_less_noise_than_a_partys_own_has_to_be():
    given = {"privacy": PrivacyTarget(2.0), "rounds": 4, "norm": 1.0, "length": 1000}
    groups = calibrate_noise("rotating", NAMES, group_size=4, **given)
    alone = calibrate_noise("gossip", NAMES, graph="ring", **given)
    assert groups.method is AccountingMethod.MATRIX
    assert alone.method is AccountingMethod.SMALLEST_SUM
    assert groups.noise < 0.85 * alone.noise


def test_the_noise_for_one_sample_is_in_proportion_to_its_distance():
    given = {"privacy": {**TARGET, "unit": "sample"}, "rounds": 4, "length": 1000}
    one, tenth = (calibrate_noise("secagg", NAMES, sensitivity=far, **given).noise for far in (1.0, 0.1))
    assert one == pytest.approx(10 * tenth, rel=1e-2)


@pytest.mark.parametrize(
    ("privacy", "options", "reason"),
    [
        ({"epsilon": 0.0}, {}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, {}, "delta"),
        ({"epsilon": 1.0, "unit": "household"}, {}, "unit must be"),
        ({"epsilon": 1.0, "colluders": 2}, {}, "colluders"),
        ({"epsilon": 1.0, "adversary": 0}, {}, "adversary"),
        ({"epsilon": 1.0, "adversary": 9}, {}, "coalitions"),
        ({"epsilon": 1.0}, {"norm": None}, "norm"),
        ({"epsilon": 1.0, "unit": "sample"}, {}, "sensitivity"),
        ({"epsilon": 1.0}, {"noise": 1.0}, "leave it out"),
        ({"epsilon": 1.0}, {"bits": 16, "length": 100_000}, "rounding"),
    ],
)
def test_says_why_there_is_no_answer(privacy, options, reason):
    with pytest.raises(ConfigError, match=reason):
        calibrate_noise("secagg", NAMES, privacy=privacy, **{"norm": 1.0, "length": 1000, **options})
