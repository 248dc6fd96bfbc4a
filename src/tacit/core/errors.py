"""Errors that Tacit raises, each kind with a stable code."""

import copyreg
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar


class Drop(StrEnum):
    """Reason why a party is excluded or missing."""

    SILENT = "silent"  # it had not answered when the phase ended
    MALFORMED = "malformed"  # it sent bytes that are not the message they claim to be
    BAD_SIGNATURE = "bad signature"
    BAD_SHARE = "bad share"
    BROKE_RULES = "broke the rules"  # well-formed, but not what the protocol allows at this point
    ABORTED = "aborted"  # it aborted and sent that
    BEHIND = "behind"  # it lacks the last average, or has another one
    DISAGREES = "disagrees"  # it has other settings, another roster or another model
    CRASHED = "crashed"


class TacitError(Exception):
    """Base class of the errors that Tacit raises."""

    code: ClassVar[str] = "tacit"

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are otherwise rebuilt from their message, which not all of these classes take.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(TacitError):
    """Invalid settings. Lists all problems at once, before anything is sent."""

    code = "config"

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class UnsafePath(ConfigError):
    """A file or folder that another user of the machine owns, can change, or has put a link in the place of."""

    code = "unsafe-path"


class StepError(ConfigError):
    """A protocol's own code uses a step of a message that its terms do not have."""


class WireError(TacitError):
    """Bytes that are not what they claim to be: malformed, too long, not authentic."""

    code = "wire"


class PeerFault(TacitError):
    """One named party broke the protocol or aborted, and the round needs it."""

    code = "peer"

    def __init__(self, peer: str, reason: Drop, detail: str = "") -> None:
        self.peer, self.reason = peer, reason
        super().__init__(f"{peer}: {reason}{f' ({detail})' if detail else ''}")


class NotEnough(TacitError):
    """Too few parties are left to continue; names those that are missing."""

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


class Behind(TacitError):
    """The party lacks an earlier average of changes, which the present one builds on."""

    code = "behind"


class NotRestored(TacitError):
    """The program does not hold the model that its party has adopted, so a contribution would continue from another."""

    code = "not-restored"


class LeakRefused(TacitError):
    """The settings would expose a single party's vector, and `allow_leaks=True` was not passed."""

    code = "leak"

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
        """The audit's report on the settings, if there is one."""


class NotAudited(LeakRefused):
    """No audit and no argument says what the settings expose, and `allow_leaks=True` was not passed."""

    code = "not-audited"


class NotLinear(TacitError):
    """A protocol computes a non-linear function of vectors, so the audit cannot determine what it exposes."""

    code = "not-linear"


class NotAuditable(NotLinear):
    """A protocol sends data that a symbolic audit does not see, or treats symbols and numbers differently."""

    code = "not-auditable"


class JournalError(TacitError):
    """A round cannot be resumed from its journal: it is of another round, incomplete, or was changed."""

    code = "journal"


class OtherProtocol(JournalError):
    """A saved state is of another protocol than the federation has now. It is kept as it is."""

    code = "other-protocol"

    def __init__(self, before: str, now: str, advice: str = "") -> None:
        self.before, self.now = before, now
        """Names of the state's protocol, and of the present one."""
        advice = advice or f"keep it for {before}, and let {now} begin with another folder"
        super().__init__(f"this is a state of {before}, not of {now}; {advice}")


class BudgetSpent(TacitError):
    """A round would exceed a party's privacy budget, and was not started."""

    code = "budget"

    def __init__(self, spent: Mapping[str, float], budget: float) -> None:
        self.spent, self.budget = dict(spent), budget
        """The ε of each party that would exceed the budget, this round included; and the budget."""
        who = ", ".join(f"{party} ({epsilon:.4g})" for party, epsilon in self.spent.items())
        super().__init__(f"after this round ε would be above the budget of {budget:g} for {who}; stop, or add noise")


class TransportError(TacitError):
    """The transport of messages failed."""

    code = "transport"


class WorkerLost(TacitError):
    """A worker process ended before its work was done, or stopped answering."""

    code = "worker"


class MissingExtra(TacitError):
    """An optional part of Tacit is not installed."""

    code = "extra"

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed; run: pip install 'tacit[{extra}]'")
