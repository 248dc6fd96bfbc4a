"""What makes a protocol: its coroutines, its settings, its messages, and what its paper claims for it."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self, TypeAlias

import msgspec

from tacit.core.errors import ConfigError
from tacit.core.link import Effect, Link
from tacit.core.messages import Message
from tacit.core.outcome import Average
from tacit.core.suite import SERVER, Party, Suite, Update

Run: TypeAlias = Coroutine[Effect, Any, Average]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that every protocol has. Everyone in a federation must have the same."""

    bits: int = 32
    """Ring Z_2^bits: 16, 32 or 64 bits an entry, in memory and on the wire."""
    clip: float = 32.0
    """Entries beyond ±clip are cut off there, counted, and warned about."""
    max_weight: float = 1.0
    """The largest weight a party may have."""
    allow_leaks: bool = False
    """Go on knowingly with settings that let somebody learn a single vector."""

    def problems(self, parties: int) -> list[str]:
        """Returns every reason why these settings cannot work for that many parties."""
        return [] if parties >= 2 else [f"an average needs at least 2 parties, not {parties}"]

    def bound(self, parties: int) -> Self:
        """Returns the settings with everything filled in that depends on the number of parties."""
        del parties
        return self


class State(msgspec.Struct):
    """What a party keeps from round to round. A driver saves it after each."""


@dataclass(frozen=True)
class Claim:
    """A guarantee as a paper states it, for the audit to confirm or refute."""

    paper: str
    section: str
    statement: str


@dataclass(frozen=True)
class Protocol:
    """A registry entry: all that drivers, audits, tests and the command line need to know of a protocol."""

    name: str
    summary: str
    config: type[Config]
    messages: tuple[type[Message], ...]
    party: Callable[[Link, Update, Any, Suite, Any], Run]
    """The coroutine of a party that brings a vector."""
    server: Callable[[Link, Any, Suite, Any], Run] | None = None
    """The coroutine of the server, if there is one."""
    state: type[State] = State
    claims: tuple[Claim, ...] = ()
    leaks_by_design: bool = False

    def everyone(self, parties: tuple[Party, ...]) -> tuple[Party, ...]:
        """Returns the parties and, if there is one, the server."""
        return (*parties, SERVER) if self.server else parties

    def configure(self, options: Mapping[str, Any], parties: int) -> Config:
        """Returns the settings for some options, or raises ConfigError with every problem."""
        known = self.config.__struct_fields__
        problems = []
        for name in options.keys() - set(known):
            near = get_close_matches(name, known, n=1)
            problems.append(
                f"{self.name} has no option {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; it has {known}")
            )
        try:
            config = self.config(**{name: value for name, value in options.items() if name in known})
            problems += config.problems(parties)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(sorted(problems))
        return config.bound(parties)
