"""Agreement of a federation's parties, and greetings by which two parties find out how their agreements differ.

The session is a hash of the whole agreement. Channel keys are derived from the session, so parties whose agreements
differ cannot read each other's messages. A party that receives a message of another session answers with a signed
greeting, which contains its own agreement. Each of the two can then name the first difference. A greeting answers one
session and round of its receiver, so an old greeting has no effect in a new session.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from tacit.core.errors import OPT_IN, ConfigError, LeakRefused
from tacit.core.link import frame_parts
from tacit.core.messages import GREETING, MAX_GREETING, MAX_MESSAGE, MAX_NAME, SESSION_BYTES, Address, Codec, Greeting
from tacit.core.protocol import Protocol, Settings, Terms, Unset
from tacit.core.suite import ONLOOKER, SERVER, Parties, Party, Suite
from tacit.core.values import convert_value, describe_mismatch, normalize_value
from tacit.crypto.keys import Roster
from tacit.protocols import find
from tacit.vectors.fixedpoint import FixedPoint
from tacit.vectors.ring_limits import ring_problems

VERSION = 4
"""Version of an agreement, which is part of every session."""
RING = ("bits", "clip", "max_weight", "noise", "norm")
"""Settings of the ring, which the ring validates itself."""
SELECTED = ("include", "exclude")
"""Settings that select the arrays of a model to average."""
SHOWN = 60
"""Most characters of a value that the description of a difference shows."""


@dataclass(frozen=True)
class Agreement:
    """Everything that all parties agree on: roster, protocol, settings, length of the vectors, and a unique nonce."""

    protocol: Protocol
    settings: Settings
    terms: Terms
    roster: Roster
    entries: int
    nonce: bytes

    @property
    def parties(self) -> Parties:
        """Parties that contribute vectors."""
        return self.terms.parties

    @property
    def everyone(self) -> tuple[Party, ...]:
        """The parties and, if there is one, the server."""
        return self.protocol.everyone(self.parties)

    @cached_property
    def described(self) -> dict[str, Any]:
        """The whole agreement as plain data, in the order in which differences are named."""
        settings = normalize_value(self.settings)
        for name in SELECTED:
            # A default selection is left out, so that sessions equal those of releases without these settings.
            if settings[name] == normalize_value(getattr(Settings(), name)):
                del settings[name]
        return {
            "version": VERSION,
            "protocol": self.protocol.name,
            # Version 1 is left out, so that sessions equal those of releases without such versions.
            **({} if self.protocol.version == 1 else {"version of the protocol": self.protocol.version}),
            # Two versions of a plug-in may behave differently. A shipped protocol has the version of its messages.
            **({} if self.protocol.origin is None else {"package of the protocol": str(self.protocol.origin)}),
            "parties": list(self.everyone),
            "entries": self.entries,
            **settings,
            "keys": [self.roster[party].fingerprint for party in self.everyone],
            "nonce": self.nonce.hex(),
        }

    @cached_property
    def session(self) -> bytes:
        """The hash of the whole agreement."""
        keys = [part for member in self.roster.values() for part in (member.verify_key, member.channel_key)]
        text = _encode_json(self.described)
        return hashlib.sha256(frame_parts(b"tacit/v3/session", text, *keys)).digest()[:SESSION_BYTES]

    def ring(self, bits: int | None = None) -> FixedPoint:
        """Returns the ring for the vectors.

        Audits pass `bits`: the ring then has that many bits and leaves vectors unchanged. It has no noise and no bound
        on their norm, and rounds to the nearest step.
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
        """Returns the codec of messages with encoded vectors of that length."""
        if length not in self._codecs:
            self._codecs[length] = Codec(self.protocol.messages, len(self.parties), length)
        return self._codecs[length]

    # --- greetings -------------------------------------------------------------------------------------------------

    @cached_property
    def _greeting_text(self) -> bytes:
        """Text of greetings: the whole agreement. If it is too long, digests replace its longest values."""
        text = dict(self.described)
        for name in sorted(text, key=lambda name: len(_encode_json(text[name])), reverse=True):
            if len(_encode_json(text)) <= MAX_GREETING - 1024:  # the rest is for two addresses and a signature
                break
            text[name] = _digest(text[name])
        return _encode_json(text)

    def greeting(self, suite: Suite, number: int, heard: Address) -> Greeting:
        """Returns a greeting, sent in round `number`, to the sender of a message of another session."""
        address = Address(self.session, number, 0, GREETING, suite.me, heard.sender)
        greeting = Greeting(address, heard.session, heard.round, self._greeting_text, b"")
        return msgspec.structs.replace(greeting, signature=suite.sign(_statement(greeting)))

    def difference(self, suite: Suite, greeting: Greeting) -> str | None:
        """Returns a description of the first difference to the agreement in a greeting; None if they are equal.

        Raises PeerFault if the signature is not the sender's.
        """
        sender = greeting.address.sender
        suite.verify(sender, _statement(greeting), greeting.signature)
        try:
            theirs = msgspec.json.decode(greeting.agreed, type=dict[str, Any])
            if _encode_json(theirs) == greeting.agreed:
                return first_difference(self.described, theirs, sender)
        except (msgspec.DecodeError, ValueError, RecursionError):
            pass
        return "its agreement cannot be read"

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Terms cannot be pickled. They are computed again from the other fields.
        return _rebuild_agreement, (
            self.protocol.name,
            self.settings,
            tuple(self.parties),
            self.roster,
            self.entries,
            self.nonce,
        )


def _statement(greeting: Greeting) -> bytes:
    """Returns the signed statement of a greeting: all its other fields."""
    return frame_parts(b"tacit/v3/greeting", msgspec.msgpack.encode(msgspec.structs.replace(greeting, signature=b"")))


def _encode_json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _digest(value: Any) -> str:
    return f"sha256 {hashlib.sha256(_encode_json(value)).hexdigest()}"


def _rebuild_agreement(
    protocol: str, settings: Settings, parties: Sequence[Party], roster: Roster, entries: int, nonce: bytes
) -> Agreement:
    return Agreement(find(protocol), settings, settings.bind(Parties(parties)), roster, entries, nonce)


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any], who: Party) -> str | None:
    """Returns a description of the first entry in which two agreements differ; None if they are equal."""
    nothing = "nothing"
    for name in (*ours, *(name for name in theirs if name not in ours)):
        here, there = ours.get(name, nothing), theirs.get(name, nothing)
        if _encode_json(here) == _encode_json(there) or there == _digest(here):
            continue
        if name == "nonce":
            return f"{who} is in another session of the same federation; try: join the same one"
        what = _shorten(name)
        if isinstance(here, list) and isinstance(there, list):
            pairs = enumerate(zip(here, there, strict=False))
            place = next((i for i, (a, b) in pairs if _encode_json(a) != _encode_json(b)), None)
            if place is None:
                what, here, there = f"the number of {what}", len(here), len(there)
            else:
                what = f"the key of {ours['parties'][place]}" if name == "keys" else f"{what}[{place}]"
                here, there = here[place], there[place]
        return f"{what} is {_shorten(there)} at {who} and {_shorten(here)} here"
    return None


def _shorten(value: Any) -> str:
    """Returns a value, which another party may have written, as a short printable line."""
    text = value if isinstance(value, str) else _encode_json(value).decode()
    shown = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text[: SHOWN + 1]])
    return shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 1]}…"


# --- making an agreement -------------------------------------------------------------------------------------------


def terms_for(
    protocol: Protocol,
    parties: Sequence[Party],
    options: Mapping[str, Any],
    problems: Sequence[str] = (),
    beside: Collection[str] = (),
) -> Terms:
    """Returns the terms of some options and parties.

    Args:
        protocol: The protocol.
        parties: The names of the parties.
        options: The options, by name.
        problems: Problems found before, to report together with the new ones.
        beside: Names of other options that the caller accepts. They are suggested for a misspelt name too.

    Raises:
        ConfigError: The options cannot be used. It lists every problem.
        LeakRefused: The terms would expose a single vector.
    """
    found = [*problems, *name_problems(parties)]
    # The ring's settings are validated separately, so that they are reported together with the protocol's problems.
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
        raise LeakRefused("; ".join(leaks), detail=OPT_IN)
    return terms


def agree(protocol: Protocol, terms: Terms, roster: Roster, entries: int, nonce: bytes) -> Agreement:
    """Returns an agreement on some terms.

    Raises ConfigError if the roster has other parties, if keys are unusable, or if vectors do not fit a message.
    """
    everyone, bits = protocol.everyone(terms.parties), terms.settings.bits
    if entries * bits // 8 > MAX_MESSAGE:
        raise ConfigError(f"{entries} entries of {bits} bits do not fit a message of {MAX_MESSAGE} bytes")
    if tuple(roster) != everyone:
        raise ConfigError(f"the roster has {', '.join(roster)}, but the protocol is between {', '.join(everyone)}")
    if problems := [problem for member in roster.values() for problem in member.problems()]:
        raise ConfigError(problems)
    try:
        settings = convert_value(terms.settings, type(terms.settings))
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {describe_mismatch(error)}") from None
    return Agreement(protocol, settings, terms, roster, entries, nonce)


def name_problems(parties: Sequence[Party]) -> list[str]:
    """Returns the problems of party names."""
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
            problems.append(f"{party!r} is the name of {who}; try: call the party something else")
        if times[party] > 1:
            problems.append(f"{times[party]} parties are called {party!r}; names must differ")
    return problems
