"""What those may take of a node who have not shown yet whether they are on its roster: connections, for a while.

A connection costs an open file and some 40 KB until its certificate is there, or its time is up.
"""

import resource

SPARE = 4096
"""Connections at a time beyond what peers may have, of those who never show a certificate."""


def for_strangers(peers: int, patience: float) -> tuple[tuple[str, int], ...]:
    """Returns options for a server of grpc whose peers may have so many connections, and who waits so many seconds.

    Half of the files that we may open are not for those who call, or a journal could not be written any more.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = SPARE + peers if files == resource.RLIM_INFINITY else min(SPARE + peers, files // 2)
    return ("grpc.server_handshake_timeout_ms", int(1000 * patience)), ("grpc.max_allowed_incoming_connections", most)
