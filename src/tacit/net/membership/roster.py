"""Roster of a federation: a file with its parties and terms, of which every party has the same copy.

The file contains no secrets. It has the address and public keys of every party, and the agreed settings. It is the only
file that parties have to receive unchanged.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from tacit.core.config_file import ConfigSource, Place, Problem, Section, format_toml
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.messages import MAX_NAME
from tacit.core.protocol import Protocol, Terms
from tacit.core.suite import SERVER, Party
from tacit.crypto.keys import Roster
from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import Card, Credentials, host_and_port
from tacit.net.membership.roster_signature import (
    NO_QUORUM,
    RosterSignature,
    quorum_problems,
    required_signatures,
    state,
)
from tacit.net.membership.routes import find_separated
from tacit.protocols import find
from tacit.runtime.agreement import Agreement, agree, terms_for
from tacit.runtime.atomic_files import replace_file

NONCE_BYTES = 16
HEADER = """\
# Everybody in the federation has the same copy of this file. There is nothing secret in it.
# After a change by hand: tacit roster renew
"""

LAST_REVISION = (1 << 53) - 1
LONGEST = 30 * 24 * 3600
"""Longest deadline, in seconds."""


class Deadlines(Section, frozen=True, kw_only=True):
    """Timeouts in seconds. Each party may have its own."""

    newer: ClassVar[frozenset[str]] = frozenset({"certificate"})

    phase: float = 30.0
    """For messages of one phase of a round."""
    start: float = 600.0
    """For peers before a round. After it, the round begins without the missing ones, if the protocol allows that."""
    connect: float = 10.0
    """For establishing a connection."""
    certificate: float = 86400.0
    """Lifetime of a TLS certificate that this party issues to itself. At half of it the party issues the next one."""


class RosterFile(Section, frozen=True, kw_only=True, dict=True):
    """A federation: its name, its protocol and settings, and the card of every party."""

    newer: ClassVar[frozenset[str]] = frozenset({"revision", "quorum"})

    federation: str
    nonce: str = ""
    """A random number in hex that is unique to the session. Every change of the roster samples a new one."""
    protocol: str
    adversary: int = 1
    """Number of parties that may collude, for the audit before anything is sent."""
    revision: int = 0
    """Number of changes so far. It is 0 in files of release 0.2."""
    quorum: int | str = NO_QUORUM
    """Number of parties that must sign the next revision: a number, "all", "all-but-one" or "none"."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """Settings of the protocol."""
    deadlines: Deadlines = Deadlines()
    parties: tuple[Card, ...] = ()
    """In the order in which rounds have them. One that is called "server" is the server."""
    signatures: tuple[RosterSignature, ...] = ()
    """Signatures of this revision."""
    relays: tuple[Card, ...] = ()
    """Machines that pass sealed messages on, and take part in no round."""

    @classmethod
    def new(
        cls,
        federation: str,
        protocol: str,
        settings: dict[str, Any],
        entropy: Entropy,
        parties: Iterable[Card] = (),
        quorum: int | str = NO_QUORUM,
    ) -> "RosterFile":
        """Returns a roster, which may have no parties yet; raises ConfigError with every problem.

        Args:
            federation: Name of the federation.
            protocol: Name of the protocol.
            settings: Settings of the protocol.
            entropy: Source of the nonce of the session.
            parties: Cards of the parties.
            quorum: The parties that must sign a new revision.
        """
        made = cls(federation=federation, protocol=protocol, settings=settings, parties=tuple(parties), quorum=quorum)
        return _validate(made.renew(entropy))

    @classmethod
    def load(cls, path: str | Path) -> "RosterFile":
        """Returns a complete roster from a file.

        Raises ConfigError with every problem and everything that is missing, each with its line. Raises LeakRefused if
        its settings would expose a single vector, as far as that is known without an audit.
        """
        source = ConfigSource.load(path)
        made = cls._read_draft(source, None)
        try:
            made.check_routes()  # which binds the terms, so that what cannot be bound is told with its line
        except ConfigError as error:
            raise source.error(
                (_locate_problem(made.settings, problem), problem) for problem in error.problems
            ) from None
        return made

    @classmethod
    def draft(cls, path: str | Path, leaving: Party | None = None) -> "RosterFile":
        """Returns a roster from a file, in which parties may still be missing.

        Raises ConfigError with every problem of its content. Problems with the card of `leaving` are ignored, because
        that card is about to be removed or replaced.
        """
        return cls._read_draft(ConfigSource.load(path), leaving)

    @classmethod
    def _read_draft(cls, source: ConfigSource, leaving: Party | None) -> "RosterFile":
        made, problems = source.read(cls)
        if made is not None:
            theirs = [place for place, card in made.placed_cards() if card.name == leaving]
            problems += [(place, problem) for place, problem in made.problems() if place[:2] not in theirs]
        if made is None or problems:
            raise source.error(problems)
        return made

    def save(self, path: Path) -> None:
        """Writes the roster atomically."""
        try:
            replace_file(path, (HEADER + format_toml(self)).encode(), private=False)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from None

    # --- what rounds need ------------------------------------------------------------------------------------------

    @property
    def entry(self) -> Protocol:
        """The protocol."""
        return find(self.protocol)

    @property
    def names(self) -> tuple[Party, ...]:
        """Parties that contribute vectors, without the server."""
        return tuple([card.name for card in self.parties if card.name != SERVER])

    @cached_property
    def terms(self) -> Terms:
        """The terms that follow from the settings for the listed parties.

        Raises ConfigError with everything that is missing, and LeakRefused like `load`.
        """
        problems = []
        if not re.fullmatch(f"[0-9a-f]{{{2 * NONCE_BYTES}}}", self.nonce):
            problems.append(f"the nonce must be {2 * NONCE_BYTES} digits of hex; try: tacit roster renew")
        if self.entry.server is not None and SERVER not in self._cards:
            problems.append(f"{self.protocol} needs a server; try: add the card of one (tacit keygen {SERVER})")
        if self.adversary >= max(len(self.names), 2):
            problems.append(f"adversary={self.adversary} must be less than the {len(self.names)} parties")
        if self.required_signatures > max(len(self.parties), 1):
            problems.append(f"quorum={self.quorum} is more than the {len(self.parties)} parties that can sign")
        return terms_for(self.entry, self.names, self.settings, problems)

    def check_routes(self) -> None:
        """Raises ConfigError if two peers have no way to exchange messages, and what `terms` raises."""
        self.terms  # noqa: B018 (raises, whoever is on the roster)
        for one, other in find_separated(self):
            raise ConfigError(
                f"{one} and {other} only dial out, so neither reaches the other; try: put a relay on the roster (tacit "
                f"roster add federation.toml relay.card --relay), or give one of them an address (tacit card)"
            )

    @cached_property
    def members(self) -> Roster:
        """Public keys of all members: the parties, followed by the server if there is one."""
        return Roster([self.card_of(party).member for party in self.entry.everyone(self.names)])

    def agreement(self, entries: int) -> Agreement:
        """Returns the agreement for vectors of a length; raises ConfigError if they do not fit a message."""
        return agree(self.entry, self.terms, self.members, entries, bytes.fromhex(self.nonce))

    def card_of(self, party: Party) -> Card:
        """Returns a party's card; raises ConfigError if the party is not on the roster."""
        if party not in self._cards:
            there = ", ".join(self._cards) or "nobody"
            raise ConfigError(f"{party} is not on the roster of {self.federation}; there is {there}")
        return self._cards[party]

    def address_of(self, party: Party) -> str:
        """Returns a party's address, as host:port."""
        return self.card_of(party).address

    def certificate_of(self, party: Party) -> bytes:
        """Returns the certificate on a party's card, which it presents, or whose owner issues what it presents."""
        return self.card_of(party).anchor.pem

    def host_of(self, party: Party) -> str:
        """Returns the host name in a party's certificate."""
        return self.card_of(party).anchor.host

    def fingerprint_of(self, party: Party) -> str:
        """Returns a party's fingerprint, which people compare by telephone."""
        return self.card_of(party).fingerprint

    def check(self, mine: Credentials) -> None:
        """Raises ConfigError, with a remedy, unless the roster has exactly this identity."""
        if mine.name not in self._cards:
            raise ConfigError(
                f"{mine.name} is not on the roster of {self.federation}; try: ask its keeper to add the card, and take "
                f"the new federation.toml"
            )
        card = self._cards[mine.name]
        listed = card.verify_key, card.channel_key, card.certificate, (card.tls, card.tls_name)
        ours = mine.member.verify_key, mine.member.channel_key, mine.certificate, (mine.proof, mine.tls_name)
        what = ("signing key", "channel key", "certificate", "name in certificates")
        if others := [name for name, theirs, own in zip(what, listed, ours, strict=True) if theirs != own]:
            raise ConfigError(
                f"the roster of {self.federation} lists a different {', '.join(others)} for {mine.name} than "
                "this identity has; "
                f"try: take the newest federation.toml, or have the card replaced in it (tacit roster replace)"
            )

    # --- signatures ------------------------------------------------------------------------------------------------

    @property
    def required_signatures(self) -> int:
        """Number of parties of this roster that must sign the next revision; 0 if signatures do not count."""
        return required_signatures(self.quorum, len(self.parties))

    @property
    def is_signed(self) -> bool:
        """Whether the next revision counts by its signatures."""
        return self.required_signatures > 0

    @property
    def verify_keys(self) -> dict[Party, bytes]:
        """Keys of those whose signatures count: the parties and the server."""
        return {card.name: card.verify_key for card in self.parties}

    @cached_property
    def statement(self) -> bytes:
        """The statement that signatures cover: everything but the signatures, and the deadlines, which are local."""
        return state(self, {"signatures", "deadlines"})

    def sign(self, mine: Credentials) -> "RosterFile":
        """Returns the roster with one more signature."""
        return self.with_signatures([RosterSignature.create(mine.identity, self.statement)])

    def with_signatures(self, more: Iterable[RosterSignature]) -> "RosterFile":
        """Returns the roster with more signatures, at most one of each key."""
        signatures = {each.verify_key: each for each in (*self.signatures, *more)}
        return msgspec.structs.replace(self, signatures=tuple(signatures.values()))

    def signers(self, keys: Mapping[Party, bytes]) -> tuple[Party, ...]:
        """Returns those of some parties whose key has signed this revision."""
        signed = {each.verify_key for each in self.signatures if each.is_valid(self.statement)}
        return tuple([party for party, key in keys.items() if key in signed])

    # --- changes, each of which begins a new session ---------------------------------------------------------------

    def renew(self, entropy: Entropy) -> "RosterFile":
        """Returns the same roster for a new session, as the next revision, which nobody has signed."""
        nonce = entropy.bytes(NONCE_BYTES).hex()
        return msgspec.structs.replace(self, nonce=nonce, revision=self.revision + 1, signatures=())

    def add_party(self, card: Card, entropy: Entropy, *, is_relay: bool = False) -> "RosterFile":
        """Returns the roster with one more party, or relay, on it; raises ConfigError for one who cannot be."""
        if card.name in self._cards:
            raise ConfigError(f"{card.name} is on the roster already; try: tacit roster replace")
        if is_relay:
            return self._with_parties(self.parties, entropy, [*self.relays, card])
        return self._with_parties([*self.parties, card], entropy)

    def remove_party(self, party: Party, entropy: Entropy) -> "RosterFile":
        """Returns the roster without a party, which must be listed."""
        self.card_of(party)
        parties, relays = ([card for card in cards if card.name != party] for cards in (self.parties, self.relays))
        return self._with_parties(parties, entropy, relays)

    def replace_card(self, card: Card, entropy: Entropy) -> "RosterFile":
        """Returns the roster with another card for a listed party."""
        before = self.card_of(card.name)
        if card == before:
            raise ConfigError(f"the roster already has this card of {card.name}; nothing was changed")
        parties, relays = (
            [card if each is before else each for each in cards] for cards in (self.parties, self.relays)
        )
        return self._with_parties(parties, entropy, relays)

    def _with_parties(
        self, parties: Iterable[Card], entropy: Entropy, relays: Iterable[Card] | None = None
    ) -> "RosterFile":
        relays = self.relays if relays is None else tuple(relays)
        return _validate(msgspec.structs.replace(self.renew(entropy), parties=tuple(parties), relays=relays))

    # --- problems --------------------------------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Returns the reasons why no round can be run with this roster yet."""
        try:
            self.check_routes()
        except ConfigError as error:
            return list(error.problems)
        except LeakRefused as refused:
            return [str(refused)]
        return []

    def problems(self) -> list[Problem]:
        """Returns every problem of the roster, apart from missing parties."""
        found: list[Problem] = []
        if not 1 <= len(self.federation.encode(errors="replace")) <= MAX_NAME or not self.federation.isprintable():
            wanted = f"text of 1 to {MAX_NAME} bytes that prints on one line"
            found.append((("federation",), f"{self.federation!r} is no name: a name is {wanted}"))
        if self.adversary < 1:
            found.append((("adversary",), f"adversary={self.adversary} must be at least 1"))
        if not 0 <= self.revision <= LAST_REVISION:
            found.append((("revision",), f"revision={self.revision} must be from 0 to {LAST_REVISION}"))
        found += [(("quorum",), problem) for problem in quorum_problems(self.quorum)]
        for name in self.deadlines.__struct_fields__:
            if not 0 < (seconds := getattr(self.deadlines, name)) <= LONGEST:
                found.append(
                    (("deadlines", name), f"deadlines.{name}={seconds:g} must be above 0, and up to {LONGEST}")
                )
        return [*found, *self._problems_of_the_protocol(), *self._problems_of_parties()]

    def _problems_of_the_protocol(self) -> list[Problem]:
        try:
            protocol = self.entry
        except ConfigError as error:
            return [(("protocol",), problem) for problem in error.problems]
        found: list[Problem] = []
        try:
            protocol.settings_from(self.settings)
        except ConfigError as error:
            found += [(_locate_problem(self.settings, problem), problem) for problem in error.problems]
        if protocol.server is None and SERVER in self._cards:
            place = [card.name for card in self.parties].index(SERVER)
            found.append(
                (("parties", place), f"{self.protocol} has no server; try: leave it out (tacit roster remove)")
            )
        return found

    def _problems_of_parties(self) -> list[Problem]:
        found: list[Problem] = []
        seen: dict[tuple[str, Any], Party] = {}
        names: set[Party] = set()
        for place, card in self.placed_cards():
            wrong = card.problems()
            if not card.address and (card.name == SERVER or place[0] == "relays"):
                who = "the server" if card.name == SERVER else f"{card.name} is a relay and"
                cure = f"try: tacit card {card.name}.identity --address HOST:PORT"
                wrong.append((("address",), f"{who} needs an address, where the others dial it; {cure}"))
            if card.name == SERVER and place[0] == "relays":
                wrong.append((("name",), f"a relay cannot be called {SERVER!r}; try: make keys of another name for it"))
            found += [((*place, *where), problem) for where, problem in wrong]
            if card.name in names:
                found.append(((*place, "name"), f"{card.name!r} is there twice; try: leave one of them out"))
            if wrong or card.name in names:
                continue
            names.add(card.name)
            for what, value in (
                ("address", host_and_port(card.address) if card.address else card.name),
                ("verify_key", card.verify_key),
                ("channel_key", card.channel_key),
                # Parties of one organisation have one authority, and different names.
                ("certificate", (card.anchor.key, card.anchor.host)),
                *([("certificate", card.anchor.key)] if card.tls is not TlsProof.AUTHORITY else []),
            ):
                if (other := seen.setdefault((what, value), card.name)) == card.name:
                    continue
                said = f"{card.name} has the {what.replace('_', ' ')} of {other}; "
                cure = "another one: tacit card" if what == "address" else "keys of its own: tacit keygen"
                found.append(((*place, what), f"{said}one of them needs {cure}"))
        return found

    def placed_cards(self) -> list[tuple[Place, Card]]:
        """Returns all cards, each with its place in the file."""
        parties = [(("parties", number), card) for number, card in enumerate(self.parties)]
        return [*parties, *((("relays", number), card) for number, card in enumerate(self.relays))]

    @cached_property
    def _cards(self) -> dict[Party, Card]:
        return {card.name: card for card in (*self.parties, *self.relays)}


def _validate(roster: RosterFile) -> RosterFile:
    if problems := roster.problems():
        raise ConfigError([problem for _, problem in problems])
    return roster


def _locate_problem(settings: Mapping[str, Any], problem: str) -> Place:
    """Returns the path in the file of the first name that a problem mentions."""
    words = re.findall(r"\w+", problem)
    for word in words:
        if word in settings:
            return "settings", word
    return next(((word,) for word in words if word in ("nonce", "adversary")), ())
