"""Tests the claims of the DL2 paper: trains each experiment with several seeds, and builds the page that compares.

- `python scripts/reproduce_paper.py`: everything that has no result yet; a stopped run goes on with the same command
- `python scripts/reproduce_paper.py experiments=[drf,window_*] seeds=3`: some claims or experiments
- `python scripts/reproduce_paper.py scale=0.1`: with a tenth of the training
- `python scripts/reproduce_paper.py build_only=true`: only the page
- `python scripts/reproduce_paper.py 'overrides=["scenario=dl2-small-v1"]' out=my_paper`: in another world

Exit status 1: a run failed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dl2env.config_dict import config_from_dict
from dl2env.errors import ConfigError
from scripts import command_line
from scripts.run_set import run_set, same_command

if TYPE_CHECKING:
    from agents.paper.claims import Claims
    from agents.paper.runs import PaperRun

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class PaperSettings:
    """What to run, besides experiments and seeds.

    Attributes:
        scale: Factor on the budgets of the experiments.
        overrides: Changes to every run, as on the command line of the training script.
        processes: Runs at a time; None: as many as there are cores.
        runs: Folder of the runs.
        out: Folder of results and page; None: those of the checkout.
        replace: Run again what has a result of other settings.
        build_only: Only build the page.
    """

    scale: float
    overrides: tuple[str, ...]
    processes: int | None
    runs: str
    out: str | None
    replace: bool
    build_only: bool

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise ConfigError(f"scale={self.scale} must be a positive number")
        if self.processes is not None and self.processes < 1:
            raise ConfigError(f"processes={self.processes} must be at least 1")
        for name in ("runs", "out"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name}= is empty; name a folder")
        for override in self.overrides:
            if "=" not in override or override.split("=")[0].lstrip("+~") in ("experiment", "seed", "seeds", "run_dir"):
                raise ConfigError(f"overrides: {override!r}: give key=value, but not for experiment, seed or run_dir")

    @property
    def records(self) -> Path:
        """Folder of the results."""
        return (ROOT / "data" / "paper" if self.out is None else Path(self.out)) / "results"

    @property
    def page(self) -> Path:
        """The page."""
        return (ROOT / "docs" if self.out is None else Path(self.out)) / "paper.md"


def reproduce(values: dict[str, Any], path: Path) -> None:
    """Runs what is missing and builds the page; `path` takes the tracebacks of failed runs."""
    from agents.multi_run import read_seeds
    from agents.paper.claims import choose_experiments, read_claims

    seeds = read_seeds(values.pop("seeds"))
    claims = read_claims()
    experiments = choose_experiments(values.pop("experiments"), claims)
    settings: PaperSettings = config_from_dict(PaperSettings, values, "reproduce_paper")
    has_failed = False
    if not settings.build_only:
        has_failed = _run(_runs(settings, claims, experiments, seeds), settings, path)
    _build(settings, claims)
    if has_failed:
        sys.exit(1)


def _runs(settings: PaperSettings, claims: Claims, experiments: list[str], seeds: list[int]) -> list[PaperRun]:
    from agents.multi_run import settings_digest
    from agents.paper.runs import PaperRun, run_folder_name, scaled
    from agents.settings import build_scenario, read_settings

    composed: dict[str, dict[str, Any]] = {}

    def settings_of(name: str) -> dict[str, Any]:
        if name not in composed:
            # For the time of the runs only; alone, an experiment draws its curves.
            quick = ["evaluation.plots=false", "evaluation.picture_every=null"]
            values = command_line.compose_run([f"experiment=paper/{name}", *quick, *settings.overrides])
            composed[name] = scaled(values, settings.scale)
            build_scenario(read_settings(composed[name]))  # what is wrong is told before anything runs
        return composed[name]

    runs = []
    for name in experiments:
        other = claims.tested_in.get(name)
        for seed in seeds:
            own = {**settings_of(name), "seed": seed}
            runs.append(
                PaperRun(
                    f"{name}, seed {seed}",
                    Path(settings.runs) / name / run_folder_name(seed, settings_digest(own)),
                    own,
                    command=sys.argv,
                    experiment=name,
                    scale=settings.scale,
                    records=settings.records,
                    tested_in=other or "",
                    test_settings=None if other is None else settings_of(other),
                    is_timed=name in claims.timed,
                    replace=settings.replace,
                )
            )
    return runs


def _run(runs: list[PaperRun], settings: PaperSettings, path: Path) -> bool:
    """Runs what is missing; returns whether something failed."""
    from agents.paper.runs import share_warmups

    missing = [run for run in runs if not run.is_done]
    print(f"{len(missing)} of {len(runs)} runs have no result yet; results: {_shown(settings.records)}", flush=True)
    if not missing:
        return False
    warmups, told = share_warmups(missing, Path(settings.runs) / "warmups")
    if warmups:
        result = run_set(warmups, settings.processes, path, same_command(), "warm-ups that runs share")
        if result.failures:
            return True
    return bool(run_set(told, settings.processes, path, same_command(), "experiments").failures)


def _build(settings: PaperSettings, claims: Claims) -> None:
    from agents.paper.page import build_page
    from agents.paper.runs import learning_code_digest

    page = build_page(claims, settings.records, settings.page, learning_code_digest())
    for notice in page.notices:
        print(f"note: {notice}", file=sys.stderr)
    for item in page.assessed:
        print(f"{item.claim.id}: {item.verdict}")
    print(_shown(page.path))


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    command_line.run(reproduce, "reproduce_paper")
