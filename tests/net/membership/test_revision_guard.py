"""Revisions of a roster: in every order, a party accepts only what the quorum of its last revision signed."""

import random
import threading
import time
from itertools import combinations, product
from pathlib import Path

import msgspec
import pytest

from tacit.api.membership import Membership
from tacit.core.entropy import SeededEntropy
from tacit.core.errors import ConfigError, UnsafePath
from tacit.core.suite import SERVER
from tacit.net.membership import revision_guard
from tacit.net.membership.identity import Credentials
from tacit.net.membership.revision_guard import GuardState, RevisionGuard
from tacit.net.membership.roster import Deadlines, RosterFile
from tacit.net.membership.roster_signature import RosterSignature
from tacit.net.store.round_store import RoundStore

NAMES = ("a", "b", "c", SERVER)
KEYS = {name: Credentials.generate(name, SeededEntropy("guard", name)) for name in (*NAMES, "d")}
FOREIGN = {name: Credentials.generate(name, SeededEntropy("impostor", name)) for name in NAMES}
PLACES = {name: f"localhost:{7500 + place}" for place, name in enumerate(KEYS)}


def card(mine):
    return mine.card(PLACES[mine.name])


FIRST = RosterFile.new(
    "three", "secagg", {}, SeededEntropy("guard"), [card(KEYS[name]) for name in NAMES], quorum="all-but-one"
)


def signed(roster, *signers):
    for each in signers:
        roster = roster.sign(each if isinstance(each, Credentials) else KEYS[each])
    return roster


def changed(roster, name="change", **fields):
    """Returns the next revision with other fields."""
    return msgspec.structs.replace(roster.renew(SeededEntropy(name)), **fields)


def refused(done, *given):
    with pytest.raises(ConfigError) as caught:
        done(*given)
    (problem,) = caught.value.problems
    assert problem.isprintable()
    assert "; try: " in problem
    return problem


@pytest.fixture
def guard(tmp_path):
    """The guard of party a. Each call is a new one, as after a restart."""

    def opened(name="a"):
        return RevisionGuard(tmp_path / f"{name}.rounds", name)

    return opened


def accepted(guard):
    return msgspec.json.decode(guard.path.read_bytes(), type=GuardState).accepted.revision


# --- the first revision --------------------------------------------------------------------------------------------


def test_the_first_revision_needs_our_own_signature(guard):
    problem = refused(guard().admit, signed(FIRST, "b", "c", SERVER), KEYS["a"])
    assert problem.startswith("a has not signed revision 1 of three, its first one; try: ")
    assert not guard().path.exists()
    guard().admit(signed(FIRST, "a"), KEYS["a"])
    assert accepted(guard()) == 1
    guard().admit(FIRST, KEYS["a"])  # accepted is accepted, also without signatures


def test_signing_accepts_the_first_revision(guard):
    assert guard().sign(FIRST, KEYS["a"]).signers(FIRST.verify_keys) == ("a",)
    assert accepted(guard()) == 1
    guard().admit(FIRST, KEYS["a"])


def test_without_a_quorum_nothing_is_kept(guard):
    plain = msgspec.structs.replace(FIRST, quorum="none")
    for each in (plain, changed(plain), plain):
        guard().admit(each, KEYS["a"])
    assert not guard().path.exists()
    assert "names no quorum" in refused(guard().sign, plain, KEYS["a"])


# --- later revisions -----------------------------------------------------------------------------------------------


@pytest.fixture
def member(guard):
    guard().sign(FIRST, KEYS["a"])
    return guard


def test_a_quorum_is_needed_and_enough(member):
    later = changed(FIRST)
    for some in (few for size in range(3) for few in combinations(NAMES, size)):
        problem = refused(member().admit, signed(later, *some), KEYS["a"])
        missing = ", ".join(name for name in NAMES if name not in some)
        told = f"has {len(some)} of the 3 signatures that revision 1 requires; not signed by: {missing}; try: "
        assert problem.startswith(f"revision 2 of three {told}")
        assert accepted(member()) == 1
    member().admit(signed(later, "b", "c", SERVER), KEYS["a"])
    assert accepted(member()) == 2


def test_an_older_revision_and_another_one_of_the_number_are_refused(member):
    later, fork = (signed(changed(FIRST, name), *NAMES) for name in ("later", "fork"))
    member().admit(later, KEYS["a"])
    problem = refused(member().admit, signed(FIRST, *NAMES), KEYS["a"])
    assert problem == (
        "revision 1 of three is older than revision 2, which a accepted; try: take the newest federation.toml"
    )
    assert "is another one than revision 2, which a accepted" in refused(member().admit, fork, KEYS["a"])
    member().admit(later, KEYS["a"])


def test_an_unsigned_roster_of_an_earlier_release_does_not_replace_a_signed_one(member):
    old = msgspec.structs.replace(FIRST, revision=0, quorum="none")
    assert "revision 0 of three is older than revision 1" in refused(member().admit, old, KEYS["a"])
    unsigned = msgspec.structs.replace(FIRST, revision=9, quorum="none")
    assert "has 0 of the 3 signatures" in refused(member().admit, unsigned, KEYS["a"])


def test_signatures_count_for_one_content_only(member):
    later, other = changed(FIRST, "later"), changed(FIRST, "other")
    moved = other.with_signatures(signed(later, *NAMES).signatures)
    assert "has 0 of the 3 signatures that revision 1 requires (others are of another content)" in refused(
        member().admit, moved, KEYS["a"]
    )
    full = signed(later, *NAMES)
    cards = [card(KEYS["a"]), card(KEYS["b"]), card(FOREIGN["c"]), card(KEYS[SERVER])]
    for fields in (
        {"parties": tuple(cards)},
        {"parties": tuple(reversed(full.parties))},
        {"revision": 3},
        {"quorum": 1},
        {"quorum": "none"},
        {"settings": {"clip": 8}},
        {"adversary": 2},
        {"nonce": "0" * 32},
        {"protocol": "fedavg"},
        {"parties": full.parties[1:]},
        {"relays": (card(KEYS["d"]),)},
    ):
        assert "has 0 of the 3" in refused(member().admit, msgspec.structs.replace(full, **fields), KEYS["a"])
    other_federation = msgspec.structs.replace(full, federation="four")
    assert "a accepted rosters of three, and this one is of four; try: take the federation.toml of three" in refused(
        member().admit, other_federation, KEYS["a"]
    )
    local = msgspec.structs.replace(full, deadlines=Deadlines(phase=3.0))
    member().admit(local, KEYS["a"])  # deadlines are each party's own


def test_two_signatures_of_one_key_count_once(member):
    later = changed(FIRST)
    twice = msgspec.structs.replace(later, signatures=signed(later, "b").signatures * 3)
    assert "has 1 of the 3" in refused(member().admit, twice, KEYS["a"])


def test_new_keys_count_from_the_next_revision_on(member):
    fresh = Credentials.generate("b", SeededEntropy("fresh b"))
    rotated = FIRST.replace_card(card(fresh), SeededEntropy("rotate"))
    assert "has 2 of the 3" in refused(member().admit, signed(rotated, fresh, "a", "c"), KEYS["a"])
    member().admit(signed(rotated, "a", "c", SERVER), KEYS["a"])
    later = changed(rotated)
    assert "has 2 of the 3" in refused(member().admit, signed(later, "b", "a", "c"), KEYS["a"])
    member().admit(signed(later, fresh, "a", "c"), KEYS["a"])


def test_a_party_that_leaves_may_sign_that(member, guard):
    guard("c").sign(FIRST, KEYS["c"])
    without = FIRST.remove_party("c", SeededEntropy("leave")).add_party(card(KEYS["d"]), SeededEntropy("join"))
    by_c = guard("c").sign(without, KEYS["c"])
    member().admit(signed(by_c, "a", "b"), KEYS["a"])
    guard("c").path.unlink()
    assert "c is not on the roster" in refused(guard("c").sign, without, KEYS["c"])


def test_two_parties_decide_together():
    two = FIRST.remove_party("c", SeededEntropy(1)).remove_party(SERVER, SeededEntropy(2))
    assert len(two.parties) == two.required_signatures == 2


# --- signing -------------------------------------------------------------------------------------------------------


def test_a_party_signs_one_revision_of_a_number_and_none_below(member):
    second, fork = changed(FIRST, "second"), changed(FIRST, "fork")
    third = changed(second, "third")
    member().sign(second, KEYS["a"])
    member().sign(second, KEYS["a"])  # again, such as after a crash before the roster was written
    assert "a signed another revision 2 of three already" in refused(member().sign, fork, KEYS["a"])
    member().sign(third, KEYS["a"])
    assert "a signed revision 3 of three already" in refused(member().sign, second, KEYS["a"])
    assert accepted(member()) == 1
    member().admit(signed(third, "b", "c", SERVER), KEYS["a"])
    assert "revision 2 of three is older than revision 3" in refused(member().sign, second, KEYS["a"])
    assert accepted(member()) == 3


def test_signing_is_on_disk_before_the_signature_is_given(member, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(revision_guard, "replace_file", full)
    assert "cannot be written: No space left on device" in refused(member().sign, changed(FIRST), KEYS["a"])
    assert "cannot be written" in refused(member().admit, signed(changed(FIRST), *NAMES), KEYS["a"])
    monkeypatch.undo()
    assert accepted(member()) == 1


# --- sequences -----------------------------------------------------------------------------------------------------


def files():
    """Returns revisions with signers: later ones, forks, and what an attacker could make of them."""
    impostors = [card(FOREIGN[name]) for name in NAMES]
    second, fork = changed(FIRST, "second"), changed(FIRST, "fork")
    third = second.remove_party("c", SeededEntropy("third")).add_party(card(KEYS["d"]), SeededEntropy("third"))
    contents = (
        FIRST,
        second,
        fork,
        third,
        changed(second, "open", quorum="none"),
        changed(second, "one", quorum=1),
        changed(third, "fifth"),
        changed(second, "foreign", parties=tuple(impostors), revision=9),
        changed(second, "stripped", quorum="none", revision=10),
    )
    groups = (("a", "b"), ("a", "b", "c"), ("a", "b", SERVER), ("b", SERVER, "d"), tuple(FOREIGN.values()))
    return [(content, signed(content, *signers), _key_set(signers)) for content in contents for signers in groups]


def _key_set(signers):
    return {(each if isinstance(each, Credentials) else KEYS[each]).member.verify_key for each in signers}


@pytest.mark.parametrize("seed", range(2))
def test_no_sequence_leads_to_a_revision_that_the_quorum_did_not_sign(tmp_path, seed):
    # The expectation is computed here from who signed what, without the code under test.
    known = files()
    pairs = list(product(range(len(known)), repeat=2))
    longer = [random.Random(seed).choices(range(len(known)), k=6) for _ in range(150)]
    chosen = [each for number, each in enumerate(pairs) if number % 2 == seed] + longer
    taken = 0
    for number, steps in enumerate(chosen):
        folder = tmp_path / str(number)
        folder.mkdir()
        RevisionGuard(folder / "a.rounds", "a").sign(FIRST, KEYS["a"])
        held = FIRST
        for step in steps:
            content, file, signers = known[step]
            quorum = len(set(held.verify_keys.values()) & signers) >= held.required_signatures
            counts = content is held or (content.revision > held.revision and quorum)
            guard = RevisionGuard(folder / "a.rounds", "a")
            if counts:
                guard.admit(file, KEYS["a"])
                taken, held = taken + (content is not held), content
            else:
                refused(guard.admit, file, KEYS["a"])
            assert accepted(guard) == held.revision
    assert taken > 200  # or the search would show nothing


def test_honest_signers_never_complete_two_revisions_of_one_number(tmp_path):
    # Every order in which three honest parties meet a revision and a fork of it; the fourth signs both.
    second, fork = changed(FIRST, "second"), changed(FIRST, "fork")
    for number, first in enumerate(product((second, fork), repeat=3)):
        tallies = {id(second): {SERVER}, id(fork): {SERVER}}
        for name, choice in zip(("a", "b", "c"), first, strict=True):
            folder = tmp_path / str(number)
            folder.mkdir(exist_ok=True)
            guard = RevisionGuard(folder / f"{name}.rounds", name)
            guard.sign(FIRST, KEYS[name])
            for each in (choice, second, fork):
                try:
                    guard.sign(each, KEYS[name])
                except ConfigError:
                    continue
                tallies[id(each)].add(name)
        assert sum(len(who) >= FIRST.required_signatures for who in tallies.values()) <= 1


def test_who_admits_at_once_keeps_the_newest(member, monkeypatch):
    second = changed(FIRST, "second")
    older, newer = (signed(each, *NAMES) for each in (second, changed(second, "third")))
    has_read, write = threading.Event(), RevisionGuard._write

    def slow_write(guard, state):
        if state.accepted.revision == older.revision:
            has_read.set()
            time.sleep(0.5)  # the other one would be faster, if it did not wait
        write(guard, state)

    monkeypatch.setattr(RevisionGuard, "_write", slow_write)
    first = threading.Thread(target=member().admit, args=(older, KEYS["a"]))
    first.start()
    assert has_read.wait(10)
    member().admit(newer, KEYS["a"])
    first.join()
    assert accepted(member()) == newer.revision


# --- files ---------------------------------------------------------------------------------------------------------


def test_a_file_of_another_party_or_a_damaged_one_is_refused(member, guard):
    copied = guard("b").path
    copied.write_bytes(member().path.read_bytes())
    assert "has no revision that b accepted" in refused(guard("b").admit, signed(FIRST, "b"), KEYS["b"])
    for data in (b"", b"{}", b"\xff", member().path.read_bytes()[:-5]):
        member().path.write_bytes(data)
        assert "has no revision that a accepted" in refused(member().admit, signed(FIRST, "a"), KEYS["a"])


def test_a_folder_in_which_others_can_remove_the_file_is_refused(tmp_path, member):
    tmp_path.chmod(0o777)
    with pytest.raises(UnsafePath, match="can be changed by others"):
        member().admit(signed(FIRST, "a"), KEYS["a"])


def test_moving_the_folder_of_rounds_away_forgets_no_revision(tmp_path, member):
    (tmp_path / "a.rounds").mkdir(exist_ok=True)
    later = signed(changed(FIRST), *NAMES)
    member().admit(later, KEYS["a"])
    Path(tmp_path / "a.rounds").rename(tmp_path / "a.4.rounds")
    assert "is older than revision 2" in refused(member().admit, signed(FIRST, "a"), KEYS["a"])


def test_on_a_mounted_volume_the_file_is_in_the_folder(tmp_path, guard, monkeypatch):
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "a.rounds")
    (tmp_path / "a.rounds").mkdir()
    guard().sign(FIRST, KEYS["a"])
    assert guard().path == tmp_path / "a.rounds" / "roster.accepted"
    RoundStore(tmp_path / "a.rounds", "a", "three").close()  # is still taken for a new folder
    assert accepted(guard()) == 1
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="has not signed revision 1"):
        guard().admit(FIRST, KEYS["a"])


def test_everybody_who_joins_asks_the_guard(tmp_path):
    path = tmp_path / "federation.toml"
    KEYS["a"].create(tmp_path / "a.identity")
    FIRST.save(path)
    assert "a has not signed revision 1" in refused(Membership.of, path, "a")
    RevisionGuard(tmp_path / "a.rounds", "a").sign(FIRST, KEYS["a"]).save(path)
    Membership.of(path, "a")
    changed(FIRST).save(path)
    assert "has 0 of the 3 signatures" in refused(Membership.of, path, "a")
    signed(changed(FIRST), *NAMES).save(path)
    Membership.of(path, "a")
    signed(FIRST, *NAMES).save(path)
    assert "is older than revision 2" in refused(Membership.of, path, "a")


# --- sessions ------------------------------------------------------------------------------------------------------


def test_signatures_do_not_change_the_session():
    assert signed(FIRST, *NAMES).agreement(10).session == FIRST.agreement(10).session
    assert changed(FIRST).agreement(10).session != FIRST.agreement(10).session


def test_signatures_survive_the_file(tmp_path):
    made = signed(FIRST, *NAMES)
    made.save(tmp_path / "federation.toml")
    read = RosterFile.load(tmp_path / "federation.toml")
    assert read == made
    assert read.statement == FIRST.statement
    assert read.signers(read.verify_keys) == NAMES
    wrong = RosterSignature(verify_key=b"short", signature=b"short")
    assert msgspec.structs.replace(read, signatures=(wrong,)).signers(read.verify_keys) == ()


def test_a_roster_of_release_0_2_is_revision_0_and_is_written_without_new_fields(tmp_path):
    plain = msgspec.structs.replace(FIRST, revision=0, quorum="none")
    plain.save(tmp_path / "federation.toml")
    text = (tmp_path / "federation.toml").read_text(encoding="utf-8")
    assert "revision" not in text
    assert "quorum" not in text
    assert RosterFile.load(tmp_path / "federation.toml") == plain
    plain.renew(SeededEntropy(3)).save(tmp_path / "federation.toml")
    assert RosterFile.load(tmp_path / "federation.toml").revision == 1
