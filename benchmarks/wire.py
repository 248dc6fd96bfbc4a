"""Rounds between processes over mutual TLS: CPU time compared with plain grpc, and memory beyond the model.

Every party is a process on this machine. The baseline is grpc with the same streams of pieces and as many bytes,
without TLS, encryption, masks, sums or disk; grpc with mutual TLS is reported too. Rounds of the three alternate, so
that other load affects all of them.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio
import numpy as np

from benchmarks.federation import free_ports, make_federation
from benchmarks.measure import Row
from tacit.core.entropy import SystemEntropy
from tacit.core.messages import PIECE
from tacit.core.suite import SERVER, Update
from tacit.net.membership.identity import Credentials, tls_host
from tacit.net.membership.roster import RosterFile
from tacit.net.node import Node
from tacit.net.store.round_store import RoundStore

ENTRIES, PARTIES, ROUNDS, COMPARED = 25_000_000, 3, 3, 5
PATIENCE = 600.0
MOST, CLIENT = 2.5, 3.0
NEEDS = {
    "pushsum": ", masked; by its state 10 + in-degree + out-degree: 3 before the round and 4 in it, what is masked for "
    "each receiver, what came of each in-neighbour, an envelope, and the average, which counts twice",
    "cesar": ", share 0.3; by what it sums 3: the sum, and the average, which counts twice; the rest is entries that "
    "are shared and positions",
}
"""Composition of a party's memory, where there is no target."""
Pipe = Any


# --- ours ----------------------------------------------------------------------------------------------------------


def _peak() -> int:
    """Returns the peak memory of this process since the last call, in bytes."""
    status = Path("/proc/self/status").read_text().splitlines()
    found = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    _forget()
    return found


def _forget() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _party(folder: Path, name: str, entries: int, rounds: int, pipe: Pipe) -> None:
    asyncio.run(_rounds(folder, name, entries, rounds, pipe))


async def _rounds(folder: Path, name: str, entries: int, rounds: int, pipe: Pipe) -> None:
    roster = RosterFile.load(folder / "federation.toml")
    mine = Credentials.load(folder / f"{name}.identity")
    node = Node(roster, mine, RoundStore(folder / f"{name}.rounds", name, roster.federation))
    await node.start()
    model = None if name == SERVER else np.random.default_rng(len(name)).normal(0, 0.1, entries).astype(np.float32)
    before = _resident()
    for _ in range(rounds):
        _forget()
        began = time.process_time()
        ending = await node.average(None if model is None else Update(model))
        if ending.error is not None:
            raise ending.error
        del ending
        await node.flush(PATIENCE)
        # Other parties may not be done, and serving them is part of the round.
        cpu, wall = time.process_time() - began, time.monotonic()
        pipe.send((cpu, _peak() - before, wall))
        pipe.recv()
    await node.close()


Told = dict[str, tuple[float, ...]]


def ours(
    protocol: str, parties: int, entries: int, rounds: int, *, outbound: bool = False, **options: Any
) -> Iterator[Told]:
    """Yields, for each round, CPU seconds, bytes of memory beyond the model, and the end time, by party."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        names = make_federation(folder, protocol, parties, outbound=outbound, **options)
        spawn = multiprocessing.get_context("spawn")
        pipes = {name: spawn.Pipe() for name in names}
        running = [
            spawn.Process(target=_party, args=(folder, name, entries, rounds, there))
            for name, (_, there) in pipes.items()
        ]
        for each in running:
            each.start()
        try:
            for number in range(rounds):
                began = time.monotonic()
                for here, _ in pipes.values() if number else ():
                    here.send("on")
                told = {name: _heard(here) for name, (here, _) in pipes.items()}
                yield {name: (cpu, peak, wall - began) for name, (cpu, peak, wall) in told.items()}
        finally:
            for here, _ in pipes.values():
                here.send("on")
            for each in running:
                each.join(10)
                each.kill()


def _heard(pipe: Pipe) -> Any:
    if not pipe.poll(PATIENCE):
        raise TimeoutError("a party has not finished its round")
    return pipe.recv()


# --- plain grpc ----------------------------------------------------------------------------------------------------


def _pieces(size: int) -> Iterator[bytes]:
    piece = bytes(PIECE)
    for start in range(0, size, PIECE):
        yield piece[: min(PIECE, size - start)]


def _plain_server(port: int, size: int, pipe: Pipe, tls: Sequence[bytes]) -> None:
    asyncio.run(_serving(port, size, pipe, tls))


async def _serving(port: int, size: int, pipe: Pipe, tls: Sequence[bytes]) -> None:
    async def up(pieces: Any, context: Any) -> bytes:
        del context
        room, filled = bytearray(size), 0
        async for piece in pieces:
            room[filled : filled + len(piece)] = piece
            filled += len(piece)
        return b"done"

    async def down(asked: bytes, context: Any) -> Any:
        del asked, context
        for piece in _pieces(size):
            yield piece

    server = grpc.aio.server(options=_OPTIONS)
    handlers = {
        "Up": grpc.stream_unary_rpc_method_handler(up),
        "Down": grpc.unary_stream_rpc_method_handler(down),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("plain", handlers),))
    if tls:
        key, certificate = tls
        made = grpc.ssl_server_credentials([(key, certificate)], certificate, require_client_auth=True)
        server.add_secure_port(f"127.0.0.1:{port}", made)
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    pipe.send("ready")
    while await asyncio.to_thread(pipe.recv):
        began = time.process_time()
        pipe.send("go")
        await asyncio.to_thread(pipe.recv)
        pipe.send(time.process_time() - began)
    await server.stop(None)


def _plain_client(port: int, size: int, pipe: Pipe, tls: Sequence[bytes], host: str) -> None:
    asyncio.run(_calling(port, size, pipe, tls, host))


async def _calling(port: int, size: int, pipe: Pipe, tls: Sequence[bytes], host: str) -> None:
    if tls:
        key, certificate = tls
        made = grpc.ssl_channel_credentials(certificate, key, certificate)
        options = (*_OPTIONS, ("grpc.ssl_target_name_override", host))
        channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", made, options)
    else:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", _OPTIONS)
    while await asyncio.to_thread(pipe.recv):
        began = time.process_time()
        await channel.stream_unary("/plain/Up")(_pieces(size))
        room, filled = bytearray(size), 0
        async for piece in channel.unary_stream("/plain/Down")(b""):
            room[filled : filled + len(piece)] = piece
            filled += len(piece)
        pipe.send(time.process_time() - began)
    await channel.close()


_OPTIONS = (("grpc.max_receive_message_length", 2 * PIECE), ("grpc.max_send_message_length", 2 * PIECE))


def plain(
    port: int, parties: int, size: int, rounds: int, tls: Sequence[bytes] = (), host: str = ""
) -> Iterator[float]:
    """Yields the CPU seconds of all processes for rounds in which every party sends and receives that many bytes."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    server = spawn.Process(target=_plain_server, args=(port, size, there, tls))
    server.start()
    _heard(here)
    pipes = [spawn.Pipe() for _ in range(parties)]
    clients = [spawn.Process(target=_plain_client, args=(port, size, there, tls, host)) for _, there in pipes]
    for each in clients:
        each.start()
    try:
        for _ in range(rounds):
            here.send("go on")
            _heard(here)
            for pipe, _ in pipes:
                pipe.send("go on")
            cpu = sum(_heard(pipe) for pipe, _ in pipes)
            here.send("over")
            yield cpu + _heard(here)
    finally:
        for pipe in (here, *(pipe for pipe, _ in pipes)):
            pipe.send("")
        for each in (server, *clients):
            each.join(10)
            each.kill()


# --- rows ----------------------------------------------------------------------------------------------------------


def rows(quick: bool = False) -> Iterator[Row]:
    """Yields CPU time and memory of rounds; targets are for the full size only."""
    entries, rounds = (200_000, 2) if quick else (ENTRIES, ROUNDS)
    size, compared = entries * 4, 2 if quick else COMPARED
    mine, ports = Credentials.generate(SERVER, SystemEntropy()), free_ports(2)
    tls = mine.key_pem.reveal(), mine.certificate_pem
    with (
        closing(ours("secagg", PARTIES, entries, compared)) as playing,
        closing(plain(ports[0], PARTIES, size, compared)) as moving,
        closing(plain(ports[1], PARTIES, size, compared, tls, tls_host(mine.member))) as hiding,
    ):
        found, plainly, secretly = zip(*zip(playing, moving, hiding, strict=True), strict=True)
    # In the first round processes still load what they need.
    spent = [sum(each[0] for each in told.values()) for told in found[1:]]
    cpu, bare, secured = median(spent), median(plainly[1:]), median(secretly[1:])
    what = f"{PARTIES} parties and a server, d = {entries:,}"
    ratio = cpu / bare
    yield Row(
        f"CPU of a round of secagg, {what}",
        cpu,
        bare,
        "s",
        bare / cpu,
        None if quick else f"at most {MOST:g} times theirs",
        None if quick else ratio <= MOST,
        f"theirs is plain grpc with as many bytes, {ratio:.2f} times as cheap; with mutual TLS it takes {secured:.3g} "
        f"s, so {cpu / secured:.2f} times; all processes, journals on disk included",
    )
    for protocol, options in (("secagg", {}), ("pushsum", {"masked": True}), ("cesar", {"share": 0.3})):
        told = found if protocol == "secagg" else list(ours(protocol, PARTIES, entries, rounds, **options))
        clients = max(each[1] for round_ in told[1:] for name, each in round_.items() if name != SERVER) / size
        most = CLIENT if protocol == "secagg" and not quick else None
        yield _memory(f"a party of {protocol}", clients, most, what + NEEDS.get(protocol, ""))
        if protocol == "secagg":
            server = max(round_[SERVER][1] for round_ in told[1:]) / size
            yield _memory("the server of secagg", server, None if quick else PARTIES + 2.0, what)

    yield from _crowd(*((6, 1_000, 2) if quick else (32, 1_000_000, 4)))


def _crowd(parties: int, entries: int, rounds: int) -> Iterator[Row]:
    """Yields the speed of many neighbours, each in its own process on this machine."""
    graph = {"kind": "regular", "degree": 4}
    told = list(ours("cesar", parties, entries, rounds, share=0.3, graph=graph))[1:]
    what = f"cesar of {parties} parties, d = {entries:,}, degree 4, share 0.3"
    note = (
        f"everybody a process of its own on {os.cpu_count()} cores, over mutual TLS; the median after the first round"
    )
    wall = median(max(each[2] for each in round_.values()) for round_ in told)
    yield Row(f"rounds a minute, {what}", 60 / wall, None, "rounds", None, None, None, note)
    cpu = median(sum(each[0] for each in round_.values()) for round_ in told)
    yield Row(f"CPU of a round, {what}", cpu, None, "s", None, None, None, note)


def _memory(who: str, found: float, most: float | None, what: str) -> Row:
    target, met = (None, None) if most is None else (f"at most {most:g}", found <= most)
    note = f"{what}; the most that was resident in a round above the model, in vectors of 4 bytes an entry"
    return Row(f"memory of {who}", found, None, "vectors", None, target, met, note)
