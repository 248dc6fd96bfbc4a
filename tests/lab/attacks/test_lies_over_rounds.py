"""A server of secagg that lies over several rounds: what the search must find in variants, and what in the release."""

from dataclasses import replace
from functools import cache

import pytest

from tacit.core.errors import ConfigError
from tacit.core.lineage import START
from tacit.lab.attacks.lies import sequence_findings
from tacit.lab.attacks.lies.cases import CLOSE
from tacit.lab.attacks.lies.programs import INITIAL, PROGRAM, STATE, MemberState, adopt_ending, list_restarts
from tacit.lab.attacks.lies.sequence_findings import (
    GRAPHS,
    SAME_RING,
    first_sequence_break,
    list_sequence_steps,
    list_sequences,
    run_sequence_control,
    search_sequences,
)
from tacit.lab.attacks.lies.sequence_variants import SEQUENCE_VARIANTS, SequenceVariant
from tacit.lab.attacks.lies.sequences import DEAD, FORGED, LIVE, ROSTERS, SequenceCase, SequenceSearch
from tacit.lab.attacks.lies.sessions import Announcement, ClientInputs, RosterSettings, Session
from tacit.lab.attacks.lies.variants import replace_functions

pytestmark = pytest.mark.long

works_on = cache(first_sequence_break)

# --- variants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEQUENCE_VARIANTS)
def test_a_missing_precaution_is_found_and_proved_on_real_keys(name):
    chosen = SEQUENCE_VARIANTS[name]
    _, found = works_on(name)
    assert found is not None
    assert found.rounds == chosen.rounds
    assert found.group.some.model != found.group.others.model
    with replace_functions(chosen.replaced):
        assert found.error() < CLOSE
    # The same case as deployed: nothing is found.
    deployed = SequenceSearch(replace(chosen.case), chosen.rounds)
    assert not list(deployed.breaks())
    assert deployed.masking > 1, "a search in which nobody ever masks says nothing"


def test_one_round_less_is_not_enough():
    """So the search has to look at three rounds."""
    longer = {name: each for name, each in SEQUENCE_VARIANTS.items() if each.rounds == 3}
    assert len(longer) >= 3
    for each in longer.values():
        with replace_functions(each.replaced):
            assert not list(SequenceSearch(replace(each.case), each.rounds - 1).breaks())


def test_a_story_says_what_happens():
    _, found = works_on("a restarted program need not restore")
    assert str(found) == (
        "models, one roster, programs that may fail, all share masks with each other: one party is told a live sum "
        "after the start in round 1, starts again from the initial model, and calls nothing, and holds 0.5; the "
        "others: is told a live sum after the start in round 1, and hold 1; in round 2 they mask together"
    )


def test_an_update_is_recovered_only_from_those_who_mask_together():
    """With different lineages there is no sum with the victim in it."""
    session = Session(RosterSettings())
    state = MemberState().state
    apart = {place: ClientInputs(1, state, FORGED if place == 0 else START) for place in range(4)}
    assert session.recover_update(apart, 0) != session.recover_update(apart, 0)  # not a number
    together = dict.fromkeys(range(4), ClientInputs(1, state, START))
    assert session.recover_update(together, 0) < CLOSE
    assert session.mask_together(together)
    assert not session.mask_together(apart)


# --- as deployed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("driver", [STATE, PROGRAM])
@pytest.mark.parametrize("rosters", ROSTERS)
def test_two_rounds_give_nobody_another_model_under_the_same_lineage(rosters, driver, changes):
    if driver == PROGRAM and not changes and rosters not in SAME_RING:
        pytest.skip("the longer tier has it")
    search = SequenceSearch(SequenceCase(rosters, driver, changes), 2)
    assert [str(each) for each in search.breaks()] == []
    assert search.masking > 3
    assert search.groups > search.masking


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rosters", [each for each in ROSTERS if each not in SAME_RING])
def test_two_rounds_of_programs_with_another_ring(rosters):
    assert [str(each) for each in SequenceSearch(SequenceCase(rosters, PROGRAM), 2).breaks()] == []


@pytest.mark.parametrize(("neighbours", "colluders"), GRAPHS)
def test_a_colluding_user_that_signs_anything_does_not_help(neighbours, colluders):
    for changes in (False, True):
        case = SequenceCase(driver=STATE, changes=changes, neighbours=neighbours, colluders=colluders)
        search = SequenceSearch(case, 2)
        assert [str(each) for each in search.breaks()] == []
        assert search.masking > 1


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("rosters", ["one roster", "the roster is renewed"])
def test_three_rounds_without_restarts(rosters, changes):
    assert [str(each) for each in SequenceSearch(SequenceCase(rosters, STATE, changes), 3).breaks()] == []


@pytest.mark.slow
def test_three_rounds_of_programs_that_may_fail():
    assert [str(each) for each in SequenceSearch(SequenceCase(), 3).breaks()] == []


@pytest.mark.slow
@pytest.mark.parametrize("target", list_sequences(full=True))
def test_nothing_is_found_by_the_full_search(target):
    (finding,) = search_sequences(target, list_sequences(full=True)[target])
    assert not finding.broken, finding.target


# --- the search itself ---------------------------------------------------------------------------------------------


def test_clients_are_led_to_every_kind_of_ending():
    session, state = Session(RosterSettings()), MemberState().state
    inputs = ClientInputs(2, state)
    live, unit = session.encode_sum(LIVE), session.encode_sum(DEAD, weight=1)
    timeout = session.conclude(inputs, None)
    assert (timeout.average, timeout.error) == (None, "peer")
    adopted = session.conclude(inputs, Announcement(False, FORGED, 2, session.names, live))
    assert adopted.average == (LIVE, LIVE)
    again = inputs._replace(state=adopted.state)
    told = Announcement(True, FORGED, 2, session.names, live)
    assert session.conclude(again, told).error == "not-enough"  # it has it already
    refused = session.conclude(inputs, Announcement(False, START, 2, session.names, unit))
    assert (refused.average, refused.error) == (None, "wire")


def test_a_lineage_is_what_a_client_signs():
    session = Session(RosterSettings())
    assert session.advertise("p1", ClientInputs(1, MemberState().state)).lineage == START
    assert session.advertise("p1", ClientInputs(1, MemberState().state, FORGED)).lineage == FORGED


def test_a_program_that_lost_its_model_contributes_nothing_until_it_restores():
    session = Session(RosterSettings())
    first = MemberState()
    inputs = first.begin(1, PROGRAM, changes=False)
    ending = session.conclude(inputs, Announcement(False, START, 1, session.names, session.encode_sum(LIVE)))
    member = adopt_ending(first, ending, PROGRAM, changes=False)
    assert member.begin(2, PROGRAM, changes=False).lineage == member.lineage != b""
    after = dict(list_restarts(member, 1, changes=False))
    assert after["starts again from the initial model, and calls nothing"].begin(2, PROGRAM, changes=False) is None
    continued = after["starts again from a model that it saved, and continues from its lineage"]
    restored = after["starts again, and restores"]
    assert (
        continued.begin(2, PROGRAM, changes=False)
        == restored.begin(2, PROGRAM, changes=False)
        == member.begin(2, PROGRAM, changes=False)
    )
    assert continued.model == restored.model == member.model != INITIAL
    assert "starts again, and restores" not in dict(list_restarts(member, 1, changes=True))


def test_changes_add_up_and_models_are_replaced():
    for changes, model in ((False, LIVE), (True, INITIAL[0] + LIVE)):
        session = Session(RosterSettings(changes=changes))
        told = Announcement(False, START, 1, session.names, session.encode_sum(LIVE))
        ending = session.conclude(ClientInputs(1, MemberState().state), told)
        assert adopt_ending(MemberState(), ending, STATE, changes=changes).model == (model, model)


# --- the attack ----------------------------------------------------------------------------------------------------


def test_findings_count_settings_states_and_groups():
    (finding,) = search_sequences("a try", [(SequenceCase(driver=STATE), 2), (SequenceCase(driver=STATE), 1)])
    assert finding.target == "a try; 2 settings, 7 states of a party; 7 groups mask together"
    assert finding.verdict == "not_broken_by_this"
    assert finding.samples == 17


def test_a_control_that_finds_nothing_is_no_win(monkeypatch):
    monkeypatch.setitem(SEQUENCE_VARIANTS, "nothing missing", SequenceVariant((), SequenceCase(driver=STATE), 2))
    (finding,) = run_sequence_control("nothing missing")
    assert not finding.broken
    assert finding.value != finding.value


def test_flower_is_searched_only_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(sequence_findings, "find_spec", lambda _: None)
    without = [text for text, _ in list_sequence_steps(False)]
    assert not any("Flower" in text for text in without)
    assert len(without) == len(SEQUENCE_VARIANTS) + len(list_sequences(False))


def test_rosters_that_cannot_be_are_refused():
    with pytest.raises(ConfigError):
        Session(RosterSettings(users=1))


# --- on Flower -----------------------------------------------------------------------------------------------------


def flower_messages():
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit[flower]'")
    from tacit.lab.attacks.lies import flower_messages as module

    return module


def test_nodes_that_sign_nothing_of_what_they_are_asked_are_found():
    flower_messages()
    (finding,) = sequence_findings.run_flower_control()
    assert finding.broken
    assert finding.value < CLOSE


@pytest.mark.parametrize(
    "odd",
    ["other arrays", "other configuration", "one more record of configuration", "another function of the app"],
)
def test_nodes_sign_what_they_are_asked(odd):
    module = flower_messages()
    search = module.FlowerSearch()
    found = {each.one for each in search.breaks()} | {each.other for each in search.breaks()}
    assert odd not in found
