"""The last phase of a run: compare its networks with the baselines on test workloads, and write down the result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.progress import PhaseBar, Watch
from agents.run_folder import EVALUATION, FINE_TUNING, TUNED_AGENT, WARM_AGENT, WARMUP, RunFolder
from agents.run_plots import plot_learning_curve
from agents.run_tensorboard import write_hparams
from agents.scheduler import CheckpointScheduler
from agents.validation import Validator
from dl2env.evaluation.plots import plot_jct_cdf, plot_reductions
from dl2env.evaluation.report import build_summary, format_table, write_jobs, write_summary
from dl2env.evaluation.runner import Evaluation, evaluate

if TYPE_CHECKING:
    from agents.pipeline import Say, World
    from dl2env.schedulers.base import Scheduler


@dataclass(frozen=True)
class ChosenAgent:
    """A network of the run with the way in which it decides.

    Attributes:
        scheduler: Decides in that way.
        validation_jct: Mean JCT in intervals on the validation workloads, by way: `sampled`, `deterministic`; empty if
            the settings name the way.
    """

    scheduler: CheckpointScheduler
    validation_jct: dict[str, float]

    @property
    def way(self) -> str:
        """The way that was chosen."""
        return "deterministic" if self.scheduler.deterministic else "sampled"


def evaluate_run(
    folder: RunFolder, world: World, show_bars: bool | Watch, say: Say, command: list[str] | None = None
) -> Path:
    """Compares, prints the table, and writes the run's result; returns the path of `summary.json`.

    Raises:
        KeyboardInterrupt: The user stopped it; what was compared until then has been printed.
    """
    settings = folder.settings
    num_schedulers = len(world.baselines) + len(_checkpoints(folder))
    with PhaseBar("evaluate", "workload", show_bars) as bar:
        bar.move_to(0, num_schedulers * len(world.test))
        agents = choose_agents(folder, world)
        schedulers: dict[str, Scheduler] = {**world.baselines, **{name: a.scheduler for name, a in agents.items()}}
        order = list(schedulers)

        def progress(name: str, done: int, total: int) -> None:
            bar.move_to(order.index(name) * total + done, len(order) * total, now=name)

        evaluation = evaluate(
            schedulers,
            world.scenario,
            "test",
            settings.evaluation.num_workloads,
            settings.evaluation.batch,
            progress,
        )
    table = format_table(evaluation, settings.evaluation.compare_with)
    say(table)
    for name, agent in agents.items():
        reason = f"chosen on {len(world.validation)} validation workloads" if agent.validation_jct else "as set"
        say(f"{name}: {agent.way} decisions, {reason}")
    if evaluation.interrupted:
        raise KeyboardInterrupt
    return write_result(folder, world, evaluation, agents, table, say, command)


def _checkpoints(folder: RunFolder) -> dict[str, Path]:
    """Checkpoints of the networks to compare, by name."""
    settings = folder.settings
    checkpoints = {}
    if settings.warmup.enabled and (settings.evaluation.warmup_agent or not settings.fine_tuning.enabled):
        checkpoints[WARM_AGENT] = folder.warmup
    if settings.fine_tuning.enabled:
        checkpoints[TUNED_AGENT] = folder.best
    return checkpoints


def choose_agents(folder: RunFolder, world: World) -> dict[str, ChosenAgent]:
    """The run's networks by name, each deciding as `evaluation.decide` says."""
    settings = folder.settings
    decide = settings.evaluation.decide
    validator = Validator(world.config, world.validation, settings.evaluation.batch)
    chosen = {}
    for name, checkpoint in _checkpoints(folder).items():
        jct = {}
        if decide == "best":
            for way in ("sampled", "deterministic"):
                jct[way] = validator(_agent(folder, name, checkpoint, way))["avg_jct"]
            way = "deterministic" if jct["deterministic"] < jct["sampled"] else "sampled"
        else:
            way = decide
        # Sampling keeps its own random numbers, so the chosen one starts anew.
        chosen[name] = ChosenAgent(_agent(folder, name, checkpoint, way), jct)
    return chosen


def _agent(folder: RunFolder, name: str, checkpoint: Path, way: str) -> CheckpointScheduler:
    return CheckpointScheduler(checkpoint, way == "deterministic", folder.settings.seed, name)


def write_result(
    folder: RunFolder,
    world: World,
    evaluation: Evaluation,
    agents: dict[str, ChosenAgent],
    table: str,
    say: Say,
    command: list[str] | None,
) -> Path:
    """Writes table, jobs, plots and, last, `summary.json`, whose path it returns."""
    settings = folder.settings
    compared = settings.evaluation.compare_with
    folder.table.write_text(table + "\n", encoding="utf-8")
    write_jobs(folder.path / "jobs.csv", evaluation)
    validations = folder.read_validations() if settings.fine_tuning.enabled else []
    levels = {}
    if validations:
        validator = world.validator(settings.evaluation)
        levels = {name: validator(s)["avg_jct"] for name, s in world.baselines.items() if name in compared}
    if settings.evaluation.plots:
        plot_jct_cdf(evaluation, folder.path / "jct_cdf.png")
        if any(name in evaluation.results for name in compared):
            plot_reductions(evaluation, folder.path / "reductions.png", compared)
        if validations:
            title = f"{world.scenario.name}, {len(world.validation)} validation workloads"
            plot_learning_curve(validations, levels, title, folder.path / "learning_curve.png")
    mean_jct = {name: float(evaluation.scores(name).mean()) for name in evaluation.results}
    write_hparams(folder.tensorboard, settings, _final_metrics(mean_jct, compared))
    extra: dict[str, Any] = {
        "seed": settings.seed,
        "settings": folder.plain_settings,
        "num_decisions": {
            "recorded": folder.result(WARMUP).get("num_decisions", 0),
            "fine_tuning": folder.result(FINE_TUNING).get("num_decisions", 0),
        },
        "agents": {name: {"way": a.way, "validation_jct": a.validation_jct} for name, a in agents.items()},
        "fine_tuning": {key: value for key, value in folder.result(FINE_TUNING).items() if key != "wall_s"},
        "validation_levels": levels,
        "validation_digests": [workload.digest() for workload in world.validation],
        "wall_s": {phase: result["wall_s"] for phase, result in folder.phases.items() if "wall_s" in result},
    }
    summary = build_summary(evaluation, compared, command=command or sys.argv, extra=extra)
    path = write_summary(folder.summary, summary)
    folder.complete(EVALUATION, mean_jct=mean_jct)
    say(f"curves: tensorboard --logdir {folder.path}; plots and jobs: {folder.path}")
    return path


def _final_metrics(mean_jct: dict[str, float], compared: Sequence[str]) -> dict[str, float]:
    """What TensorBoard's table of hyper-parameters shows of a run's last network."""
    agent = TUNED_AGENT if TUNED_AGENT in mean_jct else WARM_AGENT
    own = mean_jct[agent]
    others = [name for name in compared if name in mean_jct and name != agent]
    return {"mean_jct": own, **{f"less_than_{name}": 1.0 - own / mean_jct[name] for name in others}}
