"""S11: a driver dies at each step of a batch, for each way to settle; what the table holds then is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .driver import Deadly, numbered, run
from .helpers import Queue

MESSAGES = 600
STEPS = {
    "spooled": (
        *("after keys", "after batch", "before accept", "after accept", "after plan"),
        *("after table", "before owner", "after owner", "after delete"),
    ),
    "committed": ("after batch", "after table", "before accept", "after accept", "after owner"),
}


def die_at(step: str, times: int, folder: Path, options: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pytest_foreign_driver", str(folder), json.dumps(options), step, str(times)]
    command[1:3] = [str(Path(__file__).with_name("driver.py"))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == -9, ended.stderr


def table(folder: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for number in numbered(folder, "table"):
        found.update(json.loads((folder / f"table-{number}").read_text()))
    return found


@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_messages_with_ids_are_there_once_whatever_step_a_driver_dies_at(queue: Queue, tmp_path: Path, settle: str) -> None:
    """One spool and one table outlive a death at every step in turn."""
    folder = tmp_path / "spark"
    folder.mkdir()
    options = {"url": queue.hidden.url, "queue": queue.name, "spool": str(queue.spool), "settle": settle}
    options["maxMessagesPerTrigger"] = "20"
    queue.send(0, MESSAGES)
    for step in STEPS[settle]:
        die_at(step, 1, folder, options)
    queue.released()
    run(folder, options, Deadly("never", 0))
    found = table(folder)
    lost, twice = set(range(MESSAGES)) - set(found), [number for number, count in found.items() if count > 1]
    assert (len(lost), len(twice)) == (0, 0)
    assert queue.available() == 0


@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_messages_without_ids_are_there_at_least_once(queue: Queue, tmp_path: Path, settle: str) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    options = {"url": queue.hidden.url, "queue": queue.name, "spool": str(queue.spool), "settle": settle}
    options["maxMessagesPerTrigger"] = "100"
    queue.send(0, 500, ids=False)
    die_at("before accept", 1, folder, options)
    queue.released()
    run(folder, options, Deadly("never", 0))
    found = table(folder)
    assert set(found) == set(range(500))
    assert 0 < sum(found.values()) - 500 <= 2 * 100  # of the batches that were in files, and of which the broker had not heard
