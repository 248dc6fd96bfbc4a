"""What to run: protocols and settings for so many parties, what each of them costs, and what the audit says of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.audit.attacks.findings import Progress, quietly
from tacit.audit.coalitions import number, some
from tacit.audit.report import Auditor, Verdict
from tacit.audit.runs import Scope
from tacit.audit.symbolic.simulation import Drift
from tacit.core.errors import ConfigError, LeakRefused, NotLinear
from tacit.core.protocol import Protocol, Terms
from tacit.core.suite import Party, Update
from tacit.designs import graphs
from tacit.designs.circle import secure_degree
from tacit.drivers.agreement import terms_for
from tacit.drivers.simulator import Simulation
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
    names = tuple(f"p{i}" for i in range(parties))
    wanted = [(each, _allowed(each[0], each[1], names)) for each in candidates(parties, coalition_size)]
    found = []
    for done, ((protocol, options, why), terms) in enumerate(wanted):
        progress(f"{protocol}: {why}", done / len(wanted))
        if terms is not None:
            found.append(_proposal(find(protocol), terms, options, why, coalition_size, rounds, entries))
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


def _allowed(protocol: str, options: Mapping[str, Any], names: Sequence[Party]) -> Terms | None:
    """Returns the terms, unless the settings themselves refuse so many parties."""
    try:
        return terms_for(find(protocol), names, options)
    except LeakRefused:
        return None


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


def _proposal(
    protocol: Protocol, terms: Terms, options: dict[str, Any], why: str, c: int, rounds: int, entries: int
) -> Proposal:
    mean, most = cost(protocol, terms, entries)
    every, total = some(protocol, terms.parties, c, MOST_COALITIONS), number(protocol, terms.parties, c)
    whole = protocol.choice is not None and terms.rounds_alike
    watched = rounds if whole else min(rounds, MOST_RUN)
    name = protocol.name
    if protocol.leaks_by_design:
        return Proposal(name, options, why, mean, most, "leaks by design", 0, total, 0, watched, 0, 1)
    try:
        still = _verdicts(protocol, terms, every, watched, "static")
        # What nobody learns even if models stand still, nobody learns if they change.
        suspects = [members for members, verdict in still.items() if verdict.victims]
        free = _verdicts(protocol, terms, suspects, min(watched, MOST_RUN), "free") if suspects else {}
        leaking = sum(1 for verdict in free.values() if verdict.victims)
    except NotLinear:
        return Proposal(name, options, why, mean, most, "not linear", 0, total, 0, watched, 0, 1)
    safe = min(verdict.safe_rounds for verdict in still.values())
    verdict = "leaks" if leaking else "holds" if safe == watched else "holds if models change"
    group = min(verdict.smallest_group for verdict in still.values())
    return Proposal(name, options, why, mean, most, verdict, len(every), total, leaking, watched, safe, group)


def cost(protocol: Protocol, terms: Terms, entries: int) -> tuple[float, float]:
    """Returns the bytes that a party sends and receives in a round: on average, and that of the one with most."""
    names, bytes_of = terms.parties, []
    for length in MEASURED:
        simulation = Simulation.on(protocol, terms, length, seed=0)
        traffic = simulation.average({name: Update(np.zeros(length)) for name in names}).traffic
        bytes_of.append(np.array([traffic.of(name) for name in names], dtype=np.float64))
    slope = (bytes_of[1] - bytes_of[0]) / (MEASURED[1] - MEASURED[0])
    found = bytes_of[0] + slope * (entries - MEASURED[0])
    return float(found.mean()), float(found.max())


def _verdicts(
    protocol: Protocol, terms: Terms, every: Sequence[tuple[Party, ...]], rounds: int, drift: Drift
) -> dict[tuple[Party, ...], Verdict]:
    auditor = Auditor(Scope(protocol, terms, rounds, drift))
    return {members: auditor.verdict(members) for members in every}
