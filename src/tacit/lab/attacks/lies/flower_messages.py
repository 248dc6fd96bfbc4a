"""Search over different requests of a Flower server: for which of them nodes still mask together.

A strategy sends each node a message, and the mod of the deployed driver signs a digest of it as the lineage of what the
app trains. Here one node receives a different message from the others, or its run has a different configuration, in
every way of a small list. It is a break if the nodes accept each other's keys although their apps saw different inputs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, Metadata, MetricRecord, RecordDict

from tacit.core.suite import Update
from tacit.integrations.flower.driver import RECORD, make_mod
from tacit.integrations.flower.party import StepResult
from tacit.lab.attacks.lies.programs import MemberState
from tacit.lab.attacks.lies.sessions import ENTRIES, ClientInputs, RosterSettings, Session
from tacit.protocols.secagg import SECAGG

NODE = 7
"""The number of one node."""
LIVE, DEAD = np.full(ENTRIES, 1.0), np.full(ENTRIES, 8.0)
RATE = {"rate": 0.1}


@dataclass(frozen=True)
class Request:
    """A request of a server to a node."""

    records: Mapping[str, Any]
    function: str = "train"
    """The requested function of the app."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of the run, which a server distributes before any message."""

    @property
    def inputs(self) -> object:
        """Everything that an app can distinguish: records and their kinds, arrays and their order, and all
        configuration."""
        seen = []
        for name, record in self.records.items():
            values: Any = dict(record)
            if isinstance(record, ArrayRecord):
                values = [(key, array.dtype, tuple(array.shape), bytes(array.data)) for key, array in record.items()]
            seen.append((name, type(record).__name__, repr(values)))
        return self.function, sorted(seen), sorted(self.run.items())


def _arrays(**named: Any) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in named.items()})


def list_requests() -> dict[str, Request]:
    """Returns the possible requests, by what differs in them."""
    arrays, rate = _arrays(one=LIVE, two=DEAD), ConfigRecord(dict(RATE))
    return {
        "what it sends the others": Request({"arrays": arrays, "config": rate}),
        "other arrays": Request({"arrays": _arrays(one=DEAD, two=DEAD), "config": rate}),
        "other configuration": Request({"arrays": arrays, "config": ConfigRecord({"rate": 0.0})}),
        "one more record of configuration": Request(
            {"arrays": arrays, "config": rate, "more": ConfigRecord(dict(RATE))}
        ),
        "the same arrays in another order": Request({"arrays": _arrays(two=DEAD, one=LIVE), "config": rate}),
        "configuration as metrics": Request({"arrays": arrays, "config": MetricRecord(dict(RATE))}),
        "an array in a record of its own": Request(
            {"arrays": _arrays(one=LIVE), "config": rate, "arrays/x": _arrays(two=DEAD)}
        ),
        "an array whose name has a slash": Request({"arrays": _arrays(**{"one": LIVE, "x/two": DEAD}), "config": rate}),
        "one more record without arrays": Request({"arrays": arrays, "config": rate, "more": ArrayRecord()}),
        "another function of the app": Request({"arrays": arrays, "config": rate}, function="train.other"),
        "another configuration of the run": Request({"arrays": arrays, "config": rate}, run={"rate": 0.0}),
    }


@dataclass(frozen=True)
class FlowerBreak:
    """Two different requests for which nodes mask together."""

    search: "FlowerSearch" = field(repr=False)
    one: str
    other: str

    def __str__(self) -> str:
        return f"one node is sent {self.one}, and the others {self.other}"

    def error(self) -> float:
        """Runs the round, and returns the error of the one node's update as derived from the sum."""
        return self.search.session.recover_update(self.search.group(self.one, self.other), 0)


class FlowerSearch:
    """Search over all pairs of requests."""

    def __init__(self) -> None:
        self.session = Session(RosterSettings())
        self.requests = list_requests()
        self.groups = 0
        """Number of groups of nodes that received each other's keys."""
        self._lineages: dict[str, bytes] = {}

    def breaks(self) -> Iterator[FlowerBreak]:
        """Yields the pairs for which nodes mask together although their apps see different inputs."""
        self._lineages = {name: sign_request(self.session, request) for name, request in self.requests.items()}
        for other, one in combinations(self.requests, 2):
            self.groups += 1
            accepted = self.session.mask_together(self.group(one, other))
            if accepted and self.requests[one].inputs != self.requests[other].inputs:
                yield FlowerBreak(self, one, other)

    def group(self, one: str, other: str) -> dict[int, ClientInputs]:
        """Returns the inputs with which nodes begin a round. The first node received another request than the
        others."""
        state = MemberState().state
        return {
            place: ClientInputs(1, state, self._lineages[other if place else one])
            for place in range(len(self.session.names))
        }


def sign_request(session: Session, request: Request) -> bytes:
    """Returns the lineage that the deployed mod assigns to a request."""
    begun: list[Update] = []

    def begin(_storage: object, _number: int, update: Update, *_: object) -> StepResult:
        begun.append(update)
        return StepResult([], waits=1, patience=1.0)

    roster = SimpleNamespace(names=session.names, terms=session.terms, entry=SECAGG)
    party: Any = SimpleNamespace(roster=roster, last=None, average=lambda _: None, begin=begin)
    company = ConfigRecord({"round": 1, "parties": [], "incarnations": []})
    about = Metadata(
        run_id=1,
        message_id="",
        src_node_id=1,
        dst_node_id=NODE,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=1e12,
        message_type=request.function,
    )
    content = RecordDict({**request.records, RECORD: company})
    message = Message(content=content, metadata=about)  # type: ignore[call-overload] # As Flower creates a received message.
    context = Context(1, NODE, {}, RecordDict(), dict(request.run))
    make_mod(lambda _: party)(message, context, _train)
    (update,) = begun
    return update.lineage


def _train(message: Message, context: Context) -> Message:
    """Trains as some app. The result does not matter here."""
    del context
    return Message(RecordDict({"arrays": _arrays(model=np.zeros(ENTRIES))}), reply_to=message)
