"""Rotating groups: who meets whom, the averages, and what is left when parties drop out or deviate."""

import math
from itertools import combinations

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.errors import Drop
from tacit.core.suite import Parties, Update
from tacit.crypto.masks import words
from tacit.designs.groups import groups
from tacit.protocols import rotating
from tacit.protocols.rotating import ROTATING, RotatingSettings
from tacit.protocols.shapes.neighbourhood import sample_entries, unpack_mask
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

D = 40
MESSAGES = ("MemberPart", "MemberList", "SelfMaskSeed", "GroupTotal")


def names(n):
    return tuple(f"p{i}" for i in range(n))


def vectors(n, seed=0):
    return {
        party: Update(row) for party, row in zip(names(n), np.random.default_rng(seed).normal(size=(n, D)), strict=True)
    }


def run(n, faults=(), updates=None, **options):
    federation = Simulation.of("rotating", names(n), D, faults=faults, record=True, seed=0, **options)
    return federation, federation.average(updates or vectors(n))


def terms(n, **options):
    return RotatingSettings(**options).bind(Parties(names(n)))


def mean(updates, places):
    return np.mean([updates[f"p{i}"].vector for i in places], axis=0)


def sent(outcome, kind):
    """Returns the addresses and messages of a kind, each once."""
    found = {}
    for party in outcome.transcript.holdings:
        for address, message in outcome.transcript.open_messages(party):
            if address.kind == kind:
                found[address] = message
    return found


# --- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(9, 3), (16, 4), (20, 4), (48, 6), (49, 7), (50, 5)])
def test_no_pair_meets_again_before_the_gap_and_then_others_meet(n, size):
    found = terms(n, group_size=size)
    gap = groups(n, size).gap
    assert found.period == gap > 1
    for first in (1, 1 + gap, 1 + 3 * gap):
        met = [pair for t in range(first, first + gap) for g in found.groups(t) for pair in combinations(g, 2)]
        assert len(met) == len(set(met))
        assert all(sorted(i for g in found.groups(t) for i in g) == list(range(n)) for t in range(first, first + gap))
    assert found.groups(1) != found.groups(1 + gap) != found.groups(1 + 2 * gap)


def test_every_member_is_the_collector_as_often_as_any_other_place_of_its_group():
    found = terms(16)
    for g in found.groups(1):
        assert sorted(found.collector(t, g) for t in range(5, 5 + len(g))) == sorted(g)
    assert found.collectors(3) == tuple(sorted(found.collector(3, g) for g in found.groups(3)))


@pytest.mark.parametrize(
    ("n", "size", "minimum"), [(2, 2, 2), (5, 3, 3), (9, 3, 3), (17, 4, 3), (48, 6, 3), (49, 7, 3)]
)
def test_by_default_groups_have_the_root_of_all_and_sums_three_members(n, size, minimum):
    found = terms(n)
    assert (found.pattern.size, found.minimum) == (size, minimum)
    assert found.summands == max(len(g) for g in found.groups(1))
    assert terms(n, stages=2).summands == n


# --- averages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "options"), [(16, {}), (11, {}), (17, {"group_size": 5}), (6, {"group_size": 6})])
def test_every_member_adopts_the_average_of_its_group(n, options):
    federation, _ = run(n, **options)
    found, updates = federation.agreement.terms, vectors(n, 2)
    outcome = federation.average(updates)
    for g in found.groups(2):
        for i in g:
            np.testing.assert_allclose(outcome.average[f"p{i}"], mean(updates, g), atol=1e-6)
            assert federation.last.endings[f"p{i}"].contributors == tuple(f"p{j}" for j in g)


@pytest.mark.parametrize("n", [9, 11, 16])
def test_with_two_stages_all_adopt_the_average_of_all(n):
    federation, outcome = run(n, stages=2)
    for party in names(n):
        np.testing.assert_allclose(outcome.average[party], mean(vectors(n), range(n)), atol=1e-6)
        np.testing.assert_array_equal(outcome.average[party], outcome.average["p0"])
        assert federation.last.endings[party].contributors == names(n)


@pytest.mark.parametrize("stages", [1, 2])
def test_averages_are_weighted(stages):
    weights = [1.0, 2.0, 5.0, 0.5, 3.0, 1.0, 1.0, 4.0, 2.0]
    updates = {
        name: Update(each.vector, weight) for (name, each), weight in zip(vectors(9).items(), weights, strict=True)
    }
    federation, outcome = run(9, updates=updates, stages=stages, weighted=True, max_weight=5.0)
    for g in federation.agreement.terms.groups(1) if stages == 1 else [range(9)]:
        expected = np.average([updates[f"p{i}"].vector for i in g], axis=0, weights=[weights[i] for i in g])
        for i in g:
            np.testing.assert_allclose(outcome.average[f"p{i}"], expected, atol=1e-6)


@pytest.mark.parametrize("stages", [1, 2])
def test_a_share_of_the_entries_is_averaged_and_others_in_the_next_round(stages):
    federation, outcome = run(9, share=0.5, stages=stages)
    found, seen = federation.agreement.terms, []
    for t in (1, 2):
        mask = found.choose_entries(rotating_suite(), D, t)[:D]
        seen.append(mask)
        for g in found.groups(t):
            for i in g:
                expected = mean(vectors(9), g if stages == 1 else range(9))
                own = vectors(9)[f"p{i}"].vector
                np.testing.assert_allclose(outcome.average[f"p{i}"], np.where(mask, expected, own), atol=1e-6)
                assert 0 < mask.sum() < D
        bytes_sent = outcome.traffic.by_class()["parameters"]
        lists = len(sent(outcome, "MemberPart")) + len(sent(outcome, "GroupTotal"))
        assert bytes_sent == lists * 4 * (mask.sum() + 2)
        outcome = federation.average(vectors(9))
    assert (seen[0] != seen[1]).any()


def rotating_suite():
    """Returns the only thing of a suite that the choice of entries takes."""
    return type("Words", (), {"words": staticmethod(words)})


def test_a_share_is_sampled_like_that_of_other_protocols():
    found = terms(9, share=0.3)
    mask = found.choose_entries(rotating_suite(), 20_000, 7)
    assert mask[-2:].all()
    assert mask[:-2].mean() == pytest.approx(0.3, abs=0.02)
    assert terms(9).choose_entries(rotating_suite(), 20_000, 7) is None
    other = unpack_mask(sample_entries(words, "random", bytes(32), 20_000, 0.3), 20_000)
    assert (other != mask[:-2]).any()


def test_models_that_are_not_trained_meet_at_the_average_of_all():
    federation = Simulation.of("rotating", names(16), D, bits=64, seed=0)
    models = {party: update.vector for party, update in vectors(16).items()}
    expected = np.mean(list(models.values()), axis=0)
    spread = []
    for _ in range(12):
        models = federation.average({party: Update(vector) for party, vector in models.items()}).average
        spread.append(np.linalg.norm(np.array(list(models.values())) - expected))
    # Two rounds of an affine plane average over all of it.
    assert spread[1] < 1e-9 * math.sqrt(D) or spread[1] < spread[0]
    np.testing.assert_allclose(models["p3"], expected, atol=1e-9)


# --- masks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2])
def test_every_part_is_uniform_whatever_is_in_it_and_none_is_sent_to_others(stages):
    federation, outcome = run(9, updates={party: Update(np.zeros(D)) for party in names(9)}, stages=stages)
    found = federation.agreement.terms
    parts = sent(outcome, "MemberPart")
    assert len(parts) == 6 + (2 if stages == 2 else 0)
    for address in parts:
        g = found.group_of(1, int(address.sender[1:])) if address.step == 1 else found.collectors(1)
        assert address.to == f"p{found.collector(1, g)}"
    entries = np.concatenate([np.frombuffer(part.vector, dtype="<u4") for part in parts.values()])
    assert len(np.unique(entries)) == len(entries)
    assert np.count_nonzero(entries == 0) == 0


def test_with_two_stages_members_learn_no_group_sum():
    """Only collectors get messages from which the sum of a group follows; members get the total."""
    federation, outcome = run(9, stages=2)
    collectors = {f"p{i}" for i in federation.agreement.terms.collectors(1)}
    for address, message in sent(outcome, "GroupTotal").items():
        assert message.members == tuple(range(9))
        assert address.sender in collectors
    for size in (1, 2):
        for members in combinations(sorted(set(names(9)) - collectors), size):
            assert tacit.audit("rotating", parties=9, coalition=members, stages=2).smallest_group == 9 - size


# --- dropouts ------------------------------------------------------------------------------------------------------


def test_a_group_goes_on_without_a_member_that_is_offline():
    absent = Fault(action="silence", party="p0")
    federation, outcome = run(16, [absent])
    g = federation.agreement.terms.group_of(1, 0)
    assert g == (0, 1, 2, 3)
    for i in g[1:]:
        np.testing.assert_allclose(outcome.average[f"p{i}"], mean(vectors(16), g[1:]), atol=1e-6)
        assert federation.last.endings[f"p{i}"].contributors == ("p1", "p2", "p3")
    assert {address.step for address in sent(outcome, "MemberPart") if address.to == "p1"} == {1, 2}
    np.testing.assert_array_equal(outcome.average["p0"], vectors(16)["p0"].vector)
    assert all(len(federation.last.endings[f"p{i}"].contributors) == 4 for i in range(4, 16))


@pytest.mark.parametrize(("absent", "options"), [(("p0",), {"minimum": 4}), (("p0", "p2"), {})])
def test_a_group_gives_up_below_the_minimum_and_its_members_keep_their_vectors(absent, options):
    federation, outcome = run(16, [Fault(action="silence", party=party) for party in absent], **options)
    for i in federation.agreement.terms.group_of(1, 0):
        np.testing.assert_array_equal(outcome.average[f"p{i}"], vectors(16)[f"p{i}"].vector)
        assert federation.last.endings[f"p{i}"].contributors == (f"p{i}",)
        assert federation.last.endings[f"p{i}"].error is None
    assert not [address for address in sent(outcome, "SelfMaskSeed") if int(address.sender[1:]) < 4]


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        ({"action": "silence", "party": "p1"}, ()),  # the collector
        ({"action": "crash", "party": "p1", "message": "MemberList"}, ()),
        ({"action": "crash", "party": "p1", "message": "GroupTotal"}, ()),
        ({"action": "drop", "party": "p2", "message": "SelfMaskSeed"}, ()),
        ({"action": "drop", "to": "p2", "message": "MemberList"}, ()),
        ({"action": "drop", "to": "p2", "message": "GroupTotal"}, (0, 1, 3)),
        ({"action": "corrupt", "party": "p2", "message": "MemberPart"}, (0, 1, 3)),
        ({"action": "delay", "party": "p2", "message": "MemberPart", "seconds": 12}, (0, 1, 3)),
    ],
)
def test_whoever_gets_no_sum_keeps_its_vector(fault, left):
    federation, outcome = run(16, [Fault(**fault)])
    assert federation.agreement.terms.collector(1, (0, 1, 2, 3)) == 1
    for i in range(4):
        ending = federation.last.endings[f"p{i}"]
        if fault["action"] == "crash" and i == 1:
            continue
        if i in left:
            members = (0, 1, 3) if fault.get("party") == "p2" else (0, 1, 2, 3)
            np.testing.assert_allclose(ending.average, mean(vectors(16), members), atol=1e-6)
        else:
            np.testing.assert_array_equal(ending.average, vectors(16)[f"p{i}"].vector)
            assert ending.contributors == (f"p{i}",)
    assert all(len(federation.last.endings[f"p{i}"].contributors) == 4 for i in range(4, 16))
    assert outcome.contributors


def test_with_two_stages_the_total_is_that_of_the_groups_that_are_left():
    """A group that gives up is not in the total, and adopts it all the same; one without a collector does not."""
    federation, outcome = run(9, [Fault(action="silence", party="p0")], stages=2)
    assert federation.agreement.terms.groups(1)[0] == (0, 1, 2)
    for i in range(1, 9):
        np.testing.assert_allclose(outcome.average[f"p{i}"], mean(vectors(9), range(3, 9)), atol=1e-6)
    head = federation.agreement.terms.collector(1, (0, 1, 2))
    federation, outcome = run(9, [Fault(action="silence", party=f"p{head}")], stages=2)
    for i in {0, 1, 2} - {head}:
        np.testing.assert_array_equal(outcome.average[f"p{i}"], vectors(9)[f"p{i}"].vector)
    for i in range(3, 9):
        np.testing.assert_allclose(outcome.average[f"p{i}"], mean(vectors(9), range(3, 9)), atol=1e-6)


def test_with_two_stages_nobody_gets_a_total_without_the_party_that_sums_it():
    found = terms(9, stages=2)
    root = found.collector(1, found.collectors(1))
    _, outcome = run(9, [Fault(action="crash", party=f"p{root}", message="GroupTotal")], stages=2)
    for party in set(names(9)) - {f"p{root}"}:
        np.testing.assert_array_equal(outcome.average[party], vectors(9)[party].vector)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("seconds", [8, 12, 25])
def test_nobody_releases_two_self_masks_in_a_stage(stages, kind, seconds):
    """Whatever is late, a part that is left out stays masked."""
    for party in ("p0", "p1", "p2"):
        late = Fault(action="delay", party=party, message=kind, seconds=seconds)
        _, outcome = run(9, [late], stages=stages)
        released = [(address.sender, address.to) for address in sent(outcome, "SelfMaskSeed")]
        assert len(released) == len(set(released))


def test_the_next_round_is_a_whole_one_again():
    federation, _ = run(16, [Fault(action="silence", party="p0", round=1)])
    outcome = federation.average(vectors(16))
    assert all(len(federation.last.endings[party].contributors) == 4 for party in names(16))
    assert outcome.dropped == {}


# --- parties that deviate ------------------------------------------------------------------------------------------


def bent_list(members):
    """Returns a change of the list that a collector sends: to that of `members`, of the true list and the receiver."""

    def change(message, to, *_):
        if isinstance(message, rotating.MemberList) and message.members:
            return rotating.MemberList(tuple(members(list(message.members), int(to[1:]))))
        return message

    return change


LIES = {
    "one alone": lambda _, to: [to],
    "two, with the collector": lambda _, to: sorted({1, to}),
    "without the one it tells": lambda members, to: [j for j in members if j != to],
    "a stranger": lambda members, _: [*members, 8],
    "another order": lambda members, _: members[::-1],
    "somebody twice": lambda members, _: [*members, members[-1]],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_collector_that_lies_about_who_is_there_learns_nobodys_vector(lie, bent):
    """The audit runs the liar in the collector's place."""
    found = terms(5)
    liar = f"p{found.collector(1, found.group_of(1, 0))}"
    stand_in = {liar: bent(ROTATING, liar, bent_list(LIES[lie]))}
    report = tacit.audit("rotating", parties=5, coalition=[liar], stand_ins=stand_in)
    assert report.exposed == {}


def test_a_collector_that_asks_twice_for_other_members_gets_one_release_of_each(bent):
    """First all but p0 are listed, then all but p4: of both sums only the second could be unmasked."""

    def change(message, to, *_):
        if not isinstance(message, rotating.MemberList):
            return message
        asked = change.asked[to] = change.asked.get(to, 0) + 1
        return rotating.MemberList((1, 2, 3, 4) if asked == 1 else (1, 2, 3))

    change.asked = {}
    stand_in = {"p1": bent(ROTATING, "p1", change)}
    assert tacit.audit("rotating", parties=5, coalition=["p1"], stand_ins=stand_in).exposed == {}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("MemberPart", {"vector": memoryview(b"short")}),
        ("MemberPart", {"members": (0, 1)}),
        ("MemberPart", {"members": ()}),
        ("GroupTotal", {"vector": memoryview(b"short")}),
        ("GroupTotal", {"members": (0, 9)}),
        ("GroupTotal", {"members": (2, 1, 0)}),
    ],
)
def test_invalid_messages_exclude_their_sender(kind, change, bent_simulation):
    def bend(message, *_):
        return msgspec.structs.replace(message, **change) if message.kind() == kind else message

    culprit = "p2" if kind == "MemberPart" else "p1"
    simulation = bent_simulation("rotating", names(16), D, culprit, bend)
    outcome = simulation.average(vectors(16))
    found = simulation.last.rounds["p1" if kind == "MemberPart" else "p0"].link.dropped
    assert found == {culprit: Drop.MALFORMED}
    for i in (0, 3):
        if kind == "MemberPart":
            np.testing.assert_allclose(outcome.average[f"p{i}"], mean(vectors(16), (0, 1, 3)), atol=1e-6)
        else:
            np.testing.assert_array_equal(outcome.average[f"p{i}"], vectors(16)[f"p{i}"].vector)


def test_a_total_in_which_masks_are_left_is_not_adopted(bent_simulation):
    def bend(message, *_):
        if message.kind() == "SelfMaskSeed":
            return rotating.SelfMaskSeed(bytes(32))
        return message

    outcome = bent_simulation("rotating", names(16), D, "p2", bend).average(vectors(16))
    for i in range(4):
        np.testing.assert_array_equal(outcome.average[f"p{i}"], vectors(16)[f"p{i}"].vector)


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"group_size": 1}, "group_size=1 must be from 2"),
        ({"group_size": 10}, "group_size=10 must be from 2 to the 9 parties"),
        ({"minimum": 1}, "minimum=1 must be from 2 to the 3 members"),
        ({"minimum": 4}, "minimum=4 must be from 2 to the 3 members"),
        ({"share": 0.0}, "share must be"),
        ({"stages": 3}, "stages"),
        ({"noise": 1.0, "weighted": True}, "weighted=True does not go with noise"),
    ],
)
def test_bad_settings_are_refused_with_what_would_work(options, complaint):
    with pytest.raises(tacit.ConfigError, match=complaint):
        Simulation.of("rotating", names(9), D, seed=0, **options)


@pytest.mark.parametrize("options", [{"minimum": 2}, {"group_size": 2}])
def test_sums_of_two_are_refused(options):
    with pytest.raises(tacit.LeakRefused, match="use minimum=3 and group_size=3"):
        tacit.Federation("rotating", names(9), **options)


# --- what is learnt ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2])
def test_new_vectors_stay_hidden_from_single_parties_over_many_rounds(stages):
    reports = tacit.audit("rotating", parties=9, coalition_size=1, rounds=12, drift="free", stages=stages)
    assert all(report.exposed == {} and report.at_worst == () for report in reports)
    assert {report.smallest_group for report in reports} == {2}


def test_static_vectors_are_exposed_by_the_sums_of_overlapping_groups():
    """Within the gap nobody is; with as many sums as there are others, one member solves for all."""
    for n, safe in ((9, 8), (16, 15)):
        gap = terms(n).period
        assert tacit.audit("rotating", parties=n, coalition=["p0"], rounds=gap).exposed == {}
        report = tacit.audit("rotating", parties=n, coalition=["p0"], rounds=n + gap)
        assert len(report.exposed) == n - 1
        assert report.safe_rounds >= safe
        transcript_error = max(report.proof_errors.values())
        assert transcript_error < 1e-3


def test_two_members_of_a_group_of_three_learn_the_third_and_those_of_a_larger_one_do_not():
    assert set(tacit.audit("rotating", parties=9, coalition=["p0", "p1"]).exposed) == {"p2"}
    wide = {"group_size": 4, "minimum": 4}
    reports = tacit.audit("rotating", parties=16, coalition_size=2, rounds=5, drift="free", **wide)
    assert all(report.exposed == {} and not report.at_worst for report in reports)


def test_dropouts_are_as_bad_as_the_minimum_allows():
    narrow = tacit.audit("rotating", parties=16, coalition=["p0", "p1"], drift="free")
    assert narrow.exposed == {}
    assert len(narrow.at_worst) == 1
    apart = {"parties": 16, "coalition": ["p0", "p4"], "drift": "free"}
    assert [bool(tacit.audit("rotating", rounds=rounds, **apart).at_worst) for rounds in (1, 5)] == [False, True]


def test_preflight_refuses_two_colluders_unless_the_minimum_covers_them():
    with pytest.raises(tacit.LeakRefused):
        tacit.Federation("rotating", names(16), adversary=2)
    with pytest.raises(tacit.LeakRefused):
        tacit.Federation("rotating", names(16), adversary=2, group_size=4, minimum=3)
    tacit.Federation("rotating", names(16), adversary=2, minimum=4)


def test_a_share_is_audited_as_all_entries():
    """Each entry is in the sums of some rounds only, so nobody learns more of it."""
    some, every = (tacit.audit("rotating", parties=9, coalition=["p0"], rounds=13, share=share) for share in (0.4, 1.0))
    assert some.exposed.keys() == every.exposed.keys() == set(names(9)[1:])
    assert some.safe_rounds == every.safe_rounds
