"""A federation in this process: parties that average their models, round after round."""

import contextlib
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.audit.preflight import evidence, preflight
from tacit.audit.scope import is_count
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.protocol import UNPROTECTED, Protocol, Terms
from tacit.core.suite import Party, Update
from tacit.drivers.agreement import terms_for
from tacit.drivers.faults import Fault, faults_from
from tacit.drivers.outcome import Outcome
from tacit.drivers.simulator import Simulation, absent_problems
from tacit.protocols import find
from tacit.vectors.fixedpoint import LARGEST, FixedPoint
from tacit.vectors.flatten import Layout, problems


class ClippedWarning(UserWarning):
    """Entries were cut off at the clip, so the average is not that of the vectors as given."""


@dataclass(frozen=True)
class Checked:
    """Settings that were found to work for some parties, and what the audit says of them."""

    protocol: Protocol
    terms: Terms
    faults: tuple[Fault, ...]
    adversary: int
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        protocol: str,
        parties: Sequence[Party],
        faults: Sequence[Fault | Mapping[str, Any]],
        adversary: int,
        options: Mapping[str, Any],
        found: Sequence[str] = (),
        models: Mapping[Party, Any] | None = None,
    ) -> "Checked":
        """Binds and audits settings; raises ConfigError with every problem, those found before included.

        It is for one round of some models, which matter only where entries are selected by their size, or for many.
        """
        problems = list(found)
        if not is_count(adversary) or adversary >= max(len(parties), 2):
            most = len(parties) - 1
            problems.append(f"adversary={adversary!r} must be a whole number from 1 to {most}: somebody must be left")
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in options.items()}
        try:
            entry = find(protocol)
        except ConfigError as error:
            raise ConfigError([*problems, *error.problems]) from None
        planned, more = faults_from(faults, entry.everyone(tuple(parties)), [kind.__name__ for kind in entry.messages])
        problems += more
        try:
            terms = terms_for(entry, parties, plain, problems)
        except LeakRefused as refused:
            # What the settings themselves refuse has not been audited yet.
            leaking = terms_for(entry, parties, {**plain, "allow_leaks": True})
            raise LeakRefused(str(refused), evidence(entry, leaking)) from None
        vectors = None
        if models is not None and terms.selective:
            layout = Layout.of(next(iter(models.values())))
            vectors = {party: layout.flatten(model) for party, model in models.items()}
        rounds = terms.period if models is None else 1
        notes = preflight(entry, terms, adversary=adversary, rounds=rounds, vectors=vectors)
        return cls(entry, terms, planned, adversary, notes)

    def simulation(self, layout: Layout, seed: int | None, record: bool) -> Simulation:
        """Returns a simulation for models of a layout."""
        return Simulation.on(self.protocol, self.terms, layout.size, seed, self.faults, record=record)

    def average(
        self,
        simulation: Simulation,
        layout: Layout,
        models: Mapping[Party, Any],
        weights: Mapping[Party, Any],
        up: int,
        out: NDArray[np.floating[Any]] | None = None,
        absent: Collection[Party] = (),
    ) -> Outcome:
        """Averages models in one round of a simulation. Warnings point at the caller that many levels up."""
        settings = self.terms.settings
        if settings.noise and set(weights.values()) != {settings.max_weight}:
            raise ConfigError(
                f"with noise={settings.noise:g} all weigh max_weight={settings.max_weight:g}: {UNPROTECTED}"
            )
        flat = layout.flatten if out is None else partial(_vector, layout)
        updates = {
            party: Update(flat(models[party]), weights[party]) for party in simulation.parties if party in models
        }
        outcome = simulation.average(updates, out, absent)
        if out is None:
            outcome.average = {party: layout.restore(vector) for party, vector in outcome.average.items()}
        for note in outcome.warnings[: len(outcome.clipped)]:
            warnings.warn(note, ClippedWarning, stacklevel=up + 1)
        outcome.warnings = (*self.notes, *self._few(outcome), *outcome.warnings)
        return outcome

    def _few(self, outcome: Outcome) -> list[str]:
        """Returns a warning if so few were averaged that those who collude could take themselves off."""
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


def _any(count: int) -> str:
    return "each" if count == 1 else f"any {count}"


class Federation:
    """Parties that average models by one protocol. Keeps what must outlive a round.

    >>> import tacit
    >>> federation = tacit.Federation("secagg", ["a", "b", "c"])
    >>> out = federation.average({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 9.0]})
    >>> out.average["a"].round(6).tolist()
    [3.0, 5.0]
    """

    def __init__(
        self,
        protocol: str,
        parties: Sequence[Party],
        *,
        seed: int | None = None,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        record: bool = False,
        adversary: int = 1,
        **options: Any,
    ) -> None:
        """Checks the settings, which are those of the protocol, and audits them.

        Raises ConfigError with every problem, and LeakRefused with the report of the audit if any `adversary` parties,
        or the server with one fewer, would learn a vector and `allow_leaks` is not set.
        """
        try:
            names = () if isinstance(parties, str) else tuple(parties)
            hash(names)
        except TypeError:
            names = ()
        if not names:
            raise ConfigError("parties must be a list of names")
        self._checked = Checked.of(protocol, names, faults, adversary, options)
        self.parties = self._checked.terms.parties
        self._seed, self._record = seed, record
        self._layout: Layout | None = None
        self._simulation: Simulation | None = None

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return 0 if self._simulation is None else self._simulation.number

    def average(
        self,
        models: Mapping[Party, Any] | Sequence[Any],
        weights: Mapping[Party, float] | Sequence[float] | None = None,
        out: NDArray[np.floating[Any]] | None = None,
        absent: Collection[Party] = (),
    ) -> Outcome:
        """Averages models: arrays, or dicts, lists or modules of them, by party or in the order of the parties.

        With `out`, a matrix with a row for each party, averages are written into its rows, as vectors, and nothing is
        copied on the way: it may be the matrix whose rows are the models. A row without an average stays as it is.

        Those who are `absent` send nothing in this round. One that brings a model listens all the same; one that brings
        none hears a server's announcement, and without a server takes no part at all.

        Raises ConfigError with every problem before anything is sent, and what was first to go wrong if a round fails.
        """
        brought = named(models, "models", self.parties)
        shares = weights_of(weights, brought, self.parties)
        found = absent_problems(absent, self.parties)
        away = set() if found else set(absent) - brought.keys()
        shares = {party: weight for party, weight in shares.items() if party not in away}
        found += model_problems(brought, self._layout)
        if brought.keys() != set(self.parties) - away or not brought:
            found.append(f"a round takes a model of each of {', '.join(self.parties)}, and of nobody else")
        found += weight_problems(brought, shares, self._checked.terms.settings.max_weight)
        if found:
            raise ConfigError(found)
        layout = self._layout = self._layout or Layout.of(next(iter(brought.values())))
        if self._simulation is None:
            self._simulation = self._checked.simulation(layout, self._seed, self._record)
        return self._checked.average(self._simulation, layout, brought, shares, 2, out, absent)


def _vector(layout: Layout, model: Any) -> NDArray[np.floating[Any]]:
    """Returns a model as a vector: itself, if it is one."""
    if isinstance(model, np.ndarray) and model.ndim == 1 and model.dtype in (np.float32, np.float64):
        return model
    return layout.flatten(model)


# --- models and weights as people have them ------------------------------------------------------------------------


def named(given: Any, what: str, parties: Sequence[Party] | None = None) -> dict[Party, Any]:
    """Returns what was given for each party, by name: p0, p1, … unless the parties have names."""
    if isinstance(given, Mapping):
        return {party: _array(value) for party, value in given.items()}
    try:
        values = list(given)
    except TypeError:
        raise ConfigError(f"{what} must be a dict by party, or a list, not of type {type(given).__name__}") from None
    names = [f"p{place}" for place in range(len(values))]
    if parties is not None:
        names[: len(parties)] = parties[: len(values)]
    return {name: _array(value) for name, value in zip(names, values, strict=True)}


def _array(model: Any) -> Any:
    """Returns plain numbers and arrays of whole numbers as arrays of floats, so that their mean is not rounded."""
    if isinstance(model, np.ndarray) and model.dtype.kind in "iu":
        return model.astype(np.float64)
    if isinstance(model, list | tuple):
        # Ragged, a list of lists of its own kind; or beyond any float, or inside itself, which is told with the rest.
        with contextlib.suppress(ValueError, OverflowError, RecursionError):
            return np.asarray(model, dtype=np.float64) if _is_numbers(model) else model
    return model


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def weights_of(given: Any, models: Mapping[Party, Any], parties: Sequence[Party] | None = None) -> dict[Party, Any]:
    """Returns the weights by name, as floats where they are numbers; all the same if none are given."""
    if given is None:
        return dict.fromkeys(models, 1.0)
    return {party: _float(weight) for party, weight in named(given, "weights", parties).items()}


def _float(weight: Any) -> Any:
    """Returns a number of whatever type as a float, so that nobody computes in half of the digits."""
    if isinstance(weight, bool) or not isinstance(weight, Real):
        return weight
    try:
        return float(weight)
    except OverflowError:
        return math.inf


def model_problems(models: Mapping[Party, Any], expected: Layout | None = None) -> list[str]:
    """Returns everything that keeps models from being averaged, with each other or as those before them."""
    found: list[str] = []
    layouts: dict[Party, Layout] = {}
    for party, model in models.items():
        try:
            found += [f"{party}: {problem}" for problem in problems(model)]
            layouts[party] = Layout.of(model)
        except RecursionError:
            found.append(f"{party}: the model contains itself, or is nested too deeply")
        except ConfigError:
            pass  # told already
    found += [
        f"{party}: give the model itself, and its weight in weights="
        for party, model in models.items()
        if isinstance(model, Update)
    ]
    first = next(iter(layouts), "")
    wanted = expected or layouts.get(first)
    for party, layout in layouts.items():
        if wanted is not None and layout != wanted:
            theirs, ours = (", ".join(map(str, each.entries)) for each in (wanted, layout))
            whose = f"{first}'s" if expected is None else "those of the rounds before"
            found.append(f"{party}'s model ({ours}) is laid out differently from {whose} ({theirs})")
    return found


def weight_problems(models: Mapping[Party, Any], weights: Mapping[Party, Any], max_weight: float) -> list[str]:
    """Returns everything that is wrong with weights."""
    found = FixedPoint.problems(32, 1.0, 1, max_weight, weights)
    if weights.keys() != models.keys():
        found.append("weights must name exactly the parties that bring vectors")
    return found


def heaviest(weights: Mapping[Party, Any]) -> float:
    """Returns a bound on the weights, up to the next power of two, for the bound is public and a weight is not."""
    numbers = [float(weight) for weight in weights.values() if isinstance(weight, Real)]
    return float(2.0 ** np.ceil(np.log2(max([each for each in numbers if 0 < each <= LARGEST], default=1.0))))
