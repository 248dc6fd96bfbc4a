"""Tiers of tests: quick ones for every change, longer ones for `make check`, slow ones for `make slow`.

A test is quick unless it is marked. `slow` keeps it out of `make check`, `long` only out of `make test`. Two rules mark
cases of parametrized tests:

- `sampled(n)`: all cases but every n-th are slow.
- A test with several parameters runs quickly on as many cases as it takes to have every value of every parameter once.
  The other combinations are long.
"""

import re
from collections import Counter, defaultdict

import pytest

WHOLE_FILE = re.compile(r"^pytestmark = .*pytest\.mark\.(slow|long)\b", re.MULTILINE)
"""A file that is slow or long as a whole says so in its first lines."""
HEAD = 4096


def mark_cases(items):
    """Marks the cases of parametrized tests as slow or long by the two rules."""
    sampled_cases = Counter()
    values_seen = defaultdict(set)
    for item in items:
        test = item.nodeid.partition("[")[0]
        sampled = item.get_closest_marker("sampled")
        if sampled and not item.get_closest_marker("slow"):
            if sampled_cases[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            sampled_cases[test] += 1
        if item.get_closest_marker("slow") or not hasattr(item, "callspec"):
            continue
        values = set(item.callspec.indices.items())
        if values <= values_seen[test]:
            item.add_marker(pytest.mark.long)
        values_seen[test] |= values


def is_left_out(path, expression):
    """Says whether a marker expression leaves a whole file out, so that it need not even be imported."""
    if path.suffix != ".py" or not path.name.startswith("test_"):
        return False
    with path.open(encoding="utf-8") as file:
        found = WHOLE_FILE.search(file.read(HEAD))
    return found is not None and f"not {found[1]}" in expression
