"""Averaging of linear estimators of scikit-learn."""

from typing import Any

import numpy as np

from tacit.core.errors import ConfigError
from tacit.integrations.training_loops import AveragingPeer
from tacit.runtime.outcome import Outcome

COEFFICIENTS = ("coef_", "intercept_")


def average_estimator(peer: AveragingPeer, estimator: Any, weight: float = 1.0) -> Outcome:
    """Averages the coefficients of a fitted linear estimator with those of the other parties, in place.

    It works for estimators with `coef_`: linear and logistic regression, `SGDClassifier`, linear support vector
    machines. Train on from the average with `partial_fit`, or with `warm_start=True`.

    Args:
        peer: The peer that `tacit.join` returned.
        estimator: A fitted estimator. All parties must have fitted it to the same classes, in the same order.
        weight: Weight of this party, such as its number of samples.

    Raises:
        ConfigError: If the estimator has no coefficients.
    """
    outcome = peer.average(_read_coefficients(estimator), weight)
    for name, average in outcome.average[peer.name].items():
        setattr(estimator, name, average)
    return outcome


def restore_estimator(peer: AveragingPeer, estimator: Any) -> None:
    """Puts the last average that this party adopted into a fitted estimator, if there is one."""
    for name, average in peer.restore(_read_coefficients(estimator)).items():
        setattr(estimator, name, average)


def _read_coefficients(estimator: Any) -> dict[str, Any]:
    if not hasattr(estimator, "coef_"):
        raise ConfigError(f"{type(estimator).__name__} has no coef_ to average; try: fit a linear estimator first")
    if getattr(estimator, "average", False):
        raise ConfigError(
            f"{type(estimator).__name__}(average={estimator.average!r}) keeps a second copy of its coefficients; "
            "try: average=False"
        )
    # An intercept that is not fitted is the number 0, which has nothing to average.
    names = [name for name in COEFFICIENTS if np.ndim(getattr(estimator, name, 0.0))]
    names += ["intercept_"] * (isinstance(getattr(estimator, "intercept_", None), np.floating))
    return {name: np.array(getattr(estimator, name)) for name in names}
