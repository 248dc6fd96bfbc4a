"""The cases that `lies` looks at: settings of a round of `secagg`, who works with the server, and what is the same."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import Literal, TypeAlias

from tacit.auditing.engine.symbolic_run import PROOF_ENTRIES
from tacit.auditing.scope import PROOF_BITS
from tacit.core.errors import ConfigError
from tacit.core.suite import Parties
from tacit.designs.circle import Circle
from tacit.designs.participation import Batches, Everyone, Partition, Policy, Random, Sampled
from tacit.protocols.secagg import SECAGG
from tacit.protocols.secagg.settings import SecAggSettings, SecAggTerms
from tacit.runtime.simulation.simulator import Simulation

NAME = "lies"
CLOSE = 1e-6
"""What is recovered to within this is recovered."""
Users: TypeAlias = int
"""A set of users: a bit for each place on the roster."""
Neighbours: TypeAlias = int | Literal["all"]
COLLUDING = range(3)
"""How many users work with the server."""
EVERYONE = Everyone()


def members(users: Users) -> list[int]:
    """Returns the users of a set, ascending."""
    return [place for place in range(users.bit_length()) if users >> place & 1]


def subsets(users: Users, always: Users = 0) -> list[Users]:
    """Returns the subsets of a set, but for the empty one, that have some users in them; the largest first."""
    found = [part for part in range(1, users + 1) if part & users == part and part & always == always]
    return sorted(found, key=lambda part: (-part.bit_count(), part))


@dataclass(frozen=True)
class LieCase:
    """Settings of a round, and who in it works with the server."""

    users: int
    colluders: tuple[int, ...] = ()
    participation: Policy = EVERYONE
    neighbours: Neighbours = "all"
    threshold: int | None = None

    @cached_property
    def terms(self) -> SecAggTerms:
        """What the settings mean; raises ConfigError if they cannot be."""
        settings = SecAggSettings(
            participation=self.participation, neighbours=self.neighbours, threshold=self.threshold
        )
        return settings.bind(Parties(f"p{place}" for place in range(self.users)))

    @cached_property
    def honest(self) -> tuple[int, ...]:
        """Those who follow the rules."""
        return tuple(u for u in range(self.users) if u not in self.colluders)

    @cached_property
    def sparse(self) -> bool:
        """Whether the graph of the most users that may be asked is not complete."""
        most = self.terms.policy.most(self.users)
        return not Circle(range(most), self.terms.settings.degree, b"").complete

    @property
    def tolerated(self) -> bool:
        """Whether so many colluders are promised to learn nothing but one sum, and that sum hides anybody at all."""
        most = self.terms.policy.most(self.users)
        holders = Circle(range(most), self.terms.settings.degree, b"").degree + 1
        return len(self.colluders) < 2 * self.terms.threshold - holders and self.fewest_honest >= 2

    @property
    def fewest_honest(self) -> int:
        """How many honest users a sum has at least."""
        return self.terms.smallest_sum - len(self.colluders)

    @cached_property
    def simulation(self) -> Simulation:
        """Identities and a session. Searches and proofs have the same ones, and so the same circles."""
        return Simulation.on(SECAGG, self.terms, PROOF_ENTRIES, seed=0, record=True, ring_bits=PROOF_BITS)

    @property
    def setting(self) -> str:
        """How many there are, and how they are joined."""
        graph = f"{self.neighbours} neighbours" if self.sparse else "all are neighbours"
        return f"{self.users} users, {len(self.colluders)} collude, {graph}"

    def __str__(self) -> str:
        return f"{self.setting}, threshold {self.terms.threshold}, {self.participation}"


# --- what is the same ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Renaming:
    """Users that change places."""

    places: tuple[int, ...]
    """Where each honest one goes, among the honest ones."""
    users: tuple[Users, ...]
    """What becomes of each set of users."""

    def of(self, sets: Sequence[Users]) -> tuple[Users, ...]:
        """Returns what clients are told if they change places, given what each is told now."""
        renamed = [0] * len(sets)
        for place, users in zip(self.places, sets, strict=True):
            renamed[place] = self.users[users]
        return tuple(renamed)


def list_allowed(case: LieCase) -> tuple[tuple[bool, bool], ...]:
    """Returns, for each set of users, whether clients let it be asked, and whether they let it be summed."""
    terms, rules = case.terms, []
    for users in map(members, range(1 << case.users)):
        asked = len(users) >= terms.fewest_present and terms.policy.may_ask(users, case.users)
        rules.append((asked, len(users) >= terms.smallest_sum and terms.policy.allows(users)))
    return tuple(rules)


def symmetries(case: LieCase) -> list[Renaming]:
    """Returns how honest users can change places without any difference. On a circle they cannot."""
    rules, found = list_allowed(case), []
    orders = permutations(range(case.users)) if case.neighbours == "all" else [tuple(range(case.users))]
    for order in orders:
        users = tuple(sum(1 << order[u] for u in members(each)) for each in range(1 << case.users))
        honest = [order[u] for u in case.honest]
        if set(honest) == set(case.honest) and all(rules[users[each]] == rule for each, rule in enumerate(rules)):
            found.append(Renaming(tuple(case.honest.index(place) for place in honest), users))
    return found


# --- all cases -----------------------------------------------------------------------------------------------------


def list_policies(users: int) -> Iterator[Policy]:
    """Yields every policy for so many users."""
    yield Everyone()
    for most in range(2, users + 1):
        yield from (Sampled(exactly, most) for exactly in range(2, most + 1))
        yield Random(most)
        yield Partition(most)
        for size in range(1, most + 1):
            yield from (Batches(most, size, partial=partial) for partial in (False, True))


def list_cases(
    users: int, neighbours: Neighbours = "all", among: Sequence[Policy] | None = None
) -> dict[Hashable, list[LieCase]]:
    """Returns every case of so many users that is to be safe, those together that are the same in one round.

    Policies are those given, or all there are.
    """
    alike: dict[Hashable, list[LieCase]] = defaultdict(list)
    for policy in list_policies(users) if among is None else among:
        for threshold in range(2, users + 1):
            case = LieCase(users, (), policy, neighbours, threshold)
            try:
                rules, renamings = list_allowed(case), symmetries(case)
            except ConfigError:
                continue
            if case.sparse != (neighbours != "all"):
                continue  # so few are asked that all are neighbours after all
            for count in COLLUDING:
                for colluders in _place_colluders(users, count, renamings):
                    each = replace(case, colluders=colluders)
                    if each.tolerated:
                        alike[rules, threshold, case.terms.fewest_present, colluders].append(each)
    return alike


def _place_colluders(users: int, count: int, renamings: Sequence[Renaming]) -> Iterator[tuple[int, ...]]:
    """Yields which users may be the ones to collude, but for those who can change places with ones before."""
    seen: set[Users] = set()
    for colluders in combinations(range(users), count):
        users_ = sum(1 << w for w in colluders)
        if users_ not in seen:
            seen.update(renaming.users[users_] for renaming in renamings)
            yield colluders
