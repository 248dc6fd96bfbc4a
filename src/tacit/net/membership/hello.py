"""Exchange of hellos between rounds: signed, protected against replay, and repeated until both sides are up to date.

A hello may be relayed by another party. So it is signed, and counts only if its stamp is fresh. It is sent again as
long as the answer changes our own hello, or asks for a mark that our hello did not repeat.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from tacit.core.entropy import SystemEntropy
from tacit.core.errors import PeerFault, TransportError
from tacit.core.link import frame_parts
from tacit.core.messages import SIGNATURE_BYTES
from tacit.core.suite import Party
from tacit.crypto.keys import Keys
from tacit.net.membership.rendezvous import WIRE_VERSION, Hello
from tacit.net.membership.replay_guard import STAMP_BYTES, ReplayGuard, Stamp
from tacit.net.transport.peer_link import PeerLink

MAX_REPEATS = 8
"""Most hellos in a row to one peer. Otherwise a peer that keeps asking for another mark could keep us sending."""


class ReceivedHello(NamedTuple):
    """An authentic hello of a peer, or only its version if that differs from ours."""

    stamp: Stamp
    hello: Hello | int


def sign_hello(keys: Keys, to: Party, stamp: Stamp, hello: Hello) -> bytes:
    """Returns an encoded hello with our signature, which a relay cannot change."""
    said = stamp.data + msgspec.msgpack.encode(hello)
    return keys.sign(_statement(to, said)) + said


def open_hello(keys: Keys, sender: Party, data: bytes) -> ReceivedHello | None:
    """Returns the hello of a peer; None if it cannot be read, or was not signed by the sender."""
    signature, said = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    try:
        keys.roster.verify(sender, _statement(keys.me, said), signature)
        stamp, said = Stamp.of(said), said[STAMP_BYTES:]
        _, version, *_ = msgspec.msgpack.decode(said, type=list[msgspec.Raw])
        if (number := msgspec.msgpack.decode(version, type=int)) != WIRE_VERSION:
            return ReceivedHello(stamp, number)
        hello = msgspec.msgpack.decode(said, type=Hello)
    except (PeerFault, ValueError, RecursionError):  # msgspec's errors, and too few items, are ValueErrors
        return None
    return ReceivedHello(stamp, hello) if hello.party == sender else None


def _statement(to: Party, said: bytes) -> bytes:
    return frame_parts(b"tacit/v1/hello", to.encode(), said)


class HelloExchange:
    """Sends hellos to peers, each in its own task, and processes their answers."""

    def __init__(
        self,
        keys: Keys,
        links: Mapping[Party, PeerLink],
        ours: Callable[[Party], Hello],
        heard: Callable[[Party, Hello | int], None],
    ) -> None:
        """Sends the hello that `ours` returns for a peer, and passes fresh hellos of peers to `heard`."""
        self._keys, self._lines, self._ours, self._heard = keys, links, ours, heard
        self._replay_guard = ReplayGuard(SystemEntropy())
        self._tasks: set[asyncio.Task[None]] = set()

    def sign_hello(self, hello: Hello, to: Party, answered: Stamp | None = None) -> bytes:
        """Returns a signed hello to a peer, which may answer one of its own."""
        return sign_hello(self._keys, to, self._replay_guard.stamp(to, answered), hello)

    def answer(self, sender: Party, data: bytes) -> bytes:
        """Processes a hello, and returns ours."""
        stamp = self.listen(sender, data)
        return self.sign_hello(self._ours(sender), sender, stamp)

    def listen(self, sender: Party, data: bytes) -> Stamp | None:
        """Processes a hello if it is fresh. Returns its stamp if it is authentic."""
        said = open_hello(self._keys, sender, data)
        if said is None:
            return None
        # Parties that are on the roster but are no peers take no part in our rounds.
        if sender in self._lines and self._replay_guard.is_fresh(sender, said.stamp):
            self._heard(sender, said.hello)
        return said.stamp

    def say(self, peers: Iterable[Party] | None = None) -> None:
        """Sends a hello to peers, by default to all of them."""
        for peer in self._lines if peers is None else peers:
            task = asyncio.create_task(self._exchange(peer), name=peer)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def is_sending(self, peer: Party) -> bool:
        """Returns whether a hello to a peer is in progress."""
        return any(task.get_name() == peer for task in self._tasks)

    async def wait_until_sent(self) -> None:
        """Waits until all hellos in progress were delivered, or failed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Cancels all hellos in progress."""
        for task in self._tasks:
            task.cancel()

    async def _exchange(self, peer: Party) -> None:
        link, said = self._lines[peer], None
        for _ in range(MAX_REPEATS):
            now = self._ours(peer), self._replay_guard.expected_mark(peer)
            if now == said:
                return
            said = now
            try:
                answer = await link.exchange_hello(self.sign_hello(now[0], peer))
            except TransportError:
                return  # the link has the error in `trouble`
            # The answer may change our own hello, for example the journal under which we know the peer. Also, the peer
            # ignores our hello unless it repeats the peer's mark.
            self.listen(peer, answer)
