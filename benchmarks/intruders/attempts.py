"""Attempts to break into a federation: the setting, the calls and the answers."""

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
"""The largest additional memory, in MB, that an attempt may cost its target."""
WITH_KEYS = "p3"
"""The malicious party on the roster."""


class Company(Protocol):
    """Honest parties, in this process or in others."""

    made: Federation
    parties: tuple[Party, ...]
    entries: int

    async def average(self, number: int) -> dict[Party, dict[str, Any]]:
        """Returns the result of a round for each party."""

    async def mail(self, party: Party) -> dict[str, int]:
        """Returns the numbers of rejected messages and excluded senders of a party in the last round, by reason."""

    async def heard(self, party: Party, of: Party) -> int:
        """Returns the highest round that another party claimed towards this one since the last call."""

    async def memory(self, party: Party, *, afresh: bool = False) -> float:
        """Returns the peak memory of a party, in MB."""


@dataclass
class Scene:
    """Setting of an attempt: honest parties, one of which is the target, and an intruder whose own node takes part
    too."""

    company: Company
    target: Party
    node: Node
    """The node of the malicious party. It follows the protocol, besides the attempt."""
    frames: dict[int, list[Post]] = field(default_factory=dict)
    """Messages of that node for the target, by round."""
    altered: Callable[[Post], list[Frame]] | None = None
    """Returns the frames that replace each of its messages; None to replace nothing."""
    before: int = 0
    """The last round before the current one."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the current round is over."""
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
        """All keys of the federation."""
        return self.company.made

    @property
    def address(self) -> str:
        """Address of the target."""
        return self.made.roster.address_of(self.target)

    @property
    def victim(self) -> Party:
        """An honest party whose name may be misused."""
        return next(party for party in self.company.parties if party not in (self.target, SERVER))

    async def own(self) -> list[bytes]:
        """Returns the messages of the intruder's node to the target in this round, once there are any."""
        while max(self.frames, default=0) <= self.before and not self.over.is_set():
            await asyncio.sleep(0.01)
        return [post.data for post in self.frames[max(self.frames)]]


class Caller:
    """Client that calls a party with arbitrary certificates and content."""

    def __init__(self, scene: Scene, mine: Credentials | None = None, tls: Mapping[str, bytes] | None = None) -> None:
        """Uses a certificate of the roster, another one (in PEM), or none (`tls` is empty)."""
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
        """Sends a hello, and returns the answer, which is also recorded."""
        return await self._noted(self._channel.unary_unary(f"/{SERVICE}/Hello")(data, timeout=PATIENT))

    async def deliver(self, pieces: Iterable[bytes] | AsyncIterable[bytes]) -> bytes:
        """Sends pieces of a message, and returns the answer, which is also recorded."""
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
    """Returns the code and the text of an answer, without the parts that vary."""
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
    """Returns the header of a message."""
    said = msgspec.msgpack.encode([sender, to, size])
    return len(said).to_bytes(2) + said


@dataclass(frozen=True)
class Attempt:
    """An attempt of an intruder, with the expected answers."""

    name: str
    tried: Callable[[Scene], Awaitable[None]]
    refused: tuple[str, ...]
    """Beginnings of the answers that refuse the attempt."""
    never: tuple[str, ...] = ()
    """Answers that must not occur."""
    may_stop: bool = False
    """Whether the attempt may stop the target's peers without a server, if they learn who caused it."""


@dataclass
class Result:
    """Result of an attempt."""

    kind: str
    name: str
    answers: dict[str, int]
    refused: bool
    """Whether the attempt was refused, as it should be."""
    right: int
    """Number of honest parties that had the right average of all honest ones."""
    honest: int
    """Number of honest parties."""
    stopped: bool
    """Whether the other honest parties learnt who stopped them, where this is allowed."""
    before: float
    """Peak memory of the target in an undisturbed round, in MB."""
    peak: float
    """Peak memory of the target in this round, in MB."""
    errors: tuple[str, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the attempt was refused, and no honest party was harmed."""
        return self.refused and (self.right == self.honest or self.stopped) and self.peak <= self.before + MORE


async def try_attempt(scene: Scene, attempt: Attempt, number: int, kind: str, before: float = 0.0) -> Result:
    """Makes an attempt while all parties average, and returns the result."""
    scene.answers.clear()
    scene.over.clear()
    scene.before = max(scene.frames, default=0)
    company = scene.company
    await company.memory(scene.target, afresh=True)
    trying = asyncio.ensure_future(attempt.tried(scene))
    await asyncio.sleep(0.1)  # It must be active before the round begins.
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
    """Says whether the answers refuse the attempt. Every changed message must have been rejected."""
    away = sum(times for each, times in answers.items() if each.startswith("thrown away"))
    if any(each in attempt.never for each in answers):
        return False
    return any(each.startswith(attempt.refused) for each in answers) and away >= answers["changed"]


async def _following(scene: Scene, number: int) -> None:
    """Lets the intruder's own node take part, and ignores its errors."""
    await Witness(scene.node, scene.company.entries).average(number)
