"""Callback of Hugging Face's `Trainer` that averages the model with those of other parties."""

from typing import Any

from transformers import TrainerCallback

from tacit.integrations.training_loops import AveragingPeer, AveragingPlan


class AverageCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Averages the model of a Hugging Face trainer with those of the other parties.

    Pass it to the trainer: `Trainer(..., callbacks=[AverageCallback(peer, weight=len(samples))])`. For a model with
    LoRA adapters add `only_trainable=True`. When training starts, the last average that this party adopted is put into
    the model.
    """

    def __init__(self, peer: AveragingPeer, weight: float = 1.0, **options: Any) -> None:
        """Takes the options of `AveragingPlan`."""
        self.plan = AveragingPlan(peer, weight, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **others: Any) -> None:
        """Restores the last adopted average."""
        del args, state, control, others
        self.plan.restore(model)

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any, **others: Any) -> None:
        """Averages when the plan says so after an optimizer step."""
        del args, control, others
        if self.plan.is_due(steps=state.global_step):
            self.plan.average(model, [optimizer])

    def on_epoch_end(self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any, **others: Any) -> None:
        """Averages when the plan says so after an epoch."""
        del args, control, others
        if self.plan.is_due(epochs=round(state.epoch or 0)):
            self.plan.average(model, [optimizer])
