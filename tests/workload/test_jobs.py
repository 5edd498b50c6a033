"""The job table: what it accepts, refuses and hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dl2env.errors import ConfigError
from dl2env.workload.jobs import Workload

VALUES: dict[str, Any] = {
    "arrival_s": [0.0, 5.0],
    "type_idx": [1, 0],
    "epochs": [2.0, 3.0],
    "true_epochs": [2.0, 3.5],
    "samples_per_epoch": [100.0, 200.0],
    "type_names": ("a", "b"),
}


def test_arrays_are_converted() -> None:
    workload = Workload(**VALUES)
    assert workload.num_jobs == 2
    assert workload.type_idx.dtype == np.int32 and workload.arrival_s.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrival_s": [5.0, 0.0]}, ["job 1", "sort"]),
        ({"arrival_s": [-1.0, 0.0]}, ["arrival_s", "job 0"]),
        ({"epochs": [2.0, float("nan")]}, ["epochs", "job 1"]),
        ({"true_epochs": [0.0, 1.0]}, ["true_epochs", "job 0", "positive"]),
        ({"samples_per_epoch": [1.0]}, ["samples_per_epoch"]),
        ({"type_idx": [0, 2]}, ["job 1", "2 types"]),
        ({key: [] for key in VALUES if key != "type_names"}, ["no jobs"]),
    ],
)
def test_wrong_tables(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        Workload(**{**VALUES, **change})
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"arrival_s": [0.0, 6.0]},
        {"type_idx": [0, 0]},
        {"epochs": [2.0, 4.0]},
        {"true_epochs": [2.0, 3.0]},
        {"samples_per_epoch": [100.0, 201.0]},
        {"type_names": ("a", "c")},
        {"noise_key": 1},
    ],
)
def test_digest_covers_every_value_but_the_provenance(change: dict[str, Any]) -> None:
    digest = Workload(**VALUES).digest()
    assert digest == Workload(**{**VALUES, "provenance": {"seed": 1}}).digest()
    assert digest != Workload(**{**VALUES, **change}).digest()
