"""Tiers of tests: quick ones for every change, long ones for `make check`, slow ones for `make slow`.

A test is quick unless it is marked. `slow` keeps it out of `make check`, `long` only out of `make test`. `sampled(n)`
makes all cases of a test slow but every n-th.
"""

import re
from collections import Counter

import pytest

WHOLE_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.(slow|long)\b", re.MULTILINE)
"""A file that is slow or long as a whole says so in its first lines."""
HEAD = 4096


def mark_cases(items):
    """Marks all but every n-th case of a sampled test as slow."""
    sampled_cases = Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        sampled = item.get_closest_marker("sampled")
        if sampled and not item.get_closest_marker("slow"):
            if sampled_cases[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            sampled_cases[test] += 1


def is_left_out(path, expression):
    """Says whether a marker expression leaves a whole file out, so that it need not even be imported."""
    if path.suffix != ".py" or not path.name.startswith("test_"):
        return False
    with path.open(encoding="utf-8") as file:
        found = WHOLE_FILE.search(file.read(HEAD))
    return found is not None and f"not {found[1]}" in expression
