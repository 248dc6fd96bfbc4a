"""Checks before a run: what the audit is asked about."""

import numpy as np
import pytest
from leaky._base import averaged, leaky

import tacit
from tacit.api import checked_run


@pytest.mark.parametrize("length", [3, 70])
def test_protocols_of_others_are_tried_on_vectors_of_the_deployed_length(monkeypatch, length):
    async def party(link, update, _terms, suite, _state):
        return await averaged(link, update, suite)

    asked = []
    monkeypatch.setattr(checked_run, "preflight", lambda *_, **question: asked.append(question) or ())
    tacit.aggregate([np.ones(length)] * 3, leaky(party))
    tacit.aggregate([np.ones(length)] * 3, "secagg")
    assert [question.get("length") for question in asked] == [length, None]
