"""Courier of a party or relay, with the links that its roster says."""

from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.routes import list_listeners, list_relays
from tacit.net.observability.telemetry import Telemetry
from tacit.net.transport.courier import Courier, Receiver
from tacit.net.transport.peer_link import PeerEndpoint, Tls
from tacit.net.transport.proxy import Proxy
from tacit.vectors.buffers import BufferPool


def build_courier(
    roster: RosterFile,
    mine: Credentials,
    receiver: Receiver,
    telemetry: Telemetry,
    pool: BufferPool | None = None,
    proxy: Proxy | None = None,
) -> Courier:
    """Returns the courier of one of those on a roster, which has not started."""
    me, relays = mine.name, {card.name for card in roster.relays}
    endpoints = [
        PeerEndpoint(
            card.name, card.address, roster.certificate_of(card.name), roster.host_of(card.name), card.name in relays
        )
        for card in (*roster.parties, *roster.relays)
        if card.name != me
    ]
    return Courier(
        me,
        Tls(mine.key_pem.reveal(), mine.certificate_pem),
        endpoints,
        receiver,
        lambda peer: list_relays(roster, me, peer),
        roster.deadlines.connect,
        pool,
        None if me in relays else list_listeners(roster, me),
        proxy,
        is_relay=me in relays,
        on_conflict=telemetry.report_conflict,
    )
