"""The benchmarks: ./dev bench [ROW …]. docs/bench/README.md, created from readme.md, describes each row."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import results
from harness import Bench, Line

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # for `tests.artemis` and `tests.s3`; an installed `penstock` comes before the checkout

#: Row → module and function. Modules are imported when they are needed: some need Spark.
ROWS = {
    "drain-noop": "spark_rows.drain_noop",
    "drain-delta": "spark_rows.drain_delta",
    "two-brokers": "spark_rows.two_brokers",
    "drain-encoded": "spark_rows.drain_encoded",
    "first-row": "spark_rows.first_row",
    "trigger": "spark_rows.trigger",
    "progress": "spark_rows.progress",
    "trigger-4.1": "older_spark_rows.trigger",
    "drain-4.0": "older_spark_rows.drain",
    "archive-read": "recorded_rows.archive_read",
    "enqueue-flight": "broker_rows.enqueue_flight",
    "enqueue-local": "broker_rows.enqueue_local",
    "write": "spark_rows.write",
    "acquire": "engine_rows.acquire",
    "release": "engine_rows.release",
    "memory": "broker_rows.memory",
    "restart": "broker_rows.restart",
    "archive": "archive_rows.archive",
    "archiving": "archiving_rows.archiving",
    "trace": "trace_rows.trace",
    "restart-archived": "cleaning_rows.restart_archived",
    "journal": "cleaning_rows.journal",
    "cleaning": "cleaning_rows.cleaning",
    "copy": "copy_rows.copy",
    "restore": "copy_rows.restore",
    "amqp-transfers": "amqp_rows.transfers",
    "amqp-of-spark": "amqp_rows.of_spark",
    "audit": "audit_rows.audited",
    "service-bus": "service_bus_rows.batches",
    "async": "short_rows.asynchronous",
    "send-many": "short_rows.sent_many",
    "request": "short_rows.requests",
    "stuck": "amqp_rows.stuck",
    "latency": "amqp_rows.latency",
    "artemis": "artemis_rows.both_ways",
    "artemis-connections": "artemis_rows.one_queue",
    "artemis-queues": "artemis_rows.eight_queues",
    "foreign-write": "foreign_write_rows.write",
    "drain-artemis": "foreign_rows.drain_artemis",
    "drain-proton": "foreign_rows.drain_proton",
    "connections": "amqp_rows.connections",
    "watched": "http_rows.watched",
    "page": "page_rows.opened",
    "bombs": "bomb_rows.bombs",
    "silence": "silence_rows.silence",
    "idle": "interest_rows.idle",
    "explain": "explain_rows.explain",
    "priority": "kind_rows.priority",
    "selector": "selector_rows.selector",
    "expiry": "kind_rows.expiry",
    "groups": "kind_rows.groups",
    "last-value": "kind_rows.last_value",
}


def row(name: str) -> Callable[[Bench], Iterator[Line]]:
    module, _, function = ROWS[name].partition(".")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench", description="Measures Penstock against other brokers, libraries and the disk."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all of them by default: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the messages, two repeats: does it run? Not kept")
    parser.add_argument("--no-keep", action="store_true", help="print only; docs/bench stays as it is")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench", help="a folder on the disk to measure (emptied)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.rows if name not in ROWS]
    if unknown:
        parser.error(f"{unknown[0]} is not a row; there are {', '.join(ROWS)}")

    bench = Bench(arguments.work, repeats=2, scale=0.02) if arguments.quick else Bench(arguments.work)
    names = arguments.rows or list(ROWS)
    lines: list[Line] = []
    failed: list[str] = []
    began = time.perf_counter()
    for i, name in enumerate(names, 1):
        print(f"[{i}/{len(names)}] {name} ({(time.perf_counter() - began) / 60:.1f} min so far)", file=sys.stderr, flush=True)
        shutil.rmtree(arguments.work, ignore_errors=True)
        try:
            measured: list[Line] = []
            for line in row(name)(bench):
                measured.append(line)
                results.show([line], to=sys.stderr)
            lines += measured
            if measured and not (arguments.quick or arguments.no_keep):
                results.keep(ROOT, measured, ROWS)
        except Exception as error:
            failed.append(name)
            print(f"  {name} could not be measured: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    shutil.rmtree(arguments.work, ignore_errors=True)
    results.show(lines)
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes" + (f"; not measured: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
