"""Data sets: where files are looked for and how they are known, what is in each, and your own."""

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tacit.core.errors import ConfigError
from tacit.learn.data import datasets, sources
from tacit.learn.data.datasets import DATASETS, Dataset, load, of_arrays, of_folder, of_torch
from tacit.learn.data.samples import choose_training_samples
from tacit.learn.data.sources import DataSource, FileFinder, SourceFile, download_file

IMAGES = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)


def rng(seed=0):
    return np.random.default_rng(seed)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Returns the folder that TACIT_DATA names and the cache, both empty, and nothing else to be found."""
    given, cache = tmp_path / "given", tmp_path / "cache" / "tacit"
    given.mkdir()
    cache.mkdir(parents=True)
    monkeypatch.setenv("TACIT_DATA", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return given, cache


@pytest.fixture
def small(monkeypatch):
    """Returns a set of two images in the format of MNIST, which is the one that is asked for."""
    data = npz(x_train=IMAGES, y_train=np.array([3, 7], np.uint8), x_test=IMAGES[:1], y_test=np.array([1], np.uint8))
    monkeypatch.setattr(datasets, "MNIST", DataSource(((SourceFile("mnist.npz", sha256(data)),),)))
    return data


# --- where files are looked for ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_what_is_missing_is_named_with_its_checksum_and_where_to_put_it(name, places):
    with pytest.raises(ConfigError) as caught:
        load(name, download=False)
    message, (source, *_) = str(caught.value), DATASETS[name].sources
    assert "\n" not in message
    for bundle in source.bundles:
        for file in bundle:
            assert all(part in message for part in (file.name, file.sha256, file.url))
    assert all(part in message for part in (str(places[1]), "TACIT_DATA", source.how))
    assert source.how or any(file.url for bundle in source.bundles for file in bundle)


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_is_found_in_either_place(place, places, small):
    (places[place] / "mnist.npz").write_bytes(small)
    data = load("mnist")
    assert data.x.tolist() == IMAGES.tolist()
    assert (data.x.dtype, data.y.dtype, data.y.tolist()) == (np.uint8, np.int64, [3, 7])
    assert (data.x_test.tolist(), data.y_test.tolist()) == (IMAGES[:1].tolist(), [1])
    x, y = data.flat()
    assert (x.dtype, y.tolist()) == (np.float64, [3, 7])
    assert (x * 255).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_another_file_of_that_name_is_refused_and_not_passed_over(places, small):
    (places[0] / "mnist.npz").write_bytes(small + b"\0")
    (places[1] / "mnist.npz").write_bytes(small)
    with pytest.raises(ConfigError, match=sha256(small)) as caught:
        load("mnist")
    assert str(places[0]) in str(caught.value)


def test_a_file_that_holds_the_same_will_do(places, small, monkeypatch):
    other = small + b"\0"
    (places[0] / "mnist.npz").write_bytes(other)
    monkeypatch.setattr(
        datasets, "MNIST", DataSource(((SourceFile("mnist.npz", sha256(small), also=(sha256(other),)),),))
    )
    assert len(load("mnist").y) == 2


def test_without_any_setting_the_cache_is_in_the_home_folder(monkeypatch, tmp_path, small):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sources.Path, "home", lambda: tmp_path)
    (tmp_path / ".cache" / "tacit").mkdir(parents=True)
    (tmp_path / ".cache" / "tacit" / "mnist.npz").write_bytes(small)
    assert len(load("mnist").y) == 2


def test_a_checksum_is_computed_once_until_the_file_changes(places, small, monkeypatch):
    computed = []
    digest = hashlib.file_digest
    monkeypatch.setattr(sources.hashlib, "file_digest", lambda *a: computed.append(1) or digest(*a))
    path = places[0] / "mnist.npz"
    path.write_bytes(small)
    load("mnist")
    load("mnist")
    assert len(computed) == 1
    path.write_bytes(small + b"\0")
    with pytest.raises(ConfigError, match="in its place"):
        load("mnist")
    assert len(computed) == 2


# --- downloads -----------------------------------------------------------------------------------------------------

CONTENT = rng().bytes(600_000)


class Publisher(http.server.BaseHTTPRequestHandler):
    """Sends what was asked for, or something else, as the path says."""

    def do_GET(self):
        what = self.path.strip("/")
        if what == "gone":
            self.send_error(404)
            return
        sent = {"other": CONTENT[::-1], "longer": CONTENT + b"\0", "cut": CONTENT[:400_000]}.get(what, CONTENT)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT if what == "cut" else sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


@pytest.fixture
def publisher():
    """Returns the address of a server on this machine."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def offered(url):
    return SourceFile("thing.bin", sha256(CONTENT), len(CONTENT), url)


def test_what_is_nowhere_is_downloaded_into_the_cache_once_and_told_on_the_way(places, publisher):
    told = []
    find = FileFinder(progress=lambda *each: told.append(each))
    source = DataSource(((SourceFile("prepared.bin", "0" * 64),), (offered(f"{publisher}/thing"),)))
    assert find(source) == [places[1] / "thing.bin"]
    assert (places[1] / "thing.bin").read_bytes() == CONTENT
    assert told[0] == ("downloading thing.bin", 0, 600_000)
    assert told[-1] == ("downloading thing.bin", 600_000, 600_000)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    told.clear()
    assert find(source) == [places[1] / "thing.bin"]
    assert told == []
    assert [path.name for path in places[1].iterdir()] == ["thing.bin"]


def test_of_several_files_only_those_that_are_missing_are_downloaded(places, publisher):
    (places[0] / "thing.bin").write_bytes(CONTENT)
    source = DataSource(
        ((offered("http://127.0.0.1:1/"), SourceFile("b.bin", sha256(CONTENT), 600_000, f"{publisher}/b")),)
    )
    assert FileFinder()(source) == [places[0] / "thing.bin", places[1] / "b.bin"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("other", f"has the SHA-256 {sha256(CONTENT[::-1])}, so the file is not the right one"),
        ("longer", "is longer than 600000 bytes"),
        ("cut", "ended after"),
        ("gone", "cannot be downloaded"),
    ],
)
def test_a_download_that_is_not_the_file_leaves_nothing_behind(path, said, places, publisher):
    with pytest.raises(ConfigError) as caught:
        download_file(offered(f"{publisher}/{path}"))
    message = str(caught.value)
    assert all(part in message for part in (said, f"{publisher}/{path}", sha256(CONTENT), str(places[1]), "TACIT_DATA"))
    assert "\n" not in message
    assert list(places[1].iterdir()) == []


def test_a_refused_connection_is_told_with_the_way_out(places):
    with http.server.HTTPServer(("127.0.0.1", 0), Publisher) as closed:
        port = closed.server_address[1]
    with pytest.raises(ConfigError, match="refused") as caught:
        FileFinder()(DataSource(((offered(f"http://127.0.0.1:{port}/thing"),),)))
    assert all(part in str(caught.value) for part in ("thing.bin", sha256(CONTENT), str(places[1]), "TACIT_DATA"))
    assert list(places[1].iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(places, publisher, monkeypatch):
    (places[1].parent / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(places[1].parent / "file"))
    with pytest.raises(ConfigError, match="cannot be kept in") as caught:
        download_file(offered(f"{publisher}/thing"))
    assert "TACIT_DATA" in str(caught.value)


def test_stopping_a_download_leaves_nothing_behind(places, publisher):
    def stop(*told):
        if told[1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_file(offered(f"{publisher}/thing"), stop)
    assert list(places[1].iterdir()) == []


@pytest.mark.usefixtures("places")
def test_nothing_is_downloaded_if_that_is_forbidden(publisher):
    with pytest.raises(ConfigError, match=f"from {publisher}/thing"):
        FileFinder(download=False)(DataSource(((offered(f"{publisher}/thing"),),)))


@pytest.mark.usefixtures("places")
def test_a_set_is_loaded_from_what_was_downloaded(small, publisher, monkeypatch):
    file = SourceFile("mnist.npz", sha256(small), len(small), f"{publisher}/mnist.npz")
    monkeypatch.setattr(datasets, "MNIST", DataSource(((file,),)))
    monkeypatch.setattr(f"{__name__}.CONTENT", small)
    told = []
    assert len(load("mnist", progress=lambda *each: told.append(each)).y) == 2
    assert told[-1] == ("downloading mnist.npz", len(small), len(small))


def test_every_file_is_known_by_its_checksum_and_those_on_offer_by_their_size():
    for named in DATASETS.values():
        for file in (file for source in named.sources for bundle in source.bundles for file in bundle):
            assert all(len(digest) == 64 and int(digest, 16) for digest in (file.sha256, *file.also))
            assert bool(file.size) == bool(file.url)
            assert not file.url or (file.url.startswith("https://") and file.url.endswith(file.name))


# --- names and options ---------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(ConfigError, match="no data set 'minst'; did you mean 'mnist'"):
        load("minst")
    with pytest.raises(ConfigError, match="there are digits, mnist, femnist, cifar10, shakespeare, movielens, boston"):
        load("?")


def test_unknown_options_are_told_with_those_there_are():
    with pytest.raises(ConfigError) as caught:
        load("digits", by="writer", sharing=3)
    assert caught.value.problems == (
        "digits has no option 'by'; it has share",
        "digits has no option 'sharing'; it has share",
    )
    with pytest.raises(ConfigError, match="cifar10 has no option 'by'; it has none"):
        load("cifar10", by="writer")


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(ConfigError, match="share"):
        load("digits", share=share)


def test_every_set_says_what_it_is():
    assert all(named.about.endswith(".") for named in DATASETS.values())
    assert DATASETS["femnist"].options == {"share": 0.9, "fewest": 10}


# --- the samples of a set ------------------------------------------------------------------------------------------


def test_digits_come_along_and_are_divided_always_alike():
    data, everything = load("digits"), load("digits", share=1)
    assert (data.x.shape, data.x_test.shape) == ((1438, 8, 8), (359, 8, 8))
    assert len(everything.x_test) == 0
    assert np.bincount(data.y_test, minlength=10).min() > 20
    both = np.concatenate([data.x, data.x_test]).reshape(1797, -1)
    assert sorted(map(bytes, both)) == sorted(map(bytes, everything.x.reshape(1797, -1)))
    assert sha256(data.y.tobytes()) == sha256(load("digits").y.tobytes())
    assert data.y_test[:12].tolist() == [7, 9, 3, 0, 5, 9, 1, 3, 1, 6, 2, 2]
    assert str(data) == "digits: 1438 images, 359 to be tested on, 10 labels"


def test_inputs_of_images_have_channels_first_and_lie_in_0_to_1():
    data = load("digits")
    inputs = data.inputs(data.x)
    assert (inputs.shape, inputs.dtype, inputs.min(), inputs.max()) == ((1438, 1, 8, 8), np.float32, 0.0, 1.0)
    assert inputs.flags["C_CONTIGUOUS"]
    assert np.array_equal(inputs.reshape(1438, -1), data.flat().x)
    colours = rng().integers(0, 256, (5, 3, 4, 2), np.uint8)
    inputs = of_arrays(colours, np.arange(5) % 2).inputs(colours)
    assert inputs.shape == (5, 2, 3, 4)
    assert inputs[3, 1, 2, 0] == np.float32(colours[3, 2, 0, 1]) / np.float32(255)


def test_inputs_are_centred_channel_by_channel():
    x = np.full((1, 2, 2, 2), 51, np.uint8)
    data = Dataset("", x, np.zeros(1), x, np.zeros(1), "images", 1, centre=(0.1, 0.2), spread=(0.5, 0.25))
    assert data.inputs(x)[0, :, 0, 0].tolist() == pytest.approx([0.2, 0.0], abs=1e-7)


def test_floats_are_inputs_as_they_are_and_whole_numbers_stay_whole():
    images = rng().normal(size=(6, 3, 3))
    assert np.array_equal(of_arrays(images, np.arange(6)).inputs(images)[:, 0], images.astype(np.float32))
    pairs = rng().integers(0, 9, (6, 2), np.int32)
    assert of_arrays(pairs, rng().random(6)).inputs(pairs).dtype == np.int64
    rows = rng().normal(size=(6, 2))
    inputs = of_arrays(rows, np.arange(6)).inputs(rows)
    assert inputs.dtype == np.float32
    assert inputs == pytest.approx(rows, rel=1e-6)


def test_a_limit_draws_a_subset_that_repeats_and_keeps_owners():
    owner = np.repeat(["a", "b"], 500)
    data = of_arrays(np.arange(2000.0).reshape(1000, 2), np.arange(1000) % 7, owner=owner)
    some, again, other = (data.subsample(100, 20, rng(seed)) for seed in (1, 1, 2))
    assert (len(some.x), len(some.y), len(some.owner)) == (100, 100, 100)
    assert (len(some.x_test), len(some.y_test), len(some.owner_test)) == (20, 20, 20)
    assert np.array_equal(some.x, again.x)
    assert not np.array_equal(some.x, other.x)
    assert (some.owner == (some.x[:, 0] >= 1000)).all()
    assert (some.owner_test == (some.x_test[:, 0] >= 1000)).all()
    assert (some.y == some.x[:, 0] / 2 % 7).all()
    assert 20 < some.owner.sum() < 80
    assert np.array_equal(data.subsample(100, None, rng(1)).x, some.x)
    assert np.array_equal(data.subsample(None, 20, rng(1)).x_test, some.x_test)


def test_a_limit_above_what_there_is_leaves_all_and_one_below_1_is_refused():
    data = load("digits")
    assert np.array_equal(data.subsample(10**6, 360, rng()).x, data.x)
    with pytest.raises(ConfigError) as caught:
        data.subsample(0, -1, rng())
    assert len(caught.value.problems) == 2


def test_a_share_is_taken_of_each_owner_and_leaves_nobody_without():
    owner = np.repeat([4, 2, 9], [10, 1, 5])[rng().permutation(16)]
    learnt = choose_training_samples("anything", owner, 0.7)
    assert {each: int(learnt[owner == each].sum()) for each in (4, 2, 9)} == {4: 7, 2: 1, 9: 4}
    assert np.array_equal(learnt, choose_training_samples("anything", owner, 0.7))
    assert not np.array_equal(learnt, choose_training_samples("something", owner, 0.7))


# --- what is in each set -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """Returns the function that loads a set, or skips the test if its file is not on this machine."""
    patch = pytest.MonkeyPatch()

    def loaded(name, **options):
        try:
            return load(name, download=False, **options)
        except ConfigError as missing:
            pytest.skip(str(missing))

    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield loaded
    patch.undo()


def test_mnist_is_what_it_says(there):
    data = there("mnist")
    assert (data.x.shape, data.x_test.shape, data.owner) == ((60000, 28, 28), (10000, 28, 28), None)
    assert np.bincount(data.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    x, _ = data.flat()
    assert (x.shape, x.dtype, x.min(), x.max()) == ((60000, 784), np.float64, 0.0, 1.0)


def test_mnist_is_owned_by_its_writers_or_by_its_digits(there):
    data = there("mnist", by="writer")
    counts = np.unique(data.owner, return_counts=True)[1]
    assert (len(counts), counts.min(), counts.max(), int(np.median(counts))) == (539, 19, 131, 116)
    assert len(np.unique(data.owner_test)) == 297
    assert not set(data.owner.tolist()) & set(data.owner_test.tolist())
    data = there("mnist", by="class")
    assert np.array_equal(data.owner, data.y)
    with pytest.raises(ConfigError, match="by="):
        load("mnist", by="colour")


def test_femnist_is_what_it_says(there):
    data = there("femnist")
    assert len(data.x) + len(data.x_test) == 24035
    written = np.concatenate([data.owner, data.owner_test])
    names, counts = np.unique(written, return_counts=True)
    assert (len(names), counts.min()) == (299, 10)
    learnt = np.unique(data.owner, return_counts=True)[1]
    assert learnt.tolist() == [round(0.9 * int(count)) for count in counts]
    assert np.median(data.x) == 0  # ink on nothing, as in MNIST
    assert data.owners[names[0]].startswith("f")
    assert len(np.unique(there("femnist", fewest=1).owner)) == 359
    assert np.array_equal(there("femnist").y_test, data.y_test)
    with pytest.raises(ConfigError, match="1 to 260 digits"):
        load("femnist", fewest=1000)


def test_cifar10_is_what_it_says(there):
    data = there("cifar10")
    assert (data.x.shape, data.x_test.shape) == ((50000, 32, 32, 3), (10000, 32, 32, 3))
    assert np.bincount(data.y).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    for channel, (centre, spread) in enumerate(zip(data.centre, data.spread, strict=True)):
        parts = np.split(data.x[..., channel], 50)  # all at once would take hundreds of megabytes
        counts = np.sum([np.bincount(part.ravel(), minlength=256) for part in parts], axis=0)
        mean = np.average(np.arange(256), weights=counts)
        assert mean / 255 == pytest.approx(centre, abs=1e-8)
        assert np.average((np.arange(256) - mean) ** 2, weights=counts) ** 0.5 / 255 == pytest.approx(spread, abs=1e-8)
    inputs = data.inputs(data.x[:2000])
    assert inputs.shape == (2000, 3, 32, 32)
    assert abs(inputs.mean()) < 0.05
    assert inputs.std() == pytest.approx(1, abs=0.05)
    assert data.labels[data.y[0]] == "frog"
    again = there("cifar10")
    assert not again.x.flags.owndata  # mapped from what the first call unpacked
    assert np.array_equal(again.x[::500], data.x[::500])


def test_shakespeare_is_what_it_says(there):
    """The windows that paper 000 counts in its Table I."""
    data = there("shakespeare")
    assert (data.x.shape, data.y.shape) == ((37986, 50), (37986, 50))
    assert (data.x_test.shape, data.y_test.shape) == ((5464, 50), (5464, 50))
    assert (data.classes, len(data.owners), len(np.unique(data.owner))) == (78, 715, 636)
    assert np.array_equal(data.x[:, 1:], data.y[:, :-1])
    assert data.owners[data.owner[0]].startswith("ALL_S_WELL_THAT_ENDS_WELL")
    assert "".join(data.labels[token] for token in data.x[0]) == "Come not within these doors; within this roof\nThe "


def test_movielens_is_what_it_says(there):
    """As many parameters as paper 004's model has, 20 for each user and film, and as many ratings to learn from."""
    data = there("movielens")
    assert (len(data.y), len(data.y_test), data.classes) == (70580, 100836 - 70580, 0)
    pairs = np.concatenate([data.x, data.x_test])
    assert (pairs.max(axis=0) + 1).tolist() == [610, 9724]
    assert len(np.unique(pairs, axis=0)) == 100836
    assert np.array_equal(data.owner, data.x[:, 0])
    assert np.array_equal(data.owner_test, data.x_test[:, 0])
    assert set(np.unique(data.y).tolist()) == {half / 2 for half in range(1, 11)}
    learnt, rest = np.bincount(data.owner), np.bincount(data.owner_test)
    assert learnt.tolist() == [round(0.7 * int(count)) for count in learnt + rest]


def test_boston_is_what_it_says(there):
    data = there("boston")
    assert (data.x.shape, data.x_test.shape, data.x.dtype, data.classes) == ((405, 13), (101, 13), np.float32, 0)
    prices = np.concatenate([data.y, data.y_test])
    assert (prices.min(), prices.max(), round(float(prices.mean()), 2)) == (5, 50, 22.53)
    inputs = data.inputs(data.x)
    assert inputs.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-5)
    assert inputs.std(axis=0) == pytest.approx(np.ones(13), abs=1e-5)


# --- the publishers' own formats -----------------------------------------------------------------------------------


def placed(places, monkeypatch, source, *contents):
    """Puts files into the cache under the names that a publisher gives them, and asks for exactly them."""
    bundle = getattr(datasets, source).bundles[-1]
    made = tuple(SourceFile(file.name, sha256(data)) for file, data in zip(bundle, contents, strict=True))
    for file, data in zip(made, contents, strict=True):
        (places[1] / file.name).write_bytes(data)
    monkeypatch.setattr(datasets, source, DataSource((made,)))


def batches(x, y):
    """Returns images in CIFAR-10's own format."""
    return np.concatenate([y[:, np.newaxis], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1).tobytes()


def archive(named):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as made:
        for name, data in named.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return file.getvalue()


def test_cifar10_is_read_from_the_publishers_archive(places, monkeypatch):
    x, y = rng().integers(0, 256, (12, 32, 32, 3), np.uint8), (np.arange(12) % 10).astype(np.uint8)
    named = {
        f"data_batch_{number}.bin": batches(x[2 * number - 2 :][:2], y[2 * number - 2 :][:2]) for number in range(1, 6)
    }
    named = {"test_batch.bin": batches(x[10:], y[10:]), "readme.html": b"", **dict(reversed(named.items()))}
    placed(places, monkeypatch, "CIFAR10", archive(named))
    for _ in range(2):  # once from the archive, once from what was unpacked
        data = load("cifar10")
        assert np.array_equal(data.x, x[:10])
        assert np.array_equal(data.x_test, x[10:])
        assert (data.y.tolist(), data.y_test.tolist()) == (y[:10].tolist(), y[10:].tolist())


def test_the_batches_of_cifar10_are_the_published_ones(there):
    """What was prepared is what the publisher's archive holds: the SHA-256 of its parts."""
    data = there("cifar10")
    assert sha256(batches(data.x[:10000], data.y[:10000].astype(np.uint8))) == (
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
    )


@pytest.mark.parametrize("damage", ["cut", "empty", "gone"])
def test_a_damaged_copy_is_unpacked_again(damage, places, monkeypatch):
    x, y = rng().integers(0, 256, (12, 32, 32, 3), np.uint8), np.zeros(12, np.uint8)
    placed(places, monkeypatch, "CIFAR10", npz(x_train=x, y_train=y, x_test=x, y_test=y))
    (places[1] / "cifar-10-binary.tar.gz").rename(places[1] / "cifar10.npz")
    (file,) = datasets.CIFAR10.bundles[0]
    monkeypatch.setattr(datasets, "CIFAR10", DataSource(((SourceFile("cifar10.npz", file.sha256),),)))
    load("cifar10")
    (copy,) = places[1].glob("unpacked/*/x_train.npy")
    if damage == "gone":
        copy.unlink()
    else:
        copy.write_bytes(copy.read_bytes()[:500] if damage == "cut" else b"")
    for _ in range(2):
        assert np.array_equal(load("cifar10").x, x)
    assert len(list(places[1].glob("unpacked/*"))) == 1


def test_without_room_for_a_copy_images_are_unpacked_each_time(places, monkeypatch):
    x, y = rng().integers(0, 256, (12, 32, 32, 3), np.uint8), np.zeros(12, np.uint8)
    data = npz(x_train=x, y_train=y, x_test=x, y_test=y)
    (places[0] / "cifar10.npz").write_bytes(data)
    monkeypatch.setattr(datasets, "CIFAR10", DataSource(((SourceFile("cifar10.npz", sha256(data)),),)))
    (places[1] / "unpacked").write_bytes(b"no folder")
    for _ in range(2):
        assert np.array_equal(load("cifar10").x, x)


def test_movielens_is_read_from_the_publishers_archive(places, monkeypatch):
    file = io.BytesIO()
    rows = ["userId,movieId,rating,timestamp", "7,50,4.0,1", "7,3,0.5,2", "9,50,5.0,3", "9,8,2.5,4"]
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("ml-latest-small/ratings.csv", "\r\n".join(rows) + "\r\n")
    placed(places, monkeypatch, "MOVIELENS", file.getvalue())
    data = load("movielens", share=1)
    assert data.x.tolist() == [[0, 2], [0, 0], [1, 2], [1, 1]]
    assert (data.y.tolist(), data.owners) == ([4.0, 0.5, 5.0, 2.5], ("7", "9"))


def test_writers_are_read_from_qmnist(places, small, monkeypatch):
    (places[0] / "mnist.npz").write_bytes(small)
    rows = np.arange(16).reshape(2, 8)
    files = [
        gzip.compress(np.concatenate([[0xC02, 2, 8], (rows + more).ravel()]).astype(">i4").tobytes())
        for more in (0, 100)
    ]
    placed(places, monkeypatch, "WRITERS", *files)
    data = load("mnist", by="writer")
    assert (data.owner.tolist(), data.owner_test.tolist()) == ([2, 10], [102, 110])


def test_boston_is_read_without_a_heading(places, monkeypatch):
    rows = rng().random((10, 14)).round(3)
    text = "\n".join(",".join(map(repr, row)) for row in rows.tolist())
    placed(places, monkeypatch, "BOSTON", text.encode())
    data = load("boston", share=1)
    assert data.x == pytest.approx(rows[:, :13])
    assert data.y == pytest.approx(rows[:, 13])


def test_shakespeare_is_cut_into_windows_by_role(places, monkeypatch):
    lines = {"train": {"A": ["ab" * 60, "b" * 50], "B": ["c" * 51]}, "test": {"B": ["cba" * 17 + "d"], "C": []}}
    placed(places, monkeypatch, "SHAKESPEARE", json.dumps(lines).encode())
    data = load("shakespeare")
    assert (data.owners, data.owner.tolist(), data.owner_test.tolist()) == (("A", "B", "C"), [0, 0, 1], [1])
    assert data.labels == ("a", "b", "c")
    assert data.x[0].tolist() == [0, 1] * 25
    assert data.y[0].tolist() == [1, 0] * 25
    assert data.x[1].tolist() == [1, 0] * 25  # goes on where the first window ends
    assert data.x_test.tolist() == [[2, 1, 0] * 16 + [2, 1]]
    assert data.y_test[0, -1] == 0


# --- your own data -------------------------------------------------------------------------------------------------


def test_arrays_without_a_test_are_divided_by_owner():
    owner = np.repeat(["south", "north"], [50, 10])
    data = of_arrays(np.arange(60.0).reshape(60, 1), np.arange(60) % 3, owner=owner)
    assert (data.kind, data.classes, data.owners) == ("features", 3, ("north", "south"))
    assert (np.bincount(data.owner).tolist(), np.bincount(data.owner_test).tolist()) == ([8, 40], [2, 10])
    assert (data.owner == (data.x[:, 0] < 50)).all()
    assert sorted(np.concatenate([data.x, data.x_test])[:, 0]) == list(range(60))


def test_arrays_with_a_test_stay_as_they_are():
    x, y = rng().random((9, 4)), rng().random(9)
    data = of_arrays(x, y, x[:2], y[:2], name="mine")
    assert (data.name, data.classes, len(data.x), len(data.x_test)) == ("mine", 0, 9, 2)
    assert np.array_equal(data.x, x)
    assert (data.y.dtype, data.owner) == (np.float32, None)


@pytest.mark.parametrize(
    ("x", "y", "kind", "classes"),
    [
        (np.zeros((5, 8, 8), np.uint8), [0, 1, 2, 0, 4], "images", 5),
        (np.zeros((5, 8, 8, 3)), [True, False, True, True, False], "images", 2),
        (np.zeros((5, 7), np.int32), np.full((5, 7), 3), "text", 4),
        (np.full((5, 7), 8, np.int32), np.full((5, 7), 3), "text", 9),
        (np.zeros((5, 2), np.int64), np.ones(5), "ratings", 0),
        (np.zeros((5, 2), np.int64), np.ones(5, np.int64), "features", 2),
        (np.zeros((5, 2)), np.ones((5, 1)), "features", 0),
        ([[1, 2, 3], [4, 5, 6]], [0, 1], "features", 2),
    ],
)
def test_what_arrays_are_is_told_from_their_shapes(x, y, kind, classes):
    data = of_arrays(x, y)
    assert (data.kind, data.classes) == (kind, classes)
    assert data.y.ndim == (2 if kind == "text" else 1)


def test_labels_of_the_test_count_too():
    assert of_arrays(np.zeros((2, 3)), [0, 1], np.zeros((1, 3)), [6]).classes == 7


ROWS = np.zeros((4, 3))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": ROWS, "y": [0, 1]}, "x has 4 samples and y 2"),
        ({"x": ROWS[:0], "y": []}, "x is empty"),
        ({"x": ROWS, "y": ["cat", "dog", "cat", "cow"]}, "np.unique"),
        ({"x": np.array([[1], [2, 3]], object), "y": [0, 1]}, "give every sample one shape"),
        ({"x": ROWS * 1j, "y": [0, 1, 0, 1]}, "no numbers"),
        ({"x": ROWS + np.array([0, np.nan, np.inf]), "y": [0, 1, 0, 1]}, "x has 8 entries that are not finite"),
        ({"x": ROWS, "y": [0.0, np.nan, 1.0, 2.0]}, "y has 1 entry that is not finite"),
        ({"x": ROWS, "y": [0, -1, 0, 1]}, "labels must be 0, 1, 2, …, not -1"),
        ({"x": ROWS, "y": [0, 10**9, 0, 1]}, "not 1000000000"),
        ({"x": ROWS[:, 0], "y": [0, 1, 0, 1]}, "x[:, np.newaxis]"),
        ({"x": 3.0, "y": [0]}, "x is a single number"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "x_test": ROWS}, "need each other"),
        (
            {"x": ROWS, "y": [0, 1, 0, 1], "x_test": ROWS[:, :2], "y_test": [0, 1, 0, 1]},
            "x_test has rows of floats (2,)",
        ),
        ({"x": ROWS, "y": [0, 1, 0, 1], "x_test": ROWS, "y_test": ROWS[0]}, "x_test has 4 samples and y_test 3"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "x_test": ROWS, "y_test": ROWS[:, 0]}, "y_test has rows of floats"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "owner": ["a"]}, "owner must name one owner a sample"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "kind": "pictures"}, "there are images, text, ratings, features"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "kind": "images"}, "images need"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "kind": "text"}, "text need"),
        ({"x": np.zeros((4, 2, 2), np.int64), "y": [0, 1, 0, 1]}, "x.astype(np.uint8)"),
        ({"x": np.zeros((4, 2, 2), np.uint8), "y": np.ones(4)}, "images need"),
        ({"x": np.full((4, 2), -1), "y": np.ones(4)}, "users and items must be numbered"),
        ({"x": np.full((4, 2), -1), "y": np.ones((4, 2), np.int64)}, "tokens must be numbered"),
        ({"x": ROWS, "y": [0, 1, 0, 1], "share": 0}, "share"),
    ],
)
def test_arrays_that_cannot_be_samples_are_refused_with_the_way_out(arrays, said):
    with pytest.raises(ConfigError) as caught:
        of_arrays(**arrays)
    assert any(said in problem for problem in caught.value.problems), caught.value.problems


def test_everything_wrong_with_arrays_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        of_arrays(ROWS + np.nan, ["a"] * 4, owner=[1])
    assert len(caught.value.problems) == 3


def test_a_torch_dataset_becomes_arrays():
    torch = pytest.importorskip("torch", reason="this is about torch")
    colours, labels = torch.rand(10, 3, 4, 5), torch.arange(10) % 4
    data = of_torch(torch.utils.data.TensorDataset(colours, labels))
    assert (data.kind, data.classes, data.x.shape, data.x_test.shape) == ("images", 4, (8, 4, 5, 3), (2, 4, 5, 3))
    whole = of_torch(torch.utils.data.TensorDataset(colours, labels), share=1)
    assert np.array_equal(whole.inputs(whole.x), colours.numpy())
    assert whole.y.tolist() == labels.tolist()
    grey = of_torch(torch.utils.data.TensorDataset(torch.rand(6, 1, 4, 5), labels[:6]), share=1)
    assert grey.x.shape == (6, 4, 5)


def test_whatever_gives_pairs_will_do_and_may_be_tested_apart():
    pairs = [(np.array([i, 2.0 * i]), i % 2) for i in range(5)]
    data = of_torch(iter(pairs), pairs[:2], owner=["a", "a", "b", "b", "b"])
    assert (data.kind, data.x.tolist(), data.y.tolist()) == (
        "features",
        [[i, 2 * i] for i in range(5)],
        [0, 1, 0, 1, 0],
    )
    assert (len(data.x_test), data.owner.tolist()) == (2, [0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], "train has no samples"),
        ([1, 2], "pairs"),
        ([(1, 2, 3)], "pairs"),
        ([(np.zeros(2), 0), (np.zeros(3), 0)], "x of different shapes, (2,) and (3,)"),
        ([(np.zeros(2), 0), (np.zeros(2), [0, 1])], "y of different shapes"),
    ],
)
def test_what_gives_no_pairs_is_refused(pairs, said):
    with pytest.raises(ConfigError) as caught:
        of_torch(pairs)
    assert said in str(caught.value)


def written(folder, **parties):
    for name, arrays in parties.items():
        (folder / f"{name}.npz").write_bytes(arrays if isinstance(arrays, bytes) else npz(**arrays))
    return folder


def test_a_folder_has_one_file_a_party(tmp_path):
    folder = written(
        tmp_path,
        north={"x": np.full((10, 3), 1.0), "y": np.zeros(10, int)},
        east={"x": np.full((5, 3), 2.0), "y": np.ones(5, int)},
    )
    (folder / "notes.txt").write_text("nothing to read")
    data = of_folder(folder)
    assert (data.name, data.owners, data.classes) == (tmp_path.name, ("east", "north"), 2)
    assert (np.bincount(data.owner).tolist(), np.bincount(data.owner_test).tolist()) == ([4, 8], [1, 2])
    assert (data.x[:, 0] == 2 - data.owner).all()


def test_files_may_bring_what_is_to_be_tested(tmp_path):
    own = {"x": ROWS, "y": np.arange(4)}
    data = of_folder(written(tmp_path, a=own, b={**own, "x_test": ROWS[:2] + 1, "y_test": np.zeros(2, int)}))
    assert (len(data.x), data.x_test.tolist()) == (8, (ROWS[:2] + 1).tolist())


def test_everything_wrong_with_a_folder_is_told_at_once(tmp_path):
    own = {"x": ROWS, "y": np.arange(4)}
    folder = written(
        tmp_path,
        a=own,
        b={"x": ROWS},
        c={"x": ROWS[:, :2], "y": np.arange(4)},
        d={"x": ROWS, "y": np.arange(3)},
        e=b"not a file of arrays",
        f={**own, "x_test": ROWS},
        g={"x": ROWS[:0], "y": np.arange(0)},
        h=b"",
    )
    with pytest.raises(ConfigError) as caught:
        of_folder(folder)
    told = {Path(problem.split(".npz")[0]).name: problem for problem in caught.value.problems}
    assert told.keys() == set("bcdefgh")
    for name, said in {
        "b": "it has no y",
        "c": "x has rows of floats (2,), and of floats (3,) in the first file",
        "d": "x has 4 samples and y 3",
        "e": "cannot be read",
        "f": "only one of x_test and y_test",
        "g": "is empty",
        "h": "cannot be read",
    }.items():
        assert any(said in problem for problem in caught.value.problems if f"{name}.npz" in problem)


def _zipped(method=zipfile.ZIP_DEFLATED, **members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return file.getvalue()


def _array(data):
    file = io.BytesIO()
    np.save(file, data)
    return file.getvalue()


def test_files_that_are_damaged_or_something_else_are_told_in_words(tmp_path):
    rows, header = _array(ROWS), b"\x93NUMPY\x01\x00\x60\x00"
    damaged = bytearray(_zipped(x=rows, y=_array(np.arange(4))))
    damaged[50:70] = bytes(20)
    secret, method = bytearray(_zipped(x=rows)), bytearray(_zipped(x=rows))
    start = secret.rindex(b"PK\x01\x02")
    secret[6], secret[start + 8] = 1, 1  # as if it were encrypted
    method[8], method[start + 10] = 97, 97  # and packed in a way that nobody knows
    huge = header + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }".ljust(95) + b"\n"
    files = {"a": rows, "b": bytes(damaged), "c": bytes(secret), "d": bytes(method), "e": _zipped(x=huge, y=rows)}
    files["f"] = _zipped(x=b"no array", y=rows)
    with pytest.raises(ConfigError) as caught:
        of_folder(written(tmp_path, **files))
    assert len(caught.value.problems) == 6
    assert all(".npz cannot be read (" in problem for problem in caught.value.problems)
    assert "write it with np.savez" in caught.value.problems[0]
    assert "x is not an array" in caught.value.problems[5]


def test_options_of_another_type_are_told_in_words():
    with pytest.raises(ConfigError) as caught:
        of_arrays(ROWS, np.arange(4), share="x", classes="y", name=3)
    assert list(caught.value.problems) == [
        "name = 3: expected text, got a whole number",
        "share = 'x': expected a number, got text",
        "classes = 'y': expected a whole number or null, got text",
    ]


def test_a_folder_without_files_is_told_how_to_write_them(tmp_path):
    with pytest.raises(ConfigError, match=r"np\.savez"):
        of_folder(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        of_folder(tmp_path / "nowhere")
