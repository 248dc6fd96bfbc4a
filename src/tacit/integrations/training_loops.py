"""Averaging inside a training loop: which tensors of a module are averaged, when, and what follows from an outcome.

`tacit.integrations.lightning` and `tacit.integrations.transformers` are callbacks over this.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tacit.core.errors import ConfigError
from tacit.runtime.outcome import Outcome


class AveragingPeer(Protocol):
    """What a callback needs of the peer that `tacit.join` returns."""

    name: str

    def average(self, model: Any, weight: float = 1.0) -> Outcome:
        """Averages a model with those of the other parties."""

    def restore(self, model: Any) -> Any:
        """Puts the last adopted average into a model, if there is one."""


@dataclass(frozen=True)
class AveragingPlan:
    """Settings that the callbacks of all training loops share.

    Args:
        peer: The peer that `tacit.join` returned.
        weight: Weight of this party in each average, such as its number of samples.
        every_epochs: Epochs between two averages.
        every_steps: Optimizer steps between two averages, in place of epochs.
        only_trainable: Average only the parameters that are trained, such as those of LoRA adapters. All others must be
            equal at all parties, and neither they nor any buffer leaves the machine.

    Every party must average equally often: the others wait for a party that stops earlier, up to their deadline.
    """

    peer: AveragingPeer
    weight: float = 1.0
    every_epochs: int = 1
    every_steps: int | None = None
    only_trainable: bool = False

    def __post_init__(self) -> None:
        wrong = [
            f"{name} must be a whole number of at least 1, not {value!r}"
            for name, value in (("every_epochs", self.every_epochs), ("every_steps", self.every_steps))
            if value is not None and (not isinstance(value, int) or value < 1)
        ]
        if wrong:
            raise ConfigError(wrong)

    def is_due(self, *, epochs: int = 0, steps: int = 0) -> bool:
        """Returns whether an average is due after these numbers of finished epochs and steps."""
        done, every = (epochs, self.every_epochs) if self.every_steps is None else (steps, self.every_steps)
        return bool(done) and done % every == 0

    def restore(self, module: Any) -> None:
        """Puts the last adopted average into the module, so that a restarted program continues from it."""
        self.peer.restore(select_tensors(module, only_trainable=self.only_trainable))

    def average(self, module: Any, optimizers: Iterable[Any] = ()) -> Outcome:
        """Averages the module with those of the other parties, in place.

        If this party was behind and its model was replaced, the optimizers forget their momentum: it belongs to the
        model before.
        """
        tensors = select_tensors(module, only_trainable=self.only_trainable)
        outcome = self.peer.average(tensors, self.weight)
        for name, average in outcome.average[self.peer.name].items():
            tensors[name].copy_(average)
        if outcome.replaced:
            for optimizer in optimizers:
                optimizer.state.clear()
        return outcome


def select_tensors(module: Any, *, only_trainable: bool = False) -> dict[str, Any]:
    """Returns the tensors of a PyTorch module that are averaged, by name. They share memory with the module.

    Counters, such as the number of batches that a batch norm has seen, are left out.
    """
    if only_trainable:
        found = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
        if not found:
            raise ConfigError("no parameter is trained, so there is nothing to average; try: only_trainable=False")
        return found
    return {name: value.detach() for name, value in module.state_dict().items() if value.is_floating_point()}
