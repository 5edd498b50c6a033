"""Kernels are cached, the cache never outlives a source they are made of, and without a cache they still run."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import pytest

import dl2env.jit

PACKAGE = "tiny_kernels"
CALLER = f"""
from {PACKAGE}.jit import kernel
from {PACKAGE}.speed.callee import double

@kernel
def quadruple(x):
    return double(double(x))
"""
CALLEE = f"""
from {PACKAGE}.jit import kernel

@kernel
def double(x):
    return 2 * x
"""


def forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package like dl2env: a kernel in one folder calls one in another."""
    package = tmp_path / PACKAGE
    for folder in ("", "sim", "speed", "schedulers"):
        (package / folder).mkdir()
        (package / folder / "__init__.py").touch()
    shutil.copy(dl2env.jit.__file__, package / "jit.py")
    (package / "sim" / "caller.py").write_text(CALLER)
    (package / "speed" / "callee.py").write_text(CALLEE)
    (package / "sim" / "state.py").write_text("WIDTH = 1\n")
    (package / "sim" / "plain.py").write_text("HEIGHT = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a change within a second must not go unseen
    yield package
    forget()


def load(name: str = "sim.caller") -> ModuleType:
    """The module as a new process would import it."""
    forget()
    return importlib.import_module(f"{PACKAGE}.{name}")


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def test_a_second_process_finds_the_kernel_in_the_cache(tiny: Path) -> None:
    quadruple = load().quadruple
    assert quadruple(3) == 12 and hits(quadruple) == 0
    quadruple = load().quadruple
    assert quadruple(3) == 12 and hits(quadruple) == 1


def test_an_edited_callee_in_another_file_takes_effect(tiny: Path) -> None:
    assert load().quadruple(3) == 12
    (tiny / "speed" / "callee.py").write_text(CALLEE.replace("2 * x", "10 * x"))
    quadruple = load().quadruple
    assert quadruple(3) == 300 and hits(quadruple) == 0
    (tiny / "speed" / "callee.py").write_text(CALLEE)
    assert load().quadruple(3) == 12


def test_numba_alone_would_not_notice(tiny: Path) -> None:
    # Why all this is needed; should it fail one day, dl2env.jit can become simpler.
    stale = (tiny / "jit.py").read_text().replace("_sources_digest(source))", "0)")
    (tiny / "jit.py").write_text(stale)
    assert load().quadruple(3) == 12
    (tiny / "speed" / "callee.py").write_text(CALLEE.replace("2 * x", "10 * x"))
    assert load().quadruple(3) == 12


@pytest.mark.parametrize(
    ("path", "text", "matters"),
    [
        ("sim/caller.py", CALLER + "\n", True),
        ("speed/callee.py", CALLEE + "\n", True),
        (
            "speed/deeper.py",
            f"# kernel, edited\nfrom {PACKAGE}.sim.state import WIDTH\n",
            True,
        ),  # imported by the callee
        ("sim/state.py", "WIDTH = 2\n", True),  # constants and record layouts, two steps away
        ("jit.py", None, True),
        ("sim/plain.py", "HEIGHT = 2\n", False),  # imported, but holds no kernel
        ("sim/other.py", "# kernel\n", False),  # holds kernels, but nobody imports it
        ("other.py", "# kernel\n", False),  # no kernel folder
    ],
)
def test_which_sources_count(tiny: Path, path: str, text: str | None, matters: bool) -> None:
    imports = f"import {PACKAGE}.speed.deeper\nfrom {PACKAGE}.sim import plain\nimport {PACKAGE}.other\n"
    (tiny / "speed" / "callee.py").write_text(imports + CALLEE)
    (tiny / "speed" / "deeper.py").write_text(f"# kernel\nfrom {PACKAGE}.sim.state import WIDTH\n")
    (tiny / "other.py").touch()
    caller = tiny / "sim" / "caller.py"
    before = load("jit")._sources_digest(caller)
    file = tiny / path
    file.write_text(text if text is not None else file.read_text() + "\n")
    assert (load("jit")._sources_digest(caller) != before) == matters
    assert load("jit")._sources_digest(caller) == load("jit")._sources_digest(caller)


def test_every_file_of_kernels_is_covered() -> None:
    package = Path(dl2env.jit.__file__).parent
    for source in package.rglob("*.py"):
        text = source.read_text()
        if "kernel\n" in text and "from dl2env.jit import" in text:
            assert dl2env.jit._holds_kernels(source), source
    for folder, name in (("sim", "state.py"), ("speed", "parameters.py")):
        assert dl2env.jit._holds_kernels(package / folder / name)
    covered = {source.name for source in dl2env.jit._kernel_sources(package / "sim" / "dynamics.py")}
    assert {"dynamics.py", "decisions.py", "placement.py", "speeds.py", "state.py", "parameters.py"} <= covered
    assert "engine.py" not in covered


def add_one(x: int) -> int:
    return x + 1


def is_cached(function: Any) -> bool:
    return type(function._cache).__name__ != "NullCache"


def test_kernels_of_this_package_are_cached() -> None:
    for compile_ in (dl2env.jit.kernel, dl2env.jit.inline_kernel, dl2env.jit.allocating_kernel):
        function = compile_(add_one)
        assert is_cached(function)
        assert dl2env.jit._sources_digest(Path(__file__)) in function._cache._cache_file._source_stamp


class NoCacheFile:
    """A dispatcher's cache as some future numba may have it."""


class OtherCacheFile:
    """Likewise: there is a file, but no stamp."""

    _cache_file = object()


@pytest.mark.parametrize("cache", [NoCacheFile(), OtherCacheFile(), None])
def test_an_unknown_numba_runs_uncached(monkeypatch: pytest.MonkeyPatch, cache: object) -> None:
    njit = numba.njit

    def future(**options: Any) -> Callable[..., Any]:
        def compile_(function: Callable[..., Any]) -> Any:
            dispatcher = njit(**options)(function)
            if options.get("cache"):
                dispatcher._cache = cache
            return dispatcher

        return compile_

    monkeypatch.setattr(numba, "njit", future)
    function = dl2env.jit.kernel(add_one)
    assert not is_cached(function) and function(2) == 3


def test_without_a_place_for_a_cache_kernels_run_uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="no locator available"):
        numba.njit(cache=True)(add_one)
    function = dl2env.jit.kernel(add_one)
    assert not is_cached(function) and function(2) == 3


def test_divisions_by_zero_are_numbers() -> None:
    @dl2env.jit.kernel
    def divide(x: float, y: float) -> float:
        return x / y

    assert divide(1.0, 0.0) == float("inf")
