"""Eight brokers and a hundred queues at each, in one query, and its cost in requests and CPU time."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.reader import StreamReader

from .helpers import INITIAL, LIMIT

BROKERS, QUEUES = 8, 100
NAMES = [f"q{number:02}" for number in range(QUEUES)]
MESSAGES = 2_000


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    folder = tmp_path_factory.mktemp("eight")
    brokers = [Broker(folder / str(number), fsync="never", archive="off", amqp_port=None) for number in range(BROKERS)]
    for broker in brokers:
        broker.start()
        with Client(broker.url) as client:
            for name in NAMES:
                client.call("queue.declare", queue=name)
    yield brokers
    for broker in brokers:
        broker.stop()


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def reader_of(brokers: list[Broker], **options: str) -> StreamReader:
    urls = ",".join(broker.url for broker in brokers)
    settings = {"url": urls, "queue": ",".join(NAMES), "lease": "scale", **options}
    return StreamReader(Options(settings), source_schema(("queue", "body")))


def send(broker: Broker, queue: str, bodies: list[bytes]) -> None:
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    with Client(broker.url) as client:
        client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])


def test_eight_brokers_and_a_hundred_queues(eight: list[Broker]) -> None:
    """Messages in some queues of some brokers: each comes once, within the limit, and all is settled everywhere."""
    dice, sent = random.Random(15), Counter[tuple[str, str]]()
    for count in (MESSAGES // 40 for _ in range(40)):
        number, queue = dice.randrange(BROKERS), dice.choice(NAMES)
        first = sent[str(number), queue]
        send(eight[number], queue, [f"{number} {first + i}".encode() for i in range(count)])
        sent[str(number), queue] += count
    reader, offset, counts, sizes = reader_of(eight, maxMessagesPerTrigger="300"), INITIAL, Counter[tuple[str, str]](), []
    begin, mine, theirs = time.perf_counter(), time.process_time(), [cpu_seconds(broker.pid) for broker in eight]
    triggers = 0
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        triggers += 1
        rows = [row for part in reader.partitions(offset, end) for batch in reader.read(part) for row in batch.to_pylist()]
        sizes.append(len(rows))
        counts.update((row["body"].decode().partition(" ")[0], row["queue"]) for row in rows)
        offset = end
    spent = [cpu_seconds(broker.pid) - before for broker, before in zip(eight, theirs, strict=True)]
    print(f"{triggers} triggers, {time.perf_counter() - begin:.2f} s, planner {time.process_time() - mine:.2f} s of CPU,")
    print(f"brokers {sum(spent):.2f} s of CPU, offset {len(json.dumps(offset)):,} characters")
    assert counts == sent
    assert max(sizes) <= 300
    for broker in eight:
        with Client(broker.url) as client:
            live = [queue for queue in client.call("queue.list")["queues"] if queue["available"] or queue["acquired"]]
            assert live == []
    reader.stop()


def test_an_idle_trigger_costs_by_the_brokers_and_not_by_their_queues(
    eight: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each broker is asked once which of its queues have messages, and then to wait."""
    reader = reader_of(eight, lease="idle")
    for _ in range(10):  # the first trigger asks all queues
        assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    asked, call = Counter[str](), Client.call

    def counted(client: Client, action: str, **fields: Any) -> dict[str, Any]:
        asked[action] += 1
        return call(client, action, **fields)

    monkeypatch.setattr(Client, "call", counted)
    mine, theirs, begin = time.process_time(), sum(cpu_seconds(broker.pid) for broker in eight), time.perf_counter()
    for _ in range(10):
        assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    print(f"ten idle triggers: {time.perf_counter() - begin:.2f} s, planner {time.process_time() - mine:.2f} s of CPU,")
    print(f"brokers {sum(cpu_seconds(broker.pid) for broker in eight) - theirs:.2f} s of CPU, {dict(asked)}")
    reader.stop()
    assert asked.total() < 10 * BROKERS * 20 < 10 * BROKERS * QUEUES


def test_a_message_in_one_of_many_queues_is_found_and_counted(eight: list[Broker]) -> None:
    reader = reader_of(eight[:2], lease="one")
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    send(eight[1], "q77", [b"here"])
    while (end := reader.latestOffset(INITIAL, LIMIT)) == INITIAL:
        pass
    (part,) = reader.partitions(INITIAL, end)
    assert [batch.num_rows for batch in reader.read(part)] == [1]
    assert reader.reportLatestOffset()["queues"]["q77"]["inFlight"] == 1
    assert reader.latestOffset(end, LIMIT) == end
    with Client(eight[1].url) as client:
        assert client.call("queue.stat", queue="q77")["archived"] >= 1
        assert client.call("queue.stat", queue="q77")["acquired"] == 0
    reader.stop()
