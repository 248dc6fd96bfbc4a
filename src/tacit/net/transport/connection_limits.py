"""Limits on connections of unauthenticated callers.

A connection costs an open file and some 40 KB until its certificate arrives, or it times out.
"""

import resource

SPARE = 4096
"""Simultaneous connections for unauthenticated callers, beyond those of peers."""


def connection_options(peers: int, patience: float) -> tuple[tuple[str, int], ...]:
    """Returns options of a gRPC server for `peers` connections of peers and a handshake of `patience` seconds.

    Half of the open files are reserved for the node itself, so that it can always write its journal.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = SPARE + peers if files == resource.RLIM_INFINITY else min(SPARE + peers, files // 2)
    return ("grpc.server_handshake_timeout_ms", int(1000 * patience)), ("grpc.max_allowed_incoming_connections", most)
