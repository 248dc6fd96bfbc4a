"""Lifecycle of a node: the transitions that are allowed, and the refusal of all others."""

from itertools import product

import pytest

from tacit.net.node_lifecycle import (
    PRESENCE_TRANSITIONS,
    ROUND_TRANSITIONS,
    IllegalTransition,
    NodeLifecycle,
    Presence,
    RoundState,
)


def in_round_state(state: RoundState) -> NodeLifecycle:
    lifecycle = NodeLifecycle()
    lifecycle.round = state
    return lifecycle


def test_every_state_has_its_transitions() -> None:
    assert set(ROUND_TRANSITIONS) == set(RoundState)
    assert set(PRESENCE_TRANSITIONS) == set(Presence)
    reachable = {RoundState.UNSIZED}.union(*ROUND_TRANSITIONS.values())
    assert reachable == set(RoundState)


def test_a_round_without_trouble_leads_back_to_idle() -> None:
    lifecycle = NodeLifecycle()
    assert not lifecycle.is_resuming
    lifecycle.size_known(under_way=False)
    lifecycle.begin_round()
    assert lifecycle.is_resuming
    lifecycle.advance_round(over=False)
    assert lifecycle.round is RoundState.RUNNING
    lifecycle.advance_round(over=True)
    assert lifecycle.round is RoundState.IDLE
    lifecycle.report_ending()
    lifecycle.advance_round(over=True)  # such as a greeting after the end
    assert lifecycle.round is RoundState.IDLE
    assert not lifecycle.is_resuming


@pytest.mark.parametrize("over", [False, True])
def test_the_ending_of_a_blocked_round_is_due_until_it_is_reported(over: bool) -> None:
    lifecycle = NodeLifecycle()
    lifecycle.size_known(under_way=True)
    lifecycle.block()
    lifecycle.block()
    lifecycle.advance_round(over=over)
    assert lifecycle.round is (RoundState.UNREPORTED if over else RoundState.RECOVERING)
    if not over:
        lifecycle.block()
        lifecycle.advance_round(over=False)
        lifecycle.advance_round(over=True)
    assert lifecycle.round is RoundState.UNREPORTED
    assert lifecycle.is_resuming
    with pytest.raises(IllegalTransition, match="a node that is unreported cannot become running"):
        lifecycle.begin_round()
    lifecycle.report_ending()
    assert lifecycle.round is RoundState.IDLE


@pytest.mark.parametrize(("before", "after"), list(product(RoundState, RoundState)))
def test_other_changes_of_a_round_are_refused(before: RoundState, after: RoundState) -> None:
    lifecycle = in_round_state(before)
    if after in ROUND_TRANSITIONS[before]:
        lifecycle._enter_round(after)
        assert lifecycle.round is after
    else:
        with pytest.raises(IllegalTransition):
            lifecycle._enter_round(after)
        assert lifecycle.round is before


@pytest.mark.parametrize(("before", "after"), list(product(Presence, Presence)))
def test_other_changes_of_presence_are_refused(before: Presence, after: Presence) -> None:
    lifecycle = NodeLifecycle()
    lifecycle.presence = before
    if after is before or after in PRESENCE_TRANSITIONS[before]:
        lifecycle.change_presence(after)
        assert lifecycle.presence is after
    else:
        with pytest.raises(IllegalTransition):
            lifecycle.change_presence(after)
