"""What the adversary view asks: settings, a coalition, and the command line that asks the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from tacit.api.option_text import drift_from, settings_from
from tacit.auditing.questions import Question
from tacit.auditing.scope import Scope
from tacit.core.errors import ConfigError
from tacit.core.suite import Party
from tacit.protocols import find

MOST_PARTIES, MOST_ROUNDS = 200, 500
"""Beyond these an answer takes longer than anybody looks at a page; the command line has no such limit."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a coalition would learn under some settings, as the address of the page says it."""

    protocol: str = "secagg"
    parties: int = 9
    rounds: int = 1
    drift: str = "static"
    dropout: float = 0.0
    open_links: bool = False
    settings: tuple[str, ...] = ()
    """Each as NAME=VALUE, like those of the command line."""
    hardened: bool = False
    """Whether settings are asked about that a plan proposes, instead of these."""
    coalition: tuple[Party, ...] = ()

    @classmethod
    def of(cls, query: QueryParams) -> "Asked":
        """Returns the question of an address; raises ConfigError with all that cannot be asked."""
        problems: list[str] = []
        asked = cls(
            protocol=query.get("protocol") or "secagg",
            parties=int(number(query, "parties", 9, 2, MOST_PARTIES, problems)),
            rounds=int(number(query, "rounds", 1, 1, MOST_ROUNDS, problems)),
            drift=query.get("drift") or "static",
            dropout=number(query, "dropout", 0, 0, 0.95, problems),
            open_links=query.get("links") == "open",
            settings=tuple(each.strip() for each in query.getlist("set") if each.strip()),
            hardened=query.get("hardened") == "yes",
            coalition=tuple(each for each in query.get("coalition", "").split(",") if each),
        )
        if problems:
            raise ConfigError(problems)
        return asked

    @property
    def key(self) -> bytes:
        """What stands for all of it but who asks: one symbolic run serves every coalition."""
        colluders = max(1, len(self.coalition)) if self.hardened else 0
        return msgspec.json.encode((msgspec.structs.replace(self, coalition=()), colluders))

    def options(self) -> dict[str, Any]:
        """Returns the settings that are audited."""
        own = settings_from(self.settings)
        return hardened(self.protocol, own, self.parties, max(1, len(self.coalition))) if self.hardened else own

    def question(self, coalition_size: int | None = None) -> Question:
        """Returns the question of an audit, or the same of every coalition of a size."""
        return Question(
            self.protocol,
            self.parties,
            self.options(),
            self.coalition or None,
            coalition_size,
            rounds=self.rounds,
            drift=drift_from(self.drift),
            dropout=self.dropout,
            open_links=self.open_links,
        )

    def scope(self) -> Scope:
        """Returns what is to be audited, whoever asks; raises ConfigError with every problem."""
        return replace(self.question(), coalition=None).scope()

    def command(self, coalition_size: int | None = None) -> str:
        """Returns the command that asks the same, ready to be pasted."""
        return self.question(coalition_size).command


def hardened(protocol: str, own: Mapping[str, Any], parties: int, colluders: int) -> dict[str, Any]:
    """Returns the settings that a plan proposes for so many colluders, the ones most like those at hand.

    Where a plan has none, masks are switched on if there are any; raises ConfigError if there are not.
    """
    entry = find(protocol)
    if entry.leaks_by_design:
        other = f"; compare it with {entry.alternative}" if entry.alternative else ""
        raise ConfigError(f"{protocol} shows vectors by design and has no hardened mode{other}")
    proposed = [each.options for each in entry.propose(parties, colluders)]
    if proposed:
        # Of several that are as like, the last one: it is the one that holds over more rounds.
        return max(reversed(proposed), key=lambda each: sum(own.get(name) == value for name, value in each.items()))
    remedy = entry.settings_from(own).remedy(dropouts=False)
    if remedy is not None and remedy.value is not None:
        return {**own, remedy.option: remedy.value}
    raise ConfigError(f"no settings of {protocol} are proposed for {parties} parties of whom {colluders} collude")


def number(query: QueryParams, name: str, standard: float, least: float, most: float, problems: list[str]) -> float:
    """Returns a number of an address, or notes what is wrong with it."""
    text = query.get(name) or str(standard)
    try:
        found = float(text)
    except ValueError:
        problems.append(f"{name} must be a number, not {text!r}")
        return standard
    whole = isinstance(standard, int) and isinstance(least, int) and isinstance(most, int)
    if not least <= found <= most or (whole and found != int(found)):
        kind = "a whole number" if whole else "a number"
        problems.append(
            f"{name} must be {kind} from {least:g} to {most:g} here, not {text}; ask for more by tacit audit"
        )
        return standard
    return found
