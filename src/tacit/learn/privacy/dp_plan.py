"""Noise plan of a scenario with differential privacy: the amount of noise, its source, and the cost of a round."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.protocol import FARTHEST, Terms
from tacit.core.suite import Party
from tacit.learn.scenario import Privacy, Scenario
from tacit.learn.training.local_training import LocalTraining
from tacit.privacy import (
    SharedNoise,
    Spent,
    central_sigma,
    count_honest,
    distributed_sigma,
    of_sample,
    of_user,
    paper_sigma,
    shared_noise,
    user_sigma,
)
from tacit.protocols import find, is_shipped
from tacit.runtime.agreement import terms_for
from tacit.vectors.fixedpoint import FixedPoint

FINER = 1.01
"""Factor by which noise is increased, step by step, until it also covers the rounding of the ring."""
UNSEEN = 1e-3
"""Largest rounding step, as a fraction of the noise's σ, that is treated as harmless to the noise."""


@dataclass(frozen=True)
class NoisePlan:
    """Settings and local work, with their noise."""

    options: Mapping[str, Any]
    local: LocalTraining
    honest: int
    """Number of honest parties whose noise is relied on."""
    fewest: int = 1
    """The fewest contributors that a sum must have: the honest parties and the colluders."""
    central: float = 0.0
    """Noise level σ that a trusted server adds to each sum."""
    spent: Spent | None = None
    """Privacy that a round spends; None if it depends on the ring."""
    notes: tuple[str, ...] = ()

    @property
    def sigma(self) -> float:
        """Noise level σ of each party that adds noise, or of the server."""
        return self.central or self.local.noise or float(self.options.get("noise", 0.0))

    def event(self, terms: Terms, entries: int) -> Spent:
        """Returns the privacy that a round on these terms spends for each contributor.

        Raises ConfigError if the terms allow a sum with less noise than the plan relies on.
        """
        if terms.smallest_sum < self.fewest:
            raise ConfigError(
                f"a sum of {terms.smallest_sum} would have less noise than ε takes, which is that of {self.fewest}; "
                f"try: set threshold={self.fewest}"
            )
        return self.spent or shared_noise(terms, entries, honest=self.honest).event()


def plan_noise(
    scenario: Scenario,
    privacy: Privacy,
    options: Mapping[str, Any],
    parties: Sequence[Party],
    entries: int,
    sizes: Sequence[int],
) -> NoisePlan:
    """Plans the noise of a scenario; raises ConfigError if the settings do not allow it."""
    if scenario.weights == "samples":
        raise ConfigError('weights are not protected by noise; try: use weights = "equal" where there is [privacy]')
    if options.get("norm") not in (None, privacy.clip):
        raise ConfigError(
            f"norm={options['norm']:g} is not the clip = {privacy.clip:g} of [privacy]; try: leave it out"
        )
    if privacy.unit == "sample" and options.get("bits") == 16 and "clip" not in options:
        raise ConfigError(
            "with 16 bits the clip would be chosen from the vectors of the parties, which noise does not hide; try: "
            "set clip in [protocol], or use 32 bits"
        )
    name = scenario.protocol["name"]
    averaged = find(name) if name not in ("local", "centralized") else None
    terms = None if averaged is None else terms_for(averaged, parties, {**options, "allow_leaks": True})
    policy = None if terms is None else terms.participation
    summed = 1 if policy is None else policy.smallest(policy.most(len(parties)))
    # With one step per round, the averaged vectors are gradients, and the noise of all honest users counts. With more
    # steps, each user continues from a point that depends on its own noise, so only its own noise counts.
    noisy = msgspec.structs.replace(scenario.local, noise=1.0)
    everybody = 1
    one_step = privacy.unit == "user" or max(map(noisy.steps_of, sizes)) == 1
    if privacy.noise == "distributed" and one_step:
        # Claims of a protocol that is not shipped about its sums are not proved, so only a party's own noise counts
        # there.
        proved = terms if averaged is not None and is_shipped(averaged) else None
        everybody, options = _count_honest(privacy, options, proved, summed)
    if privacy.unit == "sample":
        return _plan_per_sample(scenario, privacy, options, everybody, summed, sizes)
    if terms is None:
        raise ConfigError("privacy per user needs averages, and local training has none; try: another protocol")
    if privacy.noise == "central":
        if find(name).server is None:
            raise ConfigError(f'{name} has no server to add noise; try: use noise = "local"')
        return _plan_central(scenario, privacy, options)
    honest = everybody
    bound = {"norm": privacy.clip, "clip": privacy.clip, **options}
    sigma = distributed_sigma(
        privacy.epsilon,
        privacy.delta,
        parties=honest,
        norm=privacy.clip,
        rounds=scenario.rounds,
        entries=entries,
        bits=int(bound.get("bits", 32)),
        clip=float(bound["clip"]),
        accountant=privacy.accountant,
    )
    while True:
        bound["noise"] = sigma
        shared = shared_noise(terms_for(find(name), parties, {**bound, "allow_leaks": True}), entries, honest=honest)
        if shared.epsilon(privacy.delta, scenario.rounds, privacy.accountant) <= privacy.epsilon:
            notes = (_describe_noise(sigma, shared, summed),)
            return NoisePlan(bound, scenario.local, honest, _fewest_in_sum(honest, privacy), notes=notes)
        sigma *= FINER


def _count_honest(
    privacy: Privacy, options: Mapping[str, Any], terms: Terms | None, summed: int
) -> tuple[int, Mapping[str, Any]]:
    """Counts the parties whose noise is secret in every sum; returns options that exclude smaller sums.

    If a policy fixes the number of summed parties, a dropout removes no noise: another party takes the place, or there
    is no sum.
    """
    # Without masks the server sees single vectors; without a server neighbours may see them.
    alone = privacy.against == "everybody" and (terms is None or terms.secure_sum is None)
    if terms is None or terms.participation is None or alone or summed < 2:
        return 1, options
    colluders = _count_colluders(privacy)
    firm = terms.participation.smallest(2) == summed
    honest = count_honest(summed, 0.0 if firm else privacy.dropouts, colluders)
    if honest == 1 or firm:
        return honest, options
    threshold = options.get("threshold")
    if threshold is None and "threshold" in terms.settings.__struct_fields__:
        return honest, {**options, "threshold": honest + colluders}
    if terms.smallest_sum <= colluders:
        raise ConfigError(
            f"threshold={threshold} allows sums of colluders alone; try: use threshold={honest + colluders}"
        )
    return min(honest, terms.smallest_sum - colluders), options


def _count_colluders(privacy: Privacy) -> int:
    """Returns the number of contributors that know noise of a sum. Every party sees the sum and can subtract its own
    noise."""
    return max(privacy.colluders, 1)


def _fewest_in_sum(honest: int, privacy: Privacy) -> int:
    """Returns the fewest contributors that a sum must have. A party's own noise is in every sum that includes it."""
    return 1 if honest == 1 else honest + _count_colluders(privacy)


def _describe_noise(sigma: float, shared: SharedNoise, summed: int) -> str:
    return (
        f"every party adds noise of σ = {sigma:.3g} to each entry, and that of {shared.honest} of {summed} who are "
        f"summed is counted on"
    )


def _plan_central(scenario: Scenario, privacy: Privacy, options: Mapping[str, Any]) -> NoisePlan:
    """Plans the noise that a trusted server adds."""
    far = of_user(privacy.clip)
    sigma = central_sigma(
        privacy.epsilon, privacy.delta, sensitivity=far, rounds=scenario.rounds, accountant=privacy.accountant
    )
    told = f"the server, which is trusted to, adds noise of σ = {sigma:.3g} to each entry of a sum"
    bound = {"norm": privacy.clip, "clip": privacy.clip, **options}
    return NoisePlan(bound, scenario.local, 1, central=sigma, spent=Spent.of(sigma / far), notes=(told,))


def _plan_per_sample(
    scenario: Scenario, privacy: Privacy, options: Mapping[str, Any], everybody: int, summed: int, sizes: Sequence[int]
) -> NoisePlan:
    """Plans the noise on gradients that hides one sample (paper 003, Algorithm 1)."""
    local = msgspec.structs.replace(scenario.local, clip=privacy.clip, noise=1.0)
    often = max(_batches_with_one_sample(local, size) for size in sizes)
    batch = min(min(local.batch, size) for size in sizes)
    given: partial[dict[str, Any]] = partial(
        dict, samples=batch, rounds=scenario.rounds * often, lipschitz=privacy.clip
    )

    def sigma_of(honest: int) -> float:
        if privacy.sigma == "paper":
            return paper_sigma(privacy.epsilon, privacy.delta, **given(users=len(sizes)))
        more = given(honest=honest, accountant=privacy.accountant)
        return user_sigma(privacy.epsilon, privacy.delta, **more)

    honest = everybody
    if honest > 1 and not _adds_up(scenario, sigma_of(honest), options, len(sizes)):
        honest = 1
    sigma = sigma_of(honest)
    told = f"every user adds noise of σ = {sigma:.3g} to its gradients, and that of {honest} of {summed} is counted on"
    spent = Spent.of(sigma * math.sqrt(honest) / of_sample(batch, privacy.clip), often)
    work = msgspec.structs.replace(local, noise=sigma)
    return NoisePlan(options, work, honest, _fewest_in_sum(honest, privacy), spent=spent, notes=(told,))


def _adds_up(scenario: Scenario, sigma: float, options: Mapping[str, Any], parties: int) -> bool:
    """Says whether the noise of several users adds up in their sum.

    The noise is drawn before a step, and then clipped and rounded. It does not add up if the update rule depends on the
    size of gradients, if values are clipped, or if rounding is coarse compared with the noise.
    """
    local, settings = scenario.local, {"bits": 32, "clip": 32.0, **options}
    ring = FixedPoint(int(settings["bits"]), float(settings["clip"]), parties, 1)
    rates = [local.rate_at(1), local.rate_at(scenario.rounds, (local.steps or 1) - 1)]
    reach = max(rates) * (local.weight_decay + 1) * (FARTHEST * sigma + float(local.clip or 0.0) + 1)
    return (
        local.optimizer == "sgd"
        and int(settings["bits"]) >= 32
        and reach <= float(settings["clip"])
        and ring.resolution <= UNSEEN * min(rates) * sigma
    )


def _batches_with_one_sample(local: LocalTraining, samples: int) -> int:
    """Returns the largest number of batches of a round that contain one sample: one for each pass over the samples."""
    return -(-local.steps_of(samples) // local.batches_of(samples))
