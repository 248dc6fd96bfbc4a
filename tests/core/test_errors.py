"""Errors: a message, a remedy and a detail, and a code that keeps its meaning."""

import ast
import inspect
import pickle
import re

import pytest

import tacit
from support.paths import ROOT
from tacit.core import errors
from tacit.core.errors import OTHER_CODES, ConfigError, Drop, ErrorText, NotEnough, TacitError, list_codes

SOURCES = sorted((ROOT / "src" / "tacit").rglob("*.py"))


def test_an_error_has_a_message_a_remedy_and_a_detail():
    error = TacitError("threshold=9 exceeds the 5 parties", remedy="threshold=4", detail="of 5, 1 may drop out")
    assert str(error) == "threshold=9 exceeds the 5 parties; try: threshold=4"
    assert (error.message, error.remedy, error.detail) == (
        "threshold=9 exceeds the 5 parties",
        "threshold=4",
        "of 5, 1 may drop out",
    )
    assert error.__notes__ == ["of 5, 1 may drop out"], "a traceback shows the detail"
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    assert (str(copy), copy.texts, copy.detail) == (str(error), error.texts, error.detail)
    assert str(TacitError("without a remedy")) == "without a remedy"


def test_the_text_of_an_error_that_was_stored_has_its_remedy():
    assert TacitError("a; try: b").texts == (ErrorText("a", "b"),)
    assert str(TacitError(str(TacitError("a", remedy="b")))) == "a; try: b"


def test_each_problem_has_a_remedy_of_its_own():
    error = ConfigError(["a; try: b", "c", "d; try: e"])
    assert error.texts == (ErrorText("a", "b"), ErrorText("c"), ErrorText("d", "e"))
    assert error.problems == ("a; try: b", "c", "d; try: e")
    assert (error.message, error.remedy) == ("a; c; d", "b; e")
    assert ConfigError("a", remedy="b").problems == ("a; try: b",)


def test_an_aborted_round_is_one_line():
    missing = {"p2": Drop.SILENT, "p3": Drop.SILENT, "p4": Drop.DISAGREES}
    error = NotEnough(
        "of 5 parties delivered Ping", 2, 4, missing, {"p4": "bits is 32 here"}, "run it again", round_number=7
    )
    assert str(error) == (
        "round 7 aborted: 2 of 5 parties delivered Ping, 4 needed; timed out: p2, p3; "
        "with other settings: p4 (bits is 32 here); try: run it again"
    )


def test_every_code_is_listed_with_its_meaning():
    listed = list_codes()
    assert all(meaning.endswith(".") for meaning in listed.values()), listed
    assert {kind.code for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, TacitError)} == (
        listed.keys() - OTHER_CODES.keys()
    )
    written = set()
    for path in SOURCES:
        written |= set(re.findall(r'^    code(?:: ClassVar\[str\])? = "([a-z-]+)"$', path.read_text(), re.MULTILINE))
        written |= set(re.findall(r"error\[([a-z-]+)\]", path.read_text()))
    assert written - listed.keys() == set()
    assert listed.keys() - written == set()


# --- no remedy exposes anybody -------------------------------------------------------------------------------------

LEAKING = re.compile(
    r"allow_leaks|masked=False|private=False|threshold below|(smaller|lower|reduce)( the)? threshold|masking=0|leaks"
    r"|disable|without (masks|noise|encryption)|share (the |your )?(keys?|identity)|chmod [0-7]*[4-7][4-7]\b",
    re.IGNORECASE,
)
"""Words of a remedy that would expose data or keys. There is no exception. `allow_leaks=True` is the documented way to
run settings that leak, and even so no remedy names it: a refusal states it in its detail, with what it exposes."""


def _texts(tree):
    """Yields every string of a module that is no docstring, with `{}` for what is put in."""
    docs = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    inner = {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
    for each in ast.walk(tree):
        if isinstance(each, ast.JoinedStr):
            yield each, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in each.values)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docs | inner:
            yield each, each.value


def remedies(source):
    """Yields every remedy of a module: behind the separator, given as an argument, or kept under a name of its own."""
    tree = ast.parse(source)
    own = [
        part
        for each in ast.walk(tree)
        if isinstance(each, ast.keyword) and each.arg in ("remedy", "cure", "advice", "alternative")
        for part in ast.walk(each.value)
    ]
    own += [
        part
        for each in ast.walk(tree)
        if isinstance(each, ast.Assign)
        and re.search(
            r"\b(\w*cure|remedy|back|renew|gone|advice|_room|older)\b", ast.unparse(each.targets[0]), re.IGNORECASE
        )
        for part in ast.walk(each.value)
    ]
    own += [
        part
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and re.search(r"cure|remedy|elsewhere|keep_folder", each.name)
        for part in ast.walk(each)
    ]
    nodes = {id(part) for part in own}
    for node, text in _texts(tree):
        if errors.TRY in text:
            yield text.partition(errors.TRY)[2]
        elif id(node) in nodes:
            yield text


def test_no_remedy_exposes_anybody():
    found = {(path.name, remedy) for path in SOURCES for remedy in remedies(path.read_text(encoding="utf-8"))}
    assert len(found) > 250, "as many remedies were read as there are"
    assert {each for each in found if LEAKING.search(each[1])} == set()


@pytest.mark.parametrize(
    "source",
    [
        'raise ConfigError(f"{a} is too much; try: pass allow_leaks=True")',
        'raise NotEnough("users", 1, 2, cure="set a smaller threshold")',
        'raise TacitError("no", remedy="use masked=False")',
        'CURE = "set threshold=2, so add allow_leaks=True"',
        'def cure(self):\n    return f"{again}, or set a threshold below {self.threshold}"',
    ],
)
def test_a_remedy_that_exposes_somebody_is_found(source):
    assert any(LEAKING.search(remedy) for remedy in remedies(source))


@pytest.mark.parametrize("protocol", ["secagg", "fedavg", "admm"])
@pytest.mark.parametrize("parties", [3, 4, 5, 8])
def test_no_aborted_round_recommends_less_protection(protocol, parties):
    options = {"masked": True, "group_size": None} if protocol == "admm" else {}
    faults = [{"action": "crash", "party": f"p{place}"} for place in range(parties - 1)]
    with pytest.raises(TacitError) as caught:
        tacit.aggregate([[1.0]] * parties, protocol, faults=faults, **options)
    assert caught.value.remedy
    assert "threshold" not in caught.value.remedy
    assert LEAKING.search(caught.value.remedy + caught.value.detail) is None


def test_a_refusal_names_its_opt_in_with_what_it_exposes_and_not_as_a_remedy():
    with pytest.raises(tacit.LeakRefused) as caught:
        tacit.aggregate([[1.0]] * 5, "pushsum")
    assert "allow_leaks" not in str(caught.value)
    assert caught.value.detail == errors.OPT_IN


# --- every remedy is marked ----------------------------------------------------------------------------------------

UNMARKED = re.compile(
    r"; (or )?(use|give|set|run|pass|leave|begin|call|move|take|add|write|put|restore|make|choose|ask|start|see|join)\b"
)


def raised_texts(source):
    """Yields the strings of every `raise`, and of every problem that is added to a list."""
    tree = ast.parse(source)
    for each in ast.walk(tree):
        added = isinstance(each, ast.Call) and ast.unparse(each.func).endswith(("problems.append", "wrong.append"))
        if isinstance(each, ast.Raise) or added:
            yield from (text for _, text in _texts(each))


def test_every_remedy_is_marked():
    """The command line prints it on a line of its own, so it must not hide in the message."""
    # The web page has a layout of its own for what it refuses.
    printed = [path for path in SOURCES if path.parent.name != "ui"]
    found = {(path.name, text) for path in printed for text in raised_texts(path.read_text(encoding="utf-8"))}
    assert len(found) > 400
    assert {each for each in found if UNMARKED.search(each[1].partition(errors.TRY)[0])} == set()


def test_an_unmarked_remedy_is_found():
    [text] = raised_texts('raise ConfigError(f"there is no {name}; use another")')
    assert UNMARKED.search(text)
