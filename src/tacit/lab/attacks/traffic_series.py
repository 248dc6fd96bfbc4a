"""Traffic on the links while clients train with the algorithms of paper 001, for many runs at a time.

Runs are computed in plain floats. A test compares them with the messages of the deployed protocols. What the paper does
not state, and our choices, are in `eavesdropper_learning`, which uses the series.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.core.suite import Party, Update
from tacit.designs import graphs
from tacit.lab.attacks.eavesdropper_decoding import PAPER_LINKS
from tacit.learn.training.loop import LocalWork, TrainingStep, run_rounds
from tacit.runtime.simulation.simulator import Simulation

Array = NDArray[np.float64]
Links = Sequence[tuple[int, int]]
"""Pairs (i, j): i sends to j. Clients are counted from 0 here, and from 1 in the paper."""

# --- the paper's setting -------------------------------------------------------------------------------------------

LINKS: Links = PAPER_LINKS
"""Our reading of Fig. 2: strongly connected, 8 links."""

BASELINE = ((1, -4, 4), (1, -9, 9), (1, -4, 7), (1, -4, 4.75), (1, 1, 0.25))
"""Coefficients a_i, b_i and c_i of l_i(w) = a_i w² + b_i w + c_i (equation 16)."""

CASES = {
    0: (1, 1, 0.25),
    1: (1, 0.4, 1.75),
    2: (1, -0.2, 3.25),
    3: (1, -0.8, 4.75),
    4: (1, -1.4, 6.25),
    5: (1, -2, 7.75),
    6: (1, 0.5, 1.2625),
}
"""The local function of client 5 by case (Tables 1 and 2; for "w + 0.5w + 1.2625" read w² + 0.5w + 1.2625)."""
CHANGING = 4
"""The place of client 5, whose loss changes."""

BETA, ALPHA = 0.1, 0.4
"""The range of p_ii in PPSGD; the default of `pushsum`."""
EPOCHS = 5
"""E of FedAvg."""


@dataclass(frozen=True)
class Losses:
    """Losses l_i(w) = ½ wᵀA_i w + b_iᵀw of the clients i, up to constants, which no gradient shows."""

    a: Array
    """Matrices A_i, of shape n × d × d."""
    b: Array
    """Vectors b_i, of shape n × d."""

    @classmethod
    def of_case(cls, case: int = 0) -> "Losses":
        """Returns the losses of equation 16, with client 5's loss of the given case."""
        coefficients = np.array(BASELINE)
        coefficients[CHANGING] = CASES[case]
        return cls(2 * coefficients[:, :1, np.newaxis], coefficients[:, 1:2])

    def move_client(self, client: int, by: Array | float) -> "Losses":
        """Returns the losses with one client's linear term moved."""
        b = self.b.copy()
        b[client] += by
        return Losses(self.a, b)

    def gradient(self, w: Array) -> Array:
        """Returns ∇l_i(w_i) for runs × n × d models."""
        gradient: Array = np.einsum("nij,rnj->rni", self.a, w) + self.b
        return gradient

    @property
    def step(self) -> float:
        """1/λ, for the largest curvature λ."""
        return 1.0 / float(np.linalg.eigvalsh(self.a).max())


# --- the algorithms, and their traffic on the links: runs × channels × numbers × rounds -----------------------------


def client_update(losses: Losses, w: Array) -> Array:
    """Returns w_t^i(E) of every client i after E steps from w_t (Algorithm 1, with the full batch)."""
    for _ in range(EPOCHS):
        w = w - losses.step / EPOCHS * losses.gradient(w)
    return w


def fedavg(losses: Losses, w: Array, rounds: int) -> Array:
    """Returns the traffic of Algorithm 1 from w_0: each client's model to the server, and the average back."""
    heard = []
    for _ in range(rounds):
        models = client_update(losses, np.repeat(w[:, np.newaxis], len(losses.b), axis=1))
        w = models.mean(axis=1)
        heard.append(np.concatenate([models, w[:, np.newaxis]], axis=1))
    return np.stack(heard, axis=-1)


def cbgd(losses: Losses, links: Links, w: Array, rounds: int) -> Array:
    """Returns the traffic of Algorithm 2 from w_i(0), with links in both directions and w̃ = z: each client's broadcast
    model."""
    p = np.zeros(2 * (len(losses.b),))
    for edge, weight in graphs.metropolis(nx.Graph(links)).items():
        p[edge] = weight
    np.fill_diagonal(p, 1 - p.sum(axis=1))
    heard = []
    for t in range(1, rounds + 1):
        heard.append(w)
        z = p @ w
        w = z - losses.step / t * losses.gradient(z)
    return np.stack(heard, axis=-1)


def push_sum(losses: Losses, links: Links, x: Array, y: Array, kept: Array, noise: Array | None = None) -> Array:
    """Returns the traffic of Algorithms 3 and 4 from x_i(0) and y_i(0): p_ji x_i, then p_ji y_i, on each link i → j.

    `kept` is p_ii(t), rounds × runs × n; `noise` is added to the sent x, rounds × runs × links × d.
    """
    sender, receiver = np.array(links).T
    clients = np.arange(len(losses.b))
    degree = np.bincount(sender, minlength=len(clients))
    arriving = np.equal.outer(clients, receiver).astype(float)
    heard = []
    for t, p in enumerate(kept):
        part = (1 - p) / degree
        sent_x = (part[..., np.newaxis] * x)[:, sender]
        sent_y = (part * y)[:, sender, np.newaxis]
        if noise is not None:
            sent_x = sent_x + noise[t]
        heard.append(np.concatenate([sent_x, sent_y], axis=2))
        z = p[..., np.newaxis] * x + arriving @ sent_x
        y = p * y + (arriving @ sent_y)[..., 0]
        x = z - losses.step / (t + 1) * losses.gradient(z / y[..., np.newaxis])
    return np.stack(heard, axis=-1)


def sealed_traffic(losses: Losses, links: Links, w: Array, rounds: int, seed: int) -> Array:
    """Returns the traffic of PPSGD on the deployed `pushsum`: times and sizes of the messages on each encrypted
    link."""
    parties = [f"p{i}" for i in range(len(w))]
    places = {(f"p{i}", f"p{j}"): place for place, (i, j) in enumerate(links)}
    heard = np.zeros((1, len(links), 2, rounds))
    simulation = Simulation.of(
        "pushsum",
        parties,
        w.shape[1],
        graph=nx.DiGraph(links),
        private=True,
        allow_leaks=True,
        clip=1024.0,
        seed=seed,
        record=True,
    )
    for step in run_rounds(simulation.average, descend_locally(losses, w), rounds):
        for passed in (step.outcome and step.outcome.transcript) or ():
            address = passed.envelope.address
            where = places[address.sender, address.to]
            heard[0, where, :, step.number - 1] = passed.time, len(passed.envelope.sealed)
    return heard


def descend_locally(losses: Losses, w: Array) -> LocalWork:
    """Returns local work: clients start with w, and later take a gradient step from their average in each round."""
    parties = [f"p{i}" for i in range(len(w))]

    def bring(number: int, before: TrainingStep | None) -> dict[Party, Update]:
        brought = w
        if before is not None and before.outcome is not None:
            average = np.array([before.outcome.average[party] for party in parties])
            brought = average - losses.step / (number - 1) * losses.gradient(average[np.newaxis])[0]
        return {party: Update(vector) for party, vector in zip(parties, brought, strict=True)}

    return bring


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with its random parameters."""

    algorithm: str
    """FedAvg, CBGD, PSGD, PPSGD, or "sealed" for PPSGD over encrypted links."""
    start: tuple[str, *tuple[float, ...]] = ("uniform", 0.5, 1.5)
    """The distribution of y_i(0) in PPSGD: NumPy's name for it, and its parameters."""
    noise: float = 0.0
    """The variance of the noise on sent values in PSGD and PPSGD."""

    def sample_traffic(self, losses: Losses, links: Links, runs: int, rounds: int, rng: np.random.Generator) -> Array:
        """Returns the traffic on the links in some runs."""
        n, d = losses.b.shape
        w = rng.normal(size=(runs, n, d))
        if self.algorithm == "FedAvg":
            return fedavg(losses, w[:, 0], rounds)
        if self.algorithm == "CBGD":
            return cbgd(losses, links, w, rounds)
        if self.algorithm == "sealed":
            # One run represents all: times and sizes are the same in every run, which a test confirms.
            return np.repeat(sealed_traffic(losses, links, w[0], rounds, int(rng.integers(2**31))), runs, axis=0)
        if self.algorithm == "PPSGD":
            name, *parameters = self.start
            y = getattr(rng, name)(*parameters, size=(runs, n))
            kept = rng.uniform(BETA, ALPHA, size=(rounds, runs, n))
        else:
            y = np.ones((runs, n))
            kept = np.broadcast_to(1 / (1 + np.bincount([i for i, _ in links])), (rounds, runs, n))
        noise = rng.normal(scale=np.sqrt(self.noise), size=(rounds, runs, len(links), d)) if self.noise else None
        return push_sum(losses, links, w, y, kept, noise)
