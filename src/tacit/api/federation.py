"""A federation in this process: parties that average their models, round after round."""

import contextlib
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.auditing.preflight import evidence, preflight
from tacit.auditing.render.notes import render_note
from tacit.auditing.scope import is_count
from tacit.core.average import format_count, list_names
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.protocol import FARTHEST, UNPROTECTED, Protocol, Settings, Terms, names_from
from tacit.core.suite import Party, Update
from tacit.core.values import convert_value
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, terms_for
from tacit.runtime.faults import Fault, faults_from
from tacit.runtime.outcome import Outcome, describe_clipping
from tacit.runtime.simulator import Simulation, absent_problems
from tacit.vectors.layout import ALL, FLOATS, Layout, Selection, inspect_model
from tacit.vectors.ring_limits import BITS, LARGEST, ring_problems

SHOWN = 3
"""Problems of a model that are told of many."""


if TYPE_CHECKING:
    from tacit.api.option_types import AdmmRun, CesarRun, FedAvgRun, GossipRun, PushSumRun, SecAggRun

BESIDE = ("seed", "faults", "record", "adversary")
"""What a federation takes besides the options of its protocol."""


class ClippedWarning(UserWarning):
    """Entries were cut off at the clip, so the average is not that of the vectors as given."""


class VanishedWarning(UserWarning):
    """Entries are so small that the ring rounds them to 0, so the average is not that of the vectors as given."""


@dataclass(frozen=True)
class CheckedRun:
    """Settings that were found to work for some parties, and what the audit says of them."""

    protocol: Protocol
    terms: Terms
    faults: tuple[Fault, ...]
    adversary: int
    notes: tuple[str, ...]

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
    ) -> "CheckedRun":
        """Binds and audits settings; raises ConfigError with every problem, those found before included.

        It is for one round of some models, which matter only where entries are selected by their size, or for many.
        What else the caller takes `beside` options is suggested in the place of those that there are not.
        """
        problems = list(found)
        if not is_count(adversary) or adversary >= max(len(parties), 2):
            most = len(parties) - 1
            problems.append(f"adversary={adversary!r} must be a whole number from 1 to {most}: somebody must be left")
        # So that nobody computes in the few digits of a number from NumPy.
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
            # What the settings themselves refuse has not been audited yet.
            leaking = terms_for(entry, parties, {**plain, "allow_leaks": True})
            raise LeakRefused(str(refused), evidence(entry, leaking)) from None
        vectors = None
        if models is not None and terms.selective:
            layout = Layout.of(next(iter(models.values())), Selection.of(terms.settings))
            vectors = {party: layout.flatten(model) for party, model in models.items()}
        rounds = terms.period if models is None else 1
        notes = preflight(entry, terms, adversary=adversary, rounds=rounds, vectors=vectors)
        return cls(entry, terms, planned, adversary, tuple(map(render_note, notes)))

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
        if out is None and (wrong := self._misfits(simulation.agreement, layout, updates)):
            raise ConfigError(wrong)
        outcome = simulation.average(updates, out, absent)
        if out is None:
            outcome.average = {
                party: layout.restore(vector, models.get(party)) for party, vector in outcome.average.items()
            }
        outcome.local = layout.local
        warn_of_clipping(simulation.agreement, outcome, layout, updates, up + 1)
        vanished = list(find_vanishing(simulation.agreement, layout, updates))
        for each in vanished:
            warnings.warn(each, VanishedWarning, stacklevel=up + 1)
        outcome.warnings = (*self.notes, *self._few(outcome), *vanished, *outcome.warnings)
        return outcome

    def _misfits(self, agreement: Agreement, layout: Layout, updates: Mapping[Party, Update]) -> list[str]:
        """Returns which arrays may not hold the average with its noise, before anything is sent or spent."""
        terms, settings = self.terms, self.terms.settings
        noise = settings.noise
        if not noise:
            return []
        margin = FARTHEST * noise / math.sqrt(terms.smallest_sum) + agreement.ring().resolution
        return [
            f"{each}, and with noise={noise:g} an average may be {margin:.3g} beyond, which it cannot hold; bring it "
            f"as wider floats, or leave it local with exclude="
            for each in layout.misfits((update.vector for update in updates.values()), settings.clip, margin)
        ]

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


def warn_of_clipping(
    agreement: Agreement, outcome: Outcome, layout: Layout, updates: Mapping[Party, Update], up: int
) -> None:
    """Says in which arrays entries were cut off, in the outcome and as warnings that point so many levels up."""
    told = []
    for party in outcome.clipped:
        where = layout.beyond(updates[party].vector, agreement.settings.clip)
        told.append(describe_clipping(agreement, outcome.endings[party], where))
        warnings.warn(told[-1], ClippedWarning, stacklevel=up + 1)
    outcome.warnings = (*told, *outcome.warnings[len(told) :])


def find_vanishing(agreement: Agreement, layout: Layout, updates: Mapping[Party, Update]) -> Iterator[str]:
    """Yields of which arrays the ring rounds most to 0, and what to do about it.

    What is rounded by chance counts in the mean, and what has noise drowns in that, as it is meant to.
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
            f"is {ring.resolution:.2g}, and count as 0; use {cure}"
        )


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

    # --- generated by tools/write_option_types.py: begin
    @overload
    def __init__(
        self, protocol: Literal["fedavg"], parties: Iterable[Party], **options: "Unpack[FedAvgRun]"
    ) -> None: ...
    @overload
    def __init__(
        self, protocol: Literal["secagg"], parties: Iterable[Party], **options: "Unpack[SecAggRun]"
    ) -> None: ...
    @overload
    def __init__(
        self, protocol: Literal["gossip"], parties: Iterable[Party], **options: "Unpack[GossipRun]"
    ) -> None: ...
    @overload
    def __init__(self, protocol: Literal["admm"], parties: Iterable[Party], **options: "Unpack[AdmmRun]") -> None: ...
    @overload
    def __init__(
        self, protocol: Literal["pushsum"], parties: Iterable[Party], **options: "Unpack[PushSumRun]"
    ) -> None: ...
    @overload
    def __init__(self, protocol: Literal["cesar"], parties: Iterable[Party], **options: "Unpack[CesarRun]") -> None: ...
    @overload
    def __init__(self, protocol: Protocol, parties: Iterable[Party], **options: Any) -> None: ...
    # --- end of what is generated
    def __init__(
        self,
        protocol: str | Protocol,
        parties: Iterable[Party],
        *,
        seed: int | None = None,
        faults: Iterable[Fault | Mapping[str, Any]] = (),
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
        found = seed_problems(seed)
        if options.pop("weights", None) is not None:
            found.append(
                "weights go with the models, to average(models, weights); here pass weighted=True, max_weight=…"
            )
        self._checked = CheckedRun.of(protocol, names, faults, adversary, options, found, beside=BESIDE)
        self.parties = self._checked.terms.parties
        self._seed, self._record = seed, record
        self._layout: Layout | None = None
        self._simulation: Simulation | None = None

    def __repr__(self) -> str:
        name, rounds = self._checked.protocol.name, format_count(self.rounds, "round")
        return f"<Federation: {name}, {len(self.parties)} parties, {rounds} so far>"

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return 0 if self._simulation is None else self._simulation.number

    def average(
        self,
        models: Mapping[Party, Any] | Iterable[Any],
        weights: Mapping[Party, float] | Iterable[float] | None = None,
        out: NDArray[np.floating[Any]] | None = None,
        absent: Party | Collection[Party] = (),
    ) -> Outcome:
        """Averages models: arrays, or dicts, lists or modules of them, by party or in the order of the parties.

        With `out`, a matrix with a row for each party, averages are written into its rows, as vectors, and nothing is
        copied on the way: it may be the matrix whose rows are the models. A row without an average stays as it is.

        Those who are `absent` send nothing in this round. One that brings a model listens all the same; one that brings
        none hears a server's announcement, and without a server takes no part at all.

        Raises ConfigError with every problem before anything is sent, and what was first to go wrong if a round fails.
        """
        absent = names_from(absent)
        brought = named(models, "models", self.parties)
        shares = read_weights(weights, brought, self.parties)
        found = absent_problems(absent, self.parties)
        away = set() if found else set(absent) - brought.keys()
        shares = {party: weight for party, weight in shares.items() if party not in away}
        selection = Selection.of(self._checked.terms.settings)
        found += model_problems(brought, selection, self._layout)
        if brought.keys() != set(self.parties) - away or not brought:
            found.append(f"a round takes a model of each of {', '.join(self.parties)}, and of nobody else")
        found += weight_problems(brought, shares, self._checked.terms.settings.max_weight)
        if found:
            raise ConfigError(found)
        layout = self._layout or Layout.of(next(iter(brought.values())), selection)
        simulation = self._simulation or self._checked.simulation(layout, self._seed, self._record)
        try:
            return self._checked.average(simulation, layout, brought, shares, 2, out, absent)
        finally:
            if simulation.number:  # what is refused before the first round is no round before the others
                self._layout, self._simulation = layout, simulation


def _vector(layout: Layout, model: Any) -> NDArray[np.floating[Any]]:
    """Returns a model as a vector: itself, if it is one."""
    if isinstance(model, np.ndarray) and model.ndim == 1 and model.dtype in (np.float32, np.float64):
        return model
    return layout.flatten(model)


# --- models and weights as people have them ------------------------------------------------------------------------


def named(given: Any, what: str, parties: Sequence[Party] | None = None) -> dict[Party, Any]:
    """Returns what was given for each party, by name: p0, p1, … unless the parties have names."""
    if isinstance(given, Mapping):
        return dict(given)
    try:
        # A module can be gone through layer by layer, and text letter by letter, but nobody has parties of such.
        values = None if isinstance(given, str | bytes) or hasattr(given, "state_dict") else list(given)
    except TypeError:
        values = None
    if values is None:
        raise ConfigError(f"{what} must be a dict by party, or a list, not of type {type(given).__name__}")
    names = [f"p{place}" for place in range(len(values))]
    if parties is not None:
        names[: len(parties)] = parties[: len(values)]
    return dict(zip(names, values, strict=True))


def seed_problems(seed: Any) -> list[str]:
    """Returns what is wrong with a seed."""
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    return [] if seed is None or whole else [f"seed must be a whole number, or None for chance, not {seed!r}"]


def read_weights(given: Any, models: Mapping[Party, Any], parties: Sequence[Party] | None = None) -> dict[Party, Any]:
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


def selected(options: Mapping[str, Any]) -> Selection:
    """Returns what options select of models. What is wrong with them is told with the other settings."""
    found: dict[str, Any] = {}
    for name, wanted in (("include", tuple[str, ...] | None), ("exclude", tuple[str, ...])):
        with contextlib.suppress(msgspec.ValidationError):
            found[name] = convert_value(names_from(options.get(name, getattr(Settings(), name))), wanted)
    return Selection(**found)


def model_problems(
    models: Mapping[Party, Any], selection: Selection = FLOATS, expected: Layout | None = None
) -> list[str]:
    """Returns everything that keeps models from being averaged, with each other or as those before them."""
    told: dict[str, list[Party]] = {}
    layouts: dict[Party, Layout] = {}
    names: dict[str, None] = {}

    def tell(party: Party, problems: Sequence[str]) -> None:
        # A model that is all wrong has very many.
        more = [f"and {len(problems) - SHOWN} more of the kind"] if len(problems) > SHOWN else []
        for problem in (*problems[:SHOWN], *more):
            told.setdefault(problem, []).append(party)

    for party, model in models.items():
        if isinstance(model, Update):
            tell(party, ["give the model itself, and its weight in weights="])
            continue
        try:
            layout, wrong, met = inspect_model(model, selection)
        except RecursionError:
            layout, wrong, met = None, ["the model contains itself, or is nested too deeply"], []
        tell(party, wrong)
        names |= dict.fromkeys(met)
        if layout is not None:
            layouts[party] = layout
    first = next(iter(layouts), "")
    wanted = expected or layouts.get(first)
    whose = f"{first}'s model" if expected is None else "the models of the rounds before"
    for party, layout in layouts.items():
        if wanted is not None and layout != wanted:
            tell(party, [f"compared with {whose}, {each}" for each in wanted.differences(layout)])
    found = [f"{list_names(parties)}: {problem}" for problem, parties in told.items()]
    # Of what is no model at all, nothing has a name.
    return found + (selection.problems(names) if names.keys() - {ALL} or layouts else [])


def weight_problems(models: Mapping[Party, Any], weights: Mapping[Party, Any], max_weight: float) -> list[str]:
    """Returns everything that is wrong with weights."""
    found = ring_problems(32, 1.0, 1, max_weight, weights)
    if weights.keys() != models.keys():
        missing, strange = ([*(one.keys() - other.keys())] for one, other in ((models, weights), (weights, models)))
        who = [
            *([f"{list_names(sorted(missing, key=str))} without one"] if missing else []),
            *([f"{list_names(sorted(strange, key=str))} without a vector"] if strange else []),
        ]
        found.append(f"weights must name exactly the parties that bring vectors: {' and '.join(who)}")
    return found


def weight_bound(weights: Mapping[Party, Any]) -> float:
    """Returns a bound on the weights, up to the next power of two, for the bound is public and a weight is not."""
    numbers = [float(weight) for weight in weights.values() if isinstance(weight, Real)]
    return float(2.0 ** np.ceil(np.log2(max([each for each in numbers if 0 < each <= LARGEST], default=1.0))))
