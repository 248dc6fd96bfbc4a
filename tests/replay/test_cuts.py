"""A party that is cut off anywhere goes on from what the contract says is on disk, and nobody can tell.

A party's rounds 1, 2 and 3 are cut before every single effect. The party is rebuilt from its journal and nothing
else, and says everything again. There must be the same averages and states as without the cut, no address with two
contents, and no key and nonce with two plaintexts.
"""

import contextlib
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

import tacit
from support.replay_cases import CASES, ROUNDS
from tacit.core.errors import TacitError
from tacit.core.suite import SERVER
from tacit.crypto.sealing import Sealing
from tacit.protocols import REGISTRY
from tacit.runtime.round import StateSaved
from tacit.runtime.simulation.faults import PHASE, Fault
from tacit.runtime.simulation.simulated_round import SimulatedRound

pytestmark = pytest.mark.long

LONGER = {
    *("secagg-neighbours", "secagg-noise", "secagg-sampled", "secagg-batches"),
    *("cesar-noise", "cesar-topk", "cesar-change", "cesar-random"),
    "admm-rhos",
}
"""Cases that take longest, and are cut where others of their protocol are."""
every_case = pytest.mark.parametrize(
    "title", [pytest.param(title, marks=[pytest.mark.slow] if title in LONGER else []) for title in CASES]
)
SHORT, LONG = 2.0, 1.5 * PHASE


class Sealed:
    """Watches what is sealed, and under which key and nonce."""

    def __init__(self, monkeypatch):
        self.under = defaultdict(set)
        honest = Sealing.seal

        def seal(sealing, plaintext, context):
            sealed = honest(sealing, plaintext, context)
            self.under[sealing._nonce_key, sealed[:12]].add((bytes(plaintext), context))
            return sealed

        monkeypatch.setattr(Sealing, "seal", seal)


@pytest.fixture
def sealed(monkeypatch):
    return Sealed(monkeypatch)


def played(case, faults=()):
    """Runs three rounds; returns the simulation, what was sent by address, and how the rounds ended."""
    simulation = case.simulation(faults=faults)
    sent, endings = defaultdict(set), []
    for number in range(1, ROUNDS + 1):
        try:
            endings.append(simulation.average(case.updates(number)))
        except TacitError as error:
            endings.append(error)
        for passed in simulation.last.transcript:
            sent[passed.envelope.address].add(passed.envelope.sealed)
    return simulation, sent, endings


@cache
def honest(title):
    """Returns what happens without a cut, and how many effects each party has in each round."""
    case = CASES[title]
    simulation, sent, endings = played(case)
    again = case.simulation()
    effects = {}
    for number in range(1, ROUNDS + 1):
        again.average(case.updates(number))
        effects |= {(number, party): round_.effects for party, round_ in again.last.rounds.items()}
    return simulation, sent, endings, effects


def same(title, simulation, sent, endings):
    """Checks that nothing is different from a run without a cut, but for messages that were sent twice."""
    undisturbed, expected, honest_endings, _ = honest(title)
    assert sent.keys() == expected.keys()
    assert [address for address, contents in sent.items() if contents != expected[address]] == []
    for ended, before in zip(endings, honest_endings, strict=True):
        assert not isinstance(ended, TacitError), ended
        assert ended.contributors == before.contributors
        assert ended.dropped == {}
        assert ended.average.keys() == before.average.keys()
        for party, average in before.average.items():
            np.testing.assert_array_equal(ended.average[party], average)
    encode = REGISTRY[CASES[title].protocol].encode_state
    assert {party: encode(state) for party, state in simulation.states.items()} == {
        party: encode(state) for party, state in undisturbed.states.items()
    }


def victims(title):
    """Returns whom to cut: one party, for the others are like it, and the server."""
    return ["p1", SERVER] if REGISTRY[CASES[title].protocol].server else ["p1"]


# Some steps apart, and others in each round, so that all three together have all of them.
some = pytest.mark.parametrize("apart", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])


@pytest.mark.sampled(3)
@every_case
@some
@pytest.mark.parametrize("unwritten", [False, True], ids=["written", "unwritten"])
def test_a_party_cut_before_any_effect_goes_on_as_if_nothing_had_happened(title, apart, unwritten, sealed):
    *_, effects = honest(title)
    for number in range(1, ROUNDS + 1):
        for party in victims(title):
            for step in range(number % apart, effects[number, party] + 1, apart):
                cut = Fault(action="restart", party=party, round=number, step=step, seconds=SHORT, unwritten=unwritten)
                same(title, *played(CASES[title], [cut]))
    assert sealed.under
    assert [contents for contents in sealed.under.values() if len(contents) > 1] == []


@every_case
def test_everybody_may_be_cut_in_the_same_round_and_again(title, sealed):
    everyone = CASES[title].simulation().agreement.everyone
    faults = [
        Fault(action="restart", party=party, round=2, step=step + place % 2, seconds=SHORT)
        for place, party in enumerate(everyone)
        for step in (1, 4)
    ]
    same(title, *played(CASES[title], faults))
    assert all(len(contents) == 1 for contents in sealed.under.values())


@pytest.mark.sampled(2)
@every_case
def test_whoever_is_away_too_long_misses_something_but_never_says_two_things(title, sealed):
    """The others go on without it. What it then says belongs to what it heard, and its deadlines are in its journal."""
    *_, effects = honest(title)
    for party in victims(title):
        for step in range(effects[2, party] + 1):
            cut = Fault(action="restart", party=party, round=2, step=step, seconds=LONG)
            simulation, sent, _ = played(CASES[title], [cut])
            assert all(len(contents) == 1 for contents in sent.values())
            assert not simulation.last.waiting
    assert all(len(contents) == 1 for contents in sealed.under.values())


@pytest.mark.sampled(2)
@every_case
def test_after_a_crash_for_good_the_next_round_begins_from_what_was_saved_last(title, monkeypatch):
    case = CASES[title]
    *_, effects = honest(title)
    saves = defaultdict(list)
    perform = SimulatedRound._perform

    def watched(self, party, actions, before):
        saves[party] += [(each.effect, each.state) for each in actions if isinstance(each, StateSaved)]
        perform(self, party, actions, before)

    monkeypatch.setattr(SimulatedRound, "_perform", watched)
    case.simulation().average(case.updates(1))
    monkeypatch.undo()
    fresh = REGISTRY[case.protocol].state()
    for party in victims(title):
        for step in range(effects[1, party] + 1):
            simulation = case.simulation(faults=[Fault(action="crash", party=party, round=1, step=step)])
            with contextlib.suppress(TacitError):
                simulation.average(case.updates(1))
            expected = [fresh, *(state for effect, state in saves[party] if effect < step)][-1]
            assert simulation.states[party] == expected
            with contextlib.suppress(TacitError):
                simulation.average(case.updates(2))
            assert simulation.last.rounds[party].begun.state == expected


def test_a_client_that_dies_after_its_vector_is_out_remembers_with_whom_it_may_be_summed():
    case = CASES["secagg-batches"]
    *_, effects = honest("secagg-batches")
    remembered = []
    for step in range(effects[1, "p0"] + 1):
        simulation = case.simulation(faults=[Fault(action="crash", party="p0", round=1, step=step)])
        with contextlib.suppress(TacitError):
            simulation.average(case.updates(1))
        addresses = [each.envelope.address for each in simulation.last.transcript]
        sent = {address.kind for address in addresses if address.sender == "p0"}
        remembered.append((len(simulation.states["p0"].batch) > 0, "MaskedInput" in sent))
    assert {masked <= known for known, masked in remembered} == {True}
    if any(masked for _, masked in remembered):
        assert (True, False) in remembered, "there is a moment in which it has written it down and not yet said so"


# --- what a coalition makes of it ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@every_case
@some
def test_what_was_said_before_and_after_a_cut_together_exposes_nobody_new(title, apart):
    """In the audit, a symbolic round that is said again must say the very same symbols."""
    case = CASES[title]
    *_, effects = honest(title)
    options = {**case.options, "parties": case.parties, "rounds": 2}
    for watching in [[SERVER]] if REGISTRY[case.protocol].server else [["p0"], ["p0", "p2"]]:
        try:
            before = tacit.audit(case.protocol, coalition=watching, **options)
        except tacit.NotLinear:
            continue
        for party in victims(title):
            for step in range(0, effects[2, party] + 1, 2 * apart):
                cut = [{"action": "restart", "party": party, "round": 2, "step": step, "seconds": SHORT}]
                after = tacit.audit(case.protocol, coalition=watching, faults=cut, **options)
                assert after.exposed.keys() == before.exposed.keys(), (watching, party, step)
                assert after.smallest_group == before.smallest_group
