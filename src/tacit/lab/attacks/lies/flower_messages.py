"""A Flower server that asks nodes different things: which of them the nodes mask together for.

A strategy sends each node a message, and the mod of the deployed driver signs a digest of it as the lineage of what the
app trains. Here one node is sent something else than the others, or its run is configured otherwise, in each way of a
small alphabet. It is a break if they accept each other's keys although their apps saw different things.
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
"""The number of a node."""
LIVE, DEAD = np.full(ENTRIES, 1.0), np.full(ENTRIES, 8.0)
RATE = {"rate": 0.1}


@dataclass(frozen=True)
class Request:
    """What a server sends a node."""

    records: Mapping[str, Any]
    function: str = "train"
    """The function of the app that is asked for."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of the run, which a server hands out before any message."""

    @property
    def inputs(self) -> object:
        """What an app can tell apart: records and their kinds, arrays and their order, and all configuration."""
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
    """Returns what a server may send, by what is different about it."""
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
    """Two requests that nodes mask together for."""

    search: "FlowerSearch" = field(repr=False)
    one: str
    other: str

    def __str__(self) -> str:
        return f"one node is sent {self.one}, and the others {self.other}"

    def error(self) -> float:
        """Plays the round, and returns by how much the update of the one node is off that follows from the sum."""
        return self.search.session.recover_update(self.search.group(self.one, self.other), 0)


class FlowerSearch:
    """Goes through all pairs of requests."""

    def __init__(self) -> None:
        self.session = Session(RosterSettings())
        self.requests = list_requests()
        self.groups = 0
        """Groups that were given each other's keys."""
        self._lineages: dict[str, bytes] = {}

    def breaks(self) -> Iterator[FlowerBreak]:
        """Yields the pairs that nodes mask together for though their apps see different things."""
        self._lineages = {name: sign_request(self.session, request) for name, request in self.requests.items()}
        for other, one in combinations(self.requests, 2):
            self.groups += 1
            accepted = self.session.mask_together(self.group(one, other))
            if accepted and self.requests[one].inputs != self.requests[other].inputs:
                yield FlowerBreak(self, one, other)

    def group(self, one: str, other: str) -> dict[int, ClientInputs]:
        """Returns what nodes begin a round with, the first of which is sent something else than the others."""
        state = MemberState().state
        return {
            place: ClientInputs(1, state, self._lineages[other if place else one])
            for place in range(len(self.session.names))
        }


def sign_request(session: Session, request: Request) -> bytes:
    """Returns the lineage that the deployed mod gives to what an app trains from a request."""
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
    message = Message(content=content, metadata=about)  # type: ignore[call-overload]  # as Flower makes one it received
    context = Context(1, NODE, {}, RecordDict(), dict(request.run))
    make_mod(lambda _: party)(message, context, _train)
    (update,) = begun
    return update.lineage


def _train(message: Message, context: Context) -> Message:
    """Trains as any app: what comes of it does not matter here."""
    del context
    return Message(RecordDict({"arrays": _arrays(model=np.zeros(ENTRIES))}), reply_to=message)
