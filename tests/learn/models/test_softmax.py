from importlib.resources import files

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.learn.data.datasets import load
from tacit.learn.data.splits import dirichlet
from tacit.learn.models.softmax import Softmax


def digits():
    return load("digits", share=1).flat()


def test_digits_are_what_they_say():
    x, y = digits()
    assert (x.shape, x.dtype, x.min(), x.max()) == ((1797, 64), np.float64, 0.0, 1.0)
    assert (y.shape, y.dtype) == ((1797,), np.int64)
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.array_equal(x * 16, np.rint(x * 16))
    assert len(files("tacit.learn.data").joinpath("digits.npz").read_bytes()) < 80_000


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
    parts = [train[part] for part in dirichlet(y[train], 9, 0.5, rng)]
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
