"""Gradient inversion: what the server finds in the messages it really receives."""

import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="gradients are inverted by torch")

import torch

from tacit.core.errors import MissingExtra
from tacit.core.progress import ignore_progress
from tacit.lab.attacks import inversion
from tacit.lab.attacks.inversion import (
    FEW,
    InversionScale,
    InversionTarget,
    attempt_inversion,
    closed_form,
    find_nearest,
    guessable_share,
    labels_in,
)
from tacit.learn.data.datasets import load

pytestmark = pytest.mark.long

X, Y = load("digits", share=1).flat()
RNG = np.random.default_rng(4)
THETA = inversion.initial_model(RNG)
CHOSEN = RNG.choice(len(X), FEW, replace=False)
IMAGES, LABELS = X[CHOSEN], Y[CHOSEN].tolist()


def gradient(images, labels, theta=THETA):
    return inversion.gradient(torch.tensor(theta), torch.tensor(images), torch.tensor(labels)).numpy()


@pytest.fixture(scope="module")
def rounds():
    return {
        protocol: inversion.play_round(protocol, THETA, IMAGES, LABELS, seed=0) for protocol in ("fedavg", "secagg")
    }


def test_the_gradient_is_that_of_the_loss():
    theta = torch.tensor(THETA, requires_grad=True)
    _, p = inversion.predict(theta, torch.tensor(IMAGES))
    loss = -p[torch.arange(FEW), torch.tensor(LABELS)].log().mean()
    (expected,) = torch.autograd.grad(loss, theta)
    np.testing.assert_allclose(gradient(IMAGES, LABELS), expected.numpy(), atol=1e-12)


def test_fedavg_shows_every_gradient_to_the_server(rounds):
    assert len(rounds["fedavg"].single) == FEW
    for image, label, g in zip(IMAGES, LABELS, rounds["fedavg"].single, strict=True):
        np.testing.assert_allclose(g, gradient(image[np.newaxis], [label]), atol=1e-6)


def test_secagg_shows_the_same_average_and_nothing_else(rounds):
    np.testing.assert_array_equal(rounds["secagg"].average, rounds["fedavg"].average)
    np.testing.assert_allclose(rounds["secagg"].average, gradient(IMAGES, LABELS), atol=1e-6)
    for masked, plain in zip(rounds["secagg"].single, rounds["fedavg"].single, strict=True):
        assert abs(np.corrcoef(masked, plain)[0, 1]) < 0.1
        assert np.abs(masked).mean() > 100 * np.abs(plain).max()  # anywhere in the ring


def test_the_label_of_one_image_is_always_told():
    for place in RNG.choice(len(X), 40, replace=False):
        assert labels_in(THETA, gradient(X[place : place + 1], [Y[place]]), 1) == [Y[place]]


def test_the_labels_of_a_batch_are_told():
    assert labels_in(THETA, gradient(IMAGES, LABELS), FEW) == sorted(LABELS)
    twice = [LABELS[0]] * 2
    assert labels_in(THETA, gradient(IMAGES[:2], twice), 2) == twice


def test_the_closed_form_is_exact_for_one_image_and_only_for_one():
    np.testing.assert_allclose(closed_form(gradient(IMAGES[:1], LABELS[:1])), IMAGES[:1], atol=1e-9)
    mixed = closed_form(gradient(IMAGES, LABELS))
    assert all(find_nearest(image, mixed)[0] < inversion.ALIKE for image in IMAGES)


def test_optimisation_finds_the_image(rounds):
    for i in range(3):
        tried = attempt_inversion(THETA, rounds["fedavg"].single[i], IMAGES[i : i + 1], LABELS[i : i + 1], 60, RNG)
        np.testing.assert_allclose(tried.found, IMAGES[i : i + 1], atol=0.01)
        assert tried.alike[0] > 0.999
        assert tried.labels == 1


def test_optimisation_does_not_find_it_under_masks(rounds):
    for i in range(3):
        tried = attempt_inversion(THETA, rounds["secagg"].single[i], IMAGES[i : i + 1], LABELS[i : i + 1], 60, RNG)
        assert tried.alike[0] < 0.7


def test_the_average_of_two_shows_both():
    found = inversion.invert_gradient(THETA, gradient(IMAGES[:2], LABELS[:2]), sorted(LABELS[:2]), 300, RNG)
    assert found.shape == (2, 64)
    assert all(find_nearest(image, found)[0] > inversion.ALIKE for image in IMAGES[:2])


def test_nearest_is_the_most_alike_at_any_brightness():
    found = np.array([IMAGES[1], 0.2 + 0.5 * IMAGES[0], np.zeros(64)])
    alike, best = find_nearest(IMAGES[0], found)
    assert alike == pytest.approx(1.0)
    np.testing.assert_array_equal(best, found[1])
    assert find_nearest(IMAGES[0], np.zeros((1, 64)))[0] == 0.0


def test_an_image_is_not_found_by_coincidence():
    centred = X - X.mean(axis=1, keepdims=True)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    alike = centred @ centred.T
    np.fill_diagonal(alike, -1)
    share = np.mean(alike.max(axis=1) > inversion.ALIKE)
    assert 0.5 * inversion.COINCIDENCE < share < inversion.COINCIDENCE


def test_what_guessing_tells_of_labels():
    assert guessable_share(1) == pytest.approx(0.1)
    rng = np.random.default_rng(0)
    drawn = [inversion.count_common(range(FEW), rng.integers(0, 10, FEW)) / FEW for _ in range(4000)]
    assert guessable_share(FEW) == pytest.approx(np.mean(drawn), abs=0.01)
    assert guessable_share(FEW) < guessable_share(64) < 1


def test_labels_in_common_are_counted_with_multiplicity():
    assert inversion.count_common([1, 1, 2], [2, 1, 3]) == 2
    assert inversion.count_common([1, 1], [1, 1]) == 2


@pytest.fixture(scope="module")
def targets():
    return inversion.measure_targets(InversionScale({FEW: 1}, steps=60, cheap_rounds=2), seed=1)


def test_fedavg_is_broken_and_a_masked_message_is_not(targets):
    findings = {(finding.target, finding.measure): finding for target in targets for finding in target.findings}
    images, labels = "share of images found", "share of labels found"
    for target in ("fedavg, one client, solved for at once", "fedavg, one client, by a search"):
        assert findings[target, images].value == 1.0
        assert findings[target, images].broken
    assert findings["fedavg, one client", labels].value == 1.0
    for target in ("secagg, one client, solved for at once", "secagg, one client, by a search"):
        assert findings[target, images].value == 0.0
        assert findings[target, images].verdict == "not_broken_by_this"
    assert findings["secagg, one client", labels].samples == 3 * FEW
    assert not findings["secagg, one client", labels].broken
    assert findings["secagg, average over 8 clients", f"{labels}, without their owner"].samples == FEW


def test_controls_come_first(targets):
    assert [target.name.split()[0] for target in targets] == ["fedavg,"] * 2 + ["secagg,"] * 3


def test_pictures_show_the_same_image_by_each_way(targets):
    shown = inversion.collect_pictures(targets)
    assert len(shown) == FEW
    for picture in shown:
        assert picture.truth.shape == (8, 8)
        np.testing.assert_allclose(picture.fedavg, picture.truth, atol=0.02)
        assert np.corrcoef(picture.secagg.ravel(), picture.truth.ravel())[0, 1] < 0.9
        assert np.corrcoef(picture.average.ravel(), picture.truth.ravel())[0, 1] > 0.3


def test_the_same_seed_gives_the_same_result_and_progress_is_told(targets):
    told = []
    again = inversion.measure_targets(
        InversionScale({FEW: 1}, steps=60, cheap_rounds=2), 1, lambda _, done: told.append(done)
    )
    for one, other in zip(targets, again, strict=True):
        assert one.name == other.name
        for left, right in zip(one.attempts, other.attempts, strict=True):
            np.testing.assert_array_equal(left.found, right.found)
    assert told == [0, 1 / 3, 2 / 3]


def test_a_target_counts_what_was_found():
    tried = inversion.Attempt(IMAGES[:2], IMAGES[:2], np.array([1.0, 0.5]), labels=1)
    images, labels = InversionTarget("some", "by a search", images=2, attempts=[tried, tried]).findings
    assert (images.value, images.samples, labels.value) == (0.5, 4, 0.5)
    assert len(InversionTarget("some", "by a search", images=2, labels=False, attempts=[tried]).findings) == 1


def test_without_torch_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"tacit\[torch\]"):
        inversion.ATTACK.run(False, 0, ignore_progress)


@pytest.mark.slow
def test_the_quick_run_ends_as_expected():
    findings = inversion.ATTACK.run(False, 0, ignore_progress)
    controls = [finding for finding in findings if finding.target.startswith("fedavg")]
    assert findings[: len(controls)] == controls
    assert all(finding.value == 1.0 for finding in controls)
    assert not any(finding.broken for finding in findings if finding.target.startswith("secagg, one client"))
