"""Flights through a queue into Delta while the driver and the broker are killed, and the comparison of both ends.

First, the Spark driver with its JVM receives SIGKILL in the middle of a batch, then the broker. The steps are the same for
Penstock and for a foreign broker; a `Reader` holds the differences.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.jobs import flights
from penstock.jobs.session import session

from .output import Output

QUEUE = "flights"
#: Batches of the stream: enough that the kills fall between the first and the last.
BATCHES = 5
#: Starts of the job after the last kill.
ATTEMPTS = 4
#: Seconds until Spark's tasks read a batch.
MIDDLE_LIMIT_S = 60.0


class Killable(Protocol):
    """Broker in its own process."""

    @property
    def pid(self) -> int | None:
        """Id of the process."""

    def start(self) -> object:
        """Start the process on the existing data."""

    def kill(self) -> None:
        """Send SIGKILL."""


class Reader(NamedTuple):
    """Options of the format `amqp` for a broker, and a function that counts the messages read and not settled."""

    options: Mapping[str, object]
    messages_in_progress: Callable[[], int]


class Ingest:
    """The job `ingest` in its own process group, so that the driver, its JVM and its workers can be killed together.

    Each batch prints the number of flights in the table, of all starts of the job together.
    """

    def __init__(self, url: str, options: Mapping[str, object], work: Path, total: int, output: Output) -> None:
        self.batches = 0
        self._total, self._output = total, output
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
                done = re.search(r"batch (\d+): .* in ([\d.]+) s", line)
                if done is not None:
                    self._output.quote(f"batch {done[1]} in {done[2]} s: {self._arrived()}")
                    with self._changed:
                        self.batches += 1
                        self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _arrived(self) -> str:
        number = deltalake.DeltaTable(self.table).count()
        return f"{number:,} of {self._total:,} flights are in the table"

    def wait_for(self, batches: int, limit_s: float = 240) -> bool:
        """Wait until that many batches are done. Return False if the job ends first or the limit passes."""
        with self._changed:
            return self._changed.wait_for(lambda: self.batches >= batches or not self._reader.is_alive(), limit_s) and (
                self.batches >= batches
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers, and wait until they have ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(10)

    def wait(self, limit_s: float = 240) -> int:
        """Wait for the job's end; return its exit code. Raises TimeoutExpired after `limit_s` seconds."""
        code = self.process.wait(limit_s)
        self._reader.join(10)
        return code

    def reason_for_no_kill(self) -> str:
        """Explain why no batch was reached in whose middle a process could be killed."""
        if self._reader.is_alive():
            return f"the job is slow: only {self.batches} batches are done"
        return f"the job ended after {self.batches} batches, with exit code {self.process.wait(10)} ({self.last_error()})"

    def last_error(self) -> str:
        """Return the last error that the job logged, or the path of its log."""
        errors = [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("error: ")]
        return errors[-1] if errors else f"see {self._log}"


@contextmanager
def demo_spark(limit: int | None, output: Output) -> Iterator[tuple[SparkSession, pa.Table]]:
    """Run a Spark session with the format `amqp`, and stop it at the end of the block. The flights are read while it starts."""
    with output.busy("Spark starts; its first start downloads Delta's two jars"), ThreadPoolExecutor(1) as thread:
        source = thread.submit(flights.table, limit)
        spark = session("penstock demo", {"spark.sql.execution.arrow.pyspark.enabled": "true"})
        penstock.register(spark)
    try:
        yield spark, source.result()
    finally:
        spark.stop()


def send(spark: SparkSession, url: str, source: pa.Table, guarantee: str, output: Output) -> DataFrame:
    """Write the flights to the queue; return them as they were sent. `guarantee` is the state that a finished write promises."""
    # Four tasks, in the order of the calendar: more tasks would only add their own cost.
    with output.busy("Spark makes a message of each flight"):
        sent = flights.messages(spark, source).coalesce(4).cache()
        sent.count()
    with output.busy("the messages are sent"):
        started = time.monotonic()
        sent.write.format("amqp").mode("append").option("url", url).option("queue", QUEUE).save()
        seconds = time.monotonic() - started
    output.good(f"{source.num_rows:,} messages are {guarantee} after {seconds:.1f} s ({source.num_rows / seconds:,.0f}/s)")
    return sent


def ingest(broker: Killable, url: str, reader: Reader, work: Path, total: int, output: Output) -> None:
    """Run the job to its end, and kill the driver and the broker on the way. `compare` checks the result."""
    batch = -(-total // BATCHES)
    options = {**reader.options, "maxMessagesPerTrigger": batch}
    output.fact(f"the job ingest in its own process, at most {batch:,} messages per batch")
    output.fact("the job starts a Spark of its own, which takes some seconds each time")
    job = Ingest(url, options, work, total, output)
    try:
        if job.wait_for(1):
            count = await_middle(reader)
            output.kill(
                f"the Spark driver and its JVM (process group {job.process.pid}), with {count:,} messages read and not settled"
            )
        else:
            output.fact(f"the Spark driver is not killed: {job.reason_for_no_kill()}")
        job.kill()
        output.fact("the same command again: the job continues from its checkpoint")
        job = Ingest(url, options, work, total, output)
        if job.wait_for(1):
            count = await_middle(reader)
            output.kill(f"the broker (process {broker.pid}), with {count:,} messages read and not settled")
            broker.kill()
            started = time.monotonic()
            broker.start()
            output.fact(f"the broker is back at {url} after {time.monotonic() - started:.1f} s: process {broker.pid}")
        else:
            output.fact(f"the broker is not killed: {job.reason_for_no_kill()}")
        attempts = 0
        while (code := job.wait()) != 0:
            output.fact(f"the job ended with exit code {code} ({job.last_error()}); the same command again")
            attempts += 1
            if attempts == ATTEMPTS:
                output.bad("the job fails repeatedly")
                return
            job = Ingest(url, options, work, total, output)
    finally:
        job.kill()


def await_middle(reader: Reader) -> int:
    """Wait until Spark's tasks read a batch, which is not settled yet; return its number of messages."""
    deadline = time.monotonic() + MIDDLE_LIMIT_S
    while time.monotonic() < deadline:
        count = reader.messages_in_progress()
        if count:
            return count
        time.sleep(0.01)
    raise SystemExit(f"Spark has read nothing for {MIDDLE_LIMIT_S:g} s")


def compare(sent: DataFrame, got: DataFrame, output: Output) -> bool:
    """Compare the table with the sent flights; return True if each is there exactly once."""
    columns = ["messageId", "subject", "sha2(cast(body as binary), 256) body"]
    with output.busy("Spark compares the table with the sent flights"):
        # One shuffle, of hashes instead of bodies.
        both = sent.selectExpr(*columns, "1 sent", "0 got").unionAll(got.selectExpr(*columns, "0 sent", "1 got"))
        messages = both.groupBy("messageId", "subject", "body").agg(F.sum("sent").alias("sent"), F.sum("got").alias("got"))
        missing, extra, number, distinct = messages.selectExpr(
            "sum(greatest(sent - got, 0))", "sum(greatest(got - sent, 0))", "sum(got)", "count_if(got > 0)"
        ).first() or (0, 0, 0, 0)
    if missing or extra or number != distinct:
        output.bad(f"{missing:,} flights are missing and {extra:,} are surplus; the table has {number:,} rows")
        return False
    output.good(f"{number:,} rows, {distinct:,} different messages, 0 missing, 0 duplicated, identical byte for byte")
    return True
