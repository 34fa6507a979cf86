"""A docstring begins with a verb or a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_FIRST = ("Those", "What", "Whose", "Who", "It", "Whether", "Where", "How", "Which", "When", "They", "That", "This", "If")
_WORDS = rf"({'|'.join(_FIRST)}|The same)\b"
_NOT_FIRST = re.compile(_WORDS)
_PERHAPS = re.compile(rf'"""\s*{_WORDS}')  # a quick check before a file is parsed


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def test_a_docstring_begins_with_a_verb_or_a_noun(repository: Path) -> None:
    wrong = [
        f"{path.relative_to(repository)}:{line}: {text.splitlines()[0]}"
        for package in ("broker_core", "connector", "jobs", "penstock", "tests")
        for path in (repository / package).rglob("*.py")
        if _PERHAPS.search(source := path.read_text())
        for line, text in _docstrings(ast.parse(source))
        if _NOT_FIRST.match(text)
    ]
    assert wrong == []
