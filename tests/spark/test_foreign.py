"""S11: streams of Spark from a foreign broker, while driver, broker or both are killed: each message once.

PENSTOCK_TORTURE_SEED and PENSTOCK_TORTURE_S (seconds) run more rounds, against Artemis: see `./dev torture`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock import Broker
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.client.amqp.address import parse

from ..foreign import driver
from ..foreign.hidden import Hidden

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261123"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "0"))
ROWS, BATCH = 600, 60  # of each queue, in each round
SETTLE = ("spooled", "committed")
#: Steps of a batch at which the planner of a query kills its driver.
STEPS = (
    *("before keys", "after keys", "before batch", "after batch", "before accept", "after accept"),
    *("before owner", "after owner", "before delete", "after delete"),
)
DRIVER_S = 600

#: A driver with both queries. At one step of one query, its source kills the driver and other processes.
DRIVER = """
import json, os, signal, sys, time
from pyspark.sql import SparkSession
from penstock.connector.source import AmqpSource
from penstock.connector.stream.reader import StreamReader

plan = json.loads(sys.argv[1])
group = os.getpgid(0)

def die():
    for victim in plan["victims"]:
        os.kill(victim, signal.SIGKILL)
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)  # a worker outside the group

class DyingSource(AmqpSource):
    @classmethod
    def name(cls):
        return "dying"

    def streamReader(self, schema):
        if self._options["settle"] == plan["settle"]:
            sys.path.insert(0, plan["tools"])
            import driver
            driver.arm(driver.Deadly(plan["step"], plan["times"], die))
        return StreamReader(self._options, schema)

builder = SparkSession.builder.master("local[2]")
for name, value in plan["settings"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(DyingSource)
queries = []
for settle, (options, table, checkpoint) in plan["queries"].items():
    frame = spark.readStream.format("dying").options(**options).load().selectExpr("cast(body as string) body", "messageId")
    writer = frame.writeStream.format("json").option("checkpointLocation", checkpoint)
    queries.append(writer.trigger(availableNow=True).start(table))
for query in queries:
    query.awaitTermination()
"""


class Hiding:
    """Penstock behind a relay, with the interface of the brokers in `tests/brokers.py`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.relay = Hidden(parse(broker.amqp_url).port)
        self.options = {"url": self.relay.url}

    def queue(self) -> str:
        name = f"q{self.relay.port}-{time.monotonic_ns()}"
        self.broker.declare(name)
        return name

    def connect(self) -> Connection:
        return connect(self.broker.amqp_url)

    @property
    def pid(self) -> int:
        return self.broker.pid

    def kill(self) -> None:
        self.broker.kill()
        self.relay.cut()

    def start(self) -> None:
        self.broker.start()
        self.relay.retarget(parse(self.broker.amqp_url).port)

    def close(self) -> None:
        self.relay.close()


class Streams:
    """A query for each way to settle, with its own queue, spool, table and checkpoint."""

    def __init__(self, spark: SparkSession, broker: Any, folder: Path, settings: dict[str, str]) -> None:
        self.spark, self.broker, self.folder, self.settings = spark, broker, folder, settings
        self.queues = {settle: broker.queue() for settle in SETTLE}
        self.sent = 0

    def send(self) -> None:
        numbers = range(self.sent, self.sent + ROWS)
        header = Header(durable=True)
        with self.broker.connect() as connection:
            for queue in self.queues.values():
                sender = connection.sender(queue)
                sender.send(
                    [
                        Message(header=header, data=[b"%d" % n], properties=Properties(message_id=f"id-{n}")).encode()
                        for n in numbers
                    ]
                )
                sender.flush()
        self.sent += ROWS

    def options(self, settle: str) -> dict[str, str]:
        spool = str(self.folder / f"spool-{settle}")
        own = {"queue": self.queues[settle], "spool": spool, "settle": settle, "maxMessagesPerTrigger": str(BATCH)}
        return {**self.broker.options, **own}

    def places(self, settle: str) -> tuple[str, str]:
        return str(self.folder / f"table-{settle}"), str(self.folder / f"checkpoint-{settle}")

    def die(self, settle: str, step: str, times: int, victims: list[int]) -> None:
        """Run the query, or both for `./dev torture`, in a separate driver until it dies."""
        (self.folder / "driver.py").write_text(DRIVER)
        plan = {
            "settings": {name: value for name, value in self.settings.items() if "delta" not in value.lower()},
            "queries": {name: (self.options(name), *self.places(name)) for name in (SETTLE if SECONDS else (settle,))},
            "tools": str(Path(driver.__file__).parent),
            "settle": settle,
            "step": step,
            "times": times,
            "victims": victims,
        }
        for _ in range(5):  # Spark gives a Python worker 10 seconds to start: not always enough on a busy machine
            code = self._run(json.dumps(plan))
            if code == -signal.SIGKILL:
                return
        raise AssertionError((self.folder / "driver.log").read_text(errors="replace")[-3000:])

    def _run(self, plan: str) -> int:
        with open(self.folder / "driver.log", "wb") as log:
            command = [sys.executable, str(self.folder / "driver.py"), plan]
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                return process.wait(DRIVER_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def finish(self, moment_s: float | None) -> None:
        """Read all messages. The broker dies after `moment_s`, if given. A failed query is restarted."""
        for attempt in range(5):
            queries = [self._started(settle) for settle in SETTLE]
            if moment_s is not None and not attempt:
                time.sleep(moment_s)
                self.broker.kill()
                self.broker.start()
            try:
                for query in queries:
                    query.awaitTermination()
                return
            except StreamingQueryException as error:
                print("a query ended:", str(error)[:300])
                for query in queries:
                    query.stop()
        raise AssertionError("the queries do not end")

    def _started(self, settle: str) -> Any:
        table, checkpoint = self.places(settle)
        stream = self.spark.readStream.format("amqp").options(**self.options(settle)).load()
        rows = stream.selectExpr("cast(body as string) body", "messageId")
        writer = rows.writeStream.format("json").option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start(table)

    def table(self, settle: str) -> Counter[tuple[int, str]]:
        rows = self.spark.read.json(self.places(settle)[0]).collect()
        return Counter((int(row.body), row.messageId) for row in rows)


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[Any]:
    if SECONDS:
        yield request.getfixturevalue("artemis_broker")
        return
    hiding = Hiding(request.getfixturevalue("broker"))
    yield hiding
    hiding.close()


@pytest.mark.timeout(86_400)
def test_streams_from_a_broker_of_others_under_kills(
    spark: SparkSession, peer: Any, tmp_path: Path, settings: dict[str, str]
) -> None:
    print("seed", SEED)
    random = Random(SEED)
    streams, kills = Streams(spark, peer, tmp_path, settings), Counter[str]()
    end = time.monotonic() + SECONDS
    while not kills or time.monotonic() < end:
        streams.send()
        settle, step, times = random.choice(SETTLE), random.choice(STEPS), random.randint(0, 3)
        both = bool(random.getrandbits(1))
        print("the driver dies", "with the broker" if both else "alone", step, times, settle)
        streams.die(settle, step, times, [peer.pid] if both else [])
        if both:
            peer.kill()
            peer.start()
        kills["both" if both else "driver"] += 1
        alone = not SECONDS or random.random() < 0.5
        streams.finish(2 * random.random() if alone else None)
        kills["broker"] += alone
        for _ in range(20):  # until the broker has ended the links of the dead driver
            if min(streams.table(way).total() for way in SETTLE) >= streams.sent:
                break
            streams.finish(None)
        every = Counter((n, f"id-{n}") for n in range(streams.sent))
        for setting in SETTLE:
            table = streams.table(setting)
            lost, twice = every - table, table - every
            assert (lost.total(), twice.total()) == (0, 0), (setting, sorted(lost)[:9], sorted(twice)[:9])
            held = [path.name for path in (tmp_path / f"spool-{setting}").iterdir() if path.name.startswith("batch-")]
            assert len(held) <= 1  # the last batch: Spark has not reported its commit
    print(dict(kills), "kills,", streams.sent, "messages to each of", len(SETTLE), "queries: none lost, none twice")
