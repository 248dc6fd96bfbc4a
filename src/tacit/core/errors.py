"""What can go wrong, each kind with a stable code."""

import copyreg
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar


class Drop(StrEnum):
    """Why a party is no longer counted on."""

    SILENT = "silent"  # it had not answered when the phase ended
    MALFORMED = "malformed"  # it sent bytes that are not the message they claim to be
    BAD_SIGNATURE = "bad signature"
    BAD_SHARE = "bad share"
    BROKE_RULES = "broke the rules"  # well-formed, but not what the protocol allows at this point
    ABORTED = "aborted"  # it gave up and said so
    BEHIND = "behind"  # it has not heard the last average, or was told another
    DISAGREES = "disagrees"  # it has other settings, another roster or another model
    CRASHED = "crashed"


class TacitError(Exception):
    """The base of everything Tacit raises on purpose."""

    code: ClassVar[str] = "tacit"

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is. Exceptions are otherwise made anew from their message, which is not what all of these take.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(TacitError):
    """The settings cannot work. Lists every problem at once, before anything is sent."""

    code = "config"

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class WireError(TacitError):
    """Bytes that are not what they claim to be: malformed, too long, not authentic."""

    code = "wire"


class PeerFault(TacitError):
    """One named party broke the protocol or gave up, and we cannot go on without it."""

    code = "peer"

    def __init__(self, peer: str, reason: Drop, detail: str = "") -> None:
        self.peer, self.reason = peer, reason
        super().__init__(f"{peer}: {reason}{f' ({detail})' if detail else ''}")


class NotEnough(TacitError):
    """Too few parties are left to go on; names those that are missing."""

    code = "not-enough"

    def __init__(
        self,
        what: str,
        have: int,
        need: int,
        missing: Mapping[str, Drop] | None = None,
        why: Mapping[str, str] | None = None,
        cure: str = "",
    ) -> None:
        self.have, self.need, self.missing = have, need, dict(missing or {})
        more = {party: f": {text}" for party, text in (why or {}).items()}
        who = ", ".join(f"{party} ({reason}{more.get(party, '')})" for party, reason in self.missing.items())
        names = f"; missing: {who}" if who else ""
        super().__init__(f"{what}: {have} of at least {need}{names}{f'; {cure}' if cure else ''}")


class LeakRefused(TacitError):
    """The settings would let somebody learn a single party's vector, and nobody passed `allow_leaks=True`."""

    code = "leak"

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
        """What the audit says of the settings, if it was asked."""


class NotLinear(TacitError):
    """A protocol computes something from vectors that is not linear, so that the audit cannot say what it shows."""

    code = "not-linear"


class NotAuditable(NotLinear):
    """A protocol shows what an audit on symbols does not see, or does other things to symbols than to numbers."""

    code = "not-auditable"


class JournalError(TacitError):
    """What a party wrote down of a round cannot be gone on from: it is of another round, incomplete, or changed."""

    code = "journal"


class BudgetSpent(TacitError):
    """A round would take more of somebody's privacy than there is left, and was not begun."""

    code = "budget"

    def __init__(self, spent: Mapping[str, float], budget: float) -> None:
        self.spent, self.budget = dict(spent), budget
        """What each of those who cannot afford it would have spent with it, as ε; and what there was."""
        who = ", ".join(f"{party} ({epsilon:.4g})" for party, epsilon in self.spent.items())
        super().__init__(f"after this round ε would be above the budget of {budget:g} for {who}; stop, or add noise")


class TransportError(TacitError):
    """What carries the messages failed."""

    code = "transport"


class WorkerLost(TacitError):
    """A process that shares the work ended before it was done, or went silent."""

    code = "worker"


class MissingExtra(TacitError):
    """An optional part of Tacit is not installed."""

    code = "extra"

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed; run: pip install 'tacit[{extra}]'")
