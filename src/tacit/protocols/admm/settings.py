"""Settings and terms of `admm`: groups, bounds on y, and the error of the average."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.core.messages import Message
from tacit.core.protocol import Settings, Terms
from tacit.core.protocol_facts import MOST_PHASES, CoalitionQuery, ExchangePattern, PrivacyArgument, Remedy
from tacit.core.suite import Parties
from tacit.designs.groups import Groups, groups
from tacit.protocols.shapes.proofs import LEFT, one_sum
from tacit.vectors.fixedpoint import FixedPoint

SAFE_ITERATIONS = 4
"""Most iterations in which the audit found no exposure to a single peer, for 9 to 30 peers in groups of three."""
MOST_ITERATIONS = 10_000
"""Most iterations that are accepted, because more take too long."""
FAR_OFF = 1e-2
"""Error of the average, absolute or relative, from which users get a note."""
COARSE, STRETCHED = 1e-4, 256
"""Rounding error, and factor by which λ/ρ enlarges the ring's span over the clip, from which users get a note."""
SLACK = 17 / 16
"""Headroom of the ring for the rounding errors of z, which λ accumulates."""


def _group_size_from(value: Any) -> Any:
    return "all" if value is None else value  # configuration files cannot express None


class AdmmSettings(Settings, frozen=True, kw_only=True):
    """Settings of `admm`."""

    iterations: int | None = None
    """I; unless set, the most that the pattern protects, that an audit found safe, and that the ring can resolve."""
    rho: float | tuple[float, ...] = 0.1
    """The penalty ρ, one for all iterations or one for each. Each iteration multiplies the error by ρ/(ρ + 2)."""
    group_size: int | Literal["all"] = 3
    """Number s of peers in a group; "all" or None for a single group of all peers."""
    masked: bool = False
    """Whether y is masked pairwise within the group, so that only the group's sum is revealed."""
    lambda0: tuple[float, float] = (0.0, 1.0)
    """Range of λ⁰, which is sampled uniformly."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"group_size": _group_size_from}
    editor_types: ClassVar[Mapping[str, str]] = {
        "rho": "float | Sequence[float]",
        "group_size": 'int | Literal["all"] | None',
    }

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        problems = super().problems(parties)
        if self.group_size != "all" and not 2 <= self.group_size <= len(parties):
            problems.append(
                f"group_size={self.group_size} must be from 2 to the {len(parties)} parties, or None for all"
            )
        if self.iterations is not None and not 1 <= self.iterations <= MOST_ITERATIONS:
            problems.append(f"iterations={self.iterations} must be at least 1 and at most {MOST_ITERATIONS}")
        several = self.rho if isinstance(self.rho, tuple) else (self.rho,)
        if not several or not all(0 < rho < math.inf for rho in several):
            problems.append(f"rho={self.rho} must be a positive number, or one for each iteration")
        if isinstance(self.rho, tuple) and len(several) > MOST_ITERATIONS:
            problems.append(f"rho has {len(several)} values, for more than {MOST_ITERATIONS} iterations")
        elif isinstance(self.rho, tuple) and self.iterations not in (None, len(several)):
            problems.append(
                f"rho has {format_count(len(several), 'value')} for "
                f"{format_count(self.iterations, 'iteration')}; try: give one for each, or one for all"
            )
        if not self.lambda0[0] <= self.lambda0[1]:
            problems.append(f"lambda0={self.lambda0} must be a lower and an upper bound")
        return problems

    def bind(self, parties: Parties) -> "AdmmTerms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        if problems := self.problems(parties):
            raise ConfigError(problems)
        n = len(parties)
        pattern = groups(n, n if self.group_size == "all" else self.group_size)
        # Up to `protected` iterations no pair meets again, but the sums of many groups leak long before the gap ends.
        unharmed = count_protected_iterations(pattern, self.masked)
        if len(pattern.partitions[0]) > 1:
            unharmed = min(unharmed, SAFE_ITERATIONS)
        if isinstance(self.rho, tuple):
            return AdmmTerms(self, parties, pattern, len(self.rho))
        enough = math.ceil(self.bits * math.log(2) / math.log1p(2 / self.rho)) + 1
        iterations = self.iterations or int(max(2, min(enough, unharmed, MOST_ITERATIONS)))
        return AdmmTerms(self, parties, pattern, iterations)

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns `masked=True`, if masks are not set."""
        del dropouts
        return None if self.masked else Remedy("masked", True)

    @property
    def given_iterations(self) -> int | None:
        """Number of iterations given, directly or by a ρ for each; None for the default."""
        return len(self.rho) if isinstance(self.rho, tuple) else self.iterations


def count_protected_iterations(pattern: Groups, masked: bool) -> float:
    """Returns the number of iterations that a pattern protects: its gap, or infinity if only the total sum is seen."""
    return math.inf if masked and len(pattern.partitions[0]) == 1 else pattern.gap


@dataclass(frozen=True)
class AdmmTerms(Terms):
    """What the settings of `admm` mean for one roster."""

    settings: AdmmSettings
    pattern: Groups
    """Π, the partitions into groups."""
    iterations: int

    @property
    def rhos(self) -> tuple[float, ...]:
        """ρ of each iteration."""
        rho = self.settings.rho
        return rho if isinstance(rho, tuple) else (rho,) * self.iterations

    def leaks(self) -> list[str]:
        """Returns the reasons why a peer would learn a single vector."""
        given, most = self.settings.given_iterations, count_protected_iterations(self.pattern, self.settings.masked)
        if given is None and most < 2:
            return [
                f"with {len(self.parties)} parties this pattern protects a single iteration, which is no average yet; "
                f"try: use masked=True and group_size=None"
            ]
        # With masks, peers that meet again do not see each other's vectors. Audits examine what sums of groups reveal.
        if given is None or given <= most or self.settings.masked:
            return []
        return [
            f"{given} iterations are more than the {self.pattern.gap} that this pattern protects: peers meet "
            f"again and can solve for each other's vectors; try: use fewer iterations or other groups"
        ]

    def arguments(self, query: CoalitionQuery) -> Iterator[PrivacyArgument]:
        """Yields the argument that only the total sum is revealed, if all peers mask with all."""
        left = len(self.parties) - query.size
        if self.settings.masked and len(self.pattern.partitions[0]) == 1 and left >= LEFT:
            yield one_sum(left)

    def exchange(self) -> ExchangePattern:
        """Returns the groups of each iteration, for pictures."""
        partitions = self.pattern.partitions
        phases = (partitions[i % len(partitions)] for i in range(min(self.iterations, MOST_PHASES)))
        return ExchangePattern("groups", tuple(tuple(tuple(map(int, g)) for g in each) for each in phases), "iteration")

    def ties(self) -> tuple[NDArray[Any], ...]:
        """Returns, for each pair, the iteration in which it shares a group. Within the pattern there is at most one."""
        met = np.zeros((len(self.parties), len(self.parties)), dtype=np.int64)
        for i, partition in enumerate(self.pattern.partitions[: self.iterations], start=1):
            for group in partition:
                met[np.ix_(group, group)] = i
        np.fill_diagonal(met, 0)
        return (met,)

    def steps(self, kind: type[Message]) -> range:
        """Returns the iterations, which are the steps of all messages."""
        del kind
        return range(1, self.iterations + 1)

    # --- accuracy: the error of the average, and bounds on y ---------------------------------------------------------

    def notes(self) -> list[str]:
        """Returns remarks on the accuracy of the result."""
        settings, span = self.settings, self.span
        drawn, rest = self.off
        notes = []
        if max(rest, drawn) >= FAR_OFF:
            notes.append(
                f"after {format_count(self.iterations, 'iteration')} the average may be off by {drawn:.1g}, and by "
                f"{rest:.1g} of itself"
            )
        rounded = self.rounded
        if rounded >= COARSE and span >= STRETCHED * settings.clip:
            notes.append(
                f"for a ρ of {min(self.rhos):g} the ring holds {span / settings.clip:,.0f} times the clip, so that "
                f"{settings.bits} bits round the average by up to {rounded:.1g}; try: use a smaller clip, or bits=64"
            )
        return notes

    @property
    def off(self) -> tuple[float, float]:
        """Largest error of the average: the absolute part, due to λ⁰, and the part relative to the average."""
        first, *later = self.rhos
        rest = math.prod(rho / (rho + 2) for rho in later)
        return 2 * max(map(abs, self.settings.lambda0)) / (first * (first + 2)) * rest, first / (first + 2) * rest

    @property
    def rounded(self) -> float:
        """Largest error of the average from rounding each of the n parts of z, in every iteration."""
        step = FixedPoint(self.settings.bits, self.span, self.summands, 1).resolution
        off, before, last = 0.0, 0.0, math.inf
        for rho, stretch in zip(self.rhos, self.stretches, strict=True):
            new = len(self.parties) * step / stretch / (1 if self.settings.stochastic else 2)
            # The mean of λ is then off by ρ times the rounding error of z, and y by that over the next ρ.
            off = off * rho / (2 + rho) + (2 * last / (rho * (2 + rho)) * before if before else 0.0) + new
            before, last = new, rho
        return off

    @property
    def amplifies(self) -> float:
        """Largest decrease of ρ, as a factor. λ holds the rounding error of z times an earlier ρ, and y divides by a
        later one."""
        highest = accumulate(self.rhos, max)
        return max(before / rho for before, rho in zip(highest, self.rhos, strict=True))

    @cached_property
    def spans(self) -> tuple[float, ...]:
        """Bound on |y| in each iteration.

        y = (2 w + ρ z)/(2 + ρ) + 2 λ/(ρ (2 + ρ)). Each λ is 2 (w − w̄) ρ/(2 + ρ) plus 2/(2 + ρ) of its former value,
        minus the mean of that. The factor of w̄ in z is that of w in x.
        """
        settings, (low, high) = self.settings, self.settings.lambda0
        w = max(settings.reach, 1.0) if settings.weighted else settings.reach  # the weight is an entry too
        lambda_, z, found = max(abs(low), abs(high)), 0.0, []
        for i, rho in enumerate(self.rhos):
            x = (2 * w + rho * z) / (2 + rho)
            y = x + 2 * lambda_ / (rho * (2 + rho))
            z = x if i else y
            lambda_ = (4 * w * rho + 2 * (lambda_ if i else high - low)) / (2 + rho)
            found.append(SLACK * y)
        return tuple(found)

    @property
    def span(self) -> float:
        """The largest bound on |y| of all iterations."""
        return max(self.spans)

    @cached_property
    def stretches(self) -> tuple[float, ...]:
        """Factor for y in each iteration that fills the ring. It is a power of two, which causes no rounding.

        The rounding error of z in one iteration appears in the next one, multiplied by ρ_i/ρ_{i+1}.
        """
        return tuple(2.0 ** math.floor(math.log2(self.span / span)) for span in self.spans)

    @property
    def summands(self) -> int:
        """2: the parts y/n add up to at most one clip, and the factor 2 leaves headroom for rounding."""
        return 2
