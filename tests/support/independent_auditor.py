"""Numeric auditor: measures what a coalition can compute, on recorded runs with real keys.

It shares no code with `tacit.auditing` and uses no symbols. A run is treated as a linear map. Every unknown (an honest
party's vector, a mask stream, a random start, a draw of noise) is shifted in one entry of its own. The run is repeated
with the same randomness, and the difference of the two transcripts is the matrix of the map.

Mask streams are unknowns unless the coalition has their seed. The coalition has what its members sampled, agreed on or
received, what it can reconstruct from shares, and what follows from these (`Secrets`).
"""

import contextlib
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

import tacit
from support.independent_instruments import (
    MASK_STEP,
    ScriptedSampler,
    Secrets,
    Shifts,
    byte_strings,
    instrumented,
    scripted_samples,
)
from tacit.core.errors import TacitError
from tacit.core.suite import ONLOOKER, Update
from tacit.protocols import find
from tacit.runtime.agreement import terms_for
from tacit.runtime.simulation.faults import faults_from
from tacit.runtime.simulation.simulator import Simulation

BITS = 64
"""Bits of the ring of measured runs. Differences are then exact to about 1e-15 of the clip."""
EXACT = 1e-7
"""Largest squared distance of a unit vector from the computable space at which the vector counts as computable."""
NEGLIGIBLE = 1e-9
"""Singular values below this part of the largest count as zero."""


@dataclass(frozen=True)
class Question:
    """A question to both auditors, as `tacit.audit` takes it."""

    protocol: str
    parties: int
    coalition: tuple[str, ...]
    rounds: int = 1
    drift: str = "static"
    seed: int = 0
    noise: float = 0.0
    prior: float | None = None
    sealed: bool = True
    dropout: float = 0.0
    faults: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parties."""
        return tuple(f"p{place}" for place in range(self.parties))

    @property
    def honest(self) -> tuple[str, ...]:
        """The parties outside the coalition."""
        return tuple(party for party in self.names if party not in self.coalition)

    def all_faults(self) -> list[dict[str, Any]]:
        """Returns the faults, with dropouts: of a server's clients, the vector is lost; of others, every message."""
        choice = find(self.protocol).choice
        if not self.dropout:
            return list(self.faults)
        lost = {"action": "drop", "message": choice.delivery.kind()} if choice else {"action": "silence"}
        return [*self.faults, {**lost, "chance": self.dropout, "seed": self.seed}]

    def simulate(self, entries: int, bits: int | None = BITS, *, noise: bool = False) -> Simulation:
        """Returns the parties of the question with a ring of some bits (None for those agreed on)."""
        entry = find(self.protocol)
        planned, problems = faults_from(self.all_faults(), entry, self.names)
        options = {**self.options, "allow_leaks": True} | ({"noise": self.noise} if noise else {})
        terms = terms_for(entry, self.names, options, problems)
        return Simulation.on(entry, terms, entries, self.seed, planned, record=True, ring_bits=bits, twin=True)

    def audit(self, **more: Any) -> Any:
        """Returns the report of `tacit.audit`."""
        return tacit.audit(
            find(self.protocol),
            parties=self.parties,
            coalition=self.coalition,
            rounds=self.rounds,
            drift=self.drift,
            dropout=self.dropout,
            noise=self.noise or None,
            prior=self.prior,
            seed=self.seed,
            sealed=self.sealed,
            faults=self.faults,
            **self.options,
            **more,
        )


Key = tuple[int, int, str, str, str, int]
"""Round, number in it, sender, receiver, kind and step of a message."""


@dataclass
class Seen:
    """The messages of a run that a coalition can read, and the scale of the numbers in them."""

    vectors: dict[Key, Any] = field(default_factory=dict)
    strings: set[bytes] = field(default_factory=set)
    scale: float = 1.0
    transcripts: list[Any] = field(default_factory=list)


def run(question: Question, base: Any, shifts: Shifts, secrets: Secrets, bits: int | None = BITS) -> Seen:
    """Runs the rounds of a question, and returns the view of the coalition.

    Args:
        question: The question.
        base: The vectors, by party and round.
        shifts: The unknowns to shift.
        secrets: Receives the secrets of the run.
        bits: Bits of the ring; None for those agreed on.
    """
    simulation, seen = question.simulate(shifts.entries, bits), Seen()
    shifts.drawn.clear()
    shifts.noisy = bool(question.noise)
    for number in range(1, question.rounds + 1):
        shifts.round, updates = number, {}
        first = number if question.drift == "free" else 1
        for party, row in zip(question.names, base, strict=True):
            vector = np.array(row[first - 1])
            if (place := shifts.column("input", party, first)) is not None:
                vector[place] += shifts.step
            updates[party] = Update(vector)
        with instrumented(secrets, shifts), contextlib.suppress(TacitError):
            simulation.average(updates)  # An aborted round is recorded up to that point.
        assert simulation.last is not None
        read(question, simulation.last.transcript, number, seen)
    return seen


def read(question: Question, transcript: Any, number: int, seen: Seen) -> None:
    """Adds the messages of a round that members sent or received, or recorded on open links."""
    ring = transcript.ring()
    seen.scale = ring.scale
    seen.transcripts.append(transcript)
    hears = ONLOOKER in question.coalition and not question.sealed
    for party in [each for each in transcript.holdings if hears or each in question.coalition]:
        passed = [
            (place, each.delivered)
            for place, each in enumerate(transcript.passed)
            if party in (each.envelope.address.sender, each.envelope.address.to)
        ]
        for (place, delivered), (address, message) in zip(passed, transcript.open_messages(party), strict=True):
            if not (delivered or party == address.sender or hears):
                continue
            key = (number, place, address.sender, address.to, address.kind, address.step)
            for name in message.__struct_fields__:
                value = getattr(message, name)
                if name in message.parameters:
                    seen.vectors[key] = np.frombuffer(bytes(value), f"<i{ring.element_bytes}").astype(np.int64)
                else:
                    seen.strings.update(byte_strings(value))


@dataclass
class Measured:
    """View of a coalition as a matrix, with a row for each vector that it saw and a column for each unknown."""

    question: Question
    columns: list[tuple[Any, ...]]
    rows: Any
    keys: list[Key]
    clip: float

    def of_kind(self, *kinds: str) -> Any:
        """Returns the columns of some kinds of unknowns."""
        return self.rows[:, [place for place, name in enumerate(self.columns) if name[0] in kinds]]

    @property
    def inputs(self) -> list[tuple[str, int]]:
        """Owner and round of the vector of each input column."""
        return [(name[1], name[2]) for name in self.columns if name[0] == "input"]

    def combinations(self) -> Any:
        """Returns an orthonormal basis of the linear combinations of honest vectors that the coalition can compute.

        A vector with its noise counts as the vector; `bits` measures how much the noise hides. In each round the noise
        differs, and so does the vector.
        """
        kind = "noise" if self.question.noise and self.question.rounds > 1 else "input"
        return row_space(left_null(self.of_kind("mask", "start")) @ self.of_kind(kind))

    def recipes(self) -> dict[str, tuple[Any, int]]:
        """Returns for each exposed party the shortest factors that combine the view to its vector, and the vector's
        round.

        With noise, only the encoded vector can be exposed: the vector with the noise of one round.
        """
        kind = "noise" if self.question.noise else "input"
        names = [name for name in self.columns if name[0] == kind]
        free = left_null(self.of_kind("mask", "start"))
        seen = free @ self.of_kind(kind)
        known = np.sum(row_space(seen) ** 2, axis=0)
        factors = np.linalg.pinv(seen, rcond=NEGLIGIBLE) if seen.size else seen.T
        places = [place for place in range(len(names)) if known[place] > 1 - EXACT]
        return {names[place][1]: (factors[place] @ free, names[place][2]) for place in reversed(places)}

    def merge_releases(self, releases: int) -> "Measured":
        """Returns what could be seen if all releases of a vector had one noise, as much as their mean has at least."""
        names = list(dict.fromkeys(name[:3] if name[0] == "noise" else name for name in self.columns))
        rows = np.zeros((len(self.rows), len(names)))
        for place, name in enumerate(self.columns):
            rows[:, names.index(name[:3] if name[0] == "noise" else name)] += self.rows[:, place]
        question = replace(self.question, noise=self.question.noise / releases**0.5)
        return replace(self, question=question, columns=names, rows=rows)

    def exposed(self) -> list[str]:
        """Returns the parties of which a vector can be computed, in any round."""
        return sorted(self.recipes())

    def bits(self) -> dict[str, float]:
        """Returns by how many bits the best linear estimate of an entry improves on the prior; inf if it is exact."""
        prior = self.question.prior or self.clip / np.sqrt(3)
        spread = [prior * self.of_kind("input"), self.of_kind("start") / np.sqrt(12)]
        spread += [self.question.noise * self.of_kind("noise")]
        basis = row_space(left_null(self.of_kind("mask")) @ np.hstack(spread) / prior)
        known = np.sum(basis**2, axis=0)
        found: dict[str, float] = {}
        for (party, _), part in zip(self.inputs, known, strict=False):
            found[party] = max(found.get(party, 0.0), np.inf if part > 1 - 1e-12 else -0.5 * np.log2(1 - part))
        return found

    def smallest_group(self) -> int:
        """Returns the fewest parties whose vectors have equal factors in everything that can be computed, or all
        parties."""
        basis = self.combinations()
        there = [place for place in range(basis.shape[1]) if np.abs(basis[:, place]).max(initial=0) > EXACT]
        return min(
            (sum(np.allclose(basis[:, a], basis[:, b], atol=1e-6) for b in there) for a in there),
            default=self.question.parties,
        )


def measure(question: Question, dtype: Any = np.float64) -> Measured:
    """Runs a question twice, and returns the difference as a matrix."""
    clip = question.simulate(1).agreement.settings.clip
    entries, count = 0, 64
    while entries < count:
        entries, shifts, secrets = count, Shifts(count, clip / 16), Secrets()
        base = draw_vectors(question, entries, clip / 16, dtype)
        plain = run(question, base, shifts, secrets)
        count = len(shifts.columns)
    shifts.active = True
    shifted = run(question, base, shifts, secrets)
    assert plain.vectors.keys() == shifted.vectors.keys()
    known, keys = secrets.known_to(question.coalition, plain.strings), list(plain.vectors)
    kept, columns = [], []
    for name, place in shifts.columns.items():
        if name[1] in question.coalition or (name[0] == "mask" and name[1] in known):
            continue
        unit = float(MASK_STEP) if name[0] == "mask" else plain.scale * shifts.starts.get(place, shifts.step)
        if name[0] == "input":  # The shift, as far as the vector's type represents it.
            old = base[question.names.index(name[1])][name[2] - 1][place]
            unit = plain.scale * (float(dtype(old + dtype(shifts.step))) - float(old))
        columns.append(name)
        kept.append([(int(shifted.vectors[key][place]) - int(plain.vectors[key][place])) / unit for key in keys])
    rows = np.array(kept).reshape(len(columns), len(keys)).T
    _, first = np.unique(rows, axis=0, return_index=True)  # Repeated rows add no information.
    told = [place for place in sorted(first) if rows[place].any()]
    return Measured(question, columns, rows[told], [keys[place] for place in told], clip)


def draw_vectors(question: Question, entries: int, size: float, dtype: Any) -> Any:
    """Returns vectors with entries up to some size, by party and round."""
    source = np.random.default_rng(question.seed + 1)
    return source.uniform(-size, size, (question.parties, question.rounds, entries)).astype(dtype)


def recovery_errors(
    measured: Measured, party: str, size: float, dtype: Any = np.float64, recipe: Any = None
) -> tuple[float, float]:
    """Returns the relative error of a recovered vector, in a run with the agreed ring.

    Two runs with the same randomness differ only in the honest vectors. The coalition can subtract the contribution of
    masks and members' own vectors, because in a recipe all of its unknowns cancel.

    Args:
        measured: The view of the coalition.
        party: The party whose vector is recovered.
        size: The largest entry of vectors.
        dtype: Their type.
        recipe: Another recipe for the vector, as in a report.

    Returns:
        The error of the measured recipe, and that of the other one (0 without one).
    """
    question, entries = measured.question, 8
    base = draw_vectors(question, entries, size, dtype)
    zero = np.array(base)
    zero[[question.names.index(each) for each in question.honest]] = 0
    seen, without = (run(question, vectors, Shifts(entries, 0.0), Secrets(), bits=None) for vectors in (base, zero))
    factors, number = measured.recipes()[party]
    element = f"i{seen.transcripts[0].ring().element_bytes}"  # Differences wrap around in the ring.
    rows = [(seen.vectors[key] - without.vectors[key])[:entries].astype(element) for key in measured.keys]
    truth = base[question.names.index(party), number - 1 if question.drift == "free" else 0]
    found = [factors @ np.array(rows, dtype=np.float64) / seen.scale]
    found += [] if recipe is None else [recipe.recover(seen.transcripts)[:entries]]
    mine, *theirs = (float(np.abs(each - truth).max() / size) for each in found)
    return mine, *theirs, *[0.0] * (recipe is None)


def worst_case(question: Question) -> list[str]:
    """Returns the parties that one round can expose, with any sample of the server and any dropouts of honest parties.

    They drop out offline, or after all but their vector.
    """
    choice, found = find(question.protocol).choice, set()
    kinds: list[dict[str, Any] | None] = [None, {"action": "silence"}]
    if choice is not None:
        kinds.append({"action": "drop", "message": choice.delivery.kind()})
    for each in product(kinds, repeat=len(question.honest)):
        faults = tuple({**kind, "party": party} for kind, party in zip(each, question.honest, strict=True) if kind)
        script: list[int] | None = []
        while script is not None:
            sampler = ScriptedSampler(script)
            with scripted_samples(sampler):
                found.update(measure(replace(question, rounds=1, dropout=0.0, faults=faults)).exposed())
            script = sampler.next_script()
    return sorted(found)


def row_space(rows: Any) -> Any:
    """Returns an orthonormal basis of the space that some rows span."""
    if 0 in rows.shape:
        return np.zeros((0, rows.shape[1]))
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[sizes > NEGLIGIBLE * max(1.0, sizes[0])]


def left_null(columns: Any) -> Any:
    """Returns an orthonormal basis of the combinations of rows in which some columns vanish."""
    if 0 in columns.shape:
        return np.eye(columns.shape[0])
    left, sizes, _ = np.linalg.svd(columns, full_matrices=True)
    return left[:, int(np.sum(sizes > NEGLIGIBLE * max(1.0, sizes[0]))) :].T
