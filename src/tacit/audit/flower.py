"""What the server of a Flower app can learn, told from the app's files, none of which is run.

An app says how it averages in its `pyproject.toml` and in the source of its server: by a plain strategy, by Flower's
SecAgg+, or by Tacit. Values are taken from the source if they can be read off it, and from the app's configuration
where the source points there; whatever cannot be told is assumed, and listed as such. The rest is an audit like any
other. SecAgg+ is looked at as `secagg` on the same graph and threshold, which shows a server that keeps to the protocol
the same sums.
"""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.audit.coalitions import coalitions
from tacit.audit.report import EXACT_ROUNDS, Auditor, Report
from tacit.audit.scope import Scope
from tacit.core.errors import ConfigError, TacitError
from tacit.core.suite import SERVER
from tacit.designs.participation import Random
from tacit.drivers.network.roster import RosterFile

SECURE = {
    "SecAggPlusWorkflow": ("num_shares", "reconstruction_threshold"),
    "SecAggWorkflow": ("reconstruction_threshold",),
}
"""Flower's workflows, and what their arguments without a name are."""
OURS = "flower.grid"
"""How a server calls ours."""
WIDEST = 8.0
"""The clip of SecAgg+ unless set,"""
HEAVIEST = 1000.0
"""and the largest weight."""
CONFIGS = ("run_config", "app_config")
"""What Flower calls the configuration of an app in its source."""


@dataclass
class Facts:
    """What is known of an app: values, and where each is from."""

    values: dict[str, Any] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """What was read, as it is said."""
    assumed: dict[str, str] = field(default_factory=dict)
    """What was not, and why."""

    def take(self, name: str, found: Any, where: str, otherwise: Any, why: str) -> Any:
        """Takes a value that was found, or another one if it was not."""
        if found is not None:
            self.values[name], self.read[name] = found, f"{name} = {found} ({where})"
        else:
            self.values[name], self.assumed[name] = otherwise, f"{name} = {otherwise} ({why})"
        return self.values[name]


@dataclass
class FlowerAudit:
    """What was found about an app."""

    app: str
    averages: str
    """How it averages: "plain", "SecAgg+", "SecAgg" or "Tacit"."""
    facts: Facts
    reports: list[Report]
    says: list[str]
    """What its server can learn, in sentences."""

    def described(self) -> dict[str, Any]:
        """Returns all but the reports as plain data."""
        known = {"read": list(self.facts.read.values()), "assumed": list(self.facts.assumed.values())}
        return {"app": self.app, "averages": self.averages, **known, "says": self.says}


def audit_app(folder: str | Path, *, parties: int, rounds: int, dropout: float = 0.0) -> FlowerAudit:
    """Returns what the server of an app can learn; `parties` and `rounds` count where the app does not say.

    Raises ConfigError if the folder has no Flower app in it.
    """
    app = _App.load(Path(folder))
    facts = Facts()
    rounds = int(facts.take("rounds", *app.rounds(), rounds, "not in the app: --rounds"))
    if app.call(OURS) is not None:
        return _by_tacit(app, facts, parties, rounds, dropout)
    nodes, sampled = _sampled(app, facts, parties)
    secure = next((name for name in SECURE if app.call(name) is not None), None)
    if secure is None:
        return _plain(app, facts, nodes, sampled, rounds, dropout)
    return _secure(app, facts, secure, nodes, sampled, rounds, dropout)


# --- the three ways ------------------------------------------------------------------------------------------------


def _plain(app: "_App", facts: Facts, nodes: int, sampled: int, rounds: int, dropout: float) -> FlowerAudit:
    scope = _scope("fedavg", nodes, sampled, min(rounds, EXACT_ROUNDS), dropout, {})
    report = Auditor(scope).report((SERVER,))
    says = [
        f"The server sees every model that a node sends, as it is: {len(report.exposed)} of {nodes} nodes within "
        f"{report.rounds} rounds. TLS keeps others out, not the server.",
        "Give the strategy the grid of tacit.flower, and the ClientApp its mod, and it sees their average alone.",
    ]
    return FlowerAudit(app.name, "plain", facts, [report], says)


def _secure(
    app: "_App", facts: Facts, workflow: str, nodes: int, sampled: int, rounds: int, dropout: float
) -> FlowerAudit:
    given = app.arguments(workflow)
    shares, threshold = _shares(facts, given, workflow, sampled)
    clip = float(facts.take("clipping_range", *given("clipping_range"), WIDEST, "Flower's default"))
    weight = float(facts.take("max_weight", *given("max_weight"), HEAVIEST, "Flower's default"))
    settings: dict[str, Any] = {"threshold": threshold, "clip": clip, "max_weight": weight, "allow_leaks": True}
    # Over many rounds sums are what counts, and they are the same whoever masks with whom.
    if shares < sampled and rounds <= EXACT_ROUNDS:
        settings["neighbours"] = shares - 1
    scope = _scope("secagg", nodes, sampled, rounds, dropout, settings)
    auditor = Auditor(scope)
    reports = [auditor.report(each) for each in ((SERVER,), (SERVER, "p0"))]
    says = [
        *_of_sums(reports[0], nodes, sampled, rounds, dropout),
        *_of_collusion(shares, threshold, sampled),
        "That is a server which keeps to the protocol. In SecAgg+ nobody signs keys, and no node looks whether others "
        "were told the same as it: a server that lies can put keys of its own in the place of a node's neighbours, and "
        "read its model. What secagg of Tacit does about that is in docs/protocols/secagg.md.",
    ]
    if dropout:
        says.append("As under secagg, whoever is lost to a round is taken to sit out the next; in SecAgg+ it is back.")
    if not app.mentions("secaggplus_mod", "secagg_mod"):
        says.append("No mod of SecAgg was found in the app's source: without it nodes answer as they are asked.")
    return FlowerAudit(app.name, "SecAgg+" if "Plus" in workflow else "SecAgg", facts, reports, says)


def _by_tacit(app: "_App", facts: Facts, parties: int, rounds: int, dropout: float) -> FlowerAudit:
    path = Path(str(app.config.get("tacit-federation", ""))).expanduser()
    try:
        roster = RosterFile.load(path)
        names, protocol, settings = roster.names, roster.protocol, roster.settings
        facts.take("roster", str(path), "tacit-federation", None, "")
    except TacitError:
        names, settings = tuple([f"p{place}" for place in range(parties)]), {}
        facts.take("roster", None, "", "none", f"{path} cannot be read, so parties and settings are not known")
        protocol = str(facts.take("protocol", app.config.get("tacit-protocol"), "tacit-protocol", "secagg", "not said"))
        facts.take("nodes", None, "", parties, "not in the app: --parties")
    scope = Scope.of(protocol, names, settings, rounds=rounds, dropout=dropout)
    auditor = Auditor(scope)
    reports = [auditor.report(each) for each in coalitions(scope.protocol, names, 1)]
    if scope.protocol.server is not None:
        (alone,) = [report for report in reports if report.coalition == (SERVER,)]
        says = _of_sums(alone, len(names), len(names), rounds, dropout)
    else:
        says = ["The server carries sealed mail, and sees who writes to whom and how much."]
    return FlowerAudit(app.name, "Tacit", facts, reports, says)


def _scope(protocol: str, nodes: int, sampled: int, rounds: int, dropout: float, settings: Mapping[str, Any]) -> Scope:
    names = tuple([f"p{place}" for place in range(nodes)])
    policy = {"participation": Random(per_round=sampled)} if sampled < nodes else {}
    return Scope.of(protocol, names, {**settings, **policy}, rounds=rounds, dropout=dropout)


def _sampled(app: "_App", facts: Facts, parties: int) -> tuple[int, int]:
    """Returns how many nodes there are, and how many take part in a round."""
    given = app.strategy()
    least = given("min_available_nodes", "min_available_clients")
    found = app.federation()
    nodes = int(facts.take("nodes", *(found if found[0] is not None else least), parties, "not in the app: --parties"))
    fraction = facts.take("fraction", *given("fraction_train", "fraction_fit"), 1.0, "Flower's default")
    fewest = facts.take("fewest sampled", *given("min_train_nodes", "min_fit_clients"), 2, "Flower's default")
    return nodes, min(nodes, max(int(nodes * float(fraction)), int(fewest)))


def _shares(facts: Facts, given: "_Given", workflow: str, sampled: int) -> tuple[int, int]:
    """Returns the number of shares and the threshold, as Flower works them out for so many nodes."""
    shares = facts.take("num_shares", *given("num_shares"), 1.0, "all that are sampled")
    if isinstance(shares, float) or shares == 1:
        shares = round(float(shares) * sampled)
        shares += shares < sampled and shares % 2 == 0
        shares = sampled if shares <= 2 else shares
    elif "Plus" in workflow and shares != sampled:
        shares += shares % 2 == 0
    shares = min(int(shares), sampled)
    wanted = facts.take("reconstruction_threshold", *given("reconstruction_threshold"), 0.5, "not to be read off")
    threshold = max(round(wanted * shares), 2) if isinstance(wanted, float) or wanted == 1 else int(wanted)
    return shares, min(threshold, shares)


# --- what is said --------------------------------------------------------------------------------------------------


def _of_sums(report: Report, nodes: int, sampled: int, rounds: int, dropout: float) -> list[str]:
    who = f"{sampled} of {nodes} nodes, others each time" if sampled < nodes else f"all {nodes} nodes"
    lost = f", each lost to a round with a chance of {dropout:g}" if dropout else ""
    says = [f"The server sees the sum of each round's models, over {who}{lost}."]
    if report.exposed or report.nearly:
        first, known = report.safe_rounds + 1, len(report.exposed) + len(report.nearly)
        says.append(
            f"Differences of rounds expose {known} of {nodes} nodes, the first in round {first} of {rounds}, if models "
            f"hardly change; the less they stand still, the less is learnt."
        )
    else:
        says.append(
            f"In {rounds} rounds nobody's model follows from these sums alone; the smallest group that can be told "
            f"apart has {report.smallest_group}."
        )
    if not dropout and sampled == nodes:
        says.append("Whoever drops out of one round of two is their difference: ask again with --dropout.")
    return says


def _of_collusion(shares: int, threshold: int, sampled: int) -> list[str]:
    needed = collusion(threshold, sampled)
    how = "put its secrets together from their shares" if threshold < sampled - 1 else "take their own models off a sum"
    says = [f"Together with {needed} nodes it can read any node's model that they are neighbours of: they {how}."]
    if 2 * threshold <= shares:
        says.append(
            f"A threshold of {threshold} of {shares} shares lets a server that lies collect both secrets of a node "
            f"from two halves of its neighbours, without any accomplice; set it above {shares // 2}."
        )
    return says


def collusion(threshold: int, summed: int) -> int:
    """Returns how many of those who are summed it takes, with the server, to read another's vector."""
    return min(threshold, summed - 1)


# --- what an app's files say ---------------------------------------------------------------------------------------


class _Given:
    """The arguments of a call, of which those are known that can be read off the source."""

    def __init__(self, call: ast.Call | None, names: tuple[str, ...], app: "_App") -> None:
        self._given: dict[str, ast.expr] = {}
        if call is not None:
            self._given = dict(zip(names, call.args, strict=False))
            self._given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
        self._app = app

    def __call__(self, *names: str) -> tuple[Any, str]:
        """Returns the first of some arguments that is a number, and where it is from; None if there is none."""
        for name in names:
            if name in self._given:
                value, where = self._app.value(self._given[name])
                if isinstance(value, int | float) and not isinstance(value, bool):
                    return value, where
        return None, ""


@dataclass
class _App:
    """A Flower app as its files have it."""

    name: str
    config: dict[str, Any]
    settings: dict[str, Any]
    """All of its pyproject.toml."""
    sources: dict[str, ast.Module]
    """What can be parsed, by path, the server's first."""

    @classmethod
    def load(cls, folder: Path) -> "_App":
        path = folder / "pyproject.toml"
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
            flower = settings["tool"]["flwr"]["app"]
            server = str(flower["components"]["serverapp"])
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; give the folder of a Flower app") from None
        except (KeyError, TypeError):
            raise ConfigError(f"{path} has no [tool.flwr.app.components]; give the folder of a Flower app") from None
        first = folder / f"{server.partition(':')[0].replace('.', '/')}.py"
        sources: dict[str, ast.Module] = {}
        for each in (first, *sorted(folder.rglob("*.py"))):
            where = each.relative_to(folder).as_posix()
            try:
                sources.setdefault(where, ast.parse(each.read_bytes()))
            except (OSError, SyntaxError, ValueError) as error:
                if each == first:
                    raise ConfigError(f"{each}, which has the server, cannot be read: {error}") from None
        name = str(settings.get("project", {}).get("name", folder.name))
        return cls(name, _flat(flower.get("config", {})), settings, sources)

    def _nodes(self) -> Iterator[tuple[str, ast.AST]]:
        return ((where, node) for where, tree in self.sources.items() for node in ast.walk(tree))

    def call(self, name: str) -> ast.Call | None:
        """Returns the first call of something by the end of its name."""
        for _, node in self._nodes():
            if isinstance(node, ast.Call) and f".{ast.unparse(node.func)}".endswith(f".{name}"):
                return node
        return None

    def mentions(self, *names: str) -> bool:
        """Says whether the source has one of some names."""
        return any(isinstance(node, ast.Name) and node.id in names for _, node in self._nodes())

    def arguments(self, name: str) -> _Given:
        """Returns the arguments of the first call of something."""
        return _Given(self.call(name), SECURE.get(name, ()), self)

    def strategy(self) -> _Given:
        """Returns the arguments of what samples nodes: the first call with one of them in it."""
        known = {"fraction_train", "fraction_fit", "min_available_nodes", "min_available_clients"}
        for _, node in self._nodes():
            if isinstance(node, ast.Call) and known & {each.arg for each in node.keywords}:
                return _Given(node, (), self)
        return _Given(None, (), self)

    def rounds(self) -> tuple[Any, str]:
        """Returns the number of rounds."""
        for _, node in self._nodes():
            if isinstance(node, ast.Call) and any(each.arg == "num_rounds" for each in node.keywords):
                found = _Given(node, (), self)("num_rounds")
                if found[0] is not None:
                    return found
        for name in ("num-server-rounds", "num-rounds"):
            if name in self.config:
                return self.config[name], f"config: {name}"
        return None, ""

    def federation(self) -> tuple[Any, str]:
        """Returns the number of nodes, where an app still says so."""
        federations = self.settings["tool"]["flwr"].get("federations", {})
        chosen = federations.get(str(federations.get("default", "")), {})
        found = chosen.get("options", {}).get("num-supernodes") if isinstance(chosen, dict) else None
        return found, "pyproject.toml: num-supernodes"

    def value(self, written: ast.expr, depth: int = 8) -> tuple[Any, str]:
        """Returns what an expression is, if that can be told without running anything, and where it says so."""
        if not depth:
            return None, ""
        if isinstance(written, ast.Constant):
            return written.value, f"source, line {written.lineno}"
        if isinstance(written, ast.Call) and ast.unparse(written.func) in ("int", "float") and len(written.args) == 1:
            value, where = self.value(written.args[0], depth - 1)
            number = isinstance(value, int | float)
            return ({"int": int, "float": float}[ast.unparse(written.func)](value) if number else None), where
        if isinstance(written, ast.Subscript) and isinstance(written.slice, ast.Constant):
            of = written.value
            name = written.slice.value
            if self._is_config(of, depth - 1) and name in self.config:
                return self.config[name], f"config: {name}"
        if isinstance(written, ast.Name):
            # A name that is given two values may be either.
            values = [
                node.value
                for _, node in self._nodes()
                if isinstance(node, ast.Assign)
                and any(isinstance(each, ast.Name) and each.id == written.id for each in node.targets)
            ]
            if len(values) == 1:
                return self.value(values[0], depth - 1)
        return None, ""

    def _is_config(self, written: ast.expr, depth: int) -> bool:
        if isinstance(written, ast.Attribute):
            return written.attr in CONFIGS
        if isinstance(written, ast.Name) and depth > 0:
            return any(
                isinstance(node, ast.Assign)
                and any(isinstance(each, ast.Name) and each.id == written.id for each in node.targets)
                and self._is_config(node.value, depth - 1)
                for _, node in self._nodes()
            )
        return False


def _flat(config: Mapping[str, Any], front: str = "") -> dict[str, Any]:
    """Returns a configuration as Flower hands it to an app: tables in it are names with dots."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{front}{name}.")
        else:
            found[front + name] = value
    return found
