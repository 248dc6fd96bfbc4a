"""A protocol: its coroutines, settings, terms and messages, and the hooks through which other code queries it.

Settings are what a user writes: plain and typed, with the same names in Python, TOML and JSON. Terms are what follows
from the settings for one roster. They are computed once, contain no open choice, and are passed to the coroutines.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from numpy.typing import NDArray

from tacit.core.average import Average, format_count
from tacit.core.entropy import Entropy
from tacit.core.errors import ConfigError, JournalError, OtherProtocol
from tacit.core.link import Effect, Link
from tacit.core.messages import Message
from tacit.core.protocol_facts import (
    Claim,
    CoalitionQuery,
    EntrySelection,
    ExchangePattern,
    ParticipationPolicy,
    PrivacyArgument,
    ProposedSettings,
    ReasonCode,
    Remedy,
    SecureSum,
    SelectionMatrix,
)
from tacit.core.state_blobs import attach_blobs, detach_blobs
from tacit.core.suite import SERVER, Buffer, Parties, Party, Ring, Suite, Update
from tacit.core.values import convert_value, describe_mismatch, normalize_value

PROTOCOL_API = 1
"""Version of the interface between protocols and the rest of Tacit. It changes when protocols have to be adapted."""
Run: TypeAlias = Coroutine[Effect, Any, Average]
Role: TypeAlias = Callable[..., Run]
"""A coroutine function: that of a party, which contributes an update, or that of a server."""
FARTHEST = 10.0
"""Largest sampled noise, in standard deviations. The ring also leaves headroom for this much noise of a sum."""
UNPROTECTED = (
    "the sum of weights is shown as it is, without noise; try: "
    "leave weights out, and multiply vectors by them beforehand"
)


def names_from(given: Any) -> Any:
    """Returns a list of names; a single name becomes a list of one."""
    return [given] if isinstance(given, str) else given


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings that every protocol has. All parties of a federation must use the same."""

    bits: int = 32
    """Ring Z_2^bits: 16, 32 or 64 bits per entry, in memory and on the wire."""
    clip: float = 32.0
    """Entries beyond ±clip are clipped and counted, and cause a warning."""
    max_weight: float = 1.0
    """The largest weight that a party may have."""
    weighted: bool = False
    """Whether parties have different weights. With a server they always may: its ring carries weights anyway."""
    noise: float = 0.0
    """Standard deviation of the noise that each party adds to every entry, in the ring and under its masks."""
    norm: float | None = None
    """Largest length (L2 norm) of a vector. Longer vectors are scaled down to it."""
    rounding: Literal["auto", "nearest", "stochastic"] = "auto"
    """Whether entries are rounded to the nearest step of the ring, or at random with the exact mean. "auto" is
    stochastic with 16 bits and nearest with more."""
    allow_leaks: bool = False
    """Whether to accept settings that expose a single party's vector."""
    include: tuple[str, ...] | None = None
    """The arrays of a model to average, by names or patterns such as "conv*"; all arrays of floats unless set."""
    exclude: tuple[str, ...] = ()
    """The arrays of a model to leave as they are, by names or patterns such as "head.*"."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"include": names_from, "exclude": names_from}
    """Functions that convert fields which may be written in several ways to the one that is stored."""
    editor_types: ClassVar[Mapping[str, str]] = {
        "bits": "Literal[16, 32, 64]",
        "include": "Sequence[str] | None",
        "exclude": "Sequence[str]",
    }
    """Types to show in editors, for fields that accept other values than their own type."""

    @property
    def stochastic(self) -> bool:
        """Whether entries are rounded at random."""
        return self.rounding == "stochastic" or (self.rounding == "auto" and self.bits == 16)

    @property
    def reach(self) -> float:
        """The largest magnitude of an entry together with its noise."""
        return self.clip + FARTHEST * self.noise

    def relative_weight(self, update: Update) -> float:
        """Returns an update's weight divided by `max_weight`; 1 if all parties have the same weight."""
        return update.weight / self.max_weight if self.weighted else 1.0

    def bind(self, parties: Parties) -> "Terms":
        """Returns the terms for these parties; raises ConfigError with every problem."""
        if problems := self.problems(parties):
            raise ConfigError(problems)
        return Terms(self, parties)

    def problems(self, parties: Parties) -> list[str]:
        """Returns the problems of these settings for these parties that need no further computation to find."""
        problems = [] if len(parties) >= 2 else [f"an average needs at least 2 parties, not {len(parties)}"]
        if self.noise and self.weighted:
            problems.append(f"weighted=True does not go with noise={self.noise:g}: {UNPROTECTED}")
        return problems

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns the option to change when a party is exposed: always, or only in the worst case (`dropouts`).

        By default it returns None: no single option is known to help.
        """
        del dropouts
        return None


@dataclass(frozen=True)
class Terms:
    """What the settings mean for one roster. A process that simulates several parties shares one object between them.

    The properties and methods below are hooks. Drivers, audits, plans and pictures call them instead of comparing
    names of protocols. The defaults are safe: they make the audit more cautious, not less.
    """

    settings: Settings
    parties: Parties

    @property
    def span(self) -> float:
        """The largest magnitude of a value that is encoded."""
        return self.settings.clip

    @property
    def summands(self) -> int:
        """The most vectors in one sum. The ring's scale leaves headroom for that many."""
        return len(self.parties)

    @property
    def alone(self) -> bool:
        """Whether each vector with its noise must fit its own share of the ring. By default only the sum must fit."""
        return False

    @property
    def part(self) -> float:
        """The smallest fraction that a vector and its noise are multiplied by before they are encoded."""
        return 1.0

    @property
    def releases(self) -> int:
        """The most times that one round encodes the same vector with fresh noise."""
        return 1

    @property
    def selective(self) -> bool:
        """Whether the protocol treats entries of a vector differently. Audits then analyse many entries, not one."""
        return False

    @property
    def covering(self) -> "Terms":
        """Terms under which every coalition learns at least as much. Audits run them instead, if they are simpler."""
        return self

    @property
    def selection(self) -> EntrySelection | None:
        """How parties select entries, if the protocol is `selective`. If None, audits sample entries."""
        return None

    def prescribe(self, rounds: Sequence[SelectionMatrix]) -> "Terms | None":
        """Returns terms under which parties select the given entries, one matrix per round. Only audits use them.

        After the last matrix the first one follows again. The result is None if the protocol selects no entries, or
        does not support given selections.
        """
        del rounds
        return None

    @property
    def work(self) -> int:
        """Approximate number of messages, shares and masks of one step. Audits compare it with their limit of work."""
        return sum(len(self.peers(party)) for party in self.parties)

    @property
    def rounds_alike(self) -> bool:
        """Whether rounds differ only in who takes part. An audit may then analyse a few rounds in place of many."""
        return True

    @property
    def participation(self) -> ParticipationPolicy | None:
        """The policy by which a server selects participants; None if the protocol has no policy."""
        return None

    @property
    def fewest_present(self) -> int:
        """The fewest parties with which a round can end with an average, as far as the settings determine it."""
        return 1

    @property
    def smallest_sum(self) -> int:
        """The fewest contributors to an average."""
        return 1

    @property
    def secure_sum(self) -> SecureSum | None:
        """Limits on what even a malicious server learns. None (the default) if a party or server may see single
        vectors, or is trusted to follow the protocol."""
        return None

    @property
    def amplifies(self) -> float:
        """Largest factor by which a rounding error can grow. Tolerances of comparisons are scaled by it."""
        return 1.0

    @property
    def period(self) -> int:
        """Number of rounds after which the schedule repeats, apart from who takes part and what is sampled."""
        return 1

    @property
    def known_draws(self) -> Collection[str]:
        """Names of the secret factors and numbers that audits treat as public; none by default.

        It is for a number that protects a vector only from an adversary without side information, and that would make
        the audit non-linear if it were an unknown. Findings then hold for an adversary who knows the number.
        """
        return ()

    def leaks(self) -> list[str]:
        """Returns the reasons, known without an audit, why a party or server would learn a single vector."""
        return []

    def notes(self) -> list[str]:
        """Returns remarks for users on the accuracy or meaning of the result."""
        return []

    def peers(self, me: Party) -> Collection[Party]:
        """Returns the parties that a party exchanges messages with. The party itself may be among them."""
        del me
        return self.parties

    def fewest_contributors(self, coalition: Collection[Party]) -> int | None:
        """Returns the fewest contributors outside a coalition to any sum that it sees; None if unknown.

        It holds for all dropouts.
        """
        del coalition
        return None

    def arguments(self, query: CoalitionQuery) -> Iterable[PrivacyArgument]:
        """Returns proved statements about all coalitions of one size, for any number of parties; none by default.

        Audits use only the arguments of shipped protocols, which are tested on every small case.
        """
        del query
        return ()

    def exchange(self) -> ExchangePattern:
        """Returns the message pattern to show in pictures. By default every party exchanges messages with its peers."""
        places = {party: place for place, party in enumerate(self.parties)}
        pairs = ((places[a], places.get(b, -1)) for a in self.parties for b in self.peers(a))
        return ExchangePattern("graph", (tuple((a, b) for a, b in pairs if a < b),))

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns the worst allowed dropouts for privacy: the parties that are offline, and those that drop out later.

        They leave the smallest sum with the coalition in it that has at least `others` other contributors. The result
        is None if no dropouts make a sum smaller, or if they end the round.
        """
        del coalition, others
        return None

    def prescribe_sample(self, coalition: Collection[Party], others: int) -> "Terms | None":
        """Returns terms under which a server samples the worst contributors for privacy. Only audits use them.

        As many contributors as possible are in the coalition, and at least `others` are not. The result is None if the
        server samples no contributors, or if `worst_dropouts` can enforce any sample.
        """
        del coalition, others
        return None

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns the relations between places on the roster, as square tables of numbers. Audits use their symmetry.

        If a permutation of the parties leaves all tables unchanged, it must leave the rounds unchanged up to the names.
        Audits then analyse one coalition for all that are equivalent. An empty tuple means that all places are
        equivalent. None means that no symmetry is known.
        """
        return None

    def steps(self, kind: type[Message]) -> range:
        """Returns the step numbers that messages of a class may have. They number its messages in a round."""
        del kind
        return range(1)


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party keeps between rounds. It is immutable: a coroutine saves a new one."""

    version: ClassVar[int] = 1
    """Version of the format. It changes with the meaning of the fields."""

    def continues_from(self) -> bytes:
        """Returns the lineage of the model that the party adopted; empty without one, or if the protocol signs none."""
        return b""

    @classmethod
    def upgrade(cls, version: int, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Converts the fields of a state of an earlier version to this one; returns None if it cannot."""
        del version, fields
        return None

    def problems(self, terms: Any, ring: Ring, entries: int) -> list[str]:
        """Returns the reasons why no round on these terms, with vectors of `entries` entries, can continue from it."""
        del terms, ring, entries
        return []


@dataclass(frozen=True)
class Choice:
    """Functions by which a server selects contributors in each round.

    The server calls them in every round. Audits call the same functions for histories of rounds that are too long to
    simulate, so an audit analyses the real selection.
    """

    here: type[Message]
    """Message that announces presence. A party that does not send it is absent from the start of the round."""
    delivery: type[Message]
    """Message that delivers a vector. A party that is present but does not send it drops out during the round."""
    select_asked: Callable[[Any, Any, Collection[int], Entropy], tuple[list[int], Any]]
    """Selects the parties to ask, from terms, state, present parties and entropy; none if too few are present.
    Also returns the new state."""
    select_summed: Callable[[Any, Link, Sequence[int], Collection[int], Entropy], list[int]]
    """Selects the vectors to sum, from terms, link, asked parties, parties that delivered, and entropy; none if too
    few delivered."""
    announcement: type[Message] | None = None
    """Message with the sum in its field `vector`. Without it, audits cannot replay a recipe on a transcript."""


def propose_defaults(parties: int, colluding: int) -> Iterable[ProposedSettings]:
    """Returns the default settings for any number of parties and colluders."""
    del parties, colluding
    return (ProposedSettings({}, ReasonCode.DEFAULTS),)


@dataclass(frozen=True)
class Origin:
    """The installed package that a protocol comes from."""

    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Protocol:
    """A registry entry: everything that drivers, audits, tests and the command line need to know about a protocol.

    A plug-in package declares one object of this class as an entry point of the group `tacit.protocols`.

    >>> from tacit.protocols import find
    >>> secagg = find("secagg")
    >>> secagg.name, secagg.server is not None, secagg.needs_everybody
    ('secagg', True, False)
    """

    name: str
    summary: str
    settings: type[Settings]
    messages: tuple[type[Message], ...]
    party: Callable[[Link, Update, Any, Suite, Any], Run]
    """The coroutine of a party, which contributes a vector."""
    server: Callable[[Link, Any, Suite, Any], Run] | None = None
    """The coroutine of the server; None for a protocol without one."""
    state: type[State] = State
    claims: tuple[Claim, ...] = ()
    """The guarantees that its paper states."""
    choice: Choice | None = None
    """How the server selects the vectors to sum. Set only if a round reveals that sum and nothing else."""
    leaks_by_design: bool = False
    """Whether the protocol is a baseline without any protection."""
    weighted: bool = True
    """Whether parties may have different weights."""
    needs_everybody: bool = False
    """Whether a round needs every party. If so, no round is started while one is offline."""
    version: int = 1
    """The version of its messages. Parties of different versions are in different sessions."""
    common_result: bool = False
    """Whether every party ends a round with the same average and keeps no other result. Only then does noise that a
    coalition saw remain in everything that others send later, and audits of several rounds may count the noise of
    several parties."""
    propose: Callable[[int, int], Iterable[ProposedSettings]] = propose_defaults
    """Proposes settings for a planner to audit, from the number of parties and the number of colluding ones."""
    example_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Options for comparisons and benchmarks that pass none themselves. The audit must accept them."""
    alternative: str = ""
    """For a baseline: the name of a protocol for the same topology that protects vectors."""
    attacks: tuple[str, ...] = ()
    """Names of attacks of `tacit attack` that test the assumptions of this protocol's audit."""
    api_version: int | None = None
    """Version of this interface that the protocol is written for (`PROTOCOL_API`); None for any."""
    origin: Origin | None = field(default=None, compare=False)
    """The package that provides the protocol, set by the registry; None for a shipped or unregistered protocol."""

    def everyone(self, parties: tuple[Party, ...]) -> tuple[Party, ...]:
        """Returns the parties, followed by the server if there is one."""
        return (*parties, SERVER) if self.server else tuple(parties)

    def settings_from(self, options: Mapping[str, Any], beside: Collection[str] = ()) -> Settings:
        """Returns the settings for some options; raises ConfigError with every problem.

        >>> from tacit.protocols import find
        >>> find("fedavg").settings_from({"bits": 64}).bits
        64

        Args:
            options: The options, by name.
            beside: Names of other options that the caller accepts. They are suggested for a misspelt name too.
        """
        fields = {field.name: field.type for field in msgspec.structs.fields(self.settings)}
        readers = {**Settings.readers, **self.settings.readers}
        given: dict[str, Any] = {}
        problems = []
        for name, value in options.items():
            if name not in fields:
                near = get_close_matches(str(name), (*fields, *beside), n=1)
                more = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(fields)}"
                problems.append(f"{self.name} has no option {name!r}; {more}")
                continue
            try:
                read = normalize_value(value)
                read = readers[name](read) if name in readers else read
                given[name] = convert_value(read, fields[name])
            except ConfigError as error:
                problems += error.problems
            except msgspec.ValidationError as error:
                problems.append(f"{name}={value!r}: {describe_mismatch(error)}")
        settings = self.settings(**given)
        if settings.weighted and not self.weighted:
            problems.append(f"{self.name} gives every party the same weight; try: leave the weights out")
        if problems:
            raise Unset(problems, settings)
        return settings

    def encode_state(
        self, state: State, whose: tuple[Party, int] | None = None, apart: dict[bytes, memoryview] | None = None
    ) -> bytes:
        """Returns a state as bytes, with the protocol's name, the state's version, and its owner.

        Args:
            state: The state. It outlives sessions, and names none.
            whose: The owner, and the number of rounds it had begun; None where the surrounding file states it.
            apart: If given, long vectors are added to it by digest, and the bytes contain only the digests. So an
                unchanged vector need not be written again.
        """
        short = state if apart is None else detach_blobs(state, apart)
        return msgspec.msgpack.encode((self.name, self.state.version, whose, short))

    def decode_state(
        self,
        data: bytes | memoryview,
        whose: tuple[Party, int] | None = None,
        apart: Mapping[bytes, Buffer] | None = None,
    ) -> State:
        """Returns the state that `encode_state` wrote.

        Args:
            data: The bytes.
            whose: The owner and number of rounds that the state must have.
            apart: The long vectors, by digest.

        Raises:
            JournalError: The bytes are of another protocol, version or owner, or a vector is missing in `apart`.
        """
        try:
            header = tuple[str, int, tuple[Party, int] | None, msgspec.Raw]
            name, version, owner, rest = msgspec.msgpack.decode(data, type=header)
            if name != self.name:
                raise OtherProtocol(name, self.name)
            fields: dict[str, Any] | None = None
            if version < self.state.version:
                fields = self.state.upgrade(version, msgspec.msgpack.decode(rest))
            if fields is None and version != self.state.version:
                raise JournalError(
                    f"this is a state of {name}, version {version}, not {self.state.version}; try: "
                    f"go on with the release that wrote it"
                )
            if owner != whose:
                theirs, ours = (
                    f"{each[0]} after {format_count(each[1], 'round')}" if each else "nobody" for each in (owner, whose)
                )
                raise JournalError(
                    f"this is the state of {theirs}, not of {ours}; try: restore it, or begin a new session"
                )
            if fields is not None:
                return msgspec.convert(fields, self.state)
            return attach_blobs(msgspec.msgpack.decode(rest, type=self.state), apart or {})
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(
                f"the saved state cannot be read: {error}; try: restore it, or begin a new session"
            ) from None


class Unset(ConfigError):
    """Some options cannot be used. It carries the settings without them, so that their problems can be found too."""

    def __init__(self, problems: Sequence[str], settings: Settings) -> None:
        super().__init__(problems)
        self.settings = settings
