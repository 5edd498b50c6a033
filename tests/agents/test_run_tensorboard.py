"""Pictures of an episode and the table of hyper-parameters."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.run_tensorboard import draw_jct_cdf, hyper_parameters, play_episode
from agents.settings import read_settings
from dl2env.errors import ConfigError
from dl2env.evaluation.runner import run_scheduler
from dl2env.scenarios import get_scenario
from dl2env.schedulers import get_scheduler
from tests.agents.test_pipeline import changed, result, run, weights


def test_episode_is_that_of_the_evaluation() -> None:
    """Mean JCT 171 s under DRF, see the scenario's description; the picture has the size of a rendered frame."""
    scenario = get_scenario("toy-v1")
    workload = scenario.workloads("validation", 1)[0]
    jct, picture = play_episode(get_scheduler("drf"), scenario.config, workload)
    np.testing.assert_allclose(jct * 120.0, [90.0, 252.0])
    records = run_scheduler(get_scheduler("drf"), scenario.config, [workload]).records[0]
    np.testing.assert_allclose(jct * 120.0, records.finish_s - records.arrival_s)
    assert picture.shape[2] == 3 and picture.dtype == np.uint8 and len(np.unique(picture)) > 10


def test_unfinished_jobs_keep_the_curve_below_one() -> None:
    both = draw_jct_cdf({"policy": np.array([1.0, 2.0])}, "t")
    one = draw_jct_cdf({"policy": np.array([1.0, np.nan])}, "t")
    assert both.shape == one.shape and (both != one).any()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for name, every in (("with", 2), ("without", None)):
        run(folder / name, changed(evaluation={"picture_every": every, "plots": False, "decide": "sampled"}))
    return {name: folder / name for name in ("with", "without")}


def test_pictures_now_and_then(runs: dict[str, Path]) -> None:
    """Validations at updates 0, 3, 6 and, at the end, 8; pictures at every second one and at the end."""
    events = EventAccumulator(str(runs["with"] / "tensorboard"), size_guidance={"images": 0}).Reload()
    for tag in ("episode/jct_cdf", "episode/allocations"):
        images = events.Images(tag)
        assert [event.step for event in images] == [0, 6 * 128, 8 * 128]
        assert Image.open(io.BytesIO(images[0].encoded_image_string)).size[0] > 400
    assert EventAccumulator(str(runs["without"] / "tensorboard")).Reload().Tags()["images"] == []


def test_pictures_change_nothing(runs: dict[str, Path]) -> None:
    ours, theirs = weights(runs["with"] / "last"), weights(runs["without"] / "last")
    assert all((value == theirs[key]).all() for key, value in ours.items())
    assert result(runs["with"])["schedulers"] == result(runs["without"])["schedulers"]


def test_table_of_hyper_parameters(runs: dict[str, Path]) -> None:
    events = EventAccumulator(str(runs["without"] / "tensorboard")).Reload()
    assert "_hparams_/session_start_info" in events.summary_metadata
    content = result(runs["without"])
    tuned, drf = (np.mean(content["schedulers"][name]["per_workload"]["mean_jct_s"]) for name in ("fine-tuned", "drf"))
    assert events.Scalars("final/mean_jct")[0].value == pytest.approx(tuned / 1200.0, rel=1e-5)
    assert events.Scalars("final/less_than_drf")[0].value == pytest.approx(1.0 - tuned / drf, rel=1e-4)
    assert not [path for path in (runs["without"] / "tensorboard").iterdir() if path.is_dir()]


def test_hyper_parameters_are_those_that_count() -> None:
    values = hyper_parameters(read_settings({"env": {"dynamics": {"speed_noise": 0.1}}, "seed": 4}))
    assert values["seed"] == 4 and values["dynamics.speed_noise"] == 0.1
    assert values["ppo.learning_rate"] == 2e-3 and values["warmup.teacher"] == "drf"
    assert not [key for key in values if key.startswith("dl2.")] and "ppo.patience" not in values
    without = hyper_parameters(read_settings({"algorithm": "dl2", "warmup": {"enabled": False}}))
    assert without["dl2.interval_gamma"] == 0.9
    assert not [key for key in without if key.startswith(("ppo.", "warmup."))]


def test_wrong_settings() -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.picture_every=0 must be at least 1"):
        read_settings({"evaluation": {"picture_every": 0}})
    with pytest.raises(ConfigError, match=r"evaluation\.decide='always' is unknown; choose one of: best, sampled"):
        read_settings({"evaluation": {"decide": "always"}})


def test_ways_to_decide(runs: dict[str, Path]) -> None:
    agents = result(runs["with"])["extra"]["agents"]
    assert agents == {name: {"way": "sampled", "validation_jct": {}} for name in ("warm-up", "fine-tuned")}
