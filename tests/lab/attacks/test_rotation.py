"""Members of rotating groups: what they find from real averages, and that the audit says the same."""

import pytest

import tacit
from tacit.core.progress import ignore_progress
from tacit.lab.attacks.registry import find_attack
from tacit.lab.attacks.rotation import BROKEN, HOLDING, run_target

pytestmark = pytest.mark.long


@pytest.mark.parametrize("target", [*BROKEN, *HOLDING], ids=lambda target: target.name)
def test_members_find_the_vectors_that_the_audit_says_they_find(target):
    found, _ = run_target(target, 3)
    assert (found > 0) == (target in BROKEN)
    if target.sessions > 1:
        return  # An audit is of one session.
    report = tacit.audit(
        "rotating",
        parties=target.parties,
        coalition=[f"p{place}" for place in range(target.members)],
        rounds=target.rounds,
        drift="static" if target.static else "free",
        **target.options,
    )
    assert len(report.exposed) == found


def test_the_attack_tells_broken_targets_from_others():
    findings = find_attack("rotation").run(False, 0, ignore_progress)
    assert [finding.broken for finding in findings] == [True] * len(BROKEN) + [False] * len(HOLDING)
