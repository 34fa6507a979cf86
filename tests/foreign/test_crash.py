"""S11: a driver dies at each step of a batch, the broker, or both, for each way to settle; then the table is counted.

PENSTOCK_TORTURE_SEED chooses at which steps the broker dies; with PENSTOCK_TORTURE_S it dies at all: see `./dev torture`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from .driver import Deadly, arm, merge_often, numbered, run, run_and_die, write_ahead
from .helpers import Queue

ROOT = str(Path(__file__).parents[2])
SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261123"))
TORTURE = bool(os.environ.get("PENSTOCK_TORTURE_S"))
MESSAGES, BATCH = 1500, 20
STEPS = {
    "spooled": (
        *("after keys", "after batch", "before accept", "after accept", "after plan"),
        *("after table", "before owner", "after owner", "after delete", "before merged", "after merged"),
    ),
    "committed": ("after batch", "after table", "before accept", "after accept", "after owner", "after merged"),
}
#: Processes are forks of one that has finished the slow imports.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["penstock.connector.stream.reader", "penstock.connector.foreign.consumer", "pyspark.sql.streaming.datasource"]
)


def die_at(step: str, times: int, folder: Path, options: dict[str, str], ahead: int | None = None) -> None:
    driver = PROCESSES.Process(target=run_and_die, args=(folder, options, step, times, ahead))
    sys.path.append(ROOT)  # the child gets this path, and finds the function by its module's name
    try:
        driver.start()
    finally:
        sys.path.remove(ROOT)
    driver.join(120)
    assert driver.exitcode == -9, f"it did not die {step!r}: {driver.exitcode}"


def table(folder: Path) -> Counter[int]:
    counts: Counter[int] = Counter()
    for number in numbered(folder, "table"):
        counts.update(json.loads((folder / f"table-{number}").read_text()))
    return counts


@pytest.mark.parametrize("ahead", [None, BATCH], ids=["limited", "ahead"])
@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_messages_with_ids_are_there_once_whatever_dies_at_whatever_step(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settle: str, ahead: int | None
) -> None:
    """One spool and one table outlive a death of the driver at every step in turn; of both, and of the broker, at some or all.

    `ahead`: files of so many rows are written while Spark works, since no trigger has a limit.
    """
    print("seed", SEED)
    merge_often(monkeypatch.setattr)
    random = Random(SEED)
    folder = tmp_path / "spark"
    folder.mkdir()
    options = {"url": queue.hidden.url, "queue": queue.name, "spool": str(queue.spool), "settle": settle}
    if ahead is None:
        options["maxMessagesPerTrigger"] = str(BATCH)
    else:
        write_ahead(ahead, monkeypatch.setattr)
    steps = STEPS[settle]
    both, alone = (steps if TORTURE else random.sample(steps, 2) for _ in range(2))
    queue.send(0, MESSAGES)
    for step in steps:
        die_at(step, 1, folder, options, ahead)
    for step in both:
        die_at(step, 1, folder, options, ahead)
        queue.restart_broker()
    for step in alone:
        deadly = Deadly(step, 1, queue.restart_broker)
        disarm = arm(deadly)
        try:
            run(folder, options, deadly)
        finally:
            disarm()
        queue.send(queue.sent, queue.sent + 4 * BATCH)
    queue.released()
    run(folder, options, Deadly("never"))
    counts = table(folder)
    lost, twice = set(range(queue.sent)) - set(counts), [number for number, count in counts.items() if count > 1]
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
    run(folder, options, Deadly("never"))
    counts = table(folder)
    assert set(counts) == set(range(500))
    assert 0 < sum(counts.values()) - 500 <= 2 * 100  # of the batches in files that were not accepted at the broker
