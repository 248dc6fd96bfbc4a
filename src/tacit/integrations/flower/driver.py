"""Driver of rounds on a Flower node: a mod for a ClientApp.

A message of a strategy reaches a node unchanged, with the number of a round beside it. The mod lets the app train,
contributes the result to the round, and answers with sealed messages and nothing else. The grid of the ServerApp
(`averaging_grid`) delivers these messages, hop by hop, until the round is over.

If a protocol has a server, the round is over when the server has finished. What the server has sent last, which is the
announcement of the sum, reaches a node beside the strategy's next message to it. The node handles it first. It is for
the node's own records only: whether it arrives late, twice or not at all, the next round begins.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.errors import ConfigError, TacitError
from tacit.core.lineage import digest_inputs
from tacit.core.suite import SERVER, Buffer, Party, Update
from tacit.integrations.flower.introduction import introduce_node, is_incarnation
from tacit.integrations.flower.party import FlowerParty, StepResult
from tacit.vectors.layout import Layout
from tacit.vectors.model_tree import ArraySelection

RECORD = "tacit"
"""Name of Tacit's records, in messages and in the state of a node."""
WEIGHT = "num-examples"
"""Metric that Flower's strategies use as weight."""
REFUSED = 6
"""Flower's error code of a mod that failed."""
LOG = logging.getLogger("tacit.flower")

FindParty: TypeAlias = Callable[[Context], FlowerParty]
OnEnding: TypeAlias = Callable[[Ending], None]


def make_mod(find_party: FindParty, on_ending: OnEnding = lambda _: None) -> Mod:
    """Returns a mod that averages what an app trains.

    Args:
        find_party: returns the party of a node.
        on_ending: called on the node with the outcome of each round.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        try:
            return _answer_message(find_party, on_ending, message, context, call_next)
        except TacitError as error:
            # The text may have private numbers of the node, such as its weight, so only the code leaves it.
            LOG.error("refused (%s): %s", error.code, error)
            return Message(Error(REFUSED, error.code), reply_to=message)

    return mod


def _answer_message(
    find_party: FindParty, on_ending: OnEnding, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Answers a message of the server: a hello, a delivery, a request to train, or one for the app alone."""
    party = find_party(context)
    storage = context.state.config_records.get(RECORD)
    if storage is None:
        storage = ConfigRecord()
    asked = message.content.config_records.get(RECORD)
    if asked is not None and "hello" in asked:
        return Message(RecordDict({RECORD: introduce_node(party, asked.get("challenge"))}), reply_to=message)
    if asked is not None and "earlier" in asked:
        _end_earlier_round(party, on_ending, storage, asked)
    if asked is None or ("earlier" in asked and "round" not in asked):
        if asks_for_training(message):
            raise ConfigError("this node accepts only rounds of Tacit; try: give the strategy the grid of tacit.flower")
        message.content.pop(RECORD, None)
        return call_next(_insert_own_model(party, storage, message), context)
    number = int(_read_integer(asked, "round"))
    before = party.last
    if "mail" in asked:
        result = party.advance(storage, number, _read_messages(asked, "mail"), int(_read_integer(asked, "expired")))
    else:
        del message.content[RECORD]
        lineage = _digest_request(message, context)  # before the app, which may change it
        trained = call_next(_insert_own_model(party, storage, message), context)
        if trained.has_error():
            return trained
        update = _extract_update(party, trained.content)._replace(lineage=lineage)
        result = party.begin(storage, number, update, len(update.vector), _read_company(party, asked))
    context.state[RECORD] = storage
    if party.last is not None and party.last is not before:
        on_ending(party.last)
    return Message(RecordDict({RECORD: _encode_result(result)}), reply_to=message)


def _end_earlier_round(party: FlowerParty, on_ending: OnEnding, storage: ConfigRecord, asked: ConfigRecord) -> None:
    """Delivers the last messages of the round before, which came beside another message.

    What the party would still send is dropped, as if it was lost on the way. An announcement that does not end the
    round is no reason to refuse the message at hand, because the server may withhold it anyway.
    """
    before = party.last
    try:
        result = party.advance(storage, int(_read_integer(asked, "earlier")), _read_messages(asked, "announced"))
    except TacitError as error:
        LOG.warning("the announcement of the round before is ignored (%s): %s", error.code, error)
        return
    if party.last is not None and party.last is not before:
        on_ending(party.last)
    if result.error:
        LOG.warning(
            "the round before ended without an average here (%s): %s", result.error, party.last and party.last.error
        )


def _read_messages(asked: ConfigRecord, name: str) -> list[bytes]:
    """Returns the sealed messages in a record; raises ConfigError if there are none of that name."""
    found = asked.get(name)
    if not isinstance(found, list) or not all(isinstance(each, bytes) for each in found):
        raise ConfigError(f"a message of a round has no {name}; try: use the same release of Tacit everywhere")
    return found  # type: ignore[return-value]


def asks_for_training(message: Message) -> bool:
    """Returns whether a message asks for training, by any function of the app."""
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def _read_company(party: FlowerParty, asked: ConfigRecord) -> dict[Party, bytes]:
    """Returns the parties that were asked for a round, with the incarnation of each."""
    names, incarnations = asked.get("parties"), asked.get("incarnations")
    known = {*party.roster.names, SERVER}
    if not isinstance(names, list) or not isinstance(incarnations, list) or len(names) != len(incarnations):
        raise ConfigError(
            "the request of a round does not list its parties; try: use the same release of Tacit everywhere"
        )
    if not known.issuperset(names) or not all(map(is_incarnation, incarnations)):
        raise ConfigError(
            "the request of a round lists parties that are not on the roster; try: give everybody the same roster"
        )
    return dict(zip(names, incarnations, strict=True))  # type: ignore[arg-type]


def _insert_own_model(party: FlowerParty, storage: ConfigRecord, message: Message) -> Message:
    """Replaces the model in a message by the node's own average, if the protocol has no server."""
    vector = party.average(storage)
    if vector is not None:
        selection = ArraySelection.of(party.roster.terms.settings)
        for name, record in message.content.array_records.items():
            model = load_arrays(record)
            message.content[name] = restore_arrays(Layout.of(model, selection), vector, model)
    return message


def _digest_request(message: Message, context: Context) -> bytes:
    """Returns the lineage of everything that an app trains from: the whole message in its order, and the run's
    settings.

    Nodes mask only with nodes that received the same. If the server sent all but one node a learning rate of zero, or
    two arrays in another order, the sum would expose as much as with different models.
    """
    about = message.metadata
    parts: list[Buffer] = [about.message_type.encode(), about.group_id.encode(), _encode_values(context.run_config)]
    for name, record in message.content.items():
        if isinstance(record, ArrayRecord):
            parts += [b"arrays", name.encode(), len(record).to_bytes(8)]
            for key, array in record.items():
                shape = repr(tuple(array.shape)).encode()
                parts += [key.encode(), array.dtype.encode(), shape, array.stype.encode(), array.data]
        else:
            kind = b"metrics" if isinstance(record, MetricRecord) else b"settings"
            parts += [kind, name.encode(), _encode_values(record)]
    return digest_inputs("flower", *parts)


def _encode_values(values: Mapping[str, Any]) -> bytes:
    """Returns the settings of a record or a run as bytes, in any order."""
    return msgspec.msgpack.encode(dict(values), order="sorted")


def _extract_update(party: FlowerParty, content: RecordDict) -> Update:
    """Returns the update in the answer of an app: what it has trained, and its weight."""
    if len(content.array_records) != 1:
        raise ConfigError(f"an answer to train must have one ArrayRecord, not {len(content.array_records)}")
    (record,) = content.array_records.values()
    settings = party.roster.terms.settings
    vector = _flatten_model(load_arrays(record), ArraySelection.of(settings))
    if settings.max_weight == 1.0:
        return Update(vector)
    found = [record[WEIGHT] for record in content.metric_records.values() if WEIGHT in record]
    weight = found[0] if found else None
    if not isinstance(weight, int | float) or not 0 < weight <= settings.max_weight:
        raise ConfigError(
            f"{WEIGHT} of an answer to train must be above 0 and at most max_weight={settings.max_weight:g}, not "
            f"{weight!r}; try: raise max_weight in the roster"
        )
    return Update(vector, float(weight))


def _flatten_model(model: dict[str, NDArray[Any]], selection: ArraySelection) -> NDArray[Any]:
    """Returns a model as a vector, with its own dtype if it has one short float type, to save storage."""
    layout = Layout.of(model, selection)
    kinds = {np.dtype(entry.dtype) for entry in layout.entries}
    if kinds <= {np.dtype(np.float32), np.dtype(np.float16)} and len(kinds) == 1:
        return np.concatenate([model[entry.name].reshape(-1) for entry in layout.entries])
    return layout.flatten(model)


def load_arrays(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Returns the arrays of a record by name."""
    return {name: array.numpy() for name, array in record.items()}


def restore_arrays(layout: Layout, vector: NDArray[Any], model: dict[str, NDArray[Any]]) -> ArrayRecord:
    """Returns a vector as the arrays of a model; arrays that are not averaged are those of the model."""
    return ArrayRecord({name: Array(array) for name, array in layout.restore(vector, model).items()})


def _encode_result(result: StepResult) -> ConfigRecord:
    return ConfigRecord(
        {
            "to": [each.to for each in result.messages],
            "mail": [each.data for each in result.messages],
            "waits": result.waits,
            "patience": result.patience,
            "over": result.over,
            "error": result.error,
        }
    )


def _read_integer(record: ConfigRecord, name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int):
        raise ConfigError(f"a message of a round has no {name}; try: use the same release of Tacit everywhere")
    return value
