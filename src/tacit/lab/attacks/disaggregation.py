"""Disaggregation: a curious server separates sums over many rounds by least squares (paper 002, "An Illustrative
Experiment").

N = 40 users train one model, K = 8 of them per round. Secure aggregation shows the server whose gradients were summed,
which is a row p^(t) of the participation matrix P, and the sum. The server assumes that the gradients x_i hardly change
from round to round, and solves P X ≈ (sums) for X. The paper's measure is the reconstruction error of user i at time t,

    ‖x_i^(t) − x̂_i^(t)‖² / ‖x_i^(t)‖².

Its two figures are: below 0.005 for many users if participants are drawn at random, and above 0.25 for all users under
Multi-RoundSecAgg with T = 2, where the server learns no more than the sum of a batch of two.

The paper (slides) does not state the following, which are our choices:

- **Data.** Images of digits, two digits per user, assigned in turn, so that neighbours on the roster, who form a batch,
  have different digits. This matters: the best estimate for a member of a batch is the batch's mean, and its error is
  ‖x_i − x_j‖² / 4‖x_i‖². That is above 0.25 if the angle between the two gradients is at least 90° (x_i·x_j ≤ 0).
  Members with the same digits are measured too, and their error is below 0.25: T = 2 hides which member of a batch has
  which data, not the data of the batch.
- **Drift.** All users first train the model until gradients change slowly. During the attack training continues with
  the sums: model −= rate · mean. x_i^(t) is the gradient over all of a user's images at the model of the last of J =
  200 rounds, 5 N. The faster the model changes, the less old sums reveal; ten times the rate is measured too. (A server
  that models the drift could do better; the paper's does not.)
- **Dropouts.** p_i ~ {0.1, …, 0.5} as in the paper, or the same p for all. Absent users are not asked. Beyond the
  paper, some users drop out after they were asked: if the rest of their batch is summed without them, that exposes
  them.

Participation is decided by the policies' own code. Sums of 40 users are computed in plain, which gives the same result
as `secagg`. A federation of 8 runs the deployed protocol, and the attack uses what the server received.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, NotEnough
from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Party, Update
from tacit.designs import Batches, Participation, Partition, Random
from tacit.lab.attacks.attack_result import Attack, Finding, mean_finding, proportion_finding
from tacit.learn.data.datasets import Samples, load
from tacit.learn.data.splits import Indices
from tacit.learn.models.softmax import ModelArrays, Softmax
from tacit.learn.training.loop import Averaging, TrainingStep, run_rounds
from tacit.runtime.outcome import Outcome, Traffic
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.layout import Layout

NAME = "disaggregate"

USERS, PER_ROUND, ROUNDS = 40, 8, 200
"""N, K and J."""
DROPOUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
CLOSE = 0.005
"""The paper's reconstruction error below which a user's gradient counts as known."""

IMAGES = 6000
STEPS, STEP = 200, 0.5
"""Number and size of the steps in which all users train before the attack."""
RATE = 0.01
"""Learning rate during the attack."""

Vector: TypeAlias = NDArray[np.float64]
Gone: TypeAlias = tuple[Collection[int], Collection[int]]
"""The users that are absent in a round, and those that would drop out in the middle of it."""


@dataclass(frozen=True)
class DisaggregationSetting:
    """Participation, dropouts and learning rate of one experiment."""

    name: str
    policy: Participation
    dropout: float | None = None
    """Probability p that a user is absent; None for the paper's mixture, one of `DROPOUTS` for each user."""
    leaving: float = 0.0
    """Probability that an asked user does not deliver."""
    rate: float = RATE
    alike: bool = False
    """Whether members of a batch of two have the same digits."""
    deployed: bool = False
    """Whether the sums come from the deployed protocol."""
    users: int = USERS
    rounds: int = ROUNDS

    @property
    def target(self) -> str:
        """Description of the target."""
        absent = f"{self.dropout:.0%} absent" if self.dropout is not None else "10 to 50% absent"
        leaving = f", {self.leaving:.0%} lost in mid-round" if self.leaving else ""
        drift = f", model moves {self.rate / RATE:g} times as fast" if self.rate != RATE else ""
        rest = ", batchmates with the same digits" * self.alike + ", run by the deployed code" * self.deployed
        return f"secagg, {self.name}, {absent}{leaving}{drift}{rest}"


# --- the users -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageUsers:
    """Users with their own images, and the model that they have trained so far."""

    images: Samples
    parts: Sequence[Indices]
    model: ModelArrays

    def gradient(self, model: ModelArrays, user: int) -> Vector:
        """Returns x_i: the gradient of a user's loss at a model, as a vector."""
        _, gradient = _softmax(self.images).loss_and_gradient(model, *_some(self.images, self.parts[user]))
        return Layout.of(gradient).flatten(gradient)


def train_by_all(images: Samples) -> ModelArrays:
    """Returns a model that all users have trained, so that gradients change slowly from then on."""
    softmax = _softmax(images)
    model = softmax.initial()
    for _ in range(STEPS):
        _, gradient = softmax.loss_and_gradient(model, *images)
        model = _take_step(model, gradient, STEP)
    return model


def deal_images(y: NDArray[np.int64], users: int, alike: bool, rng: np.random.Generator) -> list[Indices]:
    """Returns the images of each user: digits 0 and 1 for the first user or pair of users, 2 and 3 for the next, …."""
    holds = [(user // 2 if alike else user) % 5 for user in range(users)]
    parts: list[list[Indices]] = [[] for _ in range(users)]
    for digit in range(10):
        owners = [user for user in range(users) if holds[user] == digit // 2]
        shares = np.array_split(rng.permutation(np.flatnonzero(y == digit)), len(owners))
        for user, share in zip(owners, shares, strict=True):
            parts[user].append(share)
    return [np.concatenate(part) for part in parts]


def _softmax(images: Samples) -> Softmax:
    return Softmax(classes=10, features=images.x.shape[1])


def _some(images: Samples, places: Indices) -> Samples:
    return Samples(images.x[places], images.y[places])


def _take_step(model: ModelArrays, gradient: ModelArrays, rate: float) -> ModelArrays:
    return {name: values - rate * gradient[name] for name, values in model.items()}


# --- the rounds ----------------------------------------------------------------------------------------------------


def sample_dropouts(setting: DisaggregationSetting, rng: np.random.Generator) -> list[Gone]:
    """Returns the absent users and those that would drop out, for each round."""
    n = setting.users
    p = rng.choice(DROPOUTS, n) if setting.dropout is None else np.full(n, setting.dropout)
    absent, leaving = rng.random((setting.rounds, n)) < p, rng.random((setting.rounds, n)) < setting.leaving
    return [
        (np.flatnonzero(away).tolist(), np.flatnonzero(left).tolist())
        for away, left in zip(absent, leaving, strict=True)
    ]


def exact_rounds(setting: DisaggregationSetting, gone: Sequence[Gone], seed: int) -> Averaging:
    """Returns rounds with the policy's choices and plain sums: everything that the server sees of `secagg`."""
    policy, parties = setting.policy.bind(setting.users), user_names(setting.users)
    counts, entropy, left = np.zeros(setting.users, dtype=np.int64), SeededEntropy(seed, NAME), iter(gone)

    def average(updates: Mapping[Party, Update]) -> Outcome:
        absent, leaving = next(left)
        asked = policy.ask([user for user in range(setting.users) if user not in absent], counts, entropy)
        counts[asked] += 1
        chosen = policy.choose([user for user in asked if user not in leaving], entropy)
        if not chosen:
            raise NotEnough("users to sum", 0, 2)
        contributors = tuple(parties[user] for user in chosen)
        mean = np.mean([updates[party].vector for party in contributors], axis=0)
        return Outcome(dict.fromkeys(parties, mean), contributors, Traffic(), {}, {})

    return average


def deployed_rounds(setting: DisaggregationSetting, gone: Sequence[Gone], seed: int, entries: int) -> Averaging:
    """Returns rounds of the deployed protocol, with the sum and the contributors that the server received."""
    parties, faults = user_names(setting.users), []
    for number, (absent, leaving) in enumerate(gone, 1):
        faults += [Fault(action="silence", party=parties[user], round=number) for user in absent]
        faults += [Fault(action="crash", party=parties[user], message="MaskedInput", round=number) for user in leaving]
    return Simulation.of(
        "secagg", parties, entries, seed=seed, faults=faults, participation=setting.policy, bits=64
    ).average


def user_names(users: int) -> list[Party]:
    """Returns the names of the users."""
    return [f"p{user}" for user in range(users)]


@dataclass(frozen=True)
class Gradients(Mapping[Party, Update]):
    """Gradients of the users in a round. Each is computed on demand, because most are not used."""

    users: Sequence[Party]
    of: Callable[[int], Vector]

    def __getitem__(self, party: Party) -> Update:
        if party not in self.users:
            raise KeyError(party)
        return Update(self.of(self.users.index(party)))

    def __iter__(self) -> Iterator[Party]:
        return iter(self.users)

    def __len__(self) -> int:
        return len(self.users)


# --- the attack ----------------------------------------------------------------------------------------------------


def estimate_gradients(participation: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns x̂_i, one row per user: the least-squares solution of minimum norm."""
    return np.linalg.lstsq(participation, sums, rcond=None)[0].astype(np.float64)


def reconstruction_errors(truth: NDArray[np.float64], estimate: NDArray[np.float64]) -> Vector:
    """Returns the reconstruction error of each user."""
    relative: Vector = ((truth - estimate) ** 2).sum(axis=1) / (truth**2).sum(axis=1)
    return relative


def measure_errors(cohort: ImageUsers, setting: DisaggregationSetting, average: Averaging) -> Vector:
    """Returns the reconstruction error of each user after all rounds, at the model of the last one."""
    layout, users = Layout.of(cohort.model), user_names(setting.users)
    # A round without a sum is a row of zeros in both, which has no effect.
    participation, sums = np.zeros((setting.rounds, setting.users)), np.zeros((setting.rounds, layout.size))
    models = [cohort.model]

    def bring(number: int, before: TrainingStep | None) -> Gradients:
        del number
        if before is not None:
            outcome, model = before.outcome, models[-1]
            mean = next(iter(outcome.average.values())) if outcome is not None else np.zeros(layout.size)
            models.append(_take_step(model, layout.restore(mean), setting.rate))
        return Gradients(users, lambda user, model=models[-1]: cohort.gradient(model, user))  # type: ignore[misc]

    for step in run_rounds(average, bring, setting.rounds):
        if step.outcome is not None:
            chosen = [users.index(party) for party in step.outcome.contributors]
            participation[step.number - 1, chosen] = 1
            sums[step.number - 1] = next(iter(step.outcome.average.values())) * len(chosen)
    truth = np.array([cohort.gradient(models[-1], user) for user in range(setting.users)])
    return reconstruction_errors(truth, estimate_gradients(participation, sums))


# --- the experiment ------------------------------------------------------------------------------------------------


def list_settings(full: bool) -> list[DisaggregationSetting]:
    """Returns the settings: first those that the attack should break, then those that it should not."""
    mixtures = (None, *DROPOUTS) if full else (None,)
    return [
        *(DisaggregationSetting("8 of 40 asked at random", Random(PER_ROUND), p) for p in mixtures),
        DisaggregationSetting(
            "8 of 40 asked in batches of 2, summed in part", Batches(PER_ROUND, 2, partial=True), leaving=0.1
        ),
        DisaggregationSetting("4 of 8 asked at random", Random(4), deployed=True, users=8, rounds=40),
        DisaggregationSetting("8 of 40 asked at random", Random(PER_ROUND), rate=10 * RATE),
        *(DisaggregationSetting("8 of 40 asked in whole batches of 2", Batches(PER_ROUND, 2), p) for p in mixtures),
        DisaggregationSetting("8 of 40 asked in whole batches of 2", Batches(PER_ROUND, 2), leaving=0.1),
        *(DisaggregationSetting("fixed groups of 8 of 40", Partition(PER_ROUND), p) for p in mixtures),
        DisaggregationSetting("4 of 8 asked in whole batches of 2", Batches(4, 2), deployed=True, users=8, rounds=40),
        DisaggregationSetting("8 of 40 asked in whole batches of 2", Batches(PER_ROUND, 2), alike=True),
    ]


def run_once(images: Samples, model: ModelArrays, setting: DisaggregationSetting, *seeds: int) -> Vector:
    """Returns the reconstruction error of each user in one run of a setting."""
    rng = np.random.default_rng(seeds)
    cohort = ImageUsers(images, deal_images(images.y, setting.users, setting.alike, rng), model)
    gone, seed = sample_dropouts(setting, rng), int(rng.integers(2**32))
    entries = Layout.of(model).size
    average = deployed_rounds(setting, gone, seed, entries) if setting.deployed else exact_rounds(setting, gone, seed)
    return measure_errors(cohort, setting, average)


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns, for each setting, the share of users whose gradient counts as known, and the smallest error."""
    name, images = _images(full)
    progress(f"learning {name}", 0.0)
    model = train_by_all(images)
    todo, found, repeats = list_settings(full), [], 5 if full else 3
    for done, setting in enumerate(todo):
        progress(f"taking sums apart: {setting.target}", done / len(todo))
        each = [run_once(images, model, setting, seed, repeat) for repeat in range(repeats)]
        close, tries = int(np.sum(np.concatenate(each) < CLOSE)), repeats * setting.users
        smallest = [float(error.min()) for error in each]
        target = f"{setting.target}, learning {name}"
        share = f"share of users whose gradient is found (error below {CLOSE:g})"
        found += [
            proportion_finding(NAME, target, share, wins=close, tries=tries),
            mean_finding(NAME, target, "smallest error of a user's gradient", smallest, broken=min(smallest) < CLOSE),
        ]
    progress(NAME, 1.0)
    return found


def _images(full: bool) -> tuple[str, Samples]:
    """Returns MNIST for a full run if it is available, otherwise the bundled digits."""
    if full:
        with contextlib.suppress(ConfigError):
            return "MNIST", _some(load("mnist", download=False).flat(), np.arange(IMAGES))
    return "digits", load("digits", share=1).flat()


ATTACK = Attack(
    name=NAME,
    summary="takes the sums of many rounds apart by least squares, as far as participation allows",
    paper=PAPERS["002"],
    run=run,
)
