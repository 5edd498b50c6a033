"""How plots are made and saved. Needs matplotlib, which the library itself does not depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dl2env.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")


def new_figure(
    width: float = 8.0, height: float = 4.5, rows: int = 1, columns: int = 1, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row.

    Args:
        width: Inches.
        height: Inches.
        rows: Rows of panels.
        columns: Panels in a row.
        **shared: `sharex`, `sharey`.

    Raises:
        ConfigError: matplotlib is missing.
    """
    # The object interface: no window system, and no figures kept alive by pyplot.
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plots need matplotlib; install it with: pip install 'dl2env[train]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **shared)
    return figure, list(panels.ravel())


def save_figure(figure: Figure, path: Path) -> Path:
    """Writes a PNG file, the same bytes for the same figure, and returns its path.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", dpi=120, metadata={"Software": None})
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    return path


def write_figures(
    plots: Mapping[str, tuple[Callable[[T], Figure | None], str]], found: T, folder: Path
) -> dict[str, Path]:
    """Draws plots as PNG files and returns their paths by name; a plot without data is left out.

    Args:
        plots: How each is drawn, and its caption, by file name.
        found: What they show.
        folder: Where the files go.

    Raises:
        ConfigError: matplotlib is missing, or a file cannot be written.
    """
    paths = {}
    for name, (draw, _) in plots.items():
        figure = draw(found)
        if figure is not None:
            paths[name] = save_figure(figure, folder / f"{name}.png")
    return paths
