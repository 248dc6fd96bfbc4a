"""Flaws seen in shipped secure-aggregation code, each as a test of ours."""

import contextlib

import msgspec
import numpy as np
import pytest

import tacit
from tacit.auditing.engine.views import View
from tacit.auditing.symbolic.forms import Form
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.suite import SERVER, Parties, Update
from tacit.crypto.masks import add_masks
from tacit.protocols import REGISTRY, secagg
from tacit.protocols.secagg import SECAGG
from tacit.protocols.secagg.settings import Accord
from tacit.runtime.simulation.faults import PHASE, Fault
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3", "p4")
SETTINGS = {"admm": {"masked": True, "group_size": None, "lambda0": (0.0, 0.0)}, "pushsum": {"masked": True}}


def run(values=0.0, length=1000, **options):
    federation = Simulation.of("secagg", PARTIES, length, record=True, seed=0, **options)
    outcome = federation.average({party: Update(np.full(length, values)) for party in PARTIES})
    return federation, outcome


def messages(outcome, kind):
    opened = outcome.transcript.open_messages(SERVER)
    return {address.sender: message for address, message in opened if isinstance(message, kind)}


def test_mask_prg_is_not_folded_to_32_bits():
    """Keys that agree in any fold to 32-bit words (each word changed by the same bits) still give other masks."""
    key = bytes(range(32))
    folded_alike = bytes(byte ^ 0xA5 if place < 8 else byte for place, byte in enumerate(key))
    streams = []
    for each in (key, folded_alike):
        vector = np.zeros(64, dtype=np.uint32)
        add_masks(vector, [each])
        streams.append(vector)
    assert not np.array_equal(*streams)


def test_mask_prg_is_not_one_value_for_all_entries():
    """Everybody's vector is zero, so what the server gets are the masks: uniform, and different at every entry."""
    _federation, outcome = run()
    for message in messages(outcome, secagg.MaskedInput).values():
        entries = np.frombuffer(message.vector, dtype="<u4")
        assert len(np.unique(entries)) > 990
        assert abs(entries.astype(float).mean() / 2**32 - 0.5) < 0.05


def test_masks_differ_between_users_and_rounds():
    federation, first = run()
    second = federation.average({party: Update(np.zeros(1000)) for party in PARTIES})
    seen = [
        bytes(message.vector)
        for outcome in (first, second)
        for message in messages(outcome, secagg.MaskedInput).values()
    ]
    assert len(set(seen)) == 2 * len(PARTIES)


def test_unmask_gives_one_kind_of_share_of_each_user():
    """Dropouts make both kinds of shares flow; never both kinds of the same user."""
    _federation, outcome = run(threshold=3, faults=[Fault(action="drop", party="p4", message="MaskedInput")])
    shares = messages(outcome, secagg.Unmask)
    assert len(shares) == 4
    for share in shares.values():
        assert set(share.seeds) == {0, 1, 2, 3}
        assert set(share.keys) == {4}


def test_relayed_keys_are_signed():
    """The server cannot replace a key: the signature is over keys, name, what was told last, round and session."""
    federation, outcome = run()
    advertised = messages(outcome, secagg.AdvertiseKeys)["p1"]
    verify, link = federation.agreement.roster.verify, federation.last.rounds["p0"].link
    accord = Accord(link, federation.last.rounds["p0"].suite, federation.agreement.terms)
    c, s, last = advertised.c, advertised.s, advertised.lineage
    assert last == bytes(32), "nobody was told anything before the first round"
    verify("p1", accord.advertisement(1, c, s, last), advertised.signature)
    for statement in (
        accord.advertisement(1, bytes(32), s, last),
        accord.advertisement(1, c, bytes(32), last),
        accord.advertisement(1, c, s, bytes([1] * 32)),
        accord.advertisement(1, s, c, last),
        accord.advertisement(2, c, s, last),
    ):
        with pytest.raises(tacit.PeerFault, match="bad signature"):
            verify("p1", statement, advertised.signature)
    link.round += 1
    with pytest.raises(tacit.PeerFault, match="bad signature"):
        verify("p1", accord.advertisement(1, c, s, last), advertised.signature)


def test_shares_are_not_relayed_in_clear():
    """The server passes every share on, and can read only those that it is given in the end."""
    _federation, outcome = run(threshold=3, faults=[Fault(action="drop", party="p4", message="MaskedInput")])
    given = [
        share
        for message in messages(outcome, secagg.Unmask).values()
        for share in (*message.seeds.values(), *message.keys.values())
    ]
    relayed = b"".join(
        sealed for message in messages(outcome, secagg.ShareKeys).values() for sealed in message.sealed.values()
    )
    assert len(given) == 20
    assert not any(share in relayed for share in given)


def test_weights_are_not_sent_in_clear():
    """Every weight is an unknown of its own, and the server can tell none of them, only their sum."""
    symbolic = SymbolicSimulation(SECAGG, SECAGG.settings().bind(Parties(PARTIES)), 1)
    outcome = symbolic.average_unknowns()
    seen = [passed.envelope for passed in outcome.transcript if passed.envelope.address.to == SERVER]
    view = View(symbolic.world, symbolic.agreement.session, [SERVER], dict(enumerate(seen)))
    weights = [known.vector[-1] for known in view.vectors]
    everything = Form({("input", party, 1): 1 for party in PARTIES})
    alone = [form for form in weights if form.terms.keys() <= everything.terms.keys()]
    assert alone == []
    assert outcome.contributors == PARTIES


def test_weights_leave_no_trace_in_message_sizes():
    sizes = []
    for weights in ([1, 1, 1, 1, 1], [1, 250, 3, 1000, 7]):
        out = tacit.aggregate(
            [np.ones(10)] * 5, "secagg", weights=weights, max_weight=1000.0, weighted=True, record=True, seed=0
        )
        # A run with a seed has a session of its own for everything that is brought to it.
        anywhere = [msgspec.structs.replace(passed.envelope.address, session=b"") for passed in out.transcript]
        sizes.append(list(zip(anywhere, [len(passed.envelope.sealed) for passed in out.transcript], strict=True)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("protocol", REGISTRY)
def test_clipping_is_never_silent(protocol):
    vectors = [np.zeros(4), np.array([0.0, 99.0, -40.0, 32.0]), np.zeros(4)]
    with pytest.warns(tacit.ClippedWarning, match=r"p1: \d+ of 4 entries were cut off"):
        out = tacit.aggregate(vectors, protocol, clip=32.0, **SETTINGS.get(protocol, {}))
    # What ADMM sends is not the vector itself, and it sends it more than once.
    assert out.clipped["p1"] >= 2 if protocol == "admm" else out.clipped == {"p1": 2}
    assert "pass clip=" in out.warnings[0]


@pytest.mark.parametrize("protocol", REGISTRY)
@pytest.mark.parametrize("missing", ["p2", SERVER])
def test_nobody_waits_without_end(protocol, missing):
    if missing not in REGISTRY[protocol].everyone(PARTIES):
        pytest.skip("there is no server in this protocol")
    faults = [Fault(action="silence", party=missing)]
    federation = Simulation.of(protocol, PARTIES, 3, faults=faults, seed=0, **SETTINGS.get(protocol, {}))
    with contextlib.suppress(tacit.TacitError):
        federation.average({party: Update(np.ones(3)) for party in PARTIES})
    for party, ending in federation.last.endings.items():
        if party != missing:
            assert ending.average is not None or missing in str(ending.error)
    assert federation.last.clock <= 20 * PHASE
    assert not federation.last.waiting
