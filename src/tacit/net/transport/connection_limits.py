"""Limits on connections and on the calls in each of them.

A connection costs an open file and about 40 KB until its certificate arrives, or it times out. An authenticated
connection is closed if no call was made in it for some time.
"""

import resource

SPARE = 4096
"""Simultaneous connections for unauthenticated callers, beyond those of peers."""
IDLE = 300.0
"""Seconds after which a connection without calls is closed. A peer that needs it again connects again."""


def connection_options(peers: int, calls: int, patience: float) -> tuple[tuple[str, int], ...]:
    """Returns options of a gRPC server for `peers` peers, `calls` calls of each, and handshakes of `patience` seconds.

    Half of the open files are reserved for the node itself, so that it can always write its journal.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = SPARE + calls * (peers + 1)
    return (
        ("grpc.server_handshake_timeout_ms", int(1000 * patience)),
        ("grpc.max_allowed_incoming_connections", most if files == resource.RLIM_INFINITY else min(most, files // 2)),
        ("grpc.max_connection_idle_ms", int(1000 * IDLE)),
        # Twice the allowed number, so that a peer gets an error for excess calls. Further calls wait at the peer.
        ("grpc.max_concurrent_streams", 2 * calls),
    )
