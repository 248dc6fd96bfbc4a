"""The eavesdropper of paper 001: its formulas, what it hears on open and on sealed links, and what it makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.core.progress import ignore_progress
from tacit.lab.attacks import eavesdropper_decoders, eavesdropper_decoding
from tacit.lab.attacks.eavesdropper_decoders import ClientMasses
from tacit.lab.attacks.eavesdropper_decoding import (
    SAME_SUM,
    TARGETS,
    SquareLosses,
    find_recovered,
    listen_to,
    run_target,
)
from tacit.vectors.fixedpoint import FixedPoint

pytestmark = pytest.mark.long

PPSGD = next(target for target in TARGETS if target.name == "pushsum with private weights" and target.rounds == 5)
PSGD = next(target for target in TARGETS if target.name == "pushsum")
MASKED = next(target for target in TARGETS if target.name.endswith("masked"))
FEWER = TARGETS[-1]
SURE = [target for target in TARGETS[:-1] if target.rounds != 4 or target.coordinates]


def named(target):
    return f"{target.name}, {target.rounds} rounds"


def masses(training):
    """Returns what clients really pushed, [round, sender, receiver, entry]."""
    heard = listen_to(training, sealed=False)
    return heard.numbers(heard.pushed)


def start_of(training, i):
    """Returns the secret y_i(0)."""
    return float(training.transcripts[0].holdings[f"p{i}"].vectors[0][0])


# --- the formulas, by hand -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [1, 2, 5])
def test_fedavg_by_hand(epochs):
    """a = 1, η = 1/4 and w* = 4: each epoch halves the distance to 4, and the decoder need not know how many."""
    w = np.array([0.0, 2.0])
    assert eavesdropper_decoders.decode_fedavg(w, 4 + (w - 4) / 2**epochs) == 4


def test_two_steps_by_hand():
    """d = −2 η a (w − w*) with a = 3 and w* = 1/2."""
    w, eta = np.array([1.0, -1.0]), np.array([0.5, 0.25])
    d = np.array([-1.5, 2.25])
    a, w_star = eavesdropper_decoders.decode_steps(w, d, eta)
    assert (a, w_star) == (3, 0.5)
    as_printed = d[0] / (2 * a * eta[0] + w[0])
    assert as_printed != w_star


def test_the_losses_of_the_paper():
    """(16), at some point: 2w − 4, 2w − 9, 2w − 4, 2w − 4 and 2w + 1; they add up to 10 (w − 2)."""
    losses = SquareLosses.of_the_paper()
    assert losses.gradient(np.full((5, 1), 3.0)).ravel().tolist() == [2, -3, 2, 2, 7]
    assert losses.gradient(np.full((5, 1), 2.0)).sum() == 0


# --- what is heard -------------------------------------------------------------------------------------------------


def test_open_links_carry_what_clients_bring():
    training = run_target(replace(TARGETS[0], rounds=1), 0)
    brought = np.array([training.transcripts[0].holdings[f"p{i}"].update.vector for i in range(5)])
    heard = listen_to(training, sealed=False)
    ring = FixedPoint(64, 32.0, 5, 3)
    to_server = heard.elements[0, :5, 5]
    assert to_server[:, :3].tolist() == [ring.values(vector).tolist() for vector in brought]
    assert to_server[:, 3:].tolist() == [[ring.heaviest, 0]] * 5, "a weight, the same for all, and a zero"
    from_server = heard.elements[0, 5, :5]
    assert (from_server == to_server.sum(axis=0)).all()
    assert not heard.elements[0, :5, :5].any(), "clients do not talk to each other"


@pytest.mark.parametrize("target", TARGETS, ids=named)
def test_sealed_links_are_heard_in_the_same_places_and_are_noise(target):
    training = run_target(target, 0)
    in_open, sealed = (listen_to(training, sealed=each).elements for each in (False, True))
    carried = in_open.any(axis=-1)
    assert (carried == sealed.any(axis=-1)).all()
    used = slice(1, None) if target.protocol == "gossip" else slice(None)
    assert not (in_open[carried][:, used] == sealed[carried][:, used]).any()
    bits = np.unpackbits(sealed[carried][:, used].copy().view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_a_ledger_that_knows_the_start_knows_everything():
    """With the true y_i(0) it has the client's mass and model, as these are in its own memory."""
    training = run_target(PPSGD, 3)
    for i in range(5):
        y, w, d = ClientMasses.of(masses(training), i).steps(start_of(training, i))
        inputs = [each.holdings[f"p{i}"].update.vector for each in training.transcripts]
        # What was brought to round t, less the model before it, is the gradient step.
        assert np.allclose(d, np.array(inputs[1:]) - w, atol=1e-12)
        # And what the eavesdropper counts of y over the rounds is what the client has of it.
        kept = y[:, 0] + ClientMasses.of(masses(training), i).gained[1:, -1]
        assert (kept > 0).all()


def test_the_true_start_is_among_the_few_that_are_possible():
    training = run_target(PPSGD, 4)
    for i in range(5):
        starts = list(ClientMasses.of(masses(training), i).starts(PPSGD.eta[:4, np.newaxis]))
        assert min(abs(start - start_of(training, i)) for start in starts) < 1e-9
        assert len(starts) <= 2 * 4, "two times three steps, and at most four roots each"


# --- what comes of it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", SURE, ids=named)
def test_open_links_give_every_local_model_away_and_sealed_ones_none(target):
    for seed in range(4):
        training = run_target(target, seed)
        assert find_recovered(training, sealed=False).all()
        assert not find_recovered(training, sealed=True).any()


def test_four_rounds_leave_some_clients_open_and_the_fifth_decides():
    """From three steps a wrong root may do as well as the right one, but not from four."""
    four = np.array([find_recovered(run_target(replace(PPSGD, rounds=4), seed), sealed=False) for seed in range(12)])
    five = np.array([find_recovered(run_target(PPSGD, seed), sealed=False) for seed in range(12)])
    assert 0 < (~four).sum() < four.size / 4
    assert five.all()


@pytest.mark.parametrize(
    ("losses", "start"),
    [
        (SquareLosses.of_the_paper(), np.zeros((5, 1))),
        (SquareLosses.of_the_paper(), SquareLosses.of_the_paper().w_star),
        (SquareLosses(np.full((5, 1), 1e-2), np.arange(5.0)[:, np.newaxis]), np.ones((5, 1))),
        (
            SquareLosses(np.array([[0.01], [0.1], [1.0], [2.0], [4.0]]), SquareLosses.of_the_paper().w_star),
            np.zeros((5, 1)),
        ),
    ],
    ids=["all start at zero", "all start at their optimum", "flat losses", "losses of all curvatures"],
)
def test_starts_and_losses_that_might_be_bad_luck(losses, start):
    for seed in range(3):
        assert find_recovered(run_target(PPSGD, seed, losses, start), sealed=False).all()


def test_where_nothing_moves_nothing_is_learned():
    """All clients have the same optimum and start there, so that no gradient is ever seen."""
    still = SquareLosses(np.ones((5, 1)), np.zeros((5, 1)))
    training = run_target(PPSGD, 0, still, np.zeros((5, 1)))
    with np.errstate(all="ignore"):
        assert np.isnan(eavesdropper_decoders.decode_ppsgd(masses(training), PPSGD.eta)).all()
        assert np.isnan(eavesdropper_decoders.decode_ppsgd(np.zeros((5, 5, 5, 2)), PPSGD.eta)).all()


def test_an_eavesdropper_who_errs_about_the_step_sizes_learns_nothing():
    training = run_target(PPSGD, 0)
    found = eavesdropper_decoders.decode_ppsgd(masses(training), PPSGD.eta**2)
    assert not (np.abs(found - training.losses.w_star) < 1e-3).any()


def test_private_starts_are_what_the_plain_decoder_fails_on():
    """So it is not for nothing that the start is solved for."""
    training = run_target(PPSGD, 0)
    found = eavesdropper_decoders.decode_psgd(masses(training), PPSGD.eta)
    assert not (np.abs(found - training.losses.w_star) < 1e-3).any()


def test_masks_hide_each_mass_but_the_sums_say_them_all():
    training = run_target(MASKED, 0)
    heard = listen_to(training, sealed=False)
    with np.errstate(all="ignore"):
        masked = eavesdropper_decoding.from_ppsgd(heard)
        assert not (np.abs(masked - training.losses.w_star) < 1e-3).any()
    assert find_recovered(training, sealed=False).all()


def test_with_fewer_sums_than_clients_no_mass_follows_from_the_sums():
    links = listen_to(run_target(replace(FEWER, rounds=1), 0), sealed=False).links
    assert links.sum() == len(SAME_SUM.edges)
    assert np.linalg.matrix_rank(links) == 4
    determined = np.linalg.pinv(links.T) @ links.T
    assert (np.diag(determined) < 0.9).all()
    for seed in range(4):
        assert not find_recovered(run_target(FEWER, seed), sealed=False).any()


def test_findings_are_counted_and_ordered(monkeypatch):
    monkeypatch.setattr(eavesdropper_decoding, "TARGETS", (PSGD, FEWER))
    told = []

    def progress(doing, done):
        told.append(done)
        assert doing

    findings = eavesdropper_decoding.ATTACK.run(False, 7, progress)
    assert [(finding.value, finding.samples, finding.broken) for finding in findings] == [
        (1, 20, True),
        (1, 100, True),
        (0, 20, False),
        (0, 100, False),
        (0, 100, False),
        (0, 100, False),
    ]
    assert ["sealed" in finding.target for finding in findings] == [False] * 4 + [True] * 2
    assert told == sorted(told)
    assert told[-1] == 1


def test_all_clients_of_a_run_are_harder_to_get_than_one():
    some = np.array([[True, True], [True, False]])
    assert eavesdropper_decoding.count_recovered("", some, whole=True).value == 0.5
    assert eavesdropper_decoding.count_recovered("", some, whole=False).value == 0.75


@pytest.mark.slow
def test_ppsgd_two_hundred_times():
    runs = [run_target(PPSGD, seed) for seed in range(200)]
    all_five = [find_recovered(each, sealed=False).all() for each in runs]
    assert sum(all_five) >= 0.95 * 200
    assert not any(find_recovered(each, sealed=True).any() for each in runs)


@pytest.mark.slow
def test_everything_in_full():
    findings = eavesdropper_decoding.ATTACK.run(True, 0, ignore_progress)
    broken = [finding for finding in findings if finding.broken]
    assert len(broken) == 2 * (len(TARGETS) - 1)
    assert all("open" in finding.target for finding in broken)
