"""The learning curve of a run as a PNG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dl2env.evaluation.figures import new_figure, save_figure


def plot_learning_curve(
    validations: Sequence[Mapping[str, float]], levels: Mapping[str, float], title: str, path: Path
) -> Path:
    """Draws mean JCT on the validation workloads over decisions learned from.

    Args:
        validations: Figures with `num_decisions` and `avg_jct` (intervals).
        levels: Mean JCT of other schedulers on the same workloads, drawn as lines.
        title: Title.
        path: PNG file.

    Raises:
        ConfigError: The file cannot be written.
    """
    figure, (axes,) = new_figure()
    decisions = [figures["num_decisions"] for figures in validations]
    axes.plot(decisions, [figures["avg_jct"] for figures in validations], marker="o", markersize=3, label="fine-tuning")
    for i, (name, level) in enumerate(levels.items()):
        axes.axhline(level, linestyle="--", linewidth=1.0, color=f"C{i + 1}", label=name)
    axes.set_xlabel("decisions")
    axes.set_ylabel("mean job completion time in intervals")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    return save_figure(figure, path)
