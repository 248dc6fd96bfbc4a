"""Pictures of what people call odd names, and of numbers that are none."""

import numpy as np
import pytest

from tacit.app.reports import pictures
from tacit.core.errors import ConfigError
from tacit.learn.scenario import Scenario
from tacit.learn.training.metrics import Metrics
from tacit.learn.training.train import Run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'tacit[pictures]'")
FORMULA = r"cost $\none{$"


def run(title="", **metrics):
    scenario = Scenario.of({"title": title, "rounds": 2})
    history = [Metrics(round=1, loss=1.0, **metrics), Metrics(round=2, loss=1.0, rmse=1.0)]
    return Run(scenario, history, None, np.zeros(1, np.float32), None, (1, 2))


def test_what_somebody_calls_something_is_no_formula(tmp_path):
    assert pictures.progress(run(FORMULA, rmse=2.0), str(tmp_path / "run.svg"))
    pictures.labels(np.ones((1, 2), np.int64), str(tmp_path / "labels.png"), [FORMULA], ["$", FORMULA])


def test_a_run_that_went_astray_is_drawn(tmp_path):
    assert pictures.progress(run(rmse=float("inf")), str(tmp_path / "run.png"))


def test_a_folder_is_told_before_anything_is_drawn(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        pictures.check(str(tmp_path / "a.png"))
