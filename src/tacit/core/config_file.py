"""Configuration files: TOML or JSON read into typed sections, and sections written as TOML.

All problems are reported at once, each with its line and, for an unknown name, the nearest known one.
"""

import re
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from operator import itemgetter
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.values import convert_value, describe_mismatch

S = TypeVar("S", bound="Section")
Place: TypeAlias = tuple[str | int, ...]
"""Path to a value: names of tables and keys, and numbers in lists of tables."""
Problem: TypeAlias = tuple[Place, str]
SHOWN = 60
"""Most characters of a wrong value that an error shows."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a configuration file."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Functions that convert fields which may be written in several ways to the one that is stored."""
    secret: ClassVar[bool] = False
    """Whether errors must hide the values of this table."""
    newer: ClassVar[frozenset[str]] = frozenset()
    """Fields that earlier releases do not know. They are not written at their defaults."""


@dataclass(frozen=True)
class ConfigSource:
    """Tables of a configuration, with the text and name of the file they come from, if any."""

    given: Any
    text: str = ""
    name: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "ConfigSource":
        """Returns the tables of a TOML or JSON file; raises ConfigError if it cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except TypeError:
            raise ConfigError(f"give the path of a file, not {_abbreviate(path)}") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> "ConfigSource":
        """Returns the tables of a text: JSON if its name ends in .json, else TOML; raises ConfigError if invalid."""
        if (found := _LONG_KEY.search(text)) is not None and not name.endswith(".json"):
            line = text.count("\n", 0, found.start()) + 1
            raise ConfigError(f"{name}, line {line}: the key is too long")  # the parser would take minutes
        try:
            given = msgspec.json.decode(text) if name.endswith(".json") else tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also raised for numbers that are too long
            raise ConfigError(f"{name}: {' '.join(str(error).split())}") from None
        return cls(given, text, name)

    def read(self, kind: type[S]) -> tuple[S | None, list[Problem]]:
        """Returns a section with the fields that can be read, and all problems of the other fields.

        The section is None if a required field cannot be read. The caller must raise `error` with the problems:
        otherwise it uses a section that lacks fields of the file.
        """
        problems: list[Problem] = []
        return _read(kind, self.given, (), problems), problems

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Returns one error for all problems in the order of the file, each with its line if that is known."""
        found = sorted(((_line(self.text, place) or 0, problem) for place, problem in problems), key=itemgetter(0))
        return ConfigError([f"{self._where(line)}{problem}" for line, problem in found])

    def _where(self, line: int) -> str:
        if not self.name:
            return ""
        return f"{self.name}, line {line}: " if line else f"{self.name}: "


def _read(section: type[S], given: Any, place: Place, problems: list[Problem]) -> S | None:
    if not isinstance(given, Mapping):
        what = _format_place(place) or f"a {section.__name__.lower()}"
        problems.append((place, f"{what} must be a table{'' if section.secret else f', not {_abbreviate(given)}'}"))
        return None
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    read: dict[str, Any] = {}
    for name, value in given.items():
        here = (*place, str(name))
        if name not in fields:
            near = get_close_matches(str(name), fields, n=1)
            more = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(fields)}"
            problems.append((here, f"there is no {_format_place(here)}; {more}"))
            continue
        if name in section.readers:
            value = section.readers[name](value)
        wanted = fields[name].type
        try:
            found = _field(wanted, value, here, problems)
        except msgspec.ValidationError as error:
            shown = "" if section.secret else f" = {_abbreviate(value)}"
            problems.append((here, f"{_format_place(here)}{shown}: {describe_mismatch(error)}"))
            continue
        if found is not _UNREAD:
            read[name] = found
    needed = [name for name, field in fields.items() if field.required]
    problems += [(place, f"{_format_place((*place, name))} is missing") for name in needed if name not in given]
    return None if any(name not in read for name in needed) else section(**read)


_UNREAD = object()
_LONG_KEY = re.compile(r"^[ \t]*\[{0,2}[ \t]*[\w.\"'-]{1000}", re.MULTILINE)


def _field(wanted: Any, value: Any, here: Place, problems: list[Problem]) -> Any:
    """Returns the value of a field: a section, several sections, or a plain value."""
    kinds = get_args(wanted) if get_origin(wanted) in (Union, UnionType, tuple) else (wanted,)
    section = next((each for each in kinds if isinstance(each, type) and issubclass(each, Section)), None)
    if section is None or value is None:
        return convert_value(value, wanted)
    if get_origin(wanted) is not tuple:
        made = _read(section, value, here, problems)
        return _UNREAD if made is None else made
    if not isinstance(value, list | tuple):
        problems.append((here, f"{_format_place(here)} must be a list of tables, each under [[{_format_place(here)}]]"))
        return _UNREAD
    several = [_read(section, each, (*here, number), problems) for number, each in enumerate(value)]
    return _UNREAD if any(each is None for each in several) else tuple(several)


def _format_place(place: Place) -> str:
    """Returns a path such as `parties[0].name` as one printable line."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{part if part.isprintable() and len(part) <= SHOWN else _abbreviate(part)}"
    return text


def _abbreviate(value: Any) -> str:
    """Returns a value as text of limited length."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _line(text: str, place: Place) -> int | None:
    """Returns the line of a TOML file that defines a path, or else its nearest parent."""
    if not place:
        return None
    table: Place = ()
    times: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[+)\s*([^\]]+?)\s*\]+", line):
            named = table = tuple(part.strip(" \"'") for part in header[2].split("."))
            if len(header[1]) > 1:
                times[named] = times.get(named, -1) + 1
                table = (*named, times[named])
            if place in (named, table):
                return number
            continue
        key = re.match(r"\s*([\w.\"'-]+)\s*=", line)
        if key and (*table, *(part.strip("\"'") for part in key[1].split("."))) == place:
            return number
    return _line(text, place[:-1])


# --- writing -------------------------------------------------------------------------------------------------------


def format_toml(section: Section) -> str:
    """Returns a section as TOML: values, then tables, then lists of tables. Raises ConfigError for a null value."""
    fields = _items(section)
    tables = {name: value for name, value in fields.items() if isinstance(value, Mapping | Section)}
    lists = {name: value for name, value in fields.items() if name not in tables and _is_list_of_tables(value)}
    parts = [_lines({name: value for name, value in fields.items() if name not in tables and name not in lists})]
    parts += [f"\n[{name}]\n{_lines(value)}" for name, value in tables.items()]
    parts += [f"\n[[{name}]]\n{_lines(each)}" for name, several in lists.items() for each in several]
    return "".join(parts)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, Section) for each in value)


def _items(table: Any) -> dict[str, Any]:
    if isinstance(table, Section):
        defaults = {field.name: field.default for field in msgspec.structs.fields(table) if field.name in table.newer}
        found = {name: getattr(table, name) for name in table.__struct_fields__}
        return {name: value for name, value in found.items() if name not in defaults or value != defaults[name]}
    return dict(table)


def _lines(table: Any) -> str:
    return "".join([f"{_key(name)} = {_value(value, name)}\n" for name, value in _items(table).items()])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: Any, name: str) -> str:
    if value is None:
        raise ConfigError(f"{name} cannot be null in a TOML file; try: leave it out")
    if isinstance(value, bytes):
        return f'"{b64encode(value).decode()}"'
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join([_value(each, name) for each in value])}]"
    if isinstance(value, Mapping | Section):
        return f"{{ {', '.join([f'{_key(key)} = {_value(each, name)}' for key, each in _items(value).items()])} }}"
    return str(value).lower()  # a boolean, or a number, whose exponent TOML also reads in lower case


def _text(value: str) -> str:
    # A JSON string is a valid TOML string, except that TOML also requires an escape for DEL.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
