"""Files of population parameters: read, written, and refused where they are wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dl2env.errors import ConfigError, UnknownNameError
from dl2env.resources import data_path
from dl2env.workload.population_config import (
    KINDS,
    format_population_config,
    load_population_config,
    population_config_from_dict,
)

NAMES = ("pai_assumed", "pai_synthetic")


def content() -> dict[str, Any]:
    return tomllib.loads(data_path("populations", "pai_assumed.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_value_has_a_source_and_is_called_synthetic(name: str) -> None:
    config = load_population_config(name)
    assert config.name == name and "not PAI data" in config.description
    text = data_path("populations", f"{name}.toml").read_text(encoding="utf-8")
    assert "SYNTHETIC" in text
    keys = {f"{section}.{key}" for section, record in config.sections().items() for key in vars(record)}
    keys -= {f"time_shares.one_cnode.communication_{what}" for what in ("median", "sigma")}
    assert set(config.sources) == keys
    assert all(config.sources.values())


@pytest.mark.parametrize("name", NAMES)
def test_written_and_read_back(name: str, tmp_path: Path) -> None:
    config = load_population_config(name)
    path = tmp_path / "copy.toml"
    path.write_text(format_population_config(config, "a header\n\nof lines"))
    copy = load_population_config(path)
    assert copy == config and dict(copy.sources) == dict(config.sources)
    assert path.read_text().startswith("# a header\n#\n# of lines\n\nname = ")


def test_texts_with_quotes_survive(tmp_path: Path) -> None:
    raw = content() | {"name": 'a "b" \\ c'}
    path = tmp_path / "copy.toml"
    path.write_text(format_population_config(population_config_from_dict(raw), "x"))
    assert load_population_config(str(path)).name == raw["name"]


def test_values_by_dotted_key() -> None:
    config = load_population_config("pai_assumed")
    changed = config.with_values({"composition.ps_size_median": 9.5, "time_shares.local.input_median": 0.2})
    assert changed.value("composition.ps_size_median") == 9.5
    assert changed.value("time_shares.local.input_median") == 0.2
    assert config.value("composition.ps_size_median") == 8.5
    assert changed.with_values({"composition.ps_size_median": 8.5, "time_shares.local.input_median": 0.08}) == config


def test_default_is_the_calibrated_one() -> None:
    assert load_population_config().name == "pai_synthetic"


def test_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown population 'pai'; choose one of: pai_assumed, pai_synthetic"):
        load_population_config("pai")
    with pytest.raises(UnknownNameError):
        load_population_config("published_figures")


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("name", None, "name='' must be a text"),
        ("description", 3, "description=3 must be a text"),
        ("extra", 3, "extra: unknown key"),
        ("composition", None, "no table [composition]"),
        ("features", None, "no table [features]"),
        ("time_shares", None, "time_shares has None; give it the tables one_cnode"),
        ("time_shares.ps_light", None, "time_shares has one_cnode, local, ps_heavy; give it the tables"),
        ("time_shares.local", 3, "no table [time_shares.local]"),
        ("composition.heavy_share", None, "composition.heavy_share is missing"),
        ("composition.heavy", 0.1, "composition.heavy: unknown key"),
        ("composition.heavy_share", "much", "composition.heavy_share: expected float"),
        ("composition.heavy_share", 1.0, "heavy_share=1.0 must be between 0 and 1"),
        ("composition.heavy_share", float("nan"), "heavy_share: nan is no value"),
        ("composition.job_share_1w1g", 1.2, "job_share_1w1g=1.2 must be in 0 to 1"),
        ("composition.job_share_1wng", 0.5, "job_share_1wng=0.5 must be at most 1 together with job_share_1w1g"),
        ("composition.local_size_shares", [0.5, 0.5], "must be 7 shares of at least 0 that add up to 1"),
        ("composition.local_size_shares", [0.5] * 7, "must be 7 shares"),
        ("composition.ps_size_median", 1.0, "ps_size_median=1.0 must be at least 2"),
        ("composition.ps_size_largest", 8.0, "ps_size_largest=8.0 must be larger than ps_size_median"),
        ("composition.ps_size_shape", 0.0, "ps_size_shape=0.0 must be positive"),
        ("composition.sources.heavy", "x", "composition.sources.heavy: must be a text about a value"),
        ("composition.sources.heavy_share", 3, "composition.sources.heavy_share: must be a text"),
        ("composition.sources", 3, "composition.sources must be a table"),
        ("time_shares.local.input_median", 0.0, "input_median=0.0 must be between 0 and 1"),
        ("time_shares.local.input_sigma", -1.0, "input_sigma=-1.0 must be at least 0"),
        ("features.step_median_s", 0.0, "step_median_s=0.0 must be positive"),
        ("features.step_sigma", -0.5, "step_sigma=-0.5 must be at least 0"),
        ("features.embedding_job_share", 2.0, "embedding_job_share=2.0 must be in 0 to 1"),
        ("features.optimizer_slot_shares", [1.0], "must be 3 shares"),
        ("features.batch_largest", 0.5, "batch_largest=0.5 must be at least 1"),
    ],
)
def test_bad_value(where: str, value: Any, message: str) -> None:
    raw = content()
    *tables, key = where.split(".")
    table = raw
    for name in tables:
        table = table[name]
    if value is None:
        del table[key]
    else:
        table[key] = value
    if where.startswith("composition.heavy_share") and value is None:
        del raw["composition"]["sources"]["heavy_share"]
    with pytest.raises(ConfigError) as caught:
        population_config_from_dict(raw, "my.toml")
    assert str(caught.value).startswith("my.toml: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"name = ", "not valid TOML"), (b"\xff\xfe\x00", "not valid TOML"), (None, "cannot be read")],
)
def test_bad_file(raw: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(ConfigError, match=message):
        load_population_config(path)


def test_kinds_of_a_configuration_built_by_hand() -> None:
    config = load_population_config("pai_assumed")
    shares = {kind: config.time_shares[kind] for kind in KINDS[:-1]}
    with pytest.raises(ConfigError, match="it must have one_cnode, local, ps_light, ps_heavy"):
        type(config)("x", "y", config.composition, shares, config.features)
