"""Grid of a ServerApp that runs rounds between nodes and gives the strategy their average.

The grid delivers the sealed messages of nodes, hop by hop, until the round is over. Then it answers the strategy with
the average, as if one node had sent it. `driver` has the other side of every message.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.entropy import SystemEntropy
from tacit.core.errors import ConfigError
from tacit.core.suite import SERVER, Party
from tacit.integrations.flower.driver import (
    RECORD,
    REFUSED,
    WEIGHT,
    asks_for_training,
    load_arrays,
    restore_arrays,
)
from tacit.integrations.flower.exchange import exchange_messages
from tacit.integrations.flower.introduction import CHALLENGE_BYTES, NodeIntroduction, is_incarnation
from tacit.integrations.flower.node_state import RENEW
from tacit.integrations.flower.party import FlowerParty, SealedMessage, StepResult
from tacit.integrations.flower.router import NodeCall, Router
from tacit.net.membership.roster import RosterFile
from tacit.runtime.round_numbers import MOST, estimate_progress
from tacit.vectors.layout import Layout
from tacit.vectors.model_tree import FLOATS, ArraySelection

MOST_PATIENCE = 1e6
"""Longest wait that a node may ask for, in phases."""
LEEWAY = 1 << 10
"""Rounds that a node may be ahead of most others and still be believed."""
NO_ROSTER = "the protocol of this federation has a server; try: give its roster: tacit-federation"

T = TypeVar("T")


class AveragingGrid(Grid):
    """Flower's grid that gives the strategy the average instead of what nodes have trained."""

    def __init__(self, grid: Grid, server: FlowerParty | None = None, roster: RosterFile | None = None) -> None:
        """Wraps a grid; `server` is the server's party, for protocols that have one, and `roster` is for others."""
        self._grid, self._server = grid, server
        self._roster = roster if server is None else server.roster
        self._nodes: dict[int, Party] = {}
        self._places: dict[Party, int] = {}
        self._rounds = 0
        self._reported_rounds: dict[Party, int] = {}
        """Number of rounds used up, as each party reported it in its introduction."""
        self._incarnations: dict[Party, bytes] = {}
        """Incarnation of each party, from its introduction."""
        self._announced: dict[Party, list[bytes]] = {}
        """Last messages of the last round, for parties that have not received them yet."""
        self.hops = 0
        """Number of times that nodes were called in the last round."""
        self.last: Ending | None = None
        """Outcome of the last round for the server; None without a server."""
        self.lost: dict[Party, str] = {}
        """Parties that dropped out of the last round, with the reason."""

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Returns the answers to messages; for those that train, the average and an error for each dropout."""
        given = list(messages)
        asked, others = list(filter(asks_for_training, given)), [each for each in given if not asks_for_training(each)]
        plain = exchange_messages(self._grid, map(self._add_announcement, others), timeout)
        if not asked:
            return plain
        self.hops, self.lost, self.last = 0, {}, None
        strangers = self._identify_nodes(asked, timeout)
        known = [each for each in asked if each.metadata.dst_node_id in self._nodes]
        asking = {self._nodes[each.metadata.dst_node_id]: each for each in known}
        answers = [
            _make_failure(each, strangers[node]) for each in asked if (node := each.metadata.dst_node_id) in strangers
        ]
        if not asking:
            return [*plain, *answers]
        answer = self._run_round(asking, timeout)
        answers += [_make_failure(asking[party], why) for party, why in self.lost.items() if party in asking]
        return [*plain, *answer, *answers]

    # --- introductions -----------------------------------------------------------------------------------------------

    def _identify_nodes(self, asked: Iterable[Message], timeout: float | None) -> dict[int, str]:
        """Asks new nodes which party they are; returns why some cannot take part."""
        new = {each.metadata.dst_node_id: each for each in asked if each.metadata.dst_node_id not in self._nodes}
        why = dict.fromkeys(new, "it did not introduce itself")
        challenge = SystemEntropy().bytes(CHALLENGE_BYTES)
        hello = RecordDict({RECORD: ConfigRecord({"hello": True, "challenge": challenge})})
        greetings = [_address_message(each, hello) for each in new.values()]
        without_roster = set()
        for answer in exchange_messages(self._grid, greetings, timeout):
            node = answer.metadata.src_node_id
            if answer.has_error():
                why[node] = answer.error.reason or why[node]
                continue
            try:
                introduced = _decode_answer(NodeIntroduction, answer)
            except ValueError:
                continue
            why[node] = self._find_objection(introduced, challenge)
            if self._server is None and introduced.server:
                without_roster.add(node)
            if not why[node]:
                self._nodes[node], self._places[introduced.party] = introduced.party, introduced.place
                self._reported_rounds[introduced.party], self._incarnations[introduced.party] = (
                    introduced.rounds,
                    introduced.incarnation,
                )
                del why[node]
        if why and why.keys() == without_roster and not self._nodes:
            raise ConfigError(NO_ROSTER)  # reported by all nodes, so no single malicious one causes it
        if self._reported_rounds:
            self._rounds = max(self._rounds, estimate_progress(list(self._reported_rounds.values()), LEEWAY))
        return why

    def _find_objection(self, introduced: NodeIntroduction, challenge: bytes) -> str:
        """Returns why a node cannot be the party that it claims to be; empty if it can."""
        party = introduced.party
        known = self._roster is None or party in self._roster.names
        if (
            party == SERVER
            or not known
            or not 0 <= introduced.rounds < MOST
            or not is_incarnation(introduced.incarnation)
        ):
            return "its introduction is invalid"
        if self._roster is not None and not introduced.is_signed(self._roster, challenge):
            return f"its introduction is invalid: {party} has not signed it"
        if party in self._nodes.values():
            return f"another node is {party}"
        if self._server is None:
            return NO_ROSTER if introduced.server else ""
        if self._server.has_other_incarnation(party, introduced.incarnation):
            return f"{party} has lost its journal, and may send contradictory messages in a round; try: {RENEW}"
        return ""

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _run_round(self, asking: dict[Party, Message], timeout: float | None) -> list[Message]:
        """Runs a round to its end; returns the answer with the average, if there is one."""
        # In the order of the roster, so that a round does not depend on the order of sampling.
        parties = sorted(asking, key=self._places.__getitem__)
        first = asking[parties[0]]
        name, model = _extract_model(first)
        server = self._server
        layout = Layout.of(model, FLOATS if server is None else ArraySelection.of(server.roster.terms.settings))
        announced = {party: self._take_announcement(party) for party in parties}
        self._rounds = number = max(self._rounds, server.rounds if server is not None else 0) + 1
        router = Router((*parties, *(() if server is None else (SERVER,))), is_star=self._is_star)
        company = {party: self._incarnations[party] for party in parties}
        if server is not None:
            company[SERVER] = server.incarnation
        begin: dict[str, Any] = {"round": number, "parties": list(company), "incarnations": list(company.values())}
        first_of = {
            party: RecordDict({**asking[party].content, RECORD: ConfigRecord({**begin, **announced[party]})})
            for party in parties
        }
        self._call_nodes(router, asking, first_of, timeout)
        if server is not None:
            router.record_result(SERVER, server.begin(None, number, None, layout.size, company))
        while calls := router.next_calls():
            for party in router.find_endless():
                self.lost[party] = "it does not finish"
                router.drop_party(party)
                calls.pop(party, None)
            mine = calls.pop(SERVER, None)
            self._call_nodes(
                router, asking, {party: _encode_call(number, call) for party, call in calls.items()}, timeout
            )
            if server is not None and mine is not None:
                router.record_result(SERVER, server.advance(None, number, mine.messages, mine.expired))
        self._announced = router.take_last_messages()
        if server is None:
            left = [party for party in parties if party not in self.lost]
            return [_make_reply(asking[left[0]], name, first.content.array_records[name])] if left else []
        self.last = ending = server.last
        if ending is None or ending.average is None:
            why = "no average" if ending is None or ending.error is None else f"{ending.error.code}: {ending.error}"
            self.lost = {party: self.lost.get(party, why) for party in parties}
            return []
        self.lost = {party: str(why) for party, why in ending.dropped.items()} | self.lost
        left = [party for party in parties if party not in self.lost]
        return [
            _make_reply(asking[(left or parties)[0]], name, restore_arrays(layout, np.asarray(ending.average), model))
        ]

    @property
    def _is_star(self) -> bool:
        """Whether parties exchange messages with the server only."""
        if self._server is None:
            return False
        terms = self._server.roster.terms
        return all(set(terms.peers(party)) <= {party, SERVER} for party in self._server.roster.names)

    def _take_announcement(self, party: Party) -> dict[str, Any]:
        """Returns the last messages of the last round for a party, as fields of a record; none if it has them."""
        messages = self._announced.pop(party, None)
        return {"earlier": self._rounds, "announced": messages} if messages else {}

    def _add_announcement(self, message: Message) -> Message:
        """Adds the last messages of the last round to a message that begins none, for the mod on its node."""
        kind = message.metadata.message_type.partition(".")[0]
        party = self._nodes.get(message.metadata.dst_node_id)
        fields = self._take_announcement(party) if party is not None and kind == MessageType.EVALUATE else {}
        if not fields:
            return message
        about = message.metadata  # the content may be that of several messages, so it is not changed
        content = RecordDict({**message.content, RECORD: ConfigRecord(fields)})
        return Message(content, about.dst_node_id, about.message_type, ttl=about.ttl, group_id=about.group_id)

    def _call_nodes(
        self, router: Router, asking: dict[Party, Message], contents: dict[Party, RecordDict], timeout: float | None
    ) -> None:
        """Calls nodes with the type of the strategy's messages; records results in the order of `contents`."""
        if not contents:
            return
        self.hops += 1
        sent = [_address_message(asking[party], content) for party, content in contents.items()]
        answers = {
            self._nodes.get(each.metadata.src_node_id): each for each in exchange_messages(self._grid, sent, timeout)
        }
        for party in contents:
            answer = answers.get(party)
            if answer is None or answer.has_error():
                self.lost[party] = "no answer in time" if answer is None else answer.error.reason or "it failed"
                router.drop_party(party)
                continue
            try:
                result = _decode_answer(_NodeAnswer, answer).check()
            except ValueError:
                self.lost[party] = "its answer is invalid"
                router.drop_party(party)
                continue
            if result.error:
                self.lost[party] = result.error
            router.record_result(party, result)

    # --- the wrapped grid --------------------------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        """Sets the run of the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Run of the wrapped grid."""
        return self._grid.run

    def create_message(self, *given: Any, **more: Any) -> Message:
        """Returns a new message."""
        return self._grid.create_message(*given, **more)

    def get_node_ids(self) -> Iterable[int]:
        """Returns the identifiers of the nodes."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Sends messages unchanged."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Returns the answers so far."""
        return self._grid.pull_messages(message_ids)


class _NodeAnswer(msgspec.Struct, frozen=True):
    """Answer of a node in a round."""

    to: list[Party]
    mail: list[bytes]
    """Sealed messages, one for each of `to`."""
    waits: int
    patience: float
    over: bool
    error: str

    def check(self) -> StepResult:
        """Returns the answer as a result; raises ValueError if a node cannot honestly have sent it."""
        if not self.over and not 1 <= self.patience <= MOST_PATIENCE:  # no wait is shorter than a phase
            raise ValueError
        messages = [SealedMessage(to, data) for to, data in zip(self.to, self.mail, strict=True)]
        return StepResult(messages, self.waits, self.patience, self.over, self.error)


def _decode_answer(kind: type[T], message: Message) -> T:
    """Decodes the answer of a node; raises ValueError if it is malformed, since a node may answer anything."""
    return msgspec.convert(dict(message.content.config_records.get(RECORD, {})), kind)


def _address_message(asked: Message, content: RecordDict) -> Message:
    """Returns a message to the same node and the same function of its app, since several may train."""
    return Message(content, dst_node_id=asked.metadata.dst_node_id, message_type=asked.metadata.message_type)


def _encode_call(number: int, call: NodeCall) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"round": number, "mail": call.messages, "expired": call.expired})})


def _extract_model(message: Message) -> tuple[str, dict[str, NDArray[Any]]]:
    """Returns the name and the arrays of the model in a message."""
    records = message.content.array_records
    if len(records) != 1:
        raise ConfigError(f"a message to train must have one ArrayRecord, not {len(records)}")
    ((name, record),) = records.items()
    return name, load_arrays(record)


def _make_reply(message: Message, name: str, arrays: ArrayRecord) -> Message:
    return Message(RecordDict({name: arrays, "metrics": MetricRecord({WEIGHT: 1})}), reply_to=message)


def _make_failure(message: Message, why: str) -> Message:
    return Message(Error(REFUSED, why), reply_to=message)
