"""Settings that `secagg` proposes to planners, and the claims of its papers."""

from collections.abc import Collection, Iterator

from tacit.core.protocol_facts import Claim, ConditionCode, Promise, ProposedSettings, ReasonCode
from tacit.core.suite import SERVER, Party
from tacit.designs.circle import secure_degree
from tacit.designs.participation import Batches
from tacit.protocols.secagg.settings import SecAggTerms

LARGE = 64
"""Most users in a complete graph. With more, settings with a sparse graph are proposed."""
FEW = 10
"""Most users for whom rounds that need every user are proposed."""
DROPOUTS = 0.1
"""Fraction of the users that may drop out of a proposed sparse graph."""


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields settings for all users in every round, for rounds that need every user, and for whole batches."""
    n, c = parties, colluding
    if n <= LARGE:
        if _threshold(n, c) < n <= FEW:
            # All sums are of the same users, so two of them have no difference that shows a vector.
            yield ProposedSettings({"threshold": n}, ReasonCode.ALL_OR_NOTHING)
        yield ProposedSettings({"threshold": _threshold(n, c)}, ReasonCode.EVERYBODY)
    else:
        degree, threshold = secure_degree(n, c / n, DROPOUTS)
        yield ProposedSettings({"neighbours": degree, "threshold": threshold}, ReasonCode.EVERYBODY_SPARSE)
    # Colluding members of a batch can subtract their vectors from its sum, and two others must remain.
    batch = next((size for size in range(c + 2, n // 2 + 1) if n % size == 0), None)
    if batch is not None:
        asked = batch * max(1, n // batch // 2)
        policy = {"kind": "batches", "per_round": asked, "privacy": batch}
        yield ProposedSettings(
            {"participation": policy, "threshold": _threshold(asked, c)},
            ReasonCode.WHOLE_BATCHES,
            {"per_round": asked, "batch": batch},
        )


def _threshold(holders: int, c: int) -> int:
    """Returns a threshold with which c colluding holders cannot help a server to unmask two different sets."""
    # Also, a sum with all colluders in it must contain two others.
    return min(holders, max(2 * holders // 3 + 1, (holders + c) // 2 + 1, c + 2))


def _one_round(terms: SecAggTerms, coalition: Collection[Party], rounds: int) -> Promise | None:
    del terms
    return Promise(False, ConditionCode.SERVER_ONE_ROUND) if set(coalition) == {SERVER} and rounds == 1 else None


def _batches(terms: SecAggTerms, coalition: Collection[Party], rounds: int) -> Promise | None:
    policy = terms.policy
    if not isinstance(policy, Batches) or set(coalition) != {SERVER} or policy.privacy < 2:
        return None
    return Promise(False, ConditionCode.BATCHES, {"batch": policy.privacy, "rounds": rounds})


CLAIMS = (
    Claim("003", "Section 3", "the server learns the sum over the chosen users and nothing else", _one_round),
    Claim(
        "002",
        "Theorem (guarantees)",
        "over any number of rounds no sum of fewer than T users can be singled out",
        _batches,
    ),
)
