"""Processes, and machines of their own as far as the network goes: every word is what the simulator says."""

import msgspec
import pytest

from support.federations import Made, free_ports
from support.network_namespaces import IP, machines
from support.recorded_processes import same_as_simulated, told
from support.replay_cases import CASES

pytestmark = pytest.mark.long


def quick(*names):
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", quick("secagg"))
def test_processes_say_and_average_what_the_simulator_does(name, tmp_path):
    case = CASES[name]
    options = msgspec.to_builtins(case.options, enc_hook=vars)
    # In a file there is no None. What it stands for, where there is one, is a group of all.
    options = {option: case.parties if value is None else value for option, value in options.items()}
    made = Made.of(tmp_path, case.protocol, case.parties, **options)
    same_as_simulated(made, told(made))


# --- machines ------------------------------------------------------------------------------------------------------


PARTIES = ("p0", "p1", "p2", "p3", "p4")
SETTINGS = {
    "secagg": ("secagg", {"threshold": 3}),
    "pushsum": ("pushsum", {"masked": True}),
    "cesar": ("cesar", {"share": 0.5}),
    "rotating": ("rotating", {"share": 0.5}),
    "admm": ("admm", {"masked": True}),
    "gossip": ("gossip", {}),
    "fedavg": ("fedavg", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("title", SETTINGS)
def test_five_machines_with_addresses_of_their_own(title, tmp_path):
    protocol, options = SETTINGS[title]
    made = Made.of(tmp_path, protocol, PARTIES, **options)
    with machines(made.everyone) as (spaces, addresses):
        port = free_ports(1)[0]
        made.roster = made.moved({name: f"{address}:{port}" for name, address in addresses.items()})
        found = told(made, lambda name: [IP, "netns", "exec", spaces[name]])
    same_as_simulated(made, found)
