"""Rounds on Flower: the state of its nodes, the router of their messages, the public API, and the auditor of apps.

Flower calls a client once for each message, and may use a new process each time. So a `party` replays its round from a
journal at every call, as after a crash. The `router` decides which node is called next. The `driver` connects parties
to Flower's messages, the `averaging_grid` the router, and `api` contains what apps import. The server carries sealed
messages that it cannot read.
"""
