"""Paper 003, Theorem 4 and Section 5: excess empirical risk against K, the local steps between two averages.

The paper: a larger K saves communication and costs utility, by at most 16 L (K−1)² G²/(λ² (γ+T)), and Theorem 1 gives
the same ε whatever K is.

We take the same T steps with an average after every K of them, among users whose samples are a random part of all
(i.i.d.) or of two chunks by label each (shards), with Theorem 1's σ for ε = 1 and with calibrated noise. K is at most
8 L/λ − 1, so that γ and with it all step sizes are the same for each.

**ε.** With K = 1 what is averaged are gradients, and the noise of all is in the sum. With more steps, a user's second
gradient is taken where its own noise alone has led it, and a sum of models is not a sum of gradients with noise: only
the user's own noise can be counted on, and ε is accounted for by that. It is at most that; if losses were linear, all
noise would count still, so that the truth is at least about what it is with K = 1. Calibrated noise is for the former,
so it is √m times as much with K > 1.
"""

from collections.abc import Mapping, Sequence

from tacit.core.progress import Progress
from tacit.lab.papers.p003.risk import (
    CLAIMED,
    MORE,
    SIGMAS,
    SIZES,
    SPLITS,
    UNSTATED,
    RiskResult,
    RiskSetting,
    Sigma,
    assumption_row,
    average_runs,
    load_components,
)
from tacit.lab.papers.p003.theorems import CONVEXITY, LIPSCHITZ, SMOOTHNESS, exact_epsilon, theorem_delay
from tacit.lab.papers.reproduction import Chart, Reproduction, Result, Row, Scale, unruled_row

KS = (1, 2, 5, 10, 25)


def excess_row(found: RiskResult) -> Row:
    """Returns the excess risk, against Theorem 4's bound."""
    setting = found.setting
    return unruled_row(
        f"excess risk, K = {setting.every}, {setting.split}, {SIGMAS[setting.sigma]}",
        found.bound_text,
        f"{found.excess:.1e}",
        found.within,
        f"σ = {found.sigma:.2g}, {found.accuracy:.1%} right; ε = {found.spent:.3g} by the ledger",
    )


def spent_row(found: RiskResult) -> Row:
    """Returns the ε of the paper's noise, against the claimed one."""
    setting = found.setting
    alone = setting.every > 1
    least = exact_epsilon(found.rho / setting.users) if alone else found.exact
    return unruled_row(
        f"ε accounted for, K = {setting.every}, {SIGMAS[setting.sigma]}",
        f"{CLAIMED:g}",
        f"about {least:.3g} to {found.exact:.3g}" if alone else f"{least:.3g}",
        least <= CLAIMED,
        "if all noise counts, as with linear losses, and if only one's own does" if alone else "all noise counts",
    )


def cost_rows(split: str, found: Sequence[RiskResult]) -> list[Row]:
    """Returns what the largest K costs, and how that compares with what it may cost."""
    first, last = found[0], found[-1]
    every, steps = last.setting.every, last.setting.steps
    term = 16 * SMOOTHNESS * (every - 1) ** 2 * LIPSCHITZ**2 / (CONVEXITY**2 * (theorem_delay(every) + steps))
    lost = last.excess - first.excess
    return [
        unruled_row(
            f"a larger K costs utility, {split}",
            "yes",
            f"{first.excess:.1e} with K = 1, {last.excess:.1e} with K = {every}",
            last.excess > MORE * first.excess,
            f"Theorem 1's σ; {MORE:g} times as much is called more",
        ),
        unruled_row(
            f"what K = {every} costs over K = 1, {split}",
            f"at most {term:.1e} (Section 5)",
            f"{lost:.1e}",
            lost <= term,
            f"θ⁰ loses {last.nothing:.1e}, so a bound above that says nothing",
        ),
    ]


def telling_row(found: Sequence[RiskResult]) -> Row:
    """Returns up to which K the bound says anything."""
    telling = [each.setting.every for each in found if each.bound < each.nothing]
    return unruled_row(
        f"K for which Theorem 4 says more than that θ⁰ is no better, {found[0].setting.split}",
        "",
        ", ".join(map(str, telling)) or "none",
        None,
        f"of {', '.join(str(each.setting.every) for each in found)}, with Theorem 1's σ",
    )


def chart_of(split: str, found: Mapping[Sigma, Sequence[RiskResult]]) -> Chart:
    """Returns the excess against K, with Theorem 4's bound."""
    lines = {SIGMAS[sigma]: (KS, [each.excess for each in runs]) for sigma, runs in found.items()}
    lines["Theorem 4 with Theorem 1's σ"] = (KS, [each.bound for each in found["paper"]])
    lines["nothing learnt"] = (KS, [each.nothing for each in found["paper"]])
    dashed = ("Theorem 4 with Theorem 1's σ", "nothing learnt")
    return Chart(
        f"Excess risk against K, {split}", "local steps (K)", "excess risk", lines, logarithmic=True, dashed=dashed
    )


def run(scale: Scale, progress: Progress) -> Result:
    """Runs Algorithm 1 for every K, with either split and either noise."""
    size = SIZES[scale]
    progress("principal components", 0.0)
    data = load_components(size.samples)
    rows, charts, everything = [], [], []
    todo = [(split, sigma, every) for split in SPLITS for sigma in SIGMAS for every in KS]
    ran: dict[tuple[str, Sigma], list[RiskResult]] = {}
    for done, (split, sigma, every) in enumerate(todo):
        progress(f"K = {every}, {split}, {SIGMAS[sigma]}", done / len(todo))
        setting = RiskSetting(CLAIMED, sigma, size.users, size.steps, every, split=split)
        ran.setdefault((split, sigma), []).append(average_runs(setting, data, size.seeds))
    for split in SPLITS:
        found: dict[Sigma, list[RiskResult]] = {sigma: ran[split, sigma] for sigma in SIGMAS}
        everything += [each for runs in found.values() for each in runs]
        rows += [excess_row(each) for runs in found.values() for each in runs]
        rows += [*cost_rows(split, found["paper"]), telling_row(found["paper"])]
        charts.append(chart_of(split, found))
    rows += [spent_row(each) for each in ran["i.i.d.", "paper"][:2]]
    progress("K", 1.0)
    return Result((*rows, assumption_row(everything)), tuple(charts))


REPRODUCTION = Reproduction(
    name="003-k",
    title="Excess risk against the number of local steps between averages, with Theorem 4's bound",
    run=run,
    unstated=(
        *UNSTATED,
        "the printed bound needs K ≤ 8 L/λ − 1: else γ = K, and the last step of (13) needs λ (γ + 1)/4 for 2 L",
        "Lemma 3 bounds how far users drift apart by their gradients, and forgets their noise, which drifts too",
        "(12) leaves the last term of B out, and Lemma 2 has its two cases the wrong way round; Theorem 4 is as meant",
        "Theorem 1 does not say how ε depends on K; see the rows on ε",
        "small: 12,000 samples, T = 200, two runs each; paper: all samples, T = 500, three runs each",
    ),
)
