"""The receiver of paper 001's PPSGD: one message is enough, unless it is masked."""

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.lab.attacks import receiver
from tacit.lab.attacks.receiver import KNOWN, MEASURES, TARGETS, ReceivedVector, receive_vectors
from tacit.lab.attacks.registry import find_attack


def test_a_known_entry_gives_the_factor_by_hand():
    received = ReceivedVector("p1", "p0", np.array([1.0, -2.0, 3.0]))
    assert received.with_known_entry(1, -1.0).tolist() == [0.5, -1.0, 1.5]
    assert received.error_of(np.array([2.0, -4.0, 6.0])) == 0, "up to a factor"
    assert received.error_of(np.array([2.0, -4.0, 6.0]), known=2) == 0
    assert received.error_of(np.array([2.0, -4.0, 8.0]), known=0) == 0.25


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_one_message_shows_the_senders_vector_unless_it_is_masked(target):
    transcript, vectors = target.run(seed=1)
    received = [each for party in vectors for each in receive_vectors(transcript, party)]
    assert len(received) == 10, "each of five clients hears two"
    masked = "masked" in target.options
    for each in received:
        truth = vectors[each.sender]
        assert (each.error_of(truth) < receiver.TOLERANCE) == (not masked)
        assert (each.error_of(truth, KNOWN) < receiver.TOLERANCE) == (not masked)
    if "private" in target.options and not masked:
        factors = [float(vectors[each.sender][KNOWN] / each.ratio[KNOWN]) for each in received]
        assert np.ptp(factors) > 1e-3, "the factors are private, and differ"


@pytest.mark.long
def test_findings_say_what_is_broken():
    attack = find_attack("receiver")
    found = attack.run(False, 0, ignore_progress)
    assert [(each.target, each.measure) for each in found] == [(t.name, m) for t in TARGETS for m in MEASURES]
    assert [each.broken for each in found] == [not each.target.endswith("masked") for each in found]
