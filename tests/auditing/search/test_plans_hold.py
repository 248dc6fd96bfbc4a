"""What plans say: every "holds" is confirmed coalition by coalition, or says what was not looked at."""

from itertools import islice

import pytest

import tacit
from tacit.auditing.auditor import Auditor
from tacit.auditing.findings import Verdict
from tacit.auditing.proofs import argument_for
from tacit.auditing.render.plan import describe_plan_coverage, describe_proposal
from tacit.auditing.scope import Scope, dropouts
from tacit.auditing.search.coalitions import count_coalitions, list_coalitions
from tacit.protocols import find
from tacit.runtime.agreement import terms_for

pytestmark = pytest.mark.long

FEW = [(3, 1, 0.0), (3, 1, 0.05), (4, 2, 0.0), (5, 1, 0.05)]
MORE = [
    *((5, 3, 0.05), (6, 2, 0.0), (6, 1, 0.05)),
    (8, 2, 0.05),
    *((7, 2, 0.05), (8, 4, 0.0), (8, 4, 0.05), (9, 2, 0.0), (9, 3, 0.05), (10, 1, 0.0), (10, 1, 0.05), (12, 2, 0.05)),
    *((16, 1, 0.05), (20, 2, 0.0), (24, 1, 0.05), (40, 1, 0.0), (40, 1, 0.05), (14, 3, 0.05)),
]
MANY = [(14, 3, 0.0), (16, 4, 0.05), (30, 3, 0.05), (40, 4, 0.05)]
ROUNDS, MOST = 6, 500


def confirmed(parties, colluders, dropout):
    """Audits one by one the coalitions of every proposal that holds; returns how many these are."""
    asked = 0
    for proposal in tacit.plan(parties, coalition_size=colluders, rounds=ROUNDS, dropout=dropout).proposals:
        looked, entry = proposal.coverage, find(proposal.protocol)
        unaudited = proposal.verdict in (Verdict.LEAKS_BY_DESIGN, Verdict.NOT_AUDITED)
        assert describe_plan_coverage(looked) in describe_proposal(proposal) or unaudited
        if not proposal.fine:
            continue
        terms = terms_for(entry, tuple(f"p{i}" for i in range(parties)), proposal.options)
        if proposal.holds and not looked.everything:
            argument = argument_for(entry, terms, colluders, ROUNDS, "free")
            assert proposal.argument == argument.name
            assert not argument.exposes
        if not proposal.holds:
            assert not looked.everything, "it holds, then"
            assert looked.coalitions < looked.of_coalitions or looked.rounds < looked.of_rounds
        changing = "free" if proposal.needs_drift else "static"
        faults = dropouts(entry, looked.dropout)
        auditor = Auditor(Scope(entry, terms, looked.rounds, changing, faults=faults, dropout=looked.dropout))
        step = -(-count_coalitions(entry, terms.parties, colluders) // MOST)
        for coalition in islice(list_coalitions(entry, terms.parties, colluders), 0, None, step):
            assert not auditor.assess(coalition).victims, (proposal.protocol, proposal.options, coalition)
            asked += 1
    return asked


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("parties", "colluders", "dropout"), FEW)
def test_what_holds_holds_for_every_coalition(parties, colluders, dropout):
    assert confirmed(parties, colluders, dropout) >= parties


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "colluders", "dropout"), [*MORE, *MANY])
def test_what_holds_holds_for_every_coalition_of_more(parties, colluders, dropout):
    assert confirmed(parties, colluders, dropout) >= parties


@pytest.mark.slow
def test_what_was_not_looked_at_is_said():
    proposals = {each.protocol: each for each in tacit.plan(20, coalition_size=4, rounds=100, dropout=0).proposals}
    cesar = proposals["cesar"]
    assert cesar.coverage.coalitions < cesar.coverage.of_coalitions == 4845
    assert "of 4,845 coalitions, 3 of 100 rounds" in describe_proposal(cesar)
    assert cesar.verdict is not Verdict.HOLDS or cesar.argument
