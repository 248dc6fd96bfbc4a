"""Federations between machines: who is in them, and what carries their rounds."""

import os

# What grpc has to say of connections that come and go is told by lines, in words; it reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
