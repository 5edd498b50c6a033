"""The digest of code: changes with code that a result depends on, not with words about it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dl2env.evaluation.leaderboard import code_digest as module
from dl2env.evaluation.leaderboard.code_digest import bare_source, code_digest

SOURCE = '''"""Words."""
# more words
import math


def f(x):
    """Says something
    over lines."""
    text = "# no comment"  # a comment

    return text + f"{x!r:>{3}}" + math.pi
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package made for the test, on the path."""
    folder = tmp_path / "digested_pkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from digested_pkg import b\nfrom .c import x\n")
    (folder / "b.py").write_text("import numpy\nVALUE = 1\n")
    (folder / "c.py").write_text("x = 1\n")
    (folder / "unused.py").write_text("y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [n for n in sys.modules if n.startswith("digested_pkg")]:
        del sys.modules[name]


def digest_after(path: Path, text: str) -> str:
    path.write_text(text)
    bare_source.cache_clear()
    module._imports.cache_clear()
    module._source.cache_clear()
    importlib.invalidate_caches()
    return code_digest(["digested_pkg.a"])


def test_words_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    bare = bare_source(path)
    assert bare.splitlines() == [
        "import math",
        "def f(x):",
        '    text = "# no comment"',
        '    return text + f"{x!r:>{3}}" + math.pi',
    ]


def test_text_after_letters_of_several_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = "ä"; "ö words ü"  # ß\ny = 1\n', encoding="utf-8")
    assert bare_source(path) == 'x = "ä";\ny = 1'
    (tmp_path / "wrong.py").write_text("def (:\n")
    assert bare_source(tmp_path / "wrong.py") == "def (:\n"


def test_what_is_imported_counts_and_nothing_else(package: Path) -> None:
    first = digest_after(package / "b.py", "import numpy\nVALUE = 1\n")
    assert digest_after(package / "b.py", 'import numpy\n"""Words."""\nVALUE = 1  # word\n') == first
    assert digest_after(package / "unused.py", "y = 2\n") == first
    assert digest_after(package / "b.py", "import numpy\nVALUE = 2\n") != first
    assert digest_after(package / "b.py", "import numpy\nVALUE = 1\n") == first
    assert digest_after(package / "c.py", "x = 2\n") != first
    assert digest_after(package / "__init__.py", "z = 1\n") != first


def test_a_scheduler_counts_with_the_engine_that_runs_it() -> None:
    engine = code_digest(["dl2env.evaluation.runner"])
    own = code_digest(["dl2env.evaluation.runner", "tests.schedulers.own"])
    assert len(engine) == len(own) == 16 and engine != own
    assert code_digest(["dl2env.evaluation.runner", "dl2env.evaluation.runner"]) == engine
    assert code_digest(["no.such.module"]) == code_digest(["neither.this"])
