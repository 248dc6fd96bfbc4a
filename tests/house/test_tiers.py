"""The tiers of tests: which cases are quick, which files are not even imported, and files that tests leave behind."""

from dataclasses import dataclass, field

import pytest

from support.checkout_guard import describe_new_files, list_files
from support.tiers import is_left_out, mark_cases


@dataclass
class Spec:
    indices: dict


@dataclass
class Case:
    """A collected case of a test, as far as the rules look at it."""

    nodeid: str
    callspec: Spec
    marks: dict = field(default_factory=dict)

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        self.marks[mark.name] = mark


def cases(*sizes, **marks):
    """Returns every combination of parameters with so many values each."""
    combinations = [()]
    for size in sizes:
        combinations = [(*each, value) for each in combinations for value in range(size)]
    names = "abc"
    return [Case(f"test_x[{each}]", Spec(dict(zip(names, each, strict=False))), dict(marks)) for each in combinations]


def test_a_test_with_one_parameter_is_quick_on_all_values():
    items = cases(5)
    mark_cases(items)
    assert not any(item.marks for item in items)


def test_a_test_with_several_parameters_has_every_value_once_in_the_quick_tier():
    items = cases(3, 4, 2)
    mark_cases(items)
    quick = [item for item in items if "long" not in item.marks]
    assert len(quick) < len(items)
    assert {pair for item in quick for pair in item.callspec.indices.items()} == {
        pair for item in items for pair in item.callspec.indices.items()
    }


def test_all_but_every_nth_sampled_case_are_slow():
    items = cases(7, sampled=pytest.mark.sampled(3))
    mark_cases(items)
    assert [("slow" in item.marks) for item in items] == [False, True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("text", "expression", "left_out"),
    [
        ("pytestmark = pytest.mark.long\n", "not slow and not long", True),
        ("pytestmark = pytest.mark.long\n", "not slow", False),
        ("pytestmark = pytest.mark.slow\n", "not slow", True),
        ("pytestmark = pytest.mark.slow\n", "slow", False),
        ("@pytest.mark.slow\ndef test_x(): ...\n", "not slow", False),
        ("import pytest\n\npytestmark = [pytest.mark.long, pytest.mark.skipif(True)]\n", "not slow and not long", True),
    ],
)
def test_whole_files_of_other_tiers_are_left_out(tmp_path, text, expression, left_out):
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert is_left_out(path, expression) is left_out


def test_a_file_that_a_test_leaves_behind_is_named(tmp_path):
    before = list_files(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_text("")
    assert describe_new_files(before, list_files(tmp_path)) == ""
    (tmp_path / "model.npz").write_text("")
    assert "model.npz" in describe_new_files(before, list_files(tmp_path))
