"""Commands for keys: `tacit keygen`, `tacit card`."""

import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.api.option_text import settings_from
from tacit.app.cli.command_table import COMMANDS, MACHINES
from tacit.app.cli.options import AsJson, Choice, Settings, Verbose, examples
from tacit.app.cli.roster_output import (
    ROSTER,
    Folder,
    Protocol,
    describe_card,
    describe_fingerprint,
    describe_roster,
    make_folder,
    print_lines,
)
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError, WireError
from tacit.core.suite import SERVER, Party
from tacit.crypto.certificates import read_authority
from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import CERTIFICATE_FILE, KEY_FILE, TLS_FOLDER, Card, Credentials, file_stem
from tacit.net.membership.passphrase import COMMAND, VARIABLE, choose_passphrase
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.roster_signature import ALL_BUT_ONE
from tacit.protocols import DEFAULT_PROTOCOL

PORT = 7400
"""Default port of a party."""

app = typer.Typer()

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
Proof = Annotated[
    str,
    Choice(
        "--tls",
        help="Its TLS certificate: pinned (on the card), issued (short-lived, by its own key), or authority (by its "
        "organisation's; default: pinned).",
    ),
]
AuthorityFile = Annotated[
    str | None, Choice("--authority", help="With --tls authority: the certificate of whoever signs, as PEM.")
]
TlsName = Annotated[
    str | None, Choice("--tls-name", help="With --tls authority: the host name that its certificates carry.")
]


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
    tls: Proof = "pinned",
    authority: AuthorityFile = None,
    tls_name: TlsName = None,
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
        tls: how it proves itself in TLS.
        authority: the certificate of its organisation's authority.
        tls_name: the host name in certificates of that authority.
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
        proof, issuer = _proof(tls, authority, tls_name)
        mine = Credentials.generate(name or "", SystemEntropy(), proof, issuer, tls_name or "")
        _one(mine, _address(address, outbound), make_folder(folder), as_json, encrypt=encrypt)
        return
    if address is not None or outbound:
        option = "--outbound" if outbound else "--address"
        raise ConfigError(f"{option} is for one party; with --federation, give --parties name=host:port,…")
    if tls not in ("pinned", TlsProof.ISSUED):
        raise ConfigError("--tls authority is for one party; with --federation, give --tls issued, or leave it out")
    proof, _ = _proof(tls, authority, tls_name)
    places = _places(parties)
    if server is not None:
        places.append((SERVER, server))
    listed = settings_from(options or [])
    _all(federation, places, protocol, listed, make_folder(folder), as_json, encrypt=encrypt, proof=proof)


def _one(mine: Credentials, address: str, folder: Path, as_json: bool, *, encrypt: bool) -> None:
    made, name = mine.card(address), mine.name
    stem = file_stem(name)
    identity, card = folder / f"{stem}.identity", folder / f"{stem}.card"
    if encrypt and identity.exists():  # before somebody types a passphrase
        raise ConfigError(f"{identity} exists already, and keys are never overwritten; try: move it away first")
    mine.create(identity, choose_passphrase(str(identity)) if encrypt else None)
    made.save(card)
    print_lines(
        {"identity": str(identity), **describe_card(made), "card": str(card)},
        [
            f"{identity} contains the secret keys of {name}. Keep it on this machine.",
            f"{card} is for the keeper of the roster. {_describe_place(made)}",
            *_describe_tls(made, identity),
            *describe_fingerprint(made),
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
    proof: TlsProof,
) -> None:
    entropy = SystemEntropy()
    keys: dict[Party, Credentials] = {}
    cards: list[Card] = []
    problems: list[str] = []
    for name, address in places:
        try:
            keys[name] = Credentials.generate(name, entropy, proof)
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
    print_lines(
        {**describe_roster(listed, path), "identities": {name: str(file) for name, file in files.items()}},
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
    print_lines(
        {**describe_card(made), "card": str(path)},
        [f"{path} is for the keeper of the roster. {_describe_place(made)}", *describe_fingerprint(made)],
        as_json,
    )


def _describe_tls(card: Card, identity: Path) -> list[str]:
    """Returns one sentence on certificates that expire; none for a pinned one."""
    if card.tls is TlsProof.AUTHORITY:
        folder = identity.with_suffix(TLS_FOLDER)
        return [f"Have the authority's tool put {KEY_FILE} and {CERTIFICATE_FILE} for {card.tls_name} into {folder}."]
    return ["A running node issues its TLS certificates itself, for a day each."] if card.tls else []


def _describe_place(card: Card) -> str:
    if card.address:
        return f"Others reach {card.name} at {card.address}."
    return f"{card.name} only dials out, and needs no open port."


def _proof(given: str, authority: str | None, tls_name: str | None) -> tuple[TlsProof, bytes]:
    """Returns how a party proves itself in TLS, and the certificate of its authority."""
    proofs = {"pinned": TlsProof.PINNED, **{each.value: each for each in TlsProof if each.value}}
    if given not in proofs:
        raise ConfigError(f"--tls {given}: there are {', '.join(proofs)}")
    proof = proofs[given]
    if proof is not TlsProof.AUTHORITY:
        if authority is not None or tls_name is not None:
            raise ConfigError("--authority and --tls-name go with --tls authority")
        return proof, b""
    if authority is None or tls_name is None:
        raise ConfigError("--tls authority needs --authority FILE and --tls-name HOST; try: ask whoever runs it")
    try:
        return proof, read_authority(Path(authority).read_bytes())
    except OSError as error:
        raise ConfigError(f"{authority} cannot be read: {error.strerror}") from None
    except WireError as error:
        raise ConfigError(f"{authority}: {error}; try: give the certificate that signs those of the party") from None


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
