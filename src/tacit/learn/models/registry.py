"""Registry of models by name, and PyTorch modules of the user: `build("softmax", data)`, `build(MyModule(), data)`.

| name | model | data | | --- | --- | --- | | softmax, mlp | regression over classes; the same with hidden layers (128
units by default) | anything but text | | linear | linear regression, (z − y)² | numbers | | logistic | L2-regularised
logistic regression, two classes (paper 003) | labels | | factorization | matrix factorization, 20 factors (paper 004) |
ratings | | femnist-cnn, gru, resnet-18 | networks of paper 000 | images, text, images | | resnet | a small network of
ResNet-18's family, `widths` and `blocks` | images | | lenet | network of paper 002 | images | | gn-lenet, celeba-cnn |
networks of paper 004, with 89,834 and 30,242 parameters | images |

The models of the first four rows use NumPy (`numpy_models.py`). The others, and the user's own, use PyTorch
(`paper_networks.py`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from tacit.api import option_text
from tacit.core.errors import ConfigError
from tacit.learn.data.samples import Dataset
from tacit.learn.models.factorization import Factorization
from tacit.learn.models.model import Model, Score
from tacit.learn.models.numpy_models import Dense, NumpyModel
from tacit.learn.models.paper_networks import NETWORKS
from tacit.learn.models.torch_module import TorchModel

__all__ = ["MODELS", "Model", "NumpyModel", "Score", "TorchModel", "build"]


def softmax(data: Dataset) -> Model:
    """Returns softmax regression."""
    return Dense("softmax", (_features(data, "softmax"), _classes(data, "softmax")), "softmax")


def mlp(data: Dataset, *, hidden: Sequence[int] = (128,)) -> Model:
    """Returns a perceptron with hidden layers of those sizes."""
    if not hidden or min(hidden) < 1:
        raise ConfigError(
            f"an mlp has at least one hidden layer of at least one unit, not {list(hidden)}; try: use [128]"
        )
    return Dense("mlp", (_features(data, "mlp"), *hidden, _classes(data, "mlp")), "softmax")


def linear(data: Dataset, *, bias: bool = True) -> Model:
    """Returns linear regression."""
    if data.classes:
        raise ConfigError(f"linear predicts numbers, and {data.name} has {data.classes} labels; try: use softmax")
    return Dense("linear", (_features(data, "linear"), 1), "squares", bias=bias)


def logistic(data: Dataset, *, l2: float = 1e-3, positive: Sequence[int] = (), bias: bool = True) -> Model:
    """Returns logistic regression with λ/2 ‖θ‖² in the loss, biases included, so that the loss is λ-strongly convex.

    Labels in `positive` form one class and all others the other. Of two labels, 1 is positive by default.
    """
    classes, problems = _classes(data, "logistic"), []
    if not positive and classes != 2:
        problems.append(
            f"logistic separates two classes, and {data.name} has {classes}; try: use softmax, or set positive"
        )
    if positive and not set(positive) < set(range(classes)):
        problems.append(f"positive must be some of the labels 0 to {classes - 1} but not all, not {list(positive)}")
    if not (np.isfinite(l2) and l2 >= 0):
        problems.append(f"l2={l2} must be at least 0, such as 0.001")
    if problems:
        raise ConfigError(problems)
    features = _features(data, "logistic")
    return Dense("logistic", (features, 1), "logistic", bias=bias, l2=l2, positive=tuple(positive) or (1,))


def factorization(
    data: Dataset,
    *,
    factors: int = 20,
    biases: bool = False,
    users: int | None = None,
    items: int | None = None,
    centre: float | None = None,
) -> Model:
    """Returns matrix factorization. Users, items and the middle of the scale are those of the data by default."""
    if data.kind != "ratings":
        raise ConfigError(
            f"factorization learns ratings, and {data.name} has {data.kind}; try: use movielens, or softmax"
        )
    seen = np.concatenate([data.x, data.x_test]).max(axis=0) + 1
    middle = (float(data.y.min()) + float(data.y.max())) / 2 if centre is None else centre
    problems = [
        f"{what}={given} must be at least {most}, as many as {data.name} names"
        for what, given, most in zip(("users", "items"), (users, items), seen, strict=True)
        if given is not None and given < most
    ]
    if factors < 1:
        problems.append(f"factors={factors} must be at least 1, such as 20")
    if problems:
        raise ConfigError(problems)
    return Factorization(users or int(seen[0]), items or int(seen[1]), factors, biases, middle)


def _network(network: Callable[..., Any], name: str, data: Dataset, **options: Any) -> Model:
    return TorchModel(partial(network, data, **options), data.classes, name=name)


NUMPY_MODELS: dict[str, Callable[..., Model]] = {
    "softmax": softmax,
    "mlp": mlp,
    "linear": linear,
    "logistic": logistic,
    "factorization": factorization,
}

MODELS: dict[str, Callable[..., Any]] = {**NUMPY_MODELS, **NETWORKS}
"""Factory of each model, called with the data and the model's options."""


def build(source: Any, data: Dataset, **options: Any) -> Model:
    """Returns a model for the given data.

    Args:
        source: A name in `MODELS`, a PyTorch module, or a callable that returns one.
        data: The data set.
        options: Options of the named model; for a module, `loss` and `name` (see `TorchModel`).

    Raises:
        ConfigError: If there is no such model or option, or if the model does not fit the data.

    >>> from tacit.learn.data.datasets import load
    >>> from tacit.learn.models.registry import build
    >>> build("softmax", load("digits")).parameters
    650
    """
    if not isinstance(source, str):
        if not callable(source):
            what = f"not of type {type(source).__name__}"
            raise ConfigError(f"expected the name of a model, a PyTorch module or a function that makes one, {what}")
        model = TorchModel(source, data.classes, **_check_options(options, ("loss", "name"), "a module of your own"))
        if problems := model.unfit(data):
            raise ConfigError(problems)
        return model
    check_name(source, options)
    make = MODELS[source]
    try:
        if source in NUMPY_MODELS:
            return make(data, **options)  # type: ignore[no-any-return]
        return _network(make, source, data, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source} cannot be made with {options}: {error}") from None


def check_name(name: str, options: dict[str, Any]) -> None:
    """Raises ConfigError if there is no model of that name, or if it does not have an option."""
    option_text.check_name("model", name, MODELS)
    _check_options(options, tuple(signature(MODELS[name]).parameters)[1:], name)


def _check_options(options: dict[str, Any], known: tuple[str, ...], name: str) -> dict[str, Any]:
    wrong = [option for option in options if option not in known]
    if wrong:
        there = f"there are {', '.join(known)}" if known else "it has none"
        raise ConfigError([f"{name} has no option {option!r}; {there}" for option in wrong])
    return options


def _features(data: Dataset, name: str) -> int:
    """Returns the number of features of a sample."""
    if data.kind not in ("images", "features"):
        better = "gru" if data.kind == "text" else "factorization"
        raise ConfigError(f"{name} learns from numbers, and {data.name} has {data.kind}; try: use {better}")
    return int(np.prod(data.x.shape[1:]))


def _classes(data: Dataset, name: str) -> int:
    if not data.classes:
        raise ConfigError(f"{name} is a classifier, and {data.name} has none; try: use linear")
    return data.classes
