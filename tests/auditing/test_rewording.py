"""Rewording every sentence, also of the auditor of Flower apps, changes no decision, exit code, colour or file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.core.protocol_facts import ArgumentCode, ConditionCode, ReasonCode
from tacit.integrations.flower.auditor.findings import AppCode

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).with_name("decisions.py")
VERDICTS = {
    "exposed": ("exposed", 1),
    "holds": ("holds", 0),
    "worst case": ("exposed_in_worst_case", 1),
    "nothing found": ("nothing_found", 0),
    "eavesdropper": ("nothing_found", 0),
    "app": ("undecided", 1),
    "app plain": ("exposed", 1),
    "app differences": ("exposed", 1),
    "app secagg": ("nothing_found", 0),
    "app dropouts": ("exposed", 1),
    "undecided": ("undecided", 1),
    "files": ("exposed", 1),
}


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """Returns decisions and sentences, as they are and reworded."""

    def run(*options):
        folder = tmp_path_factory.mktemp("decisions")
        done = subprocess.run(  # noqa: S603 (our own script)
            [sys.executable, str(SCRIPT), *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    return run(), run("--reworded")


def test_rewording_changes_no_decision(decided):
    plain, reworded = decided
    assert plain["decisions"].keys() == reworded["decisions"].keys()
    for name, decision in plain["decisions"].items():
        assert reworded["decisions"][name] == decision, name


def test_every_sentence_was_reworded(decided):
    plain, reworded = decided
    for name, sentences in plain["sentences"].items():
        kept = set(sentences) & set(reworded["sentences"][name])
        assert not [text for text in kept if " " in text], name
    assert sum(map(len, plain["sentences"].values())) > 200


def test_apps_have_codes_beside_their_sentences(decided):
    plain, reworded = decided
    codes = set()
    for name in ("app", "app plain", "app differences", "app secagg", "app dropouts"):
        findings = reworded["decisions"][f"{name}: JSON"]["data"]["findings"]
        assert findings == plain["decisions"][f"{name}: JSON"]["data"]["findings"]
        codes |= {each["code"] for each in findings}
    # The rest is of protocols without a server.
    assert set(AppCode) - codes == {"messages_carried"}


def test_every_argument_and_reason_has_a_code_beside_its_sentence(decided):
    decisions, sentences = decided[0]["decisions"], decided[0]["sentences"]
    argued = {name: found for name, found in decisions.items() if name.startswith("argument ")}
    arguments = [each for found in argued.values() for each in found["arguments"]]
    assert {each["name"] for each in arguments} == set(ArgumentCode)
    cited = {note["argument"] for found in argued.values() for note in found["note_codes"]}
    assert {"one sum", "fresh sums", "whole batches", "private neighbours"} <= cited
    assert all(sentences[name] for name, found in argued.items() if found["arguments"])
    reasons = [each["reason"]["code"] for each in decisions["plan: JSON"]["data"]["proposals"]]
    assert {"baseline_with_server", "everybody", "neighbours", "all_to_all"} <= set(reasons) <= set(ReasonCode)
    assert ReasonCode.OWN not in reasons
    assert "everybody in every round" in sentences["plan: JSON"]


def test_claims_have_codes_beside_their_conditions_and_formulas_are_reworded(decided):
    plain, reworded = decided
    claims = [name for name in plain["decisions"] if name.startswith("claims ")]
    codes = {each["condition"]["code"] for name in claims for each in plain["decisions"][name] if each["condition"]}
    assert codes == set(ConditionCode)
    formulas = [name for name in plain["sentences"] if name.startswith("formulas ")]
    assert len(formulas) == 4
    for name in formulas:
        assert plain["sentences"][name], name
        assert not set(plain["sentences"][name]) & set(reworded["sentences"][name])


def test_there_is_one_of_each_verdict(decided):
    decisions = decided[0]["decisions"]
    for name, (verdict, code) in VERDICTS.items():
        assert decisions[f"{name}: JSON"]["data"]["verdict_code"] == verdict
        assert decisions[f"{name}: terminal"]["code"] == decisions[f"{name}: JSON"]["code"] == code
        red = any("31" in colour for colour in decisions[f"{name}: terminal"]["colours"])
        assert red == bool(code), name
    codes = {each["verdict_code"] for each in decisions["plan: JSON"]["data"]["proposals"]}
    assert codes >= {"holds", "leaks_by_design"}
    attacks = {each["verdict_code"] for each in decisions["attack: JSON"]["data"]}
    assert attacks == {"broken", "not_broken_by_this"}
    assert [decisions[f"train {name}: terminal"]["code"] for name in ("hidden", "leaking")] == [0, 1]
    assert {"hidden/audit.json", "audit.html", "plan.svg"} <= set(decisions["files"]["files"])
    proofs = [each for each in decisions["page"] if each["event"] == "proof"]
    assert [each["verdict_code"] for each in proofs] == ["holds", "exposed"]
