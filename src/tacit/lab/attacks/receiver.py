"""Attack by a receiver in paper 001's PPSGD: it recovers a sender's vector from the one message that it received.

Client i pushes p_ji x_i and p_ji y_i to j. Algorithm 4 draws y_i(0) and p_ii, and thereby all p_ji, but they are single
numbers: all entries of x_i have the same unknown factor. From one message a receiver recovers

| known before | recovered | | --- | --- | | nothing | the sender's vector up to one factor: every ratio of two entries,
and x_i/y_i itself | | one entry of the vector, such as a bias that is not trained, or a weight that is always 0.5 | the
whole vector |

The messages are those of recorded rounds of the deployed `pushsum`, decrypted with the receiver's own keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Party, Update
from tacit.lab.attacks.attack_result import Attack, Finding, proportion_finding
from tacit.lab.attacks.eavesdropper_decoding import TWICE_HEARD
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

TOLERANCE = 1e-6
"""Largest error of a recovered vector, relative to its largest entry."""
ENTRIES = 50
KNOWN = 0
"""Place of the entry that the receiver knows in the stronger attack."""


@dataclass(frozen=True)
class ReceivedVector:
    """Result of the receiver's computation from one message."""

    sender: Party
    receiver: Party
    ratio: NDArray[np.float64]
    """Ratio x_i/y_i of the received values: the sender's vector, divided by its initial weight y_i(0)."""

    def with_known_entry(self, place: int, value: float) -> NDArray[np.float64]:
        """Returns the sender's vector, given one nonzero entry of it."""
        return np.asarray(self.ratio * (value / self.ratio[place]))

    def error_of(self, vector: NDArray[np.float64], known: int | None = None) -> float:
        """Returns the largest error, relative to the largest entry of the sender's vector.

        Without a known entry, the best-fitting factor is used.
        """
        if known is None:
            found = self.ratio * float(self.ratio @ vector / (self.ratio @ self.ratio))
        else:
            found = self.with_known_entry(known, float(vector[known]))
        return float(np.abs(found - vector).max() / np.abs(vector).max())


def receive_vectors(transcript: Transcript, receiver: Party) -> list[ReceivedVector]:
    """Returns the result for each message that a receiver got in a first round of `pushsum`."""
    ring, found = transcript.ring(), []
    for address, message in transcript.open_messages(receiver):
        if address.to == receiver:
            pushed = ring.floats(ring.unpack(cast(Any, message).vector, transcript.agreement.entries + 1))
            found.append(ReceivedVector(address.sender, receiver, np.asarray(pushed[:-1] / pushed[-1])))
    return found


@dataclass(frozen=True)
class PushTarget:
    """Settings of `pushsum` whose receivers attack."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, seed: int) -> tuple[Transcript, dict[Party, NDArray[np.float64]]]:
        """Runs one round; returns the transcript, and the vectors that should stay secret."""
        rng = np.random.default_rng(seed)
        vectors = {f"p{place}": rng.uniform(-1, 1, ENTRIES) for place in range(5)}
        for vector in vectors.values():
            vector[KNOWN] = 0.5
        simulation = Simulation.of(
            "pushsum",
            tuple(vectors),
            ENTRIES,
            graph=TWICE_HEARD,
            seed=seed,
            record=True,
            bits=64,
            clip=1024.0,
            allow_leaks=True,
            **self.options,
        )
        outcome = simulation.average({party: Update(vector) for party, vector in vectors.items()})
        return cast(Transcript, outcome.transcript), vectors


TARGETS = (
    PushTarget("pushsum"),
    PushTarget("pushsum with private weights", {"private": True}),
    PushTarget("pushsum with private weights, exponential", {"private": True, "y0": "exp"}),
    PushTarget("pushsum with private weights, few of them large (lognormal)", {"private": True, "y0": "lognormal"}),
    PushTarget("pushsum with private weights, masked", {"private": True, "masked": True}),
)
"""All are broken except the last, in which messages are masked."""
MEASURES = {
    f"share of messages from which the sender's vector is found up to a factor, to {TOLERANCE:g}": None,
    f"share of messages from which the sender's vector is found, given one entry of it, to {TOLERANCE:g}": KNOWN,
}
"""Measures, with the known entry for each."""


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Returns from how many messages receivers recover the sender's vector, up to a factor and completely."""
    runs, found = 100 if full else 10, []
    for place, target in enumerate(TARGETS):
        errors: dict[str, list[float]] = {measure: [] for measure in MEASURES}
        for number in range(runs):
            progress(f"receiving from {target.name}", (place + number / runs) / len(TARGETS))
            transcript, vectors = target.run(seed + number)
            received = [each for party in vectors for each in receive_vectors(transcript, party)]
            for measure, known in MEASURES.items():
                errors[measure] += [each.error_of(vectors[each.sender], known) for each in received]
        for measure, every in errors.items():
            wins = sum(error < TOLERANCE for error in every)
            found.append(proportion_finding(ATTACK.name, target.name, measure, wins=wins, tries=len(every)))
    progress(ATTACK.name, 1.0)
    return found


ATTACK = Attack(
    name="receiver",
    summary="a receiver of pushsum recovers a sender's vector from one message, whatever weights are drawn",
    paper=PAPERS["001"],
    run=run,
)
