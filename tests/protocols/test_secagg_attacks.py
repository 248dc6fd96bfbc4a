"""A server that breaks the rules of secagg, and what honest clients make of it: nothing is unmasked."""

import contextlib
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.link import Link
from tacit.core.suite import SERVER, Update
from tacit.designs import Batches, Random, multi_round_privacy
from tacit.drivers.faults import Fault
from tacit.drivers.simulator import Simulation
from tacit.protocols import secagg
from tacit.protocols.secagg.terms import circle_of
from tacit.vectors.indices import from_bitmap, to_bitmap

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
        bent = Crooked(link.me, link.parties, link.session, link.round, link.dropped, change)
        return await secagg.server(bent, terms, suite, state)

    return server


def released(change, faults=(), parties=PARTIES, **options):
    """Runs a round under a crooked server. Returns the shares that clients gave away, and their complaints."""
    federation = Simulation.of(
        "secagg", parties, 3, record=True, faults=faults, stand_ins={SERVER: crooked(change)}, seed=0, **options
    )
    with contextlib.suppress(tacit.TacitError):
        federation.average({party: VECTORS.get(party, Update(np.ones(3))) for party in parties})
    messages = [message for _, message in federation.last.transcript.opened(SERVER)]
    shares = [message for message in messages if isinstance(message, secagg.Unmask)]
    endings = federation.last.endings
    return shares, {party: str(endings[party].error) for party in parties if endings[party].error}


def honest(_, message):
    return message


def with_chosen(users):
    def change(_, message):
        return secagg.Chosen(to_bitmap(users, N)) if isinstance(message, secagg.Chosen) else message

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
    assert "did not list before" in complaints["p0"]


def test_showing_two_halves_different_sets_unmasks_nothing():
    def change(to, message):
        if isinstance(message, secagg.Chosen):
            return secagg.Chosen(to_bitmap([0, 1, 2, 3, 4] if to in PARTIES[:3] else [1, 2, 3, 4, 5], N))
        return message

    shares, _ = released(change)
    assert shares == []


def test_one_user_shown_another_set_is_not_fooled():
    """Five agree on a set without p5; p5, shown a set with it, sees no consent to that and gives nothing away."""

    def change(to, message):
        if isinstance(message, secagg.Chosen):
            return secagg.Chosen(to_bitmap([0, 1, 2, 3, 4] if to != "p5" else range(N), N))
        return message

    shares, _ = released(change)
    assert all(5 not in share.seeds for share in shares)


def test_too_few_consents_are_refused():
    def change(_, message):
        if isinstance(message, secagg.Consents):
            few = dict(list(message.signatures.items())[:3])
            return secagg.Consents(few)
        return message

    shares, complaints = released(change, threshold=5)
    assert shares == []
    assert "fewer than 5" in complaints["p0"]


def test_a_forged_consent_is_refused():
    def change(_, message):
        if isinstance(message, secagg.Consents):
            return secagg.Consents(dict.fromkeys(message.signatures, bytes(64)))
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
    assert "not all different" in complaints["p0"]


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
    assert "not those of the users it lists" in complaints["p0"]


def test_a_user_named_both_alive_and_dropped():
    """There is no request for shares but the chosen set, and of two chosen sets only the first is read."""

    def change(_, message):
        if isinstance(message, secagg.Chosen):
            # Same address twice: the second is a replay to the client, whatever it says.
            return [message, secagg.Chosen(to_bitmap([0, 1, 2, 3], N))]
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
        return secagg.Chosen(to_bitmap(chosen, 30))

    federation = Simulation.of("secagg", parties, 3, neighbours=8, threshold=6, seed=0)
    link = Link(SERVER, federation.parties, federation.agreement.session, 1)
    circle = circle_of(link, federation.agreement.terms, range(30))
    chosen = [u for u in range(30) if u not in circle.neighbours(0)]
    shares, complaints = released(change, parties=parties, neighbours=8, threshold=6)
    assert shares == []
    assert "too thinly spread" in complaints["p0"]


def test_a_changed_roster_cannot_break_up_batches_of_the_past():
    """p0 and p1 were summed as a batch. A new roster pairs p0 with p2, and the difference would be p1 − p2."""
    values = {party: VECTORS[party] for party in PARTIES[:2]}
    first = Simulation.of("secagg", ("p0", "p1"), 3, participation=Batches(2, 2), seed=0)
    first.average(values)
    second = Simulation.of("secagg", ("p0", "p2"), 3, participation=Batches(2, 2), seed=0)
    second.seats["p0"].give_up(first.states["p0"])
    with pytest.raises(tacit.NotEnough, match="Consent: 1 of at least 2; missing: p0"):
        second.average({party: VECTORS[party] for party in second.parties})
    assert "would single out fewer than 2" in str(second.last.endings["p0"].error)

    unaware = Simulation.of("secagg", ("p0", "p2"), 3, participation=Batches(2, 2), seed=0)
    assert unaware.average({party: VECTORS[party] for party in second.parties}).contributors == ("p0", "p2")


def participation(policy, rounds, seed):
    """Runs many rounds with a random user dropping its masked vector in each; returns who was summed."""
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
