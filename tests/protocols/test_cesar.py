"""CESAR: the same average as D-PSGD on the same index sets, and nothing unmasked under faults and attacks."""

import msgspec
import networkx as nx
import numpy as np
import pytest

import tacit
from tacit.core.average import Average
from tacit.core.errors import Drop
from tacit.core.suite import Secret, Update
from tacit.crypto.masks import words
from tacit.designs import graphs
from tacit.protocols import cesar
from tacit.protocols.cesar import sending
from tacit.protocols.shapes import neighbourhood
from tacit.protocols.shapes.neighbourhood import sample_entries, unpack_mask
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors import index_sets
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.sparsify import beta, topk_mask

N, D = 12, 400
PARTIES = tuple(f"p{i}" for i in range(N))
RNG = np.random.default_rng(7)
VECTORS = {party: RNG.normal(size=D) for party in PARTIES}
UPDATES = {party: Update(vector) for party, vector in VECTORS.items()}
GRAPH = graphs.regular(N, 4, seed=3)
IRREGULAR = nx.Graph([(i, (i + 1) % N) for i in range(N)] + [(0, 3), (0, 5), (0, 7), (3, 9), (5, 9)])


def run(graph=GRAPH, faults=(), updates=UPDATES, **options):
    federation = Simulation.of(
        "cesar",
        PARTIES,
        len(next(iter(updates.values())).vector),
        graph=graph,
        faults=faults,
        record=True,
        seed=0,
        **options,
    )
    return federation, federation.average(updates)


def selections(outcome, sparsifier, share):
    """Returns I_i of every node, from the messages."""
    found = {}
    for party in PARTIES:
        for address, message in outcome.transcript.open_messages(party):
            if isinstance(message, cesar.Selection):
                i = PARTIES.index(address.sender)
                if sparsifier == "topk":
                    found[i] = index_sets.decode_mask(message.indices, D)
                else:
                    found[i] = unpack_mask(sample_entries(words, sparsifier, message.indices, D, share), D)
    return found


def d_psgd(graph, masks, s, heard=None, models=VECTORS):
    """Returns the D-PSGD average over the entries that s + 1 neighbours share, in the ring, written out plainly."""
    ring = FixedPoint(32, 32.0, 1, D)
    averages = {}
    for k, party in enumerate(PARTIES):
        view = [i for i in sorted(graph[k]) if heard is None or PARTIES[i] in heard[party]]
        shared = np.sum([masks[i] for i in view], axis=0) if view else np.zeros(D, dtype=int)
        total, rest = ring.zeros(D), np.ones(D)
        weights = {i: 1.0 / (1 + max(graph.degree(i), graph.degree(k))) for i in view}
        for i in view:
            kept = masks[i] & (shared >= s + 1)
            total[kept] += ring.values(models[PARTIES[i]], weights[i])[kept]
        for weight in sorted(set(weights.values())):
            alike = [masks[i] & (shared >= s + 1) for i in view if weights[i] == weight]
            rest -= weight * np.sum(alike, axis=0)
        averages[party] = models[party] * rest + ring.floats(total)
    return averages


@pytest.mark.parametrize("graph", [GRAPH, graphs.complete(N)], ids=["regular", "complete"])
@pytest.mark.parametrize("sparsifier", ["random", "topk"])
@pytest.mark.parametrize("s", [1, 2, 3])
def test_equals_d_psgd_on_the_same_sets_bit_for_bit(graph, sparsifier, s):
    _federation, outcome = run(graph, share=0.4, sparsifier=sparsifier, masking=s)
    masks = selections(outcome, sparsifier, 0.4)
    expected = d_psgd(graph, masks, s)
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], expected[party])
    assert any(not np.array_equal(expected[party], VECTORS[party]) for party in PARTIES)


def test_irregular_graphs_mix_by_metropolis_weights():
    _federation, outcome = run(IRREGULAR, share=0.5)
    expected = d_psgd(IRREGULAR, selections(outcome, "random", 0.5), 1)
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], expected[party])


@pytest.mark.slow
def test_repeated_rounds_reach_the_average():
    federation = Simulation.of("cesar", PARTIES, D, graph=IRREGULAR, share=0.7, bits=64, seed=0)
    vectors = dict(VECTORS)
    for _ in range(150):
        vectors = federation.average({party: Update(vector) for party, vector in vectors.items()}).average
    spread = np.ptp(list(vectors.values()), axis=0).max()
    assert spread < 1e-3


def test_topk_selects_the_largest_and_random_the_share():
    _federation, outcome = run(share=0.25, sparsifier="topk")
    masks = selections(outcome, "topk", 0.25)
    for i, party in enumerate(PARTIES):
        np.testing.assert_array_equal(masks[i], topk_mask(np.abs(VECTORS[party]), 0.25))


def test_a_change_is_masked_like_the_rest_and_equals_d_psgd():
    """Runs a second round, in which every node ranks entries by their change since the first."""
    options = {"graph": GRAPH, "share": 0.3, "sparsifier": "topk", "score": "change"}
    federation = Simulation.of("cesar", PARTIES, D, seed=0, record=True, **options)
    averages = federation.average(UPDATES).average
    step = np.random.default_rng(2).normal(0, 0.1, (N, D))
    models = {party: averages[party] + each for party, each in zip(PARTIES, step, strict=True)}
    outcome = federation.average({party: Update(model) for party, model in models.items()})
    masks = selections(outcome, "topk", 0.3)
    for i, party in enumerate(PARTIES):
        change = models[party].astype(np.float32) - averages[party].astype(np.float32)
        np.testing.assert_array_equal(masks[i], topk_mask(np.abs(change), 0.3))
        assert not np.array_equal(masks[i], topk_mask(np.abs(models[party]), 0.3))
    expected = d_psgd(GRAPH, masks, 1, models=models)
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], expected[party])


def test_what_changed_most_overlaps_less_than_what_is_largest():
    """Models of one origin are large in the same places, and come different ways from there."""
    rng = np.random.default_rng(3)
    origin = rng.normal(size=4_000)
    shared = {}
    for score in ("magnitude", "change"):
        options = {"graph": GRAPH, "share": 0.4, "sparsifier": "topk", "score": score}
        federation = Simulation.of("cesar", PARTIES, len(origin), seed=0, **options)
        federation.average({party: Update(origin) for party in PARTIES})
        came = {party: Update(origin + rng.normal(0, 0.01, len(origin))) for party in PARTIES}
        sent = federation.average(came).traffic.by_class()["parameters"]
        shared[score] = sent / 4 / (N * 4) / len(origin)
    assert shared["magnitude"] > 0.99 * 0.4
    assert shared["change"] == pytest.approx(beta(0.4, 4), rel=0.02)


def test_shared_fraction_is_that_of_theorem_6():
    d, share = 20_000, 0.4383
    graph = graphs.regular(N, 3, seed=1)
    updates = {party: Update(np.zeros(d)) for party in PARTIES}
    _, outcome = run(graph, updates=updates, share=share)
    sent = outcome.traffic.by_class()["parameters"] / 4 / (N * 3) / d
    assert sent == pytest.approx(beta(share, 3), rel=0.02)


def test_a_neighbour_without_an_entry_in_the_sum_is_no_contributor():
    """Each node selects one of 12 entries. Where no two neighbours select the same one, nothing is sent."""
    short = {party: Update(vector[:N]) for party, vector in VECTORS.items()}
    one_each = {party: Update(np.eye(N)[i]) for i, party in enumerate(PARTIES)}
    _, outcome = run(updates=one_each, share=1 / N, sparsifier="topk")
    assert {party: ending.contributors for party, ending in outcome.endings.items()} == {p: (p,) for p in PARTIES}
    assert outcome.contributors == ()
    same = {party: Update(np.eye(N)[0]) for party in PARTIES}
    _, outcome = run(updates=same | {"p1": one_each["p1"]}, share=1 / N, sparsifier="topk")
    for i, party in enumerate(PARTIES):
        heard = {PARTIES[j] for j in GRAPH[i]} - {"p1"}
        assert set(outcome.endings[party].contributors) == {party} | heard
    _, outcome = run(updates=short)
    assert outcome.contributors == PARTIES


def test_no_index_metadata_with_random_subsampling():
    _, outcome = run(share=0.4)
    # A seed from each node to each neighbour, and back the seeds of all of that neighbour's neighbours.
    assert outcome.traffic.by_class()["metadata"] == N * 4 * 32 + N * 4 * 4 * 32


def test_every_masked_model_is_uniform_whatever_is_in_it():
    """All vectors are zero, so what arrives is the masks: no entry is sent bare, and none twice the same."""
    updates = {party: Update(np.zeros(D)) for party in PARTIES}
    _federation, outcome = run(updates=updates, share=0.5)
    seen = []
    for party in PARTIES:
        for address, message in outcome.transcript.open_messages(party):
            if isinstance(message, cesar.Masked) and address.to == party:
                seen.append(np.frombuffer(message.vector, dtype="<u4"))
    entries = np.concatenate(seen)
    assert len(seen) == N * 4
    assert np.count_nonzero(entries == 0) < 3
    assert len(np.unique(entries)) > 0.999 * len(entries)
    assert abs(entries.astype(float).mean() / 2**32 - 0.5) < 0.02


def test_masks_are_fresh_for_each_receiver():
    """p0 sends zeros to all its neighbours; no two of the masked models share an entry."""
    updates = {party: Update(np.zeros(D)) for party in PARTIES}
    _federation, outcome = run(graphs.complete(N), updates=updates)
    sent = [
        np.frombuffer(message.vector, dtype="<u4")
        for address, message in outcome.transcript.open_messages("p0")
        if isinstance(message, cesar.Masked) and address.sender == "p0"
    ]
    assert len(sent) == N - 1
    assert len(np.unique(np.concatenate(sent))) > 0.999 * D * (N - 1)


@pytest.mark.parametrize("kind", ["Selection", "Turn", "Masked", "Release"])
def test_a_lost_message_costs_one_edge_or_one_receiver_and_nothing_else(kind):
    sender, receiver = 0, sorted(GRAPH[0])[0]
    fault = Fault(action="drop", party=PARTIES[sender], to=PARTIES[receiver], message=kind)
    federation, outcome = run(faults=[fault], share=0.5)
    heard = {party: set(federation.last.endings[party].contributors) - {party} for party in PARTIES}
    expected = d_psgd(GRAPH, selections(outcome, "random", 0.5), 1, heard)
    for party in PARTIES:
        np.testing.assert_array_equal(outcome.average[party], expected[party])
    untouched = [i for i in range(N) if i not in (sender, receiver)]
    assert all(heard[PARTIES[i]] == {PARTIES[j] for j in GRAPH[i]} for i in untouched)


def test_a_dropped_neighbour_is_left_out_and_the_round_redone():
    victim = 0
    fault = Fault(action="crash", party="p0", step=4 + 1)  # after its selections, before it asks or sends
    federation, outcome = run(faults=[fault], share=0.5)
    assert "p0" not in outcome.average
    for k in sorted(GRAPH[victim]):
        contributors = federation.last.endings[PARTIES[k]].contributors
        assert set(contributors) == {PARTIES[k]} | {PARTIES[i] for i in GRAPH[k] if i != victim}
    redone = [
        address
        for k in GRAPH[victim]
        for address, message in outcome.transcript.open_messages(PARTIES[k])
        if isinstance(message, cesar.Masked) and address.step == 2 and address.to == PARTIES[k]
    ]
    assert len(redone) == sum(GRAPH.degree(k) - 1 for k in GRAPH[victim])


def test_nobody_releases_twice_to_the_same_receiver():
    """Whatever a receiver asks, a sender's self mask comes off for one attempt only."""
    k = sorted(GRAPH[0])[0]
    late = Fault(action="delay", party="p0", to=PARTIES[k], message="Masked", seconds=45)
    _federation, outcome = run(faults=[late], share=0.5)
    for party in PARTIES:
        released = [
            address.to
            for address, message in outcome.transcript.open_messages(party)
            if isinstance(message, cesar.Release) and address.sender == party
        ]
        assert len(released) == len(set(released))
    assert PARTIES[k] not in [
        address.to
        for address, message in outcome.transcript.open_messages("p0")
        if isinstance(message, cesar.Release) and address.sender == "p0"
    ]


def test_never_fewer_than_the_masking_requirement():
    """With three of four neighbours gone the last one sends nothing more, and the receiver keeps its own model."""
    k = 0
    gone = sorted(GRAPH[k])[:3]
    faults = [Fault(action="crash", party=PARTIES[i], step=4 + 1) for i in gone]
    federation, outcome = run(faults=faults, share=0.5)
    np.testing.assert_array_equal(outcome.average["p0"], VECTORS["p0"])
    assert federation.last.endings["p0"].contributors == ("p0",)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"graph": "ring", "masking": 2}, "use masking=1 or less"),
        ({"graph": nx.path_graph(N)}, "fewer than 2 neighbours"),
        ({"graph": nx.Graph([(0, 1), (1, 2), (2, 0)])}, "not connected"),
        ({"masking": 0}, "unmasked"),
        ({"share": 0.0}, "share must be"),
        ({"share": 1.5}, "share must be"),
        ({"sparsifier": "best"}, "sparsifier must be"),
        ({"graph": [(0, 99)]}, "not parties"),
        ({"graph": "exponential"}, "undirected"),
        ({"weighted": True}, "same weight"),
    ],
)
def test_bad_settings_are_refused_with_what_would_work(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        Simulation.of("cesar", PARTIES, D, seed=0, **{"graph": GRAPH, **options})


# --- a receiver that lies ------------------------------------------------------------------------------------------


def _told_apart(message, to, *_):
    """Sends every neighbour a different set."""
    if isinstance(message, cesar.Turn) and message.selections:
        me = int(to[1:])
        kept = {me, me % 4 + 1, *([(me + 1) % 4 + 1] if len(message.selections) > 3 else [])}
        return msgspec.structs.replace(message, selections=dict.fromkeys(kept, b""))
    return message


def _left_out_late(message, to, *_):
    """Gets the release of p3 for a set that it then asks to be redone without p3."""
    if not isinstance(message, cesar.Turn):
        return message
    _left_out_late.turns[to] = _left_out_late.turns.get(to, 0) + 1
    if _left_out_late.turns[to] == 2:
        return cesar.Turn({}, complete=True) if to == "p3" else cesar.Turn(dict.fromkeys((1, 2, 4), b""))
    return cesar.Turn({}, complete=True) if _left_out_late.turns[to] == 3 else message


def _one_by_one(message, to, *_):
    """Asks each neighbour to send alone, or with parties that are no neighbours."""
    if isinstance(message, cesar.Turn) and message.selections:
        return cesar.Turn({int(to[1:]): b""}) if to in ("p1", "p2") else cesar.Turn({int(to[1:]): b"", 0: b""})
    return message


def _releases_without_all(message, _to, *_):
    """Asks for releases at once, before any masked model was sent."""
    return cesar.Turn({}, complete=True) if isinstance(message, cesar.Turn) else message


@pytest.mark.parametrize("lie", [_told_apart, _left_out_late, _one_by_one, _releases_without_all])
@pytest.mark.parametrize(("masking", "colluding"), [(1, ["p0"]), (2, ["p0"]), (2, ["p0", "p4"])])
def test_a_receiver_that_lies_learns_nobodys_model(lie, masking, colluding, bent):
    """The audit runs the liar in p0's place."""
    _left_out_late.turns = {}
    liar = {"p0": bent(cesar.CESAR, "p0", lie)}
    report = tacit.audit("cesar", parties=5, coalition=colluding, masking=masking, stand_ins=liar)
    assert report.exposed == {}


def test_with_too_few_masks_a_liar_and_a_friend_single_somebody_out(bent):
    """Shows that the test above can fail: with s = 1 they ask p1 to send with their colluding node only."""

    def alone(message, to, *_):
        if isinstance(message, cesar.Turn) and message.selections and to in ("p1", "p4"):
            return cesar.Turn({1: b"", 4: b""})
        return message

    report = tacit.audit("cesar", parties=5, coalition=["p0", "p4"], stand_ins={"p0": bent(cesar.CESAR, "p0", alone)})
    assert list(report.exposed) == ["p1"]
    assert report.errors["p1"] < 1e-9


class Aligned:
    """A receiver that tells each of two neighbours that the other one has the same selection.

    If masks depended on the rank of entries, those of the two would cancel entry by entry. The sum would then add
    private entries of one neighbour to entries of the other, at other positions, so knowing one reveals the other.
    """

    def __init__(self):
        self.sum = self.selected = None

    async def __call__(self, link, update, terms, suite, _state):
        parties, entries = (link.parties[1], link.parties[2]), len(update.vector)
        _, selection = neighbourhood.select_entries(link, suite, terms, update.vector)
        for party in parties:
            await link.send(party, cesar.Selection(selection))
        told = await link.gather(cesar.Selection, parties, at_least=2)
        sets = {party: neighbourhood.read_selection(suite, terms, told[party].indices, entries) for party in parties}
        self.selected = {party: np.flatnonzero(unpack_mask(bits, entries)) for party, bits in sets.items()}
        for i, j in ((1, 2), (2, 1)):
            party = link.parties[i]
            # All of its own entries: by where they are in its set, or by its own seed.
            everything = index_sets.encode_mask(np.ones(len(self.selected[party]), dtype=bool))
            same = everything if terms.shows_data else told[party].indices
            await link.send(party, cesar.Turn({i: b"", j: same}), step=1)
        masked = await link.gather(cesar.Masked, parties, at_least=2, step=1, patience=16)
        for party in parties:
            await link.send(party, cesar.Turn({}, complete=True), step=2)
        released = await link.gather(cesar.Release, parties, at_least=2, step=2, patience=64)
        total = suite.ring.zeros(min(map(len, self.selected.values())))
        for party in parties:
            w = suite.ring.unpack(masked[party].vector, len(self.selected[party])).copy()
            suite.mask(w, minus=[Secret(released[party].seed)])
            total += w[: len(total)]
        self.sum = suite.ring.floats(total)
        return Average(update.vector, ())


def _recovered(liar, sparsifier):
    """Returns the number of p1's private entries that a receiver who knows p2's model recovers, and their total."""
    rng = np.random.default_rng(0)
    vectors = {party: rng.normal(size=200) for party in ("p0", "p1", "p2")}
    options = {"sparsifier": sparsifier, "share": 0.4, "record": True, "stand_ins": {"p0": liar}}
    federation = Simulation.of("cesar", tuple(vectors), 200, seed=0, **options)
    federation.average({party: Update(vector) for party, vector in vectors.items()})
    mine, known = (liar.selected[party][: len(liar.sum)] for party in ("p1", "p2"))
    assert not np.array_equal(mine, known)
    guess = liar.sum * 3 - vectors["p2"][known]  # the weights are thirds
    return int(np.sum(np.abs(guess - vectors["p1"][mine]) < 1e-5)), len(mine)


@pytest.mark.parametrize("sparsifier", ["topk", "random"])
def test_a_receiver_that_lies_about_positions_lays_nobodys_entries_over_known_ones(sparsifier):
    found, _ = _recovered(Aligned(), sparsifier)
    assert found == 0


@pytest.mark.parametrize(("sparsifier", "bound"), [("topk", "positions"), ("random", "frame_parts")])
def test_it_would_if_masks_followed_from_rank(sparsifier, bound, monkeypatch):
    """So the test above can fail: without the positions, or the seeds that they follow from, in what masks are for."""
    monkeypatch.setattr(sending, bound, lambda *_: b"")
    found, of = _recovered(Aligned(), sparsifier)
    assert found == of
    assert of == 80 if sparsifier == "topk" else of > 60


async def _garbled(link, update, terms, suite, _state):
    """Selects entries like an honest node, and then sends turns that cannot be decoded."""
    for party in terms.peers(link.me):
        await link.send(party, cesar.Selection(neighbourhood.select_entries(link, suite, terms, update.vector)[1]))
    for party in terms.peers(link.me):
        selections = dict.fromkeys(terms.view(link.place), b"\xff\xff")
        await link.send(party, cesar.Turn(selections), step=1)
    return Average(update.vector, ())


@pytest.mark.parametrize("options", [{}, {"share": 0.6}, {"share": 0.6, "sparsifier": "topk"}], ids=str)
def test_a_node_whose_turns_cannot_be_read_is_left_out_and_named(options):
    names = PARTIES[:5]
    federation = Simulation.of("cesar", names, D, stand_ins={"p4": _garbled}, **options)
    outcome = federation.average({name: UPDATES[name] for name in names})
    honest = names[:4]
    for name in honest:
        assert outcome.endings[name].error is None
        assert set(outcome.endings[name].contributors) == set(honest)
    if options:
        assert all(outcome.endings[name].dropped["p4"] is Drop.MALFORMED for name in honest)
