"""The attacks by name, one line each."""

from tacit.core.errors import ConfigError
from tacit.lab.attacks import (
    admm,
    collusion,
    disaggregation,
    eavesdropper_decoding,
    eavesdropper_learning,
    epsilon,
    inversion,
)
from tacit.lab.attacks.attack_result import Attack
from tacit.lab.attacks.lies import search

ATTACKS: dict[str, Attack] = {
    module.ATTACK.name: module.ATTACK
    for module in (
        admm,
        eavesdropper_decoding,
        eavesdropper_learning,
        disaggregation,
        epsilon,
        collusion,
        inversion,
        search,
    )
}


def find_attack(name: str) -> Attack:
    """Returns the attack of that name, or raises ConfigError with those there are."""
    if name not in ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; there are {', '.join(ATTACKS)}")
    return ATTACKS[name]
