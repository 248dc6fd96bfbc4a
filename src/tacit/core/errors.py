"""Errors that Tacit raises, each kind with a stable code."""

import copyreg
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar


class Drop(StrEnum):
    """Reason why a party is excluded or missing."""

    SILENT = "silent"  # no message from it arrived before the phase ended
    MALFORMED = "malformed"  # its bytes do not decode as the message that they claim to be
    BAD_SIGNATURE = "bad signature"
    BAD_SHARE = "bad share"
    BROKE_RULES = "broke the rules"  # its message is well-formed, but the protocol does not allow it here
    ABORTED = "aborted"  # it sent an Abort message
    BEHIND = "behind"  # it lacks the last average, or has adopted a different one
    DISAGREES = "disagrees"  # it has other settings, another roster or another model
    CRASHED = "crashed"


class TacitError(Exception):
    """Base class of the errors that Tacit raises."""

    code: ClassVar[str] = "tacit"

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is unpickled from its message, and not all of these classes accept one.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(TacitError):
    """Settings that cannot be used. It lists all problems at once, and is raised before anything is sent.

    >>> import tacit
    >>> try:
    ...     tacit.Federation("fedavg", ["a", "b"], bits=12, clip=-1.0)
    ... except tacit.ConfigError as error:
    ...     len(error.problems)
    2
    """

    code = "config"

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class UnsafePath(ConfigError):
    """A file or folder that another user owns or can change, or that was replaced by a link."""

    code = "unsafe-path"


class StepError(ConfigError):
    """A protocol's code sends or awaits a message at a step that its `Terms.steps` does not list."""


class WireError(TacitError):
    """Bytes that are malformed, too long, or not authentic."""

    code = "wire"


class PeerFault(TacitError):
    """One named party broke the protocol or aborted, and the round cannot end without it."""

    code = "peer"

    def __init__(self, peer: str, reason: Drop, detail: str = "") -> None:
        self.peer, self.reason = peer, reason
        super().__init__(f"{peer}: {reason}{f' ({detail})' if detail else ''}")


class NotEnough(TacitError):
    """Too few parties are left to continue. The error names the missing ones.

    Attributes:
        have: The number of parties left.
        need: The smallest number with which the round can continue.
        missing: The missing parties, and why each is missing.
    """

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
    """The party lacks an earlier average of changes, and the present average builds on it."""

    code = "behind"


class NotRestored(TacitError):
    """The program has not restored the model that its party adopted, so it would contribute from another model."""

    code = "not-restored"


class LeakRefused(TacitError):
    """The settings would expose a single party's vector, and `allow_leaks=True` was not passed."""

    code = "leak"

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
        """The audit's report on the settings, if there is one."""


class NotAudited(LeakRefused):
    """Neither an audit nor a proof covers what the settings expose, and `allow_leaks=True` was not passed."""

    code = "not-audited"


class NotLinear(TacitError):
    """A protocol computes a non-linear function of vectors, so the audit cannot determine what it exposes."""

    code = "not-linear"


class NotAuditable(NotLinear):
    """A protocol sends data that a symbolic audit cannot see, or behaves differently on symbols and on numbers."""

    code = "not-auditable"


class JournalError(TacitError):
    """A round cannot be resumed from its journal, which belongs to another round, is incomplete, or was changed."""

    code = "journal"


class OtherProtocol(JournalError):
    """A saved state belongs to another protocol than the federation uses now. The file is left unchanged."""

    code = "other-protocol"

    def __init__(self, before: str, now: str, advice: str = "") -> None:
        self.before, self.now = before, now
        """Name of the protocol that wrote the state (`before`), and of the present one (`now`)."""
        advice = advice or f"keep it for {before}, and let {now} begin with another folder"
        super().__init__(f"this is a state of {before}, not of {now}; {advice}")


class BudgetSpent(TacitError):
    """A round was not started, because it would exceed a party's privacy budget."""

    code = "budget"

    def __init__(self, spent: Mapping[str, float], budget: float) -> None:
        self.spent, self.budget = dict(spent), budget
        """ε after this round of each party that would exceed the budget (`spent`), and the budget itself."""
        who = ", ".join(f"{party} ({epsilon:.4g})" for party, epsilon in self.spent.items())
        super().__init__(f"after this round ε would be above the budget of {budget:g} for {who}; stop, or add noise")


class TransportError(TacitError):
    """The transport could not deliver or receive messages."""

    code = "transport"


class WorkerLost(TacitError):
    """A worker process ended before its work was done, or stopped answering."""

    code = "worker"


class MissingExtra(TacitError):
    """An optional part of Tacit is not installed."""

    code = "extra"

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed; run: pip install 'tacit[{extra}]'")
