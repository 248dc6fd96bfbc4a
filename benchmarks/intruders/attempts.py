"""Attempts to break into a federation: the scene, the calls and the answers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc
import grpc.aio
import msgspec

from benchmarks.intruders.honest_parties import Federation, Witness
from tacit.core.messages import PIECE
from tacit.core.suite import SERVER, Party
from tacit.net.membership.identity import Credentials
from tacit.net.node import Node
from tacit.net.transport.framing import Frame
from tacit.net.transport.peer_link import LATER, SERVICE, SETTLED
from tacit.runtime.round import Post

PATIENT = 30.0
"""Seconds that an intruder waits for an answer."""
MORE = 128.0
"""MB that an attempt may cost its target at most, on top of what a round takes."""
WITH_KEYS = "p3"
"""Who on the roster breaks the rules."""


class Company(Protocol):
    """Honest parties, wherever they run."""

    made: Federation
    parties: tuple[Party, ...]
    entries: int

    async def average(self, number: int) -> dict[Party, dict[str, Any]]:
        """Returns how a round ended for each."""

    async def mail(self, party: Party) -> dict[str, int]:
        """Returns what a party made of its mail in the last round."""

    async def heard(self, party: Party, of: Party) -> int:
        """Returns the furthest round that a party heard another to have begun, since this was last asked."""

    async def memory(self, party: Party, *, afresh: bool = False) -> float:
        """Returns the most memory that a party had at once, in MB."""


@dataclass
class Scene:
    """Honest parties, one of whom is called on, and an intruder whose own node takes part as well."""

    company: Company
    target: Party
    node: Node
    """That of whom on the roster who breaks the rules: it follows them, beside what is tried."""
    frames: dict[int, list[Post]] = field(default_factory=dict)
    """What that node had for the target, by round."""
    altered: Callable[[Post], list[Frame]] | None = None
    """What leaves in the place of each."""
    before: int = 0
    """The last round before the one that goes on."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the round is."""
    answers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        line = self.node.courier.links[self.target]
        honest = line.send

        def send(post: Any, number: int, arrived: Callable[[], None]) -> None:
            self.frames.setdefault(number, []).append(post)
            for each in [post] if self.altered is None else self.altered(post):
                honest(each, number, arrived)

        line.send = send  # type: ignore[method-assign]

    @property
    def made(self) -> Federation:
        """Everybody's keys."""
        return self.company.made

    @property
    def address(self) -> str:
        """Where the target is."""
        return self.made.roster.address_of(self.target)

    @property
    def victim(self) -> Party:
        """An honest party whose name may be used."""
        return next(party for party in self.company.parties if party not in (self.target, SERVER))

    async def own(self) -> list[bytes]:
        """Returns what the intruder's node said to the target in this round, once it has said anything."""
        while max(self.frames, default=0) <= self.before and not self.over.is_set():
            await asyncio.sleep(0.01)
        return [post.data for post in self.frames[max(self.frames)]]


class Caller:
    """Calls to a party, with whatever one likes to show and to say."""

    def __init__(self, scene: Scene, mine: Credentials | None = None, tls: Mapping[str, bytes] | None = None) -> None:
        """Shows a certificate of the roster, another one (in PEM), or none (`tls` is empty)."""
        roster = scene.made.roster
        shown = (
            {} if mine is None else {"private_key": mine.key_pem.reveal(), "certificate_chain": mine.certificate_pem}
        )
        credentials = grpc.ssl_channel_credentials(
            roster.certificate_of(scene.target), **(shown if tls is None else tls)
        )
        options = (
            ("grpc.ssl_target_name_override", roster.host_of(scene.target)),
            ("grpc.max_send_message_length", 64 * PIECE),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        )
        self._channel = grpc.aio.secure_channel(scene.address, credentials, options)
        self._answers = scene.answers

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def hello(self, data: bytes) -> bytes:
        """Says hello, and returns the answer; what it was is noted."""
        return await self._noted(self._channel.unary_unary(f"/{SERVICE}/Hello")(data, timeout=PATIENT))

    async def deliver(self, pieces: Iterable[bytes] | AsyncIterable[bytes]) -> bytes:
        """Hands pieces over, and returns the answer; what it was is noted."""
        return await self._noted(self._channel.stream_unary(f"/{SERVICE}/Deliver")(pieces, timeout=PATIENT))

    async def _noted(self, call: Awaitable[bytes]) -> bytes:
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            self._answers[_words(error)] += 1
            return b""
        self._answers[{SETTLED: "settled", LATER: "later"}.get(answer, "its hello")] += 1
        return answer


def _words(error: grpc.aio.AioRpcError) -> str:
    """Returns the code of an answer and what was said with it, without what is different every time."""
    details = str(error.details() or "")
    for known in ("Socket closed", "CERTIFICATE", "Concurrent RPC limit", "Connection reset", "Broken pipe", "GOAWAY"):
        if known.lower() in details.lower():
            return f"{error.code().name}: {known}"
    if "larger than max" in details:
        return f"{error.code().name}: larger than a message may be"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"{error.code().name}: hung up"
    return f"{error.code().name}: {details[:60]}"


def head(sender: Any, to: Any, size: Any) -> bytes:
    """Returns what goes ahead of a parcel."""
    said = msgspec.msgpack.encode([sender, to, size])
    return len(said).to_bytes(2) + said


@dataclass(frozen=True)
class Attempt:
    """Something that an intruder tries, and what it may be answered."""

    name: str
    tried: Callable[[Scene], Awaitable[None]]
    refused: tuple[str, ...]
    """How answers begin that refuse it."""
    never: tuple[str, ...] = ()
    """What it must not be answered."""
    may_stop: bool = False
    """Whether it may stop the target's peers without a server, as long as they are told by whom."""


@dataclass
class Result:
    """What came of an attempt."""

    kind: str
    name: str
    answers: dict[str, int]
    refused: bool
    """Whether it was, as it should be."""
    right: int
    """Honest parties that had the right average of all honest ones, and"""
    honest: int
    """how many there are."""
    stopped: bool
    """Whether those who had not were told who kept them from it, and may be kept."""
    before: float
    """The most memory of the target in a round that nobody disturbs, in MB,"""
    peak: float
    """and in this one."""
    errors: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether it was refused, and nobody else was the worse for it."""
        return self.refused and (self.right == self.honest or self.stopped) and self.peak <= self.before + MORE


async def try_attempt(scene: Scene, attempt: Attempt, number: int, kind: str, before: float = 0.0) -> Result:
    """Makes an attempt while everybody averages, and returns what came of it."""
    scene.answers.clear()
    scene.over.clear()
    scene.before = max(scene.frames, default=0)
    company = scene.company
    await company.memory(scene.target, afresh=True)
    trying = asyncio.ensure_future(attempt.tried(scene))
    await asyncio.sleep(0.1)  # it is there first
    mine = asyncio.ensure_future(_following(scene, number))
    try:
        ended = await company.average(number)
    finally:
        scene.over.set()
        scene.altered = None
    await asyncio.wait_for(trying, 4 * PATIENT)
    await asyncio.wait_for(mine, 4 * PATIENT)
    answers = scene.answers + Counter(await company.mail(scene.target))
    users = {party for party in company.parties if party != SERVER}
    right = [party for party, each in ended.items() if each["right"] and users <= set(each["contributors"])]
    errors = {party: each["error"] for party, each in ended.items() if each["error"]}
    told = {party for party, each in ended.items() if each["right"] or WITH_KEYS in (each["error"] or "")}
    return Result(
        kind,
        attempt.name,
        dict(sorted(answers.items())),
        _was_refused(attempt, answers),
        len(right),
        len(company.parties),
        attempt.may_stop and told == set(ended) and bool(errors),
        before,
        await company.memory(scene.target),
        tuple(f"{party}: {error}" for party, error in errors.items()),
    )


def _was_refused(attempt: Attempt, answers: Counter[str]) -> bool:
    """Says whether what was tried was answered as it should be; whatever was changed must have been thrown away."""
    away = sum(times for each, times in answers.items() if each.startswith("thrown away"))
    if any(each in attempt.never for each in answers):
        return False
    return any(each.startswith(attempt.refused) for each in answers) and away >= answers["changed"]


async def _following(scene: Scene, number: int) -> None:
    """Has the intruder's own node take part, whatever comes of it."""
    await Witness(scene.node, scene.company.entries).average(number)
