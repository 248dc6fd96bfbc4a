"""What the parties of a federation have agreed on, and how two that have not find out on what.

The session is a hash of all of it. Channel keys are derived from the session, so parties that disagree on anything
cannot read a word of each other's. A party that hears from a peer of another session answers with a signed greeting,
which says what it holds to be agreed, and each of the two can then name the first thing that differs. A greeting
answers one session and round of its receiver's, so that an old one says nothing in a new session.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.link import framed
from tacit.core.messages import GREETING, MAX_GREETING, MAX_MESSAGE, MAX_NAME, SESSION_BYTES, Address, Codec, Greeting
from tacit.core.protocol import Protocol, Settings, Terms, Unset
from tacit.core.suite import ONLOOKER, SERVER, Parties, Party, Suite
from tacit.core.values import spelled_out, typed, unfit
from tacit.crypto.keys import Roster
from tacit.protocols import find
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.ring_limits import ring_problems

VERSION = 4
"""Of everything that is sent. Releases that do not understand each other have different ones."""
RING = ("bits", "clip", "max_weight", "noise", "norm")
"""Settings of the ring, which says itself what is wrong with them."""
SELECTED = ("include", "exclude")
"""Settings that say what is averaged of a model."""
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
        settings = spelled_out(self.settings)
        for name in SELECTED:
            # Where nothing is selected, sessions are those of releases that could not select.
            if settings[name] == spelled_out(getattr(Settings(), name)):
                del settings[name]
        return {
            "version": VERSION,
            "protocol": self.protocol.name,
            "parties": list(self.everyone),
            "entries": self.entries,
            **settings,
            "keys": [self.roster[party].fingerprint for party in self.everyone],
            "nonce": self.nonce.hex(),
        }

    @cached_property
    def session(self) -> bytes:
        """The hash of all that was agreed."""
        keys = [part for member in self.roster.values() for part in (member.verify_key, member.channel_key)]
        text = _written(self.described)
        return hashlib.sha256(framed(b"tacit/v3/session", text, *keys)).digest()[:SESSION_BYTES]

    def ring(self, bits: int | None = None) -> FixedPoint:
        """Returns the ring for the vectors.

        For those who look for more than was agreed on it has so many bits, and nothing is done to vectors in it: there
        is no noise, they may be of any length, and are rounded to the nearest step.
        """
        settings, terms = self.settings, self.terms
        if bits not in self._rings:
            more: dict[str, Any] = {}
            if bits is None:
                more = {"noise": settings.noise, "norm": settings.norm, "stochastic": settings.stochastic}
            self._rings[bits] = FixedPoint(
                bits or settings.bits,
                terms.span,
                terms.summands,
                self.entries,
                settings.max_weight,
                alone=terms.alone,
                **more,
            )
        return self._rings[bits].fresh()

    @cached_property
    def _rings(self) -> dict[int | None, FixedPoint]:
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

    @cached_property
    def _told(self) -> bytes:
        """What greetings say: all that was agreed, with digests of what is longest in it if there is too much."""
        told = dict(self.described)
        for name in sorted(told, key=lambda name: len(_written(told[name])), reverse=True):
            if len(_written(told)) <= MAX_GREETING - 1024:  # which leaves room for two addresses and a signature
                break
            told[name] = _digest(told[name])
        return _written(told)

    def greeting(self, suite: Suite, number: int, heard: Address) -> Greeting:
        """Returns what tells whoever was heard, in a round of ours, on what it disagrees with us."""
        address = Address(self.session, number, 0, GREETING, suite.me, heard.sender)
        greeting = Greeting(address, heard.session, heard.round, self._told, b"")
        return msgspec.structs.replace(greeting, signature=suite.sign(_statement(greeting)))

    def difference(self, suite: Suite, greeting: Greeting) -> str | None:
        """Returns, in words, the first thing on which the sender of a greeting disagrees; None if there is none.

        Raises PeerFault if it is not the sender's.
        """
        sender = greeting.address.sender
        suite.verify(sender, _statement(greeting), greeting.signature)
        try:
            theirs = msgspec.json.decode(greeting.agreed, type=dict[str, Any])
            if _written(theirs) == greeting.agreed:
                return first_difference(self.described, theirs, sender)
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass
        return "what it holds to be agreed cannot be read"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Terms are bound anew: they hold what cannot be pickled, and follow from the rest.
        return _agreed, (self.protocol.name, self.settings, tuple(self.parties), self.roster, self.entries, self.nonce)


def _statement(greeting: Greeting) -> bytes:
    """Returns what a greeting is signed for: everything else that it says."""
    return framed(b"tacit/v3/greeting", msgspec.msgpack.encode(msgspec.structs.replace(greeting, signature=b"")))


def _written(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _digest(value: Any) -> str:
    return f"sha256 {hashlib.sha256(_written(value)).hexdigest()}"


def _agreed(
    protocol: str, settings: Settings, parties: Sequence[Party], roster: Roster, entries: int, nonce: bytes
) -> Agreement:
    return Agreement(find(protocol), settings, settings.bind(Parties(parties)), roster, entries, nonce)


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], who: Party) -> str | None:
    """Returns the first of our entries that is another with somebody else, or is written otherwise, in words."""
    nothing = "nothing"
    for name in (*ours, *(name for name in theirs if name not in ours)):
        here, there = ours.get(name, nothing), theirs.get(name, nothing)
        if _written(here) == _written(there) or there == _digest(here):
            continue
        if name == "nonce":
            return f"{who} is in another session of the same federation; join the same one"
        what = _short(name)
        if isinstance(here, list) and isinstance(there, list):
            pairs = enumerate(zip(here, there, strict=False))
            place = next((i for i, (a, b) in pairs if _written(a) != _written(b)), None)
            if place is None:
                what, here, there = f"the number of {what}", len(here), len(there)
            else:
                what = f"the key of {ours['parties'][place]}" if name == "keys" else f"{what}[{place}]"
                here, there = here[place], there[place]
        return f"{what} is {_short(there)} at {who} and {_short(here)} here"
    return None


def _short(value: Any) -> str:
    """Returns a value as a few letters that print on one line, whoever wrote it."""
    text = value if isinstance(value, str) else _written(value).decode()
    shown = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text[: SHOWN + 1]])
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"


# --- how to agree --------------------------------------------------------------------------------------------------


def terms_for(
    protocol: Protocol,
    parties: Sequence[Party],
    options: Mapping[str, Any],
    problems: Sequence[str] = (),
    beside: Collection[str] = (),
) -> Terms:
    """Returns the settings that some options stand for, bound to some parties.

    Raises ConfigError with every problem, those found before included, and LeakRefused. What else the caller takes
    `beside` options is suggested in the place of those that there are not.
    """
    found = [*problems, *name_problems(parties)]
    # The ring's own settings are looked at as given, so that they are reported beside the protocol's problems.
    ring = {name: options.get(name, getattr(Settings(), name)) for name in RING}
    wrong = ring_problems(ring["bits"], ring["clip"], 1, ring["max_weight"], noise=ring["noise"], norm=ring["norm"])
    sound = {name: value for name, value in options.items() if name not in RING} if wrong else options
    found += wrong
    try:
        settings = protocol.settings_from(sound, beside)
    except Unset as error:
        found += error.problems
        settings = error.settings
    try:
        terms = settings.bind(Parties(parties))
    except ConfigError as error:
        raise ConfigError(dict.fromkeys([*found, *error.problems])) from None
    if not found:
        found += ring_problems(
            settings.bits, terms.span, terms.summands, noise=settings.noise, part=terms.part, alone=terms.alone
        )
    if found:
        raise ConfigError(dict.fromkeys(found))
    leaks = terms.leaks()
    if leaks and not settings.allow_leaks:
        raise LeakRefused(f"{'; '.join(leaks)}; or pass allow_leaks=True to go on knowingly")
    return terms


def agree(protocol: Protocol, terms: Terms, roster: Roster, entries: int, nonce: bytes) -> Agreement:
    """Returns an agreement on terms.

    Raises ConfigError for another roster, for keys that nobody can use, and for vectors that do not fit a message.
    """
    everyone, bits = protocol.everyone(terms.parties), terms.settings.bits
    if entries * bits // 8 > MAX_MESSAGE:
        raise ConfigError(f"{entries} entries of {bits} bits do not fit a message of {MAX_MESSAGE} bytes")
    if tuple(roster) != everyone:
        raise ConfigError(f"the roster has {', '.join(roster)}, but the protocol is between {', '.join(everyone)}")
    if problems := [problem for member in roster.values() for problem in member.problems()]:
        raise ConfigError(problems)
    try:
        settings = typed(terms.settings, type(terms.settings))
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {unfit(error)}") from None
    return Agreement(protocol, settings, terms, roster, entries, nonce)


def name_problems(parties: Sequence[Party]) -> list[str]:
    """Returns what is wrong with the names of parties."""
    problems = []
    times = Counter(parties)
    for party in times:
        if (
            not isinstance(party, str)
            or not 1 <= len(party.encode(errors="replace")) <= MAX_NAME
            or not party.isprintable()
        ):
            problems.append(f"{party!r} is no name: a name is text of 1 to {MAX_NAME} bytes that prints on one line")
        elif party in (SERVER, ONLOOKER):
            who = "the server" if party == SERVER else "whoever listens, in audits"
            problems.append(f"{party!r} is the name of {who}; call the party something else")
        if times[party] > 1:
            problems.append(f"{times[party]} parties are called {party!r}; names must differ")
    return problems
