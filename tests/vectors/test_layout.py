import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tacit
from tacit.core.errors import ConfigError
from tacit.vectors.layout import Layout, inspect_model
from tacit.vectors.model_tree import ArraySelection

EVERYTHING = ArraySelection(include=("*",))

DTYPES = ["f2", "f4", "f8", ">f4", "i1", "i4", "i8", "u1", "u2", "u8"]


def problems(model, selection=EVERYTHING):
    """Returns what keeps a model from being averaged, whole numbers and all."""
    return inspect_model(model, selection)[1]


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
@example(model=[np.zeros(1), [[]]])
@settings(derandomize=True, deadline=None)
def test_restoring_a_flat_model_gives_the_model(model):
    if problems(model):
        assert problems(model) == ["the model is empty"]
        return
    model = model.astype(float) if isinstance(model, np.ndarray) and model.dtype.kind in "iu" else model
    layout = Layout.of(model, EVERYTHING)
    vector = layout.flatten(model)
    assert vector.dtype == np.float64
    assert vector.shape == (layout.size,)
    assert same(layout.restore(vector), model)
    assert Layout.of(layout.restore(vector), EVERYTHING) == layout
    if inspect_model(model)[0] is not None:
        averaged = Layout.of(model)
        assert averaged.size == sum(each.size for each in layout.entries if np.dtype(each.dtype).kind == "f")
        assert same(averaged.restore(averaged.flatten(model), model), model), "whole numbers are those of the model"


def test_order_names_and_sizes():
    model = {"b": np.array([[1.0, 2.0], [3.0, 4.0]], "f4"), "a": [np.array([5]), {"c": np.float32(6.0)}]}
    layout = Layout.of(model, EVERYTHING)
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
    layout = Layout.of({"steps": np.array([1, 2, 3]), "rate": np.array([0.5], "f4")}, EVERYTHING)
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
    layout = Layout.of({"ok": np.zeros(1), "tight": np.zeros(2, dtype)}, EVERYTHING)
    with pytest.raises(ConfigError, match=r"1 entry does not fit tight"):
        layout.restore(np.array([0.0, number, 1.0]))


@pytest.mark.parametrize(("dtype", "number"), [("u1", 255.4), ("u1", -0.4), ("i8", -(2.0**63)), ("f4", np.inf)])
def test_numbers_that_just_fit_are_kept(dtype, number):
    (restored,) = Layout.of([np.zeros(1, dtype)], EVERYTHING).restore(np.array([number]))
    assert restored == (np.rint(number) if dtype != "f4" else number)


def test_layouts_compare_by_names_shapes_and_types():
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
        ({"a": np.zeros(3), "b": np.zeros(2)}, ["a is float64 (3,), not float64 (2,)"]),
        ({"a": np.zeros(2, "f4"), "b": np.zeros(2)}, ["a is float32 (2,), not float64 (2,)"]),
        (
            {"a": np.zeros(2), "c": np.zeros(1)},
            ["b (float64 (2,)) is missing", "c (float64 (1,)) is one too many"],
        ),
        ({"b": np.zeros(2), "a": np.zeros(2)}, ["the arrays are in another order"]),
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
    assert problem.endswith("is not an array of real numbers; try: leave it local by exclude=['bad']")
    with pytest.raises(ConfigError):
        Layout.of({"fine": np.zeros(2), "bad": bad}, EVERYTHING)
    assert Layout.of({"fine": np.zeros(2), "bad": bad}, ArraySelection(exclude=("bad",))).size == 2


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
        "layer.mask (bool (2,)), names (<U1 (1,)) are not arrays of real numbers; try: leave them local "
        "by exclude=['layer.mask', 'names']",
        "layer.weights has 2 NaN entries of 4",
        "layer.weights has 1 infinite entries of 4",
        "bias has 1 infinite entries of 2",
    ]
    assert problems(np.array([1.0, np.nan])) == ["the array has 1 NaN entries of 2"]


def test_torch_is_not_imported_for_those_who_do_without():
    program = """
import sys, numpy as np
from tacit.vectors.layout import Layout, inspect_model
layout = Layout.of({"a": np.ones(3)})
layout.restore(layout.flatten({"a": np.ones(3)}))
inspect_model(None)
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
    assert layout.size == len(vector) == 6 + 2 + 4 * 2
    assert layout.flatten(module, narrow=True).dtype == np.float32, "the counter would have taken the digits of doubles"
    module[1].num_batches_tracked.fill_(41)
    restored = layout.restore(vector, module)
    assert {name: tensor.dtype for name, tensor in restored.items()} == {
        name: tensor.dtype for name, tensor in module.state_dict().items()
    }
    module[1].num_batches_tracked.fill_(42)
    assert restored["1.num_batches_tracked"] == 41, "it is that of the module, as it was"
    other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    other.load_state_dict(restored)
    assert torch.equal(other[0].weight, module[0].weight)
    restored["0.weight"][0, 0] = 9.0
    assert module[0].weight[0, 0] != 9.0


def test_torch_types_that_numpy_lacks_come_back():
    torch = pytest.importorskip("torch", reason="there are no tensors to flatten without torch")
    model = [torch.tensor([1.5, -2.0], dtype=torch.bfloat16), torch.tensor(3, dtype=torch.int16), np.ones(1)]
    layout = Layout.of(model, EVERYTHING)
    assert layout.flatten(model).tolist() == [1.5, -2.0, 3.0, 1.0]
    restored = layout.restore(layout.flatten(model))
    assert [type(part) for part in restored] == [type(part) for part in model]
    assert restored[0].dtype == torch.bfloat16
    assert torch.equal(restored[0], model[0])
    assert torch.equal(restored[1], model[1])
    assert layout != Layout.of([model[0].float(), model[1], model[2]], EVERYTHING)


def test_bad_tensors_are_named():
    torch = pytest.importorskip("torch", reason="there are no tensors to flatten without torch")
    model = {
        "mask": torch.tensor([True]),
        "sparse": torch.eye(2).to_sparse(),
        "nan": torch.tensor([float("nan")], dtype=torch.bfloat16),
    }
    assert problems(model) == [
        "mask (torch.bool (1,)), sparse (torch.float32 (2, 2)) are not arrays of real numbers; try: leave them local "
        "by exclude=['mask', 'sparse']",
        "nan has 1 NaN entries of 1",
    ]


# --- selection of arrays -------------------------------------------------------------------------------------------

MODEL = {
    "head": {"weight": np.ones(2), "bias": np.ones(1)},
    "body": np.ones(3),
    "count": np.array([7]),
    "on": np.array(True),
}


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (ArraySelection(), ["head.weight", "head.bias", "body"]),
        (ArraySelection(exclude=("head.*",)), ["body"]),
        (ArraySelection(exclude=("head.weight", "count")), ["head.bias", "body"]),
        (ArraySelection(include=("head.*", "count")), ["head.weight", "head.bias", "count"]),
        (ArraySelection(include=("*",), exclude=("on", "head.*")), ["body", "count"]),
    ],
)
def test_floats_are_averaged_unless_names_say_otherwise(selection, names):
    layout = Layout.of(MODEL, selection)
    assert [entry.name for entry in layout.entries] == names
    doubled = layout.restore(2 * layout.flatten(MODEL), MODEL)
    assert list(doubled) == list(MODEL), "what is not averaged comes back too"
    flat = {"head.weight": "head", "head.bias": "head"}
    for name, before, now in (
        ("head.weight", MODEL["head"]["weight"], doubled["head"]["weight"]),
        ("head.bias", MODEL["head"]["bias"], doubled["head"]["bias"]),
        *((each, MODEL[each], doubled[each]) for each in ("body", "count", "on")),
    ):
        assert np.array_equal(now, 2 * before if name in names else before), name
        assert not np.shares_memory(now, before)
    alone = layout.restore(layout.flatten(MODEL))
    assert {flat.get(name, name) for name in names} | {"head"} == set(alone), "without a model the rest is left out"


def test_what_is_left_out_of_a_list_leaves_its_place():
    layout = Layout.of([np.ones(1), np.array([3]), np.ones(2)])
    assert layout.restore(np.ones(3))[1] is None


def test_plain_numbers_are_floats_and_so_is_an_array_that_is_all_there_is():
    for model in ([1, 2, 4], (1, 2, 4), np.array([1, 2, 4]), {"w": [1, 2, 4]}, [[1, 2], [4]]):
        layout = Layout.of(model)
        assert layout.flatten(model).tolist() == [1, 2, 4]
        assert layout.flatten(layout.restore(np.array([0.5, 1.5, 2.5]))).tolist() == [0.5, 1.5, 2.5]
    assert Layout.of(3).restore(np.array([2.5])) == 2.5
    assert Layout.of({"w": 0.5, "steps": 3}).size == 1, "a number by a name of its own may be a counter"


def test_a_list_of_text_or_of_numbers_beyond_floats_is_told_in_one_line():
    assert inspect_model(["a", "b"])[1] == ["0 (<U1 ()), 1 (<U1 ()) are not arrays of real numbers"]
    (problem,) = inspect_model([10**400, 1.0])[1]
    assert problem.startswith("0 (object ()) is not an array of real numbers")


def test_a_model_of_which_nothing_is_averaged_is_refused():
    (problem,) = inspect_model({"count": np.array([7]), "on": np.array(True)})[1]
    assert problem == (
        "nothing would be averaged: count, on are left out, or not of floats; try: name what to average in include="
    )


def test_names_of_nothing_are_told_with_what_was_meant():
    names = inspect_model(MODEL)[2]
    assert ArraySelection(exclude=("head",)).problems(names) == [
        "exclude='head' is the name of no array; did you mean 'head.*'?"
    ]
    assert ArraySelection(include=("bdy",)).problems(names) == [
        "include='bdy' is the name of no array; did you mean 'body'?"
    ]
    assert ArraySelection(exclude=("x",)).problems(names) == [
        "exclude='x' is the name of no array; there are head.weight, head.bias, body, count, on"
    ]
    assert ArraySelection(include=("*",), exclude=("o?",)).problems(names) == []


def test_arrays_with_entries_beyond_a_bound_are_named():
    layout = Layout.of(MODEL)
    assert layout.beyond(np.array([9.0, 1.0, -11.0, 2.0, 2.0, 2.0]), 8.0) == [
        ("head.bias", 1, 11.0),
        ("head.weight", 1, 9.0),
    ]


# --- what an average would not be ----------------------------------------------------------------------------------


def aggregated(*models, **options):
    """Returns the outcome of averaging models, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = tacit.aggregate(list(models), "secagg", **options)
    return outcome, [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("small", "what"),
    [(np.full(4, 1e-8), "all"), (np.array([1e-8, 0.0, 0.0, 0.0]), "all"), (np.array([1e-8] * 3 + [1]), "most")],
)
def test_an_array_that_the_ring_rounds_to_nothing_is_warned_of(small, what):
    outcome, told = aggregated(*[{"w": np.ones(2), "small": small}] * 3)
    line = (
        f"p0, p1, p2: {what} entries of small that are not 0 are below half a step of the ring, which is 4.5e-08, and "
        f"count as 0; try: use bits=64, or a smaller clip"
    )
    assert told == [line]
    assert line in outcome.warnings
    assert outcome.average["p0"]["small"][0] == 0
    for cure in ({"bits": 64}, {"clip": 1e-6, "exclude": ["w"]}):
        if what == "all" or "bits" in cure:
            outcome, told = aggregated(*[{"w": np.ones(2), "small": small}] * 3, **cure)
            assert not any("half a step" in each for each in (*told, *outcome.warnings))
            assert outcome.average["p0"]["small"][0] == pytest.approx(1e-8, rel=1e-3)


@pytest.mark.parametrize("fine", [np.zeros(4), np.array([1e-8, 1.0, 1.0, 0.0]), np.zeros(0)])
def test_zeros_and_a_few_small_entries_are_not(fine):
    assert aggregated(*[{"w": np.ones(2), "fine": fine}] * 3)[1] == []


def test_what_a_light_weight_makes_small_is_warned_of_for_those_who_have_it():
    models = [{"w": np.full(3, 1e-6)}] * 3
    told = aggregated(*models, weights=[1e-3, 1.0, 1.0])[1]
    assert [each.partition(":")[0] for each in told if "half a step" in each] == ["p0"]


def test_what_is_rounded_by_chance_or_has_noise_is_not_warned_of():
    for options in ({"bits": 16}, {"noise": 0.1}):
        assert aggregated(*[{"w": np.full(3, 1e-8)}] * 3, **options)[1] == []


def test_masked_arrays_are_refused():
    model = {"w": np.ones(2), "under": np.ma.array([1.0, 99.0], mask=[0, 1])}
    (problem,) = problems(model)
    assert problem.startswith("under (float64 (2,)) is a masked array, and what is under the mask would be averaged")
    assert problem.endswith("pass its filled(…), or leave it local: exclude=['under']")
    with pytest.raises(ConfigError, match="masked array"):
        Layout.of({"w": np.ones(2), "under": np.ones(2)}).flatten(model)
    assert Layout.of(model, ArraySelection(exclude=("under",))).size == 2
    (problem,) = problems(model["under"])
    assert problem.endswith("pass its filled(…)")


def test_the_cure_for_what_is_no_real_number_leaves_something():
    model = {"c": np.array([1j]), "f": np.ones(2), "n": np.array([3])}
    assert problems(model, ArraySelection(include=("c",))) == [
        "c (complex128 (1,)) is not an array of real numbers; try: "
        "name arrays of real numbers in include=, and not only ['c']"
    ]
    assert problems(model, ArraySelection(include=("c", "f")))[0].endswith("try: leave it local by exclude=['c']")


@pytest.mark.parametrize(("option", "pattern"), [("include", "nosuch*"), ("exclude", "nosuch*")])
def test_a_pattern_that_takes_nothing_is_named(option, pattern):
    with pytest.raises(ConfigError) as caught:
        tacit.aggregate([{"x": np.ones(2), "n": np.array([1])}] * 3, "secagg", **{option: [pattern]})
    assert caught.value.problems[-1] == f"{option}='nosuch*' is the name of no array; there are x, n"


@pytest.mark.parametrize(
    ("array", "options"),
    [
        (np.full(5, 255, np.uint8), {"clip": 256, "noise": 20.0, "include": ["b"]}),
        (np.full(5, -128, np.int8), {"clip": 256, "noise": 20.0, "include": ["b"]}),
        (np.full(5, 65504.0, np.float16), {"clip": 2.0**17, "noise": 400.0}),
    ],
)
def test_what_noise_may_take_beyond_a_type_is_refused_before_the_round(array, options):
    federation = tacit.Federation("secagg", ["a", "b", "c"], **options)
    with pytest.raises(
        ConfigError,
        match=r"b \(.*has entries from .* with noise=.* which it cannot hold; try: "
        "use wider",
    ):
        federation.average([{"b": array}] * 3)
    assert federation.rounds == 0, "nothing was sent, and nothing spent"
    assert federation.average([{"b": array.astype(np.float64)}] * 3).average
