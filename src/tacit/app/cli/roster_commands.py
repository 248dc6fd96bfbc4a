"""Commands for keys and rosters: `tacit keygen`, `tacit card`, `tacit roster`."""

import shlex
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.api.option_text import settings_from
from tacit.app.cli.command_table import COMMANDS, MACHINES
from tacit.app.cli.options import AsJson, Choice, Settings, Verbose, examples, protocol_names, to_json
from tacit.app.cli.protocols_command import PROTOCOLS_THERE_ARE
from tacit.app.terminal import tables
from tacit.app.terminal.progress import show_progress
from tacit.auditing.findings import NOT_AUDITED_CODES
from tacit.auditing.preflight import preflight
from tacit.auditing.render.notes import render_note, render_preflight
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.suite import SERVER, Party
from tacit.net.membership.identity import Card, Credentials, file_stem
from tacit.net.membership.passphrase import COMMAND, VARIABLE, choose_passphrase
from tacit.net.membership.revision_guard import RevisionGuard
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.roster_signature import ALL_BUT_ONE
from tacit.protocols import DEFAULT_PROTOCOL

PORT = 7400
"""Default port of a party."""
ROSTER = "federation.toml"

app = typer.Typer()
roster = typer.Typer(
    help="Make and change a roster: the parties of a federation, and its settings.",
    epilog=examples("tacit roster new three-hospitals", f"tacit roster show {ROSTER}"),
)

Address = Annotated[
    str | None,
    Choice(help=f"Where others reach it, as host:port (default: this machine's name and port {PORT})."),
]
Encrypt = Annotated[
    bool,
    typer.Option(
        "--encrypt", help=f"Encrypt the secret keys with a passphrase: asked for, or from {COMMAND} or {VARIABLE}."
    ),
]
Outbound = Annotated[
    bool, typer.Option("--outbound", help="No address: it only dials out, to the server or to a relay.")
]
Folder = Annotated[str, Choice(help="Where to write (default: here).")]
Protocol = Annotated[
    str,
    Choice(help=f"The protocol: {PROTOCOLS_THERE_ARE} (default: {DEFAULT_PROTOCOL}).", autocompletion=protocol_names),
]
Quorum = Annotated[
    str,
    Choice(
        help=f"How many must sign the next revision: a number, {ALL_BUT_ONE}, all or none (default: {ALL_BUT_ONE})."
    ),
]
File = Annotated[str, typer.Argument(help=f"The roster, such as {ROSTER}.")]
CardFile = Annotated[str, typer.Argument(help="A card, as tacit keygen makes them.")]


@app.command(
    help=COMMANDS["keygen"].summary,
    epilog=examples("tacit keygen hospital-a --address tacit.hospital-a.example:7400"),
    rich_help_panel=MACHINES,
)
def keygen(
    name: Annotated[str | None, typer.Argument(help=f'The party; "{SERVER}" is the server.')] = None,
    address: Address = None,
    outbound: Outbound = False,
    federation: Annotated[
        str | None, Choice(help="Make a trial federation of this name instead: a roster and the keys of all parties.")
    ] = None,
    parties: Annotated[str, Choice(help="With --federation: name=host:port of each party, separated by commas.")] = "",
    server: Annotated[str | None, Choice(help="With --federation: host:port of the server.")] = None,
    protocol: Protocol = DEFAULT_PROTOCOL,
    options: Settings = None,
    encrypt: Encrypt = False,
    folder: Folder = ".",
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make the secret keys of a party, and the card with its public keys for the others.

    Args:
        name: the party.
        address: host and port where others reach it.
        outbound: whether it only dials out.
        federation: name of a whole federation to make for trials.
        parties: name=host:port of each party of that federation.
        server: host:port of its server.
        protocol: its protocol.
        options: its settings, as NAME=VALUE.
        encrypt: encrypts the secret keys with a passphrase.
        folder: where to write.
        as_json: prints the result as JSON.
        verbose: prints tracebacks and details; read in `main`.
    """
    del verbose
    if (name is None) == (federation is None):
        raise ConfigError("say whose keys to make, such as tacit keygen hospital-a, or give --federation")
    if federation is None:
        if parties or server is not None or options or protocol != DEFAULT_PROTOCOL:
            raise ConfigError("--parties, --server, --protocol and --set go with --federation")
        _one(name or "", _address(address, outbound), _folder(folder), as_json, encrypt=encrypt)
        return
    if address is not None or outbound:
        option = "--outbound" if outbound else "--address"
        raise ConfigError(f"{option} is for one party; with --federation, give --parties name=host:port,…")
    places = _places(parties)
    if server is not None:
        places.append((SERVER, server))
    _all(federation, places, protocol, settings_from(options or []), _folder(folder), as_json, encrypt=encrypt)


def _one(name: Party, address: str, folder: Path, as_json: bool, *, encrypt: bool) -> None:
    mine = Credentials.generate(name, SystemEntropy())
    made = mine.card(address)
    stem = file_stem(name)
    identity, card = folder / f"{stem}.identity", folder / f"{stem}.card"
    if encrypt and identity.exists():  # before somebody types a passphrase
        raise ConfigError(f"{identity} exists already, and keys are never overwritten; try: move it away first")
    mine.create(identity, choose_passphrase(str(identity)) if encrypt else None)
    made.save(card)
    _say(
        {"identity": str(identity), **_describe_card(made), "card": str(card)},
        [
            f"{identity} contains the secret keys of {name}. Keep it on this machine.",
            f"{card} is for the keeper of the roster. {_describe_place(made)}",
            *_compare(made),
        ],
        as_json,
    )


def _all(
    federation: str,
    places: list[tuple[Party, str]],
    protocol: str,
    settings: dict[str, Any],
    folder: Path,
    as_json: bool,
    *,
    encrypt: bool,
) -> None:
    entropy = SystemEntropy()
    keys: dict[Party, Credentials] = {}
    cards: list[Card] = []
    problems: list[str] = []
    for name, address in places:
        try:
            keys[name] = Credentials.generate(name, entropy)
            cards.append(keys[name].card(address))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    listed = RosterFile.new(federation, protocol, settings, entropy, cards, ALL_BUT_ONE)
    listed.terms  # noqa: B018 (raises what keeps it from being run, before anything is written)
    for mine in keys.values():
        listed = listed.sign(mine)
    files = {name: folder / f"{file_stem(name)}.identity" for name in keys}
    path = folder / ROSTER
    if there := [str(each) for each in (path, *files.values()) if each.exists()]:
        raise ConfigError(f"already there: {', '.join(there)}; try: move them away first, or use another --folder")
    if len(set(files.values())) < len(files):
        raise ConfigError("the files of two parties would have the same name; try: other party names")
    passphrase = choose_passphrase(f"the identities in {folder}") if encrypt else None
    for name, file in files.items():
        keys[name].create(file, passphrase)
    listed.save(path)
    _say(
        {**_describe_roster(listed, path), "identities": {name: str(file) for name, file in files.items()}},
        [
            f"{path} is the roster of {federation}, and beside it are the keys of {', '.join(keys)}.",
            "That is for trying things out on one machine, for whoever has this folder can speak as anybody. On",
            "real machines each party makes its own keys (tacit keygen NAME), and only cards leave them.",
        ],
        as_json,
    )


@app.command(epilog=examples("tacit card hospital-a.identity --address 192.0.2.7:7400"), rich_help_panel=MACHINES)
def card(
    identity: Annotated[str, typer.Argument(help="The identity to make a card of.")],
    address: Address = None,
    outbound: Outbound = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Make a new card for the same keys, for example with a new address."""
    del verbose
    made = Credentials.load(identity).card(_address(address, outbound))
    path = Path(identity).with_suffix(".card")
    made.save(path)
    _say(
        {**_describe_card(made), "card": str(path)},
        [f"{path} is for the keeper of the roster. {_describe_place(made)}", *_compare(made)],
        as_json,
    )


# --- rosters -------------------------------------------------------------------------------------------------------


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
    path = _folder(folder) / ROSTER
    if path.exists():
        raise ConfigError(f"{path} is there already; try: move it away first, or use another --folder")
    settings = settings_from(options or [])
    made = RosterFile.new(name, protocol, settings, SystemEntropy(), quorum=_parse_quorum(quorum))
    made.save(path)
    lines = [f"{path} is the roster of {name}. Next, for each card: tacit roster add {shlex.quote(str(path))} CARD"]
    _say(_describe_roster(made, path), lines, as_json)


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
    _change(after, file, [f"{given.name} is on the roster{role}.", *_compare(given)], as_json)


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
        lines = [f"{given.name} has new keys. Who has the old ones is no longer {given.name}.", *_compare(given)]
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
    _say(_describe_roster(listed, path), lines, as_json)


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
    _say(_describe_roster(listed, Path(file)), _describe_signed(listed), as_json)


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
        {**_describe_roster(listed, Path(file)), "audit": says},
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
    _say(_describe_roster(after, path), [*lines, *[f"{each}." for each in next_]], as_json)


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


def _say(result: dict[str, Any], lines: list[str], as_json: bool) -> None:
    typer.echo(to_json(result) if as_json else "\n".join(lines))


def _describe_card(card: Card) -> dict[str, str]:
    return {"name": card.name, "address": card.address, "fingerprint": card.fingerprint}


def _describe_roster(listed: RosterFile, path: Path) -> dict[str, Any]:
    return {
        "file": str(path),
        "federation": listed.federation,
        "protocol": listed.protocol,
        "settings": listed.settings,
        "adversary": listed.adversary,
        "deadlines": listed.deadlines,
        "nonce": listed.nonce,
        "parties": [_describe_card(card) for card in listed.parties],
        "relays": [_describe_card(card) for card in listed.relays],
        "missing": listed.missing(),
        "revision": listed.revision,
        "quorum": listed.quorum,
        "signed": listed.signers(listed.verify_keys),
    }


def _compare(card: Card) -> list[str]:
    return [f"Its fingerprint, to be compared by telephone: {card.fingerprint}"]


def _describe_place(card: Card) -> str:
    if card.address:
        return f"Others reach {card.name} at {card.address}."
    return f"{card.name} only dials out, and needs no open port."


# --- parsing of arguments ------------------------------------------------------------------------------------------


def _folder(given: str) -> Path:
    folder = Path(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--folder {given}: {error.strerror}; try: use another") from None
    return folder


def _parse_quorum(given: str) -> int | str:
    return int(given) if given.isdecimal() and given.isascii() else given


def _address(given: str | None, outbound: bool) -> str:
    """Returns the address for a card, empty for a party that only dials out."""
    if outbound and given:
        raise ConfigError("--outbound stands for no address; try: leave out --address, or --outbound")
    return "" if outbound else given or f"{socket.gethostname()}:{PORT}"


def _places(given: str) -> list[tuple[Party, str]]:
    """Returns names and addresses from a text name=host:port,…."""
    places = []
    for each in filter(None, given.split(",")):
        name, equals, address = each.strip().rpartition("=")
        if not equals:
            raise ConfigError(f"--parties {each}: write it as name=host:port, such as a=localhost:{PORT}")
        places.append((name.strip(), address))
    return places
