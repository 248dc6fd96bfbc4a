"""A guard against tests that leave files in the checkout."""

import os

from support.paths import ROOT

CACHES = {".git", ".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"}
"""Folders that tools fill. A run of tests may write to them."""


def list_files(folder=ROOT):
    """Returns every file of the checkout except those of tools."""
    found = set()
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in CACHES and not each.endswith(".egg-info")]
        found.update(os.path.join(place, name) for name in names if not name.startswith(".coverage"))
    return found


def describe_new_files(before, after):
    """Returns one line that names the files that a run left behind; an empty text if there are none."""
    left = sorted(os.path.relpath(path, ROOT) for path in after - before)
    return f"tests left files in the checkout: {', '.join(left[:5])}{' …' if len(left) > 5 else ''}" if left else ""
