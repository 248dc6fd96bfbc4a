"""What makes a protocol: its coroutines, its settings, its messages, and what its paper claims for it."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self, TypeAlias

import msgspec
import numpy as np

from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, LeakRefused
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
    weighted: bool = False
    """Whether parties have different weights. They always may with a server, whose ring carries them anyway."""
    allow_leaks: bool = False
    """Go on knowingly with settings that let somebody learn a single vector."""

    def problems(self, parties: Sequence[Party]) -> list[str]:
        """Returns every reason why these settings cannot work for these parties."""
        return [] if len(parties) >= 2 else [f"an average needs at least 2 parties, not {len(parties)}"]

    def leaks(self, parties: Sequence[Party]) -> list[str]:
        """Returns why these settings would let somebody learn a single vector, as far as can be said beforehand."""
        del parties
        return []

    def bound(self, parties: Sequence[Party]) -> Self:
        """Returns the settings with everything filled in that depends on the parties."""
        del parties
        return self

    def notes(self, parties: Sequence[Party]) -> list[str]:
        """Returns what users should know of the result under these settings."""
        del parties
        return []

    @property
    def selective(self) -> bool:
        """Whether entries of a vector fare differently, so that an audit must look at many of them."""
        return False

    def span(self) -> float:
        """Returns the largest magnitude that is ever encoded."""
        return self.clip

    def summands(self, parties: int) -> int:
        """Returns how many vectors are added up at most, for which the ring leaves room."""
        return parties


class State(msgspec.Struct):
    """What a party keeps from round to round. A driver saves it after each."""


@dataclass(frozen=True)
class Claim:
    """A guarantee as a paper states it, for the audit to confirm or refute."""

    paper: str
    section: str
    statement: str


@dataclass(frozen=True)
class Rehearsal:
    """Whose vectors a round sums, without running it: for audits of more rounds than can be run one by one.

    An audit checks it against rounds that it does run, and that a round shows nothing but this sum.
    """

    present: type[Message]
    """Who does not send this is absent from the start."""
    delivered: type[Message]
    """Who sent the one but does not send this drops out in mid-round."""
    sums: Callable[[Link, Any, Any, Entropy, Callable[[type[Message], Party], bool]], tuple[Party, ...]]
    """Given link, settings, state, the server's entropy, and who sends which of the two: whose vectors are summed."""


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
    rehearsal: Rehearsal | None = None
    leaks_by_design: bool = False
    weighted: bool = True
    """Whether parties may have different weights."""

    def everyone(self, parties: tuple[Party, ...]) -> tuple[Party, ...]:
        """Returns the parties and, if there is one, the server."""
        return (*parties, SERVER) if self.server else parties

    def configure(self, options: Mapping[str, Any], parties: Sequence[Party]) -> Config:
        """Returns the settings for some options; raises ConfigError with every problem, or LeakRefused."""
        known = self.config.__struct_fields__
        problems = []
        for name in options.keys() - set(known):
            near = get_close_matches(name, known, n=1)
            problems.append(
                f"{self.name} has no option {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else f"; it has {known}")
            )
        given, wrong = self._checked({name: value for name, value in options.items() if name in known})
        problems += wrong
        try:
            config = self.config(**given)
            problems += config.problems(parties)
            if config.weighted and not self.weighted:
                problems.append(f"{self.name} gives every party the same weight; leave the weights out")
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(sorted(problems))
        leaks = config.leaks(parties)
        if leaks and not config.allow_leaks:
            raise LeakRefused(f"{'; '.join(leaks)}; or pass allow_leaks=True to go on knowingly")
        return config.bound(parties)

    def _checked(self, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Returns the options as the types they should have, and what is wrong with those that cannot be."""
        types = {field.name: field.type for field in msgspec.structs.fields(self.config)}
        # The ring says itself what is wrong with its settings.
        types |= dict.fromkeys(("bits", "clip", "max_weight"), Any)
        checked, problems = {}, []
        for name, value in options.items():
            plain = value.item() if isinstance(value, np.generic) else value
            try:
                checked[name] = msgspec.convert(plain, types[name], strict=True)
            except msgspec.ValidationError as error:
                problems.append(f"{name}={value!r}: {str(error)[:1].lower()}{str(error)[1:]}")
        return checked, problems
