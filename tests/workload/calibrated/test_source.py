"""Workloads of a configuration that names a calibration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dl2env.config import CalibratedConfig, EnvConfig, TraceConfig, WorkloadConfig
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.scenarios import SPLITS, Scenario, get_scenario, load_scenario
from dl2env.workload.calibrated import write_calibration
from dl2env.workload.calibrated.draw import draw_jobs
from dl2env.workload.calibrated.source import CalibratedWorkloads
from dl2env.workload.generator import EpisodeStreams, build_workload_source, training_speeds
from tests.workload.calibrated.models import SMALL


@pytest.fixture()
def path(tmp_path: Path) -> Path:
    return write_calibration(SMALL, tmp_path / "small.yaml")


def scenario(file: object, **changes: object) -> Scenario:
    overrides = {f"workload.calibrated.{key}": value for key, value in changes.items()}
    return get_scenario("dl2-small-v1").derive({"workload.calibrated.file": str(file), **overrides})


def source(world: EnvConfig) -> CalibratedWorkloads:
    made = build_workload_source(world)
    assert isinstance(made, CalibratedWorkloads)
    return made


def test_jobs_last_their_durations_at_their_gpus(path: Path) -> None:
    """Alone with the workers for its GPUs, a job trains exactly the drawn duration."""
    world = scenario(path).config
    workload = source(world)(3, 0, 5)
    job_types, speed, _, _ = training_speeds(world)
    worker_gpus = np.array([t.worker_gpus for t in job_types])
    assert (worker_gpus[workload.type_idx] > 0).all()
    streams = EpisodeStreams(3, 0, 5)
    jobs = draw_jobs(
        SMALL, 60, source(world).jobs_per_s, *(streams.generator(name) for name in ("arrivals", "gpus", "sizes"))
    )
    workers = SMALL.num_gpus[jobs.gpu_class].astype(int)
    alone_s = workload.epochs * workload.samples_per_epoch / speed[workload.type_idx, workers, workers]
    assert alone_s == pytest.approx(jobs.duration_s, rel=1e-9)


def test_episodes_are_reproducible_and_differ(path: Path) -> None:
    made = source(scenario(path).config)
    assert made(1, 2, 3).digest() == source(scenario(path).config)(1, 2, 3).digest()
    digests = {made(s, e, k).digest() for s in (0, 1) for e in (0, 1) for k in (0, 1)}
    assert len(digests) == 8
    provenance = made(1, 2, 3).provenance
    assert provenance["source"] == "calibrated"
    assert provenance["calibration"]["digest"] == SMALL.digest()
    assert (provenance["seed"], provenance["env"], provenance["episode"]) == (1, 2, 3)


def test_target_load_is_met_in_the_long_run(path: Path) -> None:
    world = scenario(path, target_load=0.7).config
    world = dataclasses.replace(world, workload=dataclasses.replace(world.workload, num_jobs=200))
    made = source(world)
    span_s = sum(float(made(0, 0, episode).arrival_s[-1]) for episode in range(200))
    capacity = 96  # GPUs of dl2-small-v1
    assert made.gpu_s_per_job * 199 * 200 / (capacity * span_s) == pytest.approx(0.7, rel=0.1)
    # 70 % of jobs hold one GPU, 20 % four and 10 % eight.
    means = [model.mean_s for model in SMALL.duration_of]
    assert made.gpu_s_per_job == pytest.approx(0.7 * means[0] + 0.2 * 4 * means[1] + 0.1 * 8 * means[2], rel=1e-9)


def test_recorded_rate_and_scale(path: Path) -> None:
    assert source(scenario(path).config).jobs_per_s == pytest.approx(2000 / 86_400)
    assert source(scenario(path, load_scale=0.5).config).jobs_per_s == pytest.approx(1000 / 86_400)


def test_jobs_without_gpus_need_a_type_without(tmp_path: Path) -> None:
    world = get_scenario("dl2-small-v1").config
    zero = dataclasses.replace(SMALL.gpus[0], gpus=0.0)
    calibration = dataclasses.replace(SMALL, gpus=(zero, *SMALL.gpus[1:]))
    file = write_calibration(calibration, tmp_path / "zero.yaml")
    workload = dataclasses.replace(world.workload, calibrated=CalibratedConfig(str(file)))
    made = source(dataclasses.replace(world, workload=workload))
    no_gpus = {"cnn-text", "dssm"}
    names = [made(0, 0, 0).type_names[t] for k in range(10) for t in made(0, 0, k).type_idx]
    assert np.mean([name in no_gpus for name in names]) == pytest.approx(0.7, abs=0.1)
    only_gpus = dataclasses.replace(workload, active_types=("resnet-50", "vgg-16"))
    made = source(dataclasses.replace(world, workload=only_gpus))
    assert made.jobs_per_s == pytest.approx(0.3 * 2000 / 86_400)
    assert {made(0, 0, 0).type_names[t] for t in made(0, 0, 0).type_idx} == {"resnet-50", "vgg-16"}


def test_no_job_left_and_no_load(tmp_path: Path) -> None:
    world = get_scenario("dl2-small-v1").config
    zero = (dataclasses.replace(SMALL.gpus[0], gpus=0.0, share=1.0),)
    file = str(
        write_calibration(dataclasses.replace(SMALL, gpus=zero, durations=SMALL.durations[:1]), tmp_path / "z.yaml")
    )

    def with_config(**changes: object) -> EnvConfig:
        return dataclasses.replace(world, workload=dataclasses.replace(world.workload, **changes))

    with pytest.raises(ConfigError, match="none of its jobs uses a GPU"):
        source(with_config(calibrated=CalibratedConfig(file), active_types=("vgg-16",)))
    with pytest.raises(ConfigError, match="target_load=0.5 cannot be reached"):
        source(with_config(calibrated=CalibratedConfig(file, target_load=0.5)))


def test_the_hash_covers_the_content_not_the_name(tmp_path: Path, path: Path) -> None:
    base, here = get_scenario("dl2-small-v1").hash(), scenario(path).hash()
    copy = write_calibration(dataclasses.replace(SMALL, name="copy"), tmp_path / "copy.yaml", "another comment")
    assert scenario(copy).hash() == here != base
    rate = dataclasses.replace(SMALL.arrivals, jobs_per_day=2001.0)
    other = write_calibration(dataclasses.replace(SMALL, arrivals=rate), tmp_path / "other.yaml")
    assert scenario(other).hash() != here
    assert scenario(path, target_load=0.5).hash() not in (here, base)
    assert scenario(path, load_scale=1.0).hash() == here


def test_wrong_configurations(path: Path) -> None:
    with pytest.raises(ConfigError, match="calibrated.file: not set"):
        CalibratedConfig()
    for key, value in (("target_load", 0.0), ("target_load", -1.0), ("load_scale", 0.0)):
        with pytest.raises(ConfigError, match=key):
            CalibratedConfig("philly", **{key: value})
    with pytest.raises(ConfigError, match="set load_scale to 1"):
        CalibratedConfig("philly", target_load=0.5, load_scale=2.0)
    with pytest.raises(ConfigError, match="both trace and calibrated"):
        WorkloadConfig(trace=TraceConfig("t"), calibrated=CalibratedConfig("philly"))
    with pytest.raises(UnknownNameError, match="unknown calibration 'nobody'"):
        source(scenario("nobody").config)
    with pytest.raises(ConfigError, match="not set; name a calibration"):
        CalibratedWorkloads(get_scenario("dl2-small-v1").config)


@pytest.mark.parametrize("name", ["philly", "openb", "gavel"])
def test_shipped_calibrations_play(name: str) -> None:
    world = scenario(name, target_load=0.7)
    digests = {world.workloads(split, 1)[0].digest() for split in SPLITS}
    assert len(digests) == 3


def test_a_scenario_file_may_name_one(tmp_path: Path, path: Path) -> None:
    """What a leaderboard runs: no more than a TOML file."""
    file = tmp_path / "mine-v1.toml"
    file.write_text(
        'name = "mine-v1"\nversion = 1\nextends = "dl2-small-v1"\ndescription = "d"\n[config.workload.calibrated]\n'
        'file = "philly"\ntarget_load = 0.6\n[sources]\n"workload.calibrated" = "data/calibrations/philly.yaml"\n'
    )
    mine = load_scenario(file)
    assert mine.config.workload.calibrated == CalibratedConfig("philly", 0.6)
    assert mine.workloads("test", 1)[0].num_jobs == 60
