"""A protocol: its coroutines, settings, terms and messages, and the hooks by which it answers for itself.

Settings are what somebody wrote: plain, typed, the same in Python, TOML and JSON. Terms are what follows from them for
a given roster. They are computed once, leave nothing open, and are what coroutines are given.
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
"""The version of the interface between protocols and the rest of Tacit. It changes when a protocol has to."""
Run: TypeAlias = Coroutine[Effect, Any, Average]
Role: TypeAlias = Callable[..., Run]
"""A coroutine function: of a party, which brings an update, or of a server."""
FARTHEST = 10.0
"""Standard deviations within which all noise is that is ever drawn, and of a sum of it for which the ring has room."""
UNPROTECTED = (
    "the sum of weights is shown as it is, without noise; leave weights out, and multiply vectors by them beforehand"
)


def names_from(given: Any) -> Any:
    """Returns names as a list, also where there is but one."""
    return [given] if isinstance(given, str) else given


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings that every protocol has. Everyone in a federation must have the same."""

    bits: int = 32
    """Ring Z_2^bits: 16, 32 or 64 bits an entry, in memory and on the wire."""
    clip: float = 32.0
    """Entries beyond ±clip are clipped, counted, and warned about."""
    max_weight: float = 1.0
    """The largest weight a party may have."""
    weighted: bool = False
    """Whether parties have different weights. They always may with a server, whose ring carries them anyway."""
    noise: float = 0.0
    """The standard deviation of the noise that each party adds to every entry, in the ring and under its masks."""
    norm: float | None = None
    """Vectors longer than this (by the square root of the sum of squares) are scaled down to it."""
    rounding: Literal["auto", "nearest", "stochastic"] = "auto"
    """Whether entries are rounded to the nearest step of the ring, or at random so that the mean is exact. "auto" is
    stochastic with 16 bits and nearest with more."""
    allow_leaks: bool = False
    """Accept settings that expose a single vector to somebody."""
    include: tuple[str, ...] | None = None
    """The arrays of a model that are averaged, by names or patterns such as "conv*"; all of floats unless set."""
    exclude: tuple[str, ...] = ()
    """The arrays of a model that stay as they are, by names or patterns such as "head.*"."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"include": names_from, "exclude": names_from}
    """For fields that may be given in several ways: what makes the one that is kept of each of them."""
    editor_types: ClassVar[Mapping[str, str]] = {
        "bits": "Literal[16, 32, 64]",
        "include": "Sequence[str] | None",
        "exclude": "Sequence[str]",
    }
    """For fields of this class that may be given as more, or as less, than their type: what to tell editors."""

    @property
    def stochastic(self) -> bool:
        """Whether entries are rounded by chance."""
        return self.rounding == "stochastic" or (self.rounding == "auto" and self.bits == 16)

    @property
    def reach(self) -> float:
        """The largest magnitude of an entry with its noise."""
        return self.clip + FARTHEST * self.noise

    def relative_weight(self, update: Update) -> float:
        """Returns the weight of an update as a part of the largest that a party may have; 1 without weights."""
        return update.weight / self.max_weight if self.weighted else 1.0

    def bind(self, parties: Parties) -> "Terms":
        """Returns what the settings mean for these parties; raises ConfigError with every reason why they cannot."""
        if problems := self.problems(parties):
            raise ConfigError(problems)
        return Terms(self, parties)

    def problems(self, parties: Parties) -> list[str]:
        """Returns the reasons why settings cannot work for these parties that can be told at a glance."""
        problems = [] if len(parties) >= 2 else [f"an average needs at least 2 parties, not {len(parties)}"]
        if self.noise and self.weighted:
            problems.append(f"weighted=True does not go with noise={self.noise:g}: {UNPROTECTED}")
        return problems

    def remedy(self, *, dropouts: bool) -> Remedy | None:
        """Returns which option to change if somebody is exposed, either always or only after `dropouts`.

        None by default: no single option is known to help.
        """
        del dropouts
        return None


@dataclass(frozen=True)
class Terms:
    """What settings mean for some parties. Shared by all of them where one process plays several.

    Properties and methods below are hooks: drivers, audits, plans and pictures ask them instead of asking which
    protocol they have. Their defaults are safe: a protocol that says nothing is audited with more caution, not less.
    """

    settings: Settings
    parties: Parties

    @property
    def span(self) -> float:
        """The largest magnitude that is ever encoded."""
        return self.settings.clip

    @property
    def summands(self) -> int:
        """How many vectors are added up at most, for which the ring leaves room."""
        return len(self.parties)

    @property
    def alone(self) -> bool:
        """Whether each vector must fit its own part of the ring, noise and all, and not only their sum the whole."""
        return False

    @property
    def part(self) -> float:
        """The smallest part of a vector that is encoded, and of its noise."""
        return 1.0

    @property
    def releases(self) -> int:
        """How often in a round a vector is encoded with other noise, at most."""
        return 1

    @property
    def selective(self) -> bool:
        """Whether entries of a vector fare differently, so that an audit must look at many of them."""
        return False

    @property
    def selection(self) -> EntrySelection | None:
        """How parties select entries, if they are `selective`; None if that is not known, and audits sample."""
        return None

    def prescribe(self, rounds: Sequence[SelectionMatrix]) -> "Terms | None":
        """Returns terms under which parties select given entries, with a matrix for each round; for audits alone.

        Later rounds repeat the matrices from the first on. None if the protocol selects nothing, or cannot be told.
        """
        del rounds
        return None

    @property
    def work(self) -> int:
        """About how many messages, shares and masks a step takes, for whoever has to decide whether to look at all."""
        return sum(len(self.peers(party)) for party in self.parties)

    @property
    def rounds_alike(self) -> bool:
        """Whether rounds differ in nothing but who takes part, so that a few of them can stand for many in an audit."""
        return True

    @property
    def participation(self) -> ParticipationPolicy | None:
        """The policy by which a server chooses who takes part; None if the protocol has none."""
        return None

    @property
    def fewest_present(self) -> int:
        """The fewest parties with which a round can end with an average, as far as the settings say."""
        return 1

    @property
    def smallest_sum(self) -> int:
        """The fewest contributors to an average."""
        return 1

    @property
    def secure_sum(self) -> SecureSum | None:
        """What even a malicious server cannot get past; None (the default) if some party or server may see single
        vectors, or is trusted to follow the protocol."""
        return None

    @property
    def amplifies(self) -> float:
        """How many times larger what was rounded may come back, for whoever compares numbers to the last digit."""
        return 1.0

    @property
    def period(self) -> int:
        """After how many rounds they repeat themselves, but for who takes part and what is drawn."""
        return 1

    @property
    def known_draws(self) -> Collection[str]:
        """Names of the secret factors and numbers that audits count as known to everybody; none by default.

        For a number that hides a vector from nobody who knows a little else, and that makes the audit not linear as an
        unknown: what is found then holds for an adversary who has it.
        """
        return ()

    def leaks(self) -> list[str]:
        """Returns why somebody would learn a single vector, as far as can be said beforehand."""
        return []

    def notes(self) -> list[str]:
        """Returns what users should know of the result."""
        return []

    def peers(self, me: Party) -> Collection[Party]:
        """Returns with whom a party exchanges messages. It may itself be listed."""
        del me
        return self.parties

    def fewest_contributors(self, coalition: Collection[Party]) -> int | None:
        """Returns the fewest others in whatever a coalition may see, whoever drops out; None if that is not known."""
        del coalition
        return None

    def arguments(self, query: CoalitionQuery) -> Iterable[PrivacyArgument]:
        """Returns what is proved about every coalition of a size, for any number of parties; nothing by default.

        Audits use arguments of shipped protocols only, whose tests try them on every small case.
        """
        del query
        return ()

    def exchange(self) -> ExchangePattern:
        """Returns who exchanges messages with whom, to be drawn: by default, every party with its peers."""
        places = {party: place for place, party in enumerate(self.parties)}
        pairs = ((places[a], places.get(b, -1)) for a in self.parties for b in self.peers(a))
        return ExchangePattern("graph", (tuple((a, b) for a, b in pairs if a < b),))

    def worst_dropouts(
        self, coalition: Collection[Party], others: int
    ) -> tuple[Collection[Party], Collection[Party]] | None:
        """Returns who is offline and who drops out in mid-round in the worst case for privacy that these terms allow.

        The sum then has the coalition and as few others in it as possible, but at least so many `others`. None if
        dropouts make no sum smaller, or end the round.
        """
        del coalition, others
        return None

    def ties(self) -> tuple[NDArray[Any], ...] | None:
        """Returns what places are to each other, as square tables of numbers; None if each may fare in its own way.

        If parties change places in a way that changes none of the tables, rounds must be the same but for their names.
        Where there are no tables, no place matters. Audits look at one coalition for all that are alike so.
        """
        return None

    def steps(self, kind: type[Message]) -> range:
        """Returns the steps at which messages of a kind are due. At others nobody awaits any, and none is taken in."""
        del kind
        return range(1)


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party keeps from round to round. A coroutine saves a new one; none is ever changed."""

    version: ClassVar[int] = 1
    """Changes with the meaning of the fields."""

    def continues_from(self) -> bytes:
        """Returns the lineage of the model that the party has adopted; empty if it signs none, or adopted nothing."""
        return b""

    @classmethod
    def upgrade(cls, version: int, fields: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the fields of a state that an earlier version wrote as this one has them; None if it cannot."""
        del version, fields
        return None

    def problems(self, terms: Any, ring: Ring, entries: int) -> list[str]:
        """Returns why a round on these terms, with vectors of so many entries, cannot go on from it."""
        del terms, ring, entries
        return []


@dataclass(frozen=True)
class Choice:
    """How a server chooses, round by round: for the server, and for audits of more rounds than can be run one by one.

    Both call these functions, so that what is audited is what is chosen.
    """

    here: type[Message]
    """Who does not send this is absent from the start."""
    delivery: type[Message]
    """Who sent the one but does not send this drops out in mid-round."""
    select_asked: Callable[[Any, Any, Collection[int], Entropy], tuple[list[int], Any]]
    """Given terms, state, who is there, and entropy: whom to ask, nobody if too few are there; and the new state."""
    select_summed: Callable[[Any, Link, Sequence[int], Collection[int], Entropy], list[int]]
    """Given terms, link, who was asked, who delivered, and entropy: whose vectors to sum, nobody's if too few did."""
    announcement: type[Message] | None = None
    """The message that announces the sum, as its field `vector`; without it no recipe can be replayed."""


def propose_defaults(parties: int, colluding: int) -> Iterable[ProposedSettings]:
    """Returns the default settings, whatever is asked for."""
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
    """A registry entry: all that drivers, audits, tests and the command line need to know of a protocol."""

    name: str
    summary: str
    settings: type[Settings]
    messages: tuple[type[Message], ...]
    party: Callable[[Link, Update, Any, Suite, Any], Run]
    """The coroutine of a party that brings a vector."""
    server: Callable[[Link, Any, Suite, Any], Run] | None = None
    """The coroutine of the server, if there is one."""
    state: type[State] = State
    claims: tuple[Claim, ...] = ()
    """The guarantees that its paper states."""
    choice: Choice | None = None
    """How its server chooses whose vectors to sum, if a round shows that sum and nothing else."""
    leaks_by_design: bool = False
    """Whether it is a baseline that claims no protection."""
    weighted: bool = True
    """Whether parties may have different weights."""
    needs_everybody: bool = False
    """Whether a round needs every party, so that none is worth starting while one is offline."""
    version: int = 1
    """The version of its messages. Parties of different versions are in different sessions."""
    common_result: bool = False
    """Whether every party ends a round with the same average and keeps nothing else of it. Only then does noise that
    a coalition saw stay in all that others send later, and count for more than one party's in several rounds."""
    propose: Callable[[int, int], Iterable[ProposedSettings]] = propose_defaults
    """Given how many parties there are, and how many of them collude: settings for a planner to audit."""
    example_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Options for comparisons and benchmarks, where nobody gave any. The audit must let them pass."""
    alternative: str = ""
    """For a baseline: the name of a protocol for the same parties that protects vectors."""
    attacks: tuple[str, ...] = ()
    """Names of attacks of `tacit attack` that try what its audit assumes."""
    api_version: int | None = None
    """The version of this interface that the protocol is written for (`PROTOCOL_API`); None for any."""
    origin: Origin | None = field(default=None, compare=False)
    """The package that added it, set by the registry; None for shipped protocols and for those given directly."""

    def everyone(self, parties: tuple[Party, ...]) -> tuple[Party, ...]:
        """Returns the parties and, if there is one, the server."""
        return (*parties, SERVER) if self.server else tuple(parties)

    def settings_from(self, options: Mapping[str, Any], beside: Collection[str] = ()) -> Settings:
        """Returns the settings for some options; raises ConfigError with everything that is wrong with them.

        What else may be given `beside` them is suggested too, for a name that is not quite right.
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
                read = readers.get(name, _as_it_is)(normalize_value(value))
                given[name] = convert_value(read, fields[name])
            except ConfigError as error:
                problems += error.problems
            except msgspec.ValidationError as error:
                problems.append(f"{name}={value!r}: {describe_mismatch(error)}")
        settings = self.settings(**given)
        if settings.weighted and not self.weighted:
            problems.append(f"{self.name} gives every party the same weight; leave the weights out")
        if problems:
            raise Unset(problems, settings)
        return settings

    def encode_state(
        self, state: State, whose: tuple[Party, int] | None = None, apart: dict[bytes, memoryview] | None = None
    ) -> bytes:
        """Returns a state as bytes that say which protocol and version they are of, and whose they are.

        That is a party, and how many rounds it had begun; or None inside of what says so itself, as a journal does.
        States outlive sessions, and name none. What is long goes into `apart`, if that is given, and digests stand for
        it: so it need not be written again as long as it is the same.
        """
        short = state if apart is None else detach_blobs(state, apart)
        return msgspec.msgpack.encode((self.name, self.state.version, whose, short))

    def decode_state(
        self,
        data: bytes | memoryview,
        whose: tuple[Party, int] | None = None,
        apart: Mapping[bytes, Buffer] | None = None,
    ) -> State:
        """Returns the state; raises JournalError unless the bytes are of this protocol and version, and of `whose`.

        So it does if there is nothing in `apart` for one of the digests.
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
                    f"this is a state of {name}, version {version}, not {self.state.version}; "
                    f"go on with the release that wrote it"
                )
            if owner != whose:
                theirs, ours = (
                    f"{each[0]} after {format_count(each[1], 'round')}" if each else "nobody" for each in (owner, whose)
                )
                raise JournalError(f"this is the state of {theirs}, not of {ours}; restore it, or begin a new session")
            if fields is not None:
                return msgspec.convert(fields, self.state)
            return attach_blobs(msgspec.msgpack.decode(rest, type=self.state), apart or {})
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise JournalError(f"this is no state: {error}; restore it, or begin a new session") from None


class Unset(ConfigError):
    """Some options cannot be used. The others are, so that what is wrong with them can be told as well."""

    def __init__(self, problems: Sequence[str], settings: Settings) -> None:
        super().__init__(problems)
        self.settings = settings


def _as_it_is(value: Any) -> Any:
    return value
