"""What is installed, what importing it loads, and which part may import which."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import util
from pathlib import Path

import pytest

import dl2env

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "hydra", "omegaconf", "tensorboard")
# Dependency direction of docs/architecture.md: a part imports parts of its own rank or lower.
RANKS = {
    "config": 0,
    "config_checks": 0,
    "config_dict": 0,
    "errors": 0,
    "jit": 0,
    "resources": 0,
    "trace_config": 0,
    "speed": 1,
    "workload": 1,
    "scenarios": 1,
    "sim": 2,
    "envs": 3,
    "schedulers": 3,
    "evaluation": 4,
}


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported_modules(source: str, package: str) -> Iterator[str]:
    """Dotted names a module imports anywhere in its text, with relative imports resolved against its package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = util.resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
            # `from dl2env import sim` names a module only together with what is imported.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> list[str]:
    package = ".".join(path.parent.relative_to(ROOT).parts)
    return list(imported_modules(path.read_text(encoding="utf-8"), package))


def part_of(path: Path) -> str:
    """First component below dl2env: `sim` of dl2env/sim/state.py, `config` of dl2env/config.py."""
    return path.relative_to(ROOT / "dl2env").parts[0].removesuffix(".py")


def test_imports_are_found_in_every_form() -> None:
    source = "import a.b as c\nfrom d import e\ndef f():\n    from . import g\n    from ..h.i import j, k\n"
    assert list(imported_modules(source, "p.q")) == ["a.b", "d.e", "p.q.g", "p.h.i.j", "p.h.i.k"]


def test_import_is_light(tmp_path: Path) -> None:
    """`import dl2env` from anywhere finds this checkout and loads neither the training stack nor numba."""
    modules = (*HEAVY, "numba")
    code = (
        "import dl2env, json, sys; print(json.dumps([dl2env.__file__, *(m for m in sys.argv[1:] if m in sys.modules)]))"
    )
    command = [sys.executable, "-c", code, *modules]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    file, *loaded = json.loads(result.stdout)
    assert Path(file).resolve() == ROOT / "dl2env" / "__init__.py"
    assert loaded == []


@pytest.mark.parametrize("path", python_files("dl2env"), ids=lambda path: str(path.relative_to(ROOT)))
def test_library_never_imports_the_training_stack(path: Path) -> None:
    forbidden = {*HEAVY, "agents", "scripts", "tests"}
    if part_of(path) in ("speed", "workload", "sim"):
        forbidden.add("gymnasium")
    assert [name for name in imports_of(path) if name.split(".")[0] in forbidden] == []


@pytest.mark.parametrize("path", python_files("dl2env"), ids=lambda path: str(path.relative_to(ROOT)))
def test_dependency_direction(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    assert part in RANKS, (
        f"{part} has no place in the dependency direction yet: add it there and in docs/architecture.md"
    )
    parts = [name.split(".")[1] for name in imports_of(path) if name.startswith("dl2env.")]
    above = [other for other in parts if RANKS.get(other, 0) > RANKS[part]]
    assert above == [], f"{part} must not import {', '.join(above)}"


@pytest.mark.parametrize("path", python_files("dl2env"), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_kernels_lack_annotations(path: Path) -> None:
    lacking = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        # `kernel` and its variants, the decorators of dl2env/jit.py
        if any(ast.unparse(decorator).endswith("kernel") for decorator in node.decorator_list):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        named = [a for a in arguments if a is not None and a.arg not in ("self", "cls")]
        if node.returns is None or any(a.annotation is None for a in named):
            lacking.append(node.name)
    assert lacking == []


def test_agents_do_not_import_scripts_or_tests() -> None:
    offending = [
        (str(path.relative_to(ROOT)), name)
        for path in python_files("agents")
        for name in imports_of(path)
        if name.split(".")[0] in ("scripts", "tests")
    ]
    assert offending == []


def test_version_is_the_same_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\nversion: {dl2env.__version__}\n" in citation
    newest = re.search(r"^## (.*)$", changelog, flags=re.MULTILINE)
    assert newest is not None and dl2env.__version__ in newest[1]


def test_constraints_pin_every_declared_requirement() -> None:
    """Each requirement of pyproject.toml has one exact version, without local label, and no line names an index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = list(project["project"]["dependencies"])
    for group in (project["project"]["optional-dependencies"], project["dependency-groups"]):
        declared += [item for items in group.values() for item in items if isinstance(item, str)]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.]+", pin)] == []
    pinned = {re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins}
    assert len(pinned) == len(pins)
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~ ]", item)[0]).lower() for item in declared}
    assert names - pinned == set()


@pytest.mark.skipif(util.find_spec("hatchling") is None, reason="needs hatchling to build the wheel without a network")
def test_wheel_holds_the_library_and_its_data_only(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"dl2env-{dl2env.__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = f"dl2env-{dl2env.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"dl2env", metadata}
    assert {"dl2env/py.typed", f"{metadata}/licenses/LICENSE"} <= names
    source = {str(path.relative_to(ROOT)) for path in python_files("dl2env")}
    assert source <= names
    assert {name for name in names if name.endswith(".py")} == source
    data = [ROOT / "data" / "hardware.toml", *(ROOT / "data" / "job_types").glob("*.toml")]
    data += (ROOT / "data" / "populations").glob("*.toml")
    data += (ROOT / "data" / "scenarios").glob("*.toml")
    assert {f"dl2env/{path.relative_to(ROOT)}" for path in data} <= names
    templates = [path for path in (ROOT / "dl2env" / "evaluation" / "templates").iterdir() if path.is_file()]
    assert templates and {str(path.relative_to(ROOT)) for path in templates} <= names
