"""Paper 003, Theorems 1 and 4: excess empirical risk against ε, and which ε that really is.

Theorem 1 claims (ε, δ) for σ² = 8 G² T log(1/δ)/(m² n₍₁₎² ε²), and Theorem 4 bounds what is lost of the least risk,
with a term that falls as 1/ε². But that σ is for one noise vector on the average, and in Algorithm 1 each of m users
adds one of its own, so that averaging divides the variance by m: the ε that is accounted for is about √m times the
claimed one.

We run Algorithm 1 (K = 1, E = m) with that σ and with one that is calibrated so that an accountant finds ε, and have
the accounted ε of both beside the excess. A ledger keeps what each user has spent, by zCDP, which is an upper bound;
what refutes a claim is the least ε of that noise, which is known for Gaussian noise. With the paper's σ some fifty
times less is lost, and that is no merit of Algorithm 1: it is noise that is not there.

At last, noise that every user adds in the ring, under the masks of `secagg`, while some drop out of every round and
others collude: is what is in the sums still worth ε? Whether a canary can be told in such sums is played for by
`tacit attack epsilon`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tacit.core.progress import Progress
from tacit.lab.papers.p003.risk import (
    REPEATED,
    SIGMAS,
    SIZES,
    UNSTATED,
    RiskResult,
    RiskSetting,
    RiskSize,
    Sigma,
    assumption_row,
    average_runs,
    load_components,
)
from tacit.lab.papers.p003.theorems import DELTA
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row
from tacit.learn.data.samples import Dataset
from tacit.learn.scenario import Privacy
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.privacy import distributed_sigma, epsilon_of
from tacit.privacy.distributed_noise import SharedNoise, shared_noise
from tacit.runtime.outcome import Outcome

EPSILONS = (0.1, 0.3, 1.0, 3.0)
CLEAR = 4.0
"""Noise is what counts if the excess is so many times that without noise."""
STEEP = 0.25
"""The power of ε with which the excess falls may be off 2 by this much."""
COMPARED = 3
"""Rounds that are averaged by both protocols."""

RING = RiskSetting(None, users=20, steps=20, protocol="secagg")
DROPPING, ALLOWED, COLLUDERS, WANTED = 0.2, 0.4, 3, 2.0
"""The chance to drop out of a round, the part that may, how many collude, and ε."""


def accounted_row(found: RiskResult) -> Row:
    """Returns the ε that was accounted for, against the claimed one."""
    claimed = found.setting.epsilon or 0.0
    calibrated = found.setting.sigma == "calibrated"
    why = f"the ledger goes by zCDP, and the other is the least ε of such noise; σ = {found.sigma:.2g}"
    if not calibrated:
        why += f", which each of {found.setting.users} users adds, and averaging makes it less"
    return unruled_row(
        f"ε accounted for, {SIGMAS[found.setting.sigma]}, ε = {claimed:g}",
        "" if calibrated else f"{claimed:g}",
        f"{found.spent:.3g} by the ledger, {found.exact:.3g} at least",
        (found.spent <= claimed * (1 + 1e-9)) if calibrated else found.exact <= claimed,
        why,
    )


def excess_row(found: RiskResult) -> Row:
    """Returns the excess risk, against Theorem 4's bound."""
    return unruled_row(
        f"excess risk, {SIGMAS[found.setting.sigma]}, ε = {found.setting.epsilon:g}",
        found.bound_text,
        f"{found.excess:.1e}",
        found.within,
        f"{found.accuracy:.1%} right; θ⁰ loses {found.nothing:.1e}",
    )


def falling_row(found: list[RiskResult], clean: RiskResult) -> Row:
    """Returns with which power of ε the excess falls, where noise is what counts."""
    clear = [each for each in found if each.excess > CLEAR * clean.excess]
    logs = np.log([[each.setting.epsilon or 0.0, each.excess] for each in clear])
    power = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(clear) > 1 else math.nan
    return unruled_row(
        "how the excess falls with ε, calibrated σ",
        "ε^−2 (noise term of Theorem 4)",
        f"ε^{power:.2f}".replace("-", "−"),
        abs(power + 2) <= STEEP,
        f"for ε up to {max((each.setting.epsilon or 0 for each in clear), default=0):g}; beyond, the excess is less "
        f"than {CLEAR:g} times that without noise, {clean.excess:.1e}",
    )


def cheaper_row(calibrated: list[RiskResult], paper: list[RiskResult], clean: RiskResult) -> Row:
    """Returns how much less is lost with the paper's noise, where noise is what counts."""
    pairs = [
        (ours.excess / theirs.excess, (ours.sigma / theirs.sigma) ** 2)
        for ours, theirs in zip(calibrated, paper, strict=True)
        if theirs.excess > CLEAR * clean.excess
    ]
    times = ", ".join(f"{ratio:.0f}" for ratio, _ in pairs)
    return unruled_row(
        "excess, calibrated σ over Theorem 1's",
        "",
        f"{times} times",
        None,
        f"σ² is {' and '.join(f'{square:.0f}' for _, square in pairs)} times as large: what is saved is noise",
    )


# --- averages ------------------------------------------------------------------------------------------------------


def same_row(size: RiskSize, data: Dataset) -> Row:
    """Returns whether `secagg` gives the same models as `fedavg`."""
    plain = RiskSetting(EPSILONS[2], users=size.users, steps=COMPARED)
    models, key = [], None
    for protocol in ("fedavg", "secagg"):
        found = assemble_run(replace(plain, protocol=protocol).scenario(), data=data, secret=REPEATED)
        # Keys of noise follow from the scenario, and the two scenarios differ in the protocol.
        key = found.training.cohort.noise_key = key or found.training.cohort.noise_key
        list(found.rounds())
        models.append(found.training.consensus().tobytes())
    return unruled_row(
        f"models after {COMPARED} steps, averaged by secagg and by fedavg",
        "",
        "the same bits" if models[0] == models[1] else "different",
        models[0] == models[1],
        f"{size.users} users; so all other runs are by fedavg",
    )


# --- noise in the ring ---------------------------------------------------------------------------------------------


def run_in_ring(setting: RiskSetting, data: Dataset) -> tuple[AssembledRun, list[Outcome | None]]:
    """Runs Algorithm 1 with noise in the ring, per user, while some drop out; returns what came of each round."""
    scenario = msgspec.structs.replace(
        setting.scenario(),
        dropout=DROPPING,
        privacy=Privacy(epsilon=WANTED, delta=DELTA, clip=1.0, dropouts=ALLOWED, colluders=COLLUDERS),
    )
    found = assemble_run(scenario, data=data, secret=REPEATED)
    return found, [step.outcome for step in found.training.steps(scenario.rounds)]


def epsilon_of_sums(noise: SharedNoise, honest: list[int]) -> float:
    """Returns the ε of sums with the noise of so many honest users in each."""
    rho = math.fsum(replace(noise, honest=each).rho for each in honest)
    return epsilon_of(rho, DELTA, gaussian=False)


def ring_rows(setting: RiskSetting, data: Dataset) -> list[Row]:
    """Returns the ε of sums from which some dropped out and of which others know their part."""
    found, outcomes = run_in_ring(setting, data)
    if found.ledger is None or found.checked is None:
        raise RuntimeError("privacy was asked for")
    entries = found.training.cohort.model.parameters
    terms, summed = found.checked.terms, [len(each.contributors) for each in outcomes if each is not None]
    honest = [count - COLLUDERS for count in summed]
    noise = shared_noise(terms, entries, colluders=COLLUDERS)
    spent = max(map(found.ledger.epsilon, found.ledger.parties))
    real = epsilon_of_sums(noise, honest)
    options: dict[str, Any] = {"norm": 1.0, "clip": 1.0, "entries": entries, "rounds": setting.steps}
    naive = replace(noise, sigma=distributed_sigma(WANTED, DELTA, parties=setting.users, **options))
    trusting = epsilon_of_sums(naive, honest)
    what = f"{setting.users} users, {DROPPING:.0%} drop out of each round and {COLLUDERS} collude, ε = {WANTED:g}"
    sums = f"{len(summed)} of {len(outcomes)} rounds had a sum, of {min(summed)} to {max(summed)} users"
    return [
        unruled_row(
            f"ε accounted for, noise in the ring: {what}",
            "",
            f"{spent:.3g} by the ledger, {real:.3g} of the sums as they were",
            max(spent, real) <= WANTED * (1 + 1e-9),
            f"{sums}; noise of {noise.honest} is counted on; for the canary: tacit attack epsilon",
        ),
        unruled_row(
            f"the same if the noise of all were counted on: {what}",
            "",
            f"{trusting:.3g} of the same sums",
            trusting <= WANTED,
            "accounted for, not run: less noise would be added, and some of it is missing or known",
        ),
    ]


def charts_of(found: Mapping[Sigma, Sequence[RiskResult]], clean: RiskResult) -> list[Chart]:
    """Returns the excess against the claimed ε with Theorem 4's bounds, and against the ε accounted for."""
    claimed = {}
    for sigma, runs in found.items():
        epsilons = [each.setting.epsilon or 0.0 for each in runs]
        claimed[SIGMAS[sigma]] = epsilons, [each.excess for each in runs]
        claimed[f"Theorem 4 with {SIGMAS[sigma]}"] = epsilons, [each.bound for each in runs]
    ends = [min(EPSILONS), max(EPSILONS)]
    claimed |= {"no noise": (ends, [clean.excess] * 2), "nothing learnt": (ends, [clean.nothing] * 2)}
    real = {
        SIGMAS[sigma]: ([each.exact for each in runs], [each.excess for each in runs]) for sigma, runs in found.items()
    }
    bounds = tuple(name for name in claimed if name.startswith(("Theorem 4", "no")))
    axes = "privacy, the less the better (ε)", "excess risk"
    return [
        Chart("Excess risk against the ε that is claimed", *axes, claimed, logarithmic=True, dashed=bounds),
        Chart("Excess risk against the ε that is accounted for", *axes, real, logarithmic=True),
    ]


def run(scale: Scale, progress: Progress) -> Result:
    """Runs Algorithm 1 for every ε with either noise."""
    size = SIZES[scale]
    progress("principal components", 0.0)
    data = load_components(size.samples)
    clean = average_runs(RiskSetting(None, users=size.users, steps=size.steps), data, size.seeds)
    found: dict[Sigma, list[RiskResult]] = {sigma: [] for sigma in SIGMAS}
    todo = [(sigma, epsilon) for sigma in found for epsilon in EPSILONS]
    for done, (sigma, epsilon) in enumerate(todo, 1):
        progress(f"ε = {epsilon:g}, {SIGMAS[sigma]}", done / (len(todo) + 2))
        setting = RiskSetting(epsilon, sigma, size.users, size.steps)
        found[sigma].append(average_runs(setting, data, size.seeds))
    progress("noise in the ring", (len(todo) + 1) / (len(todo) + 2))
    everything = [*found["paper"], *found["calibrated"]]
    where = f"{data.name}: m = {size.users}, n = {len(data.y) // size.users}, T = {size.steps}, {size.seeds} runs each"
    rows = [
        unruled_row("excess risk without noise", clean.bound_text, f"{clean.excess:.1e}", clean.within, where),
        *map(accounted_row, everything),
        *map(excess_row, everything),
        falling_row(found["calibrated"], clean),
        cheaper_row(found["calibrated"], found["paper"], clean),
        assumption_row(everything),
        same_row(size, data),
        *ring_rows(RING, data),
    ]
    progress("ε", 1.0)
    return Result(tuple(rows), tuple(charts_of(found, clean)))


REPRODUCTION = Reproduction(
    name="003-epsilon",
    title="Excess risk against ε, by Theorem 1's noise and by noise that is worth ε, with Theorem 4's bound",
    run=run,
    unstated=(
        *UNSTATED,
        "K = 1 and E = m here, so that all that is seen are sums with the noise of all users in them",
        "Theorem 1 counts on one noise vector of variance σ² in the average; Algorithm 1 has σ²/m there",
        "Theorem 4 has σ² of Theorem 1 in it; beside the calibrated σ its bound is with that one",
        "small: 12,000 samples, T = 200, two runs each; paper: all samples, T = 500, three runs each",
    ),
)
