"""Whose vectors each of many rounds sums, without running them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.suite import SERVER, Parties, Party
from tacit.runtime.faults import Fault
from tacit.runtime.simulator import Simulation


class Rehearsed(NamedTuple):
    """What a round comes to, without running it."""

    asked: tuple[Party, ...]
    delivered: tuple[Party, ...]
    summed: tuple[Party, ...]
    """Nobody if it would be aborted."""


def rehearsed(simulation: Simulation, rounds: int) -> Iterator[Rehearsed]:
    """Yields who is asked, who delivers, and whose vectors are summed in the next rounds of a simulation.

    The server's choices are made by the functions that it calls itself, from the seeds of its rounds.
    """
    agreement = simulation.agreement
    choice, terms, parties = agreement.protocol.choice, agreement.terms, agreement.parties
    if choice is None:
        raise ConfigError(f"rounds of {agreement.protocol.name} cannot be rehearsed, only run")
    kinds = {choice.here.kind(), choice.delivery.kind()}
    for fault in simulation.faults:
        simple = fault.action == "silence" or (fault.action == "drop" and fault.message in kinds)
        if not simple or fault.number is not None or fault.to not in (None, SERVER):
            raise ConfigError(
                f"of so many rounds only those faults can be audited that drop a {' or '.join(sorted(kinds))}, or "
                f"silence a party; not {fault.action}"
            )
    state = simulation.states[SERVER]
    for number in range(simulation.number + 1, simulation.number + rounds + 1):
        faults = [fault for fault in simulation.faults if fault.round in (None, number)]
        entropy = SeededEntropy(simulation.seed_of(SERVER, number))
        link = Link(SERVER, parties, agreement.session, number)
        present = _sending(faults, number, choice.here, parties, range(len(parties)))
        asked, state = choice.asked(terms, state, present, entropy)
        delivered = _sending(faults, number, choice.delivery, parties, asked)
        chosen = choice.summed(terms, link, asked, delivered, entropy) if asked else []
        mute = any(fault.mutes(number, SERVER) for fault in faults)
        yield Rehearsed(*(() if mute else parties.named(each) for each in (asked, delivered, chosen)))


def _sending(
    faults: Sequence[Fault], number: int, kind: type[Message], parties: Parties, places: Sequence[int]
) -> list[int]:
    """Returns those of some places whose message to the server gets through."""
    name = kind.kind()
    silent = [fault for fault in faults if fault.action == "silence"]
    drops = [fault for fault in faults if fault.action == "drop" and fault.message in (None, name)]
    if not silent and not drops:
        return list(places)
    return [
        place
        for place in places
        if not any(fault.mutes(number, parties[place]) for fault in silent)
        and not any(fault.hits(number, 0, parties[place], SERVER, name) for fault in drops)
    ]
