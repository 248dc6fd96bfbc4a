"""A party in its own process that records every message: `recorded_party_process.py FOLDER NAME ENTRIES ROUNDS PROXY`.

It uses the same seeds as the tests, so that a simulation sends the same messages.
"""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import msgspec
import numpy as np
from federations import Made

from tacit.core.suite import SERVER
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.net.transport.peer_link import PeerLink
from tacit.net.transport.proxy import Proxy

folder, name, entries, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
proxy = Proxy.parse(sys.argv[5]) if sys.argv[5] else None
envelopes, honest = {}, PeerLink.send


def send(line, parcel, number, arrived):
    _, sealed = msgspec.msgpack.decode(parcel.data, type=tuple[msgspec.Raw, bytes])
    envelopes[msgspec.json.encode(parcel.address).decode()] = hashlib.sha256(sealed).hexdigest()
    honest(line, parcel, number, arrived)


PeerLink.send = send


async def main():
    roster = RosterFile.load(folder / "federation.toml")
    made = Made(folder, roster, {name: Credentials.load(folder / f"{name}.identity")})
    node, averages = made.node(name, proxy=proxy), []
    await node.start()
    for number in range(1, rounds + 1):
        ending = await node.average(None if name == SERVER else made.updates(entries, number)[name])
        averages.append([ending.contributors, np.asarray(ending.average, np.float64).tolist(), str(ending.error or "")])
    await node.flush(20)
    (folder / f"{name}.said").write_text(json.dumps({"averages": averages, "envelopes": envelopes}))
    await node.close(leaving=True)


asyncio.run(main())
