"""Variants of `secagg` that lack a precaution. The search over lies must break them, or it would miss such lies.

While a variant is active, functions of the client are replaced by ones without the check. This affects only this
process, and is undone afterwards.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tacit.core.messages import SIGNATURE_BYTES
from tacit.core.suite import KeyPair, Secret, Vector
from tacit.designs.circle import Circle
from tacit.designs.participation import Sampled
from tacit.lab.attacks.lies.cases import LieCase
from tacit.protocols.secagg import user
from tacit.protocols.secagg.messages import Consents
from tacit.protocols.secagg.settings import Accord, SecAggState

Sets = tuple[bytes, bytes, bytes]
UNSIGNED = b""
"""Placeholder that is signed, or bound into keys, instead of a set that nobody authenticates."""


Replacements = tuple[tuple[Any, str, Callable[..., Any]], ...]
"""Modules or classes, each with the name of a function and its replacement."""


@dataclass(frozen=True)
class Variant:
    """The replaced functions, and the smallest case in which a lie works then."""

    replaced: Replacements
    case: LieCase
    exposes: bool = True
    """Whether a vector is exposed. Otherwise a sum of too few users is known, or a second sum."""


@contextmanager
def use_variant(name: str) -> Iterator[Variant]:
    """Replaces `secagg` by a variant until the end of the block."""
    chosen = VARIANTS[name]
    with replace_functions(chosen.replaced):
        yield chosen


@contextmanager
def replace_functions(replaced: Replacements) -> Iterator[None]:
    """Replaces functions until the end of the block."""
    kept = [(where, which, getattr(where, which)) for where, which, _ in replaced]
    try:
        for where, which, instead in replaced:
            setattr(where, which, instead)
        yield
    finally:
        for where, which, function in kept:
            setattr(where, which, function)


def _skip_check(*_: Any) -> None:
    """Does nothing, instead of a check."""


def _accept_any_u2(accord: Accord, state: SecAggState, u: int, u2: frozenset[int]) -> None:
    """Takes part with any U2, however small."""
    del accord, state
    if u not in u2:
        raise user.blame_server("it did not ask us")


def _accept_any_u5(accord: Accord, circle: Circle, sets: Sets) -> None:
    """Helps to unmask any U5, however small."""
    del circle
    _, u3, u5 = map(accord.terms.sets.users, sets)
    if not u5.issubset(u3):
        raise user.blame_server("it chose users that it had not listed")


def _mask_without_b(
    accord: Accord, u2: bytes, u: int, s: KeyPair, b: Secret, others: Mapping[int, bytes], y: Vector
) -> None:
    """Masks with the pairwise masks, but without b_u."""
    del b
    accord.suite.mask(y, *accord.pairwise(u2, u, s.secret, others))


def _local_consents(accord: Accord, circle: Circle, sets: Sets, consents: Consents) -> None:
    """Accepts the sets if `threshold` of the holders of this user's shares signed the same sets."""
    signed = sorted(accord.terms.sets.users(consents.members))
    if not set(signed).issubset(circle.holders(accord.link.place)) or len(signed) < accord.terms.threshold:
        raise user.blame_server("too few of those around us agree")
    for place, v in enumerate(signed):
        signature = consents.signatures[SIGNATURE_BYTES * place :][:SIGNATURE_BYTES]
        accord.suite.verify(accord.link.parties[v], accord.consent(*sets), bytes(signature))


_AGREE, _CONSENT = Accord.agree, Accord.consent


def _agree(accord: Accord, label: str, u2: bytes, u: int, secret: Secret, v: int, public: bytes) -> Secret:
    """Derives the same key for every U2."""
    del u2
    return _AGREE(accord, label, UNSIGNED, u, secret, v, public)


def _consent(accord: Accord, u2: bytes, u3: bytes, u5: bytes) -> bytes:
    """Signs the sets without U2."""
    del u2
    return _CONSENT(accord, UNSIGNED, u3, u5)


VARIANTS: dict[str, Variant] = {
    "no b_u": Variant(((user, "mask", _mask_without_b),), LieCase(4)),
    "no lower bound": Variant(
        ((user, "check_asked", _accept_any_u2), (user, "check_chosen", _accept_any_u5)), LieCase(4)
    ),
    "U3 signed by nobody": Variant(((user, "check_views", _skip_check),), LieCase(4, (), Sampled(2))),
    "U2 signed by nobody": Variant(
        ((Accord, "agree", _agree), (Accord, "consent", _consent), (user, "check_views", _skip_check)),
        LieCase(4, (), Sampled(2), neighbours=2, threshold=2),
    ),
    "graph may fall apart": Variant(
        ((user, "too_thin", lambda *_: False),), LieCase(4, (), Sampled(2), neighbours=2, threshold=2)
    ),
    "no consents": Variant(((user, "check_consents", _skip_check),), LieCase(5, threshold=3), exposes=False),
    "consents are local": Variant(
        (
            (user, "check_consents", _local_consents),
            (Accord, "count_consents", lambda accord, *_: accord.terms.threshold),
        ),
        LieCase(6, neighbours=4, threshold=3),
        exposes=False,
    ),
}
"""Variants by the missing precaution."""
