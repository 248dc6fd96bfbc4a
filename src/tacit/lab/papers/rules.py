"""Estimates with their spread over seeds, and the rules that compare them with the numbers of a paper.

A rule is declared before the run, with the reason for its constant. Its verdict is *agrees*, *differs*, or *not
comparable* if the spread over seeds is too large to decide, or the experiment was changed too much. Every rule accepts
the paper's own number, which a test checks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import fmean, stdev
from typing import Protocol, TypeAlias

from scipy.special import stdtrit

LEVEL = 0.95
"""Confidence of every interval: the usual one, and the same for all rows, so that none is chosen by its result."""


class RowVerdict(StrEnum):
    """Outcome of a comparison with a paper."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not_comparable"


@dataclass(frozen=True)
class Estimate:
    """A number of ours: a mean over seeds with its standard deviation, or a number without randomness."""

    mean: float
    deviation: float | None = None
    """Standard deviation over seeds, not of the mean; None after a single run."""
    count: int = 1
    """Number of seeds."""
    exact: bool = False
    """Whether the number has no randomness: computed, counted exhaustively, or the same for every seed by
    construction."""
    of: str = "seeds"
    """What is counted, such as seeds or graphs."""

    @classmethod
    def over(cls, values: Sequence[float], of: str = "seeds") -> "Estimate":
        """Returns the estimate from one value for each seed."""
        spread = stdev(values) if len(values) > 1 else None
        return cls(fmean(values), spread, len(values), of=of)

    @classmethod
    def certain(cls, value: float) -> "Estimate":
        """Returns a number without randomness."""
        return cls(value, 0.0, exact=True)

    @classmethod
    def share(cls, hits: int, trials: int, of: str = "trials") -> "Estimate":
        """Returns the share of successful trials, with the spread of Agresti and Coull.

        The spread is above zero even if none or all of the trials succeed.
        """
        near = (hits + 2) / (trials + 4)
        return cls(hits / trials, math.sqrt(near * (1 - near)), trials, of=of)

    @property
    def half_width(self) -> float:
        """Half the interval of the mean by Student's t; infinite after a single run."""
        return half_width((self,))

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half_width


def half_width(estimates: Sequence[Estimate]) -> float:
    """Returns half the interval of a sum or difference of independent means, by Student's t."""
    chance = [each for each in estimates if not each.exact]
    if any(each.deviation is None or each.count < 2 for each in chance):
        return math.inf
    freedom = sum(each.count - 1 for each in chance)
    variance = sum((each.deviation or 0.0) ** 2 / each.count for each in chance)
    return float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(variance) if variance else 0.0


@dataclass(frozen=True)
class PaperNumber:
    """A number that a paper prints."""

    value: float
    rounding: float = 0.0
    """Largest rounding error of the printed digits: half a unit of the last one, twice that for a difference of two."""
    runs: int = 1
    """Number of runs behind the mean, as far as the paper says."""
    deviation: float | None = None
    """Standard deviation in the paper; None to use ours instead."""

    def as_ours(self) -> Estimate:
        """Returns the number as if it were ours and exact, which every rule must accept."""
        return Estimate.certain(self.value)


Paper: TypeAlias = PaperNumber | tuple[PaperNumber, ...] | str | None
"""A number of a paper, several in order, its words where it gives no number, or nothing."""
Ours: TypeAlias = Estimate | tuple[Estimate, ...]


class Rule(Protocol):
    """Comparison of a number of ours with a paper's."""

    @property
    def reason(self) -> str:
        """Reason for the constant of the rule."""

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict."""

    def describe(self) -> str:
        """Returns the rule in words."""


@dataclass(frozen=True)
class Near:
    """Our mean and the paper's differ by no more than random variation and printed digits allow.

    If the paper states no spread, its runs are assumed to vary as ours do. If the interval is wider than `resolution`,
    the comparison would accept too much, so the verdict is "not comparable".
    """

    resolution: float
    """Largest half interval at which the comparison is meaningful, in the unit of the row."""
    reason: str

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on one number."""
        given, found = _one(paper), _single(ours)
        allowed = 0.0
        if not found.exact:
            # The degrees of freedom are those of our seeds, because a printed number says nothing about its spread.
            ours_squared, paper_squared = _square(found.deviation), _square(given.deviation or found.deviation)
            freedom = found.count - 1
            scale = math.sqrt(ours_squared / found.count + paper_squared / given.runs)
            allowed = float(stdtrit(freedom, (1 + LEVEL) / 2)) * scale if freedom else math.inf
        if allowed > self.resolution:
            return RowVerdict.NOT_COMPARABLE
        off = abs(found.mean - given.value)
        return _verdict(off <= max(allowed, given.rounding) + 1e-12 * abs(given.value))

    def describe(self) -> str:
        """Returns the rule in words."""
        if not self.resolution:
            return "equal to the printed number"
        return f"within the {LEVEL:.0%} interval of the difference, if that is ±{self.resolution:g} or narrower"


@dataclass(frozen=True)
class Between:
    """Our interval lies inside the paper's bounds (agrees), outside (differs), or across one (not comparable)."""

    reason: str
    low: float = -math.inf
    high: float = math.inf

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on one number; the bounds are those that the paper states."""
        del paper
        found = _single(ours)
        if found.low >= self.low and found.high <= self.high:
            return RowVerdict.AGREES
        outside = found.high < self.low or found.low > self.high
        return RowVerdict.DIFFERS if outside else RowVerdict.NOT_COMPARABLE

    def describe(self) -> str:
        """Returns the rule in words."""
        if self.low == -math.inf:
            return f"the upper end of the {LEVEL:.0%} interval is at most {self.high:g}"
        if self.high == math.inf:
            return f"the lower end of the {LEVEL:.0%} interval is at least {self.low:g}"
        return f"the {LEVEL:.0%} interval lies between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class SameSign:
    """The effect has the paper's sign, and its interval excludes zero.

    An interval around zero is not comparable: there may be no effect, or too few seeds to see it.
    """

    reason: str
    sign: int = 0
    """Sign of the effect if the paper states it in words: −1 or 1; 0 takes the sign of the paper's number."""

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on one effect."""
        found, sign = _single(ours), self.sign or math.copysign(1, _one(paper).value)
        if found.low > 0 or found.high < 0:
            return _verdict(found.mean * sign > 0)
        return RowVerdict.NOT_COMPARABLE

    def describe(self) -> str:
        """Returns the rule in words."""
        return f"same sign, and the {LEVEL:.0%} interval excludes zero"


@dataclass(frozen=True)
class SameOrder:
    """Our numbers are in the paper's order, and neighbours in that order differ by more than random variation."""

    reason: str
    rising: bool | None = None
    """Direction if the paper states it in words; None takes the order of the paper's numbers."""

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on several numbers, given in the order of the paper's."""
        found = list(ours) if isinstance(ours, tuple) else [ours]
        if self.rising is None:
            given = [each.value for each in _several(paper)]
            found = [each for _, each in sorted(zip(given, found, strict=True), key=lambda pair: pair[0])]
        elif not self.rising:
            found.reverse()
        steps = [(after.mean - before.mean, half_width((before, after))) for before, after in pairwise(found)]
        if any(step < -wide for step, wide in steps):
            return RowVerdict.DIFFERS
        return RowVerdict.AGREES if all(step > wide for step, wide in steps) else RowVerdict.NOT_COMPARABLE

    def describe(self) -> str:
        """Returns the rule in words."""
        return f"same order, and the {LEVEL:.0%} interval of each difference of neighbours excludes zero"


@dataclass(frozen=True)
class WithinFactor:
    """Our interval is within a factor of the paper's number, either way."""

    factor: float
    reason: str

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns the verdict on one positive number."""
        value = _one(paper).value
        return Between(self.reason, value / self.factor, value * self.factor).judge(paper, ours)

    def describe(self) -> str:
        """Returns the rule in words."""
        return f"the {LEVEL:.0%} interval is within a factor of {self.factor:g}"


@dataclass(frozen=True)
class NotCompared:
    """The number is shown and not compared, because the experiment was changed, or the paper has none."""

    reason: str

    def judge(self, paper: Paper, ours: Ours) -> RowVerdict:
        """Returns that it is not comparable."""
        del paper, ours
        return RowVerdict.NOT_COMPARABLE

    def describe(self) -> str:
        """Returns the rule in words."""
        return "not compared"


def explain_spread(rule: Rule, ours: Sequence[Estimate]) -> str:
    """Returns how the spread of our numbers kept a rule from a verdict; nothing if the rule compares no numbers."""
    first = ours[0]
    interval = f"the 95% interval, {first.low:.3g} to {first.high:.3g},"
    if isinstance(rule, Between):
        inside = [f"{bound:g}" for bound in (rule.low, rule.high) if first.low < bound < first.high]
        return f"{interval} includes {' and '.join(inside)}" if inside else ""
    if isinstance(rule, SameSign):
        return f"{interval} includes 0"
    if isinstance(rule, SameOrder):
        return "the 95% interval of a difference of neighbours includes 0"
    if isinstance(rule, Near):
        return f"the 95% interval of the difference is wider than ±{rule.resolution:g}"
    return f"{interval} includes a bound" if isinstance(rule, WithinFactor) else ""


def _verdict(same: bool) -> RowVerdict:
    return RowVerdict.AGREES if same else RowVerdict.DIFFERS


def _square(deviation: float | None) -> float:
    return (deviation or 0.0) ** 2


def _one(paper: Paper) -> PaperNumber:
    if not isinstance(paper, PaperNumber):
        raise TypeError(f"this rule needs one number of the paper, not {paper!r}")
    return paper


def _several(paper: Paper) -> tuple[PaperNumber, ...]:
    if not isinstance(paper, tuple):
        raise TypeError(f"this rule needs several numbers of the paper, not {paper!r}")
    return paper


def _single(ours: Ours) -> Estimate:
    if not isinstance(ours, Estimate):
        raise TypeError("this rule compares one number")
    return ours
