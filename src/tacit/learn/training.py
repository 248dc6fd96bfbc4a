"""The one loop of local work and averaging."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tacit.core.errors import NotEnough
from tacit.core.suite import Party, Update
from tacit.drivers.outcome import Outcome

Averaging: TypeAlias = Callable[[Mapping[Party, Update]], Outcome]
"""What averages the updates of a round, such as `Simulation.average`."""


@dataclass(frozen=True)
class Step:
    """One round of training."""

    number: int
    brought: Mapping[Party, Update]
    outcome: Outcome | None
    """None if too few were left for an average."""


LocalWork: TypeAlias = Callable[[int, Step | None], Mapping[Party, Update]]
"""Given the number of a round, from 1, and the step before it: what parties bring after their local work."""


def trained(average: Averaging, bring: LocalWork, rounds: int) -> Iterator[Step]:
    """Yields round after round of local work, by `bring`, and averaging."""
    step = None
    for number in range(1, rounds + 1):
        brought = bring(number, step)
        try:
            step = Step(number, brought, average(brought))
        except NotEnough:
            step = Step(number, brought, None)
        yield step
