"""What people touch: the command line, and the demo."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
import tacit.protocols
from support.printed_errors import read_errors
from tacit.app.cli import demo
from tacit.app.terminal import progress
from tacit.auditing.render.verdicts import render_summary
from tacit.core.errors import ConfigError, Drop, LeakRefused, NotEnough, PeerFault
from tacit.core.suite import SERVER, Update
from tacit.lab.attacks.registry import ATTACKS
from tacit.runtime.simulation.simulator import Simulation

with warnings.catch_warnings():
    # Typer imports names that the newest click says will go. It is nothing that we could change.
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer
    from typer.core import TyperArgument, TyperGroup
    from typer.main import get_command
    from typer.testing import CliRunner

    from tacit.app.cli import main
    from tacit.app.cli.command_table import COMMANDS

SMALL = ("--rounds", "4", "--parties", "5")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main.app, arguments)


def error_lines(result: Any) -> list[str]:
    assert result.stdout == ""
    return read_errors(result.stderr)


@pytest.fixture(scope="module")
def report() -> demo.DemoReport:
    return demo.run_demo(demo.DemoSettings(parties=5, rounds=4))


# --- the demo ------------------------------------------------------------------------------------------------------


def test_both_runs_end_in_the_same_model_bit_for_bit(report: demo.DemoReport) -> None:
    assert report.identical
    assert report.largest_difference == 0.0
    assert report.runs["fedavg"].accuracies == report.runs["secagg"].accuracies


def test_the_server_reads_every_model_or_none(report: demo.DemoReport) -> None:
    plain, blind = report.runs["fedavg"], report.runs["secagg"]
    assert plain.models_sent == blind.models_sent == 5 * 4 - 2
    assert (plain.models_read, plain.server_saw) == (plain.models_sent, "every model")
    assert (blind.models_read, blind.server_saw) == (0, "only the sum")
    assert plain.correlation > 0.999
    assert abs(blind.correlation) < 0.1


def test_what_is_shown_of_a_model_is_what_the_server_decodes(report: demo.DemoReport) -> None:
    glimpse = report.glimpse
    assert np.allclose(glimpse.seen["fedavg"], glimpse.true, atol=1e-5)
    assert not np.isclose(glimpse.seen["secagg"], glimpse.true, atol=0.1).any()


def test_a_party_crashes_before_its_vector_listens_to_a_round_and_is_back(report: demo.DemoReport) -> None:
    assert report.dropouts == [
        demo.DemoDropout(round=2, dropped={"p1": "crashed"}, averaged=4, back=4),
        demo.DemoDropout(round=3, dropped={"p1": "behind"}, averaged=4, back=4),
    ]
    assert {run.rounds_with_dropout for run in report.runs.values()} == {2}
    assert {run.rounds for run in report.runs.values()} == {4}


def test_its_verdicts_point_at_no_assumptions_because_none_follow(report: demo.DemoReport) -> None:
    hidden = report.leaks[2]
    asked = demo.DemoSettings(parties=5).leaks()[2]
    summary = demo.summarize_reports(list(asked.answers()), asked)
    assert not hidden.exposed
    assert "of the audit" in hidden.verdict
    assert render_summary(summary).verdict == hidden.verdict.replace("of the audit", "below")
    assert render_summary(summary).assumptions


def test_steps_are_told_when_they_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    trained = demo.DemoData.train

    def train(self: demo.DemoData, party: str, model: Any, round_: int) -> Any:
        assert told[-1] in (f"{party} alone", f"fedavg, round {round_} of 2", f"secagg, round {round_} of 2")
        return trained(self, party, model, round_)

    def summarize(reports: Any, asked: Any) -> Any:
        assert told[-1] == f"audit of {asked.protocol}"
        return said(reports, asked)

    said = demo.summarize_reports
    monkeypatch.setattr(demo.DemoData, "train", train)
    monkeypatch.setattr(demo, "summarize_reports", summarize)
    settings = demo.DemoSettings(parties=3, rounds=2)
    demo.run_demo(settings, lambda doing, *_: told.append(doing))
    assert len(told) == settings.steps
    assert told[:3] == ["fedavg, round 1 of 2", "fedavg, round 2 of 2", "secagg, round 1 of 2"]


def test_a_plain_server_would_have_it_back_at_once_and_so_average_other_models(
    report: demo.DemoReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo keeps it silent for a round there, and this is why."""

    def careless(**fields: Any) -> tacit.Fault:
        return tacit.Fault(**{**fields, "round": 99} if fields["action"] == "silence" else fields)

    monkeypatch.setattr("tacit.app.cli.demo.Fault", careless)
    other = demo.run_demo(demo.DemoSettings(parties=5, rounds=4))
    assert other.runs["fedavg"].models_sent == 5 * 4 - 1
    assert other.runs["secagg"] == report.runs["secagg"]
    assert not other.identical


@pytest.mark.parametrize(("protocol", "kind"), [("fedavg", "Plain"), ("secagg", "MaskedInput")])
def test_the_crash_hits_just_before_the_vector(protocol: str, kind: str) -> None:
    """The demo counts sends and waits; should a protocol gain one, this says so."""
    step, names = demo.BEFORE_THE_VECTOR[protocol], ("p0", "p1", "p2", "p3")
    updates = {name: Update(np.zeros(2)) for name in names}
    sent = []
    for at in (step, step + 1):
        crash = tacit.Fault(action="crash", party="p3", step=at)
        federation = Simulation.of(protocol, names, 2, record=True, faults=[crash], seed=0)
        transcript = federation.average(updates).transcript
        assert transcript is not None
        opened = transcript.open_messages(SERVER)
        sent.append([address.kind for address, _ in opened if address.sender == "p3"])
    assert kind not in sent[0]
    assert sent[1] == [*sent[0], kind]


def test_averaging_beats_every_party_alone() -> None:
    report = demo.run_demo(demo.DemoSettings(parties=5, rounds=8))
    assert report.runs["secagg"].accuracy > max(report.alone.values())


def test_the_same_seed_is_the_same_demo(report: demo.DemoReport) -> None:
    assert demo.run_demo(demo.DemoSettings(parties=5, rounds=4)) == report
    assert demo.run_demo(demo.DemoSettings(parties=5, rounds=4, seed=1)) != report


def test_so_few_that_nobody_can_be_spared_do_without_a_crash() -> None:
    assert demo.DemoSettings(parties=3).crashing() == ()
    assert demo.run_demo(demo.DemoSettings(parties=2, rounds=1)).dropouts == []


# --- the commands --------------------------------------------------------------------------------------------------


def test_demo_prints_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHORT", 1e9)  # however slow the machine is
    result = run("demo", *SMALL)
    assert result.exit_code == 0
    assert result.stderr == ""
    for said in ("fedavg", "secagg", "every model", "only the sum", "same model"):
        assert said in result.stdout
    told = result.stdout.splitlines()
    assert "Round 2 lost p1 (crashed). The other 4 received their average." in told
    assert "In round 3, p1 only received the average, and contributed again in round 4." in told
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "The server can recover the vectors of all 5 parties" in " ".join(result.stdout.split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("parties", "audited"), [(2, 2), (3, 3), (5, 5), (13, 9)])
def test_the_demo_speaks_of_as_many_as_learn(parties: int, audited: int) -> None:
    shown = run("demo", "--parties", str(parties), "--rounds", "1").stdout
    assert shown.startswith(f"{parties} parties learnt")
    assert f"in one round of {audited} parties" in shown
    *_, following = shown.partition("\nNext\n")
    commands = [line for line in following.splitlines() if line.startswith("tacit ")]
    assert len(commands) == (3 if parties > 2 else 2)
    assert all(re.search(rf"(--parties|plan) {audited} ", command) for command in commands)


def test_what_the_demo_says_leaks_is_what_the_audit_says(report: demo.DemoReport) -> None:
    assert [leak.averaging.split()[0] for leak in report.leaks] == ["fedavg", "admm", "secagg"]
    assert [leak.exposed for leak in report.leaks] == [True, True, False]
    for leak in report.leaks:
        told = json.loads(run(*shlex.split(leak.command)[1:], "--json").stdout)
        verdict = (
            told["verdict"].replace(" (assumptions below)", "").replace("assumptions below", "assumptions of the audit")
        )
        assert (told["exposed"], verdict) == (leak.exposed, leak.verdict)


def test_demo_as_json_has_the_figures_of_the_table(report: demo.DemoReport) -> None:
    result = run("demo", *SMALL, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    for name, figures in report.runs.items():
        assert found["runs"][name]["accuracy"] == figures.accuracy
        assert found["runs"][name]["server_saw"] == figures.server_saw
        assert found["runs"][name]["bytes_per_party_per_round"] == figures.bytes_per_party_per_round
        row = next(line for line in run("demo", *SMALL).stdout.splitlines() if line.startswith(name)).split()
        assert row[1:5] == [f"{figures.accuracy:.1%}", "4", "2", f"{figures.bytes_per_party_per_round:,}"]
    assert found["alone"] == report.alone
    assert found["largest_difference"] == 0.0
    assert found["identical"] is True
    assert found["glimpse"]["seen"]["secagg"] == report.glimpse.seen["secagg"]


def test_demo_crashes_whom_it_is_told_to() -> None:
    found = json.loads(
        run("demo", "--parties", "9", "--rounds", "1", "--crash", "p0", "--crash", "p8", "--json").stdout
    )
    assert found["dropouts"] == [
        {"round": 1, "dropped": {"p0": "crashed", "p8": "crashed"}, "averaged": 7, "back": None}
    ]
    assert found["glimpse"]["party"] == "p1"


def test_protocols_lists_the_registry() -> None:
    found = json.loads(run("protocols", "--json").stdout)
    assert [entry["name"] for entry in found] == list(tacit.protocols.REGISTRY)
    by_name = {entry["name"]: entry for entry in found}
    assert by_name["fedavg"]["leaks_by_design"] is True
    assert by_name["secagg"]["leaks_by_design"] is False
    assert by_name["secagg"]["server"] is True
    assert by_name["secagg"]["options"]["neighbours"] == "all"
    assert by_name["secagg"]["options"]["participation"] == {"kind": "everyone"}
    table = run("protocols")
    assert table.exit_code == 0
    for entry in found:
        assert entry["name"] in table.stdout
        assert all(f"{option}=" in table.stdout for option in entry["options"])


def test_version_and_bare_call() -> None:
    assert run("--version").stdout == f"tacit {tacit.__version__}\n"
    assert run().exit_code == 0
    assert "Usage: tacit" in run().stdout


def commands() -> dict[str, Any]:
    group = get_command(main.app)
    assert isinstance(group, TyperGroup)
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        inner = command.commands if isinstance(command, TyperGroup) else {}
        found |= {f"{name} {each}": inner[each] for each in inner} or {name: command}
    return found


def test_the_table_says_of_commands_what_they_say_themselves() -> None:
    group = get_command(main.app)
    assert isinstance(group, TyperGroup)
    assert list(group.commands) == list(COMMANDS)
    for name, entry in COMMANDS.items():
        command = group.commands[name]
        first, _, _ = (command.help or "").partition("\n\n")
        assert " ".join(first.split()) == entry.summary
        panel = getattr(command, "rich_help_panel", None)
        assert (panel if isinstance(panel, str) else None) == entry.panel
        assert isinstance(command, TyperGroup) == entry.group


def page(name: str) -> str:
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("name", ["", "roster", *commands()])
def test_help_has_examples_that_are_commands_and_fit_a_line(name: str) -> None:
    examples = [line.strip() for line in page(name).partition("Examples:")[2].splitlines() if line.strip()]
    assert examples
    for example in examples:
        program, *words = shlex.split(example)
        assert program == "tacit"
        called = next(each for each in commands() if words[: len(each.split())] == each.split())
        assert not name or called.startswith(name)
        # Whatever it names is there, so that it is not refused for how it is written.
        rest = words[len(called.split()) :]
        commands()[called].make_context(called, rest, resilient_parsing=True)


@pytest.mark.parametrize("name", ["", "roster", *commands()])
def test_help_is_whole(name: str) -> None:
    """Without backslashes before brackets, summaries that are cut off, and arguments that say nothing."""
    shown = page(name)
    assert "\\" not in shown
    assert not re.search(r"[a-z]\.\.\. ", shown)  # in capitals it is an argument that may be repeated
    command = commands().get(name)
    for parameter in command.params if command is not None else ():
        if isinstance(parameter, TyperArgument):
            assert parameter.help, f"{name} does not say what {parameter.name} is"
            assert parameter.help.split()[0] in shown


def test_attacks_and_protocols_are_named_by_help() -> None:
    assert all(name in page("attack") for name in ATTACKS)
    assert all(name in page("audit") for name in tacit.protocols.REGISTRY)


def test_the_package_is_the_command() -> None:
    done = finished([sys.executable, "-m", "tacit", "--version"])
    assert (done.returncode, done.stdout) == (0, f"tacit {tacit.__version__}\n")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("tacit audit se", ["secagg"]),
        ("tacit attack inv", ["inversion"]),
        ("tacit reproduce 000-fig", ["000-fig3", "000-fig4", "000-fig5", "000-fig6"]),
        ("tacit audit secagg --set thr", ["threshold="]),
        ("tacit compare --protocol ce", ["cesar"]),
        ("tacit bench --protocol gos", ["gossip"]),
        ("tacit dem", ["demo"]),
    ],
)
def test_a_shell_completes_names(typed: str, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TACIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    result = CliRunner().invoke(main.app, [], prog_name="tacit")
    assert result.stdout.split() == found


@pytest.mark.parametrize("name", commands())
def test_every_command_has_json_and_verbose(name: str) -> None:
    options = {option for parameter in commands()[name].params for option in parameter.opts}
    assert {"--json", "--verbose"} <= options


# --- what goes wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--parties", "1"], "error[config]: an average needs at least 2 parties"),
        (["demo", "--rounds", "0"], "error[config]: there must be at least 1 round"),
        (["demo", "--parties", "many"], "error[usage]: Invalid value for '--parties'"),
        (["demo", "--parties", "100000"], "error[config]: "),
        (["demo", "--crash", "p9"], "error[config]: there is no 'p9' to crash; the parties are p0 to p8"),
        (["demo", "--crash", "p0", "--crash", "p1", "--crash", "p2"], "error[config]: 3 of 9 parties cannot crash"),
        (["demo", "--nonsense"], "error[usage]: No such option"),
        (["dmo"], "error[usage]: No such command 'dmo'."),
        (["demo", "extra"], "error[usage]: Got unexpected extra argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    (line,) = error_lines(result)
    assert line.startswith(said)


def test_a_command_with_a_typing_error_is_suggested_once() -> None:
    (line,) = error_lines(run("dmo"))
    assert line.count("Did you mean 'demo'?") == 1


def test_several_problems_are_one_line_each() -> None:
    result = run("demo", "--parties", "1", "--rounds", "0")
    assert result.exit_code == 2
    assert [line.partition(":")[0] for line in error_lines(result)] == ["error[config]"] * 2


@pytest.mark.parametrize("option", ["--verbose", "--debug"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_traceback_is_shown_with_verbose_only(place: int, option: str) -> None:
    arguments = ["demo", "--parties", "1"]
    assert "Traceback" not in run(*arguments).stderr
    arguments.insert(place, option)
    result = run(*arguments)
    assert result.exit_code == 2
    assert error_lines(result)[0] == "Traceback (most recent call last):"
    assert error_lines(result)[-1].startswith("error[config]: ")


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (ConfigError(["a", "b"]), 2, ["error[config]: a", "error[config]: b"]),
        (LeakRefused("p1 would be exposed"), 1, ["error[leak]: p1 would be exposed"]),
        (PeerFault("p1", Drop.SILENT), 1, ["error[peer]: p1: silent"]),
        (NotEnough("vectors", 1, 2), 1, ["error[not-enough]: 1 vectors, 2 needed"]),
        (typer.Abort(), 130, ["stopped: nothing was kept; start it again to begin anew"]),
        (
            ValueError("two\nlines"),
            1,
            ["error[internal]: ValueError: two lines", "try: run it again with --verbose to see where"],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_its_code_and_its_lines(error: Exception, code: int, lines: list[str]) -> None:
    assert main.explain_failure(error) == (code, lines)


def test_what_was_to_be_stopped_is_not_told_to_begin_anew() -> None:
    assert main.explain_failure(KeyboardInterrupt(), ["--debug", "ui", "runs"]) == (130, ["stopped"])
    assert main.explain_failure(KeyboardInterrupt(), ["plan", "12"])[1] != ["stopped"]


def test_a_failure_in_a_command_ends_it_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LeakRefused("p1 would be exposed")

    monkeypatch.setattr(demo, "run_demo", refuse)
    result = run("demo")
    assert result.exit_code == 1
    assert error_lines(result) == ["error[leak]: p1 would be exposed"]


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120)  # noqa: S603 (our own command)


def test_the_real_command() -> None:
    """One run as a process of its own, with streams and exit codes as a shell sees them."""
    command = [str(Path(sys.executable).with_name("tacit")), "demo"]
    done = finished([*command, *SMALL, "--json"])
    assert done.returncode == 0
    assert all(re.match(r" *\d+%  ", line) for line in done.stderr.splitlines()), done.stderr
    assert json.loads(done.stdout)["identical"] is True
    failed = finished([*command, "--parties", "0"])
    assert (failed.returncode, failed.stdout) == (2, "")
    assert len(read_errors(failed.stderr)) == 1


def test_a_setting_may_be_a_list() -> None:
    told = run("audit", "admm", "--coalition", "p0", "--set", "rho=[3,0.0009]", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["reports"][0]["exposed"] == {}
    wrong = run("audit", "admm", "--set", "rho=[3,0.0009]", "--set", "iterations=3")
    assert wrong.exit_code == 2
    assert error_lines(wrong) == [
        "error[config]: rho has 2 values for 3 iterations; try: give one for each, or one for all"
    ]


INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "tacit.app.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
sys.meta_path.insert(0, Interrupt())
from tacit.__main__ import main
sys.argv = ["tacit", "protocols"]
main()
"""


def test_ctrl_c_during_the_import_is_quiet() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line_and_a_remedy(code: int) -> None:
    error = OSError(code, os.strerror(code), "runs/digits/metrics.jsonl")
    assert main.explain_failure(error) == (
        1,
        [
            f"error[disk]: runs/digits/metrics.jsonl cannot be written: {os.strerror(code)}",
            "try: free disk space, then run the command again",
        ],
    )


def test_an_error_is_one_line_and_a_remedy_and_its_detail_needs_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise LeakRefused("p1 would be exposed", remedy="masked=True", detail="the detail")

    monkeypatch.setattr(demo, "run_demo", refuse)
    assert run("demo").stderr == "error[leak]: p1 would be exposed\ntry: masked=True\n"
    lines = run("demo", "--verbose").stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-3:] == ["error[leak]: p1 would be exposed", "try: masked=True", "detail: the detail"]
