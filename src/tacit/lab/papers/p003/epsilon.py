"""Paper 003, Theorems 1 and 4: excess empirical risk against ε, and the real value of ε.

Theorem 1 claims (ε, δ) for σ² = 8 G² T log(1/δ)/(m² n₍₁₎² ε²). Theorem 4 bounds the excess risk, with a term that
decreases as 1/ε². But this σ is for one noise vector on the average, while in Algorithm 1 each of m users adds its own,
so that averaging divides the variance by m. The real ε is about √m times the claimed one.

We run Algorithm 1 (K = 1, E = m) with this σ and with a calibrated one for which an accountant finds ε, and report the
accounted ε of both with the excess. A ledger records what each user has spent, by zCDP, which is an upper bound. To
refute a claim, the exact ε of the noise is used, which is known for Gaussian noise. With the paper's σ the excess is
smaller, by about the factor m. That is no merit of Algorithm 1, but the effect of too little noise.

Finally, every user adds noise in the ring, under the masks of `secagg`, while some users drop out of every round and
others collude: do the sums still have the intended ε? `tacit attack epsilon` tests by a game whether such sums reveal a
canary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tacit.core.progress import Progress
from tacit.lab.papers.p003.risk import (
    ASSUMED,
    CHANGED,
    REPEATED,
    SIGMAS,
    SIZES,
    UNSTATED,
    RiskRuns,
    RiskSetting,
    RiskSize,
    Sigma,
    assumption_row,
    bound_row,
    claimed_row,
    fit_power,
    load_components,
    repeat_runs,
)
from tacit.lab.papers.p003.theorems import DELTA
from tacit.lab.papers.reproduction import Chart, DeclaredRow, Reproduction, Result, Row, Scale
from tacit.lab.papers.rules import Between, Estimate, Near, NotCompared, PaperNumber
from tacit.learn.data.samples import Dataset
from tacit.learn.scenario import Privacy
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.privacy import distributed_sigma, epsilon_of
from tacit.privacy.distributed_noise import SharedNoise, shared_noise
from tacit.runtime.outcome import Outcome

EPSILONS = (0.1, 0.3, 1.0, 3.0)
CLEAR = 4.0
"""Noise dominates if the excess is at least this many times the excess without noise."""
STEEP = 0.25
"""The largest deviation from 2 of the power of 1/ε with which the excess decreases."""
COMPARED = 3
"""Number of rounds that are averaged by both protocols."""

RING = RiskSetting(None, users=20, steps=20, protocol="secagg")
DROPPING, ALLOWED, COLLUDERS, WANTED = 0.2, 0.4, 3, 2.0
"""Dropout probability, allowed fraction of dropouts, number of colluding users, and target ε."""


CLEAN = bound_row("no noise")
FALLING = DeclaredRow(
    "power of ε with which the excess falls, calibrated σ",
    "−2 (noise term of Theorem 4)",
    Between("far enough from −1 and −3 to tell them from −2", -2 - STEEP, -2 + STEEP),
)
CHEAPER = DeclaredRow(
    f"excess with calibrated σ by that with Theorem 1's, and σ² by σ², ε = {EPSILONS[0]:g}",
    None,
    NotCompared("the paper has one σ; what its σ saves is noise"),
    form=".0f",
)
SAME = DeclaredRow(
    f"entries in which models averaged by secagg and by fedavg differ after {COMPARED} steps",
    PaperNumber(0),
    Near(0.5, "Section 3: the server computes the sum of the chosen users, exactly"),
    form=".0f",
)
ABOUT_RING = f"{RING.users} users, {DROPPING:.0%} drop out of each round and {COLLUDERS} collude, ε = {WANTED:g}"
OURS = NotCompared("noise of ours; the paper treats neither dropouts nor collusion in its accounting")
HELD = DeclaredRow(f"ε by the ledger and of the sums as they were, noise in the ring: {ABOUT_RING}", None, OURS)
TRUSTING = DeclaredRow(f"ε of the same sums if the noise of all were counted on: {ABOUT_RING}", None, OURS)


def declare_bound(sigma: Sigma, epsilon: float) -> DeclaredRow:
    """Returns the row against Theorem 4."""
    return bound_row(f"{SIGMAS[sigma]}, ε = {epsilon:g}")


def declare_claim(sigma: Sigma, epsilon: float) -> DeclaredRow:
    """Declares the row of the claimed ε, or of the one that our noise is calibrated for."""
    if sigma == "paper":
        return claimed_row(f"{SIGMAS[sigma]}, ε = {epsilon:g}", epsilon)
    what = f"least ε of the noise, and ε by the ledger, {SIGMAS[sigma]}, ε = {epsilon:g}"
    return DeclaredRow(what, None, NotCompared("noise of ours, calibrated for this ε"), form=".3g")


def accounted_row(found: RiskRuns) -> Row:
    """Returns the accounted ε, compared with the claimed one."""
    setting, worst = found.setting, found.worst
    row = declare_claim(setting.sigma, setting.epsilon or 0.0)
    if setting.sigma == "calibrated":
        return row.measure((Estimate.certain(worst.exact), Estimate.certain(worst.spent)), f"σ = {worst.sigma:.2g}")
    why = (
        f"{worst.spent:.3g} by the ledger, which goes by zCDP; σ = {worst.sigma:.2g}, which each of {setting.users} "
        "users adds, and averaging makes it less"
    )
    return row.measure(Estimate.certain(worst.exact), why)


def excess_row(found: RiskRuns) -> Row:
    """Returns the excess risk, against Theorem 4's bound."""
    return declare_bound(found.setting.sigma, found.setting.epsilon or 0.0).measure(found.sides, found.summary)


def falling_row(found: Sequence[RiskRuns], clean: RiskRuns) -> Row:
    """Returns the power of ε with which the excess decreases, where noise dominates."""
    clear = [each for each in found if each.excess.mean > CLEAR * clean.excess.mean]
    if len(clear) < 2:
        return FALLING.fail("noise counts for fewer than two ε")
    places = [each.setting.epsilon or 0.0 for each in clear]
    powers = [fit_power(places, [each.each[seed] for each in clear]) or math.nan for seed in range(len(clear[0].runs))]
    why = (
        f"for ε up to {max(places):g}; beyond, the excess is less than {CLEAR:g} times that without noise, "
        f"{clean.excess.mean:.1e}"
    )
    return FALLING.measure(Estimate.over(powers), why)


def cheaper_row(calibrated: RiskRuns, paper: RiskRuns) -> Row:
    """Returns by how much the excess is smaller with the paper's noise."""
    ratios = [ours / theirs for ours, theirs in zip(calibrated.each, paper.each, strict=True)]
    square = (calibrated.worst.sigma / paper.worst.sigma) ** 2
    return CHEAPER.measure((Estimate.over(ratios), Estimate.certain(square)), "so what is saved is noise")


# --- averages ------------------------------------------------------------------------------------------------------


def same_row(size: RiskSize, data: Dataset) -> Row:
    """Returns whether `secagg` gives the same models as `fedavg`."""
    plain = RiskSetting(EPSILONS[2], users=size.users, steps=COMPARED)
    models, key = [], None
    for protocol in ("fedavg", "secagg"):
        found = assemble_run(replace(plain, protocol=protocol).scenario(), data=data, secret=REPEATED)
        # Noise keys depend on the scenario, and the two scenarios differ in the protocol.
        key = found.training.cohort.noise_key = key or found.training.cohort.noise_key
        list(found.rounds())
        models.append(found.training.consensus().tolist())
    differ = sum(a != b for a, b in zip(*models, strict=True))
    return SAME.measure(Estimate.certain(differ), f"{size.users} users; so all other runs are by fedavg")


# --- noise in the ring ---------------------------------------------------------------------------------------------


def run_in_ring(setting: RiskSetting, data: Dataset) -> tuple[AssembledRun, list[Outcome | None]]:
    """Runs Algorithm 1 with noise in the ring, per user, with dropouts; returns the outcome of each round."""
    scenario = msgspec.structs.replace(
        setting.scenario(),
        dropout=DROPPING,
        privacy=Privacy(epsilon=WANTED, delta=DELTA, clip=1.0, dropouts=ALLOWED, colluders=COLLUDERS),
    )
    found = assemble_run(scenario, data=data, secret=REPEATED)
    return found, [step.outcome for step in found.training.steps(scenario.rounds)]


def epsilon_of_sums(noise: SharedNoise, honest: list[int]) -> float:
    """Returns the ε of sums, given the number of honest users whose noise is in each."""
    rho = math.fsum(replace(noise, honest=each).rho for each in honest)
    return epsilon_of(rho, DELTA, gaussian=False)


def ring_rows(setting: RiskSetting, data: Dataset) -> list[Row]:
    """Returns the ε of sums after dropouts, when colluding users know their part of the noise."""
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
    sums = f"{len(summed)} of {len(outcomes)} rounds had a sum, of {min(summed)} to {max(summed)} users"
    return [
        HELD.measure(
            (Estimate.certain(spent), Estimate.certain(real)),
            f"{sums}; noise of {noise.honest} is counted on; for the canary: tacit attack epsilon",
        ),
        TRUSTING.measure(
            Estimate.certain(trusting),
            "accounted for, not run: less noise would be added, and some of it is missing or known",
        ),
    ]


def charts_of(found: Mapping[Sigma, Sequence[RiskRuns]], clean: RiskRuns) -> list[Chart]:
    """Returns the excess against the claimed ε with Theorem 4's bounds, and against the accounted ε."""
    claimed = {}
    for sigma, runs in found.items():
        epsilons = [each.setting.epsilon or 0.0 for each in runs]
        claimed[SIGMAS[sigma]] = epsilons, [each.excess.mean for each in runs]
        claimed[f"Theorem 4 with {SIGMAS[sigma]}"] = epsilons, [each.bound for each in runs]
    ends = [min(EPSILONS), max(EPSILONS)]
    claimed |= {"no noise": (ends, [clean.excess.mean] * 2), "nothing learnt": (ends, [clean.nothing] * 2)}
    real = {
        SIGMAS[sigma]: ([each.worst.exact for each in runs], [each.excess.mean for each in runs])
        for sigma, runs in found.items()
    }
    bounds = tuple(name for name in claimed if name.startswith(("Theorem 4", "no")))
    spread = {SIGMAS[sigma]: [each.excess.deviation or 0.0 for each in runs] for sigma, runs in found.items()}
    axes = "privacy, the less the better (ε)", "excess risk"
    return [
        Chart("Excess risk against the ε that is claimed", *axes, claimed, True, bounds, spread),
        Chart("Excess risk against the ε that is accounted for", *axes, real, True, spread=spread),
    ]


def run(scale: Scale, progress: Progress) -> Result:
    """Runs Algorithm 1 for every ε with either noise."""
    size = SIZES[scale]
    progress("principal components", 0.0)
    data = load_components(size.samples)
    clean = repeat_runs(RiskSetting(None, users=size.users, steps=size.steps), data, size.seeds)
    found: dict[Sigma, list[RiskRuns]] = {sigma: [] for sigma in SIGMAS}
    todo = [(sigma, epsilon) for sigma in found for epsilon in EPSILONS]
    for done, (sigma, epsilon) in enumerate(todo, 1):
        progress(f"ε = {epsilon:g}, {SIGMAS[sigma]}", done / (len(todo) + 2))
        setting = RiskSetting(epsilon, sigma, size.users, size.steps)
        found[sigma].append(repeat_runs(setting, data, size.seeds))
    progress("noise in the ring", (len(todo) + 1) / (len(todo) + 2))
    everything = [*found["paper"], *found["calibrated"]]
    where = f"{data.name}: m = {size.users}, n = {len(data.y) // size.users}, T = {size.steps}, {size.seeds} runs each"
    rows = [
        CLEAN.measure(clean.sides, where),
        *map(accounted_row, everything),
        *map(excess_row, everything),
        falling_row(found["calibrated"], clean),
        cheaper_row(found["calibrated"][0], found["paper"][0]),
        assumption_row([clean, *everything]),
        same_row(size, data),
        *ring_rows(RING, data),
    ]
    progress("ε", 1.0)
    return Result(tuple(rows), tuple(charts_of(found, clean)))


REPRODUCTION = Reproduction(
    name="003-epsilon",
    title="Excess risk against ε, by Theorem 1's noise and by noise that is worth ε, with Theorem 4's bound",
    run=run,
    declared=(
        CLEAN,
        *(declare_claim(sigma, epsilon) for sigma in SIGMAS for epsilon in EPSILONS),
        *(declare_bound(sigma, epsilon) for sigma in SIGMAS for epsilon in EPSILONS),
        FALLING,
        CHEAPER,
        ASSUMED,
        SAME,
        HELD,
        TRUSTING,
    ),
    unstated=(
        *UNSTATED,
        "K = 1 and E = m here, so only sums that contain the noise of all users are seen.",
        "Theorem 1 counts on one noise vector of variance σ² in the average. Algorithm 1 has σ²/m there.",
        "Theorem 4 contains the σ² of Theorem 1. Beside the calibrated σ, its bound is computed with that one.",
    ),
    changed=(
        *CHANGED,
        f"Models of secagg and fedavg are compared after {COMPARED} steps.",
        f"Noise in the ring: {RING.users} users, T = {RING.steps} and one run, at either scale.",
    ),
)
