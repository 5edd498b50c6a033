"""The recordings that a warm-up is told to learn from: files, folders of parts and Minari datasets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from agents.decision_files import Header, read_decisions, read_header
from agents.decision_layout import ObservationLayout, check_layout, has_same_reward, world_differences
from agents.demonstrations import DecisionMix, Demonstrations, check_weights
from agents.minari_data import is_minari, minari_header, read_minari
from agents.recording import Progress
from dl2env.config import EnvConfig
from dl2env.errors import ConfigError

_MAX_NAMED = 8


def check_files(
    names: Sequence[str], weights: Sequence[float], layout: ObservationLayout, config: EnvConfig
) -> list[str]:
    """Reads what recordings say about themselves, so that unfit ones are told before anything runs.

    Args:
        names: Files, folders, or `minari:<dataset id>`.
        weights: Weights of the recordings, or none.
        layout: What the run's network sees.
        config: The run's world.

    Returns:
        What the user should know: in what the worlds differ, and whose rewards cannot be used.

    Raises:
        ConfigError: The weights do not fit, or a recording is named twice.
        TraceError: A recording is missing, damaged or unfit.
    """
    try:
        check_weights(len(names), weights)
    except ConfigError as error:
        raise ConfigError(f"warmup.file_weights: {error}") from error
    if len(set(names)) < len(names):
        raise ConfigError(f"warmup.files={list(names)} names a recording twice; use warmup.file_weights instead")
    notes = []
    for name in names:
        header = minari_header(name) if is_minari(name) else read_header(Path(name))
        check_layout(name, header.layout, layout)
        notes += _notes(name, header, config)
    return notes


def _notes(name: str, header: Header, config: EnvConfig) -> list[str]:
    recorded = header.provenance.get("env")
    if not recorded:
        return []
    notes = []
    keys = world_differences(recorded, config)
    if keys:
        rest = f" and {len(keys) - _MAX_NAMED} more" if len(keys) > _MAX_NAMED else ""
        notes.append(f"{name}: recorded in another world ({', '.join(keys[:_MAX_NAMED])}{rest})")
    if not has_same_reward(recorded, config):
        notes.append(f"{name}: recorded with another reward; its decisions are learned, its returns are not")
    return notes


def read_files(
    names: Sequence[str],
    weights: Sequence[float],
    layout: ObservationLayout,
    config: EnvConfig,
    progress: Progress | None = None,
) -> DecisionMix:
    """Reads recordings into memory; arguments and errors as of `check_files`.

    Args:
        names: Files, folders, or `minari:<dataset id>`.
        weights: Weights of the recordings, or none.
        layout: What the run's network sees.
        config: The run's world.
        progress: Called with the number of recordings that are read, and of all.
    """
    check_files(names, weights, layout, config)
    recordings: list[Demonstrations] = []
    for name in names:
        header, demos = read_minari(name) if is_minari(name) else read_decisions(Path(name))
        recorded = header.provenance.get("env")
        if recorded and not has_same_reward(recorded, config):
            demos = dataclasses.replace(demos, has_rewards=False)
        recordings.append(demos)
        if progress is not None:
            progress(len(recordings), len(names))
    return DecisionMix(tuple(recordings), tuple(weights))
