"""Masses of push-sum after a fault run: recomputed, summed, and checked from the view of each client.

The masses of a client follow from its own vectors and from the messages that it received, exactly in the ring. So every
saved state is compared with its recomputed value, and the total of all masses at the end with the total of all inputs.
Because the states are then known to be right, the same recurrence shows what each client could learn about the others.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.party import ENTRIES
from benchmarks.faults.replayed import Place
from tacit.auditing.engine.algebra.linear import SMALL_PRIME, Echelon
from tacit.core.suite import Party
from tacit.net.membership.roster import RosterFile
from tacit.net.store.round_store import RoundStore
from tacit.protocols.pushsum.masses import ALL, MassState
from tacit.protocols.pushsum.settings import PushSumTerms

Ending = dict[str, Any]
Row = NDArray[np.int64]
"""Factors of all parties' steps, modulo a prime."""


@dataclass
class Taken:
    """One round of one party."""

    vector: NDArray[np.float64] | None
    """The vector that the party contributed."""
    before: str
    """Its state before the round, in hex."""
    pushed: str | None
    """The state that it saved when the round began; None if it did not."""
    after: str | None = None
    """The last state that it saved."""
    told: list[Place | None] = field(default_factory=list)
    """The messages that it received, in order. None is a timeout."""
    ending: Ending | None = None
    resumed: int = 0
    """Number of times that it was interrupted in the round."""


class Masses:
    """The masses of push-sum, recomputed from the inputs, and summed at the end."""

    def __init__(self, roster: RosterFile, folder: Path, rounds: Mapping[Party, Mapping[int, Taken]]) -> None:
        """Takes the rounds of all parties, and the folder that their processes left."""
        self.roster, self.folder, self.rounds = roster, folder, rounds
        self.agreement, terms = roster.agreement(ENTRIES), roster.terms
        self.protocol, self.ring = roster.entry, self.agreement.ring()
        assert isinstance(terms, PushSumTerms)
        assert terms.settings.masked
        assert not terms.settings.private
        (self.graph,) = terms.graphs
        self.parties = terms.parties
        self.found: list[str] = []
        self.wrong: list[str] = []
        """Averages that differ from those of the masses."""
        self.brought: Any = self.ring.zeros(ENTRIES + 1)
        """Total of all inputs: the initial models, and the steps."""
        self.pushed: dict[tuple[Party, int], MassState] = {}

    def problems(self) -> list[str]:
        """Returns all inconsistencies."""
        for name in self.parties:
            before: str | None = None
            for number, taken in sorted(self.rounds[name].items()):
                if before is not None and taken.before != before:
                    self.found.append(f"{name} begins round {number} with another state than it left the one before")
                before = taken.after or taken.before
                self._push(name, number, taken)
        for name in self.parties:
            for number, taken in sorted(self.rounds[name].items()):
                self._take(name, number, taken)
        self._add_up()
        return self.found

    def _state(self, data: str) -> MassState:
        state = self.protocol.decode_state(bytes.fromhex(data))
        assert isinstance(state, MassState)
        return state

    def _masses(self, kept: memoryview | None) -> Any:
        return self.ring.zeros(ENTRIES + 1) if kept is None else self.ring.unpack(kept, ENTRIES + 1)

    def _sent(self, state: MassState, party: Party) -> Any:
        return self._masses(state.sent_to(party) if party in state.receivers else None)

    def _push(self, name: Party, number: int, taken: Taken) -> None:
        """Computes the pushed mass of a party, and compares it with the saved one."""
        assert taken.vector is not None
        ring, before, out = self.ring, self._state(taken.before), self._neighbours(self.graph.successors, name)
        if before.x is None:
            step = np.append(ring.encode_with_noise(taken.vector), ring.values(np.ones(1)))
            x = step
        else:
            x = self._masses(before.x)
            step = np.append(ring.encode_with_noise(taken.vector - ring.ratio(x)), ring.zeros(1))
            x = x + step
        if taken.pushed is None:
            self.found.append(f"{name} saved nothing before round {number}")
            return
        self.brought = self.brought + step
        part = ring.portion(x, Fraction(1, len(out) + 1))
        state = self.pushed[name, number] = self._state(taken.pushed)
        right = np.array_equal(self._masses(state.x), x - part * np.uint32(len(out)))
        for other in out:
            right &= np.array_equal(self._masses(state.sent_to(other)), self._sent(before, other) + part)
        if not right:
            self.found.append(f"{name} pushes something else in round {number} than its part")

    def _take(self, name: Party, number: int, taken: Taken) -> None:
        """Computes the mass of a party after a round, and compares it with the saved one and with its average."""
        if taken.ending is None or (name, number) not in self.pushed or taken.after is None:
            return
        pushed, after = self.pushed[name, number], self._state(taken.after)
        x, before = self._masses(pushed.x), self._masses(pushed.taken.get(ALL))
        heard = self._neighbours(self.graph.predecessors, name)
        if set(taken.ending["contributors"]) == {name, *heard}:
            total = sum((self._sent(self.pushed[each, number], name) for each in heard), self.ring.zeros(ENTRIES + 1))
            x = x + (total - before)
            before = total
        right = np.array_equal(self._masses(after.x), x) and np.array_equal(self._masses(after.taken.get(ALL)), before)
        if taken.ending["average"] is not None:
            right &= np.array_equal(np.array(taken.ending["average"]), self.ring.ratio(x))
        if not right:
            self.wrong.append(f"{name} in round {number}")

    def _add_up(self) -> None:
        """Compares all held and undelivered mass at the end with all inputs."""
        states = {}
        for name in self.parties:
            with RoundStore(self.folder / f"{name}.rounds", name, self.roster.federation) as store:
                state = store.load(self.agreement.session).state_of(self.protocol)
            assert isinstance(state, MassState)
            states[name] = state
        held = self.ring.zeros(ENTRIES + 1)
        for state in states.values():
            held = held + self._masses(state.x) - self._masses(state.taken.get(ALL))
            for other in state.receivers:
                held = held + self._sent(state, other)
        if off := np.abs((held - self.brought).view(np.int32)).max():
            self.found.append(f"{off} units of mass are missing, or too many")
        weight = self.ring.values(np.ones(1))[0] * len(self.parties)
        if held[-1] != weight:
            self.found.append(f"all y add up to {held[-1]} units, not {weight}")

    def _neighbours(self, of: Any, name: Party) -> tuple[Party, ...]:
        return self.parties.names_at(sorted(of(self.parties.place(name))))

    # --- exposures -------------------------------------------------------------------------------------------------

    def exposed(self) -> list[str]:
        """Returns whose model or step, of which round, some party could compute from everything that it was ever sent.

        A client sees the sum of the masses of a round if all senders sent theirs, on time or not; otherwise masks hide
        them. It knows its own steps, and all y.
        """
        seen, models, columns = self._recurrence()
        found = []
        for name in self.parties:
            others = [place for (party, _), place in columns.items() if party != name]
            known = Echelon(len(others), len(seen[name]))
            for row in seen[name]:
                known.take(row[others])
            for (party, number), place in columns.items():
                if party == name:
                    continue
                step = np.zeros(len(columns), dtype=np.int64)
                step[place] = 1
                if any(_follows(known, each[others]) for each in (step, models[party, number])):
                    found.append(f"{party} to {name} in round {number}")
        return found

    def _recurrence(self) -> tuple[dict[Party, list[Row]], dict[tuple[Party, int], Row], dict[tuple[Party, int], int]]:
        """Returns what each client sees and what each party contributes, as combinations of all steps, modulo a
        prime."""
        columns = {
            key: place
            for place, key in enumerate((name, number) for name in self.parties for number in self.rounds[name])
        }
        # y is one more column after the factors of the steps, and is treated like them.
        x: dict[Party, Row] = {}
        sent: dict[tuple[Party, Party], Row] = defaultdict(lambda: np.zeros(len(columns) + 1, dtype=np.int64))
        taken: dict[Party, Row] = defaultdict(lambda: np.zeros(len(columns) + 1, dtype=np.int64))
        seen: dict[Party, list[Row]] = {name: [] for name in self.parties}
        models: dict[tuple[Party, int], Row] = {}
        for number in sorted({number for rounds in self.rounds.values() for number in rounds}):
            there = [name for name in self.parties if number in self.rounds[name]]
            for name in there:
                mine, step = x.get(name), np.zeros(len(columns) + 1, dtype=np.int64)
                step[columns[name, number]] = 1
                model = step if mine is None else (step + mine * pow(int(mine[-1]), -1, SMALL_PRIME)) % SMALL_PRIME
                models[name, number] = model[:-1]
                step[-1] = mine is None
                out = self._neighbours(self.graph.successors, name)
                part = ((0 if mine is None else mine) + step) * pow(len(out) + 1, -1, SMALL_PRIME) % SMALL_PRIME
                x[name] = part  # p_ii equals the part that each receiver gets.
                for other in out:
                    sent[name, other] = (sent[name, other] + part) % SMALL_PRIME
            for name in self.parties:
                heard = self._neighbours(self.graph.predecessors, name)
                if not set(heard) <= set(there):
                    continue
                total = (
                    sum((sent[each, name] for each in heard), np.zeros(len(columns) + 1, dtype=np.int64)) % SMALL_PRIME
                )
                seen[name].append(total[:-1])
                ending = self.rounds[name][number].ending if name in there else None
                if ending is not None and set(ending["contributors"]) == {name, *heard}:
                    x[name] = (x[name] + total - taken[name]) % SMALL_PRIME
                    taken[name] = total
        return seen, models, columns


def _follows(known: Echelon, row: Row) -> bool:
    """Says whether a row is a combination of known rows."""
    leads = known.leads
    if not leads:
        return not row.any()
    rest = row % SMALL_PRIME
    rest = (rest - (rest[leads, None] * known.matrix % SMALL_PRIME).sum(axis=0)) % SMALL_PRIME
    return not rest.any()
