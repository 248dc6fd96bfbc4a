"""Attacks speak to people who have not read the papers: what they list, tell and find has none of their letters."""

import json
import re

import pytest

from support.paths import ROOT
from tacit.app.terminal.audit_tables import describe_finding
from tacit.lab.attacks import collusion, disaggregation, eavesdropper_decoding, eavesdropper_learning, epsilon
from tacit.lab.attacks.lies import search
from tacit.lab.attacks.lies.variants import VARIANTS
from tacit.lab.attacks.registry import ATTACKS

pytestmark = pytest.mark.long

LETTERS = re.compile(
    r"Table|Fig\.|Figure|Theorem|Lemma|Algorithm|P?PSGD|CBGD|FedAvg|PLD|zCDP|RDP|\bring\b(?! of)|canary"
    r"|\b[a-zA-Z]_[a-zA-Z]\b|\b[a-zA-Z]\d? = |\bU\d\b|[a-z]\(0\)|~|\bw\*|[αβγδηθλρσ]"
)
"""Of papers. What privacy is worth goes by ε everywhere, and is called what it is."""
KEPT = ROOT / "docs" / "attacks.json"


class Enough(Exception):
    """An attack has told what it begins with."""


def games():
    """Returns the games that an attack on noise plays in full."""
    theorem = epsilon.theorem_game(10, 100)
    return [
        theorem,
        epsilon.sum_game(100, honest=10, colluding=9),
        epsilon.sum_game(100, honest=10, accountant="zcdp"),
        epsilon.ring_game(100, theorem.sigma),
        epsilon.ring_game(100),
    ]


def targets():
    """Yields what is attacked, as far as that is known without running anything."""
    yield from (trial.said for full in (False, True) for trial in eavesdropper_learning.list_trials(full))
    yield from (target.name for target in eavesdropper_decoding.TARGETS)
    yield from (setting.target for full in (False, True) for setting in disaggregation.list_settings(full))
    yield from (game.target for game in games())
    yield from (search.describe_target(name) for name in (*VARIANTS, *search.list_targets(full=False)))


@pytest.mark.parametrize("target", sorted(set(targets())))
def test_targets_are_in_words(target):
    assert not LETTERS.search(target), LETTERS.search(target)


def test_what_is_kept_of_full_runs_is_in_words_and_of_targets_that_there_are():
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    # What was stored before the attack was renamed says onlooker.
    said = [
        (each["target"].replace("an onlooker", "an eavesdropper"), each["measure"])
        for findings in kept.values()
        for each in findings
    ]
    assert len(said) > 150
    assert not [text for both in said for text in both if LETTERS.search(text)]
    assert {target for target, _ in said} >= {trial.said for trial in eavesdropper_learning.list_trials(True)}
    assert {target for target, _ in said} >= {game.target for game in games()}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_listed_and_told_first_is_in_words(name):
    told = []

    def stop(doing, _):
        told.append(doing)
        raise Enough

    with pytest.raises(Enough):
        ATTACKS[name].run(False, 0, stop)
    assert not LETTERS.search(f"{told[0]}; {ATTACKS[name].summary}")
    assert len(told[0].split()) > 1


def test_where_the_paper_has_it_is_said_apart():
    game, other = epsilon.theorem_game(10, 100), epsilon.sum_game(100, honest=10, accountant="zcdp")
    assert [describe_finding(epsilon.account_game(each))["paper"] for each in (game, other)] == ["Theorem 1", ""]
    for count, paper in ((collusion.one_receiver, "Fig. 6"), (collusion.two_receivers, "")):
        finding = collusion.compute_figure6((3,), (2,), 10, count=count, nodes=20, degree=4)[2][3]
        assert describe_finding(finding)["paper"] == paper
