"""Sparse exchange between neighbours, from the papers: the entries of a neighbour that a coalition can compute.

At each entry, node k learns the weighted sum over those of its neighbours that selected it: in CESAR (paper 004,
Algorithm 3 and Section 3.4.2) only if they are more than s, in D-PSGD one by one. So entries differ only in who
selected them, in which round. Entries with the same pattern are analysed once, so 100,000 of them take no longer than a
few.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.independent_auditor import EXACT, Question, draw_vectors, left_null, row_space, run
from support.independent_instruments import MASK_STEP, Secrets, Shifts
from tacit.core.suite import Update
from tacit.crypto.suite import RealSuite
from tacit.vectors import index_sets


@dataclass
class Pattern:
    """Entries with the same selections: their number, and the combinations of honest vectors that are seen of them."""

    places: Any
    rows: Any

    def exposed(self) -> Any:
        """Returns which honest parties' entries can be computed."""
        return np.sum(row_space(self.rows) ** 2, axis=0) > 1 - EXACT


def patterns(question: Question, entries: int, vectors: Any = None) -> list[Pattern]:
    """Returns what a coalition sees of vectors of some length, by the selections of a run.

    Args:
        question: The question, about `gossip` or `cesar`, without faults except parties that send nothing throughout.
        entries: The length of the vectors.
        vectors: The vectors, by party; random ones by default.
    """
    simulation = question.simulate(entries, None)
    terms, names = simulation.agreement.terms, question.names
    drawn = np.random.default_rng(question.seed).normal(size=(len(names), entries)) if vectors is None else vectors
    updates = {party: Update(np.asarray(each)) for party, each in zip(names, drawn, strict=True)}
    chosen = []
    for _ in range(question.rounds):
        outcome = simulation.average(updates)
        masks = selections(question, outcome.transcript, entries)
        for k in [place for place, party in enumerate(names) if party in question.coalition]:
            check_average(question, terms, k, masks, drawn, outcome)
        chosen.append([masks.get(party, np.zeros(entries, bool)) for party in names])
    different, inverse = np.unique(np.array(chosen).reshape(-1, entries), axis=1, return_inverse=True)
    found = []
    for number, column in enumerate(different.T):
        rows = [
            row
            for select in column.reshape(question.rounds, len(names))
            for k in range(len(names))
            if names[k] in question.coalition
            for row in sums_at(question, terms, k, select)
        ]
        honest = [names.index(party) for party in question.honest]
        rows = np.array(rows).reshape(len(rows), len(names))[:, honest]
        found.append(Pattern(np.flatnonzero(inverse == number), rows))
    return found


def selections(question: Question, transcript: Any, entries: int) -> dict[str, Any]:
    """Returns each party's selection, as it sent it to its neighbours; parties that sent none are left out."""
    found: dict[str, Any] = {}
    share, topk = question.options["share"], question.options.get("sparsifier") == "topk"
    for party in question.names:
        for address, message in transcript.open_messages(party):
            told = getattr(message, "indices", None) or getattr(message, "selection", None)
            if address.sender != party or not told or party in found:
                continue
            if topk:
                found[party] = index_sets.decode_mask(told, entries)
            else:  # Each entry with probability α, by a uniform word of 32 bits.
                found[party] = RealSuite.words(told, entries) < math.ceil(share * 2**32)
    return found


def sums_at(question: Question, terms: Any, k: int, select: Any) -> list[Any]:
    """Returns what node k sees at an entry, as rows over all parties."""
    members = [i for i in terms.graph[k] if select[i]]
    row = np.zeros(len(select))
    row[members] = [float(terms.weight(i, k)) for i in members]
    if question.protocol == "gossip":
        return [np.where(np.arange(len(select)) == i, row, 0.0) for i in members]
    return [row] if len(members) > question.options.get("masking", 1) else []


def check_average(question: Question, terms: Any, k: int, masks: Any, vectors: Any, outcome: Any) -> None:
    """Checks with the average of node k in a run that it saw the sums of `sums_at`."""
    party, entries = question.names[k], len(vectors[k])
    near = [i for i in terms.graph[k] if question.names[i] in masks]
    there = np.array([masks[question.names[i]] for i in near]).reshape(len(near), entries)
    if question.protocol == "cesar":
        there = there & (there.sum(axis=0) > question.options.get("masking", 1))
    weights = np.array([float(terms.weight(i, k)) for i in near])[:, None]
    mixed = vectors[k] + np.sum(weights * there * (np.asarray(vectors)[near] - vectors[k]), axis=0)
    assert np.allclose(outcome.average[party], mixed, atol=1e-2 if question.options.get("bits") == 16 else 1e-5)


def exposed_fractions(question: Question, found: list[Pattern], entries: int) -> dict[str, float]:
    """Returns the fraction of exposed entries for each honest party that has any."""
    total = sum(len(each.places) * each.exposed() for each in found) / entries
    return {party: float(part) for party, part in zip(question.honest, total, strict=True) if part > 0}


def measure_entries(question: Question, entries: int) -> Any:
    """Returns which entries of which honest party can be computed, by shifting every unknown in a separate run.

    It takes a run for each mask, so it is for few parties. It checks the assumption of `sums_at` about what masks hide.
    """
    clip = question.simulate(1).agreement.settings.clip
    shifts, secrets = Shifts(entries, clip / 16), Secrets()
    base = draw_vectors(question, entries, clip / 16, np.float64)
    plain = run(question, base, shifts, secrets)
    known = secrets.known_to(question.coalition, plain.strings)
    masks = [selections(question, transcript, entries) for transcript in plain.transcripts]
    columns = {"input": [], "mask": []}
    for name in [
        name for name in shifts.columns if name[0] in columns and not {*name[1:2]} & {*question.coalition, *known}
    ]:
        shifts.whole = name
        shifted = run(question, base, shifts, Secrets())
        unit = float(MASK_STEP) if name[0] == "mask" else plain.scale * shifts.step
        column = np.zeros((len(plain.vectors), entries))
        for row, (key, vector) in zip(column, plain.vectors.items(), strict=True):
            row[sent_entries(question, masks[key[0] - 1], key)] = (shifted.vectors[key] - vector) / unit
        columns[name[0]].append(column)
    inputs, hiding = (np.array(columns[kind]).reshape(-1, len(plain.vectors), entries) for kind in columns)
    seen = [left_null(hiding[:, :, entry].T) @ inputs[:, :, entry].T for entry in range(entries)]
    return np.array([np.sum(row_space(rows) ** 2, axis=0) > 1 - EXACT for rows in seen])


def sent_entries(question: Question, masks: dict[str, Any], key: Any) -> Any:
    """Returns which entries a message has: those its sender selected and, in CESAR, enough other neighbours of the
    receiver."""
    _, _, sender, to, _, _ = key
    if question.protocol == "gossip":
        return masks[sender]
    near = question.simulate(1).agreement.terms.graph[question.names.index(to)]
    there = np.sum([masks[question.names[i]] for i in near], axis=0)
    return masks[sender] & (there > question.options.get("masking", 1))
