"""`tacit keygen`, `tacit card` and `tacit roster`, as people use them."""

import json
import re
import shlex
import stat
import tomllib
from base64 import b64encode
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.authorities import Authority
from support.paths import ROOT
from support.printed_errors import read_errors
from tacit.api.membership import Membership
from tacit.app.cli.main import app
from tacit.core.errors import ConfigError
from tacit.net.membership.identity import Card, Credentials
from tacit.net.membership.roster import RosterFile

PAGE = ROOT / "docs" / "federations.md"
DIGITS = r"\d{4}( \d{4}){7}"


@pytest.fixture
def tacit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def called(*given, code=0):
        done = CliRunner().invoke(app, list(given))
        assert done.exit_code == code, done.output
        return done

    return called


@pytest.fixture
def federation(tacit):
    """A roster of three and a server, with their identities."""
    places = ",".join(f"{name}=localhost:{port}" for name, port in (("a", 7401), ("b", 7402), ("c", 7403)))
    tacit("keygen", "--federation", "three", "--parties", places, "--server", "localhost:7400")
    return "federation.toml"


# --- keys ----------------------------------------------------------------------------------------------------------


def test_keygen_makes_an_identity_and_its_card(tacit):
    done = tacit("keygen", "a", "--address", "localhost:7400")
    mine, card = Credentials.load("a.identity"), Card.load("a.card")
    assert card == mine.card("localhost:7400")
    assert stat.S_IMODE(Path("a.identity").stat().st_mode) == 0o600
    assert card.fingerprint in done.stdout
    assert "Keep it on this machine." in done.stdout
    for secret in (mine.identity.signing, mine.identity.channel, mine.tls):
        assert b64encode(secret.reveal()).decode() not in done.stdout


def test_keygen_as_json(tacit):
    told = json.loads(tacit("keygen", "a", "--json", "--folder", "some/where").stdout)
    assert told["identity"] == "some/where/a.identity"
    assert told["card"] == "some/where/a.card"
    assert re.fullmatch(DIGITS, told["fingerprint"])
    assert told["address"].endswith(":7400")  # this machine's name
    assert Card.load(told["card"]).address == told["address"]


def test_keys_are_not_made_twice(tacit):
    tacit("keygen", "a", "--address", "localhost:1")
    before = Path("a.identity").read_bytes(), Path("a.card").read_bytes()
    again = tacit("keygen", "a", "--address", "localhost:2", code=2)
    assert again.stderr == (
        "error[config]: a.identity exists already, and keys are never overwritten\ntry: move it away first\n"
    )
    assert (Path("a.identity").read_bytes(), Path("a.card").read_bytes()) == before


@pytest.mark.parametrize(
    ("name", "stem"),
    [("Spital Zürich ☤", "Spital-Zürich"), ("../../etc/passwd", "etc-passwd"), ("..", "party"), ("☤", "party")],
)
def test_names_that_no_file_can_have(tacit, tmp_path, name, stem):
    folder = tmp_path / "x" / "y" / "z"
    told = json.loads(tacit("keygen", name, "--folder", str(folder), "--address", "localhost:1", "--json").stdout)
    assert {path.name for path in folder.iterdir()} == {f"{stem}.identity", f"{stem}.card"}
    assert told["name"] == Card.load(told["card"]).name == name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "say whose keys to make"),
        (["a", "--federation", "f"], "say whose keys to make"),
        (["a", "--address", "nowhere"], "'nowhere' is no address"),
        (["a", "--server", "localhost:1"], "go with --federation"),
        (["a", "--set", "bits=16"], "go with --federation"),
        (["onlooker", "--address", "localhost:1"], "whoever listens"),
        (["a", "--folder", "/dev/null/x"], "--folder /dev/null/x: Not a directory"),
        (["--federation", "f", "--address", "localhost:1"], "--address is for one party"),
        (["--federation", "f", "--parties", "a"], "--parties a: write it as name=host:port"),
        (["--federation", "f", "--parties", "a=localhost:1,a=localhost:2,b=localhost:3"], "'a' is there twice"),
        (["--federation", "f", "--parties", "a=localhost:1,b=localhost:2"], "secagg needs a server"),
        (["--federation", "f", "--protocol", "secag"], "there is no protocol 'secag'"),
        (
            ["--federation", "f", "--parties", "a b=h:1,a-b=h:2,c=h:3", "--protocol", "gossip"],
            "would have the same name",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_line_and_nothing_is_written(tacit, given, said):
    done = tacit("keygen", *given, code=2)
    assert said in done.stderr
    assert all(line.startswith("error[config]: ") for line in read_errors(done.stderr))
    assert list(Path().iterdir()) == []


def test_every_problem_of_a_federation_is_a_line(tacit):
    done = tacit("keygen", "--federation", "f", "--parties", "a=nowhere,onlooker=localhost:2,b=:3", code=2)
    assert len(read_errors(done.stderr)) == 3


def test_a_whole_federation_to_try_things_out(tacit, federation):
    listed = RosterFile.load(federation)
    assert listed.names == ("a", "b", "c")
    for name in ("a", "b", "c", "server"):
        listed.check(Credentials.load(f"{name}.identity"))
    again = tacit("keygen", "--federation", "f", "--parties", "d=localhost:1", "--protocol", "gossip", code=2)
    assert "an average needs at least 2 parties" in again.stderr
    two = "d=localhost:1,e=localhost:2"
    there = tacit("keygen", "--federation", "f", "--parties", two, "--protocol", "gossip", code=2)
    assert "already there: federation.toml" in there.stderr
    assert not Path("d.identity").exists()


def test_a_federation_says_that_it_is_for_trying_out(tacit):
    places = "a=localhost:1,b=localhost:2,c=localhost:3"
    given = ("keygen", "--federation", "f", "--parties", places, "--protocol", "cesar", "--set", "share=0.5")
    said = tacit(*given, "--folder", "one").stdout
    assert "On\nreal machines each party makes its own keys" in said
    told = json.loads(tacit(*given, "--folder", "two", "--json").stdout)
    assert told["identities"] == {name: f"two/{name}.identity" for name in "abc"}
    assert told["settings"] == {"share": 0.5}


def test_a_card_is_made_again_of_the_same_keys(tacit):
    tacit("keygen", "a", "--address", "localhost:1")
    before = Card.load("a.card")
    told = json.loads(tacit("card", "a.identity", "--address", "localhost:2", "--json").stdout)
    assert told == {
        "name": "a",
        "address": "localhost:2",
        "fingerprint": before.fingerprint,
        "card": "a.card",
    }
    assert Card.load("a.card").address == "localhost:2"
    Path("a.identity").chmod(0o644)
    assert "chmod 600 a.identity" in tacit("card", "a.identity", code=2).stderr


def test_a_party_that_only_dials_out_has_a_card_without_an_address(tacit):
    said = tacit("keygen", "a", "--outbound").stdout
    assert "a only dials out, and needs no open port." in said
    assert Card.load("a.card").address == ""
    assert json.loads(tacit("card", "a.identity", "--address", "localhost:2", "--json").stdout)["address"]
    assert json.loads(tacit("card", "a.identity", "--outbound", "--json").stdout)["address"] == ""
    refused = tacit("card", "a.identity", "--outbound", "--address", "localhost:2", code=2).stderr
    assert refused == "error[config]: --outbound stands for no address\ntry: leave out --address, or --outbound\n"
    refused = tacit("keygen", "--federation", "f", "--outbound", code=2).stderr
    assert "--outbound is for one party" in refused


# --- rosters -------------------------------------------------------------------------------------------------------


def test_a_roster_from_nothing_to_whole(tacit):
    for place, name in enumerate(("a", "b", "c", "server")):
        tacit("keygen", name, "--address", f"localhost:{7400 + place}")
    assert "tacit roster add federation.toml CARD" in tacit("roster", "new", "three", "--set", "bits=16").stdout
    nonces = {RosterFile.draft("federation.toml").nonce}
    for name in ("server", "a", "b"):
        said = tacit("roster", "add", "federation.toml", f"{name}.card").stdout
        assert Card.load(f"{name}.card").fingerprint in said
        nonces.add(RosterFile.draft("federation.toml").nonce)
    assert "Send the new federation.toml to everybody" in said
    told = json.loads(tacit("roster", "add", "federation.toml", "c.card", "--json").stdout)
    nonces.add(told["nonce"])
    assert len(nonces) == 5
    assert told["missing"] == []
    assert [party["name"] for party in told["parties"]] == ["server", "a", "b", "c"]
    assert RosterFile.load("federation.toml").terms.settings.bits == 16


def test_a_roster_says_what_it_lacks(tacit):
    tacit("keygen", "a", "--address", "localhost:1")
    tacit("roster", "new", "three")
    said = tacit("roster", "add", "federation.toml", "a.card").stdout
    assert "Before it can be run: secagg needs a server" in said
    assert "Before it can be run: an average needs at least 2 parties, not 1" in said
    assert "Everybody takes" not in said
    assert "secagg needs a server" in tacit("roster", "show", "federation.toml").stdout


def test_a_roster_is_not_made_twice(tacit, federation):
    before = Path(federation).read_bytes()
    assert "federation.toml is there already" in tacit("roster", "new", "other", code=2).stderr
    assert Path(federation).read_bytes() == before


@pytest.mark.parametrize(
    "given", [["--protocol", "secag"], ["--set", "clp=3"], ["--set", "clip"], ["--set", "norm=null"]]
)
def test_a_roster_that_cannot_be_is_not_made(tacit, given):
    done = tacit("roster", "new", "three", *given, code=2)
    assert done.stderr.startswith("error[config]: ")
    assert not Path("federation.toml").exists()


def test_the_audit_takes_protocol_parties_and_settings_from_a_roster(tacit, federation):
    report = tacit("audit", "--roster", federation, "--rounds", "2", "--report", "report.html")
    assert report.stderr == "wrote report.html\n"
    assert "<code>tacit audit secagg --parties a,b,c --rounds 2" in Path("report.html").read_text(encoding="utf-8")
    refused = tacit("audit", "secagg", "--roster", federation, "--parties", "3", "--set", "bits=32", code=2)
    assert "leave out PROTOCOL, --parties, --set" in refused.stderr


def test_show_has_names_addresses_fingerprints_and_what_the_audit_says(tacit, federation):
    shown = tacit("roster", "show", federation).stdout
    told = json.loads(tacit("roster", "show", federation, "--json").stdout)
    assert shown.startswith("three: secagg\n")
    assert max(map(len, shown.splitlines())) <= 80
    for party in told["parties"]:
        assert party["name"] in shown
        assert party["address"] in shown
        assert party["fingerprint"][:19] in shown
        assert party["fingerprint"][20:] in shown
    audited = "Audited: no party, nor the server, can recover another party's vector in a round"
    assert audited in " ".join(shown.split())
    assert told["audit"][0].startswith("audited: no party, nor the server,")
    assert told["deadlines"] == {"phase": 30.0, "start": 600.0, "connect": 10.0, "certificate": 86400.0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--protocol", "fedavg", "--server", "localhost:7400"], "fedavg shows vectors by design"),
        (["--protocol", "pushsum"], "refused: pushsum would show"),
        (["--protocol", "pushsum", "--set", "allow_leaks=true"], "not audited, for allow_leaks is set"),
        (["--protocol", "pushsum", "--set", "masked=true"], "audited: no party can recover"),
    ],
)
def test_show_says_what_leaks(tacit, given, said):
    tacit("keygen", "--federation", "f", "--parties", "a=h:1,b=h:2,c=h:3,d=[::1]:4", *given)
    assert json.loads(tacit("roster", "show", "federation.toml", "--json").stdout)["audit"][0].startswith(said)
    assert "[::1]:4" in tacit("roster", "show", "federation.toml").stdout  # which is no markup


def test_changes_of_a_roster(tacit, federation):
    before = RosterFile.load(federation)
    assert "A new session begins." in tacit("roster", "renew", federation).stdout
    assert RosterFile.load(federation).parties == before.parties
    assert RosterFile.load(federation).nonce != before.nonce

    tacit("card", "b.identity", "--address", "localhost:9")
    assert (
        "b has the same keys as before, and is now at localhost:9."
        in tacit("roster", "replace", federation, "b.card").stdout
    )
    tacit("keygen", "b", "--address", "localhost:9", "--folder", "new")
    said = tacit("roster", "replace", federation, "new/b.card").stdout
    assert "b has new keys. Who has the old ones is no longer b." in said
    assert Card.load("new/b.card").fingerprint in said

    assert "c is off the roster" in tacit("roster", "remove", federation, "c").stdout
    assert RosterFile.load(federation).names == ("a", "b")
    assert (
        "c is not on the roster of three; there is a, b, server"
        in tacit("roster", "remove", federation, "c", code=2).stderr
    )


def test_what_is_no_card_is_not_added(tacit, federation):
    before = Path(federation).read_bytes()
    for given, said in (
        ("a.identity", "contains secret keys"),
        ("none.card", "there is no none.card"),
        (".", "is not a file"),
    ):
        assert said in tacit("roster", "add", federation, given, code=2).stderr
    tacit("card", "a.identity", "--address", "localhost:1")
    assert "a is on the roster already" in tacit("roster", "add", federation, "a.card", code=2).stderr
    assert Path(federation).read_bytes() == before


def test_a_roster_with_a_typo_is_told_with_its_line(tacit, federation):
    text = (
        Path(federation)
        .read_text(encoding="utf-8")
        .replace("phase =", "fase =")
        .replace("[settings]", "[settings]\nclp = 1")
    )
    Path(federation).write_text(text, encoding="utf-8")
    said = [
        "error[config]: federation.toml, line 11: secagg has no option 'clp'; did you mean 'clip'?",
        "error[config]: federation.toml, line 14: there is no deadlines.fase; did you mean 'phase'?",
    ]
    for command in ("show", "renew"):
        assert tacit("roster", command, federation, code=2).stderr.splitlines() == said
    assert "\n".join(said) in PAGE.read_text(encoding="utf-8")


def test_the_group_has_help_and_knows_its_commands(tacit):
    shown = tacit("roster", "--help").stdout
    assert "tacit roster show federation.toml" in shown.partition("Examples:")[2]
    assert tacit("roster", "shw", code=2).stderr.count("Did you mean 'show'?") == 1
    assert tacit("roster", code=2).stderr.startswith("error[usage]: Missing command\ntry: tacit roster --help")


# --- signed rosters ------------------------------------------------------------------------------------------------


@pytest.fixture
def parties(tacit):
    """A signed roster, the first revision of which everybody has accepted, with a folder for each party."""
    names = ("a", "b", "c", "server")
    for place, name in enumerate(names):
        tacit("keygen", name, "--address", f"localhost:{7400 + place}", "--folder", name)
    tacit("roster", "new", "three")
    for name in names:
        tacit("roster", "add", "federation.toml", f"{name}/{name}.card")
    for name in names:
        Path(name, "federation.toml").write_bytes(Path("federation.toml").read_bytes())
        tacit("roster", "sign", f"{name}/federation.toml", "--me", name)
    return names


def test_a_federation_for_trials_is_signed_by_everybody(tacit, federation):
    listed = RosterFile.load(federation)
    assert listed.signers(listed.verify_keys) == ("a", "b", "c", "server")
    for name in ("a", "b", "c", "server"):
        Membership.of(federation, name)
    tacit("roster", "renew", federation)
    with pytest.raises(ConfigError, match="revision 2 of three has 0 of the 3 signatures"):
        Membership.of(federation, "a")
    done = tacit("roster", "sign", federation)
    assert done.stdout.splitlines() == [
        "a, b, c, server signed revision 2 of three.",
        "Revision 2 is signed by a, b, c, server. Revision 3 will need 3 of these parties.",
    ]
    Membership.of(federation, "a")


def test_copies_are_signed_and_collected(tacit, parties):
    for name in parties:
        Membership.of(f"{name}/federation.toml", name)
    said = tacit("roster", "renew", "federation.toml").stdout
    assert "Each party on it signs it first: tacit roster sign federation.toml --me NAME." in said
    for name in parties[:3]:
        Path(name, "federation.toml").write_bytes(Path("federation.toml").read_bytes())
        tacit("roster", "sign", f"{name}/federation.toml", "--me", name)
    with pytest.raises(ConfigError, match="has 1 of the 3 signatures that revision 5 requires; not signed by: b, c, s"):
        Membership.of("a/federation.toml", "a")
    tacit("roster", "collect", "federation.toml", "a/federation.toml", "b/federation.toml")
    told = json.loads(
        tacit("roster", "collect", "federation.toml", "c/federation.toml", "--json").stdout,
    )
    assert (told["revision"], told["quorum"], told["signed"]) == (6, "all-but-one", ["a", "b", "c"])
    shown = " ".join(tacit("roster", "show", "federation.toml").stdout.split())
    assert "Revision 6 is signed by a, b, c; still missing: server. Revision 7 will need 3 of these parties." in shown
    for name in parties:
        Path(name, "federation.toml").write_bytes(Path("federation.toml").read_bytes())
        Membership.of(f"{name}/federation.toml", name)


@pytest.mark.usefixtures("parties")
def test_a_copy_of_another_revision_is_not_collected(tacit):
    tacit("roster", "renew", "federation.toml")
    done = tacit("roster", "collect", "federation.toml", "a/federation.toml", code=2)
    assert "a/federation.toml has another revision than federation.toml (5, and 6), or was changed" in done.stderr


def test_what_cannot_be_signed(tacit, parties):
    assert "there is no identity beside federation.toml" in tacit("roster", "sign", "federation.toml", code=2).stderr
    done = tacit("roster", "sign", "a/federation.toml", "--me", "b", "--identity", "a/a.identity", code=2)
    assert "this is the identity of a, not of b" in done.stderr
    assert "go with one party" in tacit("roster", "sign", "a/federation.toml", "--folder", "x", code=2).stderr
    tacit("roster", "new", "plain", "--quorum", "none", "--folder", "plain")
    for name in parties:
        tacit("roster", "add", "plain/federation.toml", f"{name}/{name}.card")
    given = ("roster", "sign", "plain/federation.toml", "--me", "a", "--identity", "a/a.identity")
    assert "plain names no quorum" in tacit(*given, code=2).stderr


@pytest.mark.parametrize("quorum", ["most", "0", "-1", ""])
def test_a_quorum_that_is_none(tacit, quorum):
    done = tacit("roster", "new", "three", f"--quorum={quorum}", code=2)
    assert "must be a number from 1, or one of 'all-but-one', 'all', 'none'" in done.stderr


@pytest.mark.usefixtures("parties")
def test_a_quorum_that_nobody_could_reach():
    text = Path("federation.toml").read_text(encoding="utf-8")
    Path("federation.toml").write_text(text.replace('"all-but-one"', "5"), encoding="utf-8")
    with pytest.raises(ConfigError, match="quorum=5 is more than the 4 parties that can sign"):
        RosterFile.load("federation.toml")


# --- encrypted keys ------------------------------------------------------------------------------------------------


def test_keygen_encrypts_with_the_passphrase_of_the_environment(tacit, monkeypatch):
    done = tacit("keygen", "a", "--address", "localhost:1", "--encrypt", code=2)
    assert "a.identity needs a passphrase, and none was given" in done.stderr
    assert not Path("a.identity").exists()
    monkeypatch.setenv("TACIT_PASSPHRASE", "short")
    assert "fewer than 12 characters" in tacit("keygen", "a", "--encrypt", code=2).stderr
    monkeypatch.setenv("TACIT_PASSPHRASE", "correct horse battery")
    done = tacit("keygen", "a", "--address", "localhost:1", "--encrypt")
    assert "correct horse" not in done.output + Path("a.identity").read_text(encoding="utf-8")
    before = Path("a.card").read_bytes()
    tacit("card", "a.identity", "--address", "localhost:1")
    assert Path("a.card").read_bytes() == before
    monkeypatch.delenv("TACIT_PASSPHRASE")
    done = tacit("card", "a.identity", "--address", "localhost:1", code=2)
    assert done.stderr.startswith("error[config]: a.identity needs a passphrase")


def test_a_federation_for_trials_can_be_encrypted(tacit, monkeypatch):
    monkeypatch.setenv("TACIT_PASSPHRASE_COMMAND", "echo correct horse battery")
    tacit("keygen", "--federation", "f", "--parties", "a=h:1,b=h:2,c=h:3", "--server", "h:4", "--encrypt")
    assert "signing_key" not in Path("a.identity").read_text(encoding="utf-8")
    Membership.of("federation.toml", "a")


# --- the page ------------------------------------------------------------------------------------------------------


def commands():
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["tacit"] and line[1] in ("keygen", "card", "roster")]


def test_the_commands_of_the_page_work_in_their_order(tacit):
    given = commands()
    assert {each[1] for each in given if each[0] == "roster"} == {
        "new",
        "add",
        "show",
        "replace",
        "remove",
        "renew",
        "sign",
    }
    Path("ca.pem").write_bytes(Authority("hospital-b").pem)
    for each in given:
        tacit(*each)
    assert RosterFile.load("trial/federation.toml").names == ("a", "b", "c")


def test_relays_are_put_on_a_roster_and_taken_off(tacit):
    for name in ("a", "b", "c"):
        tacit("keygen", name, "--outbound")
    tacit("keygen", "post", "--address", "localhost:7400")
    tacit("roster", "new", "three", "--protocol", "gossip")
    for name in ("a", "b", "c"):
        said = tacit("roster", "add", "federation.toml", f"{name}.card").stdout
    assert "a and b only dial out, so neither reaches the other; try: put a relay on the roster" in said
    said = tacit("roster", "add", "federation.toml", "post.card", "--relay").stdout
    assert "post is on the roster as a relay." in said
    assert "neither" not in said
    listed = RosterFile.load("federation.toml")
    assert [card.name for card in listed.relays] == ["post"]
    assert listed.names == ("a", "b", "c"), "a relay is no party"
    assert "post" not in listed.members, "nobody seals anything for a relay"
    shown = tacit("roster", "show", "federation.toml").stdout
    assert "post (relay)" in shown
    assert shown.count("only dials out") == 3
    tacit("card", "post.identity", "--address", "localhost:7401")
    tacit("roster", "replace", "federation.toml", "post.card")
    assert RosterFile.load("federation.toml").address_of("post") == "localhost:7401"
    tacit("roster", "remove", "federation.toml", "post")
    assert RosterFile.draft("federation.toml").relays == ()


def test_the_page_shows_a_roster_as_it_is():
    text = PAGE.read_text(encoding="utf-8")
    shown = tomllib.loads(re.search(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1])
    assert (*shown, "relays") == RosterFile.__struct_fields__, "a roster without relays does not mention them"
    card = {*Card.__struct_fields__} - Card.newer
    assert set(shown["parties"][0]) == card, "a card of release 0.2 has no other fields"
    assert shown["deadlines"] == {"phase": 30.0, "start": 600.0, "connect": 10.0}
