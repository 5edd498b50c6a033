"""The last phase of a run: compare its networks with the baselines on test workloads, and write down the result."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.progress import PhaseBar
from agents.run_folder import EVALUATION, FINE_TUNING, TUNED_AGENT, WARM_AGENT, WARMUP, RunFolder
from agents.run_plots import plot_learning_curve
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
    """A network of the run with the better of its two ways to decide.

    Attributes:
        scheduler: Decides in that way.
        validation_jct: Mean JCT in intervals on the validation workloads, by way: `sampled`, `deterministic`.
    """

    scheduler: CheckpointScheduler
    validation_jct: dict[str, float]

    @property
    def way(self) -> str:
        """The way that was chosen."""
        return "deterministic" if self.scheduler.deterministic else "sampled"


def evaluate_run(folder: RunFolder, world: World, show_bars: bool, say: Say, command: list[str] | None = None) -> Path:
    """Compares, prints the table, and writes the run's result; returns the path of `summary.json`.

    Raises:
        KeyboardInterrupt: The user stopped it; what was compared until then has been printed.
    """
    settings = folder.settings
    num_schedulers = len(world.baselines) + settings.warmup.enabled + settings.fine_tuning.enabled
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
        say(f"{name}: {agent.way} decisions, chosen on {len(world.validation)} validation workloads")
    if evaluation.interrupted:
        raise KeyboardInterrupt
    return write_result(folder, world, evaluation, agents, table, say, command)


def choose_agents(folder: RunFolder, world: World) -> dict[str, ChosenAgent]:
    """The run's networks by name, each deciding in the way that is better on the validation workloads."""
    settings = folder.settings
    checkpoints = {}
    if settings.warmup.enabled:
        checkpoints[WARM_AGENT] = folder.warmup
    if settings.fine_tuning.enabled:
        checkpoints[TUNED_AGENT] = folder.best
    validator = Validator(world.config, world.validation, settings.evaluation.batch)
    chosen = {}
    for name, checkpoint in checkpoints.items():
        ways = [CheckpointScheduler(checkpoint, is_fixed, settings.seed, name) for is_fixed in (False, True)]
        jct = [validator(way)["avg_jct"] for way in ways]
        # Sampling keeps its own random numbers, so the chosen one starts anew.
        best = CheckpointScheduler(checkpoint, jct[1] < jct[0], settings.seed, name)
        chosen[name] = ChosenAgent(best, {"sampled": jct[0], "deterministic": jct[1]})
    return chosen


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
    plot_jct_cdf(evaluation, folder.path / "jct_cdf.png")
    if any(name in evaluation.results for name in compared):
        plot_reductions(evaluation, folder.path / "reductions.png", compared)
    validations = folder.read_validations()
    if settings.fine_tuning.enabled and validations:
        validator = Validator(world.config, world.validation, settings.evaluation.batch)
        levels = {name: validator(s)["avg_jct"] for name, s in world.baselines.items() if name in compared}
        title = f"{world.scenario.name}, {len(world.validation)} validation workloads"
        plot_learning_curve(validations, levels, title, folder.path / "learning_curve.png")
    extra: dict[str, Any] = {
        "seed": settings.seed,
        "settings": folder.plain_settings,
        "num_decisions": {
            "recorded": folder.result(WARMUP).get("num_decisions", 0),
            "fine_tuning": folder.result(FINE_TUNING).get("num_decisions", 0),
        },
        "agents": {name: {"way": a.way, "validation_jct": a.validation_jct} for name, a in agents.items()},
        "validation_digests": [workload.digest() for workload in world.validation],
        "wall_s": {phase: result["wall_s"] for phase, result in folder.phases.items() if "wall_s" in result},
    }
    summary = build_summary(evaluation, compared, command=command or sys.argv, extra=extra)
    path = write_summary(folder.summary, summary)
    folder.complete(EVALUATION, mean_jct={name: float(evaluation.scores(name).mean()) for name in evaluation.results})
    say(f"curves: tensorboard --logdir {folder.path}; plots and jobs: {folder.path}")
    return path
