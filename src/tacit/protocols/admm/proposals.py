"""Settings that `admm` proposes to planners, and the claims of its paper."""

from collections.abc import Collection, Iterator

from tacit.core.protocol_facts import Claim, ConditionCode, Promise, ProposedSettings, ReasonCode
from tacit.core.suite import Party
from tacit.protocols.admm.settings import AdmmTerms

SMALL = 16
"""Most peers for which ADMM is proposed. It sends more than any other protocol."""


def propose(parties: int, colluding: int) -> Iterator[ProposedSettings]:
    """Yields settings with masks, for few peers: in a single group, and in small groups."""
    size = colluding + 2
    if parties <= SMALL:
        yield ProposedSettings({"masked": True, "group_size": None}, ReasonCode.ALL_TO_ALL)
    if 2 * size <= parties <= SMALL:
        yield ProposedSettings({"masked": True, "group_size": size}, ReasonCode.GROUPS, {"size": size})


def _lemma_iii_1(terms: AdmmTerms, coalition: Collection[Party], rounds: int) -> Promise | None:
    del rounds
    if len(terms.pattern.partitions[0]) > 1 or terms.settings.masked or terms.iterations < 2 or not coalition:
        return None
    return Promise(True, ConditionCode.ALL_TO_ALL, {"iterations": terms.iterations})


def _theorem_iii_2(terms: AdmmTerms, coalition: Collection[Party], rounds: int) -> Promise | None:
    most = 2 * terms.pattern.gap - 1
    if len(terms.pattern.partitions[0]) == 1 or len(coalition) != 1 or terms.iterations > most or rounds > 1:
        return None
    facts = {"gap": terms.pattern.gap, "iterations": terms.iterations, "most": most}
    return Promise(False, ConditionCode.GAP, facts)


CLAIMS = (
    Claim(
        "000",
        "Lemma III.1",
        "all-to-all communication shows everybody's vector after two iterations",
        _lemma_iii_1,
    ),
    Claim(
        "000",
        "Theorem III.2",
        "with gap t_g, 2·t_g − 1 iterations show a curious peer nobody's vector",
        _theorem_iii_2,
    ),
)
