"""The ledger of data: all runs add up within one budget, even at the same time, and changed data need a decision."""

import json
import multiprocessing
import os
import signal
import time

import pytest

from tacit.core.errors import BudgetSpent, ConfigError, JournalError, UnsafePath
from tacit.privacy import Ledger, PlanExceeds, Spent, epsilon_of, ledger_file, read_ledger, set_budget
from tacit.privacy.ledger_file import lock_path

ROUND = Spent(0.01)
RUN = {"delta": 1e-5, "data": "aaaa", "unit": "user"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def test_four_runs_add_up(path):
    """Each run spent ε = 1.98, and together they spent 4.12."""
    alone = epsilon_of(0.0813, 1e-5)
    for number in range(4):
        ledger = Ledger(f"run {number}", path=path, **RUN)
        ledger.spend(["p0", "p1"], Spent(0.0813))
        assert ledger.epsilon("p0") == pytest.approx(alone)
    state = read_ledger(path)
    assert alone == pytest.approx(2.02, abs=0.01)
    assert state.epsilon == pytest.approx(epsilon_of(4 * 0.0813, 1e-5)) == pytest.approx(4.19, abs=0.01)
    assert [each.run for each in state.runs] == [f"run {number}" for number in range(4)]
    assert (state.data, state.unit) == ("aaaa", "user")


def test_the_party_that_spent_most_counts_in_each_run(path):
    """Another run may give the samples of one party to another."""
    one, two = (Ledger(name, path=path, **RUN) for name in ("one", "two"))
    one.spend(["p0", "p1"], ROUND)
    one.spend("p0", ROUND)
    two.spend("p1", Spent(0.05))
    assert read_ledger(path).rho == pytest.approx(0.02 + 0.05)


def test_a_run_per_sample_makes_the_total_one_per_sample(path):
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    assert read_ledger(path).unit == "user"
    Ledger("two", path=path, **{**RUN, "unit": "sample"}).spend("p0", ROUND)
    assert read_ledger(path).unit == "sample"


def test_a_plan_that_would_exceed_the_budget_is_refused_and_says_what_is_left(path):
    set_budget(path, 2.0, 1e-5)
    first = Ledger("one", path=path, **RUN)
    first.check_plan(ROUND, 5)
    for _ in range(5):
        first.spend("p0", ROUND)
    second = Ledger("two", path=path, **RUN)
    before = path.read_bytes()
    with pytest.raises(PlanExceeds, match=r"would spend ε = 1\.\d+, and 1\.\d+ is left of the budget of 2 ") as caught:
        second.check_plan(ROUND, 5)
    assert caught.value.code == "budget"
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    # Exactly the reported remainder can be spent.
    rho = 0.0
    while epsilon_of(0.05 + rho + 1e-5, 1e-5) <= 2.0:
        rho += 1e-5
    assert caught.value.left == pytest.approx(epsilon_of(rho, 1e-5), rel=1e-3)
    second.check_plan(Spent(rho), 1)
    with pytest.raises(PlanExceeds):
        second.check_plan(Spent(rho + 2e-5), 1)


def test_a_round_that_would_exceed_the_budget_is_refused_though_the_plan_was_not(path):
    set_budget(path, epsilon_of(0.03, 1e-5), 1e-5)
    one, two = (Ledger(name, path=path, **RUN) for name in ("one", "two"))
    for each in (one, two):
        each.check_plan(ROUND, 2)
    one.spend("p0", ROUND)
    two.spend("p0", ROUND)
    one.spend("p0", ROUND)
    with pytest.raises(BudgetSpent, match="all runs on these data"):
        two.spend("p0", ROUND)
    assert read_ledger(path).rho == pytest.approx(0.03)


def test_changed_data_are_asked_about(path):
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    before = path.read_bytes()
    changed = {**RUN, "data": "bbbb"}
    with pytest.raises(
        ConfigError, match=r"ledger belongs to data aaaa, not of bbbb .*--same-people .*--new-people"
    ) as caught:
        Ledger("two", path=path, **changed)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    same = Ledger("two", path=path, people="same", **changed)
    assert path.read_bytes() == before, "nothing is written before something is spent"
    same.spend("p0", ROUND)
    state = read_ledger(path)
    assert (state.data, state.earlier, len(state.runs)) == ("bbbb", ("aaaa",), 2)
    Ledger("three", path=path, **RUN).spend("p0", ROUND)  # as they were before
    assert read_ledger(path).rho == pytest.approx(0.03)


def test_data_of_new_people_begin_a_new_ledger_and_the_old_one_is_kept(path):
    set_budget(path, 3.0, 1e-6)
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    before = path.read_bytes()
    fresh = Ledger("two", path=path, people="new", **{**RUN, "data": "bbbb"})
    assert path.read_bytes() == before
    fresh.spend("p0", ROUND)
    state = read_ledger(path)
    assert (state.data, state.earlier, [each.run for each in state.runs]) == ("bbbb", (), ["two"])
    assert (state.budget, state.delta) == (3.0, 1e-6)
    assert path.with_name("ledger-aaaa.json").read_bytes() == before
    with pytest.raises(ConfigError, match="leave out --new-people"):
        Ledger("three", path=path, people="new", **{**RUN, "data": "bbbb"})
    fresh.spend("p0", ROUND)  # the same process goes on
    assert read_ledger(path).rho == pytest.approx(0.02)


def test_a_ledger_of_an_earlier_release_is_migrated_once_somebody_says_whose_it_is(path):
    Ledger("old run", path=path).spend(["p0", "p1"], ROUND, 3)
    assert json.loads(path.read_bytes())["version"] == 1
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="ledger belongs to a run that names no data"):
        Ledger("two", path=path, **RUN)
    assert path.read_bytes() == before
    Ledger("two", path=path, people="same", **RUN).spend("p0", ROUND)
    state = read_ledger(path)
    assert json.loads(path.read_bytes())["version"] == 2
    assert [each.run for each in state.runs] == ["old run", "two"]
    assert state.rho == pytest.approx(0.02)
    assert state.unit == "sample", "what an old run protected is not known"


def test_a_budget_may_be_set_before_the_first_run_and_on_a_ledger_of_an_earlier_release(path, tmp_path):
    set_budget(path, 1.5)
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    assert read_ledger(path).data == "aaaa"
    old = tmp_path / "old.json"
    Ledger("old run", path=old).spend("p0", ROUND)
    assert set_budget(old, 1.0).runs[0].run == "old run"
    again = Ledger("old run", path=old)
    again.spend("p0", ROUND)
    with pytest.raises(BudgetSpent):
        again.spend("p0", ROUND)
    assert read_ledger(old).epsilon <= 1.0
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="budget"):
            set_budget(path, wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(budget=99.0),
        lambda content: content.update(data="cccc"),
        lambda content: content["runs"].pop(),
        lambda content: content["runs"][0]["events"][0].update(rho=0.0),
        lambda content: content.update(version=3),
        lambda content: content.update(kind="something"),
    ],
)
def test_a_damaged_ledger_is_refused_in_one_line(path, change):
    set_budget(path, 2.0)
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    for use in (lambda: Ledger("two", path=path, **RUN), lambda: read_ledger(path), lambda: set_budget(path, 5.0)):
        with pytest.raises(JournalError) as caught:
            use()
        assert "\n" not in str(caught.value)
        assert json.loads(path.read_bytes()) == content


def test_a_ledger_of_data_that_is_gone_is_not_begun_anew(path):
    ledger = Ledger("one", path=path, **RUN)
    ledger.spend("p0", ROUND)
    kept = path.read_bytes()
    path.unlink()
    for use in (
        lambda: Ledger("two", path=path, **RUN),
        lambda: ledger.spend("p0", ROUND),
        lambda: set_budget(path, 9.0),
    ):
        with pytest.raises(JournalError, match="is missing, and rounds were charged to it"):
            use()
    assert not path.exists()
    path.write_bytes(kept)
    ledger.spend("p0", ROUND)


def test_a_link_to_a_ledger_is_refused(path, tmp_path):
    """It may lead to another user's file, and replacing the link would leave the ledger unchanged."""
    Ledger("one", path=path, **RUN).spend("p0", ROUND)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with pytest.raises(UnsafePath, match="is a symbolic link"):
        Ledger("two", path=link, **RUN)
    assert read_ledger(path).rho == pytest.approx(0.01)


def _racing(path, name, together, results):
    ledger = Ledger(name, path=path, **RUN)
    together.wait()
    done = 0
    try:
        for _ in range(50):
            ledger.spend("p0", ROUND)
            done += 1
    except BudgetSpent:
        pass
    results.put((name, done))


def test_runs_at_once_never_spend_more_than_there_is(path):
    """Each checks and writes under one lock, so that only one of them has the last of it."""
    set_budget(path, epsilon_of(0.25, 1e-5), 1e-5)
    fork = multiprocessing.get_context("forkserver")
    together, results = fork.Barrier(4), fork.Queue()
    racing = [fork.Process(target=_racing, args=(path, f"run {n}", together, results)) for n in range(4)]
    for each in racing:
        each.start()
    done = dict(results.get(timeout=120) for _ in racing)
    for each in racing:
        each.join()
    state = read_ledger(path)
    assert sum(done.values()) == 25
    assert {each.run: each.rounds for each in state.runs} == {name: count for name, count in done.items() if count}
    assert state.epsilon <= state.budget * (1 + 1e-9)


def _spending(path, name):
    ledger = Ledger(name, path=path, **RUN)
    for _ in range(100_000):
        ledger.spend("p0", ROUND)


def test_a_run_that_is_killed_leaves_a_whole_ledger_and_no_lock(path):
    fork = multiprocessing.get_context("forkserver")
    for number in range(4):
        child = fork.Process(target=_spending, args=(path, f"run {number}"))
        child.start()
        while not path.exists() or len(read_ledger(path).runs) <= number:
            time.sleep(0.001)
        time.sleep(0.004 * number)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        before = read_ledger(path)
        assert len(before.runs) == number + 1
        Ledger(f"run {number}", path=path, **RUN).spend("p0", ROUND)  # goes on
        assert read_ledger(path).rho == pytest.approx(before.rho + ROUND.rho)


def test_two_processes_of_one_run_are_noticed(path):
    one, two = (Ledger("one", path=path, **RUN) for _ in range(2))
    one.spend("p0", ROUND)
    with pytest.raises(JournalError, match="another process has written"):
        two.spend("p0", ROUND)


def test_a_distinct_release_is_charged_and_the_same_one_is_not(path):
    ledger = Ledger("one", path=path, **RUN)
    for release in ("r1", "r1", "r2", "r1", "r2"):
        ledger.spend(["p0", "p1"], ROUND, 1, release=release)
    assert ledger.rho("p0") == pytest.approx(0.02)
    again = Ledger("one", path=path, **RUN)
    again.spend(["p0"], ROUND, 1, release="r2")
    assert again.rho("p0") == pytest.approx(0.02)
    kept = again.encode()
    for number in range(2, 500):
        again.spend(["p0", "p1"], ROUND, number, release=f"of {number}")
    again.covers(kept)
    assert len(path.read_bytes()) < 700, "releases of long ago are forgotten"
    again.spend(["p0"], ROUND, 1, release="r1")
    assert again.rho("p0") == pytest.approx(0.02 + 498 * 0.01 + 0.01), "and paid for again"


def test_an_older_copy_that_is_put_back_is_refused(path):
    """The older copy lacks what was spent since, and a new run began with it."""
    copies = [set_budget(path, 2.0) and path.read_bytes()]
    ledger = Ledger("one", path=path, **RUN)
    for _ in range(3):
        ledger.spend("p0", ROUND)
        copies.append(path.read_bytes())
    for older in copies[:-1]:
        path.write_bytes(older)
        for use in (
            lambda: Ledger("two", path=path, **RUN),
            lambda: ledger.spend("p0", ROUND),
            lambda: read_ledger(path),
            lambda: set_budget(path, 9.0),
        ):
            with pytest.raises(JournalError, match="older copy; try: put the newest back") as caught:
                use()
            assert "\n" not in str(caught.value)
        assert path.read_bytes() == older
    path.write_bytes(copies[-1])
    ledger.spend("p0", ROUND)
    assert read_ledger(path).rho == pytest.approx(0.04)


class Killed(BaseException):
    """End of a process, which cleans up nothing."""


@pytest.mark.parametrize("lock", ["none", "empty", "of 0.2", "hashes"])
@pytest.mark.parametrize("twice", [False, True])
def test_whenever_a_writer_is_killed_the_ledger_goes_on(path, monkeypatch, lock, twice):
    """Every step of a write is cut off before it, after it, and within: also that of the write which follows."""
    steps = {"pwrite": os.pwrite, "replace": ledger_file.replace_file}

    def cut_at(number, part):
        left = [number]

        def count(do, torn):
            left[0] -= 1
            if left[0] == 0:
                torn()
                raise Killed
            return do()

        def pwrite(file, data, place):
            return count(
                lambda: steps["pwrite"](file, data, place),
                lambda: steps["pwrite"](file, data[: int(part * len(data))], place),
            )

        def replace_file(place, data):
            whole = lambda: steps["replace"](place, data)  # noqa: E731
            return count(whole, whole if part == 1 else lambda: None)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(ledger_file, "replace_file", replace_file)

    def spend_and_die(run, number, part):
        cut_at(number, part)
        try:
            Ledger(run, path=path, **RUN).spend("p0", ROUND)
        except Killed:
            return True
        finally:
            monkeypatch.undo()
        return False

    number, cut = 0, True
    while cut:
        number += 1
        for part in (0, 0.5, 1):
            for each in (path, lock_path(path)):
                each.unlink(missing_ok=True)
            if lock != "none":
                Ledger("first", path=path, **RUN).spend("p0", ROUND)
            if lock in ("empty", "of 0.2"):
                lock_path(path).write_bytes(b"written\n" if lock == "of 0.2" else b"")
            paid = 0.01 * (lock != "none")
            cut = spend_and_die("second", number, part)
            if twice:
                for again in (1, 2, 3):
                    spend_and_die(f"again {again}", again, part)
            Ledger("third", path=path, **RUN).spend("p0", ROUND)
            state = read_ledger(path)
            assert state.record_of("third").rounds == 1
            assert state.rho >= paid + 0.01 - 1e-12
            older = path.read_bytes()
            Ledger("fourth", path=path, **RUN).spend("p0", ROUND)
            path.write_bytes(older)
            with pytest.raises(JournalError, match="older copy"):
                read_ledger(path)
    assert number > 2


def test_a_reader_beside_a_writer_never_takes_the_newest_for_an_older_copy(path):
    fork = multiprocessing.get_context("forkserver")
    child = fork.Process(target=_spending, args=(path, "one"))
    child.start()
    while not path.exists():
        time.sleep(0.001)
    for _ in range(2000):
        read_ledger(path)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    read_ledger(path)
