"""The page of claims says what the audit says now."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_of_claims_is_up_to_date():
    check = subprocess.run([sys.executable, ROOT / "docs" / "claims.py", "--check"], check=False)  # noqa: S603
    assert check.returncode == 0, "run python docs/claims.py"
