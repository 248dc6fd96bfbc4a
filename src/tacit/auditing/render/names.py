"""Real names of parties, in place of p0, p1, … by which a simulation knows them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_SIMULATED = re.compile(r"\bp(\d+)\b")
RUNNABLE = ("command", "asked")
"""Fields of an audit with command lines, which know the parties only as p0, p1, …"""


def name_parties(text: str, names: Sequence[str]) -> str:
    """Returns a text with the real names of parties; unchanged without names.

    Args:
        text: Text with names such as p0.
        names: The real names: that of p0, that of p1, and so on.

    >>> name_parties("p1 recovers the vectors of p0, p10", ["north", "south"])
    'south recovers the vectors of north, p10'
    """

    def find_name(found: re.Match[str]) -> str:
        place = int(found[1])
        return names[place] if place < len(names) else found[0]

    return _SIMULATED.sub(find_name, text) if names else text


def name_parties_in(data: Any, names: Sequence[str]) -> Any:
    """Returns plain data, such as an audit, with the real names of parties in all texts and keys.

    Commands keep p0, p1, …, so that they can be run again.

    >>> name_parties_in({"exposed": {"p0": 1}, "command": "tacit audit secagg --coalition p0"}, ["north"])
    {'exposed': {'north': 1}, 'command': 'tacit audit secagg --coalition p0'}
    """
    if not names:
        return data
    if isinstance(data, str):
        return name_parties(data, names)
    if isinstance(data, Mapping):
        return {
            name_parties(key, names): value if key in RUNNABLE else name_parties_in(value, names)
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [name_parties_in(each, names) for each in data]
    return data
