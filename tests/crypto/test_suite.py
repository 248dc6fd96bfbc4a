"""The concrete suite, compared with published vectors and with itself."""

import copy
import hashlib
import hmac
import json
import pickle

import msgspec
import numpy as np
import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import Drop, PeerFault, WireError
from tacit.core.link import frame_parts
from tacit.core.messages import PIECE, sealed_length
from tacit.core.suite import KeyPair, Secret
from tacit.crypto.keys import REMEMBERED, Identity, Keys, Roster
from tacit.crypto.suite import RealSuite
from tacit.vectors.fixedpoint import FixedPoint

NAMES = ("alice", "bob", "carol")
SESSION = bytes(range(16))


def made(*identities):
    roster = Roster(each.member() for each in identities)
    ring = FixedPoint(32, 1.0, 3, 4)
    return {each.name: RealSuite(Keys(each, roster), SeededEntropy("party", each.name), ring) for each in identities}


@pytest.fixture
def suites():
    return made(*(Identity.generate(name, SeededEntropy("identity", name)) for name in NAMES))


@pytest.fixture
def alice(suites):
    return suites["alice"]


@pytest.fixture
def bob(suites):
    return suites["bob"]


# --- agreement -----------------------------------------------------------------------------------------------------

# RFC 7748, Section 6.1.
THEIR_PUBLIC = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
OUR_SECRET = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
OUR_PUBLIC = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def test_an_agreement_is_hkdf_of_x25519_over_label_context_and_both_keys(alice):
    """HKDF written out (RFC 5869 with one block of output), over the published secret of RFC 7748."""
    assert alice.public(Secret(OUR_SECRET)) == OUR_PUBLIC
    extracted = hmac.digest(bytes(32), SHARED, "sha256")
    info = frame_parts(b"a label", b"a context", THEIR_PUBLIC, OUR_PUBLIC)  # the keys in ascending order
    expected = hmac.digest(extracted, info + b"\x01", "sha256")
    assert alice.agree(Secret(OUR_SECRET), THEIR_PUBLIC, "a label", b"a context") == Secret(expected)


def test_both_sides_agree_on_the_same_key(alice, bob):
    one, two = alice.key_pair(), bob.key_pair()
    key = alice.agree(one.secret, two.public, "label", b"context")
    assert key == bob.agree(two.secret, one.public, "label", b"context")
    assert len(key.reveal()) == 32
    assert key != one.secret


def test_agreements_are_separate_for_every_purpose_context_and_pair(alice, bob):
    one, two, three = alice.key_pair(), bob.key_pair(), bob.key_pair()
    keys = [
        alice.agree(one.secret, two.public, "label", b"context"),
        alice.agree(one.secret, two.public, "other", b"context"),
        alice.agree(one.secret, two.public, "label", b"another"),
        alice.agree(one.secret, two.public, "labelc", b"ontext"),
        alice.agree(one.secret, two.public, "", b"labelcontext"),
        alice.agree(one.secret, three.public, "label", b"context"),
    ]
    assert len({key.reveal() for key in keys}) == len(keys)


SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
    2**255 - 19,
    2**255 - 18,
]


@pytest.mark.parametrize("point", SMALL_ORDER, ids=range(len(SMALL_ORDER)))
def test_a_public_key_of_small_order_is_refused(alice, point):
    """With one of these public keys, everybody would know the agreed key."""
    with pytest.raises(WireError, match="not a usable public key"):
        alice.agree(alice.key_pair().secret, point.to_bytes(32, "little"), "label", b"")


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_a_public_key_of_another_length_is_refused(alice, length):
    with pytest.raises(WireError, match="not a usable public key"):
        alice.agree(alice.key_pair().secret, b"\x09" * length, "label", b"")


def test_keys_and_seeds_are_fresh(alice):
    pairs = [alice.key_pair() for _ in range(20)]
    seeds = [alice.seed() for _ in range(20)]
    secrets = {pair.secret.reveal() for pair in pairs} | {seed.reveal() for seed in seeds}
    assert len(secrets) == 40
    assert all(len(secret) == 32 for secret in secrets)
    assert len({pair.public for pair in pairs}) == 20
    assert all(alice.public(pair.secret) == pair.public for pair in pairs)


def test_a_suite_repeats_itself_with_its_entropy():
    identity = Identity.generate("alice", SeededEntropy("identity", "alice"))
    one, two = (made(identity)["alice"] for _ in range(2))
    assert one.key_pair() == two.key_pair()
    assert one.seed() == two.seed()
    assert one.seal(Secret(bytes(32)), b"x", b"") == two.seal(Secret(bytes(32)), b"x", b"")


def test_channels_are_the_same_on_both_sides_and_no_two_alike(suites):
    keys = {}
    for one in NAMES:
        for two in NAMES:
            if one != two:
                for session in (SESSION, bytes(16)):
                    keys[one, two, session] = suites[one].channel(two, session)
                    assert keys[one, two, session] == suites[two].channel(one, session)
    assert len({key.reveal() for key in keys.values()}) == 3 * 2


def test_a_channel_outlives_the_rounds_and_their_keys_do_not(alice, bob):
    pair = alice.key_pair()
    channel = alice.channel("bob", SESSION)
    later = RealSuite(alice._keys, SeededEntropy("another round"), alice.ring)
    assert later.channel("bob", SESSION) == channel == bob.channel("alice", SESSION)
    assert later.key_pair() != pair
    assert later.made != alice.made


# --- sealing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plaintext", [b"", b"x", bytes(1000)], ids=len)
def test_what_was_sealed_opens(alice, bob, plaintext):
    key = alice.seed()
    sealed = alice.seal(key, plaintext, b"context")
    assert len(sealed) == len(plaintext) + 28
    assert bob.open(key, sealed, b"context") == plaintext
    if plaintext:
        assert plaintext not in sealed or len(plaintext) == 1


@pytest.mark.parametrize("length", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1])
def test_what_is_long_is_sealed_piece_by_piece(alice, bob, length):
    key, plaintext = Secret(b"k" * 32), np.arange(length, dtype=np.uint8).tobytes()
    sealed = alice.seal(key, plaintext, b"context")
    assert len(sealed) == sealed_length(length)
    assert bob.open(key, sealed, b"context") == plaintext
    halves = (plaintext[:7], memoryview(plaintext)[7:])
    pieces = list(alice.seal_pieces(key, halves, b"context"))
    assert b"".join(pieces) == sealed, "in whatever parts it comes"
    assert max(map(len, pieces)) <= PIECE + 16
    assert alice.stamp(key, halves, b"context") == sealed[:12]
    assert alice.stamp(key, (plaintext[:-1], b"?"), b"context") != sealed[:12]


def test_pieces_cannot_be_left_out_swapped_or_taken_from_elsewhere(alice, bob):
    key, whole = Secret(b"k" * 32), 16 + PIECE
    sealed, other = (alice.seal(key, bytes([i]) * (3 * PIECE), b"context") for i in range(2))
    first, second, third = (sealed[12 + i * whole : 12 + (i + 1) * whole] for i in range(3))
    wrong = {
        "left out": sealed[:12] + first + third,
        "cut short": sealed[:-whole],
        "cut in a piece": sealed[:-1],
        "cut in a tag": sealed[: -whole + 3],
        "swapped": sealed[:12] + second + first + third,
        "twice": sealed + third,
        "longer": sealed + b"?",
        "from elsewhere": sealed[:12] + first + second + other[-whole:],
        "under another nonce": other[:12] + sealed[12:],
        "a bit": sealed[:PIECE] + bytes([sealed[PIECE] ^ 1]) + sealed[PIECE + 1 :],
    }
    for changed in wrong.values():
        with pytest.raises(WireError):
            bob.open(key, changed, b"context")
    with pytest.raises(WireError):
        bob.open(key, sealed, b"another context")
    with pytest.raises(WireError):
        bob.open(Secret(b"l" * 32), sealed, b"context")
    assert bob.open(key, sealed, b"context") == bytes(3 * PIECE)


def test_whatever_is_sealed_has_a_nonce_of_its_own(alice, bob):
    """So that nothing a restarted party does can seal two plaintexts under one key and nonce."""
    key = alice.seed()
    assert alice.seal(key, b"plaintext", b"context") == bob.seal(key, b"plaintext", b"context")
    sealed = [(bytes([i]) * length, bytes([j]) * i) for i in range(6) for j in range(1, 6) for length in (0, 1, 16, 17)]
    nonces = {alice.seal(key, plaintext, context)[:12] for plaintext, context in set(sealed)}
    assert len(nonces) == len(set(sealed))


def test_a_single_flipped_bit_does_not_open(alice):
    key = alice.seed()
    sealed = alice.seal(key, b"plaintext", b"context")
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError, match="not authentic"):
            alice.open(key, bytes(changed), b"context")
    assert alice.open(key, sealed, b"context") == b"plaintext"


def test_anything_shorter_or_longer_does_not_open(alice):
    key = alice.seed()
    sealed = alice.seal(key, b"plaintext", b"context")
    for wrong in (*(sealed[:length] for length in range(len(sealed))), sealed[1:], sealed + b"\x00"):
        with pytest.raises(WireError, match="not authentic"):
            alice.open(key, wrong, b"context")


@pytest.mark.parametrize("context", [b"", b"contex", b"context\x00", b"Context"])
def test_another_context_does_not_open(alice, context):
    key = alice.seed()
    sealed = alice.seal(key, b"plaintext", b"context")
    with pytest.raises(WireError, match="not authentic") as caught:
        alice.open(key, sealed, context)
    assert caught.value.__cause__ is None


def test_another_key_does_not_open(alice):
    sealed = alice.seal(alice.seed(), b"plaintext", b"context")
    with pytest.raises(WireError, match="not authentic"):
        alice.open(alice.seed(), sealed, b"context")


# --- signatures ----------------------------------------------------------------------------------------------------


def test_signatures_are_those_of_the_standard():
    """RFC 8032, Section 7.1, test 1: the empty statement."""
    signing = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = Identity("alice", Secret(signing), Secret(bytes(31) + b"\x01"))
    assert identity.member().verify_key.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert made(identity)["alice"].sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def test_everyone_can_verify_a_signature(suites):
    signature = suites["alice"].sign(b"statement")
    assert len(signature) == 64
    for suite in suites.values():
        assert suite.verify("alice", b"statement", signature) is None


def test_a_wrong_signature_is_blamed_on_its_signer(suites):
    signature = suites["alice"].sign(b"statement")
    flipped = bytes([signature[0] ^ 1]) + signature[1:]
    for signer, statement, wrong in (
        ("alice", b"Statement", signature),
        ("alice", b"", signature),
        ("carol", b"statement", signature),
        ("alice", b"statement", flipped),
        ("alice", b"statement", signature[:-1]),
        ("alice", b"statement", signature + b"\x00"),
        ("alice", b"statement", b""),
        ("alice", b"statement", bytes(64)),
        ("alice", b"statement", suites["bob"].sign(b"statement")),
    ):
        with pytest.raises(PeerFault) as caught:
            suites["bob"].verify(signer, statement, wrong)
        assert (caught.value.peer, caught.value.reason) == (signer, Drop.BAD_SIGNATURE)
        assert caught.value.__cause__ is None


def test_a_roster_remembers_what_it_verified_and_nothing_else(suites, monkeypatch):
    roster = suites["alice"]._keys.roster
    signature = suites["alice"].sign(b"statement")
    roster.verify("alice", b"statement", signature)
    monkeypatch.setattr("tacit.crypto.keys.Ed25519PublicKey", None)  # whatever is verified from here on fails
    roster.verify("alice", b"statement", signature)
    for signer, statement, other in (
        ("bob", b"statement", signature),
        ("alice", b"Statement", signature),
        ("alice", b"statement", signature[::-1]),
    ):
        with pytest.raises(AttributeError):
            roster.verify(signer, statement, other)
    monkeypatch.undo()
    for number in range(REMEMBERED + 10):
        roster._verified[str(number), b"", b""] = None
    roster.verify("alice", b"another", suites["alice"].sign(b"another"))
    assert len(roster._verified) <= REMEMBERED + 11


# --- commitments ---------------------------------------------------------------------------------------------------


def test_a_commitment_is_sha_256_of_the_seed_in_its_context(alice, bob):
    seed = alice.seed()
    expected = hashlib.sha256(frame_parts(b"tacit/v1/commit", b"context", seed.reveal())).digest()
    assert alice.commit(seed, b"context") == bob.commit(seed, b"context") == expected


def test_a_commitment_binds_to_seed_and_context(alice):
    seed, other = alice.seed(), alice.seed()
    commitments = {alice.commit(seed, b"a"), alice.commit(seed, b"b"), alice.commit(other, b"a")}
    assert len(commitments) == 3
    assert all(seed.reveal() not in commitment for commitment in commitments)


# --- masks and shares ----------------------------------------------------------------------------------------------


def test_masks_that_are_added_and_subtracted_cancel(alice, bob):
    one, two = alice.seed(), alice.seed()
    vector = np.arange(4, dtype=np.uint32)
    alice.mask(vector, [one, two])
    assert vector.tolist() != [0, 1, 2, 3]
    bob.mask(vector, [], [one])
    assert vector.tolist() != [0, 1, 2, 3]
    bob.mask(vector, minus=[two])
    assert vector.tolist() == [0, 1, 2, 3]


def test_a_secret_is_recovered_from_enough_shares(alice, bob):
    secret = alice.seed()
    shares = alice.share(secret, 3, [1, 2, 4, 7])
    assert shares.keys() == {1, 2, 4, 7}
    assert bob.recover({holder: shares[holder] for holder in (7, 1, 4)}, 3) == secret
    with pytest.raises(WireError):
        bob.recover({holder: shares[holder] for holder in (1, 4)}, 3)
    assert bob.recover({holder: shares[holder] for holder in (1, 4)}, 2) != secret


# --- secrets -------------------------------------------------------------------------------------------------------

BYTES = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "shown",
    [repr, str, "{}".format, "{!r}".format, lambda secret: f"{secret}", ascii],
)
def test_a_secret_never_prints(shown):
    text = shown(Secret(BYTES))
    assert "0123" not in text
    assert BYTES.hex()[:8] not in text
    assert "Secret(" in text


def test_what_holds_a_secret_does_not_print_it_either():
    identity = Identity("alice", Secret(BYTES), Secret(BYTES))
    for holder in (identity, KeyPair(Secret(BYTES), b"public"), [Secret(BYTES)], {"key": Secret(BYTES)}):
        assert "0123" not in repr(holder)


def test_the_length_of_a_secret_does_not_show():
    assert repr(Secret(b"")) == repr(Secret(bytes(1000)))


def test_a_secret_cannot_be_pickled_copied_or_encoded():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(Secret(BYTES), protocol)
    for wrong in (copy.copy, copy.deepcopy, json.dumps, msgspec.msgpack.encode, msgspec.json.encode, bytes, len, iter):
        with pytest.raises(TypeError):
            wrong(Secret(BYTES))
    with pytest.raises(TypeError):
        pickle.dumps(Identity("alice", Secret(BYTES), Secret(BYTES)))


def test_a_secret_cannot_be_hashed():
    for wrong in (hash, lambda secret: {secret}, lambda secret: {secret: 1}):
        with pytest.raises(TypeError, match="cannot be hashed"):
            wrong(Secret(BYTES))


def test_a_secret_has_no_other_attributes():
    secret = Secret(BYTES)
    assert not hasattr(secret, "__dict__")
    with pytest.raises(AttributeError):
        secret.note = "x"


def test_secrets_are_compared_by_value_and_with_secrets_only(monkeypatch):
    compared = []
    digest = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(1) or digest(a, b))
    assert Secret(BYTES) == Secret(bytes(BYTES))
    assert Secret(BYTES) != Secret(BYTES[:-1] + b"g")
    assert Secret(BYTES) != Secret(BYTES[:-1])
    assert len(compared) == 3, "in constant time"
    assert Secret(BYTES) != BYTES
    assert Secret(b"") != None  # noqa: E711
    assert Secret(BYTES).reveal() == BYTES


# --- identities ----------------------------------------------------------------------------------------------------


def test_identities_are_fresh_and_their_public_half_says_nothing_of_the_secret():
    entropy = SeededEntropy("identities")
    one, two = Identity.generate("alice", entropy), Identity.generate("bob", entropy)
    assert len({one.signing.reveal(), one.channel.reveal(), two.signing.reveal(), two.channel.reveal()}) == 4
    member = one.member()
    assert member.name == "alice"
    assert len(member.verify_key) == len(member.channel_key) == 32
    assert not {member.verify_key, member.channel_key} & {one.signing.reveal(), one.channel.reveal()}
    roster = Roster([one.member(), two.member()])
    assert dict(roster) == {"alice": one.member(), "bob": two.member()}
    assert one.member().fingerprint != two.member().fingerprint
    again = pickle.loads(pickle.dumps(roster))  # noqa: S301
    assert dict(again) == dict(roster)
