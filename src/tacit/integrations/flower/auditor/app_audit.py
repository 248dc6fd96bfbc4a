"""What the server of a Flower app can learn, told from the app's files, none of which is run.

An app says how it averages in its `pyproject.toml` and in the source of its server: by a plain strategy, by Flower's
SecAgg+, or by Tacit. `flower_app` reads both, as far as that is safe, and follows where the grid of the server goes.
What is not given is Flower's default, or assumed, and listed as such. What is given and cannot be read is listed too,
and then nobody is told that nobody is exposed. The rest is an audit like any other. SecAgg+ is looked at as `secagg`
with the same threshold, which shows a server that keeps to the protocol the same sums whoever masks with whom, as long
as those who are left are not cut in two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.auditing.auditor import EXACT_ROUNDS, Auditor, WorstSeedAuditor
from tacit.auditing.findings import Remark, UndecidedCode, Verdict
from tacit.auditing.render.text import name_seed
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import list_coalitions
from tacit.auditing.summary import Summary
from tacit.core.average import format_count
from tacit.core.errors import ConfigError, TacitError
from tacit.core.suite import SERVER, Party
from tacit.designs.participation import Random
from tacit.integrations.flower.auditor.app_facts import FEDERATION, WAYS, App, Facts
from tacit.integrations.flower.auditor.modules import NOT_GIVEN, SourceValue, is_number, unreadable_value
from tacit.integrations.flower.auditor.round_starts import MODS, OUR_MODS, PLAIN, TACIT, RoundStart
from tacit.net.membership.roster import RosterFile
from tacit.protocols import DEFAULT_PROTOCOL

WIDEST = 8.0
"""The clip of SecAgg+ unless set,"""
HEAVIEST = 1000.0
"""and the largest weight."""
NODES, MOST_NODES = 9, 10_000
"""Nodes that are assumed where nothing says how many there are, and more than which are too many to look at."""
NEGLIGIBLE = 1e-6
"""A chance that nobody counts on."""
SETTABLE = (
    *("rounds", "nodes", "fraction", "fewest_sampled", "num_shares", "reconstruction_threshold"),
    *("clipping_range", "max_weight", "protocol"),
)
"""What whoever asks can say, in the place of an app that does not, or not so that it can be read."""


@dataclass
class FlowerAudit:
    """What was found about an app."""

    app: str
    averages: str
    """How it averages: "plain", "SecAgg+", "SecAgg" or "Tacit"."""
    facts: Facts
    reports: list[Report]
    sentences: list[str]
    """What its server can learn, in sentences."""
    unknown: Remark | None = None
    """What was not analysed, and may expose somebody."""

    def __post_init__(self) -> None:
        if self.facts.unread:
            self.sentences.insert(0, f"Could not be read, so that what follows may not hold: {self.facts.missing}.")
        if [report.coalition for report in self.reports] == [(SERVER,)]:
            self.sentences.append(
                "Nodes hear sums too. What each of them learns was not asked, for the server learns some."
            )
        if idle := [name for name in self.facts.overrides if name not in self.facts.values]:
            self.sentences.append(f"Of an app like this {', '.join(idle)} says nothing, and was left aside.")

    def describe(self) -> dict[str, Any]:
        """Returns all but the reports as plain data."""
        facts = self.facts
        known = {name: list(each.values()) for name, each in (("read", facts.read), ("assumed", facts.assumed))}
        return {
            "app": self.app,
            "averages": self.averages,
            **known,
            "unread": list(facts.unread.values()),
            "says": self.sentences,
        }

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
    """Returns what the server of an app can learn. What is given here counts more than what the app says.

    Raises ConfigError if the folder has no Flower app in it, or for something in `overrides` that there is not.
    """
    overrides = {**(overrides or {}), **{name: each for name, each in (("nodes", parties), ("rounds", rounds)) if each}}
    problems = [f"{name}: there is {', '.join(SETTABLE)}" for name in overrides if name not in SETTABLE]
    problems += [
        f"{name}={value!r}: must be a number above 0"
        for name, value in overrides.items()
        if name != "protocol" and (not is_number(value) or value <= 0)
    ]
    if problems:
        raise ConfigError(problems)
    app = App.load(Path(folder))
    try:
        return _audit_loaded(app, Facts(overrides), dropout)
    except RecursionError:
        raise ConfigError(f"the source of {app.name} is nested too deep to be read") from None


def _audit_loaded(app: App, facts: Facts, dropout: float) -> FlowerAudit:
    start = app.find_start(facts)
    rounds = int(facts.take("rounds", start.rounds, 1, "not in the app: --rounds"))
    if start.how == TACIT:
        return _audit_tacit(app, facts, start, rounds, dropout)
    nodes, sampled = _count_nodes(app, facts, start)
    if start.how == PLAIN:
        return _audit_plain(app, facts, start, nodes, sampled, rounds, dropout)
    return _audit_secagg(app, facts, start, nodes, sampled, rounds, dropout)


# --- the three ways ------------------------------------------------------------------------------------------------


def _audit_plain(
    app: App, facts: Facts, start: RoundStart, nodes: int, sampled: int, rounds: int, dropout: float
) -> FlowerAudit:
    scope = _make_scope("fedavg", nodes, sampled, min(rounds, EXACT_ROUNDS), dropout, {})
    report = Auditor(scope).report((SERVER,))
    sentences = [
        f"The server sees every model that a node sends, as it is: {len(report.exposed)} of {nodes} nodes within "
        f"{format_count(report.rounds, 'round')} ({start.where}). TLS keeps others out, not the server.",
        "Give the strategy the grid of tacit.flower, and the ClientApp its mod, and it sees their average alone.",
    ]
    return FlowerAudit(app.name, WAYS[PLAIN], facts, [report], sentences)


def _audit_secagg(
    app: App, facts: Facts, start: RoundStart, nodes: int, sampled: int, rounds: int, dropout: float
) -> FlowerAudit:
    given, workflow = start.workflow, start.how
    shares, threshold = _count_shares(facts, start, sampled)
    clip = float(facts.take("clipping_range", given("clipping_range"), WIDEST, "Flower's default"))
    weight = float(facts.take("max_weight", given("max_weight"), HEAVIEST, "Flower's default"))
    app.check_mod(facts, MODS[workflow])
    settings: dict[str, Any] = {"threshold": threshold, "clip": clip, "max_weight": weight, "allow_leaks": True}
    # A round goes on as long as a threshold of shares is left of everybody's, and all have as many.
    settings["fewest"] = -(-sampled * threshold // shares)
    scope = _make_scope("secagg", nodes, sampled, rounds, dropout, settings)
    reports = _report_each(scope)
    sentences = [
        *_describe_sums(reports[0], nodes, sampled, rounds, dropout),
        *_describe_collusion(shares, threshold),
        *_describe_split(shares, threshold, sampled),
        *_describe_initial_request(start.has_initial_model),
        "That is a server which keeps to the protocol. In SecAgg+ nobody signs keys, and no node looks whether others "
        "were told the same as it: a server that lies can put keys of its own in the place of a node's neighbours, and "
        "read its model. What secagg of Tacit does about that is in docs/protocols/secagg.md.",
    ]
    if dropout:
        sentences.append(
            "As under secagg, whoever is lost to a round is taken to sit out the next; in SecAgg+ it is back."
        )
    often = rounds * (sampled * dropout ** (shares // 2)) ** 2
    small_sums = often > NEGLIGIBLE and can_split(shares, threshold, sampled)
    unknown = Remark.of(UndecidedCode.SMALL_SUMS) if small_sums else None
    return FlowerAudit(app.name, WAYS[workflow], facts, reports, sentences, unknown)


def _audit_tacit(app: App, facts: Facts, start: RoundStart, rounds: int, dropout: float) -> FlowerAudit:
    path = Path(str(app.config.get(FEDERATION, "")))
    settings: Mapping[str, Any] = {}
    names: tuple[Party, ...] = ()
    why = ""
    try:
        path = path.expanduser()
        if why := app.find_other_roster(facts, start):
            raise ConfigError(why)
        roster = RosterFile.load(path)
        names, settings = roster.names, roster.settings
        facts.take("roster", SourceValue(str(path), FEDERATION), None, "")
        counted, named = SourceValue(len(names), "on the roster"), SourceValue(roster.protocol, "on the roster")
    except (TacitError, RuntimeError, ValueError):  # of which are homes of nobody, and what no path can have
        why = why or f"{path}, the roster, cannot be read, and says the settings too"
        facts.take("roster", NOT_GIVEN, "none", f"{path} is not read, so settings are the protocol's own")
        counted, named = NOT_GIVEN, unreadable_value(why)
    protocol = str(facts.take("protocol", named, app.read_config("tacit-protocol").value or DEFAULT_PROTOCOL, ""))
    settings = settings if protocol == named.value else {}  # which are those of the protocol on the roster
    nodes, sampled = _count_nodes(app, facts, start, counted)
    app.check_mod(facts, OUR_MODS)
    names = names if len(names) == nodes else _name_nodes(nodes)
    # To the protocol, whoever the strategy does not ask is lost to the round, and under secagg sits out the next one.
    lost = 1 - (1 - dropout) * sampled / nodes
    scope = Scope.of(protocol, names, settings, rounds=rounds, dropout=lost)
    if sampled < scope.terms.fewest_present:
        raise ConfigError(
            f"no round can end: the strategy asks {sampled} of {nodes} nodes, and {protocol} needs "
            f"{scope.terms.fewest_present}; have it ask all, and set participation on the roster"
        )
    reports = _report_each(scope)
    if scope.protocol.server is not None:
        sentences = _describe_sums(reports[0], nodes, sampled, rounds, dropout)
    else:
        sentences = ["The server carries sealed mail, and sees who writes to whom and how much."]
    if sampled < nodes:
        sentences.append(
            "The strategy asks others each time, and who is not asked is looked at as lost by chance, so that rounds "
            "are of fewer, or end without a sum, where they would not. Have it ask all, and let the protocol's "
            "participation choose, which nodes check."
        )
    unknown = Remark.of(UndecidedCode.SAMPLING_NOT_ANALYSED, sampled=sampled, nodes=nodes)
    return FlowerAudit(app.name, WAYS[TACIT], facts, reports, sentences, unknown if sampled < nodes else None)


def _report_each(scope: Scope) -> list[Report]:
    """Returns reports on the server and on each party alone, all of which have to be looked at to say "nobody".

    If the server learns anything by itself, that is the answer, and nobody else is asked.
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
    """Returns how many nodes there are, and how many take part in a round."""
    given = start.strategy
    least = given("min_available_nodes", "min_available_clients")
    # A strategy waits for so many, and there may be more.
    otherwise = max(NODES, int(least.value)) if least.is_number else NODES
    nodes = int(
        facts.take("nodes", counted if counted.given else app.read_node_count(), otherwise, "not in the app: --parties")
    )
    if nodes > MOST_NODES:
        raise ConfigError(f"{nodes} nodes are too many to look at; ask about at most {MOST_NODES} of them: --parties")
    fraction = facts.take("fraction", given("fraction_train", "fraction_fit"), 1.0, "Flower's default")
    if fraction >= 1 and "fraction" not in facts.unread:
        return nodes, nodes
    fewest = facts.take("fewest_sampled", given("min_train_nodes", "min_fit_clients"), 2, "Flower's default")
    return nodes, min(nodes, max(int(nodes * float(fraction)), int(fewest), 1))


def _count_shares(facts: Facts, start: RoundStart, sampled: int) -> tuple[int, int]:
    """Returns the number of shares and the threshold, as Flower works them out for so many nodes."""
    given = start.workflow
    shares = facts.take("num_shares", given("num_shares"), 1.0, "all that are sampled")
    if isinstance(shares, float) or shares == 1:
        shares = round(float(shares) * sampled)
        shares += shares < sampled and shares % 2 == 0
        shares = sampled if shares <= 2 else shares
    found = given("reconstruction_threshold")
    # It has no default: a workflow without one cannot be run as it is read.
    found = found if found.given else unreadable_value("it is not given")
    wanted = facts.take("reconstruction_threshold", found, 0.5, "")
    threshold = max(round(wanted * shares), 2) if isinstance(wanted, float) or wanted == 1 else int(wanted)
    # Of an even number it makes an odd one, once it has the threshold, and nobody has more shares than there are nodes.
    shares += shares != sampled and shares % 2 == 0
    shares = min(int(shares), sampled)
    return shares, min(threshold, shares)


# --- what is said --------------------------------------------------------------------------------------------------


def _describe_sums(report: Report, nodes: int, sampled: int, rounds: int, dropout: float) -> list[str]:
    who = f"{sampled} of {nodes} nodes, others each time" if sampled < nodes else f"all {nodes} nodes"
    lost = f", each lost to a round with a chance of {dropout:g}" if dropout else ""
    sentences = [f"The server sees the sum of each round's models, over {who}{lost}."]
    worst = report.worst
    if worst.victims:
        sentences.append(
            f"Differences of rounds expose {len(worst.victims)} of {nodes} nodes, the first in round "
            f"{worst.safe_rounds + 1} of {rounds}{name_seed(report)}, if models hardly drift; the more they drift, the "
            f"less is learnt."
        )
    else:
        sentences.append(
            f"In {format_count(rounds, 'round')} nobody's model follows from these sums alone; the smallest group that "
            f"can be told apart has {report.smallest_group}."
        )
    if not dropout and sampled == nodes:
        sentences.append("Whoever drops out of one round of two is their difference: ask again with --dropout.")
    return sentences


def _describe_collusion(shares: int, threshold: int) -> list[str]:
    needed = count_colluders(threshold, shares)
    how = "put its secrets together from their shares" if threshold < shares - 1 else "know all that it is masked with"
    sentences = [
        f"Together with {format_count(needed, 'node')} it can read any node's model that they are neighbours of: "
        f"they {how}."
    ]
    if 2 * threshold <= shares:
        sentences.append(
            f"A threshold of {threshold} of {shares} shares lets a server that lies collect both secrets of a node "
            f"from two halves of its neighbours, without any accomplice; set it above {shares // 2}."
        )
    return sentences


def count_colluders(threshold: int, shares: int) -> int:
    """Returns how many of those with shares it takes, with the server, to read a vector: one has its own share."""
    return min(threshold, shares - 1)


def _describe_split(shares: int, threshold: int, sampled: int) -> list[str]:
    if not can_split(shares, threshold, sampled):
        return []
    return [
        f"Each node masks with {shares - 1} others. If {shares - 1} nodes drop out of a round, {shares // 2} here and "
        f"{shares // 2} there, those who are left are cut in two, and the server sees the sum of each part: set "
        f"reconstruction_threshold above {shares // 2 + 1}, with which such a round ends without a sum."
    ]


def _describe_initial_request(given: bool | None) -> list[str]:
    if given:
        return []
    gives, asks = ("gives no initial_parameters", "asks") if given is False else ("may give none", "may ask")
    return [
        f"Before the first round this workflow {asks} one node, drawn at random, for its model, which the server gets "
        f"as it is: the strategy {gives}. Mostly that is a model before any training, which says little of data, but "
        f"nothing sees to it. Give the strategy initial_parameters, and nobody is asked."
    ]


def can_split(shares: int, threshold: int, sampled: int) -> bool:
    """Says whether a round can go on of which those who are left do not all mask with each other, by way of others.

    Nodes stand in a circle, and each masks with as many to its left as to its right. Where so many in a row are lost,
    the node in their middle still has one more around it than that, itself format_count, if nobody else is lost.
    """
    return shares < sampled and threshold <= shares // 2 + 1
