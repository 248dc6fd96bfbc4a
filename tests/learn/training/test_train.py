"""Training: the same loop for every protocol, and what happens when something is wrong."""

from typing import ClassVar

import msgspec
import numpy as np
import pytest

import tacit
from tacit.core.errors import ConfigError, LeakRefused
from tacit.learn.data import datasets
from tacit.learn.scenario import Scenario
from tacit.learn.training.assemble import assemble_run

SMALL = {"rounds": 3, "data": {"parties": 6}, "local": {"rate": 0.5}}


def ran(**changes):
    found = assemble_run(Scenario.of({**SMALL, **changes}))
    return found, list(found.rounds())


def models(found):
    return found.training.models


@pytest.mark.parametrize(
    "protocol",
    [
        "local",
        "centralized",
        "fedavg",
        "secagg",
        {"name": "gossip", "graph": "ring"},
        {"name": "admm", "masked": True, "group_size": "all", "iterations": 3},
        {"name": "pushsum", "masked": True},
        {"name": "pushsum", "private": True, "allow_leaks": True},
        {"name": "cesar", "graph": {"kind": "regular", "degree": 4}},
    ],
    ids=str,
)
def test_every_protocol_learns(protocol):
    found, history = ran(protocol=protocol)
    assert [each.round for each in history] == [1, 2, 3]
    assert history[-1].accuracy > (0.4 if protocol == "local" else 0.6)
    assert all(np.isfinite(models(found)).ravel())
    alone = found.training.simulation is None
    assert all((each.bytes == 0) == alone for each in history)
    shared = found.checked is not None and found.checked.protocol.server is not None
    assert len(models(found)) == (1 if shared or protocol == "centralized" else 6)


def test_with_a_server_or_all_to_all_the_average_is_that_of_plain_descent():
    """FedAvg with one full-batch step a party of as many samples is gradient descent on all of them."""
    local = {"rate": 0.5, "batch": 10_000, "steps": 1}
    data = {"parties": 6, "train": 600}
    one, _ = ran(protocol="centralized", local=local, data=data)
    for protocol in ("fedavg", "secagg", {"name": "gossip", "graph": "complete"}):
        many, _ = ran(protocol=protocol, local=local, data=data)
        np.testing.assert_allclose(models(many)[0], models(one)[0], atol=2e-5)


def test_masks_change_nothing():
    plain, _ = ran(protocol="fedavg")
    masked, _ = ran(protocol="secagg")
    np.testing.assert_array_equal(models(plain), models(masked))


def test_only_those_who_are_asked_work():
    asked = {"name": "fedavg", "participation": {"kind": "random", "per_round": 2}}
    found, history = ran(protocol=asked)
    assert [each.contributors for each in history] == [2, 2, 2]
    assert len(found.training.losses) == 2


def test_those_who_work_are_those_who_are_summed():
    """Had others been summed, their models would be as they were before, and not change the average."""
    protocol = {"name": "fedavg", "participation": {"kind": "random", "per_round": 3}}
    found = assemble_run(Scenario.of({**SMALL, "rounds": 6, "protocol": protocol, "dropout": 0.2}))
    for step in found.training.steps(6):
        assert step.outcome is not None
        assert set(step.outcome.contributors) <= set(found.training.losses)


def test_samples_may_count():
    found, _ = ran(
        weights="samples", protocol="secagg", data={"parties": 6, "split": {"kind": "dirichlet", "alpha": 0.1}}
    )
    sizes = {len(part) for part in found.parts}
    assert set(found.training.weights.values()) == sizes
    assert len(sizes) > 1


def test_a_party_whose_loss_is_no_number_is_left_out_and_the_others_go_on():
    digits = datasets.load("digits")
    x = digits.x.astype(np.float32)
    first = assemble_run(Scenario.of(SMALL)).parts[2]
    x[first] = 1e30
    bad = datasets.of_arrays(x, digits.y, digits.x_test.astype(np.float32), digits.y_test)
    for protocol in ("secagg", {"name": "gossip", "graph": "complete"}):
        found = assemble_run(Scenario.of({**SMALL, "protocol": protocol}), data=bad)
        history = list(found.rounds())
        assert "no longer a number" in history[-1].left_out["p2"]
        assert history[-1].contributors == 5
        assert np.isfinite(found.training.consensus()).all()


def test_if_nobody_is_left_it_ends():
    with pytest.raises(ConfigError, match="no party's loss"):
        ran(local={"rate": 1e30, "steps": 30}, model="mlp")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"parties": 5000}}, "parties"),
        ({"data": {"name": "digit"}}, "digits"),
        ({"model": "sofmax"}, "softmax"),
        ({"model": "gru"}, "gru"),
        ({"model": "factorization"}, "factorization"),
        ({"protocol": "secag"}, "secag"),
        ({"protocol": {"name": "secagg", "bit": 16}}, "bits"),
        ({"data": {"parties": 6, "split": "owner"}}, "owner|whose"),
        ({"data": {"parties": 6, "folder": "/nowhere"}}, "nowhere"),
        ({"model": {"name": "mlp", "hiden": 3}}, "hidden"),
        ({"weights": "samples", "privacy": {"epsilon": 1.0, "clip": 1.0}}, "weights"),
        ({"protocol": "local", "privacy": {"epsilon": 1.0, "clip": 1.0}}, "averag"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told_before_anything_is_learnt(changes, said):
    with pytest.raises(ConfigError, match=said):
        ran(**changes)


def test_what_leaks_is_refused():
    with pytest.raises(LeakRefused):
        ran(protocol="pushsum")


def test_a_run_is_written_to_its_folder(tmp_path):
    run = tacit.train(Scenario.of({**SMALL, "protocol": "secagg"}), folder=tmp_path)
    assert run.folder == tmp_path
    assert run.accuracy == run.history[-1].accuracy
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3
    assert {"scenario.json", "audit.json", "model.safetensors", "checkpoint"} <= {p.name for p in tmp_path.iterdir()}
    from safetensors.numpy import load_file

    stored = load_file(tmp_path / "model.safetensors")
    assert {name: value.shape for name, value in stored.items()} == {"weights": (10, 64), "bias": (10,)} or stored


def test_runs_without_a_folder_get_one_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scenario = Scenario.of({**SMALL, "rounds": 1})
    first, second = tacit.train(scenario), tacit.train(scenario)
    assert first.folder != second.folder
    assert tacit.train(scenario, resume=True).folder == second.folder


class TestPrivacy:
    """What a scenario spends of everybody's privacy."""

    base: ClassVar = {"local": {"rate": 0.5, "batch": 300, "steps": 1}, "protocol": "secagg", "data": {"parties": 8}}

    @pytest.mark.parametrize(
        "privacy",
        [
            {"noise": "distributed", "dropouts": 0.25, "colluders": 1},
            {"noise": "central"},
            {"noise": "local"},
            {"unit": "sample"},
            {"unit": "sample", "dropouts": 0.25},
        ],
        ids=str,
    )
    def test_no_more_than_was_asked_for_is_spent(self, privacy):
        found, history = ran(**self.base, privacy={"epsilon": 2.0, "clip": 1.0, **privacy})
        assert len(history) == 3
        assert 1.8 < history[-1].epsilon <= 2.0 * (1 + 1e-6)
        assert history[0].epsilon < history[1].epsilon < history[2].epsilon
        assert found.ledger.parties

    @pytest.mark.parametrize("unit", ["user", "sample"])
    def test_where_the_server_sees_every_vector_only_ones_own_noise_counts(self, unit):
        privacy = {"epsilon": 2.0, "clip": 1.0, "unit": unit}
        masked, _ = ran(**self.base, privacy=privacy)
        plain, history = ran(**{**self.base, "protocol": "fedavg"}, privacy=privacy)
        assert history[-1].epsilon <= 2.0 * (1 + 1e-6)
        sigmas = [
            found.checked.terms.settings.noise if unit == "user" else found.training.cohort.local.noise
            for found in (plain, masked)
        ]
        assert sigmas[0] / sigmas[1] == pytest.approx(np.sqrt(7), rel=0.05)

    def test_the_papers_noise_spends_more_than_it_claims(self):
        _, history = ran(**self.base, privacy={"epsilon": 2.0, "clip": 1.0, "unit": "sample", "sigma": "paper"})
        assert history[-1].epsilon > 3.0

    def test_of_several_steps_only_ones_own_noise_counts(self):
        base = {**self.base, "local": {"rate": 0.5, "batch": 300, "steps": 2}}
        one, _ = ran(**self.base, privacy={"epsilon": 2.0, "clip": 1.0, "unit": "sample"})
        two, _ = ran(**base, privacy={"epsilon": 2.0, "clip": 1.0, "unit": "sample"})
        ratio = two.training.cohort.local.noise / one.training.cohort.local.noise
        assert ratio == pytest.approx(np.sqrt(7) * np.sqrt(2), rel=0.05)

    @pytest.mark.parametrize("unit", ["sample", "user"])
    @pytest.mark.parametrize("more", [{}, {"oversampled": 6}], ids=str)
    def test_only_the_noise_of_those_who_are_summed_counts(self, unit, more):
        """Of 8, or of 6, who are asked 4 are in a sum, one of whom looks: what 8 would have to add is too little."""
        protocol = {"name": "secagg", "sampled": 4, **more}
        privacy = {"epsilon": 2.0, "clip": 1.0, "unit": unit, "dropouts": 0.25}
        found, history = ran(**{**self.base, "protocol": protocol}, privacy=privacy)
        assert {each.contributors for each in history} == {4}
        assert "that of 3 of 4" in found.notes[-1]

    @pytest.mark.parametrize("unit", ["sample", "user"])
    def test_sums_with_less_noise_than_was_counted_on_are_not_made(self, unit):
        drops = [{"action": "drop", "message": "MaskedInput", "round": 2, "party": f"p{place}"} for place in (1, 2, 3)]
        privacy = {"epsilon": 2.0, "clip": 1.0, "unit": unit, "dropouts": 0.25}
        found, history = ran(**self.base, faults=drops, privacy=privacy)
        assert [each.contributors for each in history] == [8, 0, 8]
        assert found.checked.terms.smallest_sum == 6

    def test_a_lower_threshold_means_that_less_noise_is_counted_on(self):
        privacy = {"epsilon": 2.0, "clip": 1.0, "unit": "sample", "colluders": 1}
        protocol = {"name": "secagg", "threshold": 5}
        found, _ = ran(**{**self.base, "protocol": protocol}, privacy=privacy)
        assert "that of 4 of 8" in found.notes[-1]
        with pytest.raises(ConfigError, match="allows sums of colluders alone"):
            ran(**{**self.base, "protocol": protocol}, privacy={**privacy, "colluders": 5})

    def test_the_papers_noise_goes_by_all_users_whoever_is_summed(self):
        privacy = {"epsilon": 2.0, "clip": 1.0, "unit": "sample", "sigma": "paper"}
        everybody, _ = ran(**self.base, privacy=privacy)
        some, _ = ran(**{**self.base, "protocol": {"name": "secagg", "sampled": 5}}, privacy=privacy)
        assert some.training.cohort.local.noise == everybody.training.cohort.local.noise

    def test_a_run_ends_when_the_budget_is_spent(self):
        scenario = Scenario.of({**SMALL, **self.base, "rounds": 2, "privacy": {"epsilon": 2.0, "clip": 1.0}})
        found = assemble_run(scenario)
        found.training.begin(7, found.training.parties, bytes(32))
        assert [each.round for each in found.rounds()] == [1]
        assert "budget" in found.stopped

    def test_the_ledger_outlives_the_run(self, tmp_path):
        scenario = Scenario.of({**SMALL, **self.base, "privacy": {"epsilon": 2.0, "clip": 1.0}})
        run = tacit.train(scenario, folder=tmp_path)
        spent = (tmp_path / "ledger.json").read_bytes()
        assert tacit.train(scenario, folder=tmp_path, resume=True).history == run.history
        assert (tmp_path / "ledger.json").read_bytes() == spent


def test_a_run_on_a_folder_of_samples_keeps_the_names_of_the_files(tmp_path):
    (tmp_path / "samples").mkdir()
    rng = np.random.default_rng(0)
    for name in ("south", "harbour", "north"):
        x = rng.normal(size=(20, 3)).astype(np.float32)
        np.savez(tmp_path / "samples" / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    data = {"folder": str(tmp_path / "samples"), "parties": 3}
    for parties, names in ((3, ("harbour", "north", "south")), (2, None)):
        given = {"rounds": 1, "data": {**data, "parties": parties}, "protocol": "local"}
        assert assemble_run(Scenario.of(given)).name_owners() == names
    run = tacit.train(Scenario.of({"rounds": 1, "data": data, "protocol": "local"}), folder=tmp_path / "out")
    assert msgspec.json.decode((run.folder / "parties.json").read_bytes()) == ["harbour", "north", "south"]


def test_a_named_data_set_names_no_parties(tmp_path):
    run = tacit.train(Scenario.of({**SMALL, "rounds": 1, "protocol": "local"}), folder=tmp_path / "out")
    assert not (run.folder / "parties.json").exists()
