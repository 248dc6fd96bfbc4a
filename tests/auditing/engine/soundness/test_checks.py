"""What symbols cannot see: every shipped protocol is what its symbols say, and whatever is not is named."""

import hashlib
from dataclasses import replace

import msgspec
import pytest
from leaky._base import Bytes, Vector, averaged, leaky, others, tell

import tacit
from support.bent_roles import rewrite_messages
from support.replay_cases import CASES
from tacit import protocols
from tacit.auditing.engine.soundness import checks
from tacit.auditing.engine.soundness.checks import Guard, check_soundness
from tacit.auditing.engine.soundness.concrete_run import twin
from tacit.auditing.engine.soundness.guard_vectors import pair
from tacit.auditing.engine.soundness.run_comparison import Spot
from tacit.auditing.engine.views import ItemAt, KeyAt, View, WholeVector, byte_strings, contents, follow
from tacit.auditing.scope import PROOF_BITS, Scope
from tacit.auditing.symbolic.simulation import SymbolicSimulation
from tacit.core.average import Average
from tacit.core.messages import Address, Message
from tacit.core.protocol import Settings, Terms
from tacit.core.suite import Parties
from tacit.designs import Batches, graphs
from tacit.protocols.secagg.messages import MaskedInput
from tacit.protocols.shapes.neighbourhood import GraphState
from tacit.protocols.shapes.pairs import mask_among

pytestmark = pytest.mark.long

PARTIES = tuple(f"p{i}" for i in range(4))


def scope_of(protocol, parties=PARTIES, rounds=1, faults=(), **options):
    names = tuple(f"p{i}" for i in range(parties)) if isinstance(parties, int) else parties
    return Scope.of(protocol, names, options, rounds=rounds, faults=faults)


# --- what is shipped -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_protocol_and_mode_is_what_its_symbols_say(name, rounds):
    case = CASES[name]
    Guard(scope_of(case.protocol, case.names, rounds, **case.options), rounds).check()


SETTINGS = {
    "fedavg-weights": ("fedavg", 5, {"max_weight": 30.0}),
    "fedavg-small": ("fedavg", 4, {"clip": 0.01, "max_weight": 0.5}),
    "secagg-weights": ("secagg", 5, {"max_weight": 100.0, "bits": 16}),
    "secagg-sparse": ("secagg", 12, {"neighbours": 6, "threshold": 5}),
    "secagg-batches": ("secagg", 6, {"participation": Batches(4, 2)}),
    "gossip-sparse": ("gossip", 6, {"graph": "ring", "share": 0.3}),
    "admm-weights": ("admm", 9, {"weighted": True, "max_weight": 7.0}),
    "admm-masked-weights": ("admm", 9, {"weighted": True, "masked": True}),
    "admm-noise": ("admm", 9, {"masked": True, "noise": 0.1, "norm": 1.0}),
    "gossip-noise": ("gossip", 6, {"graph": "ring", "noise": 0.1, "bits": 16, "clip": 2.0}),
    "admm-small-rho": ("admm", 9, {"iterations": 8, "rho": 0.001}),
    "admm-falling-rho": ("admm", 9, {"rho": (3.0, 0.0009)}),
    "admm-changing-rho": ("admm", 9, {"rho": (0.3, 3.0, 0.0009, 1.0), "masked": True, "weighted": True}),
    "pushsum-private-masked": ("pushsum", 5, {"private": True, "masked": True}),
    "pushsum-lognormal": ("pushsum", 5, {"private": True, "y0": "lognormal"}),
    "cesar-graph": ("cesar", 10, {"graph": graphs.regular(10, 3, 5)}),
    "cesar-random": ("cesar", 6, {"share": 0.5, "masking": 2}),
    "cesar-topk": ("cesar", 6, {"share": 0.4, "sparsifier": "topk"}),
    "cesar-change": ("cesar", 6, {"share": 0.4, "sparsifier": "topk", "score": "change"}),
    "rotating-stages": ("rotating", 9, {"stages": 2, "weighted": True}),
    "rotating-uneven": ("rotating", 7, {"group_size": 3, "noise": 0.1, "norm": 1.0}),
    "gossip-change": ("gossip", 6, {"graph": "ring", "share": 0.4, "sparsifier": "topk", "score": "change"}),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SETTINGS)
def test_so_are_they_with_weights_in_sparse_graphs_and_in_part(name):
    protocol, parties, options = SETTINGS[name]
    Guard(scope_of(protocol, parties, 2, **options), 2).check()


def test_weights_of_pushsum_are_refused_from_the_second_round_on_with_the_line_that_is_at_fault():
    Guard(scope_of("pushsum", weighted=True), 1).check()
    with pytest.raises(tacit.NotLinear, match=r"multiply an unknown by another, in .*pushsum.*\.py, line \d+"):
        Guard(scope_of("pushsum", rounds=2, weighted=True), 2).check()


FAULTS = {
    "a masked vector is lost": ("secagg", {"action": "drop", "party": "p3", "message": "MaskedInput"}),
    "it is lost in one round": ("secagg", {"action": "drop", "party": "p3", "message": "MaskedInput", "round": 1}),
    "it is late": ("secagg", {"action": "delay", "party": "p3", "message": "MaskedInput", "seconds": 12}),
    "it is bent": ("secagg", {"action": "corrupt", "party": "p3", "message": "MaskedInput"}),
    "it comes twice": ("secagg", {"action": "duplicate", "party": "p3"}),
    "the sum is lost": ("secagg", {"action": "drop", "to": "p3", "message": "Sum", "round": 1}),
    "a user crashes": ("secagg", {"action": "crash", "party": "p3", "step": 6}),
    "a user restarts": ("secagg", {"action": "restart", "party": "p3", "step": 4, "seconds": 2}),
    "some are silent": ("secagg", {"action": "silence", "chance": 0.2, "seed": 3}),
    "a round is aborted": ("secagg", {"action": "drop", "message": "MaskedInput", "round": 1}),
    "a node crashes": ("cesar", {"action": "crash", "party": "p3", "step": 9}),
    "a model is lost": ("cesar", {"action": "drop", "party": "p3", "to": "p0", "message": "Masked"}),
    "a part of a group is lost": ("rotating", {"action": "drop", "party": "p3", "message": "MemberPart"}),
    "a member crashes": ("rotating", {"action": "crash", "party": "p4", "step": 2}),
    "a mass is lost": ("pushsum", {"action": "drop", "party": "p3", "round": 1}),
    "a peer is not heard": ("admm", {"action": "drop", "party": "p3"}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FAULTS)
def test_so_are_they_whatever_goes_wrong(name):
    protocol, fault = FAULTS[name]
    more = {"share": 0.6} if protocol == "cesar" else {}
    Guard(scope_of(protocol, 6, 2, [fault], **more), 2).check()


# --- what is remembered, and what is said --------------------------------------------------------------------------


def test_a_setting_is_looked_at_once(monkeypatch):
    calls = []
    monkeypatch.setattr(checks, "_found", type(checks._found)())
    monkeypatch.setattr(Guard, "check", lambda self: calls.append(self.rounds))
    for rounds in (2, 1, 9, 2):
        check_soundness(scope_of("fedavg", rounds=rounds))
    assert calls == [2], "what is seen in two rounds is seen in one"
    check_soundness(scope_of("fedavg", max_weight=2.0))
    check_soundness(scope_of("fedavg", 5))
    check_soundness(scope_of("fedavg", faults=[{"action": "drop", "party": "p3"}]))
    assert calls == [2, 1, 1, 1]
    for count in range(checks.REMEMBERED):
        check_soundness(scope_of("fedavg", max_weight=3.0 + count))
    assert len(checks._found) == checks.REMEMBERED


def test_a_refusal_is_remembered_too(monkeypatch):
    monkeypatch.setattr(checks, "_found", type(checks._found)())

    async def party(link, update, _terms, suite, _state):
        await tell(link, Bytes(update.vector.tobytes()))
        return await averaged(link, update, suite)

    monkeypatch.setitem(protocols.REGISTRY, "leaky", leaky(party, Bytes))
    for _ in range(2):
        with pytest.raises(
            tacit.NotAuditable, match=r"^leaky cannot be audited: Bytes from p1 to p0 in round 1, data: "
        ):
            check_soundness(scope_of("leaky"))
    assert len(checks._found) == 1
    assert tacit.NotAuditable.code == "not-auditable"
    assert issubclass(tacit.NotAuditable, tacit.NotLinear)


def test_a_place_is_said_in_words():
    address = Address(bytes(32), 2, 0, "Masked", "p1", "p0")
    path = ("sealed", 3, WholeVector(), "key", 0, KeyAt(1))
    assert str(Spot(address, path)) == "Masked from p1 to p0 in round 2, sealed[3] in its box.key[0] in key 1"
    assert str(Spot(address, (ItemAt(2),))) == "Masked from p1 to p0 in round 2, [2]"
    assert str(Spot(address)) == "Masked from p1 to p0 in round 2"


def refused(monkeypatch, protocol, rounds=1, match="cannot be audited"):
    monkeypatch.setitem(protocols.REGISTRY, protocol.name, protocol)
    with pytest.raises(tacit.NotLinear, match=match):
        Guard(scope_of(protocol.name, rounds=rounds), rounds).check()


def passes(monkeypatch, protocol, rounds=1):
    monkeypatch.setitem(protocols.REGISTRY, protocol.name, protocol)
    Guard(scope_of(protocol.name, rounds=rounds), rounds).check()


def test_the_line_that_is_at_fault_is_named_also_below_the_standard_library(monkeypatch):
    async def party(_link, update, _terms, suite, _state):
        ordered = sorted(update.vector, key=lambda entry: -entry)
        return Average(suite.ring.values(ordered), ())

    line = party.__code__.co_firstlineno + 1
    refused(monkeypatch, leaky(party), match=rf"branch on .* in {__file__}, line {line}; try: send vectors only")

    async def encoded(link, update, _terms, suite, _state):
        await tell(link, Bytes(msgspec.json.encode(update.vector[0])))
        return await averaged(link, update, suite)

    line = encoded.__code__.co_firstlineno + 1
    refused(monkeypatch, leaky(encoded, Bytes), match=rf"in {__file__}, line {line}; try: send vectors only")


def test_what_fails_on_numbers_only_is_refused(monkeypatch):
    async def party(link, update, _terms, suite, _state):
        update.vector[0].terms.clear()
        return await averaged(link, update, suite)

    refused(monkeypatch, leaky(party), match="works on symbols and fails on numbers: AttributeError")


# --- what may depend on vectors and keys ---------------------------------------------------------------------------


def secagg_with(change):
    """Returns secagg with clients that change what they send, knowing their update."""
    secagg = protocols.REGISTRY["secagg"]

    def party(link, update, terms, suite, state):
        run = secagg.party(link, update, terms, suite, state)
        return rewrite_messages(run, lambda message, _to: change(message, update, suite))

    return replace(secagg, name="bent", party=party)


def test_secagg_is_refused_if_a_signature_says_something_about_a_vector(monkeypatch):
    passes(monkeypatch, secagg_with(lambda message, _update, _suite: message))

    def change(message, update, suite):
        if not isinstance(message, MaskedInput):
            return message
        word = suite.sign(bytes(suite.ring.pack(suite.ring.encode(update))))[:16]
        return msgspec.structs.replace(message, views=dict.fromkeys(message.views, word))

    refused(monkeypatch, secagg_with(change), match="cannot be audited")


def test_digests_of_what_the_receiver_knows_may_be_sent_and_others_not(monkeypatch):
    """Everybody is told the sum, and says a digest of it; p1 is told a sum that others are not."""

    class Total(Vector, frozen=True):
        pass

    def protocol(digested, to):
        async def party(link, update, _terms, suite, _state):
            ring = suite.ring
            own, some = ring.encode(update), ring.zeros()
            mask_among(link, suite, own, others(link), "test/mask", b"")
            for other in others(link):
                await link.send(other, Vector(memoryview(ring.pack(own))))
            received = await link.gather(Vector, others(link))
            total = sum((ring.unpack(part.vector) for part in received.values()), own)
            if link.me == "p2":
                await link.send("p3", Total(memoryview(ring.pack(ring.encode(update)))))
            if link.me == "p3":
                theirs = ring.unpack((await link.receive("p2", Total)).vector)
                some = ring.encode(update) + theirs
                for other in ("p1", "p2"):
                    await link.send(other, Total(memoryview(ring.pack(some))))
            if link.me in ("p1", "p2"):
                await link.receive("p3", Total)
            packed = bytes(ring.pack(total if digested == "total" else some))
            if link.me == "p3":
                await link.send(to, Bytes(hashlib.sha256(packed).digest()))
            if link.me == to:
                await link.receive("p3", Bytes)
            return Average(ring.mean(total), link.parties)

        return leaky(party, Vector, Total, Bytes)

    passes(monkeypatch, protocol("some", "p1"))
    passes(monkeypatch, protocol("some", "p2"))
    refused(monkeypatch, protocol("some", "p0"), match="Bytes from p3 to p0 .* depends on vectors")
    # The sum is never sent as such, so nobody can be said to know it without looking at who knows which masks.
    refused(monkeypatch, protocol("total", "p0"), match="depends on vectors")


def test_a_word_for_a_masked_vector_may_be_sent_with_it_and_not_without(monkeypatch):
    class Signed(Message, frozen=True):
        vector: memoryview
        signature: bytes
        tags: tuple[bytes, ...]
        per_entry = 8

    def protocol(signs):
        async def party(link, update, _terms, suite, _state):
            own = suite.ring.encode(update)
            suite.mask(own, plus=[suite.seed()])
            packed = bytes(suite.ring.pack(own))
            statement = link.statement("vector", signs(suite, update, packed))
            key = suite.pairwise("p0", "test/tag", b"")
            await tell(link, Signed(memoryview(packed), suite.sign(statement), (suite.tag(key, statement),)))
            return await averaged(link, update, suite)

        return leaky(party, Signed)

    passes(monkeypatch, protocol(lambda _suite, _update, packed: packed))
    refused(monkeypatch, protocol(lambda suite, update, _packed: bytes(suite.ring.pack(suite.ring.encode(update)))))
    refused(monkeypatch, protocol(lambda _suite, _update, packed: hashlib.sha256(packed).digest()))


def test_signatures_and_public_keys_may_be_sent_in_a_row(monkeypatch):
    async def party(link, update, _terms, suite, _state):
        await tell(link, Bytes(suite.sign(b"one") + suite.key_pair().public + suite.sign(b"two")))
        return await averaged(link, update, suite)

    passes(monkeypatch, leaky(party, Bytes))


# --- twins ---------------------------------------------------------------------------------------------------------


def test_other_keys_change_keys_and_no_choices():
    scope = scope_of("secagg", 6, sampled=4, oversampled=5, threshold=3)
    agreement = SymbolicSimulation(scope.protocol, scope.terms, 3, scope.seed).agreement
    first, _ = pair(agreement, agreement.ring(PROOF_BITS), 1, [scope.parties])
    one, again, other = (twin(scope, agreement, [first], keys) for keys in ("", "", "other"))

    def passed(run):
        return [(each.time, each.envelope.address) for each in run.rounds[0].transcript]

    def sealed(run):
        return [each.envelope.sealed for each in run.rounds[0].transcript]

    assert passed(one) == passed(other)
    assert sealed(one) == sealed(again)
    assert not set(sealed(one)) & set(sealed(other))
    for party in scope.parties:
        ours, theirs = (run.book.pages[party] for run in (one, other))
        assert [[what for what, _ in page] for page in ours] == [[what for what, _ in page] for page in theirs]
        given, others_ = ({each for page in pages for _, tokens in page for each in tokens} for pages in (ours, theirs))
        assert given
        assert not given & others_
    real = scope.real(3)
    real.average(first)
    assert sealed(one) == [each.envelope.sealed for each in real.last.transcript], "its keys are those of any run"


class SparseSettings(Settings, frozen=True, kw_only=True):
    """Settings of a protocol that says that entries fare differently."""

    tells: bool = False

    def bind(self, parties):
        return SparseTerms(self, parties)


class SparseTerms(Terms):
    """Its terms."""

    @property
    def selective(self):
        return True


async def shows_how_far_it_came(link, update, terms, suite, state):
    """Tells p0 how far the entry is that changed most, or which one it is, as TopK does."""
    changes = suite.ring.magnitudes(update.vector, state.since)
    told = int(1e4 * changes.max()) if terms.settings.tells else int(changes.argmax())
    await tell(link, Bytes(b"%d" % told))
    average = await averaged(link, update, suite)
    await link.save(GraphState(suite.ring.dump_vector(update.vector)))
    return average


def test_how_much_an_entry_changed_is_noticed_and_which_changed_most_is_a_selection():
    protocol = leaky(shows_how_far_it_came, Bytes, state=GraphState, settings=SparseSettings)
    for tells in (False, True):
        scope = Scope(protocol, SparseSettings(tells=tells).bind(Parties(PARTIES)), rounds=2)
        guard = Guard(scope, 2)
        if not tells:
            guard.check()
            continue
        with pytest.raises(tacit.NotAuditable, match=r"in round [12], data: it depends on vectors"):
            guard.check()


# --- what is in a box ----------------------------------------------------------------------------------------------


def test_every_byte_string_is_found_and_found_again():
    value = {
        "type": "Any",
        "list": [b"one", {"deep": b"two"}],
        3: b"three",
        b"four": b"five",
        "more": msgspec.msgpack.Ext(5, b"six"),
    }
    packed = msgspec.msgpack.encode(value)
    found = dict(byte_strings(msgspec.msgpack.decode(packed)))
    assert sorted(found.values()) == sorted([b"one", b"two", b"three", b"four", b"five", b"six"])
    assert all(follow(packed, path) == data for path, data in found.items())
    # Where keys are data, a path leads to the same place in a table with other keys.
    path = next(path for path, data in found.items() if data == b"five")
    other = msgspec.msgpack.encode({"type": "Any", "list": [], 3: b"", b"4444": b"5555", "more": 0})
    assert follow(other, path) == b"5555"


def test_a_box_that_is_no_message_is_one_byte_string():
    world = SymbolicSimulation.of("gossip", PARTIES, 1).world
    assert list(contents(world, b"\xc1 is no message")) == [((WholeVector(),), b"\xc1 is no message")]
    assert list(contents(world, msgspec.msgpack.encode([b"one"]))) == [((0,), b"one")]
    assert follow(b"\xc1 anything", (WholeVector(),)) == b"\xc1 anything"


def test_a_vector_with_and_without_its_weight_is_not_linear_but_to_its_owner(monkeypatch):
    async def party(link, update, _terms, suite, _state):
        ring = suite.ring
        to = link.parties[(link.place + 1) % len(link.parties)]
        await link.send(to, Vector(memoryview(ring.pack(ring.values(update.vector)))))
        await link.receive(link.parties[link.place - 1], Vector)
        return await averaged(link, update, suite)

    monkeypatch.setitem(protocols.REGISTRY, "leaky", leaky(party, Vector))
    check_soundness(scope_of("leaky"))
    with pytest.raises(tacit.NotLinear, match="the vector of p3 with its weight and without"):
        tacit.audit("leaky", parties=PARTIES, coalition=["p0"])
    with pytest.raises(tacit.NotLinear, match="the vector of p3"):
        tacit.audit("leaky", parties=PARTIES, coalition=["p0", "p1"])
    alone = SymbolicSimulation.of("leaky", PARTIES, 1)
    transcript = alone.average_unknowns().transcript
    plain = {(1, n): each.envelope for n, each in enumerate(transcript) if each.envelope.address.kind == "Vector"}
    view = View(alone.world, alone.agreement.session, ["p0"], plain)
    seen = [known.vector[0].terms for known in view.vectors if not known.is_mask]
    assert sorted(seen, key=str) == [{("input", "p0", 0): 1}, {("input", "p3", 0): 1}]
