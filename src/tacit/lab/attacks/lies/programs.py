"""Parties in a sequence of rounds: their state on disk and in the program, and every way in which both can change.

A party follows the rules of its driver. `PROGRAM` is a program with a `Peer`: it saves its model with the lineage after
every average. It may be killed and restarted from any saved model, and follows the rule of `api.held_model`. `STATE` is
a driver whose updates name no lineage, such as a simulation: the party's state represents what the program holds, and
there are no restarts.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tacit.api.held_model import HeldModel
from tacit.core.errors import NotRestored
from tacit.core.suite import Party, Update
from tacit.lab.attacks.lies.sessions import (
    DIGITS,
    ENTRIES,
    Announcement,
    ClientEnding,
    ClientInputs,
    Model,
    encode_state,
    read_lineage,
    round_model,
)
from tacit.protocols.secagg.settings import SecAggState

Driver: TypeAlias = Literal["program", "state"]
Endings: TypeAlias = Mapping[ClientEnding, Announcement | None]
"""The different endings to which a server can lead a client, each with an announcement that does so."""
PROGRAM: Driver = "program"
STATE: Driver = "state"
INITIAL: Model = (0.5,) * ENTRIES
"""The initial model of all parties."""
LARGEST = 65504.0
"""The largest entry that a program's arrays can hold, as in half precision."""
ANYBODY: Party = "p0"
"""Name in errors, which are not shown."""


class SavedModel(NamedTuple):
    """A model that a program saved, with its lineage."""

    model: Model = INITIAL
    lineage: bytes = b""


class InterruptedRound(NamedTuple):
    """A round in which the machine crashed."""

    inputs: ClientInputs
    ending: ClientEnding | None = None
    """Result of the round, if the last message was on disk but the result was not."""


class MemberState(NamedTuple):
    """A party between two rounds, on disk and in memory."""

    session: int = 0
    """The party's roster, by its place in the sequence of rosters."""
    state: bytes = encode_state(SecAggState())
    """The state that was saved last."""
    average: SavedModel | None = None
    """The average on disk with its lineage, for `restore`."""
    unwritten: SavedModel | None = None
    """The average of a round that a restart found to be finished, until it is written or discarded."""
    model: Model = INITIAL
    """The program's model, without its local work."""
    held: bytes = b""
    """`HeldModel.lineage`."""
    adopted: bytes = b""
    """`HeldModel.adopted`."""
    checkpoints: frozenset[SavedModel] = frozenset({SavedModel()})
    interrupted: InterruptedRound | None = None
    running: bool = True

    @property
    def lineage(self) -> bytes:
        """Lineage of the party, as reported by its node."""
        return read_lineage(self.state)

    @property
    def resuming(self) -> bool:
        """Whether the next call of `average` completes an interrupted round."""
        return self.running and self.interrupted is not None

    def begin(self, number: int, driver: Driver, *, changes: bool) -> ClientInputs | None:
        """Returns the inputs with which the party begins or completes a round; None if it refuses."""
        if driver == STATE:
            return ClientInputs(number, self.state)
        if not self.running:
            return None
        held = HeldModel(self.held, self.adopted)
        update = None
        if self.resuming and self.interrupted is not None:
            update = Update(np.zeros(ENTRIES), lineage=self.interrupted.inputs.lineage)
        try:
            held.check(ANYBODY, self.lineage, update, adds_up=changes)
        except NotRestored:
            return None
        if self.interrupted is not None:
            return self.interrupted.inputs
        return ClientInputs(number, self.state, held.lineage)


def adopt_ending(member: MemberState, ending: ClientEnding, driver: Driver, *, changes: bool) -> MemberState:
    """Returns a party after a round: an average replaces the model or is added to it, and an error changes nothing."""
    after = member._replace(state=ending.state, interrupted=None, unwritten=None)
    if ending.average is None:
        return after
    after = after._replace(average=SavedModel(ending.average, after.lineage))
    if max(map(abs, ending.average)) > LARGEST:
        return after  # The program gets an error, and keeps its model.
    model = _put_back(member.model, ending.average, changes=changes)
    if driver == STATE:
        return after._replace(model=model)
    held = HeldModel(after.held, after.adopted)
    held.take(after.lineage)
    return _save(after._replace(model=model, held=held.lineage, adopted=held.adopted))


def list_turns(
    member: MemberState, inputs: ClientInputs, endings: Endings, driver: Driver, *, changes: bool
) -> Iterator[tuple[str, MemberState]]:
    """Yields the possible states of a party after a round, each with a description. The machine may crash at two
    moments.

    It may crash before the server's message is on disk, or between the message and the result of the round.
    """
    for ending, told in endings.items():
        text = describe_announcement(told)
        yield text, adopt_ending(member, ending, driver, changes=changes)
        if driver == PROGRAM and told is not None:
            failed = InterruptedRound(inputs, ending)
            yield f"{text}, and its machine fails before the round is finished", _fail(member, failed)
    if driver == PROGRAM and member.interrupted is None:
        yield "its machine fails", _fail(member, InterruptedRound(inputs))


def describe_announcement(told: Announcement | None) -> str:
    """Returns a description of what a server sent to a client."""
    if told is None:
        return "is told nothing"
    return f"is told {told.text}"


def list_restarts(member: MemberState, sessions: int, *, changes: bool) -> Iterator[tuple[str, MemberState]]:
    """Yields a party after a restart, for every model that its program saved and every first call that it can make."""
    for session in range(member.session, min(member.session + 2, sessions)):
        moved = " with the next roster" if session != member.session else ""
        started = _start_node(member, session)
        for checkpoint in sorted(member.checkpoints):
            loaded = started._replace(model=checkpoint.model, held=b"", adopted=b"")
            saved = "a model that it saved" if checkpoint.lineage else "the initial model"
            name = f"starts again{moved} from {saved}"
            yield f"{name}, and calls nothing", loaded
            if checkpoint.lineage:
                held = HeldModel()
                held.continue_from(checkpoint.lineage.hex(), loaded.lineage)
                yield (
                    f"{name}, and continues from its lineage",
                    loaded._replace(held=held.lineage, adopted=held.adopted),
                )
        restored = _restore(started, changes=changes)
        if restored is not None:
            yield f"starts again{moved}, and restores", restored


def change_roster(member: MemberState, sessions: int) -> Iterator[tuple[str, MemberState]]:
    """Yields a party without a program, with the next roster."""
    if member.session + 1 < sessions:
        yield "gets the next roster", member._replace(session=member.session + 1)


def _start_node(member: MemberState, session: int) -> MemberState:
    """Returns a party whose node has started: an interrupted round is resumed, or abandoned under another roster."""
    interrupted, same = member.interrupted, session == member.session
    unwritten = member.unwritten if same else None
    state = member.state
    if interrupted is not None and interrupted.ending is not None:
        state, average = interrupted.ending.state, interrupted.ending.average
        unwritten = SavedModel(average, read_lineage(state)) if same and average is not None else None
        interrupted = None
    return member._replace(
        session=session,
        state=state,
        unwritten=unwritten,
        interrupted=interrupted if same else None,
        running=True,
    )


def _restore(member: MemberState, *, changes: bool) -> MemberState | None:
    """Returns a party whose program calls `restore`; None if that is refused."""
    kept = member.average if member.unwritten is None else member.unwritten
    if kept is None or (changes and member.lineage) or max(map(abs, kept.model)) > LARGEST:
        return None
    held = HeldModel()
    held.continue_from(kept.lineage.hex(), member.lineage)
    return _save(
        member._replace(average=kept, unwritten=None, model=kept.model, held=held.lineage, adopted=held.adopted)
    )


def _fail(member: MemberState, interrupted: InterruptedRound) -> MemberState:
    """Returns a party whose machine has crashed. Of its program only checkpoints remain."""
    return member._replace(interrupted=interrupted, unwritten=None, model=INITIAL, held=b"", adopted=b"", running=False)


def _save(member: MemberState) -> MemberState:
    return member._replace(checkpoints=member.checkpoints | {SavedModel(member.model, member.held)})


def _put_back(model: Model, average: Model, *, changes: bool) -> Model:
    if not changes:
        return average
    return round_model(round(a + b, DIGITS) for a, b in zip(model, average, strict=True))
