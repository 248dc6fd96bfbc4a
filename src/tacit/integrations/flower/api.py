"""Averaging on Flower: a mod for a ClientApp and a grid for a ServerApp, with the audit in front.

    app = ClientApp(mods=[flower.mod])
    strategy.start(grid=flower.grid(grid, context), initial_arrays=arrays)

A node's configuration has the path of the roster (`tacit-federation`) and the name of its party (`tacit-me`). The
server finds the roster by `tacit-federation` in the configuration of the run.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from tacit.api.membership import Membership
from tacit.core.average import Ending, format_count
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party
from tacit.integrations.flower.averaging_grid import AveragingGrid
from tacit.integrations.flower.driver import make_mod
from tacit.integrations.flower.party import FlowerParty
from tacit.net.membership.identity import Credentials, file_stem
from tacit.net.membership.roster import RosterFile
from tacit.protocols import find
from tacit.runtime.atomic_files import make_private_folder

FEDERATION, ME, PARTITION = "tacit-federation", "tacit-me", "partition-id"
"""Keys of configurations: path of the roster, name of the node's party, and in a simulation the index of the node."""

_rosters: dict[tuple[Path, int], RosterFile] = {}
_parties: dict[tuple[Path, int, Party], FlowerParty] = {}


def _load_roster(path: Path) -> tuple[tuple[Path, int], RosterFile]:
    """Returns the version of a roster file and the roster, read again only if the file has changed."""
    version = path, path.stat().st_mtime_ns if path.exists() else 0
    if version not in _rosters:
        _rosters[version] = RosterFile.load(path)
    return version, _rosters[version]


def party(path: str | Path, me: Party) -> FlowerParty:
    """Returns a party of a roster, with the identity file beside it, after the audit of the settings.

    Raises ConfigError with all problems found, and LeakRefused with the report of the audit.
    """
    found = _load_party(Path(path).expanduser(), me)
    found.audit_settings()
    return found


def _load_party(path: Path, me: Party) -> FlowerParty:
    """Returns a party that audits its settings before it introduces itself or begins a round.

    Flower may use a new process for each message. A round that was begun goes on without another audit: it cannot go
    on with other settings, because its session and what it has stored depend on them.
    """
    version, _ = _load_roster(path)
    if (*version, me) not in _parties:
        member = Membership.of(path, me)
        folder = path.with_name(f"{file_stem(me)}.flower")
        _parties[*version, me] = FlowerParty(member.roster, member.mine, folder, audit=_audit)
    return _parties[*version, me]


def _audit(roster: RosterFile) -> None:
    """Audits the settings of a roster. The auditor is imported here, because most messages do without it."""
    from tacit.api.checked_run import CheckedRun

    CheckedRun.of(roster.protocol, roster.names, (), roster.adversary, roster.settings)


def _find_party(context: Context) -> FlowerParty:
    """Returns the party of a node."""
    path = _roster_path(
        {**context.run_config, **context.node_config}, f"flower-supernode --node-config '{FEDERATION}=\"…\"'"
    )
    if me := context.node_config.get(ME):
        return _load_party(path, str(me))
    names, place = _load_roster(path)[1].names, context.node_config.get(PARTITION)
    if not isinstance(place, int) or not 0 <= place < len(names):
        raise ConfigError(f"which party is this? give a name on the roster: --node-config '{ME}=\"…\"'")
    return _load_party(path, names[place])


def _roster_path(config: Mapping[str, Any], where: str) -> Path:
    if not (given := config.get(FEDERATION)):
        raise ConfigError(f"where is the roster? give its path: {where}")
    return Path(str(given)).expanduser()


def _warn_clipped(ending: Ending) -> None:
    if ending.clipped:
        from tacit.api.checked_run import ClippedWarning

        entries = format_count(ending.clipped, "entry of {party} was", "entries of {party} were").format(
            party=ending.party
        )
        problem = f"{entries} clipped, the largest being {ending.largest:g}"
        cure = "raise clip in the roster, with bits=64 if by much, or leave such arrays out (exclude)"
        warnings.warn(f"{problem}; try: {cure}", ClippedWarning, stacklevel=2)


mod = make_mod(_find_party, _warn_clipped)
"""Mod for a ClientApp: the result of `train` is averaged in a round, and never leaves the node unprotected."""


def grid(grid: Grid, context: Context) -> AveragingGrid:
    """Wraps a grid so that strategies receive the average instead of the models that nodes have trained.

    Args:
        grid: The grid that Flower gives to the main function of a ServerApp.
        context: The context of the same function. Its configuration names the roster.

    Returns:
        The grid to give to a strategy.

    Raises:
        ConfigError: With all problems of the roster.
        LeakRefused: With the audit's report, if the settings of the roster leak.
    """
    path = _roster_path(context.run_config, f"flwr run --run-config '{FEDERATION}=\"…\"'")
    roster = _load_roster(path)[1]
    return AveragingGrid(grid, None if roster.entry.server is None else party(path, SERVER), roster)


def trial(path: str | Path, protocol: str, parties: int, **settings: Any) -> Path:
    """Creates keys and a roster for simulated parties on one machine, unless the roster exists; returns its path.

    For simulations only: the folder contains the private keys of all parties.

    Args:
        path: The roster file to create.
        protocol: The name of the protocol.
        parties: The number of parties.
        settings: Settings of the protocol.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tacit import flower
    >>> with TemporaryDirectory() as folder:
    ...     flower.trial(Path(folder) / "federation.toml", "secagg", 4).name
    'federation.toml'
    """
    path = Path(path).expanduser()
    if path.exists():
        there = RosterFile.load(path)
        if (there.protocol, len(there.names)) != (protocol, parties):
            found = f"{there.protocol} between {len(there.names)} parties, not {protocol} between {parties}"
            raise ConfigError(f"{path} belongs to {found}; try: move its folder away, or give another path")
        return path
    names = tuple([f"p{place}" for place in range(parties)])
    entropy = SystemEntropy()
    made = {name: Credentials.generate(name, entropy) for name in find(protocol).everyone(names)}
    cards = [each.card(f"localhost:{7400 + place}") for place, each in enumerate(made.values())]
    roster = RosterFile.new("trial", protocol, settings, entropy, cards)
    roster.terms  # noqa: B018 (raises if the settings cannot run, before anything is written)
    make_private_folder(path.parent)
    for name, each in made.items():
        each.create(path.with_name(f"{file_stem(name)}.identity"))
    roster.save(path)
    return path
