"""Scatter plots of predicted against measured step times, as PNG files. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dl2env.evaluation.figures import new_figure, save_figure
from dl2env.evaluation.speed_validation.validation import FOLDS, MODEL_LABELS, UNFITTED, TableSetResult

SHOWN = (UNFITTED, "optimus", "fitted")


def plot_predictions(result: TableSetResult, path: Path) -> Path:
    """Draws a panel per model, cross-validated by configuration, a colour per application; returns the path.

    Raises:
        ConfigError: matplotlib is missing, or the file cannot be written.
    """
    figure, panels = new_figure(13.0, 4.6, 1, len(SHOWN), sharex=True, sharey=True)
    measured = np.concatenate([r.steps.step_s for r in result.applications])
    ends = np.array([measured.min() / 1.5, measured.max() * 1.5])
    for axes, model in zip(panels, SHOWN, strict=True):
        for application in result.applications:
            predicted = application.models[model].predicted[FOLDS]
            axes.scatter(application.steps.step_s, predicted, s=4.0, alpha=0.4, label=application.steps.name)
        axes.plot(ends, ends, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{MODEL_LABELS[model]}: {100 * result.error(model, FOLDS):.1f} %")
        axes.set_xlabel("measured step time in s")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("predicted step time in s")
    panels[-1].legend(loc="lower right", markerscale=3.0, fontsize="small")
    figure.suptitle(f"{result.label}: mean absolute percentage error, each configuration predicted from the others")
    return save_figure(figure, path)
