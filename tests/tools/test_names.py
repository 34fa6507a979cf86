"""Names: one class for each name, variables that are named after their content, few parameters, modules that are nouns."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("broker_core", "connector", "jobs")

#: Classes that share a name, because a standard gives it to both things.
STANDARD = {
    "Connection": "AMQP's, and that of our client for applications, as in JMS",
    "Session": "AMQP's, and that of our client for applications, as in JMS",
    "Sender": "AMQP's state machine, and a link of our AMQP client",
    "Receiver": "AMQP's state machine, and a link of our AMQP client",
    "Queue": "the engine's, and that of our client for applications",
    "Transaction": "the engine's, and that of our client for applications",
}

#: Names that say nothing about their content.
PLACEHOLDERS = {"found", "each", "given", "said", "there", "what", "kept", "one", "other", "told", "heard"}

#: Adjectives and participles that would be bare as the name of a module.
BARE = re.compile(
    "alike|lone|whole|plain|shown|several|patient|paced|quiet|live|missing|mapped|recorded|shipped|told|detached|blocked"
)

MAX_PARAMETERS = 6  # of a function, without self
MANY_PARAMETERS = 15  # functions that may have more, because their callers read better


@pytest.fixture(scope="module")
def trees(repository: Path) -> dict[str, ast.Module]:
    files = [path for package in PACKAGES for path in sorted((repository / package).rglob("*.py"))]
    return {str(path.relative_to(repository)): ast.parse(path.read_text()) for path in files}


def test_a_class_has_its_name_for_itself(trees: dict[str, ast.Module]) -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1 and name not in STANDARD} == {}


def test_a_variable_is_named_after_its_content(trees: dict[str, ast.Module]) -> None:
    """Fields of classes are an interface, and operators such as `__eq__` call their operand `other`."""
    assert [f"{file}:{line}: {name}" for file, tree in trees.items() for line, name in placeholders(tree)] == []


def placeholders(tree: ast.Module) -> Iterator[tuple[int, str]]:
    fields = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)}
    operands = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__")
        for argument in node.args.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PLACEHOLDERS and id(node) not in fields:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in PLACEHOLDERS and id(node) not in operands:
            yield node.lineno, node.arg


def test_a_function_has_few_parameters(trees: dict[str, ast.Module]) -> None:
    large = [
        f"{file}: {node.name}"
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and parameters(node.args) > MAX_PARAMETERS
    ]
    assert len(large) <= MANY_PARAMETERS, large


def parameters(arguments: ast.arguments) -> int:
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_a_module_is_a_noun(trees: dict[str, ast.Module]) -> None:
    assert [file for file in trees if BARE.fullmatch(Path(file).stem)] == []
