"""What to run: protocols and settings for so many parties, what each of them costs, and what the audit says of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tacit.audit.attacks.findings import Progress, quietly
from tacit.audit.preflight import coalitions as every_coalition
from tacit.audit.report import Auditor
from tacit.audit.runs import Drift, Question
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, LeakRefused, NotLinear
from tacit.core.suite import SERVER, Party, Update
from tacit.designs import graphs
from tacit.designs.circle import secure_degree
from tacit.drivers.federation import Federation
from tacit.privacy.noise import user_sigma
from tacit.protocols import find

MOST_COALITIONS = 30
"""Coalitions that are audited for each proposal; if there are more, these are drawn at random."""
MOST_RUN = 3
"""Rounds that are audited where every one has to be run."""
LARGE, SMALL = 64, 16
"""With more parties secure aggregation takes a sparse graph; ADMM, which sends most, is proposed to fewer only."""
DROPOUTS = 0.1
"""The part of the parties that may drop out of a sparse graph."""
MEASURED = (64, 576)
"""Lengths of the vectors on which costs are measured. Bytes grow in proportion, so two of them say it all."""


@dataclass(frozen=True)
class Proposal:
    """Settings, what they cost, and what the audit says of them."""

    protocol: str
    options: dict[str, Any]
    why: str
    bytes_per_party: float
    """Sent and received by a party in a round, on average."""
    most_bytes: float
    """Those of the party that has most."""
    verdict: str
    """"holds", "holds if models change", "leaks", "leaks by design", or "not linear"."""
    audited: int
    """How many coalitions were audited."""
    coalitions: int
    """How many there are."""
    leaking: int
    """To how many of those audited somebody is exposed, even if models change."""
    rounds: int
    """Over how many rounds that was audited."""
    safe_rounds: int
    """After how many of these nobody would be exposed yet if models stood still."""
    smallest_group: int
    """T: how many parties there are, at least, behind any sum that could be singled out if they did."""

    @property
    def holds(self) -> bool:
        """Whether nobody is exposed to any coalition that was audited, as long as models change."""
        return self.verdict.startswith("holds")


@dataclass(frozen=True)
class Plan:
    """Proposals for a consortium, the ones that hold first, and of those the cheapest."""

    parties: int
    coalition_size: int
    rounds: int
    entries: int
    proposals: tuple[Proposal, ...]
    epsilon: float
    delta: float
    sigma: float
    """The noise that each party must add for (ε, δ) over all rounds, if any so many collude: the standard deviation, as
    a multiple of how far one sample can move its vector."""


def plan(
    parties: int,
    *,
    coalition_size: int = 1,
    rounds: int = 1,
    entries: int = 100_000,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    progress: Progress = quietly,
) -> Plan:
    """Returns what to run for so many parties, of which any `coalition_size` may collude (with the server, one fewer).

    The vectors have `entries` entries, and are averaged in so many rounds.
    """
    problems = []
    if not 1 <= coalition_size <= parties - 2:
        problems.append(
            f"of {parties} parties 1 to {max(parties - 2, 1)} can collude, for two must be left to hide among each "
            f"other, not {coalition_size}"
        )
    problems += [
        f"{name} must be at least 1, not {n}" for name, n in (("rounds", rounds), ("entries", entries)) if n < 1
    ]
    if problems:
        raise ConfigError(problems)
    sigma = user_sigma(epsilon, delta, honest=parties - coalition_size, samples=2, rounds=rounds)
    wanted = [each for each in candidates(parties, coalition_size) if _allowed(each[0], each[1], parties)]
    found = []
    for done, (protocol, options, why) in enumerate(wanted):
        progress(f"{protocol}: {why}", done / len(wanted))
        found.append(_proposal(protocol, options, why, parties, coalition_size, rounds, entries))
    progress("plan", 1.0)
    found.sort(key=lambda each: (not each.holds, each.bytes_per_party))
    return Plan(parties, coalition_size, rounds, entries, tuple(found), epsilon, delta, sigma)


def candidates(n: int, c: int) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields what may do for n parties of which c collude: a protocol, its options, and what they are chosen for."""
    yield "fedavg", {}, "the baseline with a server"
    yield "gossip", {"graph": "ring"}, "the baseline without"
    if n <= LARGE:
        yield "secagg", {"threshold": _threshold(n, c)}, "everybody in every round"
    else:
        degree, threshold = secure_degree(n, c / n, DROPOUTS)
        yield (
            "secagg",
            {"neighbours": degree, "threshold": threshold},
            "everybody in every round, masks in a sparse graph",
        )
    # Colluding members of a batch can take themselves off its sum, and two others must be left.
    batch = next((size for size in range(c + 2, n // 2 + 1) if n % size == 0), None)
    if batch is not None:
        asked = batch * max(1, n // batch // 2)
        options = {"participation": {"kind": "batches", "per_round": asked, "privacy": batch}}
        yield "secagg", {**options, "threshold": _threshold(asked, c)}, f"K = {asked} in a round, T = {batch}"
    if n <= SMALL:
        yield "admm", {"masked": True, "group_size": None}, "all to all, masked"
    if 2 * (c + 2) <= n <= SMALL:
        yield "admm", {"masked": True, "group_size": c + 2}, f"masked groups of {c + 2}"
    for girth in range(3 if c == 1 else 5 if c == 2 else 7, 2, -1):
        graph = _regular(n, max(c + 1, 3), girth)
        if graph is not None:
            yield "cesar", {"graph": graph, "masking": c}, f"s = {c}, girth {girth}"
            break
    if c == 1 and n >= 5:
        yield "pushsum", {"masked": True, "graph": "exponential"}, "masked, everybody hears about log n others"
    elif n <= LARGE:
        yield "pushsum", {"masked": True, "graph": "complete"}, "masked, everybody hears everybody"


def _allowed(protocol: str, options: Mapping[str, Any], n: int) -> bool:
    """Says whether the settings themselves do not refuse so many parties."""
    try:
        find(protocol).configure(options, [f"p{i}" for i in range(n)])
    except LeakRefused:
        return False
    return True


def _threshold(holders: int, c: int) -> int:
    """Returns a threshold with which c colluding holders cannot help a server to two different sets."""
    return min(holders, max(2 * holders // 3 + 1, (holders + c) // 2 + 1))


def _regular(n: int, degree: int, girth: int) -> dict[str, Any] | None:
    for each in (degree, degree + 1):
        try:
            graphs.regular(n, each, girth)
        except ConfigError:
            continue
        return {"kind": "regular", "degree": each, "girth": girth}
    return None


def _proposal(protocol: str, options: dict[str, Any], why: str, n: int, c: int, rounds: int, entries: int) -> Proposal:
    names = tuple(f"p{i}" for i in range(n))
    mean, most = cost(protocol, names, options, entries)
    every, total = coalitions(protocol, names, c)
    whole = find(protocol).rehearsal is not None and options.get("neighbours") is None
    watched = rounds if whole else min(rounds, MOST_RUN)
    if find(protocol).leaks_by_design:
        return Proposal(protocol, options, why, mean, most, "leaks by design", 0, total, 0, watched, 0, 1)
    try:
        still = _glances(protocol, names, options, every, watched, "static")
        # What nobody learns even if models stand still, nobody learns if they change.
        suspects = [members for members, (victims, _, _) in still.items() if victims]
        free = _glances(protocol, names, options, suspects, min(watched, MOST_RUN), "free") if suspects else {}
        leaking = sum(1 for victims, _, _ in free.values() if victims)
    except NotLinear:
        return Proposal(protocol, options, why, mean, most, "not linear", 0, total, 0, watched, 0, 1)
    safe = min(safe for _, safe, _ in still.values())
    verdict = "leaks" if leaking else "holds" if safe == watched else "holds if models change"
    group = min(group for _, _, group in still.values())
    return Proposal(protocol, options, why, mean, most, verdict, len(every), total, leaking, watched, safe, group)


def coalitions(protocol: str, names: tuple[Party, ...], size: int) -> tuple[list[tuple[Party, ...]], int]:
    """Returns some coalitions of so many parties, or of the server and one fewer, and how many there are."""
    with_server = find(protocol).server is not None
    total = math.comb(len(names), size) + (math.comb(len(names), size - 1) if with_server else 0)
    if total <= MOST_COALITIONS:
        return list(every_coalition(protocol, names, size)), total
    entropy = SeededEntropy("coalitions", len(names), size)
    drawn: dict[tuple[Party, ...], None] = {}
    for turn in range(100 * MOST_COALITIONS):
        server = (SERVER,) if with_server and turn % 2 == 0 else ()
        drawn[(*server, *entropy.sample(names, size - len(server)))] = None
    return list(islice(drawn, MOST_COALITIONS)), total


def cost(protocol: str, names: tuple[Party, ...], options: Mapping[str, Any], entries: int) -> tuple[float, float]:
    """Returns the bytes that a party sends and receives in a round: on average, and that of the one with most."""
    bytes_of = []
    for length in MEASURED:
        federation = Federation(protocol, names, length, allow_leaks=True, **options)
        traffic = federation.average({name: Update(np.zeros(length)) for name in names}).traffic
        bytes_of.append(np.array([traffic.of(name) for name in names], dtype=np.float64))
    slope = (bytes_of[1] - bytes_of[0]) / (MEASURED[1] - MEASURED[0])
    found = bytes_of[0] + slope * (entries - MEASURED[0])
    return float(found.mean()), float(found.max())


def _glances(
    protocol: str,
    names: tuple[Party, ...],
    options: Mapping[str, Any],
    every: Sequence[tuple[Party, ...]],
    rounds: int,
    drift: Drift,
) -> dict[tuple[Party, ...], tuple[list[Party], int, int]]:
    auditor = Auditor(Question(protocol, names, rounds, drift, 0, options))
    return {members: auditor.glance(members) for members in every}
