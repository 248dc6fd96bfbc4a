"""The pages of claims and attacks say what was found."""

import json
import subprocess
import sys
from pathlib import Path

from tacit.audit.attacks.registry import ATTACKS

ROOT = Path(__file__).parents[2]


def test_the_page_of_claims_is_up_to_date():
    check = subprocess.run([sys.executable, ROOT / "docs" / "claims.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/claims.py"


def test_the_page_of_attacks_is_that_of_the_findings_kept():
    check = subprocess.run([sys.executable, ROOT / "docs" / "attacks.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/attacks.py"


def test_every_attack_is_on_the_page_with_a_target_that_breaks_and_one_that_does_not():
    kept = json.loads((ROOT / "docs" / "attacks.json").read_text(encoding="utf-8"))
    assert list(kept) == list(ATTACKS)
    for name, findings in kept.items():
        assert {finding["broken"] for finding in findings} == {True, False}, name
        assert all(finding["low"] <= finding["value"] <= finding["high"] for finding in findings), name
