"""The folder of an online run.

| entry | content |
|---|---|
| `run.json` | settings, scenario hash, versions, results of the phases that are complete |
| `warmup/` | checkpoint after the warm-up |
| `last/` | learner, cluster and copies, to resume from |
| `final/` | the network at the end of the stream |
| `tensorboard/` | scalars |
| `summary.json`, `*.png` | the result; `partial.json` instead while a run that was stopped is not complete |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.online.settings import OnlineSettings, read_online_settings
from agents.run_folder import RunFolder

STREAM = "stream"
"""Phase of a run, after the warm-up."""


class OnlineFolder(RunFolder):
    """An online run on disk; see the module's documentation.

    Attributes:
        online: Settings of the run; `settings` is their part that a training run has too.
    """

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self._content = content
        self.online: OnlineSettings = read_online_settings(content["settings"])
        self.settings = self.online.run

    @classmethod
    def create(cls, path: Path, settings: Mapping[str, Any]) -> OnlineFolder:
        """Starts a new run; see `RunFolder.create`."""
        values = dict(settings)
        online = dict(values.get("online") or {})
        if online.get("checkpoint"):
            values["online"] = {**online, "checkpoint": str(Path(online["checkpoint"]).absolute())}
        folder = super().create(path, values)
        assert isinstance(folder, OnlineFolder)
        return folder

    @property
    def final(self) -> Path:
        """Checkpoint of the network at the end."""
        return self.path / "final"

    @property
    def partial(self) -> Path:
        """Result of a run that was stopped."""
        return self.path / "partial.json"

    @property
    def versions(self) -> dict[str, str]:
        """Versions that the run was started with."""
        return dict(self._content["versions"])

    @property
    def scenario(self) -> dict[str, str]:
        """Name and hash of the world."""
        return dict(self._content["scenario"])
