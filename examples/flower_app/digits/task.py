"""A softmax regression on 8 by 8 images of digits, in NumPy."""

import numpy as np

from tacit.learn.data.datasets import load

RATE, STEPS = 0.2, 20


def initial():
    """Returns the initial model, which is the same for all nodes."""
    return {"weights": np.zeros((10, 64), np.float32), "bias": np.zeros(10, np.float32)}


def samples(place=None, places=10):
    """Returns the images and labels of one node; without a place, the test images."""
    data = load("digits")
    if place is None:
        x, y = data.x_test, data.y_test
    else:
        x, y = data.x[place::places], data.y[place::places]
    return data.inputs(x).reshape(len(y), -1), y


def trained(model, x, y):
    """Returns a model after a few steps on some samples."""
    weights, bias = model["weights"].copy(), model["bias"].copy()
    for _ in range(STEPS):
        slope = _probabilities(weights, bias, x)
        slope[np.arange(len(y)), y] -= 1
        weights -= RATE * slope.T @ x / len(y)
        bias -= RATE * slope.mean(axis=0)
    return {"weights": weights, "bias": bias}


def accuracy(model, x, y):
    """Returns the share of images that a model classifies correctly."""
    return float((_probabilities(model["weights"], model["bias"], x).argmax(axis=1) == y).mean())


def _probabilities(weights, bias, x):
    scores = x @ weights.T + bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
