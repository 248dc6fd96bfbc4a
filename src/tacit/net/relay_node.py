"""Relay of a federation: passes sealed messages between parties that cannot dial each other.

It has a certificate on the roster, and no key that opens a message. It takes part in no round and keeps nothing. What
it drops, delays, repeats or reorders, parties miss at their deadlines or discard.
"""

import asyncio

import grpc

from tacit.core.errors import ConfigError
from tacit.core.suite import Buffer, Party
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.net.observability.telemetry import Telemetry
from tacit.net.party_courier import build_courier
from tacit.net.transport.framing import FrameRefused

MOST_BYTES = 1 << 30
"""Bytes of the longest frame that is passed on."""
OFTEN = 1.0
"""Seconds between looks at the links."""


class RelayNode:
    """A relay on a network, between `start` and `close`."""

    def __init__(self, roster: RosterFile, mine: Credentials, most_bytes: int = MOST_BYTES) -> None:
        """Prepares a relay of a roster; raises ConfigError if the identity is not that of a relay on it."""
        if mine.name not in [card.name for card in roster.relays]:
            raise ConfigError(
                f"{mine.name} is not on the roster of {roster.federation} as a relay; try: have its keeper add the "
                f"card (tacit roster add federation.toml {mine.name}.card --relay), and take the new federation.toml"
            )
        roster.check(mine)
        self.me, self.roster, self._most_bytes = mine.name, roster, most_bytes
        self.telemetry = Telemetry(self.me, roster.federation, roster.protocol)
        self.courier = build_courier(roster, mine, self, self.telemetry)
        self._watch: asyncio.Task[None] | None = None

    async def start(self, address: str | None = None) -> None:
        """Listens at the roster's address, or another one."""
        where = address or self.roster.address_of(self.me)
        await self.courier.start(where)
        self.telemetry.report_joined(where, 0)
        self._watch = asyncio.create_task(self._report_links())

    async def close(self) -> None:
        """Stops it."""
        if self._watch is not None:
            self._watch.cancel()
        await self.courier.close()
        self.telemetry.report_closed(leaving=False)

    async def _report_links(self) -> None:
        while True:
            self.telemetry.report_links(self.courier.links)
            await asyncio.sleep(OFTEN)

    # --- what comes for us -----------------------------------------------------------------------------------------

    def max_frame_bytes(self, sender: Party) -> int:
        """Returns the length of the longest frame that is passed on."""
        del sender
        return self._most_bytes

    async def accept_frame(self, sender: Party, data: Buffer) -> bool:
        """Refuses a frame: nothing can be sealed for a relay."""
        del sender, data
        raise FrameRefused(grpc.StatusCode.PERMISSION_DENIED, f"{self.me} is a relay and opens nothing")

    def answer_hello(self, sender: Party, hello: bytes) -> bytes:
        """Refuses a hello: a relay takes part in no round."""
        del sender, hello
        raise FrameRefused(grpc.StatusCode.PERMISSION_DENIED, f"{self.me} is a relay and takes part in no round")
