"""Questions to the auditor: settings as text, a command line that can be pasted, and a report per coalition."""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.auditing.auditor import WorstSeedAuditor
from tacit.auditing.report import Report
from tacit.auditing.scope import Scope
from tacit.auditing.search.coalitions import coalitions_in_question
from tacit.auditing.symbolic.simulation import Drift
from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.protocols import find

PLAIN = re.compile(r"(?!(?:true|false|null|none|nan|inf)$)[a-z][a-z_-]*", re.IGNORECASE)
"""Text that can have no other meaning, and so needs no quotes."""


def read_value(text: str) -> Any:
    """Returns the value of a setting given as text: JSON, Python or TOML, and otherwise the text itself.

    Raises ConfigError for text that begins like a list, a table or a quoted text but is not valid.
    """
    given = text.strip()
    for read in (json.loads, ast.literal_eval, _read_toml):
        try:
            return read(given)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if given[:1] in tuple("[{('\""):
        raise ConfigError(
            f"{given} is neither JSON nor Python nor TOML; try: a value such as rho=[3,0.1] or graph=ring"
        )
    return text


def _read_toml(text: str) -> Any:
    # Of the remaining TOML values only lists and tables are accepted; dates are not.
    if not text.startswith(("[", "{")):
        raise ValueError(text)
    return tomllib.loads(f"value = {text}")["value"]


def write_value(value: Any) -> str:
    """Returns a value as text that `read_value` reads as the same value."""
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields settings as options of a command line."""
    for name, value in options.items():
        yield f"--set {shlex.quote(f'{name}={write_value(value)}')}"


@dataclass(frozen=True)
class Question:
    """Question to the auditor. The command line contains only fields that differ from their defaults."""

    protocol: str
    parties: int
    options: Mapping[str, Any] = field(default_factory=dict)
    coalition: tuple[Party, ...] | None = None
    """The colluding parties; None for each single party, and the server."""
    coalition_size: int | None = None
    """Size of all coalitions to report on; with the server, one party fewer. None for a given coalition."""
    rounds: int = 1
    drift: Drift | float = "static"
    dropout: float = 0.0
    noise: float = 0.0
    prior: float | None = None
    length: int | None = None
    """Length of the vectors; None for the default of audits."""
    open_links: bool = False
    named: tuple[Party, ...] = ()
    """The names of the parties; empty for p0, p1, …"""

    def __post_init__(self) -> None:
        """Moves noise that is given as a setting to the field `noise`; raises ConfigError if both are given and
        differ."""
        given = self.options.get("noise")
        if isinstance(given, bool) or not isinstance(given, int | float):
            return  # The problem is reported later, with all others.
        if self.noise and self.noise != given:
            raise ConfigError(f"noise is given twice, as {self.noise:g} and as noise={given:g}; try: give it once")
        object.__setattr__(self, "noise", given)
        object.__setattr__(self, "options", {name: value for name, value in self.options.items() if name != "noise"})

    @property
    def command(self) -> str:
        """The question as a command line, complete and in one line."""
        parties = shlex.quote(",".join(self.named)) if self.named else self.parties
        asked = [f"tacit audit {self.protocol} --parties {parties}"]
        if self.coalition is not None:
            asked.append(f"--coalition {shlex.quote(','.join(self.coalition))}")
        asked += [f"--{name.replace('_', '-')} {value}" for name, value in self._changed_fields()]
        if self.open_links:
            asked.append("--open-links")
        return " ".join([*asked, *flags(self.options)])

    @property
    def names(self) -> tuple[Party, ...]:
        """The names of the parties: those that were given, or p0, p1, …"""
        return self.named or tuple(f"p{place}" for place in range(self.parties))

    def scope(self) -> Scope:
        """Returns the scope of the audit; raises ConfigError with all problems of the question."""
        scope = Scope.of(
            self.protocol,
            self.names,
            self.options,
            rounds=self.rounds,
            drift=self.drift,
            dropout=self.dropout,
            noise=self.noise,
            prior=self.prior,
            length=self.length,
            sealed=not self.open_links,
        )
        for members in self.coalitions():
            scope.check(members)
        return scope

    def coalitions(self) -> list[tuple[Party, ...]]:
        """Returns the coalitions to report on: the given ones or, by default, each single party and the server."""
        return coalitions_in_question(find(self.protocol), self.names, self.coalition, self.coalition_size)

    def answers(self) -> Iterator[Report]:
        """Yields the report on each coalition, with the worst seed that was tried."""
        auditor = WorstSeedAuditor(self.scope(), guard=True)
        return (auditor.report(members) for members in self.coalitions())

    def _changed_fields(self) -> Iterator[tuple[str, Any]]:
        """Yields the fields that differ from their defaults."""
        standard = Question(self.protocol, self.parties)
        for name in ("coalition_size", "rounds", "drift", "dropout", "noise", "prior", "length"):
            if getattr(self, name) != getattr(standard, name):
                yield name, getattr(self, name)


def averaging(protocol: str, options: Mapping[str, Any]) -> str:
    """Returns the Python call that averages vectors by a protocol with these settings."""
    keywords = (f"{name}={value!r}" for name, value in options.items())
    return f"tacit.aggregate({', '.join(['vectors', repr(protocol), *keywords])})"
