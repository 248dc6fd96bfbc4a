"""Table of the commands: where each one is defined, and its line in `tacit --help`.

A command's module is imported when the command is called, so that `tacit --help` and completion load none of them.
"""

from typing import NamedTuple

LEARNING, LEAKS, MACHINES, OVERVIEW = "Learn together", "What leaks", "Between machines", "Look around"
"""Headings of the panels that `tacit --help` sorts commands into."""


class CommandEntry(NamedTuple):
    """One command of the table."""

    module: str
    """The module of `tacit.app` that defines it."""
    panel: str | None
    """The heading that `tacit --help` lists it below."""
    summary: str
    """The first paragraph of its own help text."""
    attribute: str = "app"
    """The Typer object that holds it there; for a group, the one that is it."""
    group: bool = False
    """Whether it has commands of its own."""


# In the order in which --help lists them.
COMMANDS = {
    "demo": CommandEntry(
        "cli.demo_command",
        LEARNING,
        "Learn to read digits together, and see what a server, and three protocols, give away.",
    ),
    "train": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Learn together as a scenario says, and write accuracy, bytes, privacy spent and the audit to a folder.",
    ),
    "compare": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Learn the same with several protocols: how well, at what cost, and who could learn whose model.",
    ),
    "reproduce": CommandEntry(
        "cli.learning_commands",
        LEARNING,
        "Run a table or figure of a paper again, with the paper's figures beside ours.",
    ),
    "audit": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Compute whose vectors a coalition can learn, from the code that runs, and prove it on a real transcript.",
    ),
    "plan": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Propose protocols and settings, with what they cost and what the audit says of each.",
    ),
    "attack": CommandEntry(
        "cli.audit_commands",
        LEAKS,
        "Attack protocols, beside targets on which the attack must win, and ones on which it must not.",
    ),
    "keygen": CommandEntry(
        "cli.roster_commands",
        MACHINES,
        "Make the keys of a party, which stay with it, and the card of them that others are given.",
    ),
    "card": CommandEntry(
        "cli.roster_commands",
        MACHINES,
        "Make the card of an identity again, such as with a new address. The keys stay the same.",
    ),
    "roster": CommandEntry(
        "cli.roster_commands",
        MACHINES,
        "Make and change a roster: who is in a federation, and on what terms.",
        attribute="roster",
        group=True,
    ),
    "node": CommandEntry(
        "cli.learning_commands",
        MACHINES,
        "Learn with the others of a federation, as one of them, from samples that stay here. Start it again to go on.",
        attribute="machines",
    ),
    "serve": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Run the server of a federation: it sums what parties send, and sees nobody's model where they are masked.",
    ),
    "relay": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Pass sealed messages between parties of a federation that cannot dial each other. It can read none of them.",
    ),
    "status": CommandEntry(
        "cli.node_commands",
        MACHINES,
        "Show how far a party is, who is missing and for how long, and how its last round ended.",
    ),
    "ledger": CommandEntry(
        "cli.ledger_command",
        LEAKS,
        "Show what runs on some data have spent of their privacy, alone and together, and what is left.",
    ),
    "ui": CommandEntry(
        "ui.command", None, "Show runs, what coalitions would learn, and plans on a local page, until Ctrl-C."
    ),
    "protocols": CommandEntry(
        "cli.protocols_command", OVERVIEW, "List the protocols, what each of them gives away, and their settings."
    ),
    "bench": CommandEntry(
        "cli.bench",
        OVERVIEW,
        "Measure how long a round takes on this machine, by every protocol, beside plain averaging.",
    ),
}
