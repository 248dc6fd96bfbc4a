"""Recipes in words: the messages and masks that a coalition adds and subtracts to recover a party's vector."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from tacit.auditing.engine.multi_round import Together
from tacit.auditing.engine.recipes import Part, Recipe, RecipePiece, Source, SumRecipe
from tacit.auditing.engine.views import FromShares, KnownVector, View
from tacit.auditing.render.formulas import list_terms
from tacit.auditing.symbolic.forms import ONE
from tacit.auditing.symbolic.suite import Agreed, Made
from tacit.core.average import format_count
from tacit.core.suite import Party

MOST_LINES = 6
"""The largest number of lines of a recipe that are written out. A recipe can have thousands."""
MOST_MASKS = 2
"""The largest number of kinds of masks that are distinguished in one line."""
MOST_NAMES = 5
"""The largest number of parties that are named where many did the same."""


class Ingredient(NamedTuple):
    """Description of one known vector: its owner, and words around the owner's name. Equal words are merged over
    owners."""

    whose: Party
    """The party whose name stands between `before` and `after`."""
    before: str
    after: str
    mask: bool = False


@dataclass(frozen=True)
class RecipeText:
    """A recipe in words."""

    victim: Party
    uses: str
    """The vectors that the recipe uses, in one phrase."""
    lines: tuple[str, ...]
    """The terms that are added and subtracted. The first one has no sign."""
    more: int
    """Number of lines that were left out."""

    def __str__(self) -> str:
        rest = f", and {self.more} more" if self.more else ""
        return f"{self.victim} is {', '.join(self.lines)}{rest}"


def describe_recipe(recipe: Recipe | SumRecipe | Together) -> RecipeText:
    """Returns in words how a recipe recovers its victim's vector."""
    if isinstance(recipe, Recipe):
        pieces = sorted(recipe.pieces[min(recipe.pieces)], key=lambda piece: piece.factor < 0)
        lines = [_line(recipe.view, piece) for piece in pieces]
        uses = _uses(recipe.view, [part for piece in pieces for part in piece.parts])
    else:
        steps = sorted(list_terms(recipe), key=lambda step: step[0] < 0)
        lines = [(factor, what) for factor, parts in steps for _, what in parts]
        count = len(steps)
        uses = (
            "one message and shares of its masks"
            if isinstance(recipe, Together)
            else format_count(count, "sum or vector", "sums and vectors")
        )
    told = [_write_term(factor, what, first=not place) for place, (factor, what) in enumerate(lines[:MOST_LINES])]
    return RecipeText(recipe.victim, uses, tuple(told), max(0, len(lines) - MOST_LINES))


def _line(view: View, piece: RecipePiece) -> tuple[Fraction, str]:
    """Returns a factor, and a description of the sum that it multiplies."""
    factor, parts = piece.factor, piece.parts
    if len(parts) == 1 or all(part.times == parts[0].times for part in parts):
        factor, parts = factor * parts[0].times, tuple(Part(1, part.source, part.place) for part in parts)
    alike: dict[tuple[int, str, str, bool], list[Party]] = defaultdict(list)
    for part in parts:
        found = ingredient(view, part.source)
        alike[part.times, found.before, found.after, found.mask].append(found.whose)
    words = ""
    for (times, before, after, mask), whose in sorted(alike.items(), key=lambda each: (each[0][3], each[0][0] < 0)):
        if not mask:
            sign = (" without " if times < 0 else " plus ") if words else ("minus " if times < 0 else "")
            words += f"{sign}{'' if abs(times) == 1 else f'{abs(times)} × '}{before}{join_names(whose)}{after}"
    words += _describe_masks([(before, whose, after) for (_, before, after, mask), whose in alike.items() if mask])
    return factor, f"({words})" if len(alike) > 1 and abs(factor) != 1 else words


def _describe_masks(masks: Sequence[tuple[str, list[Party], str]]) -> str:
    """Returns which masks are removed, or added again where they were removed twice."""
    if len(masks) > MOST_MASKS:
        return f", with {sum(len(whose) for _, whose, _ in masks)} masks taken off that it can compute"
    told = _and([f"{before}{join_names(whose)}{after}" for before, whose, after in masks])
    return f", with {told} taken off" if told else ""


def ingredient(view: View, source: Source) -> Ingredient:
    """Returns the description of one known vector or number."""
    if not isinstance(source, KnownVector):
        if source == ONE:
            return Ingredient("", "1", "")
        party, number = source[1][:2] if isinstance(source[1], tuple) else (source[1], 0)
        what = "vector" if source[0] in ("input", "plain") else source[0]
        return Ingredient(party, "", f"'s own {what}{_when(number)}")
    return _mask(view, source.token) if source.is_mask else _message(view, source.token)


def _message(view: View, token: bytes) -> Ingredient:
    address = view.address_of(token)
    step = f", step {address.step}" if address.step > 1 else ""
    return Ingredient(address.sender, "what ", f" sent to {address.to}{_when(address.round)} ({address.kind}{step})")


def _mask(view: View, token: bytes) -> Ingredient:
    meaning = view.world.meaning(token)
    if isinstance(meaning, Made):
        how = " (from their shares)" if isinstance(view.how[token], FromShares) else ""
        return Ingredient(meaning.by, "the masks of ", how, mask=True)
    if isinstance(meaning, Agreed):
        names = view.owners(meaning)
        ours = next((name for name in names if name in view.coalition), names[-1])
        theirs = next((name for name in names if name != ours), ours)
        return Ingredient(theirs, "the masks of ", f" with {ours}", mask=True)
    return Ingredient("", "a mask", "", mask=True)


def _uses(view: View, parts: Sequence[Part]) -> str:
    """Returns the vectors that a recipe uses, in one phrase."""
    known = [part.source for part in parts]
    messages = sum(isinstance(each, KnownVector) and not each.is_mask for each in known)
    masks = sum(isinstance(each, KnownVector) and each.is_mask for each in known)
    own = {ingredient(view, each).whose for each in known if not isinstance(each, KnownVector) and each != ONE}
    words = [format_count(count, what) for count, what in ((messages, "message"), (masks, "mask")) if count]
    words += [f"what {join_names(own)} brought or drew"] if own else []
    return _and(words)


def join_names(names: Iterable[Party]) -> str:
    """Returns a list of names in words; of many names, only some."""
    several = sorted(set(names), key=lambda name: (len(name), name))
    if len(several) > MOST_NAMES:
        return f"{', '.join(several[: MOST_NAMES - 1])} and {len(several) - MOST_NAMES + 1} others"
    return _and(several)


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))


def _when(number: int) -> str:
    return f" in round {number}" if number > 0 else ""


def _write_term(factor: Fraction, what: str, first: bool) -> str:
    size = abs(factor)
    shown = str(size) if max(size.numerator, size.denominator) < 1000 else f"{float(size):.4g}"
    sign = ("minus " if factor < 0 else "") if first else ("minus " if factor < 0 else "plus ")
    return f"{sign}{'' if size == 1 else f'{shown} × '}{what}"
