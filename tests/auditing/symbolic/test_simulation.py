"""The seam for the audit: secagg runs on symbols through the same coroutines, messages and simulator.

What a coalition knows follows from the tokens it made and the envelopes it saw. A vector is exposed exactly when its
unknown is a combination of the forms the coalition knows.
"""

from fractions import Fraction

import numpy as np
import pytest

import tacit
from tacit.auditing.engine.views import View
from tacit.auditing.symbolic.forms import Form
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.suite import SERVER, Update
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3")


def determines(rows, target):
    """Says whether a form is a combination of known forms, by exact elimination over the rationals."""
    pivots = []

    def reduced(form):
        for unknown, pivot in pivots:
            form = form - pivot * form.terms.get(unknown, 0)
        return form

    for row in rows:
        rest = reduced(row)
        if rest.terms:
            unknown, factor = next(iter(rest.terms.items()))
            pivots.append((unknown, rest * Fraction(1, factor)))
    return not reduced(target).terms


def sum_of(parties, entry=0):
    return Form({("input", party, entry): 1 for party in parties})


def view(coalition, *, onlooker=False, **options):
    """Runs one symbolic round; returns its outcome and the forms that the coalition knows at entry 0."""
    federation = SymbolicSimulation.of("secagg", PARTIES, 1, seed=0, **options)
    outcome = federation.average_unknowns()
    seen = [
        passed.envelope
        for passed in outcome.transcript
        if onlooker or passed.envelope.address.to in coalition or passed.envelope.address.sender in coalition
    ]
    known = View(federation.world, federation.agreement.session, coalition, dict(enumerate(seen)))
    own = [sum_of([party]) for party in coalition if party != SERVER]
    return outcome, [each.vector[0] for each in known.vectors] + own


def exposed(rows):
    return [party for party in PARTIES if determines(rows, sum_of([party]))]


def test_elimination_itself():
    a, b = sum_of(["a"]), sum_of(["b"])
    assert determines([a + b, a - b], a)
    assert not determines([a + b], a)
    assert determines([a + b, b], a)
    assert not determines([], a)


def test_symbolic_run_announces_the_sum_of_the_chosen_set():
    outcome, rows = view(["p0"])
    assert outcome.contributors == PARTIES
    assert sum_of(PARTIES).terms in [row.terms for row in rows]
    for party in PARTIES:
        (unknown,) = outcome.average[party][0].terms
        assert unknown[0] == "ratio", "an average is divided by an unknown weight"


def test_the_servers_view_determines_the_sum_and_no_single_vector():
    _, rows = view([SERVER])
    assert determines(rows, sum_of(PARTIES))
    assert exposed(rows) == []
    for one in PARTIES:
        for other in PARTIES:
            if one < other:
                assert not determines(rows, sum_of([one, other]))
                assert not determines(rows, sum_of([one]) - sum_of([other]))


def test_the_servers_view_after_a_dropout_determines_the_sum_of_those_left():
    lost = Fault(action="crash", party="p3", step=6)  # after its masked vector went out
    outcome, rows = view([SERVER], faults=[lost])
    assert outcome.contributors == PARTIES
    assert exposed(rows) == []
    lost = Fault(action="drop", party="p3", message="MaskedInput")
    outcome, rows = view([SERVER], faults=[lost])
    assert outcome.contributors == PARTIES[:3]
    assert determines(rows, sum_of(PARTIES[:3]))
    assert exposed(rows) == []


def test_a_late_masked_vector_stays_useless():
    """The server has p3's vector and, because p3 was given up, its mask key; its own seed still hides it."""
    late = Fault(action="delay", party="p3", message="MaskedInput", seconds=12)
    outcome, rows = view([SERVER], faults=[late])
    assert outcome.contributors == PARTIES[:3]
    assert exposed(rows) == []
    assert not determines(rows, sum_of(PARTIES))


@pytest.mark.parametrize("member", PARTIES)
def test_a_single_client_learns_the_sum_only(member):
    _, rows = view([member])
    assert exposed(rows) == [member]
    assert determines(rows, sum_of(PARTIES))


def test_server_and_fewer_than_threshold_clients_learn_only_what_the_sum_gives_them():
    _, rows = view([SERVER, "p0", "p1"], threshold=3)
    assert exposed(rows) == ["p0", "p1"]
    assert determines(rows, sum_of(["p2", "p3"]))


def test_server_and_threshold_clients_who_hand_over_their_shares_determine_more():
    """With t = 2 the two clients' shares recover both secrets of everybody. The setting is refused unless asked for."""
    with pytest.raises(tacit.ConfigError, match="unmask anybody"):
        view([SERVER, "p0", "p1"], threshold=2)
    _, rows = view([SERVER, "p0", "p1"], threshold=2, allow_leaks=True)
    assert exposed(rows) == list(PARTIES)


def test_threshold_clients_without_the_server_learn_only_the_sum():
    _, rows = view(["p0", "p1"], threshold=2, allow_leaks=True)
    assert exposed(rows) == ["p0", "p1"]


def test_an_onlooker_of_every_link_learns_nothing():
    """Envelopes are sealed end to end, so it sees who, when and how much, and not a single form."""
    _, rows = view([], onlooker=True)
    assert rows == []


def test_fedavg_shows_the_server_everything():
    federation = SymbolicSimulation.of("fedavg", PARTIES, 1, seed=0)
    outcome = federation.average_unknowns()
    seen = [passed.envelope for passed in outcome.transcript if passed.envelope.address.to == SERVER]
    assert exposed(
        [
            known.vector[0]
            for known in View(federation.world, federation.agreement.session, [SERVER], dict(enumerate(seen))).vectors
        ]
    ) == list(PARTIES)


def test_symbolic_and_real_runs_exchange_the_same_messages():
    """Same session, same schedule, same kinds and same sizes: there is no second model of the protocol."""

    def shape(symbolic):
        if symbolic:
            outcome = SymbolicSimulation.of("secagg", PARTIES, 2, bits=64).average_unknowns()
        else:
            simulation = Simulation.of("secagg", PARTIES, 2, seed=0, record=True, bits=64, twin=True)
            outcome = simulation.average({party: Update(np.array([0.5, 1.0])) for party in PARTIES})
        return [(passed.time, passed.envelope.address, len(passed.envelope.sealed)) for passed in outcome.transcript]

    assert shape(symbolic=True) == shape(symbolic=False)
