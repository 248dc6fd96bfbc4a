"""Rosters: the same for every reader, and refused with every reason if they are invalid."""

import os
import re

import pytest

from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, LeakRefused
from tacit.core.suite import SERVER
from tacit.crypto.certificates import self_signed
from tacit.crypto.keys import Identity
from tacit.net.membership.identity import Credentials, tls_host
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.protocols import REGISTRY

NAMES = ("a", "b", "Spital Zürich ☤", "d")
SETTINGS = {"admm": {"masked": True, "group_size": "all"}, "pushsum": {"masked": True}}
KEYS = {name: Credentials.generate(name, SeededEntropy("identity", name)) for name in (*NAMES, SERVER)}
CARDS = {name: KEYS[name].card(f"localhost:{7400 + place}") for place, name in enumerate(KEYS)}
FRESH = SeededEntropy("fresh")


def roster(protocol="secagg", names=(*NAMES[:3], SERVER), **settings):
    options = SETTINGS.get(protocol, {}) | settings
    return RosterFile.new("three hospitals", protocol, options, SeededEntropy(0), [CARDS[name] for name in names])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "federation.toml"


def told(load, path):
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert all(problem.isprintable() for problem in caught.value.problems)
    return list(caught.value.problems)


def rewritten(path, old, new, count=1):
    """Changes the text of a roster, and returns the line of the first change."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


# --- what rounds need ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", REGISTRY)
def test_everybody_reads_the_same_session_from_the_same_file(path, protocol):
    names = REGISTRY[protocol].everyone(NAMES)
    made = roster(protocol, names)
    made.save(path)
    read = RosterFile.load(path)
    assert read == made
    assert tuple(read.members) == names
    assert read.terms.parties == NAMES
    agreed = read.agreement(10)
    assert agreed.nonce == bytes.fromhex(made.nonce)
    assert agreed.session == made.agreement(10).session
    assert agreed.session != made.renew(FRESH).agreement(10).session
    for name in names:
        assert read.members[name] == KEYS[name].member
        assert read.address_of(name) == CARDS[name].address
        assert read.certificate_of(name) == KEYS[name].certificate_pem
        assert read.host_of(name) == tls_host(KEYS[name].member)
        assert read.fingerprint_of(name) == CARDS[name].fingerprint
        read.check(KEYS[name])


def test_the_server_comes_last_wherever_it_is_listed():
    first = roster(names=(SERVER, *NAMES[:3]))
    assert tuple(first.members) == (*NAMES[:3], SERVER)
    assert first.agreement(3).session == roster().agreement(3).session


def test_deadlines_have_defaults_and_are_nobody_elses_business(path):
    roster().save(path)
    assert RosterFile.load(path).deadlines == Deadlines(phase=30.0, start=600.0, connect=10.0)
    rewritten(path, "phase = 30.0", "phase = 5")
    assert RosterFile.load(path).deadlines.phase == 5.0
    assert RosterFile.load(path).agreement(3).session == roster().agreement(3).session


def test_settings_are_kept_as_they_were_given(path):
    given = {
        "participation": {"kind": "batches", "per_round": 2, "privacy": 2},
        "clip": 0.5,
        "allow_leaks": True,
        "neighbours": "all",
    }
    made = roster(names=(*NAMES, SERVER), **given)
    made.save(path)
    assert RosterFile.load(path).settings == given
    graph = {"kind": "regular", "degree": 2, "girth": 3}
    roster("cesar", NAMES, graph=graph).save(path)
    assert RosterFile.load(path).agreement(3).session == roster("cesar", NAMES, graph=graph).agreement(3).session


def test_who_is_not_on_it_is_told():
    with pytest.raises(ConfigError, match=r"^e is not on the roster of three hospitals; there is a, b, "):
        roster().address_of("e")


# --- changes -------------------------------------------------------------------------------------------------------


def moved(name):
    return KEYS[name].card("elsewhere.example:7400")


def rotated(name):
    return Credentials.generate(name, SeededEntropy("new", name)).card(CARDS[name].address)


def test_every_change_is_a_new_session():
    made = roster()
    entropy = SeededEntropy("changes")
    after = [
        made,
        made.renew(entropy),
        made.add_party(CARDS["d"], entropy),
        made.remove_party("b", entropy),
        made.replace_card(moved("b"), entropy),
        made.replace_card(rotated("b"), entropy),
        made.add_party(CARDS["d"], entropy).remove_party("d", entropy),
    ]
    assert len({each.nonce for each in after}) == len(after)
    assert len({each.agreement(3).session for each in after}) == len(after)


def test_who_is_replaced_keeps_its_place():
    after = roster().replace_card(moved("b"), FRESH)
    assert [card.name for card in after.parties] == [*NAMES[:3], SERVER]
    assert after.address_of("b") == "elsewhere.example:7400"
    assert after.fingerprint_of("b") == CARDS["b"].fingerprint
    assert roster().replace_card(rotated("b"), FRESH).fingerprint_of("b") != CARDS["b"].fingerprint


def test_changes_that_are_none_are_told():
    made = roster()
    for change, said in (
        (
            lambda: made.add_party(rotated("a"), FRESH),
            "a is on the roster already; try: tacit roster replace",
        ),
        (lambda: made.remove_party("d", FRESH), "d is not on the roster"),
        (lambda: made.replace_card(CARDS["d"], FRESH), "d is not on the roster"),
        (lambda: made.replace_card(CARDS["a"], FRESH), "the roster already has this card of a"),
    ):
        with pytest.raises(ConfigError, match=said):
            change()


@pytest.mark.parametrize("protocol", REGISTRY)
def test_a_roster_is_made_one_by_one_and_run_once_it_is_whole(path, protocol):
    roster(protocol, ()).save(path)
    for name in REGISTRY[protocol].everyone(NAMES):
        assert RosterFile.draft(path).missing()
        with pytest.raises((ConfigError, LeakRefused)):
            RosterFile.load(path)
        grown = RosterFile.draft(path).add_party(CARDS[name], FRESH)
        grown.save(path)
        if protocol in ("gossip", "admm", "pushsum", "cesar", "rotating") and len(grown.parties) > 1:
            break
    for name in (each for each in REGISTRY[protocol].everyone(NAMES) if each not in dict(grown.members)):
        grown = grown.add_party(CARDS[name], FRESH)
    assert grown.missing() == []
    grown.save(path)
    assert RosterFile.load(path) == grown


def test_a_roster_is_written_whole_or_not_at_all(path, monkeypatch):
    roster().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        roster().renew(FRESH).save(path)
    assert path.read_bytes() == before


def test_a_card_that_was_changed_can_still_be_replaced_or_removed(path):
    roster().save(path)
    rewritten(path, CARDS["b"].address, "elsewhere.example:1")
    assert "the card of b is not as b signed it; try: ask b for its card again" in told(RosterFile.draft, path)[0]
    RosterFile.draft(path, "b").replace_card(CARDS["b"], FRESH).save(path)
    assert RosterFile.load(path).address_of("b") == CARDS["b"].address


# --- invalid rosters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("adversary = 1", "adversery = 1", "there is no adversery; did you mean 'adversary'?"),
        ("adversary = 1", 'adversary = "one"', "adversary = 'one': expected a whole number"),
        ("adversary = 1", "adversary = 0", "adversary=0 must be at least 1"),
        ("adversary = 1", "adversary = 3", "adversary=3 must be less than the 3 parties"),
        ("phase = 30.0", "fase = 30.0", "there is no deadlines.fase; did you mean 'phase'?"),
        ("phase = 30.0", "phase = 0", "deadlines.phase=0 must be above 0"),
        ("phase = 30.0", "phase = inf", "deadlines.phase = inf: expected a finite number"),
        ('protocol = "secagg"', 'protocol = "secag"', "there is no protocol 'secag'; did you mean 'secagg'?"),
        ('federation = "three hospitals"', 'federation = ""', "'' is no name"),
        ("clip = 32.0", "clp = 32.0", "secagg has no option 'clp'; did you mean 'clip'?"),
        ("clip = 32.0", 'clip = "x"', "clip="),
        ("clip = 32.0", "bits = 17", "bits"),
        ("clip = 32.0", "threshold = 9", "threshold=9"),
        ("clip = 32.0", "clip = -1.0", "clip"),
        ('nonce = "', 'nonce = "x', "the nonce must be 32 digits of hex; try: tacit roster renew"),
        ('address = "localhost:7401"', 'adress = "localhost:7401"', "there is no parties[1].adress; did you mean"),
        ('address = "localhost:7401"', 'address = "localhost"', "'localhost' is no address; try: host:port"),
        ('address = "localhost:7401"', "address = 7401", "parties[1].address = 7401: expected text"),
        ('name = "b"', 'name = "c"', "the card of c is not as c signed it"),
        ('name = "b"', 'name = "b\\n"', "'b\\n' is no name"),
        ('name = "b"', 'name = "onlooker"', "'onlooker' is the name of whoever listens"),
        ('name = "b"', 'name = "b "', "'b ' is no name: it begins or ends with a blank"),
        ('name = "b"', 'name = " b"', "' b' is no name: it begins or ends with a blank"),
        ('name = "b"', 'name = "server "', "'server ' is no name: it begins or ends with a blank"),
        ('name = "b"', 'name = "Server"', "'Server' would be taken for 'server', which is another"),
        ('name = "b"', 'name = "ser ver"', "'ser ver' would be taken for 'server', which is another"),
        ('name = "b"', 'name = "ｓｅｒｖｅｒ"', "'ｓｅｒｖｅｒ' would be taken for 'server', which is another"),
        ('name = "b"', 'name = "serv\\u200ber"', "'serv\\u200ber' is no name"),
        ('name = "b"', 'signing_key = "xxxx"\nname = "b"', "there is no parties[1].signing_key"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(path, old, new, said):
    roster(clip=32.0).save(path)
    line = rewritten(path, old, new)
    problems = told(RosterFile.load, path)
    assert any(problem.startswith(f"{path}, line {line}: {said}") for problem in problems), problems


@pytest.mark.parametrize("field", ["verify_key", "channel_key", "certificate", "signature"])
def test_a_key_that_was_changed_is_told_with_its_line_and_whose_it_is(path, field):
    roster().save(path)
    text = path.read_text(encoding="utf-8")
    second = text.index('name = "b"')
    found = re.compile(rf'{field} = "(.)').search(text, second)
    other = "A" if found[1] != "A" else "B"
    path.write_text(text[: found.start(1)] + other + text[found.end(1) :], encoding="utf-8")
    (problem,) = told(RosterFile.load, path)
    line = re.match(rf"{path}, line (\d+): the (card|keys) of b ", problem)
    first = text[:second].count("\n") + 1
    assert line
    assert first <= int(line[1]) < first + 6


def as_another(name, of, seed="other", **fields):
    """Returns the card of somebody who has the keys of another, or some of them."""
    own, theirs = Credentials.generate(name, SeededEntropy(seed)), KEYS[of]
    identity = Identity(
        name,
        theirs.identity.signing if "signing" in fields else own.identity.signing,
        theirs.identity.channel if "channel" in fields else own.identity.channel,
    )
    certificate = self_signed(own.tls, name, tls_host(identity.member()), SeededEntropy(seed))
    return Credentials(identity, own.tls, certificate).card(fields.get("address", "other.example:7400"))


OUTBOUND = {name: KEYS[name].card("") for name in (*NAMES, SERVER)}
MEETS = "only dial out, so neither reaches the other; try: put a relay on the roster (tacit roster add federation.toml "


def routed(protocol, cards, relays=()):
    options = SETTINGS.get(protocol, {})
    made = RosterFile.new("three hospitals", protocol, options, SeededEntropy(0), cards)
    for card in relays:
        made = made.add_party(card, FRESH, is_relay=True)
    return made


def test_old_rosters_are_written_as_before(path):
    roster().save(path)
    assert "relays" not in path.read_text(encoding="utf-8")
    assert RosterFile.load(path) == roster()


def test_parties_without_addresses_need_a_server_or_a_relay(path):
    a, b, c = (OUTBOUND[name] for name in NAMES[:3])
    routed("secagg", [a, b, c, CARDS[SERVER]]).save(path)
    assert RosterFile.load(path).address_of("a") == ""
    routed("gossip", [a, b, c]).save(path)
    (problem,) = told(RosterFile.load, path)
    assert problem.startswith(f"{path}: a and b {MEETS}")
    routed("gossip", [a, b, CARDS[NAMES[2]]]).save(path)
    RosterFile.load(path)  # the third one relays
    routed("gossip", [a, b, c], [CARDS["d"]]).save(path)
    assert RosterFile.load(path).names == NAMES[:3]


@pytest.mark.parametrize(
    ("parties", "relays", "said"),
    [
        ([CARDS["a"], OUTBOUND[SERVER]], [], "the server needs an address, where the others dial it"),
        ([CARDS["a"]], [OUTBOUND["d"]], "d is a relay and needs an address, where the others dial it"),
        ([CARDS["a"]], [CARDS[SERVER]], "a relay cannot be called 'server'"),
        ([CARDS["a"]], [CARDS["a"]], "a is on the roster already"),
        ([CARDS["a"]], [as_another("d", "a", signing=True)], "d has the verify key of a; one of them needs keys"),
        ([CARDS["a"]], [as_another("d", "a", address="localhost:7400")], "d has the address of a"),
    ],
)
def test_relays_and_servers_that_cannot_be_are_refused(parties, relays, said):
    with pytest.raises(ConfigError) as refused:
        routed("secagg", parties, relays)
    assert any(problem.startswith(said) for problem in refused.value.problems), refused.value.problems


def test_an_unreadable_key_is_told(path):
    roster().save(path)
    line = rewritten(path, 'verify_key = "', 'verify_key = "%')
    (problem,) = told(RosterFile.load, path)
    assert problem.startswith(f"{path}, line {line}: parties[0].verify_key = '%")
    assert "base64" in problem


def test_a_roster_that_is_none_is_told(path):
    assert "cannot be read" in told(RosterFile.load, path)[0]
    path.write_text("federation = ", encoding="utf-8")
    assert str(path) in told(RosterFile.load, path)[0]
    path.write_text("", encoding="utf-8")
    assert told(RosterFile.load, path) == [f"{path}: federation is missing", f"{path}: protocol is missing"]


def test_a_nonce_that_is_gone_is_drawn_anew(path):
    roster().save(path)
    rewritten(path, "nonce = ", "# ")
    assert "tacit roster renew" in told(RosterFile.load, path)[0]
    RosterFile.draft(path).renew(FRESH).save(path)
    assert RosterFile.load(path).agreement(3)


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (as_another("d", "a", address="LOCALHOST:7400"), ["d has the address of a; one of them needs another one"]),
        (as_another("d", "a", signing=True), ["d has the verify key of a; one of them needs keys of its own"]),
        (as_another("d", "a", channel=True), ["d has the channel key of a; one of them needs keys of its own"]),
        (as_another("d", "a", signing=True, channel=True), ["d has the verify key of a", "d has the channel key of a"]),
    ],
)
def test_no_two_have_the_same_address_or_key(card, said):
    with pytest.raises(ConfigError) as caught:
        roster().add_party(card, FRESH)
    assert len(caught.value.problems) == len(said)
    assert all(problem.startswith(each) for problem, each in zip(caught.value.problems, said, strict=True))


def test_the_same_address_may_be_written_in_two_ways():
    one, other = (KEYS[name].card(f"[{host}]:7400") for name, host in (("a", "::1"), ("b", "0:0::0:1")))
    with pytest.raises(ConfigError, match="b has the address of a"):
        RosterFile.new("f", "gossip", {}, FRESH, [one, other])


def test_nobody_is_there_twice(path):
    roster().save(path)
    text = path.read_text(encoding="utf-8")
    entry = text[text.index("[[parties]]") : text.index("[[parties]]", text.index("[[parties]]") + 1)]
    path.write_text(f"{text}\n{entry}", encoding="utf-8")
    line = text.count("\n") + 3
    assert told(RosterFile.load, path) == [f"{path}, line {line}: 'a' is there twice; try: leave one of them out"]


def test_a_server_is_where_the_protocol_has_one_and_nowhere_else(path):
    roster(names=NAMES[:3]).save(path)
    assert told(RosterFile.load, path) == [
        f"{path}: secagg needs a server; try: add the card of one (tacit keygen server)",
    ]
    with pytest.raises(ConfigError, match="gossip has no server"):
        roster("gossip")
    roster().save(path)
    rewritten(path, '"secagg"', '"gossip"')
    assert "gossip has no server; try: leave it out (tacit roster remove)" in told(RosterFile.draft, path)[0]
    RosterFile.draft(path, SERVER).remove_party(SERVER, FRESH).save(path)
    assert RosterFile.load(path).names == NAMES[:3]


def test_every_problem_is_told_at_once(path):
    roster(clip=32.0).save(path)
    for old, new in (
        ("adversary = 1", "adversary = 0\nadversery = 1"),
        ("clip = 32.0", "clp = 1.0\nbitz = 16"),
        ("phase = 30.0", "phase = 0\nfase = 1"),
        ('address = "localhost:7401"', 'address = "localhost:7400"'),
    ):
        rewritten(path, old, new)
    assert len(told(RosterFile.load, path)) == 7


def test_settings_that_leak_are_refused(path):
    roster("admm", NAMES, masked=False, group_size=2, iterations=5).save(path)
    with pytest.raises(LeakRefused):
        RosterFile.load(path)
    assert "this pattern protects" in RosterFile.draft(path).missing()[0]


# --- is that me? ---------------------------------------------------------------------------------------------------


def test_an_identity_that_is_not_on_the_roster_is_told_what_to_do():
    with pytest.raises(ConfigError) as caught:
        roster().check(KEYS["d"])
    assert caught.value.problems == (
        "d is not on the roster of three hospitals; try: ask its keeper to add the card, and take the new "
        "federation.toml",
    )


def test_an_identity_with_other_keys_is_told_which():
    a, other = KEYS["a"], Credentials.generate("a", SeededEntropy(1))
    for changed, what in (
        (other, "signing key, channel key, certificate"),
        (Credentials(Identity("a", other.identity.signing, a.identity.channel), a.tls, a.certificate), "signing key"),
        (Credentials(Identity("a", a.identity.signing, other.identity.channel), a.tls, a.certificate), "channel key"),
        (Credentials(a.identity, other.tls, other.certificate), "certificate"),
    ):
        with pytest.raises(
            ConfigError, match=f"lists a different {what} for a than this identity has; .*tacit roster replace"
        ):
            roster().check(changed)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'federation = "f"\nprotocol = "gossip"\n[deadlines]\nconnect = 1e10\n',
            "connect=1e.10 must be above 0, and up to",
        ),
        (
            'federation = "f"\nprotocol = "gossip"\n[deadlines]\nphase = 1e300\n',
            "phase=1e.300 must be above 0, and up to",
        ),
        (f"number = {'9' * 5000}\n", "federation.toml: Exceeds the limit"),
        (".".join("a" * 50_000) + " = 1\n", "line 1: the key is too long"),
        ("[" + ".".join("a" * 50_000) + "]\n", "line 1: the key is too long"),
    ],
)
def test_what_would_take_for_ever_is_refused_at_once(text, words, tmp_path):
    path = tmp_path / "federation.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        RosterFile.load(path)
