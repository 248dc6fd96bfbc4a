"""Folders of the checkout that tests read from."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout."""
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
