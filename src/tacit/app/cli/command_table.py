"""Table of the commands: the module of each, and its line in `tacit --help`.

A command's module is imported only when the command is called, so that `tacit --help` and completion import none.
"""

from typing import NamedTuple

LEARNING, LEAKS, MACHINES, OVERVIEW = "Learn together", "What leaks", "Between machines", "Look around"
"""Headings of the panels of `tacit --help`."""


class CommandEntry(NamedTuple):
    """One command of the table."""

    module: str
    """The module of `tacit.app` that defines it."""
    panel: str | None
    """The heading under which `tacit --help` lists the command."""
    summary: str
    """The first paragraph of the command's own help text."""
    attribute: str = "app"
    """The Typer object in the module that has the command; for a group, the group itself."""
    group: bool = False
    """Whether the command is a group with commands of its own."""


# The order is that of --help.
COMMANDS = {
    "demo": CommandEntry(
        "cli.demo_command",
        LEARNING,
        "Train a digit classifier among nine parties, and show what a server and three protocols expose.",
    ),
    "train": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Train a scenario, and write accuracy, bytes, privacy spent and the audit to a folder.",
    ),
    "compare": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Train one scenario with several protocols, and compare accuracy, cost and exposure.",
    ),
    "reproduce": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Reproduce a table or figure of a paper, with the paper's numbers beside ours.",
    ),
    "audit": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Compute whose vectors a coalition can recover, and check it on a real transcript.",
    ),
    "plan": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Propose protocols and settings, each with its cost and the audit's verdict.",
    ),
    "attack": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Run an attack on protocols, and on targets that it must break and must not break.",
    ),
    "keygen": CommandEntry(
        "cli.key_commands",
        MACHINES,
        "Make the secret keys of a party, and the card with its public keys for the others.",
    ),
    "card": CommandEntry(
        "cli.key_commands",
        MACHINES,
        "Make a new card for the same keys, for example with a new address.",
    ),
    "roster": CommandEntry(
        "cli.roster_commands",
        MACHINES,
        "Make and change a roster: the parties of a federation, and its settings.",
        attribute="roster",
        group=True,
    ),
    "node": CommandEntry(
        "cli.learning_commands",
        MACHINES,
        "Train as one party of a federation, on samples that stay on this machine. Resumes when started again.",
        attribute="machines",
    ),
    "serve": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Run the server of a federation. It sums vectors, and sees no single one if they are masked.",
    ),
    "relay": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Pass sealed messages between parties of a federation that cannot dial each other. It can read none of them.",
    ),
    "status": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Show whether a party is running, who is missing, and how its last round ended.",
    ),
    "doctor": CommandEntry(
        "cli.doctor_command",
        MACHINES,
        "Check this machine and the paths to all peers before the first round. Exit code 1 if a check failed.",
    ),
    "ledger": CommandEntry(
        "cli.ledger_command",
        LEAKS,
        "Show the privacy budget of some data: what was spent, and what is left.",
    ),
    "ui": CommandEntry("ui.command", None, "Open a local web page with runs, audits and plans. Ctrl-C stops it."),
    "protocols": CommandEntry(
        "cli.protocols_command", OVERVIEW, "List the protocols, what each exposes, and its settings."
    ),
    "bench": CommandEntry(
        "cli.bench",
        OVERVIEW,
        "Measure how long a round of each protocol takes on this machine.",
    ),
}
