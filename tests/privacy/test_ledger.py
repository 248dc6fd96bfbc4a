"""The ledger: how losses add up, what is refused before it is spent, and what survives a crash."""

import json
import math
import multiprocessing
import os
import signal
import time

import msgspec
import pytest

import tacit
from tacit.core.errors import BudgetSpent, ConfigError, JournalError
from tacit.privacy import Ledger, Spent, epsilon_of

DELTA = 1e-5
ROUND = Spent(0.01)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def test_rounds_add_up_for_those_who_were_in_them():
    ledger = Ledger("a run", delta=DELTA)
    for number in range(1, 11):
        ledger.spend(["a", "b"] if number % 2 else ["a"], ROUND, number)
    assert ledger.rho("a") == pytest.approx(0.1)
    assert ledger.rho("b") == pytest.approx(0.05)
    assert ledger.epsilon("a") == pytest.approx(epsilon_of(0.1, DELTA))
    assert (ledger.rho("c"), ledger.epsilon("c")) == (0.0, 0.0)
    assert list(ledger.rounds("b")) == [1, 3, 5, 7, 9]
    assert set(ledger.rounds("a").values()) == {ROUND}
    assert ledger.parties == ("a", "b")


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld"])
def test_what_is_composed_is_what_the_accountant_says_of_it(accountant):
    if accountant != "zcdp":
        pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    ledger = Ledger("a run", delta=DELTA, accountant=accountant)
    for number in range(20):
        ledger.spend("a", Spent.of(10.0), number)
    together = tacit.privacy.accounted_epsilon(10.0, DELTA, honest=1, samples=2, rounds=20, accountant=accountant)
    assert ledger.epsilon("a") == pytest.approx(together, rel=1e-3)


def test_tight_accountants_say_nothing_of_discrete_noise():
    pytest.importorskip("dp_accounting", reason="the tight accountants are those of dp-accounting")
    ledger = Ledger("a run", accountant="pld", budget=1.0)
    with pytest.raises(ConfigError, match="rdp"):
        ledger.spend("a", Spent(0.01, gaussian=False))
    assert ledger.parties == ()


def test_the_round_that_would_be_too_much_is_refused_before_it_is_spent(path):
    ledger, event = Ledger("a run", delta=DELTA, budget=1.0, path=path), Spent(0.001)
    number = 1
    while epsilon_of(ledger.rho("a") + event.rho, DELTA) <= 1.0:
        ledger.spend(["a", "b"] if number > 3 else ["a"], event, number)
        number += 1
    assert number > 5
    with pytest.raises(BudgetSpent) as caught:
        ledger.spend(["a", "b"], event, number)
    assert ledger.epsilon("a") <= 1.0
    assert caught.value.spent == {"a": pytest.approx(epsilon_of(ledger.rho("a") + event.rho, DELTA))}
    assert (caught.value.budget, caught.value.code) == (1.0, "budget")
    assert "budget of ε = 1 for a" in str(caught.value)
    assert number not in ledger.rounds("b"), "who goes on without a is for the caller to say"
    ledger.spend("b", event, number)
    assert Ledger("a run", path=path).rounds("b").keys() == set(range(4, number + 1))


def test_a_round_is_paid_for_once():
    ledger = Ledger("a run", budget=0.2)
    ledger.spend(["a"], Spent(0.0005), 7)
    before = ledger.epsilon("a")
    ledger.spend(["a"], Spent(0.0005), 7)  # resumed, with the same noise
    assert ledger.epsilon("a") == before
    ledger.spend(["b", "a"], Spent(0.0005), 7)
    assert ledger.epsilon("b") == ledger.epsilon("a") == before
    with pytest.raises(JournalError, match="round 7 was charged"):
        ledger.spend(["a"], Spent(0.0004), 7)


def test_a_resumed_round_costs_nothing_even_with_nothing_left():
    ledger = Ledger("a run", budget=epsilon_of(0.01, 1e-5))
    ledger.spend("a", ROUND, 1)
    ledger.spend("a", ROUND, 1)
    with pytest.raises(BudgetSpent):
        ledger.spend("a", ROUND, 2)


def test_rounds_are_numbered_if_nobody_does():
    ledger = Ledger("a run")
    for _ in range(3):
        ledger.spend("a", ROUND)
    ledger.spend(["a", "b"], Spent(0.02))
    assert list(ledger.rounds("a")) == [1, 2, 3, 4]
    assert ledger.rounds("b") == {4: Spent(0.02)}


def test_it_goes_on_where_it_was_after_a_restart(path):
    first = Ledger("a run", path=path)
    for number in range(1, 6):
        first.spend(["a", "b"], ROUND, number)
    again = Ledger("a run", path=path)
    assert again.epsilon("a") == first.epsilon("a")
    again.spend(["a"], Spent(0.5, gaussian=False), 6)
    assert Ledger("a run", path=path).rounds("a")[6] == Spent(0.5, gaussian=False)
    assert again.encode() == path.read_bytes()
    left = {file.name for file in path.parent.iterdir()}
    assert left == {path.name, f"{path.name}.lock"}, "nothing else is left lying around"


def test_long_runs_take_little_room():
    ledger = Ledger("a run")
    for number in range(1, 1001):
        ledger.spend(["a"], ROUND, number)
    assert len(ledger.encode()) < 400
    assert ledger.rho("a") == pytest.approx(10.0)


def test_the_ledger_of_another_run_is_refused(path):
    Ledger("one run", path=path).spend("a", ROUND)
    with pytest.raises(JournalError, match="'one run', not of 'another run'"):
        Ledger("another run", path=path)


def bent(path, change):
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda content: content["spent"].update(a=[]), "damaged or incomplete"),
        (lambda content: content["events"][0].update(rho=0.0), "damaged or incomplete"),
        (lambda content: content.update(version=3), "version 3"),
        (lambda content: content.update(kind="something"), "is not a ledger"),
        (lambda content: content.update(more=1), "cannot be read"),
        (lambda content: content.pop("spent"), "cannot be read"),
    ],
)
def test_a_ledger_that_was_changed_is_refused(path, change, named):
    Ledger("a run", path=path).spend("a", ROUND)
    bent(path, change)
    with pytest.raises(JournalError, match=named) as caught:
        Ledger("a run", path=path)
    assert "restore" not in str(caught.value), "an older copy would forget what was spent since"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", bytes(range(256))])
def test_what_is_no_ledger_is_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(JournalError, match=r"ledger\.json"):
        Ledger("a run", path=path)


def test_a_ledger_that_was_written_in_part_is_refused_and_a_part_is_never_written(path):
    ledger = Ledger("a run", path=path)
    ledger.spend("a", ROUND)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(JournalError):
            Ledger("a run", path=path)


def _spending(path):
    ledger = Ledger("a run", path=path)
    for number in range(1, 1_000_000):
        ledger.spend([f"p{place}" for place in range(20)], ROUND, number)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_whenever_it_is_killed_there_is_a_whole_ledger(path):
    """Every recorded round is recorded for all its parties, and the ledger can be continued."""
    for try_ in range(5):
        child = multiprocessing.get_context("forkserver").Process(target=_spending, args=(path,))
        child.start()
        before = path.stat().st_mtime_ns if path.exists() else 0
        while not path.exists() or path.stat().st_mtime_ns == before:
            time.sleep(0.001)
        time.sleep(0.003 * try_)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        ledger = Ledger("a run", path=path)
        counts = {len(ledger.rounds(f"p{place}")) for place in range(20)}
        assert len(counts) == 1
        assert counts.pop() >= 1


def test_two_processes_with_one_ledger_are_noticed(path):
    one, two = (Ledger("a run", path=path) for _ in range(2))
    one.spend("a", ROUND)
    with pytest.raises(JournalError, match="another process"):
        two.spend("a", ROUND)
    assert two.parties == ()


def _racing(path, number, together, results):
    ledger = Ledger("a run", path=path)
    together.wait()
    try:
        ledger.spend("a", ROUND, number)
        results.put((number, ""))
    except Exception as error:
        results.put((number, type(error).__name__))


def test_of_two_processes_at_once_what_was_spent_is_in_the_file(path):
    """One process writes; the other gets an error, because its copy is no longer the latest."""
    fork = multiprocessing.get_context("forkserver")
    for _ in range(8):
        path.unlink(missing_ok=True)
        Ledger("a run", path=path).spend("a", ROUND, 0)
        together, results = fork.Barrier(2), fork.Queue()
        racing = [fork.Process(target=_racing, args=(path, number, together, results)) for number in (1, 2)]
        for each in racing:
            each.start()
        said = dict(results.get(timeout=60) for _ in racing)
        for each in racing:
            each.join()
        assert sorted(said.values()) == ["", "JournalError"]
        assert set(Ledger("a run", path=path).rounds("a")) == {0, *(number for number, why in said.items() if not why)}


def test_a_ledger_that_cannot_be_written_or_read_is_told_in_a_line(tmp_path):
    ledger = Ledger("a run", path=tmp_path / "nowhere" / "ledger.json")
    with pytest.raises(JournalError, match=r"cannot be written.*nowhere.*a folder that exists"):
        ledger.spend("a", ROUND)
    assert ledger.parties == ()
    with pytest.raises(ConfigError, match="is not a file"):
        Ledger("a run", path=tmp_path)


def test_a_ledger_covers_what_was_in_it_and_no_later_one(path):
    ledger = Ledger("a run", path=path)
    kept = [ledger.encode()]
    for number, parties in ((1, "a"), (2, ["a", "b"]), (3, "a")):
        ledger.spend(parties, ROUND, number)
        kept.append(ledger.encode())
    for each in kept:
        ledger.covers(each)
    path.write_bytes(kept[1])  # rolled back
    with pytest.raises(JournalError, match="older copy; try: put the newest back"):
        Ledger("a run", path=path)
    path.with_name(f"{path.name}.lock").write_bytes(b"written\n")  # as release 0.2 left it
    older = Ledger("a run", path=path)
    older.covers(kept[1])
    with pytest.raises(JournalError, match=r"does not have what a spent in round 2 .*an older copy forgets"):
        older.covers(kept[3])
    path.unlink()
    with pytest.raises(JournalError, match="it was deleted"):
        Ledger("a run", path=path).covers(kept[1])
    Ledger("a run", path=path).covers(kept[0])


def test_of_one_party_only_what_it_spent_is_looked_at(path):
    ledger = Ledger("a run")
    ledger.spend("b", ROUND, 1)
    other = Ledger("a run", path=path)
    other.covers(ledger.encode(), ["a"])
    with pytest.raises(JournalError, match="what b spent in round 1"):
        other.covers(ledger.encode(), ["a", "b"])


def test_a_ledger_that_is_lost_is_not_one_that_was_never_begun(path, monkeypatch):
    ledger = Ledger("a run", path=path)
    assert not ledger.lost

    def killed(*_):
        raise OSError(5, "as if killed")

    monkeypatch.setattr("tacit.privacy.ledger_file.replace_file", killed)
    with pytest.raises(JournalError):
        ledger.spend("a", ROUND)
    monkeypatch.undo()
    assert not Ledger("a run", path=path).lost, "there is a lock, but nothing was paid"
    ledger.spend("a", ROUND)
    assert not Ledger("a run", path=path).lost
    path.unlink()
    assert Ledger("a run", path=path).lost
    assert not Ledger("a run").lost


def test_a_ledger_covers_no_round_that_took_something_else_and_no_other_run():
    kept = {}
    for run, event in (("a run", ROUND), ("another", ROUND), ("a run", Spent(0.02))):
        ledger = Ledger(run)
        ledger.spend("a", event, 1)
        kept[run, event] = ledger.encode()
    with pytest.raises(JournalError, match="round 1"):
        ledger.covers(kept["a run", ROUND])
    with pytest.raises(JournalError, match="'another', not of 'a run'"):
        ledger.covers(kept["another", ROUND])
    with pytest.raises(JournalError, match="damaged or incomplete"):
        ledger.covers(kept["a run", ROUND].replace(b"0.01", b"0.03"))


def test_it_can_be_kept_with_other_things():
    ledger = Ledger("a run")
    ledger.spend(["a", "b"], ROUND, 3)
    kept = ledger.encode()
    again = Ledger("a run")
    again.restore(kept)
    assert again.rounds("b") == {3: ROUND}
    with pytest.raises(JournalError, match="not of 'another'"):
        Ledger("another").restore(kept)
    with pytest.raises(JournalError, match="damaged or incomplete"):
        Ledger("a run").restore(kept.replace(b"0.01", b"0.02"))


def test_a_ledger_with_a_file_takes_nothing_from_elsewhere(path):
    """The stored result of `encode` may be older, and restoring it would undo what was spent since."""
    ledger = Ledger("a run", path=path)
    kept = ledger.encode()
    ledger.spend("a", ROUND)
    with pytest.raises(ConfigError, match="has a file"):
        ledger.restore(kept)


@pytest.mark.parametrize("rho", [-0.1, math.nan, math.inf])
def test_what_cannot_be_spent_is_refused(rho):
    ledger = Ledger("a run")
    with pytest.raises(ConfigError, match="must be a number of at least 0"):
        ledger.spend("a", Spent(rho))
    assert ledger.parties == ()


@pytest.mark.parametrize("number", [-1, 1.5, 1.0, True, "1", math.nan])
def test_rounds_are_whole_numbers(path, number):
    ledger = Ledger("a run", path=path)
    with pytest.raises(ConfigError, match="must be a whole number"):
        ledger.spend("a", ROUND, number)
    assert ledger.parties == ()
    assert not path.exists()


def test_what_a_round_takes_is_read_as_the_number_it_was(path):
    Ledger("a run", path=path).spend("a", Spent(1))
    assert Ledger("a run", path=path).rho("a") == 1.0
    with pytest.raises(ConfigError, match="ρ must be a number of at least 0, not True"):
        Ledger("a run", path=path).spend("a", Spent(True), 2)


def test_impossible_budgets_and_accountants_are_refused():
    with pytest.raises(ConfigError, match="budget"):
        Ledger("a run", budget=0.0)
    with pytest.raises(ConfigError, match="delta"):
        Ledger("a run", delta=0.0)
    with pytest.raises(ConfigError, match="multiplier"):
        Spent.of(0.0)


def test_an_event_is_read_as_it_was_written():
    event = Spent(1 / 3, gaussian=False)
    assert msgspec.json.decode(msgspec.json.encode(event), type=Spent) == event


def test_a_training_loop_stops_when_the_budget_is_spent():
    """Typical use: the loss of a round follows from the terms, and rounds are recorded before they begin."""
    names = ("a", "b", "c", "d")
    federation = tacit.Federation("secagg", names, seed=0, noise=2.0, norm=1.0)
    terms = federation._checked.terms
    event = tacit.privacy.shared_noise(terms, 3, colluders=1).event()
    ledger = Ledger("a run", budget=12.0)
    stopped = False
    for number in range(1, 100):
        try:
            ledger.spend(names, event, number)
        except tacit.BudgetSpent:
            stopped = True
            break
        federation.average([[1.0, 2.0, 3.0]] * 4)
    assert stopped
    assert 1 < number - 1 == federation.rounds == len(ledger.rounds("d"))
