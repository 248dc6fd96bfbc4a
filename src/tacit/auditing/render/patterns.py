"""Words for random patterns: who drops out, who takes part, and what else differs from seed to seed."""

from collections.abc import Sequence

from tacit.auditing.render.recipes import join_names
from tacit.core.average import format_count


def describe_patterns(count: int, dropouts: bool, drawn: Sequence[str] = ()) -> str:
    """Returns how many random patterns were tried, and of what, with a verb in the past tense."""
    what = "dropouts" if dropouts else "participants"
    if drawn and not dropouts:
        what = join_names(drawn)
    elif drawn:
        what += f" and {join_names(drawn)}"
    return f"{format_count(count, 'random pattern')} of {what} {'was' if count == 1 else 'were'} tried"
