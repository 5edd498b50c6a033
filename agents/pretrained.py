"""Trained networks that come with the project, in `data/checkpoints`, and what each is expected to score.

A folder there is a checkpoint with one more file, `pretrained.json`: how the network is to decide, where it is from,
and its mean JCT on the first test workloads of some scenarios. `scripts/publish_checkpoint.py` makes one.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.run_folder import RunFolder
from agents.scheduler import CheckpointScheduler
from agents.settings import build_scenario
from dl2env.errors import ConfigError, UnknownNameError
from dl2env.evaluation.runner import run_scheduler
from dl2env.resources import data_path
from dl2env.scenarios import get_scenario
from dl2env.schedulers.base import configured

CARD = "pretrained.json"
_NETWORK = ("config.json", "policy.pt")


@dataclass(frozen=True)
class Score:
    """Mean JCT on the first test workloads of a scenario.

    Attributes:
        scenario_hash: Hash of the scenario.
        num_workloads: How many workloads.
        mean_jct: Mean over workloads of the mean JCT, in intervals.
        num_illegal: Illegal actions.
    """

    scenario_hash: str
    num_workloads: int
    mean_jct: float
    num_illegal: int


@dataclass(frozen=True)
class Card:
    """What is known of a pretrained network.

    Attributes:
        description: One sentence.
        command: Command that trained it.
        deterministic: It takes its most probable action.
        window: Job slots to run with.
        learned: Hashes of the scenarios it learned in, by name.
        scores: By scenario.
    """

    description: str
    command: str
    deterministic: bool
    window: int
    learned: Mapping[str, str]
    scores: Mapping[str, Score]


def pretrained_names() -> list[str]:
    """Names of the networks that come with the project."""
    folder = data_path("checkpoints")
    return sorted(path.parent.name for path in folder.glob(f"*/{CARD}"))


class PretrainedScheduler(CheckpointScheduler):
    """A pretrained network as a scheduler, deciding as its card says.

    Args:
        name: One of `pretrained_names()`.
        seed: Seeds the sampling of a network that samples.

    Raises:
        UnknownNameError: There is none of that name.
        CheckpointError: Its files are damaged.
    """

    def __init__(self, name: str = "generalist", seed: int = 0) -> None:
        card = read_card(name)
        super().__init__(data_path("checkpoints", name), card.deterministic, seed, name, card.window)


def read_card(name: str) -> Card:
    """The card of a pretrained network.

    Raises:
        UnknownNameError: There is none of that name.
        ConfigError: The card is damaged.
    """
    if name not in pretrained_names():
        raise UnknownNameError("pretrained network", name, pretrained_names())
    path = data_path("checkpoints", name, CARD)
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        scores = {scenario: Score(**score) for scenario, score in values.pop("scores").items()}
        return Card(**values, scores=scores)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); restore the file") from error


def score(scheduler: CheckpointScheduler, scenario: str, num_workloads: int) -> Score:
    """Runs a network on the first test workloads of a scenario."""
    world = get_scenario(scenario)
    workloads = world.workloads("test", num_workloads)
    result = run_scheduler(scheduler, configured(scheduler, world.config), workloads, batch=num_workloads)
    return Score(
        scenario_hash=world.hash(),
        num_workloads=num_workloads,
        mean_jct=round(float(np.mean([own.mean_jct_intervals for own in result.metrics])), 6),
        num_illegal=int(result.num_illegal.sum()),
    )


def publish(
    run: Path,
    target: Path,
    description: str,
    scenarios: Sequence[str],
    *,
    deterministic: bool,
    window: int,
    num_workloads: int,
    progress: Callable[[str], None] = print,
) -> Card:
    """Copies the best checkpoint of a run and writes its card.

    Args:
        run: Folder of a complete training run.
        target: Folder to make; it must not exist.
        description: One sentence.
        scenarios: Scenarios to score it in.
        deterministic: It is to take its most probable action.
        window: Job slots to run with.
        num_workloads: Test workloads per scenario.
        progress: Receives a line per scenario.

    Raises:
        Dl2EnvError: The run is incomplete, or the target exists.
    """
    if target.exists():
        raise ConfigError(f"{target}: exists already; remove it or choose another name")
    folder = RunFolder.open(run)
    settings = folder.settings
    names = settings.ppo.scenarios or (settings.scenario.name,)
    learned = {name: build_scenario(settings, name).hash() for name in names}
    scheduler = CheckpointScheduler(folder.best, deterministic, window=window)
    scores = {}
    for scenario in scenarios:
        scores[scenario] = score(scheduler, scenario, num_workloads)
        progress(f"{scenario}: {scores[scenario].mean_jct:.3f} intervals")
    card = Card(
        description,
        f"python scripts/train.py experiment={settings.name} seed={settings.seed}",
        deterministic,
        window,
        learned,
        scores,
    )
    target.mkdir(parents=True)
    for name in _NETWORK:
        shutil.copyfile(folder.best / name, target / name)
    (target / CARD).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n", encoding="utf-8")
    return card
