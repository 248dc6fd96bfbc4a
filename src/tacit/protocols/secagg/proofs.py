"""The arguments for `secagg` (see `docs/claims.md`): what a server and its users learn, for any number of users."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tacit.core.protocol_facts import ArgumentCode, CoalitionQuery, PrivacyArgument
from tacit.designs.participation import Batches, Partition, Sampled
from tacit.protocols.shapes.proofs import LEFT, count_bits, one_sum

if TYPE_CHECKING:
    from tacit.protocols.secagg.settings import SecAggTerms


def arguments_of(terms: "SecAggTerms", query: CoalitionQuery) -> Iterator[PrivacyArgument]:
    """Yields the privacy arguments whose conditions hold."""
    n, c = len(terms.parties), query.size
    if not masks_hold(terms, c - 1):
        return
    dropouts = masks_hold(terms, c - 1, dropouts=True)
    if terms.sums_everybody and n - c >= LEFT:
        # If every sum needs all users, a dropout ends the round without a sum.
        all_or_nothing = dropouts and terms.smallest_sum == n
        yield _circle(terms, n - c) if terms.sparse else one_sum(n - c, dropouts=all_or_nothing)
    if isinstance(terms.policy, Batches | Partition) and (left := terms.policy.promise - c) >= LEFT:
        # Every sum contains either all members of a batch or none.
        yield PrivacyArgument(
            ArgumentCode.WHOLE_BATCHES,
            bits=count_bits(left),
            dropouts=dropouts,
            facts={"batch": terms.policy.promise, "left": left},
        )
    if query.fresh and (left := terms.smallest_sum - c) >= LEFT:
        # A vector that is sent only once is in one sum only.
        yield PrivacyArgument(
            ArgumentCode.FRESH_SUMS, bits=count_bits(left), dropouts=dropouts, facts={"others": left - 1}
        )


def _circle(terms: "SecAggTerms", left: int) -> PrivacyArgument:
    """Returns the argument "circle": in a sparse graph, honest users stay connected as long as few collude."""
    return PrivacyArgument(ArgumentCode.CIRCLE, bits=count_bits(left), facts={"degree": _even_degree(terms)})


def masks_hold(terms: "SecAggTerms", colluders: int, dropouts: bool = False) -> bool:
    """Returns whether the server and `colluders` users together learn nothing from a round but its sum."""
    if colluders >= terms.threshold:
        return False
    if not terms.sparse:
        return True
    # The graph is disconnected only by two runs of degree/2 places without an honest chosen user; one run is not
    # enough. Users check that each run has more than t − degree/2 − 1 chosen users. If all are chosen, it has degree/2.
    degree = _even_degree(terms)
    if colluders < 2 * terms.threshold - degree:
        return True
    thinned = isinstance(terms.policy, Sampled) and terms.policy.exactly < terms.policy.most(len(terms.parties))
    return not dropouts and not thinned and colluders < degree


def _even_degree(terms: "SecAggTerms") -> int:
    degree = terms.settings.degree or 0
    return degree + degree % 2
