"""Random questions for both auditors, and the comparison of their answers."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from support.independent_auditor import BITS, Measured, Question, measure, recovery_errors
from tacit.core.errors import ConfigError, NotLinear
from tacit.core.suite import ONLOOKER, SERVER
from tacit.protocols import find

SHARES = {"secagg": 0.28, "admm": 0.2, "cesar": 0.17, "pushsum": 0.17, "gossip": 0.09, "fedavg": 0.09}
"""Probability of each protocol in a question."""
LEAST_CLIP = {"admm": -2, "pushsum": 1}
"""Powers of ten. λ⁰ and y share the ring with the entries, so with a smaller clip rounding would decide."""
NEARLY = 8.0
"""Bits from which an entry counts as nearly exposed, as docs/audit.md has it."""
FEWER_BITS = frozenset({"unsafe: bits", "rounded bits"})
"""Codes of differences in which the audit finds fewer bits: by itself, or although rounding may decide."""
SAFE = ("holds", "nothing_found")


def draw_question(number: int) -> Question:
    """Returns the question of a number: the same one in every process."""
    source = np.random.default_rng([2026, number])
    protocol = str(source.choice(list(SHARES), p=list(SHARES.values())))
    while True:
        question = _draw(source, protocol)
        try:
            question.simulate(1, None, noise=True)
        except ConfigError:
            continue  # No round is possible with these settings.
        return question


def _draw(source: Any, protocol: str) -> Question:
    star = find(protocol).server is not None
    parties = int(source.integers(3, 10 if protocol == "admm" else 9))
    names = [f"p{place}" for place in range(parties)]
    size = min(int(source.geometric(0.45)), parties - 1)
    members = [str(each) for each in source.choice(names, size, replace=False)]
    sealed = True
    if star and source.random() < 0.5:
        members = [SERVER, *members[1:]]
    elif source.random() < 0.1:
        members, sealed = [ONLOOKER, *members[1:]], bool(source.random() < 0.3)
    rounds = 1 if source.random() < 0.5 else int(source.integers(2, 3 if protocol == "admm" else 6))
    if star and source.random() < 0.08:
        rounds = int(source.integers(17, 24))
    options = _draw_common(source, protocol) | globals()[f"_draw_{protocol}"](source, parties)
    clip = options.get("clip", 32.0)
    noise = float(clip * 10 ** source.uniform(-3, 0)) if source.random() < 0.15 else 0.0
    prior = float(clip * 10 ** source.uniform(-2, 0)) if source.random() < 0.5 else None
    faults, dropout = (), 0.0
    if protocol != "admm" or source.random() < 0.1:
        faults = _draw_faults(source, protocol, names, rounds)
        if not faults and source.random() < 0.2:
            dropout = float(source.choice([0.05, 0.15, 0.3]))
    drift = "free" if source.random() < 0.25 else "static"
    return Question(
        protocol, parties, tuple(members), rounds, drift, int(source.integers(1000)), noise, prior, sealed, dropout,
        faults, options,
    )  # fmt: skip


def _draw_common(source: Any, protocol: str) -> dict[str, Any]:
    options: dict[str, Any] = {"bits": int(source.choice([16, 32, 32, 32, 64]))}
    if source.random() < 0.4:
        options["clip"] = float(10 ** source.uniform(LEAST_CLIP.get(protocol, -6), 6))
    return options


def _draw_faults(source: Any, protocol: str, names: list[str], rounds: int) -> tuple[dict[str, Any], ...]:
    kinds = [message.kind() for message in find(protocol).messages]
    choice = find(protocol).choice
    faults = []
    for _ in range(int(source.choice([0, 1, 2], p=[0.6, 0.3, 0.1]))):
        party = str(source.choice(names))
        fault: dict[str, Any] = {"action": str(source.choice(["silence", "drop", "crash"])), "party": party}
        if rounds >= 17:
            fault["action"] = str(source.choice(["silence", "drop"]))
        if fault["action"] == "drop":
            traced = choice is not None and rounds >= 17
            fault["message"] = choice.delivery.kind() if traced and choice else str(source.choice(kinds))
        elif fault["action"] == "crash":
            fault["step"] = int(source.integers(0, 8))
        if rounds > 1 and source.random() < 0.7:
            fault["round"] = int(source.integers(1, rounds + 1))
        if fault["action"] == "silence" and source.random() < 0.3:
            fault |= {"chance": 0.2, "seed": int(source.integers(100))}
            del fault["party"]
        faults.append(fault)
    return tuple(faults)


def _draw_fedavg(source: Any, parties: int) -> dict[str, Any]:
    return {"threshold": int(source.integers(2, parties + 1))} if source.random() < 0.5 else {}


def _draw_secagg(source: Any, parties: int) -> dict[str, Any]:
    options: dict[str, Any] = {"allow_leaks": bool(source.random() < 0.3)}
    kind = source.random()
    if kind < 0.15:
        options["participation"] = {"kind": "random", "per_round": int(source.integers(2, parties + 1))}
    elif kind < 0.3:
        batch = int(source.integers(1, 4))
        options["participation"] = {
            "kind": "batches",
            "per_round": batch * int(source.integers(1, 4)),
            "privacy": batch,
        }
    elif kind < 0.4:
        options["sampled"] = int(source.integers(2, parties + 1))
    if source.random() < 0.5:
        options["threshold"] = int(source.integers(2, parties + 1))
    if source.random() < 0.2:
        options["neighbours"] = int(source.integers(2, parties))
    return options


def _draw_admm(source: Any, parties: int) -> dict[str, Any]:
    options: dict[str, Any] = {"masked": bool(source.random() < 0.5)}
    options["group_size"] = "all" if source.random() < 0.15 else int(source.integers(2, parties + 1))
    iterations = int(source.integers(1, 7))
    if source.random() < 0.2:
        options["rho"] = [float(10 ** source.uniform(-2, 1)) for _ in range(iterations)]
    else:
        options |= {"rho": float(10 ** source.uniform(-1, 1)), "iterations": iterations}
    if source.random() < 0.2:
        options["lambda0"] = [0.0, float(10 ** source.uniform(-1, 2))]
    return options


def _draw_graph(source: Any, parties: int) -> Any:
    if source.random() < 0.5:
        return {"kind": "regular", "degree": int(source.integers(2, parties)), "seed": int(source.integers(50))}
    edges = [(a, b) for a in range(parties) for b in range(a) if source.random() < 0.6]
    return edges or "ring"


def _draw_gossip(source: Any, parties: int) -> dict[str, Any]:
    return {"graph": _draw_graph(source, parties)}


def _draw_cesar(source: Any, parties: int) -> dict[str, Any]:
    return {"graph": _draw_graph(source, parties), "masking": int(source.integers(1, 4))}


def _draw_pushsum(source: Any, parties: int) -> dict[str, Any]:
    options: dict[str, Any] = {"masked": bool(source.random() < 0.6), "private": bool(source.random() < 0.2)}
    kind = source.random()
    if kind < 0.3:
        options["graph"] = "exponential"
    elif kind < 0.8:
        import networkx as nx

        edges = [(a, b) for a in range(parties) for b in range(parties) if a != b and source.random() < 0.5]
        options["graph"] = nx.DiGraph(edges)
    return options


@dataclass
class Comparison:
    """Differences between two answers to one question. Each has a code and a subject."""

    question: Question
    measured: Measured
    verdict: str = ""
    differences: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def unsafe(self) -> list[tuple[str, Any]]:
        """The differences in which the audit claims more privacy than there is."""
        return [each for each in self.differences if each[0].startswith("unsafe")]

    def add(self, code: str, about: Any) -> None:
        """Adds a difference."""
        self.differences.append((code, about))

    def recode(self, old: str, new: str) -> None:
        """Replaces the code of some differences."""
        self.differences = [(new if code == old else code, about) for code, about in self.differences]


def compare(question: Question, dtype: Any = np.float64) -> Comparison:
    """Asks both auditors the same question."""
    found = Comparison(question, measure(question, dtype))
    measured, exposed = found.measured, set(found.measured.exposed())
    try:
        report = question.audit()
    except ConfigError as error:
        found.verdict = "refused"  # No round ended with an average, or there are too many rounds of a sparse graph.
        found.add("refused", str(error)[:60])
        return found
    except NotLinear:
        # Secret factors are measured as if they were known. The audit may decline only if that exposes a party.
        found.verdict = "declined"
        if not exposed:
            found.add("cautious", "declined")
        return found
    found.verdict = str(getattr(report.verdict, "value", report.verdict))
    for party in sorted(exposed - set(report.exposed)):
        error, _ = recovery_errors(measured, party, measured.clip / 16)
        found.add("drowned" if error / 16 > 2.0**-NEARLY else "unsafe: recovered", (party, error))
    for party in sorted(set(report.exposed) - exposed):
        found.add("not recovered", party)
    both = sorted(party for party in exposed & set(report.exposed) if hasattr(report.exposed[party], "recover"))
    if question.drift == "static" and both:  # For very many rounds, a report has no recipe that can be replayed.
        size = measured.clip / 16 / 10.0 ** (question.seed % 5)
        try:
            mine, theirs = recovery_errors(measured, both[0], size, dtype, report.exposed[both[0]])
        except ConfigError:
            found.add("session" if "neighbours" in question.options else "no recipe", both[0])
        else:
            if theirs > 100 * mine + 1e-6:
                found.add("recipe", (both[0], mine, theirs))
    _compare_bits(found, report)
    _explain_bits(found)
    group = 1 if report.nearly else measured.smallest_group()  # A nearly exposed party stands out.
    # A sum of that many vectors shows at most this many bits of one.
    most = max(report.bits.values(), default=0.0) - 1e-6
    group = next((size for size in range(group, 1, -1) if 2 ** (2 * most) <= size / (size - 1)), 1)
    if group != report.smallest_group:
        found.add("group", (group, report.smallest_group))
    if found.verdict in SAFE and (report.exposed or report.nearly or report.at_worst):
        found.add("unsafe: verdict", found.verdict)
    return found


def _compare_bits(found: Comparison, report: Any) -> None:
    """Compares bits, unless they are so many that rounding, which is not measured, decides."""
    bits = found.measured.bits()
    for party, mine in bits.items():
        theirs = report.bits.get(party)
        if theirs is None:
            found.add("no bits", party)
            continue
        slack = 0.01 + 0.01 * mine
        if mine > report.most_bits - 6:
            if theirs < min(mine, NEARLY) - slack and party not in report.exposed:
                found.add("rounded bits", (party, mine, theirs, report.most_bits))
        elif theirs < mine - slack:
            found.add("unsafe: bits", (party, mine, theirs, report.most_bits))
        elif theirs > mine + slack:
            found.add("more bits", (party, mine, theirs, report.most_bits))


def _explain_bits(found: Comparison) -> None:
    """Changes the code of differences in bits that one of two additions of the audit explains."""
    codes, question = {code for code, _ in found.differences}, found.question
    if codes & FEWER_BITS:
        # The audit treats rounding as noise, and a measured run has none: repeat with a ring of the same resolution.
        again = Comparison(question, found.measured)
        _compare_bits(again, replace(question, options=question.options | {"bits": BITS}).audit())
        if not FEWER_BITS & {code for code, _ in again.differences}:
            for code in FEWER_BITS:
                found.recode(code, "rounding")
    releases = question.simulate(1).agreement.terms.releases
    if codes & {"more bits", "not recovered"} and question.noise and releases > 1:
        # Parties draw other noise for each weight of a neighbour. The audit takes all of them for one that is smaller.
        merged, report = found.measured.merge_releases(releases), question.audit()
        again = Comparison(question, merged)
        _compare_bits(again, report)
        if not again.differences and set(merged.exposed()) == set(report.exposed):
            found.recode("more bits", "releases")
            found.recode("not recovered", "releases")


def draw_sparse_question(number: int, most_rounds: int = 3) -> Question:
    """Returns question number `number` about nodes that share some of their entries."""
    source = np.random.default_rng([2027, number])
    while True:
        protocol = "cesar" if source.random() < 0.75 else "gossip"
        parties = int(source.integers(4, 8))
        options = {"graph": _draw_graph(source, parties), "share": float(source.uniform(0.2, 0.97))}
        options |= {"bits": int(source.choice([16, 32, 64]))}
        if protocol == "cesar":
            options["masking"] = int(source.integers(1, 4))
        if source.random() < 0.2:
            options["sparsifier"] = "topk"
        size = min(int(source.geometric(0.5)), parties - 2)
        members = tuple(f"p{place}" for place in sorted(source.choice(parties, size, replace=False)))
        rounds = int(source.integers(1, most_rounds + 1))
        question = Question(protocol, parties, members, rounds, seed=int(source.integers(1000)), options=options)
        try:
            question.simulate(1, None)
        except ConfigError:
            continue
        return question


def draw_small_round(number: int) -> Question:
    """Returns question number `number` about one round of few parties, for which all dropouts can be tried."""
    source = np.random.default_rng([2028, number])
    while True:
        protocol = str(source.choice(["secagg", "secagg", "cesar", "fedavg"]))
        parties = int(source.integers(3, 6))
        members = [f"p{place}" for place in sorted(source.choice(parties, max(1, parties - 3), replace=False))]
        if protocol == "secagg" and source.random() < 0.5:
            members.append(SERVER)
        options = globals()[f"_draw_{protocol}"](source, parties)
        options.pop("neighbours", None)
        question = Question(protocol, parties, tuple(members), seed=int(source.integers(1000)), options=options)
        try:
            question.simulate(1, None)
        except ConfigError:
            continue
        return question
