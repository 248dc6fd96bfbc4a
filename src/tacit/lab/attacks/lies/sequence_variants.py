"""Variants that lack a precaution against lies over several rounds. The search over sequences must break each of them.

Each has a vulnerability that a release had, or would have without one of its checks. Functions are replaced in this
process only.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from tacit.api.held_model import HeldModel
from tacit.core.average import Average
from tacit.core.errors import NotEnough
from tacit.core.lineage import START, extend_lineage
from tacit.core.suite import Buffer, Party
from tacit.lab.attacks.lies.programs import PROGRAM, STATE
from tacit.lab.attacks.lies.sequences import SequenceCase
from tacit.lab.attacks.lies.variants import Replacements
from tacit.protocols.secagg import settings, user
from tacit.protocols.secagg.settings import Accord, AnnouncedSum, SecAggState
from tacit.vectors.fixedpoint import FixedPoint


@dataclass(frozen=True)
class SequenceVariant:
    """The replaced functions, and the length of the shortest sequence that works then."""

    replaced: Replacements
    case: SequenceCase
    rounds: int
    """The first round in which parties with different models mask together."""


def _skip_check(*_: Any, **__: Any) -> None:
    """Does nothing, instead of a check."""


async def _adopt_without_model(
    accord: Accord, state: SecAggState, base: user.BaseModel, announced: AnnouncedSum
) -> Average:
    """Signs the last received sum, and gives the program no average of an earlier round."""
    del base
    heard = extend_lineage(START, 0, (), b"", announced.vector)
    average = announced.average(accord.suite.ring)
    await accord.link.save(state.adopt_lineage(accord.suite.ring.length, heard))
    if announced.round != accord.link.round:
        raise NotEnough("parties with the last average", 0, 1)
    return Average(average, announced.contributors)


async def _adopt_any_change(
    accord: Accord, state: SecAggState, base: user.BaseModel, announced: AnnouncedSum
) -> Average:
    """Adopts a change even if the party lacks the previous one."""
    del base
    adopted = announced.lineage(accord.units(changes=True))
    average = announced.average(accord.suite.ring)
    await accord.link.save(state.adopt_lineage(accord.suite.ring.length, adopted))
    return Average(average, announced.contributors)


_CARRY_OVER = Accord.carry_over


def _forget_with_roster(accord: Accord, state: SecAggState) -> SecAggState:
    """Begins a new lineage in each session. The session is stored in a field that only servers use."""
    session = 1 + int.from_bytes(accord.link.session[:4])
    if state.round not in (0, session):
        state = msgspec.structs.replace(state, lineages={})
    return msgspec.structs.replace(_CARRY_OVER(accord, state), round=session)


def _sign_last_sum(before: bytes, round_: int, contributors: tuple[Party, ...], units: bytes, total: Buffer) -> bytes:
    """Returns a lineage that depends only on the last sum."""
    del before
    return extend_lineage(START, round_, contributors, units, total)


def _leave_out_units(before: bytes, round_: int, contributors: tuple[Party, ...], units: bytes, total: Buffer) -> bytes:
    """Returns a lineage without units, whose numbers may mean any average."""
    del units
    return extend_lineage(before, round_, contributors, b"", total)


SEQUENCE_VARIANTS: dict[str, SequenceVariant] = {
    "the last sum is signed and its model is not delivered": SequenceVariant(
        ((user, "adopt", _adopt_without_model),), SequenceCase(driver=STATE), rounds=3
    ),
    "a change of the roster resets what is signed": SequenceVariant(
        ((Accord, "carry_over", _forget_with_roster),), SequenceCase("the roster is renewed", STATE), rounds=2
    ),
    "an average that no program can hold is signed": SequenceVariant(
        ((FixedPoint, "check_sum", _skip_check),), SequenceCase(driver=STATE), rounds=3
    ),
    "a missing change is not refused": SequenceVariant(
        ((user, "adopt", _adopt_any_change),), SequenceCase(driver=STATE, changes=True), rounds=3
    ),
    "changes add up and only the last is signed": SequenceVariant(
        ((settings, "extend_lineage", _sign_last_sum),), SequenceCase(driver=STATE, changes=True), rounds=3
    ),
    "a lineage does not say in which units a sum is": SequenceVariant(
        ((settings, "extend_lineage", _leave_out_units),), SequenceCase("another scale of numbers", STATE), rounds=2
    ),
    "a restarted program need not restore": SequenceVariant(
        ((HeldModel, "check", _skip_check),), SequenceCase(driver=PROGRAM), rounds=2
    ),
}
"""Variants by the missing precaution."""
