"""The command `tacit ledger`."""

from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from tacit.app.cli.command_table import COMMANDS, LEAKS
from tacit.app.cli.options import AsJson, Choice, Verbose, examples
from tacit.app.terminal import tables
from tacit.app.terminal.narrow_table import AdaptiveTable
from tacit.app.terminal.verdict_layout import arrange_result
from tacit.core.average import format_count
from tacit.core.errors import ConfigError
from tacit.privacy import LedgerState, RunRecord, read_ledger, set_budget

app = typer.Typer()
WITHOUT_NOISE = "runs-without-noise"
"""JSON key of the runs that ε does not count."""
LONGEST_NAME = 28
"""Length of a run's name up to which it is shown unchanged."""


@app.command(
    help=COMMANDS["ledger"].summary,
    epilog=examples("tacit ledger clinic/ledger.json", "tacit ledger clinic/ledger.json --budget 4 --delta 1e-6"),
    rich_help_panel=LEAKS,
)
def ledger(
    path: Annotated[str, typer.Argument(help="The ledger of some data, or of one run, such as clinic/ledger.json.")],
    budget: Annotated[
        float | None, Choice(help="Set the ε that all runs on these data may spend together; also before the first.")
    ] = None,
    delta: Annotated[float | None, Choice(help="Set the δ of the budget, and of what is shown.")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the privacy budget of some data: what was spent, and what is left."""
    del verbose
    if delta is not None and budget is None:
        raise ConfigError("--delta belongs to a budget; try: give --budget too")
    state = read_ledger(path) if budget is None else set_budget(path, budget, delta)
    tables.show_result(as_json, _describe_ledger(state), _render_ledger(state))


def _describe_ledger(state: LedgerState) -> dict[str, Any]:
    """Returns a ledger as plain data."""
    return {
        "data": state.data or None,
        "earlier": state.earlier,
        "unit": state.unit,
        "delta": state.delta,
        "budget": state.budget,
        "epsilon": state.epsilon,
        "left": None if state.budget is None else state.left,
        "not_counted": [{"code": WITHOUT_NOISE, "runs": state.without_noise}],
        "runs": [_describe_run(state, each) for each in state.runs],
    }


def _describe_run(state: LedgerState, run: RunRecord) -> dict[str, Any]:
    return {
        "run": run.run,
        "began": run.began or None,
        "rounds": run.rounds,
        "parties": len(run.spent),
        "unit": run.unit or None,
        "mechanism": run.mechanism or None,
        "without_noise": run.without_noise,
        "epsilon_alone": None if run.without_noise else state.epsilon_of(run.rho),
        "epsilon_together": _spent_until(state, run),
    }


def _spent_until(state: LedgerState, run: RunRecord) -> float:
    """Returns the ε of a run together with all runs that paid before it."""
    place = state.runs.index(run)
    return state.epsilon_of(sum(each.rho for each in state.runs[: place + 1]))


def _shorten_name(run: str) -> str:
    """Returns both ends of a long name, in which names of runs differ; --json has the whole name."""
    return run if len(run) <= LONGEST_NAME else f"{run[:18]}…{run[-6:]}"


def _render_ledger(state: LedgerState) -> Group:
    """Returns what was spent and is left, and the runs that spent it."""
    table = AdaptiveTable("run", "began", "rounds", "noise", "ε alone", "ε together", box=None, pad_edge=False)
    for run in state.runs:
        noise = "none" if run.without_noise else run.mechanism or "not recorded"
        alone = "no bound" if run.without_noise else f"{state.epsilon_of(run.rho):.4g}"
        together = "not counted" if run.without_noise else f"{_spent_until(state, run):.4g}"
        rounds = "" if run.without_noise else str(run.rounds)
        began = run.began[:16].replace("T", " ") or "not recorded"
        per = f"per {run.unit}: " if run.unit else ""
        name = Text(_shorten_name(run.run))
        table.add_row(name, began, rounds, Text(per + noise), alone, together)
    of = f"data {state.data[:16]}" if state.data else "no named data"
    runs = format_count(len(state.with_noise), "run with noise", "runs with noise")
    spent = f"ε = {state.epsilon:.4g} spent"
    if state.budget is not None:
        spent += f" of the budget of {state.budget:g}, {state.left:.4g} left"
    counted = Text(f"{runs} on {of}, together, per {state.unit}, δ = {state.delta:g}\n")
    return arrange_result(
        f"{spent}.",
        counted,
        *([table] if state.runs else []),
        alarming=state.budget is not None and state.left <= 0,
        gaps=[_describe_uncounted(state)],
    )


def _describe_uncounted(state: LedgerState) -> str:
    """Returns a sentence on the runs that ε does not count."""
    if not state.without_noise:
        return "Runs without noise: none is recorded here."
    runs = format_count(state.without_noise, "run")
    return f"{runs} without noise: nothing bounds what their results reveal to those who saw them."
