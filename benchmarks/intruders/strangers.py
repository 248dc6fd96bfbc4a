"""Attempts of outsiders: connections with other protocols and other keys."""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from benchmarks.intruders.attempts import WITH_KEYS, Attempt, Caller, Scene, head
from benchmarks.intruders.honest_parties import GONE
from tacit.core.entropy import SystemEntropy
from tacit.core.suite import Party
from tacit.net.membership.identity import Credentials

IDLE, HANDSHAKES = 1500, 300
"""Number of concurrent connections of a flood, and of all its connections."""


def _where(scene: Scene) -> tuple[str, int]:
    host, _, port = scene.address.rpartition(":")
    return host, int(port)


def said(data: bytes) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to send bytes that are not TLS."""

    async def attempt(scene: Scene) -> None:
        reader, writer = await asyncio.open_connection(*_where(scene))
        try:
            writer.write(data)
            await writer.drain()
            answer = await asyncio.wait_for(reader.read(1 << 16), 15)
            scene.answers["hung up" if b"tacit" not in answer else "an answer"] += 1
        except ConnectionError:
            scene.answers["hung up"] += 1
        except TimeoutError:
            scene.answers["nothing"] += 1
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    return attempt


def show_certificate(mine: Callable[[Scene], tuple[bytes, bytes] | None]) -> Callable[[Scene], Awaitable[None]]:
    """Returns the attempt to connect with a key and a certificate, or none; by TLS alone, and by a real call."""

    async def attempt(scene: Scene) -> None:
        pair = mine(scene)
        await _handshake(scene, pair)
        tls = {} if pair is None else {"private_key": pair[0], "certificate_chain": pair[1]}
        async with Caller(scene, tls=tls) as caller:
            await caller.hello(head(WITH_KEYS, scene.target, 0))
            await caller.deliver([head(WITH_KEYS, scene.target, 10) + bytes(10)])

    return attempt


async def _handshake(scene: Scene, pair: tuple[bytes, bytes] | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if pair is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "both.pem"
            path.write_bytes(b"".join(pair))
            context.load_cert_chain(path)
    try:
        reader, writer = await asyncio.open_connection(*_where(scene), ssl=context)
        try:
            # In TLS 1.3 the peer rejects a certificate only after its own part of the handshake: it then either
            # continues with HTTP/2 or closes the connection.
            writer.write(HTTP_2)
            data = await asyncio.wait_for(reader.read(1 << 12), 10)
            scene.answers["TLS: let in" if data else "TLS: hung up"] += 1
        finally:
            writer.transport.abort()  # A regular TLS shutdown takes half a minute if nobody answers.
    except ssl.SSLError as error:
        scene.answers[f"TLS: {(error.reason or 'failed').lower().replace('_', ' ')}"] += 1
    except ConnectionError:
        scene.answers["TLS: hung up"] += 1
    except TimeoutError:
        scene.answers["TLS: nothing"] += 1


def stranger(_: Scene) -> tuple[bytes, bytes]:
    """Returns a key and an unknown certificate in the name of a party on the roster."""
    made = Credentials.generate(WITH_KEYS, SystemEntropy())
    return made.key_pem.reveal(), made.certificate_pem


def pair_of(party: Party) -> Callable[[Scene], tuple[bytes, bytes]]:
    """Returns a function that gives the key and certificate of a party, which may have left the roster."""

    def pair(scene: Scene) -> tuple[bytes, bytes]:
        mine = scene.made.credentials[party]
        return mine.key_pem.reveal(), mine.certificate_pem

    return pair


def issue_certificate(scene: Scene) -> tuple[bytes, bytes]:
    """Returns an outsider's key, with a certificate issued by a party on the roster, and that party's certificate."""
    party, other = scene.made.credentials[WITH_KEYS], Credentials.generate("friend", SystemEntropy())
    issuer = x509.load_pem_x509_certificate(party.certificate_pem)
    key, signing = (load_pem_private_key(each.key_pem.reveal(), None) for each in (other, party))
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, WITH_KEYS)])
    since, until = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(issuer.subject, name, key.public_key(), 7, since, until)
    made = builder.sign(signing, SHA256())
    return other.key_pem.reveal(), made.public_bytes(Encoding.PEM) + party.certificate_pem


async def idle(scene: Scene) -> None:
    """Opens connections and sends nothing, or half of a TLS greeting, until the round is over."""
    opened = []
    for number in range(IDLE):
        try:
            reader, writer = await asyncio.open_connection(*_where(scene))
        except OSError:
            scene.answers["not taken"] += 1
            continue
        if number % 2:
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00")  # The beginning of a TLS greeting.
        opened.append((reader, writer))
    await scene.over.wait()
    await asyncio.wait([asyncio.ensure_future(_hung_up(scene, *each)) for each in opened], timeout=20)
    for _, writer in opened:
        writer.transport.abort()


async def _hung_up(scene: Scene, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        await reader.read()
    if not writer.is_closing():
        scene.answers["hung up"] += 1


async def handshakes(scene: Scene) -> None:
    """Opens TLS connections one after the other, many at a time, until the round is over and there were enough."""
    pairs = [None, stranger(scene)]
    done = 0
    while not scene.over.is_set() or done < HANDSHAKES:
        await asyncio.gather(*(_handshake(scene, pairs[each % 2]) for each in range(25)))
        done += 25


GARBAGE = os.urandom(1 << 16)
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The first bytes of HTTP/2: its preface, and empty settings."""
LET_IN = ("TLS: let in", "its hello", "settled", "later")
PLAIN = tuple(
    Attempt(name, said(data), ("hung up",), ("an answer", "nothing"))
    for name, data in {
        "plain HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/2 without TLS": HTTP_2,
        "64 KiB of garbage": GARBAGE,
    }.items()
)
KEYS = (
    # A party on the roster gets through in the same way. Otherwise the refusals would show nothing.
    Attempt("a certificate of the roster, to compare with", show_certificate(pair_of(WITH_KEYS)), ("TLS: let in",)),
    *(
        Attempt(name, show_certificate(pair), ("UNAVAILABLE", "UNAUTHENTICATED"), LET_IN)
        for name, pair in {
            "no certificate": lambda _: None,
            "a stranger's certificate, in a party's name": stranger,
            "the certificate of one who was removed": pair_of(GONE),
            "a certificate issued by a party": issue_certificate,
        }.items()
    ),
)
FLOODS = (
    Attempt(f"{IDLE} connections that say nothing", idle, ("hung up",)),
    Attempt(f"{HANDSHAKES} or more TLS handshakes", handshakes, ("TLS: hung up",), LET_IN),
)
