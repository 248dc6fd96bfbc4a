"""Runs with noise: what it is worth is not undone by a small batch, a rule, a ring, a folder or a second run."""

import dataclasses
import stat

import numpy as np
import pytest

from tacit.core.errors import ConfigError, JournalError
from tacit.learn.data import datasets
from tacit.learn.models.registry import build
from tacit.learn.privacy.dp_plan import plan_noise
from tacit.learn.random_streams import generator
from tacit.learn.scenario import Privacy, Scenario
from tacit.learn.training.assemble import assemble_run
from tacit.learn.training.cohort import Cohort
from tacit.learn.training.local_training import LocalBatches, LocalTraining
from tacit.learn.training.run_folder import CHECKPOINT, KEY, LEDGER, MODEL, SCENARIO
from tacit.learn.training.train import train
from tacit.protocols import REGISTRY, find
from tacit.runtime.agreement import terms_for

ONE_STEP = {"rate": 0.5, "batch": 300, "steps": 1}
SAMPLE = {"epsilon": 2.0, "clip": 1.0, "unit": "sample"}
USER = {"epsilon": 2.0, "clip": 1.0}


def prepared(privacy, local=ONE_STEP, protocol="secagg", parties=8, **more):
    given = {"rounds": 3, "data": {"parties": parties}, "local": local, "protocol": protocol, "privacy": privacy}
    return assemble_run(Scenario.of({**given, **more}))


@pytest.mark.parametrize(("samples", "batch", "epochs"), [(17, 16, None), (143, 32, 3), (5, 32, 2), (64, 32, 1)])
def test_with_noise_all_batches_are_as_large_and_a_sample_is_in_one_of_an_epoch(samples, batch, epochs):
    local = LocalTraining(batch=batch, epochs=epochs, noise=1.0)
    drawn = LocalBatches.of(local, samples, generator(0, "batches"))
    size = min(batch, samples)
    assert set(drawn.sizes.tolist()) == {size}
    assert len(drawn) == local.steps_of(samples) == (epochs or 1) * (samples // size)
    each = [drawn.batch(step) for step in range(len(drawn))]
    for epoch in range(epochs or 1):
        used = np.concatenate(each[epoch * (samples // size) : (epoch + 1) * (samples // size)])
        assert len(set(used.tolist())) == len(used)
    assert len(LocalBatches.of(LocalTraining(batch=batch, epochs=epochs), samples, generator(0, "batches"))) >= len(
        drawn
    )


def test_noise_per_sample_is_for_the_smallest_batch_that_there_is():
    found = prepared(SAMPLE, {"rate": 0.1, "batch": 16}, data={"parties": 4, "train": 68})
    assert [len(part) for part in found.parts] == [17] * 4
    cohort = found.training.cohort
    drawn = [LocalBatches.of(cohort.local, 17, generator(seed, "batches")) for seed in range(5)]
    assert all(each.sizes.tolist() == [16] for each in drawn)


@pytest.mark.parametrize(
    ("local", "protocol", "counted"),
    [
        (ONE_STEP, "secagg", 7),
        ({**ONE_STEP, "optimizer": "adam"}, "secagg", 1),
        ({**ONE_STEP, "optimizer": "rmsprop"}, "secagg", 1),
        (ONE_STEP, {"name": "secagg", "clip": 0.001}, 1),
        (ONE_STEP, {"name": "secagg", "clip": 1e9}, 1),
        (ONE_STEP, {"name": "secagg", "bits": 16, "clip": 8.0}, 1),
    ],
    ids=str,
)
def test_per_sample_the_noise_of_others_counts_only_if_it_is_still_there_in_the_sum(local, protocol, counted):
    found = prepared(SAMPLE, local, protocol)
    assert f"that of {counted} of 8 is counted on" in found.notes[-1]


def test_whoever_hears_the_sum_knows_its_own_noise():
    assert "that of 7 of 8" in prepared(USER).notes[-1]
    assert "that of 5 of 8" in prepared({**USER, "dropouts": 0.25}).notes[-1]
    two = prepared({**USER, "against": "parties"}, protocol="fedavg", parties=2)
    assert "that of 1 of 2" in two.notes[-1]


def test_noise_of_a_server_per_sample_is_refused():
    """Users added the noise, eight were counted on, and a sum could have seven."""
    with pytest.raises(ConfigError, match=r'privacy.noise="central" is for privacy.unit="user"'):
        prepared({**SAMPLE, "noise": "central"})


@pytest.mark.parametrize("unit", ["user", "sample"])
@pytest.mark.parametrize("noise", ["distributed", "local", "central"])
@pytest.mark.parametrize(
    "protocol",
    [
        "secagg",
        "fedavg",
        "gossip",
        {"name": "secagg", "threshold": 6},
        {"name": "secagg", "fewest": 7},
        {"name": "secagg", "sampled": 5},
        {"name": "secagg", "sampled": 5, "oversampled": 7},
        {"name": "secagg", "participation": {"kind": "batches", "per_round": 4, "privacy": 2}},
        {"name": "fedavg", "threshold": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("more", [{}, {"dropouts": 0.25}, {"colluders": 3}, {"against": "parties"}], ids=str)
def test_no_sum_has_fewer_noisy_contributors_than_epsilon_counts(unit, noise, protocol, more):
    try:
        wanted = Scenario.of(
            {
                "rounds": 3,
                "data": {"parties": 8},
                "local": ONE_STEP,
                "protocol": protocol,
                "privacy": {**USER, "unit": unit, "noise": noise, **more},
            }
        )
        parties = tuple(f"p{place}" for place in range(8))
        options = {key: value for key, value in wanted.protocol.items() if key != "name"}
        plan = plan_noise(wanted, wanted.privacy, options, parties, 650, [200] * 8)
    except ConfigError:
        return  # refused before anything is sent
    terms = terms_for(find(wanted.protocol["name"]), parties, {**plan.options, "allow_leaks": True})
    colluders = max(1, more.get("colluders", 0))
    assert plan.honest == 1 or terms.smallest_sum >= plan.honest + colluders
    plan.event(terms, 650)


def test_terms_that_allow_a_smaller_sum_than_was_planned_for_are_refused():
    wanted = Scenario.of({"rounds": 3, "data": {"parties": 8}, "local": ONE_STEP, "protocol": "secagg"})
    parties = tuple(f"p{place}" for place in range(8))
    for given in (USER, SAMPLE):
        private = Privacy(**given)
        plan = plan_noise(wanted, private, {}, parties, 650, [200] * 8)
        smaller = terms_for(find("secagg"), parties, {**plan.options, "threshold": 7})
        with pytest.raises(ConfigError, match="a sum of 7 would have less noise than ε takes, which is that of 8"):
            plan.event(smaller, 650)


def test_what_would_undo_the_noise_is_refused():
    with pytest.raises(ConfigError, match="set clip in"):
        prepared(SAMPLE, protocol={"name": "secagg", "bits": 16})
    for noise in ("central", "local", "distributed"):
        with pytest.raises(ConfigError, match="is not the clip = 1 of"):
            prepared({**USER, "noise": noise}, protocol={"name": "secagg", "norm": 1e6})


def test_buffers_that_no_noise_touches_are_refused():
    torch = pytest.importorskip("torch")
    data = datasets.load("digits")
    module = torch.nn.Sequential(
        torch.nn.Flatten(1),
        torch.nn.Unflatten(1, (1, 64)),
        torch.nn.InstanceNorm1d(1, track_running_stats=True),
        torch.nn.Flatten(1),
        torch.nn.Linear(64, 10),
    )
    parts, local = [np.arange(20)], LocalTraining(rate=0.1, batch=10, clip=1.0, noise=1.0)
    with pytest.raises(ConfigError, match="buffers of floats"):
        Cohort(build(module, data), data, parts, local, 0)


class TestFolder:
    """What lies in the folder of a run does not tell its noise."""

    def scenario(self, **privacy):
        given = {
            "rounds": 3,
            "data": {"parties": 4, "train": 200},
            "protocol": "secagg",
            "privacy": {**USER, **privacy},
        }
        return Scenario.of(given)

    def cut_off(self, folder):
        """Leaves a run after its first round, and returns the data that it learns from, and others."""

        class Cut(Exception):
            pass

        def cut(_):
            raise Cut

        data, other = (datasets.load("digits").subsample(200, 100, generator(seed, "samples")) for seed in (0, 1))
        with pytest.raises(Cut):
            train(self.scenario(), folder=folder, on_round=cut, data=data, ledger=folder / LEDGER)
        return data, other

    def test_two_runs_of_one_scenario_have_other_noise_and_leave_no_key(self, tmp_path):
        runs = [train(self.scenario(), folder=tmp_path / name) for name in "ab"]
        assert not np.allclose(*(run.parameters for run in runs), atol=0.01)
        assert not any((tmp_path / name / KEY).exists() for name in "ab")

    @pytest.mark.parametrize("privacy", [{}, {"noise": "central"}, {"unit": "sample"}], ids=str)
    def test_a_run_that_goes_on_has_the_same_noise_and_the_same_ledger(self, privacy, tmp_path):
        scenario, kept = self.scenario(**privacy), {}

        class Cut(Exception):
            pass

        def cut(metrics):
            if metrics.round == 2:
                kept["key"] = (tmp_path / "a" / KEY).read_bytes()
                assert stat.S_IMODE((tmp_path / "a" / KEY).stat().st_mode) == 0o600
                raise Cut

        with pytest.raises(Cut):
            train(scenario, folder=tmp_path / "a", on_round=cut)
        resumed = train(scenario, folder=tmp_path / "a", resume=True)
        whole = assemble_run(scenario, secret=kept["key"])
        for _ in whole.rounds():
            pass
        assert np.array_equal(resumed.parameters, whole.training.consensus())
        again = train(scenario, folder=tmp_path / "a", resume=True)
        assert np.array_equal(again.parameters, resumed.parameters), "there is nothing left to do"

    def test_it_does_not_go_on_without_its_key_with_other_data_or_with_a_ledger_that_knows_less(self, tmp_path):
        data, other = self.cut_off(tmp_path)
        with pytest.raises(JournalError, match=r"the ledger of 'scenario .*, data .*, noise .*; try: begin a new run"):
            train(self.scenario(), folder=tmp_path, resume=True, data=other, ledger=tmp_path / LEDGER)
        ledger = (tmp_path / LEDGER).read_bytes()
        (tmp_path / LEDGER).unlink()
        with pytest.raises(JournalError):
            train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER)
        (tmp_path / LEDGER).write_bytes(ledger)
        key = (tmp_path / KEY).read_bytes()
        (tmp_path / KEY).unlink()
        with pytest.raises(ConfigError, match="is missing: the noise"):
            train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER)
        (tmp_path / KEY).write_bytes(key)
        assert (tmp_path / CHECKPOINT).exists()
        train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER)

    def test_what_was_paid_for_is_never_had_again_with_other_noise(self, tmp_path):
        """Whoever deleted a file of a run once got its rounds anew for nothing, and could average the noise away."""
        early = {}

        def keep(metrics):
            early[metrics.round] = (tmp_path / CHECKPOINT).read_bytes()

        train(self.scenario(), folder=tmp_path, on_round=keep)
        model, ledger = (tmp_path / MODEL).read_bytes(), (tmp_path / LEDGER).read_bytes()
        (tmp_path / CHECKPOINT).write_bytes(early[2])
        with pytest.raises(ConfigError, match="is not the last checkpoint of this finished run"):
            train(self.scenario(), folder=tmp_path, resume=True)
        for name, resume in ((CHECKPOINT, True), (SCENARIO, False)):
            (tmp_path / name).unlink()
            with pytest.raises(ConfigError, match="is missing: the noise"):
                train(self.scenario(), folder=tmp_path, resume=resume)
        assert (tmp_path / MODEL).read_bytes() == model
        assert (tmp_path / LEDGER).read_bytes() == ledger

    def test_a_run_that_was_cut_off_goes_on_with_its_own_key_ledger_and_data(self, tmp_path):
        data, other = self.cut_off(tmp_path)
        key = (tmp_path / KEY).read_bytes()
        for wrong, error in ((key[:5], ConfigError), (b"", ConfigError), (bytes(32), JournalError)):
            (tmp_path / KEY).write_bytes(wrong)
            with pytest.raises(error):
                train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER)
        (tmp_path / KEY).write_bytes(key)
        (tmp_path / CHECKPOINT).unlink()  # as if it had been killed in the first round
        with pytest.raises(JournalError, match="this is the ledger of"):
            train(self.scenario(), folder=tmp_path, resume=True, data=other, ledger=tmp_path / LEDGER)
        ledger = (tmp_path / LEDGER).read_bytes()
        (tmp_path / LEDGER).unlink()
        with pytest.raises(JournalError, match="is missing, and rounds were charged to it"):
            train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER)
        (tmp_path / LEDGER).write_bytes(ledger)
        assert (
            train(self.scenario(), folder=tmp_path, resume=True, data=data, ledger=tmp_path / LEDGER).history[-1].round
            == 3
        )

    def test_a_tiny_budget_is_enough_for_all_rounds(self, tmp_path):
        assert len(train(self.scenario(unit="sample", epsilon=1e-7), folder=tmp_path).history) == 3

    def test_a_folder_that_cannot_be_made_is_one_line(self):
        with pytest.raises(ConfigError, match="cannot be made"):
            train(self.scenario(), folder="/proc/nowhere/run")


def test_the_word_of_an_added_protocol_about_its_sums_saves_no_noise(monkeypatch):
    """Its terms may claim a secure sum that its code does not compute."""
    added = dataclasses.replace(REGISTRY["secagg"], name="added")
    monkeypatch.setitem(REGISTRY, "added", added)
    planned = {}
    for name in ("secagg", "added"):
        scenario = Scenario.of({"rounds": 2, "local": ONE_STEP, "protocol": name, "privacy": USER})
        parties = tuple(f"p{i}" for i in range(8))
        planned[name] = plan_noise(scenario, scenario.privacy, {}, parties, 10, [20] * len(parties))
    assert planned["secagg"].honest > 1
    assert planned["added"].honest == 1
    assert planned["added"].options["noise"] > planned["secagg"].options["noise"]
