"""What people write in TOML or JSON, read into typed sections, and sections written as TOML.

Everything that is wrong is told at once: with its line and, where there is one, the nearest name that can be.
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
from tacit.core.values import typed, unfit

S = TypeVar("S", bound="Section")
Place: TypeAlias = tuple[str | int, ...]
"""Where something is said: names of tables and keys, and numbers in lists of tables."""
Problem: TypeAlias = tuple[Place, str]
SHOWN = 60
"""Letters of a value that are shown where it is wrong."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a file."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """For fields that may be given in several ways: what makes the one that is kept of each of them."""
    secret: ClassVar[bool] = False
    """Whether its values are never shown, not even where they are wrong."""


@dataclass(frozen=True)
class Source:
    """Tables that somebody wrote and, if they are those of a file, its text and name."""

    given: Any
    text: str = ""
    name: str = ""

    @classmethod
    def load(cls, path: str | Path) -> "Source":
        """Returns the tables of a TOML or JSON file; raises ConfigError if there are none."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except TypeError:
            raise ConfigError(f"give the path of a file, not {_shown(path)}") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> "Source":
        """Returns the tables of a text in TOML or, if its name ends so, JSON; raises ConfigError if it is neither."""
        if (found := _LONG_KEY.search(text)) is not None and not name.endswith(".json"):
            line = text.count("\n", 0, found.start()) + 1
            raise ConfigError(f"{name}, line {line}: no key is that long")  # and to read it would take minutes
        try:
            given = msgspec.json.decode(text) if name.endswith(".json") else tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # of which are those of TOML and JSON, and numbers too long
            raise ConfigError(f"{name}: {' '.join(str(error).split())}") from None
        return cls(given, text, name)

    def read(self, kind: type[S]) -> tuple[S | None, list[Problem]]:
        """Returns a section, as far as it can be read, and all that is wrong with the rest.

        It is None if not even what it cannot do without can be read. Who does not raise `error` with the problems
        has a section with less in it than was written.
        """
        problems: list[Problem] = []
        return _read(kind, self.given, (), problems), problems

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Returns what to raise for problems: each with its line, if it can be found, and in their order."""
        found = sorted(((_line(self.text, place) or 0, problem) for place, problem in problems), key=itemgetter(0))
        return ConfigError([f"{self._where(line)}{problem}" for line, problem in found])

    def _where(self, line: int) -> str:
        if not self.name:
            return ""
        return f"{self.name}, line {line}: " if line else f"{self.name}: "


def _read(section: type[S], given: Any, place: Place, problems: list[Problem]) -> S | None:
    if not isinstance(given, Mapping):
        what = _dotted(place) or f"a {section.__name__.lower()}"
        problems.append((place, f"{what} must be a table{'' if section.secret else f', not {_shown(given)}'}"))
        return None
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    read: dict[str, Any] = {}
    for name, value in given.items():
        here = (*place, str(name))
        if name not in fields:
            near = get_close_matches(str(name), fields, n=1)
            more = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(fields)}"
            problems.append((here, f"there is no {_dotted(here)}; {more}"))
            continue
        if name in section.readers:
            value = section.readers[name](value)
        wanted = fields[name].type
        try:
            found = _field(wanted, value, here, problems)
        except msgspec.ValidationError as error:
            shown = "" if section.secret else f" = {_shown(value)}"
            problems.append((here, f"{_dotted(here)}{shown}: {unfit(error)}"))
            continue
        if found is not _UNREAD:
            read[name] = found
    needed = [name for name, field in fields.items() if field.required]
    problems += [(place, f"{_dotted((*place, name))} is missing") for name in needed if name not in given]
    return None if any(name not in read for name in needed) else section(**read)


_UNREAD = object()
_LONG_KEY = re.compile(r"^[ \t]*\[{0,2}[ \t]*[\w.\"'-]{1000}", re.MULTILINE)


def _field(wanted: Any, value: Any, here: Place, problems: list[Problem]) -> Any:
    """Returns what a field is given as: a section, several, or whatever else it is of."""
    kinds = get_args(wanted) if get_origin(wanted) in (Union, UnionType, tuple) else (wanted,)
    section = next((each for each in kinds if isinstance(each, type) and issubclass(each, Section)), None)
    if section is None or value is None:
        return typed(value, wanted)
    if get_origin(wanted) is not tuple:
        made = _read(section, value, here, problems)
        return _UNREAD if made is None else made
    if not isinstance(value, list | tuple):
        problems.append((here, f"{_dotted(here)} must be a list of tables, each under [[{_dotted(here)}]]"))
        return _UNREAD
    several = [_read(section, each, (*here, number), problems) for number, each in enumerate(value)]
    return _UNREAD if any(each is None for each in several) else tuple(several)


def _dotted(place: Place) -> str:
    """Returns a place as people write it, on one line, whoever wrote the names in it."""
    said = ""
    for part in place:
        if isinstance(part, int):
            said += f"[{part}]"
        else:
            said += f"{'.' if said else ''}{part if part.isprintable() and len(part) <= SHOWN else _shown(part)}"
    return said


def _shown(value: Any) -> str:
    """Returns a value in a few letters."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _line(text: str, place: Place) -> int | None:
    """Returns the line on which a TOML file gives the last part of a place that it gives at all."""
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


def written(section: Section) -> str:
    """Returns a section as TOML: its values, its tables, its lists of tables. Raises ConfigError for a null."""
    fields = {name: getattr(section, name) for name in section.__struct_fields__}
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
        return {name: getattr(table, name) for name in table.__struct_fields__}
    return dict(table)


def _lines(table: Any) -> str:
    return "".join([f"{_key(name)} = {_value(value, name)}\n" for name, value in _items(table).items()])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: Any, name: str) -> str:
    if value is None:
        raise ConfigError(f"{name} cannot be null in a file of TOML; leave it out, or give what it stands for")
    if isinstance(value, bytes):
        return f'"{b64encode(value).decode()}"'
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join([_value(each, name) for each in value])}]"
    if isinstance(value, Mapping | Section):
        return f"{{ {', '.join([f'{_key(key)} = {_value(each, name)}' for key, each in _items(value).items()])} }}"
    return str(value).lower()  # a truth value or a number, whose e may be small as well


def _text(value: str) -> str:
    # A string of JSON is one of TOML, but for the one character that TOML wants escaped besides.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
