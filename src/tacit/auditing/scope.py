"""Scope of an audit: the protocol and its terms, the rounds, and what the adversary sees."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from numbers import Real
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.auditing.engine.algebra.precision import Spread
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.errors import ConfigError
from tacit.core.messages import Envelope
from tacit.core.protocol import Protocol, Role, Terms
from tacit.core.suite import ONLOOKER, SERVER, Party
from tacit.protocols import find, is_shipped
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.faults import Fault, faults_from
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.ring_limits import LARGEST, SMALLEST

LENGTH = 100_000
"""Default length of vectors."""
EAVESDROPPER = "eavesdropper"
"""Name of the adversary that records the traffic on links, as a member of a coalition. Its older name, "onlooker",
works too."""
PROOF_BITS = 64
"""Bits of the ring in which recipes are proved. It is large, so that rounding does not disturb recipes with large
factors."""


@dataclass(frozen=True)
class Scope:
    """The protocol, terms, rounds and adversary's view that an audit analyses."""

    protocol: Protocol
    terms: Terms
    rounds: int = 1
    drift: Drift | float = "static"
    """How vectors change between rounds: "static", "free", or the standard deviation of an entry's change."""
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    entries: int | None = None
    """Length of the vectors that are run on symbols; None for the least length that represents all entries."""
    vectors: Mapping[Party, NDArray[np.float64]] | None = None
    """Vectors by whose size entries are selected."""
    links: Collection[tuple[Party, Party]] | None = None
    """Links on which an eavesdropper records traffic; None for all."""
    sealed: bool = True
    stand_ins: Mapping[Party, Role] | None = None
    """Coroutines that replace those of some parties."""
    dropout: float = 0.0
    """Probability with which each party drops out of each round. `faults` includes the faults that do this."""
    noise: float = 0.0
    """Standard deviation of the noise that each party adds to every entry in every round. With 0, the noise of the
    settings counts as a part of the vector."""
    prior: float | None = None
    """Standard deviation of the adversary's prior for an entry; None for a uniform number up to the clip."""
    sensitivity: float | None = None
    """Distance by which one sample, or one user, can move a vector; None for the norm of the settings."""
    delta: float = 1e-5
    """Probability δ with which the privacy bound may fail."""
    view_only: bool = False
    """Whether ε is also computed as if contributions were fixed in advance, from the coalition's view alone."""
    length: int = LENGTH
    """Length of vectors. It determines the number of exposed entries of sparse vectors and the effect of rounding on ε.
    Protocols that are not shipped are also run on vectors of this length."""

    def __post_init__(self) -> None:
        # Only shipped protocols are believed, because tests check theirs.
        if is_shipped(self.protocol):
            object.__setattr__(self, "terms", self.terms.covering)

    @classmethod
    def of(
        cls,
        protocol: str | Protocol,
        parties: Sequence[Party],
        options: Mapping[str, Any],
        *,
        faults: Iterable[Fault | Mapping[str, Any]] = (),
        dropout: float = 0.0,
        noise: float | None = None,
        length: int | None = None,
        beside: Collection[str] = (),
        **others: Any,
    ) -> "Scope":
        """Returns a scope for the given settings, whether they leak or not.

        Args:
            protocol: The protocol, or its name.
            parties: The names of the parties.
            options: The protocol's settings.
            faults: Faults to inject.
            dropout: Probability with which each party drops out of each round.
            noise: The setting `noise`, which may be given separately.
            length: Length of vectors; by default that of the given vectors, or `LENGTH`.
            beside: Other options of the caller, to suggest for a misspelt one.
            others: Further fields of the scope.

        Raises:
            ConfigError: With all problems.
        """
        entry = find(protocol)
        if noise:
            options = {**options, "noise": noise}
        planned, problems = faults_from(faults, entry, parties)
        if not _is_spread(dropout) or dropout > 1:
            problems.append(f"dropout must be a chance from 0 to 1, not {dropout!r}")
            dropout = 0.0
        terms = terms_for(entry, parties, {**options, "allow_leaks": True}, problems, beside)
        if length is None:
            length = _length_of(others.get("vectors"), terms.parties) or LENGTH
        others |= {"length": length, "noise": terms.settings.noise}
        scope = cls(entry, terms, faults=planned, dropout=float(dropout), **others)
        scope = replace(scope, faults=(*planned, *dropouts(entry, dropout, scope.seed)))
        if problems := scope.problems():
            raise ConfigError(problems)
        return scope

    @property
    def parties(self) -> tuple[Party, ...]:
        """The parties that contribute vectors."""
        return self.terms.parties

    def problems(self) -> list[str]:
        """Returns all problems of the scope."""
        problems = [
            f"{name} must be a whole number of at least 1, not {value!r}"
            for name, value in (("rounds", self.rounds), ("length", self.length))
            if not is_count(value)
        ]
        if (self.drift if isinstance(self.drift, str) else "") not in ("static", "free") and not _is_spread(self.drift):
            problems.append(
                f'drift must be "static", "free", or by how much entries change a round, not {self.drift!r}'
            )
        if not _is_spread(self.noise):
            problems.append(f"noise must be a standard deviation of 0 or more, not {self.noise!r}")
        if self.sensitivity is not None and not (_is_spread(self.sensitivity) and self.sensitivity > 0):
            problems.append(f"sensitivity must be a length above 0, not {self.sensitivity!r}")
        if not isinstance(self.delta, float) or not 0 < self.delta < 1:
            problems.append(f"delta must lie between 0 and 1, not {self.delta!r}")
        if self.prior is not None and not (_is_spread(self.prior) and self.prior > 0):
            problems.append(f"prior must be a standard deviation above 0, not {self.prior!r}")
        everyone = {*self.parties, SERVER}
        if not _are_links(self.links):
            problems.append(f"links must be a list of pairs of names, not {self.links!r}")
        elif strangers := sorted({end for link in self.links or () for end in link} - everyone):
            problems.append(f"links name {', '.join(strangers)}, who is nobody here")
        if not isinstance(self.sealed, bool):
            problems.append(f"sealed must be True or False, not {self.sealed!r}")
        if not isinstance(self.view_only, bool):
            problems.append(f"view_only must be True or False, not {self.view_only!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            problems.append(f"seed must be a whole number, not {self.seed!r}")
        lying = self.stand_ins if self.stand_ins is not None else {}
        if not isinstance(lying, Mapping) or not all(callable(each) for each in lying.values()):
            problems.append("stand_ins must give names of parties a coroutine function each")
        elif strangers := sorted(set(lying) - everyone):
            problems.append(f"stand_ins name {', '.join(strangers)}, who is nobody here")
        if self.vectors is not None:
            given = _length_of(self.vectors, self.parties)
            if given is None:
                problems.append(
                    "vectors must give every party one vector of finite numbers, all of one length; try: give "
                    f"{len(self.parties)} vectors, each as long as the model"
                )
            elif is_count(self.length) and given != self.length:
                problems.append(
                    f"vectors have {given} entries, but models have length={self.length}; try: give vectors of models, "
                    f"or leave out length"
                )
        return problems

    def check(self, coalition: Sequence[Party]) -> None:
        """Raises ConfigError unless these parties can form a coalition."""
        everyone = (*self.protocol.everyone(self.parties), ONLOOKER)
        strangers = sorted({str(member) for member in coalition} - set(everyone))
        if strangers or not coalition:
            near = get_close_matches(strangers[0], everyone, n=1) if strangers else []
            who = f"{', '.join(strangers)} is nobody here" if strangers else "an empty coalition learns nothing"
            hint = f"did you mean {near[0]!r}? There are" if near else "try: name one of"
            raise ConfigError(f"{who}; {hint} {', '.join(everyone)}")
        if twice := [member for member, times in Counter(coalition).items() if times > 1]:
            raise ConfigError(f"{', '.join(twice)} is named twice in the coalition; try: name each member once")
        if set(coalition) >= set(self.parties):
            raise ConfigError(
                "a coalition of everyone leaves no victim; try: "
                f"name at most {len(self.parties) - 1} of the {len(self.parties)} parties"
            )

    @property
    def static(self) -> bool:
        """Whether every party contributes the same vector in each round."""
        return self.drift in ("static", 0) and not self.noise

    @property
    def tied(self) -> bool:
        """Whether a party's vectors differ between rounds but are correlated."""
        return not self.static and self.drift != "free"

    @property
    def sampled(self) -> bool:
        """Whether something is sampled: the users that the server asks, mask neighbours, dropouts, or known secret
        numbers."""
        policy = self.terms.participation
        everybody = self.protocol.choice is None if policy is None else policy.sums_everybody(len(self.parties))
        by_chance = bool(self.terms.known_draws) or any(0 < fault.chance < 1 for fault in self.faults)
        # Without a server, rounds may differ by a public schedule, of which nothing is sampled.
        unlike = self.protocol.choice is not None and not self.terms.rounds_alike
        return by_chance or unlike or not everybody

    @property
    def proof_size(self) -> float:
        """The largest magnitude of an entry on which recipes are proved: none is cut off."""
        return min(1.0, self.terms.settings.clip, self.terms.span)

    @property
    def injected_faults(self) -> int:
        """Number of faults besides those by which parties drop out at random."""
        return len(self.faults) - len(dropouts(self.protocol, self.dropout))

    def with_later_seed(self, offset: int) -> "Scope":
        """Returns the scope with a later seed."""
        faults = (msgspec.structs.replace(each, seed=each.seed + offset) for each in self.faults)
        return replace(self, seed=self.seed + offset, faults=tuple(faults))

    @property
    def changing(self) -> Drift:
        """Whether an unknown stands for all rounds or for one."""
        return "static" if self.static else "free"

    def spread(self, resolution: float) -> Spread:
        """Returns the adversary's prior knowledge of an entry."""
        prior = self.terms.settings.clip / math.sqrt(3) if self.prior is None else self.prior
        drift = None if self.drift == "free" else 0.0 if self.drift == "static" else float(self.drift)
        # A vector that is encoded several times, each time with new noise, is effectively observed as many times.
        return Spread(prior, resolution, drift, self.noise / math.sqrt(self.terms.releases))

    def hears(self, envelope: Envelope) -> bool:
        """Says whether an eavesdropper records the link of an envelope."""
        ends = {envelope.address.sender, envelope.address.to}
        return self.links is None or any(ends == set(link) for link in self.links)

    def real(self, entries: int) -> Simulation:
        """Returns a recorded simulation of the same rounds on numbers, with real cryptography."""
        return Simulation.on(
            self.protocol,
            self.terms,
            entries,
            self.seed,
            self.faults,
            record=True,
            stand_ins=self.stand_ins,
            ring_bits=PROOF_BITS,
            twin=True,
        )


def resolve_members(coalition: Iterable[Party], parties: Collection[Party]) -> tuple[Party, ...]:
    """Returns the members of a coalition, with the eavesdropper under the name that reports use."""
    return tuple(ONLOOKER if each == EAVESDROPPER and each not in parties else each for each in coalition)


def dropouts(protocol: Protocol, chance: float, seed: int = 0) -> tuple[Fault, ...]:
    """Returns faults by which each party drops out of a round with a probability: in mid-round, if there is a
    server."""
    if not chance:
        return ()
    if protocol.choice is None:
        return (Fault(action="silence", chance=chance, seed=seed),)
    return (Fault(action="drop", message=protocol.choice.delivery.kind(), chance=chance, seed=seed),)


def is_count(value: Any) -> bool:
    """Says whether a value is a whole number of at least 1."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def _is_spread(value: Any) -> bool:
    number = isinstance(value, Real) and not isinstance(value, bool)
    return number and (value == 0 or SMALLEST <= value <= LARGEST)


def _are_links(links: Any) -> bool:
    return links is None or (
        isinstance(links, Collection)
        and not isinstance(links, str)
        and all(isinstance(link, tuple | list) and len(link) == 2 and {*map(type, link)} == {str} for link in links)
    )


def _length_of(vectors: Any, parties: Sequence[Party]) -> int | None:
    """Returns the length of given vectors; None without vectors, or if they are not one finite vector per party."""
    if not isinstance(vectors, Mapping) or set(vectors) != set(parties):
        return None
    try:
        arrays = [np.asarray(each, dtype=np.float64) for each in vectors.values()]
    except (TypeError, ValueError):
        return None
    alike = len({each.shape for each in arrays}) == 1 and arrays[0].ndim == 1 and arrays[0].size > 0
    return len(arrays[0]) if alike and all(np.isfinite(each).all() for each in arrays) else None
