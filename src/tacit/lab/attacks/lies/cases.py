"""Cases of the search: settings of a round of `secagg` with the colluding users, and the symmetries of a case."""

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
"""The largest error at which a vector counts as recovered."""
Users: TypeAlias = int
"""A set of users, as a bit mask over places on the roster."""
Neighbours: TypeAlias = int | Literal["all"]
COLLUDING = range(3)
"""Numbers of users that collude with the server."""
EVERYONE = Everyone()


def members(users: Users) -> list[int]:
    """Returns the users of a set in ascending order."""
    return [place for place in range(users.bit_length()) if users >> place & 1]


def subsets(users: Users, always: Users = 0) -> list[Users]:
    """Returns the nonempty subsets of a set that contain certain users, the largest first."""
    found = [part for part in range(1, users + 1) if part & users == part and part & always == always]
    return sorted(found, key=lambda part: (-part.bit_count(), part))


@dataclass(frozen=True)
class LieCase:
    """Settings of a round, and the users that collude with the server."""

    users: int
    colluders: tuple[int, ...] = ()
    participation: Policy = EVERYONE
    neighbours: Neighbours = "all"
    threshold: int | None = None

    @cached_property
    def terms(self) -> SecAggTerms:
        """The terms of the settings; raises ConfigError if they are invalid."""
        settings = SecAggSettings(
            participation=self.participation, neighbours=self.neighbours, threshold=self.threshold
        )
        return settings.bind(Parties(f"p{place}" for place in range(self.users)))

    @cached_property
    def honest(self) -> tuple[int, ...]:
        """Users that follow the protocol."""
        return tuple(u for u in range(self.users) if u not in self.colluders)

    @cached_property
    def sparse(self) -> bool:
        """Whether the mask graph of the largest allowed set of users is not complete."""
        most = self.terms.policy.most(self.users)
        return not Circle(range(most), self.terms.settings.degree, b"").complete

    @property
    def tolerated(self) -> bool:
        """Whether the protocol claims that this many colluders learn nothing but one sum, and the sum hides any vector
        at all."""
        most = self.terms.policy.most(self.users)
        holders = Circle(range(most), self.terms.settings.degree, b"").degree + 1
        return len(self.colluders) < 2 * self.terms.threshold - holders and self.fewest_honest >= 2

    @property
    def fewest_honest(self) -> int:
        """The fewest honest users in a sum."""
        return self.terms.smallest_sum - len(self.colluders)

    @cached_property
    def simulation(self) -> Simulation:
        """Identities and a session. Searches and proofs share them, and therefore their circles."""
        return Simulation.on(SECAGG, self.terms, PROOF_ENTRIES, seed=0, record=True, ring_bits=PROOF_BITS)

    @property
    def setting(self) -> str:
        """Number of users, and their mask graph."""
        graph = f"{self.neighbours} neighbours" if self.sparse else "all are neighbours"
        return f"{self.users} users, {len(self.colluders)} collude, {graph}"

    def __str__(self) -> str:
        return f"{self.setting}, threshold {self.terms.threshold}, {self.participation}"


# --- symmetries ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Renaming:
    """A permutation of users."""

    places: tuple[int, ...]
    """The new place of each honest user, among the honest users."""
    users: tuple[Users, ...]
    """The image of each set of users."""

    def of(self, sets: Sequence[Users]) -> tuple[Users, ...]:
        """Returns the sets that clients receive after the permutation, given what each receives before."""
        renamed = [0] * len(sets)
        for place, users in zip(self.places, sets, strict=True):
            renamed[place] = self.users[users]
        return tuple(renamed)


def list_allowed(case: LieCase) -> tuple[tuple[bool, bool], ...]:
    """Returns for each set of users whether clients accept it as asked, and whether they accept it as summed."""
    terms, rules = case.terms, []
    for users in map(members, range(1 << case.users)):
        asked = len(users) >= terms.fewest_present and terms.policy.may_ask(users, case.users)
        rules.append((asked, len(users) >= terms.smallest_sum and terms.policy.allows(users)))
    return tuple(rules)


def symmetries(case: LieCase) -> list[Renaming]:
    """Returns the permutations of honest users that change nothing. On a circle there are none."""
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
    """Yields every policy for this number of users."""
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
    """Returns every case of this number of users that is claimed to be safe, grouped by equivalence within one round.

    The policies are the given ones, or all.
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
                continue  # With so few asked users, all are neighbours.
            for count in COLLUDING:
                for colluders in _place_colluders(users, count, renamings):
                    each = replace(case, colluders=colluders)
                    if each.tolerated:
                        alike[rules, threshold, case.terms.fewest_present, colluders].append(each)
    return alike


def _place_colluders(users: int, count: int, renamings: Sequence[Renaming]) -> Iterator[tuple[int, ...]]:
    """Yields the possible sets of colluding users up to permutations."""
    seen: set[Users] = set()
    for colluders in combinations(range(users), count):
        users_ = sum(1 << w for w in colluders)
        if users_ not in seen:
            seen.update(renaming.users[users_] for renaming in renamings)
            yield colluders
