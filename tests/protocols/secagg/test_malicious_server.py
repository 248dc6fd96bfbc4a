"""A server that violates the secagg protocol, and honest clients that abort: nothing is unmasked."""

import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.errors import Drop
from tacit.core.link import Link
from tacit.core.messages import SEAL_BYTES
from tacit.core.suite import SERVER, Secret, Update
from tacit.crypto.suite import RealSuite
from tacit.designs import Batches, Random, multi_round_privacy
from tacit.protocols import secagg
from tacit.protocols.secagg.messages import PAIR
from tacit.protocols.secagg.settings import circle_of
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation
from tacit.vectors.index_sets import from_bitmap, to_bitmap

N = 6
PARTIES = tuple(f"p{i}" for i in range(N))
VECTORS = {party: Update(np.full(3, float(i))) for i, party in enumerate(PARTIES)}


@dataclass
class Crooked(Link):
    """A server's link that changes what it sends. `change(to, message)` returns a message or a list of them."""

    change: Any = None

    async def send(self, to, message, *, step=0):
        changed = self.change(to, message)
        for each in changed if isinstance(changed, list) else [changed]:
            await super().send(to, each, step=step)


def crooked(change):
    """Returns a server coroutine that plays by the rules but for `change`."""

    async def server(link, terms, suite, state):
        bent = Crooked(link.me, link.parties, link.session, link.round, link.dropped, change=change)
        return await secagg.server(bent, terms, suite, state)

    return server


def released(change, faults=(), parties=PARTIES, **options):
    """Runs a round under a crooked server. Returns the shares that clients gave away, and their complaints."""
    federation = Simulation.of(
        "secagg", parties, 3, record=True, faults=faults, stand_ins={SERVER: crooked(change)}, seed=0, **options
    )
    with contextlib.suppress(tacit.TacitError):
        federation.average({party: VECTORS.get(party, Update(np.ones(3))) for party in parties})
    messages = [message for _, message in federation.last.transcript.open_messages(SERVER)]
    shares = [message for message in messages if isinstance(message, secagg.Unmask)]
    endings = federation.last.endings
    return shares, {party: str(endings[party].error) for party in parties if endings[party].error}


def honest(_, message):
    return message


def as_chosen(message, users, n=N):
    """Returns what the server sends for another U5: its bitmap, and such words of these users as it has."""
    views = {v: tag for v, tag in message.views.items() if v in users}
    return secagg.Chosen(to_bitmap(users, n), views)


def with_chosen(users):
    def change(_, message):
        return as_chosen(message, users) if isinstance(message, secagg.Chosen) else message

    return change


def test_the_harness_lets_an_honest_server_through():
    shares, complaints = released(honest)
    assert len(shares) == N
    assert complaints == {}


@pytest.mark.parametrize("users", [[], [2]])
def test_a_set_of_fewer_than_two_is_refused(users):
    shares, complaints = released(with_chosen(users))
    assert shares == []
    assert len(complaints) == N
    assert "policy does not allow" in complaints["p0"]


@pytest.mark.parametrize("users", [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]])
def test_more_or_fewer_than_exactly_e_is_refused(users):
    """Paper 003, ConsistencyCheck: "If U5 is more than or less than E, abort"."""
    shares, complaints = released(with_chosen(users), sampled=3, threshold=4)
    assert shares == []
    assert len(complaints) == N


def test_a_set_smaller_than_the_threshold_is_refused():
    """Of three users, two that collude with the server could take their own vectors off the sum."""
    shares, complaints = released(with_chosen([0, 1, 2]), threshold=4)
    assert shares == []
    assert len(complaints) == N


def test_exactly_e_is_accepted():
    shares, complaints = released(honest, sampled=3, threshold=4)
    assert len(shares) == N
    assert complaints == {}


@pytest.mark.parametrize("users", [[0], [0, 1, 2], [1, 2], [0, 2, 3], [0, 1, 2, 3, 4, 5]])
def test_a_set_that_is_no_union_of_whole_batches_is_refused(users):
    """Paper 002 holds if batches stay whole, and clients do not take the server's word for it."""
    change = with_chosen(users)
    shares, complaints = released(change, participation=Batches(4, 2), threshold=3)
    assert shares == []
    assert complaints


def test_a_user_that_did_not_share_its_keys_cannot_be_chosen():
    silent = Fault(action="drop", party="p5", message="ShareKeys")
    shares, complaints = released(with_chosen([0, 1, 2, 5]), faults=[silent], threshold=4)
    assert shares == []
    assert "had not listed" in complaints["p0"]


def test_showing_two_halves_different_sets_unmasks_nothing():
    def change(to, message):
        if isinstance(message, secagg.Chosen):
            return as_chosen(message, [0, 1, 2, 3, 4] if to in PARTIES[:3] else [1, 2, 3, 4, 5])
        return message

    shares, _ = released(change)
    assert shares == []


def test_one_user_shown_another_set_is_not_fooled():
    """Five agree on a set without p5; p5, shown a set with it, sees no consent to that and gives nothing away."""

    def change(to, message):
        if isinstance(message, secagg.Chosen):
            return as_chosen(message, [0, 1, 2, 3, 4] if to != "p5" else range(N))
        return message

    shares, _ = released(change)
    assert all(5 not in share.seeds for share in shares)


def test_too_few_consents_are_refused():
    def change(_, message):
        if isinstance(message, secagg.Consents):
            return secagg.Consents(to_bitmap([0, 1, 2], N), message.signatures[: 3 * 64])
        return message

    shares, complaints = released(change, threshold=5)
    assert shares == []
    assert "it shows that 3 users agree on the chosen set, and 5 are needed" in complaints["p0"]


def test_consents_of_the_same_user_again_are_refused():
    def change(_, message):
        if isinstance(message, secagg.Consents):
            one = bytes(message.signatures[:64])
            return msgspec.structs.replace(message, signatures=memoryview(one * (len(message.signatures) // 64)))
        return message

    shares, complaints = released(change)
    assert shares == []
    assert "bad signature" in complaints["p0"]


def test_a_forged_consent_is_refused():
    def change(_, message):
        if isinstance(message, secagg.Consents):
            return msgspec.structs.replace(message, signatures=memoryview(bytes(len(message.signatures))))
        return message

    shares, complaints = released(change)
    assert shares == []
    assert "bad signature" in complaints["p0"]


def test_a_replaced_key_is_refused():
    """Keys that the server relays are signed by roster identities, so it cannot put its own in the middle."""

    def change(_, message):
        if isinstance(message, secagg.KeyList):
            keys = dict(message.keys)
            victim = max(keys)
            _, s, signature = keys[victim]
            return msgspec.structs.replace(message, keys=keys | {victim: (b"\x09" * 32, s, signature)})
        return message

    shares, complaints = released(change)
    assert shares == []
    assert "bad signature" in complaints["p0"]


def test_a_key_listed_twice_is_refused():
    def change(to, message):
        if isinstance(message, secagg.KeyList) and to == "p0":
            keys = dict(message.keys)
            keys[1] = keys[2]
            return msgspec.structs.replace(message, keys=keys)
        return message

    shares, complaints = released(change, threshold=6)
    assert shares == []
    assert "has duplicates" in complaints["p0"]


def test_keys_of_too_few_users_are_refused():
    def change(_, message):
        if isinstance(message, secagg.KeyList):
            return secagg.KeyList(to_bitmap([0, 1], N), {})
        return message

    shares, complaints = released(change)
    assert shares == []
    assert "do not allow" in complaints["p0"]


def test_shares_of_other_users_than_listed_are_refused():
    def change(_, message):
        if isinstance(message, secagg.SealedShares):
            sealed = dict(message.sealed)
            sealed.popitem()
            return msgspec.structs.replace(message, sealed=sealed)
        return message

    shares, complaints = released(change)
    assert shares == []
    assert "do not come from the users that it lists" in complaints["p0"]


def test_a_user_named_both_alive_and_dropped():
    """There is no request for shares but the chosen set, and of two chosen sets only the first is read."""

    def change(_, message):
        if isinstance(message, secagg.Chosen):
            # Two messages with the same address: to the client the second one is a replay, whatever its content.
            return [message, as_chosen(message, [0, 1, 2, 3, 4])]
        return message

    shares, complaints = released(change)
    assert complaints == {}
    assert len(shares) == N
    for share in shares:
        assert not share.seeds.keys() & share.keys.keys()
        assert set(share.seeds) == set(range(N))


def test_a_sparse_set_that_leaves_a_user_without_neighbours_is_refused():
    """The server picks a victim and, for the rest, only users that share no mask with it."""
    parties = tuple(f"p{i}" for i in range(30))

    def change(_, message):
        if not isinstance(message, secagg.Chosen):
            return message
        return as_chosen(message, chosen, 30)

    federation = Simulation.of("secagg", parties, 3, neighbours=8, threshold=6, seed=0, twin=True)
    link = Link(SERVER, federation.parties, federation.agreement.session, 1)
    circle = circle_of(link, federation.agreement.terms, range(30))
    chosen = [u for u in range(30) if u not in circle.neighbours(0)]
    shares, complaints = released(change, parties=parties, neighbours=8, threshold=6, twin=True)
    assert shares == []
    assert "too few chosen neighbours" in complaints["p0"]


def regrouped(**states):
    """Runs a round of p0 and p2 as a batch, where p0 has a saved batch from before."""
    second = Simulation.of("secagg", ("p0", "p2"), 3, participation=Batches(2, 2), record=True)
    for party, state in states.items():
        second.participants[party].give_up(state)
    with contextlib.suppress(tacit.TacitError):
        second.average({party: VECTORS[party] for party in second.parties})
    return second.last


def test_a_changed_roster_cannot_break_up_batches_of_the_past():
    """p0 and p1 were summed as a batch. A new roster pairs p0 with p2, and the difference would be p1 − p2."""
    first = Simulation.of("secagg", ("p0", "p1"), 3, participation=Batches(2, 2))
    first.average({party: VECTORS[party] for party in first.parties})
    state = first.states["p0"]
    same_lineage = msgspec.structs.replace(state, lineages={})
    last = regrouped(p0=same_lineage)
    assert "it would sum us with p0, p2; we were summed with p0, p1 before" in str(last.endings["p0"].error)
    sent = {passed.envelope.address.kind for passed in last.transcript if passed.envelope.address.sender == "p0"}
    assert sent == {"AdvertiseKeys", "Abort"}, "it refuses before anything of its own has left, not after"
    assert regrouped().endings["p0"].average is not None, "and does not where it remembers nothing"


@pytest.mark.parametrize("lost", ["MaskedInput", "Chosen", "Consents", "Sum"])
def test_whoever_does_not_hear_what_became_of_its_vector_remembers_its_batch(lost):
    """The server might not tell a user that it is summed, and let other users do the unmasking."""
    first = Simulation.of(
        "secagg",
        PARTIES,
        3,
        participation=Batches(6, 2),
        faults=[Fault(action="drop", message=lost, to=party) for party in ("p0", "p1")]
        + [Fault(action="drop", message=lost, party=party) for party in ("p0", "p1")],
    )
    with contextlib.suppress(tacit.TacitError):
        first.average(VECTORS)
    for party in ("p0", "p1"):
        assert first.states[party].batch == ("p0", "p1")
    last = regrouped(p0=msgspec.structs.replace(first.states["p0"], lineages={}))
    assert "we were summed with p0, p1 before" in str(last.endings["p0"].error)


def test_another_t_is_another_batch():
    """Of abcdef and ef, summed in batches of two, and then abc in a batch of three, d would be left."""
    first = Simulation.of("secagg", PARTIES, 3, participation=Batches(6, 2))
    first.average(VECTORS)
    second = Simulation.of("secagg", PARTIES, 3, participation=Batches(6, 3))
    for party, state in first.states.items():
        second.participants[party].give_up(state)
    with pytest.raises(tacit.NotEnough):
        second.average(VECTORS)
    assert "we were summed with p0, p1 before" in str(second.last.endings["p0"].error)


def test_two_with_one_key_are_left_out_and_named(monkeypatch):
    """The others would refuse a list in which a key is there twice, and blame the server for it."""
    honest_seed = RealSuite.seed

    def seed(suite):
        drawn = honest_seed(suite)
        if suite.me in ("p4", "p5"):
            drawn = suite.made[-1] = Secret(bytes([len(suite.made)]) * 32)
        return drawn

    monkeypatch.setattr(RealSuite, "seed", seed)
    outcome = Simulation.of("secagg", PARTIES, 3, threshold=4).average(VECTORS)
    assert outcome.contributors == PARTIES[:4]
    assert outcome.endings[SERVER].dropped == dict.fromkeys(("p4", "p5"), Drop.BROKE_RULES)


def participation(policy, rounds, seed):
    """Runs many rounds, each with a random user that drops out before its masked vector; returns the summed users."""
    parties = tuple(f"p{i}" for i in range(12))
    rng = np.random.default_rng(seed)
    faults = [
        Fault(action="drop", message="MaskedInput", round=number + 1, party=f"p{rng.integers(12)}")
        for number in range(rounds)
    ]
    federation = Simulation.of("secagg", parties, 1, participation=policy, threshold=3, faults=faults, seed=seed)
    matrix = np.zeros((rounds, 12), dtype=bool)
    for number in range(rounds):
        values = {party: Update(np.array([float(i)])) for i, party in enumerate(parties)}
        out = federation.average(values)
        chosen = [parties.index(party) for party in out.contributors]
        matrix[number, chosen] = True
        assert out.average[out.contributors[0]][0] == pytest.approx(np.mean(chosen), abs=1e-6)
    return matrix


def test_batches_keep_their_promise_through_dropouts_in_the_protocol():
    matrix = participation(Batches(4, 2), rounds=40, seed=1)
    assert multi_round_privacy(matrix) == 2
    assert {int(row.sum()) for row in matrix} == {2, 4}, "some rounds must have lost a batch, or this shows nothing"


def test_random_selection_singles_users_out():
    assert multi_round_privacy(participation(Random(4), rounds=40, seed=1)) == 1


def test_bitmaps_of_the_wrong_length_are_refused():
    with pytest.raises(tacit.WireError):
        from_bitmap(b"\x00\x00", 6)
    with pytest.raises(tacit.WireError):
        from_bitmap(b"\x01", 6)
    assert from_bitmap(to_bitmap([1, 5], 6), 6) == [1, 5]


# --- clients against clients ---------------------------------------------------------------------------------------


def test_padded_shares_remove_whoever_padded_them_and_nobody_else(bent):
    """Relayed as they came, they made what the server passes on to p2 longer than p2 accepts."""
    excess, padding = 1000, ("p1", "p3")

    def pad(message, *_):
        if isinstance(message, secagg.ShareKeys):
            return msgspec.structs.replace(message, sealed={**message.sealed, 2: message.sealed[2] + bytes(excess)})
        return message

    sealed = (N - 1) * (PAIR + SEAL_BYTES)
    assert sealed + excess < secagg.ShareKeys.limit(N, 3), "the server would take them, by their length"
    assert sealed + len(padding) * excess > secagg.SealedShares.limit(N, 3), "and p2 would not"
    padded = {party: bent(secagg.SECAGG, party, pad) for party in padding}
    outcome = Simulation.of("secagg", PARTIES, 3, stand_ins=padded, threshold=4).average(VECTORS)
    assert outcome.endings[SERVER].dropped == dict.fromkeys(padding, Drop.MALFORMED)
    assert outcome.contributors == tuple(party for party in PARTIES if party not in padding)


def test_an_aborted_round_says_who_is_missing_and_how_many_may_be():
    lost = [Fault(action="crash", party="p1", message="MaskedInput")]
    with pytest.raises(tacit.NotEnough) as three:
        tacit.aggregate([[1.0]] * 3, "secagg", faults=lost)
    assert str(three.value) == (
        "round 1 aborted: 2 of 3 parties delivered MaskedInput, 3 needed (threshold=3); timed out: p1; "
        "try: run it again when they are back, or add parties: with 4, 1 may be missing from a round"
    )
    assert three.value.detail == (
        "of 3 users with threshold=3, none may drop out; "
        "this threshold allows for a malicious server and 2 colluding users"
    )
    assert tacit.aggregate([[1.0]] * 4, "secagg", faults=lost).contributors == ("p0", "p2", "p3")
    two = tacit.aggregate([[1.0]] * 3, "secagg", faults=lost, threshold=2, allow_leaks=True)
    assert two.contributors == ("p0", "p2")
    with pytest.raises(tacit.NotEnough) as five:
        tacit.aggregate([[1.0]] * 5, "secagg", faults=[Fault(action="crash", party=p) for p in ("p0", "p1")])
    assert five.value.remedy == "run it again when they are back"
    assert five.value.detail.startswith("of 5 users with threshold=4, at most 1 may drop out")
