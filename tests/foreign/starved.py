"""A planner that may take little more memory than it has, as a program.

It prints the errors of a query and of an `availableNow` run.

Its arguments are a url, an empty folder, and the MiB that it may take; the broker's queue `warm` gives it a small message.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.reader import StreamReader

from pyspark.sql.streaming.datasource import ReadMaxRows  # isort: skip

INITIAL, LIMIT = {"v": 1, "kind": "initial"}, ReadMaxRows(2**63 - 1)


def reader_of(url: str, queue: str, spool: Path) -> StreamReader:
    return StreamReader(Options({"url": url, "queue": queue, "spool": str(spool)}), source_schema(("body",)))


def bound(mib: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def failure(reader: StreamReader) -> str:
    try:
        while reader.latestOffset(INITIAL, LIMIT) == INITIAL:
            pass
    except BaseException as error:
        return type(error).__name__
    finally:
        reader.stop()
    return "nothing"


def main(url: str, folder: Path, mib: int) -> None:
    print(failure(reader_of(url, "warm", folder / "warm")), flush=True)  # imports all there is
    bound(mib)
    print(failure(reader_of(url, "large", folder / "running")), flush=True)
    ending = reader_of(url, "large", folder / "ending")
    ending.prepareForTriggerAvailableNow()
    print(failure(ending), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
