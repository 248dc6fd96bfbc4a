"""Party of a round on Flower. It is called once for each delivery, possibly in a new process each time.

Its state is in two places. Flower keeps its *storage* under the round's number: the journal of the round and the
party's update, encrypted with a key derived from the party's identity. The party's own disk has a `NodeFolder`: the
round's number, the protocol state, and the tip of the journal. Every call replays the round from the journal and then
delivers the new messages. If the storage is empty, or differs from what was last written, the round is refused. It
never begins a second time, because its masks would then cover two vectors.

The session of a round is derived from the incarnations of all parties that were asked for it. A party takes its own
incarnation from its folder, whatever the server says. So a party that has lost its folder uses other masks, even with a
malicious server.
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
from tacit.crypto.keys import Keys, expand_key, extract_key
from tacit.crypto.sealing import Sealing
from tacit.integrations.flower.node_state import RENEW, NodeFolder, NodeRecord
from tacit.net.membership.identity import Credentials
from tacit.net.membership.roster import NONCE_BYTES, RosterFile
from tacit.net.store.round_entries import UpdateMetadata
from tacit.runtime.agreement import Agreement
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant
from tacit.runtime.round import Action, Post, Round
from tacit.runtime.round_numbers import in_reach

JOURNAL, UPDATE, AVERAGE = "journal", "brought", "average"
"""Keys of a storage: the first two while a round is active, the last after a round without a server."""
SIZE = 8
"""Bytes of an encoded length or round number."""
GONE = "join the next round; this one goes on without this party"

Storage = MutableMapping[str, Any]
"""Bytes by key, kept by Flower."""


class SealedMessage(NamedTuple):
    """Sealed message with its recipient."""

    to: Party
    data: bytes


@dataclass(frozen=True)
class StepResult:
    """Result of one call: messages to deliver, and what the party waits for."""

    messages: list[SealedMessage]
    waits: int = 0
    """Number of waits so far; identifies the current one."""
    patience: float = 0.0
    """Number of phases that the current wait may take."""
    over: bool = False
    """Whether the round is over for the party."""
    error: str = ""
    """Code of the error that ended the round; empty if none did."""


@dataclass
class _LiveRound:
    """Round in memory, reused if the next call reaches the same process."""

    tip: bytes
    participant: KeyedParticipant


class FlowerParty:
    """Party or server of a roster, with its identity and its folder."""

    def __init__(
        self,
        roster: RosterFile,
        mine: Credentials,
        folder: Path,
        seed: Callable[[int], bytes] | None = None,
        audit: Callable[[RosterFile], None] | None = None,
    ) -> None:
        """Checks that the identity is on the roster.

        Args:
            roster: the roster of the federation.
            mine: the identity of this party.
            folder: where the party keeps its durable state.
            seed: returns the seed of a round by its number; by default the operating system's randomness.
            audit: audits the settings of the roster; raises LeakRefused if they leak.
        """
        roster.check(mine)
        self.name, self.roster, self._mine, self._folder = mine.name, roster, mine, folder
        self._seed = seed or (lambda _: SystemEntropy().bytes(SEED_BYTES))
        own = mine.member
        key = extract_key(mine.identity.channel.reveal())
        secret = expand_key(key, "tacit/v1/flower", b"", own.verify_key, own.channel_key)
        self._sealing = Sealing(secret.reveal())
        self._audit = audit
        self._agreement: Agreement | None = None
        self._live: _LiveRound | None = None
        self.last: Ending | None = None
        """Outcome of the last round that ended in this process."""

    @property
    def rounds(self) -> int:
        """Number of the last round that is used up."""
        with self._open_folder() as folder:
            return folder.record.number

    @property
    def incarnation(self) -> bytes:
        """Random identifier of the party's folder."""
        with self._open_folder() as folder:
            return folder.record.incarnation

    def audit_settings(self) -> None:
        """Audits the settings of the roster, unless this process has done so; raises LeakRefused if they leak."""
        if self._audit is not None:
            self._audit(self.roster)
            self._audit = None

    def sign(self, statement: bytes) -> bytes:
        """Signs a statement with the party's identity."""
        return Keys(self._mine.identity, self.roster.members).sign(statement)

    def has_other_incarnation(self, party: Party, incarnation: bytes) -> bool:
        """Returns whether a party's incarnation differs from its first one in this session."""
        with self._open_folder() as folder:
            return self._known_incarnations(folder.record).get(party, incarnation) != incarnation

    def begin(
        self,
        storage: Storage | None,
        number: int,
        update: Update | None,
        entries: int,
        company: Mapping[Party, bytes] | None = None,
    ) -> StepResult:
        """Begins a round and uses up its number; abandons a round that is under way.

        Args:
            storage: where Flower keeps the round; with None the process must live as long as the round.
            number: the number of the round.
            update: the update of this party; None for the server.
            entries: the length of the vectors.
            company: incarnations of all parties that are asked for the round.

        Raises:
            JournalError: if the number is used up, or `company` has another incarnation for this party.
            LeakRefused: with the audit's report, if the settings of the roster leak.
        """
        self.audit_settings()
        with self._open_folder() as folder:
            before = folder.record
            if number <= before.number:
                raise JournalError(
                    f"{self.name} has begun round {before.number} and does not begin round {number} again; try: {GONE}"
                )
            if not in_reach(before.number, number):
                raise JournalError(
                    f"round {number} is too far ahead of round {before.number}, the last of {self.name}; try: {GONE}"
                )
            known = {**(company or {}), self.name: before.incarnation}
            if company and company.get(self.name) != before.incarnation:
                raise JournalError(f"other parties know {self.name} from an earlier installation; try: {RENEW}")
            folder.record = before = msgspec.structs.replace(before, company=known)
            agreement = self._derive_agreement(entries, known)
            self._live = None
            participant = KeyedParticipant(
                agreement, self._mine.identity, number=number - 1, state=self._decode_state(agreement, before)
            )
            actions = participant.begin(update, self._seed(number))
            journal = Journal()
            if storage is not None and update is not None:
                storage[UPDATE] = self._seal(UPDATE, agreement, number, _encode_update(update))
            posts = self._record_actions(storage, journal, participant, actions)
            return self._save_round(folder, storage, journal, participant, posts)

    def advance(self, storage: Storage | None, number: int, messages: Iterable[Buffer], expired: int = 0) -> StepResult:
        """Delivers messages to the round that is under way.

        Args:
            storage: where Flower keeps the round; None if this process has lived since it began.
            number: the number of the round.
            messages: sealed messages for this party.
            expired: number of the wait that has timed out, which is handled first; 0 if none has.

        Raises:
            JournalError: if the round was not begun here, or its storage was lost or changed.
        """
        with self._open_folder() as folder:
            record = folder.record
            if number != record.number:
                raise JournalError(f"{self.name} is not in round {number}; try: {GONE}")
            if not record.under_way:
                return StepResult([], over=True)
            live, self._live = self._live, None  # After an error from here on, the round in memory is not reused.
            journal, participant = self._resume_round(storage, folder, live)
            posts: list[Post] = []
            if participant.round is not None and participant.round.waits == expired:
                posts += self._record_actions(storage, journal, participant, participant.expire())
            for data in messages:
                posts += self._record_actions(storage, journal, participant, participant.deliver(data))
            return self._save_round(folder, storage, journal, participant, posts)

    def average(self, storage: Storage) -> NDArray[np.float64] | None:
        """Returns the average of the last finished round, if the protocol has no server; None if there is none."""
        if AVERAGE not in storage:
            return None
        with self._open_folder() as folder:
            number = folder.record.averaged
        try:
            data = self._sealing.open(storage[AVERAGE], frame_parts(AVERAGE.encode(), number.to_bytes(SIZE)))
        except WireError:
            raise JournalError(f"the average of round {number} was changed; try: take part in a new run") from None
        return np.frombuffer(data)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _resume_round(
        self, storage: Storage | None, folder: NodeFolder, live: _LiveRound | None
    ) -> tuple[Journal, KeyedParticipant]:
        """Returns the round that is under way: from memory if that is current, or replayed from the journal."""
        record = folder.record
        here = live is not None and (live.participant.number, live.tip) == (record.number, folder.tip)
        if storage is None:
            if live is None or not here:
                raise JournalError(f"round {record.number} was interrupted; try: {GONE}")
            return Journal(), live.participant
        if JOURNAL not in storage or UPDATE not in storage:
            raise JournalError(
                f"the journal of {self.name} for round {record.number} is lost, and the round must not begin "
                f"again; try: {GONE}"
            )
        agreement = self._derive_agreement(record.entries, record.company)
        journal = Journal.decode(bytes(self._unseal(JOURNAL, agreement, record.number, storage[JOURNAL])), folder.tip)
        if live is not None and here:
            journal.read()  # Raises if the journal was changed, even if the round is in memory.
            return journal, live.participant
        update = _decode_update(self._unseal(UPDATE, agreement, record.number, storage[UPDATE]))
        state = self._decode_state(agreement, record)
        participant = KeyedParticipant(
            agreement, self._mine.identity, number=record.number, state=state, unfinished=True
        )
        participant.resume(journal, update)
        return journal, participant

    def _record_actions(
        self, storage: Storage | None, journal: Journal, participant: KeyedParticipant, actions: list[Action]
    ) -> list[Post]:
        """Records actions in the journal, if there is a storage; returns the messages among them."""
        if storage is not None:
            agreement = participant.agreement
            journal.record(agreement.protocol, agreement.session, self.name, actions)
        return [action for action in actions if isinstance(action, Post)]

    def _save_round(
        self,
        folder: NodeFolder,
        storage: Storage | None,
        journal: Journal,
        participant: KeyedParticipant,
        posts: list[Post],
    ) -> StepResult:
        """Saves the round to the storage and the folder; returns what is to be sent."""
        agreement, round_ = participant.agreement, participant.round
        if round_ is None:
            raise AssertionError  # A participant that was begun or resumed is in a round.
        state = agreement.protocol.encode_state(participant.state, (self.name, participant.number))
        # With a server, the next message of the strategy contains the average anyway.
        kept = None if agreement.protocol.server is not None else round_.average
        averaged = folder.record.averaged if kept is None else participant.number
        record = msgspec.structs.replace(
            folder.record,
            number=participant.number,
            under_way=not round_.over,
            entries=agreement.entries,
            averaged=averaged,
            state=state,
            session=self.roster.nonce,
            seen={
                **self._confirm_incarnations(round_, folder.record.company),
                **self._known_incarnations(folder.record),
            },
        )
        messages = [SealedMessage(post.to, post.data) for post in posts]
        if storage is not None:
            if round_.over:
                storage.pop(JOURNAL, None)
                storage.pop(UPDATE, None)
                if kept is not None:
                    vector = np.ascontiguousarray(kept.vector, np.float64).data.cast("B")
                    storage[AVERAGE] = self._sealing.seal(
                        vector, frame_parts(AVERAGE.encode(), participant.number.to_bytes(SIZE))
                    )
            else:
                storage[JOURNAL] = self._seal(JOURNAL, agreement, participant.number, journal.encode())
        # The state is durable before anything is sent. If the storage is lost afterwards, the tip detects it.
        folder.write(record, b"" if round_.over else journal.tip)
        if round_.over:
            self.last = round_.ending
            return StepResult(messages, over=True, error="" if round_.error is None else round_.error.code)
        self._live = _LiveRound(folder.tip, participant)
        return StepResult(messages, round_.waits, 0.0 if round_.wait is None else round_.wait.patience)

    def _known_incarnations(self, record: NodeRecord) -> Mapping[Party, bytes]:
        return record.seen if record.session == self.roster.nonce else {}

    def _confirm_incarnations(self, round_: Round, company: Mapping[Party, bytes]) -> Mapping[Party, bytes]:
        """Returns the incarnations of the contributors to a server's average.

        A contributor's messages could be opened, so its incarnation is the one in the session of the round.
        """
        if self.name != SERVER or not round_.over or round_.average is None:
            return {}
        return {party: company[party] for party in round_.ending.contributors if party in company}

    # --- stored state ------------------------------------------------------------------------------------------------

    def _open_folder(self) -> NodeFolder:
        return NodeFolder(self._folder, self.name, self._sealing)

    def _derive_agreement(self, entries: int, company: Mapping[Party, bytes]) -> Agreement:
        if self._agreement is None or self._agreement.entries != entries:
            self._agreement = self.roster.agreement(entries)
        # The session differs from that of a federation between machines, which may have the same roster and other round
        # numbers.
        known = [part for party in sorted(company) for part in (party.encode(), company[party])]
        parts = (b"tacit/v2/flower", bytes.fromhex(self.roster.nonce), *known)
        nonce = hashlib.sha256(frame_parts(*parts)).digest()[:NONCE_BYTES]
        if self._agreement.nonce != nonce:
            self._agreement = replace(self._agreement, nonce=nonce)
        return self._agreement

    def _decode_state(self, agreement: Agreement, record: NodeRecord) -> Any:
        if record.state is None:
            return None
        return agreement.protocol.decode_state(record.state, (self.name, record.number))

    def _seal(self, key: str, agreement: Agreement, number: int, data: bytes) -> bytes:
        return self._sealing.seal(data, _seal_context(key, agreement, number))

    def _unseal(self, key: str, agreement: Agreement, number: int, data: bytes) -> Buffer:
        try:
            return self._sealing.open(data, _seal_context(key, agreement, number))
        except WireError:
            raise JournalError(
                f"what {self.name} had stored for round {number} was changed, or is from another round; try: {GONE}"
            ) from None


def _seal_context(key: str, agreement: Agreement, number: int) -> bytes:
    return frame_parts(key.encode(), agreement.session, number.to_bytes(SIZE))


def _encode_update(update: Update) -> bytes:
    """Encodes an update as bytes."""
    vector = np.ascontiguousarray(update.vector)
    front = msgspec.msgpack.encode(UpdateMetadata.of(update))
    return b"".join((len(front).to_bytes(SIZE), front, vector.data.cast("B")))


def _decode_update(data: Buffer) -> Update:
    """Decodes an update."""
    view = memoryview(data)
    end = SIZE + int.from_bytes(view[:SIZE])
    return msgspec.msgpack.decode(view[SIZE:end], type=UpdateMetadata).update(view[end:])
