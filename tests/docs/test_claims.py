"""The pages of claims and attacks say what was found."""

import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from support.paths import ROOT
from tacit.lab.attacks.registry import ATTACKS, find_attack


@pytest.mark.slow
def test_the_page_of_claims_is_up_to_date():
    check = subprocess.run([sys.executable, ROOT / "docs" / "claims.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/claims.py"


@pytest.mark.parametrize("audits", ["pushsum", "cesar"])
def test_what_is_quickly_computed_is_on_the_page_of_claims(audits):
    spec = spec_from_file_location("claims", ROOT / "docs" / "claims.py")
    claims = sys.modules["claims"] = module_from_spec(spec)
    spec.loader.exec_module(claims)
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    for finding in getattr(claims, audits)():
        assert f"| {' | '.join(finding)} |" in page, "run python docs/claims.py"


def test_the_page_of_attacks_is_that_of_the_findings_kept():
    check = subprocess.run([sys.executable, ROOT / "docs" / "attacks.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/attacks.py"


def test_every_attack_is_on_the_page_with_a_target_that_breaks_and_one_that_does_not():
    kept = json.loads((ROOT / "docs" / "attacks.json").read_text(encoding="utf-8"))
    assert [find_attack(name).name for name in kept] == list(ATTACKS)
    for name, findings in kept.items():
        assert {finding["broken"] for finding in findings} == {True, False}, name
        assert all(finding["low"] <= finding["value"] <= finding["high"] for finding in findings), name


def test_a_claim_is_confirmed_only_if_no_row_differs_and_most_can_be_compared():
    spec = spec_from_file_location("claims", ROOT / "docs" / "claims.py")
    claims = sys.modules["claims"] = module_from_spec(spec)
    spec.loader.exec_module(claims)
    page = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    for claim in claims.CLAIMS:
        finding = claims.reproduced(claim)
        assert f"| {' | '.join(finding)} |" in page, "run python docs/claims.py"
        rows, agree, differ = map(int, re.search(r"of (\d+) rows (\d+) agree, (\d+) differ", finding.evidence).groups())
        if finding.verdict == claims.CONFIRMED:
            assert differ == 0, claim.text
            assert 2 * agree >= rows, claim.text
        elif finding.verdict.startswith(claims.COMPARABLE):
            assert finding.verdict.endswith(f": {agree} of {rows} rows")
            assert 0 < 2 * agree < rows
            assert differ == 0


def test_rows_that_test_something_else_are_counted():
    spec = spec_from_file_location("claims", ROOT / "docs" / "claims.py")
    claims = sys.modules["claims"] = module_from_spec(spec)
    spec.loader.exec_module(claims)
    kept = json.loads((ROOT / "docs" / "reproductions.json").read_text(encoding="utf-8"))
    (claim,) = [each for each in claims.CLAIMS if each.name == "003-e"]
    rows = {row["what"] for scale in ("small", "paper") for row in kept.get(f"003-e {scale}", {"rows": []})["rows"]}
    counted = map(int, re.search(r"of (\d+) rows .*; (\d+) other rows", claims.reproduced(claim).evidence).groups())
    assert sum(counted) == len(rows)
