"""A run with checked and audited settings: it averages models, and warns of clipped and vanishing entries."""

import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.auditing.preflight import evidence, preflight
from tacit.auditing.render.notes import render_note
from tacit.auditing.scope import LENGTH, is_count
from tacit.core.average import list_names
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.protocol import FARTHEST, UNPROTECTED, Protocol, Terms
from tacit.core.suite import Party, Update
from tacit.protocols import find, is_shipped
from tacit.runtime.agreement import Agreement, terms_for
from tacit.runtime.outcome import Outcome, describe_clipping
from tacit.runtime.simulation.faults import Fault, faults_from
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.layout import Layout
from tacit.vectors.model_tree import ArraySelection
from tacit.vectors.ring_limits import BITS


class NotAuditedWarning(UserWarning):
    """Warns that `allow_leaks=True` runs settings without an audit or an argument, so it is not known what they
    expose."""


class ClippedWarning(UserWarning):
    """Warns that entries were clipped, so that the average is not that of the given vectors."""


class VanishedWarning(UserWarning):
    """Warns that entries are so small that the ring rounds them to 0, so that the average is not that of the given
    vectors."""


@dataclass(frozen=True)
class CheckedRun:
    """Checked settings for some parties, with the notes of the audit."""

    protocol: Protocol
    terms: Terms
    faults: tuple[Fault, ...]
    adversary: int
    notes: tuple[str, ...]
    length: int = LENGTH
    """Length of the audited vectors."""

    @classmethod
    def of(
        cls,
        protocol: str | Protocol,
        parties: Sequence[Party],
        faults: Iterable[Fault | Mapping[str, Any]],
        adversary: int,
        options: Mapping[str, Any],
        found: Sequence[str] = (),
        models: Mapping[Party, Any] | None = None,
        beside: Collection[str] = (),
        length: int = LENGTH,
    ) -> "CheckedRun":
        """Checks and audits settings; raises ConfigError with all problems.

        Args:
            protocol: The protocol, or its name.
            parties: The names of the parties.
            faults: Faults to inject.
            adversary: Number of colluding parties that must not learn a vector.
            options: Settings of the protocol.
            found: Problems that the caller has already found. They are raised with the others.
            models: The models of a single round, which matter if entries are selected by their size; None for many
                rounds.
            beside: Other options of the caller, to suggest for a misspelt one.
            length: Length of the vectors, which matters if entries are selected. Default: that of the models, if given.
        """
        problems = list(found)
        if not is_count(adversary) or adversary >= max(len(parties), 2):
            most = len(parties) - 1
            problems.append(
                f"adversary={adversary!r} must be a whole number from 1 to {most}: at least one party must be outside; "
                f"try: use adversary={most} or less"
            )
        # NumPy's numbers may have low precision.
        numpys = np.ndarray, np.generic
        plain = {name: value.tolist() if isinstance(value, numpys) else value for name, value in options.items()}
        try:
            entry = find(protocol)
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
        planned, more = faults_from(faults, entry, parties)
        problems += more
        try:
            terms = terms_for(entry, parties, plain, problems, beside)
        except LeakRefused as refused:
            # Settings that refuse to run without `allow_leaks` were not audited yet.
            leaking = terms_for(entry, parties, {**plain, "allow_leaks": True})
            raise LeakRefused(str(refused), evidence(entry, leaking), detail=refused.detail) from None
        asked: dict[str, Any] = {"rounds": terms.period if models is None else 1}
        if models is not None and (terms.selective or not is_shipped(entry)):
            layout = Layout.of(next(iter(models.values())), ArraySelection.of(terms.settings))
            asked["length"] = layout.size
            if terms.selective and (terms.selection is None or terms.selection.select is not None):
                asked["vectors"] = {party: layout.flatten(model) for party, model in models.items()}
        notes = preflight(entry, terms, adversary=adversary, **asked)
        for note in notes:
            if terms.settings.allow_leaks:
                warnings.warn(render_note(note), NotAuditedWarning, stacklevel=3)
        length = asked.get("length", LENGTH)
        return cls(entry, terms, planned, adversary, tuple(map(render_note, notes)), length)

    def check_length(self, length: int) -> None:
        """Raises LeakRefused if settings that select entries leak in vectors that are longer than the audited ones."""
        if self.terms.selective and length > self.length:
            rounds = self.terms.period
            preflight(self.protocol, self.terms, adversary=self.adversary, rounds=rounds, length=length)

    def simulation(self, layout: Layout, seed: int | None, record: bool) -> Simulation:
        """Returns a simulation for models of a layout; raises LeakRefused if they are too long for the settings."""
        self.check_length(layout.size)
        return Simulation.on(self.protocol, self.terms, layout.size, seed, self.faults, record=record)

    def average(
        self,
        simulation: Simulation,
        layout: Layout,
        models: Mapping[Party, Any],
        layouts: Mapping[Party, Layout],
        weights: Mapping[Party, Any],
        up: int,
        out: NDArray[np.floating[Any]] | None = None,
        absent: Collection[Party] = (),
    ) -> Outcome:
        """Averages models in one round of a simulation.

        Args:
            simulation: The simulation of the federation.
            layout: Layout of the vectors.
            models: Models by party.
            layouts: Layout of each party's model. They differ only in arrays that stay local.
            weights: Weights by party.
            up: Stack level of the caller that warnings refer to.
            out: Matrix into whose rows the averages are written as vectors.
            absent: Parties that send nothing in this round.
        """
        settings = self.terms.settings
        if settings.noise and set(weights.values()) != {settings.max_weight}:
            raise ConfigError(
                f"with noise={settings.noise:g} all weigh max_weight={settings.max_weight:g}: {UNPROTECTED}"
            )
        flat = layout.flatten if out is None else partial(_vector, layout)
        updates = {
            party: Update(flat(models[party]), weights[party]) for party in simulation.parties if party in models
        }
        if out is None and (wrong := self._misfits(simulation.agreement, layout, updates)):
            raise ConfigError(wrong)
        outcome = simulation.average(updates, out, absent)
        if out is None:
            for party, vector in outcome.average.items():
                own = layouts.get(party, layout)
                # If no array stays local, nothing is read from the model again.
                outcome.average[party] = own.restore(vector, models.get(party) if own.local else None)
        outcome.local = layout.local
        warn_of_clipping(simulation.agreement, outcome, layout, updates, up + 1)
        vanished = list(find_vanishing(simulation.agreement, layout, updates))
        for each in vanished:
            warnings.warn(each, VanishedWarning, stacklevel=up + 1)
        outcome.warnings = (*self.notes, *self._few(outcome), *vanished, *outcome.warnings)
        return outcome

    def _misfits(self, agreement: Agreement, layout: Layout, updates: Mapping[Party, Update]) -> list[str]:
        """Returns the arrays whose average may overflow with its noise. This is checked before anything is sent or
        spent."""
        terms, settings = self.terms, self.terms.settings
        noise = settings.noise
        if not noise:
            return []
        margin = FARTHEST * noise / math.sqrt(terms.smallest_sum) + agreement.ring().resolution
        return [
            f"{each}, and with noise={noise:g} an average may be {margin:.3g} beyond, which it cannot hold; try: use "
            f"wider floats, or leave it local with exclude="
            for each in layout.misfits((update.vector for update in updates.values()), settings.clip, margin)
        ]

    def _few(self, outcome: Outcome) -> list[str]:
        """Returns a warning if an average has so few contributors that colluding ones can recover the others'
        vectors."""
        if self.protocol.leaks_by_design:
            return []
        sets = {ending.contributors for ending in outcome.endings.values() if ending.average is not None}
        few = min((each for each in sets if len(each) > 1), key=len, default=())
        if not few or len(few) > self.adversary + 1:
            return []
        return [
            f"an average was of {' and '.join(few)} alone, so that {_any(len(few) - 1)} of them can work out the rest "
            f"of it; average among more (see tacit plan)"
        ]


def warn_of_clipping(
    agreement: Agreement, outcome: Outcome, layout: Layout, updates: Mapping[Party, Update], up: int
) -> None:
    """Warns of clipped entries by array, in the outcome and as Python warnings at stack level `up`."""
    found = []
    for party in outcome.clipped:
        where = layout.beyond(updates[party].vector, agreement.settings.clip)
        found.append(describe_clipping(agreement, outcome.endings[party], where))
        warnings.warn(found[-1], ClippedWarning, stacklevel=up + 1)
    outcome.warnings = (*found, *outcome.warnings[len(found) :])


def find_vanishing(agreement: Agreement, layout: Layout, updates: Mapping[Party, Update]) -> Iterator[str]:
    """Yields a warning, with a remedy, for each array in which the ring rounds most entries to 0.

    Stochastic rounding keeps the mean, and noise hides small entries on purpose. Neither is reported.
    """
    settings, ring = agreement.settings, agreement.ring()
    if ring.draws:
        return
    found: dict[tuple[str, bool], list[Party]] = {}
    for party, update in updates.items():
        for each in layout.below(update.vector, ring.resolution / 2 * settings.max_weight / update.weight):
            found.setdefault((each.name, each.entries == each.nonzero), []).append(party)
    cure = "a smaller clip" if settings.bits == BITS[-1] else f"bits={BITS[-1]}, or a smaller clip"
    for (name, whole), parties in found.items():
        what = "all" if whole else "most"
        yield (
            f"{list_names(parties)}: {what} entries of {name} that are not 0 are below half a step of the ring, which "
            f"is {ring.resolution:.2g}, and count as 0; try: use {cure}"
        )


def _any(count: int) -> str:
    return "each" if count == 1 else f"any {count}"


def _vector(layout: Layout, model: Any) -> NDArray[np.floating[Any]]:
    """Returns a model as a vector. A vector is returned as it is."""
    if isinstance(model, np.ndarray) and model.ndim == 1 and model.dtype in (np.float32, np.float64):
        return model
    return layout.flatten(model)
