"""Queries of the adversary view: settings, a coalition, and the equivalent command line."""

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
from tacit.protocols import DEFAULT_PROTOCOL, find

MOST_PARTIES, MOST_ROUNDS = 200, 500
"""Limits of the page, beyond which an answer takes too long; the command line has none."""


class AdversaryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query of what a coalition would learn under some settings, as in the address of the page."""

    protocol: str = DEFAULT_PROTOCOL
    parties: int = 9
    rounds: int = 1
    drift: str = "static"
    dropout: float = 0.0
    open_links: bool = False
    settings: tuple[str, ...] = ()
    """Settings as NAME=VALUE, like those of the command line."""
    hardened: bool = False
    """Whether to audit the settings that a plan proposes instead of these."""
    coalition: tuple[Party, ...] = ()

    @classmethod
    def of(cls, params: QueryParams) -> "AdversaryQuery":
        """Returns the query of an address; raises ConfigError with all problems at once."""
        problems: list[str] = []
        query = cls(
            protocol=params.get("protocol") or DEFAULT_PROTOCOL,
            parties=int(parse_number(params, "parties", 9, 2, MOST_PARTIES, problems)),
            rounds=int(parse_number(params, "rounds", 1, 1, MOST_ROUNDS, problems)),
            drift=params.get("drift") or "static",
            dropout=parse_number(params, "dropout", 0, 0, 0.95, problems),
            open_links=params.get("links") == "open",
            settings=tuple(each.strip() for each in params.getlist("set") if each.strip()),
            hardened=params.get("hardened") == "yes",
            coalition=tuple(each for each in params.get("coalition", "").split(",") if each),
        )
        if problems:
            raise ConfigError(problems)
        return query

    @property
    def key(self) -> bytes:
        """Cache key of everything but the coalition: one symbolic run serves every coalition."""
        colluders = max(1, len(self.coalition)) if self.hardened else 0
        return msgspec.json.encode((msgspec.structs.replace(self, coalition=()), colluders))

    def options(self) -> dict[str, Any]:
        """Returns the settings that are audited."""
        own = settings_from(self.settings)
        return propose_hardened(self.protocol, own, self.parties, max(1, len(self.coalition))) if self.hardened else own

    def question(self, coalition_size: int | None = None) -> Question:
        """Returns the audit of the coalition, or of every coalition of a size."""
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
        """Returns the scope of the audit, without a coalition; raises ConfigError with all problems."""
        return replace(self.question(), coalition=None).scope()

    def command(self, coalition_size: int | None = None) -> str:
        """Returns the equivalent command line, ready to be pasted."""
        return self.question(coalition_size).command


def propose_hardened(protocol: str, own: Mapping[str, Any], parties: int, colluders: int) -> dict[str, Any]:
    """Returns the settings closest to `own` that a plan proposes against this number of colluders.

    If a plan proposes none, masks are switched on; raises ConfigError if the protocol has none.
    """
    entry = find(protocol)
    if entry.leaks_by_design:
        other = f"; compare it with {entry.alternative}" if entry.alternative else ""
        raise ConfigError(f"{protocol} shows vectors by design and has no hardened mode{other}")
    proposed = [each.options for each in entry.propose(parties, colluders)]
    if proposed:
        # Of several that are equally close, the last one holds over more rounds.
        return max(reversed(proposed), key=lambda each: sum(own.get(name) == value for name, value in each.items()))
    remedy = entry.settings_from(own).remedy(dropouts=False)
    if remedy is not None and remedy.value is not None:
        return {**own, remedy.option: remedy.value}
    raise ConfigError(f"no settings of {protocol} are proposed for {parties} parties of whom {colluders} collude")


def parse_number(
    params: QueryParams, name: str, default: float, least: float, most: float, problems: list[str]
) -> float:
    """Returns a number of an address; adds a problem and returns the default if it is not valid."""
    text = params.get(name) or str(default)
    try:
        found = float(text)
    except ValueError:
        problems.append(f"{name} must be a number, not {text!r}")
        return default
    whole = isinstance(default, int) and isinstance(least, int) and isinstance(most, int)
    if not least <= found <= most or (whole and found != int(found)):
        kind = "a whole number" if whole else "a number"
        problems.append(
            f"{name} must be {kind} from {least:g} to {most:g} here, not {text}; ask for more by tacit audit"
        )
        return default
    return found
