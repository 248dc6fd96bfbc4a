"""Gradient inversion: the server reconstructs the training image from a client's update.

Each client takes one gradient step on one image of a digit, from a public model, and contributes the result to a round
of a deployed protocol. The server uses what it received, decrypted with its own keys:

| target | inverted message | | --- | --- | | `fedavg` | `Plain`, one client's model | | `secagg` | `MaskedInput`, one
client's masked model, read as if it had no masks | | `secagg`, average | `Sum`, the average that the server is meant to
learn |

The attack first finds the label, from the gradient of the last biases (Zhao et al. 2020, "iDLG"). Then it searches for
the image whose gradient is nearest to the received one (Zhu et al. 2019, "Deep leakage from gradients"). Because the
first layer is dense there is a closed form too: row j of dℓ/dW_1 is the image times dℓ/db_1 of neuron j.

**What an average exposes.** The average over k clients with one image each is the gradient of one batch of k images,
and is inverted as such. An image counts as found if it is among the k results. With few clients and such small images
this works. Secure aggregation hides only the owner of each image. Only large sums, or noise, hide the images.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress, ignore_progress
from tacit.core.suite import SERVER, Update
from tacit.lab.attacks.attack_result import Attack, Finding, Grid, proportion_finding
from tacit.lab.attacks.inception import repeatable
from tacit.learn.data.datasets import load
from tacit.learn.models.torch_module import import_torch
from tacit.protocols.fedavg import Plain
from tacit.protocols.secagg import messages
from tacit.protocols.secagg.messages import MaskedInput
from tacit.protocols.shapes.star import Sum
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

Array = NDArray[np.float64]

PIXELS, HIDDEN, CLASSES = 64, 32, 10
SHAPES = ((HIDDEN, PIXELS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
SIZES = [math.prod(shape) for shape in SHAPES]
RATE = 0.5
"""Learning rate of the clients' single step."""

ALIKE = 0.99
"""Correlation above which an image counts as found."""
COINCIDENCE = 0.0012
"""Share of the digits that correlate as much with some other digit."""
SOLVED, SEARCHED = "solved for at once", "by a search"
SHOWN = 6
"""Number of images shown with their reconstructions."""


def weights_and_biases(vector: Any) -> list[Any]:
    """Returns W_1, b_1, W_2 and b_2 from a concatenated vector of NumPy or torch."""
    ends = itertools.accumulate(SIZES)
    return [vector[end - size : end].reshape(shape) for end, size, shape in zip(ends, SIZES, SHAPES, strict=True)]


def initial_model(rng: np.random.Generator) -> Array:
    """Returns the public initial model: random weights, and biases of zero."""
    deviations = (PIXELS**-0.5, 0.0, HIDDEN**-0.5, 0.0)
    return np.concatenate([rng.normal(size=size) * of for size, of in zip(SIZES, deviations, strict=True)])


def predict(theta: Any, x: Any) -> tuple[Any, Any]:
    """Returns the hidden layer h = σ(W_1 x + b_1) and the class probabilities, for images as rows."""
    w_1, b_1, w_2, b_2 = weights_and_biases(theta)
    h = (x @ w_1.T + b_1).sigmoid()
    return h, (h @ w_2.T + b_2).softmax(dim=1)


def gradient(theta: Any, x: Any, labels: Any) -> Any:
    """Returns the gradient of the mean cross-entropy over images, in a form that torch can differentiate again."""
    torch = import_torch()
    h, p = predict(theta, x)
    slope_2 = (p - torch.nn.functional.one_hot(labels, CLASSES)) / len(x)
    slope_1 = slope_2 @ weights_and_biases(theta)[2] * h * (1 - h)
    parts = slope_1.T @ x, slope_1.sum(dim=0), slope_2.T @ h, slope_2.sum(dim=0)
    return torch.cat([part.reshape(-1) for part in parts])


# --- received messages ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Received:
    """View of the server in a round."""

    single: list[Array]
    """Gradient of each client, as far as its message reveals it."""
    average: Array
    """Gradient of all clients together."""


def play_round(protocol: str, theta: Array, images: Array, labels: Sequence[int], seed: int) -> Received:
    """Runs one round of a deployed protocol with one image per client, and decrypts the messages to the server."""
    torch = import_torch()
    parties = [f"p{i}" for i in range(len(images))]
    simulation = Simulation.of(protocol, parties, len(theta), record=True, seed=seed)
    updates = {}
    for party, image, label in zip(parties, images, labels, strict=True):
        step = gradient(torch.tensor(theta), torch.tensor(image[np.newaxis]), torch.tensor([int(label)]))
        updates[party] = Update(theta - RATE * step.numpy())
    transcript = cast(Transcript, simulation.average(updates).transcript)

    ring, single, average = transcript.ring(), {}, theta
    for address, message in transcript.open_messages(SERVER):
        if isinstance(message, Plain | MaskedInput):
            single[address.sender] = ring.floats(ring.unpack(message.vector)[: len(theta)])
        if isinstance(message, Sum | messages.Sum):
            average = ring.mean(ring.unpack(message.vector))
    return Received([(theta - single[party]) / RATE for party in parties], (theta - average) / RATE)


# --- the attack ----------------------------------------------------------------------------------------------------


def labels_in(theta: Array, g: Array, count: int) -> list[int]:
    """Returns the labels of that many images.

    dℓ/db_2 is the mean of p − y over images, where y is 1 at the label and 0 elsewhere. The p of an untrained model
    differ little, so the p of a grey image is accurate enough to count the labels.
    """
    torch = import_torch()
    _, p = predict(torch.tensor(theta), torch.full((1, PIXELS), 0.3, dtype=torch.float64))
    expected = count * (p[0].numpy() - weights_and_biases(g)[3])
    found = []
    for _ in range(count):
        found.append(int(expected.argmax()))
        expected[found[-1]] -= 1
    return sorted(found)


def closed_form(g: Array) -> Array:
    """Returns the one image x for which dℓ/dW_1 is nearest to dℓ/db_1 xᵀ."""
    w_1, b_1, _, _ = weights_and_biases(g)
    image: Array = b_1 @ w_1 / (b_1 @ b_1)
    return image[np.newaxis]


def invert_gradient(theta: Array, g: Array, labels: Sequence[int], steps: int, rng: np.random.Generator) -> Array:
    """Returns images in [0, 1] with the given labels whose gradient is nearest to g."""
    from scipy.optimize import minimize  # Importing it takes a second.

    torch = import_torch()
    model, target, of = torch.tensor(theta), torch.tensor(g), torch.tensor(labels)
    size = (target**2).sum()

    def distance(pixels: Array) -> tuple[float, Array]:
        x = torch.tensor(pixels.reshape(len(labels), PIXELS), requires_grad=True)
        apart = ((gradient(model, x, of) - target) ** 2).sum() / size
        apart.backward()
        return apart.item(), x.grad.numpy().ravel()

    with repeatable(0):
        end = minimize(
            distance,
            rng.uniform(size=len(labels) * PIXELS),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * (len(labels) * PIXELS),
            options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-13, "gtol": 1e-11},
        )
    found: Array = end.x.reshape(len(labels), PIXELS)
    return found


def find_nearest(image: Array, found: Array) -> tuple[float, Array]:
    """Returns the largest correlation of an image with one of those found, and that one."""

    def center(x: Array) -> Array:
        x = x - x.mean(axis=-1, keepdims=True)
        y: Array = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
        return y

    alike = center(found) @ center(image)
    best = int(alike.argmax())
    return float(alike[best]), found[best]


def count_common(some: Sequence[int], others: Sequence[int]) -> int:
    """Returns how many labels two lists have in common, in any order."""
    return (Counter(map(int, some)) & Counter(map(int, others))).total()


def guessable_share(count: int) -> float:
    """Returns the expected share of labels that the best guess has right: labels that are spread as evenly as
    possible."""
    from scipy.stats import binom  # Importing it takes a second.

    at_least = np.repeat(binom.sf(np.arange(count), count, 1 / CLASSES), CLASSES)
    return float(at_least[:count].mean())


@dataclass(frozen=True)
class Attempt:
    """Result of inverting one gradient."""

    truth: Array
    """Images behind the gradient, one per row."""
    found: Array
    """Recovered image that is most similar to each of them."""
    alike: Array
    """Correlation of the two."""
    labels: int
    """Number of labels that were recovered."""


def attempt_inversion(
    theta: Array, g: Array, images: Array, labels: Sequence[int], steps: int, rng: np.random.Generator
) -> Attempt:
    """Inverts a gradient by optimisation, or in closed form if there are no steps to take."""
    told = labels_in(theta, g, len(images))
    found = invert_gradient(theta, g, told, steps, rng) if steps else closed_form(g)
    alike, best = zip(*(find_nearest(image, found) for image in images), strict=True)
    return Attempt(images, np.array(best), np.array(alike), count_common(told, labels))


@dataclass(frozen=True)
class InversionTarget:
    """Target of the server's attack, with the results."""

    name: str
    by: str
    """How images are recovered: `SOLVED` or `SEARCHED`."""
    images: int
    """Number of images in each gradient."""
    labels: bool = True
    """Whether labels are reported. They do not depend on how images are found."""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """The shares of images and labels that were found, each compared with guessing."""
        images = sum(int(np.sum(attempt.alike > ALIKE)) for attempt in self.attempts)
        labels = sum(attempt.labels for attempt in self.attempts)
        measures = [(f"{self.name}, {self.by}", "images", images, COINCIDENCE)]
        if self.labels:
            measures.append((self.name, "labels", labels, guessable_share(self.images)))
        whose = "" if self.images == 1 else ", without their owner"
        tries = self.images * len(self.attempts)
        return [
            proportion_finding(
                ATTACK.name, target, f"share of {what} found{whose}", wins=wins, tries=tries, chance=chance
            )
            for target, what, wins, chance in measures
        ]


# --- the experiment ------------------------------------------------------------------------------------------------


FEW = 8
"""The largest number of clients in a round whose single messages are attacked. In larger rounds only the average is."""


@dataclass(frozen=True)
class InversionScale:
    """Amount of work."""

    rounds: Mapping[int, int]
    """Number of rounds, by number of clients."""
    steps: int
    """Most steps of each optimisation."""
    cheap_rounds: int
    """Additional rounds of a few clients, in which only labels and closed forms are computed."""


QUICK = InversionScale({FEW: 3, 64: 1}, steps=150, cheap_rounds=10)
FULL = InversionScale({FEW: 10, 16: 5, 32: 3, 64: 2}, steps=600, cheap_rounds=90)


def measure_targets(scale: InversionScale, seed: int, progress: Progress = ignore_progress) -> list[InversionTarget]:
    """Returns the results for each target, positive controls first."""
    rng = np.random.default_rng(seed)
    x, y = load("digits", share=1).flat()
    singles = {
        (protocol, steps): InversionTarget(
            f"{protocol}, one client", SEARCHED if steps else SOLVED, images=1, labels=not steps
        )
        for protocol in ("fedavg", "secagg")
        for steps in (0, scale.steps)
    }
    averages = {k: InversionTarget(f"secagg, average over {k} clients", SEARCHED, images=k) for k in scale.rounds}
    plan = [(k, scale.steps) for k, count in scale.rounds.items() for _ in range(count)]
    plan += [(FEW, 0)] * scale.cheap_rounds
    for done, (clients, most) in enumerate(plan):
        progress(f"turning what {clients} clients send back into images", done / len(plan))
        chosen = rng.choice(len(x), clients, replace=False)
        theta, images, labels = initial_model(rng), x[chosen], y[chosen].tolist()
        received = {
            protocol: play_round(protocol, theta, images, labels, seed + done) for protocol in ("fedavg", "secagg")
        }
        if most:
            g = received["secagg"].average
            averages[clients].attempts.append(attempt_inversion(theta, g, images, labels, most, rng))
        for (protocol, steps), target in singles.items():
            if clients == FEW and steps <= most:
                for i, g in enumerate(received[protocol].single):
                    target.attempts.append(
                        attempt_inversion(theta, g, images[i : i + 1], labels[i : i + 1], steps, rng)
                    )
    return [*singles.values(), *averages.values()]


class Picture(NamedTuple):
    """An image of a client, 8 × 8, and its reconstructions by the server."""

    truth: Array
    fedavg: Array
    secagg: Array
    """Image that the server recovers from the client's masked message."""
    average: Array
    """Most similar image among those recovered from the average."""


def collect_pictures(targets: Sequence[InversionTarget]) -> list[Picture]:
    """Returns the images of rounds with a few clients, for display."""
    names = ("fedavg, one client", "secagg, one client", f"secagg, average over {FEW} clients")
    chosen = [next(t for t in targets if t.name == name and t.by == SEARCHED).attempts for name in names]
    columns = [np.concatenate([attempt.truth for attempt in chosen[0]])]
    columns += [np.concatenate([attempt.found for attempt in attempts]) for attempts in chosen]
    return [Picture(*(image.reshape(8, 8) for image in row)) for row in zip(*columns, strict=True)]


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns how much of the clients' data the server finds."""
    return look(full, seed, progress)[0]


def look(full: bool, seed: int, progress: Progress) -> tuple[list[Finding], Grid]:
    """Returns the same, with some original images and their reconstructions."""
    targets = measure_targets(FULL if full else QUICK, seed, progress)
    title = f"{FEW} clients take a step on an image each: what the server makes of what it receives"
    headings = ("the client's image", "fedavg:\nits model", "secagg:\nits masked model", "secagg:\nthe average")
    shown = [list(each) for each in collect_pictures(targets)[:SHOWN]]
    return [finding for target in targets for finding in target.findings], Grid(title, headings, shown)


ATTACK = Attack(
    name="inversion",
    summary="the server turns a client's gradient back into its image and label",
    paper="the shared gradient itself (Zhu et al. 2019)",
    run=run,
    look=look,
)
