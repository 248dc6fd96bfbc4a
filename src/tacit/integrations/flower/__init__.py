"""Rounds on Flower: the state of its nodes, the router of their messages, the public API, and the auditor of apps.

Flower calls a client once for each message, each time perhaps in another process. So a `party` replays its round from a
journal at every call, as after a crash. The `router` decides which node is called next. The `driver` connects both to
Flower's messages, and `api` has what apps import. The server carries sealed messages that it cannot read.
"""
