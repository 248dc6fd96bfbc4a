"""Execution of rounds between machines: the node, with its transport, store, membership and observability."""

import os

# Tacit logs connections itself, so gRPC's own messages are switched off. gRPC reads the variable when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
