"""Questions to the audit as people ask them: in a line that can be pasted, and answered coalition by coalition."""

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
"""Text that can be nothing else, and so needs no quotes."""


def read_value(text: str) -> Any:
    """Returns what a setting stands for: JSON, Python or TOML, and otherwise the text itself.

    Raises ConfigError for what begins like a list, a table or quoted text, and is none.
    """
    given = text.strip()
    for read in (json.loads, ast.literal_eval, _read_toml):
        try:
            return read(given)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if given[:1] in tuple("[{('\""):
        raise ConfigError(f"{given} is neither JSON nor Python nor TOML; write it as in rho=[3,0.1] or graph=ring")
    return text


def _read_toml(text: str) -> Any:
    # Of the rest, TOML would take dates, which nobody means here.
    if not text.startswith(("[", "{")):
        raise ValueError(text)
    return tomllib.loads(f"value = {text}")["value"]


def write_value(value: Any) -> str:
    """Returns a setting as text that `read_value` takes for the same."""
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields settings as a shell takes them."""
    for name, value in options.items():
        yield f"--set {shlex.quote(f'{name}={write_value(value)}')}"


@dataclass(frozen=True)
class Question:
    """Question to the audit, with only the fields that differ from the default."""

    protocol: str
    parties: int
    options: Mapping[str, Any] = field(default_factory=dict)
    coalition: tuple[Party, ...] | None = None
    """Colluding parties; None for each party, and the server, alone."""
    coalition_size: int | None = None
    """Size of the coalitions, if all of a size are in question; with the server, one party fewer."""
    rounds: int = 1
    drift: Drift | float = "static"
    dropout: float = 0.0
    noise: float = 0.0
    prior: float | None = None
    length: int | None = None
    """Length of the vectors; None for the length that audits take unless told."""
    open_links: bool = False

    def __post_init__(self) -> None:
        """Takes noise that is given as a setting for the noise of the question; raises ConfigError if it is another."""
        given = self.options.get("noise")
        if isinstance(given, bool) or not isinstance(given, int | float):
            return  # what is no number is named with all that is wrong
        if self.noise and self.noise != given:
            raise ConfigError(f"noise is given twice, as {self.noise:g} and as noise={given:g}; give it once")
        object.__setattr__(self, "noise", given)
        object.__setattr__(self, "options", {name: value for name, value in self.options.items() if name != "noise"})

    @property
    def command(self) -> str:
        """The question as a command line, complete and in one line."""
        asked = [f"tacit audit {self.protocol} --parties {self.parties}"]
        if self.coalition is not None:
            asked.append(f"--coalition {shlex.quote(','.join(self.coalition))}")
        asked += [f"--{name.replace('_', '-')} {value}" for name, value in self._changed_fields()]
        if self.open_links:
            asked.append("--open-links")
        return " ".join([*asked, *flags(self.options)])

    @property
    def names(self) -> tuple[Party, ...]:
        """The parties: p0, p1, …"""
        return tuple(f"p{place}" for place in range(self.parties))

    def scope(self) -> Scope:
        """Returns what the audit is to look at; raises ConfigError with all that is wrong with the question."""
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
        """Returns whom it is about: each party alone, and the server, unless others are asked for."""
        return coalitions_in_question(find(self.protocol), self.names, self.coalition, self.coalition_size)

    def answers(self) -> Iterator[Report]:
        """Yields a report on each coalition, with the worst seed that was tried."""
        auditor = WorstSeedAuditor(self.scope(), guard=True)
        return (auditor.report(members) for members in self.coalitions())

    def _changed_fields(self) -> Iterator[tuple[str, Any]]:
        """Yields what differs from what is asked unless something is set."""
        standard = Question(self.protocol, self.parties)
        for name in ("coalition_size", "rounds", "drift", "dropout", "noise", "prior", "length"):
            if getattr(self, name) != getattr(standard, name):
                yield name, getattr(self, name)


def averaging(protocol: str, options: Mapping[str, Any]) -> str:
    """Returns the call that averages some vectors by a protocol with these settings."""
    keywords = (f"{name}={value!r}" for name, value in options.items())
    return f"tacit.aggregate({', '.join(['vectors', repr(protocol), *keywords])})"
