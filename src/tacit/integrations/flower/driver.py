"""Parties and what carries their mail, in Flower's words: a mod for a ClientApp, and a grid for a ServerApp.

A message of a strategy goes to a node as it is, with the number of a round beside it. The mod lets the app train,
brings the result to the round, and answers with sealed mail and nothing else. The grid carries mail, hop by hop, until
the round is over, and answers the strategy with the average as if one node had sent it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeGuard, TypeVar

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.errors import ConfigError, TacitError
from tacit.core.suite import SERVER, Party, Update
from tacit.integrations.flower.node_state import INCARNATION_BYTES, RENEW
from tacit.integrations.flower.party import FlowerParty, Mail, Said
from tacit.integrations.flower.router import Errand, Router
from tacit.runtime.round_numbers import MOST, estimate_progress
from tacit.vectors.layout import FLOATS, Layout, Selection

RECORD = "tacit"
"""The name of our records, in messages and in the state of a node."""
WEIGHT = "num-examples"
"""The metric that Flower's strategies weigh by."""
REFUSED = 6
"""Flower's code of a mod that could not go on."""
MOST_PATIENCE = 1e6
"""Phases that nobody waits for."""
LEEWAY = 1 << 10
"""Rounds that a node may be ahead of most others, which were not asked as often, for its word to count."""
NO_ROSTER = "the protocol of this federation has a server; give its roster: tacit-federation"
LOG = logging.getLogger("tacit.flower")

T = TypeVar("T")
Find: TypeAlias = Callable[[Context], FlowerParty]
Tell: TypeAlias = Callable[[Ending], None]


# --- nodes ---------------------------------------------------------------------------------------------------------


def mod_of(find: Find, tell: Tell = lambda _: None) -> Mod:
    """Returns a mod that brings what an app trains to a round, for the party that `find` says a node is.

    `tell` hears, on the node, how each round ended.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        try:
            return _answered(find, tell, message, context, call_next)
        except TacitError as error:
            # What is wrong may be in numbers of the node's own, such as its weight, which are nobody else's to know.
            LOG.error("refused (%s): %s", error.code, error)
            return Message(Error(REFUSED, error.code), reply_to=message)

    return mod


def _answered(find: Find, tell: Tell, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    party = find(context)
    shelf = context.state.config_records.get(RECORD)
    if shelf is None:
        shelf = ConfigRecord()
    asked = message.content.config_records.get(RECORD)
    if asked is None:
        if _trains(message):
            raise ConfigError("this node trains for rounds of Tacit only; give the strategy the grid of tacit.flower")
        return call_next(_own(party, shelf, message), context)
    if "hello" in asked:
        return Message(RecordDict({RECORD: _introduced(party)}), reply_to=message)
    number = int(_one(asked, "round"))
    before = party.last
    if "mail" in asked:
        said = party.go_on(shelf, number, asked["mail"], int(_one(asked, "expired")))  # type: ignore[arg-type]
    else:
        del message.content[RECORD]
        trained = call_next(_own(party, shelf, message), context)
        if trained.has_error():
            return trained
        update = _brought(party, trained.content)
        said = party.begin(shelf, number, update, len(update.vector), _company(party, asked))
    context.state[RECORD] = shelf
    if party.last is not None and party.last is not before:
        tell(party.last)
    return Message(RecordDict({RECORD: _record(said)}), reply_to=message)


def _trains(message: Message) -> bool:
    """Says whether a message asks for training, by whatever function of the app."""
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def _introduced(party: FlowerParty) -> ConfigRecord:
    """Returns what whoever carries mail has to know of a node."""
    roster = party.roster
    place, has_server = roster.names.index(party.name), roster.entry.server is not None
    return ConfigRecord(
        {
            "party": party.name,
            "place": place,
            "rounds": party.rounds,
            "incarnation": party.incarnation,
            "server": has_server,
        }
    )


def _company(party: FlowerParty, asked: ConfigRecord) -> dict[Party, bytes]:
    """Returns who was asked for a round, with the incarnation of each."""
    names, incarnations = asked.get("parties"), asked.get("incarnations")
    known = {*party.roster.names, SERVER}
    if not isinstance(names, list) or not isinstance(incarnations, list) or len(names) != len(incarnations):
        raise ConfigError("a round was begun without saying with whom; use the same release of Tacit everywhere")
    if not known.issuperset(names) or not all(map(_is_incarnation, incarnations)):
        raise ConfigError("a round was begun with somebody who is not on the roster; give everybody the same one")
    return dict(zip(names, incarnations, strict=True))  # type: ignore[arg-type]


def _is_incarnation(said: Any) -> TypeGuard[bytes]:
    return isinstance(said, bytes) and len(said) <= INCARNATION_BYTES


def _own(party: FlowerParty, shelf: ConfigRecord, message: Message) -> Message:
    """Returns a message with the node's own model in it, where there is no server that has the same for all."""
    vector = party.average(shelf)
    if vector is not None:
        selection = Selection.of(party.roster.terms.settings)
        for name, record in message.content.array_records.items():
            model = _arrays(record)
            message.content[name] = arrays_of(Layout.of(model, selection), vector, model)
    return message


def _brought(party: FlowerParty, content: RecordDict) -> Update:
    """Returns what an app has trained, and its weight."""
    if len(content.array_records) != 1:
        raise ConfigError(f"an answer to train must have one ArrayRecord, not {len(content.array_records)}")
    (record,) = content.array_records.values()
    settings = party.roster.terms.settings
    vector = _flat(_arrays(record), Selection.of(settings))
    if settings.max_weight == 1.0:
        return Update(vector)
    found = [record[WEIGHT] for record in content.metric_records.values() if WEIGHT in record]
    weight = found[0] if found else None
    if not isinstance(weight, int | float) or not 0 < weight <= settings.max_weight:
        raise ConfigError(
            f"{WEIGHT} of an answer to train must be above 0 and at most max_weight={settings.max_weight:g}, not "
            f"{weight!r}; raise max_weight in the roster"
        )
    return Update(vector, float(weight))


def _flat(model: dict[str, NDArray[Any]], selection: Selection) -> NDArray[Any]:
    """Returns a model as a vector: of its own floats if it has but one kind, for it is kept, and they are shorter."""
    layout = Layout.of(model, selection)
    kinds = {np.dtype(entry.dtype) for entry in layout.entries}
    if kinds <= {np.dtype(np.float32), np.dtype(np.float16)} and len(kinds) == 1:
        return np.concatenate([model[entry.name].reshape(-1) for entry in layout.entries])
    return layout.flatten(model)


def _arrays(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def arrays_of(layout: Layout, vector: NDArray[Any], model: dict[str, NDArray[Any]]) -> ArrayRecord:
    """Returns a vector as the arrays that it was made of, and those of a model that are not averaged."""
    return ArrayRecord({name: Array(array) for name, array in layout.restore(vector, model).items()})


def _record(said: Said) -> ConfigRecord:
    return ConfigRecord(
        {
            "to": [mail.to for mail in said.mail],
            "mail": [mail.data for mail in said.mail],
            "waits": said.waits,
            "patience": said.patience,
            "over": said.over,
            "error": said.error,
        }
    )


class _Introduced(msgspec.Struct, frozen=True):
    """What a node says of itself."""

    party: Party
    place: int
    rounds: int
    incarnation: bytes
    server: bool


class _Told(msgspec.Struct, frozen=True):
    """What a node says in a round."""

    to: list[Party]
    mail: list[bytes]
    waits: int
    patience: float
    over: bool
    error: str

    @property
    def said(self) -> Said:
        """The same, once it can be believed to be that; raises ValueError if it cannot."""
        if not self.over and not 1 <= self.patience <= MOST_PATIENCE:  # for no wait is shorter than a phase
            raise ValueError
        mail = [Mail(to, data) for to, data in zip(self.to, self.mail, strict=True)]
        return Said(mail, self.waits, self.patience, self.over, self.error)


def _as(kind: type[T], message: Message) -> T:
    """Returns what a node answered; raises ValueError if that is not what was asked for. A node may answer anything."""
    return msgspec.convert(dict(message.content.config_records.get(RECORD, {})), kind)


def _one(record: ConfigRecord, name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int):
        raise ConfigError(f"a message of a round has no {name}; use the same release of Tacit everywhere")
    return value


# --- the server ----------------------------------------------------------------------------------------------------


class Courier(Grid):
    """Flower's grid, but that what nodes train is averaged on the way to the strategy."""

    def __init__(self, grid: Grid, server: FlowerParty | None = None) -> None:
        """Carries mail over a grid. Where the protocol has a server, `server` is its part."""
        self._grid, self._server = grid, server
        self._nodes: dict[int, Party] = {}
        self._places: dict[Party, int] = {}
        self._rounds = 0
        self._said: dict[Party, int] = {}
        """How many rounds each said to have used up when it was met,"""
        self._incarnations: dict[Party, bytes] = {}
        """and which journal it had."""
        self.hops = 0
        """How often nodes were called for the last round,"""
        self.last: Ending | None = None
        """how it ended for the server, if there is one,"""
        self.lost: dict[Party, str] = {}
        """and who did not get through it, and why."""

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Returns the answers to messages: of those that train, the average alone, and who was lost on the way."""
        given = list(messages)
        asked, others = list(filter(_trains, given)), [each for each in given if not _trains(each)]
        plain = [*self._grid.send_and_receive(others, timeout=timeout)] if others else []
        if not asked:
            return plain
        self.hops, self.lost, self.last = 0, {}, None
        strangers = self._meet(asked, timeout)
        known = [each for each in asked if each.metadata.dst_node_id in self._nodes]
        asking = {self._nodes[each.metadata.dst_node_id]: each for each in known}
        answers = [_failed(each, strangers[node]) for each in asked if (node := each.metadata.dst_node_id) in strangers]
        if not asking:
            return [*plain, *answers]
        answer = self._round(asking, timeout)
        answers += [_failed(asking[party], why) for party, why in self.lost.items() if party in asking]
        return [*plain, *answer, *answers]

    # --- who is who ------------------------------------------------------------------------------------------------

    def _meet(self, asked: Iterable[Message], timeout: float | None) -> dict[int, str]:
        """Asks nodes that are new who they are; returns why some cannot take part."""
        new = {each.metadata.dst_node_id: each for each in asked if each.metadata.dst_node_id not in self._nodes}
        why = dict.fromkeys(new, "it did not say which party it is")
        hello = RecordDict({RECORD: ConfigRecord({"hello": True})})
        greeted = [_to(each, hello) for each in new.values()]
        for answer in self._grid.send_and_receive(greeted, timeout=timeout) if new else ():
            node = answer.metadata.src_node_id
            if answer.has_error():
                why[node] = answer.error.reason or why[node]
                continue
            try:
                told = _as(_Introduced, answer)
            except ValueError:
                continue
            why[node] = self._doubt(told)
            if not why[node]:
                self._nodes[node], self._places[told.party] = told.party, told.place
                self._said[told.party], self._incarnations[told.party] = told.rounds, told.incarnation
                del why[node]
        if why and set(why.values()) == {NO_ROSTER} and not self._nodes:
            raise ConfigError(NO_ROSTER)  # which all of them say, and so it is not one that lies
        if self._said:
            self._rounds = max(self._rounds, estimate_progress(list(self._said.values()), LEEWAY))
        return why

    def _doubt(self, told: _Introduced) -> str:
        """Returns why a node cannot be who it says; nothing if it can."""
        party = told.party
        if party in self._nodes.values():
            return f"another node is {party}"
        known = self._server is None or party in self._server.roster.names
        if party == SERVER or not known or not 0 <= told.rounds < MOST or not _is_incarnation(told.incarnation):
            return "what it said of itself cannot be"
        if self._server is None:
            return NO_ROSTER if told.server else ""
        if self._server.is_stranger(party, told.incarnation):
            return f"{party} has lost its journal, and may say two things in one round; {RENEW}"
        return ""

    # --- rounds ----------------------------------------------------------------------------------------------------

    def _round(self, asking: dict[Party, Message], timeout: float | None) -> list[Message]:
        """Carries a round to its end, and returns what it comes to."""
        # In the order of the roster, so that a round does not depend on that in which nodes were sampled.
        parties = sorted(asking, key=self._places.__getitem__)
        first = asking[parties[0]]
        name, model = _model(first)
        server = self._server
        layout = Layout.of(model, FLOATS if server is None else Selection.of(server.roster.terms.settings))
        self._rounds = number = max(self._rounds, server.rounds if server is not None else 0) + 1
        router = Router((*parties, *(() if server is None else (SERVER,))))
        company = {party: self._incarnations[party] for party in parties}
        if server is not None:
            company[SERVER] = server.incarnation
        begin = ConfigRecord({"round": number, "parties": list(company), "incarnations": list(company.values())})
        first_of = {party: RecordDict({**asking[party].content, RECORD: begin}) for party in parties}
        self._hop(router, asking, first_of, timeout)
        if server is not None:
            router.take(SERVER, server.begin(None, number, None, layout.size, company))
        while turns := router.turns():
            for party in router.endless():
                self.lost[party] = "it never ends"
                router.lose(party)
                turns.pop(party, None)
            mine = turns.pop(SERVER, None)
            self._hop(router, asking, {party: _errand(number, errand) for party, errand in turns.items()}, timeout)
            if server is not None and mine is not None:
                router.take(SERVER, server.go_on(None, number, mine.mail, mine.expired))
        if server is None:
            left = [party for party in parties if party not in self.lost]
            return [_reply(asking[left[0]], name, first.content.array_records[name])] if left else []
        self.last = ending = server.last
        if ending is None or ending.average is None:
            why = "no average" if ending is None or ending.error is None else f"{ending.error.code}: {ending.error}"
            self.lost = {party: self.lost.get(party, why) for party in parties}
            return []
        self.lost = {party: str(why) for party, why in ending.dropped.items()} | self.lost
        left = [party for party in parties if party not in self.lost]
        return [_reply(asking[(left or parties)[0]], name, arrays_of(layout, np.asarray(ending.average), model))]

    def _hop(
        self, router: Router, asking: dict[Party, Message], contents: dict[Party, RecordDict], timeout: float | None
    ) -> None:
        """Calls nodes as the strategy asked them, and takes what they say in the order in which they are given."""
        if not contents:
            return
        self.hops += 1
        sent = [_to(asking[party], content) for party, content in contents.items()]
        answers = {
            self._nodes.get(each.metadata.src_node_id): each
            for each in self._grid.send_and_receive(sent, timeout=timeout)
        }
        for party in contents:
            answer = answers.get(party)
            if answer is None or answer.has_error():
                self.lost[party] = "no answer in time" if answer is None else answer.error.reason or "it failed"
                router.lose(party)
                continue
            try:
                said = _as(_Told, answer).said
            except ValueError:
                self.lost[party] = "what it said cannot be"
                router.lose(party)
                continue
            if said.error:
                self.lost[party] = said.error
            router.take(party, said)

    # --- what the grid does ----------------------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        """Sets the run of the grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid."""
        return self._grid.run

    def create_message(self, *given: Any, **more: Any) -> Message:
        """Returns a new message."""
        return self._grid.create_message(*given, **more)

    def get_node_ids(self) -> Iterable[int]:
        """Returns the nodes."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Sends messages as they are."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Returns what has been answered to them."""
        return self._grid.pull_messages(message_ids)


def _to(asked: Message, content: RecordDict) -> Message:
    """Returns a message to the node that was asked, and to the function of its app: there may be several that train."""
    return Message(content, dst_node_id=asked.metadata.dst_node_id, message_type=asked.metadata.message_type)


def _errand(number: int, errand: Errand) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"round": number, "mail": errand.mail, "expired": errand.expired})})


def _model(message: Message) -> tuple[str, dict[str, NDArray[Any]]]:
    """Returns what the model in a message is called, and its arrays."""
    records = message.content.array_records
    if len(records) != 1:
        raise ConfigError(f"a message to train must have one ArrayRecord, not {len(records)}")
    ((name, record),) = records.items()
    return name, _arrays(record)


def _reply(message: Message, name: str, arrays: ArrayRecord) -> Message:
    return Message(RecordDict({name: arrays, "metrics": MetricRecord({WEIGHT: 1})}), reply_to=message)


def _failed(message: Message, why: str) -> Message:
    return Message(Error(REFUSED, why), reply_to=message)
