"""A malicious server of `secagg`: all inconsistent messages that it can send to a few clients, and what it learns.

The server decides what each client receives: the asked users (U2), the remaining users (U3), the summed users (U5), and
the consents to these. It cannot forge encrypted shares, tags or signatures of honest clients, but it can forward them
selectively, and colluding users authenticate anything. So a *lie* is a choice of three sets for each honest client. The
search goes through all lies step by step: everything that a client may receive next and does not refuse, given the
messages of the others so far. The deployed coroutine replies, and the audit derives what the replies reveal.

A lie **works** if the server and its colluders learn a vector, a sum of fewer honest users than the terms guarantee, or
more than one sum. The search need not consider lies that stop early: knowledge only grows, so continuing never hurts
the server, and a client stops only when it refuses every next message.

Reductions that lose nothing:

- In a complete graph honest users can be exchanged if the policy treats them alike.
- A client that stops before it masks has revealed nothing, unless somebody colludes. If the others can continue in the
  same ways, what it received does not matter.
- In the last step a client's consent counts only for clients that consent to the same sets. So whole groups with equal
  sets are chosen. A client that is in no group whose members send shares need not receive anything.
- Policies that allow the same asked and the same summed users are equivalent in one round.

To show that the search would find a lie, it is first run on variants of `secagg` that lack one precaution. Each lie
found is repeated with real clients and real keys, and what the server recovers is compared with the true vectors.

Lies over several rounds are in `sequences`. Not covered: colluding users that present another user's keys or shares as
their own, and weaknesses below the protocol (encryption, signatures, session and addresses), which other tests attack.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.linear import SMALL_PRIME, smallest_support
from tacit.core.average import format_count
from tacit.core.progress import Progress
from tacit.core.protocol_facts import PAPERS
from tacit.lab.attacks.attack_result import Attack, Finding
from tacit.lab.attacks.lies.cases import (
    CLOSE,
    COLLUDING,
    EVERYONE,
    NAME,
    LieCase,
    Neighbours,
    Renaming,
    Users,
    list_cases,
    members,
    symmetries,
)
from tacit.lab.attacks.lies.roles import SETS, Client, Clients, SymbolicCast
from tacit.lab.attacks.lies.sequence_findings import list_sequence_steps
from tacit.lab.attacks.lies.variants import VARIANTS, use_variant

WHOLE: tuple[tuple[int, Neighbours], ...] = ((4, "all"), (4, 2), (5, "all"), (5, 2))
"""Numbers of users and of neighbours for which every case is searched."""
LONGER = tuple(LieCase(6, colluders, neighbours=4, threshold=t) for colluders, t in (((), 3), ((), 4), ((0,), 4)))
"""Circles that tolerate a missing user, which needs six users."""
RECOVERED = "without a precaution: error of the vector that the server recovers by the first lie that works"
TOO_SMALL = "as deployed: lies that show the server a vector, or a sum of fewer users than agreed"
TOO_MANY = "as deployed: lies that show the server more than one sum, each of as many users as agreed"
TRIED = "lies told"
"""Unit that is counted."""
WORDS = (
    (r"no b_u", "no mask of one's own"),
    (r"no lower bound", "no lower bound on how many are summed"),
    (r"graph may fall apart", "those who share masks may fall into two halves"),
    (r"no consents", "nobody consents to who is summed"),
    (r"consents are local", "only those who share masks consent to who is summed"),
    (r"\b0 collude\b", "nobody colludes"),
    (r"\b1 collude\b", "1 colludes"),
    (r"all are neighbours", "all share masks with each other"),
    (r"\b(\d+) neighbours\b", r"each shares masks with \1"),
    (r"U3 signed by nobody", "nobody vouches for who is left"),
    (r"U2 signed by nobody", "nobody vouches for who was asked"),
    (r"(\d+) different U2, and U3, at most", r"at most \1 stories at a time"),
    (r"told U", "told that U"),
    (r"((?:p\d+ )+)told that", r"it tells \1that"),
    (r"\bU2 = ", "those asked are "),
    (r"\bU3 = ", "those left are "),
    (r"\bU5 = ", "those summed are "),
    (r"Everyone\(\)", "everybody is summed"),
    (r"Sampled\(exactly=(\d+), of=None\)", r"\1 are summed"),
    (r"Sampled\(exactly=(\d+), of=(\d+)\)", r"\1 are summed of \2 who are asked"),
)
"""Meaning of the paper's symbols: U2 are the asked users, U3 the remaining ones, U5 the summed ones."""

# --- a lie that works ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """A lie that works: what clients received, and what follows from their replies."""

    cast: SymbolicCast = field(repr=False)
    clients: Clients = field(repr=False)
    rows: NDArray[np.int64] = field(repr=False)
    """Basis of what is known about honest vectors alone, one column each."""
    smallest: int
    """The fewest honest users in any known combination."""

    @property
    def too_small(self) -> bool:
        """Whether a vector, or a sum of fewer users than guaranteed, is known. Otherwise one sum too many is known."""
        return self.smallest < self.cast.case.fewest_honest

    @property
    def known(self) -> list[dict[int, int]]:
        """The known combinations of vectors, as factors by user, the shortest first."""
        found = []
        for row in self.rows.tolist():
            signed = (value - SMALL_PRIME if value > SMALL_PRIME // 2 else value for value in row)
            found.append({u: value for u, value in zip(self.cast.case.honest, signed, strict=True) if value})
        return sorted(found, key=len)

    def __str__(self) -> str:
        return f"{self.cast.case}: {self.story}, which gives {self.known_basis}"

    @property
    def story(self) -> str:
        """The sets that each client received, as far as they lack a user of the previous set."""
        alike: dict[str, list[int]] = {}
        for client in self.clients:
            before = ((1 << self.cast.case.users) - 1, *client.sets)
            sets = zip(SETS, client.sets, before, strict=False)
            parts = [f"{name} = {_names(members(users))}" for name, users, larger in sets if users != larger]
            alike.setdefault(", ".join(parts) or "that all are there", []).append(client.place)
        return "; ".join(f"{_names(places)} told {what}" for what, places in alike.items())

    @property
    def known_basis(self) -> str:
        """The known combinations: the shortest or, if all have the guaranteed size, all of them."""
        shown = self.known[:1] if self.too_small else self.known
        return " and ".join(_write_combination(combination) for combination in shown)

    def error(self, which: int = 0) -> float:
        """Returns the error of the shortest combination, or another, when it is recovered from real clients."""
        return self.cast.error(self.clients, self.known[which])


def describe_target(target: str) -> str:
    """Returns a description of the target without the paper's symbols."""
    for letters, said in WORDS:
        target = re.sub(letters, said, target)
    return target


def _names(places: Iterable[int]) -> str:
    return " ".join(f"p{place}" for place in places)


def _write_combination(combination: Mapping[int, int]) -> str:
    if set(combination.values()) != {1}:
        return " + ".join(f"{factor}·p{u}" for u, factor in combination.items())
    return f"the {'vector' if len(combination) == 1 else 'sum'} of {_names(combination)}"


# --- all lies ------------------------------------------------------------------------------------------------------


class Search:
    """Search over the lies of a case, with counters."""

    def __init__(self, case: LieCase, stories: int | None = None) -> None:
        """Takes a case and, to limit the search, the largest number of different U2, and of different U3."""
        self.case, self.cast, self._stories = case, SymbolicCast(case), stories
        self._been: set[tuple[int, tuple[int, ...]]] = set()
        self.lies = 0
        """Number of complete lies."""
        self.sums = 0
        """Number of lies that revealed something about vectors."""

    def breaks(self) -> Iterator[Break]:
        """Yields the lies that work."""
        return self._search_lies(0, self.cast.beginning(), symmetries(self.case))

    def _search_lies(self, step: int, clients: Clients, alike: Sequence[Renaming]) -> Iterator[Break]:
        """Yields the lies that work among all continuations."""
        options = [self.cast.list_next_states(client, clients) for client in clients]
        if step == len(SETS) - 1:
            yield from self._choose_groups(self._groups(options), {client.place: client for client in clients})
            return
        if self._was_seen(step, options):
            return
        seen: set[tuple[Users, ...]] = set()
        for chosen in combine_options(options, self._stories):
            sets = tuple(0 if client.silent else client.sets[-1] for client in chosen)
            if sets not in seen:
                renamed = [renaming.of(sets) for renaming in alike]
                seen.update(renamed)
                same = [renaming for renaming, result in zip(alike, renamed, strict=True) if result == sets]
                yield from self._search_lies(step + 1, chosen, same)

    def _was_seen(self, step: int, options: Sequence[list[Client]]) -> bool:
        """Says whether an equivalent state was searched: the same options for active clients, and no information from
        others.

        Before it masks, a client reveals something only to colluding users.
        """
        here = tuple(0 if each[0].silent and not self.case.colluders else id(each) for each in options)
        known = (step, here) in self._been
        self._been.add((step, here))
        return known

    def _groups(self, options: Iterable[Sequence[Client]]) -> list[list[Client]]:
        """Returns groups of clients that can be made to consent to the same sets, if any of them then sends shares."""
        accepting: dict[bytes, dict[int, list[Client]]] = defaultdict(lambda: defaultdict(list))
        for client in (each for accepted in options for each in accepted if not each.silent):
            accepting[self.cast.statement(client)][client.place].append(client)
        groups = []
        for willing in accepting.values():
            for places in (each for size in range(len(willing), 0, -1) for each in combinations(willing, size)):
                for group in product(*(willing[place] for place in places)):
                    after = [self.cast.list_next_states(client, group)[0] for client in group]
                    if not all(client.silent for client in after):
                        groups.append(after)
        return groups

    def _choose_groups(self, groups: Sequence[list[Client]], clients: Mapping[int, Client]) -> Iterator[Break]:
        """Yields the lies that work among all choices of disjoint groups that consent to different sets."""
        if not groups:  # One more group would reveal more.
            yield from self._check_lie(tuple(clients.values()))
        for number, group in enumerate(groups, start=1):
            taken, signed = {client.place: client for client in group}, self.cast.statement(group[0])
            rest = [
                other
                for other in groups[number:]
                if self.cast.statement(other[0]) != signed and not any(client.place in taken for client in other)
            ]
            yield from self._choose_groups(rest, {**clients, **taken})

    def _check_lie(self, clients: Clients) -> Iterator[Break]:
        self.lies += 1
        rows = self.cast.known_basis(clients)
        smallest = smallest_support(rows)
        if smallest is not None:
            self.sums += 1
            if len(rows) > 1 or smallest < self.case.fewest_honest:
                yield Break(self.cast, clients, rows, smallest)


def combine_options(
    options: Sequence[Sequence[Client]], stories: int | None, used: frozenset[Users] = frozenset()
) -> Iterator[Clients]:
    """Yields every choice of one option per client with at most `stories` different sets."""
    if not options:
        yield ()
        return
    for first in options[0]:
        told = used if first.silent else used | {first.sets[-1]}
        if stories is None or len(told) <= stories:
            for others in combine_options(options[1:], stories, told):
                yield first, *others


# --- the attack ----------------------------------------------------------------------------------------------------


@dataclass
class SearchTally:
    """Counts over several cases."""

    settings: int = 0
    """Number of settings: policies, thresholds and colluding users."""
    cases: int = 0
    """Number of cases that differ in one round."""
    lies: int = 0
    sums: int = 0
    breaks: list[Break] = field(default_factory=list)

    def take(self, search: Search, settings: int = 1) -> None:
        """Searches the lies of a case that represents some settings."""
        self.breaks += search.breaks()
        self.settings += settings
        self.cases += 1
        self.lies += search.lies
        self.sums += search.sums

    def findings(self, target: str) -> Iterator[Finding]:
        """Yields the numbers of lies that revealed too small a sum, and one sum too many. All were tried, so there is
        no interval."""
        differ = "all the same in one round" if self.cases == 1 else f"of which {self.cases} differ in one round"
        seen = format_count(self.settings, "setting") + (f", {differ}" if self.cases < self.settings else "")
        seen += f"; {format_count(self.sums, 'lie gives', 'lies give')} the server a sum"
        for small, measure in ((True, TOO_SMALL), (False, TOO_MANY)):
            those = [each for each in self.breaks if each.too_small == small]
            example = f"; for example {those[0]}" if those else ""
            value = float(len(those))
            where = describe_target(f"{target}; {seen}{example}")
            yield Finding(NAME, where, measure, value, value, value, self.lies, bool(those), bracket="", tried=TRIED)


def first_break(name: str) -> tuple[Search, Break | None]:
    """Returns the first lie that works on a variant, where one is expected, and the search that found it."""
    with use_variant(name) as chosen:
        search = Search(chosen.case)
        works = (each for each in search.breaks() if each.smallest == 1 or not chosen.exposes)
        return search, next(works, None)


def run_control(name: str) -> Finding:
    """Returns the server's error when it repeats with real clients of a variant what works on symbols."""
    search, found = first_break(name)
    error = float("nan")
    if found is not None:
        with use_variant(name):
            error = found.error()
    target = describe_target(f"{name}; {found or search.case}")
    return Finding(NAME, target, RECOVERED, error, error, error, search.lies, error < CLOSE, bracket="", tried=TRIED)


def list_targets(full: bool) -> dict[str, list[tuple[list[LieCase], int | None]]]:
    """Returns the targets: groups of cases that are equivalent in one round, and the limit on different sets."""
    found: dict[str, list[tuple[list[LieCase], int | None]]] = defaultdict(list)

    def add(alike: Sequence[LieCase], stories: int | None = None) -> None:
        case = alike[0]
        asked = "everybody" if case.terms.policy.most(case.users) == case.users else "not everybody"
        few = "" if stories is None else f", {stories} different U2, and U3, at most"
        found[f"{case.setting}, {asked} may be asked{few}"].append((list(alike), stories))

    for users, neighbours in WHOLE if full else WHOLE[:1]:
        for alike in list_cases(users, neighbours).values():
            add(alike)
    if full:
        for case in LONGER:
            add([case], stories=2)
    else:
        for alike in list_cases(4, 2, [EVERYONE]).values():
            add(alike)
        for count in COLLUDING:
            add([LieCase(5, tuple(range(count)))])
    return found


def run(full: bool, seed: int, progress: Progress) -> list[Finding]:
    """Searches lies against variants of `secagg` until one works, and then against `secagg` itself.

    First lies of one round, then lies over sequences of rounds.
    """
    del seed  # Only circles are drawn, and any circles will do.
    todo, sequences = list_targets(full), list_sequence_steps(full)
    steps, found = len(VARIANTS) + len(todo) + len(sequences), []
    for done, name in enumerate(VARIANTS):
        progress(f"lying to clients without a precaution: {describe_target(name)}", done / steps)
        found.append(run_control(name))
    for done, (target, groups) in enumerate(todo.items(), start=len(VARIANTS)):
        progress(f"lying to clients as deployed: {describe_target(target)}", done / steps)
        tally = SearchTally()
        for alike, stories in groups:
            tally.take(Search(alike[0], stories), len(alike))
        found += tally.findings(target)
    for done, (target, search) in enumerate(sequences, start=len(VARIANTS) + len(todo)):
        progress(target, done / steps)
        found += search()
    progress(NAME, 1.0)
    return found


ATTACK = Attack(
    name=NAME,
    summary="a malicious server tries every lie on a few clients of secagg, in one round and over several, and carries "
    "out what works with real keys",
    paper=PAPERS["003"],
    run=run,
)
