"""Paper 002, accuracy on CIFAR-10, i.i.d. and not, under Random, Partition and Batches, and what the server learns.

The paper trains a LeNet among N = 120 users, of whom K = 12 take part in a round. Each is absent from a round with a
probability of 0.1 to 0.5. In its figures (a) and (b), by rounds, Batches is about as good as Random, and Partition far
behind, because in most of its rounds no group is complete. Under Random the server learns every user's model.

We train by `secagg` itself with each policy, for N = 40 and K = 8 too. With fixed batches some rounds have no sum,
which is the main difference between policies. So accuracy is compared after equally many rounds, and after equally many
*summed* rounds, where only the composition of the sums matters. T is the audit's result for the server, over the rounds
of the training with the same dropouts, and the result of the paper's measure for the sums of the training itself,
whichever is smaller. Accuracy varies by a point or two between seeds, so policies are compared seed by seed, and the
mean over seeds counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit import Fault, audit
from tacit.core.progress import Progress, part_of_progress
from tacit.core.suite import SERVER
from tacit.designs.history import cardinality, multi_round_privacy
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber, SameSign
from tacit.learn.data import datasets
from tacit.learn.data.samples import Dataset
from tacit.learn.random_streams import generator
from tacit.learn.scenario import Data, Scenario, Split
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.local_training import LocalTraining

CHANCES = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Values of p_i, each for the same number of users."""
CLOSE = 1.0
"""The largest difference in points at which Batches counts as equal to Random."""
TAIL = 10
"""Number of rounds at the end of which every second is tested, because accuracy varies by a point from round to
round."""
SPLITS = {"i.i.d.": Split(kind="iid"), "not i.i.d.": Split(kind="dirichlet", alpha=0.5)}
LOCAL = LocalTraining(rate=0.05, batch=32, steps=5)


@dataclass(frozen=True)
class AccuracySize:
    """Users, and the length of the training."""

    users: int
    asked: int
    batches: tuple[int, ...]
    """T of Batches."""
    summed: int
    """Number of rounds with a sum after which training ends; under Partition, number of rounds."""
    samples: int | None = None
    tested: int = 5000
    data: str = "cifar10"
    model: str = "lenet"
    local: LocalTraining = LOCAL
    seeds: int = 3

    @property
    def policies(self) -> dict[str, dict[str, Any]]:
        """All compared policies, Random first."""
        batches = {
            f"Batches, T = {privacy}": {"kind": "batches", "per_round": self.asked, "privacy": privacy}
            for privacy in self.batches
        }
        random = {"Random": {"kind": "random", "per_round": self.asked}}
        return {**random, **batches, "Partition": {"kind": "partition", "per_round": self.asked}}

    @property
    def where(self) -> str:
        """N and K."""
        return f"N = {self.users}, K = {self.asked}"

    def promise(self, name: str) -> int:
        """Returns the T that the paper gives for a policy."""
        policy = self.policies[name]
        return int({"random": 1, "partition": self.asked}.get(policy["kind"], policy.get("privacy", 0)))


SIZES: dict[Scale, tuple[AccuracySize, ...]] = {
    "small": (AccuracySize(120, 12, (6,), summed=20),),
    "paper": (
        AccuracySize(40, 8, (2, 4), summed=300, tested=10_000),
        AccuracySize(120, 12, (2, 3, 4, 6), summed=300, tested=10_000),
    ),
}


def absences(users: int, seed: int = 0) -> tuple[Fault, ...]:
    """Returns each user's probability of absence from a round: every value for the same number of users, in random
    order."""
    order = generator(seed, "dropouts").permutation(users)
    return tuple(
        Fault(action="silence", party=f"p{user}", chance=CHANCES[place % len(CHANCES)], seed=seed)
        for user, place in enumerate(order)
    )


@dataclass
class TrainingCourse:
    """A training: the summed users of each round, and the accuracy of the model after some rounds."""

    policy: str
    sums: list[NDArray[np.bool_]] = field(default_factory=list)
    """The users in the sum of each round."""
    tests: dict[int, float] = field(default_factory=dict)
    """Accuracy in per cent, by rounds."""

    @property
    def summed(self) -> NDArray[np.int64]:
        """Number of rounds with a sum after each round, from 0 on."""
        return np.concatenate([[0], np.cumsum([each.any() for each in self.sums])])

    @property
    def rounds(self) -> int:
        """Number of rounds of the training."""
        return len(self.sums)

    @property
    def privacy(self) -> int:
        """T of the summed sets."""
        return multi_round_privacy(np.array(self.sums))

    @property
    def end(self) -> float:
        """The accuracy over the last summed rounds."""
        return self._over([self.summed[number] for number in self.tests], int(self.summed[-1]))

    def after(self, rounds: int) -> float:
        """Returns the mean accuracy over the last rounds up to a given one, with or without a sum."""
        return self._over(list(self.tests), rounds)

    def _over(self, places: Sequence[int], last: int) -> float:
        return fmean(
            score for place, score in zip(places, self.tests.values(), strict=True) if last - TAIL < place <= last
        )


def train_policy(
    size: AccuracySize, name: str, split: Split, data: Dataset, progress: Progress, seed: int = 0
) -> TrainingCourse:
    """Trains with one policy until there are enough summed rounds; with Partition, for that many rounds."""
    policy, enough = size.policies[name], size.summed
    scenario = Scenario(
        seed=seed,
        rounds=enough if name == "Partition" else 100 * enough,
        data=Data(name=size.data, parties=size.users, split=split, train=size.samples, test=size.tested),
        model={"name": size.model},
        local=size.local,
        protocol={"name": "secagg", "participation": policy},
        faults=absences(size.users, seed),
    )
    training, course = assemble_run(scenario, data=data).training, TrainingCourse(name)
    x, y = data.inputs(data.x_test), data.y_test
    done = 0
    for step in training.steps(scenario.rounds):
        members = () if step.outcome is None else step.outcome.contributors
        course.sums.append(np.isin(training.parties, members))
        done += bool(members)
        if step.number == enough or (members and (_due(done, enough) or _due(step.number, enough))):
            course.tests[step.number] = 100 * float(training.scores(x, y)[0].accuracy or 0.0)
        progress(f"round {step.number}", max(done, step.number if name == "Partition" else 0), enough)
        if done == enough:
            break
    return course


def _due(number: int, enough: int) -> bool:
    """Says whether a model is tested after a round: after every tenth, and at the end after every second."""
    return number <= enough and (number % TAIL == 0 or (number > enough - TAIL and (enough - number) % 2 == 0))


# --- rows ----------------------------------------------------------------------------------------------------------

PolicyRuns = Sequence[Mapping[str, TrainingCourse]]
"""A training with each policy, for every seed."""


def declare_random(size: AccuracySize, split: str) -> DeclaredRow:
    """Returns the row of the baseline."""
    what = f"Random after {size.summed} summed rounds, {size.where}, {split}"
    return DeclaredRow(what, None, NotCompared("the figures have no numbers"), "%")


def declare_close(size: AccuracySize, split: str, name: str, counted: str) -> DeclaredRow:
    """Returns the row of Batches less Random after so many rounds, or rounds with a sum."""
    return DeclaredRow(
        f"{name}, minus Random, after {size.summed} {counted}, {size.where}, {split}",
        "about as good",
        Between("what cannot be told in a picture whose axis has tens of points", -CLOSE, CLOSE),
        "points",
        "+.2f",
    )


def declare_behind(size: AccuracySize, split: str) -> DeclaredRow:
    """Returns the row of Partition less Random."""
    return DeclaredRow(
        f"Partition, minus Random, after {size.summed} rounds, {size.where}, {split}",
        "far behind",
        SameSign("how far depends on how long is trained; the sign does not", sign=-1),
        "points",
        "+.2f",
    )


def declare_privacy(size: AccuracySize, name: str) -> DeclaredRow:
    """Returns the row of T of a policy."""
    return DeclaredRow(
        f"T of {name} against the server, {size.where}, {size.summed} summed rounds",
        PaperNumber(size.promise(name)),
        Near(0.5, "T is a whole number, and computed"),
        form=".0f",
    )


COUNTED = ("summed rounds", "rounds")


def declare_size(size: AccuracySize) -> list[DeclaredRow]:
    """Returns all rows of a size."""
    rows = [declare_privacy(size, name) for name in size.policies]
    for split in SPLITS:
        rows += [declare_random(size, split), declare_behind(size, split)]
        rows += [
            declare_close(size, split, name, counted)
            for name in size.policies
            if name.startswith("Batches")
            for counted in COUNTED
        ]
    return rows


def rows_of(size: AccuracySize, split: str, runs: PolicyRuns) -> list[Row]:
    """Returns the accuracy of policies, compared with Random seed by seed."""
    cut = f"mean over the last {TAIL} rounds; {size.local.steps} steps of {size.local.batch} samples a round"
    rows = [declare_random(size, split).measure(Estimate.over([each["Random"].end for each in runs]), cut)]
    for name in size.policies:
        if name.startswith("Batches"):
            sums = f"{_count_sums(name, runs)} rounds had a sum, and of Random's {_count_sums('Random', runs)}"
            for counted in COUNTED:
                ends = [each[name].end if counted == COUNTED[0] else each[name].after(size.summed) for each in runs]
                rows.append(declare_close(size, split, name, counted).measure(_less_random(ends, runs), sums))
    ends = [courses["Partition"].after(size.summed) for courses in runs]
    sums = f"{fmean(ends):.2f} %; {_count_sums('Partition', runs)} rounds had a sum"
    return [*rows, declare_behind(size, split).measure(_less_random(ends, runs), sums)]


def _count_sums(name: str, runs: PolicyRuns) -> str:
    """Returns how many of all rounds had a sum."""
    return f"{sum(int(each[name].summed[-1]) for each in runs)} of {sum(each[name].rounds for each in runs)}"


def _less_random(ends: Sequence[float], runs: PolicyRuns) -> Estimate:
    """Returns the accuracy of a policy minus that of Random, seed by seed."""
    return Estimate.over([end - courses["Random"].end for end, courses in zip(ends, runs, strict=True)])


def privacy_rows(size: AccuracySize, courses: Mapping[str, TrainingCourse]) -> list[Row]:
    """Returns T of each policy: the smaller of the audit's and that of the summed sets."""
    rows = []
    for name, course in courses.items():
        report = audit(
            "secagg",
            parties=size.users,
            coalition=[SERVER],
            rounds=course.rounds,
            faults=absences(size.users),
            participation=size.policies[name],
        )
        found = min(report.smallest_group or 0, course.privacy)
        why = (
            f"{report.smallest_group} by the audit, {course.privacy} in the training of {course.rounds} rounds; "
            f"{len(report.exposed)} of {size.users} models exposed if they stood still; "
            f"{cardinality(np.array(course.sums)):.1f} users a round"
        )
        rows.append(declare_privacy(size, name).measure(Estimate.certain(found), why))
    return rows


def chart_of(size: AccuracySize, split: str, courses: Sequence[TrainingCourse]) -> Chart:
    """Returns one picture of the paper's figure, by summed rounds, of one seed."""
    lines = {
        course.policy: ([int(course.summed[number]) for number in course.tests], list(course.tests.values()))
        for course in courses
    }
    title = f"Test accuracy, N = {size.users}, K = {size.asked}, {split}"
    return Chart(title, "summed rounds", "accuracy in %", lines)


def compare_policies(
    size: AccuracySize, split: Split, data: Dataset, progress: Progress, seed: int = 0
) -> dict[str, TrainingCourse]:
    """Trains with one policy after the other."""

    def part(name: str, done: int) -> Progress:
        return part_of_progress(progress, done / len(size.policies), (done + 1) / len(size.policies), f"{name}, ")

    return {
        name: train_policy(size, name, split, data, part(name, done), seed) for done, name in enumerate(size.policies)
    }


def run(scale: Scale, progress: Progress) -> Result:
    """Trains network by network."""
    todo = [(size, split) for size in SIZES[scale] for split in SPLITS]
    rows, more, charts = [], [], []
    for done, (size, split) in enumerate(todo):
        whole = part_of_progress(progress, done / len(todo), (done + 1) / len(todo), f"N = {size.users}, {split}, ")
        data = datasets.load(size.data).subsample(size.samples, size.tested, generator(0, "samples"))
        runs = []
        for seed in range(size.seeds):
            part = part_of_progress(whole, seed / size.seeds, (seed + 1) / size.seeds, f"seed {seed}, ")
            runs.append(compare_policies(size, SPLITS[split], data, part, seed))
        rows += rows_of(size, split, runs)
        more += privacy_rows(size, runs[0]) if split == "i.i.d." else []
        charts.append(chart_of(size, split, list(runs[0].values())))
    progress("accuracy", 1.0)
    return Result((*rows, *more), tuple(charts))


_SMALL, _PAPER = SIZES["small"][-1], SIZES["paper"][-1]
REPRODUCTION = Reproduction(
    name="002-accuracy",
    title="Accuracy of Random, Partition and Batches, i.i.d. and not, and what the server learns",
    run=run,
    declared=tuple(row for sizes in SIZES.values() for size in sizes for row in declare_size(size)),
    unstated=(
        "Figures are pictures without numbers. We compare what they show.",
        f"Local work: {LOCAL.steps} steps of {LOCAL.batch} samples at a rate of {LOCAL.rate:g}. The paper states "
        "nothing.",
        "Split of data that are not i.i.d.: Dirichlet, α = 0.5.",
        f"Rounds with a sum: {_SMALL.summed}, and {_PAPER.summed} at paper scale, with {_SMALL.seeds} seeds. T and the "
        "pictures are those of the first seed.",
        "Which user has which p_i: equally many users have each, in random order, so batches are mixed.",
        "LeNet: LeNet-5 with 62,006 parameters.",
        "N = 40 and K = 8 are run too at paper scale. They are those of its experiment on reconstruction.",
    ),
    changed=(
        f"Small scale: training for {_SMALL.summed} rounds with a sum, tested on {_SMALL.tested:,} samples. Paper "
        "scale has "
        f"{_PAPER.summed} and {_PAPER.tested:,}.",
        f"Batches at small scale: only T = {', '.join(map(str, _SMALL.batches))}.",
    ),
    extras=("torch",),
    data=("cifar10",),
)
