import hashlib
import io

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.learn import datasets
from tacit.learn.datasets import CHECKSUMS, mnist


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Returns the folder that TACIT_DATA names and the cache, both empty, and nothing else to be found."""
    given, cache = tmp_path / "given", tmp_path / "cache" / "tacit"
    given.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setenv("TACIT_DATA", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return given, cache


@pytest.fixture
def small(monkeypatch):
    """Returns a set of two images in the format of MNIST, whose checksum is the one that is asked for."""
    file = io.BytesIO()
    x = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    np.savez(file, x_train=x, y_train=np.array([3, 7], np.uint8), x_test=x, y_test=x)
    monkeypatch.setitem(CHECKSUMS, "mnist", hashlib.sha256(file.getvalue()).hexdigest())
    return file.getvalue()


def test_what_is_missing_is_named_with_its_checksum_and_where_to_put_it(places):
    with pytest.raises(ConfigError) as caught:
        mnist()
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in ("mnist.npz", CHECKSUMS["mnist"], str(places[1]), "TACIT_DATA"))


@pytest.mark.parametrize("place", [0, 1])
def test_images_are_flattened_and_scaled_from_either_place(place, places, small):
    (places[place] / "mnist.npz").write_bytes(small)
    x, y = mnist()
    assert x.dtype == np.float64
    assert y.dtype == np.int64
    assert (x * 255).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.tolist() == [3, 7]


def test_another_file_of_that_name_is_refused_and_not_passed_over(places, small):
    (places[0] / "mnist.npz").write_bytes(small + b"\0")
    (places[1] / "mnist.npz").write_bytes(small)
    with pytest.raises(ConfigError, match=CHECKSUMS["mnist"]) as caught:
        mnist()
    assert str(places[0]) in str(caught.value)


def test_without_any_setting_the_cache_is_in_the_home_folder(monkeypatch, tmp_path, small):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(datasets.Path, "home", lambda: tmp_path)
    (tmp_path / ".cache" / "tacit").mkdir(parents=True)
    (tmp_path / ".cache" / "tacit" / "mnist.npz").write_bytes(small)
    assert len(mnist().y) == 2


def test_mnist_is_what_it_says():
    try:
        x, y = mnist()
    except ConfigError as missing:
        pytest.skip(str(missing))
    assert (x.shape, x.min(), x.max()) == ((60000, 784), 0.0, 1.0)
    assert np.bincount(y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
