"""Records the decisions of schedulers on a scenario, for the warm-up of `scripts/train.py` or other learners.

- `python scripts/make_traces.py teacher=optimus-exact out=recordings/optimus`: then
  `python scripts/train.py warmup.files=[recordings/optimus]`
- `python scripts/make_traces.py 'teacher=[drf, {name: optimus-exact, weight: 3}]'`: they take turns by episode
- `python scripts/make_traces.py teacher=optimus-exact behaviour=runs/default/<time>/best`: states that a network meets,
  labelled by Optimus (DAgger)
- `python scripts/make_traces.py format=minari minari.dataset_id=dl2env/drf-v0`: also a Minari dataset

A stopped recording goes on with the same command and out=<its folder>. docs/decision_files.md describes the files.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dl2env.config_dict import config_from_dict, config_to_dict
from dl2env.errors import ConfigError, UnknownNameError
from scripts import command_line

if TYPE_CHECKING:
    from agents.decision_files import Header
    from agents.decision_folder import FolderResult
    from agents.players import Player
    from agents.recording import Recorder
    from dl2env.evaluation.leaderboard.selection import SchedulerChoice
    from dl2env.scenarios import Scenario

FORMATS = ("npz", "minari")
WORLD_KEYS = ("scenario", "workload", "speed", "env")
ROLES = ("teacher", "behaviour")


@dataclass(frozen=True)
class MinariSettings:
    """How a Minari dataset is called, and what it says about itself.

    Attributes:
        dataset_id: Its name, `[namespace/]name-v<number>`.
        author: Who made it.
        author_email: Where to ask.
        code_permalink: Where the code is.
    """

    dataset_id: str | None = None
    author: str | None = None
    author_email: str | None = None
    code_permalink: str | None = None


@dataclass(frozen=True)
class MakeTracesSettings:
    """What to record, besides the world and the schedulers.

    Attributes:
        split: Which workloads: `train`, `validation` or `test`.
        seed: Seeds the workloads, and who plays which episode.
        num_envs: Environments that are played at once.
        num_decisions: Decisions to record; rounded up to a multiple of `num_envs`.
        decisions_per_part: Decisions of a file; rounded likewise. What is held in memory.
        observation: What is recorded: `native`, `paper` or `released`.
        observation_scale: Of the numbers of `paper` and `released`: `raw` or `log`.
        out: Folder of the recording.
        format: `npz`, or `minari` for a Minari dataset as well.
        minari: About that dataset.
    """

    split: str = "train"
    seed: int = 1
    num_envs: int = 64
    num_decisions: int = 131072
    decisions_per_part: int = 16384
    observation: str = "native"
    observation_scale: str = "raw"
    out: str | None = None
    format: str = "npz"
    minari: MinariSettings = field(default_factory=MinariSettings)

    def __post_init__(self) -> None:
        from agents.decision_layout import OBSERVATIONS
        from dl2env.scenarios import SPLITS

        for name in ("num_envs", "num_decisions", "decisions_per_part"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed={self.seed} must lie in 0..2**32 - 1")
        choices: dict[str, Sequence[str]] = {
            "split": SPLITS,
            "format": FORMATS,
            "observation": OBSERVATIONS,
            "observation_scale": ("raw", "log"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), list(known))
        if self.format == "minari" and self.minari.dataset_id is None:
            raise ConfigError("minari.dataset_id: not set, but format=minari; give [namespace/]name-v<number>")


@dataclass(frozen=True)
class Role:
    """The schedulers that label, or that act."""

    choices: tuple[SchedulerChoice, ...]
    weights: tuple[float, ...]

    def players(self) -> list[Player]:
        """New schedulers."""
        from agents.players import Player

        return [Player(choice.build(), weight) for choice, weight in zip(self.choices, self.weights, strict=True)]

    def to_list(self) -> list[dict[str, Any]]:
        """What a recording says about them."""
        return [
            {
                "name": choice.name,
                "label": choice.label,
                "options": dict(choice.options),
                "options_digest": choice.options_digest,
                "weight": weight,
            }
            for choice, weight in zip(self.choices, self.weights, strict=True)
        ]

    @property
    def label(self) -> str:
        """For people."""
        return ", ".join(choice.label for choice in self.choices)


def read_settings(values: Mapping[str, Any]) -> MakeTracesSettings:
    """Settings from what `conf/make_traces.yaml` composes to, world and schedulers left out.

    Raises:
        ConfigError: A key is unknown or a value is wrong.
    """
    own = {key: value for key, value in values.items() if key not in (*WORLD_KEYS, *ROLES)}
    settings: MakeTracesSettings = config_from_dict(MakeTracesSettings, own, "make_traces")
    return settings


def read_role(name: str, given: Any) -> Role:
    """The schedulers of a role from what a user wrote; each is built once, so that wrong options are found at once.

    Raises:
        Dl2EnvError: One is unknown, or an option or weight is wrong.
    """
    from dl2env.evaluation.leaderboard.selection import choose_schedulers

    weights = []
    plain = []
    for item in given if isinstance(given, list) else [given]:
        weight = item.get("weight", 1.0) if isinstance(item, Mapping) else 1.0
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
            raise ConfigError(f"{name}: weight={weight!r} must be a positive number")
        weights.append(float(weight))
        plain.append({k: v for k, v in item.items() if k != "weight"} if isinstance(item, Mapping) else item)
    if not plain:
        raise ConfigError(f"{name}: no scheduler given; name at least one")
    choices = choose_schedulers(plain, {}, translate=_checkpoint)
    if len(choices) != len(weights):
        raise ConfigError(f"{name}: patterns are not taken here; name the schedulers")
    return Role(tuple(choices), tuple(weights))


def _checkpoint(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A folder as the scheduler that decides by the checkpoint in it."""
    if not Path(name).is_dir():
        return name, options
    return "agents.scheduler:CheckpointScheduler", {"path": name, **options}


def make_traces(values: dict[str, Any], path: Path) -> None:
    """Records, exports if asked to, and writes `summary.json` into the run folder."""
    from agents.progress import PhaseBar
    from agents.settings import build_scenario
    from agents.settings import read_settings as read_world

    settings = read_settings(values)
    sys.path.insert(0, str(Path.cwd()))  # schedulers of the user's, by import path
    scenario = build_scenario(read_world({key: values[key] for key in WORLD_KEYS}))
    teacher = read_role("teacher", values["teacher"])
    behaviour = None if values["behaviour"] is None else read_role("behaviour", values["behaviour"])
    _check_players(scenario, settings, teacher, behaviour)
    if settings.format == "minari":
        from agents.minari_data import check_dataset_id

        check_dataset_id(str(settings.minari.dataset_id))
    out = path / "decisions" if settings.out is None else Path(settings.out)
    header = make_header(scenario, settings, teacher, behaviour)
    if settings.split == "test":
        print("note: recorded from test workloads; networks that learn from them must be compared on others")
    print(f"{scenario.name}, {teacher.label}; the first run also compiles the simulator, about a minute", flush=True)
    started = time.perf_counter()
    with PhaseBar(f"record {teacher.label}", "decision") as bar:
        result = _record(out, scenario, settings, teacher, behaviour, header, bar)
    print(
        f"{result.num_decisions} decisions, {result.num_new} of them new, {result.num_bytes / 1e6:.1f} MB "
        f"({result.num_bytes / max(result.num_decisions, 1):.0f} bytes each) in {out}"
    )
    if not result.is_complete:
        print(f"stopped; what was recorded is kept, go on with: {_command(out)}", file=sys.stderr)
        sys.exit(130)
    summary = {
        "out": str(out),
        "num_decisions": result.num_decisions,
        "num_new": result.num_new,
        "num_bytes": result.num_bytes,
        "minari": _export(out, settings),
        "wall_s": time.perf_counter() - started,
        "command": sys.argv,
        **json.loads(header.to_json()),
    }
    path.mkdir(parents=True, exist_ok=True)
    (path / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(path / "summary.json")


def _check_players(scenario: Scenario, settings: MakeTracesSettings, teacher: Role, behaviour: Role | None) -> None:
    from agents.players import check_can_record

    for key, role in (("teacher", teacher), ("behaviour", behaviour)):
        for choice in role.choices if role is not None else ():
            scheduler = choice.build()
            check_can_record(f"{key}={choice.label}", scheduler, scenario.config)
            network = getattr(scheduler, "network", None)
            own = getattr(getattr(network, "config", None), "observation", "native")
            if network is not None and own == "native" != settings.observation:
                raise ConfigError(
                    f"{key}={choice.label} reads the environment's own observation; set observation=native, or choose "
                    "another scheduler"
                )


def make_header(scenario: Scenario, settings: MakeTracesSettings, teacher: Role, behaviour: Role | None) -> Header:
    """What the recording says about itself."""
    from agents.decision_files import Header
    from agents.decision_layout import layout_of
    from dl2env.evaluation.report import package_versions

    return Header(
        layout_of(scenario.config, settings.observation, settings.observation_scale),
        {
            "teachers": teacher.to_list(),
            "behaviours": [] if behaviour is None else behaviour.to_list(),
            "scenario": {"name": scenario.name, "hash": scenario.hash(), "split": settings.split},
            "env": config_to_dict(scenario.config),
            "seed": settings.seed,
            "num_envs": settings.num_envs,
            "versions": package_versions(),
        },
    )


def make_recorder(
    scenario: Scenario, settings: MakeTracesSettings, teachers: list[Player], behaviours: list[Player]
) -> Recorder:
    """A recorder at the start of the recording."""
    from agents.recording import Recorder, WorkloadLog
    from dl2env.envs.vector_env import SchedulingVectorEnv

    log = WorkloadLog(scenario.workload_source(settings.split))  # type: ignore[arg-type]
    env: Any = SchedulingVectorEnv(settings.num_envs, scenario.config, workloads=log)
    if settings.observation != "native":
        from agents.networks import NetworkConfig
        from agents.observations import AgentVectorEnv

        wanted = {"observation": settings.observation, "observation_scale": settings.observation_scale}
        env = AgentVectorEnv(env, config_from_dict(NetworkConfig, dict(wanted), "make_traces"))
    return Recorder(env, teachers, behaviours, seed=settings.seed, log=log)


def _record(
    out: Path,
    scenario: Scenario,
    settings: MakeTracesSettings,
    teacher: Role,
    behaviour: Role | None,
    header: Header,
    bar: Any,
) -> FolderResult:
    from agents.decision_folder import record_to_folder
    from agents.players import memory_of

    teachers = teacher.players()
    behaviours = [] if behaviour is None else behaviour.players()
    return record_to_folder(
        out,
        lambda: make_recorder(scenario, settings, teachers, behaviours),
        header,
        settings.num_decisions,
        num_envs=settings.num_envs,
        decisions_per_part=settings.decisions_per_part,
        memory=max(memory_of(player.scheduler) for player in (*teachers, *behaviours)),
        progress=bar.move_to,
    )


def _export(out: Path, settings: MakeTracesSettings) -> dict[str, Any] | None:
    if settings.format != "minari":
        return None
    from agents.minari_data import export_minari
    from agents.progress import PhaseBar

    dataset_id = str(settings.minari.dataset_id)
    with PhaseBar("export to Minari", "decision") as bar:
        episodes = export_minari(
            out,
            dataset_id,
            author=settings.minari.author,
            author_email=settings.minari.author_email,
            code_permalink=settings.minari.code_permalink,
            progress=lambda done: bar.move_to(done, settings.num_decisions),
        )
    print(f"Minari dataset {dataset_id}, {episodes} episodes; train with warmup.files=[minari:{dataset_id}]")
    return {"dataset_id": dataset_id, "num_episodes": episodes}


def _command(out: Path) -> str:
    kept = [argument for argument in sys.argv if not argument.startswith(("out=", "run_dir="))]
    return shlex.join([Path(sys.executable).name, *kept, f"out={out}"])


if __name__ == "__main__":
    command_line.run(make_traces, "make_traces")
