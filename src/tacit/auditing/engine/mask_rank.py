"""Check for masks that hide a sum over the whole numbers but not modulo a power of two.

A view is X + M m, with masks m that are uniform modulo 2^k. Besides the combinations in which masks cancel, it exposes
combinations of X modulo the powers of two in the invariant factors of M (Smith normal form). For example, x + a + b and
y + a − b expose the last bit of x + y. There is no such combination exactly if M has the same rank modulo two as over
the fractions.
"""

from collections.abc import Iterable, Mapping, Sequence

from tacit.auditing.engine.algebra.linear import SMALL_PRIME
from tacit.auditing.engine.views import View
from tacit.auditing.symbolic.forms import Unknown
from tacit.core.average import list_names
from tacit.core.errors import NotAuditable
from tacit.core.protocol import Protocol
from tacit.core.suite import Party
from tacit.protocols import is_shipped


def check_masks(protocol: Protocol, coalition: Sequence[Party], view: View) -> None:
    """Raises NotAuditable if masks of a protocol that is not shipped hide less modulo 2^k than over the fractions."""
    if not is_shipped(protocol) and not hides_last_bits(view):
        raise NotAuditable(
            f"{protocol.name} cannot be audited: in what {list_names(coalition)} sees, masks cancel modulo a "
            "power of two, so they do not hide the last bits; try: use every mask in one sum and one "
            f"difference at most"
        )


def hides_last_bits(view: View) -> bool:
    """Says whether the unknown masks in a view hide either all bits of a value or none."""
    known = {token for token, each in view.packed.items() if each.is_mask}
    rows = []
    for each in view.packed.values():
        for form in () if each.is_mask else each.vector:
            masks = {unknown: factor for unknown, factor in form.terms.items() if unknown[0] == "mask"}
            if row := {unknown: factor for unknown, factor in masks.items() if unknown[1] not in known}:
                if any(factor.denominator != 1 or factor.numerator % 2 == 0 for factor in row.values()):
                    return False
                rows.append({unknown: int(factor) for unknown, factor in row.items()})
    return rank(rows, 2) == rank(rows, SMALL_PRIME)


def rank(rows: Iterable[Mapping[Unknown, int]], prime: int) -> int:
    """Returns the rank of sparse whole-number rows modulo a prime."""
    pivots: dict[int, dict[int, int]] = {}
    columns: dict[Unknown, int] = {}
    for each in rows:
        row = {columns.setdefault(unknown, len(columns)): factor % prime for unknown, factor in each.items()}
        row = {column: factor for column, factor in row.items() if factor}
        # Rows are sorted by their first column, so subtracting one from another leaves only later columns.
        while row:
            lead = min(row)
            if lead not in pivots:
                inverse = pow(row[lead], -1, prime)
                pivots[lead] = {column: factor * inverse % prime for column, factor in row.items()}
                break
            times = row[lead]
            for column, factor in pivots[lead].items():
                if rest := (row.get(column, 0) - times * factor) % prime:
                    row[column] = rest
                else:
                    row.pop(column, None)
    return len(pivots)
