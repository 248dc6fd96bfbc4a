"""Attempts of a party on the roster: calls with a valid key, with messages that no honest node sends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import msgspec
from fuzz.damage import Chance, damage_bytes, spoilt

from benchmarks.intruders.attempts import WITH_KEYS, Attempt, Caller, Scene, head
from tacit.core.link import frame_parts
from tacit.core.messages import PIECE, SIGNATURE_BYTES
from tacit.crypto.sealing import NONCE_BYTES, TAG_BYTES
from tacit.net.membership.rendezvous import Hello
from tacit.net.membership.replay_guard import STAMP_BYTES
from tacit.net.transport.framing import BytesFrame, Frame
from tacit.net.transport.peer_link import HELLO_BYTES
from tacit.runtime.round import Post

SLOW, CALLS = 80, 100
"""Number of slow streams that are held open, and of concurrent calls."""
TIMES = 20
"""Number of repetitions of random attempts."""
FAR = 2**47
"""Number of a round that no party has reached."""


def _caller(scene: Scene) -> Caller:
    return Caller(scene, scene.made.credentials[WITH_KEYS])


# --- message frames ------------------------------------------------------------------------------------------------


def parcels(*made: Callable[[Scene], Iterable[bytes]]) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to send the given pieces unchanged."""

    async def attempt(scene: Scene) -> None:
        async with _caller(scene) as caller:
            for each in made:
                await caller.deliver(list(each(scene)))

    return attempt


def _frame_with_head(sender: Any, to: Any, size: Any, *pieces: bytes) -> Callable[[Scene], Iterable[bytes]]:
    """Returns a frame with a header; None stands for the intruder and for the target."""

    def made(scene: Scene) -> Iterable[bytes]:
        first = head(WITH_KEYS if sender is None else sender, scene.target if to is None else to, size)
        return [first, *pieces]

    return made


async def too_many(scene: Scene) -> None:
    """Sends more pieces than announced."""
    async with _caller(scene) as caller:
        await caller.deliver([head(WITH_KEYS, scene.target, 1000), bytes(1001)])
        await caller.deliver(_endless(head(WITH_KEYS, scene.target, 1000)))


async def _endless(first: bytes) -> AsyncIterator[bytes]:
    yield first
    for _ in range(200):
        yield bytes(PIECE // 4)


# --- envelopes -----------------------------------------------------------------------------------------------------


Change = Callable[[Post, int], bytes]


def ahead(change: Change, times: int = 1) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to send changed messages, several times, before each message of the intruder's node."""

    async def attempt(scene: Scene) -> None:
        def altered(post: Post) -> list[Frame]:
            changed = [BytesFrame(memoryview(change(post, number))) for number in range(times)]
            scene.answers["changed"] += times
            return [*changed, post]

        scene.altered = altered
        await scene.over.wait()

    return attempt


def _flip_byte(post: Post, number: int) -> bytes:
    """Returns an envelope with one flipped bit: sometimes in the address, otherwise in the encrypted message."""
    found, sealed = bytearray(post.data), len(post.sealed)
    at = (number * 7919 + 13) % (8 * (sealed if number % 4 else len(found)))
    found[-1 - at // 8] ^= 1 << at % 8
    return bytes(found)


def _reorder_frame(post: Post, number: int) -> bytes:
    """Returns a long message with its encrypted pieces in another order; for others, the two halves swapped."""
    sealed = post.sealed
    front, first = post.data[: -len(sealed)], min(PIECE + TAG_BYTES, (len(sealed) - NONCE_BYTES) // (2 + number))
    nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    first = PIECE + TAG_BYTES if len(body) > PIECE + TAG_BYTES else first
    return front + nonce + body[first:] + body[:first]


async def _hand_over(scene: Scene, caller: Caller, data: bytes, sender: str = WITH_KEYS) -> None:
    pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    await caller.deliver([head(sender, scene.target, len(data)), *pieces])


async def replayed(scene: Scene) -> None:
    """Repeats a message that was delivered before."""
    await scene.over.wait()
    async with _caller(scene) as caller:
        for data in await scene.own():
            await _hand_over(scene, caller, data)
            await _hand_over(scene, caller, data)


async def outdated(scene: Scene) -> None:
    """Sends messages of the previous round."""
    before = [post.data for post in scene.frames[max(scene.frames)]]
    await scene.own()
    async with _caller(scene) as caller:
        for data in before:
            await _hand_over(scene, caller, data)


async def in_anothers_name(scene: Scene) -> None:
    """Sends its own messages under another party's name: in the header, and in the address too."""
    async with _caller(scene) as caller:
        for data in await scene.own():
            await _hand_over(scene, caller, data, scene.victim)
            address, sealed = msgspec.msgpack.decode(data)
            address[4] = scene.victim
            await _hand_over(scene, caller, msgspec.msgpack.encode([address, sealed]), scene.victim)
            address[4], address[5] = WITH_KEYS, scene.victim
            await _hand_over(scene, caller, msgspec.msgpack.encode([address, sealed]))


async def elsewhere(scene: Scene) -> None:
    """Sends messages of another session."""
    async with _caller(scene) as caller:
        for data in await scene.own():
            address, sealed = msgspec.msgpack.decode(data)
            for number in range(TIMES):
                address[0] = bytes([number]) * 32
                await _hand_over(scene, caller, msgspec.msgpack.encode([address, sealed]))


async def fuzzed(scene: Scene) -> None:
    """Sends mutations of real envelopes during the whole round."""
    draw = Chance(0)
    async with _caller(scene) as caller:
        for number in range(400):
            for data in await scene.own():
                small = data if len(data) < 1 << 16 else data[: 1 << 12]
                await _hand_over(scene, caller, (damage_bytes if number % 2 else spoilt)(small, draw) or b"\0")


async def malformed(scene: Scene) -> None:
    """Encrypts with its own key, and sends at the right time, bytes that are no message of the protocol."""

    def altered(post: Post) -> list[Frame]:
        sealed = post._suite.seal(post._key, b"\x81\xa4type\xa3odd", msgspec.msgpack.encode(post.address))
        return [BytesFrame(memoryview(post._codec.wrap_sealed(post.address, sealed)))]

    scene.altered = altered
    await scene.over.wait()


# --- hellos --------------------------------------------------------------------------------------------------------


def _lie(scene: Scene, **changes: Any) -> bytes:
    hello: Hello = scene.node._make_hello(scene.target)
    return msgspec.msgpack.encode(msgspec.structs.replace(hello, **changes))


def _sign_hello(scene: Scene, hello: bytes, to: str | None = None) -> bytes:
    said = scene.node._hellos._replay_guard.stamp(scene.target).data + hello
    statement = frame_parts(b"tacit/v1/hello", (to or scene.target).encode(), said)
    return scene.node._hellos._keys.sign(statement) + said


def hellos(made: Callable[[Scene], bytes]) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to send a hello that claims a later round, and records whether it was accepted."""

    async def attempt(scene: Scene) -> None:
        await scene.company.heard(scene.target, WITH_KEYS)
        async with _caller(scene) as caller:
            said = made(scene)
            await caller.hello(head(WITH_KEYS, scene.target, len(said)) + said)
        await _listen_as(scene, WITH_KEYS)

    return attempt


async def _listen_as(scene: Scene, party: str) -> None:
    """Records whether the claim of a round that no party has reached was accepted."""
    heard = await scene.company.heard(scene.target, party)
    scene.answers["listened to" if heard >= FAR else "not listened to"] += 1


def lies(**changes: Any) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to send only false hellos, from before the round until its end."""

    async def attempt(scene: Scene) -> None:
        honest = scene.node._make_hello
        scene.node._make_hello = lambda to: msgspec.structs.replace(honest(to), **changes)
        try:
            async with _caller(scene) as caller:
                while not scene.over.is_set():
                    said = _sign_hello(scene, msgspec.msgpack.encode(scene.node._make_hello(scene.target)))
                    await caller.hello(head(WITH_KEYS, scene.target, len(said)) + said)
                    await asyncio.sleep(0.02)
            await _listen_as(scene, WITH_KEYS)
        finally:
            scene.node._make_hello = honest
            scene.node._hellos.say()

    return attempt


async def about_others(scene: Scene) -> None:
    """Sends hellos in the name of an honest party."""
    async with _caller(scene) as caller:
        said = _sign_hello(scene, _lie(scene, party=scene.victim, begun=FAR))
        for sender in (WITH_KEYS, scene.victim):
            await caller.hello(head(sender, scene.target, len(said)) + said)
    await _listen_as(scene, scene.victim)


# --- floods --------------------------------------------------------------------------------------------------------


async def slow(scene: Scene) -> None:
    """Holds slow and silent streams open until the round is over."""

    async def trickle(number: int) -> AsyncIterator[bytes]:
        if number % 4:
            yield head(WITH_KEYS, scene.target, 1 << 16)
            while not scene.over.is_set():
                await asyncio.sleep(0.2)
                yield b"\0"
        else:
            await scene.over.wait()

    async with _caller(scene) as caller:
        await asyncio.gather(*(caller.deliver(trickle(number)) for number in range(SLOW)))


async def flood(scene: Scene) -> None:
    """Sends hellos and frames as fast as it can until the round is over."""
    data = (await scene.own())[0] if scene.frames else b"\0"
    said = _sign_hello(scene, _lie(scene))
    junk = bytes(1 << 16)

    async def calls(caller: Caller, number: int) -> None:
        while not scene.over.is_set():
            if number % 2:
                await caller.hello(head(WITH_KEYS, scene.target, len(said)) + said)
            else:
                await _hand_over(scene, caller, junk if number % 4 else data)

    callers = [_caller(scene) for _ in range(4)]
    try:
        await asyncio.gather(*(calls(callers[number % 4], number) for number in range(CALLS)))
    finally:
        for caller in callers:
            await caller.__aexit__()


AWAY = "thrown away: "
UNREAD = (f"{AWAY}not an envelope", f"{AWAY}not authentic")
PARCELS = (
    Attempt(
        "no head, or half of one",
        parcels(*(lambda _, data=data: [data] for data in (b"", b"\xff" * 9, b"\0\5\x93"))),
        ("INVALID_ARGUMENT",),
    ),
    Attempt(
        "a head that announces 4 GB, or more",
        parcels(_frame_with_head(None, None, 2**32), _frame_with_head(None, None, 2**63)),
        ("RESOURCE_EXHAUSTED",),
    ),
    Attempt(
        "a head that announces nothing, or less",
        parcels(_frame_with_head(None, None, -5, b"x"), _frame_with_head(None, None, 0)),
        ("RESOURCE_EXHAUSTED",),
    ),
    Attempt("more than was announced", too_many, ("OUT_OF_RANGE",)),
    Attempt("less than was announced", parcels(_frame_with_head(None, None, 1000, bytes(10))), ("DATA_LOSS",)),
    Attempt("a piece of 8 MiB", parcels(_frame_with_head(None, None, 1000, bytes(8 * PIECE))), ("RESOURCE_EXHAUSTED",)),
    Attempt(
        "from nobody, and for nobody",
        parcels(_frame_with_head("p9", None, 9, bytes(9)), _frame_with_head(None, "p9", 9, bytes(9))),
        ("PERMISSION_DENIED",),
    ),
    Attempt("passed on twice", parcels(_frame_with_head("p1", "p2", 9, bytes(9))), ("PERMISSION_DENIED",)),
)
ENVELOPES = (
    Attempt("replayed", replayed, (f"{AWAY}replayed",)),
    Attempt("of the round before", outdated, (f"{AWAY}from another round",)),
    Attempt("of another session", elsewhere, (f"{AWAY}from another session",)),
    Attempt("with pieces in another order", ahead(_reorder_frame), UNREAD),
    Attempt("truncated", ahead(lambda post, n: post.data[: post.size * (n + 1) // (TIMES + 1)], TIMES), UNREAD),
    Attempt("with one bit flipped", ahead(_flip_byte, TIMES), UNREAD),
    Attempt("lengthened", ahead(lambda post, n: post.data + bytes(1 + 37 * n), TIMES), UNREAD),
    Attempt("fuzzed", fuzzed, UNREAD),
    Attempt("in another's name", in_anothers_name, (*UNREAD, f"{AWAY}misdirected")),
    Attempt("sealed as they should be, and no messages", malformed, ("excluded: malformed",)),
)
FORGED: dict[str, Callable[[Scene], bytes]] = {
    "unsigned": lambda scene: bytes(SIGNATURE_BYTES) + _sign_hello(scene, _lie(scene, begun=FAR))[SIGNATURE_BYTES:],
    "changed after it was signed": lambda s: (
        _sign_hello(s, _lie(s))[: SIGNATURE_BYTES + STAMP_BYTES] + _lie(s, begun=FAR)
    ),
    "signed for somebody else": lambda scene: _sign_hello(scene, _lie(scene, begun=FAR), scene.victim),
    "of a round that cannot be": lambda scene: _sign_hello(scene, _lie(scene, begun=2**63)),
}
HELLOS = (
    *(Attempt(name, hellos(made), ("not listened to",), ("listened to",)) for name, made in FORGED.items()),
    Attempt(
        "of more than 64 KiB",
        hellos(lambda scene: _sign_hello(scene, _lie(scene, begun=FAR, told=bytes(HELLO_BYTES)))),
        ("RESOURCE_EXHAUSTED",),
        ("listened to",),
    ),
    Attempt("in another's name", about_others, ("not listened to",), ("listened to",)),
    Attempt("that lie: far ahead", lies(begun=FAR, ready=FAR), ("its hello",)),
    Attempt("that lie: far behind", lies(begun=0, over=True, ready=0), ("its hello",)),
    Attempt(
        "that lie: of a model of 1,000,000,000 numbers",
        lies(entries=10**9, session=bytes(32), told=b'{"entries": 1000000000}'),
        ("its hello",),
        may_stop=True,
    ),
    Attempt("that lie: we lost our journal", lies(known=bytes(16)), ("its hello",), may_stop=True),
)
TOO_MUCH = (
    Attempt(f"{SLOW} streams that trickle", slow, ("RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")),
    Attempt(f"{CALLS} calls at a time", flood, ("RESOURCE_EXHAUSTED", "its hello", "settled")),
)
