"""How CPU time and memory grow with the number of jobs: `scripts/benchmark.py part=scaling`.

Each point is one scheduler on the first n jobs of one long workload, in a process of its own. CPU seconds are those of
deciding and simulating; reading the trace, loading kernels and working out metrics are not among them. Memory is the
most that the whole process held, the reading of the trace included.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dl2env.errors import ConfigError

if TYPE_CHECKING:
    from dl2env.config import EnvConfig
    from dl2env.workload.jobs import Workload

PHILLY, SYNTHETIC = "philly", "synthetic"

_MAX_INTERVALS = 10_000_000  # no job is cut off


@dataclass(frozen=True)
class ScalingSettings:
    """What is run for the curve.

    Attributes:
        trace: The Philly-derived CSV (see scenario philly-replay-v1); None leaves that workload out.
        jobs: Numbers of jobs n; those beyond the trace's are run on all of it.
        servers: Servers of dl2-large-v1's kind. Load per server stays the same whatever their number.
        schedulers: Registered schedulers.
    """

    trace: str | None
    jobs: tuple[int, ...]
    servers: int
    schedulers: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.trace == "":
            raise ConfigError("scaling.trace= is empty; give a file, or null")
        if not self.jobs or min(self.jobs) < 1:
            raise ConfigError(f"scaling.jobs={list(self.jobs)}: give numbers of jobs, at least 1")
        if self.servers < 1:
            raise ConfigError(f"scaling.servers={self.servers} must be at least 1")
        if not self.schedulers:
            raise ConfigError("scaling.schedulers is empty; give names of schedulers")


@dataclass(frozen=True)
class Task:
    """One point of the curve."""

    workload: str
    scheduler: str
    jobs: int
    servers: int
    trace: str | None


@dataclass(frozen=True)
class Point:
    """What was measured.

    Attributes:
        workload, scheduler, jobs, servers: What was run.
        num_intervals, num_unfinished: Length of the episode, and jobs that it left unfinished (none).
        cpu_s: CPU seconds of deciding and simulating.
        process_cpu_s: CPU seconds of the whole process, its start included.
        wall_s: Wall-clock seconds of the run.
        peak_mb: Most memory that the process held, in 10^6 bytes.
    """

    workload: str
    scheduler: str
    jobs: int
    servers: int
    num_intervals: int
    num_unfinished: int
    cpu_s: float
    process_cpu_s: float
    wall_s: float
    peak_mb: float

    @property
    def us_per_job(self) -> float:
        """CPU microseconds per job."""
        return 1e6 * self.cpu_s / self.jobs

    def line(self) -> str:
        """One line of the printed table."""
        return (
            f"{self.workload:<10} {self.scheduler:<20} {self.jobs:>9,} {self.num_intervals:>10,} {self.cpu_s:>9.2f} "
            f"{self.us_per_job:>11.1f} {self.peak_mb:>11,.0f}"
        )


HEAD = (
    f"{'workload':<10} {'scheduler':<20} {'jobs':>9} {'intervals':>10} {'CPU s':>9} {'CPU us/job':>11} {'peak MB':>11}"
)


def measure(settings: ScalingSettings) -> Iterator[Point]:
    """All points, workload by workload, each measured in a process of its own.

    Raises:
        ConfigError: A scheduler or the trace is wrong; nothing has run then, unless a process ran out of memory.
    """
    from dl2env.evaluation.leaderboard.pool import run_in_processes

    most = max(settings.jobs)
    kinds = (SYNTHETIC,) if settings.trace is None else (SYNTHETIC, PHILLY)
    found = {kind: _world(kind, settings.servers, most, settings.trace)[1].num_jobs for kind in kinds}
    for workload, available in found.items():
        for scheduler in settings.schedulers:
            for jobs in sorted({min(n, available) for n in settings.jobs}):
                task = Task(workload, scheduler, jobs, settings.servers, settings.trace)
                for event in run_in_processes(run_point, [task], 1):
                    if event.kind == "failed":
                        raise ConfigError(f"{scheduler} on {jobs} {workload} jobs: {event.value}")
                    if event.kind == "done":
                        yield event.value


def run_point(task: Task, progress: Callable[[Any], None]) -> Point:
    """Measures one point; to be called in a fresh process."""
    from dl2env.evaluation.runner import run_scheduler
    from dl2env.schedulers import get_scheduler

    config, whole = _world(task.workload, task.servers, task.jobs, task.trace)
    workload = first_jobs(whole, task.jobs)
    # Kernels are loaded, and compiled if need be, before time is taken.
    run_scheduler(get_scheduler(task.scheduler), config, [first_jobs(workload, min(20, task.jobs))])
    started = time.perf_counter()
    result = run_scheduler(get_scheduler(task.scheduler), config, [workload])
    return Point(
        task.workload,
        task.scheduler,
        task.jobs,
        task.servers,
        int(result.metrics[0].num_intervals),
        int(result.metrics[0].num_unfinished),
        result.cpu_s,
        time.process_time(),
        time.perf_counter() - started,
        peak_mb(),
    )


def first_jobs(workload: Workload, jobs: int) -> Workload:
    """The first jobs of a workload."""
    cut: dict[str, Any] = {
        field.name: value[:jobs]
        for field in dataclasses.fields(workload)
        if isinstance(value := getattr(workload, field.name), np.ndarray)
    }
    return dataclasses.replace(workload, **cut)


def peak_mb() -> float:
    """Most memory that this process has held so far, in 10^6 bytes."""
    try:
        # Not getrusage: there Linux counts what the parent process held when it started this one.
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024) / 1e6


def exponent(points: list[Point]) -> tuple[int, float] | None:
    """How CPU time grows with jobs: slope of log CPU time over log jobs, by least squares; 1 is linear.

    Over the points of at least a fifth of the most jobs: with few jobs, the intervals in which the last long job runs
    alone are what costs.

    Returns:
        Jobs of the first point that counts, and the slope; None if fewer than two points count.
    """
    counted = [p for p in points if 5 * p.jobs >= max(q.jobs for q in points)]
    if len({p.jobs for p in counted}) < 2:
        return None
    slope, _ = np.polyfit(np.log([p.jobs for p in counted]), np.log([max(p.cpu_s, 1e-6) for p in counted]), 1)
    return min(p.jobs for p in counted), float(slope)


def curves(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """Points by workload and scheduler, jobs rising."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=lambda p: p.jobs):
        found.setdefault((point.workload, point.scheduler), []).append(point)
    return found


def plain(points: list[Point]) -> list[dict[str, Any]]:
    """Values for JSON."""
    return [{**asdict(point), "us_per_job": point.us_per_job} for point in points]


def plot(points: list[Point], path: Path) -> Path:
    """Draws CPU time over jobs, and memory over jobs; writes a PNG and returns its path."""
    from dl2env.evaluation.figures import new_figure, save_figure

    figure, (time_axis, memory_axis) = new_figure(10.0, 4.2, columns=2)
    for (workload, scheduler), found in sorted(curves(points).items()):
        jobs = [p.jobs for p in found]
        style = "o-" if workload == PHILLY else "s--"
        time_axis.plot(jobs, [p.cpu_s for p in found], style, label=f"{scheduler}, {workload}")
        memory_axis.plot(jobs, [p.peak_mb for p in found], style)
    most = max(points, key=lambda p: p.jobs)
    least = min(p.jobs for p in points)
    time_axis.plot([least, most.jobs], [most.cpu_s * least / most.jobs, most.cpu_s], ":", color="grey", label="linear")
    time_axis.set(xscale="log", yscale="log", xlabel="jobs", ylabel="CPU seconds", title="deciding and simulating")
    memory_axis.set(xscale="log", xlabel="jobs", ylabel="peak memory of the process, MB", title="memory")
    memory_axis.set_ylim(bottom=0)
    for axis in (time_axis, memory_axis):
        axis.grid(alpha=0.3)
    time_axis.legend()
    figure.suptitle(f"{most.servers} servers, one process")
    return save_figure(figure, path)


def _world(kind: str, servers: int, jobs: int, trace: str | None) -> tuple[EnvConfig, Workload]:
    """The world, and a workload of at least that many jobs, or of all that the trace has.

    Raises:
        ConfigError: The trace cannot be read.
    """
    from dl2env.scenarios import get_scenario
    from dl2env.workload.generator import ReplayedWorkloads, build_workload_source
    from dl2env.workload.traces.configured import configured_jobs

    common = {"cluster.servers.0.count": servers, "dynamics.max_intervals": _MAX_INTERVALS}
    if kind == SYNTHETIC:
        # Arrivals with a daily cycle, sizes with a heavy tail, both after published figures of a production trace.
        load = {"workload.arrivals.kind": "diurnal", "workload.arrivals.rate_per_interval": servers / 50}
        config = get_scenario("dl2-large-v1").derive({**common, **load, "workload.num_jobs": jobs}).config
        return config, build_workload_source(config)(0, 0, 0)
    assert trace is not None
    if not Path(trace.partition("::")[0]).exists():
        raise ConfigError(f"scaling.trace={trace}: no such file; give the Philly-derived CSV, or null to leave it out")
    replay = get_scenario("philly-replay-v1", paths={"workload.trace.path": trace})
    recorded = replay.config.workload.trace
    assert recorded is not None
    scale = recorded.load_scale * servers / replay.config.cluster.servers[0].count
    config = replay.derive({**common, "workload.trace.load_scale": scale}).config
    recorded_jobs, _ = configured_jobs(config)
    of_all = dataclasses.replace(config.workload, num_jobs=len(recorded_jobs.arrival_s))
    return config, ReplayedWorkloads(of_all, recorded_jobs)(0, 0, 0)
