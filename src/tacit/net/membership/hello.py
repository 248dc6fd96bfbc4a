"""What is said between rounds: hellos, signed and stamped, to peers and in answer to theirs.

A hello may have to go by way of another party. So it is signed, and counts only if its stamp says that it is news. It
is said again as long as the answer to it changes what we have to say, or has asked for a mark that it did not repeat.
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
from tacit.net.membership.rendezvous import Hello
from tacit.net.membership.replay_guard import STAMP_BYTES, ReplayGuard, Stamp
from tacit.net.transport.peer_link import PeerLink
from tacit.runtime.agreement import VERSION

MAX_REPEATS = 8
"""HelloExchange in a row to one peer, at most: one that always asks for something else must not keep us at it."""


class ReceivedHello(NamedTuple):
    """What a peer said, with its signature: how far it is, or only its version if that is another than ours."""

    stamp: Stamp
    hello: Hello | int


def sign_hello(keys: Keys, to: Party, stamp: Stamp, hello: Hello) -> bytes:
    """Returns a hello with our signature: it may have to go by way of another party, which could change it."""
    said = stamp.data + msgspec.msgpack.encode(hello)
    return keys.sign(_statement(to, said)) + said


def open_hello(keys: Keys, sender: Party, data: bytes) -> ReceivedHello | None:
    """Returns what a peer said, or None if it is nothing that can be read, or not the sender's."""
    signature, said = data[:SIGNATURE_BYTES], data[SIGNATURE_BYTES:]
    try:
        keys.roster.verify(sender, _statement(keys.me, said), signature)
        stamp, said = Stamp.of(said), said[STAMP_BYTES:]
        _, version, *_ = msgspec.msgpack.decode(said, type=list[msgspec.Raw])
        if (number := msgspec.msgpack.decode(version, type=int)) != VERSION:
            return ReceivedHello(stamp, number)
        hello = msgspec.msgpack.decode(said, type=Hello)
    except (PeerFault, ValueError, RecursionError):  # of which what msgspec raises, and too few of them, are some
        return None
    return ReceivedHello(stamp, hello) if hello.party == sender else None


def _statement(to: Party, said: bytes) -> bytes:
    return frame_parts(b"tacit/v1/hello", to.encode(), said)


class HelloExchange:
    """Says hello to peers, in tasks of their own, and listens to what they answer."""

    def __init__(
        self,
        keys: Keys,
        links: Mapping[Party, PeerLink],
        ours: Callable[[Party], Hello],
        heard: Callable[[Party, Hello | int], None],
    ) -> None:
        """Says what `ours` gives for a peer, and tells what is `heard` of it, if that is news."""
        self._keys, self._lines, self._ours, self._heard = keys, links, ours, heard
        self._replay_guard = ReplayGuard(SystemEntropy())
        self._tasks: set[asyncio.Task[None]] = set()

    def sign_hello(self, hello: Hello, to: Party, answered: Stamp | None = None) -> bytes:
        """Returns a hello as it goes to a peer, which may be in answer to one."""
        return sign_hello(self._keys, to, self._replay_guard.stamp(to, answered), hello)

    def answer(self, sender: Party, data: bytes) -> bytes:
        """Takes a hello in, and returns ours."""
        stamp = self.listen(sender, data)
        return self.sign_hello(self._ours(sender), sender, stamp)

    def listen(self, sender: Party, data: bytes) -> Stamp | None:
        """Takes a hello in, if it is news, and returns its stamp if it is the sender's at all."""
        said = open_hello(self._keys, sender, data)
        if said is None:
            return None
        # Some are on the roster, but have nothing to say about our rounds.
        if sender in self._lines and self._replay_guard.is_fresh(sender, said.stamp):
            self._heard(sender, said.hello)
        return said.stamp

    def say(self, peers: Iterable[Party] | None = None) -> None:
        """Says hello to peers, all of them unless told otherwise."""
        for peer in self._lines if peers is None else peers:
            task = asyncio.create_task(self._exchange(peer), name=peer)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def is_sending(self, peer: Party) -> bool:
        """Says whether we are saying hello to a peer."""
        return any(task.get_name() == peer for task in self._tasks)

    async def wait_until_sent(self) -> None:
        """Waits until all that is being said has arrived, or has not."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Says no more."""
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
                return  # it is in the link's trouble
            # It may be news, of which we have to tell it in turn: as which journal we know it. And unless we repeated
            # what it asks for, it has not listened.
            self.listen(peer, answer)
