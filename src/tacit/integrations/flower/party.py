"""A party that is called once for each message, and may be another process every time.

What it needs to go on lies in two places. On a *shelf*, which is Flower's to keep, are the journal of the round and
what was brought to it, sealed with a key that follows from the party's identity, under the round's number. On the
party's own disk is a `Mark`, with that number, the state, and the tip of the journal. Every call says the round again
from the journal, and then goes on with what came. If the shelf is empty, or anything but what was last put there, the
round is refused: it is never begun a second time, for its masks would then cover two vectors.

The session of a round follows from the incarnations of all who were asked for it. A party takes its own from its mark,
whatever it is told. So one that has lost its mark masks as another, whoever carries mail and whatever they say of it.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tacit.core.average import Ending
from tacit.core.entropy import SEED_BYTES, SystemEntropy
from tacit.core.errors import JournalError, WireError
from tacit.core.link import frame_parts
from tacit.core.suite import SERVER, Buffer, Party, Update
from tacit.crypto.keys import expand_key, extract_key
from tacit.crypto.sealing import Sealing
from tacit.integrations.flower.node_state import RENEW, Mark, Standing
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import NONCE_BYTES, RosterFile
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Action, Post, Round
from tacit.runtime.round_numbers import in_reach

JOURNAL, BROUGHT, AVERAGE = "journal", "brought", "average"
"""What is on a shelf: while a round is under way the first two, and from one without a server on its average."""
SIZE = 8
"""Bytes of a length."""
GONE = "the round goes on without this party, which will be in the next"

Shelf = MutableMapping[str, Any]
"""Bytes by name, wherever Flower keeps them."""


class Mail(NamedTuple):
    """A sealed message, and for whom it is."""

    to: Party
    data: bytes


@dataclass(frozen=True)
class Said:
    """What came of a call: mail to be carried, and how the party stands."""

    mail: list[Mail]
    waits: int = 0
    """How many waits there were,"""
    patience: float = 0.0
    """and how many phases the present one may take."""
    over: bool = False
    """Whether the round is over for the party,"""
    error: str = ""
    """and the code of what went wrong, if that is why."""


@dataclass
class _Live:
    """A round as this process left it, for calls that come to the same process."""

    tip: bytes
    participant: KeyedParticipant


class FlowerParty:
    """A party, or the server, by its roster and identity."""

    def __init__(
        self, roster: RosterFile, mine: Credentials, folder: Path, seed: Callable[[int], bytes] | None = None
    ) -> None:
        """Must be on the roster, and keeps its mark in the folder.

        A round draws from the operating system, or from what `seed` gives for its number.
        """
        roster.check(mine)
        self.name, self.roster, self._mine, self._folder = mine.name, roster, mine, folder
        self._seed = seed or (lambda _: SystemEntropy().bytes(SEED_BYTES))
        own = mine.member
        key = extract_key(mine.identity.channel.reveal())
        secret = expand_key(key, "tacit/v1/flower", b"", own.verify_key, own.channel_key)
        self._sealing = Sealing(secret.reveal())
        self._agreement: Agreement | None = None
        self._live: _Live | None = None
        self.last: Ending | None = None
        """How the last round ended that was finished in this process."""

    @property
    def rounds(self) -> int:
        """The number of the last round that is used up."""
        with self._mark() as mark:
            return mark.standing.number

    @property
    def incarnation(self) -> bytes:
        """What tells its mark from another one."""
        with self._mark() as mark:
            return mark.standing.incarnation

    def is_stranger(self, party: Party, incarnation: bytes) -> bool:
        """Says whether somebody has another incarnation than when it was first heard in this session."""
        with self._mark() as mark:
            return self._seen(mark.standing).get(party, incarnation) != incarnation

    def begin(
        self,
        shelf: Shelf | None,
        number: int,
        update: Update | None,
        entries: int,
        company: Mapping[Party, bytes] | None = None,
    ) -> Said:
        """Begins a round, whose number nobody can begin again; one that is under way is given up.

        `company` has the incarnations of all who are asked for it. Without a shelf the process must live as long as the
        round. Raises JournalError if the number is used up, or if our incarnation is another than they were told.
        """
        with self._mark() as mark:
            before = mark.standing
            if number <= before.number:
                raise JournalError(
                    f"{self.name} has begun round {before.number}, and takes no part in another round {number}; {GONE}"
                )
            if not in_reach(before.number, number):
                raise JournalError(
                    f"round {number} is further from round {before.number}, the last of {self.name}, than anybody can "
                    f"be; {GONE}"
                )
            known = {**(company or {}), self.name: before.incarnation}
            if company and company.get(self.name) != before.incarnation:
                raise JournalError(f"others know {self.name} by another journal than it has; {RENEW}")
            mark.standing = before = msgspec.structs.replace(before, company=known)
            agreement = self._agreed(entries, known)
            self._live = None
            participant = KeyedParticipant(
                agreement, self._mine.identity, number=number - 1, state=self._state(agreement, before)
            )
            actions = participant.begin(update, self._seed(number))
            journal = Journal()
            if shelf is not None and update is not None:
                shelf[BROUGHT] = self._seal(BROUGHT, agreement, number, _written(update))
            posts = self._recorded(shelf, journal, participant, actions)
            return self._left(mark, shelf, journal, participant, posts)

    def go_on(self, shelf: Shelf | None, number: int, mail: Iterable[Buffer], expired: int = 0) -> Said:
        """Goes on with what came; `expired` is the number of the wait that has taken too long, which comes first.

        Raises JournalError if the round was not begun here, or if what the shelf has of it is not what was put there.
        """
        with self._mark() as mark:
            standing = mark.standing
            if number != standing.number:
                raise JournalError(f"{self.name} is not in round {number}; {GONE}")
            if not standing.under_way:
                return Said([], over=True)
            live, self._live = self._live, None  # what goes wrong from here on leaves nothing half done
            journal, participant = self._resumed(shelf, mark, live)
            posts: list[Post] = []
            if participant.round is not None and participant.round.waits == expired:
                posts += self._recorded(shelf, journal, participant, participant.expire())
            for data in mail:
                posts += self._recorded(shelf, journal, participant, participant.deliver(data))
            return self._left(mark, shelf, journal, participant, posts)

    def average(self, shelf: Shelf) -> NDArray[np.float64] | None:
        """Returns what the last round that was finished left this party with, if nobody else has it."""
        if AVERAGE not in shelf:
            return None
        with self._mark() as mark:
            number = mark.standing.averaged
        try:
            data = self._sealing.open(shelf[AVERAGE], frame_parts(AVERAGE.encode(), number.to_bytes(SIZE)))
        except WireError:
            raise JournalError(f"the average of round {number} is not as it was left; take part in a new run") from None
        return np.frombuffer(data)

    # --- what a call does ------------------------------------------------------------------------------------------

    def _resumed(self, shelf: Shelf | None, mark: Mark, live: _Live | None) -> tuple[Journal, KeyedParticipant]:
        """Returns the round as it was left: that of this process if it was the last to be called, or said again."""
        standing = mark.standing
        here = live is not None and (live.participant.number, live.tip) == (standing.number, mark.tip)
        if shelf is None:
            if live is None or not here:
                raise JournalError(f"round {standing.number} was cut off; {GONE}")
            return Journal(), live.participant
        if JOURNAL not in shelf or BROUGHT not in shelf:
            raise JournalError(
                f"what {self.name} had written down of round {standing.number} is gone, and it must not begin it "
                f"again; {GONE}"
            )
        agreement = self._agreed(standing.entries, standing.company)
        journal = Journal.decode(bytes(self._open(JOURNAL, agreement, standing.number, shelf[JOURNAL])), mark.tip)
        if live is not None and here:
            journal.read()  # which raises what is wrong with it, whatever is in memory
            return journal, live.participant
        update = _read(self._open(BROUGHT, agreement, standing.number, shelf[BROUGHT]))
        state = self._state(agreement, standing)
        participant = KeyedParticipant(
            agreement, self._mine.identity, number=standing.number, state=state, unfinished=True
        )
        participant.resume(journal, update)
        return journal, participant

    def _recorded(
        self, shelf: Shelf | None, journal: Journal, participant: KeyedParticipant, actions: list[Action]
    ) -> list[Post]:
        """Writes a call down, where there is a shelf to keep it on, and returns the messages that came of it."""
        if shelf is not None:
            agreement = participant.agreement
            journal.record(agreement.protocol, agreement.session, self.name, actions)
        return [action for action in actions if isinstance(action, Post)]

    def _left(
        self, mark: Mark, shelf: Shelf | None, journal: Journal, participant: KeyedParticipant, posts: list[Post]
    ) -> Said:
        """Puts everything where it is found again, and returns what is to be sent."""
        agreement, round_ = participant.agreement, participant.round
        if round_ is None:
            raise AssertionError  # a participant that was begun or resumed is in a round
        state = agreement.protocol.encode_state(participant.state, (self.name, participant.number))
        # Of a server's average the next message has a copy anyway.
        kept = None if agreement.protocol.server is not None else round_.average
        averaged = mark.standing.averaged if kept is None else participant.number
        standing = msgspec.structs.replace(
            mark.standing,
            number=participant.number,
            under_way=not round_.over,
            entries=agreement.entries,
            averaged=averaged,
            state=state,
            session=self.roster.nonce,
            seen={**self._heard(round_, mark.standing.company), **self._seen(mark.standing)},
        )
        mail = [Mail(post.to, post.data) for post in posts]
        if shelf is not None:
            if round_.over:
                shelf.pop(JOURNAL, None)
                shelf.pop(BROUGHT, None)
                if kept is not None:
                    vector = np.ascontiguousarray(kept.vector, np.float64).data.cast("B")
                    shelf[AVERAGE] = self._sealing.seal(
                        vector, frame_parts(AVERAGE.encode(), participant.number.to_bytes(SIZE))
                    )
            else:
                shelf[JOURNAL] = self._seal(JOURNAL, agreement, participant.number, journal.encode())
        # Nothing is said before this is on disk. If the shelf is then lost on its way, the tip tells.
        mark.write(standing, b"" if round_.over else journal.tip)
        if round_.over:
            self.last = round_.ending
            return Said(mail, over=True, error="" if round_.error is None else round_.error.code)
        self._live = _Live(mark.tip, participant)
        return Said(mail, round_.waits, 0.0 if round_.wait is None else round_.wait.patience)

    def _seen(self, standing: Standing) -> Mapping[Party, bytes]:
        return standing.seen if standing.session == self.roster.nonce else {}

    def _heard(self, round_: Round, company: Mapping[Party, bytes]) -> Mapping[Party, bytes]:
        """Returns the incarnations of those who a server has heard, and not only heard of.

        Whoever could be read in a round has the incarnation that its session is made of.
        """
        if self.name != SERVER or not round_.over or round_.average is None:
            return {}
        return {party: company[party] for party in round_.ending.contributors if party in company}

    # --- what it is kept by ----------------------------------------------------------------------------------------

    def _mark(self) -> Mark:
        return Mark(self._folder, self.name, self._sealing)

    def _agreed(self, entries: int, company: Mapping[Party, bytes]) -> Agreement:
        if self._agreement is None or self._agreement.entries != entries:
            self._agreement = self.roster.agreement(entries)
        # A session of its own: nodes between machines number their rounds apart, and may have the same roster.
        known = [part for party in sorted(company) for part in (party.encode(), company[party])]
        parts = (b"tacit/v2/flower", bytes.fromhex(self.roster.nonce), *known)
        nonce = hashlib.sha256(frame_parts(*parts)).digest()[:NONCE_BYTES]
        if self._agreement.nonce != nonce:
            self._agreement = replace(self._agreement, nonce=nonce)
        return self._agreement

    def _state(self, agreement: Agreement, standing: Standing) -> Any:
        if standing.state is None:
            return None
        return agreement.protocol.decode_state(standing.state, (self.name, standing.number))

    def _seal(self, what: str, agreement: Agreement, number: int, data: bytes) -> bytes:
        return self._sealing.seal(data, _context(what, agreement, number))

    def _open(self, what: str, agreement: Agreement, number: int, data: bytes) -> Buffer:
        try:
            return self._sealing.open(data, _context(what, agreement, number))
        except WireError:
            raise JournalError(
                f"what {self.name} had written down of round {number} is not what it wrote, or of another round; {GONE}"
            ) from None


def _context(what: str, agreement: Agreement, number: int) -> bytes:
    return frame_parts(what.encode(), agreement.session, number.to_bytes(SIZE))


def _written(update: Update) -> bytes:
    """Returns what is brought as bytes."""
    vector = np.ascontiguousarray(update.vector)
    front = msgspec.msgpack.encode((vector.dtype.str, float(update.weight)))
    return b"".join((len(front).to_bytes(SIZE), front, vector.data.cast("B")))


def _read(data: Buffer) -> Update:
    """Returns what was brought."""
    view = memoryview(data)
    end = SIZE + int.from_bytes(view[:SIZE])
    kind, weight = msgspec.msgpack.decode(view[SIZE:end], type=tuple[str, float])
    return Update(np.frombuffer(view[end:], np.dtype(kind)), weight)
