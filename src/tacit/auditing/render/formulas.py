"""Recipes as formulas: a victim's vector as a linear combination of named messages, masks and vectors."""

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from tacit.auditing.engine.multi_round import Together
from tacit.auditing.engine.recipes import Recipe, Source, SumRecipe
from tacit.auditing.engine.views import FromShares, KnownVector, View
from tacit.auditing.symbolic.forms import ONE
from tacit.auditing.symbolic.suite import Agreed, Made

MOST_TERMS = 6
"""The largest number of terms that are written out. A recipe can have thousands."""

Term: TypeAlias = tuple[Fraction, list[tuple[int, str]]]
"""A factor, and the sum that it multiplies: whole multiples of named vectors."""


def list_terms(recipe: Recipe | SumRecipe | Together) -> list[Term]:
    """Returns the terms whose sum is the victim's vector; for a `Recipe`, the vector's first exposed entry."""
    if isinstance(recipe, Recipe):
        found = [
            (piece.factor, [(part.times, _name_source(recipe.view, part.source)) for part in piece.parts])
            for piece in recipe.pieces[min(recipe.pieces)]
        ]
        return sorted(found, key=lambda each: len(each[1]))
    if isinstance(recipe, Together):
        what = (
            f"what it sent in round {recipe.round}, unmasked with the shares of the {recipe.members} members asked "
            f"in it"
        )
        return [(Fraction(1), [(1, what)])]
    sums = [(factor, f"the sum of round {round_}") for round_, factor in recipe.factors.items()]
    own = [(-factor, f"the vector of {party} in round {round_}") for (party, round_), factor in recipe.own.items()]
    return [(Fraction(factor).limit_denominator(10**6), [(1, what)]) for factor, what in (*sums, *own)]


def render_formula(recipe: Recipe | SumRecipe | Together) -> str:
    """Returns a recipe as one line: the victim, an equals sign, and the first terms."""
    return f"{recipe.victim} = {_render_terms(list_terms(recipe))}"


def _name_source(view: View, source: Source) -> str:
    """Returns the name of one vector or number that the coalition knows."""
    if not isinstance(source, KnownVector):
        if source == ONE:
            return "1"
        party, round_ = source[1][:2] if isinstance(source[1], tuple) else (source[1], 0)
        when = f" in round {round_}" if round_ > 1 else ""
        return f"{party}'s own {'vector' if source[0] in ('input', 'plain') else source[0]}{when}"
    return _name_mask(view, source.token) if source.is_mask else _name_message(view, source.token)


def _name_message(view: View, token: bytes) -> str:
    address = view.address_of(token)
    when = "".join(
        f", {name} {number}" for name, number in (("round", address.round), ("step", address.step)) if number > 1
    )
    return f"what {address.sender} sent to {address.to} ({address.kind}{when})"


def _name_mask(view: View, token: bytes) -> str:
    meaning = view.world.meaning(token)
    if isinstance(meaning, Made):
        return f"a mask of {meaning.by}" + (" from its shares" if isinstance(view.how[token], FromShares) else "")
    if isinstance(meaning, Agreed):
        return f"the mask that {' and '.join(sorted(view.owners(meaning)))} share"
    return "a mask"


def _render_terms(terms: Sequence[Term]) -> str:
    words: list[str] = []
    for factor, parts in terms[:MOST_TERMS]:
        sign = -1 if (factor < 0) != (len(parts) == 1 and parts[0][0] < 0) else 1
        size = abs(factor) * (abs(parts[0][0]) if len(parts) == 1 else 1)
        inner = parts[0][1] if len(parts) == 1 else "(" + _render_sum(parts) + ")"
        words.append(
            ("- " if sign < 0 else "+ " if words else "") + ("" if size == 1 else f"{_render_size(size)} × ") + inner
        )
    more = len(terms) - MOST_TERMS
    return " ".join(words) + (f" and {more} more terms" if more > 0 else "")


def _render_sum(parts: Sequence[tuple[int, str]]) -> str:
    ordered = sorted(parts, key=lambda part: part[0] < 0)
    words: list[str] = []
    for times, what in ordered[:MOST_TERMS]:
        sign = "- " if times < 0 else "+ " if words else ""
        words.append(sign + ("" if abs(times) == 1 else f"{abs(times)} × ") + what)
    more = len(parts) - MOST_TERMS
    return " ".join(words) + (f" and {more} more" if more > 0 else "")


def _render_size(size: Fraction) -> str:
    return str(size) if max(size.numerator, size.denominator) < 10**6 else f"{float(size):.6g}"
