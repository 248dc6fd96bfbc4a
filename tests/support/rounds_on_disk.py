"""Rounds between a few parties, one of which keeps its state in a folder and can be killed at any moment."""

import multiprocessing
import os
import signal
import stat
import struct
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import patch

import numpy as np

from tacit.core import state_blobs
from tacit.core.messages import LONG
from tacit.core.suite import SERVER, Secret, Update
from tacit.crypto.keys import Identity
from tacit.crypto.sealing import gmac
from tacit.net.store import round_store
from tacit.net.store.index import StoreIndex
from tacit.net.store.record_log import RecordLog
from tacit.net.store.round_store import RoundStore
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Post
from tacit.runtime.simulation.simulator import Simulation

ROUNDS = 2


# Not forked from this process, which may have threads, such as those of grpc.
CLEAN = multiprocessing.get_context("forkserver")
CLEAN.set_forkserver_preload(
    [
        "tacit.net.store.round_store",
        "tacit.runtime.simulation.simulator",
        "tacit.protocols.secagg",
        "tacit.protocols.cesar",
        "tacit.protocols.pushsum",
    ]
)


@dataclass(frozen=True)
class Case:
    """A protocol with its settings, and the party whose messages are lost in the second round."""

    protocol: str
    options: dict = field(default_factory=dict)
    lost: str = ""
    parties: int = 3
    short: int = round_store.SHORT_STATE
    long: int = state_blobs.LONG
    """Length from which on state values have a file of their own, and messages are written before they are
    decrypted."""
    entries: int = 3
    dtype: str = "<f8"
    junk: str = ""
    """Kind of long invalid messages that an intruder sends besides, and that are discarded."""

    def simulation(self):
        names = [f"p{place}" for place in range(self.parties)]
        return Simulation.of(self.protocol, names, self.entries, seed=0, twin=True, **self.options)

    def update(self, party, number):
        if party == SERVER:
            return None
        rng = np.random.default_rng([number, int(party[1:])])
        return Update(rng.normal(size=self.entries).astype(self.dtype))


CASES = {
    "secagg": Case("secagg", {"threshold": 3}, lost="p2", parties=4),
    "pushsum": Case("pushsum", {"masked": True}, short=10),  # Short, so that its states count as long ones.
    "cesar": Case("cesar", {"share": 0.6}, lost="p2", dtype="<f4"),
    "parts": Case("secagg", {"threshold": 3}, lost="p2", parties=4, long=8),
    "masses": Case("pushsum", {"masked": True}, long=8),
}


FRAME = struct.Struct(">?Q16s")
"""Header of a log entry: whether it is the event of the next record, its length and its checksum."""


class Junk:
    """Long messages of an intruder that imitate records, with the lengths of the real ones."""

    KINDS = ("plain", "placed", "incarnation", "copied")
    """Kinds of pieces: under a public key for any place or the right one; under the key that peers receive; and
    copies."""

    def __init__(self, kind, store):
        self._kind, self._store, self._phase = kind, store, 0

    def sent(self, behind=None):
        """Stages a message whose pieces begin at the offset of the next record, if it is known."""
        if not self._kind or not self._store._round.under_way:
            return
        self._phase += 1
        gap = self._phase % FRAME.size if behind is None else behind
        if self._kind == "copied":
            pieces = (self._store.folder / "records").read_bytes()[RecordLog.start :]
        else:
            pieces = b"".join(self._pieces(self._store._log_end + FRAME.size + gap))
        self._store.stage(bytes(gap) + pieces)

    def _pieces(self, place):
        # An empty entry, invalid records, and one that is stored as the event of the next record.
        for ahead, data in ((False, b""), (False, b"?"), (True, b"!"), *[(False, b"\xc0")] * 4):
            yield FRAME.pack(ahead, len(data), self._check(struct.pack(">?QQ", ahead, place, len(data)), data))
            yield data
            place += FRAME.size + len(data)

    def _check(self, place, data):
        key = self._store.incarnation * 2 if self._kind == "incarnation" else bytes(32)
        return gmac(key, (data,) if self._kind == "plain" else (place, data))


class Desk:
    """A party with its folder, and the actions of a driver for it.

    A round is finished when it is over or, if vectors count as long, when there is no next one.
    """

    stores: ClassVar[list[RoundStore]] = []
    """Opened stores, to be closed by the caller."""

    def __init__(self, folder, place):
        agreement, self.lazy = place.agreement, state_blobs.LONG < LONG
        self.protocol, self.session = agreement.protocol, agreement.session
        self.store = RoundStore(folder, place.me, "test")
        self.stores.append(self.store)
        self.junk = Junk(getattr(place, "junk", ""), self.store)
        self.found = found = self.store.load(self.session)
        self.seat = KeyedParticipant(
            agreement,
            place.identity,
            number=found.number,
            state=found.state_of(self.protocol),
            unfinished=found.journal is not None,
        )
        self.journal = found.journal or Journal()
        self.again = [] if found.journal is None else self.seat.resume(found.journal, found.update)
        self.ending = found.ending

    def begin(self, number, update, seed):
        if self.seat.number >= number:
            return []  # This happened before the party was killed.
        self.journal, self.ending = Journal(), None
        return self._written(self.seat.begin(update, seed), update)

    def deliver(self, data):
        self.junk.sent()
        if self.lazy and self.seat.unfinished:
            self.store.stage(data)
        return self._written(self.seat.deliver(data))

    def expire(self, waits):
        return self._written(self.seat.expire()) if self.seat.round.waits == waits else []

    def finish(self, number):
        if self.lazy and number < ROUNDS:
            self.ending = self.seat.round.ending
        elif self.ending is None or self.ending.round != number:
            apart = {} if self.lazy else None
            state = self.protocol.encode_state(self.seat.state, (self.seat.me, number), apart)
            self.store.finish(number, state, self.seat.round.ending, apart=apart)
            self.ending = self.seat.round.ending
        return []

    def _written(self, actions, update=None):
        record = self.journal.record(self.protocol, self.session, self.seat.me, actions)
        if record is not None and len(self.journal.records) == 1:
            self.store.begin(record, update, self.seat.agreement.entries, over=self.lazy)
        elif record is not None:
            if not self.lazy or record.event is None:  # Otherwise the message itself is already staged.
                self.junk.sent(behind=sum(memoryview(part).nbytes for part in record.parts()))
            self.store.record(record)
        return [action for action in actions if isinstance(action, Post)]


# --- points at which a party is killed -----------------------------------------------------------------------------


class Steps:
    """Counts disk operations, and ends the process before one of them, or in the middle of a write.

    On a power failure, everything that was not synchronised by fsync or fdatasync is lost.
    """

    def __init__(self, last, power=False):
        self.count, self._last, self._power = 0, last, power
        self._put, self._sync, self._cut, self._commit = os.pwrite, os.fsync, os.ftruncate, StoreIndex._commit
        self._safe = {}

    def step(self):
        self.count += 1
        if self.count == self._last:
            for file, data in self._safe.items() if self._power else ():
                self._put(file, data, 0)
                self._cut(file, len(data))
            os.kill(os.getpid(), signal.SIGKILL)

    def _held(self, file):
        return os.pread(file, os.fstat(file).st_size, 0)

    def put(self, file, data, at):
        self._safe.setdefault(file, self._held(file))
        self.step()
        if self.count + 1 == self._last:
            self._put(file, memoryview(data)[: len(data) // 2], at)
        self.step()
        return self._put(file, data, at)

    def sync(self, file):
        self.step()
        self._sync(file)
        if stat.S_ISREG(os.fstat(file).st_mode):
            self._safe[file] = self._held(file)

    def cut(self, file, size):
        self._safe.setdefault(file, self._held(file))
        self.step()
        self._cut(file, size)

    def commit(self, book, *statements):
        self.step()
        self._commit(book, *statements)
        self.step()

    def watched(self):
        os.pwrite, os.fsync, os.fdatasync, os.ftruncate, StoreIndex._commit = (
            self.put,
            self.sync,
            self.sync,
            self.cut,
            lambda *a: self.commit(*a),
        )


def _serve(pipe, folder, agreement, me, secrets, short, long, junk, power, last):
    """Executes requests, in a process of its own."""
    place = SimpleNamespace(me=me, agreement=agreement, identity=Identity(me, *map(Secret, secrets)), junk=junk)
    steps = Steps(last, power)
    steps.watched()
    with patch.object(round_store, "SHORT_STATE", short), patch.object(state_blobs, "LONG", long):
        desk = Desk(folder, place)
        pipe.send((_sent(desk.again), _standing(desk, steps)))
        while True:
            method, *arguments = pipe.recv()
            pipe.send((_sent(getattr(desk, method)(*arguments)), _standing(desk, steps)))


def _sent(posts):
    return [(post.address, post.data) for post in posts]


def waits(round_):
    """Returns the number of a round's current wait and its longest duration; 0 without a wait."""
    waiting = round_ is not None and round_.wait is not None
    return {"waits": round_.waits, "patience": round_.wait.patience} if waiting else {"waits": 0}


def _standing(desk, steps):
    return {
        **waits(desk.seat.round),
        "steps": steps.count,
        "average": None if desk.ending is None else desk.ending.average,
        "state": desk.protocol.encode_state(desk.seat.state),
    }


class Remote:
    """A desk in a process of its own, which is replaced when it is killed."""

    def __init__(self, folder, place, case, cuts=(), power=False):
        secrets = place.identity.signing.reveal(), place.identity.channel.reveal()
        self._lives, self._arguments = (
            list(cuts),
            (folder, place.agreement, place.me, secrets, case.short, case.long, case.junk, power),
        )
        self.deaths = 0
        self._child, self.said, self.standing = None, [], {}
        self._start()

    def _start(self):
        while True:
            here, there = multiprocessing.Pipe()
            last = self._lives.pop(0) if self._lives else 0
            child = CLEAN.Process(target=_serve, args=(there, *self._arguments, last))
            child.start()
            there.close()
            self._pipe, self._child = here, child
            try:
                said, self.standing = here.recv()
                self.said += said
            except EOFError:
                self._buried()
            else:
                return

    def _buried(self):
        self._child.join()
        assert self._child.exitcode == -signal.SIGKILL
        self.deaths += 1

    def ask(self, *request):
        """Repeats a request until it is answered; returns the messages that were sent meanwhile."""
        while True:
            try:
                self._pipe.send(request)
                said, self.standing = self._pipe.recv()
                self.said += said
            except (EOFError, BrokenPipeError, ConnectionResetError):
                self._buried()
                self._start()
            else:
                said, self.said = self.said, []
                return said

    def stop(self):
        self._child.kill()
        self._child.join()


class Here:
    """A participant in this process, with the same interface."""

    def __init__(self, seat):
        self.seat = seat

    def ask(self, method, *arguments):
        seat, actions = self.seat, []
        if method == "begin":
            actions = seat.begin(*arguments[1:])
        elif method == "deliver":
            actions = seat.deliver(*arguments)
        elif method == "expire":
            actions = seat.expire()
        return [(action.address, action.data) for action in actions if isinstance(action, Post)]

    @property
    def standing(self):
        return {
            **waits(self.seat.round),
            "average": self.seat.round.ending.average,
            "state": self.seat.agreement.protocol.encode_state(self.seat.state),
        }


def played(case, desks, simulation):
    """Runs all rounds; returns the messages by address, and the stored state of the party on disk after each round."""
    said, queue = {}, deque()

    def ask(party, *request):
        for address, data in desks[party].ask(*request):
            assert said.setdefault(address, data) == data, f"two messages under {address}"
            if not (address.sender == case.lost and address.round == ROUNDS):
                queue.append((address.to, data))

    standings = []
    for number in range(1, ROUNDS + 1):
        for party in desks:
            ask(party, "begin", number, case.update(party, number), simulation.seed_of(party, number))
        while queue or any(desk.standing["waits"] for desk in desks.values()):
            while queue:
                to, data = queue.popleft()
                ask(to, "deliver", data)
            waiting = [party for party, desk in desks.items() if desk.standing["waits"]]
            if waiting:
                party = min(waiting, key=lambda party: desks[party].standing["patience"])
                ask(party, "expire", desks[party].standing["waits"])
        for party, desk in desks.items():
            ask(party, "finish", number)
            standings.append((party, desk.standing["average"], desk.standing["state"]))
    return said, standings


def same(found, expected):
    """Says whether the messages, averages and states are equal."""
    for (party, average, state), (other, average_before, state_before) in zip(found[1], expected[1], strict=True):
        assert (party, state) == (other, state_before)
        np.testing.assert_array_equal(average, average_before)
    return found[0] == expected[0]


def alone(case):
    """Returns the result without a disk."""
    simulation = case.simulation()
    return played(case, {party: Here(seat) for party, seat in simulation.participants.items()}, simulation)


def killed(case, victim, folder, cuts=(), power=False):
    """Returns the result with one party on disk that is killed at the given steps, and that party."""
    simulation = case.simulation()
    remote = Remote(folder, simulation.participants[victim].rebuild(), case, cuts, power)
    desks = {party: remote if party == victim else Here(seat) for party, seat in simulation.participants.items()}
    try:
        return played(case, desks, simulation), remote
    finally:
        remote.stop()
