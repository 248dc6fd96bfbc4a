"""Thousands of damaged frames, for every function that decodes frames: no exception escapes, and nothing hangs."""

import sys
from importlib import import_module

import pytest

from support.paths import ROOT

FRAMES = 6_000


@pytest.fixture(scope="module")
def frames():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield import_module("fuzz.frames")


def test_nothing_is_raised_by_frames_that_were_damaged(frames, tmp_path):
    seen = frames.fuzz_frames(FRAMES, 3, tmp_path)
    assert sum(each.frames for each in seen.values()) == FRAMES
    # For each of these, both valid and invalid frames were tried.
    wanted = {
        "seats": {"not an envelope", "not authentic", "misdirected", "replayed", "from another session", "counted"},
        "inboxes": {"malformed", "broke the rules", "disagrees", "from another round", "counted"},
        "parcels": {"INVALID_ARGUMENT", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "DATA_LOSS"},
        "hellos": {"listened to", "not a hello"},
        "rounds": {"averaged", "gave up: peer", "gave up: not-enough"},
    }
    assert [(name, each) for name, reasons in wanted.items() for each in reasons - set(seen[name].outcomes)] == []


def test_what_is_raised_is_found(frames, tmp_path, monkeypatch):
    """The same frames, with decoders that raise only the errors that msgspec documents."""
    monkeypatch.setattr(frames.courier, "split_header", lambda data: (data[2], data))
    with pytest.raises(frames.Finding, match=r"^fedavg, parcels, frame \d+ of seed 3: "):
        frames.fuzz_frames(FRAMES, 3, tmp_path, ["fedavg"])


@pytest.mark.parametrize("protocol", ["secagg", "cesar"])
def test_frames_follow_from_their_seed(frames, protocol):
    made = frames.Federation.of(protocol)
    first, second, other = (
        [frames.Inboxes(made).take(frames.Chance(seed + number)) for number in range(50)] for seed in (0, 0, 100)
    )
    assert first == second != other


def test_the_fuzzer_that_is_guided_is_needed_by_nobody():
    assert "atheris" not in sys.modules
    assert "atheris" not in (ROOT / "pyproject.toml").read_text()
