"""The attacks by name, one line each."""

from tacit.audit.attacks import admm, collusion, decode, disaggregate, epsilon, inversion, lies, onlooker
from tacit.audit.attacks.findings import Attack
from tacit.core.errors import ConfigError

ATTACKS: dict[str, Attack] = {
    module.ATTACK.name: module.ATTACK
    for module in (admm, decode, onlooker, disaggregate, epsilon, collusion, inversion, lies)
}


def find_attack(name: str) -> Attack:
    """Returns the attack of that name, or raises ConfigError with those there are."""
    if name not in ATTACKS:
        raise ConfigError(f"there is no attack {name!r}; there are {', '.join(ATTACKS)}")
    return ATTACKS[name]
