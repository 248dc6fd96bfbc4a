"""Telemetry of a node: log records of its events, counters, and OpenTelemetry spans.

Records go to the logger `tacit.node` of the standard library. Each is one line for people, with the same content as
fields for programs: the event, the party, and details. They contain no secrets, only names, addresses, round numbers,
kinds of messages, times, sizes, and texts of errors, which contain nothing else.
"""

import importlib
import json
import logging
import os
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from time import gmtime
from typing import Any, Protocol, TextIO

from tacit.core.average import Ending, Phase
from tacit.core.errors import TacitError
from tacit.core.suite import Party
from tacit.runtime.round import Round

LOG = logging.getLogger("tacit.node")
LOG.addHandler(logging.NullHandler())  # otherwise records go to standard error by default
BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Upper bounds of the histogram of phases, in seconds."""
AVERAGED = "averaged"
"""Result of a round with an average. The result of any other round is the code of its error."""


class LinkState(Protocol):
    """State of the link to a peer."""

    trouble: str
    """Reason why the peer cannot be reached directly; empty if it can."""
    arrivals: int
    """Number of calls that the peer answered."""
    retries: int
    """Number of frames that had to be sent again."""


@dataclass
class Histogram:
    """Histogram of durations."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Counts one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


MOST_REFUSED = 64
"""Most different reasons for refused certificates that are logged: a stranger can make up any number."""


class Telemetry:
    """Logs and counts the events of a node since its start."""

    def __init__(self, party: Party, federation: str, protocol: str) -> None:
        self.party, self.federation, self.protocol = party, federation, protocol
        self.results: Counter[str] = Counter({AVERAGED: 0})
        """Rounds by result."""
        self.phases: dict[str, Histogram] = {}
        """Durations of phases, by the kind of the awaited message."""
        self.excluded: Counter[str] = Counter()
        """Excluded parties by reason."""
        self.sent: Counter[str] = Counter()
        """Bytes sent in rounds that are over, by class."""
        self.received: Counter[str] = Counter()
        """Bytes received in rounds that are over, by class."""
        self.troubles: Counter[Party] = Counter()
        """Number of times that each peer became unreachable."""
        self._spans = Spans.detect()
        self._round: Round | None = None
        self._moved = (0, False)
        self._reported_phases = 0
        self._dropped: set[Party] = set()
        self._disagreements: dict[Party, str] = {}
        self._refused: set[str] = set()
        self._unreachable: dict[Party, int] = {}
        self._disk = False

    def _log(self, level: int, event: str, text: str, **fields: Any) -> None:
        if LOG.isEnabledFor(level):
            line = " ".join(f"{self.party}: {text}".split())
            LOG.log(level, "%s", line, extra={"event": event, "party": self.party, **fields})

    # --- the node --------------------------------------------------------------------------------------------------

    def report_joined(self, address: str, number: int) -> None:
        """Reports that the node has started, with its address, empty if it only dials out, and its last round."""
        where = {"federation": self.federation, "protocol": self.protocol, "address": address, "round": number}
        said = f"at {address}" if address else "without an address: it only dials out"
        self._log(logging.INFO, "joined", f"joined {self.federation} ({self.protocol}) {said}", **where)

    def report_ready(self, number: int) -> None:
        """Reports that the node is ready for a round."""
        self._log(logging.DEBUG, "ready", f"ready for round {number}", round=number)

    def report_refused(self, error: TacitError, number: int) -> None:
        """Reports the error of a call of `average`."""
        self._log(
            logging.ERROR,
            "not-averaged",
            f"after round {number}: {error}",
            round=number,
            code=error.code,
            why=str(error),
        )

    def report_disk(self, error: TacitError | None) -> None:
        """Reports once that the disk fails, and once that it works again."""
        if error is not None and not self._disk:
            self._log(logging.ERROR, "disk-failed", str(error), code=error.code, why=str(error))
        elif error is None and self._disk:
            self._log(logging.WARNING, "disk-back", "the disk works again, and everything is stored")
        self._disk = error is not None

    def report_revision(self, number: int, before: Collection[Party], after: Collection[Party]) -> None:
        """Reports that the node runs a newer revision of the roster, and who was removed or added by it."""
        gone, new = [
            [each for each in ones if each not in others] for ones, others in ((before, after), (after, before))
        ]
        parts = [f"{what} {', '.join(who)}" for what, who in (("without", gone), ("with", new)) if who]
        text = " ".join([f"goes on with revision {number} of {self.federation}", *parts])
        self._log(logging.WARNING, "roster-revised", text, revision=number, removed=gone, added=new)

    def report_refused_revision(self, error: TacitError) -> None:
        """Reports that the node does not run the roster in its file, and why."""
        self._log(logging.ERROR, "roster-refused", str(error), code=error.code, why=str(error))

    def report_closed(self, leaving: bool) -> None:
        """Reports that the node has stopped."""
        if self._spans is not None:
            self._spans.end("closed")
        self._log(logging.INFO, "closed", "left the federation" if leaving else "closed", left=leaving)

    # --- peers -----------------------------------------------------------------------------------------------------

    def report_disagreements(self, found: Mapping[Party, TacitError | str]) -> None:
        """Reports once each peer with which the node cannot run rounds, and the reason."""
        for peer, why in found.items():
            if self._disagreements.get(peer) != str(why):
                self._log(logging.WARNING, "peer-apart", str(why), peer=peer, why=str(why))
                self._disagreements[peer] = str(why)

    def report_conflict(self, peer: Party, why: str) -> None:
        """Reports that two processes may have the identity of a peer."""
        self._log(logging.WARNING, "identity-conflict", why, peer=peer, why=why)

    def report_refused_certificate(self, why: str) -> None:
        """Reports once each reason why a certificate was refused, without the time of day in it."""
        reason = why.partition(", and it is")[0]
        if reason not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused.add(reason)
            self._log(logging.WARNING, "certificate-refused", f"refused a certificate {why}", why=why)

    def report_links(self, lines: Mapping[Party, LinkState]) -> None:
        """Reports peers that became unreachable, or reachable again."""
        for peer, line in lines.items():
            if peer not in self._unreachable:
                if line.trouble:
                    self._unreachable[peer] = line.arrivals
                    self.troubles[peer] += 1
                    self._log(logging.WARNING, "trouble", line.trouble, peer=peer, why=line.trouble)
            # A link clears its trouble at every sign of life, so only an answered call counts as the end of it.
            elif not line.trouble and line.arrivals > self._unreachable[peer]:
                del self._unreachable[peer]
                self._log(logging.WARNING, "trouble-over", f"{peer} is reachable again", peer=peer)

    # --- rounds ----------------------------------------------------------------------------------------------------

    def report_round(self, round_: Round, *, resumed: bool = False) -> None:
        """Reports the progress of a round since the last call.

        The events of a resumed round before its interruption were reported at that time.
        """
        first = round_ is not self._round
        if not first and self._moved == (round_.waits, round_.over):
            return
        self._moved, ending = (round_.waits, round_.over), round_.ending
        if first:
            self._report_begin(round_, ending, resumed)
        for phase in ending.phases[self._reported_phases :]:
            self._report_phase(ending.round, phase)
        self._reported_phases = len(ending.phases)
        for peer, reason in ending.dropped.items():
            if peer not in self._dropped:
                self.excluded[reason.value] += 1
                text = f"round {ending.round} continues without {peer}: {reason}"
                self._log(logging.WARNING, "party-excluded", text, round=ending.round, peer=peer, reason=reason.value)
        self._dropped = set(ending.dropped)
        if round_.over:
            self._report_end(ending)
        elif self._spans is not None and round_.wait is not None:
            self._spans.wait(" or ".join(round_.wait.names))

    def _report_begin(self, round_: Round, ending: Ending, resumed: bool) -> None:
        number = ending.round
        self._round = round_
        self._reported_phases, self._dropped = (len(ending.phases), set(ending.dropped)) if resumed else (0, set())
        if self._spans is not None:
            who = {"party": self.party, "federation": self.federation, "protocol": self.protocol}
            self._spans.begin({**who, "round": number, "resumed": resumed})
        if resumed:
            self._log(logging.WARNING, "round-resumed", f"goes on with round {number}, which was cut off", round=number)
        else:
            self._log(logging.INFO, "round-begun", f"round {number} has begun", round=number)

    def _report_phase(self, number: int, phase: Phase) -> None:
        self.phases.setdefault(phase.kind, Histogram()).add(phase.seconds)
        missing = {peer: reason.value for peer, reason in phase.missing.items()}
        came = phase.awaited - len(missing)
        if self._spans is not None:
            self._spans.end_wait(phase.kind, {"awaited": phase.awaited, "missing": sorted(missing)})
        self._log(
            logging.DEBUG,
            "phase-ended",
            f"round {number}: {phase.kind} came from {came} of {phase.awaited} in {phase.seconds:.3f} s",
            round=number,
            kind=phase.kind,
            seconds=round(phase.seconds, 6),
            awaited=phase.awaited,
            missing=missing,
        )

    def _report_end(self, ending: Ending) -> None:
        error = ending.error
        self.results[AVERAGED if error is None else error.code] += 1
        self.sent.update(ending.sent)
        self.received.update(ending.received)
        if self._spans is not None:
            self._spans.end("" if error is None else error.code, {"contributors": len(ending.contributors)})
        fields: dict[str, Any] = {
            "round": ending.round,
            "contributors": list(ending.contributors),
            "dropped": {peer: reason.value for peer, reason in ending.dropped.items()},
            "seconds": round(sum(phase.seconds for phase in ending.phases), 6),
            "sent": dict(ending.sent),
            "received": dict(ending.received),
        }
        if error is None:
            text = f"round {ending.round} is over: {len(ending.contributors)} averaged"
            self._log(logging.INFO, "round-finished", text, **fields)
        else:
            text = str(error)
            text = text if text.startswith(f"round {ending.round} ") else f"round {ending.round} aborted: {text}"
            self._log(logging.WARNING, "round-aborted", text, code=error.code, why=str(error), **fields)


# --- log lines -----------------------------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """Formatter that writes a record as one JSON object: time, level, event, fields, and the line for people."""

    converter = staticmethod(gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line for a record, of any logger."""
        plain = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
        said = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", record.name),
            **{name: value for name, value in vars(record).items() if name not in plain},
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str)


class _Lines(logging.StreamHandler[TextIO]):
    """Handler that writes lines, and ignores errors of writing."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (a name of the standard library)
        """Ignores an error of writing: a full disk is reported elsewhere, and nobody may be reading the stream."""


def log_lines(*, as_json: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Writes the log records of nodes to a stream, and returns the handler.

    >>> handler = log_lines(as_json=True)

    A second call replaces the handler of the first one. Programs that configure `logging` themselves need not call it:
    the logger is `tacit.node`.

    Args:
        as_json: Whether to write all records, as one JSON object per line. Otherwise only warnings and errors are
            written, as text.
        stream: The stream; standard error by default.
    """
    handler = _Lines(stream)
    handler.setFormatter(JsonLines() if as_json else None)
    for before in [each for each in LOG.handlers if isinstance(each, _Lines)]:
        LOG.removeHandler(before)
    LOG.addHandler(handler)
    LOG.setLevel(logging.DEBUG if as_json else logging.WARNING)
    return handler


# --- spans ---------------------------------------------------------------------------------------------------------


class Spans:
    """OpenTelemetry spans of the present round: one for the round, and a child span for each of its waits."""

    def __init__(self, trace: Any) -> None:
        self._trace, self._tracer = trace, trace.get_tracer("tacit")
        self._round: Any = None
        self._wait: Any = None

    @classmethod
    def detect(cls) -> "Spans | None":
        """Returns the spans; None unless OpenTelemetry is imported, or its environment variables are set."""
        if "opentelemetry" not in sys.modules and not any(name.startswith("OTEL_") for name in os.environ):
            return None
        try:
            # Imported by name, because it is an optional dependency.
            return cls(importlib.import_module("opentelemetry.trace"))
        except ImportError:
            return None

    def begin(self, fields: Mapping[str, Any]) -> None:
        """Begins the span of a round."""
        self.end("cut off")
        self._round = self._tracer.start_span("tacit.round", attributes=_prefix_names(fields))

    def wait(self, kind: str) -> None:
        """Begins the span of a wait."""
        if self._round is not None and self._wait is None:
            context = self._trace.set_span_in_context(self._round)
            self._wait = self._tracer.start_span("tacit.phase", context, attributes=_prefix_names({"kind": kind}))

    def end_wait(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Ends the span of a wait. A wait that took no time has no span yet, so one is begun first."""
        self.wait(kind)
        if self._wait is not None:
            self._wait.set_attributes(_prefix_names(fields))
            self._wait.end()
            self._wait = None

    def end(self, failed: str, fields: Mapping[str, Any] | None = None) -> None:
        """Ends the span of a round, if there is one. `failed` is the reason of a failure, or empty."""
        for span in (self._wait, self._round):
            if span is not None:
                span.set_attributes(_prefix_names(fields or {}) if span is self._round else {})
                if failed:
                    span.set_status(self._trace.StatusCode.ERROR, failed)
                span.end()
        self._round = self._wait = None


def _prefix_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"tacit.{name}": value for name, value in fields.items()}
