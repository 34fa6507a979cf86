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
#: Of `service`, what the plane may import when it runs: a number that operators know.
OF_SERVICE = {"service.connections"}


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


def test_the_plane_knows_the_broker_by_its_port_alone() -> None:
    """A broker in another process can stand behind it: `amqp_plane.broker` has all that it is asked."""
    found, states = set(), set()
    for path in PLANE.rglob("*.py"):
        module = ast.parse(path.read_text())
        typed = {each for block in ast.walk(module) if is_typing(block) for each in imported(block)}
        found |= {each for each in imported(module) if "service" in each.split(".") and each not in typed}
        if path.name != "broker.py":
            assert not {each for each in imported(module) if each.endswith(("service.broker", "service.turn"))}, path.name
        states |= {
            f"{path.name}: {ast.unparse(node)}"
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute) and node.attr == "state" and ast.unparse(node.value).endswith(("broker", "turn"))
        }
    assert found == OF_SERVICE
    assert not states, "the engine's state: a turn is asked what is needed of it"


def is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
