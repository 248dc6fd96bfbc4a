"""Comparison of protocols on one scenario: the same data, split, model and local work, with different averaging."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from tacit.api.exposure import exposure
from tacit.api.option_text import check_name, settings_from
from tacit.auditing.findings import Verdict
from tacit.auditing.questions import write_value
from tacit.auditing.render.names import name_parties
from tacit.auditing.render.verdicts import UNAVERAGED
from tacit.core.errors import ConfigError, LeakRefused, NotAudited, TacitError
from tacit.core.progress import Progress, ignore_progress
from tacit.core.values import normalize_value
from tacit.learn.scenario import ALONE, TOGETHER, Data, Scenario, Split
from tacit.learn.training.assemble import AssembledRun, assemble_run
from tacit.learn.training.local_training import LocalTraining
from tacit.learn.training.metrics import Metrics
from tacit.protocols import REGISTRY

STANDARD = Scenario(
    title="handwritten digits",
    rounds=20,
    data=Data(parties=9, split=Split(kind="dirichlet", alpha=0.3)),
    local=LocalTraining(rate=0.5, batch=16),
)
"""The default scenario, which is similar to that of `tacit demo`."""


@dataclass(frozen=True)
class ComparisonResult:
    """Result of a scenario with one protocol."""

    name: str
    options: dict[str, Any]
    history: tuple[Metrics, ...] = ()
    """Metrics of the rounds, with the scenario's own seed."""
    repeats: tuple[Metrics, ...] = ()
    """Metrics of the last round, for each seed."""
    parties: int = 1
    exposed: str = ""
    """Number of models that the worst coalition of the scenario's `adversary` recovers, and its members, in words."""
    verdict: Verdict = Verdict.NOT_AUDITED
    """Verdict of the audit on the settings."""
    server: bool = False
    refused: str = ""
    """Reason why the protocol was not run; empty if it was."""

    @property
    def leaks(self) -> bool:
        """Whether a party is exposed without further dropouts, or the settings were refused for a leak."""
        return self.verdict in (Verdict.EXPOSED, Verdict.NEARLY_EXPOSED, Verdict.LEAKS_BY_DESIGN)

    @property
    def label(self) -> str:
        """A short label: the protocol with its options."""
        return write_variant(self.name, self.options)

    @property
    def last(self) -> Metrics | None:
        """Metrics after the last round; None if there are none."""
        return self.history[-1] if self.history else None

    @property
    def bytes_per_party(self) -> float:
        """Bytes that a party sends in a round on average, including the server's."""
        return sum(each.bytes for each in self.history) / max(1, len(self.history)) / self.parties

    def plain(self) -> dict[str, Any]:
        """Returns the result as plain data."""
        return {
            "protocol": self.name,
            "options": self.options,
            "bytes_per_party_per_round": round(self.bytes_per_party),
            "exposed": self.exposed,
            "verdict_code": self.verdict.value,
            "refused": self.refused,
            "seeds": len(self.repeats),
            "last_of_each_seed": self.repeats,
            "history": self.history,
        }


def write_variant(protocol: str, options: Mapping[str, Any]) -> str:
    """Returns a protocol with its options as text, in the form that `parse_variant` reads."""
    return " ".join([protocol, *(f"{name}={_write_value(value)}" for name, value in options.items())])


def _write_value(value: Any) -> str:
    """Returns a setting as short JSON; a word stands for itself."""
    return write_value(value) if isinstance(value, str) else msgspec.json.encode(normalize_value(value)).decode()


def list_variants(scenario: Scenario) -> list[dict[str, Any]]:
    """Returns every protocol with settings that pass the audit, then local-only and centralised training."""
    own = scenario.protocol
    listed = [{"name": each.name, **_fit_graph(each.example_options, scenario)} for each in REGISTRY.usable()]
    return [{"name": ALONE}, {"name": TOGETHER}, *(own if own["name"] == each["name"] else each for each in listed)]


def _fit_graph(options: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Returns example options, without their graph if the scenario has too few parties for its degree."""
    degree = options.get("graph", {}).get("degree", 0)
    return {name: value for name, value in options.items() if name != "graph" or degree < scenario.data.parties}


def with_same_graph(scenario: Scenario, protocol: dict[str, Any]) -> dict[str, Any]:
    """Returns a named protocol on the graph on which it runs if no protocol is named, unless it has its own graph."""
    listed = next((each for each in list_variants(scenario) if each["name"] == protocol["name"]), {})
    return protocol | {"graph": listed["graph"]} if "graph" in listed and "graph" not in protocol else protocol


def parse_variant(text: str) -> dict[str, Any]:
    """Returns the protocol that a text names, such as "cesar share=0.3", with values in JSON."""
    name, *options = _split_words(text) or [""]
    check_name("protocol", name, (*REGISTRY, ALONE, TOGETHER))
    return {"name": name, **settings_from(options, "--protocol")}


def _split_words(text: str) -> list[str]:
    """Returns the words of a text. Quoted or bracketed text is one word, and keeps its quotes, which belong to JSON."""
    words, depth, quote, escaped = [""], 0, "", False
    for letter in text:
        if quote:
            quote = quote if letter != quote or escaped else ""
            escaped = letter == "\\" and not escaped
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[{(") - (letter in ")}]")
        if letter.isspace() and not quote and depth <= 0:
            words.append("")
        else:
            words[-1] += letter
    # A user may quote a whole setting, as in a shell.
    return [word[1:-1] if len(word) > 1 and word[0] == word[-1] in "\"'" else word for word in words if word]


def compare(
    scenario: Scenario,
    protocols: Sequence[dict[str, Any]] | None = None,
    progress: Progress = ignore_progress,
    seeds: int = 1,
) -> list[ComparisonResult]:
    """Runs a scenario with each of several protocols, or with all. Settings that the audit refuses are reported as
    refused.

    When all protocols are compared, so are settings that do not fit the scenario, such as privacy per user without
    averaging.

    Args:
        scenario: The scenario.
        protocols: The protocols with their options; None for all. Those on a graph have the same in both cases.
        progress: Receives the start of every protocol and the end of every round, in rounds of all protocols.
        seeds: Number of seeds, from that of the scenario on, with each of which every protocol runs.
    """
    all_ = len(list_variants(scenario) if protocols is None else protocols)
    turns, total = count(), all_ * scenario.rounds * seeds

    def run(protocol: dict[str, Any], asked: bool = True) -> ComparisonResult:
        before = next(turns) * scenario.rounds * seeds

        def report_rounds(doing: str, done: float, _: float = 1.0, /) -> None:
            progress(doing, before + done, total)

        return _run_variant(scenario, protocol, report_rounds, asked, seeds)

    if protocols is not None:
        return [run(with_same_graph(scenario, protocol)) for protocol in protocols]
    every, own = list_variants(scenario), scenario.protocol["name"]
    # The scenario's own protocol comes first, because its problems are problems of the scenario.
    found = {own: run(scenario.protocol)}
    for each in every:
        if each["name"] != own:
            found[each["name"]] = run(each, asked=False)
    return [found[each["name"]] for each in every]


def pays_for_rounds(scenario: Scenario) -> bool:
    """Says whether each round of a scenario is paid for from the privacy budget of somebody's own data."""
    return scenario.privacy is not None and scenario.data.folder is not None


def _run_variant(
    scenario: Scenario, protocol: dict[str, Any], progress: Progress, asked: bool, seeds: int = 1
) -> ComparisonResult:
    name, options = protocol["name"], {key: value for key, value in protocol.items() if key != "name"}
    try:
        found = assemble_run(msgspec.structs.replace(scenario, protocol=protocol))
    except (LeakRefused, ConfigError) as refused:
        leaks = isinstance(refused, LeakRefused)
        if asked and not leaks:
            raise
        verdict = Verdict.EXPOSED if leaks and not isinstance(refused, NotAudited) else Verdict.NOT_AUDITED
        return ComparisonResult(name, options, refused=str(refused), verdict=verdict)
    progress(f"{write_variant(name, options)}: begins", 0)
    history: list[Metrics] = []
    repeats: list[Metrics] = []
    try:
        if not pays_for_rounds(scenario):
            # One round that is not measured: the first one loads modules and fills caches.
            next(iter(_assemble_seed(scenario, protocol, 0).rounds()), None)
        for number in range(seeds):
            rounds = (found if number == 0 else _assemble_seed(scenario, protocol, number)).rounds()
            last = None
            for last in rounds:
                if number == 0:
                    history.append(last)
                of_seeds = f", seed {number + 1} of {seeds}" if seeds > 1 else ""
                doing = f"{name}, round {last.round} of {scenario.rounds}{of_seeds}"
                progress(doing, number * scenario.rounds + last.round)
            repeats += [last] if last is not None else []
    except TacitError as error:  # such as losses that are no numbers any more: of the others there is still to tell
        return ComparisonResult(name, options, refused=f"in round {len(history) + 1}: {error}")
    progress(f"{name}: asking who could learn whose model", scenario.rounds * seeds)
    exposed, verdict = _audit_settings(found, name)
    server = found.checked is not None and found.checked.protocol.server is not None
    return ComparisonResult(name, options, tuple(history), tuple(repeats), len(found.parts), exposed, verdict, server)


def _assemble_seed(scenario: Scenario, protocol: dict[str, Any], number: int) -> AssembledRun:
    """Returns a run with a later seed, which also decides who has which samples and the first weights."""
    return assemble_run(msgspec.structs.replace(scenario, protocol=protocol, seed=scenario.seed + number))


def _audit_settings(found: AssembledRun, name: str) -> tuple[str, Verdict]:
    """Returns which parties could learn a model, in a few words, and the verdict."""
    if found.checked is not None:
        audited = exposure(found.checked)
        return name_parties(str(audited), found.name_owners() or ()), audited.verdict
    verdict = Verdict.LEAKS_BY_DESIGN if name == TOGETHER else Verdict.HOLDS
    return UNAVERAGED[verdict], verdict
