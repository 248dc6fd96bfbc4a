"""Sentences about the exposed entries of sparse vectors."""

from tacit.auditing.findings import CONFIDENCE, LEAST_PROBABILITY, EntryExposure, PatternBasis, Remark
from tacit.core.average import format_count


def format_entries(count: float) -> str:
    """Returns an expected number of entries: whole if it is large or exact, otherwise with three digits."""
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:.3g}"


def describe_entries(exposure: EntryExposure) -> str:
    """Returns how many entries are exposed, in a few words."""
    about = "up to" if exposure.if_static else "" if exposure.basis is PatternBasis.VECTORS else "about"
    over = f" over {exposure.rounds} rounds" if exposure.rounds > 1 else ""
    return f"{about} {format_entries(exposure.exposed_entries)} of {exposure.length:,} entries{over}".lstrip()


def render_exposed_entries(exposure: EntryExposure) -> str:
    """Returns a sentence about the exposed entries of a coalition, with what the number rests on."""
    chance = f"{exposure.probability:.2g}" if exposure.probability < 1 else "1"
    if exposure.if_static:
        basis = "That is the number for static models. The fewer entries are exposed, the more models drift."
    else:
        basis = BASES[exposure.basis]
    most = ""
    if exposure.most_entries is not None:
        most = f" At most {format_entries(exposure.most_entries)} with {CONFIDENCE:.1%} confidence."
    sure = "" if exposure.basis is PatternBasis.VECTORS else f" (at least one with probability {chance})"
    return f"Exposed: {describe_entries(exposure)}{sure}. {basis}{most}"


BASES = {
    PatternBasis.PROBABILITY: "The number is expected over all selections of entries.",
    PatternBasis.ASSUMED: "The number is expected if parties select entries independently of each other.",
    PatternBasis.VECTORS: "The number is counted in the given vectors.",
    PatternBasis.SAMPLED: "The number is estimated from sampled selections.",
}


def describe_selections(exposure: EntryExposure) -> str:
    """Returns which selections of entries an audit covered."""
    kinds = "sampled selections" if exposure.basis is PatternBasis.SAMPLED else "kinds of selections"
    return f"{format_count(exposure.patterns, kinds[:-1], kinds)} for all {exposure.length:,} entries"


def render_selections(remark: Remark) -> str:
    """Returns how selections were counted, and the remaining risk if nobody is exposed, without a full stop.

    The parameters of the remark are `basis`, `length`, `probability` and `most`, the largest of all coalitions.
    """
    basis, length = PatternBasis(remark["basis"]), f"{remark['length']:,}"
    if basis is PatternBasis.VECTORS:
        return f"entries are those that the given vectors of {length} entries select, in the first round"
    if basis is PatternBasis.SAMPLED:
        return (
            f"selections of entries were sampled: of {length} entries, up to {format_entries(remark['most'])} may be "
            f"exposed ({CONFIDENCE:.1%} confidence)"
        )
    if basis is PatternBasis.ASSUMED:
        how = f"parties select {length} entries independently of each other; similar vectors may select otherwise"
    else:
        how = f"parties select each of {length} entries at random"
    if not remark["probability"]:
        return f"{how}; no selection exposes an entry"
    if remark["probability"] < LEAST_PROBABILITY:
        return f"{how}; an entry is exposed with probability {remark['probability']:.1g}, which counts as none"
    return how
