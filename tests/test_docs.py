"""The documentation: its links, the docstring conversion, and that it builds without warnings."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.fixture(scope="module")
def markdown_docstrings() -> ModuleType:
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("markdown_docstrings", ROOT / "docs" / "markdown_docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (page.parent / target).exists()] == []


SHOWN = ["mean JCT", "shortest-first", "generalist"]


@pytest.mark.parametrize("number", range(len(SHOWN)))
def test_python_of_the_readme_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == len(SHOWN)
    exec(compile(blocks[number], f"README.md, block {number}", "exec"), {})
    assert SHOWN[number] in capsys.readouterr().out


def test_code_spans_become_literals(markdown_docstrings: ModuleType) -> None:
    text = ["One `code`, two `Env`s, a span `over", "two lines`; ``already`` and :class:`role` stay."]
    expected = ["One ``code``, two ``Env``\\ s, a span ``over two lines``; ``already`` and :class:`role` stay."]
    assert markdown_docstrings.convert(text) == expected


def test_headings_and_tables_are_rewritten(markdown_docstrings: ModuleType) -> None:
    text = ["  ## Space", "  Dict:", "", "  | key | shape |", "  |---|---|", "  | jobs | (J, F) |", "End."]
    assert markdown_docstrings.convert(text) == [
        "  **Space**",
        "",
        "  Dict:",
        "",
        "",
        "  .. list-table::",
        "     :header-rows: 1",
        "",
        "     * - key",
        "       - shape",
        "     * - jobs",
        "       - (J, F)",
        "",
        "End.",
    ]


@pytest.mark.slow
def test_documentation_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    result = subprocess.run([*command, "docs", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "api" / "dl2env.config.html").exists()
