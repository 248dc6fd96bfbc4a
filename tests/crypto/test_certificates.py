"""Certificates that parties issue to themselves, or get from an authority, and every way in which one is refused."""

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from support.authorities import Authority
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import WireError
from tacit.core.suite import Secret
from tacit.crypto.certificates import (
    BACKDATE,
    certificate_pem,
    check_authority,
    check_issuer_certificate,
    check_key_pem,
    issue_certificate,
    issuer_certificate,
    key_pem,
    read_authority,
    read_certificate,
    self_signed,
    tls_key,
)
from tacit.crypto.keys import Identity
from tacit.crypto.tls_anchor import TlsAnchor, TlsProof, identify

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC).timestamp()
"""Authorities of the tests are valid for years around it."""
DAY = 86400.0


def host(party):
    return f"{party}.tacit.invalid"


def identity(party):
    return Identity.generate(party, SeededEntropy("certificates", party))


def issuing(party, data=None):
    found = issuer_certificate(identity(party).signing, host(party)) if data is None else data
    return TlsAnchor(party, TlsProof.ISSUED, found, host(party))


def issue(party, by=None, name=None, now=NOW, lifetime=DAY):
    entropy = SeededEntropy("leaf", party)
    signing = identity(by or party).signing
    data = issue_certificate(signing, tls_key(entropy), party, name or host(by or party), now, lifetime, entropy)
    return x509.load_der_x509_certificate(data)


def refuse(call, *given):
    """Returns the one line with which something is refused."""
    with pytest.raises(WireError) as caught:
        call(*given)
    assert str(caught.value).isprintable()
    return str(caught.value)


# --- issued by the party itself --------------------------------------------------------------------------------------


def test_an_issued_certificate_proves_its_party_from_some_minutes_before_until_it_expires():
    anchor, shown = issuing("a"), issue("a")
    for moment in (NOW - BACKDATE, NOW, NOW + DAY):
        anchor.check(shown, moment)
        assert identify(shown, [issuing("b"), anchor], moment) == "a"


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        (NOW + 2 * DAY, r"expired on 2026-11-20 12:00 UTC, and it is 2026-11-21 12:00 UTC by this clock"),
        (NOW - DAY, r"is valid from 2026-11-19 11:45 UTC on, and it is 2026-11-18 12:00 UTC by this clock"),
    ],
)
def test_a_clock_that_is_off_by_a_day_is_named_with_both_times(moment, reason):
    assert reason in refuse(issuing("a").check, issue("a"), moment)
    assert refuse(identify, issue("a"), [issuing("a")], moment).startswith("of a: the certificate ")


def test_the_certificate_of_an_issuer_is_the_same_each_time_and_of_one_key_only():
    data = issuer_certificate(identity("a").signing, host("a"))
    assert data == issuer_certificate(identity("a").signing, host("a"))
    check_issuer_certificate(data, identity("a").member().verify_key, host("a"))
    assert "another key" in refuse(check_issuer_certificate, data, identity("b").member().verify_key, host("a"))
    assert "tacit keygen" in refuse(check_issuer_certificate, data, identity("a").member().verify_key, host("b"))


def test_every_changed_byte_of_an_issuer_is_noticed():
    data, key = issuer_certificate(identity("a").signing, host("a")), identity("a").member().verify_key
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        refuse(check_issuer_certificate, changed, key, host("a"))


def test_an_issuer_of_another_shape_is_refused_although_its_key_signed_it():
    private = ed25519.Ed25519PrivateKey.from_private_bytes(identity("a").signing.reveal())
    right = x509.load_der_x509_certificate(issuing("a").certificate)
    free = x509.CertificateBuilder(
        right.subject, right.subject, private.public_key(), 7, right.not_valid_before_utc, right.not_valid_after_utc
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    data = free.sign(private, None).public_bytes(Encoding.DER)
    assert "tacit keygen" in refuse(check_issuer_certificate, data, identity("a").member().verify_key, host("a"))


def test_one_party_cannot_issue_a_certificate_for_another():
    anchors = [issuing("a"), issuing("b")]
    foreign = issue("a", by="b", name=host("a"))
    assert "not of the issuer" in refuse(anchors[0].check, foreign, NOW)
    assert refuse(identify, foreign, anchors, NOW) == "the issuer of the certificate is not the one on the card of a"


def test_the_issuer_itself_proves_nobody():
    clinic = Authority("clinic", names=("a.example",))
    anchor = TlsAnchor("a", TlsProof.AUTHORITY, clinic.der, "a.example")
    assert refuse(anchor.check, clinic.certificate, NOW) == "the certificate is that of an authority"


# --- issued by an authority ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rsa", "p256", "ed25519"])
def test_an_authority_vouches_for_the_name_on_the_card_only(kind):
    clinic = Authority("clinic", kind)
    anchor = TlsAnchor("a", TlsProof.AUTHORITY, clinic.der, "a.clinic.example")
    assert identify(clinic.issue("a.clinic.example").certificate, [anchor], NOW) == "a"
    assert identify(clinic.issue("A.Clinic.Example", "other.example").certificate, [anchor], NOW) == "a"
    reason = refuse(identify, clinic.issue("b.clinic.example").certificate, [anchor], NOW)
    assert reason == "of a: the certificate is for b.clinic.example, and not for a.clinic.example"
    assert "no name" in refuse(identify, clinic.issue().certificate, [anchor], NOW)
    assert "*.clinic.example" in refuse(identify, clinic.issue("*.clinic.example").certificate, [anchor], NOW)


def test_the_authority_of_one_party_cannot_speak_for_another():
    clinic, insurer = Authority("clinic"), Authority("insurer")
    anchors = [
        TlsAnchor("a", TlsProof.AUTHORITY, clinic.der, "a.example"),
        TlsAnchor("b", TlsProof.AUTHORITY, insurer.der, "b.example"),
    ]
    assert refuse(identify, insurer.issue("a.example").certificate, anchors, NOW) == (
        "of b: the certificate is for a.example, and not for b.example"
    )
    stranger = Authority("stranger")
    assert refuse(identify, stranger.issue("a.example").certificate, anchors, NOW) == (
        "the issuer of the certificate is not the one on the card of a"
    )
    assert "not on the roster" in refuse(identify, stranger.issue("c.example").certificate, anchors, NOW)
    namesake = Authority("clinic", seed=1)
    assert "on the card of a" in refuse(identify, namesake.issue("a.example").certificate, anchors, NOW)


def test_a_certificate_in_the_names_of_two_parties_stands_for_neither():
    clinic = Authority("clinic")
    anchors = [TlsAnchor(name, TlsProof.AUTHORITY, clinic.der, f"{name}.example") for name in "ab"]
    both = clinic.issue("a.example", "b.example").certificate
    assert refuse(identify, both, anchors, NOW) == "the certificate stands for a and b"
    assert identify(clinic.issue("b.example").certificate, anchors, NOW) == "b"


def test_an_authority_that_has_expired_vouches_for_nobody():
    old = Authority("old", since=NOW - 9 * DAY, until=NOW - DAY)
    anchor = TlsAnchor("a", TlsProof.AUTHORITY, old.der, "a.example")
    assert "of its authority expired" in refuse(anchor.check, old.issue("a.example").certificate, NOW)


def test_a_pinned_certificate_is_compared_as_a_whole():
    key = tls_key(SeededEntropy("pinned"))
    data = self_signed(key, "a", host("a"), SeededEntropy("serial"))
    other = self_signed(key, "a", host("a"), SeededEntropy("other serial"))
    anchor = TlsAnchor("a", TlsProof.PINNED, data, host("a"))
    assert identify(x509.load_der_x509_certificate(data), [anchor], NOW + 99 * DAY) == "a"
    assert "the one on its card" in refuse(anchor.check, x509.load_der_x509_certificate(other), NOW)
    assert "not on the roster" in refuse(identify, x509.load_der_x509_certificate(other), [anchor], NOW)


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_file_of_an_authority_has_one_certificate_that_may_issue_others():
    clinic = Authority("clinic")
    assert read_authority(clinic.pem) == clinic.der
    leaf = clinic.issue("a.example")
    assert "there are 2" in refuse(read_authority, clinic.pem + clinic.pem)
    assert "there are 0" in refuse(read_authority, b"nothing")
    assert "CA:TRUE" in refuse(read_authority, leaf.pem)
    assert "unreadable" in refuse(check_authority, b"nothing")
    assert "1024 bits" in refuse(read_authority, Authority("short", "rsa-1024").pem)


def test_a_key_has_to_be_plain_and_that_of_the_certificate():
    clinic = Authority("clinic")
    leaf, other = clinic.issue("a.example"), clinic.issue("b.example")
    check_key_pem(Secret(leaf.key_pem), leaf.certificate)
    assert "not that of the certificate" in refuse(check_key_pem, Secret(other.key_pem), leaf.certificate)
    assert "no private key" in refuse(check_key_pem, Secret(b"nothing"), leaf.certificate)
    locked = leaf.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    assert "encrypted" in refuse(check_key_pem, Secret(locked), leaf.certificate)
    edwards = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert "RSA or of an elliptic curve" in refuse(check_key_pem, Secret(edwards), leaf.certificate)


def test_the_first_certificate_of_a_file_is_the_party_s():
    clinic = Authority("clinic")
    leaf = clinic.issue("a.example")
    assert read_certificate(leaf.pem + clinic.pem) == leaf.certificate
    assert "no certificate" in refuse(read_certificate, b"nothing")
    data = self_signed(tls_key(SeededEntropy("k")), "a", host("a"), SeededEntropy("s"))
    assert read_certificate(certificate_pem(data)).public_bytes(Encoding.DER) == data
    assert key_pem(tls_key(SeededEntropy("k"))).reveal().startswith(b"-----BEGIN PRIVATE KEY")
