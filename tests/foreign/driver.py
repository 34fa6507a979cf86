"""A driver with Spark's own order of steps, for a process of its own that kills itself at one of them.

Spark's state is in a folder. `plan-N` is its log of offsets, written before batch N runs. `table-N` are the rows of batch N, in a
table that takes each batch once. `done-N` is its log of commits.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.connector.foreign import consumer, intake, key_files, spool, spool_files
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.reader import StreamReader

from pyspark.sql.streaming.datasource import ReadMaxRows  # isort: skip

INITIAL = {"v": 1, "kind": "initial"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """Counts the steps, and kills at the chosen one, which is passed `times` times before; by default this process."""

    def __init__(self, step: str, times: int = 0, kill: Callable[[], None] = die) -> None:
        self._step, self._left, self._kill = step, times, kill

    def at(self, step: str) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == -1:
                self._kill()


def arm(deadly: Deadly) -> Callable[[], None]:
    """Wrap the calls of the connector in the steps that lie inside it. Return a function that removes them."""
    put, delete, accept = spool_files.SpoolFiles.put, spool_files.SpoolFiles.delete, intake.Intake._accept

    def deadly_put(self: Any, name: str, write: Any, **how: Any) -> None:
        kind = "merged" if name.count("-") == 2 else name.partition("-")[0].partition(".")[0]
        deadly.at(f"before {kind}")
        put(self, name, write, **how)
        deadly.at(f"after {kind}")

    def deadly_delete(self: Any, name: str) -> None:
        deadly.at("before delete")
        delete(self, name)
        deadly.at("after delete")

    def deadly_accept(self: Any, settled: Any) -> None:
        deadly.at("before accept")
        accept(self, settled)
        if self._connection is not None:
            self._connection.idle()
        deadly.at("after accept")

    spool_files.SpoolFiles.put = deadly_put  # type: ignore[method-assign]
    spool_files.SpoolFiles.delete = deadly_delete  # type: ignore[method-assign]
    intake.Intake._accept = deadly_accept  # type: ignore[method-assign]
    assert spool.OWNER == "owner.json"

    def disarm() -> None:
        spool_files.SpoolFiles.put, spool_files.SpoolFiles.delete, intake.Intake._accept = put, delete, accept  # type: ignore[method-assign]

    return disarm


def written(path: Path, value: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)


def numbered(folder: Path, kind: str) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob(f"{kind}-[0-9]*") if path.suffix != ".part")


def run(folder: Path, options: dict[str, str], deadly: Deadly) -> None:
    """Drain the queue into the table, from where the logs say."""
    reader = StreamReader(Options(options), source_schema(("body",)))
    done, planned = numbered(folder, "done"), numbered(folder, "plan")
    number = (done or [0])[-1]
    start = json.loads((folder / f"plan-{number}").read_text()) if number else INITIAL
    reader.prepareForTriggerAvailableNow()
    while True:
        number += 1
        if number in planned:  # Spark plans it again before it asks for anything else
            end = json.loads((folder / f"plan-{number}").read_text())
        else:
            end = reader.latestOffset(start, ReadMaxRows(2**62))
            deadly.at("before plan")
            if end == start:
                break
            written(folder / f"plan-{number}", end)
        deadly.at("after plan")
        rows = [int(body.as_py()) for p in reader.partitions(start, end) for batch in reader.read(p) for body in batch.column(0)]
        deadly.at("before table")
        if number not in numbered(folder, "table"):
            written(folder / f"table-{number}", rows)
        deadly.at("after table")
        written(folder / f"done-{number}", True)
        deadly.at("after done")
        start = end
    reader.stop()


def write_ahead(rows: int, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make files of so many rows while Spark works, and triggers of about twice as many."""
    for module in (consumer, intake):
        put(module, "FILE_ROWS", rows)
    put(consumer, "WAITING_ROWS", 2 * rows)


def merge_often(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Make files of keys one when they are more than a few."""
    put(key_files, "MOST_FILES", 3)


def run_and_die(folder: Path, options: dict[str, str], step: str, times: int, ahead: int | None) -> None:
    if ahead is not None:
        write_ahead(ahead)
    merge_often()
    deadly = Deadly(step, times)
    arm(deadly)
    run(folder, options, deadly)
