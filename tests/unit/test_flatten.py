import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import ConfigError
from tacit.vectors.flatten import Layout, problems

DTYPES = ["f2", "f4", "f8", ">f4", "i1", "i4", "i8", "u1", "u2", "u8"]


def same(left, right):
    """Whether two models agree in structure, types, shapes and every number."""
    if isinstance(left, dict):
        return type(right) is dict and list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return (
        type(right) is np.ndarray
        and left.dtype == right.dtype
        and left.shape == right.shape
        and np.array_equal(left, right)
    )


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    numbers = draw(st.lists(st.integers(0, 100), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return np.array(numbers).reshape(shape).astype(draw(st.sampled_from(DTYPES)))


def nested(inside):
    lists = st.lists(inside, max_size=3)
    return st.one_of(lists, lists.map(tuple), st.dictionaries(st.text("ab.", max_size=2) | st.integers(0, 3), inside))


@given(st.recursive(arrays(), nested, max_leaves=6))
@settings(derandomize=True, deadline=None)
def test_restoring_a_flat_model_gives_the_model(model):
    if problems(model):
        assert problems(model) == ["the model is empty"]
        return
    layout = Layout.of(model)
    vector = layout.flatten(model)
    assert vector.dtype == np.float64
    assert vector.shape == (layout.size,)
    assert same(layout.restore(vector), model)
    assert Layout.of(layout.restore(vector)) == layout


def test_order_names_and_sizes():
    model = {"b": np.array([[1.0, 2.0], [3.0, 4.0]], "f4"), "a": [np.array([5]), {"c": np.float32(6.0)}]}
    layout = Layout.of(model)
    assert layout.flatten(model).tolist() == [1, 2, 3, 4, 5, 6]
    assert [entry.name for entry in layout.entries] == ["b", "a.0", "a.1.c"]
    assert [entry.shape for entry in layout.entries] == [(2, 2), (1,), ()]
    assert layout.size == 6


def test_the_vector_and_the_model_share_no_memory():
    model = np.arange(6.0)
    layout = Layout.of(model)
    vector = layout.flatten(model)
    restored = layout.restore(vector)
    vector[0] = 7
    assert model[0] == restored[0] == 0
    assert vector.flags.c_contiguous
    assert vector.flags.writeable


def test_strided_arrays_flatten_row_by_row():
    model = np.arange(6.0).reshape(2, 3).T
    assert Layout.of(model).flatten(model).tolist() == [0, 3, 1, 4, 2, 5]


def test_integers_are_rounded_and_floats_are_not():
    layout = Layout.of({"steps": np.array([1, 2, 3]), "rate": np.array([0.5], "f4")})
    restored = layout.restore(np.array([1.4, -1.6, 2.5, 0.25]))
    assert restored["steps"].tolist() == [1, -2, 2]
    assert restored["rate"].tolist() == [0.25]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        *[("u1", 256), ("u1", -1), ("u8", 2.0**64), ("i8", 2.0**63), ("i8", -(2.0**63) * 1.1)],
        *[("i4", np.nan), ("i4", np.inf), ("f4", 1e39), ("f2", -70000.0)],
    ],
)
def test_numbers_that_do_not_fit_are_refused_not_changed(dtype, number):
    layout = Layout.of({"ok": np.zeros(1), "tight": np.zeros(2, dtype)})
    with pytest.raises(ConfigError, match=r"1 entries do not fit tight"):
        layout.restore(np.array([0.0, number, 1.0]))


@pytest.mark.parametrize(("dtype", "number"), [("u1", 255.4), ("u1", -0.4), ("i8", -(2.0**63)), ("f4", np.inf)])
def test_numbers_that_just_fit_are_kept(dtype, number):
    (restored,) = Layout.of(np.zeros(1, dtype)).restore(np.array([number]))
    assert restored == (np.rint(number) if dtype != "f4" else number)


def test_layouts_compare_by_structure_names_shapes_and_types():
    a, b = np.zeros(2), np.zeros((2, 1))
    base = Layout.of({"a": a, "b": b})
    assert base == Layout.of({"a": a + 1, "b": b})
    assert hash(base) == hash(Layout.of({"a": a, "b": b}))
    others = [{"b": b, "a": a}, {"a": a}, {"a": b, "b": b}, {"a": a.astype("f4"), "b": b}, [a, b], (a, b)]
    others += [{"a": a, "c": b}, {"a": a, "b": {"b": b}}]
    assert all(base != Layout.of(other) for other in others)


@pytest.mark.parametrize(
    ("model", "complaints"),
    [
        ({"a": np.zeros(3), "b": np.zeros(2)}, ["expected a (float64 (2,)), not a (float64 (3,))"]),
        ({"a": np.zeros(2, "f4"), "b": np.zeros(2)}, ["expected a (float64 (2,)), not a (float32 (2,))"]),
        (
            {"a": np.zeros(2), "c": np.zeros(1)},
            ["b (float64 (2,)) is missing", "c (float64 (1,)) is not part of the layout"],
        ),
        ({"b": np.zeros(2), "a": np.zeros(2)}, ["the arrays are in a different order or nested differently"]),
    ],
)
def test_another_model_is_refused_with_every_difference(model, complaints):
    with pytest.raises(ConfigError) as caught:
        Layout.of({"a": np.zeros(2), "b": np.zeros(2)}).flatten(model)
    assert list(caught.value.problems) == complaints


@pytest.mark.parametrize("vector", [np.zeros(2), np.zeros((3, 1)), np.zeros(3, complex), np.zeros(3, bool), ["a"] * 3])
def test_another_vector_is_refused(vector):
    with pytest.raises(ConfigError, match="expected a vector of 3 real numbers"):
        Layout.of(np.zeros(3)).restore(vector)


@pytest.mark.parametrize(
    "bad", [np.array([True]), np.array(["a"]), np.array([1j]), np.array([None]), "text", None, np.zeros(1, "M8[s]")]
)
def test_arrays_that_are_not_numbers_are_refused(bad):
    (problem,) = problems({"fine": np.zeros(2), "bad": bad})
    assert problem.startswith("bad (")
    assert problem.endswith("is not an array of real numbers")
    with pytest.raises(ConfigError):
        Layout.of({"fine": np.zeros(2), "bad": bad})


@pytest.mark.parametrize("empty", [{}, [], (), np.zeros(0), {"a": [np.zeros((3, 0))]}])
def test_a_model_without_numbers_is_refused(empty):
    assert problems(empty) == ["the model is empty"]
    with pytest.raises(ConfigError):
        Layout.of(empty)


def test_every_problem_is_told_at_once_with_its_place():
    model = {
        "layer": {"weights": np.array([[np.nan, 1.0], [np.nan, np.inf]]), "mask": np.array([True, False])},
        "bias": np.array([-np.inf, 0.0], "f4"),
        "names": np.array(["x"]),
        "steps": np.array([1]),
    }
    assert problems(model) == [
        "layer.mask (bool (2,)) is not an array of real numbers",
        "names (<U1 (1,)) is not an array of real numbers",
        "layer.weights has 2 NaN entries of 4",
        "layer.weights has 1 infinite entries of 4",
        "bias has 1 infinite entries of 2",
    ]
    assert problems(np.array([1.0, np.nan])) == ["the array has 1 NaN entries of 2"]


def test_torch_is_not_imported_for_those_who_do_without():
    program = """
import sys, numpy as np
from tacit.vectors.flatten import Layout, problems
layout = Layout.of({"a": np.ones(3)})
layout.restore(layout.flatten({"a": np.ones(3)}))
problems(None)
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603


def test_torch_modules_state_dicts_and_tensors():
    torch = pytest.importorskip("torch", reason="there are no tensors to flatten without torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    layout = Layout.of(module)
    assert layout == Layout.of(module.state_dict())
    vector = layout.flatten(module)
    assert layout.size == len(vector) == 6 + 2 + 4 * 2 + 1
    vector[-1] = 41.7  # num_batches_tracked, an integer
    restored = layout.restore(vector)
    assert {name: tensor.dtype for name, tensor in restored.items()} == {
        name: tensor.dtype for name, tensor in module.state_dict().items()
    }
    assert restored["1.num_batches_tracked"] == 42
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    other.load_state_dict(restored)
    assert torch.equal(other[0].weight, module[0].weight)
    restored["0.weight"][0, 0] = 9.0
    assert module[0].weight[0, 0] != 9.0


def test_torch_types_that_numpy_lacks_come_back():
    torch = pytest.importorskip("torch", reason="there are no tensors to flatten without torch")
    model = [torch.tensor([1.5, -2.0], dtype=torch.bfloat16), torch.tensor(3, dtype=torch.int16), np.ones(1)]
    layout = Layout.of(model)
    assert layout.flatten(model).tolist() == [1.5, -2.0, 3.0, 1.0]
    restored = layout.restore(layout.flatten(model))
    assert [type(part) for part in restored] == [type(part) for part in model]
    assert restored[0].dtype == torch.bfloat16
    assert torch.equal(restored[0], model[0])
    assert torch.equal(restored[1], model[1])
    assert layout != Layout.of([model[0].float(), model[1], model[2]])


def test_bad_tensors_are_named():
    torch = pytest.importorskip("torch", reason="there are no tensors to flatten without torch")
    model = {
        "mask": torch.tensor([True]),
        "sparse": torch.eye(2).to_sparse(),
        "nan": torch.tensor([float("nan")], dtype=torch.bfloat16),
    }
    assert problems(model) == [
        "mask (torch.bool (1,)) is not an array of real numbers",
        "sparse (torch.float32 (2, 2)) is not an array of real numbers",
        "nan has 1 NaN entries of 1",
    ]
