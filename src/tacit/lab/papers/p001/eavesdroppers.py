"""Eavesdroppers of paper 001, Section 4, several of each kind, and one that needs no training.

The paper trains each of its eavesdroppers once, as far as it says. The accuracy of one depends on the runs it heard
and on the initial state of its network, so we train several, each with runs of its own, and give their mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.core.progress import Progress
from tacit.lab.attacks import eavesdropper_decoders, eavesdropper_learning
from tacit.lab.attacks.attack_result import proportion_finding
from tacit.lab.attacks.eavesdropper_learning import Trial
from tacit.learn.random_streams import generator

AS_WELL = 0.02
"""Largest loss of accuracy under PPSGD with which it still counts as no harder to distinguish than PSGD."""
DECODED = 0.01
"""Distance up to which a decoded local optimum counts as that of the baseline."""
HEARD = 5
"""Rounds after which a decoder also has y_i(0)."""


@dataclass(frozen=True)
class EavesdropperScores:
    """Scores of several eavesdroppers of one kind."""

    trial: Trial
    rows: tuple[eavesdropper_learning.TrialResult, ...]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Share of test runs that each of them classified correctly."""
        return tuple(row.accuracy for row in self.rows)

    @property
    def accuracy(self) -> float:
        """Mean of the accuracies."""
        return float(np.mean(self.accuracies))

    @property
    def coverage(self) -> str:
        """Coverage of the measurement: test runs, or eavesdroppers with their range."""
        if len(self.rows) == 1:
            return f"{len(self.rows[0].labels):,} test runs"
        low, high = min(self.accuracies), max(self.accuracies)
        return f"{len(self.rows)} eavesdroppers, {format_percent(low)} to {format_percent(high)}"

    def as_well_as(self, other: "EavesdropperScores") -> bool:
        """Says whether these are as accurate as others, or more."""
        return self.accuracy >= other.accuracy - AS_WELL


def format_percent(share: float) -> str:
    """Formats a share in per cent."""
    return f"{100 * share:.1f} %"


def train_eavesdroppers(trials: Sequence[Trial], repetitions: int, progress: Progress) -> list[EavesdropperScores]:
    """Trains and tests several eavesdroppers for each trial."""
    found = []
    for done, trial in enumerate(trials):
        progress(f"{trial.target}, {trial.eavesdropper} eavesdropper ({trial.where})", done, len(trials))
        rows = tuple(eavesdropper_learning.run_trial(trial, seed) for seed in range(repetitions))
        found.append(EavesdropperScores(trial, rows))
    return found


def decode_classes(trial: Trial, client: int) -> float:
    """Returns in which share of test runs the class follows from what Section 3 decodes of the client that changes.

    Of PSGD that takes three rounds, and of PPSGD five, in which y_i(0) is found, too. Nothing is learnt: all that this
    eavesdropper knows beforehand is what the client's local optimum is in the baseline.
    """
    rng = generator(0, "decoded", trial.target)
    links = trial.links if trial.channels is None else [trial.links[place] for place in trial.channels]
    right = tries = 0
    for losses, label, count in trial.test_runs:
        usual = np.linalg.solve(trial.test_runs[0][0].a[client], -trial.test_runs[0][0].b[client])
        heard = trial.setting.sample_traffic(losses, trial.links, count, HEARD, rng)
        heard = heard if trial.channels is None else heard[:, trial.channels]
        eta = losses.step / np.arange(1, HEARD + 1)
        for each in heard:
            masses = np.zeros((HEARD, len(losses.b), len(losses.b), each.shape[1]))
            for place, link in enumerate(links):
                masses[:, *link] = each[place].T
            with np.errstate(all="ignore"):  # clients whose links are not heard, and noise, divide by anything
                if trial.setting.algorithm == "PSGD":
                    found = eavesdropper_decoders.decode_psgd(masses, eta)[client]
                else:
                    found = eavesdropper_decoders.decode_private(
                        eavesdropper_decoders.ClientMasses.of(masses, client), eta
                    )
            right += int(not np.all(np.abs(found - usual) < DECODED)) == label
            tries += 1
    return right / tries


def accuracy_interval(accuracy: float, runs: int) -> tuple[float, float]:
    """Returns the 95 % interval of an accuracy that was measured with that many test runs."""
    found = proportion_finding("eavesdropper", "", "", wins=round(accuracy * runs), tries=runs)
    return found.low, found.high
