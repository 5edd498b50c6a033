"""Files of calibrations: round trips, the shipped ones, and one clear error for everything that can be wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dl2env.errors import ConfigError, Dl2EnvError, UnknownNameError
from dl2env.resources import data_path
from dl2env.workload.calibrated import Calibration, calibration_names, load_calibration, write_calibration
from dl2env.workload.calibrated.files import format_calibration, parse_calibration
from dl2env.workload.calibrated.model import Level
from tests.workload.calibrated.models import SMALL

TEXT = format_calibration(SMALL, "a comment")


def changed(*path: Any, to: Any = None, remove: bool = False) -> str:
    values = yaml.safe_load(TEXT)
    node = values
    for part in path[:-1]:
        node = node[part]
    if remove:
        del node[path[-1]]
    else:
        node[path[-1]] = to
    return yaml.safe_dump(values)


def test_round_trip(tmp_path: Path) -> None:
    path = write_calibration(SMALL, tmp_path / "new" / "small.yaml", "first line\nsecond line")
    assert load_calibration(path) == SMALL
    assert path.read_text().startswith("# first line\n# second line\n")
    assert load_calibration(path).digest() == SMALL.digest()


def test_names_and_provenance_do_not_count() -> None:
    other = dataclasses.replace(SMALL, name="other", description="d", provenance={"file": "f"})
    assert other.digest() == SMALL.digest()
    levels = (Level(2.0, 301.0), *SMALL.arrivals.levels[1:])
    assert (
        dataclasses.replace(SMALL, arrivals=dataclasses.replace(SMALL.arrivals, levels=levels)).digest()
        != other.digest()
    )


@pytest.mark.parametrize("name", ["gavel", "openb", "philly"])
def test_shipped_calibrations(name: str) -> None:
    assert name in calibration_names()
    calibration = load_calibration(name)
    path = data_path("calibrations", f"{name}.yaml")
    assert path.stat().st_size < 10_000
    assert calibration.name == name
    provenance = calibration.provenance
    assert len(provenance["sha256"]) == 64 and provenance["jobs"] > 500
    assert provenance["command"].startswith("python scripts/fit_workload.py path=")
    assert "/" not in provenance["command"].removeprefix("python scripts/fit_workload.py")
    # Collective figures only: quantiles leave ten jobs on either side, in all classes that use them together.
    for model in calibration.durations:
        share = sum(c.share for c in calibration.gpus if c.durations == model.name)
        for p in model.probabilities:
            assert min(p, 1 - p) * share * provenance["jobs"] >= 9.5


def test_every_shipped_file_has_a_conf_group() -> None:
    conf = Path(__file__).resolve().parents[3] / "conf" / "workload"
    for name in calibration_names():
        assert yaml.safe_load((conf / f"{name}_like.yaml").read_text())["calibrated"]["file"] == name


BAD: list[tuple[tuple[Any, ...], Any, str]] = [
    (("schema",), "other", "schema='other'"),
    (("version",), 2, "version=2"),
    (("name",), "", "name: empty"),
    (("name",), 3, "name: expected str"),
    (("description",), [], "description: expected str"),
    (("provenance",), 3, "provenance: expected a group"),
    (("arrivals",), 3, "arrivals: expected a group"),
    (("arrivals", "jobs_per_day"), 0, "arrivals.jobs_per_day"),
    (("arrivals", "jobs_per_day"), float("nan"), "arrivals.jobs_per_day"),
    (("arrivals", "hour_of_day"), [1.0] * 23, "arrivals.hour_of_day: has 23 values"),
    (("arrivals", "hour_of_day", 3), -1.0, "arrivals.hour_of_day=-1"),
    (("arrivals", "day_of_week"), [1.0] * 8, "arrivals.day_of_week: has 8 values"),
    (("arrivals", "day_of_week", 0), "x", r"arrivals.day_of_week\[0\]: expected float"),
    (("arrivals", "has_dates"), 1, "arrivals.has_dates: expected bool"),
    (("arrivals", "levels"), [{"variance": 1.0, "time_s": 9.0}] * 9, "arrivals.levels: has 9"),
    (("arrivals", "levels", 0, "variance"), 0.0, "arrivals.levels: variance=0"),
    (("arrivals", "levels", 1, "time_s"), -3.0, "arrivals.levels: time_s=-3"),
    (("arrivals", "levels", 1, "time"), 3.0, r"arrivals.levels\[1\].time: unknown key"),
    (("arrivals", "rate"), 3.0, "arrivals.rate: unknown key"),
    (("repeats", "within_s"), 0.0, "repeats.within_s"),
    (("repeats", "share"), 1.5, "repeats.share"),
    (("repeats", "correlation"), 1.0, "repeats.correlation"),
    (("gpus",), [], "gpus: has 0 classes"),
    (("gpus", 0, "gpus"), -1.0, "gpus: gpus=-1"),
    (("gpus", 0, "gpus"), 4.0, "gpus: 4.0 GPUs come twice"),
    (("gpus", 0, "share"), 0.0, "gpus: share=0"),
    (("gpus", 0, "share"), 0.6, "gpus: share: shares sum to 0.9"),
    (("gpus", 0, "durations"), "none", "no such distribution"),
    (("durations", 0, "name"), "more", "durations: more comes twice"),
    (("durations", 0, "kind"), "weibull", "durations: one: kind='weibull'"),
    (("durations", 0, "shortest_s"), 0.0, "durations: one: shortest_s"),
    (("durations", 0, "longest_s"), 0.5, "durations: one: longest_s"),
    (("durations", 0, "shares"), [0.5, 0.4], "durations: one: shares: shares sum to 0.9"),
    (("durations", 0, "medians_s"), [60.0], "durations: one: medians_s: has 1"),
    (("durations", 0, "medians_s", 0), -60.0, "durations: one: medians_s=-60"),
    (("durations", 0, "sigmas", 0), -0.1, "durations: one: sigmas: -0.1"),
    (("durations", 0, "seconds"), [1.0], "durations: one: seconds: not used by kind=lognormals"),
    (("durations", 1, "probabilities"), [0.5, 0.1, 0.9], "durations: more: probabilities: must increase"),
    (("durations", 1, "probabilities", 2), 1.0, "durations: more: probabilities: 1.0"),
    (("durations", 1, "seconds"), [100.0, 10.0, 1000.0], "durations: more: seconds: must not decrease"),
    (("durations", 1, "seconds"), [], "durations: more: seconds: has 0"),
    (("colour",), "red", "colour: unknown key"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"), BAD, ids=[f"{'.'.join(map(str, p))}={str(v)[:20]}" for p, v, _ in BAD]
)
def test_a_wrong_value_is_one_line_with_file_and_key(
    tmp_path: Path, path: tuple[Any, ...], value: Any, message: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(changed(*path, to=value))
    with pytest.raises(ConfigError, match=message) as caught:
        load_calibration(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        ("schema",), ("version",), ("name",), ("arrivals",), ("gpus",), ("durations",), ("arrivals", "jobs_per_day"),
        ("arrivals", "levels", 1, "time_s"), ("repeats", "share"), ("gpus", 2, "durations"), ("gpus", 1, "share"),
        ("durations", 1, "kind"), ("durations", 0, "longest_s"),
    ],
)  # fmt: skip
def test_a_missing_key_is_named(tmp_path: Path, path: tuple[Any, ...]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(changed(*path, remove=True))
    with pytest.raises(ConfigError, match=rf"{path[-1]}: missing; add it") as caught:
        load_calibration(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_an_unused_distribution_is_an_error() -> None:
    extra = dataclasses.replace(SMALL.durations[0], name="extra")
    with pytest.raises(ConfigError, match="durations: extra: no class of gpus uses it"):
        dataclasses.replace(SMALL, durations=(*SMALL.durations, extra))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no mapping"),
        ("- 1", "no mapping"),
        ("a: [1", "line 1: not valid YAML"),
        ("name: x\nname: y", "line 2: name: comes twice"),
        ("a: !!python/object:os.system x", "not valid YAML"),
        ("? [1, 2]\n: 3", "no key"),
        ("a: 2024-99-99", "not valid YAML|schema: missing"),
        ("x: &a [*a]", "not valid YAML|schema: missing"),
    ],
)  # fmt: skip
def test_what_is_no_calibration(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_calibration(text, "f.yaml")


def test_bytes_and_absent_files(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.yaml").write_bytes(b"#" * 1_000_001)
    for name, message in (("binary", "not UTF-8"), ("large", "larger than"), ("absent", "cannot be read")):
        with pytest.raises(ConfigError, match=message):
            load_calibration(tmp_path / f"{name}.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_calibration(tmp_path)
    with pytest.raises(UnknownNameError, match="choose one of: gavel, openb, philly"):
        load_calibration("phily")
    with pytest.raises(ConfigError, match=r"ends in \.yaml"):
        write_calibration(SMALL, tmp_path / "x.txt")


def test_numbers_with_exponents_need_no_point() -> None:
    assert parse_calibration(TEXT.replace("time_s: 20000.0", "time_s: 2e4")) == SMALL


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_mangled_text_is_a_clear_error_or_a_calibration(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TEXT) - 1))
    length = data.draw(st.integers(0, 30))
    new = data.draw(st.text(st.characters(codec="utf-8"), max_size=6))
    try:
        found = parse_calibration(TEXT[:at] + new + TEXT[at + length :], "f.yaml")
    except Dl2EnvError as error:
        assert str(error).startswith("f.yaml")
    else:
        assert isinstance(found, Calibration)
