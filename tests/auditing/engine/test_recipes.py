"""Recipes are proved on vectors that the settings leave whole, and refuse transcripts of other runs."""

import numpy as np
import pytest

import tacit
from tacit.auditing.findings import NoteCode

ONCE = [{"action": "silence", "party": "p1", "round": 3}]


@pytest.mark.parametrize(
    ("protocol", "coalition", "options"),
    [
        ("fedavg", ["server"], {"clip": 0.2}),
        ("secagg", ["server"], {"clip": 1e-6, "rounds": 20, "faults": ONCE}),
        ("gossip", ["p0"], {"clip": 0.01}),
        ("secagg", ["server"], {"clip": 0.05, "rounds": 3, "faults": ONCE}),
        ("admm", ["p0"], {"clip": 0.01, "iterations": 6}),
        ("admm", ["p0"], {"rho": 1000.0, "iterations": 6}),
    ],
)
def test_recipes_are_proved_whatever_the_clip(protocol, coalition, options):
    report = tacit.audit(protocol, parties=9 if protocol == "admm" else 5, coalition=coalition, **options)
    assert report.exposed
    assert [note for note in report.notes if note.code == NoteCode.REPLAY_FAILED] == []
    largest = min(1.0, options.get("clip", 1.0))
    assert max(report.errors.values()) < 1e-6 * largest


def test_recipes_are_proved_on_given_vectors_that_are_cut_off():
    rng = np.random.default_rng(3)
    vectors = [rng.normal(size=12) for _ in range(4)]
    options = {"graph": "ring", "share": 0.5, "sparsifier": "topk", "clip": 0.5}
    report = tacit.audit("gossip", parties=4, coalition=["p0"], rounds=2, vectors=vectors, **options)
    assert report.exposed
    assert max(report.errors.values()) < 1e-6


def test_transcripts_of_other_settings_are_refused():
    question = {"parties": 5, "rounds": 3, "neighbours": 3}
    recipe = tacit.audit("secagg", coalition=["server"], faults=ONCE, **question).exposed["p1"]
    federation = tacit.Federation(
        "secagg", [f"p{place}" for place in range(5)], record=True, neighbours=3, allow_leaks=True
    )
    transcripts = [
        federation.average({f"p{place}": np.full(4, float(place)) for place in range(5)}).transcript for _ in range(3)
    ]
    with pytest.raises(tacit.ConfigError, match="settings"):
        recipe.recover(transcripts[:1])
