"""What every protocol must do, whichever it is. A new entry of the registry is tested here without further ado."""

import base64
import logging
import re
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache

import msgspec
import numpy as np
import pytest

from tacit.core.errors import NotEnough, TacitError, WireError
from tacit.core.link import Link
from tacit.core.messages import Abort, Codec
from tacit.core.suite import SERVER, Update
from tacit.crypto.keys import Identity
from tacit.crypto.suite import RealSuite
from tacit.designs import Batches
from tacit.protocols import REGISTRY
from tacit.protocols.secagg.messages import LastSum
from tacit.runtime.inbox import Inbox
from tacit.runtime.simulation.faults import Fault
from tacit.runtime.simulation.simulator import Simulation


@dataclass(frozen=True)
class Setting:
    """A federation to try a protocol on."""

    parties: int = 5
    entries: int = 4
    options: dict = field(default_factory=dict)
    weights: tuple | None = None
    chosen: int | None = None
    """How many contribute in an honest round; None: everyone."""
    batch: int = 1
    within: float = 0.0
    """How far the average may be from the plain mean of the contributors; 0: bit for bit."""
    drawn: float = 0.0
    """How far it may be from that of real numbers, or of another seed, by noise and rounding that were drawn."""
    rounded: tuple = ()
    """Those whose weights the ring can carry only so badly that they are warned of it."""
    sparse: bool = False
    """Whether only some entries are averaged."""

    def check(self, federation, updates, out, ring_mean):
        """Checks every party's average against the plain mean of the contributors."""
        if self.within:
            weights = [updates[party].weight for party in out.contributors]
            expected = np.average([updates[party].vector for party in out.contributors], axis=0, weights=weights)
        else:
            expected = ring_mean(federation, updates, out.contributors)
        for average in out.average.values():
            self.compare(average, expected)

    def compare(self, average, expected):
        assert average.dtype == expected.dtype == np.float64
        assert average.shape == expected.shape
        if self.within:
            np.testing.assert_allclose(average, expected, rtol=0, atol=self.within)
        else:
            np.testing.assert_array_equal(average, expected)

    def rounding(self, federation, updates, contributors):
        """Returns how far the ring's rounding can move an average: by one step of each contributor."""
        ring = federation.agreement.ring()
        weights = [updates[party].weight for party in contributors]
        return ring.resolution * len(weights) * ring.max_weight / sum(weights)

    def federation(self, protocol, **more):
        return Simulation.of(
            protocol, names(self.parties), more.pop("entries", self.entries), **{"seed": 0, **self.options, **more}
        )


@dataclass(frozen=True)
class Changing(Setting):
    """A federation of all with all that averages only those entries that changed most since the last time."""

    entries: int = 8
    options: dict = field(default_factory=lambda: {"share": 0.5, "sparsifier": "topk", "score": "change"})
    within: float = 1e-5
    fewest: int = 1
    """How many others must share an entry."""
    sparse: bool = True

    def check(self, federation, updates, out, ring_mean):
        """Checks every party's average against what is shared with it, mixed by hand."""
        del ring_mean
        last = getattr(federation, "averages", dict.fromkeys(updates, np.zeros(self.entries)))
        scores = {party: np.abs(np.float32(each.vector) - np.float32(last[party])) for party, each in updates.items()}
        shared = {party: score >= np.sort(score)[self.entries // 2] for party, score in scores.items()}
        for me, average in out.average.items():
            others = [party for party in updates if party != me]
            enough = sum(shared[party].astype(int) for party in others) >= self.fewest
            own, expected = updates[me].vector, updates[me].vector.copy()
            for party in others:
                expected += (updates[party].vector - own) * (shared[party] & enough) / len(updates)
            self.compare(average, expected)
        federation.averages = out.average


WEIGHTS = (1.0, 2.5, 1000.0, 0.25, 7.0)
COMMON = {
    "plain": Setting(),
    "bits-16": Setting(options={"bits": 16}, drawn=1e-2),
    "bits-64": Setting(options={"bits": 64}),
    "two parties": Setting(parties=2),
    "noise": Setting(options={"noise": 0.05, "norm": 100.0}, drawn=0.3),
    "by chance": Setting(options={"rounding": "stochastic"}, drawn=1e-6),
    "bits-16 with noise": Setting(options={"bits": 16, "noise": 0.2, "norm": 100.0, "clip": 8.0}, drawn=1.2),
}
WEIGHTED = {"weights": Setting(weights=WEIGHTS, options={"max_weight": 1000.0, "weighted": True})}
SAMPLING = {
    "sampled": Setting(parties=6, options={"sampled": 4, "oversampled": 5}, chosen=4),
    "batches": Setting(parties=8, options={"participation": Batches(4, 2)}, chosen=4, batch=2),
}


def nearly(common, **options):
    """Returns common settings for a protocol that rounds on the way: the mean is right up to some units of the ring."""
    near = {"bits-16": 0.1, "bits-64": 1e-9, "noise": 0.3, "bits-16 with noise": 1.2}
    return {
        title: replace(setting, within=near.get(title, 1e-5), options=setting.options | options)
        for title, setting in common.items()
    }


SPECIAL = {
    "fedavg": SAMPLING,
    "secagg": SAMPLING
    | {
        "neighbours": Setting(parties=9, options={"neighbours": 4}),
        "sampled neighbours": Setting(parties=9, options={"neighbours": 4, "sampled": 7, "oversampled": 7}, chosen=7),
        # Of the 13,000 steps that five parties have in 16 bits, 1.5 and 0.25 thousandths would take 19.5 and 3.25.
        "weighted bits-16": Setting(
            weights=WEIGHTS, options={"max_weight": 1000.0, "bits": 16}, rounded=("p1", "p3"), drawn=1e-2
        ),
    },
    "gossip": nearly(COMMON) | {"change": Changing()},
    # Nobody can be masked by fewer than two others.
    "cesar": nearly(COMMON)
    | {"two parties": None, "three parties": Setting(parties=3, within=1e-5), "change": Changing(fewest=2)},
    "pushsum": nearly(COMMON | WEIGHTED) | {"masked": Setting(options={"masked": True}, within=1e-5)},
    # A single group of five. Of two, one learns the other's vector.
    "rotating": {
        "two parties": None,
        "three parties": Setting(parties=3),
        "stages": Setting(parties=9, options={"stages": 2}),
    },
    # Masked all-to-all communication is the only pattern that protects as many iterations as it takes. The ring
    # has to hold multipliers many times the clip, which 16 bits do not do well.
    "admm": nearly(COMMON | WEIGHTED, group_size=None, masked=True, clip=8.0, rho=1.0)
    | {
        "groups": Setting(parties=9, within=2e-3),
        "masked groups": Setting(parties=9, options={"masked": True}, within=2e-3),
    },
}
"""Settings that only make sense for one protocol. One of a common title takes its place, and None takes it away."""


def settings_of(name):
    found = COMMON | (WEIGHTED if REGISTRY[name].weighted else {}) | SPECIAL.get(name, {})
    return {title: setting for title, setting in found.items() if setting is not None}


every_case = pytest.mark.parametrize(
    ("protocol", "setting"),
    [
        pytest.param(name, setting, id=f"{name}-{title}")
        for name in REGISTRY
        for title, setting in settings_of(name).items()
    ],
)
every_protocol = pytest.mark.parametrize("protocol", REGISTRY)


def plain_federation(protocol, **more):
    return settings_of(protocol)["plain"].federation(protocol, **more)


def names(count):
    return tuple(f"p{place}" for place in range(count))


def envelopes(outcome):
    return [(passed.envelope.address, passed.envelope.sealed) for passed in outcome.transcript]


HONEST = {}


@pytest.fixture
def honest(protocol, setting, updates_for):
    """Returns a federation after one honest round, what was brought to it and how it ended. Tests only look at it."""
    if (protocol, id(setting)) not in HONEST:
        federation = setting.federation(protocol, record=True)
        updates = updates_for(federation.parties, setting.entries, setting.weights)
        HONEST[protocol, id(setting)] = federation, updates, federation.average(updates)
    return HONEST[protocol, id(setting)]


# --- averages ------------------------------------------------------------------------------------------------------


@every_case
def test_an_honest_round_gives_everyone_the_plain_mean_bit_for_bit(honest, setting, ring_mean):
    federation, updates, out = honest
    assert out.average.keys() == set(federation.parties)
    setting.check(federation, updates, out, ring_mean)
    assert out.dropped == {}
    assert out.clipped == {}
    assert [warning.partition(": its weight was rounded by ")[0] for warning in out.warnings] == [*setting.rounded]
    assert all("use bits=32, or a max_weight" in warning for warning in out.warnings)


@every_case
def test_the_mean_is_that_of_the_real_numbers(honest, setting):
    """The ring's own arithmetic is not trusted here: compare with floating point, up to the ring's resolution."""
    if setting.sparse:
        pytest.skip("of entries that not all share there is another mean, which was compared above")
    federation, updates, out = honest
    weights = [updates[party].weight for party in out.contributors]
    expected = np.average([updates[party].vector for party in out.contributors], axis=0, weights=weights)
    tolerance = setting.rounding(federation, updates, out.contributors) + 1e-8 + setting.within + setting.drawn
    np.testing.assert_allclose(out.average["p0"], expected, rtol=0, atol=tolerance)


@every_case
def test_the_contributors_are_those_that_the_settings_ask_for(honest, setting):
    federation, _, out = honest
    assert len(set(out.contributors)) == len(out.contributors)
    if setting.chosen is None:
        assert set(out.contributors) == set(federation.parties)
    else:
        assert len(out.contributors) == setting.chosen
        assert set(out.contributors) < set(federation.parties)
    places = [federation.parties.index(party) for party in out.contributors]
    for place in places:
        first = place - place % setting.batch
        assert set(range(first, first + setting.batch)) <= set(places)


@pytest.mark.parametrize("protocol", [name for name, protocol in REGISTRY.items() if protocol.weighted])
def test_weights_count(protocol, updates_for):
    """Somebody with nearly all the weight has nearly all the say."""
    federation = settings_of(protocol)["weights"].federation(protocol)
    updates = updates_for(federation.parties, 4, [1000.0, 0.01, 0.01, 0.01, 0.01])
    out = federation.average(updates)
    np.testing.assert_allclose(out.average["p2"], updates["p0"].vector, atol=1e-3)


# --- the same again ------------------------------------------------------------------------------------------------


@every_case
def test_the_same_seed_gives_the_same_bytes(protocol, setting, updates_for):
    updates = updates_for(names(setting.parties), setting.entries, setting.weights)
    federations = [setting.federation(protocol, seed=seed, record=True) for seed in (7, 7, 8)]
    one, two, other = (federation.average(updates) for federation in federations)
    assert envelopes(one) == envelopes(two)
    assert [passed.time for passed in one.transcript] == [passed.time for passed in two.transcript]
    assert one.contributors == two.contributors
    np.testing.assert_array_equal(one.average["p1"], two.average["p1"])

    assert not {sealed for _, sealed in envelopes(one)} & {sealed for _, sealed in envelopes(other)}
    if one.contributors == other.contributors:
        drawn = setting.drawn and setting.drawn + setting.rounding(federations[0], updates, one.contributors)
        replace(setting, within=setting.within + drawn).compare(one.average["p1"], other.average["p1"])
    else:
        assert setting.chosen is not None


@every_protocol
def test_without_a_seed_no_two_runs_are_alike(protocol, updates_for):
    updates = updates_for(names(5), 4)
    one, two = (plain_federation(protocol, seed=None, record=True).average(updates) for _ in range(2))
    assert not {sealed for _, sealed in envelopes(one)} & {sealed for _, sealed in envelopes(two)}
    settings_of(protocol)["plain"].compare(one.average["p0"], two.average["p0"])


@every_case
def test_round_after_round(protocol, setting, updates_for, ring_mean):
    federation = setting.federation(protocol, record=True)
    seen = set()
    for number in range(1, 4):
        updates = updates_for(federation.parties, setting.entries, setting.weights, seed=number)
        out = federation.average(updates)
        assert federation.number == number
        assert out.average.keys() == set(federation.parties)
        setting.check(federation, updates, out, ring_mean)
        assert {address.round for address, _ in envelopes(out)} == {number}
        sealed = {sealed for _, sealed in envelopes(out)}
        assert not seen & sealed
        seen |= sealed


@every_protocol
def test_no_envelope_of_one_round_counts_in_another(protocol, updates_for):
    federation = plain_federation(protocol, record=True)
    out = federation.average(updates_for(federation.parties, 4))

    def inbox(party, number):
        seat, agreement = federation.participants[party], federation.agreement
        link = Link(party, agreement.parties, agreement.session, number)
        return Inbox(link, seat.suite(number, bytes(32)), seat.codec, agreement.terms)

    for passed in out.transcript:
        address = passed.envelope.address
        data = msgspec.msgpack.encode(passed.envelope)
        forged = msgspec.structs.replace(address, round=2)
        renamed = msgspec.msgpack.encode(msgspec.structs.replace(passed.envelope, address=forged))
        then, now = inbox(address.to, 1), inbox(address.to, 2)
        assert then.deliver(data).message.kind() == address.kind
        assert now.deliver(data).message is None
        assert now.deliver(renamed).message is None
        assert now.discarded == {"from another round": 1, "not authentic": 1}
        assert now.gone == {}


# --- traffic -------------------------------------------------------------------------------------------------------


@every_case
def test_what_is_sent_is_received(honest):
    traffic = honest[2].traffic
    sent, received = (sum(table.values(), Counter()) for table in (traffic.sent, traffic.received))
    assert sent == received
    assert traffic.total == sum(sent.values()) > 0
    assert traffic.by_class()["parameters"] == sent["parameters"]


@every_case
def test_every_byte_on_the_wire_is_accounted_for(honest):
    federation, _, out = honest
    for party in federation.agreement.everyone:
        lengths = [
            len(msgspec.msgpack.encode(passed.envelope))
            for passed in out.transcript
            if party == passed.envelope.address.sender
        ]
        assert out.traffic.sent[party].total() == sum(lengths)


@every_case
def test_a_vector_takes_its_bits_on_the_wire_and_nothing_more(honest):
    federation, _, out = honest
    ring = federation.agreement.ring()
    carrying = {kind.kind() for kind in federation.agreement.protocol.messages if kind.parameters}
    for party in federation.parties:
        vectors = [address for address, _ in envelopes(out) if address.sender == party and address.kind in carrying]
        sent = out.traffic.sent[party]["parameters"]
        assert sent <= len(vectors) * ring.length * ring.bits // 8
        if federation.agreement.protocol.server:
            assert sent == len(vectors) * ring.length * ring.bits // 8
        if party in out.contributors:
            assert vectors


@every_protocol
def test_the_cost_beside_the_vector_does_not_grow_with_it(protocol, updates_for):
    def overhead(entries):
        federation = plain_federation(protocol, entries=entries, record=True)
        out = federation.average(updates_for(federation.parties, entries))
        messages = Counter(address.sender for address, _ in envelopes(out))
        return {party: (row["protocol"], messages[party]) for party, row in out.traffic.sent.items()}

    small = overhead(3)
    assert overhead(10) == small
    # A longer byte string has a longer header: 1, 2 or 4 bytes, for the vector and for the sealed message around it.
    for party, (cost, messages) in overhead(3000).items():
        assert cost <= small[party][0] + 6 * messages


# --- secrets -------------------------------------------------------------------------------------------------------


def spellings(secret):
    """Yields the ways in which bytes may show up in a text."""
    yield repr(secret)[2:-1]
    yield str(secret, "latin-1")
    yield secret.hex()
    yield secret.hex().upper()
    yield secret.hex(" ")
    yield secret.hex(":")
    yield base64.b64encode(secret).decode().rstrip("=")[:-1]
    yield base64.urlsafe_b64encode(secret).decode().rstrip("=")[:-1]
    yield base64.b32encode(secret).decode().rstrip("=")[:-1]
    yield ", ".join(map(str, secret))
    yield str(int.from_bytes(secret))
    yield str(int.from_bytes(secret, "little"))


def shown(secrets, text):
    """Returns the secrets that can be read off a text."""
    return [secret for secret in secrets if any(spelling in text for spelling in spellings(secret))]


@pytest.fixture
def secrets(monkeypatch):
    """Collects the secrets that suites make, agree on, split and recover."""
    made = set()

    def watch(name, reveal):
        original = getattr(RealSuite, name)

        def watched(self, *args):
            result = original(self, *args)
            made.update(reveal(result))
            return result

        monkeypatch.setattr(RealSuite, name, watched)

    identify = Identity.generate

    def identified(name, entropy):
        identity = identify(name, entropy)
        made.update((identity.signing.reveal(), identity.channel.reveal()))
        return identity

    monkeypatch.setattr(Identity, "generate", identified)
    watch("key_pair", lambda pair: [pair.secret.reveal()])
    watch("seed", lambda secret: [secret.reveal()])
    watch("agree", lambda secret: [secret.reveal()])
    watch("channel", lambda secret: [secret.reveal()])
    watch("share", lambda shares: shares.values())
    watch("recover", lambda secret: [secret.reveal()])
    return made


def everything(federation, messages, outcome=None, error=None):
    """Returns all that anybody might print or log after a round, as text."""
    played = federation.last
    objects = [federation, federation.agreement, played, played.transcript, outcome]
    objects += [*messages, *federation.states.values(), *federation.participants.values(), *played.endings.values()]
    objects += [*played.transcript.holdings.values(), played.transcript.passed, *played._journals.values()]
    for journal in played._journals.values():
        objects += journal.read()
    errors = [error]
    for seat in federation.participants.values():
        objects += [seat.identity, seat.keys, seat.early]
    for each in played.rounds.values():
        objects += [each, each.begun, each.link, each.inbox, each.wait, each.inbox.gone, each.inbox.discarded]
        objects += [each.suite, each.suite.ring, each.suite.entropy, each._run]
        errors.append(each.error)
    texts = [text for item in objects for text in (repr(item), str(item))]
    for caught in errors:
        if caught is not None:
            texts += [repr(caught), *traceback.format_exception(caught, chain=True)]
    return "\n".join(texts)


def kept(monkeypatch):
    """Collects the messages that are sent."""
    messages, encode = [], Codec.encode
    monkeypatch.setattr(Codec, "encode", lambda self, message: messages.append(message) or encode(self, message))
    return messages


TROUBLE = {
    "honest": (),
    "an early crash": (Fault(action="crash", party="p1", step=3),),
    "a late crash": (Fault(action="crash", party="p1", step=5),),
    "too few left": tuple(Fault(action="silence", party=party) for party in names(4)),
    "no server": (Fault(action="crash", party=SERVER, step=8),),
    "a restart": (Fault(action="restart", party="p1", step=3, seconds=2.0),),
    "corruption": (Fault(action="corrupt", party="p1"), Fault(action="corrupt", to="p2")),
}


@every_protocol
@pytest.mark.parametrize("trouble", TROUBLE)
def test_no_secret_is_ever_shown(protocol, trouble, secrets, updates_for, play, monkeypatch, caplog, capfd):
    if SERVER not in REGISTRY[protocol].everyone(()) and trouble == "no server":
        pytest.skip("there is no server in this protocol")
    caplog.set_level(logging.DEBUG)
    messages = kept(monkeypatch)
    federation = plain_federation(protocol, record=True, faults=TROUBLE[trouble])
    updates = updates_for(federation.parties, 4)
    ended = play(federation, updates)
    ring = federation.agreement.ring()
    for party, each in ended.played.rounds.items():
        secrets.add(each.suite.entropy._seed)
        secrets.add(each.begun.seed)
        if party != SERVER:
            secrets.add(updates[party].vector.tobytes())
            secrets.add(bytes(ring.pack(ring.encode(updates[party]))))
    assert len(secrets) > 20
    assert messages
    text = everything(federation, messages, ended.outcome, ended.error)
    printed = capfd.readouterr()
    assert shown(secrets, text + caplog.text + printed.out + printed.err) == []
    for party, update in updates.items():
        # Whoever hears from nobody has its own vector for an average.
        if ended.outcome is None or not np.allclose(ended.outcome.average.get(party, np.nan), update.vector):
            assert repr(update.vector)[6:-1] not in text


def test_the_search_for_secrets_finds_them():
    secret = bytes(range(100, 132))
    for text in (
        f"{secret}",
        secret.hex(),
        f"x{base64.b64encode(secret).decode()}y",
        f"{list(secret)}",
        f"{tuple(secret)}",
    ):
        assert shown([secret], text) == [secret]
    assert shown([secret], repr(secret[1:])) == []


def test_the_secrets_of_a_run_are_collected(secrets, updates_for):
    federation = plain_federation("secagg")
    federation.average(updates_for(federation.parties, 4))
    # 2 keys and a seed each, 10 channels with each other and the server, 10 seal and 10 mask keys, 2 · 25 shares.
    assert len(secrets) >= 5 * 3 + 5 + 10 + 10 + 2 * 25


# --- messages ------------------------------------------------------------------------------------------------------


@cache
def examples(protocol):
    """Returns one message of each kind that an honest round of any setting sends."""
    found = {"Abort": (Abort("not-enough"), 5, 4)}
    for setting in settings_of(protocol).values():
        federation = setting.federation(protocol, record=True)
        rng = np.random.default_rng(0)
        out = federation.average({party: Update(rng.normal(size=setting.entries)) for party in federation.parties})
        for party in federation.agreement.everyone:
            for address, message in out.transcript.open_messages(party):
                found.setdefault(address.kind, (message, setting.parties, federation.agreement.ring().length))
    if protocol == "secagg":
        found["LastSum"] = said_again(), 3, 6
    return found


def said_again():
    """Returns the last sum as it is said again: of three, of whom nobody may be missing, one has not heard it."""
    lost = [{"action": "drop", "message": "Sum", "to": "p1", "round": 1}]
    federation = Simulation.of("secagg", ["p0", "p1", "p2"], 4, faults=lost, record=True)
    updates = {party: Update(np.ones(4)) for party in federation.parties}
    federation.average(updates)
    with pytest.raises(NotEnough):
        federation.average(updates)
    return next(
        message for _, message in federation.last.transcript.open_messages("p0") if isinstance(message, LastSum)
    )


KINDS = [
    pytest.param(name, kind, id=f"{name}-{kind.kind()}")
    for name, protocol in REGISTRY.items()
    for kind in (*protocol.messages, Abort)
]
every_kind = pytest.mark.parametrize(("protocol", "kind"), KINDS)


def example(protocol, kind):
    found = examples(protocol)
    assert kind.kind() in found, "no honest round sends this; add a setting in which one does"
    message, parties, entries = found[kind.kind()]
    return message, Codec(REGISTRY[protocol].messages, parties, entries)


def contents(value):
    """Yields every byte string and text inside a field."""
    if isinstance(value, bytes | memoryview):
        yield bytes(value)
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for item in value.values():
            yield from contents(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from contents(item)


@every_kind
def test_a_message_shows_its_fields_sizes_only(protocol, kind):
    message, _ = example(protocol, kind)
    fields = {name: getattr(message, name) for name in kind.__struct_fields__}
    assert repr(message) == str(message)
    sizes = ", ".join(name + r": \d+" for name in fields)
    assert re.fullmatch(rf"{kind.kind()}\({sizes}\)", repr(message))
    for data in contents(fields):
        # A set of users may be one byte, which is sure to turn up somewhere.
        if len(data) > 3:
            assert shown([data], repr(message)) == []


@every_kind
def test_a_message_goes_through_the_codec_unchanged(protocol, kind):
    message, codec = example(protocol, kind)
    data = b"".join(codec.encode(message))
    back = codec.decode(kind.kind(), data)
    assert type(back) is kind
    assert back == message
    assert b"".join(codec.encode(back)) == data


@every_kind
def test_an_unknown_field_is_refused(protocol, kind):
    message, codec = example(protocol, kind)
    fields = msgspec.msgpack.decode(b"".join(codec.encode(message)))
    assert isinstance(codec.decode(kind.kind(), msgspec.msgpack.encode(fields)), kind)
    for name, value in (("extra", b""), ("", 0), ("Type", "x")):
        with pytest.raises(WireError):
            codec.decode(kind.kind(), msgspec.msgpack.encode(fields | {name: value}))


@every_kind
def test_a_missing_field_a_wrong_type_and_a_wrong_name_are_refused(protocol, kind):
    message, codec = example(protocol, kind)
    fields = msgspec.msgpack.decode(b"".join(codec.encode(message)))
    for field_ in msgspec.structs.fields(kind):
        name = field_.name
        less = {key: value for key, value in fields.items() if key != name}
        for wrong in ([less] if field_.required else []) + [fields | {name: value} for value in ([[]], {"x": 1})]:
            with pytest.raises(WireError):
                codec.decode(kind.kind(), msgspec.msgpack.encode(wrong))
    for other in ({**fields, "type": "Another"}, {**fields, "type": 3}, [], None, b"", 7):
        with pytest.raises(WireError):
            codec.decode(kind.kind(), msgspec.msgpack.encode(other))


@every_kind
def test_a_message_cut_short_or_drawn_out_is_refused(protocol, kind):
    message, codec = example(protocol, kind)
    data = b"".join(codec.encode(message))
    for length in range(len(data)):
        with pytest.raises(WireError):
            codec.decode(kind.kind(), data[:length])
    with pytest.raises(WireError):
        codec.decode(kind.kind(), data + b"\x00")


@every_kind
def test_a_message_is_not_taken_for_another_kind(protocol, kind):
    message, codec = example(protocol, kind)
    for other in (*REGISTRY[protocol].messages, Abort):
        if other is not kind:
            with pytest.raises(WireError):
                codec.decode(other.kind(), b"".join(codec.encode(message)))


@every_kind
def test_a_message_stays_within_its_own_limit(protocol, kind):
    """With room to spare: names and numbers of a larger federation take a few bytes more each."""
    message, codec = example(protocol, kind)
    size, limit = len(b"".join(codec.encode(message))), codec._limits[kind.kind()]
    assert size <= limit - 512
    with pytest.raises(WireError, match="and at most"):
        codec.decode(kind.kind(), bytes(limit + 1))


@every_protocol
def test_every_claim_says_where_it_is_made(protocol):
    for claim in REGISTRY[protocol].claims:
        assert claim.paper
        assert claim.section
        assert claim.statement


@every_protocol
def test_the_entry_goes_by_its_own_name(protocol):
    entry = REGISTRY[protocol]
    assert entry.name == protocol
    assert entry.summary
    assert len({kind.kind() for kind in entry.messages}) == len(entry.messages)
    with pytest.raises(TacitError):
        Simulation.of(protocol, names(5), 4, no_such_option=1, seed=0)
