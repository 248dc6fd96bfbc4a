"""Scenarios as people write them: read back as they are, and complained about where they are wrong."""

import pytest

from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario

GOOD = """
title = "first"
rounds = 3

[data]
name = "digits"
parties = 6
split = { kind = "dirichlet", alpha = 0.3 }

[model]
name = "mlp"
hidden = 16

[local]
rate = 0.2
steps = 4
epochs = "none"

[protocol]
name = "secagg"
bits = 16

[[faults]]
action = "silence"
party = "p1"
chance = 0.2
"""


@pytest.fixture
def file(tmp_path):
    def written(text, name="scenario.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_a_scenario_is_read_as_it_is_written(file):
    scenario = Scenario.load(file(GOOD.replace('epochs = "none"\n', "")))
    assert scenario.rounds == 3
    assert scenario.data.split.kind == "dirichlet"
    assert scenario.data.split.alpha == 0.3
    assert scenario.model == {"name": "mlp", "hidden": 16}
    assert scenario.protocol == {"name": "secagg", "bits": 16}
    assert scenario.faults[0].chance == 0.2


def test_what_is_written_as_json_is_the_same_scenario(file):
    scenario = Scenario.load(file(GOOD.replace('epochs = "none"\n', "")))
    again = Scenario.load(file(scenario.encode().decode(), "scenario.json"))
    assert again == scenario
    assert again.digest == scenario.digest


def test_names_stand_for_tables(file):
    scenario = Scenario.load(file('model = "softmax"\nprotocol = "fedavg"\n[data]\nsplit = "shards"\n'))
    assert scenario.model == {"name": "softmax"}
    assert scenario.protocol == {"name": "fedavg"}
    assert scenario.data.split.per_party == 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("rounds = 3\nround = 4\n", 2, "did you mean 'rounds'?"),
        ('[data]\nparties = "six"\n', 2, "data.parties = 'six': expected a whole number"),
        ("[data]\n[local]\nratio = 2\n", 3, "there is no local.ratio; did you mean 'rate'?"),
        ('[data]\nsplit = { kind = "diriclet" }\n', 2, "data.split.kind = 'diriclet'"),
        ("[privacy]\nepsilon = 1.0\n", 1, "privacy.clip is missing"),
        ('[privacy]\nclip = 1.0\nepsilon = "low"\n', 3, "privacy.epsilon = 'low': expected a number"),
        ("rounds = 0\n", 1, "rounds=0 must be at least 1"),
        ("[protocol]\nbits = 16\n", 1, 'protocol needs a name, such as name = "secagg"'),
        ("[local]\nrate = -1.0\n", 2, "local.rate=-1.0 must be above 0"),
        ("local = 3\n", 1, "local must be a table, not 3"),
        ("[[faults]]\naction = 'explode'\n", 2, "faults[0].action = 'explode': expected one of 'drop', 'delay'"),
        ("[[faults]]\naction = 'crash'\npaty = 'p1'\n", 3, "there is no faults[0].paty; did you mean 'party'?"),
        ("[protocol]\nname = 'secagg'\nexclude = ['a']\n", 3, "protocol.exclude is for models that are brought"),
        (
            "[data]\nsplit = { alpha = 0.1 }\n",
            2,
            'data.split.alpha is for data.split.kind="dirichlet", and not for "iid"',
        ),
        (
            "[data.split]\nkind = 'dirichlet'\nper_party = 3\n",
            3,
            'data.split.per_party is for data.split.kind="shards"',
        ),
        ("[model]\nname = 'mlp'\ndata = 1\n", 3, "model.data is no option; try: leave it out"),
        ("[data]\noptions = { progress = 1 }\n", 2, "data.options.progress is no option; try: leave it out"),
        ('[data]\nfolder = "a\\u0000b"\n', 2, "data.folder cannot have"),
        ("[privacy]\nclip = 1.0\nepsilon = 1e-300\n", 3, "privacy.epsilon=1e-300 must be at least 1e-08"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(file, text, line, said):
    path = file(text)
    with pytest.raises(ConfigError) as caught:
        Scenario.load(path)
    told = "\n".join(caught.value.problems)
    assert said in told
    assert told.startswith(f"{path}, line {line}: ")


def test_every_problem_is_told_at_once(file):
    with pytest.raises(ConfigError) as caught:
        Scenario.load(file("round = 4\nsede = 2\n[data]\npartys = 3\n"))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("text", ["rounds = ", "\x00", "[data"])
def test_what_is_no_toml_is_told(file, text):
    with pytest.raises(ConfigError, match=r"scenario\.toml"):
        Scenario.load(file(text))


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        Scenario.load(tmp_path / "none.toml")


def test_what_decides_the_result_decides_the_digest():
    plain = Scenario()
    assert Scenario(title="other", workers=2).digest == plain.digest
    assert Scenario(seed=1).digest != plain.digest
    assert Scenario(protocol={"name": "fedavg"}).digest != plain.digest


# --- whose samples are whose ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, "iid"),
        ({"folder": "clinics"}, "owner"),
        ({"folder": "clinics", "split": "iid"}, "iid"),
        ({"folder": "clinics", "split": {"kind": "shards"}}, "shards"),
        ({"name": "shakespeare"}, "owner"),
        ({"name": "mnist"}, "iid"),
        ({"name": "mnist", "options": {"by": "writer"}}, "owner"),
        ({"name": "femnist", "split": "iid"}, "iid"),
    ],
)
def test_samples_stay_with_their_owners_unless_somebody_says_otherwise(data, kind):
    scenario = Scenario.of({"data": data})
    assert scenario.data.split.kind == kind
    assert Scenario.parse(scenario.encode().decode(), "again.json") == scenario


def test_what_somebody_brings_stays_with_its_owners_too():
    plain, said = (Scenario.of({"data": data}).data for data in ({}, {"split": "iid"}))
    assert plain.with_own_samples("clinics", owned=True).split.kind == "owner"
    assert plain.with_own_samples("clinics", owned=False).split.kind == "iid"
    assert said.with_own_samples("clinics", owned=True).split.kind == "iid"
    assert plain.with_own_samples("clinics", owned=True).display_name == "clinics"


def test_a_folder_is_called_by_its_name():
    assert Scenario.of({"data": {"folder": "/far/away/clinics/"}}).data.display_name == "clinics"
    assert Scenario.of({"data": {"name": "mnist"}}).data.display_name == "mnist"


def test_a_split_is_told_in_words():
    told = [Scenario.of({"data": {"split": kind}}).data.split_text for kind in ("iid", "owner", "shards", "dirichlet")]
    assert told == ["iid split", "each its own samples", "2 chunks of labels each", "dirichlet split, alpha 0.5"]
