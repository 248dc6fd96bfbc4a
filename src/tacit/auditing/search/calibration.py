"""Calibration: the smallest noise with which a whole run is (ε, δ)-private against every coalition of one size."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import AccountingMethod
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import count_coalitions, list_coalitions
from tacit.core.errors import ConfigError
from tacit.core.progress import report_step
from tacit.core.protocol import Protocol, Terms
from tacit.core.suite import Party
from tacit.core.values import convert_value, describe_mismatch
from tacit.privacy.distributed_noise import shared_noise
from tacit.privacy.epsilon_bounds import EpsilonBound
from tacit.privacy.matrix.accountant import PartyShare, noise_of_vector
from tacit.privacy.noise import check_positive, of_user
from tacit.protocols import is_shipped
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.faults import Fault

MOST_COALITIONS = 2_000
"""The largest number of coalitions. All are analysed, because the noise has to suffice against each."""
PRECISION = 1e-4
"""Relative precision of the noise."""
MOST_NOISE = 2.0**40
"""The largest noise that is tried, as a multiple of the sensitivity."""


class PrivacyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The privacy that a run has to reach, as given by `privacy`."""

    epsilon: float
    delta: float = 1e-5
    unit: str = "user"
    """Whether one user's whole data are hidden ("user"), or one sample of them ("sample")."""
    adversary: int = 1
    """Number of colluding parties; with a server, it counts as one of them."""


@dataclass(frozen=True)
class Calibration:
    """The smallest noise for a privacy target, and the coalition that requires it."""

    noise: float
    """The setting `noise`: the standard deviation that each party adds to every entry."""
    bound: EpsilonBound
    """The largest ε of any coalition with this noise, and the kind of its proof."""
    method: AccountingMethod
    """Whether the matrix accountant gave this ε, or the smallest sum of a round."""
    coalition: tuple[Party, ...]
    """The coalition with the largest ε."""


@dataclass(frozen=True)
class _View:
    """What determines ε against one coalition, whatever the noise."""

    coalition: tuple[Party, ...]
    company: int | None
    shares: tuple[PartyShare, ...] | None
    """Shares of the matrix accountant; None if it gives no figure."""

    def bound(self, scope: Scope, terms: Terms) -> tuple[EpsilonBound, AccountingMethod]:
        """Returns the smaller of both bounds under some terms."""
        found: list[tuple[EpsilonBound, AccountingMethod]] = []
        # It refuses rings in which rounding moves vectors by more than data can.
        noise = noise_of_vector(terms, scope.length, sensitivity=scope.sensitivity, delta=scope.delta)
        if self.shares is not None:
            bounds = (share.bound(noise, scope.delta) for share in self.shares)
            found.append((max(bounds, key=lambda each: each.epsilon), AccountingMethod.MATRIX))
        if self.company is not None and is_shipped(scope.protocol):
            by_sums = shared_noise(terms, scope.length, sensitivity=scope.sensitivity, honest=self.company)
            found.append((by_sums.best_epsilon(scope.delta, scope.rounds), AccountingMethod.SMALLEST_SUM))
        return min(found, key=lambda each: each[0].epsilon)


def calibrate_noise(
    protocol: str | Protocol,
    parties: Sequence[Party],
    *,
    privacy: PrivacyTarget | Mapping[str, Any],
    rounds: int = 1,
    sensitivity: float | None = None,
    length: int | None = None,
    dropout: float = 0.0,
    faults: Iterable[Fault | Mapping[str, Any]] = (),
    seed: int = 0,
    **options: Any,
) -> Calibration:
    """Returns the smallest noise with which all rounds are (ε, δ)-private against every coalition of a size.

    ε is what `tacit.audit` reports: for the dropouts and the participation that were sampled with `seed`.

    Args:
        protocol: The protocol, or its name.
        parties: The names of the parties.
        privacy: The target: `epsilon`, `delta`, `unit` ("user" or "sample") and `adversary`, the coalition's size.
        rounds: The number of rounds.
        sensitivity: The distance by which one sample moves a vector; for "user", the setting `norm` gives it.
        length: The length of the vectors.
        dropout: The probability with which each party drops out of each round.
        faults: Faults to inject, as in a simulation.
        seed: The seed of all random choices.
        options: Settings of the protocol, without `noise`.

    Raises:
        ConfigError: With all problems, or if no noise suffices.

    >>> target = {"epsilon": 2.0, "adversary": 1}
    >>> found = calibrate_noise("secagg", ["a", "b", "c", "d"], privacy=target, rounds=10, norm=1.0, length=1000)
    >>> round(found.noise, 1)
    7.3
    """
    target = _read_target(privacy, sensitivity, options)
    far = of_user(float(options["norm"])) if sensitivity is None else sensitivity
    scope = Scope.of(
        protocol,
        parties,
        options,
        faults=faults,
        dropout=dropout,
        noise=far,
        length=length,
        rounds=rounds,
        sensitivity=sensitivity,
        delta=target.delta,
        seed=seed,
    )
    views = _list_views(scope, target.adversary)

    def worst_of(noise: float, some: Collection[_View]) -> tuple[EpsilonBound, AccountingMethod, _View]:
        terms = terms_for(scope.protocol, scope.parties, {**options, "noise": noise, "allow_leaks": True})
        return max(((*view.bound(scope, terms), view) for view in some), key=lambda each: each[0].epsilon)

    hardest: list[_View] = []
    worst = worst_of(far, views)
    while True:
        # The coalition that learns most may change with the noise, so the noise is checked against all of them.
        hardest.append(worst[2])
        noise = _smallest(lambda noise: worst_of(noise, hardest)[0].epsilon <= target.epsilon, far, scope)
        worst = worst_of(noise, views)
        if worst[0].epsilon <= target.epsilon:
            return Calibration(noise, worst[0], worst[1], worst[2].coalition)


def _read_target(
    privacy: PrivacyTarget | Mapping[str, Any], sensitivity: float | None, options: Mapping[str, Any]
) -> PrivacyTarget:
    """Returns a target; raises ConfigError for wrong values, or if contributions are not bounded."""
    try:
        target: PrivacyTarget = convert_value(privacy, PrivacyTarget)
    except msgspec.ValidationError as error:
        raise ConfigError(f"privacy: {describe_mismatch(error)}") from None
    if target.unit not in ("user", "sample"):
        raise ConfigError(f'unit must be "user" or "sample", not {target.unit!r}')
    check_positive(target.delta, epsilon=target.epsilon, adversary=target.adversary)
    if "noise" in options:
        raise ConfigError("noise is what a calibration finds; try: leave it out")
    if target.unit == "user" and (sensitivity is not None or options.get("norm") is None):
        raise ConfigError('unit "user" needs norm=, the largest length of a vector, and no sensitivity=')
    if target.unit == "sample" and sensitivity is None:
        raise ConfigError('unit "sample" needs sensitivity=, the distance by which one sample moves a vector')
    return target


def _list_views(scope: Scope, size: int) -> list[_View]:
    """Returns what every coalition of a size learns; raises ConfigError if there are too many, or nothing is proved."""
    count = count_coalitions(scope.protocol, scope.parties, size)
    if not 1 <= count <= MOST_COALITIONS:
        raise ConfigError(
            f"there are {count:,} coalitions of {size}, and the noise has to suffice against each of 1 to "
            f"{MOST_COALITIONS:,}; try: another adversary, or fewer parties"
        )
    auditor = Auditor(scope)
    found = []
    for place, coalition in enumerate(list_coalitions(scope.protocol, scope.parties, size), start=1):
        report_step(f"analysing coalition {place} of {count}")
        report = auditor.report(coalition)
        shares = None if report.accounting is None else report.accounting.shares
        if shares is None and not is_shipped(scope.protocol):
            raise ConfigError(f"no ε of {scope.protocol.name} is proved; try: audit it, which says why")
        if shares or (shares is None and report.company is not None):
            found.append(_View(coalition, report.company, shares))
    if not found:
        raise ConfigError("no coalition sees anything, so no noise is needed; try: larger coalitions, or more rounds")
    return found


def _smallest(suffices: Callable[[float], bool], start: float, scope: Scope) -> float:
    """Returns a noise that suffices, close to the smallest one."""
    high = start
    while not suffices(high):
        high *= 2
        if high > MOST_NOISE * start:
            raise ConfigError(
                f"no noise suffices for {scope.protocol.name} with {scope.terms.settings.bits} bits: some vector has "
                "none, or rounding changes sums by as much as noise hides; try: more bits, or fewer entries"
            )
    low = high / 2
    while suffices(low) and low > start / MOST_NOISE:
        low, high = low / 2, low
    while high > low * (1 + PRECISION):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
