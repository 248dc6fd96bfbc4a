"""Worker processes of a training: they run one task repeatedly, and end with their owner.

A task may write into shared memory, which all processes see. Its results are sent back.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

from tacit.learn.training.threads import one_thread
from tacit.runtime.forked_workers import PATIENCE, ForkedPool

__all__ = ["PATIENCE", "TrainingWorkers"]


class TrainingWorkers:
    """Forked processes that run one task repeatedly. One job is one party's round."""

    def __init__(self, task: Callable[[Any], Any], count: int, patience: float = PATIENCE) -> None:
        self._pool = ForkedPool(
            lambda: task,
            count,
            alternative="use workers=1",
            remedy="begin the round again, or use workers=1",
            patience=patience,
            around=one_thread,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that have not ended."""
        return self._pool.pids

    def run(self, jobs: Sequence[Any]) -> list[Any]:
        """Returns the result of the task for each job, in order.

        Raises the task's error, and WorkerLost if a process ends or does not answer in time. All processes are then
        ended.
        """
        return self._pool.run(jobs)

    def close(self) -> None:
        """Ends the processes. Does nothing if called again, or in a forked copy of the owner."""
        self._pool.close()
