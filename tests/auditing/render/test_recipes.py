"""Recipes in words say what the recipe does."""

import pytest

import tacit
from tacit.auditing.render.formulas import list_terms
from tacit.auditing.render.recipes import describe_recipe, join_names

TWO_RECEIVERS = [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (5, 2), (5, 3), (3, 0), (3, 1), (3, 2), (0, 1), (0, 2)]


def told(victim, *given, **settings):
    return describe_recipe(tacit.audit(*given, **settings).exposed[victim])


def test_what_one_receiver_has_minus_what_the_other_has():
    found = told("p3", "cesar", parties=6, coalition=["p4", "p5"], graph=TWO_RECEIVERS, masking=2)
    assert found.lines == (
        "5 × (what p0, p1, p2 and p3 sent to p5 in round 1 (Masked), with the masks of p0, p1, p2 and p3 taken off)",
        "minus 5 × (what p0, p1 and p2 sent to p4 in round 1 (Masked), with the masks of p0, p1 and p2 taken off)",
    )
    assert (found.uses, found.more) == ("7 messages and 7 masks", 0)


def test_two_sums_that_differ_in_one_party():
    found = told("p3", "secagg", parties=6, coalition=["server"], rounds=3, dropout=0.2)
    assert str(found) == (
        "p3 is what server sent to p5 in round 3 (Sum), minus what server sent to p5 in round 1 (Sum)"
    )


def test_sums_of_rounds_that_were_rehearsed():
    found = told("p1", "secagg", parties=9, coalition=["server"], rounds=20, dropout=0.1)
    assert found.lines == ("the sum of round 1", "minus the sum of round 7")


def test_of_many_terms_a_few_are_told_and_the_rest_are_counted():
    report = tacit.audit("admm", parties=9, coalition=["p0"], group_size=3, iterations=5)
    found = describe_recipe(report.exposed["p1"])
    assert len(found.lines) + found.more == len(list_terms(report.exposed["p1"]))
    assert found.lines[0].endswith("p0's own vector")
    assert "what p0 brought or drew" in found.uses


def test_many_masks_are_counted_and_not_listed():
    found = told("p3", "secagg", parties=6, coalition=["server", "p0", "p1", "p2"], threshold=3)
    assert any("masks taken off that it can compute" in line for line in found.lines)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["p10", "p2"], "p2 and p10"),
        (["a"], "a"),
        ([f"p{i}" for i in range(9)], "p0, p1, p2, p3 and 5 others"),
    ],
)
def test_names_as_people_say_them(names, said):
    assert join_names(names) == said
