"""The plane and the broker: the plane reads the engine only through turns. Its own order is a contract in pyproject.toml."""

from __future__ import annotations

import ast
from pathlib import Path

from penstock.broker_core import amqp_plane

PLANE = Path(amqp_plane.__file__).parent


def test_one_module_of_the_plane_looks_at_the_engine_s_state() -> None:
    states = {
        f"{path.name}: {ast.unparse(node)}"
        for path in PLANE.rglob("*.py")
        if path.name != "queue_reads.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "state" and ast.unparse(node.value).endswith(("broker", "turn"))
    }
    assert not states, "ask queue_reads instead"
