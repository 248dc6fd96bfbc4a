"""Exchange of messages with Flower nodes: one message to each, and their answers as soon as they are there.

`send_and_receive` of a deployed Flower looks for answers every three seconds. A round has several hops, so here the
waits begin short, and grow with the time that the nodes take.
"""

from collections.abc import Iterable
from time import monotonic, sleep

from flwr.app import Message
from flwr.serverapp import Grid

SHORTEST, LONGEST, SHARE = 0.1, 2.0, 0.05
"""Seconds of the shortest and the longest wait, and the wait as a share of the time since the messages were sent."""


def exchange_messages(grid: Grid, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
    """Sends messages to nodes, and returns the answers.

    Args:
        grid: The grid that carries the messages.
        messages: At most one message for each node.
        timeout: Seconds to wait for answers; without one, until every node has answered.

    Returns:
        The answers that have arrived, in the order of the messages. Those that Flower did not accept have none.
    """
    asked = list(messages)
    if not asked:
        return []
    began = monotonic()
    numbers = [each for each in grid.push_messages(asked) if each is not None]
    answers: dict[str, Message] = {}
    while waiting := set(numbers) - answers.keys():
        answers |= {each.metadata.reply_to_message_id: each for each in grid.pull_messages(waiting)}
        spent = monotonic() - began
        if len(answers) == len(numbers) or (timeout is not None and spent >= timeout):
            break
        sleep(min(max(SHORTEST, SHARE * spent), LONGEST))
    return [answers[number] for number in numbers if number in answers]
