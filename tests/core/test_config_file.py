"""Sections of configuration files: written ones are read back, and all problems are reported with their lines."""

import tomllib
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.config_file import ConfigSource, Section, format_toml
from tacit.core.errors import ConfigError


class Inner(Section, frozen=True, kw_only=True):
    size: int
    kind: str = "plain"


class Quiet(Section, frozen=True, kw_only=True):
    secret: ClassVar[bool] = True

    key: bytes


class Whole(Section, frozen=True, kw_only=True):
    title: str
    data: bytes = b""
    ratio: float = 0.5
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    inner: Inner = Inner(size=1)
    perhaps: Inner | None = None
    several: tuple[Inner, ...] = ()


def told(text: str) -> list[str]:
    source = ConfigSource.parse(text, "file.toml")
    made, problems = source.read(Whole)
    del made
    return list(source.error(problems).problems)


def test_what_is_written_is_read_back():
    whole = Whole(
        title='"quoted"\n☤',
        data=bytes(range(256)),
        options={"a": [1, 2.5, True, "x"], "b c": {"deep": {"er": -1e-9}}},
        several=(Inner(size=3), Inner(size=4, kind="other")),
    )
    text = format_toml(msgspec.structs.replace(whole, perhaps=Inner(size=2)))
    made, problems = ConfigSource.parse(text, "file.toml").read(Whole)
    assert problems == []
    assert made == msgspec.structs.replace(whole, perhaps=Inner(size=2))


NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.text())
def test_any_setting_is_read_back(options, title):
    read = tomllib.loads(format_toml(Whole(title=title, options=options, perhaps=Inner(size=2))))
    assert (read["title"], read["options"]) == (title, options)


def test_there_is_no_null():
    with pytest.raises(ConfigError, match="a cannot be null"):
        format_toml(Whole(title="t", options={"a": [None]}, perhaps=Inner(size=2)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("titel = 't'\ntitle = 't'", "file.toml, line 1: there is no titel; did you mean 'title'?"),
        ("title = 3", "file.toml, line 1: title = 3: expected text, got a whole number"),
        ("title = 't'\n[inner]\nsice = 1\nsize = 1", "file.toml, line 3: there is no inner.sice; did you mean 'size'?"),
        ("title = 't'\ninner = 3", "file.toml, line 2: inner must be a table, not 3"),
        ("title = 't'\nseveral = 3", "file.toml, line 2: several must be a list of tables, each under [[several]]"),
        ("title = 't'\nseveral = [3]", "file.toml, line 2: several[0] must be a table, not 3"),
        ("title = 't'\n[[several]]\nsize = 1\n[[several]]\nsize = 'x'", "file.toml, line 5: several[1].size = 'x'"),
        ("title = 't'\n[[several]]\nsize = 1\n[[several]]\nkind = 'x'", "line 4: several[1].size is missing"),
        ("title = 't'\n[[several]]\nsize = 1\nkid = 'x'", "line 4: there is no several[0].kid; did you mean 'kind'?"),
        ("title = 't'\n[perhaps]\nsize = 'x'", "file.toml, line 3: perhaps.size = 'x': expected a whole number"),
        ("title = 't'\nratio = nan", "file.toml, line 2: ratio = nan: expected a finite number"),
        (f"title = 't'\ndata = '{'x' * 900}!'", "file.toml, line 2: data = 'xxxxx"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, said):
    (problem,) = told(text)
    assert problem.startswith(said) or said in problem
    assert len(problem) < 200


def test_what_cannot_be_done_without_is_told_once():
    """A field that is given and wrong is not missing as well."""
    assert told("title = 3\n[inner]\nsize = 'x'") == [
        "file.toml, line 1: title = 3: expected text, got a whole number",
        "file.toml, line 3: inner.size = 'x': expected a whole number, got text",
    ]
    assert told("") == ["file.toml: title is missing"]


def test_secrets_are_not_shown_where_they_are_wrong():
    for given_ in ({"key": "hunter2!"}, {"key": ["hunter2"]}, "hunter2"):
        source = ConfigSource(given_)
        _, problems = source.read(Quiet)
        assert len(problems) == 1
        assert "hunter2" not in str(source.error(problems))


def test_names_that_do_not_print_are_spelled_out():
    (problem,) = told('title = "t"\n"\\u001b[2J" = 1')
    assert problem.isprintable()
