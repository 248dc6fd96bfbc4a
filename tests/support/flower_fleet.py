"""Flower without its engines: real apps, contexts that are serialised, and a grid that calls nodes one by one."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from tacit.core.entropy import SeededEntropy
from tacit.core.suite import SERVER, Update
from tacit.integrations.flower.averaging_grid import AveragingGrid
from tacit.integrations.flower.driver import RECORD, make_mod
from tacit.integrations.flower.party import FlowerParty
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.protocols import find
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.simulation.simulated_round import SimulatedRound

NODES = 1000
"""Identifier of the first node."""
# Flower's messages name the task that made them. Its engines set the task before they run an app.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def carried(records):
    """Returns records after serialisation and back."""
    packed = recorddict_to_proto(records)
    return recorddict_from_proto(type(packed).FromString(packed.SerializeToString()))


@dataclass
class Fleet(Grid):
    """Nodes by number.

    `fails` returns whether a party fails to answer in a round, at a hop. `before` has the same arguments and the state,
    which it may change. Hops of a round count from 0; messages that begin no round have hop -1.
    """

    apps: dict
    contexts: dict
    fails: object = lambda *_: False
    before: object = lambda *_: None
    hop: int = -1
    number: int = 0
    seen: list = field(default_factory=list)
    """The answers of the nodes."""
    pushed: dict = field(default_factory=dict)

    def send_and_receive(self, messages, *, timeout=None):
        del timeout
        messages, answers = list(messages), []
        told = [message.content.config_records.get(RECORD, {}) for message in messages]
        numbers = {each["round"] for each in told if "round" in each}
        again = numbers and all("mail" in each for each in told)
        self.hop = self.hop + 1 if again else 0 if numbers else -1
        self.number = min(numbers, default=self.number)
        for message in messages:
            node = message.metadata.dst_node_id
            party = f"p{node - NODES}"
            if self.fails(party, self.number, self.hop):
                continue
            message = Message(carried(message.content), dst_node_id=node, message_type=message.metadata.message_type)
            context = self.contexts[node]
            context.state = carried(context.state)
            self.before(party, self.number, self.hop, context.state)
            answer = self.apps[node](message, context)
            answer.metadata.__dict__["_src_node_id"] = node
            if not answer.has_error():
                self.seen.append(answer.content)
            answers.append(answer)
        return answers

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *given, **more): ...

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        """Calls the nodes at once. A node that fails to answer counts as one that Flower has not accepted."""
        asked = list(messages)
        answers = {answer.metadata.src_node_id: answer for answer in self.send_and_receive(asked)}
        ids = [f"{len(self.pushed)}-{message.metadata.dst_node_id}" for message in asked]
        for number, message in zip(ids, asked, strict=True):
            if answer := answers.get(message.metadata.dst_node_id):
                answer.metadata.__dict__["_reply_to_message_id"] = number
                self.pushed[number] = answer
        return [number if number in self.pushed else None for number in ids]

    def pull_messages(self, message_ids):
        return [self.pushed.pop(number) for number in message_ids]


@dataclass
class Trial:
    """A federation with its own keys and seeds, and the vectors of its parties."""

    folder: Path
    roster: RosterFile
    credentials: dict
    forgetful: bool = True
    """Whether every call runs in a fresh process state. Otherwise one process handles all of them."""

    @classmethod
    def of(cls, folder, protocol, parties=4, **options):
        names = tuple(f"p{place}" for place in range(parties))
        entropy = SeededEntropy("flower", protocol, str(options))
        made = {name: Credentials.generate(name, entropy) for name in find(protocol).everyone(names)}
        cards = [each.card(f"localhost:{7400 + place}") for place, each in enumerate(made.values())]
        return cls(Path(folder), RosterFile.new("trial", protocol, options, entropy, cards), made)

    def seed(self, party, number):
        return hashlib.sha256(f"{party} {number}".encode()).digest()

    def participant(self, party):
        mine, folder = self.credentials[party], self.folder / f"{party}.flower"
        return FlowerParty(self.roster, mine, folder, lambda number: self.seed(party, number))

    def fleet(self, entries, weights=None):
        """Returns nodes with the vectors of `brought`, one for each party."""
        apps = {}
        for place, party in enumerate(self.roster.names):
            apps[NODES + place] = self.app(party, entries, (weights or {}).get(party, 1))
        return Fleet(apps, {node: Context(1, node, {"partition-id": node - NODES}, RecordDict(), {}) for node in apps})

    def app(self, party, entries, weight):
        """Returns the app of a node, which is a plain Flower app except for the mod."""
        here = self.participant(party)
        app = ClientApp(mods=[make_mod(lambda _: self.participant(party) if self.forgetful else here)])

        @app.train()
        def train(message, context):
            del context
            number = message.content["config"]["server-round"]
            trained = ArrayRecord({"w": Array(self.brought(entries, number)[party].vector)})
            return _answer(message, arrays=trained, metrics=MetricRecord({"num-examples": weight}))

        @app.evaluate()
        def evaluate(message, context):
            del context
            return _answer(message, arrays=message.content["arrays"])

        return app

    def grid(self, fleet):
        return AveragingGrid(fleet, self.participant(SERVER) if self.roster.entry.server is not None else None)

    def brought(self, entries, number=1):
        rng = np.random.default_rng(number)
        return {name: Update(rng.normal(size=entries)) for name in self.roster.names}

    def played(self, entries, rounds, faults=()):
        """Yields the same rounds in the simulator, with the same keys and seeds."""
        agreement = self.roster.agreement(entries)
        seats = {name: KeyedParticipant(agreement, self.credentials[name].identity) for name in self.credentials}
        for number in range(1, rounds + 1):
            played = SimulatedRound(
                agreement,
                seats,
                self.seed,
                number,
                [each for each in faults if each.round in (None, number)],
                record=False,
            )
            played.run(self.brought(entries, number))
            yield played


def _answer(message, **records):
    return Message(RecordDict(records), reply_to=message)


def asked(fleet, entries, number, kind="train"):
    """Returns the messages that a strategy sends in a round."""
    content = RecordDict(
        {"arrays": ArrayRecord({"w": Array(np.zeros(entries))}), "config": ConfigRecord({"server-round": number})}
    )
    return [Message(content, dst_node_id=node, message_type=kind) for node in fleet.get_node_ids()]
