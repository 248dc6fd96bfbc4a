"""A party's folder: what it stores and for how long, its owner, and a full disk."""

import errno
import fcntl
import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from support.rounds_on_disk import CASES, Case, Desk
from tacit.core.average import Phase
from tacit.core.errors import ConfigError, Drop, JournalError, NotEnough, TransportError
from tacit.core.messages import PIECE
from tacit.core.suite import Update
from tacit.net.store import round_store, vector_files
from tacit.net.store.index import INDEX_FILE, VERSION, StoreIndex, summarize_store
from tacit.net.store.round_store import RoundStore
from tacit.net.store.store_folder import FILES
from tacit.runtime.atomic_files import open_private
from tacit.runtime.journal import Journal
from tacit.runtime.participant import KeyedParticipant

SECAGG = CASES["secagg"]


@pytest.fixture(autouse=True)
def _closed():
    yield
    while Desk.stores:
        Desk.stores.pop().close()


# --- storing and resuming ------------------------------------------------------------------------------------------


def sat(folder, case=SECAGG, me="p1"):
    return Desk(folder, case.simulation().participants[me].rebuild())


def begun(folder, case=SECAGG, me="p1", number=1):
    desk = sat(folder, case, me)
    desk.begin(number, case.update(me, number), bytes(range(32)))
    return desk


def state_after(desk, number):
    return desk.protocol.encode_state(desk.seat.state, (desk.seat.me, number))


def test_a_new_folder_is_empty(tmp_path):
    with RoundStore(tmp_path / "deep" / "p1", "p1", "test") as store:
        kept = store.load(bytes(32))
        assert (kept.number, kept.journal, kept.update, kept.ending, store.entries) == (0, None, None, None, 0)
        assert kept.state_of(SECAGG.simulation().agreement.protocol) is None
        assert len(store.incarnation) == 16
        incarnation = store.incarnation
    with RoundStore(tmp_path / "deep" / "p1", "p1", "test") as store:
        assert store.incarnation == incarnation
    with RoundStore(tmp_path / "other", "p1", "test") as store:
        assert store.incarnation != incarnation


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", "<i4"])
def test_what_was_brought_comes_back_as_it_was(tmp_path, dtype):
    desk, vector = sat(tmp_path / "p1"), np.arange(6).astype(dtype)[::2]
    desk.begin(1, Update(vector, 0.5), bytes(32))
    desk.store.close()
    kept = sat(tmp_path / "p1").found
    np.testing.assert_array_equal(kept.update.vector, vector)
    assert (kept.update.vector.dtype, kept.update.weight) == (np.dtype(dtype), 0.5)
    assert (kept.number, kept.journal.records, kept.journal.tip) == (1, desk.journal.records, desk.journal.tip)
    assert repr(kept) == "ResumePoint(p1, round 1, interrupted)"


@pytest.mark.parametrize("average", [None, np.arange(3, dtype="f4"), np.arange(3.0)], ids=["none", "single", "double"])
def test_an_ending_comes_back_as_it_was(tmp_path, average):
    desk = begun(tmp_path / "p1")
    error = NotEnough("users", 1, 2, {"p2": Drop.SILENT}) if average is None else None
    ending = replace(
        desk.seat.round.ending,
        average=average,
        contributors=("p0", "p1"),
        dropped={"p2": Drop.SILENT},
        error=error,
        clipped=3,
        largest=np.float64(40.5),
        phases=(Phase("Roster", 1, {"p2": Drop.BEHIND}, 0.25),),
    )
    desk.store.finish(1, state_after(desk, 1), ending)
    desk.store.close()
    kept = sat(tmp_path / "p1").found.ending
    assert replace(kept, average=None, error=None) == replace(ending, average=None, error=None)
    if average is None:
        assert (kept.average, kept.error.code, str(kept.error)) == (None, error.code, str(error))
    else:
        np.testing.assert_array_equal(kept.average, average)
        assert (kept.average.dtype, kept.error, kept.average.flags.writeable) == (average.dtype, None, True)


def test_an_ending_is_kept_until_the_next_round_has_begun_and_its_average_until_the_next_one(tmp_path):
    desk = begun(tmp_path / "p1")
    assert desk.store.load_adopted() is None
    desk.store.finish(1, state_after(desk, 1), replace(desk.seat.round.ending, average=np.ones(3), lineage=b"L" * 32))
    assert (tmp_path / "p1" / "average").stat().st_size == 24
    desk.store.close()
    desk = begun(tmp_path / "p1", number=2)
    number, average, lineage, _ = desk.store.load_adopted()
    assert (number, average.tolist(), lineage) == (1, [1.0, 1.0, 1.0], b"L" * 32)
    # A round without an average adopts nothing.
    desk.store.finish(2, state_after(desk, 2), replace(desk.seat.round.ending, average=None))
    desk.store.close()
    again = sat(tmp_path / "p1")
    assert again.found.ending.average is None
    assert again.store.load_adopted()[0] == 1


def test_a_number_is_begun_once(tmp_path):
    desk = begun(tmp_path / "p1")
    first = desk.journal
    with pytest.raises(ConfigError, match="round 1 is in progress; try: finish or abandon it before the next one"):
        desk.store.begin(first.read()[0], SECAGG.update("p1", 1), 3)
    desk.store.give_up(1, state_after(desk, 1))
    with pytest.raises(ConfigError, match="round 1 cannot begin, because round 1 was begun; try: a later number"):
        desk.store.begin(first.read()[0], SECAGG.update("p1", 1), 3)
    with pytest.raises(ConfigError, match="round 1 is not in progress; the last round that was begun is 1"):
        desk.store.give_up(1, state_after(desk, 1))
    desk.store.close()
    again = sat(tmp_path / "p1")
    assert (again.found.number, again.found.journal, again.found.ending) == (1, None, None)
    again.seat.number = 6  # the others have gone on without it
    again.begin(7, SECAGG.update("p1", 7), bytes(32))
    again.store.close()
    assert sat(tmp_path / "p1").found.number == 7


def test_nothing_is_written_that_does_not_follow(tmp_path):
    desk = begun(tmp_path / "p1")
    desk.store.close()
    with RoundStore(tmp_path / "p1", "p1", "test") as store:
        record = Journal(list(desk.journal.records), desk.journal.tip)
        record.record(desk.protocol, desk.session, "p1", desk.seat.expire())
        with pytest.raises(ConfigError, match="has to be loaded before anything is written"):
            store.record(record.read()[-1])
        store.load(desk.session)
        store.record(record.read()[-1])
        with pytest.raises(ConfigError, match="does not follow the last record of round 1"):
            store.record(record.read()[-1])
        with pytest.raises(ConfigError, match="a round of p1 cannot begin with this record"):
            store.begin(record.read()[-1], None, 3)
    with pytest.raises(ConfigError, match="was closed; try: open it again"):
        store.first_seen(bytes(32), "p2", b"1")


# --- sessions ------------------------------------------------------------------------------------------------------


def elsewhere(place):
    """Returns the participant of a party in another session."""
    return KeyedParticipant(replace(place.agreement, nonce=bytes(16)), place.identity)


@pytest.mark.parametrize("title", ["secagg", "pushsum"])
def test_a_round_of_another_session_is_left_until_the_next_is_begun(title, tmp_path, monkeypatch):
    monkeypatch.setattr(round_store, "SHORT_STATE", CASES[title].short)
    case, place = CASES[title], CASES[title].simulation().participants["p1"]
    desk = begun(tmp_path / "p1", case)
    desk.store.close()
    for _ in range(2):
        other = Desk(tmp_path / "p1", elsewhere(place))
        assert (other.found.number, other.found.journal, other.found.ending) == (1, None, None)
        assert other.found.state_of(other.protocol) == desk.seat.state
        other.store.close()
    again = Desk(tmp_path / "p1", place)  # it was a mistake, and nothing is lost
    assert again.found.journal.records == desk.journal.records
    again.store.close()
    other = Desk(tmp_path / "p1", elsewhere(place))
    other.begin(2, case.update("p1", 2), bytes(32))
    assert other.seat.round.begun.state == desk.seat.state
    other.store.close()
    returned = Desk(tmp_path / "p1", place)
    assert (returned.found.number, returned.found.journal) == (2, None)
    assert returned.found.state_of(returned.protocol) == other.seat.state


def test_a_new_session_goes_on_where_records_are_damaged(tmp_path):
    place, desk = SECAGG.simulation().participants["p1"], begun(tmp_path / "p1")
    desk.store.close()
    path = tmp_path / "p1" / "records"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with (
        RoundStore(tmp_path / "p1", "p1", "test") as store,
        pytest.raises(JournalError, match="are not those of round 1; try: restore them, or begin a new session: tacit"),
    ):
        store.load(desk.session)
    other = Desk(tmp_path / "p1", elsewhere(place))
    assert (other.found.number, other.found.state_of(other.protocol)) == (1, desk.seat.state)
    other.begin(2, SECAGG.update("p1", 2), bytes(32))
    other.store.close()
    assert Desk(tmp_path / "p1", elsewhere(place)).found.number == 2


def test_peers_are_known_by_their_first_incarnation(tmp_path):
    with RoundStore(tmp_path / "p1", "p1", "test") as store:
        assert store.first_seen(b"session 1", "p2", b"first") == b"first"
        assert store.first_seen(b"session 1", "p2", b"first") == b"first"
        assert store.first_seen(b"session 1", "p2", b"second") == b"first"
    with RoundStore(tmp_path / "p1", "p1", "test") as store:
        assert store.first_seen(b"session 1", "p2", b"second") == b"first"
        assert store.first_seen(b"session 1", "p3", b"second") == b"second"
        assert store.first_seen(b"session 2", "p2", b"second") == b"second"


def test_a_bit_of_a_peer_that_was_seen_is_noticed(tmp_path):
    """Otherwise a peer that lost its journal would be taken for one that was never seen."""
    folder, session = tmp_path / "p1", bytes(range(32))
    with RoundStore(folder, "p1", "test") as store:
        for party in ("p2", "p3", "p4"):
            store.first_seen(session, party, party.encode() * 8)
    whole = (folder / INDEX_FILE).read_bytes()
    row = whole.rindex(session + b"p3" + b"p3" * 8)
    for bit in range(8 * len(session + b"p3" + b"p3" * 8)):
        changed = bytearray(whole)
        changed[row + bit // 8] ^= 1 << bit % 8
        (folder / INDEX_FILE).write_bytes(changed)
        with pytest.raises(JournalError, match=r"cannot be used .*; try: move the folder away") as refused:
            RoundStore(folder, "p1", "test")
        assert "\n" not in str(refused.value)
    (folder / INDEX_FILE).write_bytes(whole)
    for statement in ("DELETE FROM peers WHERE party = 'p4'", "DELETE FROM peers"):
        with sqlite3.connect(folder / INDEX_FILE) as database:
            database.execute(statement)
        database.close()
        with pytest.raises(JournalError, match="the peers that were seen were changed"):
            RoundStore(folder, "p1", "test")
        (folder / INDEX_FILE).write_bytes(whole)
    with RoundStore(folder, "p1", "test") as store:
        assert [store.first_seen(session, party, b"?") for party in ("p2", "p3")] == [b"p2" * 8, b"p3" * 8]


def test_a_peer_whose_first_sight_may_be_on_disk_is_seen_again(tmp_path, monkeypatch):
    honest = StoreIndex._commit

    def failing(book, *statements):
        honest(book, *statements)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    with RoundStore(tmp_path / "p1", "p1", "test") as store:
        monkeypatch.setattr(StoreIndex, "_commit", failing)
        with pytest.raises(TransportError):
            store.first_seen(bytes(32), "p2", b"first")
        monkeypatch.setattr(StoreIndex, "_commit", honest)
        assert store.first_seen(bytes(32), "p3", b"second") == b"second"
        assert store.first_seen(bytes(32), "p2", b"second") == b"first"
    with RoundStore(tmp_path / "p1", "p1", "test") as store:
        assert store.first_seen(bytes(32), "p2", b"third") == b"first"
        assert store.first_seen(bytes(32), "p3", b"third") == b"second"


# --- the owner of a folder -----------------------------------------------------------------------------------------


def test_only_the_owner_can_read_it(tmp_path):
    folder = tmp_path / "p1"
    folder.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        desk = begun(folder)
        assert {path.name for path in folder.iterdir()} == set(FILES)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()} == dict.fromkeys(
            FILES, "0o600"
        )
        desk.store.close()
        (folder / INDEX_FILE).chmod(0o644)
        sat(folder).store.close()
        assert stat.S_IMODE((folder / INDEX_FILE).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def _open_and_wait(folder, pipe):
    with RoundStore(folder, "p1", "test"):
        pipe.send(os.getpid())
        pipe.recv()


def test_one_process_at_a_time(tmp_path):
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("forkserver").Process(target=_open_and_wait, args=(tmp_path / "p1", there))
    child.start()
    number = here.recv()
    with pytest.raises(ConfigError, match=f"is in use by process {number}; try: stop that process first"):
        RoundStore(tmp_path / "p1", "p1", "test")
    os.kill(number, signal.SIGKILL)
    child.join()
    with (
        RoundStore(tmp_path / "p1", "p1", "test"),
        pytest.raises(ConfigError, match=f"is in use by process {os.getpid()}"),
    ):
        RoundStore(tmp_path / "p1", "p1", "test")
    with RoundStore(tmp_path / "p1", "p1", "test"):
        pass


def test_folders_of_others_are_refused(tmp_path):
    RoundStore(tmp_path / "p1", "p1", "test").close()
    for party, federation in (("p2", "test"), ("p1", "other")):
        with pytest.raises(ConfigError, match=r"is of p1 in test, not of .* give each party a folder of its own"):
            RoundStore(tmp_path / "p1", party, federation)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch(mode=0o644)
    (tmp_path / "mine").chmod(0o755)
    for path in (tmp_path / "mine", tmp_path / "mine" / "thesis.tex"):
        with pytest.raises(ConfigError, match="exists and is not the folder of a party"):
            RoundStore(path, "p1", "test")
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o755


def test_a_folder_of_another_release_is_refused(tmp_path):
    RoundStore(tmp_path / "p1", "p1", "test").close()
    database = sqlite3.connect(tmp_path / "p1" / INDEX_FILE)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(JournalError, match=f"version 99, not {VERSION}"):
        RoundStore(tmp_path / "p1", "p1", "test")


def test_a_book_that_is_cut_short_is_said_in_one_line(tmp_path):
    desk = begun(tmp_path / "p1")
    for place in range(300):  # so that there is more to be damaged
        desk.store.first_seen(bytes(32), f"peer {place}", bytes(16))
    desk.store.close()
    whole, lines = (tmp_path / "p1" / INDEX_FILE).read_bytes(), set()
    for size in range(512, len(whole), 500):
        (tmp_path / "p1" / INDEX_FILE).write_bytes(whole[:size])
        with pytest.raises(JournalError) as refused:
            RoundStore(tmp_path / "p1", "p1", "test")
        lines.add(str(refused.value))
    (tmp_path / "p1" / INDEX_FILE).write_bytes(whole)
    assert [each for each in lines if not each.isprintable()] == []
    sat(tmp_path / "p1")


def test_nothing_secret_is_left(tmp_path):
    """The seed and the update are on disk only while the round is in progress."""
    case, seed, folder = replace(CASES["pushsum"], entries=40), bytes(range(32)), tmp_path / "p1"
    for ends in (True, False):
        desk = sat(folder, case)
        number = desk.seat.number + 1
        update = case.update("p1", number)
        secrets = [seed, update.vector.tobytes()]
        desk.begin(number, update, seed)
        states = [desk.journal.read()[0].state]
        there = b"".join(path.read_bytes() for path in folder.iterdir())
        assert all(secret in there for secret in (*secrets, *states))
        state = state_after(desk, number)
        if ends:
            desk.store.finish(number, state, replace(desk.seat.round.ending, average=np.zeros(40)))
        else:
            desk.store.give_up(number, state)
        left = b"".join(path.read_bytes() for path in folder.iterdir())
        assert not any(secret in left for secret in (*secrets, *states))
        assert state in left
        desk.store.close()


# --- summaries for other processes ---------------------------------------------------------------------------------


def test_others_can_look_at_any_time(tmp_path):
    folder = tmp_path / "p1"
    with pytest.raises(ConfigError, match="is not the folder of a party"):
        summarize_store(folder)
    desk = sat(folder)
    assert (summarize_store(folder).number, summarize_store(folder).under_way, summarize_store(folder).ending) == (
        0,
        False,
        None,
    )
    update, seed = SECAGG.update("p1", 1), bytes(range(32))
    actions = desk.seat.begin(update, seed, 1.0)
    record = desk.journal.record(desk.protocol, desk.session, "p1", actions)
    desk.store.begin(record, update, 3, at=1000.0)
    record = desk.journal.record(desk.protocol, desk.session, "p1", desk.seat.expire())
    desk.store.record(record, at=1030.5)
    seen = summarize_store(folder)
    assert (seen.party, seen.federation, seen.session) == ("p1", "test", desk.session)
    assert (seen.number, seen.under_way, seen.records, seen.begun, seen.last) == (1, True, 2, 1000.0, 1030.5)
    ending = replace(desk.seat.round.ending, average=np.ones(3), contributors=("p0", "p1"))
    desk.store.finish(1, state_after(desk, 1), ending, at=1060.0)
    for _ in range(2):
        seen = summarize_store(folder)
        assert (seen.number, seen.under_way, seen.last, seen.ending.average) == (1, False, 1060.0, None)
        assert seen.ending.contributors == ("p0", "p1")
        assert not any(secret in repr(seen) for secret in (repr(seed), repr(desk.journal.tip)))
        desk.store.close()
    with sat(folder).store as store:  # and whoever looked has left nothing in the way
        assert store.entries == 3


# --- full disks ----------------------------------------------------------------------------------------------------


def calls(desk, case, number=1):
    """Yields the calls of a round to a store, one after the other, and whether it is the last one."""
    vector = np.random.default_rng(number).normal(size=case.entries)
    update = Update(vector)
    record = desk.journal.record(desk.protocol, desk.session, "p1", desk.seat.begin(update, bytes(32)))
    yield (lambda: desk.store.begin(record, update, case.entries)), False
    while not desk.seat.round.over:
        later = desk.journal.record(desk.protocol, desk.session, "p1", desk.seat.expire())
        yield (lambda later=later: desk.store.record(later)), False
    ending, state = replace(desk.seat.round.ending, average=vector), state_after(desk, number)
    yield (lambda: desk.store.finish(number, state, ending)), True


LARGE = Case("pushsum", {"masked": True}, entries=20_000)


def failing(call):
    """Makes a call; returns what the disk fails it with."""
    try:
        call()
    except TransportError as error:
        return str(error)
    return ""


def survives(folder, full, room):
    """Repeats each call first on a full disk, then with free space, with or without a restart; counts the failures."""
    said = []
    for restart in (False, True):
        desk = sat(folder / str(restart), LARGE)
        for number in (1, 2):
            desk.journal = Journal()
            for call, last in calls(desk, LARGE, number):
                full()
                said.append(failing(call))
                room()
                done = not said[-1]
                if restart and not done:
                    desk.store.close()
                    desk.store = RoundStore(folder / str(restart), "p1", "test")
                    desk.stores.append(desk.store)
                    kept = desk.store.load(desk.session)
                    done = not last and kept.journal is not None and kept.journal.tip == desk.journal.tip
                if not done:
                    call()
        desk.store.close()
        kept = sat(folder / str(restart), LARGE).found
        assert (kept.number, kept.journal, kept.ending.round) == (2, None, 2)
        np.testing.assert_array_equal(kept.ending.average, np.random.default_rng(2).normal(size=LARGE.entries))
    said = [each for each in said if each]
    assert [each for each in said if "\n" in each or not each.endswith("restart")] == []
    return len(said)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, *command[1:]], capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("mounting a small disk takes privileges that this user does not have")
    yield place
    while Desk.stores:
        Desk.stores.pop().close()
    subprocess.run([str(shutil.which("umount")), str(place)], check=True)  # noqa: S603


def test_a_full_disk_is_said_in_one_line_and_loses_nothing(small_disk):
    ballast = small_disk / "ballast"

    def full():
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    assert survives(small_disk, full, ballast.unlink) >= 8


def _limited(folder, pipe):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))

    try:
        failed = sum(
            survives(folder / str(size), lambda size=size: limited(size), lambda: limited(limit[0]))
            for size in (100, 10_000, 100_000)
        )
        pipe.send(failed)
    except BaseException as error:
        pipe.send(repr(error))
        raise


def test_files_that_may_not_grow_are_said_in_one_line_and_lose_nothing(tmp_path):
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("forkserver").Process(target=_limited, args=(tmp_path, there))
    child.start()
    failed = here.recv()
    child.join()
    assert isinstance(failed, int), failed
    assert failed > 12


def test_a_commit_that_fails_may_be_on_disk_all_the_same(tmp_path, monkeypatch):
    """After a disk error either record may be on disk, and the store resumes from both."""
    honest = StoreIndex._commit
    for lands in (False, True):

        def failing(book, *statements, lands=lands):
            if lands:
                honest(book, *statements)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        place = tmp_path / str(lands)
        desk = begun(place)
        later = desk.journal.record(desk.protocol, desk.session, "p1", desk.seat.expire())
        monkeypatch.setattr(StoreIndex, "_commit", failing)
        with pytest.raises(TransportError, match=r"disk I/O error\); try: check the disk, and restart"):
            desk.store.record(later)
        monkeypatch.setattr(StoreIndex, "_commit", honest)
        desk.store.close()
        kept = sat(place).found
        assert (kept.journal.records, kept.journal.tip) == (desk.journal.records, desk.journal.tip)


# --- past the cache ------------------------------------------------------------------------------------------------


LONG_ONES = [PIECE, PIECE + 1, 3 * PIECE - 5, 2 * PIECE + 4096]


def past_cache(monkeypatch, put):
    """Has whatever goes past the cache be written as `put` says; returns how much went there."""
    straight, plain = [], os.pwrite

    def watched(file, data, at):
        if not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            return plain(file, data, at)
        straight.append(len(data))
        return put(plain, file, data, at)

    monkeypatch.setattr(os, "pwrite", watched)
    return straight


def refused(*_):
    raise OSError(errno.EINVAL, "Invalid argument")


def half(plain, file, data, at):
    return plain(file, data[: max(4096, len(data) // 8192 * 4096)], at)


def some(plain, file, data, at):
    return plain(file, data[:512], at)  # as where a file may grow by so much and no more


@pytest.mark.parametrize("put", [lambda plain, *given: plain(*given), half, some, refused])
@pytest.mark.parametrize("at", [0, 57, 4096, 5000])
@pytest.mark.parametrize("size", LONG_ONES)
def test_what_is_long_is_the_same_on_disk_whether_or_not_it_goes_past_the_cache(size, at, put, tmp_path, monkeypatch):
    straight, data = past_cache(monkeypatch, put), np.random.default_rng(size).bytes(size)
    file = open_private(tmp_path / "some")
    before = b"before" * 1000
    assert vector_files.write_at(file, 0, before) == len(before)
    assert vector_files.write_at(file, at, memoryview(data)) == at + size
    assert vector_files.write_at(file, at + size, b"behind") == at + size + 6
    expected = before[:at] + data + b"behind"
    assert vector_files.read_at(file, 0, len(expected) + 1) == expected + before[len(expected) :]
    assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
    os.close(file)
    if straight and put not in (some, refused):  # not every file system goes along
        assert sum(straight) >= size - 2 * 4096


def test_a_disk_that_is_full_past_the_cache_is_said_to_be(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    straight = past_cache(monkeypatch, full)
    file = open_private(tmp_path / "some")
    with suppress(OSError):
        vector_files.write_at(file, 0, bytes(PIECE))
    if not straight:
        pytest.skip("this file system writes nothing past the cache")
    with pytest.raises(OSError, match="No space left"):
        vector_files.write_at(file, 0, bytes(PIECE))
    assert not fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT
    os.close(file)
