"""Whether recorded decisions are what they should be: shapes, types, ranges, and actions that were legal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.decision_layout import ObservationLayout
from agents.recording import Arrays
from dl2env.errors import TraceError

REQUIRED = ("jobs", "cluster", "masks", "actions")
_FLAGS = ("interval_ended", "terminated", "truncated")
OUTCOME = ("rewards", *_FLAGS)

_TOLERANCE = 1e-6


def check_arrays(where: str, arrays: Arrays, layout: ObservationLayout) -> None:
    """Checks arrays in the form of a file.

    Raises:
        TraceError: One is missing, has a wrong shape or type, or holds what cannot be.
    """
    for name in REQUIRED:
        if name not in arrays:
            raise TraceError(f"{where}: array {name} is missing; see docs/decision_files.md")
    outcome = [name for name in OUTCOME if name in arrays]
    if outcome and len(outcome) < len(OUTCOME):
        missing = [name for name in OUTCOME if name not in arrays]
        raise TraceError(f"{where}: has {', '.join(outcome)} but no {', '.join(missing)}; give all of them or none")
    check_size(where, arrays["actions"])
    size = arrays["actions"].shape
    expected: dict[str, tuple[tuple[int, ...], str]] = {
        "jobs": ((*size, *layout.jobs_shape), "f"),
        "cluster": ((*size, len(layout.cluster_columns)), "f"),
        "masks": ((*size, layout.num_actions), "b"),
        "rewards": (size, "f"),
        **{name: (size, "iu") for name in ("actions", "taken", "pinned", "teacher", "behaviour")},
        **{name: (size, "b") for name in _FLAGS},
    }
    if "terminated" in arrays and "truncated" in arrays:
        num_ended = int((arrays["terminated"] | arrays["truncated"]).sum()) if arrays["terminated"].shape == size else 0
        for name in ("jobs", "cluster"):
            row = expected[name][0][2:]
            expected[f"final_{name}"] = ((num_ended, *row), "f")
            expected[f"next_{name}"] = ((size[0], *row), "f")
    kinds = {"f": "a float type", "b": "bool", "iu": "an integer type"}
    for name, (shape, kind) in expected.items():
        if name not in arrays:
            continue
        if arrays[name].shape != shape:
            raise TraceError(
                f"{where}: {name} has shape {arrays[name].shape}; by actions and the layout it must be {shape}"
            )
        if arrays[name].dtype.kind not in kind:
            raise TraceError(f"{where}: {name} has type {arrays[name].dtype}; it must be {kinds[kind]}")
    _check_observations(where, arrays, layout)
    _check_actions(where, arrays)


def check_size(where: str, actions: NDArray[Any]) -> None:
    """Raises a `TraceError` unless actions are those of at least one step in at least one environment."""
    if actions.ndim != 2 or 0 in actions.shape:
        raise TraceError(
            f"{where}: actions has shape {actions.shape}; expected (environments, steps), at least 1 of each"
        )


def _check_observations(where: str, arrays: Arrays, layout: ObservationLayout) -> None:
    for name in ("jobs", "cluster", "rewards"):
        if name not in arrays:
            continue
        bad = ~np.isfinite(arrays[name])
        limit = "is not finite; write a number"
        if layout.observation == "native" and name != "rewards" and not bad.any():
            bad = np.abs(arrays[name]) > 1.0 + _TOLERANCE
            limit = "lies outside [-1, 1]; scale it as the column's description says"
        if bad.any():
            index = _first(bad)
            column = ""
            if name == "cluster":
                column = f" (column {layout.cluster_columns[index[2]]})"
            elif name == "jobs":
                column = f" (column {layout.job_columns[index[3]]})"
            raise TraceError(f"{where}: {name}{list(index)}{column} = {arrays[name][index]} {limit}")


def _check_actions(where: str, arrays: Arrays) -> None:
    masks = arrays["masks"]
    if not masks[..., -1].all():
        index = _first(~masks[..., -1])
        raise TraceError(f"{where}: masks{list(index)}: void, the last action, is illegal; it is always legal, set it")
    for name in ("actions", "taken"):
        if name not in arrays:
            continue
        actions = arrays[name].astype(np.int64)
        inside = (actions >= 0) & (actions < masks.shape[2])
        legal = np.take_along_axis(masks, np.where(inside, actions, 0)[..., None], axis=2)[..., 0] & inside
        if not legal.all():
            index = _first(~legal)
            why = "is illegal by masks" if inside[index] else f"is none of the {masks.shape[2]} actions"
            raise TraceError(
                f"{where}: {name}{list(index)} = {actions[index]} {why}; correct or leave out the decision"
            )
    if "terminated" in arrays:
        bad = arrays["terminated"] & ~arrays["interval_ended"]
        if bad.any():
            index = _first(bad)
            raise TraceError(
                f"{where}: terminated{list(index)} is true but interval_ended is not; an episode ends with an interval"
            )


def _first(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
