"""Audits against a second opinion: both must say the same of random coalitions under random settings.

A complaint is a call of `tacit.audit` that can be pasted, and what it should have said.
"""

from dataclasses import dataclass, field
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from support import numeric_auditor as numeric
from support.numeric_auditor import PRIME, Lanes, Numbers, eliminated, entries_of, residue
from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import NoteCode
from tacit.auditing.scope import Scope
from tacit.core.errors import ConfigError, NotLinear, TacitError
from tacit.core.suite import SERVER
from tacit.designs import Batches, Everyone, Partition, Random, Sampled
from tacit.protocols import find

pytestmark = pytest.mark.long

ASKED = ("rounds", "drift", "dropout", "seed", "entries", "vectors", "length")
"""What is asked besides the settings."""


# --- questions -----------------------------------------------------------------------------------------------------


def edges(graph):
    """Returns a graph as it is written down."""
    return {"kind": "edges", "edges": [list(edge) for edge in graph.edges], "directed": graph.is_directed()}


def undirected(chance, n, least):
    """Returns a random connected graph in which everybody has so many neighbours at least."""
    while True:
        graph = nx.gnp_random_graph(n, chance.uniform(0.3, 0.9), seed=int(chance.integers(2**31)))
        if nx.is_connected(graph) and min(dict(graph.degree).values()) >= least:
            return graph


def directed(chance, n, heard):
    """Returns a random strongly connected directed graph in which everybody hears so many at least."""
    while True:
        graph = nx.gnp_random_graph(n, chance.uniform(0.4, 0.9), seed=int(chance.integers(2**31)), directed=True)
        if nx.is_strongly_connected(graph) and min(dict(graph.in_degree).values()) >= heard:
            return graph


def mishaps(chance, protocol, n, rounds, most=2):
    """Returns a few random faults."""
    kinds = [kind.kind() for kind in find(protocol).messages]
    found = []
    for _ in range(chance.integers(most + 1)):
        party, kind = f"p{chance.integers(n)}", str(chance.choice(kinds))
        party = SERVER if find(protocol).server and chance.random() < 0.1 else party
        when = {} if chance.random() < 0.3 else {"round": int(chance.integers(1, rounds + 1))}
        found.append(
            [
                {"action": "crash", "party": party, "step": int(chance.integers(8)), **when},
                {"action": "crash", "party": party, "message": kind, **when},
                {"action": "drop", "message": kind, "chance": 0.2, "seed": int(chance.integers(100))},
                {"action": "drop", "party": party, "message": kind, **when},
                {"action": "drop", "to": party, "message": kind, **when},
                {"action": "silence", "party": party, **when},
                {"action": "silence", "chance": 0.15, "seed": int(chance.integers(100))},
                {"action": "delay", "party": party, "message": kind, **when},
                {"action": "restart", "party": party, "step": int(chance.integers(1, 8)), "seconds": 2.0, **when},
                {"action": "corrupt", "party": party, "message": kind, **when},
                {"action": "duplicate", "party": party, "message": kind, **when},
            ][chance.integers(11)]
        )
    return found


def participation(chance, n):
    """Returns a random policy."""
    k = int(chance.integers(2, n + 1))
    policies = [Everyone(), Random(k), Random(k), Sampled(k), Sampled(max(2, k - 1), k)]
    for size in (2, 3):
        if n % size == 0:
            per_round = size * int(chance.integers(1, n // size + 1))
            policies += [Batches(per_round, size), Batches(per_round, size, partial=True)]
        if n % size == 0 and n > size:
            policies.append(Partition(size))
    return policies[chance.integers(len(policies))]


def of_fedavg(chance):
    n, rounds = int(chance.integers(3, 9)), int(chance.integers(1, 6))
    return {
        "parties": n,
        "rounds": rounds,
        "participation": participation(chance, n),
        "faults": mishaps(chance, "fedavg", n, rounds),
    }


def of_secagg(chance):
    n, rounds = int(chance.integers(3, 9)), int(chance.integers(1, 7))
    threshold = [None, None, 2, int(chance.integers(2, n + 1))][chance.integers(4)]
    return {
        "parties": n,
        "rounds": rounds,
        "participation": participation(chance, n),
        "faults": mishaps(chance, "secagg", n, rounds),
        "allow_leaks": True,
        **({} if threshold is None else {"threshold": threshold}),
        **({"fewest": 2} if chance.random() < 0.3 else {}),
    }


def of_sparse(chance):
    n, rounds, degree = int(chance.integers(7, 14)), int(chance.integers(1, 4)), 2 * int(chance.integers(1, 4))
    return {
        "parties": n,
        "rounds": rounds,
        "neighbours": degree,
        "threshold": int(chance.integers(2, max(3, degree // 2 + 2))),
        "participation": [Everyone(), Random(n - 1), Sampled(n - 2, n)][chance.integers(3)],
        "faults": mishaps(chance, "secagg", n, rounds, 1),
        "allow_leaks": True,
    }


def of_long(chance):
    n = int(chance.integers(5, 11))
    policies = [Random(int(chance.integers(3, n))), Sampled(int(chance.integers(3, n)), n), Everyone()]
    policies += [Batches(2 * int(chance.integers(1, n // 2 + 1)), 2, partial=True)] * (n % 2 == 0)
    faults = [
        {"action": "drop", "message": "MaskedInput", "chance": 0.1, "seed": int(chance.integers(100))},
        {"action": "silence", "chance": 0.05, "seed": int(chance.integers(100))},
        {"action": "drop", "message": "AdvertiseKeys", "chance": 0.1, "seed": int(chance.integers(100))},
    ]
    return {
        "parties": n,
        "rounds": int(chance.integers(17, 41)),
        "participation": policies[chance.integers(len(policies))],
        "faults": [faults[chance.integers(3)]] * int(chance.integers(2)),
        "allow_leaks": True,
        **({"threshold": int(chance.integers(2, 4))} if chance.random() < 0.4 else {}),
    }


def of_gossip(chance):
    n, rounds = int(chance.integers(3, 8)), int(chance.integers(1, 4))
    return {
        "parties": n,
        "rounds": rounds,
        "graph": edges(undirected(chance, n, 1)),
        "faults": mishaps(chance, "gossip", n, rounds),
        **sparse(chance, n),
    }


def of_cesar(chance):
    n, rounds, masking = int(chance.integers(4, 8)), int(chance.integers(1, 3)), int(chance.integers(1, 3))
    return {
        "parties": n,
        "rounds": rounds,
        "masking": masking,
        "graph": edges(undirected(chance, n, masking + 1)),
        "faults": mishaps(chance, "cesar", n, rounds) if chance.random() < 0.5 else [],
        **sparse(chance, n),
    }


def sparse(chance, n):
    """Returns that all entries are shared, or some by size. Random selections have a probability, not a number."""
    how, entries = chance.integers(3), int(chance.integers(2, 4))
    if how == 0:
        return {}
    share = float(chance.choice([0.4, 0.6, 0.8]))
    vectors = {f"p{i}": chance.normal(size=entries).round(3).tolist() for i in range(n)}
    return {"share": share, "entries": entries, "sparsifier": "topk", "vectors": vectors}


def of_admm(chance):
    n = int(chance.integers(3, 13))
    size = [2, 3, 4, None][chance.integers(4)]
    penalties = [0.1, 0.3, 0.7, 1.0, 2.0]
    question = {
        "parties": n,
        "group_size": None if size is None or size > n else size,
        "iterations": int(chance.integers(1, 10)),
        "masked": bool(chance.integers(2)),
        "rho": float(chance.choice(penalties)),
        "lambda0": [(0.0, 1.0), (-1.0, 1.0), (0.25, 0.75)][chance.integers(3)],
        "rounds": int(chance.integers(1, 3)),
        "weighted": bool(chance.random() < 0.2),
        "faults": mishaps(chance, "admm", n, 1, 1) if chance.random() < 0.3 else [],
    }
    if chance.random() < 0.3:  # one for each iteration, which fall
        drawn = chance.choice([*penalties, 0.01], question["iterations"])
        question["rho"] = tuple(sorted(drawn.tolist(), reverse=True))
    return question


def of_pushsum(chance):
    n, rounds, masked = int(chance.integers(4, 9)), int(chance.integers(1, 7)), bool(chance.integers(2))
    graphs = [edges(directed(chance, n, 2)) for _ in range(1 if masked or chance.random() < 0.7 else 2)]
    return {
        "parties": n,
        "rounds": rounds,
        "masked": masked,
        "bits": 64,
        "graph": graphs[0] if len(graphs) == 1 else graphs,
        "faults": mishaps(chance, "pushsum", n, rounds) if chance.random() < 0.4 else [],
    }


QUESTIONS = {
    "fedavg": (of_fedavg, "fedavg"),
    "gossip": (of_gossip, "gossip"),
    "admm": (of_admm, "admm"),
    "pushsum": (of_pushsum, "pushsum"),
    "cesar": (of_cesar, "cesar"),
    "secagg": (of_secagg, "secagg"),
    "sparse secagg": (of_sparse, "secagg"),
    "long secagg": (of_long, "secagg"),
}


def coalitions(chance, protocol, parties, count):
    """Returns random coalitions, every other one with the server if there is one, and at least one party left."""
    found = []
    for turn in range(count):
        server = [SERVER] if find(protocol).server and turn % 2 else []
        size = int(chance.integers(0 if server else 1, parties))
        found.append([*server, *(f"p{i}" for i in sorted(chance.choice(parties, size, replace=False)))])
    return found


# --- both answers --------------------------------------------------------------------------------------------------


def scope_of(protocol, *, parties, faults=(), **question):
    """Returns a question as an auditor takes it."""
    shape = {name: question.pop(name) for name in ASKED if name in question}
    return Scope.of(protocol, tuple(f"p{i}" for i in range(parties)), question, faults=faults, **shape)


@dataclass
class Comparison:
    """How the two answers compare."""

    same: int = 0
    """For how many coalitions they are the same,"""
    exposing: int = 0
    """of how many of these something is exposed,"""
    refused: int = 0
    """for how many the audit has no answer,"""
    complaints: list = field(default_factory=list)
    """and what is wrong with the rest."""

    def ask(self, protocol, question, members):
        """Asks both about some coalitions."""
        scope = scope_of(protocol, **question)
        auditor = Auditor(scope)
        given = {**question, "faults": scope.faults}
        given.pop("dropout", None)  # which is one of the faults by now
        numbers = Numbers(protocol, session=auditor.run.simulation.agreement.session, **given)
        for coalition in members:
            if found := self._difference(auditor, numbers, coalition):
                asked = {**question, "coalition": list(coalition)}
                call = ", ".join([repr(protocol), *(f"{name}={value!r}" for name, value in asked.items())])
                self.complaints.append(f"tacit.audit({call})\n    {found}")

    def _difference(self, auditor, numbers, coalition):
        """Returns what is said differently of a coalition, if anything is: whose vectors, what part, or since when."""
        try:
            report = auditor.report(tuple(coalition))
        except Exception as error:
            parts = numbers.exposed(coalition)
            # No answer is right where no round ended, or where recipes would be too long to be of any use.
            if parts if isinstance(error, NotLinear) else isinstance(error, TacitError) and not numbers.ended:
                self.refused += 1
                return None
            return f"raises {error!r}, on numbers {parts}"
        rounds, safe = report.watched, report.safe_rounds
        parts, drowned = numbers.exposed(coalition, rounds), drowned_in(report)
        if {*report.exposed, *drowned} != parts.keys():
            return f"says {sorted(report.exposed)} and {sorted(drowned)} but for rounding, on numbers {sorted(parts)}"
        if any(report.fractions[party] not in parts[party] for party in report.exposed):
            return f"says {report.fractions}, on numbers {parts}"
        if 0 < safe < rounds and not drowned and numbers.exposed(coalition, safe):
            return f"says that {safe} rounds are safe, on numbers they are not"
        # Without a server there are odd fractions, and a round may be unsafe of which nothing follows exactly.
        if numbers.protocol.server and safe + 1 < rounds and not numbers.exposed(coalition, safe + 1):
            return f"says that {safe + 1} rounds are not safe, on numbers they are"
        self.same, self.exposing = self.same + 1, self.exposing + bool(parts)
        return None

    def settle(self):
        """Fails with all complaints, or if next to nothing was compared."""
        assert not self.complaints, "\n".join(self.complaints)
        assert self.same > self.refused


def drowned_in(report):
    """Returns who would be exposed if there were no rounding, as here there is none."""
    return {party for note in report.notes if note.code is NoteCode.LOST_IN_ROUNDING for party in note["parties"]}


def at_random(kind, seed, count, each):
    """Returns how the answers to so many random questions compare, for so many coalitions each."""
    comparison = Comparison()
    ask, protocol = QUESTIONS[kind]
    for number in range(count):
        chance = np.random.default_rng([seed, number])
        question = settled(protocol, ask, chance)
        question["drift"] = "free" if chance.random() < 0.25 else "static"
        question["seed"] = int(chance.integers(1000))
        comparison.ask(protocol, question, coalitions(chance, protocol, question["parties"], each))
    return comparison


def settled(protocol, ask, chance):
    """Returns the first question that can be asked: some thresholds cannot be reached."""
    while True:
        question = ask(chance)
        try:
            scope_of(protocol, **question)
        except ConfigError:
            continue
        return question


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "count", "each"),
    [
        ("fedavg", 6, 5),
        ("gossip", 6, 5),
        pytest.param("admm", 5, 4, marks=pytest.mark.slow),
        pytest.param("pushsum", 6, 5, marks=pytest.mark.slow),
        ("cesar", 5, 4),
        ("secagg", 5, 6),
        pytest.param("sparse secagg", 4, 6, marks=pytest.mark.slow),
        pytest.param("long secagg", 2, 6, marks=pytest.mark.slow),
    ],
)
def test_both_say_the_same_of_some_questions(kind, count, each):
    comparison = at_random(kind, 0, count, each)
    comparison.settle()
    assert comparison.exposing
    assert comparison.exposing < comparison.same or kind == "gossip"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 5))
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("fedavg", 15),
        ("gossip", 15),
        ("admm", 10),
        ("pushsum", 15),
        ("cesar", 20),
        ("secagg", 25),
        ("sparse secagg", 15),
        ("long secagg", 8),
    ],
)
def test_both_say_the_same_of_many_questions(kind, count, part):
    at_random(kind, part, count, 8).settle()


# --- questions that are easily answered wrongly ---------------------------------------------------------------------

THIRDS_AND_SEVENTHS = {
    "6 in thirds": nx.DiGraph([(i, (i + hop) % 6) for i in range(6) for hop in (1, 2)]),
    "6 in thirds and sixths": nx.DiGraph(
        [(i, (i + hop) % 6) for i in range(6) for hop in (range(1, 6) if i == 0 else (1, 2))]
    ),
    "6 both ways": nx.Graph([(i, (i + hop) % 6) for i in range(6) for hop in (1, 2)]),
    "8 in thirds and sevenths": nx.DiGraph(
        [(i, (i + hop) % 8) for i in range(8) for hop in (range(1, 7) if i % 3 == 0 else (1, 2))]
    ),
    "7 in sevenths": nx.complete_graph(7),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("graph", THIRDS_AND_SEVENTHS)
def test_one_curious_client_of_masked_pushsum(graph):
    drawn, comparison = THIRDS_AND_SEVENTHS[graph], Comparison()
    for rounds in (2, 3, 4, 6):
        question = {"parties": len(drawn), "graph": edges(drawn), "masked": True, "rounds": rounds}
        comparison.ask("pushsum", question, [[f"p{i}"] for i in range(len(drawn))])
    comparison.settle()


SILENCE = {"action": "silence", "chance": 0.02}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("question", "members"),
    [
        pytest.param(
            {"parties": 10, "participation": Random(7), "rounds": 50},
            [["server", "p0", "p1", "p2", "p3", "p4"], ["server"], ["p0", "p1"]],
            marks=pytest.mark.slow,
        ),
        ({"parties": 12, "dropout": 0.02, "rounds": 11}, [["server"], ["server", "p3"], ["p0"], ["p0", "p7", "p9"]]),
        pytest.param(
            {"parties": 12, "dropout": 0.02, "rounds": 18},
            [["server"], ["server", "p3"], ["p0"]],
            marks=pytest.mark.slow,
        ),
        ({"parties": 12, "faults": [SILENCE], "rounds": 11}, [["server"], ["server", "p3"], ["p0"]]),
        (
            # In some rounds p6 and p7 meet and can unmask everybody, and in others p2 learns of p3 from the sum.
            {"parties": 8, "participation": Batches(4, 2, partial=True), "threshold": 2, "rounds": 17},
            [["server", "p2", "p6", "p7"], ["server", "p6", "p7"], ["server", "p2", "p6"], ["p2", "p6", "p7"]],
        ),
        (
            {"parties": 10, "participation": Random(7), "rounds": 17},
            [["server", "p0", "p1", "p2", "p4", "p5", "p6", "p8"], ["server", "p0", "p1", "p2", "p3", "p4"]],
        ),
    ],
)
def test_many_rounds_of_secagg(question, members):
    comparison = Comparison()
    comparison.ask("secagg", {"allow_leaks": True, **question}, members)
    comparison.settle()


def test_those_who_were_not_told_the_last_sum_are_missing_from_the_next():
    """A sum of vectors that stand still is the same again, but it is not for that the last one."""
    lost, comparison = {"action": "drop", "message": "Sum", "to": "p0", "round": 2}, Comparison()
    comparison.ask("secagg", {"parties": 4, "rounds": 4, "faults": [lost]}, [["p2", "p3"], ["p1"], ["server"]])
    comparison.settle()
    assert comparison.exposing == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", range(9))
def test_small_federations_that_lose_one(step):
    """Of three with a threshold of two, and of four of whom two are curious; one crashes, sooner or later."""
    crash, comparison = {"action": "crash", "party": "p2", "step": step}, Comparison()
    everyone = ("server", "p0", "p1", "p2", "p3")
    of_three = [each for size in (1, 2) for each in combinations(everyone[:4], size)]
    comparison.ask("secagg", {"parties": 3, "threshold": 2, "allow_leaks": True, "faults": [crash]}, of_three)
    for more in ({}, {"rounds": 2}, {"threshold": 2, "allow_leaks": True}):
        question = {"parties": 4, "faults": [{**crash, "round": 1}], **more}
        comparison.ask("secagg", question, list(combinations(everyone, 2)))
    comparison.settle()


# --- the second opinion itself -------------------------------------------------------------------------------------


def exposed(protocol, coalition, **question):
    return sorted(Numbers(protocol, **question).exposed(coalition))


def test_floats_are_the_fractions_they_stand_for():
    assert residue(0.1) * 10 % PRIME == 1
    assert residue(1 / 2.1) * 21 % PRIME == 10
    assert residue(-2) == PRIME - 2
    assert residue(0.1 + 0.2) * 2**54 % PRIME == (0.1 + 0.2) * 2**54 % PRIME, (
        "the number itself, if it is no simple one"
    )


def test_a_row_is_cleared_if_it_is_in_the_span_of_those_before():
    known, asked = [[0, 2, 4], [3, 0, 1], [3, 2, 5]], [[3, 4, 9], [3, 4, 8], [PRIME - 6, 0, PRIME - 2]]
    rows, top = eliminated(np.array([*known, *asked]), 3, 3)
    assert top == 2
    assert rows.any(axis=1).tolist() == [True, True, False, False, True, False]


def test_a_server_of_plain_averages_learns_all_and_of_secure_ones_nothing():
    assert exposed("fedavg", ["server"], parties=4) == ["p0", "p1", "p2", "p3"]
    assert exposed("fedavg", ["p0"], parties=4) == []
    assert exposed("secagg", ["server"], parties=4) == []
    assert exposed("secagg", ["server", "p0"], parties=4) == []


@pytest.mark.parametrize("protocol", ["fedavg", "secagg", "gossip"])
def test_of_a_sum_of_two_each_learns_the_other(protocol):
    assert exposed(protocol, ["p0"], parties=2) == ["p1"]


def test_all_but_one_learn_the_last_from_the_sum():
    assert exposed("secagg", ["p0", "p1"], parties=4) == []
    assert exposed("secagg", ["p0", "p1", "p3"], parties=4) == ["p2"]


def test_as_many_shares_as_the_threshold_open_everything():
    question = {"parties": 5, "threshold": 3}
    assert exposed("secagg", ["server", "p0", "p1"], **question) == []
    assert exposed("secagg", ["server", "p0", "p1", "p2"], **question) == ["p3", "p4"]
    assert exposed("secagg", ["p0", "p1", "p2"], **question) == [], "without the server nobody sees what is masked"


def test_what_comes_too_late_for_the_sum_stays_masked_unless_its_shares_are_enough():
    """Its key is given away then, so that only its own mask is left."""
    late = [{"action": "delay", "party": "p4", "message": "MaskedInput", "seconds": 15.0}]
    question = {"parties": 5, "threshold": 3, "faults": late}
    assert exposed("secagg", ["server", "p0", "p1"], **question) == []
    assert exposed("secagg", ["server", "p0", "p1", "p2"], **question) == ["p3", "p4"]


def test_a_receiver_learns_nothing_from_what_was_lost_and_its_sender_nothing_new():
    lost = [{"action": "drop", "party": "p0", "to": "p1"}]
    assert exposed("gossip", ["p1"], parties=3, faults=lost) == ["p2"]
    assert exposed("gossip", ["p0"], parties=3, faults=lost) == ["p1", "p2"]


def test_sums_of_different_sets_tell_who_was_missing():
    without = [{"action": "silence", "party": "p3", "round": 2}]
    assert exposed("secagg", ["p0"], parties=4, rounds=2, faults=without) == ["p3"]
    assert exposed("secagg", ["p0"], parties=4, rounds=2, faults=without, drift="free") == []


def test_neighbours_see_what_is_not_masked():
    assert exposed("gossip", ["p0"], parties=5, graph="ring") == ["p1", "p4"]
    assert exposed("cesar", ["p0"], parties=5, graph="ring") == []
    assert exposed("pushsum", ["p0"], parties=5, graph="ring") == ["p1", "p4"]
    assert exposed("pushsum", ["p0"], parties=5, graph="ring", masked=True) == []


def test_two_receivers_with_nested_views_learn_the_difference():
    nested = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (5, 3), (3, 0), (3, 1)]
    assert exposed("cesar", ["p4", "p5"], parties=6, graph=nested) == ["p3"]


def test_two_iterations_of_admm_among_all_show_everybody():
    assert exposed("admm", ["p0"], parties=4, group_size=None, iterations=1) == []
    assert exposed("admm", ["p0"], parties=4, group_size=None, iterations=2) == ["p1", "p2", "p3"]
    assert exposed("admm", ["p0"], parties=4, group_size=None, iterations=2, masked=True) == []


def test_shared_entries_are_exposed_and_no_others():
    vectors = {"p0": [1.0, 2.0, 3.0, 4.0], "p1": [4.0, 3.0, 2.0, 1.0], "p2": [1.0, 9.0, 9.0, 9.0]}
    question = {"parties": 3, "share": 0.25, "sparsifier": "topk", "entries": 4, "vectors": vectors}
    numbers = Numbers("gossip", **question)
    assert numbers.exposed(["p0"]) == {"p1": [0.25], "p2": [0.25]}


def test_an_answer_does_not_depend_on_how_many_lanes_there_were_to_begin_with():
    numbers = Numbers("pushsum", 6, masked=True, rounds=4, graph=edges(THIRDS_AND_SEVENTHS["6 in thirds"]))
    before = numbers.exposed(["p0"])
    numbers.exposed(["p0", "p1", "p2", "p3"])
    assert numbers.exposed(["p0"]) == before


def test_lanes_come_back_as_they_were_packed():
    ring = numeric.PrimeRing(2, 5)
    vector = entries_of(np.arange(10).reshape(2, 5))
    assert [entry.row.tolist() for entry in ring.unpack(ring.pack(vector), 2)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert ring.rows(bytes(80)) is None
    assert isinstance((vector * 0.5)[0], Lanes)
