"""Tests for the tokens of a symbolic run."""

import gc
import weakref

import pytest

from tacit.auditing.engine.symbolic_run import SymbolicRun
from tacit.auditing.scope import Scope
from tacit.auditing.symbolic.suite import Agreed, KeyShare, Made, Sealed, Tag, World


@pytest.fixture
def world():
    return World(lambda _: None)


@pytest.fixture
def key(world):
    return world.token(Made, ("p0", 1, 1), 32)


def test_a_token_stands_for_its_meaning(world, key):
    box, tag, shares = world.box(key, b"plain", b"here"), world.tag(key, b"so"), world.shares(key, 2, [1, 2, 3])
    assert world.meaning(box) == Sealed(key, b"plain", b"here")
    assert world.meaning(tag) == Tag(key, b"so")
    assert {holder: world.meaning(share) for holder, share in shares.items()} == {
        holder: KeyShare(key, holder, 2) for holder in (1, 2, 3)
    }
    assert [len(each) for each in (box, tag, shares[1])] == [5 + 28, 16, 33]


def test_equal_meanings_have_one_token(world, key):
    assert world.box(key, b"plain", b"") == world.box(key, b"plain", b"") != world.box(key, b"other", b"")
    assert world.tag(key, b"so") == world.tag(key, b"so") != world.tag(key, b"no")
    once, again = world.shares(key, 2, [1, 2]), world.shares(key, 2, [2, 3])
    assert once[2] == again[2]
    assert world.meaning(again[3]) == KeyShare(key, 3, 2)
    assert len({*once.values(), *again.values(), *world.shares(key, 3, [1, 2, 3]).values()}) == 6


def test_parts_of_tokens_stand_for_nothing(world, key):
    for token in (world.box(key, b"plain", b""), world.tag(key, b"so"), world.shares(key, 2, [1])[1]):
        for changed in (
            token[:-1],
            token + b"\0",
            token[:-1] + b"\7",
            token[8:],
            b"",
            token[:15] + b"\xff" + token[16:],
        ):
            assert world.meaning(changed) is None
            assert not world.knows(changed)


def test_a_tag_is_of_one_statement_under_one_key(world, key):
    other, tag = world.token(Made, ("p0", 1, 2), 32), world.tag(key, b"so")
    assert world.is_tag(tag, key, b"so")
    assert not world.is_tag(tag, key, b"no")
    assert not world.is_tag(tag, other, b"so")
    world.tag(other, b"so")
    assert not world.is_tag(tag, other, b"so")


def test_both_private_keys_lead_to_the_agreed_key(world, key):
    other = world.token(Made, ("p1", 1, 1), 32)
    ours, theirs = sorted((world.public(key), world.public(other)))
    agreed = world.token(Agreed, (ours, theirs, "label", b""), 32)
    assert world.agreements(key) == [(world.public(other), agreed)]
    assert world.agreements(other) == [(world.public(key), agreed)]


def test_the_memory_of_a_run_is_free_without_the_garbage_collector():
    gc.disable()
    try:
        run = SymbolicRun(Scope.of("secagg", ("p0", "p1", "p2", "p3"), {}))
        assert run.knowledge(["server"], 1).victims == []
        world = weakref.ref(run.simulation.world)
        del run
        assert world() is None
    finally:
        gc.enable()
