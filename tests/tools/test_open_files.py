"""The limit of open files is raised as far as connections need it; each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.broker_core.server.open_files import OTHERS

PROGRAM = """
import logging, resource, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from penstock.broker_core.server.open_files import make_room
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(make_room(connections), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def run(soft: int, hard: int, connections: int) -> list[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(connections)]
    return subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "room", "after"),
    [
        (256, 4000, 2000, 2000, 2000 + OTHERS),
        (3000, 4000, 2000, 2000, 3000),
        (256, 1024, 2000, 1024 - OTHERS, 1024),
        (100, 100, 2000, 0, 100),
    ],
)
def test_room_is_made_up_to_the_hard_limit(soft: int, hard: int, connections: int, room: int, after: int) -> None:
    """W5: connections are refused by their own limit, with its condition, not by the system's."""
    *warned, last = run(soft, hard, connections)
    assert last.split() == [str(room), str(after), str(hard)]
    assert bool(warned) == (room < connections)
    if warned:
        assert "ulimit -Hn" in warned[0]
