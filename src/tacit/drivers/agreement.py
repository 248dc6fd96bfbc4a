"""What the parties of a federation have agreed on, and how two that have not find out on what.

The session is a hash of all of it. Channel keys are derived from the session, so parties that disagree on anything
cannot read a word of each other's. A party that hears from a peer of another session answers with a signed greeting,
which says what it holds to be agreed, and each of the two can then name the first thing that differs.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.link import framed
from tacit.core.messages import MAX_MESSAGE, MAX_NAME, SESSION_BYTES, Codec, Greeting
from tacit.core.protocol import Protocol, Settings, Terms, Unset
from tacit.core.suite import SERVER, Parties, Party, Suite
from tacit.crypto.keys import Roster
from tacit.protocols import find
from tacit.vectors.fixedpoint import FixedPoint

VERSION = 2
"""Of everything that is sent. Releases that do not understand each other have different ones."""
RING = ("bits", "clip", "max_weight")
"""Settings of the ring, which says itself what is wrong with them."""
SHOWN = 60
"""Letters of a value that are shown where two differ."""


@dataclass(frozen=True)
class Agreement:
    """A roster, a protocol with its settings, the length of the vectors, and a nonce that no other session has."""

    protocol: Protocol
    settings: Settings
    terms: Terms
    roster: Roster
    entries: int
    nonce: bytes

    @property
    def parties(self) -> Parties:
        """Those who bring vectors."""
        return self.terms.parties

    @property
    def everyone(self) -> tuple[Party, ...]:
        """The parties and, if there is one, the server."""
        return self.protocol.everyone(self.parties)

    @cached_property
    def described(self) -> dict[str, Any]:
        """All that was agreed, in plain words, in the order in which differences are named."""
        return {
            "version": VERSION,
            "protocol": self.protocol.name,
            "parties": list(self.everyone),
            "entries": self.entries,
            **_spelled_out(self.settings),
            **{f"the key of {party}": self.roster[party].fingerprint for party in self.everyone},
            "nonce": self.nonce.hex(),
        }

    @cached_property
    def session(self) -> bytes:
        """The hash of all that was agreed."""
        keys = [part for member in self.roster.values() for part in (member.verify_key, member.channel_key)]
        text = msgspec.json.encode(self.described)
        return hashlib.sha256(framed(b"tacit/v2/session", text, *keys)).digest()[:SESSION_BYTES]

    def ring(self, bits: int | None = None) -> FixedPoint:
        """Returns a ring for the vectors; of more bits than were agreed for those who look for rounding errors."""
        settings, terms = self.settings, self.terms
        size = bits or settings.bits
        if size not in self._rings:
            self._rings[size] = FixedPoint(size, terms.span, terms.summands, self.entries, settings.max_weight)
        return self._rings[size].fresh()

    @cached_property
    def _rings(self) -> dict[int, FixedPoint]:
        return {}

    @cached_property
    def _codecs(self) -> dict[int, Codec]:
        return {}

    def codec(self, length: int) -> Codec:
        """Returns what reads and writes messages, for encoded vectors of that length."""
        if length not in self._codecs:
            self._codecs[length] = Codec(self.protocol.messages, len(self.parties), length)
        return self._codecs[length]

    # --- greetings -------------------------------------------------------------------------------------------------

    def greeting(self, suite: Suite, to: Party) -> bytes:
        """Returns what tells a peer on what it disagrees with us."""
        agreed = msgspec.json.encode(self.described)
        return msgspec.msgpack.encode(Greeting(suite.me, to, agreed, suite.sign(_statement(suite.me, to, agreed))))

    def difference(self, suite: Suite, greeting: Greeting) -> str | None:
        """Returns, in words, the first thing on which the sender of a greeting disagrees; None if there is none.

        Raises PeerFault if it is not the sender's.
        """
        statement = _statement(greeting.sender, greeting.to, greeting.agreed)
        suite.verify(greeting.sender, statement, greeting.signature)
        try:
            theirs = msgspec.json.decode(greeting.agreed, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "what it holds to be agreed cannot be read"
        return first_difference(self.described, theirs, greeting.sender)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Terms are bound anew: they hold what cannot be pickled, and follow from the rest.
        return _agreed, (self.protocol.name, self.settings, tuple(self.parties), self.roster, self.entries, self.nonce)


def _spelled_out(value: Any) -> Any:
    """Returns a setting as JSON has it, with nothing left out, so that equal settings are always spelled alike."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        kind = {} if config.tag_field is None else {config.tag_field: config.tag}
        return kind | {name: _spelled_out(getattr(value, name)) for name in value.__struct_fields__}
    return [_spelled_out(each) for each in value] if isinstance(value, tuple) else value


def _statement(sender: Party, to: Party, agreed: bytes) -> bytes:
    return framed(b"tacit/v2/greeting", sender.encode(), to.encode(), agreed)


def _agreed(
    protocol: str, settings: Settings, parties: Sequence[Party], roster: Roster, entries: int, nonce: bytes
) -> Agreement:
    return Agreement(find(protocol), settings, settings.bind(Parties(parties)), roster, entries, nonce)


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], who: Party) -> str | None:
    """Returns the first of our entries that is another with somebody else, in words."""
    nothing = "nothing"
    for name in (*ours, *(name for name in theirs if name not in ours)):
        here, there = ours.get(name, nothing), theirs.get(name, nothing)
        if here == there:
            continue
        if name == "nonce":
            return f"{who} is in another session of the same federation; join the same one"
        if isinstance(here, list) and isinstance(there, list):
            place = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if place is not None:
                name, here, there = f"{name}[{place}]", here[place], there[place]
            else:
                name, here, there = f"the number of {name}", len(here), len(there)
        return f"{name} is {_short(there)} at {who} and {_short(here)} here"
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


# --- how to agree --------------------------------------------------------------------------------------------------


def terms_for(
    protocol: Protocol, parties: Sequence[Party], options: Mapping[str, Any], problems: Sequence[str] = ()
) -> Terms:
    """Returns the settings that some options stand for, bound to some parties.

    Raises ConfigError with every problem, those found before included, and LeakRefused.
    """
    found = [*problems, *name_problems(parties)]
    # The ring's own settings are looked at as given, so that they are reported beside the protocol's problems.
    ring = {name: options.get(name, getattr(Settings(), name)) for name in RING}
    wrong = FixedPoint.problems(ring["bits"], ring["clip"], 1, ring["max_weight"])
    sound = {name: value for name, value in options.items() if name not in RING} if wrong else options
    found += wrong
    try:
        settings = protocol.settings_from(sound)
    except Unset as error:
        found += error.problems
        settings = error.settings
    try:
        terms = settings.bind(Parties(parties))
    except ConfigError as error:
        raise ConfigError(dict.fromkeys([*found, *error.problems])) from None
    if not found:
        found += FixedPoint.problems(settings.bits, terms.span, terms.summands)
    if found:
        raise ConfigError(dict.fromkeys(found))
    leaks = terms.leaks()
    if leaks and not settings.allow_leaks:
        raise LeakRefused(f"{'; '.join(leaks)}; or pass allow_leaks=True to go on knowingly")
    return terms


def agree(protocol: Protocol, terms: Terms, roster: Roster, entries: int, nonce: bytes) -> Agreement:
    """Returns an agreement on terms; raises ConfigError for another roster, or vectors that do not fit a message."""
    everyone, bits = protocol.everyone(terms.parties), terms.settings.bits
    if entries * bits // 8 > MAX_MESSAGE:
        raise ConfigError(f"{entries} entries of {bits} bits do not fit a message of {MAX_MESSAGE} bytes")
    if tuple(roster) != everyone:
        raise ConfigError(f"the roster has {', '.join(roster)}, but the protocol is between {', '.join(everyone)}")
    return Agreement(protocol, terms.settings, terms, roster, entries, nonce)


def name_problems(parties: Sequence[Party]) -> list[str]:
    """Returns what is wrong with the names of parties."""
    problems = []
    times = Counter(parties)
    for party in times:
        if (
            not isinstance(party, str)
            or not 1 <= len(party.encode(errors="replace")) <= MAX_NAME
            or not _is_text(party)
        ):
            problems.append(f"{party!r} is no name: a name is text of 1 to {MAX_NAME} bytes")
        elif party == SERVER:
            problems.append(f"{SERVER!r} is the name of the server; call the party something else")
        if times[party] > 1:
            problems.append(f"{times[party]} parties are called {party!r}; names must differ")
    return problems


def _is_text(name: str) -> bool:
    return name.encode(errors="ignore").decode() == name  # lone surrogates have no bytes
