import re

import msgspec
import numpy as np
import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import SecretField, WireError
from tacit.core.link import Link, frame_parts
from tacit.core.messages import MAX_NAME, PIECE, Abort, Address, Codec, Envelope, Message, size_by_class
from tacit.core.suite import Parties, Secret
from tacit.crypto.keys import Identity, Keys, Roster
from tacit.crypto.suite import RealSuite
from tacit.vectors.fixedpoint import FixedPoint


class Small(Message, frozen=True):
    """Says nothing."""


class Parcel(Message, frozen=True):
    """Carries a bit of everything."""

    vector: memoryview
    places: bytes
    shares: dict[int, bytes]
    number: int
    per_party = 7
    per_entry = 3
    parameters = ("vector",)
    metadata = ("places",)


PARCEL = Parcel(memoryview(b"v" * 40), b"pl", {3: b"x" * 33, 1: b"y" * 33}, 9)
ADDRESS = Address(b"s" * 32, 4, 2, "Parcel", "alice", "bob")


@pytest.fixture
def codec():
    return Codec((Small, Parcel), parties=5, entries=100)


@pytest.fixture(scope="module")
def suite():
    identities = [Identity.generate(name, SeededEntropy("messages", name)) for name in ("alice", "bob")]
    keys = Keys(identities[0], Roster(identity.member() for identity in identities))
    return RealSuite(keys, SeededEntropy("suite"), FixedPoint(32, 1.0, 2, 3))


def written(codec, message):
    """Returns the bytes of a message."""
    return b"".join(codec.encode(message))


def enveloped(codec, suite, key, address, payload):
    """Returns the bytes of an envelope, and checks that its size was foreseen."""
    payload = (payload,) if isinstance(payload, bytes) else payload
    data = codec.wrap_sealed(address, codec.seal(suite, key, address, payload))
    assert len(data) == codec.sealed_size(address, payload)
    assert b"".join(codec.pieces(suite, key, address, payload)) == data
    assert data == msgspec.msgpack.encode(codec.read(data)), "the bytes that msgspec would pack"
    return data


# --- messages ------------------------------------------------------------------------------------------------------


def test_a_message_is_frozen():
    with pytest.raises(AttributeError):
        PARCEL.number = 3


class Careless(Message, frozen=True):
    """Carries a secret as it is."""

    keys: dict[int, Secret]


def test_a_secret_cannot_be_a_field_of_a_message():
    codec = Codec((Careless,), parties=5, entries=100)
    with pytest.raises(SecretField, match=r"^a Secret cannot be a field of Careless; try: .*pairwise.*share or seal$"):
        codec.encode(Careless({1: Secret(b"k")}))
    with pytest.raises(TypeError, match="of <class 'complex'>"):
        codec.encode(Parcel(memoryview(b""), b"", {}, 1j))


def test_a_message_shows_sizes_and_no_content():
    assert re.fullmatch(r"Parcel\(vector: 40, places: 2, shares: \d+, number: 1\)", repr(PARCEL))
    assert repr(Small()) == "Small()"
    assert repr(Abort("secret")) == "Abort(code: 6)"
    assert f"{PARCEL}" == str(PARCEL) == repr(PARCEL)
    assert "xxx" not in repr([PARCEL, {"a": PARCEL}])


def test_the_limit_grows_with_parties_and_entries():
    assert Small.limit(5, 100) == 1024
    assert Parcel.limit(0, 0) == 1024
    assert Parcel.limit(5, 100) == 1024 + 7 * 5 + 3 * 100


def test_sizes_are_split_by_class():
    assert size_by_class(PARCEL, 200) == (200 - 40 - 2, 40, 2)
    assert size_by_class(Small(), 90) == (90, 0, 0)
    wide = Parcel(memoryview(b"v" * 40).cast("I"), b"", {}, 0)
    assert size_by_class(wide, 100)[1] == 40, "bytes count, not entries"


# --- the codec -----------------------------------------------------------------------------------------------------


def test_messages_come_back_as_they_were(codec):
    for message in (PARCEL, Small(), Abort("not-enough")):
        back = codec.decode(message.kind(), written(codec, message))
        assert type(back) is type(message)
        assert back == message


def test_an_abort_is_part_of_every_protocol():
    codec = Codec((), 2, 1)
    assert codec.decode("Abort", written(codec, Abort("wire"))) == Abort("wire")


def test_a_broadcast_is_encoded_once(codec):
    first = codec.encode(PARCEL)
    assert codec.encode(PARCEL) is first
    other = Parcel(memoryview(b"w" * 40), b"pl", {}, 9)
    assert codec.encode(other) != first
    assert codec.encode(PARCEL) == first, "what is kept is not taken for another message"


class Late(Message, frozen=True):
    """Carries a vector, and nothing behind it."""

    number: int
    vector: memoryview
    per_entry = 8


def test_a_long_vector_is_not_copied(suite):
    codec, vector = Codec((Late,), 2, 10**6), np.arange(3 * PIECE // 4 + 5, dtype=np.uint32)
    message = Late(7, memoryview(vector))
    head, body = codec.encode(message)
    assert np.shares_memory(np.frombuffer(body, np.uint8), vector)
    assert head + bytes(body) == msgspec.msgpack.encode(message), "the bytes that msgspec would pack"
    data = enveloped(codec, suite, Secret(bytes(32)), ADDRESS, (head, body))
    back = codec.decode("Late", codec.open(suite, Secret(bytes(32)), codec.read(data)))
    assert back.number == 7
    assert np.array_equal(np.frombuffer(back.vector, np.uint32), vector)


def test_an_equal_message_is_not_taken_for_the_same_one(codec):
    shares = {1: b"a"}
    one = Parcel(memoryview(b""), b"", shares, 1)
    before = codec.encode(one)
    two = Parcel(memoryview(b""), b"", {1: b"b"}, 1)
    assert codec.encode(two) != before


@pytest.mark.parametrize("kind", ["", "parcel", "Message", "Envelope", "Parcel ", "__class__"])
def test_a_kind_that_there_is_not(codec, kind):
    with pytest.raises(WireError, match="there is no message"):
        codec.decode(kind, written(codec, PARCEL))


def test_a_message_may_be_as_long_as_its_limit_and_no_longer(codec):
    limit = Parcel.limit(5, 100)
    room = limit - len(written(codec, Parcel(memoryview(b""), b"", {}, 1)))
    largest = Parcel(memoryview(bytes(room - 2)), b"", {}, 1)  # its length takes two bytes more
    assert len(written(codec, largest)) == limit - 1
    assert codec.decode("Parcel", written(codec, largest)) == largest
    beyond = Parcel(memoryview(bytes(room)), b"", {}, 1)
    with pytest.raises(WireError, match=f"Parcel: {limit + 1} bytes, and at most {limit} are allowed"):
        codec.decode("Parcel", written(codec, beyond))
    with pytest.raises(WireError):
        codec.decode("Small", written(codec, largest))


def test_limits_are_those_of_the_kind_that_is_claimed(codec):
    with pytest.raises(WireError, match="1025 bytes, and at most 1024"):
        codec.decode("Small", bytes(1025))
    with pytest.raises(WireError, match=r"^Parcel: (?!.*more than)"):
        codec.decode("Parcel", bytes(1025))


def test_errors_say_where_and_never_what(codec):
    private = "c0ffee-secret"
    wrong = msgspec.msgpack.encode(
        {"type": "Parcel", "vector": private, "places": b"", "shares": {}, "number": private}
    )
    with pytest.raises(WireError) as caught:
        codec.decode("Parcel", wrong)
    assert "$.number" in str(caught.value) or "$.vector" in str(caught.value)
    assert private not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.code == "wire"


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"\x81", b"\x91" * 1000, b"\x81\xa1\xff\xc0", b"\xa9\xff\xfe", b"\xdb\xff\xff\xff\xff"],
    ids=lambda payload: payload[:4].hex() or "empty",
)
def test_bytes_that_are_no_message(codec, payload):
    for kind in ("Small", "Parcel", "Abort"):
        with pytest.raises(WireError):
            codec.decode(kind, payload)


# --- envelopes -----------------------------------------------------------------------------------------------------


def test_an_envelope_comes_back_and_opens(codec, suite):
    key = Secret(bytes(32))
    data = enveloped(codec, suite, key, ADDRESS, codec.encode(PARCEL))
    envelope = codec.read(data)
    assert envelope.address == ADDRESS
    assert codec.decode("Parcel", codec.open(suite, key, envelope)) == PARCEL
    assert written(codec, PARCEL)[10:] not in data


@pytest.mark.parametrize(
    "change",
    [{"session": b""}, {"round": 5}, {"step": 3}, {"kind": "Small"}, {"sender": "bob"}, {"to": "alice"}],
    ids=str,
)
def test_an_envelope_with_another_address_does_not_open(codec, suite, change):
    key = Secret(bytes(32))
    envelope = codec.read(enveloped(codec, suite, key, ADDRESS, b"payload"))
    moved = msgspec.structs.replace(envelope, address=msgspec.structs.replace(ADDRESS, **change))
    with pytest.raises(WireError, match="not authentic"):
        codec.open(suite, key, moved)


def test_an_envelope_under_another_key_does_not_open(codec, suite):
    envelope = codec.read(enveloped(codec, suite, Secret(bytes(32)), ADDRESS, b"payload"))
    with pytest.raises(WireError, match="not authentic"):
        codec.open(suite, Secret(bytes(31) + b"\x01"), envelope)


def test_the_same_payload_is_sealed_alike_for_one_address_and_for_no_two(codec, suite):
    addresses = [ADDRESS, *(msgspec.structs.replace(ADDRESS, step=step) for step in range(3, 12))]
    sealed = [codec.seal(suite, Secret(bytes(32)), address, (b"payload",)) for address in addresses for _ in range(2)]
    assert len(set(sealed)) == 10
    assert sealed[0::2] == sealed[1::2]


@pytest.mark.parametrize("length", [0, 200, 2**8 - 28, 2**8, 2**16 - 29, 2**16 - 28, 2**16])
def test_envelopes_of_every_size_of_header(suite, length):
    data = enveloped(Codec((Small, Parcel), 5, 2**16), suite, Secret(bytes(32)), ADDRESS, bytes(length))
    assert len(data) > length


def test_the_longest_message_of_the_longest_names_fits_into_an_envelope(codec, suite):
    limit = Parcel.limit(5, 100)
    address = Address(bytes(32), 2**63, 2**63, "Parcel", "x" * MAX_NAME, "y" * MAX_NAME)
    data = enveloped(codec, suite, Secret(bytes(32)), address, bytes(limit))
    assert len(codec.read(data).sealed) == limit + 28


def test_an_envelope_may_not_be_longer_than_any_message_makes_it(codec):
    longest = Parcel.limit(5, 100) + 1024 + 2 * MAX_NAME
    with pytest.raises(WireError, match=f"envelope of {longest + 1} bytes"):
        codec.read(bytes(longest + 1))
    with pytest.raises(WireError, match=r"^envelope: "):
        codec.read(bytes(longest))


@pytest.mark.parametrize(
    "wrong",
    [[], [1], [[], b""], [list(msgspec.to_builtins(ADDRESS))], {"address": 1}, None, 7, "text"],
    ids=str,
)
def test_what_is_no_envelope(codec, wrong):
    with pytest.raises(WireError, match=r"^envelope: "):
        codec.read(msgspec.msgpack.encode(wrong))


def test_an_envelope_has_two_parts(codec):
    assert codec.read(msgspec.msgpack.encode(Envelope(ADDRESS, b"x"))) == Envelope(ADDRESS, b"x")
    with pytest.raises(WireError):
        codec.read(msgspec.msgpack.encode([ADDRESS, b"x", b"more"]))


# --- statements ----------------------------------------------------------------------------------------------------


def test_no_two_lists_are_framed_alike():
    lists = [[], [b""], [b"", b""], [b"ab"], [b"a", b"b"], [b"", b"ab"], [b"ab", b""], [bytes(8)], [bytes(8), b""]]
    assert len({frame_parts(*parts) for parts in lists}) == len(lists)
    assert frame_parts(b"ab", b"") == bytes(7) + b"\x02ab" + bytes(8)


def test_a_statement_is_bound_to_what_it_is_about():
    def statement(what="a", session=b"s" * 16, number=1, parts=(b"x",)):
        return Link("p0", Parties(("p0", "p1")), session, number).statement(what, *parts)

    others = [
        statement("b"),
        statement(session=b"t" * 16),
        statement(number=2),
        statement(parts=()),
        statement(parts=(b"y",)),
        statement(parts=(b"x", b"")),
        statement(what="ax", parts=()),
    ]
    assert statement() == statement()
    assert len({statement(), *others}) == len(others) + 1
