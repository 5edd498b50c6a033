"""A digest of the code that a result depends on, so that results are made again when it changes, and only then.

It covers the given modules and all modules of their packages that they import, directly or not, each without comments,
docstrings and blank lines. Modules of other packages and those found by a computed name are not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


def code_digest(modules: Iterable[str]) -> str:
    """First 16 digits of the SHA-256 over modules and what they import from packages of theirs.

    Args:
        modules: Dotted names of importable modules.
    """
    names = sorted(set(modules))
    packages = {name.partition(".")[0] for name in names}
    found: dict[str, Path] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = None if name in found else _source(name)
        if path is None:
            continue
        found[name] = path
        waiting += [part for part in _imports(path, name) if part.partition(".")[0] in packages]
        if "." in name:
            waiting.append(name.rpartition(".")[0])  # importing a module runs its package
    sha = hashlib.sha256()
    for name in sorted(found):
        sha.update(name.encode() + b"\0" + bare_source(found[name]).encode() + b"\0")
    return sha.hexdigest()[:16]


@cache
def bare_source(path: Path) -> str:
    """A Python file without comments, docstrings and blank lines; as it is, if it is not valid Python."""
    text = path.read_text(encoding="utf-8")
    try:
        spans = [*_docstrings(text), *_comments(text)]
    except (SyntaxError, tokenize.TokenError):
        return text
    lines = text.splitlines()
    for (first, start), (last, end) in sorted(spans, reverse=True):
        head, tail = lines[first - 1][:start], lines[last - 1][end:]
        lines[first - 1 : last] = [head + tail, *[""] * (last - first)]
    return "\n".join(line.rstrip() for line in lines if line.strip())


Span = tuple[tuple[int, int], tuple[int, int]]


def _docstrings(text: str) -> Iterator[Span]:
    """Positions (line, column) of all texts that are statements, columns counted in characters."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
            start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
            end = len(lines[end_line - 1].encode()[:end_column].decode())
            yield (node.lineno, start), (end_line, end)


def _comments(text: str) -> Iterator[Span]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start, token.end


@cache
def _source(name: str) -> Path | None:
    """The Python file of a module; None if there is none (no such module, or not in Python)."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
        file = spec.origin if spec is not None else None
    path = Path(file) if file else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


@cache
def _imports(path: Path, name: str) -> tuple[str, ...]:
    """Dotted names that a module imports anywhere in its text; `from a import b` may name a module `a.b`."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: list[str] = []
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError:
        return ()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)
