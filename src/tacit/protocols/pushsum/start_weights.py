"""Distributions of y_i(0), the weight that a client of `pushsum` starts with (Table 3)."""

import math
from typing import Any, TypeAlias

import msgspec

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError
from tacit.vectors.ring_limits import LARGEST, SMALLEST

FARTHEST = 9.0
"""Standard deviations that a normal sample of 53 bits can be away from its mean at most."""


class StartDistribution(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    """A distribution of y_i(0) from Table 3. All have mean 1 unless told otherwise."""

    def problems(self) -> list[str]:
        """Returns why nothing can be drawn from it that a mass can be divided by."""
        raise NotImplementedError

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        raise NotImplementedError


class UniformStart(StartDistribution, frozen=True, tag="uniform"):
    """U(low, high)."""

    low: float = 0.5
    high: float = 1.5

    def problems(self) -> list[str]:
        """Returns why it is no interval of masses."""
        return [] if 0 <= self.low < self.high <= LARGEST else [f"y0={self} must have 0 ≤ low < high ≤ {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return self.low + (self.high - self.low) * entropy.unit()


class ExponentialStart(StartDistribution, frozen=True, tag="exp"):
    """Exp(rate)."""

    rate: float = 1.0

    def problems(self) -> list[str]:
        """Returns why it has no such rate."""
        within = SMALLEST <= self.rate <= LARGEST
        return [] if within else [f"y0={self} must have a rate between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample."""
        return -math.log1p(-entropy.unit()) / self.rate


class LognormalStart(StartDistribution, frozen=True, tag="lognormal"):
    """Lognormal(μ, σ²)."""

    mean: float = -1.0
    variance: float = 2.0

    def problems(self) -> list[str]:
        """Returns why its samples could be too large or too small for any ring."""
        if self.variance > 0 and abs(self.mean) + FARTHEST * math.sqrt(self.variance) <= math.log(LARGEST):
            return []
        return [f"y0={self} must have a variance above 0, and samples between {SMALLEST:g} and {LARGEST:g}"]

    def draw(self, entropy: Entropy) -> float:
        """Returns a sample, by Box and Muller."""
        radius, angle = math.sqrt(-2.0 * math.log1p(-entropy.unit())), 2 * math.pi * entropy.unit()
        return math.exp(self.mean + math.sqrt(self.variance) * radius * math.cos(angle))


StartKind: TypeAlias = UniformStart | ExponentialStart | LognormalStart


def start_from(value: Any) -> Any:
    """Returns a distribution from its name, or its name and parameters, or a table."""
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
