"""Plays all parties of a federation in one process: deterministic, on a virtual clock, with a plan of faults.

Same run, same bytes: with a seed, keys and choices follow from the seed *and* from all that was agreed, brought and
planned to go wrong up to the present round. So two runs of one seed have no key in common unless they are the same run
so far. How a round is played is in `played`.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.entropy import SEED_BYTES, Entropy, SeededEntropy, SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.link import framed
from tacit.core.protocol import Protocol, Role, State, Terms
from tacit.core.suite import Party, Update
from tacit.crypto.keys import Identity, Roster
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, agree, terms_for
from tacit.runtime.faults import Fault, faults_from, faults_text
from tacit.runtime.journal import fingerprint
from tacit.runtime.outcome import Outcome, merged
from tacit.runtime.participant import KeyedParticipant, Participant
from tacit.runtime.simulated_round import SimulatedRound, Row

NONCE_BYTES = 16
Rows: TypeAlias = dict[Party, Row]
"""Where the average of each party is written."""


class Simulation:
    """The parties of an agreement, round after round."""

    def __init__(
        self,
        agreement: Agreement,
        participants: Mapping[Party, Participant],
        seed: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        record: bool = False,
        twin: bool = False,
    ) -> None:
        """Takes everybody's participant. Without a seed, the seeds of rounds are those of the operating system.

        `twin` lets rounds follow from the seed alone, whatever is brought to them. It is for audits, whose run on
        symbols and whose run on numbers must choose alike, and for nobody whose vectors matter.
        """
        self.agreement, self.participants, self.faults = agreement, dict(participants), tuple(faults)
        self.number = 0
        """How many rounds were begun."""
        self.last: SimulatedRound | None = None
        """The last round as it was played, to look into after an abort."""
        self._seed, self._record, self._twin = seed, record, twin
        self._story = faults_text(self.faults).encode()
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
        planned, problems = faults_from(faults, entry, parties)
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
        identities = [identity_of(party, seed) for party in everyone]
        nonce = entropy_for(seed, "session").bytes(NONCE_BYTES)
        agreement = agree(protocol, terms, Roster(identity.member() for identity in identities), entries, nonce)
        roles = stand_ins or {}
        participants = {
            each.name: KeyedParticipant(agreement, each, role=roles.get(each.name), bits=bits_played, record=record)
            for each in identities
        }
        return cls(agreement, participants, seed, faults, record=record, twin=twin)

    @property
    def parties(self) -> tuple[Party, ...]:
        """Those who bring vectors."""
        return self.agreement.parties

    @property
    def states(self) -> dict[Party, State]:
        """What each party has saved."""
        return {party: participant.state for party, participant in self.participants.items()}

    def go_on(self, number: int, states: Mapping[Party, State]) -> None:
        """Goes on after so many rounds, with what parties had saved by then.

        Only a `twin` can: elsewhere what is drawn depends on all that was brought before.
        """
        if not self._twin or states.keys() != self.participants.keys():
            raise ConfigError("only a run that follows from its seed alone can be gone on with, by all of its parties")
        self.number = number
        for party, participant in self.participants.items():
            participant.number = number
            participant.give_up(states[party])

    def close(self) -> None:
        """Ends what plays parties elsewhere, of which there is nothing here."""

    def seed_of(self, party: Party, number: int) -> bytes:
        """Returns the seed of a party's round: fresh, or the one that follows from the run so far."""
        return seed_of(party, number, self._seed, None if self._twin else self.agreement.session)

    def _renew(self, updates: Mapping[Party, Update], absent: Collection[Party]) -> None:
        """Begins a session of a seed and of all that was brought so far, so that no other run has its keys."""
        brought = (fingerprint(updates.get(party)) for party in self.parties)
        away = [b"absent", *(party.encode() for party in self.parties if party in absent)] if absent else []
        story = hashlib.sha256()
        for part in chain([self._story], brought, self._encoded_states(), self._by_whom(), away):
            story.update(framed(part))  # one after the other, for states may be large
        self._story = story.digest()
        nonce = entropy_for(self._seed, "session", self._story).bytes(NONCE_BYTES)
        self.join(replace(self.agreement, nonce=nonce))

    def _encoded_states(self) -> Iterable[bytes]:
        """Returns what everybody has saved, in the roster's order."""
        return (self.agreement.protocol.encode_state(participant.state) for participant in self.participants.values())

    def _by_whom(self) -> Iterable[bytes]:
        """Returns what tells apart participants that play one party otherwise: by another coroutine, or in a finer ring."""
        return (by_whom(participant.role, getattr(participant, "bits", None)) for participant in self.participants.values())

    def join(self, agreement: Agreement) -> None:
        """Has everybody go on in a session."""
        self.agreement = agreement
        for participant in self.participants.values():
            participant.agreement = agreement

    def average(
        self,
        updates: Mapping[Party, Update],
        out: NDArray[np.floating[Any]] | None = None,
        absent: Collection[Party] = (),
    ) -> Outcome:
        """Plays one round and returns its outcome; raises what was first to go wrong if it failed.

        With `out`, a matrix with a row for each party, averages are written into its rows and are nowhere else; those
        of the outcome are these rows. It may be the matrix whose rows are brought. A row without an average stays.

        Those who are `absent` send nothing in this round, as under a fault "silence". One that brings an update listens
        all the same. One that brings none hears a server's announcement, and without a server takes no part at all.
        """
        self._check(updates, absent)
        rows = None if out is None else self._rows(out)
        if rows is not None and self._record:  # what was brought is not what lies there afterwards
            updates = {party: Update(np.array(each.vector), each.weight) for party, each in updates.items()}
        weights = {update.weight for update in updates.values() if isinstance(update.weight, int | float)}
        if len(weights) > 1 and not self.agreement.settings.weighted and self.agreement.protocol.server is None:
            raise ConfigError(
                "parties have different weights; pass weighted=True, for everybody must know that they may"
            )
        if self._seed is not None and not self._twin:
            self._renew(updates, absent)
        self.number += 1
        faults = [fault for fault in self.faults if fault.round in (None, self.number)]
        away: Collection[Party] = ()
        if self.agreement.protocol.server is None:
            away = set(absent) - updates.keys()
        else:
            # What it hears has nothing to do with what it would have brought, and nobody asks for that.
            nothing = np.broadcast_to(np.zeros(1, np.float32), self.agreement.entries)
            updates = {**dict.fromkeys(absent, Update(nothing)), **updates}
        self.last = played = self._played(faults, absent, away, rows)
        played.run(updates)
        outcome = played.settled(merged(self.agreement, played.endings, played.crashed, played.ended))
        outcome.seconds, outcome.transcript, outcome.seed = played.clock, played.transcript, self._seed
        return outcome

    def _played(
        self, faults: Sequence[Fault], silent: Collection[Party], away: Collection[Party], rows: Rows | None
    ) -> SimulatedRound:
        """Returns the round that comes next, to be run."""
        return SimulatedRound(
            self.agreement,
            self.participants,
            self.seed_of,
            self.number,
            faults,
            record=self._record,
            silent=silent,
            away=away,
            rows=rows,
        )

    def _check(self, updates: Mapping[Party, Update], absent: Collection[Party]) -> None:
        """Raises ConfigError unless everybody who is there brings an update, and nobody else does."""
        if problems := absent_problems(absent, self.parties):
            raise ConfigError(problems)
        missing = set(self.parties) - updates.keys() - set(absent)
        if missing or not updates.keys() <= set(self.parties):
            raise ConfigError(f"a round takes an update of each of {', '.join(self.parties)}, and of nobody else")

    def _rows(self, out: Any) -> Rows:
        """Returns the row of each party; raises ConfigError unless averages can be written there."""
        shape, clip = (len(self.parties), self.agreement.entries), self.agreement.settings.clip
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype not in (np.float32, np.float64):
            raise ConfigError(
                f"out must be a matrix of single or double floats, with {shape[0]} rows for the parties and {shape[1]} "
                f"columns, not {_described(out)}"
            )
        if not out.flags.writeable:
            raise ConfigError("out must be a matrix that can be written to, and this one is read-only")
        if clip > float(np.finfo(out.dtype).max):
            raise ConfigError(
                f"averages up to clip={clip:g} do not fit out, a matrix of {out.dtype}; use a smaller clip"
            )
        return dict(zip(self.parties, out, strict=True))


def absent_problems(absent: Any, parties: Sequence[Party]) -> list[str]:
    """Returns why these cannot be the names of those who are absent."""
    listed = isinstance(absent, Collection) and not isinstance(absent, str | bytes)
    if listed and all(isinstance(party, str) and party in parties for party in absent):
        return []
    return [f"absent must be a list of some of {', '.join(parties)}, not {absent!r}"]


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"of type {type(value).__name__}"


def by_whom(role: Role | None = None, bits: int | None = None) -> bytes:
    """Returns what stands for a coroutine in the place of a protocol's own, and for a finer ring."""
    names = (getattr(role, name, "") for name in ("__module__", "__qualname__"))
    return " ".join([*names, str(bits)]).encode()


def identity_of(party: Party, seed: int | None) -> Identity:
    """Returns a new identity, or the one that follows from a seed."""
    return Identity.generate(party, entropy_for(seed, f"identity {party}"))


def seed_of(party: Party, number: int, seed: int | None, session: bytes | None) -> bytes:
    """Returns the seed of a party's round: fresh, or the one that follows from a seed and, if there is one, a session.

    It is a function of its own because parties that are played elsewhere have their seeds there.
    """
    path = () if session is None else (session,)
    return entropy_for(seed, f"party {party} round {number}", *path).bytes(SEED_BYTES)


def entropy_for(seed: int | None, *purpose: str | bytes) -> Entropy:
    """Returns the operating system's entropy, or that of a seed for one purpose."""
    return SystemEntropy() if seed is None else SeededEntropy(seed, *purpose)
