"""Runs on long vectors against runs on short ones: what may depend on vectors and keys, and where."""

import pytest
from leaky._base import Bytes, Vector, averaged, leaky, tell

import tacit
from tacit.auditing.engine.soundness.checks import Guard
from tacit.auditing.engine.soundness.length_comparison import find_difference
from tacit.auditing.scope import Scope

PARTIES = ("p0", "p1", "p2")


def difference(shows, entries=300, short=2):
    """Returns what is found of a protocol in which everybody shows p0 ring elements, or bytes."""

    async def party(link, update, _terms, suite, _state):
        shown = shows(update.vector, suite)
        packed = shown if isinstance(shown, bytes) else memoryview(suite.ring.pack(shown))
        await tell(link, Bytes(packed) if isinstance(shown, bytes) else Vector(packed))
        return await averaged(link, update, suite)

    guard = Guard(Scope.of(leaky(party, Bytes, Vector), PARTIES, {}), 1)
    return find_difference(guard.run_lengths(short), guard.run_lengths(entries))


def masked(vector, suite, count):
    elements = suite.ring.values(vector)
    elements[:count] += suite.stream(suite.seed(), elements, len(elements))[:count]
    return elements


def test_vectors_under_masks_are_alike_at_any_length():
    assert difference(lambda vector, suite: masked(vector, suite, len(vector))) is None


def test_vectors_without_masks_are_so_at_any_length_and_are_left_to_the_audit():
    assert difference(lambda vector, suite: suite.ring.values(vector)) is None


@pytest.mark.parametrize("count", [10, 299])
def test_masks_that_are_too_short_are_found(count):
    found = difference(lambda vector, suite: masked(vector, suite, count))
    assert found == (
        "Vector from p1 to p0 in round 1, vector: with 300 entries it depends on vectors or keys in another way than "
        "with 2"
    )


def test_a_public_vector_may_be_as_long_as_the_model_and_may_not_hold_an_entry_of_it():
    assert difference(lambda vector, suite: suite.ring.values(0 * vector + 0.5)) is None
    assert difference(lambda vector, suite: suite.ring.values(vector * ([0] * 99 + [1] + [0] * 500)[: len(vector)]))


def test_a_field_that_depends_on_long_vectors_only_is_found():
    assert difference(lambda vector, _suite: b"%d" % len(vector)) is None
    assert difference(lambda vector, _suite: str(vector[200:].sum()).encode())


def test_who_sends_what_may_not_depend_on_the_length():
    async def party(link, update, _terms, suite, _state):
        if len(update.vector) > 100:
            await tell(link, Bytes(b""))
        return await averaged(link, update, suite)

    guard = Guard(Scope.of(leaky(party, Bytes), PARTIES, {}), 1)
    found = find_difference(guard.run_lengths(2), guard.run_lengths(101))
    assert found == "who sends what to whom in round 1 depends on how long vectors are"


def test_the_length_of_the_question_is_tried():
    async def party(link, update, _terms, suite, _state):
        await tell(link, Bytes(str(update.vector[700:701]).encode()))
        return await averaged(link, update, suite)

    protocol = leaky(party, Bytes)
    assert not tacit.audit(protocol, parties=PARTIES, coalition=["p0"], length=600).exposed
    with pytest.raises(tacit.NotAuditable, match="with 800 entries it depends on vectors"):
        tacit.audit(protocol, parties=PARTIES, coalition=["p0"], length=800)
