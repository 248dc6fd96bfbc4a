"""A server of secagg that lies: what the search must find in variants, and must not in what is deployed."""

import contextlib
from functools import cache
from itertools import combinations, product

import pytest

from tacit.auditing.engine.algebra.linear import smallest_support
from tacit.core.errors import ConfigError
from tacit.core.suite import Update
from tacit.designs import Batches, Random, Sampled
from tacit.designs.participation import Everyone
from tacit.lab.attacks.lies import search as lies
from tacit.lab.attacks.lies import variants
from tacit.lab.attacks.lies.cases import COLLUDING, LieCase, list_cases, list_policies, symmetries
from tacit.lab.attacks.lies.roles import UNMASKED, RealCast, SymbolicCast
from tacit.lab.attacks.lies.search import Search, SearchTally, list_targets, run_control
from tacit.lab.attacks.lies.variants import VARIANTS, use_variant
from tacit.protocols.secagg import user
from tacit.protocols.secagg.messages import Chosen, KeyList, SealedShares
from tacit.protocols.secagg.settings import Accord

pytestmark = pytest.mark.long

works_on = cache(lies.first_break)

# --- variants ------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_missing_precaution_is_found_and_proved_on_real_keys(name):
    search, found = works_on(name)
    assert found is not None
    assert found.too_small
    assert search.case.tolerated
    assert (found.smallest == 1) == VARIANTS[name].exposes
    assert len(found.known[0]) == found.smallest < search.case.fewest_honest
    with use_variant(name):
        assert found.error() < lies.CLOSE
    deployed = SymbolicCast(search.case)
    with contextlib.suppress(ConfigError):  # if they refuse
        rows = deployed.known_basis(deployed.replay(found.clients))
        assert len(rows) == 1
        assert smallest_support(rows) >= search.case.fewest_honest


def test_only_what_is_known_can_be_recovered():
    _, found = works_on("no b_u")
    (victim,) = found.known[0]
    with use_variant("no b_u"):
        assert found.cast.error(found.clients, {victim: -3}) < lies.CLOSE
        with pytest.raises(ConfigError, match="does not follow"):
            found.cast.error(found.clients, {victim + 1: 1})


def test_the_truth_is_what_real_clients_brought(monkeypatch):
    _, found = works_on("no b_u")
    brought = RealCast.update
    monkeypatch.setattr(RealCast, "update", lambda cast, party: Update(brought(cast, party).vector + 0.5))
    with use_variant("no b_u"):
        assert found.error() == pytest.approx(0.5)


def test_u3_unsigned_takes_one_colluding_user_if_all_are_summed():
    with use_variant("U3 signed by nobody"):
        assert not list(Search(LieCase(4)).breaks())
        found = next(Search(LieCase(4, (0,))).breaks())
        assert found.smallest == 1
        assert found.error() < lies.CLOSE


def test_what_is_found_without_a_signed_u2_takes_more_than_an_unsigned_u3():
    """Both variants leave out the words for U3. The lie works only if U2 is in nobody's keys and consents either."""
    case = VARIANTS["U2 signed by nobody"].case
    with use_variant("U3 signed by nobody"):
        search = Search(case)
        assert not list(search.breaks())
        assert search.sums


def test_lies_are_told_in_words():
    _, found = works_on("U3 signed by nobody")
    assert found.story == "p0 p1 p2 told U5 = p2 p3; p3 told U3 = p0 p1 p3"
    assert found.known_basis == "the vector of p3"
    _, found = works_on("no lower bound")
    assert str(found).startswith("4 users, 0 collude, all are neighbours, threshold 3, Everyone(): ")
    assert str(found).endswith("p0 p1 p2 p3 told U5 = p3, which gives the vector of p3")


def test_a_variant_is_gone_when_it_is_over():
    before = {name: [getattr(where, which) for where, which, _ in each.replaced] for name, each in VARIANTS.items()}
    for name, each in VARIANTS.items():
        with contextlib.suppress(RuntimeError), use_variant(name):
            assert [getattr(where, which) for where, which, _ in each.replaced] != before[name]
            raise RuntimeError
        assert [getattr(where, which) for where, which, _ in each.replaced] == before[name]
    assert variants._AGREE is Accord.agree
    assert user.check_views.__module__ == user.__name__


# --- as deployed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        LieCase(4),
        LieCase(4, (1,)),
        LieCase(4, (), Batches(4, 2)),
        LieCase(4, (2,), neighbours=2, threshold=3),
    ],
    ids=str,
)
def test_no_lie_works(case):
    assert case.tolerated
    search = Search(case)
    assert not list(search.breaks())
    assert search.sums > 0, "a search in which nothing was ever unmasked says nothing"
    assert search.lies > search.sums


def test_more_colluders_than_promised_are_found():
    """Two of four users with the server hold half of everybody's shares and more than may be split at threshold 3."""
    case = LieCase(4, (0, 1))
    assert not case.tolerated
    assert next(Search(case).breaks()).smallest == 1


@pytest.mark.parametrize(
    ("case", "sums"),
    [
        (LieCase(4, (), Random(2)), [{0, 1}, {2, 3}]),
        # U2 must have three or four users, but U3 no more than the threshold; and a friend may be in both.
        (LieCase(4, (), Random(3), threshold=2), [{0, 1}, {2, 3}]),
        (LieCase(5, (0,), Random(4)), [{1, 2}, {3, 4}]),
    ],
    ids=str,
)
def test_a_policy_that_asks_some_leaves_room_for_two_sums_but_for_none_that_is_smaller(case, sums):
    assert case.tolerated
    found = list(Search(case).breaks())
    assert found
    assert not any(each.too_small for each in found)
    assert all(disjoint(each) for each in found)
    assert sorted(map(sorted, found[0].known)) == sorted(map(sorted, sums))
    assert max(found[0].error(which) for which in (0, 1)) < lies.CLOSE


def disjoint(found):
    """Says whether all that is known are sums, and nobody is in two of them."""
    summed = [u for combination in found.known for u in combination]
    return len(summed) == len(set(summed)) and all(set(each.values()) == {1} for each in found.known)


# --- the search itself ---------------------------------------------------------------------------------------------


def everything(cast, clients, steps):
    """Yields what is learnt at the end of every single lie, without any shortcut."""
    if not steps:
        cast._learnt.clear()
        yield cast.known_basis(clients)
        return
    for chosen in product(*(cast.list_next_states(client, clients) for client in clients)):
        yield from everything(cast, chosen, steps - 1)


def results(learnt, order):
    return {tuple(sorted(tuple(row[list(order)] != 0) for row in rows)) for rows in learnt}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("as deployed", LieCase(4, (), Random(2))),
        ("as deployed", LieCase(4, neighbours=2, threshold=2)),
        ("U3 signed by nobody", LieCase(4, (0,))),
        ("graph may fall apart", LieCase(4, (2,), neighbours=2, threshold=3)),
    ],
    ids=str,
)
def test_shortcuts_miss_nothing(name, case, monkeypatch):
    monkeypatch.setitem(VARIANTS, "as deployed", variants.Variant((), case))
    with use_variant(name):
        cast, search = SymbolicCast(case), Search(case)
        plain = list(everything(cast, cast.beginning(), UNMASKED))
        list(search.breaks())
    found, count = list(search.cast._learnt.values()), len(case.honest)
    expected = results(plain, range(count))
    # One of several lies that differ only in who is who was enough.
    renamed = set().union(*(results(found, renaming.places) for renaming in symmetries(case)))
    assert expected <= renamed
    assert max(map(len, expected)) == max(map(len, renamed))
    assert len(expected) > 1


def test_clients_refuse_sets_that_do_not_fit_the_one_before():
    """So that the search need not tell them any: U2 and U3 without the client, U3 beyond U2, and U5 beyond U3."""
    cast = SymbolicCast(LieCase(4))
    three, everyone = 0b0111, 0b1111
    clients = cast.beginning()
    for client in clients:
        others = everyone & ~(1 << client.place)
        assert cast.deliver(client, others, KeyList(cast._bitmap(others), {})) is None
    clients = [cast.deliver_set(client, clients, three) for client in clients[:3]]
    for client in clients:
        boxes = cast._passable(client, clients)
        for u3, accepted in ((three, True), (everyone, False), (everyone & ~(1 << client.place), False)):
            message = SealedShares(cast._bitmap(u3), boxes)
            assert (cast.deliver(client, u3, message) is not None) == accepted
    clients = [cast.deliver_set(client, clients, three) for client in clients]
    for client in clients:
        tags = cast._passable(client, clients)
        for u5, accepted in ((three, True), (everyone, False)):
            assert (cast.deliver(client, u5, Chosen(cast._bitmap(u5), tags)) is not None) == accepted


def test_who_can_change_places():
    assert len(symmetries(LieCase(4))) == 24
    assert len(symmetries(LieCase(4, (1,)))) == 6
    assert len(symmetries(LieCase(4, (), Batches(4, 2)))) == 8
    assert len(symmetries(LieCase(4, neighbours=2, threshold=2))) == 1
    swap = next(each for each in symmetries(LieCase(4)) if each.places == (1, 0, 2, 3))
    assert swap.of((0b0001, 0b0111, 0b1001, 0b1010)) == (0b0111, 0b0010, 0b1010, 0b1001)


def test_all_cases_are_looked_at():
    assert {type(policy).__name__ for policy in list_policies(4)} == {
        "Everyone",
        "Sampled",
        "Random",
        "Partition",
        "Batches",
    }
    every = [case for alike in list_cases(4).values() for case in alike]
    assert len(every) == len(set(every))
    assert {len(case.colluders) for case in every} == set(COLLUDING)
    assert all(case.tolerated and not case.sparse for case in every)
    assert {case.threshold for case in every if case.participation == Everyone()} == {3, 4}
    # Of three who may be asked, two neighbours each are all.
    assert not list_cases(4, 2, [Random(3)])
    sparse = [case for alike in list_cases(4, 2).values() for case in alike]
    assert all(case.sparse for case in sparse)
    assert {case.colluders for case in sparse} == {(), *((w,) for w in range(4)), *combinations(range(4), 2)}


# --- the attack ----------------------------------------------------------------------------------------------------


def test_findings(monkeypatch):
    told = []
    monkeypatch.setattr(lies, "VARIANTS", {"no b_u": VARIANTS["no b_u"]})
    monkeypatch.setattr(lies, "list_targets", lambda _: {"four": [([LieCase(4), LieCase(4, threshold=3)], None)]})
    monkeypatch.setattr(lies, "list_sequence_steps", lambda _: [])
    first, small, many = lies.ATTACK.run(False, 0, lambda *step: told.append(step))
    first_step = "lying to clients without a precaution: no mask of one's own"
    assert told == [(first_step, 0.0), ("lying to clients as deployed: four", 0.5), ("lies", 1.0)]
    assert first.verdict == "broken"
    assert first.value < lies.CLOSE
    assert small.value == many.value == 0
    assert small.verdict == many.verdict == "not_broken_by_this"
    assert small.target.startswith("four; 2 settings, all the same in one round; ")
    assert small.target.endswith(" lies give the server a sum")
    assert small.samples > 10
    assert {each.tried for each in (first, small, many)} == {"lies told"}
    assert not any(word in each.target for each in (first, small, many) for word in ("states", "histories"))


def test_targets_say_what_the_server_does():
    said = lies.describe_target("p0 p1 told U2 = p0 p1; p2 told that all are there, which gives the sum of p0 p1")
    assert said == (
        "it tells p0 p1 that those asked are p0 p1; it tells p2 that all are there, which gives the sum of p0 p1"
    )
    assert lies.describe_target("Sampled(exactly=2, of=3)") == "2 are summed of 3 who are asked"


def test_a_control_that_finds_nothing_is_no_win(monkeypatch):
    blind = variants.Variant((), LieCase(4, (), Sampled(4)))
    monkeypatch.setitem(VARIANTS, "nothing missing", blind)
    finding = run_control("nothing missing")
    assert not finding.broken
    assert finding.value != finding.value


@pytest.mark.slow
def test_nothing_is_found_in_the_shipped_protocol():
    """But for more than one sum, where a policy does not let all be asked; and then nobody is in two of them."""
    for target, groups in list_targets(full=True).items():
        tally = SearchTally()
        for alike, stories in groups:
            tally.take(Search(alike[0], stories), len(alike))
        assert not [str(each) for each in tally.breaks if each.too_small], target
        assert all(disjoint(each) for each in tally.breaks), target
        assert not tally.breaks or "not everybody may be asked" in target
        assert tally.lies


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "U2 signed by nobody"])
def test_no_smaller_case_is_broken_by_what_is_missing(name):
    """Fewer users, or as many and fewer that collude, or as many of both and a complete graph for a sparse one.

    Without a signed U2 there are none for U3 either, and what that breaks is broken.
    """

    def size(case):
        return case.users, len(case.colluders), case.sparse

    with use_variant(name) as chosen:
        for users, neighbours in lies.WHOLE:
            for alike in list_cases(users, neighbours).values():
                if size(alike[0]) < size(chosen.case):
                    assert not [str(each) for each in Search(alike[0]).breaks() if each.too_small]
