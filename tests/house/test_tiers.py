"""The tiers of tests: which cases are slow, which files are not even imported, and files that tests leave behind."""

from dataclasses import dataclass, field

import pytest

from support.checkout_guard import describe_new_files, list_files
from support.tiers import is_left_out, mark_cases


@dataclass
class Case:
    """A collected case of a test, as far as the rules look at it."""

    nodeid: str
    marks: dict = field(default_factory=dict)

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        self.marks[mark.name] = mark


def test_all_but_every_nth_sampled_case_are_slow():
    items = [Case(f"test_x[{number}]", {"sampled": pytest.mark.sampled(3)}) for number in range(7)]
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
