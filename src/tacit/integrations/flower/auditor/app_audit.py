"""Audit of a Flower app from its files, without running them.

The `pyproject.toml` of an app and the source of its server say how it averages: by a plain strategy, by Flower's
SecAgg+, or by Tacit. `audit_app` reads both, as far as that is safe, and follows the uses of the server's grid. A value
that is not given is Flower's default, or assumed, and is listed as such. A value that is given but cannot be read is
listed too, and the verdict is then at best undecided. The rest is an ordinary audit. SecAgg+ is analysed as `secagg`
with the same threshold: an honest-but-curious server sees the same sums for any mask graph, as long as the graph of the
remaining nodes is connected.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.auditing.auditor import EXACT_ROUNDS, Auditor, WorstSeedAuditor
from tacit.auditing.findings import Remark, UndecidedCode, Verdict
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import list_coalitions
from tacit.auditing.summary import Summary
from tacit.core.errors import ConfigError, TacitError
from tacit.core.suite import SERVER, Party
from tacit.designs.participation import Random
from tacit.integrations.flower.auditor.app_facts import FEDERATION, WAYS, App, Facts
from tacit.integrations.flower.auditor.findings import AppCode, OriginCode, ValueOrigin
from tacit.integrations.flower.auditor.modules import NOT_GIVEN, SourceValue, is_number, unreadable_value
from tacit.integrations.flower.auditor.server_app import MODS, OUR_MODS, PLAIN, TACIT, RoundStart
from tacit.net.membership.roster import RosterFile
from tacit.protocols import DEFAULT_PROTOCOL

WIDEST = 8.0
"""Flower's default of `clipping_range` in SecAgg+."""
HEAVIEST = 1000.0
"""Flower's default of `max_weight` in SecAgg+."""
NODES, MOST_NODES = 9, 10_000
"""Number of nodes assumed where the app does not say, and the most that are analysed."""
NEGLIGIBLE = 1e-6
"""Probability below which an event is ignored."""
SETTABLE = (
    *("rounds", "nodes", "fraction", "fewest_sampled", "num_shares", "reconstruction_threshold"),
    *("clipping_range", "max_weight", "protocol"),
)
"""Values that a caller can give for an app that does not have them, or not in a readable form."""


@dataclass
class FlowerAudit:
    """Result of the audit of an app."""

    app: str
    averages: str
    """Method of averaging: "plain", "SecAgg+", "SecAgg" or "Tacit"."""
    start: ValueOrigin
    """Place in the source where rounds are started."""
    facts: Facts
    reports: list[Report]
    findings: list[Remark]
    """Findings on what the server can learn; `render.py` has their sentences."""
    unknown: Remark | None = None
    """Part that was not analysed and may expose a node; None if there is none."""

    def __post_init__(self) -> None:
        if self.facts.unread:
            self.findings.insert(0, Remark.of(AppCode.NOT_READ, names=tuple(self.facts.unread)))
        if [report.coalition for report in self.reports] == [(SERVER,)]:
            self.findings.append(Remark.of(AppCode.NODES_NOT_ANALYSED))
        if idle := tuple(name for name in self.facts.overrides if name not in self.facts.values):
            self.findings.append(Remark.of(AppCode.OVERRIDES_IGNORED, names=idle))

    def settle(self, summary: Summary) -> Summary:
        """Returns a summary that is undecided if something could not be read, or was not analysed."""
        if summary.exposed or not (self.facts.unread or self.unknown):
            return summary
        reason = self.unknown
        if self.facts.unread:
            names = tuple(self.facts.unread)
            settable = tuple(name for name in names if name in SETTABLE)
            reason = Remark.of(UndecidedCode.APP_NOT_READ, names=names, settable=settable)
        return replace(summary, verdict=Verdict.UNDECIDED, undecided=reason)


def audit_app(
    folder: str | Path,
    *,
    parties: int | None = None,
    rounds: int | None = None,
    dropout: float = 0.0,
    overrides: Mapping[str, Any] | None = None,
) -> FlowerAudit:
    """Audits what the server of an app can learn.

    Args:
        folder: the folder with the app's `pyproject.toml`.
        parties: the number of nodes, instead of what the app says.
        rounds: the number of rounds, instead of what the app says.
        dropout: the probability that a node drops out of a round.
        overrides: values by name, instead of what the app says; see `SETTABLE`.

    Raises:
        ConfigError: if the folder has no Flower app, or `overrides` has an unknown name or a bad value.
    """
    overrides = {**(overrides or {}), **{name: each for name, each in (("nodes", parties), ("rounds", rounds)) if each}}
    problems = [f"{name}: unknown; there is {', '.join(SETTABLE)}" for name in overrides if name not in SETTABLE]
    problems += [
        f"{name}={value!r}: must be a number above 0"
        for name, value in overrides.items()
        if name != "protocol" and (not is_number(value) or value <= 0)
    ]
    if problems:
        raise ConfigError(problems)
    app = App.load(Path(folder))
    try:
        found = _audit_loaded(app, Facts(overrides), dropout)
        if names := app.find_flower_noise():
            found.findings.append(Remark.of(AppCode.FLOWER_NOISE_IGNORED, names=names))
        return found
    except RecursionError:
        raise ConfigError(f"the source of {app.name} is nested too deep to be read") from None


def _audit_loaded(app: App, facts: Facts, dropout: float) -> FlowerAudit:
    start = app.find_start(facts)
    rounds = int(facts.take("rounds", start.rounds, 1, ValueOrigin(OriginCode.NOT_IN_APP, name="rounds")))
    if start.how == TACIT:
        return _audit_tacit(app, facts, start, rounds, dropout)
    nodes, sampled = _count_nodes(app, facts, start)
    if start.how == PLAIN:
        return _audit_plain(app, facts, start, nodes, sampled, rounds, dropout)
    return _audit_secagg(app, facts, start, nodes, sampled, rounds, dropout)


# --- methods of averaging --------------------------------------------------------------------------------------------


def _audit_plain(
    app: App, facts: Facts, start: RoundStart, nodes: int, sampled: int, rounds: int, dropout: float
) -> FlowerAudit:
    scope = _make_scope("fedavg", nodes, sampled, min(rounds, EXACT_ROUNDS), dropout, {})
    report = Auditor(scope).report((SERVER,))
    findings = [
        Remark.of(AppCode.MODELS_SEEN, exposed=len(report.exposed), nodes=nodes, rounds=report.rounds),
        Remark.of(AppCode.HIDDEN_BY_TACIT),
    ]
    return FlowerAudit(app.name, WAYS[PLAIN], start.origin, facts, [report], findings)


def _audit_secagg(
    app: App, facts: Facts, start: RoundStart, nodes: int, sampled: int, rounds: int, dropout: float
) -> FlowerAudit:
    given, workflow = start.workflow, start.how
    shares, threshold = _count_shares(facts, start, sampled)
    clip = float(facts.take("clipping_range", given("clipping_range"), WIDEST))
    weight = float(facts.take("max_weight", given("max_weight"), HEAVIEST))
    app.check_mod(facts, MODS[workflow])
    app.check_metrics(facts)
    settings: dict[str, Any] = {"threshold": threshold, "clip": clip, "max_weight": weight, "allow_leaks": True}
    # A round continues while a threshold of everybody's shares is left, and all have the same number.
    settings["fewest"] = -(-sampled * threshold // shares)
    scope = _make_scope("secagg", nodes, sampled, rounds, dropout, settings)
    reports = _report_each(scope)
    splits = can_split(shares, threshold, sampled)
    needed = count_colluders(threshold, shares)
    findings = _find_sums(reports[0], nodes, sampled, rounds, dropout)
    findings.append(Remark.of(AppCode.COLLUSION, nodes=needed, by_shares=threshold < shares - 1))
    if 2 * threshold <= shares:
        findings.append(Remark.of(AppCode.LOW_THRESHOLD, threshold=threshold, shares=shares))
    if splits:
        findings.append(Remark.of(AppCode.GRAPH_CAN_SPLIT, shares=shares))
    if not start.has_initial_model:
        findings.append(Remark.of(AppCode.INITIAL_MODEL_REQUEST, certain=start.has_initial_model is False))
    findings.append(Remark.of(AppCode.METRICS_SEEN))
    findings.append(Remark.of(AppCode.KEYS_NOT_SIGNED))
    if dropout:
        findings.append(Remark.of(AppCode.RETURN_DELAYED))
    often = rounds * (sampled * dropout ** (shares // 2)) ** 2
    unknown = Remark.of(UndecidedCode.SMALL_SUMS) if splits and often > NEGLIGIBLE else None
    return FlowerAudit(app.name, WAYS[workflow], start.origin, facts, reports, findings, unknown)


def _audit_tacit(app: App, facts: Facts, start: RoundStart, rounds: int, dropout: float) -> FlowerAudit:
    path = Path(str(app.config.get(FEDERATION, "")))
    with suppress(RuntimeError):  # an unknown home folder
        path = path.expanduser()
    other = app.find_other_roster(facts, start)
    roster = _load_roster(path) if other is None else None
    names: tuple[Party, ...] = ()
    settings: Mapping[str, Any] = {}
    if roster is not None:
        names, settings, listed = roster.names, roster.settings, ValueOrigin(OriginCode.ROSTER)
        facts.take("roster", SourceValue(str(path), ValueOrigin(OriginCode.CONFIG, name=FEDERATION)))
        counted, named = SourceValue(len(names), listed), SourceValue(roster.protocol, listed)
    else:
        facts.take("roster", NOT_GIVEN, "none", ValueOrigin(OriginCode.ROSTER_NOT_USED, name=str(path)))
        counted = NOT_GIVEN
        named = unreadable_value(other or ValueOrigin(OriginCode.ROSTER_UNREADABLE, name=str(path)))
    protocol = str(facts.take("protocol", named, app.config.get("tacit-protocol") or DEFAULT_PROTOCOL))
    settings = settings if protocol == named.value else {}  # The roster's settings belong to its own protocol.
    nodes, sampled = _count_nodes(app, facts, start, counted)
    app.check_mod(facts, OUR_MODS)
    names = names if len(names) == nodes else _name_nodes(nodes)
    # For the protocol, a node that the strategy does not ask has dropped out. With secagg it also misses the next
    # round.
    lost = 1 - (1 - dropout) * sampled / nodes
    scope = Scope.of(protocol, names, settings, rounds=rounds, dropout=lost)
    if sampled < scope.terms.fewest_present:
        raise ConfigError(
            f"no round can end: the strategy asks {sampled} of {nodes} nodes, and {protocol} needs "
            f"{scope.terms.fewest_present}; try: have it ask all, and set participation on the roster"
        )
    reports = _report_each(scope)
    findings = [Remark.of(AppCode.MESSAGES_CARRIED)]
    if scope.protocol.server is not None:
        findings = _find_sums(reports[0], nodes, sampled, rounds, dropout)
    unknown = None
    if sampled < nodes:
        findings.append(Remark.of(AppCode.SAMPLING_AS_DROPOUTS))
        unknown = Remark.of(UndecidedCode.SAMPLING_NOT_ANALYSED, sampled=sampled, nodes=nodes)
    return FlowerAudit(app.name, WAYS[TACIT], start.origin, facts, reports, findings, unknown)


def _load_roster(path: Path) -> RosterFile | None:
    """Returns a roster; None if it cannot be read."""
    try:
        return RosterFile.load(path)
    except (TacitError, ValueError):  # For example, a character that is not allowed in a path.
        return None


def _report_each(scope: Scope) -> list[Report]:
    """Returns reports on the server and on each single party.

    Stops after the server if it exposes anybody on its own, because that decides the verdict.
    """
    auditor, reports = WorstSeedAuditor(scope), list[Report]()
    for each in list_coalitions(scope.protocol, scope.parties, 1):
        reports.append(auditor.report(each))
        if each == (SERVER,) and reports[0].victims:
            break
    return reports


def _name_nodes(nodes: int) -> tuple[Party, ...]:
    return tuple([f"p{place}" for place in range(nodes)])


def _make_scope(
    protocol: str, nodes: int, sampled: int, rounds: int, dropout: float, settings: Mapping[str, Any]
) -> Scope:
    policy = {"participation": Random(per_round=sampled)} if sampled < nodes else {}
    return Scope.of(protocol, _name_nodes(nodes), {**settings, **policy}, rounds=rounds, dropout=dropout)


def _count_nodes(app: App, facts: Facts, start: RoundStart, counted: SourceValue = NOT_GIVEN) -> tuple[int, int]:
    """Returns the number of nodes, and how many take part in a round."""
    given = start.strategy
    least = given("min_available_nodes", "min_available_clients")
    # A strategy waits for at least this number, and there may be more.
    otherwise = max(NODES, int(least.value)) if least.is_number else NODES
    unset = ValueOrigin(OriginCode.NOT_IN_APP, name="parties")
    nodes = int(facts.take("nodes", counted if counted.given else app.read_node_count(), otherwise, unset))
    if nodes > MOST_NODES:
        raise ConfigError(f"{nodes} nodes are too many to analyse; try: --parties with at most {MOST_NODES}")
    fraction = facts.take("fraction", given("fraction_train", "fraction_fit"), 1.0)
    if fraction >= 1 and "fraction" not in facts.unread:
        return nodes, nodes
    fewest = facts.take("fewest_sampled", given("min_train_nodes", "min_fit_clients"), 2)
    return nodes, min(nodes, max(int(nodes * float(fraction)), int(fewest), 1))


def _count_shares(facts: Facts, start: RoundStart, sampled: int) -> tuple[int, int]:
    """Returns the number of shares and the threshold, as Flower computes them for the sampled nodes."""
    given = start.workflow
    shares = facts.take("num_shares", given("num_shares"), 1.0, ValueOrigin(OriginCode.ALL_SAMPLED))
    if isinstance(shares, float) or shares == 1:
        shares = round(float(shares) * sampled)
        shares += shares < sampled and shares % 2 == 0
        shares = sampled if shares <= 2 else shares
    found = given("reconstruction_threshold")
    # The threshold has no default: without it the workflow cannot run as it was read.
    found = found if found.given else unreadable_value(NOT_GIVEN.origin)
    wanted = facts.take("reconstruction_threshold", found, 0.5)
    threshold = max(round(wanted * shares), 2) if isinstance(wanted, float) or wanted == 1 else int(wanted)
    # Flower makes an even number odd after it has the threshold. There are at most as many shares as nodes.
    shares += shares != sampled and shares % 2 == 0
    shares = min(int(shares), sampled)
    return shares, min(threshold, shares)


# --- findings --------------------------------------------------------------------------------------------------------


def _find_sums(report: Report, nodes: int, sampled: int, rounds: int, dropout: float) -> list[Remark]:
    """Returns what the sums of rounds show the server."""
    findings = [Remark.of(AppCode.SUMS_SEEN, sampled=sampled, nodes=nodes, dropout=dropout)]
    worst = report.worst
    if worst.victims:
        exposed, first = len(worst.victims), worst.safe_rounds + 1
        findings.append(Remark.of(AppCode.DIFFERENCES_EXPOSE, exposed=exposed, nodes=nodes, first=first, rounds=rounds))
    else:
        group = report.smallest_group
        findings.append(Remark.of(AppCode.SUMS_EXPOSE_NOBODY, rounds=rounds, anonymity_set=group))
    if not dropout and sampled == nodes:
        findings.append(Remark.of(AppCode.DROPOUT_WOULD_EXPOSE))
    return findings


def count_colluders(threshold: int, shares: int) -> int:
    """Returns how many share holders must collude with the server to recover a vector; the victim holds one share."""
    return min(threshold, shares - 1)


def can_split(shares: int, threshold: int, sampled: int) -> bool:
    """Returns whether a round can continue although dropouts split the mask graph of the remaining nodes.

    Nodes form a circle, and each masks with the same number k of nodes to its left and to its right. If k in a row drop
    out and no others do, the node in their middle keeps k + 1 shares, with its own.
    """
    return shares < sampled and threshold <= shares // 2 + 1
