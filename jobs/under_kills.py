"""The heart of the demo: flights through a queue into Delta, while the driver and the broker are killed, and the comparison.

What is killed is killed with SIGKILL, in the middle of a batch: the Spark driver with its JVM, then the broker. It is the same
for a Penstock and for any other broker; `Reader` says what is different.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.jobs import flights
from penstock.jobs.session import session
from penstock.jobs.told import Told

QUEUE = "flights"
#: Batches, so that there is a middle to be killed in.
BATCHES = 9
#: Tries of a job that nobody kills.
ATTEMPTS = 4
#: Seconds until a batch is in its middle.
MIDDLE_LIMIT_S = 60.0


class Killable(Protocol):
    """A broker in a process of its own."""

    @property
    def pid(self) -> int | None:
        """Id of the process."""

    def start(self) -> object:
        """Start it on the data that it has."""

    def kill(self) -> None:
        """Kill it with SIGKILL."""


class Reader(NamedTuple):
    """Query on a broker: the options of the format `amqp`, and how many messages it has read and not settled."""

    options: Mapping[str, object]
    held: Callable[[], int]


class Ingest:
    """`jobs/ingest.py` in a process group of its own, so that the driver, its JVM and its workers can be killed together."""

    def __init__(self, url: str, options: Mapping[str, object], work: Path, told: Told) -> None:
        self.batches = 0
        self._told = told
        self._changed = threading.Condition()
        self.table, self._log = work / "delta", work / "ingest.log"
        command = [sys.executable, "-m", "penstock.jobs.ingest", "--available-now", "--url", url, "--queue", QUEUE]
        command += ["--table", str(self.table), "--checkpoint", str(work / "checkpoint")]
        for name, value in options.items():
            command += ["--option", f"{name}={value}"]
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True, start_new_session=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._told.other(line.rstrip())
                with self._changed:
                    self.batches += "batch " in line
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, batches: int, limit_s: float = 240) -> bool:
        """True once that many batches are through; False when the job ended before."""
        with self._changed:
            return self._changed.wait_for(lambda: self.batches >= batches or not self._reader.is_alive(), limit_s) and (
                self.batches >= batches
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers, and wait for their end."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(10)

    def wait(self, limit_s: float = 240) -> int:
        """Wait for the job's end; return its exit code. Raises TimeoutExpired after `limit_s` seconds."""
        code = self.process.wait(limit_s)
        self._reader.join(10)
        return code

    def missed(self) -> str:
        """Say why there was no batch in whose middle something could be killed."""
        if self._reader.is_alive():
            return f"the job is slow, and not there yet after {self.batches} batches"
        return f"the job ended before, after {self.batches} batches, with exit code {self.process.wait(10)} ({self.last_words()})"

    def last_words(self) -> str:
        """Return the last error that the job logged, or the path of its log."""
        said = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        return said[-1] if said else f"see {self._log}"


@contextmanager
def spark_of_demo() -> Iterator[SparkSession]:
    """A Spark with the format `amqp`, until the end of the block."""
    spark = session("penstock demo", {"spark.sql.execution.arrow.pyspark.enabled": "true"})
    penstock.register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def send(spark: SparkSession, url: str, source: pa.Table, said: str, told: Told) -> DataFrame:
    """Write the flights to the queue; return them as they were sent. `said` is what holds then."""
    # A few tasks, in the order of the calendar: thirty-four would only add what a task costs.
    sent = flights.messages(spark, source).coalesce(4).cache()
    sent.count()
    started = time.monotonic()
    sent.write.format("amqp").mode("append").option("url", url).option("queue", QUEUE).save()
    seconds = time.monotonic() - started
    told.good(f"sent and {said} in {seconds:.1f} s ({source.num_rows / seconds:,.0f} messages/s)")
    return sent


def ingest(broker: Killable, url: str, reader: Reader, work: Path, total: int, told: Told) -> None:
    """Run the job until it is through, and kill the driver and the broker on the way. `compare` says what came of it."""
    batch = -(-total // BATCHES)
    options = {**reader.options, "maxMessagesPerTrigger": batch}
    told.fact(f"jobs/ingest.py in a process of its own, at most {batch:,} messages a batch")
    job = Ingest(url, options, work, told)
    try:
        if job.wait_for(2):
            held = await_middle(reader)
            told.kill(
                f"the Spark driver and its JVM (process group {job.process.pid}), with {held:,} messages read and not settled"
            )
        else:
            told.fact(f"the Spark driver is not killed: {job.missed()}")
        job.kill()
        told.fact("the same command again; it goes on from its checkpoint")
        job = Ingest(url, options, work, told)
        if job.wait_for(2):
            held = await_middle(reader)
            told.kill(f"the broker (process {broker.pid}), with {held:,} messages read and not settled")
            broker.kill()
            started = time.monotonic()
            broker.start()
            told.fact(f"the broker is back at {url} after {time.monotonic() - started:.1f} s: process {broker.pid}")
        else:
            told.fact(f"the broker is not killed: {job.missed()}")
        attempts = 0
        while (code := job.wait()) != 0:
            told.fact(f"the job ended with exit code {code} ({job.last_words()}); the same command again")
            attempts += 1
            if attempts == ATTEMPTS:
                told.bad("the job does not come to an end")
                return
            job = Ingest(url, options, work, told)
    finally:
        job.kill()


def await_middle(reader: Reader) -> int:
    """Return once Spark's tasks read a batch: from there to its settlement is the middle. How many messages it has."""
    deadline = time.monotonic() + MIDDLE_LIMIT_S
    while time.monotonic() < deadline:
        held = reader.held()
        if held:
            return held
        time.sleep(0.01)
    raise SystemExit("Spark reads nothing")


def compare(sent: DataFrame, got: DataFrame, told: Told) -> bool:
    """Compare the table with what was sent; return True when no flight is missing or there twice."""
    columns = [F.col("messageId"), F.col("subject"), F.col("body").cast("string").alias("body")]
    there, here = sent.select(*columns), got.select(*columns)
    number, distinct = got.select(F.count(F.lit(1)), F.count_distinct("sequenceNumber")).first() or (0, 0)
    missing, extra = there.exceptAll(here).count(), here.exceptAll(there).count()
    if missing or extra or number != distinct:
        told.bad(f"{missing:,} flights are missing, {extra:,} are too many, of {number:,}")
        return False
    told.good(f"{number:,} rows, {distinct:,} different messages, none missing, none twice, every byte as it was sent")
    return True
