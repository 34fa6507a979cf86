"""Ports: all that a link may ask of its surroundings, and nothing behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core import amqp_plane

PLANE = Path(amqp_plane.__file__).parent
BEHIND = ("connections.peer", "connections.transport", "loop.passes", "loop.server")
MODULES = [
    path.relative_to(PLANE).as_posix() for room in ("links", "nodes", "transactions") for path in (PLANE / room).glob("*.py")
]


def imported(module: ast.AST) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("name", MODULES)
def test_links_know_their_surroundings_by_the_ports_alone(name: str) -> None:
    """Not for annotations either: what is not in the ports is not asked for."""
    module = ast.parse((PLANE / name).read_text())
    known = {each for each in imported(module) if each.endswith(BEHIND)}
    assert not known
    chains = {ast.unparse(node) for node in ast.walk(module) if isinstance(node, ast.Attribute) and node.attr == "plane"}
    assert not chains, "the plane behind a connection"


def test_the_plane_asks_turns_and_never_looks_at_the_engine_s_state() -> None:
    states = {
        f"{path.name}: {ast.unparse(node)}"
        for path in PLANE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "state" and ast.unparse(node.value).endswith(("broker", "turn"))
    }
    assert not states, "a turn is asked what is needed of it"
