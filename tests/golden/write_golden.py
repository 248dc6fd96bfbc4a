"""Writer of golden files: one specimen of every format on disk and on the wire, as the present release has it.

    PYTHONPATH=src python tests/golden/write_golden.py

Files go to a folder that is called after the release, `tests/golden/0.2.0`, and are committed. Files that are there are
never overwritten: they stand for what people have on their disks. Later releases read them (`test_golden.py`), migrate
them, or refuse them in one line that says what to do. A release that changes a format writes a folder of its own.

Identities, vectors and seeds are fixed, and nobody uses these keys. Two runs of this script differ only in the noise of
the private run, in how long rounds took, and in the process that a lock names.
"""

import sys
from pathlib import Path
from shutil import copy, copytree
from tempfile import TemporaryDirectory
from typing import get_args
from unittest.mock import patch

import msgspec
import numpy as np
from golden_rounds import (
    ENTRIES,
    FEDERATION,
    SETTINGS,
    Desk,
    digest_of,
    fields_of,
    names,
    plain,
    play,
    seed_of,
    update_of,
)

from tacit.core import state_blobs
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import Drop
from tacit.core.messages import Abort, Address, Codec, Envelope
from tacit.core.suite import SERVER
from tacit.core.values import normalize_value
from tacit.core.version import RELEASE
from tacit.designs import Family, participation
from tacit.designs.graphs import (
    CompleteGraph,
    DirectedGraph,
    EdgeList,
    ExponentialGraph,
    Graph,
    RegularGraph,
    RingGraph,
)
from tacit.designs.participation import Policy
from tacit.integrations.flower import node_state
from tacit.integrations.flower.party import FlowerParty
from tacit.learn.scenario import Scenario
from tacit.learn.training.node_training import NodeCheckpoint
from tacit.learn.training.train import train
from tacit.net.membership.identity import Credentials
from tacit.net.membership.rendezvous import WIRE_VERSION, Hello
from tacit.net.membership.roster import RosterFile
from tacit.net.observability import status
from tacit.net.store import round_store
from tacit.net.transport.framing import FrameHeader, join_frame
from tacit.privacy import Ledger, Spent
from tacit.protocols import REGISTRY
from tacit.protocols.pushsum.start_weights import ExponentialStart, LognormalStart, StartKind, UniformStart
from tacit.protocols.secagg.messages import LastSum
from tacit.runtime.agreement import VERSION
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

UNSENT = {"secagg": [LastSum(bytes(32), 3, ("p0", "p1"), b"\x01", memoryview(bytes(range(16))))]}
"""Messages that no round of these sends: the last sum once more, for too few have heard it."""
UNRELEASED = "unreleased"
SCENARIO = {
    "rounds": 3,
    "data": {"parties": 4, "train": 200, "test": 50},
    "protocol": "secagg",
    "privacy": {"epsilon": 2.0, "clip": 1.0},
}
CUT = 2
"""What a party was given in its second round before its folder was copied."""


class Writer:
    """Writes everything below one folder."""

    def __init__(self, folder: Path, *, new: bool = True) -> None:
        if new:
            folder.mkdir()
        self.folder, self.credentials = folder, {}

    def write(self, name, value):
        data = msgspec.json.format(msgspec.json.encode(value), indent=1)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data + b"\n")

    def everything(self):
        self.write("about.json", {"release": RELEASE, "version": VERSION, "entries": ENTRIES})
        self.identities()
        for protocol in REGISTRY:
            self.rounds(protocol)
        self.control()
        self.settings()
        self.seeded()
        for protocol, short, long in (("secagg", round_store.SHORT_STATE, state_blobs.LONG), ("pushsum", 10, 8)):
            with patch.object(round_store, "SHORT_STATE", short), patch.object(state_blobs, "LONG", long):
                self.stores(protocol)
        self.flower()
        self.ledger()
        self.runs()
        self.node()

    def secagg_only(self):
        """Writes what has changed since the last release, in a folder that is replaced by that of the next one."""
        self.write("about.json", {"release": UNRELEASED, "version": VERSION, "entries": ENTRIES})
        self.identities()
        self.rounds("secagg")
        self.control()
        self.stores("secagg")
        self.flower()

    def protocol_only(self, protocol):
        """Writes the rounds of a protocol that the last release does not have."""
        for name in (*names("admm"), SERVER):
            self.credentials[name] = Credentials.generate(name, SeededEntropy("golden", name))
        self.rounds(protocol)

    # --- identities and rounds -------------------------------------------------------------------------------------

    def identities(self):
        (self.folder / "identities").mkdir()
        for place, name in enumerate((*names("admm"), SERVER)):
            made = self.credentials[name] = Credentials.generate(name, SeededEntropy("golden", name))
            made.create(self.folder / "identities" / f"{name}.identity")
            made.card(f"localhost:{7400 + place}").save(self.folder / "identities" / f"{name}.card")

    def roster(self, protocol):
        everyone = REGISTRY[protocol].everyone(names(protocol))
        cards = [self.credentials[name].card(f"localhost:{7400 + place}") for place, name in enumerate(everyone)]
        return RosterFile.new(FEDERATION, protocol, SETTINGS[protocol], SeededEntropy("golden", protocol), cards)

    def desks(self, agreement, folders=None):
        return {
            name: Desk.of(agreement, self.credentials[name].identity, (folders or {}).get(name))
            for name in agreement.everyone
        }

    def rounds(self, protocol):
        roster = self.roster(protocol)
        (self.folder / protocol).mkdir()
        roster.save(self.folder / protocol / "federation.toml")
        agreement = roster.agreement(ENTRIES)
        desks, kind = self.desks(agreement), agreement.protocol
        sent = play(desks, 1)
        before = {name: kind.encode_state(desk.seat.state, (name, 1)) for name, desk in desks.items()}
        sent += play(desks, 2)
        found = {}
        for post in sent:
            found.setdefault(post.kind, b"".join(post._payload))
        codec = desks["p0"].seat.codec
        found |= {each.kind(): b"".join(codec.encode(each)) for each in UNSENT.get(protocol, ())}
        if set(found) != {each.kind() for each in kind.messages}:
            raise SystemExit(f"{protocol}: no example of every message")
        journals = {}
        for name in ("p1", SERVER) if SERVER in desks else ("p1",):
            journal = desks[name].journal
            again = [post for post in sent if post.address.sender == name and post.address.round == 2]
            journals[name] = {
                "journal": plain(journal.encode()),
                "tip": plain(journal.tip),
                "before": plain(before[name]),
                "said": digest_of(post.data for post in again),
                "records": [type(record.event).__name__ for record in journal.read()],
            }
        self.write(
            f"{protocol}/rounds.json",
            {
                "session": plain(agreement.session),
                "described": agreement.described,
                "said": digest_of(post.data for post in sent),
                "messages": {
                    name: {"data": plain(data), "fields": fields_of(codec.decode(name, data))}
                    for name, data in found.items()
                },
                "states": {
                    name: {
                        "data": plain(kind.encode_state(desk.seat.state, (name, 2))),
                        "fields": fields_of(desk.seat.state),
                    }
                    for name, desk in desks.items()
                },
                "average": desks["p1"].seat.round.ending.average.tolist(),
                "journals": journals,
            },
        )

    def control(self):
        """Writes what travels besides the messages of protocols."""
        agreement = self.roster("secagg").agreement(ENTRIES)
        seat = self.desks(agreement)["p0"].seat
        codec = Codec((), 2, ENTRIES)
        heard = Address(bytes(range(32)), 7, 0, "MaskedInput", "p1", "p0")
        known = b"k" * 16, b"{}", "0.3.0", 2
        hello = Hello("p0", WIRE_VERSION, b"i" * 16, agreement.session, ENTRIES, 3, False, 4, False, *known)
        head = FrameHeader("p0", "p1", 5)
        found = {
            "Abort": (fields_of(Abort("not-enough")), b"".join(codec.encode(Abort("not-enough")))),
            "Greeting": self._greeting(agreement, seat, heard),
            "Envelope": (plain([list(msgspec.to_builtins(heard, builtin_types=(bytes,))), b"sealed"]),
                         msgspec.msgpack.encode(Envelope(heard, b"sealed"))),
            "Hello": (fields_of(hello), msgspec.msgpack.encode(hello)),
            "Head": (fields_of(head), join_frame(head, b"bytes")),
        }  # fmt: skip
        self.write(
            "control.json", {name: {"fields": fields, "data": plain(data)} for name, (fields, data) in found.items()}
        )

    def _greeting(self, agreement, seat, heard):
        greeting = agreement.greeting(seat.suite(1, seed_of("p0", 1)), 1, heard)
        told = fields_of(greeting) | {"address": plain(msgspec.to_builtins(greeting.address, builtin_types=(bytes,)))}
        return told, msgspec.msgpack.encode(greeting)

    # --- settings --------------------------------------------------------------------------------------------------

    def settings(self):
        """Writes one of each kind of what settings have kinds of, with nothing left out."""
        examples = {
            "participation": (
                Policy,
                [
                    participation.Everyone(),
                    participation.Sampled(3, 4),
                    participation.Random(3),
                    participation.Partition(3),
                    participation.Batches(6, 3),
                    Family(((0, 1, 2), (1, 2, 3))),
                ],
            ),
            "graph": (
                Graph,
                [
                    CompleteGraph(),
                    RingGraph(),
                    ExponentialGraph(),
                    DirectedGraph(2),
                    RegularGraph(4, 3, 1),
                    EdgeList.of([(0, 1), ("p1", "p2")]),
                ],
            ),
            "y0": (StartKind, [UniformStart(), ExponentialStart(), LognormalStart()]),
        }
        for name, (union, given) in examples.items():
            if {type(each) for each in given} != set(get_args(union)):
                raise SystemExit(f"{name}: no example of every kind")
        self.write(
            "settings.json", {name: [normalize_value(each) for each in given] for name, (_, given) in examples.items()}
        )

    def seeded(self):
        """Writes what follows from a seed: the session of a simulated round, with faults in it."""
        faults = [Fault(action="drop", party="p1", message="Plain"), Fault(action="delay", party="p2", chance=0.5)]
        sessions = {}
        for name, given in (("none", []), ("one", faults[:1]), ("two", faults)):
            simulation = Simulation.of("fedavg", names("fedavg"), ENTRIES, seed=1, faults=given)
            outcome = simulation.average({party: update_of(party, 1) for party in names("fedavg")})
            sessions[name] = {
                "faults": [normalize_value(each) for each in given],
                "session": plain(simulation.agreement.session),
                "contributors": list(outcome.contributors),
            }
        self.write("seeded.json", sessions)

    # --- folders ---------------------------------------------------------------------------------------------------

    def stores(self, protocol):
        """Writes the folder of a party after a round, and that of one in the middle of the next."""
        agreement, place = self.roster(protocol).agreement(ENTRIES), self.folder / protocol
        with TemporaryDirectory() as folder, patch.object(round_store, "SystemEntropy", lambda: SeededEntropy("store")):
            here = Path(folder) / "p1.rounds"
            desks, later, ended = self.desks(agreement, {"p1": here}), [], {}
            play(desks, 1)
            desk = desks["p1"]
            desk.store.first_seen(agreement.session, "p2", b"p" * 16)
            ended = desk.seat.round.ending
            state = plain(agreement.protocol.encode_state(desk.seat.state, (desk.seat.me, 1)))
            desk.leave()
            copytree(here, place / "store-finished")
            again = Desk.of(agreement, self.credentials["p1"].identity, here)
            desk.store = again.store

            def delivered(to, data):
                if to == "p1":
                    if len(desk.journal.records) == 1 + CUT and desk.store is not None:
                        desk.leave()
                        copytree(here, place / "store-under-way")
                        later.append({"tip": plain(desk.journal.tip)})
                    if desk.store is None:
                        later.append(plain(data))

            sent = play(desks, 2, delivered)
            cut, *rest = later
            mine = [post.data for post in sent if post.address.sender == "p1"]
            self.write(
                f"{protocol}/stores.json",
                {
                    "finished": {
                        "number": 1,
                        "state": state,
                        "average": ended.average.tolist(),
                        "contributors": list(ended.contributors),
                        "dropped": dict(ended.dropped),
                        "sent": dict(ended.sent),
                        "received": dict(ended.received),
                        "phases": [phase.kind for phase in ended.phases],
                    },
                    "under_way": {
                        "number": 2,
                        "records": 1 + CUT,
                        **cut,
                        "delivered_later": rest,
                        "said": digest_of(mine),
                        "average": desk.seat.round.ending.average.tolist(),
                    },
                },
            )

    def flower(self):
        """Writes the mark and the shelf of a node in the middle of a round."""
        roster, place = self.roster("secagg"), self.folder / "flower"
        with TemporaryDirectory() as folder, patch.object(node_state, "SystemEntropy", lambda: SeededEntropy("mark")):
            parties = {
                name: FlowerParty(roster, mine, Path(folder) / name, lambda number, name=name: seed_of(name, number))
                for name, mine in self.credentials.items()
                if name in roster.entry.everyone(roster.names)
            }
            company = {name: party.incarnation for name, party in parties.items()}
            shelves = {name: {} for name in parties}
            inbox, calls, kept = {name: [] for name in parties}, 0, {}
            said = {
                name: party.begin(shelves[name], 1, update_of(name, 1), ENTRIES, company)
                for name, party in parties.items()
                if name != SERVER
            }
            said[SERVER] = parties[SERVER].begin(None, 1, None, ENTRIES, company)
            while not all(each.over for each in said.values()):
                for each in said.values():
                    for mail in each.messages:
                        inbox[mail.to].append(mail.data)
                said = {}
                for name, party in parties.items():
                    mail, inbox[name] = inbox[name], []
                    if name == "p1" and mail:
                        calls += 1
                        if calls == CUT:
                            copytree(Path(folder) / name, place)
                            shelf = {key: plain(bytes(value)) for key, value in shelves[name].items()}
                            kept = {"shelf": shelf, "mail": plain(mail)}
                    said[name] = party.advance(None if name == SERVER else shelves[name], 1, mail)
                    if name == "p1" and mail and calls == CUT:
                        kept["said"] = [[each.to, plain(each.data)] for each in said[name].messages]
            self.write("flower/shelf.json", {"company": plain(company), **kept})

    def ledger(self):
        place = self.folder / "ledger"
        place.mkdir()
        ledger = Ledger("golden run", budget=8.0, delta=1e-5, path=place / "ledger.json")
        for number in (1, 2, 3, 7):
            ledger.spend(["p0", "p1"], Spent.of(4.0), round=number)
        ledger.spend("p0", Spent(0.01, gaussian=False), round=8)
        spent = {
            party: {
                "rho": ledger.rho(party),
                "epsilon": ledger.epsilon(party),
                "rounds": {
                    str(number): msgspec.structs.asdict(event) for number, event in ledger.rounds(party).items()
                },
            }
            for party in ledger.parties
        }
        self.write("ledger/spent.json", spent)

    def runs(self):
        """Writes the folder of a run with noise that was cut off, and the same once it was over."""
        place = self.folder / "run"

        class CutError(Exception):
            pass

        def cut(metrics):
            if metrics.round == CUT:
                raise CutError

        with TemporaryDirectory() as folder:
            here, scenario = Path(folder) / "run", Scenario.of(SCENARIO)
            try:
                train(scenario, folder=here, progress=cut)
            except CutError:
                copytree(here, place / "cut-off")
            train(scenario, folder=here, resume=True)
            copytree(here, place / "finished")
            leaky = {"name": "gossip", "graph": "ring", "allow_leaks": True}
            train(
                Scenario.of(SCENARIO | {"rounds": 1, "protocol": leaky, "privacy": None}), folder=Path(folder) / "leaky"
            )
            copy(Path(folder) / "leaky" / "audit.json", place / "exposed-audit.json")

    def node(self):
        """Writes what a node keeps of its training, and what it says of itself."""
        place = self.folder / "node"
        place.mkdir()
        kept = NodeCheckpoint(
            digest="d" * 64, session="ab" * 16, round=4, model=np.arange(3, dtype=np.float32).tobytes(), ledger=b"{}"
        )
        (place / "checkpoint").write_bytes(msgspec.msgpack.encode(kept))
        dropped, sent, received = {"p2": Drop.SILENT.value}, {"protocol": 5}, {"protocol": 6}
        ended = status.RoundSummary(3, ("p0", "p1"), dropped, None, sent, received, 0.5)
        peer = status.PeerStatus("p1", 3, 1.5, 0, None, "")
        status.write_status(place, status.Status("p0", 1.7e9, 4, 0, False, "MaskedInput", [peer], "", ended))


def main():
    asked = sys.argv[1] if sys.argv[1:] else ""
    folder, added = Path(__file__).parent / (UNRELEASED if asked else RELEASE), asked not in ("", "secagg")
    if (folder / asked if added else folder).exists():
        sys.exit(f"{folder} is there already, and golden files are never overwritten; they stand for what was released")
    writer = Writer(folder, new=not added)
    if added:
        writer.protocol_only(asked)
    elif asked:
        writer.secagg_only()
    else:
        writer.everything()
    sys.stdout.write(f"wrote {folder}\n")


if __name__ == "__main__":
    main()
