"""Plays all parties of a federation in one process: deterministic, on a virtual clock, with a plan of faults.

Same run, same bytes: with a seed, keys and choices follow from the seed *and* from all that was agreed, brought and
planned to go wrong up to the present round. So two runs of one seed have no key in common unless they are the same run
so far. How a round is played is in `played`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit.core.entropy import SEED_BYTES, Entropy, SeededEntropy, SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import framed
from tacit.core.protocol import Protocol, Role, State, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Identity, Roster
from tacit.drivers.agreement import Agreement, agree, terms_for
from tacit.drivers.faults import Fault, faults_from
from tacit.drivers.journal import fingerprint
from tacit.drivers.outcome import Outcome, merged
from tacit.drivers.played import Played
from tacit.drivers.seat import RealSeat, Seat
from tacit.protocols import find

NONCE_BYTES = 16


class Simulation:
    """The parties of an agreement, round after round."""

    def __init__(
        self,
        agreement: Agreement,
        seats: Mapping[Party, Seat],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        twin: bool = False,
    ) -> None:
        """Takes everybody's seat. Without a seed, the seeds of rounds are those of the operating system.

        `twin` lets rounds follow from the seed alone, whatever is brought to them. It is for audits, whose run on
        symbols and whose run on numbers must choose alike, and for nobody whose vectors matter.
        """
        self.agreement, self.seats, self.faults = agreement, dict(seats), tuple(faults)
        self.number = 0
        """How many rounds were begun."""
        self.last: Played | None = None
        """The last round as it was played, to look into after an abort."""
        self._seed, self._record, self._twin = seed, record, twin
        self._story = repr(self.faults).encode()
        """What stands for all that a run with a seed depends on besides its agreement, round after round."""

    @classmethod
    def of(
        cls,
        protocol: str,
        parties: Sequence[Party],
        entries: int,
        *,
        seed: int | None = None,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        record: bool = False,
        stand_ins: Mapping[Party, Role] | None = None,
        twin: bool = False,
        **options: Any,
    ) -> "Simulation":
        """Returns a simulation for some options; raises ConfigError with every problem, or LeakRefused."""
        entry = find(protocol)
        kinds = [kind.__name__ for kind in entry.messages]
        planned, problems = faults_from(faults, entry.everyone(tuple(parties)), kinds)
        terms = terms_for(entry, parties, options, problems)
        return cls.on(entry, terms, entries, seed, planned, record=record, stand_ins=stand_ins, twin=twin)

    @classmethod
    def on(
        cls,
        protocol: Protocol,
        terms: Terms,
        entries: int,
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        stand_ins: Mapping[Party, Role] | None = None,
        bits_played: int | None = None,
        twin: bool = False,
    ) -> "Simulation":
        """Returns a simulation on terms, with identities and a session of its own.

        `stand_ins` puts other coroutines in the place of some parties', for attacks and tests; `bits_played` plays in a
        finer ring than the one agreed on; `twin` is explained above.
        """
        everyone = protocol.everyone(terms.parties)
        identities = [Identity.generate(party, entropy_for(seed, f"identity {party}")) for party in everyone]
        nonce = entropy_for(seed, "session").bytes(NONCE_BYTES)
        agreement = agree(protocol, terms, Roster(identity.member() for identity in identities), entries, nonce)
        roles = stand_ins or {}
        seats = {
            each.name: RealSeat(agreement, each, role=roles.get(each.name), bits=bits_played, record=record)
            for each in identities
        }
        return cls(agreement, seats, seed, faults, record=record, twin=twin)

    @property
    def parties(self) -> tuple[Party, ...]:
        """Those who bring vectors."""
        return self.agreement.parties

    @property
    def states(self) -> dict[Party, State]:
        """What each party has saved."""
        return {party: seat.state for party, seat in self.seats.items()}

    def seed_of(self, party: Party, number: int) -> bytes:
        """Returns the seed of a party's round: fresh, or the one that follows from the run so far."""
        path = () if self._twin else (self.agreement.session,)
        return entropy_for(self._seed, f"party {party} round {number}", *path).bytes(SEED_BYTES)

    def _renew(self, updates: Mapping[Party, Update]) -> None:
        """Begins a session of a seed and of all that was brought so far, so that no other run has its keys."""
        brought = (fingerprint(updates[party]) for party in self.parties)
        states = (self.agreement.protocol.encode_state(seat.state) for seat in self.seats.values())
        played = (_by_whom(seat) for seat in self.seats.values())
        self._story = hashlib.sha256(framed(self._story, *brought, *states, *played)).digest()
        nonce = entropy_for(self._seed, "session", self._story).bytes(NONCE_BYTES)
        self.join(replace(self.agreement, nonce=nonce))

    def join(self, agreement: Agreement) -> None:
        """Has everybody go on in a session."""
        self.agreement = agreement
        for seat in self.seats.values():
            seat.agreement = agreement

    def average(self, updates: Mapping[Party, Update]) -> Outcome:
        """Plays one round and returns its outcome; raises what was first to go wrong if it failed."""
        if updates.keys() != set(self.parties):
            raise ConfigError(f"a round takes an update of each of {', '.join(self.parties)}, and of nobody else")
        weights = {update.weight for update in updates.values() if isinstance(update.weight, int | float)}
        if len(weights) > 1 and not self.agreement.settings.weighted and self.agreement.protocol.server is None:
            raise ConfigError(
                "parties have different weights; pass weighted=True, for everybody must know that they may"
            )
        if self._seed is not None and not self._twin:
            self._renew(updates)
        self.number += 1
        faults = [fault for fault in self.faults if fault.round in (None, self.number)]
        self.last = played = Played(self.agreement, self.seats, self.seed_of, self.number, faults, record=self._record)
        played.run(updates)
        outcome = merged(self.agreement, played.endings, played.crashed, played.ended)
        outcome.seconds, outcome.transcript, outcome.seed = played.clock, played.transcript, self._seed
        return outcome


def _by_whom(seat: Seat) -> bytes:
    """Returns what tells apart seats that play one party otherwise: by another coroutine, or in a finer ring."""
    names = (getattr(seat.role, name, "") for name in ("__module__", "__qualname__"))
    return " ".join([*names, str(getattr(seat, "bits", None))]).encode()


def entropy_for(seed: int | None, *purpose: str | bytes) -> Entropy:
    """Returns the operating system's entropy, or that of a seed for one purpose."""
    return SystemEntropy() if seed is None else SeededEntropy(seed, *purpose)
