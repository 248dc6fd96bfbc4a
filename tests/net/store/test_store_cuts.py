"""A party that is killed at any moment resumes from its folder; older, mixed or damaged folders are refused."""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from support.rounds_on_disk import CASES, ROUNDS, Desk, Here, Junk, Remote, alone, killed, played, same, waits
from tacit.core import state_blobs
from tacit.core.errors import ConfigError, JournalError
from tacit.core.suite import SERVER
from tacit.net.store import round_entries, round_store
from tacit.net.store.index import INDEX_FILE, StoreIndex
from tacit.net.store.round_store import RoundStore
from tacit.net.store.store_folder import FILES

pytestmark = pytest.mark.long

LOG = (INDEX_FILE, f"{INDEX_FILE}-wal", f"{INDEX_FILE}-shm")


@pytest.fixture
def quick():
    """A folder in memory, if there is such a thing: being killed is the same there, and fsync takes no time."""
    memory = Path("/dev/shm")  # noqa: S108
    made = tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None)
    yield Path(made)
    shutil.rmtree(made)


# --- killed --------------------------------------------------------------------------------------------------------

VICTIMS = [
    ("secagg", "p1"),
    ("secagg", SERVER),
    ("pushsum", "p1"),
    ("cesar", "p1"),
    ("parts", SERVER),
    ("masses", "p1"),
]
QUICK = [pytest.param(*each, marks=[pytest.mark.slow] if each[0] == "secagg" else []) for each in VICTIMS]
"""The others are quicker, and "parts" is the same protocol with longer vectors."""


def cut_everywhere(title, victim, folder, apart, again=0, power=False, junk="", most=None):
    """Kills a party at every step, or at up to `most` steps, and once more after its restart."""
    case, expected = replace(CASES[title], junk=junk), alone(CASES[title])
    undisturbed, remote = killed(case, victim, folder / "undisturbed")
    assert same(undisturbed, expected)
    steps = remote.standing["steps"]
    assert steps > 80
    for step in range(1 + again, steps + 1, max(apart, steps // most if most else 1)):
        place = folder / str(step)
        cuts = (step, 1 + step % again) if again else (step,)
        found, remote = killed(case, victim, place, cuts, power)
        assert same(found, expected), step
        assert 1 <= remote.deaths <= len(cuts), step  # in its last life there may not be as much left to do
        with RoundStore(place, victim, "test") as store:
            kept = store.load(case.simulation().agreement.session)
        assert (kept.number, kept.journal, kept.update) == (ROUNDS, None, None)
        np.testing.assert_array_equal(kept.ending.average, remote.standing["average"])
        shutil.rmtree(place)


@pytest.mark.parametrize(("title", "victim"), QUICK)
def test_a_party_killed_at_any_step_says_the_same_and_nothing_else(title, victim, quick):
    cut_everywhere(title, victim, quick, apart=7, most=10)


@pytest.mark.parametrize(("title", "victim"), QUICK)
def test_a_party_may_be_killed_again_while_it_comes_back(title, victim, quick):
    cut_everywhere(title, victim, quick, apart=17, again=9, most=5)


@pytest.mark.parametrize(("title", "victim"), QUICK)
def test_nothing_is_acted_upon_that_a_failure_of_power_could_undo(title, victim, quick):
    cut_everywhere(title, victim, quick, apart=9, power=True, most=8)


@pytest.mark.slow
@pytest.mark.parametrize("junk", Junk.KINDS)
@pytest.mark.parametrize(("title", "victim"), VICTIMS)
def test_parties_killed_at_every_single_step_while_others_send_junk(title, victim, junk, quick):
    for power in (False, True):
        cut_everywhere(title, victim, quick / str(power), apart=1, power=power, junk=junk)
    cut_everywhere(title, victim, quick / "again", apart=5, again=9, junk=junk)


@pytest.mark.slow
@pytest.mark.parametrize(("title", "victim"), VICTIMS)
def test_parties_killed_at_every_single_step_and_again(title, victim, quick):
    for power in (False, True):
        cut_everywhere(title, victim, quick / str(power), apart=1, power=power)
    for again in (5, 9, 14):
        cut_everywhere(title, victim, quick / str(again), apart=3, again=again)


def test_killed_lives_are_counted():
    """What the tests above rely on."""
    with tempfile.TemporaryDirectory() as folder:
        remote = Remote(
            Path(folder) / "p1", CASES["secagg"].simulation().participants["p1"].rebuild(), CASES["secagg"], (3, 5)
        )
        remote.stop()
    assert remote.deaths == 2


# --- messages of other parties -------------------------------------------------------------------------------------


class Watching(Here):
    """A party in this process, whose folder is copied before every step, and halfway through each write."""

    def __init__(self, folder, place, to, monkeypatch):
        self._folder, self._to, self._doing, self.copies, self.tips = folder, to, "", [], {}
        self.desk = None
        put, cut, commit = os.pwrite, os.ftruncate, StoreIndex._commit

        def half(file, data, at):
            self._copy()
            put(file, memoryview(data)[: len(data) // 2], at)
            self._copy()
            return put(file, data, at)

        def shorter(file, size):
            self._copy()
            cut(file, size)

        def committed(book, *statements):
            self._copy()
            commit(book, *statements)
            self._copy()

        monkeypatch.setattr(os, "pwrite", half)
        monkeypatch.setattr(os, "ftruncate", shorter)
        monkeypatch.setattr(StoreIndex, "_commit", committed)
        self.desk = Desk(folder, place)

    def ask(self, method, *arguments):
        self._doing = method
        posts = getattr(self.desk, method)(*arguments)
        self.tips[self.desk.seat.number] = [
            round_entries.decode_record(each).digest() for each in self.desk.journal.records
        ]
        return [(post.address, post.data) for post in posts]

    def _copy(self):
        copy = self._to / str(len(self.copies))
        shutil.copytree(self._folder, copy)
        self.copies.append((copy, self._doing, None if self.desk is None else self.desk.store._round))

    @property
    def standing(self):
        return {**waits(self.desk.seat.round), "average": None, "state": b""}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("junk", Junk.KINDS)
@pytest.mark.parametrize(
    ("title", "victim"),
    [("secagg", "p1"), ("pushsum", "p1"), pytest.param("parts", SERVER, marks=pytest.mark.slow), ("masses", "p1")],
)
def test_what_others_send_is_never_taken_for_a_record(title, victim, junk, quick, monkeypatch):
    """Whatever bytes follow the records, the party resumes from the last record on disk, or the next one."""
    case = CASES[title]
    monkeypatch.setattr(round_store, "SHORT_STATE", case.short)
    monkeypatch.setattr(state_blobs, "LONG", case.long)
    simulation = case.simulation()
    seat, session = simulation.participants[victim].rebuild(), simulation.agreement.session
    place = SimpleNamespace(me=victim, agreement=seat.agreement, identity=seat.identity, junk=junk)
    with monkeypatch.context() as watched:
        watching = Watching(quick / "real", place, quick, watched)
        desks = {party: watching if party == victim else Here(seat) for party, seat in simulation.participants.items()}
        played(case, desks, simulation)
        watching.desk.store.close()
    assert len(watching.copies) > 80
    for copy, doing, standing in watching.copies:
        with RoundStore(copy, victim, "test") as store:
            kept = store.load(session)
        if standing is None:
            assert (kept.number, kept.journal) == (0, None)
            continue
        assert kept.number in (standing.number, standing.number + 1)
        if kept.journal is None:
            assert not standing.under_way or doing == "finish"
            continue
        before = standing.records if kept.number == standing.number else 0
        assert len(kept.journal.records) in (before, before + 1)
        tips = [round_entries.decode_record(each).digest() for each in kept.journal.records]
        assert tips == watching.tips[kept.number][: len(tips)]


# --- copies from another time --------------------------------------------------------------------------------------


class Watched(Here):
    """A party in this process, whose folder is copied after every call."""

    def __init__(self, folder, place):
        self._folder, self._place, self.copies = folder, place, []
        self.desk = Desk(folder, place)
        self._copy()

    def ask(self, method, *arguments):
        before = len(self.desk.journal.records)
        posts = getattr(self.desk, method)(*arguments)
        if method != "deliver" or len(self.desk.journal.records) != before:
            self._copy()
        return [(post.address, post.data) for post in posts]

    def _copy(self):
        copy = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        seat, over = self.desk.seat, not self.desk.journal.records or self.desk.ending is not None
        self.copies.append((copy, seat.number, None if over else list(self.desk.journal.records)))
        if self.desk.ending is not None and self.desk.ending.round == seat.number:
            self.desk = self._reopened()

    def _reopened(self):
        self.desk.store.close()
        return Desk(self._folder, self._place)

    @property
    def standing(self):
        return {**waits(self.desk.seat.round), "average": None, "state": b""}


def copies(title, victim, folder):
    """Returns the folder of a party after every call, by the names of its files, and where it then stood."""
    case = CASES[title]
    simulation = case.simulation()
    watched = Watched(folder, simulation.participants[victim].rebuild())
    desks = {party: watched if party == victim else Here(seat) for party, seat in simulation.participants.items()}
    played(case, desks, simulation)
    watched.desk.store.close()
    return watched.copies, simulation.agreement


def put(folder, copy):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in copy.items():
        (folder / name).write_bytes(data)


def found(folder, party, agreement):
    """Returns what a party would resume from, in a comparable form; None if the folder is refused."""
    try:
        with RoundStore(folder, party, "test") as store:
            kept = store.load(agreement.session)
            state, incarnation = kept.state_of(agreement.protocol), store.incarnation
    except (JournalError, ConfigError):
        return None
    update = kept.update and (kept.update.vector.dtype.str, kept.update.vector.tobytes(), kept.update.weight)
    ending = kept.ending and (
        replace(kept.ending, average=None, error=None),
        str(kept.ending.error),
        None if kept.ending.average is None else kept.ending.average.tobytes(),
    )
    journal = kept.journal and (kept.journal.records, kept.journal.tip)
    protocol = agreement.protocol
    return kept.number, journal, update, ending, state and protocol.encode_state(state), incarnation


@pytest.mark.parametrize(
    ("title", "victim"), [VICTIMS[0], pytest.param(*VICTIMS[1], marks=pytest.mark.slow), VICTIMS[2]]
)
def test_copies_from_another_time_are_refused_or_nothing_is_lost(title, victim, quick, monkeypatch):
    monkeypatch.setattr(round_store, "SHORT_STATE", CASES[title].short)
    every, agreement = copies(title, victim, quick / "real")
    again, refused = quick / "again", 0
    truths = []
    for copy, number, records in every:
        put(again, copy)
        truths.append(found(again, victim, agreement))
        assert truths[-1][0] == number
        assert records is None or truths[-1][1][0] == records
    assert len({truth[:2] if truth[1] is None else (truth[0], truth[1][1]) for truth in truths}) == len(truths)
    for now, (copy, *_) in enumerate(every):
        for then, (older, *_) in enumerate(every[:now]):
            for names in (("records",), LOG, (*LOG, "average", "state"), ("average",), ("state",)):
                mixed = {name: (older if name in names else copy).get(name, b"") for name in FILES}
                put(again, mixed)
                outcome = found(again, victim, agreement)
                assert outcome in (None, truths[now]), (now, then, names)
                refused += outcome is None
            put(again, older)
            assert found(again, victim, agreement) == truths[then], "all of it from one moment is what was then"
    assert refused > len(every) ** 2


def test_older_records_are_refused_in_mid_round(quick):
    every, agreement = copies("secagg", "p1", quick / "real")
    for (copy, _, now), (older, _, then) in zip(every[1:], every, strict=False):
        if now and then:
            put(quick / "again", {**copy, "records": older["records"]})
            with (
                RoundStore(quick / "again", "p1", "test") as store,
                pytest.raises(JournalError, match=r"not those of round \d; try: restore them, or begin a new session"),
            ):
                store.load(agreement.session)


def test_an_older_book_is_refused_in_every_session(quick):
    every, agreement = copies("secagg", "p1", quick / "real")
    copy, older = every[-1][0], every[2][0]
    put(quick / "again", {**copy, **{name: older[name] for name in LOG}})
    for session in (agreement.session, bytes(32)):
        with (
            RoundStore(quick / "again", "p1", "test") as store,
            pytest.raises(JournalError, match=r"older copy, from before round 2 ended\); try: move the folder away"),
        ):
            store.load(session)


@pytest.mark.parametrize("left", ["nothing", "empty files", "one file"])
def test_a_book_of_any_time_is_refused_without_the_records(left, quick):
    """An older copy would look like the newest one, and rounds would be begun a second time."""
    every, _ = copies("secagg", "p1", quick / "real")
    for older, *_ in every:
        put(quick / "again", older)
        for name in ("records", "records.other") if left != "one file" else ("records.other",):
            (quick / "again" / name).unlink()
            if left == "empty files":
                (quick / "again" / name).touch()
        for _ in range(2):
            with pytest.raises(
                JournalError,
                match=r"its logs are gone, .*\); try: "
                "move the folder away, and begin a new",
            ):
                RoundStore(quick / "again", "p1", "test")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("moment", ["in mid-round", "over"])
@pytest.mark.parametrize("title", ["secagg", "pushsum"])
def test_flipped_bits_are_noticed_or_harmless(title, moment, quick, monkeypatch):
    monkeypatch.setattr(round_store, "SHORT_STATE", CASES[title].short)
    every, agreement = copies(title, "p1", quick / "real")
    copy = every[-1][0] if moment == "over" else [copy for copy, _, records in every if records][-2]
    put(quick / "again", copy)
    truth, rng, noticed = found(quick / "again", "p1", agreement), np.random.default_rng(0), set()
    for name, data in copy.items():
        for place in rng.choice(len(data), size=min(len(data), 250), replace=False).tolist():
            changed = bytearray(data)
            changed[place] ^= 1 << int(rng.integers(8))
            put(quick / "again", {**copy, name: bytes(changed)})
            outcome = found(quick / "again", "p1", agreement)
            assert outcome in (None, truth), (name, place)
            if outcome is None:
                noticed.add(name)
    assert {INDEX_FILE, *(("records",) if moment == "in mid-round" else ("average",))} <= noticed


@pytest.mark.parametrize("name", [INDEX_FILE, "records", "average", "state"])
def test_a_file_that_is_gone_is_noticed_if_it_matters(name, quick, monkeypatch):
    monkeypatch.setattr(round_store, "SHORT_STATE", 10)
    every, agreement = copies("pushsum", "p1", quick / "real")
    for copy, _, records in every[1:]:
        put(quick / "again", copy)
        truth = found(quick / "again", "p1", agreement)
        put(quick / "again", copy)
        (quick / "again" / name).unlink()
        needed = name in (INDEX_FILE, "records") or records is None
        assert found(quick / "again", "p1", agreement) == (None if needed else truth)
