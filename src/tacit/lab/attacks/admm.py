"""Attack by a curious peer on the averaging of paper 000, Section III: it solves for the vectors w of other peers.

The secrets of peer k are w_k and λ_k⁰. All later values follow from these and from z, which every peer knows. By (8),
λ^i = ρ_i (y^i − z^i). With (4), every y is then linear in w and λ⁰/ρ_1:

    y¹ = q_1 (w + λ⁰/ρ_1),    y^{i+1} = q w + q y^i ρ_i/ρ − z^i (q ρ_i/ρ − ρ/(2 + ρ))

where q = 2/(2 + ρ), and ρ is that of iteration i + 1. So any two y of one peer determine its w. This is Lemma III.1 for
two iterations of all-to-all communication. It also applies whenever two peers are in one group twice, however large the
gap (`solve_met_twice`). The sums z_g of all groups, which every peer receives, are linear too. Together with the y of
peers that were met once they form a linear system, which is complete even earlier (`solve_system`). A single y
determines w up to λ⁰/ρ_1, where λ⁰ is from [0, 1) and is drawn anew in each round of learning (`bound_vectors`): the
larger ρ_1 is, the less λ⁰ hides.

The peer uses only what it sent and received in rounds of the deployed protocol, decrypted with its own keys.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.recipes import read_input
from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.core.suite import Update
from tacit.lab.attacks.attack_result import Attack, Finding, mean_finding, proportion_finding
from tacit.protocols.admm import GroupPart, GroupSum
from tacit.protocols.admm.settings import AdmmTerms
from tacit.runtime.simulation.simulator import Simulation
from tacit.runtime.simulation.transcript import Transcript

Numbers: TypeAlias = NDArray[np.float64]
Group: TypeAlias = tuple[int, ...]

TOLERANCE = 1e-6
ENTRIES = 8
RANK = 1e-9  # Singular values below this part of the largest one count as zeros with rounding errors.


@dataclass(frozen=True)
class AdmmLine:
    """Dependence of a peer's y^i on its secrets: y = of_w · w + of_start · λ⁰/ρ_1 + rest."""

    of_w: float
    of_start: float
    rest: Numbers

    def next(self, z: Numbers, before: float, rho: float) -> "AdmmLine":
        """Returns the line of the next iteration, given z and ρ of this one, and ρ of the next."""
        q = 2 / (2 + rho)
        kept = q * before / rho
        rest = kept * self.rest - (kept - rho / (2 + rho)) * z
        return AdmmLine(q + kept * self.of_w, kept * self.of_start, rest)


def derive_lines(z: Numbers, rhos: Sequence[float]) -> list[AdmmLine]:
    """Returns the lines of y¹, y², … from z¹, z², … and ρ of each iteration."""
    q = 2 / (2 + rhos[0])
    found = [AdmmLine(q, q, np.zeros(z.shape[1]))]
    for z_i, (before, rho) in zip(z, pairwise(rhos), strict=False):
        found.append(found[-1].next(z_i, before, rho))
    return found


def apply_lemma(y: Numbers, later: Numbers, z: Numbers, rhos: Sequence[float]) -> Numbers:
    """Returns the w of a peer from two of its y, given z from the first of the two iterations on, and ρ of all.

    With y¹, y² and z¹ this is (11) of Lemma III.1.
    """
    line = AdmmLine(0.0, 0.0, y)
    for z_i, (before, rho) in zip(z, pairwise(rhos), strict=True):
        line = line.next(z_i, before, rho)
    return np.asarray((later - line.rest) / line.of_w)


# --- the view of a curious peer -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerView:
    """View of a peer after a round. Peers are numbered by their place on the roster, iterations from 0."""

    terms: AdmmTerms
    peers: int
    me: int
    w: Numbers
    start: Numbers
    """Its own λ⁰."""
    y: Mapping[tuple[int, int], Numbers]
    """The y that the peer received, by iteration and sender; masked if the protocol masks them."""
    sums: Mapping[tuple[int, Group], Numbers]
    """Σ y over each group, by iteration and group."""
    z: Numbers

    @property
    def lines(self) -> list[AdmmLine]:
        """Dependence of y on the secrets, by iteration."""
        return derive_lines(self.z, self.rhos)

    @property
    def rhos(self) -> tuple[float, ...]:
        """ρ of each iteration."""
        return self.terms.rhos


def collect_view(transcript: Transcript, me: int = 0) -> PeerView:
    """Returns the view of a peer after a recorded round."""
    agreement, ring = transcript.agreement, transcript.ring()
    terms = cast(AdmmTerms, agreement.terms)
    parties, n, d = agreement.parties, len(agreement.parties), agreement.entries
    partitions = [terms.pattern.partitions[i % terms.pattern.gap] for i in range(terms.iterations)]
    group = [{k: g for g in partition for k in g} for partition in partitions]
    shares, z_g = {}, {}
    for address, message in transcript.open_messages(parties[me]):
        i, k = address.step - 1, parties.place(address.sender)
        if isinstance(message, GroupPart):
            shares[i, k] = ring.unpack(message.vector, d)
        elif isinstance(message, GroupSum):
            z_g[i, group[i][k]] = ring.unpack(message.vector, d)
    for i in range(terms.iterations):
        # With the peer's own share the group is complete, and masks cancel in the ring.
        z_g[i, group[i][me]] = sum((shares[i, k] for k in group[i][me]), ring.zeros(d))
    z = [
        ring.floats(sum((z_g[i, g] for g in partition), ring.zeros(d))) / terms.stretches[i]
        for i, partition in enumerate(partitions)
    ]
    return PeerView(
        terms=terms,
        peers=n,
        me=me,
        w=read_input(transcript, parties[me]),
        start=transcript.holdings[parties[me]].vectors[0],
        # A share is y/n, scaled to fill the ring.
        y={(i, k): n * ring.floats(share) / terms.stretches[i] for (i, k), share in shares.items() if k != me},
        sums={(i, g): n * ring.floats(total) / terms.stretches[i] for (i, g), total in z_g.items()},
        z=np.array(z),
    )


# --- three ways to use the view -----------------------------------------------------------------------------------


def solve_met_twice(known: PeerView) -> dict[int, Numbers]:
    """Returns the w of every peer that was met more than once."""
    met: dict[int, list[int]] = {}
    for i, k in sorted(known.y):
        met.setdefault(k, []).append(i)
    return {
        k: apply_lemma(known.y[i, k], known.y[j, k], known.z[i:j], known.rhos[i : j + 1])
        for k, (i, *more) in met.items()
        for j in more[:1]
    }


def solve_system(known: PeerView, *, with_sums: bool = True) -> dict[int, Numbers]:
    """Returns the w of all peers by least squares: exact where the equations determine it, otherwise an estimate."""
    heard: list[tuple[int, Group, Numbers]] = []
    if with_sums:
        heard += [(i, g, total) for (i, g), total in known.sums.items()]
    if not known.terms.settings.masked:
        heard += [(i, (k,), y) for (i, k), y in known.y.items()]
    # The unknowns are w and λ⁰/ρ_1 of each peer in turn. The peer knows its own.
    ours = np.eye(2 * known.peers)[2 * known.me : 2 * known.me + 2]
    rows, right = [*ours], [known.w, known.start / known.rhos[0]]
    for i, group, total in heard:
        line, row = known.lines[i], np.zeros((known.peers, 2))
        row[list(group)] = line.of_w, line.of_start
        rows.append(row.ravel())
        right.append(total - len(group) * line.rest)
    solution = np.linalg.pinv(np.array(rows), rcond=RANK) @ np.array(right)
    return {k: solution[2 * k] for k in range(known.peers) if k != known.me}


def bound_vectors(known: PeerView) -> dict[int, tuple[Numbers, Numbers]]:
    """Returns the least and largest possible w of each peer that was met, because the range of λ⁰ is known."""
    found = {}
    for i, k in sorted(known.y):
        line = known.lines[i]
        # The larger λ⁰ is, the smaller is the part of w in y.
        most, least = (
            (known.y[i, k] - line.rest - line.of_start * end / known.rhos[0]) / line.of_w
            for end in known.terms.settings.lambda0
        )
        found[k] = least, most
    return found


# --- the attack ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdmmTarget:
    """Settings of the protocol, and the way in which they are attacked."""

    name: str
    solve: Callable[[PeerView], dict[int, Numbers]]
    peers: int
    iterations: int
    group_size: int | None = 3
    masked: bool = False


BROKEN = (
    AdmmTarget("9 peers all to all, 2 iterations, each heard twice", solve_met_twice, 9, 2, group_size=None),
    AdmmTarget("9 peers in groups of three, 5 iterations, 2 of 8 met twice", solve_met_twice, 9, 5),
    AdmmTarget("9 peers in groups of three, 6 iterations, 4 of 8 met twice", solve_met_twice, 9, 6),
    AdmmTarget("9 peers in groups of three, 6 iterations, from group sums", solve_system, 9, 6),
    AdmmTarget("15 peers in groups of three, 8 iterations, 2 of 14 met twice", solve_met_twice, 15, 8),
    AdmmTarget("15 peers in groups of three, 6 iterations, nobody met twice, from group sums", solve_system, 15, 6),
    AdmmTarget("9 peers in groups of three, masked, 8 iterations, from group sums", solve_system, 9, 8, masked=True),
)
HOLDING = (
    AdmmTarget("9 peers in groups of three, 4 iterations, from group sums", solve_system, 9, 4),
    AdmmTarget("9 peers in groups of three, masked, 4 iterations, from group sums", solve_system, 9, 4, masked=True),
    AdmmTarget(
        "9 peers all to all, masked, 4 iterations, each heard twice",
        solve_met_twice,
        9,
        4,
        group_size=None,
        masked=True,
    ),
)


class AdmmRounds:
    """Rounds with one setting in which every peer contributes the same random vector each time."""

    def __init__(self, setting: AdmmTarget, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.w = rng.normal(size=(setting.peers, ENTRIES))
        self._simulation = Simulation.of(
            "admm",
            tuple(f"p{k}" for k in range(setting.peers)),
            ENTRIES,
            seed=seed,
            record=True,
            bits=64,
            allow_leaks=True,
            iterations=setting.iterations,
            group_size=setting.group_size,
            masked=setting.masked,
        )

    def observe(self) -> PeerView:
        """Runs a round and returns the view of the first peer."""
        updates = {party: Update(self.w[k]) for k, party in enumerate(self._simulation.parties)}
        return collect_view(cast(Transcript, self._simulation.average(updates).transcript))


def count_recovered(setting: AdmmTarget, seed: int) -> int:
    """Returns how many of the other peers' vectors the first peer recovers in one round."""
    rounds = AdmmRounds(setting, seed)
    guesses = setting.solve(rounds.observe())
    return sum(bool(np.all(np.abs(guess - rounds.w[k]) < TOLERANCE)) for k, guess in guesses.items())


def narrow_down(rounds: int, seed: int) -> list[Finding]:
    """Returns the error of an estimate of w from one y, and from one y in each of several rounds with the same w."""
    setting = "9 peers in groups of three, 2 iterations"
    same = AdmmRounds(AdmmTarget(setting, solve_met_twice, 9, 2), seed)
    heard = [bound_vectors(same.observe()) for _ in range(rounds)]
    w = same.w[list(heard[0])]
    least, most = np.array([list(each.values()) for each in heard]).transpose(2, 0, 1, 3)
    middle = (least + most) / 2
    guesses = {
        "one message": middle[0],
        f"one message in each of {rounds} rounds, averaged": middle.mean(axis=0),
        f"one message in each of {rounds} rounds, bounds intersected": (least.max(axis=0) + most.min(axis=0)) / 2,
    }
    uninformed = float(np.abs(w).mean())
    findings = []
    for name, guess in guesses.items():
        errors = np.abs(guess - w).ravel().tolist()
        measure = f"mean error of an entry; that of guessing 0 is {uninformed:.2f}"
        finding = mean_finding("admm", f"{setting}, {name}", measure, errors, broken=False)
        findings.append(replace(finding, broken=finding.high < uninformed))
    return findings


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Recovers vectors where that is possible, estimates those with few observations, and tries the rest."""
    trials, rounds = (50, 200) if full else (5, 20)
    settings = len(BROKEN) + len(HOLDING)
    findings = []
    for place, setting in enumerate((*BROKEN, *HOLDING)):
        progress(setting.name, place / (settings + 1))
        rng = np.random.default_rng([seed, place])
        wins = sum(count_recovered(setting, each) for each in rng.integers(2**32, size=trials).tolist())
        tries, measure = trials * (setting.peers - 1), f"share of other peers whose vector is found to {TOLERANCE:g}"
        findings.append(proportion_finding("admm", setting.name, measure, wins=wins, tries=tries))
    progress("one message a round", settings / (settings + 1))
    weakly_masked = narrow_down(rounds, seed)
    progress("admm", 1.0)
    return [*findings[: len(BROKEN)], *weakly_masked, *findings[len(BROKEN) :]]


ATTACK = Attack(
    name="admm",
    summary="a curious peer solves for the vectors of those it heard twice, or whose group sums it heard",
    paper=PAPERS["000"],
    run=run,
)
