"""Planner: protocols and settings for a number of parties, with their cost and the verdict of the audit."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import PlanCoverage, Remark, Verdict
from tacit.auditing.proofs import argument_for
from tacit.auditing.render.reasons import render_reason
from tacit.auditing.scope import Scope, dropouts, is_count
from tacit.auditing.search.coalitions import SAMPLE, CoalitionKind, choose_coalitions, count_coalitions
from tacit.auditing.search.seeds import SeedResult
from tacit.auditing.search.worst_case import WorstCase, tolerates
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.average import format_count
from tacit.core.errors import ConfigError, LeakRefused, NotLinear
from tacit.core.progress import Progress, ignore_progress, report_step
from tacit.core.protocol import Protocol, Terms
from tacit.core.protocol_facts import ProposedSettings, ReasonCode
from tacit.core.suite import Party, Update
from tacit.privacy.distributed_noise import count_honest
from tacit.privacy.noise import local_sigma, of_user
from tacit.protocols import REGISTRY, is_shipped
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.simulator import Simulation

MOST_COALITIONS, MOST_WORK = 4000, 400_000
"""The largest number of coalitions audited for each proposal, and the largest total work, by which there are fewer if a
round takes much work. If there are more coalitions, and too many kinds, some are sampled."""
MOST_RUN = 3
"""The largest number of audited rounds, if each has to be run."""
MEASURED = (64, 576)
"""Lengths of the vectors on which costs are measured. Bytes grow linearly with the length, so two lengths are
enough."""


@dataclass(frozen=True)
class Proposal:
    """Proposed settings with their cost and the verdict of the audit."""

    protocol: str
    options: dict[str, Any]
    reason: Remark
    """What the settings are meant for."""
    bytes_per_party: float
    """Bytes that a party sends and receives in a round, on average."""
    most_bytes: float
    """Bytes of the party with the most traffic."""
    verdict: Verdict
    """Verdict on all coalitions of the plan's size: `HOLDS`, `NOTHING_FOUND` if not everything was analysed, `EXPOSED`,
    `EXPOSED_IN_WORST_CASE`, `LEAKS_BY_DESIGN` or `NOT_AUDITED`."""
    coverage: PlanCoverage
    """Part of all coalitions and rounds that was analysed."""
    leaking: int
    """Number of coalitions that expose some party even if models drift."""
    safe_rounds: int
    """Number of rounds after which nobody would be exposed if models were static."""
    smallest_group: int
    """Anonymity set T if models were static: the fewest parties in any sum that a coalition can single out."""
    argument: str = ""
    """Name of the argument that covers the coalitions and rounds that were not analysed; empty if none does."""
    company: int = 1
    """Number of parties whose noise counts for σ: the fewest contributors to anything that a coalition sees, in the
    smallest rounds that the settings allow. It is 1 if a coalition sees single vectors, or if over several rounds
    others pass on values that it did not see."""
    ending: float = 1.0
    """Expected part of the rounds that end with an average, with the plan's dropouts."""
    sigma: float = 0.0
    """Standard deviation of the noise that each party must add for the plan's (ε, δ), if `company` parties add noise.
    It is a multiple of the distance by which one sample, or one user, can move a vector."""

    needs_drift: bool = False
    """Whether the verdict holds only if models drift, and not if they are static."""
    without_dropouts: bool = False
    """Whether the plan has dropouts, and the verdict is about rounds without, because a dropout ends a round."""

    @property
    def why(self) -> str:
        """What the settings are meant for, in a few words."""
        return render_reason(self.reason)

    @property
    def noise(self) -> float:
        """Setting `noise` for the plan's (ε, δ), if `norm` is 1 and one user's vector is to be hidden."""
        return of_user(1.0) * self.sigma

    @property
    def holds(self) -> bool:
        """Whether no coalition exposes a party if models drift."""
        return self.verdict is Verdict.HOLDS

    @property
    def unconditional(self) -> bool:
        """Whether no coalition exposes a party, be models static or drifting, and whoever drops out as planned."""
        return self.holds and not self.needs_drift and not self.without_dropouts

    @property
    def fine(self) -> bool:
        """Whether no exposure was found if models drift."""
        return self.verdict.clear


@dataclass(frozen=True)
class Plan:
    """Proposals for a consortium, each group by cost: verdicts that hold for all models come first, then those that
    hold if models drift, then those where nothing was found, then the rest.

    >>> import tacit
    >>> plan = tacit.plan(4, rounds=2, dropout=0)
    >>> plan.proposals[0].verdict.value
    'holds'
    """

    parties: int
    coalition_size: int
    rounds: int
    dropout: float
    entries: int
    proposals: tuple[Proposal, ...]
    epsilon: float
    delta: float
    sigma: float
    """Noise that each party must add for (ε, δ) over all rounds if `coalition_size` parties collude and all others are
    in one sum. It is a standard deviation, as a multiple of the distance by which one sample, or one user, can move a
    vector. Each proposal has its own value too."""

    def __repr__(self) -> str:
        proposals = "; ".join(
            f"{each.protocol} ({each.reason.code.value}): {each.verdict.value}" for each in self.proposals
        )
        asked = f"{self.parties} parties, {self.coalition_size} colluding, {format_count(self.rounds, 'round')}"
        return f"<Plan for {asked}: {proposals or 'nothing to propose'}>"


def plan(
    parties: int,
    *,
    coalition_size: int = 1,
    rounds: int = 10,
    dropout: float = 0.05,
    entries: int = 100_000,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    progress: Progress = ignore_progress,
) -> Plan:
    """Proposes protocols and settings for a number of parties, each with its cost and verdict, the best first.

    Args:
        parties: The number of parties, at least 3.
        coalition_size: The number of parties that may collude; with the server, one fewer.
        rounds: The number of rounds in which they average.
        dropout: The probability with which each party drops out of each round.
        entries: The length of their vectors.
        epsilon: The ε of differential privacy for which the noise is computed.
        delta: The δ of differential privacy for which the noise is computed.
        progress: Called with each step and the fraction of the work that is done.

    Returns:
        The proposals, and the noise for (ε, δ).

    Raises:
        ConfigError: With all problems of the arguments.

    >>> import tacit
    >>> best = tacit.plan(4, rounds=2, dropout=0).proposals[0]
    >>> best.protocol, best.verdict.value
    ('secagg', 'holds')
    """
    problems = [
        f"{name} must be a whole number of at least {least}, not {n!r}"
        for name, n, least in (
            ("parties", parties, 3),
            ("coalition_size", coalition_size, 1),
            ("rounds", rounds, 1),
            ("entries", entries, 1),
        )
        if not is_count(n)
    ]
    if not problems and parties < 3:
        why = "one has nobody to average with" if parties == 1 else "each of two learns the other's from their average"
        problems.append(f"parties must be 3 or more, not {parties}: {why}")
    elif not problems and coalition_size > parties - 2:
        most = "1" if parties == 3 else f"1 to {parties - 2}"
        problems.append(
            f"coalition_size must be {most} of {parties} parties, not {coalition_size}: two others must be left, who "
            f"hide among each other; try: use a smaller coalition_size, or more parties"
        )
    if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= float(dropout) <= 1:
        problems.append(f"dropout must be a chance from 0 to 1, not {dropout!r}")
    if problems:
        raise ConfigError(problems)
    alone = local_sigma(epsilon, delta, sensitivity=1.0, rounds=rounds)
    sigma = alone / math.sqrt(count_honest(parties, colluders=coalition_size))
    names, asked = tuple(f"p{i}" for i in range(parties)), PlanQuestion(coalition_size, rounds, float(dropout))
    wanted = list(candidates(parties, coalition_size))
    found = []
    for done, (protocol, proposed) in enumerate(wanted):
        reason = _read_reason(proposed)
        progress(f"{protocol.name}: {render_reason(reason)}", done / len(wanted))
        terms = _bind_terms(protocol, proposed.options, names)
        if terms is not None:
            proposal = _proposal(protocol, terms, proposed.options, reason, asked, entries)
            needed = alone * math.sqrt(terms.releases / proposal.company)
            found.append(replace(proposal, sigma=needed))
    progress("plan", 1.0)
    found.sort(key=lambda each: (not each.unconditional, not each.holds, not each.fine, each.bytes_per_party))
    return Plan(parties, coalition_size, rounds, asked.dropout, entries, tuple(found), epsilon, delta, sigma)


def candidates(n: int, c: int) -> Iterator[tuple[Protocol, ProposedSettings]]:
    """Yields the settings that each protocol proposes for n parties, of which c collude; baselines first."""
    for protocol in sorted(REGISTRY.usable(), key=lambda each: not each.leaks_by_design):
        yield from ((protocol, proposed) for proposed in protocol.propose(n, c))


def _read_reason(proposed: ProposedSettings) -> Remark:
    """Returns the reason of proposed settings as a remark."""
    if isinstance(proposed.why, ReasonCode):
        return Remark.of(proposed.why, **proposed.facts)
    return Remark.of(ReasonCode.OWN, text=proposed.why)


def _bind_terms(protocol: Protocol, options: Mapping[str, Any], names: Sequence[Party]) -> Terms | None:
    """Returns the terms; None if the settings refuse so many parties."""
    try:
        return terms_for(protocol, names, options)
    except LeakRefused:
        return None
    except ConfigError:
        if is_shipped(protocol):
            raise
        return None


class PlanQuestion(NamedTuple):
    """Requirements that a plan is made for."""

    coalition_size: int
    rounds: int
    dropout: float


def _proposal(
    protocol: Protocol, terms: Terms, options: dict[str, Any], reason: Remark, asked: PlanQuestion, entries: int
) -> Proposal:
    mean, most = cost(protocol, terms, entries)
    proposal = partial(Proposal, protocol.name, options, reason, mean, most)
    total = count_coalitions(protocol, terms.parties, asked.coalition_size)
    unseen = PlanCoverage(0, total, 0, 0, asked.rounds, 0.0, None)
    if protocol.leaks_by_design:
        return proposal(Verdict.LEAKS_BY_DESIGN, unseen, total, 0, 1)
    try:
        return _audit_proposal(proposal, protocol, terms, asked, entries)
    except NotLinear:
        return proposal(Verdict.NOT_AUDITED, unseen, 0, 0, 1)


def _audit_proposal(
    proposal: Callable[..., Proposal], protocol: Protocol, terms: Terms, asked: PlanQuestion, entries: int
) -> Proposal:
    """Returns a proposal with the verdict of its audit."""
    c, alike = asked.coalition_size, protocol.choice is not None and terms.rounds_alike
    watched = asked.rounds if alike else min(asked.rounds, MOST_RUN)
    # If a dropout ends the round, rounds with dropouts are analysed only where an argument covers them.
    argued = _find_argument(protocol, terms, asked, "static")
    dropout = asked.dropout if argued or tolerates(protocol, terms) else 0.0

    def auditor(drift: Drift) -> Auditor:
        faults = dropouts(protocol, dropout)
        return Auditor(
            Scope(protocol, terms, watched, drift, faults=faults, dropout=dropout, length=entries),
            rehearse=True,
            worst_case=worst_case,
        )

    worst_case = WorstCase(Scope(protocol, terms, length=entries))
    still = auditor("static")
    if dropout and still.rehearsed is not None and not still.rehearsed.averages:
        dropout = 0.0  # With so many dropouts no round would end with an average, and an audit could not be repeated.
        still = auditor("static")
    sample = choose_coalitions(still.scope, c, min(MOST_COALITIONS, max(30, MOST_WORK // terms.work)))
    kinds = sample.kinds
    verdicts = {}
    for place, kind in enumerate(kinds, start=1):
        report_step(f"analysing coalition {place} of {len(kinds)}")
        verdicts[kind] = still.assess(kind.coalition)
    # What nobody learns about static models, nobody learns about drifting ones.
    suspects = [kind for kind, verdict in verdicts.items() if verdict.victims]
    free = auditor("free") if suspects else still
    leaking = {kind for kind in suspects if free.assess(kind.coalition).victims}
    exposed = bool(leaking)
    fewest: list[int] = []
    company = len(terms.parties)
    for place, kind in enumerate(kinds, start=1):
        report_step(f"analysing the worst case of coalition {place} of {len(kinds)}")
        covered = worst_case.is_covered(kind.coalition)
        known = worst_case.knowledge(kind.coalition) if covered else None
        if known is not None:
            fewest.append(len(known.run.contributors[0]))
            if known.victims:
                leaking.add(kind)
        if company > 1:
            # Where the worst case is unknown, it is only certain that each party adds its own noise.
            group = (known or still.run.knowledge(kind.coalition, 1)).group if covered else 1
            company = min(company, still.company(kind.coalition, group, at_worst=True) or company)
    coverage = PlanCoverage(
        sample.covered, sample.coalitions, len(kinds), watched, asked.rounds, dropout, min(fewest, default=None)
    )
    safe = min(verdict.safe_rounds for verdict in verdicts.values())
    group = min(verdict.smallest_group for verdict in verdicts.values())
    argument, changing = "", safe < watched
    # If participation is sampled, only a few seeds were tried, so only an argument makes the verdict hold. The same is
    # true if there was no time for the worst case of every coalition, or if dropouts could make sums that differ.
    uncompared = any(worst_case.leaves_uncompared(still.scope, kind.coalition) for kind in kinds)
    sampled = still.scope.sampled or uncompared
    everything = coverage.everything and not sampled and all(worst_case.is_covered(kind.coalition) for kind in kinds)
    if not everything and not leaking:
        whoever = bool(dropout) or sampled
        argument = "" if changing else _find_argument(protocol, terms, asked, "static", whoever)
        if not argument and (argument := _find_argument(protocol, terms, asked, "free", whoever)):
            changing = True
    if not everything and not leaking and not argument:
        # Nothing was found with one seed, so others are tried.
        if not changing and (found := _exposing_seed(still, kinds)) is not None:
            suspects, safe, changing = [found[0]], min(safe, found[1].safe_rounds), True
        if changing and (found := _exposing_seed(auditor("free"), suspects)) is not None:
            leaking.add(found[0])
    verdict = Verdict.HOLDS if everything or argument else Verdict.NOTHING_FOUND
    if leaking:
        verdict = Verdict.EXPOSED if exposed else Verdict.EXPOSED_IN_WORST_CASE
    ending = _ending(still, asked.dropout)
    count, needs_drift = sum(kind.many for kind in leaking), changing and not leaking
    return proposal(
        *(verdict, coverage, count, safe, group, argument, company, ending),
        needs_drift=needs_drift,
        without_dropouts=asked.dropout > dropout,
    )


def _ending(auditor: Auditor, dropout: float) -> float:
    """Returns the part of the rounds that ends with an average, if each party drops out with the given probability.

    Protocols that can finish a round without a party were analysed with dropouts. The others were analysed without, and
    need all parties that are asked.
    """
    scope, rehearsed = auditor.scope, auditor.rehearsed
    if dropout and not scope.dropout:
        parties, policy = len(scope.parties), scope.terms.participation
        asked = parties if policy is None else policy.most(parties)
        return (1 - dropout) ** asked
    return 1.0 if rehearsed is None else float(np.mean([bool(each.summed) for each in rehearsed.sets]))


def _exposing_seed(auditor: Auditor, kinds: Sequence[CoalitionKind]) -> tuple[CoalitionKind, SeedResult] | None:
    """Returns the first of some dozens of coalitions that expose a party with another seed, and that seed; None without
    one."""
    found = ((kind, seed) for kind in kinds[:SAMPLE] for seed in auditor.seeds.exposing_seeds(kind.coalition))
    return next(found, None)


def _find_argument(protocol: Protocol, terms: Terms, asked: PlanQuestion, drift: Drift, whoever: bool = True) -> str:
    """Returns the name of an argument that excludes exposure to any coalition in any round; empty without one.

    Args:
        protocol: The protocol.
        terms: Its terms.
        asked: The coalitions and rounds.
        drift: How models change between rounds.
        whoever: Whether the argument has to cover all dropouts.
    """
    found = argument_for(protocol, terms, asked.coalition_size, asked.rounds, drift)
    return "" if found is None or found.exposes or (whoever and not found.dropouts) else found.name


def cost(protocol: Protocol, terms: Terms, entries: int) -> tuple[float, float]:
    """Returns the bytes that a party sends and receives in a round: the average, and those of the party with the
    most."""
    names, bytes_of = terms.parties, []
    for length in MEASURED:
        simulation = Simulation.on(protocol, terms, length, seed=0)
        traffic = simulation.average({name: Update(np.zeros(length)) for name in names}).traffic
        bytes_of.append(np.array([traffic.of(name) for name in names], dtype=np.float64))
    slope = (bytes_of[1] - bytes_of[0]) / (MEASURED[1] - MEASURED[0])
    found = bytes_of[0] + slope * (entries - MEASURED[0])
    return float(found.mean()), float(found.max())
