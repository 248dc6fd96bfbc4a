"""Names in formats are pinned: a class that is renamed is written, sent and read as before.

One test reads the source: every class whose name could reach a disk or a peer says in its declaration what it is called
there. The others rename all of these classes while the tests of the golden files run.
"""

import ast
import inspect
import textwrap
from pathlib import Path
from typing import get_args

import pytest
import test_golden
from test_golden import copied, credentials  # noqa: F401 (fixtures)

import tacit
from tacit.core.errors import ConfigError
from tacit.core.messages import GREETING, Abort, Codec, Greeting, Message
from tacit.designs.graphs import Graph
from tacit.designs.participation import Policy
from tacit.net.store.index import IndexEntry
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum.start_weights import StartKind
from tacit.runtime.journal import Beginning
from tacit.runtime.simulation.faults import Fault

SOURCE = Path(tacit.__file__).parent
DEFAULTS = {"Message", "Participation"}
"""Bases whose subclasses go by their own names unless they say otherwise: those of people who add one."""


FORMATS = ("core", "designs", "protocols", "runtime", "net", "integrations")
"""Rooms that write formats."""
IN_ERRORS = {"type(protocol)", "type(error)", "type(estimator)", "type(value)", "section"}
"""Whose class an error may name there: another error's, a wrong value's, and that of a section of a file."""


def shipped(base):
    """Returns all subclasses of ours, however indirect."""
    found = [each for kind in base.__subclasses__() for each in (kind, *shipped(kind))]
    return [each for each in found if each.__module__.startswith("tacit.")]


MESSAGES = sorted({*shipped(Message), *(kind for each in REGISTRY.values() for kind in each.messages)}, key=repr)
PAGES = shipped(IndexEntry)
KINDS = [*get_args(Policy), *get_args(Graph), *get_args(StartKind)]
TAGGED = [*MESSAGES, *KINDS, Greeting, Beginning]


def declaration(kind):
    return ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]


def pins_tag(declared):
    """Says whether a class is declared with a tag that is text, or the name of a constant."""
    tags = [each.value for each in declared.keywords if each.arg == "tag"]
    return any(
        isinstance(tag, ast.Name) or (isinstance(tag, ast.Constant) and isinstance(tag.value, str)) for tag in tags
    )


def pins_row(declared):
    """Says whether a class has, in its own body, the name of its row as text."""
    return any(
        isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and each.target.id == "row"
        and isinstance(each.value, ast.Constant)
        for each in declared.body
    )


def test_the_kinds_are_those_of_the_golden_files():
    messages = {kind for name in REGISTRY for kind in test_golden.told(f"{name}/rounds.json")["messages"]}
    assert {kind.kind() for kind in MESSAGES} == messages | {"Abort"}
    settings = [each["kind"] for given in test_golden.told("settings.json").values() for each in given]
    assert sorted(kind.__struct_config__.tag for kind in KINDS) == sorted(settings)
    assert {kind.row for kind in PAGES} == {"Owner", "Seen", "Standing", "Held", "Told", "Adopted"}
    assert (Greeting.__struct_config__.tag, GREETING, Beginning.__struct_config__.tag) == (
        "Greeting",
        "Greeting",
        "Beginning",
    )


@pytest.mark.parametrize("kind", TAGGED, ids=lambda kind: kind.__name__)
def test_a_message_or_kind_of_a_setting_pins_its_tag(kind):
    assert pins_tag(declaration(kind)), f"{kind}: declare it with tag=, or a renamed class is another format"


@pytest.mark.parametrize("kind", PAGES, ids=lambda kind: kind.__name__)
def test_a_page_of_the_store_pins_the_name_of_its_row(kind):
    assert pins_row(declaration(kind)), f"{kind}: give it a row of its own, or a renamed class is another format"


@pytest.mark.parametrize(
    "source",
    ["class A(Message, frozen=True): ...", "class A(Message, tag=True): ...", "class A(Policy, tag=str.lower): ..."],
)
def test_a_class_that_goes_by_its_own_name_is_noticed(source):
    declared = ast.parse(source).body[0]
    assert not pins_tag(declared)
    assert not pins_row(declared)


def test_nothing_else_is_tagged_with_the_name_of_its_class():
    """A tag that is True, or a function, is the name of the class, which may be no more than a default."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.ClassDef)
                and any(each.arg == "tag" for each in node.keywords)
                and not pins_tag(node)
            ):
                found.add(node.name)
    assert found == DEFAULTS


def test_names_of_classes_are_for_error_messages_alone():
    """Whoever needs the name of a message, a page or a policy asks for its kind, its row or its tag."""
    found = set()
    for path in (path for room in FORMATS for path in (SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"):
                found.add(ast.unparse(node.value))
    assert found <= IN_ERRORS, f"{found - IN_ERRORS}: use kind(), row or the tag"


def test_a_message_of_an_added_protocol_goes_by_its_class_unless_it_says_otherwise():
    class Added(Message, frozen=True):
        """Says nothing of its kind."""

    class Other(Message, frozen=True, tag="added/other"):
        """Says what it is called."""

    assert (Added.kind(), Other.kind(), Other().kind()) == ("Added", "added/other", "added/other")
    codec = Codec((Added, Other), 2, 3)
    for message in (Added(), Other()):
        assert codec.decode(message.kind(), b"".join(codec.encode(message))) == message
    assert repr(Other()) == "added/other()"


def test_two_messages_of_one_kind_are_refused():
    class Twice(Abort, frozen=True):
        """Has the tag of another."""

    with pytest.raises(ConfigError, match="need different kinds"):
        Codec((Twice,), 2, 3)


# --- classes that are called something else ------------------------------------------------------------------------


@pytest.fixture
def renamed():
    """Gives every class whose name could be in a format another name."""
    before = {kind: (kind.__name__, kind.__qualname__) for kind in (*TAGGED, *PAGES, Fault)}
    try:
        for number, kind in enumerate(before):
            kind.__name__ = kind.__qualname__ = f"Renamed{number}"
        assert Abort.__name__ != Abort.kind() == "Abort"
        yield
    finally:
        for kind, names in before.items():
            kind.__name__, kind.__qualname__ = names


@pytest.mark.usefixtures("renamed")
class TestRenamed:
    """The golden files, once more."""

    test_sessions = staticmethod(test_golden.test_a_roster_gives_the_same_session)
    test_messages = staticmethod(test_golden.test_every_message_is_read_and_written_as_it_was)
    test_control_messages = staticmethod(test_golden.test_control_messages_are_read_and_written_as_they_were)
    test_greetings = staticmethod(test_golden.test_a_greeting_is_signed_as_it_was_and_says_what_differs)
    test_rounds = staticmethod(test_golden.test_the_same_rounds_send_the_same_bytes)
    test_journals = staticmethod(test_golden.test_journals_are_read_and_resumed)
    test_settings = staticmethod(test_golden.test_every_kind_of_a_setting_is_read_and_spelled_as_it_was)
    test_seeds = staticmethod(test_golden.test_a_seed_gives_the_same_session_whatever_goes_wrong)
    test_stores_after_a_round = staticmethod(test_golden.test_a_store_after_a_round_is_read)
    test_stores_in_a_round = staticmethod(test_golden.test_a_store_in_the_middle_of_a_round_goes_on_to_the_same_average)
    test_flower = staticmethod(test_golden.test_a_node_on_flower_goes_on_from_its_mark_and_its_shelf)
