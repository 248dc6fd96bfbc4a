"""Courier of a party or relay, with the links that its roster says."""

from math import inf

from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import RosterFile
from tacit.net.membership.routes import list_listeners, list_relays
from tacit.net.membership.tls_sources import open_tls_source
from tacit.net.observability.telemetry import Telemetry
from tacit.net.transport.courier import Courier, Receiver
from tacit.net.transport.peer_link import PeerEndpoint
from tacit.net.transport.proxy import Proxy
from tacit.vectors.buffers import BufferPool

OLDEST = 3600.0
"""Seconds after which a connection is replaced if one of its certificates may expire."""


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
    cards = (*roster.parties, *roster.relays)
    endpoints = [
        PeerEndpoint(card.name, card.address, card.anchor.pem, card.anchor.host, card.name in relays, card.tls)
        for card in cards
        if card.name != me
    ]
    expires = any(card.tls is not TlsProof.PINNED for card in cards)
    lifetime = roster.deadlines.certificate
    return Courier(
        me,
        open_tls_source(mine, lifetime),
        endpoints,
        receiver,
        lambda peer: list_relays(roster, me, peer),
        roster.deadlines.connect,
        pool,
        None if me in relays else list_listeners(roster, me),
        proxy,
        is_relay=me in relays,
        on_conflict=telemetry.report_conflict,
        on_refusal=telemetry.report_refused_certificate,
        connection_age=min(OLDEST, lifetime / 4) if expires else inf,
    )
