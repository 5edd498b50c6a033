"""Recorded decisions as Minari datasets, and Minari datasets as recorded decisions.

Needs the extra `minari`. A dataset lies where Minari keeps them: below `MINARI_DATASETS_PATH`, by default in
`~/.minari/datasets`. Per episode of T decisions it has, besides Minari's own fields, `infos` as the environment gives
them, with entry 0 for the reset and entry t + 1 for step t:

| info | shape | content |
|---|---|---|
| `action_mask` | (T + 1, A) bool | actions that are legal in the observation of the same index; at last void |
| `label` | (T + 1,) int64 | what the teacher does in the observation of the same index; -1 after the last step |
| `interval_ended` | (T + 1,) bool | the step before ended a scheduling interval |

`actions` are those that were taken. Minari's metadata hold the header of the recording under `dl2env`.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from agents.decision_checks import check_arrays
from agents.decision_files import Header, check_follows, parse_header, part_paths, read_part
from agents.decision_layout import ObservationLayout, layout_of
from agents.demonstrations import Demonstrations
from agents.recording import Arrays, demonstrations_of
from dl2env.errors import ConfigError, TraceError

PREFIX = "minari:"
"""What a dataset's name begins with where a file is expected."""

_KEY = "dl2env"


def is_minari(name: str) -> bool:
    """Whether a name is that of a dataset and not of a file."""
    return name.startswith(PREFIX)


def _minari() -> Any:
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise ConfigError(
            f"Minari datasets need the package {error.name}, which is not installed; install dl2env with its extra "
            "minari (pip install -e '.[minari]')"
        ) from error
    return minari


def check_dataset_id(dataset_id: str) -> None:
    """Makes sure that a dataset of this name can be written.

    Raises:
        ConfigError: Minari is not installed, or the name is wrong or taken.
    """
    minari = _minari()
    cure = "write [namespace/]name-v<number>"
    if not re.fullmatch(r".+-v\d+", dataset_id):
        raise ConfigError(f"minari.dataset_id={dataset_id}: has no version; {cure}")
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except ValueError as error:
        raise ConfigError(f"minari.dataset_id={dataset_id}: not a name that Minari takes; {cure}") from error
    path = minari.storage.get_dataset_path(dataset_id)
    if path.exists():
        raise ConfigError(
            f"minari.dataset_id={dataset_id}: exists already at {path}; give another version, or remove it with "
            "minari.delete_dataset"
        )


def export_minari(
    recording: Path,
    dataset_id: str,
    *,
    author: str | None = None,
    author_email: str | None = None,
    code_permalink: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Writes a recording as a Minari dataset, one part after the other.

    Episodes that the recording's end cut off are marked as truncated. If the export fails or is interrupted, nothing is
    left of it.

    Args:
        recording: File or folder.
        dataset_id: Name of the dataset, `[namespace/]name-v<number>`.
        author: Kept with the dataset, as are the next two.
        author_email: Address to ask.
        code_permalink: Where the code is.
        progress: Called with the number of decisions that are exported.

    Returns:
        Number of episodes.

    Raises:
        ConfigError: Minari is not installed, or the name is wrong or taken.
        TraceError: The recording cannot be read, or lacks what a dataset needs.
    """
    minari = _minari()
    check_dataset_id(dataset_id)
    header, first = read_part(part_paths(recording)[0])
    needed = ("rewards", "final_jobs", "final_cluster", "next_jobs", "next_cluster")
    missing = [name for name in needed if name not in first]
    if missing:
        raise TraceError(
            f"{recording}: has no {', '.join(missing)}, which a Minari dataset needs; add them or record it again"
        )
    provenance = header.provenance
    names = ", ".join(str(player.get("name")) for player in provenance.get("teachers", []))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about metadata that the user chose not to give
            dataset = minari.create_dataset_from_buffers(
                dataset_id,
                _buffers(minari, recording, progress),
                env=_env_spec(provenance),
                observation_space=_observation_space(header.layout),
                action_space=spaces.Discrete(header.layout.num_actions),
                algorithm_name=names or "unknown",
                author=author,
                author_email=author_email,
                code_permalink=code_permalink,
                description=f"Decisions of {names or 'schedulers'} in dl2env, with their states and labels",
                data_format="hdf5",
            )
        dataset.storage.update_metadata({_KEY: header.to_json()})
        return int(dataset.total_episodes)
    except BaseException:
        _remove(minari, dataset_id)
        raise


def _remove(minari: Any, dataset_id: str) -> None:
    shutil.rmtree(minari.storage.get_dataset_path(dataset_id), ignore_errors=True)


def _env_spec(provenance: Mapping[str, Any]) -> EnvSpec | None:
    """How to make the environment again, if it is that of a scenario of the project without changes."""
    from dl2env.config_dict import config_to_dict
    from dl2env.errors import Dl2EnvError
    from dl2env.scenarios import get_scenario

    name = provenance.get("scenario", {}).get("name")
    try:
        config = config_to_dict(get_scenario(str(name)).config)
    except Dl2EnvError:
        return None
    if json.loads(json.dumps(config)) != json.loads(json.dumps(provenance.get("env"))):
        return None
    return EnvSpec(
        "dl2env/Scheduling-v0", entry_point="dl2env.envs.scheduling_env:SchedulingEnv", kwargs={"scenario": name}
    )


def _observation_space(layout: ObservationLayout) -> spaces.Dict:
    low, high = (-1.0, 1.0) if layout.observation == "native" else (-np.inf, np.inf)
    shape = (len(layout.cluster_columns),)
    return spaces.Dict(
        {
            "cluster": spaces.Box(max(low, 0.0) if layout.observation == "native" else low, high, shape, np.float32),
            "jobs": spaces.Box(low, high, layout.jobs_shape, np.float32),
        }
    )


def _buffers(minari: Any, recording: Path, progress: Callable[[int], None] | None) -> Iterator[Any]:
    """Whole episodes in the order in which they end."""
    from minari.data_collector import EpisodeBuffer

    names = ("jobs", "cluster", "masks", "actions", "taken", "rewards", "interval_ended", "terminated", "truncated")
    first: Header | None = None
    before: Arrays | None = None
    begun: list[list[Arrays]] = []
    done_decisions = 0
    for file in part_paths(recording):
        header, part = read_part(file)
        first = first or header
        check_follows(file, first, header, before, part)
        before = part
        part = {"taken": part["actions"], **part}
        num_envs = part["actions"].shape[1]
        begun = begun or [[] for _ in range(num_envs)]
        starts = [0] * num_envs
        ends = np.argwhere(part["terminated"] | part["truncated"])  # in the order of final_*
        for k, (t, b) in enumerate(ends.tolist()):
            begun[b].append({name: part[name][starts[b] : t + 1, b] for name in names})
            yield _buffer(EpisodeBuffer, begun[b], {n: part[f"final_{n}"][k] for n in ("jobs", "cluster")})
            begun[b], starts[b] = [], t + 1
        for b, start in enumerate(starts):
            if start < len(part["actions"]):  # copies, so that the part can go
                begun[b].append({name: part[name][start:, b].copy() for name in names})
        done_decisions += part["actions"].size
        if progress is not None:
            progress(done_decisions)
    assert before is not None
    for b, pieces in enumerate(begun):
        if pieces:
            pieces[-1]["truncated"][-1] = True
            yield _buffer(EpisodeBuffer, pieces, {n: before[f"next_{n}"][b] for n in ("jobs", "cluster")})


def _buffer(kind: Any, pieces: list[Arrays], last: Mapping[str, NDArray[np.float32]]) -> Any:
    whole = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    num_actions = whole["masks"].shape[1]
    void_only = np.arange(num_actions)[None] == num_actions - 1
    return kind(
        observations={name: np.concatenate([whole[name], last[name][None]]) for name in ("cluster", "jobs")},
        actions=whole["taken"],
        rewards=whole["rewards"],
        terminations=whole["terminated"],
        truncations=whole["truncated"],
        infos={
            "action_mask": np.concatenate([whole["masks"], void_only]),
            "label": np.append(whole["actions"], -1),
            "interval_ended": np.concatenate([[False], whole["interval_ended"]]),
        },
    )


def _load(name: str) -> Any:
    dataset_id = name.removeprefix(PREFIX)
    minari = _minari()
    try:
        return minari.load_dataset(dataset_id)
    except FileNotFoundError as error:
        raise TraceError(f"{name}: {error}; minari.list_local_datasets() tells what is there") from error
    except Exception as error:  # of Minari's storage, for damaged datasets
        raise TraceError(f"{name}: cannot be read ({type(error).__name__}: {error}); write it again") from error


def minari_header(name: str) -> Header:
    """What a dataset says about its decisions.

    Args:
        name: `minari:<dataset id>`.

    Raises:
        ConfigError: Minari is not installed.
        TraceError: There is no such dataset, or it does not say what its observations mean.
    """
    return _header(name, _load(name))


def _header(name: str, dataset: Any) -> Header:
    stored = dataset.storage.metadata.get(_KEY)
    if stored is not None:
        return parse_header(name, np.array(str(stored)))
    spec = dataset.spec.env_spec
    if spec is not None and "config" not in spec.kwargs and "dl2env" in str(spec.entry_point):
        from dl2env.config_dict import config_to_dict
        from dl2env.scenarios import get_scenario

        scenario = get_scenario(spec.kwargs.get("scenario") or "dl2-small-v1")
        provenance = {"env": config_to_dict(scenario.config), "scenario": {"name": scenario.name}}
        return Header(layout_of(scenario.config), provenance)
    raise TraceError(
        f"{name}: does not say what its observations mean; put the header that docs/decision_files.md describes into "
        f"its metadata: dataset.storage.update_metadata({{{_KEY!r}: header}})"
    )


def read_minari(name: str, progress: Callable[[int], None] | None = None) -> tuple[Header, Demonstrations]:
    """Reads a dataset into memory: its episodes one after the other, as if played in one environment.

    Datasets that `minari.DataCollector` recorded with `record_infos=True` in an environment of dl2env can be read too:
    their labels are the actions.

    Args:
        name: `minari:<dataset id>`.
        progress: Called with the number of decisions that are read.

    Returns:
        What it says about itself, and the decisions.

    Raises:
        ConfigError: Minari is not installed.
        TraceError: There is no such dataset, or its content cannot be learned from.
    """
    dataset = _load(name)
    header = _header(name, dataset)
    episodes: list[Arrays] = []
    total = 0
    try:
        for episode in dataset.iterate_episodes():
            arrays = _episode_arrays(f"{name}, episode {episode.id}", episode)
            check_arrays(f"{name}, episode {episode.id}", {n: a[None] for n, a in arrays.items()}, header.layout)
            episodes.append(arrays)
            total += len(arrays["actions"])
            if progress is not None:
                progress(total)
    except (OSError, KeyError, RuntimeError) as error:  # of h5py, for damaged files
        raise TraceError(f"{name}: damaged ({type(error).__name__}: {error}); write it again") from error
    if not episodes:
        raise TraceError(f"{name}: holds no episode; record one")
    kept = set.intersection(*(set(arrays) for arrays in episodes))
    part = {n: np.concatenate([arrays.pop(n) for arrays in episodes])[:, None] for n in sorted(kept)}
    for key in ("actions", "taken"):
        part[key] = part[key].astype(np.int64)
    for key in ("jobs", "cluster", "rewards"):
        if key in part:
            part[key] = part[key].astype(np.float32)
    if (part["taken"] == part["actions"]).all():
        del part["taken"]
    return header, demonstrations_of(part, header.provenance)


def _episode_arrays(where: str, episode: Any) -> Arrays:
    infos = episode.infos or {}
    if "action_mask" not in infos:
        raise TraceError(
            f"{where}: has no infos/action_mask; record with minari.DataCollector(env, record_infos=True), or export "
            "with scripts/make_traces.py format=minari"
        )
    if not isinstance(episode.observations, Mapping) or not {"jobs", "cluster"} <= set(episode.observations):
        raise TraceError(f"{where}: observations are no dictionary with jobs and cluster; record them in dl2env")
    steps = len(episode.rewards)
    arrays: Arrays = {
        "jobs": np.asarray(episode.observations["jobs"])[:steps],
        "cluster": np.asarray(episode.observations["cluster"])[:steps],
        "masks": np.asarray(infos["action_mask"])[:steps].astype(np.bool_),
        "taken": np.asarray(episode.actions),
    }
    arrays["actions"] = np.asarray(infos["label"])[:steps] if "label" in infos else arrays["taken"]
    if "interval_ended" in infos:
        arrays["rewards"] = np.asarray(episode.rewards, dtype=np.float64)
        arrays["interval_ended"] = np.asarray(infos["interval_ended"])[1 : steps + 1].astype(np.bool_)
        arrays["terminated"] = np.asarray(episode.terminations, dtype=np.bool_)
        arrays["truncated"] = np.asarray(episode.truncations, dtype=np.bool_)
    return arrays
