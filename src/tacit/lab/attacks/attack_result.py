"""Results of attacks: a measured value with its interval, and whether the target is broken.

A failed attack shows only that this attack fails, so the other verdict is "not broken by this", never "secure".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.findings import AttackVerdict
from tacit.core.progress import Progress

CONFIDENCE = 0.95
INTERVAL = "95 % interval"


@dataclass(frozen=True)
class Finding:
    """Result of several attacks on one target."""

    attack: str
    target: str
    """The attacked protocol with the settings that matter, for readers who do not know the papers."""
    measure: str
    """Meaning of the value, with its unit."""
    value: float
    low: float
    high: float
    samples: int
    broken: bool
    bracket: str = INTERVAL
    """Meaning of `low` and `high`; empty if the value is a count, which has no interval."""
    paper: str = ""
    """Table, figure or theorem of the paper with the same measure; empty if there is none."""
    tried: str = "tries"
    """Unit that `samples` counts."""

    @property
    def has_interval(self) -> bool:
        """Whether `low` and `high` are a confidence interval."""
        return self.bracket == INTERVAL

    @property
    def verdict(self) -> AttackVerdict:
        """Verdict on the target."""
        return AttackVerdict.BROKEN if self.broken else AttackVerdict.NOT_BROKEN_BY_THIS


def group_by_measure(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Returns the findings in groups with equal measures and equal kinds of intervals."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        found.setdefault((finding.measure, finding.bracket), []).append(finding)
    return list(found.values())


def proportion_finding(
    attack: str, target: str, measure: str, *, wins: int, tries: int, chance: float = 0.0, paper: str = ""
) -> Finding:
    """Returns the success rate of an attack, with the interval of Clopper and Pearson.

    The target is broken if the lower end of the interval is above the success rate of guessing.

    Args:
        attack: Name of the attack.
        target: Protocol and settings that are attacked.
        measure: Description of the rate.
        wins: Number of successes.
        tries: Number of trials.
        chance: Success rate of guessing.
        paper: Table, figure or theorem of the paper with the same measure.
    """
    from scipy.stats import binomtest  # Importing it takes a second.

    interval = binomtest(wins, tries).proportion_ci(CONFIDENCE, "exact")
    low, high = float(interval.low), float(interval.high)
    return Finding(attack, target, measure, wins / tries, low, high, tries, low > chance, paper=paper)


def mean_finding(attack: str, target: str, measure: str, samples: Sequence[float], *, broken: bool) -> Finding:
    """Returns the mean of some measurements, with the interval of Student's t."""
    from scipy.stats import t  # Importing it takes a second.

    values = np.asarray(samples, dtype=np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, max(len(values) - 1, 1))) * error if error else 0.0
    low = (
        mean - reach if values.min() < 0 else max(mean - reach, 0.0)
    )  # The mean of values that are never negative is not negative.
    return Finding(attack, target, measure, mean, low, mean + reach, len(values), broken)


class Grid(NamedTuple):
    """Rows of images under headings, for attacks whose findings are pictures."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[NDArray[np.float64]]]


@dataclass(frozen=True)
class Attack:
    """A registry entry: an attack that can be run by name."""

    name: str
    summary: str
    paper: str
    """The paper whose claim or experiment it tests."""
    run: Callable[[bool, int, Progress], list[Finding]]
    """Takes (full, seed, progress) and returns the findings, positive controls first. Without `full` it takes
    seconds."""
    look: Callable[[bool, int, Progress], tuple[list[Finding], Grid]] | None = None
    """Like `run`, but also returns images; None if the attack has none."""
    aliases: tuple[str, ...] = ()
    """Former names, which remain valid."""
