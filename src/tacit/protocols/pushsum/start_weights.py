"""Distributions of y_i(0), a client's starting weight in `pushsum` (Table 3)."""

import math
from typing import Any, TypeAlias

import msgspec

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError
from tacit.vectors.ring_limits import LARGEST, SMALLEST

FARTHEST = 9.0
"""Largest magnitude of a normal sample with 53 random bits, in standard deviations."""


class StartDistribution(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A distribution of y_i(0) from Table 3, with mean 1 by default."""

    def problems(self) -> list[str]:
        """Returns the reasons why its samples are not usable as divisors of a mass."""
        raise NotImplementedError

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        raise NotImplementedError


class UniformStart(StartDistribution, frozen=True, tag="uniform"):
    """Uniform distribution U(low, high)."""

    low: float = 0.5
    high: float = 1.5

    def problems(self) -> list[str]:
        """Returns a problem if it is not an interval of valid masses."""
        return [] if 0 <= self.low < self.high <= LARGEST else [f"y0={self} must have 0 ≤ low < high ≤ {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return self.low + (self.high - self.low) * entropy.unit()


class ExponentialStart(StartDistribution, frozen=True, tag="exp"):
    """Exponential distribution Exp(rate)."""

    rate: float = 1.0

    def problems(self) -> list[str]:
        """Returns a problem if the rate is out of range."""
        within = SMALLEST <= self.rate <= LARGEST
        return [] if within else [f"y0={self} must have a rate between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return -math.log1p(-entropy.unit()) / self.rate


class LognormalStart(StartDistribution, frozen=True, tag="lognormal"):
    """Lognormal distribution Lognormal(μ, σ²)."""

    mean: float = -1.0
    variance: float = 2.0

    def problems(self) -> list[str]:
        """Returns a problem if samples may be too large or too small for any ring."""
        if self.variance > 0 and abs(self.mean) + FARTHEST * math.sqrt(self.variance) <= math.log(LARGEST):
            return []
        return [f"y0={self} must have a variance above 0, and samples between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample, by the Box-Muller transform."""
        radius, angle = math.sqrt(-2.0 * math.log1p(-entropy.unit())), 2 * math.pi * entropy.unit()
        return math.exp(self.mean + math.sqrt(self.variance) * radius * math.cos(angle))


StartKind: TypeAlias = UniformStart | ExponentialStart | LognormalStart


def start_from(value: Any) -> Any:
    """Returns a distribution for a name, a name with parameters, or a table."""
    named = [value] if isinstance(value, str) else value
    if isinstance(named, list | tuple):
        kinds: dict[Any, Any] = {"uniform": UniformStart, "exp": ExponentialStart, "lognormal": LognormalStart}
        name, *parameters = named or [None]
        kind = kinds.get(name) if isinstance(name, str) else None
        if kind is None or len(parameters) not in (0, len(kind.__struct_fields__)):
            each = ", ".join(f"{name}{fields.__struct_fields__}" for name, fields in kinds.items())
            raise ConfigError(f"y0={value!r} must be one of {', '.join(kinds)}, or one with its parameters: {each}")
        return kind(*parameters)
    return value
