"""Splits for cross-validation: by configuration at random, and by group of configurations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dl2env.errors import ConfigError
from dl2env.evaluation.speed_validation.steps import FloatArray, MeasuredSteps

Split = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Indices of the steps to fit to, and of those to test on."""


def configuration_folds(steps: MeasuredSteps, num_folds: int, rng: np.random.Generator) -> list[Split]:
    """Splits the configurations at random into folds of about equal size, each left out once.

    Raises:
        ConfigError: There are fewer configurations than folds.
    """
    names, index = np.unique(steps.configuration, return_inverse=True)
    if len(names) < 2:
        raise ConfigError(
            f"{steps.name!r} was measured in one configuration only, nothing can be left out; add others or remove it"
        )
    if not 2 <= num_folds <= len(names):
        raise ConfigError(
            f"folds={num_folds}: {steps.name!r} has {len(names)} configurations; take 2 to {len(names)} folds"
        )
    fold = np.empty(len(names), dtype=np.int64)
    fold[rng.permutation(len(names))] = np.arange(len(names)) % num_folds
    return [_split(fold[index] == k) for k in range(num_folds)]


def group_folds(steps: MeasuredSteps) -> list[Split]:
    """Leaves each group out once, smallest placements first; none if there is one group only."""
    groups = steps.groups()
    return [_split(steps.group == name) for name in groups] if len(groups) > 1 else []


def _split(is_test: NDArray[np.bool_]) -> Split:
    return np.nonzero(~is_test)[0], np.nonzero(is_test)[0]


def held_out(splits: list[Split], size: int, predict: Callable[[Split], FloatArray]) -> FloatArray:
    """(size,) predictions, each by a model that was not fitted to it; NaN where no split tests a step.

    Args:
        splits: As made above.
        size: Number of steps.
        predict: Fits to the first part of a split and predicts the second.
    """
    predicted = np.full(size, np.nan)
    for split in splits:
        predicted[split[1]] = predict(split)
    return predicted
