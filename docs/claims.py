"""Writes the generated tables of docs/claims.md: claims, their verdicts, and counterexamples, computed anew each time.

`python docs/claims.py` runs the audits and replaces what is between the marks of the page. With `--check` it writes
nothing, and exit code 1 says that the page is out of date. `docs/attacks.py` writes the table of attacks there.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

import tacit
from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.designs import Batches, Random, graphs, groups, secure_degree
from tacit.lab import papers
from tacit.lab.attacks import eavesdropper_decoding, epsilon
from tacit.lab.attacks.lies import search, variants

RUNS = 20
PAGE = Path(__file__).with_name("claims.md")
REPRODUCED = Path(__file__).with_name("reproductions.json")


class Finding(NamedTuple):
    """Guarantee of a paper, with the result of its audit."""

    claim: str
    verdict: str
    evidence: str
    smallest: str
    """Smallest counterexample that was found."""
    holds: str


NONE = "none found"


def learns(protocol: str, coalition: list[str], **settings: object) -> int:
    """Returns how many vectors a coalition recovers; raises if a recipe does not recover its victim."""
    report = tacit.audit(protocol, coalition=coalition, **settings)
    if any(error > 1e-2 for error in report.errors.values()):
        raise AssertionError(f"a recipe of {protocol} does not recover its victim: {report.errors}")
    return len(report.exposed)


# --- claims that were run again, by the verdicts of docs/reproductions.json -----------------------------------------


class Claim(NamedTuple):
    """Claim that rows of a reproduction test."""

    text: str
    name: str
    """Name of the reproduction."""
    about: tuple[str, ...]
    """First words of these rows; all rows if empty."""
    holds: str


GAP = "CESAR minus D-PSGD, accuracy"
CLAIMS = (
    Claim(
        "000, Table II: SecureD-FL is as accurate as FedAvg, and more so than training alone",
        "000-table2",
        (),
        "the accuracy of the average, if iterations suffice: see Lemma II.2",
    ),
    Claim(
        "000, Section VI-B: SecureD-FL learns as FedAvg does, and training alone loses more with more peers",
        "000-fig3",
        (),
        "an average that is exact after two iterations: see Lemma II.2",
    ),
    Claim(
        "000, Fig. 4: the error of the average falls below 10⁻¹³ after four iterations",
        "000-fig4",
        (),
        "an error of ρ/(ρ + 2) a step, from that of the first iteration on",
    ),
    Claim(
        "000, Fig. 5: beyond one iteration, their number makes a negligible difference to the accuracy",
        "000-fig5",
        ("accuracy with",),
        "two iterations with a ρ for each, four with a constant ρ",
    ),
    Claim(
        "000, Section VI-D: Algorithm 2 finds nearly as many partitions as there can be",
        "000-fig6",
        (),
        "`tacit.designs.groups`, by design theory",
    ),
    Claim(
        "001, Section 4.2: PPSGD reaches w* without sacrificing accuracy, after around 20 rounds",
        "001-fig3",
        (),
        "narrow distributions of y_i(0), with steps that decrease as 1/t",
    ),
    Claim(
        "001, Section 4.2, with other step sizes than 1/(2t)",
        "001-steps",
        (),
        "1/t and 1/(2t); the paper states none",
    ),
    Claim(
        "001, Section 4.3: an eavesdropper tells a changed loss less often under PPSGD",
        "001-fig4",
        ("weak", "strong", "PPSGD", "PSGD with", "decoded"),
        "sealed links",
    ),
    Claim(
        "001, Section 4.4: the larger the variance of y_i(0), the smaller its accuracy; PPSGD hides more than noise",
        "001-table3",
        ("accuracy", "decoded"),
        "an eavesdropper that listens for five rounds decodes for any y_i(0)",
    ),
    Claim(
        "001, Section 4.4: without y_i(t) an eavesdropper does worse under PPSGD, and no worse under PSGD",
        "001-table3",
        ("accuracy that",),
        "both, for eavesdroppers that learn from runs",
    ),
    Claim(
        "001, Section 4.5: on the Boston housing data, too, it is less accurate under PPSGD",
        "001-fig7",
        (),
        "for few rounds and small changes",
    ),
    Claim(
        "002: least squares reconstruct gradients under random selection, and not with T = 2",
        "002-reconstruction",
        (),
        "batches that stay whole, and whose members hold different data",
    ),
    Claim(
        "002, theorem: the fairness gap F is 0",
        "002-cardinality",
        ("F,",),
        "F = 0 where all users drop out equally often",
    ),
    Claim(
        "002, theorem: C(T) users take part on average; C(6) = 11.77 for N = 120, K = 12, p = 0.2",
        "002-cardinality",
        ("C(6), p", "settings in which C"),
        "the formula, with equal p; 11.77 is truncated, not rounded",
    ),
    Claim(
        "002, theorem: Multi-RoundSecAgg has multi-round privacy T",
        "002-cardinality",
        ("T by the audit",),
        "`participation=Batches(K, T)`",
    ),
    Claim(
        "002, baselines: user partitioning has T = group size, random selection T = 1; a larger T costs users a round",
        "002-cardinality",
        ("T by the audit, Random", "T by the audit, User", "C of Random", "C(2)", "C(3)", "C(4)", "C(6):", "C(12)"),
        "the trade-off, which is only drawn: C falls as T grows",
    ),
    Claim(
        "002, additional slides: any strategy with privacy T has a batch partitioning structure",
        "002-optimality",
        ("families", "settings with T dividing N and K in which a family", "of one family"),
        "batches of T or more, not of exactly T",
    ),
    Claim(
        "002, additional slides: such a strategy has at most C(N/T, K/T) sets, as batch partitioning has (optimality)",
        "002-optimality",
        ("settings in which a family", "settings with T dividing N and K in which R_max"),
        "every family of up to eight users, by exhaustive search",
    ),
    Claim(
        "002, additional slides: the relaxed privacy T = 2 has B_new, with twice as many sets as B_old",
        "002-optimality",
        ("different sets", "relaxed T", "most sets"),
        "against the server alone; together with one user it learns all vectors",
    ),
    Claim(
        "002, convergence: E[L(x)] − L* is below the bound, and C controls the rate",
        "002-convergence",
        (),
        "with Γ and ‖x⁰ − x*‖² as in Li et al. 2019, and participation that is the same for all users",
    ),
    Claim(
        "002, experiments: Batches are about as accurate as Random, User Partitioning is far behind",
        "002-accuracy",
        ("Batches", "Partition"),
        "few rounds; longer trainings are open",
    ),
    Claim(
        "003, Lemma 2: one step brings θ̄ closer to θ*, (3)", "003-lemmas", ("Lemma 2",), "every step that was traced"
    ),
    Claim(
        "003, Lemma 3: users stay within (9) of each other, and a mean of E within (10) of that of all",
        "003-lemmas",
        ("Lemma 3",),
        "(9) for the models after averaging; both only while noise is small, because they do not include it",
    ),
    Claim(
        "003, Theorem 4: the excess risk is below (11)",
        "003-epsilon",
        ("what θ⁰ loses", "power of ε", "longest"),
        "K = 1 and large E, where the bound is below the loss of θ⁰",
    ),
    Claim(
        "003, Section 5: a larger K costs utility", "003-k", ("excess", "power", "what θ⁰"), "where users' data differ"
    ),
    Claim("003, Section 5: a smaller E costs utility", "003-e", ("excess", "power", "what θ⁰"), "as (m−E)/((m−1) E)"),
    Claim("003, Section 5: a larger K and a smaller E reduce communication", "003-bytes", (), "bytes as 1/K"),
    Claim(
        "004, Theorem 6 and Corollary 7: a share β(α, δ, s) of entries is sent",
        "004-table2",
        (),
        "random selections, on regular graphs",
    ),
    Claim(
        "004, Section 4.6.4: with 15 colluding nodes of 100 the risk is 1.45 % at s = 9, and none from s = 13 on",
        "004-fig6",
        ("graphs at risk, 15", "the same if two"),
        "the number of masks that colluders know; not if two of them compare their sums",
    ),
    Claim(
        "004, abstract: with random subsampling CESAR is within 0.5 points of the accuracy of D-PSGD",
        "004-table3",
        tuple(f"{GAP} {how}: cifar10 shards" for how in ("over nodes", "of the mean of all models")),
        "β = 30 %, eight nodes and few rounds: not the paper's size",
    ),
    Claim(
        "004, abstract: with random subsampling it adds 11 % of data; Section 4.6.2: with TopK 12 to 35 %",
        "004-table3",
        ("bytes of CESAR over D-PSGD",),
        "less as deployed: the common neighbour relays selections, and models are sent without them",
    ),
    Claim(
        "004, Section 4.6.1: CESAR replaces D-PSGD on other data sets, too, with the same settings",
        "004-fig3",
        (),
        "CIFAR-10 and MovieLens, at small scale; CelebA was not run",
    ),
    Claim(
        "004, Sections 3.4.3 and 4.6.3: the prestep grows with the number of nodes two hops away",
        "004-table4",
        ("nodes two hops away", "GB of the prestep by the paper's rule", "growth of the prestep"),
        "the paper's messages; as deployed it takes less",
    ),
    Claim(
        "004, Appendix A: the bytes of a node hardly depend on the number of nodes",
        "004-table5",
        ("GB of parameters", "GB of overhead by the paper's rule", "growth of the overhead from 48 to 288 nodes, by"),
        "as deployed, they do not depend on it",
    ),
    Claim(
        "004, Table 3 and Fig. 3 on 48 nodes, with 50 and 30 % shared: shares and bytes of CESAR and D-PSGD",
        "004-nodes",
        (),
        "bytes, and shares of random selections; few rounds, so TopK's share and accuracy are open",
    ),
)
CONFIRMED, REFUTED, PARTLY, OPEN = "confirmed", "refuted", "refuted in part", "not comparable"
COMPARABLE = "agrees where comparable"


def _judge(agree: int, differ: int, rows: int) -> str:
    """Returns the verdict on a claim. A claim most of whose rows cannot be compared is not confirmed."""
    if differ:
        return PARTLY if agree else REFUTED
    if not agree:
        return OPEN if rows else "not run"
    return CONFIRMED if 2 * agree >= rows else f"{COMPARABLE}: {agree} of {rows} rows"


def reproduced(claim: Claim) -> Finding:
    """Returns the result of the rows of a claim; the paper's scale has the last word on a row."""
    kept = json.loads(REPRODUCED.read_text(encoding="utf-8"))
    results = [kept.get(f"{claim.name} {scale}", {"rows": []}) for scale in ("small", "paper")]
    identify = papers.find(claim.name).identify
    rows: dict[str, Any] = {identify(row["what"]): row for result in results for row in result["rows"]}
    # Rows on lemmas name the lemma behind a colon.
    about = [
        row
        for what, row in rows.items()
        if not claim.about or what.startswith(claim.about) or what.partition(": ")[2].startswith(claim.about)
    ]
    counts = Counter(row["verdict"] for row in about)
    agree, differ = counts["agrees"], counts["differs"]
    others = Counter(row["verdict"] for row in rows.values() if row not in about)
    rest = others.total()
    more = (
        f"; {rest} other row{'s' * (rest > 1)} of this run test{'s' * (rest == 1)} something else "
        f"({others['agrees']} agree, {others['differs']} differ)"
        if rest
        else ""
    )
    off = next((row for row in about if row["verdict"] == "differs"), None)
    return Finding(
        claim.text,
        _judge(agree, differ, len(about)),
        f"[{claim.name}](reproductions/{claim.name[:3]}.md): of {len(about)} rows {agree} agree, {differ} differ, "
        f"{len(about) - agree - differ} cannot be compared{more}",
        NONE if off is None else f"{off['what']}: {off['ours']} (paper: {off['paper']})".replace("|", "\\|"),
        claim.holds,
    )


# --- claims that are computed here ----------------------------------------------------------------------------------


def convergence() -> list[Finding]:
    """Lemmas II.1, II.2 and IV.1 of paper 000."""
    rng, n, rho = np.random.default_rng(0), 9, 0.1
    w, lambda_, z = rng.normal(1.0, size=n), rng.uniform(size=n), 0.0
    sums, errors = [], []
    for _ in range(5):  # Algorithm 1
        x = (2 * w - lambda_ + rho * z) / (2 + rho)
        z = float(np.mean(x + lambda_ / rho))
        lambda_ = lambda_ + rho * (x - z)
        sums.append(abs(float(lambda_.sum())))
        errors.append(abs(z - float(w.mean())))
    rates = [after / before for before, after in pairwise(errors)]
    patterns = {n: groups(n, 3) for n in (9, 15, 21)}
    again = sum(
        len({i for i, partition in enumerate(found.partitions) if any({a, b} <= set(g) for g in partition)}) > 1
        for found in patterns.values()
        for a in range(sum(map(len, found.partitions[0])))
        for b in range(a)
    )
    return [
        Finding(
            "000, Lemma II.1: after every iteration the dual variables λ add up to zero",
            CONFIRMED,
            f"Algorithm 1, nine peers, random λ⁰, five iterations: their sum is off zero by {max(sums):.0e} at most",
            NONE,
            "from the end of the first iteration on",
        ),
        Finding(
            "000, Lemma II.2: z converges to the average linearly, at a rate of ρ/(ρ + 2)",
            "confirmed, from the second iteration on",
            f"Algorithm 1, nine peers, ρ = {rho:g}: the error falls by {', '.join(f'{each:.4f}' for each in rates)} in "
            f"iterations 2 to 5, and ρ/(ρ + 2) is {rho / (rho + 2):.4f}",
            f"the first iteration, where Σ λ⁰ is not zero: an error of {errors[0]:.2g} of an average of {w.mean():.2g}",
            "a ρ for each iteration (`rho=(0.1, 0.00005)`)",
        ),
        Finding(
            "000, Lemma IV.1: a design B(n, s, 1) with resolution k gives a gap of k",
            CONFIRMED,
            f"9, 15 and 21 peers in threes: gaps {', '.join(str(each.gap) for each in patterns.values())}; {again} "
            "pairs meet twice within them",
            NONE,
            "`tacit.designs.groups`",
        ),
    ]


def observations() -> list[Finding]:
    """Observations 1 to 3 of paper 001."""
    named = {
        "1: FedAvg": ("fedavg", "one step between rounds"),
        "2: CBGD": ("gossip", "its own model"),
        "3: PSGD": ("pushsum", ""),
    }
    found = []
    for name, (protocol, which) in named.items():
        target = next(
            each for each in eavesdropper_decoding.TARGETS if each.protocol == protocol and each.name.endswith(which)
        )
        runs = [eavesdropper_decoding.run_target(target, seed) for seed in range(RUNS)]
        heard = sum(bool(eavesdropper_decoding.find_recovered(run, sealed=False).all()) for run in runs)
        sealed = sum(bool(eavesdropper_decoding.find_recovered(run, sealed=True).any()) for run in runs)
        found.append(
            Finding(
                f"001, Observation {name} does not protect local models of linear regression",
                CONFIRMED if heard == RUNS else PARTLY,
                f"five clients, {target.rounds} rounds over open links: all local optima decoded in {heard} of {RUNS} "
                f"runs; over sealed links in {sealed}",
                "the example itself",
                "Tacit always encrypts (seals) links, which the paper's eavesdropper cannot decrypt",
            )
        )
    return found


def random_selection() -> list[Finding]:
    """The theorem on random selection of paper 002."""
    shares, late = [], []
    for users, asked in ((10, 4), (20, 8), (40, 8)):
        asking = {"parties": users, "coalition": ["server"], "drift": "static", "participation": Random(asked)}
        reports = [tacit.audit("secagg", rounds=2 * users, seed=seed, **asking) for seed in range(3)]
        first = [report.safe_rounds + 1 for report in reports]
        shares.append(f"N = {users}: {', '.join(map(str, first))}")
        late += [f"N = {users}, {rounds} rounds" for rounds in first if rounds > users]
    return [
        Finding(
            "002, theorem: under random selection N rounds show all models, with probability 1 − exp(−cN) at least",
            CONFIRMED,
            f"rounds after which the server knows a model, by the audit of three seeds each: {'; '.join(shares)}",
            f"with other seeds it takes longer: {', '.join(late)}" if late else NONE,
            "`participation=Batches(K, T)`",
        )
    ]


def admm() -> list[Finding]:
    """Paper 000."""
    both = learns("admm", ["p0"], parties=9, group_size=None, iterations=2)
    counts = [learns("admm", ["p0"], parties=9, group_size=3, iterations=i) for i in range(1, 9)]
    first = next(i for i, count in enumerate(counts, start=1) if count)
    kirkman = [learns("admm", ["p0"], parties=15, group_size=3, iterations=i) for i in (5, 6)]
    pairs = tacit.audit("admm", parties=9, coalition_size=2, group_size=3, iterations=2)
    four = tacit.audit("admm", parties=9, coalition_size=2, group_size=3, iterations=4)
    masked = [
        report
        for size in (1, 2)
        for report in tacit.audit("admm", parties=9, coalition_size=size, group_size=3, iterations=4, masked=True)
    ]
    n, gap, iterations, shown = smallest_admm()
    return [
        Finding(
            "000, Lemma III.1: in all-to-all communication two iterations show the vectors of all peers",
            "confirmed",
            f"nine peers, two iterations: one peer learns {both} of the 8 others",
            "the example itself",
            "without masks, more than one iteration all to all is refused",
        ),
        Finding(
            "000, Theorem III.2: with gap t_g, 2·t_g − 1 iterations show a curious peer no vector",
            "refuted",
            f"nine peers, t_g = 4, iterations 1 to 8: {', '.join(map(str, counts))} vectors exposed, so iteration "
            f"{first} is "
            f"one too many; fifteen peers, t_g = 7, iterations 5 and 6: {kirkman[0]} and {kirkman[1]} of 14; two peers "
            f"together, two iterations: {sum(bool(pair.exposed) for pair in pairs)} of {len(pairs)} pairs learn a "
            "vector; "
            f"after four, {sum(len(pair.exposed) == 7 for pair in four)} of them learn all others",
            f"{n} peers in threes, t_g = {gap}: {shown} exposed at iteration {iterations} of {2 * gap - 1}",
            f"`masked=True` and at most 4 iterations: {sum(bool(each.exposed) for each in masked)} of {len(masked)} "
            f"single peers and pairs of nine learn a vector",
        ),
    ]


def smallest_admm() -> tuple[int, int, int, int]:
    """Returns the fewest peers in threes for which Theorem III.2 fails: how many, t_g, iterations, and the exposed."""
    for n in count(4):
        gap = groups(n, 3).gap
        for iterations in range(1, 2 * gap):
            exposed = learns("admm", ["p0"], parties=n, group_size=3, iterations=iterations)
            if exposed:
                return n, gap, iterations, exposed
    raise AssertionError("there is always one")


def secagg() -> list[Finding]:
    """Papers 002 and 003."""
    alone = learns("secagg", ["server"], parties=6)
    helped = learns("secagg", ["server", "p0", "p1"], parties=6, threshold=4)
    drops = {"action": "drop", "message": "MaskedInput", "chance": 0.1}
    several = {"parties": 40, "coalition": ["server"], "rounds": 2000, "faults": [drops]}
    whole = tacit.audit("secagg", participation=Batches(8, 2), **several)
    partial = tacit.audit("secagg", participation=Batches(8, 2, partial=True), **several)
    random = tacit.audit("secagg", participation=Random(8), **several)
    once = [{"action": "drop", "message": "MaskedInput", "party": "p1", "round": 1}]
    least = tacit.audit(
        "secagg", parties=4, coalition=["server"], rounds=2, faults=once, participation=Batches(4, 2, partial=True)
    )
    return [
        Finding(
            "002: batch partitioning never singles out a sum of fewer than T users, in any number of rounds",
            "confirmed, if batches stay whole",
            f"40 users, K = 8, T = 2, 2000 rounds in which a tenth drops out, static models: anonymity set "
            f"{whole.smallest_group} with whole batches; {partial.smallest_group}, and {len(partial.exposed)} users "
            f"exposed, if the rest of an incomplete batch is summed; {random.smallest_group} after "
            f"{random.safe_rounds + 1} "
            f"rounds of random participation",
            "if the rest of an incomplete batch is summed: 4 users, 2 rounds, one dropout: "
            f"{', '.join(least.exposed)} is exposed",
            "`participation=Batches(K, T)`, which clients enforce",
        ),
        Finding(
            "003, Section 3: the server learns the sum over the chosen users and nothing else",
            "confirmed, in one round",
            f"six users: the server alone learns {alone} vectors; with two users and a threshold of 4 it learns "
            f"{helped}",
            NONE,
            "a threshold above half the holders; less is refused",
        ),
        *noise(),
    ]


def noise() -> list[Finding]:
    """Paper 003, Theorem 1."""
    zcdp = [epsilon.theorem_game(users, epsilon.ROUNDS).account("zcdp") for users in (1, 10, 100, 1000)]
    fewest = next(users for users in count(1) if epsilon.theorem_game(users, epsilon.ROUNDS).account("pld") > 1)
    tight = epsilon.theorem_game(fewest, epsilon.ROUNDS).account("pld")
    enough = epsilon.sum_game(epsilon.ROUNDS, honest=10, accountant="zcdp").account("zcdp")
    return [
        Finding(
            "003, Theorem 1: noise of that σ at each user makes Algorithm 1 (ε, δ)-differentially private",
            "refuted, if more than one user adds it",
            "claimed ε = 1 (δ = 1e-5, G = 1, n = 100, T = 100), ε by zCDP for 1, 10, 100 and 1000 users: "
            + ", ".join(f"{each:.3g}" for each in zcdp),
            f"{fewest} users: ε = {tight:.3g} by privacy loss distributions, which are tight",
            f"`tacit.privacy.user_sigma`, which counts honest users only: ε = {enough:.3g} for ten",
        )
    ]


def pushsum() -> list[Finding]:
    """Paper 001."""
    plain = learns("pushsum", ["p0"], parties=5)
    masked = learns("pushsum", ["p0"], parties=5, masked=True)
    onlooker = tacit.audit("pushsum", parties=5, coalition=["onlooker"], private=True, rounds=6)
    target = next(each for each in eavesdropper_decoding.TARGETS if "private" in each.options and each.rounds == 5)
    runs = [eavesdropper_decoding.run_target(target, seed) for seed in range(RUNS)]
    heard = sum(bool(eavesdropper_decoding.find_recovered(run, sealed=False).all()) for run in runs)
    sealed = sum(bool(eavesdropper_decoding.find_recovered(run, sealed=True).any()) for run in runs)
    return [
        Finding(
            "001, Section 3.3: random y_i(0) and p_ii keep an eavesdropper from decoding the local models",
            "refuted",
            f"the paper's five clients, {target.rounds} rounds over open links: all local optima decoded to "
            f"{eavesdropper_decoding.TOLERANCE:g} in {heard} of {RUNS} runs; over sealed links in {sealed}",
            "one client: after three gradient steps at most four values of y_i(0) are possible, after a fourth "
            "step only one",
            f"Tacit always seals links: an eavesdropper learns {len(onlooker.exposed)} vectors. A curious receiver "
            f"learns {plain} of 4 in one round, and {masked} of 4 with `masked=True`",
        )
    ]


def cesar() -> list[Finding]:
    """Paper 004."""
    i, j, q, m, k, other = range(6)
    edges = [(k, i), (k, j), (k, q), (other, i), (other, j), (other, q), (other, m), (m, i), (m, j)]
    nested = nx.Graph([*edges, (m, q), (i, j), (i, q)])
    single = sum(learns("cesar", [f"p{node}"], parties=6, graph=nested, masking=2) for node in range(6))
    pair = tacit.audit("cesar", parties=6, coalition=[f"p{k}", f"p{other}"], graph=nested, masking=2)
    wide = tacit.audit("cesar", parties=10, coalition_size=2, graph=graphs.regular(10, 3, 5), masking=2)
    least, members, victims = smallest_cesar()
    ends = ", ".join(f"{a}–{b}" for a, b in sorted(nx.complement(least).edges)) or "none"
    return [
        Finding(
            "004, Theorem 1: no honest-but-curious node learns a neighbour's parameter",
            "confirmed, in one round",
            f"six nodes, s = 2: each of them alone learns {single} vectors",
            "over several rounds of static models some are learnt (`tacit audit cesar --set share=0.5 --rounds 3`)",
            "one round; over rounds of static models, audit the graph",
        ),
        Finding(
            "004, Theorem 5: with masking requirement k, no k colluding nodes learn a neighbour's parameter",
            "refuted",
            f"s = 2, two receivers with views {{i, j, q}} and {{i, j, q, m}}: they learn {len(pair.exposed)} vector, "
            f"that of m",
            f"s = 2, {len(least)} nodes, all neighbours except {ends}: {' and '.join(members)} learn the vector of "
            f"{', '.join(victims)}",
            f"graphs without cycles shorter than five, and s no less than the number of colluders: "
            f"{sum(bool(each.exposed) for each in wide)} of {len(wide)} pairs of ten nodes learn a vector",
        ),
    ]


def lemmas_of_cesar() -> list[Finding]:
    """Lemmas 3 and 4 of paper 004, and its claim that TopK does better."""
    rng, unequal, counted = np.random.default_rng(0), 0, 0
    for degree in (3, 6):
        graph = graphs.regular(12, degree)
        selected = rng.random((12, 1000)) < 0.4
        for k in graph:
            view = selected[sorted(graph[k])]
            # Algorithm 3, lines 5 to 7: a mask with each other neighbour of k that selected the entry, too.
            masks = [(view[i] & np.delete(view, i, axis=0)).sum(axis=0) for i in range(degree)]
            for i, own in enumerate(masks):
                for other, theirs in zip(view[:i], masks[:i], strict=True):
                    both = view[i] & other
                    unequal, counted = unequal + int((own != theirs)[both].sum()), counted + int(both.sum())
    cases = list(product((0, 1), repeat=6))
    worse = [case for case in cases if _exposes(case, joined=True) and not _exposes(case, joined=False)]
    least = min(worse, key=sum)
    first, second = ("{" + ", ".join(f"N{i + 1}" for i in range(3) if part[i]) + "}" for part in (least[:3], least[3:]))
    kept = json.loads(REPRODUCED.read_text(encoding="utf-8"))["004-table3 small"]["rows"]
    gaps = [float(row["ours"].split()[0]) for row in kept if row["what"].startswith(GAP) and "TopK" in row["what"]]
    better = sum(gap > 0 for gap in gaps)
    return [
        Finding(
            "004, Lemma 3: at an entry, all neighbours that send it to a node apply the same number of masks",
            PARTLY if unequal else CONFIRMED,
            f"12 nodes, degrees 3 and 6, 1000 entries, each selected with probability 0.4: of {counted:,} pairs of "
            "senders that "
            f"selected the same entry, {unequal} differ in their number of masks",
            NONE,
            "both senders of a pair find the same entries to mask, which `cesar` relies on",
        ),
        Finding(
            "004, Lemma 4: adversaries can be joined to a clique without worsening the privacy of trusted nodes",
            REFUTED if worse else CONFIRMED,
            f"s = 2, two adversaries and three trusted nodes: in {len(worse)} of {len(cases)} ways to link them, a "
            "link between the adversaries exposes a trusted node that was not exposed: its masks count, so a sum is "
            "sent "
            "that was not sent before",
            f"neighbours {first} and {second}: the adversaries learn a vector once they are linked",
            "masks of colluding nodes count for s although they protect no node: see Theorem 5",
        ),
        Finding(
            "004, abstract and conclusion: CESAR surpasses the accuracy of D-PSGD with TopK, by up to 0.3 points",
            CONFIRMED if better == len(gaps) else PARTLY if better else "not confirmed at small scale",
            f"[004-table3](reproductions/004.md), at small scale (eight nodes, few rounds): {better} of {len(gaps)} "
            "gaps "
            f"are above zero; they are {min(gaps):+.2f} to {max(gaps):+.2f} points",
            f"a gap of {min(gaps):+.2f} points",
            "within half a point of D-PSGD",
        ),
    ]


def _exposes(links: tuple[int, ...], *, joined: bool) -> bool:
    """Says whether two adversaries solve for one of three trusted nodes, of an entry that all select, with s = 2."""
    heard = [np.array(links[:3]), np.array(links[3:])]
    sums = [row for row in heard if row.sum() + joined >= 3]  # an entry needs two masks, so three senders
    return bool(sums) and smallest_support(np.array(sums, np.int64)) == 1


def same_batches() -> list[Finding]:
    """The theorem on batches and non-linear mixtures of paper 002."""
    report = tacit.audit(
        "secagg", parties=8, coalition=["server"], drift="static", rounds=40, participation=Batches(4, 2)
    )
    rows = report.rows
    if rows is None:
        raise AssertionError("an audit of whole vectors has rows")
    alike = [(a, b) for a in range(8) for b in range(a) if (rows[:, a] == rows[:, b]).all()]
    return [
        Finding(
            "002, theorem: models of one batch cannot be separated, even by non-linear mixtures of the sums",
            CONFIRMED if len(alike) == 4 else PARTLY,
            f"eight users, K = 4, T = 2, 40 rounds: the members of {len(alike)} of 4 batches have the same factor in "
            f"all {len(rows)} independent sums; adding any vector to one member and subtracting it from the other "
            "changes no "
            "sum, and no result computed from sums",
            NONE,
            "static models, in batches that stay whole",
        )
    ]


def smallest_cesar() -> tuple[nx.Graph, tuple[str, ...], list[str]]:
    """Returns the smallest graph, and of those the one with fewest edges, in which two nodes break s = 2."""
    for graph in nx.graph_atlas_g():  # by nodes, then by edges
        if len(graph) < 4 or min(dict(graph.degree).values()) < 3 or not nx.is_connected(graph):
            continue
        for report in tacit.audit("cesar", parties=len(graph), coalition_size=2, graph=graph, masking=2):
            if report.exposed:
                return graph, report.coalition, list(report.exposed)
    raise AssertionError("there is one of at most seven nodes")


# --- what Tacit claimed itself -------------------------------------------------------------------------------------


class Own(NamedTuple):
    """Earlier claim of Tacit, with its verdict, what refuted it, and what holds now."""

    claim: str
    verdict: str
    broken: str
    holds: str


def lie(lacking: str) -> str:
    """Returns the first lie that works on a variant of `secagg` without some precaution, carried out on real keys."""
    with variants.use_variant(lacking) as variant:
        found = next(search.Search(variant.case).breaks())
        if found.error() > search.CLOSE:
            raise AssertionError(f"a lie does not recover what it says: {lacking}")
        return f"{variant.case}: {found.story}; the server learns {found.known_basis}"


def own() -> list[Own]:
    """Claims on the page of `secagg`, in the threat model and elsewhere that did not hold."""
    now = secure_degree(1000, 0.05, 0.1)
    return [
        Own(
            "the server learns no other sum, even if it breaks the rules together with 2·threshold − holders − 1 of "
            "the holders of a user's shares",
            "refuted: nobody signed U3",
            lie("U3 signed by nobody"),
            "users tag U2 and U3 with their masked vectors; a user releases no share of b_v if user v received "
            "other sets "
            "(`test_a_victim_that_masks_only_with_the_dropped`)",
        ),
        Own(
            "with `neighbours=k` nobody chooses the order of the circle",
            "refuted: each user computed the order from the U2 that the server sent",
            lie("U2 signed by nobody"),
            "keys of masks and shares follow from U2, and U2 has at least `fewest` users "
            "(`test_a_circle_of_the_servers_choosing`)",
        ),
        Own(
            "nobody releases shares before `threshold` holders signed the very same set",
            "true, but not enough in a sparse graph",
            lie("consents are local"),
            "more than two thirds of U2 must consent to U2, U3 and U5 (`test_two_stories_along_the_circle`)",
        ),
        Own(
            "clients refuse to sum a single user, and `secure_degree` makes a circle fail with probability "
            "2^-security_bits at most",
            "refuted: U2 and U5 had no lower bound, and the degree did not allow for a small U2",
            lie("no lower bound"),
            "`fewest` bounds U2 and U5; `secure_degree` allows for a small U2 and for a server that tries many "
            "U2: for 1000 users, "
            f"a twentieth corrupted and a tenth missing, degree {now[0]} and threshold {now[1]} "
            f"(`test_a_server_with_many_friends_and_one_victim`, `test_disjoint_sums_in_one_round`)",
        ),
        Own(
            "with `Batches(K, T)` no combination of sums singles out fewer than T parties, and clients enforce it",
            "refuted: a client refused only after it had sent its masked vector, and stored only the sums that "
            "it received",
            "a changed roster, or another T: anonymity set 1 where 2 was promised",
            "a client has one batch for life, and records the batch before it sends its vector "
            "(`test_a_changed_roster_cannot_break_up_batches_of_the_past`, `test_another_t_is_another_batch`, "
            "`test_whoever_does_not_hear_what_became_of_its_vector_remembers_its_batch`)",
        ),
        Own(
            "different sums for different parties are not covered",
            "true, and can be prevented",
            "all users but one receive a model without a gradient: the next average is the update of that user "
            "(`test_as_it_was_the_next_average_is_the_victims_update`)",
            "users sign the lineage of their model, and mask only with users of equal lineage "
            "(`test_whoever_was_told_something_else_is_not_summed_with_the_others`)",
        ),
        Own(
            "users who sign the last sum they received do not mask with users who continue from another model",
            "refuted: the last sum that a user received is not the model that it continues from",
            "a last sum without a model, a change of the roster, other arrays on Flower, a sum that no model can hold, "
            "a lie about an earlier change: with each of these the server learns one update",
            "users sign a hash chain of everything that their model was trained from; the chain changes only "
            "with the model "
            "(`test_a_last_sum_is_only_signed_with_the_model_that_it_delivers`, "
            "`test_a_change_of_the_roster_does_not_forget_a_lie`, "
            "`test_nodes_do_not_mask_with_a_node_that_was_asked_something_else`)",
        ),
        Own(
            "one round reveals one sum",
            "refuted for a loop of calls: `aggregate` drew everything from `seed=0`",
            "two calls with the same parties: the difference of the server's views is the difference of two updates",
            "keys come from the operating system; with a seed, two runs share a key only if they are the same run "
            "(`test_a_loop_of_calls_shows_the_server_nothing_by_subtraction`)",
        ),
        Own(
            "in `cesar`, masks are fresh for each receiver, attempt and set, so a receiver that lies gets noise",
            "refuted: masks depended on the rank of an entry, not on its position",
            "a receiver that knows one neighbour's model reads all 80 of 200 entries that another selected "
            "(`test_it_would_if_masks_followed_from_rank`)",
            "masks also depend on positions "
            "(`test_a_receiver_that_lies_about_positions_lays_nobodys_entries_over_known_ones`)",
        ),
        Own(
            "of weights the server learns only the sum",
            "refuted: weights were split into parts (limbs), and the server learnt the sum of each part",
            "two weights whose sum is known: 160 of 360 pairs remain possible "
            "(`test_of_weights_that_are_summed_nothing_shows_but_their_sum`)",
            "a weight is one number in the ring, and whole weights are not rounded",
        ),
        Own(
            "`pushsum` continues from its saved state after any loss or error",
            "refuted: after a bad or missing message in round 1, every later round failed",
            "a mass after which the sum of masses is not positive",
            "masses whose sum is not positive are rejected "
            "(`test_a_mass_that_leaves_nothing_is_not_taken_and_forgotten_when_it_comes_right`)",
        ),
        Own(
            "a client that breaks the rules excludes no other client from a round",
            "refuted, and withdrawn: a client can exclude clients to which it sends shares that cannot be decrypted",
            "also, two of six clients padded their shares for a third client, and the server's message to it "
            "became too long",
            "fields of known length must have exactly this length "
            "(`test_padded_shares_remove_whoever_padded_them_and_nobody_else`); for the rest, see the [threat "
            "model](threat-model.md#clients-that-work-together)",
        ),
    ]


AUDITS: tuple[Callable[[], list[Finding]], ...] = (
    admm,
    convergence,
    pushsum,
    observations,
    random_selection,
    secagg,
    same_batches,
    cesar,
    lemmas_of_cesar,
)


PAPERS = {
    "000": "SecureD-FL (admm)",
    "001": "PPSGD (pushsum)",
    "002": "Multi-RoundSecAgg (secagg with batches)",
    "003": "DP-ERM under secure aggregation (secagg with noise)",
    "004": "CESAR (cesar)",
}
CLASSES = {
    "confirmed": lambda verdict: verdict == CONFIRMED,
    "confirmed, under a condition": lambda verdict: verdict.startswith(f"{CONFIRMED}, "),
    COMPARABLE: lambda verdict: verdict.startswith(COMPARABLE),
    "refuted in part": lambda verdict: verdict == PARTLY,
    "refuted": lambda verdict: verdict.startswith(REFUTED) and verdict != PARTLY,
}
"""Classes of verdicts in the summary; what is in none of them is open."""
HEAD = """\
| claim | verdict | what was computed | smallest counterexample | what holds |
| --- | --- | --- | --- | --- |"""
OWN_HEAD = """\
| claimed | verdict | what refuted it | what holds now |
| --- | --- | --- | --- |"""


def replace_part(text: str, name: str, new: str) -> str:
    """Returns the page with what is between the marks of a name replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise SystemExit(f"{PAGE.name} has no place for {name}")
    return re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _: f"{start}\n{new}\n\n{end}", text, flags=re.DOTALL)


def summary(findings: list[Finding]) -> str:
    """Returns how many claims of each paper are confirmed and refuted."""
    lines = [f"| paper | claims | {' | '.join(CLASSES)} | open |", f"| --- |{' ---: |' * (len(CLASSES) + 2)}"]
    for number, title in PAPERS.items():
        verdicts = [each.verdict for each in findings if each.claim.startswith(number)]
        counts = [sum(map(belongs, verdicts)) for belongs in CLASSES.values()]
        numbers = [len(verdicts), *counts, len(verdicts) - sum(counts)]
        anchor = re.sub(r"[^\w -]", "", f"{number}: {title}".lower()).replace(" ", "-")
        lines.append(f"| [{number} {title}](#{anchor}) | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def tables(findings: list[Finding]) -> str:
    """Returns the claims, with a heading and a table for each paper."""
    parts = []
    for number, title in PAPERS.items():
        rows = [f"| {' | '.join(each)} |" for each in findings if each.claim.startswith(number)]
        parts.append("\n".join([f"### {number}: {title}", "", HEAD, *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """Returns the page, with everything between its marks computed anew."""
    findings = [finding for audits in AUDITS for finding in audits()] + [reproduced(claim) for claim in CLAIMS]
    findings.sort(key=lambda finding: finding.claim[:3])
    text = PAGE.read_text(encoding="utf-8")
    text = replace_part(text, "claims-summary", summary(findings))
    text = replace_part(text, "claims", tables(findings))
    return replace_part(text, "own", "\n".join([OWN_HEAD, *(f"| {' | '.join(each)} |" for each in own())]))


def main() -> int:
    """Writes the page, or checks whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is out of date")
    found = page()
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != found)
    PAGE.write_text(found, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
