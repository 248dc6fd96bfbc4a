"""Callback of PyTorch Lightning that averages the model with those of other parties."""

from typing import Any

from tacit.integrations.training_loops import AveragingPeer, AveragingPlan

try:
    from lightning.pytorch import Callback
except ImportError:  # the same library by its older name
    from pytorch_lightning import Callback


class AverageCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Averages the model of a Lightning trainer with those of the other parties.

    Pass it to the trainer: `Trainer(callbacks=[AverageCallback(peer, weight=len(samples))])`. When training starts, the
    last average that this party adopted is put into the model.
    """

    def __init__(self, peer: AveragingPeer, weight: float = 1.0, **options: Any) -> None:
        """Takes the options of `AveragingPlan`."""
        self.plan = AveragingPlan(peer, weight, **options)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores the last adopted average."""
        del trainer
        self.plan.restore(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Averages when the plan says so after an optimizer step. Accumulated batches are one step."""
        del outputs, batch
        new_step = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if new_step and self.plan.is_due(steps=trainer.global_step):
            self.plan.average(pl_module, trainer.optimizers)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Averages when the plan says so after an epoch."""
        if self.plan.is_due(epochs=trainer.current_epoch + 1):
            self.plan.average(pl_module, trainer.optimizers)
