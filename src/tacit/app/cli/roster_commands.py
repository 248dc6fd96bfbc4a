"""Commands for rosters: `tacit roster`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tacit.api.option_text import settings_from
from tacit.app.cli.options import AsJson, Choice, Settings, Verbose, examples
from tacit.app.cli.roster_output import (
    ROSTER,
    Folder,
    Protocol,
    describe_fingerprint,
    describe_roster,
    make_folder,
    print_lines,
)
from tacit.app.terminal import tables
from tacit.app.terminal.progress import show_progress
from tacit.auditing.findings import NOT_AUDITED_CODES
from tacit.auditing.preflight import preflight
from tacit.auditing.render.notes import render_note, render_preflight
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, LeakRefused
from tacit.net.membership.identity import Card, Credentials, file_stem
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.roster_signature import ALL_BUT_ONE
from tacit.protocols import DEFAULT_PROTOCOL

roster = typer.Typer(
    help="Make and change a roster: the parties of a federation, and its settings.",
    epilog=examples("tacit roster new three-hospitals", f"tacit roster show {ROSTER}"),
)

Quorum = Annotated[
    str,
    Choice(
        help=f"How many must sign the next revision: a number, {ALL_BUT_ONE}, all or none (default: {ALL_BUT_ONE})."
    ),
]
File = Annotated[str, typer.Argument(help=f"The roster, such as {ROSTER}.")]
CardFile = Annotated[str, typer.Argument(help="A card, as tacit keygen makes them.")]


@roster.command(epilog=examples("tacit roster new three-hospitals --protocol secagg --set bits=16"))
def new(
    name: Annotated[str, typer.Argument(help="The name of the federation.")],
    protocol: Protocol = DEFAULT_PROTOCOL,
    options: Settings = None,
    quorum: Quorum = ALL_BUT_ONE,
    folder: Folder = ".",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make a roster that nobody is on yet.

    Args:
        name: the name of the federation.
        protocol: the protocol.
        options: settings of the protocol.
        quorum: the parties that must sign a new revision.
        folder: where to write.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    path = make_folder(folder) / ROSTER
    if path.exists():
        raise ConfigError(f"{path} is there already; try: move it away first, or use another --folder")
    settings = settings_from(options or [])
    made = RosterFile.new(name, protocol, settings, SystemEntropy(), quorum=_parse_quorum(quorum))
    made.save(path)
    lines = [f"{path} is the roster of {name}. Next, for each card: tacit roster add {shlex.quote(str(path))} CARD"]
    print_lines(describe_roster(made, path), lines, as_json)


@roster.command(epilog=examples(f"tacit roster add {ROSTER} hospital-a.card"))
def add(
    file: File,
    card: CardFile,
    relay: Annotated[bool, typer.Option("--relay", help="It passes sealed messages on, and is no party.")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Put a party, the server or a relay on a roster by its card."""
    del verbose
    given = Card.load(card)
    after = RosterFile.draft(file).add_party(given, SystemEntropy(), is_relay=relay)
    role = " as a relay" if relay else ""
    _change(after, file, [f"{given.name} is on the roster{role}.", *describe_fingerprint(given)], as_json)


@roster.command(epilog=examples(f"tacit roster remove {ROSTER} hospital-a"))
def remove(
    file: File,
    name: Annotated[str, typer.Argument(help="Who leaves.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Take a party off a roster."""
    del verbose
    after = RosterFile.draft(file, name).remove_party(name, SystemEntropy())
    said = f"{name} is off the roster, and hears nothing more from those who have taken the new one."
    _change(after, file, [said], as_json)


@roster.command(epilog=examples(f"tacit roster replace {ROSTER} hospital-a.card"))
def replace(file: File, card: CardFile, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Give a party on a roster another card: new keys, or a new address."""
    del verbose
    given = Card.load(card)
    listed = RosterFile.draft(file, given.name)
    after = listed.replace_card(given, SystemEntropy())
    place = f"is now at {given.address}" if given.address else "only dials out now"
    lines = [f"{given.name} has the same keys as before, and {place}."]
    if given.fingerprint != listed.fingerprint_of(given.name):
        lines = [
            f"{given.name} has new keys. Who has the old ones is no longer {given.name}.",
            *describe_fingerprint(given),
        ]
    _change(after, file, lines, as_json)


@roster.command(epilog=examples(f"tacit roster renew {ROSTER}"))
def renew(file: File, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Begin a new session of the same federation, as is needed when a party has lost its journal."""
    del verbose
    _change(RosterFile.draft(file).renew(SystemEntropy()), file, ["A new session begins.", *KEPT], as_json)


@roster.command(epilog=examples(f"tacit roster sign {ROSTER} --me hospital-a"))
def sign(
    file: File,
    me: Annotated[
        str | None, Choice(help="Who signs (default: everybody whose identity is beside the roster).")
    ] = None,
    identity: Annotated[
        str | None, Choice(help="The file of its keys (default: NAME.identity beside the roster).")
    ] = None,
    folder: Annotated[
        str | None, Choice(help="The folder of its rounds (default: NAME.rounds beside the roster).")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Sign a revision of a roster, which accepts the first one. Compare the fingerprints before.

    Args:
        file: the roster.
        me: the party that signs.
        identity: the file with its keys.
        folder: where it keeps its rounds.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    path, listed = Path(file), RosterFile.load(file)
    there = [name for name in listed.verify_keys if path.with_name(f"{file_stem(name)}.identity").exists()]
    signing = there if me is None else [me]
    if me is None and (identity is not None or folder is not None):
        raise ConfigError("--identity and --folder go with one party; try: say which by --me NAME")
    if not signing:
        raise ConfigError(f"there is no identity beside {path}; try: give it by --me NAME --identity FILE")
    for name in signing:
        mine = Credentials.load(path.with_name(f"{file_stem(name)}.identity") if identity is None else identity)
        if mine.name != name:
            raise ConfigError(f"this is the identity of {mine.name}, not of {name}; try: give the path of {name}'s own")
        rounds = path.with_name(f"{file_stem(name)}.rounds") if folder is None else Path(folder)
        listed = RevisionGuard(rounds, name).sign(listed, mine)
    listed.save(path)
    lines = [
        f"{', '.join(signing)} signed revision {listed.revision} of {listed.federation}.",
        *_describe_signed(listed),
    ]
    print_lines(describe_roster(listed, path), lines, as_json)


@roster.command(epilog=examples(f"tacit roster collect {ROSTER} signed-by-a.toml signed-by-b.toml"))
def collect(
    file: File,
    copies: Annotated[list[str], typer.Argument(help="Copies of it, with signatures of others.")],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Collect the signatures of copies of a roster."""
    del verbose
    listed = RosterFile.draft(file)
    for each in copies:
        copy = RosterFile.draft(each)
        if copy.statement != listed.statement:
            raise ConfigError(
                f"{each} has another revision than {file} ({copy.revision}, and {listed.revision}), or was changed; "
                f"try: have its sender sign a copy of this one"
            )
        listed = listed.with_signatures(one for one in copy.signatures if one.is_valid(listed.statement))
    listed.save(Path(file))
    print_lines(describe_roster(listed, Path(file)), _describe_signed(listed), as_json)


@roster.command(epilog=examples(f"tacit roster show {ROSTER}"))
def show(file: File, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show who is on a roster, their fingerprints, and what the audit says of its settings."""
    del verbose
    listed = RosterFile.draft(file)
    with show_progress() as told:
        told("asking the audit what these settings give away", 0.0)
        says = _describe_audit(listed)
    tables.show_result(
        as_json,
        {**describe_roster(listed, Path(file)), "audit": says},
        tables.render_roster(listed, [*_missing(listed), *says, *[each[:-1] for each in _describe_signed(listed)]]),
    )


KEPT = (
    "Everybody keeps its folder of rounds (NAME.rounds): the lineage in it goes on in the new session.",
    "If the protocol is another one, keep the folder under another name (mv), and name it back with the old protocol.",
)
"""Lines on what a new session keeps, and on folders of another protocol."""


def _change(after: RosterFile, file: str, lines: list[str], as_json: bool) -> None:
    """Writes a roster, and prints what changed and what all parties have to do."""
    path = Path(file)
    after.save(path)
    next_ = _missing(after) or [f"Send the new {path.name} to everybody; a party with another file is ignored"]
    if after.required_signatures and not _missing(after):
        next_.append(f"Each party on it signs it first: tacit roster sign {shlex.quote(path.name)} --me NAME")
    print_lines(describe_roster(after, path), [*lines, *[f"{each}." for each in next_]], as_json)


def _describe_signed(listed: RosterFile) -> list[str]:
    """Returns one sentence on who has signed a roster; none if signatures do not count."""
    if not listed.required_signatures:
        return []
    signed = listed.signers(listed.verify_keys)
    others = len({each.verify_key for each in listed.signatures if each.is_valid(listed.statement)}) - len(signed)
    invalid = sum(not each.is_valid(listed.statement) for each in listed.signatures)
    parts = [
        f"Revision {listed.revision} is signed by {', '.join(signed)}"
        if signed
        else f"Nobody on revision {listed.revision} has signed it"
    ]
    if others:
        parts.append(f"{others} of an earlier roster signed it")
    if invalid:
        parts.append(f"{invalid} signatures are of another content")
    if waits := [name for name in listed.verify_keys if name not in signed]:
        parts.append(f"still missing: {', '.join(waits)}")
    return [
        f"{'; '.join(parts)}. Revision {listed.revision + 1} will need {listed.required_signatures} of these parties."
    ]


def _missing(listed: RosterFile) -> list[str]:
    return [f"Before it can be run: {each}" for each in listed.missing()]


def _describe_audit(listed: RosterFile) -> list[str]:
    """Returns the notes of the audit on settings, before anything is sent."""
    if listed.missing():
        return []
    if listed.entry.leaks_by_design:
        return [f"{listed.protocol} shows vectors by design; see tacit protocols"]
    if listed.terms.settings.allow_leaks:
        return ["not audited, for allow_leaks is set"]
    try:
        notes = preflight(listed.entry, listed.terms, adversary=listed.adversary, rounds=listed.terms.period)
    except LeakRefused as refused:
        return [f"refused: {refused}"]
    if any(note.code in NOT_AUDITED_CODES for note in notes):
        return [render_note(note) for note in notes]
    return render_preflight(listed.entry.server is not None, listed.adversary, notes)


# --- output --------------------------------------------------------------------------------------------------------


# --- parsing of arguments ------------------------------------------------------------------------------------------


def _parse_quorum(given: str) -> int | str:
    return int(given) if given.isdecimal() and given.isascii() else given
