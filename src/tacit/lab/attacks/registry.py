"""Registry of attacks by name."""

from tacit.api.option_text import check_name
from tacit.lab.attacks import (
    admm,
    collusion,
    disaggregation,
    eavesdropper_decoding,
    eavesdropper_learning,
    epsilon,
    inversion,
    receiver,
    rotation,
)
from tacit.lab.attacks.attack_result import Attack
from tacit.lab.attacks.lies import search

ATTACKS: dict[str, Attack] = {
    module.ATTACK.name: module.ATTACK
    for module in (
        admm,
        eavesdropper_decoding,
        eavesdropper_learning,
        receiver,
        disaggregation,
        epsilon,
        collusion,
        rotation,
        inversion,
        search,
    )
}


def find_attack(name: str) -> Attack:
    """Returns the attack with that name or former name; raises ConfigError with the most similar name if there is
    none."""
    former = {alias: attack.name for attack in ATTACKS.values() for alias in attack.aliases}
    return ATTACKS[check_name("attack", former.get(name, name), ATTACKS)]
