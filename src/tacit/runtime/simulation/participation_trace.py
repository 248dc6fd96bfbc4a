"""Participation traces: the contributors of many rounds, computed without running the rounds."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import Link
from tacit.core.messages import Message
from tacit.core.suite import SERVER, Parties, Party
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation


class TracedRound(NamedTuple):
    """Participation in one round: the parties asked, the parties that deliver, and the parties summed."""

    asked: tuple[Party, ...]
    delivered: tuple[Party, ...]
    summed: tuple[Party, ...]
    """Contributors to the sum; empty if the round would be aborted."""


def trace_participation(simulation: Simulation, rounds: int) -> Iterator[TracedRound]:
    """Yields the participation of the next rounds of a simulation.

    It calls the functions that the server calls, with the seeds of its rounds.
    """
    agreement = simulation.agreement
    choice, terms, parties = agreement.protocol.choice, agreement.terms, agreement.parties
    if choice is None:
        raise ConfigError(f"participation in {agreement.protocol.name} cannot be traced without running its rounds")
    kinds = {choice.here.kind(), choice.delivery.kind()}
    for fault in simulation.faults:
        simple = fault.action == "silence" or (fault.action == "drop" and fault.message in kinds)
        if not simple or fault.number is not None or fault.to not in (None, SERVER):
            raise ConfigError(
                f"for many rounds, faults may only drop a {' or '.join(sorted(kinds))}, or silence a "
                f"party; not {fault.action}"
            )
    state = simulation.states[SERVER]
    for number in range(simulation.number + 1, simulation.number + rounds + 1):
        faults = [fault for fault in simulation.faults if fault.round in (None, number)]
        entropy = SeededEntropy(simulation.seed_of(SERVER, number))
        link = Link(SERVER, parties, agreement.session, number)
        present = _sending(faults, number, choice.here, parties, range(len(parties)))
        asked, state = choice.select_asked(terms, state, present, entropy)
        delivered = _sending(faults, number, choice.delivery, parties, asked)
        chosen = choice.select_summed(terms, link, asked, delivered, entropy) if asked else []
        mute = any(fault.mutes(number, SERVER) for fault in faults)
        yield TracedRound(*(() if mute else parties.names_at(each) for each in (asked, delivered, chosen)))


def _sending(
    faults: Sequence[Fault], number: int, kind: type[Message], parties: Parties, places: Sequence[int]
) -> list[int]:
    """Returns the indices of parties whose message reaches the server."""
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
