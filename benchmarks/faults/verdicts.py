"""Verdict on a fault run, from the logs of its processes and the files on their disks.

Everything that can be recomputed is recomputed instead of trusted: averages from the inputs of their contributors;
masses exactly, by their recurrence; and exposures by repeating rounds on unknowns (`replay_rounds`).
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.masses import Ending, Masses, Taken
from benchmarks.faults.party import ENTRIES, describe_ending
from benchmarks.faults.replayed import Lived, Place, Said, replay_rounds
from benchmarks.faults.stalls import Course, Courses
from tacit.auditing.scope import Scope
from tacit.core.suite import SERVER, Party
from tacit.net.membership.roster import RosterFile
from tacit.net.store.round_store import RoundStore
from tacit.protocols.admm.settings import AdmmTerms
from tacit.protocols.cesar.settings import CesarTerms
from tacit.protocols.pushsum.settings import PushSumTerms

STEPS = 4
"""Steps of the ring by which an average may differ, because its parts are rounded."""
WHOLE = 24
"""Number of rounds that are repeated on unknowns if a round depends on earlier ones."""


@dataclass
class Account:
    """Actions of one party, from the first to the last line of its log."""

    party: Party
    rounds: dict[int, Taken] = field(default_factory=dict)
    said: dict[tuple[int, Said], set[str]] = field(default_factory=lambda: defaultdict(set))
    """Hashes of the messages with each address, over all restarts."""
    times: int = 0
    """Number of sent messages, repetitions included."""
    waited: Counter[str] = field(default_factory=Counter)
    """Reasons for giving up waiting for a round to begin."""
    lost: list[str] = field(default_factory=list)
    """Results that disappeared or changed."""
    changed: list[str] = field(default_factory=list)
    """Rounds that continued with another model than they began with, or that began twice."""

    def take(self, line: dict[str, Any]) -> None:
        """Takes a line of the log."""
        what, number = line["what"], line.get("round", 0)
        if what in ("begins", "resumes"):
            self._begins(line, resumed=what == "resumes")
        elif what == "heard":
            self._heard(self.rounds[number], line)
        elif what == "says":
            self.times += 1
            self.said[number, Said(self.party, line["to"], line["kind"], line["step"])].add(line["hash"])
        elif what == "up":
            self._up(number, line["resuming"], line["last"])
        elif what == "ends":
            self._ends(line)
        elif what == "waited":
            self.waited[reason(line["error"])] += 1

    def _begins(self, line: dict[str, Any], *, resumed: bool) -> None:
        number, vector = line["round"], None if line["vector"] is None else np.array(line["vector"])
        fresh, earlier = Taken(vector, line["before"], line["state"], line["state"]), self.rounds.get(number)
        if earlier is not None:
            fresh.resumed, fresh.ending = earlier.resumed + resumed, earlier.ending
            same = _alike(vector, earlier.vector)
            # A beginning that was interrupted before it was on disk left nothing behind, and does not count.
            if (resumed and not same) or (not resumed and (earlier.told or earlier.ending or self._spoke(number))):
                self.changed.append(f"{self.party} has another model in round {number}, or began it twice")
        elif resumed:
            self.changed.append(f"{self.party} resumes round {number}, which it never began")
        self.rounds[number] = fresh
        for each in line.get("heard", ()):
            self._heard(fresh, each)

    def _spoke(self, number: int) -> bool:
        return any(at == number for at, _ in self.said)

    @staticmethod
    def _heard(taken: Taken, line: dict[str, Any]) -> None:
        taken.told.append(None if line["place"] is None else Place(*line["place"]))
        taken.after = line["state"] or taken.after

    def _up(self, number: int, resuming: bool, last: Ending | None) -> None:
        """Compares what a restarted party has with what it had before."""
        for later in [each for each in self.rounds if each > number]:
            if self.rounds[later].ending or self._spoke(later):
                self.lost.append(f"{self.party} has forgotten round {later}")
            del self.rounds[later]  # The party was about to begin this round, and did not.
        if not resuming and number:
            if last is None or last["round"] != number:
                self.lost.append(f"{self.party} does not know how round {number} ended")
            else:
                self._ends(last)

    def _ends(self, ending: Ending) -> None:
        taken, told = self.rounds[ending["round"]], {name: ending[name] for name in ENDING}
        if taken.ending is not None and taken.ending != told:
            self.lost.append(f"{self.party} was told two endings of round {ending['round']}")
        taken.ending = told


ENDING = ("round", "average", "contributors", "dropped", "error")


def reason(error: Sequence[str]) -> str:
    """Returns the reason of a failure without names and numbers, so that equal reasons can be counted."""
    code, text = error
    text = re.sub(r"[;(].*", "", re.sub(r": \d+ of at least \d+.*", "", text)).strip()
    text = re.sub(r"\bp\d+\b", "a peer", re.sub(r"after [\d.]+ s.*", "in time", text))
    return f"{code}: {text}"


# --- counts --------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """Results of a run."""

    rounds: int = 0
    finished: int = 0
    """Number of rounds with an average for some party."""
    aborted: Counter[str] = field(default_factory=Counter)
    """Rounds without an average for any party, by reason."""
    endings: int = 0
    """Number of endings, one for each party and round."""
    resumed: int = 0
    """Rounds in which a party was interrupted and continued with its original input."""
    waited: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    """Seconds until all parties that could be averaged were, after each beginning or end of a fault."""
    mass: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    addresses: int = 0
    said: int = 0
    twice: list[str] = field(default_factory=list)
    """Addresses with two different messages."""
    exposed: list[str] = field(default_factory=list)
    replayed: int = 0
    """Number of rounds that were repeated on unknowns."""
    standing: list[str] | None = None
    """Vectors that could be recovered if no model had ever changed."""
    strayed: list[str] = field(default_factory=list)
    """Places at which the symbolic run took another course, so that its result is unknown."""


class Judge:
    """Judge of the logs and files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, json.loads((folder / "run.json").read_text())
        any_roster = next(folder.glob("p0.toml"))
        self.roster = RosterFile.load(any_roster)
        self.names, self.terms = self.roster.names, self.roster.terms
        self.everyone = self.roster.entry.everyone(self.names)
        self.agreement = self.roster.agreement(ENTRIES)
        self.accounts = {name: self._account(name) for name in self.everyone}
        self.verdict = Verdict(hung=list(self.run["hung"]))

    def _lines(self, name: Party) -> Iterator[dict[str, Any]]:
        return map(json.loads, (self.folder / f"{name}.log").read_text().splitlines())

    def _account(self, name: Party) -> Account:
        account = Account(name)
        for line in self._lines(name):
            account.take(line)
        return account

    def judged(self) -> Verdict:
        """Returns the verdict."""
        verdict = self.verdict
        for account in self.accounts.values():
            verdict.waited += account.waited
            verdict.lost += account.lost
            verdict.changed += account.changed
            verdict.resumed += sum(bool(each.resumed) for each in account.rounds.values())
            verdict.said += account.times
            verdict.addresses += len(account.said)
            verdict.twice += [f"{at}" for at, hashes in account.said.items() if len(hashes) > 1]
            verdict.endings += sum(each.ending is not None for each in account.rounds.values())
            without = [number for number, each in account.rounds.items() if each.ending is None]
            verdict.hung += [f"{account.party} never ended round {number}" for number in without]
        self._look_for_stalls()
        self._count()
        self._compare_averages()
        self._look_at_disks()
        self._expose()
        if isinstance(self.terms, PushSumTerms):
            masses = Masses(self.roster, self.folder, {name: self.accounts[name].rounds for name in self.names})
            verdict.mass += masses.problems()
            verdict.wrong += masses.wrong
            verdict.exposed += masses.exposed()
        return verdict

    @property
    def numbers(self) -> list[int]:
        """All rounds that any party began."""
        return sorted({number for account in self.accounts.values() for number in account.rounds})

    def lived(self, number: int) -> dict[Party, Taken]:
        """Returns a round as seen by the parties that began it."""
        return {name: each.rounds[number] for name, each in self.accounts.items() if number in each.rounds}

    def _count(self) -> None:
        for number in self.numbers:
            endings = [each.ending for each in self.lived(number).values() if each.ending is not None]
            self.verdict.rounds += 1
            if any(ending["average"] is not None for ending in endings):
                self.verdict.finished += 1
            elif endings:
                reasons = Counter(reason(ending["error"]) for ending in endings)
                # A party that hears of an abort aborts too, which says nothing about the cause.
                reasons = Counter({why: n for why, n in reasons.items() if not why.endswith("aborted")}) or reasons
                self.verdict.aborted[reasons.most_common(1)[0][0]] += 1

    def _look_for_stalls(self) -> None:
        """Searches for parties that were not averaged although all parties that they need were healthy."""
        lines = {name: Course.of(name, self._lines(name)) for name in self.everyone}
        courses = Courses(self.terms, self.roster.deadlines, lines, self.run["faults"])
        for name in self.everyone:
            stretches = courses.stretches(name)
            self.verdict.hung += courses.told(stretches, self.run["begun"])
            self.verdict.recoveries += [each.recovery for each in stretches if each.recovery is not None]

    # --- averages --------------------------------------------------------------------------------------------------

    def _compare_averages(self) -> None:
        last: Ending | None = None
        for number in self.numbers:
            lived, latest = self.lived(number), None
            aborted = SERVER in lived and (lived[SERVER].ending or {}).get("average") is None
            for name, taken in lived.items():
                if taken.ending is None or taken.ending["average"] is None:
                    continue
                if self._is_right(name, lived, taken.ending, latest):
                    latest = latest or taken.ending
                elif not (aborted and last is not None and _same(taken.ending, last)):
                    # A party that was behind has the last average, and nothing else, of a round that was aborted.
                    self.verdict.wrong.append(f"{name} in round {number}")
            last = latest or last

    def _is_right(self, name: Party, lived: Mapping[Party, Taken], ending: Ending, others: Ending | None) -> bool:
        """Says whether an average is that of the inputs, and equal to the others' averages where all must have the
        same."""
        if isinstance(self.terms, PushSumTerms):
            return True  # It is recomputed from masses.
        expected, off = self._expected(name, lived, ending["contributors"])
        if name == SERVER and expected is not None:
            off += float(np.spacing(np.abs(expected).astype(np.float32)).max())  # A server keeps no more digits.
        right = expected is not None and bool(np.abs(np.array(ending["average"]) - expected).max() <= off)
        alike = SERVER not in self.accounts or name == SERVER or others is None or _same(ending, others)
        return right and alike

    def _expected(
        self, name: Party, lived: Mapping[Party, Taken], contributors: Sequence[Party]
    ) -> tuple[NDArray[np.float64] | None, float]:
        """Returns the average of a round for a party, and its largest error; None if a contributor was not in the
        round."""
        brought = {party: lived[party].vector for party in contributors if party in lived}
        if not brought or len(brought) < len(contributors) or any(vector is None for vector in brought.values()):
            return None, 0.0
        vectors: dict[Party, Any] = brought
        terms, step = self.terms, self.agreement.ring().resolution
        if isinstance(terms, CesarTerms):
            place, own = terms.parties.place, vectors[name]
            others = [
                (float(terms.weight(place(name), place(each))), vectors[each]) for each in vectors if each != name
            ]
            return own + sum((weight * (vector - own) for weight, vector in others), np.zeros(len(own))), STEPS * step
        mean = np.mean(list(vectors.values()), axis=0)
        if isinstance(terms, AdmmTerms):
            drawn, rest = terms.off
            return mean, drawn + rest * float(np.abs(mean).max()) + terms.rounded
        return mean, STEPS * step

    # --- disks -----------------------------------------------------------------------------------------------------

    def _look_at_disks(self) -> None:
        """Compares what is left on disk with the last reported results."""
        for name, account in self.accounts.items():
            with RoundStore(self.folder / f"{name}.rounds", name, self.roster.federation) as store:
                kept = describe_ending(store.load(self.agreement.session).ending)
            last = account.rounds[max(account.rounds)].ending if account.rounds else None
            if kept != last:
                self.verdict.lost.append(f"{name} has another ending on disk than it was told")

    # --- exposures -------------------------------------------------------------------------------------------------

    def _expose(self) -> None:
        lived: dict[int, Lived] = {
            number: {name: taken.told for name, taken in self.lived(number).items()} for number in self.numbers
        }
        # If rounds depend on each other, fractions grow with each of them, so only the first ones are repeated on
        # unknowns.
        verdict, roster = self.verdict, self.roster
        verdict.replayed = min(WHOLE, max(self.numbers)) if self.terms.period > 1 else max(self.numbers)
        scope = Scope.of(roster.protocol, self.names, roster.settings, rounds=verdict.replayed, drift="free")
        run, found = replay_rounds(scope, lived)
        verdict.strayed += [f"{party} cannot go on in round {number}" for number, party in run.stuck]
        for number in run.said:
            said = {at for account in self.accounts.values() for when, at in account.said if when == number}
            if said != run.said[number]:
                verdict.strayed.append(f"other messages were said in round {number}: {said ^ run.said[number]}")
        for each in found:
            who = ", ".join(each.coalition)
            verdict.exposed += [f"{victim} to {who} in round {number}" for victim, number in each.fresh]
            if each.standing is not None:
                verdict.standing = (verdict.standing or []) + [f"{victim} to {who}" for victim in each.standing]


def _alike(one: NDArray[np.float64] | None, other: NDArray[np.float64] | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def _same(one: Ending, other: Ending) -> bool:
    return bool(one["average"] == other["average"] and one["contributors"] == other["contributors"])
