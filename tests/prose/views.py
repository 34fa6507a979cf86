"""Views of files: only their prose, as Markdown, with the line numbers of the file."""

from __future__ import annotations

import ast
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

MIN_WORDS = 4  # of a string in code that a user reads; shorter ones are names, keys and formats

#: A line of prose: its number, from 1, and its text.
Line = tuple[int, str]

_WORD = re.compile(r"[A-Za-z][a-z]+\b")
_SCRIPT_PROSE = re.compile(r"""(?P<comment>(?:^|\s)//.*)|"(?P<double>[^"\n]*)"|'(?P<single>[^'\n]*)'|`(?P<template>[^`]*)`""")
_SHELL_PROSE = re.compile(r"""(?P<comment>(?:^|\s)\#.*)|"(?P<double>[^"]*)"|'(?P<single>[^'\n]*)'""")
_ROW = re.compile(r"[\w/] {2,}\S")  # of a table, such as the map of a folder: a sentence
_JSON = re.compile(r'\s*(?:\{|"[^"]+": )')  # the beginning of a line in a docstring: an example, not a sentence
_TYPE = "binary|string|int|bigint|long|short|boolean|double|timestamp|map<"
_SQL = re.compile(rf"\s*(?:select .* |struct<|`?\w+`? (?:{_TYPE}).*, `?\w+`? (?:{_TYPE}))", re.DOTALL | re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last)"  # output of a program
_FIELD = re.compile(r"\$?\{[^{}]*\}")


def of_file(path: Path) -> str | None:
    """Return the prose of a file, or None if files of this type hold none.

    A line of the view has the number of the line in the file, except for notebooks, whose view is their Markdown.
    """
    if path.suffix == ".md":
        return path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    reader = _READERS.get(path.suffix or path.name)
    return None if reader is None else _joined(reader(path.read_text()))


def words_in_code(path: Path) -> int:
    """Count the words in the docstrings and comments of a Python file."""
    return sum(len(text.split()) for _, text in [*_docstrings(ast.parse(path.read_text())), *_comments(path.read_text())])


def _joined(lines: Iterator[Line]) -> str:
    """Put lines where they stand in their file. Texts that share a line become separate sentences."""
    placed: dict[int, str] = {}
    for number, text in lines:
        placed[number] = f"{placed[number]}. {text}" if number in placed else text
    return "\n".join(placed.get(number, "") for number in range(1, max(placed, default=0) + 1))


def _python(source: str) -> Iterator[Line]:
    tree = ast.parse(source)
    docstrings = list(_docstrings(tree))
    yield from docstrings
    yield from _comments(source)
    documented = {number for number, _ in docstrings}
    pieces = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in documented
        if not is_text or not _is_prose(node.value):
            continue
        if (program := _program(node.value)) is not None:
            yield from ((node.lineno - 1 + number, text) for number, text in _python(program))
        else:
            text = node.value if id(node) in pieces else _sentence(node.value)  # a text is not continued by the next one
            yield from _numbered(node.lineno, text)


def _is_prose(text: str) -> bool:
    return len(_WORD.findall(text)) >= MIN_WORDS and " " in text and not _SQL.match(text) and _TRACEBACK not in text


def _program(text: str) -> str | None:
    """Return a string's Python program, if it is one of several lines: its comments and strings are prose, its code is not."""
    try:
        program = textwrap.dedent(text)
        return program if len(ast.parse(program).body) > 1 else None
    except SyntaxError:
        return None


def _docstrings(tree: ast.Module) -> Iterator[Line]:
    for node in ast.walk(tree):
        has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if has_body and ast.get_docstring(node) is not None:
            constant = node.body[0].value
            yield from ((number, text) for number, text in _numbered(constant.lineno, constant.value) if not _JSON.match(text))


def _comments(source: str) -> Iterator[Line]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#( ?(noqa|type:|pragma|fmt:)|!)", token.string):
            text = token.string.lstrip("#: ")
            yield token.start[0], text if token.line.lstrip().startswith("#") else _sentence(text)  # behind code


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."


def _numbered(first: int, text: str) -> Iterator[Line]:
    for number, line in enumerate(text.splitlines(), first):
        text = line.strip()
        yield number, _sentence(text) if _ROW.search(text) else text


def _matched(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Line]]:
    def lines(source: str) -> Iterator[Line]:
        for match in pattern.finditer(source):
            kind = match.lastgroup
            text = match[kind]  # type: ignore[index]
            if kind == "comment":
                yield source.count("\n", 0, match.start(kind)) + 1, text.strip().lstrip("/#: ")
            elif len(_WORD.findall(text)) >= MIN_WORDS:
                first = source.count("\n", 0, match.start()) + 1
                yield from _numbered(first, _FIELD.sub("it", text))

    return lines


def _commented(source: str) -> Iterator[Line]:
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"#+ {2,}", line):  # a command, as an example
            continue
        if match := re.search(r"(?:^|\s)#+ (.*)", line):
            yield number, match[1] if line.lstrip().startswith("#") else _sentence(match[1])
        elif match := re.search(r'(?:summary|description|title|content)"?: "?(.*)', line):
            yield number, match[1].strip('",')


_READERS: dict[str, Callable[[str], Iterator[Line]]] = {
    ".py": _python,
    ".js": _matched(_SCRIPT_PROSE),
    "dev": _matched(_SHELL_PROSE),
    ".toml": _commented,
    ".yml": _commented,
    ".conf": _commented,
    ".service": _commented,
    "Containerfile": _commented,
}
