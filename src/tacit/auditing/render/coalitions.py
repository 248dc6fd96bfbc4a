"""Names of coalitions in sentences."""

from collections.abc import Sequence

from tacit.core.suite import ONLOOKER, SERVER, Party


def count_parties(count: int) -> str:
    """Returns how many of some parties are meant, whichever they are."""
    return "any one of them" if count == 1 else f"any {count} of them"


def name_coalition(coalition: Sequence[Party]) -> str:
    """Returns the name of a coalition in a sentence."""
    return join_members(coalition) + (" together" if len(coalition) > 1 else "")


def join_members(coalition: Sequence[Party]) -> str:
    """Returns the names of all members in a sentence."""
    names = {SERVER: "the server", ONLOOKER: "an eavesdropper on the links"}
    *members, last = [names.get(member, member) for member in coalition]
    return f"{', '.join(members)} and {last}" if members else last


def capitalize(text: str) -> str:
    """Returns a sentence with its first word capitalized, unless that is a party's name."""
    return f"{text[:1].upper()}{text[1:]}" if text.split(" ", 1)[0].isalpha() else text
