"""What is fitted, and how the fit is judged."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from dl2env.config import ShapingConfig
from dl2env.config_checks import require, require_choice
from dl2env.config_dict import config_to_dict
from dl2env.trace_config import TRACE_FORMATS, TraceFormatName
from dl2env.workload.calibrated.fit import FEWEST_JOBS


@dataclass(frozen=True)
class FitSettings:
    """Everything that `scripts/fit_workload.py` lets a user choose.

    Attributes:
        path: Trace file, packed or not, `archive::member`, or a folder of tables.
        format: One of `TRACE_FORMATS`; `auto`: found by content.
        companion: Second file that a format needs: Gavel's table of throughputs.
        strict: Warnings of the reading are errors.
        out: YAML file for the calibration; None: only `calibration.yaml` in the run folder.
        name: Of the calibration; None: the stem of `out`, else of `path`.
        description: What it was fitted to, kept in the file.
        shaping: Which of the jobs (`ShapingConfig`); a load belongs to the use of a calibration, not to its fit.
        seed: Of the fit's halves and of all draws.
        held_out: Share of the time, at its end, that a second fit does not see and is judged on; 0: none.
        draws: Workloads that are drawn for each comparison.
        fewest_jobs: Fewer jobs are refused.
    """

    path: str = ""
    format: TraceFormatName = "auto"
    companion: str | None = None
    strict: bool = False
    out: str | None = None
    name: str | None = None
    description: str = ""
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    seed: int = 0
    held_out: float = 0.3
    draws: int = 10
    fewest_jobs: int = FEWEST_JOBS

    def __post_init__(self) -> None:
        require(bool(self.path), "path: no trace; give one: path=<file or folder>")
        require_choice("format", self.format, TRACE_FORMATS)
        require(
            self.out is None or Path(self.out).suffix in (".yaml", ".yml"),
            f"out={self.out}: calibrations are YAML files; choose a name that ends in .yaml",
        )
        is_plain = self.name is None or bool(re.fullmatch(r"[\w.-]+", self.name))
        require(is_plain, f"name={self.name!r}: use letters, digits, dots, dashes and underscores")
        require(
            self.shaping.target_load is None,
            f"shaping.target_load={self.shaping.target_load}: a load is set where a calibration is used; leave it out",
        )
        require(self.seed >= 0, f"seed={self.seed} must not be negative")
        require(0.0 <= self.held_out <= 0.8, f"held_out={self.held_out} must lie in [0, 0.8]")
        require(1 <= self.draws <= 1000, f"draws={self.draws} must lie in 1 to 1000")
        require(self.fewest_jobs >= 20, f"fewest_jobs={self.fewest_jobs} must be at least 20")

    @property
    def calibration_name(self) -> str:
        """Name of the calibration."""
        if self.name is not None:
            return self.name
        stem = Path(self.out or self.path.partition("::")[0]).stem
        return re.sub(r"[^\w.-]+", "_", stem) or "calibration"

    @property
    def command(self) -> str:
        """The command that fits the same again, files by their names alone."""
        words = []
        values, defaults = config_to_dict(self), config_to_dict(FitSettings("-"))
        for key, value in values.items():
            if key in ("path", "companion", "out") and value is not None:
                words.append(f"{key}={Path(value).name}")
            elif key == "shaping":
                words += [f"shaping.{k}={_plain(v)}" for k, v in value.items() if v != defaults["shaping"][k]]
            elif key != "description" and value != defaults[key]:
                words.append(f"{key}={value}")
        return " ".join(("python scripts/fit_workload.py", *words))


def _plain(value: object) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)
