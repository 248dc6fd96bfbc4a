"""Privacy loss of a whole run: how much of each party's noisy vectors a coalition and all honest learners see.

Let Y be everything that the coalition sees and that honest parties train on. A contribution is any function of the
party's data and of what Y contained before. Let one party's data change, so that each of its vectors moves by at most Δ
at an equal past. In round t let P_t be the projection onto the span of all rows of Y, restricted to the vectors of that
round. Then the view of the coalition is ρ-zCDP with

    ρ = ½ Σ_t ( (Δ/σ)² Σ |P_t[c, c′]| + d R_t²/σ² )

over the party's own vectors c, c′ of round t, with σ and Δ in steps, d entries, and the covering radius R_t of
`projections`. A class sum of k vectors shows 1/k.

*Proof.* Every row is a sum of its restrictions to single rounds, so Y follows from these. What Y contained before a
round fixes how far the round's vectors move. Noise that moves by whole numbers against it, in the null space of the
restricted rows, leaves all of them as they were. The shortest such move has at most the stated length, and a discrete
Gaussian that moves by s has a Rényi divergence of at most α s²/2σ². Adaptive composition adds up the rounds. ∎

**Plain sums.** If every vector of the party is seen in one class sum, its noise is the sum of k discrete Gaussians, and
the bounds of `SharedNoise` and `epsilon_bounds` hold for each round. They include a Gaussian bound, which is smaller.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from tacit.core.errors import ConfigError
from tacit.core.protocol import Terms
from tacit.core.suite import Party
from tacit.privacy.distributed_noise import SharedNoise, shared_noise
from tacit.privacy.epsilon_bounds import BoundKind, EpsilonBound, best_epsilon, renyi_epsilon
from tacit.privacy.matrix.projections import Block, analyse_block, covering_of_sum
from tacit.privacy.matrix.releases import NoisyVector, Releases, Row
from tacit.privacy.noise import check_positive

Factors: TypeAlias = tuple[tuple[NoisyVector, int], ...]


class PlainSum(NamedTuple):
    """A sum of vectors of equal fractions, each with its own noise, that is seen as it is."""

    size: int
    part: float


class RoundShare(NamedTuple):
    """How much of one party's vectors of one round is seen."""

    round: int
    leverage: float
    """Bound on Σ |P[c, c′]| over the party's vectors: 1 for a vector that is seen alone, 1/k in a sum of k."""
    covering: float
    """Squared covering radius, in units of the noise of one step."""
    part: float
    """The smallest fraction that one of the vectors was multiplied by."""
    sums: tuple[PlainSum, ...] | None
    """The class sums that show the vectors; None if a class has several of them, or if they are not of one fraction."""


@dataclass(frozen=True)
class PartyShare:
    """How much of one party's vectors is seen in a whole run."""

    party: Party
    rounds: tuple[RoundShare, ...]
    bare: bool = False
    """Whether somebody else learns a vector of the party that has no noise. Then no ε is proved."""

    @property
    def leverage(self) -> float:
        """Sum over all rounds: the number of sums of one vector that would show as much."""
        return math.inf if self.bare else math.fsum(each.leverage for each in self.rounds)

    def rho(self, noise: SharedNoise) -> float:
        """Returns ρ of zero-concentrated differential privacy for the party's data.

        Args:
            noise: The noise of one whole vector (`noise_of_vector`).
        """
        if self.bare:
            return math.inf
        return math.fsum(_rho_of_round(each, noise) for each in self.rounds) * (1 + 1e-12)

    def bound(self, noise: SharedNoise, delta: float) -> EpsilonBound:
        """Returns the smallest proved ε at δ for the party's data."""
        if self.bare:
            return EpsilonBound(math.inf, BoundKind.UNBOUNDED)
        if not self.rounds:
            return EpsilonBound(0.0, BoundKind.NOTHING_SEEN)
        rho = self.rho(noise)
        sums = [each for share in self.rounds for each in share.sums or ()]
        if rho == math.inf or any(share.sums is None for share in self.rounds):
            return EpsilonBound(renyi_epsilon(rho, delta), BoundKind.RENYI)
        of_sums = [(_of_sum(noise, each), count) for each, count in Counter(sums).items()]
        steps = [each.sigma / each.step * math.sqrt(each.honest) for each, _ in of_sums]
        squares = ((each.moved / step) ** 2 * count for (each, count), step in zip(of_sums, steps, strict=True))
        return best_epsilon(
            rho,
            math.sqrt(math.fsum(squares)) * (1 + 1e-12),
            delta,
            sigma=min(steps),
            tau=max(each.tau for each, _ in of_sums),
            drawn=len(sums) * noise.entries,
        )


def _rho_of_round(share: RoundShare, noise: SharedNoise) -> float:
    steps = noise.sigma / noise.step
    if steps * share.part < 0.5:
        return math.inf
    one = replace(noise, step=noise.step / share.part)
    moved = one.moved / (one.sigma / one.step)
    shifted = (moved**2 * share.leverage + noise.entries * share.covering / steps**2) / 2
    if share.sums is None:
        return shifted
    return min(shifted, math.fsum(_of_sum(noise, each).rho for each in share.sums))


def _of_sum(noise: SharedNoise, plain: PlainSum) -> SharedNoise:
    return replace(noise, step=noise.step / plain.part, honest=plain.size)


def noise_of_vector(
    terms: Terms, entries: int, *, sensitivity: float | None = None, delta: float = 1e-5
) -> SharedNoise:
    """Returns the noise of one whole vector under some terms, for `PartyShare.bound`.

    >>> from tacit.core.suite import Parties
    >>> from tacit.protocols import find
    >>> terms = find("secagg").settings_from({"noise": 0.5, "norm": 1.0}).bind(Parties("abcdefghij"))
    >>> noise_of_vector(terms, entries=1000).honest
    1

    Args:
        terms: The terms of a protocol.
        entries: Number of entries of a vector.
        sensitivity: Largest change of a vector. Default: that of a user whose vectors have the length `norm`.
        delta: Probability with which ε may be exceeded.

    Raises:
        ConfigError: Without noise or without a bound on vectors, if δ is not between 0 and 1, or if rounding to steps
            of the ring can move a vector by more than its data can.
    """
    check_positive(delta)
    noise = shared_noise(terms, entries, sensitivity=sensitivity, honest=1)
    if noise.step * math.sqrt(entries) > noise.sensitivity:
        raise ConfigError(
            f"rounding {entries} entries of {terms.settings.bits} bits moves a vector by up to "
            f"{noise.step * math.sqrt(entries):.3g}, more than its data can ({noise.sensitivity:.3g}); try: more bits, "
            f"a smaller clip, or fewer entries"
        )
    return replace(noise, step=noise.step * terms.part, releases=1)


def account(releases: Releases, *, linear: bool = True) -> dict[Party, PartyShare]:
    """Returns how much is seen of the vectors of every honest party, if anything is.

    Args:
        releases: The rows that the coalition sees and that honest parties train on.
        linear: Whether rows are whole-number combinations in the run, too. If values were rounded in between, every
            noisy vector that is in a row counts as seen alone.
    """
    rows, own = releases.list_retained()
    seen = {id(row) for row in releases.seen}
    exposed = _list_exposed(releases, rows, own, seen)
    shares: dict[Party, list[RoundShare]] = {}
    for round_, factors in _by_round(rows, releases):
        for party, share in _share_round(round_, factors, linear=linear):
            shares.setdefault(party, []).append(share)
    return {
        party: PartyShare(party, tuple(shares.get(party, ())), bare=party in exposed)
        for party in sorted({*shares, *exposed})
    }


def _list_exposed(releases: Releases, rows: Sequence[Row], own: dict[Party, list[Row]], seen: set[int]) -> set[Party]:
    """Returns the parties whose vectors others learn without noise. What only a party itself learns does not count."""
    found: set[Party] = set()
    others: dict[int, set[Party]] = {}
    for party, trained in own.items():
        for row in trained:
            if row.bare:
                others.setdefault(id(row), set()).add(party)
    for row in rows:
        if row.bare:
            learners = others.get(id(row), set())
            for vector in row.bare:
                if id(row) in seen or learners - {vector.party}:
                    found.add(vector.party)
    return found - releases.coalition


def _by_round(rows: Sequence[Row], releases: Releases) -> Iterator[tuple[int, list[Factors]]]:
    """Yields the noisy vectors of honest parties in all rows, round by round."""
    found: dict[int, dict[Factors, None]] = {}
    for row in rows:
        for round_, factors in row.by_round.items():
            honest = tuple(each for each in factors if each[0].party not in releases.coalition)
            if honest:
                found.setdefault(round_, {})[honest] = None
    for round_ in sorted(found):
        yield round_, list(found[round_])


class _VectorClass(NamedTuple):
    """Vectors with equal factors in all rows, up to their sign."""

    column: tuple[int, ...]
    part: float
    members: list[NoisyVector]


class _Component(NamedTuple):
    """Rows of one round that have no vector in common with other rows, and what they show."""

    classes: list[_VectorClass]
    block: Block


def _share_round(round_: int, rows: Sequence[Factors], *, linear: bool) -> Iterator[tuple[Party, RoundShare]]:
    """Yields how much the rows of a round show of each party's vectors."""
    components = [_analyse(component) for component in _components(rows)] if linear else _list_alone(rows)
    whose: dict[Party, list[tuple[int, int]]] = {}
    for number, component in enumerate(components):
        for place, each in enumerate(component.classes):
            for vector in each.members:
                whose.setdefault(vector.party, []).append((number, place))
    known: dict[tuple[tuple[int, int], ...], RoundShare] = {}
    for party, places in whose.items():
        key = tuple(places)
        if key not in known:
            known[key] = _share_of(round_, [(components[number], place) for number, place in places])
        yield party, known[key]


def _analyse(rows: Sequence[Factors]) -> _Component:
    if len(rows) == 1 and len({(factor, vector.part) for vector, factor in rows[0]}) == 1:
        alike = _VectorClass((1,), rows[0][0][0].part, [vector for vector, _ in rows[0]])
        return _Component([alike], Block((len(alike.members),), None, 0.0))
    classes = _list_classes(rows)
    sizes, parts = tuple(len(each.members) for each in classes), tuple(each.part for each in classes)
    matrix = tuple(zip(*(each.column for each in classes), strict=True))
    return _Component(classes, analyse_block(sizes, parts, matrix))


def _list_alone(rows: Sequence[Factors]) -> list[_Component]:
    """Returns every vector in some rows as a component of its own."""
    vectors = sorted({vector for row in rows for vector, _ in row})
    return [_Component([_VectorClass((1,), each.part, [each])], Block((1,), None, 0.0)) for each in vectors]


def _share_of(round_: int, places: Sequence[tuple[_Component, int]]) -> RoundShare:
    """Returns how much is seen of some vectors of one party, given the components and classes that have them."""
    leverage, covering, plain = 0.0, 0.0, True
    for classes, block in {id(component): component for component, _ in places}.values():
        times = Counter(place for component, place in places if component.classes is classes)
        shown = sum(count**2 / block.sizes[place] for place, count in times.items())
        radius = sum(covering_of_sum(block.sizes[place]) / classes[place].part ** 2 for place in times)
        plain &= max(times.values()) == 1
        if block.projection is not None:
            together = sum(
                one * other * float(block.projection[i, j]) / math.sqrt(block.sizes[i] * block.sizes[j])
                for i, one in times.items()
                for j, other in times.items()
            )
            if together < shown:
                shown, radius, plain = together, block.covering, False
        leverage, covering = leverage + shown, covering + radius
    sums = tuple(PlainSum(each.block.sizes[place], each.classes[place].part) for each, place in places)
    return RoundShare(round_, leverage, covering, min(each.part for each in sums), sums if plain else None)


def _components(rows: Sequence[Factors]) -> Iterator[list[Factors]]:
    """Yields the rows in groups that have no vector in common."""
    group: dict[NoisyVector, int] = {}
    members: dict[int, list[Factors]] = {}
    for number, row in enumerate(rows):
        touched = {group[vector] for vector, _ in row if vector in group}
        joined = [row]
        for each in touched:
            joined += members.pop(each)
        members[number] = joined
        for other in joined if touched else (row,):
            for vector, _ in other:
                group[vector] = number
    yield from members.values()


def _list_classes(rows: Sequence[Factors]) -> list[_VectorClass]:
    """Returns the classes of the vectors in some rows."""
    columns: dict[NoisyVector, list[int]] = {}
    for number, row in enumerate(rows):
        for vector, factor in row:
            columns.setdefault(vector, [0] * len(rows))[number] = factor
    found: dict[tuple[tuple[int, ...], float], _VectorClass] = {}
    for vector in sorted(columns):
        column = columns[vector]
        sign = 1 if next(value for value in column if value) > 0 else -1
        key = tuple(sign * value for value in column), vector.part
        found.setdefault(key, _VectorClass(*key, [])).members.append(vector)
    return [found[key] for key in sorted(found)]
