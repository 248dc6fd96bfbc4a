"""Roles whose messages are changed before they are sent."""

from dataclasses import replace

from tacit.core.link import Send


def rewrite_messages(run, change):
    """Runs a coroutine, and changes every message that it sends."""
    answer = None
    while True:
        try:
            effect = run.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(effect, Send):
            effect = replace(effect, message=change(effect.message, effect.to))
        answer = yield effect
