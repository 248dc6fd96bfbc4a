"""Runs on data of one's own: all of them pay into the ledger of the data."""

import shutil

import numpy as np
import pytest

from tacit.core.errors import BudgetSpent, ConfigError, JournalError
from tacit.lab import comparison
from tacit.learn.data import datasets
from tacit.learn.privacy.data_ledger import choose_node_ledger
from tacit.learn.scenario import Scenario
from tacit.learn.training.assemble import load_data
from tacit.learn.training.run_folder import KEY, LEDGER
from tacit.learn.training.train import train
from tacit.privacy import Ledger, Spent, read_ledger, set_budget


@pytest.fixture
def clinic(tmp_path):
    """Returns a folder with samples of four parties."""
    place = tmp_path / "clinic"
    place.mkdir()
    write(place)
    return place


def write(place, seed=0):
    rng = np.random.default_rng(seed)
    for name in ("north", "south", "west", "east"):
        np.savez(place / f"{name}.npz", x=rng.normal(size=(60, 5)), y=rng.integers(3, size=60))


def scenario(place, epsilon=2.0, **more):
    given = {
        "rounds": 2,
        "data": {"folder": str(place), "parties": 4, "options": {"classes": 3}},
        "local": {"rate": 0.5, "batch": 40, "steps": 1},
        "protocol": "secagg",
        "privacy": {"epsilon": epsilon, "clip": 1.0},
    }
    return Scenario.of({**given, **more})


def test_runs_on_the_same_data_add_up_whatever_their_scenario_and_folder(clinic, tmp_path):
    """Four runs said ε = 1.98 each, and nothing said that together they are 4.12."""
    alone = []
    data = {"folder": str(clinic), "parties": 4, "options": {"classes": 3}}
    for number, more in enumerate(({}, {"seed": 3}, {"data": {**data, "train": 100, "test": 20}}, {"rounds": 3})):
        run = train(scenario(clinic, **more), folder=tmp_path / f"run {number}")
        alone.append(run.history[-1].epsilon)
        assert f"{number + 1} run" in run.notes[-1]
    state = read_ledger(clinic / LEDGER)
    assert len(state.runs) == 4
    assert alone == pytest.approx([2.0] * 4, rel=0.02)
    assert 4.0 < state.epsilon < 4.3
    assert f"ε = {state.epsilon:.4g} together" in run.notes[-1]
    assert not (tmp_path / "run 0" / LEDGER).exists()
    assert all(each.began.endswith("Z") and "distributed noise" in each.mechanism for each in state.runs)


def test_a_run_that_would_exceed_the_budget_is_refused_before_it_starts(clinic, tmp_path):
    set_budget(clinic / LEDGER, 2.5, 1e-5)
    train(scenario(clinic), folder=tmp_path / "one")
    before = (clinic / LEDGER).read_bytes()
    with pytest.raises(BudgetSpent, match=r"this run would spend ε = (2|1\.99\d*), and 1\.\d+ is left") as caught:
        train(scenario(clinic), folder=tmp_path / "two")
    assert "\n" not in str(caught.value)
    assert (clinic / LEDGER).read_bytes() == before
    assert not (tmp_path / "two").exists(), "nothing is remembered"
    train(scenario(clinic, epsilon=0.9), folder=tmp_path / "two")
    with pytest.raises(BudgetSpent, match="would spend ε = inf"):
        train(scenario(clinic, privacy=None), folder=tmp_path / "without noise")
    before = (clinic / LEDGER).read_bytes()
    with pytest.raises(BudgetSpent, match="is left of the budget"):
        comparison.compare(scenario(clinic), [comparison.parse_variant("secagg")])
    assert (clinic / LEDGER).read_bytes() == before


def test_changed_data_are_asked_about_and_unchanged_ones_are_not(clinic, tmp_path):
    train(scenario(clinic), folder=tmp_path / "one")
    before = (clinic / LEDGER).read_bytes()
    for name in ("north", "south", "west", "east"):  # written again, as they were
        stored = dict(np.load(clinic / f"{name}.npz"))
        np.savez_compressed(clinic / f"{name}.npz", **stored)
    train(scenario(clinic, epsilon=0.5), folder=tmp_path / "two")
    assert len(read_ledger(clinic / LEDGER).runs) == 2
    before = (clinic / LEDGER).read_bytes()
    write(clinic, seed=1)
    with pytest.raises(ConfigError, match="--same-people"):
        train(scenario(clinic), folder=tmp_path / "three")
    assert (clinic / LEDGER).read_bytes() == before
    assert not (tmp_path / "three" / KEY).exists()
    train(scenario(clinic), folder=tmp_path / "three", people="same")
    assert len(read_ledger(clinic / LEDGER).runs) == 3
    write(clinic, seed=2)
    train(scenario(clinic), folder=tmp_path / "four", people="new")
    assert len(read_ledger(clinic / LEDGER).runs) == 1
    assert len(list(clinic.glob("ledger-*.json"))) == 1


def test_a_run_is_resumed_on_the_ledger_of_its_data_and_paid_for_once(clinic, tmp_path):
    class Cut(Exception):
        pass

    def cut(_):
        raise Cut

    set_budget(clinic / LEDGER, 2.01, 1e-5)
    with pytest.raises(Cut):
        train(scenario(clinic), folder=tmp_path / "one", on_round=cut)
    copy = shutil.copytree(tmp_path / "one", tmp_path / "copy")
    first = train(scenario(clinic), folder=tmp_path / "one", resume=True)
    assert len(first.history) == 2
    (record,) = read_ledger(clinic / LEDGER).runs
    assert record.rounds == 2
    second = train(scenario(clinic), folder=copy, resume=True)
    assert np.array_equal(first.parameters, second.parameters), "a copy of the folder has the same noise"
    assert read_ledger(clinic / LEDGER).runs == (record,)
    again = train(scenario(clinic), folder=copy, resume=True)
    assert np.array_equal(first.parameters, again.parameters), "there is nothing left to do"
    (tmp_path / "one" / "checkpoint").write_bytes((copy / "checkpoint").read_bytes())
    (clinic / LEDGER).unlink()
    with pytest.raises(ConfigError, match="though one was written"):
        train(scenario(clinic), folder=tmp_path / "one", resume=True)


def test_a_folder_without_its_key_is_a_new_run_that_pays(clinic, tmp_path):
    class Cut(Exception):
        pass

    def cut(_):
        raise Cut

    with pytest.raises(Cut):
        train(scenario(clinic), folder=tmp_path / "one", on_round=cut)
    for name in (KEY, "checkpoint"):
        (tmp_path / "one" / name).unlink()
    train(scenario(clinic), folder=tmp_path / "one", resume=True)
    state = read_ledger(clinic / LEDGER)
    assert [each.rounds for each in state.runs] == [1, 2]


def test_samples_that_are_given_take_a_ledger_of_their_own(tmp_path):
    given = scenario(tmp_path, data={"parties": 4})
    data = datasets.load("digits").subsample(200, 50, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"ledger=, with the same file"):
        train(given, folder=tmp_path / "one", data=data)
    train(given, folder=tmp_path / "one", data=data, ledger=tmp_path / "mine.json")
    train(given, folder=tmp_path / "two", data=data, ledger=tmp_path / "mine.json")
    assert len(read_ledger(tmp_path / "mine.json").runs) == 2


def test_a_named_public_set_has_a_ledger_in_the_folder_of_the_run(tmp_path):
    given = scenario(tmp_path, data={"parties": 4, "train": 200})
    train(given, folder=tmp_path / "one")
    assert len(read_ledger(tmp_path / "one" / LEDGER).runs) == 1
    with pytest.raises(ConfigError, match="leave it out"):
        train(given, folder=tmp_path / "two", people="same")
    for name in ("two", "three"):
        train(given, folder=tmp_path / name, ledger=tmp_path / "ours.json")
    assert len(read_ledger(tmp_path / "ours.json").runs) == 2


def test_a_bad_ledger_is_one_line_and_starts_nothing(clinic, tmp_path):
    (clinic / LEDGER).write_bytes(b"{}")
    with pytest.raises(JournalError, match="this file is not a ledger"):
        train(scenario(clinic), folder=tmp_path / "one")
    (clinic / LEDGER).unlink()
    Ledger("of 0.2", path=clinic / LEDGER).spend("p0", Spent(0.1))
    with pytest.raises(ConfigError, match="a run that names no data"):
        train(scenario(clinic), folder=tmp_path / "one")
    train(scenario(clinic), folder=tmp_path / "one", people="same")
    assert read_ledger(clinic / LEDGER).runs[0].run == "of 0.2"


def test_no_other_ledger_takes_the_place_of_the_one_beside_the_data(clinic, tmp_path):
    """Another `--ledger` was a new budget."""
    elsewhere = tmp_path / "other.json"
    set_budget(clinic / LEDGER, 2.5, 1e-5)
    train(scenario(clinic), folder=tmp_path / "one", ledger=clinic / ".." / "clinic" / LEDGER)
    for gone in (False, True):
        if gone:
            (clinic / LEDGER).unlink()
        for more in ({}, {"privacy": None}):
            with pytest.raises(
                ConfigError,
                match=r"these data already have the ledger .*clinic/ledger\.json, .*; try: .*"
                "leave",
            ) as caught:
                train(scenario(clinic, **more), folder=tmp_path / "two", ledger=elsewhere)
            assert "\n" not in str(caught.value)
    assert not elsewhere.exists()


def place_of(clinic, me, given=None):
    """Returns the name of the ledger that a node would pay into."""
    wanted = scenario(clinic)
    data = load_data(wanted.data, wanted.seed, only=me)
    return choose_node_ledger(wanted, clinic, me, given, None, data, own_data=False).path.name


def pay(clinic, me, name):
    wanted = scenario(clinic)
    data = load_data(wanted.data, wanted.seed, only=me)
    Ledger("a run", path=clinic / name, data=data.source_digest).spend(me, Spent(0.1))


def test_a_party_does_not_leave_the_ledger_of_its_folder_behind(clinic, tmp_path):
    """A node paid into a file of its own, and the budget of the folder was forgotten."""
    assert place_of(clinic, "north") == f"north.{LEDGER}"
    pay(clinic, "north", f"north.{LEDGER}")
    for more in ({}, {"privacy": None}):  # nor does a run of all leave that of a party
        with pytest.raises(ConfigError, match=r"north\.ledger\.json is the ledger of one party"):
            train(scenario(clinic, **more), folder=tmp_path / "run")
    set_budget(clinic / LEDGER, 1.5)
    for me in ("north", "south"):
        with pytest.raises(ConfigError, match="give every party its own folder") as caught:
            place_of(clinic, me)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="give every party its own folder"):
        place_of(clinic, "south", tmp_path / "other.json")
    assert place_of(clinic, "south", clinic / LEDGER) == LEDGER, "knowingly"
    (clinic / LEDGER).unlink()
    with pytest.raises(ConfigError, match="give every party its own folder"):
        place_of(clinic, "south")


def test_neither_another_file_nor_another_name_is_a_new_budget_for_a_party(clinic, tmp_path):
    """A file more in the folder, or a party of another name, began a new ledger."""
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(clinic / "north.npz", alone)
    pay(alone, "north", place_of(alone, "north"))
    assert place_of(alone, "north") == LEDGER
    shutil.copy(clinic / "south.npz", alone)
    assert place_of(alone, "north") == LEDGER, "it names these data"
    with pytest.raises(ConfigError, match="give every party its own folder"):
        place_of(alone, "south")

    pay(clinic, "north", f"north.{LEDGER}")
    (clinic / "north.npz").rename(clinic / "center.npz")
    with pytest.raises(ConfigError, match=r"north\.ledger\.json belongs to a party without samples here") as caught:
        place_of(clinic, "center")
    assert "\n" not in str(caught.value)
    (clinic / "center.npz").rename(clinic / "north.npz")
    for name in ("south", "west", "east"):
        (clinic / f"{name}.npz").unlink()
    assert place_of(clinic, "north") == f"north.{LEDGER}"
    with pytest.raises(ConfigError, match="these data already have the ledger"):
        place_of(clinic, "north", tmp_path / "other.json")
    write_one(clinic / "north.npz", seed=5)
    assert place_of(clinic, "north") == f"north.{LEDGER}", "which asks whose the changed data are"
    shutil.copy(clinic / f"north.{LEDGER}", clinic / "ledger-copy.json")
    assert place_of(clinic, "north") == f"north.{LEDGER}"


def write_one(path, seed):
    rng = np.random.default_rng(seed)
    np.savez(path, x=rng.normal(size=(60, 5)), y=rng.integers(3, size=60))


def test_a_run_that_was_over_reports_what_its_ledger_says(clinic, tmp_path):
    """It said that 0 runs had spent ε = 0."""
    for name in ("one", "two"):
        run = train(scenario(clinic), folder=tmp_path / name)
    again = train(scenario(clinic), folder=tmp_path / "two", resume=True)
    assert again.notes[-1] == run.notes[-1]
    assert again.notes[-1].startswith("2 runs on these data")


# --- runs without noise ----------------------------------------------------------------------------------------------


def test_a_run_without_noise_is_recorded_in_the_ledger_of_its_data_and_not_in_epsilon(clinic, tmp_path):
    """It was nowhere, and ε read as if it bounded everything that was ever told about the data."""
    plain = scenario(clinic, privacy=None)
    train(plain, folder=tmp_path / "before")
    assert not (clinic / LEDGER).exists(), "nobody keeps an ε of these data"
    train(scenario(clinic), folder=tmp_path / "one")
    spent = read_ledger(clinic / LEDGER)
    assert spent.without_noise == 0
    for folder in ("plain", "plain again"):  # the same run, which tells the same: it is recorded once
        train(plain, folder=tmp_path / folder)
    train(plain, folder=tmp_path / "plain", resume=True)
    train(scenario(clinic, privacy=None, seed=5), folder=tmp_path / "another")
    state = read_ledger(clinic / LEDGER)
    assert state.without_noise == 2
    assert (state.epsilon, state.unit, len(state.with_noise)) == (spent.epsilon, spent.unit, 1)
    assert all(each.began and each.run.endswith("without noise") for each in state.runs if each.without_noise)
    run = train(scenario(clinic, seed=2), folder=tmp_path / "two")
    assert run.notes[-1].startswith("2 runs on these data")
    assert run.notes[-1].endswith("; not counted: 2 runs without noise")


def test_a_run_without_noise_on_changed_data_is_asked_about_and_nothing_is_remembered(clinic, tmp_path):
    train(scenario(clinic), folder=tmp_path / "one")
    write(clinic, seed=1)
    before = (clinic / LEDGER).read_bytes(), (clinic / f"{LEDGER}.lock").read_bytes()
    with pytest.raises(ConfigError, match=r"this ledger belongs to data .*; try: --same-people") as told:
        train(scenario(clinic, privacy=None), folder=tmp_path / "plain")
    assert "\n" not in str(told.value)
    assert told.value.code == "config"
    assert ((clinic / LEDGER).read_bytes(), (clinic / f"{LEDGER}.lock").read_bytes()) == before
    train(scenario(clinic, privacy=None), folder=tmp_path / "plain", people="same")
    assert read_ledger(clinic / LEDGER).without_noise == 1


def test_a_budget_that_is_set_meanwhile_stops_a_run_without_noise(clinic, tmp_path):
    train(scenario(clinic), folder=tmp_path / "one")
    data = load_data(scenario(clinic).data, 0).source_digest
    ledger = Ledger("plain", path=clinic / LEDGER, data=data)
    set_budget(clinic / LEDGER, 9.0)
    before = (clinic / LEDGER).read_bytes()
    with pytest.raises(BudgetSpent, match="would spend ε = inf"):
        ledger.record_without_noise()
    assert (clinic / LEDGER).read_bytes() == before
