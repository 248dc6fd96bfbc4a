"""Metrics of a training round, as stored in a run's folder."""

import msgspec

from tacit.core.suite import Party


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one round. Without a server, scores are means over the parties' models."""

    round: int
    loss: float | None = None
    """Mean training loss over the local steps of the round and over the parties that trained."""
    accuracy: float | None = None
    rmse: float | None = None
    test_loss: float | None = None
    consensus: float | None = None
    """Accuracy, or rmse, of the mean of all models; only without a server."""
    contributors: int = 0
    bytes: int = 0
    """Bytes that all parties sent in this round."""
    classes: dict[str, int] = {}
    """Bytes by class of traffic."""
    averaged: tuple[Party, ...] = ()
    """Contributors to the average."""
    seconds: float = 0.0
    """Seconds since the run began or was resumed."""
    epsilon: float | None = None
    """Largest ε that any party has spent so far."""
    left_out: dict[Party, str] = {}
    notes: tuple[str, ...] = ()
