"""Eavesdroppers of paper 001, Section 4: several of each kind, and one that needs no training.

As far as the paper says, it trains each of its eavesdroppers once. The accuracy of one depends on the recorded runs and
on the initial state of its network. So we train several, each with runs of its own, and report their mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.core.progress import Progress
from tacit.lab.attacks import eavesdropper_decoders, eavesdropper_learning
from tacit.lab.attacks.eavesdropper_learning import Trial
from tacit.lab.papers.reproduction import DeclaredRow
from tacit.lab.papers.rules import Between, Estimate, NotCompared
from tacit.learn.random_streams import generator

HARDER = 0.95
"""The largest share of decoded runs at which PPSGD counts as harder to decode than PSGD, which is always decoded."""
DECODED = 0.01
"""The largest distance at which a decoded local optimum counts as that of the baseline."""
HEARD = 5
"""Number of rounds after which a decoder also knows y_i(0)."""


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
    def estimate(self) -> Estimate:
        """Accuracy over eavesdroppers, each with runs and a network of its own."""
        return Estimate.over(self.accuracies)

    @property
    def coverage(self) -> str:
        """Number of test runs, and number of eavesdroppers with their range."""
        low, high = min(self.accuracies), max(self.accuracies)
        tested = f"{len(self.rows[0].labels):,} test runs"
        return f"{tested}, {format_percent(low)} to {format_percent(high)}" if len(self.rows) > 1 else tested

    def less(self, other: "EavesdropperScores") -> Estimate:
        """Returns the difference in accuracy to other eavesdroppers, pair by pair."""
        return Estimate.over([ours - theirs for ours, theirs in zip(self.accuracies, other.accuracies, strict=True)])


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


def decode_classes(trial: Trial, client: int) -> Estimate:
    """Returns the share of test runs whose class follows from decoding the changing client by the methods of Section 3.

    Decoding takes three rounds for PSGD, and five for PPSGD, where y_i(0) has to be found too. Nothing is trained: this
    eavesdropper knows only the client's local optimum in the baseline.
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
            with np.errstate(
                all="ignore"
            ):  # Noise, and clients whose links are not recorded, may cause divisions by zero.
                if trial.setting.algorithm == "PSGD":
                    found = eavesdropper_decoders.decode_psgd(masses, eta)[client]
                else:
                    found = eavesdropper_decoders.decode_private(
                        eavesdropper_decoders.ClientMasses.of(masses, client), eta
                    )
            right += int(not np.all(np.abs(found - usual) < DECODED)) == label
            tries += 1
    return Estimate.share(right, tries, "test runs")


def declare_decoded(target: str, private: bool) -> DeclaredRow:
    """Declares the row with the share of runs whose class follows from decoding."""
    reason = "PSGD is decoded in every run; harder means at least that one run in twenty is not"
    return DeclaredRow(
        f"decoded from {HEARD} rounds, {target}",
        "less than under PSGD" if private else None,
        Between(reason, high=HARDER) if private else NotCompared("the paper has no number; guessing gives 50 %"),
        form=".1%",
    )
