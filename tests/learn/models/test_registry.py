"""Models: how many parameters they have, that their gradients are right, and what does not fit."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

from tacit.core.errors import ConfigError, MissingExtra
from tacit.learn.data.samples import Dataset
from tacit.learn.models.numpy_models import DescentStep
from tacit.learn.models.registry import MODELS, NumpyModel, TorchModel, build


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(*shape, classes=10, count=12, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (count, *shape)).astype(np.uint8), rng.integers(0, classes, count)
    return Dataset("pictures", x, y, x, y, "images", classes)


def text(tokens=80, count=6, length=50, seed=0):
    x = np.random.default_rng(seed).integers(0, tokens, (count, length))
    return Dataset("verses", x, np.roll(x, -1, axis=1), x, x, "text", tokens)


def ratings(users=6, items=9, count=40, seed=0):
    rng = np.random.default_rng(seed)
    x = np.stack([rng.integers(0, users, count), rng.integers(0, items, count)], axis=1)
    x[0], y = (users - 1, items - 1), rng.integers(1, 11, count).astype(np.float32) / 2
    return Dataset("stars", x, y, x, y, "ratings", 0)


def features(count=20, width=7, classes=0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, width)).astype(np.float32)
    y = rng.integers(0, classes, count) if classes else rng.normal(size=count).astype(np.float32)
    return Dataset("numbers", x, y, x, y, "features", classes)


# --- sizes -----------------------------------------------------------------------------------------------------------

COUNTS = [
    ("softmax", images(28, 28), {}, 7_850),
    ("mlp", images(28, 28), {}, 101_770),
    ("mlp", images(28, 28), {"hidden": [200, 200]}, 199_210),
    ("linear", features(width=13), {}, 14),
    ("linear", features(width=1), {"bias": False}, 1),
    ("logistic", features(width=20, classes=2), {}, 21),
    ("factorization", ratings(610, 9724), {}, 206_680),
    ("factorization", ratings(610, 9724), {"factors": 19, "biases": True}, 206_680),
    ("femnist-cnn", images(28, 28), {}, 1_620_362),
    ("femnist-cnn", images(28, 28), {"kernel": 5}, 1_663_370),
    ("gru", text(80), {}, 106_640),
    ("lenet", images(32, 32, 3), {}, 62_006),
    ("gn-lenet", images(32, 32, 3), {}, 89_834),
    ("celeba-cnn", images(84, 84, 3, classes=2), {}, 30_242),
    ("resnet-18", images(32, 32, 3), {}, 11_173_962),
    ("resnet", images(32, 32, 3), {}, 19_954),
    ("resnet", images(32, 32, 3), {"widths": [4, 8], "blocks": 2}, 2_942),
]


@pytest.mark.parametrize(("name", "data", "options", "count"), COUNTS)
def test_models_have_as_many_parameters_as_the_papers_say(name, data, options, count):
    model = build(name, data, **options)
    assert (model.name, model.trained) == (name, count)
    buffers = {"resnet-18": 9_600, "resnet": 336 if not options else 120}.get(name, 0)
    assert model.parameters == model.layout.size == count + buffers
    first, again = (model.initial(np.random.default_rng(1)) for _ in range(2))
    assert (first.shape, first.dtype) == ((model.parameters,), np.float32)
    assert np.array_equal(first, again)
    if name in ("mlp", "lenet", "factorization"):
        assert not np.array_equal(first, model.initial(np.random.default_rng(2)))


def test_every_model_is_counted_above():
    assert {name for name, *_ in COUNTS} == set(MODELS)


# --- models in NumPy -------------------------------------------------------------------------------------------------


def loss_of(name, model, theta, x, y, options):
    """Returns the loss of each sample by PyTorch, from a flat vector."""
    arrays, start = {}, 0
    for entry in model.layout.entries:
        arrays[entry.name] = theta[start : start + entry.size].reshape(entry.shape)
        start += entry.size
    if name == "factorization":
        said = (arrays["users"][x[:, 0]] * arrays["items"][x[:, 1]]).sum(1)
        if options.get("biases"):
            said = said + arrays["user_bias"][x[:, 0]] + arrays["item_bias"][x[:, 1]]
        return (said - y) ** 2
    said = x.reshape(len(x), -1)
    layers = [entry.name.removesuffix("weights") for entry in model.layout.entries if entry.name.endswith("weights")]
    for layer in layers:
        said = said @ arrays[f"{layer}weights"].T + arrays.get(f"{layer}bias", 0)
        if layer != layers[-1]:
            said = torch.relu(said)
    if name == "linear":
        return (said[:, 0] - y) ** 2
    if name == "logistic":
        truth = torch.isin(y, torch.tensor(options.get("positive", (1,)))).double()
        return nn.functional.binary_cross_entropy_with_logits(said[:, 0].double(), truth, reduction="none")
    return nn.functional.cross_entropy(said, y, reduction="none")


FUSED = [
    ("softmax", images(4, 4), {}),
    ("softmax", features(classes=3), {}),
    ("mlp", images(4, 4), {"hidden": [11]}),
    ("mlp", images(4, 4, 3), {"hidden": [7, 5]}),
    ("linear", features(), {}),
    ("linear", features(), {"bias": False}),
    ("logistic", features(classes=2), {"l2": 0.3}),
    ("logistic", features(classes=5), {"l2": 0.0, "positive": (1, 3)}),
    ("factorization", ratings(), {}),
    ("factorization", ratings(), {"biases": True, "factors": 3}),
]
PARTIES, BATCH = 3, 6


def stacked(model, data, seed=3):
    """Returns models and samples of three parties in float64; the second has two samples fewer."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(PARTIES, model.parameters)) * 0.5
    chosen = rng.integers(0, len(data.y), (PARTIES, BATCH))
    x = data.inputs(data.x)[chosen]
    x = x if data.kind == "ratings" else x.astype(np.float64)
    y = data.y[chosen] if data.classes else data.y[chosen].astype(np.float64)
    sizes = np.array([BATCH, BATCH - 2, BATCH])[:, np.newaxis]
    return matrix, x, y, (np.arange(BATCH) < sizes) / sizes


def reference(name, model, options, matrix, x, y, weights, clip=None):
    """Returns losses and gradients of each party, sample by sample, by autograd in float64."""
    losses, gradients = [], []
    for theta, xs, ys, ws in zip(matrix, x, y, weights, strict=True):
        total, mean = np.zeros(len(theta)), 0.0
        for i in np.flatnonzero(ws):
            point = torch.tensor(theta, requires_grad=True)
            loss = loss_of(name, model, point, torch.tensor(xs[i : i + 1]), torch.tensor(ys[i : i + 1]), options).sum()
            gradient = torch.autograd.grad(loss, point)[0].numpy()
            length = np.linalg.norm(gradient)
            total += ws[i] * gradient * (1 if clip is None or length <= clip else clip / length)
            mean += ws[i] * float(loss.detach())
        l2 = options.get("l2", 0.0)
        losses.append(mean + l2 / 2 * theta @ theta)
        gradients.append(total + l2 * theta)
    return np.array(losses), np.array(gradients)


@pytest.mark.parametrize("clip", [None, 0.4, 1e6])
@pytest.mark.parametrize(("name", "data", "options"), FUSED)
def test_gradients_are_those_of_autograd(name, data, options, clip):
    model = build(name, data, **options)
    matrix, x, y, weights = stacked(model, data)
    before, out = matrix.copy(), np.full_like(matrix, np.nan)
    losses = model.gradients(matrix, x, y, weights, out, clip)
    expected, gradients = reference(name, model, options, matrix, x, y, weights, clip)
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    np.testing.assert_allclose(out, gradients, rtol=1e-9, atol=1e-12)
    assert np.array_equal(matrix, before)
    if clip == 0.4:
        free = np.empty_like(out)
        model.gradients(matrix, x, y, weights, free)
        assert not np.allclose(free, out), "nothing was clipped"


@pytest.mark.parametrize("step", [DescentStep(0.2), DescentStep(0.2, 0.9), DescentStep(0.2, 0.9, 0.4)])
@pytest.mark.parametrize(("name", "data", "options"), FUSED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_step_in_place_is_that_of_the_gradient(name, data, options, step, dtype):
    model = build(name, data, **options)
    matrix, x, y, weights = stacked(model, data)
    x = x if data.kind == "ratings" else x.astype(dtype)
    y = y if data.classes else y.astype(dtype)
    matrix, weights, out = matrix.astype(dtype), weights.astype(dtype), np.empty(matrix.shape, dtype)
    losses = model.gradients(matrix, x, y, weights, out, step.clip)
    expected = step.keep * matrix - step.rate * out
    assert np.array_equal(model.descend(matrix, x, y, weights, step), losses)
    assert matrix.dtype == losses.dtype == dtype
    np.testing.assert_allclose(matrix, expected, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=1e-6)


def test_rows_that_cannot_be_written_through_are_refused():
    model = build("factorization", ratings())
    matrix, x, y, weights = stacked(model, ratings())
    with pytest.raises(ValueError, match="one behind the other"):
        model.descend(np.asfortranarray(matrix), x, y, weights, DescentStep(0.1))


def test_one_party_that_overflows_spoils_no_other():
    data = images(4, 4)
    model = build("mlp", data, hidden=[8])
    matrix, x, y, weights = stacked(model, data)
    out, alone = np.empty_like(matrix), np.empty_like(matrix)
    matrix[1] = 1e200
    with np.errstate(all="ignore"):
        losses = model.gradients(matrix, x, y, weights, out)
    expected = [
        model.gradients(matrix[i : i + 1], x[i : i + 1], y[i : i + 1], weights[i : i + 1], alone[i : i + 1])
        for i in (0, 2)
    ]
    assert not np.isfinite(losses[1])
    np.testing.assert_allclose(losses[[0, 2]], np.concatenate(expected))
    np.testing.assert_allclose(out[[0, 2]], alone[[0, 2]])


@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_huge_scores_do_not_overflow(name):
    data = features(width=1, classes=2)
    model = build(name, data, **({"l2": 0.0} if name == "logistic" else {}))
    theta = np.array([[1e4, -1e4, 0, 0]] if name == "softmax" else [[-2e4, 0]], np.float32)
    x, out = np.ones((1, 1, 1), np.float32), np.empty_like(theta)
    losses = model.gradients(theta, x, np.array([[1]]), np.ones((1, 1), np.float32), out)
    assert losses[0] == pytest.approx(2e4)
    assert np.isfinite(out).all()
    score = model.evaluate(theta[0], x[0], np.array([1]))
    assert (score.loss, score.accuracy) == (pytest.approx(2e4), 0.0)


@pytest.mark.parametrize(("name", "data", "options"), FUSED)
def test_scores_are_those_of_the_samples(name, data, options):
    model = build(name, data, **options)
    # More samples than are looked at together, and no multiple of that.
    many = np.random.default_rng(8).integers(0, len(data.y), 600)
    x, y = data.inputs(data.x)[many], data.y[many]
    vectors = np.random.default_rng(9).normal(size=(2, model.parameters)).astype(np.float32)
    scores = model.scores(vectors, [1, 0], x, y)
    assert scores[0] == model.evaluate(vectors[1], x, y)
    assert scores[1] == model.evaluate(vectors[0], x, y)
    for vector, score in zip(vectors[::-1], scores, strict=True):
        theta, xs = torch.tensor(vector), torch.tensor(x)
        losses = loss_of(name, model, theta, xs, torch.tensor(y), options).numpy()
        penalty = options.get("l2", 0.0) / 2 * float(vector @ vector)
        assert score.loss == pytest.approx(losses.mean() + penalty, rel=1e-5)
        if not data.classes:
            assert (score.accuracy, score.rmse) == (None, pytest.approx(np.sqrt(losses.mean()), rel=1e-5))
            continue
        # A label is right where no other would cost less.
        positive = options.get("positive", (1,))
        if name == "logistic":
            there, others = [torch.full(y.shape, label) for label in (positive[0], 0)]
            likelier = loss_of(name, model, theta, xs, there, options) < loss_of(
                name, model, theta, xs, others, options
            )
            right = likelier.numpy() == np.isin(y, positive)
        else:
            costs = [
                loss_of(name, model, theta, xs, torch.full(y.shape, label), options) for label in range(data.classes)
            ]
            right = torch.stack(costs).argmin(0).numpy() == y
        assert (score.accuracy, score.rmse) == (pytest.approx(right.mean()), None)


def test_untrained_models_guess():
    data = images(8, 8, count=300)
    score = build("softmax", data).evaluate(np.zeros(650, np.float32), data.inputs(data.x), data.y)
    assert score.loss == pytest.approx(np.log(10))
    stars = ratings(count=500)
    model = build("factorization", stars)
    said = model.outputs(model.initial(np.random.default_rng(0))[np.newaxis], stars.x)
    assert said.mean() == pytest.approx(2.75, abs=0.5), "around the middle of the scale"


# --- PyTorch modules -------------------------------------------------------------------------------------------------


class Normed(nn.Module):
    """A module with buffers of floats and integers, one frozen tensor, one that plays no part, and dropout."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.layer = nn.Linear(16, 10)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.idle = nn.Parameter(torch.ones(2))
        self.drop = nn.Dropout(0.5)
        self.register_buffer("cache", torch.zeros(4), persistent=False)

    def forward(self, x):
        return self.drop(self.layer(self.norm(x.flatten(1)))), None


def test_trained_numbers_come_first_then_float_buffers_and_nothing_else():
    own = Normed()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    model = build(own, images(4, 4))
    names = [entry.name for entry in model.layout.entries]
    assert names == [
        "idle",
        "norm.weight",
        "norm.bias",
        "layer.weight",
        "layer.bias",
        "norm.running_mean",
        "norm.running_var",
    ]
    assert (model.name, model.trained, model.parameters) == ("Normed", 16 + 16 + 170 + 2, 16 + 16 + 170 + 2 + 32)
    vector = model.initial(np.random.default_rng(0))
    arrays = model.layout.restore(vector)
    for name, array in arrays.items():
        assert np.array_equal(array, before[name]), "it starts from what it was given"
    vector[:] = 7
    again = model.module(vector)
    assert (again.layer.weight == 7).all()
    assert (again.norm.running_var == 7).all()
    assert (again.frozen == 1).all()
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items()), "the module is copied"


def test_a_row_and_the_module_are_the_same_memory():
    model = build(Normed(), images(4, 4))
    matrix = np.zeros((3, model.parameters), np.float32)
    model.point(matrix[1])
    with torch.no_grad():
        model._module.layer.bias.fill_(5)
        model._module.norm.running_mean.fill_(6)
    arrays = model.layout.restore(matrix[1])
    assert (arrays["layer.bias"] == 5).all()
    assert (arrays["norm.running_mean"] == 6).all()
    assert not matrix[[0, 2]].any()


def test_what_makes_a_module_is_seeded_and_leaves_the_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    model = build(Normed, images(4, 4))
    first, again, other = (model.initial(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(4), expected)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (
            lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 10)),
            images(4, 4),
        ),
        ("gru", text(12, length=5)),
        (lambda: nn.Linear(7, 1), features()),
    ],
)
def test_single_samples_gradients_are_clipped(make, data):
    options = {"embedding": 5, "hidden": 4} if make == "gru" else {}
    model = build(make if make == "gru" else make(), data, **options)
    model.point(model.initial(np.random.default_rng(0)))
    x, y = torch.from_numpy(data.inputs(data.x[:5])), torch.from_numpy(data.y[:5])
    singles = [model._gradients(x[i : i + 1], y[i : i + 1], None) for i in range(5)]
    lengths = [float(torch.cat([g.flatten() for g in gradients]).norm()) for _, gradients in singles]
    clip = float(np.median(lengths))
    loss, gradients = model._gradients(x, y, clip)
    assert model._at_once is (make != "gru"), "a GRU has no rule for many samples at once"
    assert loss == pytest.approx(np.mean([loss for loss, _ in singles]), rel=1e-5)
    for place, gradient in enumerate(gradients):
        expected = (
            sum(each[place] * min(1, clip / length) for (_, each), length in zip(singles, lengths, strict=True)) / 5
        )
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_gradients_of_many_samples_are_summed_in_pieces(monkeypatch):
    data = images(4, 4)
    model = build(lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 10)), data)
    model.point(model.initial(np.random.default_rng(0)))
    x, y = torch.from_numpy(data.inputs(data.x)), torch.from_numpy(data.y)
    loss, whole = model._gradients(x, y, 0.7)
    monkeypatch.setattr("tacit.learn.models.torch_module.GRADIENTS", 4 * model.trained * 5)
    pieces, summed = model._gradients(x, y, 0.7)
    assert pieces == pytest.approx(loss, rel=1e-6)
    for one, other in zip(whole, summed, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("gru", text(12, count=300, length=5)),
        ("lenet", images(16, 16, count=300)),
        (lambda: nn.Linear(7, 1), features(300)),
    ],
)
def test_scores_of_modules_are_those_of_the_samples(name, data):
    model = build(name, data)
    vector = model.initial(np.random.default_rng(4))
    x, y = data.inputs(data.x), data.y
    score = model.evaluate(vector, x, y)
    with torch.no_grad():
        said, truth = model.module(vector).eval()(torch.from_numpy(x)), torch.from_numpy(y)
    if not data.classes:
        errors = (said[:, 0] - truth).square().mean()
        assert (score.accuracy, score.loss) == (None, pytest.approx(float(errors), rel=1e-5))
        assert score.rmse == pytest.approx(float(errors.sqrt()), rel=1e-5)
        return
    flat, labels = said.reshape(-1, data.classes), truth.reshape(-1)
    assert score.loss == pytest.approx(float(nn.functional.cross_entropy(flat, labels)), rel=1e-5)
    assert score.accuracy == pytest.approx(float((flat.argmax(1) == labels).float().mean()))
    assert score.rmse is None


def test_a_loss_of_ones_own():
    data = features()

    def absolute(said, y):
        return (said[:, 0] - y).abs()

    model = build(nn.Linear(7, 1), data, loss=absolute, name="median")
    score = model.evaluate(np.zeros(8, np.float32), data.inputs(data.x), data.y)
    assert model.name == "median"
    assert score.loss == pytest.approx(np.abs(data.y).mean(), rel=1e-6)


def test_numbers_of_any_width_become_float32():
    model = build(nn.Sequential(nn.Flatten(), nn.Linear(16, 10)).double(), images(4, 4))
    assert model.initial(np.random.default_rng(0)).dtype == np.float32
    assert {tensor.dtype for tensor in model.module(np.zeros(170)).parameters()} == {torch.float32}


# --- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "data", "options", "told"),
    [
        ("sofmax", images(4, 4), {}, "did you mean 'softmax'"),
        ("zzz", images(4, 4), {}, "there are softmax, mlp"),
        ("mlp", images(4, 4), {"hiden": [3]}, "no option 'hiden'; there are hidden"),
        ("softmax", images(4, 4), {"hidden": [3]}, "it has none"),
        ("mlp", images(4, 4), {"hidden": []}, r"use \[128\]"),
        ("softmax", text(), {}, "use gru"),
        ("softmax", ratings(), {}, "use factorization"),
        ("softmax", features(), {}, "use linear"),
        ("linear", images(4, 4), {}, "use softmax"),
        ("logistic", images(4, 4), {}, "set positive"),
        ("logistic", images(4, 4), {"positive": [10], "l2": -1.0}, "labels 0 to 9.*at least 0"),
        ("factorization", images(4, 4), {}, "use movielens"),
        ("factorization", ratings(), {"users": 2, "factors": 0}, "users=2 must be at least 6.*factors=0"),
        ("gru", images(4, 4), {}, "gru learns text"),
        ("gru", text(), {"hidden": -3}, "cannot be made"),
        ("lenet", images(8, 8), {}, "16 × 16 or more, and those of pictures are 8 × 8"),
        ("resnet-18", features(classes=2), {}, "classifies images"),
        (nn.Linear(15, 10), images(4, 4), {}, r"cannot take samples of shape \(1, 4, 4\) of pictures"),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 9)), images(4, 4), {}, r"returns \(9,\).*\(10,\) is needed"),
        (nn.Flatten(), images(4, 4), {}, "nothing to train"),
        (nn.LazyLinear(10), images(4, 4), {}, "weight has no shape yet"),
        (nn.Linear(4, 10), images(4, 4), {"los": None}, "no option 'los'"),
        (lambda: 3, images(4, 4), {}, "made a int"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_what_does_not_fit_is_told_with_the_way_out(source, data, options, told):
    with pytest.raises(ConfigError, match=told):
        build(source, data, **options)


def test_without_torch_the_rest_works_and_networks_say_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert isinstance(build("mlp", images(4, 4)), NumpyModel)
    with pytest.raises(MissingExtra, match=r"tacit\[torch\]"):
        build("lenet", images(32, 32, 3))
    with pytest.raises(MissingExtra):
        TorchModel(lambda: None)
