"""Bytes that are not what they claim to be, and parties that send what they must not.

What cannot be authenticated is thrown away and blames nobody. What is authentic but wrong excludes its sender and
nobody else. A whole round with such a party ends in a right average, or in a TacitError.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from itertools import count

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core import messages as core_messages
from tacit.core.errors import Drop, NotEnough, TacitError, WireError
from tacit.core.link import Link, Wait
from tacit.core.messages import SEAL_BYTES, Abort, Address, Codec, Envelope
from tacit.core.suite import SERVER, Secret, Update
from tacit.designs import Everyone
from tacit.protocols import REGISTRY, admm, fedavg, secagg
from tacit.protocols.secagg.messages import PAIR, KeyList, LastSum, Sum
from tacit.runtime.inbox import SPARE_ENVELOPES, EarlyMessages, Inbox
from tacit.runtime.simulation.simulator import Simulation

PARTIES = ("p0", "p1", "p2", "p3", "p4")
SEALED = PAIR + SEAL_BYTES
replace = msgspec.structs.replace
pack = msgspec.msgpack.encode


@dataclass
class Mailroom:
    """A simulation whose mail is carried by hand."""

    simulation: Simulation

    @property
    def session(self):
        return self.simulation.agreement.session

    @property
    def codec(self):
        return (
            self.simulation.participants["p0"].codec
            if "p0" in self.simulation.participants
            else self.simulation.participants[SERVER].codec
        )

    def suite(self, me):
        return self.simulation.participants[me].suite(1, bytes(32))

    def inbox(self, me, number=1, early=None):
        agreement = self.simulation.agreement
        link = Link(me, agreement.parties, self.session, number)
        return Inbox(link, self.suite(me), self.codec, agreement.terms, early, agreement.difference)

    def address(self, sender, to, kind, step=0, number=1):
        return Address(self.session, number, step, kind, sender, to)

    def sealed(self, sender, to, kind, payload, step=0, number=1):
        """Returns an authentic envelope around any bytes at all."""
        suite = self.suite(sender)
        return self.under(suite, suite.channel(to, self.session), self.address(sender, to, kind, step, number), payload)

    def under(self, suite, key, address, payload):
        return self.codec.wrap_sealed(address, self.codec.seal(suite, key, address, (payload,)))

    def letter(self, sender, to, message, step=0, number=1):
        return self.sealed(sender, to, message.kind(), b"".join(self.codec.encode(message)), step, number)


def said(inbox, data):
    """Delivers bytes and returns what they say, None if nothing that counts."""
    return inbox.deliver(data).message


@pytest.fixture(scope="module")
def post():
    return Mailroom(Simulation.of("fedavg", ("p0", "p1", "p2"), 3, seed=0))


@cache
def recorded():
    """Returns a federation and the envelopes of a real round of secagg, one of each kind."""
    federation = Simulation.of("secagg", ("p0", "p1", "p2"), 3, record=True, seed=0)
    out = federation.average({party: Update(np.ones(3)) for party in federation.parties})
    kinds = {passed.envelope.address.kind: passed.envelope for passed in out.transcript}
    return Mailroom(federation), list(kinds.values())


# --- bytes that nobody vouches for ---------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.binary(max_size=400))
def test_random_bytes_are_thrown_away(post, data):
    inbox = post.inbox(SERVER)
    assert said(inbox, data) is None
    assert inbox.discarded.total() == 1
    assert inbox.gone == {}


text = st.text("ps01\u2603", max_size=5) | st.sampled_from(("p0", "p1", "server", "Here", "Plain", "Abort", "Turn"))
number = st.integers(0, 3) | st.integers(-(2**63), 2**64 - 1)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_random_envelopes_are_thrown_away(post, data):
    session = data.draw(st.just(post.session) | st.binary(max_size=20))
    address = Address(session, *(data.draw(kind) for kind in (number, number, text, text, text)))
    inbox = post.inbox(SERVER)
    assert said(inbox, pack(Envelope(address, data.draw(st.binary(max_size=100))))) is None
    assert inbox.discarded.total() == 1
    assert inbox.gone == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92",
        b"\x91" * 900,
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        pack([]),
        pack({}),
        pack([[], b""]),
        pack([[b"", 1, 0, "Here", "p0"], b""]),
        pack([[b"", "1", 0, "Here", "p0", "server"], b""]),
        pack([[b"", 1, 0, "Here", "p0", "server"], b"", b""]),
        pack([[b"", 2**64 - 1, 0, "Here", "p0", "server"], "text"]),
        b"\x92\x96\xc4\x00\x01\x00\xa1\xff\xa2p0\xa6server\xc4\x00",  # a kind that is not UTF-8
    ],
    ids=lambda data: data[:12].hex() or "empty",
)
def test_what_is_no_envelope(post, data):
    with pytest.raises(WireError):
        post.codec.read(data)
    inbox = post.inbox(SERVER)
    assert said(inbox, data) is None
    assert inbox.discarded == {"not an envelope": 1}


def test_an_envelope_cut_short_or_drawn_out_is_none():
    post, envelopes = recorded()
    for envelope in envelopes:
        inbox, data = post.inbox(envelope.address.to), pack(envelope)
        for length in range(len(data)):
            assert said(inbox, data[:length]) is None
        assert said(inbox, data + b"\x00") is None
        assert inbox.discarded == {"not an envelope": len(data) + 1}
        assert said(inbox, data) is not None


@pytest.mark.parametrize("flip", [0x01, 0x55, 0x80])
def test_a_flipped_bit_anywhere_is_a_lost_message_and_blames_nobody(flip):
    post, envelopes = recorded()
    for envelope in envelopes:
        inbox, data = post.inbox(envelope.address.to), pack(envelope)
        for place in range(len(data)):
            assert said(inbox, data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]) is None
        assert inbox.discarded.total() == len(data)
        assert inbox.gone == {}
        # Nothing of all that stands in the way of the real one.
        assert said(inbox, data).kind() == envelope.address.kind


def test_an_address_with_more_fields_than_there_are_is_refused(post):
    message = post.letter("p0", SERVER, fedavg.Here())
    address, sealed = msgspec.msgpack.decode(message)
    assert said(post.inbox(SERVER), pack([address, sealed])) == fedavg.Here()
    inbox = post.inbox(SERVER)
    assert said(inbox, pack([[*address, "more"], sealed])) is None


CHANGED = {
    "another receiver": ({"to": "p2"}, "misdirected"),
    "another sender": ({"sender": "p2"}, "misdirected"),  # clients have nothing to say to each other
    "a stranger": ({"sender": "mallory"}, "misdirected"),
    "nobody": ({"sender": ""}, "misdirected"),
    "the receiver itself": ({"sender": "p1"}, "misdirected"),
    "another round": ({"round": 2}, "from another round"),
    "another session": ({"session": bytes(32)}, "from another session"),
    "another kind": ({"kind": "Sum"}, "not authentic"),
    "a kind that there is not": ({"kind": "Nonsense"}, "not authentic"),
    "another step": ({"step": 1}, "not authentic"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_the_address_is_authenticated(post, change):
    fields, reason = CHANGED[change]
    inbox, data = post.inbox("p1"), post.letter(SERVER, "p1", fedavg.Asked())
    envelope = post.codec.read(data)
    moved = replace(envelope, address=replace(envelope.address, **fields))
    assert said(inbox, pack(moved)) is None
    assert inbox.discarded == {reason: 1}
    assert inbox.gone == {}
    assert said(inbox, data) == fedavg.Asked()


def test_the_address_is_authenticated_to_whom_it_is_moved(post):
    """The envelope to p1 is of no use to p2 either, nor in round 2, nor back at the server."""
    envelope = post.codec.read(post.letter(SERVER, "p1", fedavg.Asked()))
    for inbox, fields in (
        (post.inbox("p2"), {"to": "p2"}),
        (post.inbox("p1", number=2), {"round": 2}),
        (post.inbox(SERVER), {"sender": "p1", "to": SERVER}),
    ):
        assert said(inbox, pack(replace(envelope, address=replace(envelope.address, **fields)))) is None
        assert inbox.discarded == {"not authentic": 1}
        assert inbox.gone == {}


def test_a_party_cannot_speak_for_another(post):
    """p1 seals with a key that it has, and writes the name of p0 on the envelope."""
    suite = post.suite("p1")
    for key in (suite.channel(SERVER, post.session), suite.channel("p0", post.session), Secret(bytes(32))):
        data = post.under(suite, key, post.address("p0", SERVER, "Here"), pack(fedavg.Here()))
        inbox = post.inbox(SERVER)
        assert said(inbox, data) is None
        assert inbox.discarded == {"not authentic": 1}
        assert inbox.gone == {}


def test_sealed_bytes_of_any_length_are_thrown_away(post):
    for length in range(64):
        inbox = post.inbox(SERVER)
        assert said(inbox, pack(Envelope(post.address("p0", SERVER, "Here"), bytes(length)))) is None
        assert inbox.discarded == {"not authentic": 1}


def test_a_replay_is_thrown_away(post):
    inbox, data = post.inbox(SERVER), post.letter("p0", SERVER, fedavg.Here())
    assert said(inbox, data) == fedavg.Here()
    assert said(inbox, data) is None
    # A second message with the same address is a replay as well, however it is sealed and whatever it says.
    assert said(inbox, post.sealed("p0", SERVER, "Here", b"nonsense")) is None
    wait = Wait((fedavg.Here,), ("p0",), 0, 1)
    assert inbox.collect(wait).messages == {"p0": fedavg.Here()}
    assert said(inbox, data) is None, "also after it was read"
    assert inbox.discarded == {"replayed": 3}
    assert inbox.gone == {}
    assert inbox.collect(wait).missing == {"p0": Drop.SILENT}


# --- bytes that their sender vouches for ---------------------------------------------------------------------------

MALFORMED = {
    "nothing": ("Plain", b""),
    "noise": ("Plain", b"\xc1\xff\x00"),
    "another message": ("Plain", pack(fedavg.Here())),
    "a field too many": ("Here", pack({"type": "Here", "extra": 1})),
    "a field too few": ("Plain", pack({"type": "Plain"})),
    "a field of another type": ("Plain", pack({"type": "Plain", "vector": 7})),
    "text for bytes": ("Plain", pack({"type": "Plain", "vector": "\u2603"})),
    "bad text": ("Abort", b"\x82\xa4type\xa5Abort\xa4code\xa2\xff\xfe"),
    "no struct": ("Here", pack([1, 2, 3])),
    "more than one": ("Here", pack(fedavg.Here()) * 2),
    "deep nesting": ("Here", b"\x82\xa4type\xa4Here\xa1x" + b"\x91" * 900),
    "a kind that there is not": ("Nonsense", pack(fedavg.Here())),
    "a kind of another protocol": ("AdvertiseKeys", pack(secagg.AdvertiseKeys(*[bytes(32)] * 3, bytes(64)))),
    "too long": ("Here", bytes(1025)),
    "promises of more": ("Plain", b"\x82\xa4type\xa5Plain\xa6vector\xc6\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_message_excludes_its_sender_and_nobody_else(post, what):
    kind, payload = MALFORMED[what]
    inbox = post.inbox(SERVER)
    assert said(inbox, post.sealed("p1", SERVER, kind, payload)) is None
    assert inbox.gone == {"p1": Drop.MALFORMED}
    assert inbox.discarded == {}
    assert said(inbox, post.letter("p1", SERVER, fedavg.Here(), step=3)) is None
    assert inbox.discarded == {"from an excluded sender": 1}
    for party in ("p0", "p2"):
        assert said(inbox, post.letter(party, SERVER, fedavg.Here())) == fedavg.Here()
    wait = Wait((fedavg.Here,), ("p0", "p1", "p2"), 0, 1)
    assert inbox.expect(wait), "nobody waits for a party that is gone"
    arrived = inbox.collect(wait)
    assert arrived.messages.keys() == {"p0", "p2"}
    assert arrived.missing == {"p1": Drop.MALFORMED}


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.sampled_from(sorted(REGISTRY)), st.data())
def test_any_payload_is_a_message_or_a_wire_error(protocol, data):
    kind = data.draw(st.sampled_from(REGISTRY[protocol].messages))
    keys = st.integers(0, 9) | text
    plain = st.none() | st.booleans() | number | st.floats() | st.binary(max_size=70) | text
    noise = plain | st.lists(plain, max_size=3) | st.dictionaries(keys, plain | st.lists(plain, max_size=3), max_size=3)
    fields = {name: data.draw(noise) for name in kind.__struct_fields__}
    codec = Codec(REGISTRY[protocol].messages, 5, 3)
    try:
        message = codec.decode(kind.kind(), pack({"type": kind.kind()} | fields))
    except WireError:
        return
    assert type(message) is kind


def test_a_malformed_message_does_not_undo_what_came_before(post):
    inbox = post.inbox(SERVER)
    assert said(inbox, post.letter("p1", SERVER, fedavg.Here())) is not None
    assert said(inbox, post.sealed("p1", SERVER, "Plain", b"?")) is None
    assert inbox.collect(Wait((fedavg.Here,), ("p1",), 0, 1)).messages == {"p1": fedavg.Here()}
    assert inbox.collect(Wait((fedavg.Plain,), ("p1",), 0, 1)).missing == {"p1": Drop.MALFORMED}


def test_an_abort_ends_what_is_expected_of_its_sender(post):
    inbox = post.inbox(SERVER)
    assert said(inbox, post.letter("p1", SERVER, Abort("not-enough"))) == Abort("not-enough")
    assert inbox.gone == {"p1": Drop.ABORTED}
    wait = Wait((fedavg.Here,), ("p1",), 0, 1)
    assert inbox.expect(wait)
    assert inbox.collect(wait).missing == {"p1": Drop.ABORTED}
    assert said(inbox, post.letter("p1", SERVER, fedavg.Here())) is None
    assert inbox.discarded == {"from an excluded sender": 1}


def test_what_a_party_said_before_it_gave_up_still_counts(post):
    inbox = post.inbox(SERVER)
    for message in (fedavg.Here(), Abort("wire")):
        inbox.deliver(post.letter("p1", SERVER, message))
    assert inbox.collect(Wait((fedavg.Here,), ("p1",), 0, 1)).messages == {"p1": fedavg.Here()}


@pytest.fixture(scope="module")
def talking():
    """Returns the mail of a protocol with steps: admm, of 12 entries."""
    return Mailroom(Simulation.of("admm", ("p0", "p1", "p2"), 12, seed=0, masked=True, group_size=None, iterations=3))


def part(size):
    return admm.GroupPart(memoryview(bytes(size)))


@pytest.mark.parametrize("step", [0, 4, -1, 1000])
def test_a_message_at_a_step_that_nobody_awaits_excludes_its_sender(talking, step):
    inbox = talking.inbox("p0")
    assert said(inbox, talking.letter("p1", "p0", part(48), 2)) is not None
    assert inbox.gone == {}
    inbox.deliver(talking.letter("p1", "p0", part(48), step))
    assert inbox.gone == {"p1": Drop.BROKE_RULES}
    assert said(inbox, talking.letter("p2", "p0", part(48), 2)) is not None
    assert inbox.gone == {"p1": Drop.BROKE_RULES}


def test_what_only_the_server_may_say_excludes_a_client_that_says_it(post):
    inbox = post.inbox(SERVER)
    inbox.deliver(post.letter("p1", SERVER, fedavg.Asked()))
    assert inbox.gone == {"p1": Drop.BROKE_RULES}
    inbox = post.inbox("p1")
    inbox.deliver(post.letter(SERVER, "p1", fedavg.Here()))
    assert inbox.gone == {SERVER: Drop.BROKE_RULES}


def test_clients_of_a_server_have_nothing_to_say_to_each_other(post):
    inbox = post.inbox("p1")
    assert said(inbox, post.letter("p0", "p1", fedavg.Here())) is None
    assert inbox.discarded == {"misdirected": 1}


def test_unread_mail_is_limited_in_bytes_and_what_was_read_makes_room(talking):
    room = talking.codec.unread_limit
    most = admm.GroupPart.limit(3, talking.simulation.agreement.ring().length) - 64
    inbox = talking.inbox("p0")
    kinds = [kind(memoryview(bytes(most))) for kind in (admm.GroupPart, admm.GroupSum)]
    for message in kinds:
        assert said(inbox, talking.letter("p1", "p0", message, 1)) is not None
    assert inbox.gone == {}
    assert sum(inbox._bytes.values()) <= room
    full = talking.inbox("p0")
    for step in (1, 2, 3):
        for message in kinds:
            full.deliver(talking.letter("p1", "p0", message, step))
    assert full.gone == {"p1": Drop.BROKE_RULES}
    assert sum(full._bytes.values()) <= room
    assert said(full, talking.letter("p2", "p0", kinds[0], 1)) is not None, "nobody else pays for it"
    for message in kinds:
        assert inbox.collect(Wait((type(message),), ("p1",), 1, 1)).messages
    for message in kinds:
        assert said(inbox, talking.letter("p1", "p0", message, 2)) is not None
    assert inbox.gone == {}


@pytest.mark.parametrize("protocol", REGISTRY)
def test_no_sender_can_leave_more_unread_than_one_message_of_each_kind(protocol):
    codec = Codec(REGISTRY[protocol].messages, 100, 100_000)
    assert codec.unread_limit <= sum(kind.limit(100, 100_000) for kind in REGISTRY[protocol].messages) + 1024
    if REGISTRY[protocol].server:
        assert codec.unread_limit < 2**22, "a few megabytes, for a hundred thousand parameters"


# --- mail of the next round ----------------------------------------------------------------------------------------


def test_mail_of_the_next_round_is_kept_once_authenticated_and_in_bounds(post):
    early = EarlyMessages(300)
    inbox = post.inbox(SERVER, early=early)
    ahead = post.letter("p0", SERVER, fedavg.Here(), number=2)
    assert inbox.deliver(ahead).discarded == "kept for the next round"
    assert inbox.deliver(ahead).discarded == "kept for the next round"
    forged = post.codec.read(post.letter("p0", SERVER, fedavg.Here()))
    forged = pack(replace(forged, address=replace(forged.address, round=2)))
    assert inbox.deliver(forged).discarded == "not authentic"
    assert inbox.deliver(post.letter("p0", SERVER, fedavg.Here(), number=3)).discarded == "from another round"
    for step in range(3 * SPARE_ENVELOPES):
        inbox.deliver(post.sealed("p1", SERVER, "Plain", bytes(40), step=step, number=2))
    assert inbox.gone == {}, "this round has nothing against them"
    kept = [place for place in early.kept if place.sender == "p1"]
    assert len(kept) == SPARE_ENVELOPES, "short ones count for what they take in memory"
    assert early.take()[0] == ahead
    assert early.take() == []


def test_mail_of_the_next_round_is_lost_on_those_who_keep_none(post):
    inbox = post.inbox(SERVER)
    assert inbox.deliver(post.letter("p0", SERVER, fedavg.Here(), number=2)).discarded == "from another round"


def test_an_envelope_that_is_too_long_is_refused_before_it_is_decoded(post, monkeypatch):
    def never(_):
        raise AssertionError("decoded")

    longest = post.codec.longest
    with pytest.raises(WireError, match="envelope: "):
        post.codec.read(bytes(longest))
    monkeypatch.setattr(core_messages, "_unpack_envelope", never)
    with pytest.raises(WireError, match="longer than any message"):
        post.codec.read(bytes(longest + 1))
    inbox = post.inbox(SERVER)
    assert said(inbox, bytes(longest + 1)) is None
    assert inbox.discarded == {"not an envelope": 1}


def test_a_message_that_is_too_long_is_refused_before_it_is_decoded():
    class Never:
        def decode(self, _):
            raise AssertionError("decoded")

    codec = Codec(REGISTRY["fedavg"].messages, 3, 3)
    limit = fedavg.Here.limit(3, 3)
    codec._decoders["Here"] = Never()
    with pytest.raises(AssertionError, match="decoded"):
        codec.decode("Here", bytes(limit))
    with pytest.raises(WireError, match=f"{limit + 1} bytes, and at most {limit}"):
        codec.decode("Here", bytes(limit + 1))


def test_the_longest_names_and_messages_still_fit():
    names = tuple(f"{place}".ljust(64, "x") for place in range(3))
    post = Mailroom(Simulation.of("fedavg", names, 3, seed=0))
    limit = max(kind.limit(3, post.simulation.agreement.ring().length) for kind in REGISTRY["fedavg"].messages)
    data = post.sealed(names[0], SERVER, "Plain", bytes(limit), step=2**32)
    assert post.codec.read(data).address.sender == names[0]


# --- a client that breaks the rules, end to end --------------------------------------------------------------------


def on(kind, change):
    """Returns a change that concerns one kind of message only."""

    def changed(message, to, link, suite):
        return change(message, to, link, suite) if isinstance(message, kind) else message

    return changed


def fields(kind, **changes):
    """Returns a change of some fields of one kind of message; each is given as a function of what it was."""
    return on(
        kind,
        lambda message, *_: replace(message, **{name: to(getattr(message, name)) for name, to in changes.items()}),
    )


def values(new):
    return lambda old: {key: new(value) for key, value in old.items()}


def first_lost(old):
    return dict(list(old.items())[1:])


def vector_of(size):
    return lambda old: memoryview(bytes(size(old.nbytes)))


def advertising(c=None, s=None, lineage=None):
    """Returns a change of what a user advertises, well signed."""

    def changed(message, to, link, suite):
        del to
        one = c or message.c
        two = s(message) if s else message.s
        signed = message.lineage if lineage is None else lineage
        statement = link.statement("secagg keys", link.me.encode(), one, two, signed)
        return secagg.AdvertiseKeys(one, two, signed, suite.sign(statement))

    return on(secagg.AdvertiseKeys, changed)


ANNOUNCED = Sum(bytes(32), b"\xf8", memoryview(bytes(20)))
LEFT_OUT = {
    "a wrong signature of its keys": (fields(secagg.AdvertiseKeys, signature=lambda _: bytes(64)), Drop.BAD_SIGNATURE),
    "a signature over other keys": (fields(secagg.AdvertiseKeys, c=lambda _: b"\x09" * 32), Drop.BAD_SIGNATURE),
    "a short signature": (fields(secagg.AdvertiseKeys, signature=lambda old: old[:-1]), Drop.MALFORMED),
    "a long key": (fields(secagg.AdvertiseKeys, c=lambda old: old + b"\x00"), Drop.MALFORMED),
    "another lineage": (advertising(lineage=b"\x09" * 32), Drop.BEHIND),
    "another lineage, unsigned": (fields(secagg.AdvertiseKeys, lineage=lambda _: b"\x09" * 32), Drop.BAD_SIGNATURE),
    "a short lineage": (fields(secagg.AdvertiseKeys, lineage=lambda old: old[:-1]), Drop.MALFORMED),
    "shares for too few": (fields(secagg.ShareKeys, sealed=first_lost), Drop.BROKE_RULES),
    "shares for a stranger": (fields(secagg.ShareKeys, sealed=lambda old: old | {77: b"x" * SEALED}), Drop.BROKE_RULES),
    "a share for itself": (fields(secagg.ShareKeys, sealed=lambda old: old | {1: b"x" * SEALED}), Drop.BROKE_RULES),
    "shares for nobody": (fields(secagg.ShareKeys, sealed=lambda _: {}), Drop.BROKE_RULES),
    "shares by name": (
        fields(secagg.ShareKeys, sealed=lambda old: {f"p{v}": e for v, e in old.items()}),
        Drop.MALFORMED,
    ),
    "shares too long": (fields(secagg.ShareKeys, sealed=values(lambda _: bytes(500))), Drop.MALFORMED),
    "a share one byte too long": (fields(secagg.ShareKeys, sealed=values(lambda old: old + b"\x00")), Drop.MALFORMED),
    "a share one byte too short": (fields(secagg.ShareKeys, sealed=values(lambda old: old[1:])), Drop.MALFORMED),
    "shares without a plaintext": (fields(secagg.ShareKeys, sealed=values(lambda _: bytes(28))), Drop.MALFORMED),
    "empty shares": (fields(secagg.ShareKeys, sealed=values(lambda _: b"")), Drop.MALFORMED),
    "a short commitment": (fields(secagg.ShareKeys, commitment=lambda old: old[1:]), Drop.MALFORMED),
    "a short vector": (fields(secagg.MaskedInput, vector=vector_of(lambda size: size - 4)), Drop.MALFORMED),
    "a long vector": (fields(secagg.MaskedInput, vector=vector_of(lambda size: size + 4)), Drop.MALFORMED),
    "a vector beyond the limit": (fields(secagg.MaskedInput, vector=vector_of(lambda _: 1100)), Drop.MALFORMED),
    "a vector beyond any limit": (fields(secagg.MaskedInput, vector=vector_of(lambda _: 100_000)), Drop.SILENT),
    "no vector": (fields(secagg.MaskedInput, vector=vector_of(lambda _: 0)), Drop.MALFORMED),
    "half an entry": (fields(secagg.MaskedInput, vector=vector_of(lambda size: size - 1)), Drop.MALFORMED),
    "its word to too few": (fields(secagg.MaskedInput, views=first_lost), Drop.BROKE_RULES),
    "its word to a stranger": (fields(secagg.MaskedInput, views=lambda old: old | {77: bytes(16)}), Drop.BROKE_RULES),
    "its word to itself": (fields(secagg.MaskedInput, views=lambda old: old | {1: bytes(16)}), Drop.BROKE_RULES),
    "its word to nobody": (fields(secagg.MaskedInput, views=lambda _: {}), Drop.BROKE_RULES),
    "short words": (fields(secagg.MaskedInput, views=values(lambda old: old[1:])), Drop.MALFORMED),
    "the server's message": (
        on(secagg.MaskedInput, lambda *_: Sum(bytes(32), b"\xf8", memoryview(bytes(20)))),
        Drop.BROKE_RULES,
    ),
}
"""What p1 does wrong before its vector counts, and what the server notes about it."""


@pytest.mark.parametrize("what", LEFT_OUT)
def test_a_client_that_breaks_the_rules_early_is_left_out(what, bent_simulation, updates_for, play, ring_mean):
    change, reason = LEFT_OUT[what]
    federation, updates = bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3)
    ended = play(federation, updates)
    assert ended.error is None
    assert ended.played.rounds[SERVER].link.dropped == {"p1": reason}
    assert ended.outcome.contributors == ("p0", "p2", "p3", "p4")
    expected = ring_mean(federation, updates, ended.outcome.contributors)
    for party in ("p0", "p2", "p3", "p4"):
        np.testing.assert_array_equal(ended.outcome.average[party], expected)


COUNTED = {
    "a wrong consent": (fields(secagg.Consent, signature=lambda _: bytes(64)), Drop.BAD_SIGNATURE),
    "a short consent": (fields(secagg.Consent, signature=lambda old: old[1:]), Drop.MALFORMED),
    "short shares": (fields(secagg.Unmask, seeds=values(lambda share: share[1:])), Drop.MALFORMED),
    "no shares": (fields(secagg.Unmask, seeds=lambda _: {}), None),
    "shares of strangers": (fields(secagg.Unmask, seeds=lambda old: old | {-1: bytes(33), 99: bytes(33)}), None),
    "both shares of everybody": (fields(secagg.Unmask, keys=lambda _: dict.fromkeys(range(5), bytes(33))), None),
}
"""What p1 does wrong when its vector is already in the sum."""


@pytest.mark.parametrize("what", COUNTED)
def test_a_client_that_breaks_the_rules_late_is_counted_but_not_needed(
    what, bent_simulation, updates_for, play, ring_mean
):
    change, reason = COUNTED[what]
    federation, updates = bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3)
    ended = play(federation, updates)
    assert ended.error is None
    assert ended.played.rounds[SERVER].link.dropped == ({} if reason is None else {"p1": reason})
    assert ended.outcome.contributors == PARTIES
    for party in PARTIES:
        np.testing.assert_array_equal(ended.outcome.average[party], ring_mean(federation, updates, PARTIES))


@pytest.mark.parametrize("share", [b"x" * SEALED, bytes(SEALED)], ids=["garbage", "zeros"])
def test_sealed_shares_that_do_not_open_make_their_receivers_abort(share, bent_simulation, updates_for, play):
    """Paper 003, Unmasking: "If any of the decryption operation fail, abort". Each of them says whose fault it was.

    They look before they mask, so that nothing of theirs has left that anybody could unmask.
    """
    change = fields(secagg.ShareKeys, sealed=values(lambda _: share))
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3))
    assert isinstance(ended.error, NotEnough)
    assert (ended.error.have, ended.error.need) == (1, 4)
    assert str(ended.error).startswith("round 1 aborted: 1 of 5 parties delivered MaskedInput")
    assert ended.error.missing == dict.fromkeys(("p0", "p2", "p3", "p4"), Drop.ABORTED)
    errors = ended.errors()
    for party in ("p0", "p2", "p3", "p4"):
        assert (errors[party].peer, errors[party].reason) == ("p1", Drop.BAD_SHARE)


def test_a_sealed_share_for_somebody_else_makes_its_receiver_abort(bent_simulation, updates_for, play):
    """Two envelopes are swapped, so each opens with the wrong key."""
    change = fields(secagg.ShareKeys, sealed=lambda old: old | {0: old[2], 2: old[0]})
    federation = bent_simulation("secagg", PARTIES, 3, "p1", change, threshold=3)
    ended = play(federation, updates_for(PARTIES, 3))
    assert ended.error is None
    assert {party: error.peer for party, error in ended.errors().items()} == {"p0": "p1", "p2": "p1"}


def test_one_garbage_share_costs_one_receiver(bent_simulation, updates_for, play, ring_mean):
    change = fields(secagg.ShareKeys, sealed=lambda old: old | {0: b"x" * SEALED})
    federation, updates = bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3)
    ended = play(federation, updates)
    assert ended.outcome.contributors == PARTIES[1:], "p0 looked at the shares before it sent its vector"
    assert ended.outcome.average.keys() == set(PARTIES[1:])
    assert ended.outcome.dropped == {"p0": Drop.ABORTED}
    for party in PARTIES[1:]:
        np.testing.assert_array_equal(ended.outcome.average[party], ring_mean(federation, updates, PARTIES[1:]))
    assert (ended.errors()["p0"].peer, ended.errors()["p0"].reason) == ("p1", Drop.BAD_SHARE)


def test_a_word_for_other_sets_makes_its_receivers_abort_before_they_agree(bent_simulation, updates_for, play):
    """To them it looks as if p1 had masked for other users than they did, and its seed must not be given then."""
    change = fields(secagg.MaskedInput, views=values(lambda _: bytes(16)))
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3))
    assert isinstance(ended.error, NotEnough)
    assert (ended.error.have, ended.error.need) == (1, 4)
    assert str(ended.error).startswith("round 1 aborted: 1 of 5 parties delivered Consent")
    assert ended.error.missing == dict.fromkeys(("p0", "p2", "p3", "p4"), Drop.ABORTED)
    for party in ("p0", "p2", "p3", "p4"):
        assert (ended.errors()[party].peer, ended.errors()[party].reason) == ("p1", Drop.BROKE_RULES)
        assert "it masked for sets that differ from ours" in str(ended.errors()[party])


def test_one_wrong_word_costs_one_receiver(bent_simulation, updates_for, play, ring_mean):
    change = fields(secagg.MaskedInput, views=lambda old: old | {0: old[2]})
    federation, updates = bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3)
    ended = play(federation, updates)
    assert ended.outcome.contributors == PARTIES, "all vectors were in before anybody looked at the words"
    assert ended.outcome.average.keys() == set(PARTIES[1:])
    assert ended.outcome.dropped == {"p0": Drop.ABORTED}
    for party in PARTIES[1:]:
        np.testing.assert_array_equal(ended.outcome.average[party], ring_mean(federation, updates, PARTIES))
    assert (ended.errors()["p0"].peer, ended.errors()["p0"].reason) == ("p1", Drop.BROKE_RULES)


WRONG = {"zeros": bytes(33), "wrong": b"\x00" + b"\x07" * 32, "not in the field": b"\xff" * 33}


@pytest.mark.parametrize("share", WRONG)
@pytest.mark.parametrize("whose", [0, 1, 2, 4])
def test_a_wrong_share_does_no_harm_if_there_are_others(share, whose, bent_simulation, updates_for, play, ring_mean):
    """Five hold shares of each seed and four are enough, so the secret is tried without each of them."""
    change = fields(secagg.Unmask, seeds=lambda old: old | {whose: WRONG[share]})
    federation, updates = bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3)
    ended = play(federation, updates)
    assert ended.error is None
    assert ended.played.rounds[SERVER].link.dropped == {}, "whoever dealt it may have lied as well"
    assert ended.outcome.contributors == PARTIES
    for party in PARTIES:
        np.testing.assert_array_equal(ended.outcome.average[party], ring_mean(federation, updates, PARTIES))


@pytest.mark.parametrize("share", WRONG)
@pytest.mark.parametrize("whose", [0, 1, 4])
def test_a_wrong_share_without_others_ends_the_round_and_never_in_a_wrong_sum(
    share, whose, bent_simulation, updates_for, play
):
    """With all five needed it is clear that the secret is wrong, but not whose share of it was."""
    change = fields(secagg.Unmask, seeds=lambda old: old | {whose: WRONG[share]})
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", change, threshold=5), updates_for(PARTIES, 3))
    assert isinstance(ended.error, TacitError)
    assert f"p{whose}" in str(ended.error)
    assert all("server: aborted" in str(error) for party, error in ended.errors().items() if party != SERVER)


@pytest.mark.parametrize("threshold", [3, 4])
def test_a_wrong_share_of_a_key(threshold, bent_simulation, updates_for, play, ring_mean):
    """p4 delivers no vector, so its key is recovered instead of its seed, and p1 gives a wrong share of it."""
    change = fields(secagg.Unmask, keys=values(lambda _: bytes(33)))
    lost = [{"action": "drop", "party": "p4", "message": "MaskedInput"}]
    federation = bent_simulation("secagg", PARTIES, 3, "p1", change, faults=lost, threshold=threshold)
    updates = updates_for(PARTIES, 3)
    ended = play(federation, updates)
    if threshold == 3:
        assert ended.outcome.contributors == PARTIES[:4]
        np.testing.assert_array_equal(ended.outcome.average["p0"], ring_mean(federation, updates, PARTIES[:4]))
        assert "p1" not in ended.played.rounds[SERVER].link.dropped, "whoever dealt it may have lied as well"
    else:
        assert isinstance(ended.error, TacitError)
        assert "p4" in str(ended.error)


def test_a_wrong_commitment_ends_the_round_and_names_its_owner(bent_simulation, updates_for, play):
    change = fields(secagg.ShareKeys, commitment=lambda _: bytes(32))
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", change), updates_for(PARTIES, 3))
    assert isinstance(ended.error, TacitError)
    assert "p1" in str(ended.error)
    assert ended.played.rounds[SERVER].link.dropped.keys() <= {"p1"}, "no holder is blamed"


UNUSABLE = {
    "a key of small order to seal with": advertising(c=bytes(32)),
    "a key of small order to mask with": advertising(s=lambda _: bytes(32)),
    "one key for both": advertising(s=lambda message: message.c),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_unusable_keys_that_are_well_signed_end_cleanly(what, bent_simulation, updates_for, play):
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", UNUSABLE[what]), updates_for(PARTIES, 3))
    assert not ended.played.waiting
    assert ended.error is None or isinstance(ended.error, TacitError)
    if ended.outcome is not None:
        assert "p1" not in ended.outcome.contributors


@pytest.mark.parametrize("what", UNUSABLE)
def test_unusable_keys_that_are_well_signed_are_blamed_on_who_made_them(what, bent_simulation, updates_for, play):
    ended = play(bent_simulation("secagg", PARTIES, 3, "p1", UNUSABLE[what]), updates_for(PARTIES, 3))
    if ended.outcome is not None:
        assert ended.outcome.contributors == ("p0", "p2", "p3", "p4")
    for party in ("p0", "p2", "p3", "p4"):
        error = ended.errors().get(party)
        assert error is None or getattr(error, "peer", None) == "p1"


class FirstTwo(Everyone, frozen=True):
    """A crooked server's policy: it drops all but two of those that delivered."""

    def choose(self, delivered, entropy):
        del entropy
        return delivered[:2]


def test_a_server_and_one_client_cannot_single_out_another(updates_for, play):
    """With a threshold of 4 in 5, a sum is safe from a server and 2·4 − 5 − 1 clients only if it is over 4 or more."""

    async def crooked(link, terms, suite, state):
        return await secagg.server(link, dataclasses.replace(terms, policy=FirstTwo()), suite, state)

    federation = Simulation.of("secagg", PARTIES, 3, stand_ins={SERVER: crooked}, threshold=4, seed=0)
    ended = play(federation, updates_for(PARTIES, 3))
    assert ended.outcome is None, f"p1 subtracts its own vector from the sum over {ended.outcome.contributors}"


# --- any field of any message, garbled -----------------------------------------------------------------------------


def garbled(value):
    """Yields other values of the same type: some still well-formed, some not."""
    if isinstance(value, dict):
        for new in ("drop", "add", "empty", "rotate"):
            items = list(value.items())
            if new == "drop":
                yield dict(items[1:])
            elif new == "add":
                yield value | {200: next(iter(value.values()), b"")}
            elif new == "empty":
                yield {}
            else:
                yield dict(zip(value, [item for _, item in items[1:] + items[:1]], strict=True))
        for inner in zip(*(list(garbled(item)) for item in value.values()), strict=False):
            yield dict(zip(value, inner, strict=True))
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            for new in garbled(item):
                yield (*value[:place], new, *value[place + 1 :])
    elif isinstance(value, bytes | memoryview):
        data = bytes(value)
        for new in (bytes(byte ^ 0xFF for byte in data), bytes(len(data)), data[1:], data + b"\x00", b""):
            yield memoryview(new) if isinstance(value, memoryview) else new
    elif isinstance(value, int):
        yield from (value + 1, -1, 2**40, 2**63)
    elif isinstance(value, str):
        yield from ("", value + "x")


SAID_AGAIN = LastSum(bytes(32), 0, ("p0", "p1", "p2", "p3"), b"\x07", memoryview(bytes(20)))
FIELDS = [
    pytest.param(name, kind, field, id=f"{name}-{kind.kind()}-{field}")
    for name, protocol in REGISTRY.items()
    for kind in protocol.messages
    for field in kind.__struct_fields__
]


@pytest.mark.filterwarnings("ignore::tacit.ClippedWarning")  # what ADMM makes of garbage does not fit the ring
@pytest.mark.parametrize(("protocol", "kind", "field"), FIELDS)
def test_a_garbled_field_ends_in_a_right_average_or_cleanly(
    protocol, kind, field, bent_simulation, updates_for, play, ring_mean
):
    parties, tried = ("p0", "p1", "p2", "p3"), 0
    updates = updates_for(parties, 3)
    for party in ("p1", SERVER) if REGISTRY[protocol].server else parties:
        for nth in count():
            sent = []

            def change(message, to, link, suite, nth=nth, sent=sent):
                del to, link, suite
                # Which is said only where somebody has missed a sum, so that a server says it for once in its place.
                shown = SAID_AGAIN if kind is LastSum and isinstance(message, KeyList) else message
                new = list(garbled(getattr(shown, field))) if isinstance(shown, kind) else []
                if nth >= len(new):
                    return message
                sent.append(replace(shown, **{field: new[nth]}))
                return sent[-1]

            federation = bent_simulation(protocol, parties, 3, party, change)
            ended = play(federation, updates)
            assert not ended.played.waiting
            if not sent:
                break
            tried += 1
            # What a vector says is up to who sends it, and the server is trusted to announce the right sum. Without a
            # server, averages need not be the same for all.
            vouched = REGISTRY[protocol].server and field not in kind.parameters and kind.kind() != Sum.kind()
            if ended.outcome is not None and vouched:
                expected = ring_mean(federation, updates, ended.outcome.contributors)
                for other in set(ended.outcome.average) - {party}:
                    np.testing.assert_array_equal(ended.outcome.average[other], expected)
    if REGISTRY[protocol].server:
        assert tried >= 4, "somebody sends it, and no field has fewer ways to be wrong"
