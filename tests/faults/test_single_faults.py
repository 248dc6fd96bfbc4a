"""Every message lost, late, doubled, swapped or garbled, every party gone at any step: a right average or a clean end.

A right average is the ring's mean over the contributors that the outcome names, bit for bit. A clean end is a
TacitError. Nothing else will do: not another exception, not a party that waits on, not a wrong number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import Drop, NotEnough, PeerFault
from tacit.core.suite import SERVER, Update
from tacit.designs import Batches, Everyone, Random
from tacit.protocols import REGISTRY
from tacit.runtime.simulation.faults import PHASE, TO_MESSAGES, Fault
from tacit.runtime.simulation.simulator import Simulation

pytestmark = pytest.mark.long

ENTRIES = 3


@dataclass(frozen=True)
class Variant:
    """A protocol and settings to break."""

    protocol: str
    parties: int = 5
    options: dict = field(default_factory=dict)
    batch: int = 1
    rule: Callable | None = None
    """What a party's average must be, up to rounding. None: the mean of the contributors, the same for all, exactly."""
    tolerant: bool = False
    """Whether a round must end in an average if only one client is in trouble."""
    phases: int = 12
    """No round with one fault takes longer. A server's phases take at most 6, and a client waits for at most 8."""
    everyone: bool = False
    """Whether everybody who delivers is summed, so that we know who is missing from the sum."""

    def federation(self, faults=(), **more):
        parties = tuple(f"p{place}" for place in range(self.parties))
        options = {"seed": 0, "record": True, "twin": True, **self.options, **more}
        return Simulation.of(self.protocol, parties, ENTRIES, faults=faults, **options)


def mixed(brought, contributors, me):
    """Returns a party's vector, mixed in equal parts with those it heard; the parts of the others stay its own."""
    own = brought[me].vector
    return own + sum((brought[party].vector - own for party in contributors), np.zeros(ENTRIES)) / len(brought)


def mean_of_heard(brought, contributors, me):
    """Returns the mean over whom a party heard, itself among them."""
    assert me in contributors
    return np.mean([brought[party].vector for party in contributors], axis=0)


def mean_of_all(brought, contributors, me):
    """Returns the mean over everybody, or else there must be none."""
    del me
    assert set(contributors) == set(brought)
    return np.mean([update.vector for update in brought.values()], axis=0)


ADMM = {"group_size": None, "masked": True, "iterations": 4, "lambda0": (0.0, 0.001)}
"""All to all, so that one partition protects all iterations; small multipliers, so that few of them are enough."""

SPECIAL = {
    "fedavg": {
        "everyone": Variant("fedavg", tolerant=True, everyone=True),
        "sampled": Variant("fedavg", options={"sampled": 3, "oversampled": 4}, tolerant=True),
        "batches": Variant("fedavg", 6, {"participation": Batches(4, 2)}, batch=2, tolerant=True),
    },
    "secagg": {
        "complete": Variant("secagg", options={"threshold": 3}, tolerant=True, everyone=True),
        "sampled": Variant("secagg", options={"sampled": 3, "oversampled": 4}, tolerant=True),
        "batches": Variant("secagg", 6, {"participation": Batches(4, 2)}, batch=2, tolerant=True),
    },
    "gossip": {"complete": Variant("gossip", rule=mixed, tolerant=True)},
    "cesar": {"complete": Variant("cesar", 4, rule=mixed, phases=30)},
    "rotating": {"one group": Variant("rotating", 4, rule=mean_of_heard, tolerant=True)},
    "pushsum": {"complete": Variant("pushsum", rule=mean_of_heard, tolerant=True)},
    "admm": {"all": Variant("admm", 3, ADMM, rule=mean_of_all)},
}
VARIANTS = {
    f"{name}-{title}": variant
    for name in REGISTRY
    for title, variant in SPECIAL.get(name, {"default": Variant(name)}).items()
}
LONGER = {"secagg-sampled", "secagg-batches"}
"""Variants that take longest; of fedavg, which sums in the same way, they are quick."""
every_variant = pytest.mark.parametrize(
    "title", [pytest.param(title, marks=[pytest.mark.slow] if title in LONGER else []) for title in VARIANTS]
)


@dataclass(frozen=True)
class Honest:
    """What happens without faults: the addresses of all messages, in order, and how many effects each party has."""

    messages: tuple
    steps: dict
    contributors: tuple
    average: np.ndarray
    carrying: frozenset

    def vector_of(self, party):
        """Returns the number of the message with which a party delivers its vector, None if it is not asked to."""
        return next(
            (
                number
                for number, message in enumerate(self.messages)
                if message.sender == party and message.kind in self.carrying
            ),
            None,
        )


@cache
def updates(parties):
    rng = np.random.default_rng(parties)
    return {f"p{place}": Update(rng.normal(size=ENTRIES)) for place in range(parties)}


@cache
def honest(title):
    federation = VARIANTS[title].federation()
    out = federation.average(updates(VARIANTS[title].parties))
    return Honest(
        tuple(passed.envelope.address for passed in out.transcript),
        {party: each.effects for party, each in federation.last.rounds.items()},
        out.contributors,
        out.average["p0"],
        frozenset(kind.kind() for kind in federation.agreement.protocol.messages if kind.parameters),
    )


def addresses(ended):
    return [passed.envelope.address for passed in ended.played.transcript]


def test_the_honest_rounds_are_what_the_faults_are_counted_against():
    for title, variant in VARIANTS.items():
        run = honest(title)
        assert len(run.messages) > variant.parties
        assert run.carrying
        assert all(run.vector_of(party) is not None for party in run.contributors)


@pytest.fixture(scope="session")
def check(play, ring_mean):
    """Returns the function that runs a round with faults and checks that it ends as it must."""

    def checked(variant, faults, federation=None, brought=None, slower=1, tolerance=1e-5):
        federation = federation or variant.federation(faults)
        brought = brought or updates(variant.parties)
        ended = play(federation, brought)
        simulation = ended.played
        assert not simulation.waiting
        assert simulation.clock < slower * variant.phases * PHASE
        if ended.error is not None:
            return ended
        out = ended.outcome
        assert out.seconds == simulation.clock
        assert out.average
        assert set(out.contributors) <= set(federation.parties)
        assert len(set(out.contributors)) == len(out.contributors)
        assert not set(out.average) & set(out.dropped)
        assert all(np.isfinite(average).all() for average in out.average.values())
        if variant.rule is None:
            exactly(variant, federation, brought, out, simulation)
        else:
            for party, average in out.average.items():
                expected = variant.rule(brought, simulation.endings[party].contributors, party)
                np.testing.assert_allclose(average, expected, rtol=0, atol=tolerance, err_msg=f"{party}, {faults}")
        return ended

    def exactly(variant, federation, brought, out, simulation):
        expected = ring_mean(federation, brought, out.contributors)
        for party, average in out.average.items():
            np.testing.assert_array_equal(average, expected, err_msg=f"{party}, {federation.faults}")
            assert simulation.endings[party].contributors == out.contributors
        carrying = {kind.kind() for kind in federation.agreement.protocol.messages if kind.parameters}
        arrived = {
            passed.envelope.address.sender
            for passed in simulation.transcript
            if passed.delivered and passed.envelope.address.kind in carrying
        }
        assert set(out.contributors) <= arrived
        places = {federation.parties.index(party) for party in out.contributors}
        assert len(places) >= 2
        for place in places:
            first = place - place % variant.batch
            assert places.issuperset(range(first, first + variant.batch)), "a batch was torn apart"

    return checked


# --- one message ---------------------------------------------------------------------------------------------------

HITS = [
    *(pytest.param(action, 0.5, id=action) for action in TO_MESSAGES),
    pytest.param("corrupt", 0.0, id="corrupt-first", marks=pytest.mark.slow),
    pytest.param("corrupt", 1.0, id="corrupt-last", marks=pytest.mark.slow),
]


@pytest.mark.sampled(3)
@every_variant
@pytest.mark.parametrize(("action", "position"), HITS)
def test_any_one_message_may_be_befallen(title, action, position, check):
    variant, run = VARIANTS[title], honest(title)
    parties = updates(variant.parties).keys()
    for number, message in enumerate(run.messages):
        # Only one client is in trouble: whoever sent the message, or was to get it.
        client = message.sender if message.to == SERVER else message.to
        fault = Fault(action=action, number=number, position=position)
        ended = check(variant, [fault])
        if action in ("duplicate", "reorder"):
            assert ended.outcome.contributors == run.contributors, fault
            assert ended.outcome.average.keys() == parties, fault
            np.testing.assert_array_equal(ended.outcome.average["p0"], run.average)
            continue
        if variant.tolerant:
            assert ended.error is None, fault
            assert parties - {client} <= ended.outcome.average.keys(), fault
        if variant.rule is None and ended.outcome is not None and number == run.vector_of(client):
            assert client not in ended.outcome.contributors, fault
        if variant.everyone:
            # Missing from the sum is exactly who was cut off before its vector had arrived.
            missing = {client} if number <= run.vector_of(client) else set()
            assert set(ended.outcome.contributors) == parties - missing, fault


# --- one party -----------------------------------------------------------------------------------------------------


@every_variant
def test_any_client_may_crash_at_any_step(title, check):
    variant, run = VARIANTS[title], honest(title)
    parties = updates(variant.parties).keys()
    for party in parties:
        contributes = []
        for step in range(run.steps[party] + 1):
            ended = check(variant, [Fault(action="crash", party=party, step=step)])
            if variant.tolerant:
                assert ended.error is None, (party, step)
                assert ended.outcome.average.keys() == parties - {party}
                assert ended.outcome.dropped == {party: Drop.CRASHED}
            contributes.append(ended.outcome is not None and party in ended.outcome.contributors)
            if variant.everyone:
                sent = {address.kind for address in addresses(ended) if address.sender == party}
                assert contributes[-1] == bool(sent & run.carrying)
        if variant.rule is None:
            assert not contributes[0]
        if variant.everyone:
            assert contributes == sorted(contributes)
            assert contributes[-1]


@every_variant
def test_any_client_may_fall_silent(title, check):
    variant = VARIANTS[title]
    for party in updates(variant.parties):
        ended = check(variant, [Fault(action="silence", party=party)])
        if variant.tolerant:
            assert ended.error is None
        if variant.rule is None and ended.outcome is not None:
            assert party not in ended.outcome.contributors


def announcing(title):
    """Returns the step of the server's first announcement of the sum, which is the first of its last sends."""
    return honest(title).steps[SERVER] - VARIANTS[title].parties


with_server = pytest.mark.parametrize(
    "title", [title for title, variant in VARIANTS.items() if REGISTRY[variant.protocol].server]
)


@with_server
def test_a_server_that_crashes_before_the_end_is_named_by_everyone(title, check):
    variant = VARIANTS[title]
    for step in range(announcing(title) + 1):
        ended = check(variant, [Fault(action="crash", party=SERVER, step=step)])
        assert isinstance(ended.error, PeerFault)
        assert (ended.error.peer, ended.error.reason) == (SERVER, Drop.SILENT)
        assert ended.errors().keys() == updates(variant.parties).keys()


@with_server
def test_a_server_that_crashes_while_it_announces_the_sum_leaves_right_averages_behind(title, check):
    variant = VARIANTS[title]
    for told in range(1, variant.parties + 1):
        ended = check(variant, [Fault(action="crash", party=SERVER, step=announcing(title) + told)])
        assert len(ended.outcome.average) == told
        assert ended.outcome.contributors == honest(title).contributors
        assert ended.outcome.dropped[SERVER] == Drop.CRASHED


@with_server
def test_a_silent_server_ends_the_round(title, check):
    ended = check(VARIANTS[title], [Fault(action="silence", party=SERVER)])
    assert isinstance(ended.error, NotEnough)
    # The clients never hear from it, and it waits in vain for their answers to what they never got.
    assert all(error.peer == SERVER for party, error in ended.errors().items() if party != SERVER)


# --- several at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [("p0", "p1"), ("p1", "p4"), ("p2", "p3")])
@pytest.mark.parametrize(
    ("kind", "contribute"),
    [("AdvertiseKeys", False), ("ShareKeys", False), ("MaskedInput", False), ("Consent", True), ("Unmask", True)],
)
def test_secagg_with_a_threshold_of_three_in_five_survives_the_loss_of_two(kind, contribute, lost, check):
    variant = VARIANTS["secagg-complete"]
    ended = check(variant, [Fault(action="drop", party=party, message=kind) for party in lost])
    assert ended.error is None
    assert set(ended.outcome.contributors) == set(updates(5)) - (set() if contribute else set(lost))
    assert ended.outcome.average.keys() == set(updates(5))


@pytest.mark.parametrize("kind", ["AdvertiseKeys", "ShareKeys", "MaskedInput", "Consent", "Unmask"])
def test_secagg_with_a_threshold_of_three_in_five_ends_with_the_loss_of_three_and_names_them(kind, check):
    faults = [Fault(action="drop", party=party, message=kind) for party in ("p0", "p2", "p4")]
    ended = check(VARIANTS["secagg-complete"], faults)
    assert isinstance(ended.error, NotEnough)
    assert (ended.error.have, ended.error.need) == (2, 3)
    assert ended.error.missing == dict.fromkeys(("p0", "p2", "p4"), Drop.SILENT)


@pytest.mark.parametrize("kind", ["AdvertiseKeys", "ShareKeys", "MaskedInput", "Unmask"])
def test_losses_at_every_step_add_up(kind, check):
    """One client is lost at one step, another at the end, and three of five still do."""
    faults = [Fault(action="drop", party="p1", message=kind), Fault(action="crash", party="p3", step=7)]
    ended = check(VARIANTS["secagg-complete"], faults)
    assert ended.error is None
    assert ("p1" in ended.outcome.contributors) == (kind == "Unmask")


def test_a_batch_with_a_missing_member_is_left_out_whole(check):
    run = honest("secagg-batches")
    for party in run.contributors:
        place = int(party[1:])
        ended = check(VARIANTS["secagg-batches"], [Fault(action="drop", party=party, message="MaskedInput")])
        pair = {f"p{place - place % 2}", f"p{place - place % 2 + 1}"}
        assert set(ended.outcome.contributors) == set(run.contributors) - pair


@pytest.mark.parametrize("title", [title for title, variant in VARIANTS.items() if variant.rule is None])
def test_after_an_aborted_round_the_next_one_is_right(title, check):
    variant = VARIANTS[title]
    faults = [Fault(action="silence", party=party, round=1) for party in updates(variant.parties)]
    federation = variant.federation(faults)
    assert check(variant, faults, federation).error is not None
    for _ in range(2):
        ended = check(variant, faults, federation)
        assert ended.error is None
        assert ended.outcome.average.keys() == updates(variant.parties).keys()


def test_an_aborted_round_leaves_no_keys_in_memory(play):
    parties = tuple(f"p{place}" for place in range(5))
    federation = Simulation.of("secagg", parties, 3, faults=[Fault(action="drop", message="Unmask")], seed=0)
    assert play(federation, updates(len(parties))).error is not None
    for seat in federation.participants.values():
        assert seat.round.suite._loaded == {}
        assert seat.round.suite.made == []
        assert seat.round.suite._secrets._seed == b""


@st.composite
def plans(draw):
    """Draws a protocol, settings that are legal for it, and up to four faults."""
    protocol = draw(st.sampled_from(sorted(REGISTRY)))
    batch, parties = 1, draw(st.integers(3, 8))
    options = {"bits": draw(st.sampled_from((16, 32, 64)))}
    if protocol in ("fedavg", "secagg"):
        how = draw(st.sampled_from(("everyone", "sampled", "random", "batches")))
        most = parties
        if how == "sampled":
            options["sampled"] = draw(st.integers(2, parties))
            most = options["oversampled"] = draw(st.integers(options["sampled"], parties))
        elif how == "random":
            most = draw(st.integers(2, parties))
            options["participation"] = Random(most)
        elif how == "batches":
            batch = draw(st.integers(2, 3))
            parties = batch * draw(st.integers(1, 9 // batch))
            most = batch * draw(st.integers(1, parties // batch))
            options["participation"] = Batches(most, batch)
        else:
            options["participation"] = Everyone()
        holders = most
        if protocol == "secagg" and draw(st.booleans()):
            options["neighbours"] = draw(st.integers(2, 6))
            holders = min(most, options["neighbours"] + options["neighbours"] % 2 + 1)
        if protocol == "secagg" and draw(st.booleans()):
            options["threshold"] = draw(st.integers(max(2, holders // 2 + 1), holders))
    names = tuple(f"p{place}" for place in range(parties))
    somebody = st.sampled_from((*names, SERVER)) if REGISTRY[protocol].server else st.sampled_from(names)
    fault = st.one_of(
        st.builds(
            Fault,
            action=st.sampled_from(TO_MESSAGES),
            number=st.integers(0, 10 * parties),
            seconds=st.floats(0, 3 * PHASE),
            position=st.floats(0, 1),
        ),
        st.builds(
            Fault,
            action=st.sampled_from(TO_MESSAGES),
            party=somebody,
            to=st.none() | somebody,
            message=st.sampled_from([None, *(kind.kind() for kind in REGISTRY[protocol].messages)]),
            seconds=st.floats(0, 3 * PHASE),
        ),
        st.builds(Fault, action=st.just("crash"), party=somebody, step=st.integers(0, 40)),
        st.builds(Fault, action=st.just("silence"), party=somebody),
    )
    faults = [draw(fault) for _ in range(draw(st.integers(1, 4)))]
    if protocol not in ("fedavg", "secagg"):
        variant = next(variant for variant in VARIANTS.values() if variant.protocol == protocol)
        return replace(variant, parties=parties), faults, draw(st.integers(0, 3))
    return Variant(protocol, parties, options, batch), faults, draw(st.integers(0, 3))


# Every seed must do, and a failure must come back: the examples are the same in every run.
@settings(derandomize=True, deadline=None, max_examples=120)
@given(plans())
def test_whatever_goes_wrong_at_once(check, plan):
    variant, faults, seed = plan
    check(variant, faults, variant.federation(faults, seed=seed), slower=3)
