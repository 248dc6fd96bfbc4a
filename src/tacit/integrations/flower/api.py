"""Averaging on Flower: a mod for a ClientApp and a grid for a ServerApp, with the audit in front.

    app = ClientApp(mods=[flower.mod])
    strategy.start(grid=flower.grid(grid, context), initial_arrays=arrays)

Where the roster is, nodes are told by their `tacit-federation`, and who they are by `tacit-me`, both in their node
configuration; the server by `tacit-federation` of the run.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid

from tacit.api.checked_run import CheckedRun, ClippedWarning
from tacit.api.join import Membership
from tacit.core.average import Ending, format_count
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party
from tacit.integrations.flower.driver import Courier, mod_of
from tacit.integrations.flower.party import FlowerParty
from tacit.net.membership.identity import Credentials, file_stem
from tacit.net.membership.roster import RosterFile
from tacit.protocols import find

FEDERATION, ME, PARTITION = "tacit-federation", "tacit-me", "partition-id"
"""What configurations have: the path of the roster, the name of the node's party, and, in simulation, its place."""

_rosters: dict[tuple[Path, int], RosterFile] = {}
_parties: dict[tuple[Path, int, Party], FlowerParty] = {}


def _roster(path: Path) -> tuple[tuple[Path, int], RosterFile]:
    """Returns a roster, which is read again only if it has changed, and what tells it from an earlier one."""
    version = path, path.stat().st_mtime_ns if path.exists() else 0
    if version not in _rosters:
        _rosters[version] = RosterFile.load(path)
    return version, _rosters[version]


def party(path: str | Path, me: Party) -> FlowerParty:
    """Returns the party of a roster whose identity lies beside it, once the audit has nothing against it.

    Raises ConfigError with everything that does not fit, and LeakRefused with the report of the audit.
    """
    version, roster = _roster(Path(path).expanduser())
    if (*version, me) not in _parties:
        seated = Membership.of(version[0], me)
        CheckedRun.of(roster.protocol, roster.names, (), roster.adversary, roster.settings)
        folder = version[0].with_name(f"{file_stem(me)}.flower")
        _parties[*version, me] = FlowerParty(seated.roster, seated.mine, folder)
    return _parties[*version, me]


def _node(context: Context) -> FlowerParty:
    """Returns the party that a node is."""
    path = _path({**context.run_config, **context.node_config}, f"flower-supernode --node-config '{FEDERATION}=\"…\"'")
    if me := context.node_config.get(ME):
        return party(path, str(me))
    names, place = _roster(path)[1].names, context.node_config.get(PARTITION)
    if not isinstance(place, int) or not 0 <= place < len(names):
        raise ConfigError(f"who is this? give the name of a party on the roster: --node-config '{ME}=\"…\"'")
    return party(path, names[place])


def _path(config: Mapping[str, Any], where: str) -> Path:
    if not (given := config.get(FEDERATION)):
        raise ConfigError(f"where is the roster? give its path: {where}")
    return Path(str(given)).expanduser()


def _told(ending: Ending) -> None:
    if ending.clipped:
        many = format_count(ending.clipped, "entry of {party} was", "entries of {party} were").format(
            party=ending.party
        )
        said = f"{many} cut off, the largest being {ending.largest:g}"
        cure = "raise clip in the roster, with bits=64 if by much, or leave such arrays out (exclude)"
        warnings.warn(f"{said}; {cure}", ClippedWarning, stacklevel=2)


mod = mod_of(_node, _told)
"""The mod for a ClientApp: what `train` returns is brought to a round, and never leaves the node as it is."""


def grid(grid: Grid, context: Context) -> Courier:
    """Returns a grid for strategies, which get the average in the place of what nodes have trained."""
    path = _path(context.run_config, f"flwr run --run-config '{FEDERATION}=\"…\"'")
    return Courier(grid, None if _roster(path)[1].entry.server is None else party(path, SERVER))


def trial(path: str | Path, protocol: str, parties: int, **settings: Any) -> Path:
    """Makes keys for so many parties on one machine, and their roster, unless it is there; returns its path.

    It is for simulations: whoever has the folder can speak as anybody.
    """
    path = Path(path).expanduser()
    if path.exists():
        there = RosterFile.load(path)
        if (there.protocol, len(there.names)) != (protocol, parties):
            found = f"{there.protocol} between {len(there.names)} parties, not {protocol} between {parties}"
            raise ConfigError(f"{path} is of {found}; move its folder away, or give another path")
        return path
    names = tuple([f"p{place}" for place in range(parties)])
    entropy = SystemEntropy()
    made = {name: Credentials.generate(name, entropy) for name in find(protocol).everyone(names)}
    cards = [each.card(f"localhost:{7400 + place}") for place, each in enumerate(made.values())]
    roster = RosterFile.new("trial", protocol, settings, entropy, cards)
    roster.terms  # noqa: B018 (raises what keeps it from being run, before anything is written)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, each in made.items():
        each.create(path.with_name(f"{file_stem(name)}.identity"))
    roster.save(path)
    return path
