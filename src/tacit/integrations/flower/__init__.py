"""Rounds on Flower: what its nodes keep between two messages, and what carries their mail.

A Flower client is called once for each message and may be another process every time. So a `party` says its round again
from a journal whenever it is called, as after a crash; a `router` says whose turn it is; and `app` is both of them in
Flower's own words. The server carries mail that it cannot read.
"""
