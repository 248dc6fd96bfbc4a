"""`tacit keygen --tls`: how a party proves itself in TLS, from the command line to its card."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.authorities import Authority
from support.printed_errors import read_errors
from tacit.app.cli.main import app
from tacit.crypto.tls_anchor import TlsProof
from tacit.net.membership.identity import Card, Credentials
from tacit.net.membership.roster import RosterFile


@pytest.fixture
def tacit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def called(*given, code=0):
        done = CliRunner().invoke(app, list(given))
        assert done.exit_code == code, done.output
        return done

    return called


def test_a_party_that_issues_its_own_certificates(tacit):
    done = tacit("keygen", "a", "--address", "localhost:7400", "--tls", "issued")
    mine, card = Credentials.load("a.identity"), Card.load("a.card")
    assert card == mine.card("localhost:7400")
    assert (card.tls, card.tls_name, mine.tls.reveal()) == (TlsProof.ISSUED, "", b"")
    assert "issues its TLS certificates itself" in done.stdout
    tacit("card", "a.identity", "--address", "localhost:7401")
    assert Card.load("a.card").fingerprint == card.fingerprint


def test_a_party_with_an_authority(tacit):
    clinic = Authority("clinic")
    Path("ca.pem").write_bytes(clinic.pem)
    given = "--tls", "authority", "--authority", "ca.pem", "--tls-name", "a.clinic.example"
    done = tacit("keygen", "a", "--address", "localhost:7400", *given)
    card = Card.load("a.card")
    assert (card.tls, card.tls_name, card.certificate) == (TlsProof.AUTHORITY, "a.clinic.example", clinic.der)
    assert "put tls.key and tls.crt for a.clinic.example into a.tls" in done.stdout
    assert Credentials.load("a.identity").tls_folder == Path("a.tls")


def test_a_trial_federation_whose_parties_issue_their_certificates(tacit):
    places = ",".join(f"{name}=localhost:{port}" for name, port in (("a", 7401), ("b", 7402), ("c", 7403)))
    tacit("keygen", "--federation", "try", "--parties", places, "--protocol", "gossip", "--tls", "issued")
    roster = RosterFile.load("federation.toml")
    assert [card.tls for card in roster.parties] == [TlsProof.ISSUED] * 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--tls", "signed"], "--tls signed: there are pinned, issued, authority"),
        (["--tls", "authority"], "--tls authority needs --authority FILE and --tls-name HOST"),
        (["--tls-name", "a.example"], "--authority and --tls-name go with --tls authority"),
        (["--tls", "issued", "--authority", "ca.pem"], "--authority and --tls-name go with --tls authority"),
        (
            ["--tls", "authority", "--authority", "none.pem", "--tls-name", "a.example"],
            "none.pem cannot be read: No such file or directory",
        ),
        (["--tls", "authority", "--authority", "leaf.pem", "--tls-name", "a.example"], "leaf.pem: it is not the"),
        (["--tls", "authority", "--authority", "ca.pem", "--tls-name", "*.example"], "'*.example' is no host name"),
        (["--tls", "authority", "--authority", "ca.pem", "--tls-name", "10.0.0.1"], "'10.0.0.1' is no host name"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(tacit, given, expected):
    clinic = Authority("clinic")
    Path("ca.pem").write_bytes(clinic.pem)
    Path("leaf.pem").write_bytes(clinic.issue("a.example").pem)
    done = tacit("keygen", "a", "--address", "localhost:7400", *given, code=2)
    (line,) = read_errors(done.output)
    assert expected in line
    assert not Path("a.identity").exists()


def test_two_parties_with_one_certificate_name_or_key_are_refused(tacit):
    clinic = Authority("clinic")
    Path("ca.pem").write_bytes(clinic.pem)
    given = "--tls", "authority", "--authority", "ca.pem", "--tls-name"
    tacit("roster", "new", "try", "--protocol", "gossip")
    for name, host in (("a", "one.example"), ("b", "one.example"), ("c", "two.example")):
        tacit("keygen", name, "--address", f"{name}:7400", *given, host)
    tacit("roster", "add", "federation.toml", "a.card")
    done = tacit("roster", "add", "federation.toml", "b.card", code=2)
    assert "b has the certificate of a" in done.output
    tacit("roster", "add", "federation.toml", "c.card")
