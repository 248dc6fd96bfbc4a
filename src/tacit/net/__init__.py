"""Rounds between machines: the node, and what it needs to talk, remember, know its peers and be observed."""

import os

# Our own log lines report connections that come and go. gRPC reads this variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
