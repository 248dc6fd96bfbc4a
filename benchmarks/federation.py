"""Federations on this machine, with real keys, for measurements between processes."""

import socket
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.entropy import SystemEntropy
from tacit.core.suite import SERVER
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.protocols import find


def free_ports(count: int) -> list[int]:
    """Returns free ports."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def make_federation(
    folder: Path,
    protocol: str,
    parties: int,
    deadlines: Deadlines | None = None,
    *,
    outbound: bool = False,
    **options: Any,
) -> tuple[str, ...]:
    """Writes a roster and all identities to a folder, and returns the names of the parties.

    With `outbound`, nobody but the server has an address.
    """
    everyone = find(protocol).everyone(tuple(f"p{place}" for place in range(parties)))
    entropy = SystemEntropy()
    made = {name: Credentials.generate(name, entropy) for name in everyone}
    ports = free_ports(len(everyone))
    cards = [
        made[name].card("" if outbound and name != SERVER else f"127.0.0.1:{port}")
        for name, port in zip(everyone, ports, strict=True)
    ]
    roster = RosterFile.new("measured", protocol, options, entropy, cards)
    roster = msgspec.structs.replace(roster, deadlines=deadlines or Deadlines(phase=300.0, start=300.0, connect=30.0))
    roster.save(folder / "federation.toml")
    for name, mine in made.items():
        mine.create(folder / f"{name}.identity")
    return everyone
