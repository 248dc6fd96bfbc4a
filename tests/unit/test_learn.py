from importlib.resources import files

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.learn.datasets import digits
from tacit.learn.models import Softmax
from tacit.learn.splits import by_label, even


def test_digits_are_what_they_say():
    x, y = digits()
    assert (x.shape, x.dtype, x.min(), x.max()) == ((1797, 64), np.float64, 0.0, 1.0)
    assert (y.shape, y.dtype) == ((1797,), np.int64)
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.array_equal(x * 16, np.rint(x * 16))
    assert len(files("tacit.learn").joinpath("digits.npz").read_bytes()) < 80_000


@pytest.mark.parametrize(("count", "parties"), [(10, 1), (10, 3), (10, 10), (1797, 9)])
def test_even_splits_cover_everything_once(count, parties):
    parts = even(count, parties, np.random.default_rng(0))
    assert np.sort(np.concatenate(parts)).tolist() == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("alpha", [0.001, 0.5, 1e6])
@pytest.mark.parametrize("parties", [1, 9, 100])
def test_splits_by_label_cover_everything_once_and_leave_nobody_out(alpha, parties):
    _, y = digits()
    parts = by_label(y, parties, alpha, np.random.default_rng(1))
    assert len(parts) == parties
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(y)))
    assert min(map(len, parts)) >= 1


def test_as_many_parties_as_samples_get_one_each():
    parts = by_label(np.zeros(20, np.int64), 20, 0.01, np.random.default_rng(0))
    assert [len(part) for part in parts] == [1] * 20


def test_samples_of_a_label_are_shuffled_before_they_are_dealt_out():
    first, second = by_label(np.zeros(100, np.int64), 2, 1e6, np.random.default_rng(0))
    assert first.min() < second.max()
    assert second.min() < first.max()


def test_a_small_alpha_means_few_labels_and_a_large_one_all():
    _, y = digits()

    def largest_share(alpha):
        parts = by_label(y, 9, alpha, np.random.default_rng(2))
        return np.mean([np.bincount(y[part]).max() / len(part) for part in parts])

    assert largest_share(0.01) > 0.5
    assert largest_share(1e6) < 0.13


def test_splits_repeat_with_the_generator():
    _, y = digits()
    first, again, other = (by_label(y, 9, 0.5, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


@pytest.mark.parametrize("parties", [0, -1, 6])
def test_impossible_splits_are_refused(parties):
    rng = np.random.default_rng(0)
    with pytest.raises(ConfigError, match="5 samples"):
        even(5, parties, rng)
    with pytest.raises(ConfigError, match="5 samples"):
        by_label(np.zeros(5, np.int64), parties, 0.5, rng)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf"), 1e-200])
def test_impossible_concentrations_are_refused(alpha):
    with pytest.raises(ConfigError, match="alpha"):
        by_label(np.zeros(5, np.int64), 2, alpha, np.random.default_rng(0))


def test_the_gradient_agrees_with_finite_differences():
    rng = np.random.default_rng(5)
    softmax = Softmax(classes=4, features=6)
    model = {name: rng.normal(size=values.shape) for name, values in softmax.initial().items()}
    x, y = rng.normal(size=(11, 6)), rng.integers(0, 4, 11)
    _, gradient = softmax.loss_and_gradient(model, x, y)
    step = 1e-6
    for name, values in model.items():
        for place in np.ndindex(values.shape):
            there, back = ({**model, name: values.copy()} for _ in range(2))
            there[name][place] += step
            back[name][place] -= step
            rise = softmax.loss_and_gradient(there, x, y)[0] - softmax.loss_and_gradient(back, x, y)[0]
            assert gradient[name][place] == pytest.approx(rise / (2 * step), abs=1e-8)


def test_the_loss_of_the_initial_model_is_that_of_guessing():
    x, y = digits()
    loss, _ = Softmax(10, 64).loss_and_gradient(Softmax(10, 64).initial(), x, y)
    assert loss == pytest.approx(np.log(10))


def test_huge_scores_do_not_overflow():
    softmax = Softmax(classes=2, features=1)
    model = {"weights": np.array([[1e4, -1e4]]), "bias": np.zeros(2)}
    loss, gradient = softmax.loss_and_gradient(model, np.array([[1.0]]), np.array([1]))
    assert loss == pytest.approx(2e4)
    assert gradient["weights"].tolist() == [[1.0, -1.0]]


def test_training_leaves_the_given_model_alone_and_repeats():
    x, y = digits()
    softmax = Softmax(10, 64)
    start = softmax.initial()

    def trained(seed):
        return softmax.train_locally(start, x, y, epochs=1, rate=0.5, batch=32, rng=np.random.default_rng(seed))

    assert not start["weights"].any()
    assert np.array_equal(trained(0)["weights"], trained(0)["weights"])
    assert not np.array_equal(trained(0)["weights"], trained(1)["weights"])
    assert not start["weights"].any()


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"rate": float("nan")}])
def test_settings_that_train_nothing_are_refused(bad):
    x, y = digits()
    with pytest.raises(ConfigError):
        Softmax(10, 64).train_locally(
            Softmax(10, 64).initial(),
            x,
            y,
            rng=np.random.default_rng(0),
            **{"epochs": 1, "batch": 16, "rate": 0.5, **bad},
        )


def test_nine_unequal_parties_learn_digits_by_averaging():
    x, y = digits()
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, test = order[:1437], order[1437:]
    parts = [train[part] for part in by_label(y[train], 9, 0.5, rng)]
    softmax = Softmax(10, 64)
    model = softmax.initial()
    for _ in range(20):
        local = [
            softmax.train_locally(model, x[part], y[part], epochs=2, rate=1.0, batch=16, rng=rng) for part in parts
        ]
        model = {name: np.mean([one[name] for one in local], axis=0) for name in model}
    assert softmax.accuracy(model, x[test], y[test]) >= 0.93
    alone = max(softmax.accuracy(one, x[test], y[test]) for one in local)
    assert softmax.accuracy(model, x[test], y[test]) > alone
