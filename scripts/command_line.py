"""What the commands share: Hydra with errors of one line.

A command composes its configuration from `conf/`, runs, writes `summary.json` into its run folder and prints that path
last. Wrong input ends it with one line on stderr and exit status 2, Ctrl-C with exit status 130.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agents.world_keys import world_keys
from dl2env.errors import ConfigError, Dl2EnvError

CONF = Path(__file__).resolve().parents[1] / "conf"

COMMAND_KEYS = ("run_dir", "resume", "seeds", "processes")
"""Keys of `scripts/train.py` that a run itself does not know."""

Task = Callable[[dict[str, Any], Path], None]
"""Takes the configuration as plain values, `run_dir` left out, and the run folder."""


def register() -> None:
    """Tells Hydra what `conf/` refers to: the keys of the world, and how a run folder is chosen."""
    ConfigStore.instance().store(name="world_keys", node=world_keys())
    OmegaConf.register_new_resolver("run_folder", _run_folder, replace=True)


def _run_folder(resume: str | None, fresh: str) -> str:
    # Hydra makes the folder it is told before the command sees it, so a wrong one is found here.
    if resume is not None and not (Path(str(resume)) / "run.json").is_file():
        raise ConfigError(f"resume={resume}: no run to resume (run.json is missing); give the folder of a run")
    return str(fresh if resume is None else resume)


def run(task: Task, config_name: str) -> None:
    """Composes `conf/<config_name>.yaml` with the overrides of the command line and calls the task.

    Wrong input exits with status 2 and one line; Ctrl-C with status 130.
    """
    register()
    # Hydra would print some errors itself, over several lines; with this it raises all of them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    is_composed = False

    @hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_name)
    def compose_and_run(config: DictConfig) -> None:
        nonlocal is_composed
        is_composed = True
        folder = Path(HydraConfig.get().runtime.output_dir)
        try:
            if not config.run_dir or not isinstance(config.run_dir, str):
                raise ConfigError(f"run_dir={config.run_dir}: not the name of a folder; give one or leave it out")
            values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            assert isinstance(values, dict)
            named = {str(key): value for key, value in values.items() if key != "run_dir"}
            _check_resume(named)
            task(named, _relative(folder))
        except (Dl2EnvError, OmegaConfBaseException) as error:
            # Before Hydra sees it: Hydra would print a line of its own.
            _fail(error)
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()  # if nothing was written

    try:
        compose_and_run()
    except (HydraException, OmegaConfBaseException) as error:
        _fail(error, config_name)
    except (OSError, TypeError, ValueError) as error:
        if is_composed:  # an error of the program
            raise
        _fail(_before_start(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def compose_run(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of a training run, for commands that make several; keys of the command itself are left out.

    Args:
        overrides: As on the command line of `scripts/train.py`.

    Raises:
        ConfigError: Hydra cannot read or apply them.
    """
    from hydra import compose, initialize_config_dir

    register()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("config", list(overrides))
        values = OmegaConf.to_container(config, resolve=False, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error, "config")) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key not in COMMAND_KEYS}


def _check_resume(values: Mapping[str, Any]) -> None:
    if values.get("resume") is None:
        return
    others = [str(override) for override in HydraConfig.get().overrides.task if not str(override).startswith("resume=")]
    if others:
        raise ConfigError(f"resume: a resumed run keeps its own settings; leave out {' '.join(others)}")


def _before_start(error: Exception) -> ConfigError:
    """What Hydra stumbled over: the folder that it makes, or a choice of a group that is no text."""
    if isinstance(error, OSError):
        return ConfigError(
            f"{error.filename}: no run folder can be made there ({error.strerror}); choose another run_dir"
        )
    for override in sys.argv[1:]:
        group, _, name = override.lstrip("+").partition("=")
        choices = sorted(path.stem for path in (CONF / group).glob("*.yaml")) if group else []
        if choices and name not in choices:
            return ConfigError(f"{override}: unknown; choose one of: {', '.join(choices)}")
    return ConfigError(f"{error}; write key=value or group=choice")


def _relative(folder: Path) -> Path:
    """The folder as the user would write it: relative if it lies below the working directory."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _fail(error: Exception, config_name: str | None = None) -> NoReturn:
    print(f"error: {one_line(error, config_name)}", file=sys.stderr)
    sys.exit(2)


def one_line(error: Exception, config_name: str | None = None) -> str:
    """The message of an error on one line, with the cure where Hydra's own message has none.

    Args:
        error: Error of this package, Hydra or OmegaConf.
        config_name: Name of the composed configuration, to look known keys up in.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Dl2EnvError):
            return _joined(str(cause))
        if isinstance(cause, MissingConfigException) and cause.options:
            group, _, name = str(cause.missing_cfg_file).rpartition("/")
            return f"{group}={name}: unknown; choose one of: {', '.join(sorted(cause.options))}"
        cause = cause.__cause__
    if isinstance(error, OverrideParseException):
        return f"{error.override}: cannot be read ({_joined(str(error).partition('See http')[0])}); write key=value"
    # A resolver's own error arrives as text only.
    resolved = re.match(r"\w+ raised while resolving interpolation: (.*?)\s+full_key:", str(error), flags=re.DOTALL)
    if resolved:
        return _joined(resolved[1])
    unknown = re.match(r"Could not override '([^']+)'", str(error))
    if unknown and config_name is not None:
        return _unknown_key(unknown[1], config_name)
    return _joined(str(error))


def _joined(text: str) -> str:
    return " ".join(text.split())


def _unknown_key(key: str, config_name: str) -> str:
    from hydra import compose, initialize_config_dir

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(config_name)
    known = dotted_keys(OmegaConf.to_container(config, resolve=False))
    group, _, name = key.rpartition(".")
    siblings = sorted({k[len(group) + 1 if group else 0 :].partition(".")[0] for k in known if _is_in(k, group)})
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(siblings)}"
    if not siblings and not close:
        hint = f"there is no group {group}"
    return f"{key}: unknown key; {hint}"


def _is_in(key: str, group: str) -> bool:
    return key.startswith(f"{group}.") if group else True


def dotted_keys(values: Any, prefix: str = "") -> list[str]:
    """Dotted names of the values in nested dictionaries."""
    if not isinstance(values, dict) or not values:
        return [prefix] if prefix else []
    return [k for key, value in values.items() for k in dotted_keys(value, f"{prefix}.{key}" if prefix else str(key))]
