"""Where the project's data files are: in a checkout, or inside an installed package."""

from __future__ import annotations

from pathlib import Path

from dl2env.errors import ConfigError

_MARKER = "job_types"  # a folder that only this project's data folder has


def data_path(*parts: str) -> Path:
    """Path of a file or folder in the project's data folder.

    An installed package carries the folder as `dl2env/data`; in a checkout it lies beside the package.

    Args:
        parts: Path components below the data folder. Whether they exist is not checked.

    Raises:
        ConfigError: There is no data folder, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "data", package.parent / "data")
    for folder in candidates:
        if (folder / _MARKER).is_dir():
            return folder.joinpath(*parts)
    looked = " and ".join(str(folder) for folder in candidates)
    raise ConfigError(f"no data folder of dl2env at {looked}; install the package again or work in a full checkout")
