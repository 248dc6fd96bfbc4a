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
    """One target, attacked some number of times."""

    attack: str
    target: str
    """What was attacked, for whoever has not read the papers: the protocol, and the settings that matter."""
    measure: str
    """What the value is, with its unit."""
    value: float
    low: float
    high: float
    samples: int
    broken: bool
    bracket: str = INTERVAL
    """Meaning of `low` and `high`; empty if the value is a count, which has no interval."""
    paper: str = ""
    """Where its paper has the same, if it does: a table, a figure, a theorem."""
    tried: str = "tries"
    """What `samples` counts."""

    @property
    def has_interval(self) -> bool:
        """Whether `low` and `high` are a confidence interval."""
        return self.bracket == INTERVAL

    @property
    def verdict(self) -> AttackVerdict:
        """Verdict on the target."""
        return AttackVerdict.BROKEN if self.broken else AttackVerdict.NOT_BROKEN_BY_THIS


def group_by_measure(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Returns findings of which the same was measured, and that lie between the same, together."""
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
    from scipy.stats import binomtest  # takes a second to import

    interval = binomtest(wins, tries).proportion_ci(CONFIDENCE, "exact")
    low, high = float(interval.low), float(interval.high)
    return Finding(attack, target, measure, wins / tries, low, high, tries, low > chance, paper=paper)


def mean_finding(attack: str, target: str, measure: str, samples: Sequence[float], *, broken: bool) -> Finding:
    """Returns the mean of some measurements, with the interval of Student's t."""
    from scipy.stats import t  # takes a second to import

    values = np.asarray(samples, dtype=np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")
    reach = float(t.ppf(0.5 + CONFIDENCE / 2, max(len(values) - 1, 1))) * error if error else 0.0
    low = mean - reach if values.min() < 0 else max(mean - reach, 0.0)  # what is never below 0 has no such mean
    return Finding(attack, target, measure, mean, low, mean + reach, len(values), broken)


class Grid(NamedTuple):
    """Images in rows, under headings, for an attack whose findings are best looked at."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[NDArray[np.float64]]]


@dataclass(frozen=True)
class Attack:
    """A registry entry: an attack that can be run by name."""

    name: str
    summary: str
    paper: str
    """Which paper's claim or experiment it tests."""
    run: Callable[[bool, int, Progress], list[Finding]]
    """Given (full, seed, progress): what it found, positive controls first. Not full is a matter of seconds."""
    look: Callable[[bool, int, Progress], tuple[list[Finding], Grid]] | None = None
    """The same with what can be looked at, if there is anything."""
    aliases: tuple[str, ...] = ()
    """Former names, which go on working."""
