"""Errors that Tacit raises, each kind with a stable code."""

import copyreg
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

TRY = "; try: "
"""Separator of message and remedy in the text of an error: `threshold=9 is too large; try: threshold=4`."""


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


OPT_IN = "allow_leaks=True runs these settings anyway, and exposes the vectors that the message names"
"""Detail of a refusal. It is no remedy, so `try:` never names it."""
UNKNOWN_OPT_IN = "allow_leaks=True runs these settings anyway, and nothing is known about which vectors they expose"
"""The same for settings that no audit covers."""


class ErrorText(NamedTuple):
    """Short message of an error, and its remedy."""

    message: str
    """What is wrong."""
    remedy: str = ""
    """What to do about it. Empty if there is no general remedy."""

    @classmethod
    def parse(cls, text: str) -> "ErrorText":
        """Splits a text at its first `TRY`. Lists of problems and stored errors are such texts."""
        message, _, remedy = text.partition(TRY)
        return cls(message, remedy)

    def __str__(self) -> str:
        return f"{self.message}{TRY}{self.remedy}" if self.remedy else self.message


class TacitError(Exception):
    """Base class of the errors that Tacit raises.

    `str(error)` is one line, `message; try: remedy`. Detail is a note of the exception, which tracebacks show and
    the command line prints with `--verbose`.

    ```python
    error = TacitError("threshold=9 exceeds the 5 parties", remedy="threshold=4")
    assert str(error) == "threshold=9 exceeds the 5 parties; try: threshold=4"
    assert TacitError(str(error)).remedy == "threshold=4"
    ```
    """

    code: ClassVar[str] = "tacit"

    def __init__(self, message: str = "", *, remedy: str = "", detail: str = "") -> None:
        """Takes the parts of the text.

        Args:
            message: What is wrong, in one line. A remedy may follow it, after `TRY`.
            remedy: What to do, as an instruction. It never exposes anybody's data.
            detail: Further facts.
        """
        parsed = ErrorText.parse(message)
        text = ErrorText(parsed.message, remedy or parsed.remedy)
        super().__init__(*([str(text)] if message else []))
        self.message, self.remedy = text
        self.detail = detail
        if detail:
            self.add_note(detail)

    @property
    def texts(self) -> tuple[ErrorText, ...]:
        """Message and remedy of each problem; one pair, except for a `ConfigError` with several problems."""
        return (ErrorText(self.message, self.remedy),)

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

    def __init__(self, problems: str | Iterable[str], *, remedy: str = "", detail: str = "") -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        if remedy and len(self.problems) == 1:
            self.problems = (str(ErrorText(self.problems[0], remedy)),)
        texts = self.texts
        super().__init__(
            "; ".join(text.message for text in texts),
            remedy="; ".join(text.remedy for text in texts if text.remedy),
            detail=detail,
        )
        self.args = ("; ".join(self.problems),)

    @property
    def texts(self) -> tuple[ErrorText, ...]:
        """Message and remedy of each problem."""
        return tuple(ErrorText.parse(problem) for problem in self.problems)


class UnsafePath(ConfigError):
    """A file or folder that another user owns or can change, or that was replaced by a link."""

    code = "unsafe-path"


class ProtocolMistake(ConfigError):
    """A mistake in a protocol's own code, which shows only when it runs."""


class StepError(ProtocolMistake):
    """A protocol's code sends or awaits a message at a step that its `Terms.steps` does not list."""


class SecretField(ProtocolMistake):
    """A message has a field with a `Secret`, which no message may carry in the clear."""

    def __init__(self, kind: str = "a message", *, remedy: str = "") -> None:
        """Takes the kind of the message; the remedy is always the same, unless the error comes out of a file."""
        super().__init__(
            f"a Secret cannot be a field of {kind}",
            remedy=remedy
            or "let both parties derive it with suite.pairwise or agree, or send it through share or seal",
        )


class WireError(TacitError):
    """Bytes that are malformed, too long, or not authentic."""

    code = "wire"


class PeerFault(TacitError):
    """One named party broke the protocol or aborted, and the round cannot end without it."""

    code = "peer"

    def __init__(self, peer: str, reason: Drop, why: str = "", *, remedy: str = "", message: str = "") -> None:
        """Takes the party, and why it is at fault; `message` replaces the text that is made of them."""
        self.peer, self.reason = peer, reason
        super().__init__(message or f"{peer}: {reason}{f' ({why})' if why else ''}", remedy=remedy)


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
        *,
        round_number: int | None = None,
        rule: str = "",
        detail: str = "",
    ) -> None:
        """Takes counts and names.

        Args:
            what: What is counted, such as `of 5 parties delivered MaskedInput`.
            have: How many there are.
            need: How many are needed.
            missing: The missing parties, and why each is missing.
            why: Further facts on some of them.
            cure: The remedy.
            round_number: The round that is aborted, if it is known.
            rule: The setting that says how many are needed, such as `threshold=4`.
            detail: What else follows from that setting.
        """
        self.have, self.need, self.missing = have, need, dict(missing or {})
        aborted = f"round {round_number} aborted: " if round_number is not None else ""
        names = "".join(f"; {text}" for text in _list_missing(self.missing, why or {}))
        needed = f"{need} needed{f' ({rule})' if rule else ''}"
        facts = [detail, *(f"{party}: {text}" for party, text in (why or {}).items())]
        super().__init__(f"{aborted}{have} {what}, {needed}{names}", remedy=cure, detail="\n".join(filter(None, facts)))


def _list_missing(missing: Mapping[str, Drop], why: Mapping[str, str]) -> Iterable[str]:
    """Yields the missing parties by reason, such as `timed out: p2, p3`, with the difference if settings differ."""
    for reason in dict.fromkeys(missing.values()):
        who = [party for party, each in missing.items() if each is reason]
        told = [why[party] for party in who if party in why and reason is Drop.DISAGREES]
        differences = f" ({', '.join(dict.fromkeys(told))})" if told else ""
        yield f"{_REASONS.get(reason, reason.value)}: {', '.join(who)}{differences}"


_REASONS = {Drop.SILENT: "timed out", Drop.BEHIND: "without the last average", Drop.DISAGREES: "with other settings"}
"""Reasons in the words of a sentence, where the value of the enumeration is not one."""


class Behind(TacitError):
    """The party lacks an earlier average of changes, and the present average builds on it."""

    code = "behind"


class NotRestored(TacitError):
    """The program has not restored the model that its party adopted, so it would contribute from another model."""

    code = "not-restored"


class LeakRefused(TacitError):
    """The settings would expose a single party's vector, and `allow_leaks=True` was not passed."""

    code = "leak"

    def __init__(self, message: str, report: Any = None, *, remedy: str = "", detail: str = "") -> None:
        super().__init__(message, remedy=remedy, detail=detail)
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
        super().__init__(f"this is a state of {before}, not of {now}", remedy=advice)


class BudgetSpent(TacitError):
    """A round was not started, because it would exceed a party's privacy budget."""

    code = "budget"

    def __init__(self, spent: Mapping[str, float], budget: float, message: str = "", *, remedy: str = "") -> None:
        self.spent, self.budget = dict(spent), budget
        """The budget, and in `spent` the ε after this round of each party that would exceed it."""
        who = ", ".join(f"{party} ({epsilon:.4g})" for party, epsilon in self.spent.items())
        super().__init__(
            message or f"the next round would exceed the budget of ε = {budget:g} for {who}",
            remedy=remedy or "stop here, or add more noise",
        )


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
        super().__init__(f"{module} is not installed", remedy=f"pip install 'tacit[{extra}]'")


OTHER_CODES = {
    "stopped": "A command was stopped by Ctrl-C.",
    "disk": "There is no space on the disk.",
    "usage": "A command has an unknown option, or an argument too many or too few.",
    "internal": "An error that Tacit does not expect: a defect of Tacit or of a plugin.",
}
"""Codes that the command line prints for what is no `TacitError` of this module, with what each means."""


def list_codes() -> dict[str, str]:
    """Returns every error code, with one sentence that says what it means.

    ```python
    assert list_codes()["budget"].startswith("A round would exceed")
    ```
    """
    classes: list[type[TacitError]] = [TacitError]
    found: dict[str, str] = {}
    for kind in classes:  # the list grows: a class of errors is followed by its subclasses
        if kind.__module__ == __name__:
            found.setdefault(kind.code, (kind.__doc__ or "").partition("\n")[0])
            classes += kind.__subclasses__()
    return found | OTHER_CODES
