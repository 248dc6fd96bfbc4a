"""Output that commands for keys and commands for rosters share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.app.cli.options import Choice, protocol_names, to_json
from tacit.app.cli.protocols_command import PROTOCOLS_THERE_ARE
from tacit.core.errors import ConfigError
from tacit.net.membership.identity import Card
from tacit.net.membership.roster import RosterFile
from tacit.protocols import DEFAULT_PROTOCOL

ROSTER = "federation.toml"
Folder = Annotated[str, Choice(help="Where to write (default: here).")]
Protocol = Annotated[
    str,
    Choice(help=f"The protocol: {PROTOCOLS_THERE_ARE} (default: {DEFAULT_PROTOCOL}).", autocompletion=protocol_names),
]


def print_lines(result: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """Prints a result as lines, or as JSON."""
    typer.echo(to_json(result) if as_json else "\n".join(lines))


def describe_card(card: Card) -> dict[str, str]:
    """Returns what JSON output says of a card."""
    return {"name": card.name, "address": card.address, "fingerprint": card.fingerprint}


def describe_roster(listed: RosterFile, path: Path) -> dict[str, Any]:
    """Returns what JSON output says of a roster."""
    return {
        "file": str(path),
        "federation": listed.federation,
        "protocol": listed.protocol,
        "settings": listed.settings,
        "adversary": listed.adversary,
        "deadlines": listed.deadlines,
        "nonce": listed.nonce,
        "parties": [describe_card(card) for card in listed.parties],
        "relays": [describe_card(card) for card in listed.relays],
        "missing": listed.missing(),
        "revision": listed.revision,
        "quorum": listed.quorum,
        "signed": listed.signers(listed.verify_keys),
    }


def describe_fingerprint(card: Card) -> list[str]:
    """Returns the sentence with a card's fingerprint."""
    return [f"Its fingerprint, to be compared by telephone: {card.fingerprint}"]


def make_folder(given: str) -> Path:
    """Returns a folder to write into, and makes it if necessary; raises ConfigError if that is impossible."""
    folder = Path(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--folder {given}: {error.strerror}; try: use another") from None
    return folder
