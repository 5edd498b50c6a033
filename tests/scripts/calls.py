"""Calling a command inside the test process, where torch is imported once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from scripts import command_line


@contextmanager
def command(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> Iterator[None]:
    """A command line with these arguments in that folder, and everything that Hydra changes put back."""
    handlers = list(logging.getLogger().handlers)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["scripts/command.py", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")  # the command sets it, the test puts it back
        patch.chdir(folder)
        GlobalHydra.instance().clear()
        try:
            yield
        finally:
            GlobalHydra.instance().clear()
            logging.getLogger().handlers[:] = handlers


def composed(*overrides: str, config: str = "config") -> dict[str, Any]:
    """The configuration as a command's task receives it."""
    command_line.register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(command_line.CONF), version_base="1.3"):
        values = OmegaConf.to_container(compose(config, list(overrides)), resolve=False)
    assert isinstance(values, dict)
    several = ("seeds", "processes") if config == "config" else ()  # of scripts/train.py, no part of a run
    return {str(key): value for key, value in values.items() if key not in ("run_dir", "resume", *several)}
