"""Commands of the audit: `tacit audit`, `tacit plan`, `tacit attack`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.api.option_text import check_name, drift_from, settings_from
from tacit.app.cli.command_table import COMMANDS, LEAKS
from tacit.app.cli.options import (
    AsJson,
    Choice,
    Picture,
    ReportFile,
    Settings,
    Verbose,
    attack_names,
    check_at_least,
    examples,
    protocol_names,
)
from tacit.app.cli.protocols_command import PROTOCOLS_THERE_ARE
from tacit.app.reports import html_reports, pictures
from tacit.app.terminal import audit_tables, tables
from tacit.app.terminal.progress import show_progress
from tacit.auditing.findings import Step, StepCode
from tacit.auditing.questions import Question
from tacit.auditing.render.json_report import describe_subject, describe_summary
from tacit.auditing.render.settings import describe_settings
from tacit.auditing.render.verdicts import render_verdict
from tacit.auditing.report import Report
from tacit.auditing.search.planner import plan as make_plan
from tacit.auditing.summary import SOME, Summary, summarize_reports
from tacit.core.average import list_names
from tacit.core.errors import ConfigError, LeakRefused
from tacit.integrations.flower.auditor.app_audit import audit_app
from tacit.integrations.flower.auditor.render import describe_app
from tacit.lab.attacks.registry import ATTACKS, find_attack
from tacit.protocols import REGISTRY

PARTIES = 9
"""Default number of parties of an audit."""
FEWEST = 3
"""The fewest parties of a plan: of two that average, each knows the other's vector."""

app = typer.Typer()


ProtocolName = Annotated[
    str | None,
    typer.Argument(help=f"The protocol: {PROTOCOLS_THERE_ARE}.", autocompletion=protocol_names),
]
FlowerFolder = Annotated[
    str | None, Choice(metavar="FOLDER", help="Audit the Flower app in a folder instead, whose code is read.")
]
PartyNames = Annotated[
    str | None,
    Choice(metavar="PARTIES", help="Number of parties, or their names, such as north,east,south (default: 9)."),
]
RosterToAudit = Annotated[
    str | None,
    Choice(metavar="FILE", help="Take the protocol, the parties and the settings from a roster (federation.toml)."),
]
CoalitionNames = Annotated[
    list[str] | None,
    Choice(
        help="Who colludes, such as server,p0 (default: each party alone, and the server alone).",
    ),
]
CoalitionSize = Annotated[
    int | None,
    Choice(help="Audit all coalitions of this size, where the server counts as one member."),
]
DriftName = Annotated[
    str,
    Choice(
        metavar="DRIFT",
        help="static: every party has the same vector in every round, as a precaution; free: new ones; or by how much "
        "an entry changes a round (default: static).",
    ),
]
NoiseDeviation = Annotated[
    float, Choice(help="Standard deviation of the noise that each party adds to each entry (default: 0).")
]
PriorDeviation = Annotated[
    float | None,
    Choice(
        help="Standard deviation of an entry, as the adversary expects it beforehand (default: uniform up to the clip)."
    ),
]
VectorLength = Annotated[
    int | None, Choice(help="Length of the vectors, for protocols that send some entries only (default: 100000).")
]
OpenLinks = Annotated[bool, Choice("--open-links", help="Audit an eavesdropper on links without encryption.")]
FailIfExposed = Annotated[
    bool, Choice("--fail-if-exposed", help="Exit with code 1 if a vector is exposed, even if only in the worst case.")
]


@app.command(
    help=COMMANDS["audit"].summary,
    epilog=examples(
        "tacit audit secagg --rounds 10 --dropout 0.1",
        "tacit audit admm --coalition p0 --set group_size=3 --set iterations=5",
        "tacit audit secagg --coalition server,p0 --fail-if-exposed",
        "tacit audit --roster federation.toml --rounds 40 --report report.html",
    ),
    rich_help_panel=LEAKS,
)
def audit(
    context: typer.Context,
    protocol: ProtocolName = None,
    flower: FlowerFolder = None,
    roster: RosterToAudit = None,
    parties: PartyNames = None,
    coalition: CoalitionNames = None,
    coalition_size: CoalitionSize = None,
    rounds: Annotated[int | None, Choice(help="Number of rounds that the adversary observes (default: 1).")] = None,
    drift: DriftName = "static",
    dropout: Annotated[float, Choice(help="Probability that a party misses a round (default: 0).")] = 0.0,
    noise: NoiseDeviation = 0.0,
    prior: PriorDeviation = None,
    length: VectorLength = None,
    open_links: OpenLinks = False,
    options: Settings = None,
    fail_if_exposed: FailIfExposed = False,
    picture: Picture = None,
    report: ReportFile = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compute whose vectors a coalition can recover, and check it on a real transcript.

    Args:
        context: the call, to find out which options were given.
        protocol: the protocol.
        flower: folder of a Flower app to audit instead.
        roster: roster with the protocol, the parties and the settings.
        parties: how many take part, or their names.
        coalition: who colludes.
        coalition_size: audits all coalitions of this size instead.
        rounds: how many rounds the coalition observes.
        drift: how models change between rounds.
        dropout: probability that a party misses a round.
        noise: standard deviation of every party's noise.
        prior: standard deviation of an entry.
        length: length of the vectors, if entries are selected.
        open_links: audits links that are not sealed.
        options: settings of the protocol, as NAME=VALUE.
        fail_if_exposed: exits with 1 if somebody is exposed.
        picture: file to draw the result into.
        report: file to write a report to.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    pictures.check(picture)
    html_reports.check_path(report)
    if roster is not None:
        protocol, count, named, settings = _read_roster(context, roster)
    else:
        (count, named), settings = _read_parties(parties), settings_from(options or [])
    check_at_least(2, parties=count)
    check_at_least(1, rounds=rounds, coalition_size=coalition_size, length=length)
    if flower is not None:
        _refuse_unused(context, named)
        summary = _flower(flower, count, rounds, dropout, settings, report, as_json)
        _refuse(summary, fail_if_exposed)
        return
    if protocol is None:
        raise ConfigError(f"say which protocol to audit ({', '.join(REGISTRY)}), or give --flower and a folder")
    members = tuple(name.strip() for each in coalition for name in each.split(",")) if coalition else None
    asked = Question(
        check_name("protocol", protocol, REGISTRY),
        PARTIES if count is None else count,
        settings,
        members,
        coalition_size,
        rounds=1 if rounds is None else rounds,
        drift=drift_from(drift),
        dropout=dropout,
        noise=noise,
        prior=prior,
        length=length,
        open_links=open_links,
        named=named,
    )
    _refuse(_show_answer(asked, picture, report, as_json), fail_if_exposed)


def _read_roster(context: typer.Context, file: str) -> tuple[str, int | None, tuple[str, ...], dict[str, Any]]:
    """Returns the protocol of a roster, the number and the names of its parties, and its settings."""
    from tacit.net.membership.roster import RosterFile

    if given := [name for name in ("protocol", "flower", "parties", "options") if _is_given(context, name)]:
        options = {"protocol": "PROTOCOL", "options": "--set"}
        named = ", ".join(options.get(name, f"--{name}") for name in given)
        raise ConfigError(f"--roster has the protocol, the parties and the settings; try: leave out {named}")
    if not Path(file).exists():
        practise = "ask the engineers for the roster, or make one to practise: tacit keygen --federation practice"
        raise ConfigError(f"there is no roster {file}; try: {practise} (docs/for-officers.md)")
    listed = RosterFile.draft(file)
    settings = {name: value for name, value in listed.settings.items() if name not in ("include", "exclude")}
    return listed.protocol, len(listed.names), tuple(listed.names), settings


def _read_parties(text: str | None) -> tuple[int | None, tuple[str, ...]]:
    """Returns the number of parties, and their names if these are given; None and no names if nothing is."""
    if text is None:
        return None, ()
    try:
        return int(text), ()
    except ValueError:
        named = tuple(name.strip() for name in text.split(","))
    if not all(named):
        raise ConfigError(f"--parties {text} has an empty name; try: --parties north,east,south")
    return len(named), named


def _show_answer(asked: Question, picture: str | None, report: str | None, as_json: bool) -> Summary:
    """Prints the audit of a question, and returns its summary."""
    scope, reports = asked.scope(), _reports(asked)
    summary = summarize_reports(reports, asked)
    found = {**describe_subject(scope.protocol, scope.terms, asked.options), **describe_summary(summary)}
    if picture is not None:
        pictures.exposure(reports, picture, asked.options)
    if report is not None:
        html_reports.write_audit_report(report, found, asked.command, reports)
    table = audit_tables.render_audit(summary, describe_settings(found["settings"]))
    tables.show_result(as_json, found, table, picture, report)
    return summary


NOT_OF_APPS = ["protocol", "coalition", "coalition_size", "drift", "noise", "prior", "length", "open_links", "picture"]
"""Options that an audit of an app does not use."""


def _refuse_unused(context: typer.Context, named: tuple[str, ...]) -> None:
    """Raises ConfigError for given options that would be ignored, such as names of parties."""
    if named:
        raise ConfigError("--flower knows no names of parties; try: give --parties a number")
    if given := [name for name in NOT_OF_APPS if _is_given(context, name)]:
        unused = ", ".join("PROTOCOL" if name == "protocol" else f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"--flower asks about the server of an app, and has no use for {unused}")


def _is_given(context: typer.Context, name: str) -> bool:
    """Returns whether an option was given on the command line."""
    source = context.get_parameter_source(name)
    # The name is compared, because the enumeration is in Typer's copy of Click or in the package, depending on the
    # release.
    return source is not None and source.name == "COMMANDLINE"


def _flower(
    folder: str,
    parties: int | None,
    rounds: int | None,
    dropout: float,
    told: Mapping[str, Any],
    report: str | None,
    as_json: bool,
) -> Summary:
    with show_progress() as doing:
        doing(f"reading {folder}", 0.0)
        found = audit_app(folder, parties=parties, rounds=rounds, dropout=dropout, overrides=told)
    first = found.reports[0]
    asked = Question(first.protocol, len(first.parties), rounds=first.rounds, drift=first.drift, dropout=dropout)
    counts = {"parties": parties, "rounds": rounds}
    asks = f"tacit audit --flower {shlex.quote(folder)}"
    asks += "".join(f" --{name} {count}" for name, count in counts.items() if count is not None)
    asks += "".join(f" --set {name}={value}" for name, value in told.items())
    # The other next steps are about the app, and not about similar settings of Tacit.
    holds = f"tacit plan {asked.parties} --rounds {asked.rounds} --dropout {dropout:g}"
    harder = Step(StepCode.NODES_DROP_OUT, f"{asks} --dropout {SOME}")
    further = Step(StepCode.PLAN, holds) if dropout else harder
    summary = found.settle(replace(summarize_reports(found.reports, asked), steps=(further,)))
    app, findings = describe_app(found), describe_summary(summary)
    told_of = {**app, **findings, "assumed": [*app["assumed"], *findings["assumed"]]}
    if report is not None:
        html_reports.write_audit_report(
            report, told_of, f"{asks}{f' --dropout {dropout:g}' if dropout else ''}", found.reports
        )
    tables.show_result(as_json, told_of, audit_tables.render_flower(found, summary), report)
    return summary


def _reports(asked: Question) -> list[Report]:
    """Returns a report on each coalition of a question."""
    every, reports = asked.coalitions(), []
    asked.scope()  # Raises before a progress bar is shown.
    with show_progress(counted=True) as told:
        told("beginning", 0, len(every))
        answers = asked.answers()
        for done, members in enumerate(every):
            told(f"{list_names(members)} (coalition {done + 1} of {len(every)})", done, len(every))
            reports.append(next(answers))
    return reports


def _refuse(summary: Summary, wanted: bool) -> None:
    """Ends the command with exit code 1 if the user asked for that and the summary leaks."""
    if wanted and summary.exposed:
        raise LeakRefused(render_verdict(summary).rstrip("."))


@app.command(
    help=COMMANDS["plan"].summary,
    epilog=examples("tacit plan 12", "tacit plan 12 --coalition-size 2 --rounds 50 --entries 1000000"),
    rich_help_panel=LEAKS,
)
def plan(
    parties: Annotated[int, typer.Argument(help="Number of parties.")],
    coalition_size: Annotated[
        int, Choice(help="Number of colluding parties, the server counted as one (default: 1).")
    ] = 1,
    rounds: Annotated[int, Choice(help="Number of rounds (default: 10).")] = 10,
    dropout: Annotated[float, Choice(help="Probability that a party misses a round (default: 0.05).")] = 0.05,
    entries: Annotated[int, Choice(help="Length of the vectors (default: 100000).")] = 100_000,
    epsilon: Annotated[
        float, Choice(help="ε of differential privacy that the noise column is for (default: 1).")
    ] = 1.0,
    delta: Annotated[float, Choice(help="δ of differential privacy (default: 0.00001).")] = 1e-5,
    picture: Picture = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Propose protocols and settings, each with its cost and the audit's verdict.

    Args:
        parties: how many average.
        coalition_size: how many may collude.
        rounds: how many rounds.
        dropout: probability that a party misses a round.
        entries: length of the vectors.
        epsilon: ε of differential privacy.
        delta: δ of differential privacy.
        picture: file to draw the costs into.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    pictures.check(picture)
    if parties < FEWEST:
        raise ConfigError(
            f"PARTIES {parties}: a plan needs at least {FEWEST} parties: with two, each learns the other's "
            "vector from the average"
        )
    check_at_least(1, coalition_size=coalition_size, rounds=rounds, entries=entries)
    with show_progress() as told:
        found = make_plan(
            parties,
            coalition_size=coalition_size,
            rounds=rounds,
            dropout=dropout,
            entries=entries,
            epsilon=epsilon,
            delta=delta,
            progress=told,
        )
    if picture is not None:
        pictures.costs(found, picture)
    tables.show_result(as_json, audit_tables.describe_plan(found), audit_tables.render_plan(found), picture)


@app.command(
    epilog=examples("tacit attack", "tacit attack admm", "tacit attack inversion --picture digits.png"),
    rich_help_panel=LEAKS,
)
def attack(
    name: Annotated[
        str | None,
        typer.Argument(
            help=f"The attack: {', '.join(ATTACKS)}. Without it, all are listed.", autocompletion=attack_names
        ),
    ] = None,
    full: Annotated[
        bool, Choice("--full", help="Run the whole experiment, which takes minutes instead of seconds.")
    ] = False,
    seed: Annotated[int, Choice(help="Seed of all random choices (default: 0).")] = 0,
    picture: Picture = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run an attack on protocols, and on targets that it must break and must not break."""
    del verbose
    pictures.check(picture)
    if name is None:
        listed = list(ATTACKS.values())
        plain = [{"name": each.name, "summary": each.summary, "paper": each.paper} for each in listed]
        tables.show_result(as_json, plain, audit_tables.render_attacks(listed))
        return
    chosen, grid = find_attack(name), None
    with show_progress() as told:
        if picture is not None and chosen.look is not None:
            found, grid = chosen.look(full, seed, told)
        else:
            found = chosen.run(full, seed, told)
    if picture is not None and grid is not None:
        pictures.images(grid, picture)
    elif picture is not None:
        pictures.intervals(found, picture, f"{chosen.summary}; {'full' if full else 'quick'} run, seed {seed}")
    plain = [audit_tables.describe_finding(finding) for finding in found]
    tables.show_result(as_json, plain, audit_tables.render_findings(found), picture)
