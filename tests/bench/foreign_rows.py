"""Rows about foreign brokers: Spark's reads from Artemis, against our client and against a source on another library."""

from __future__ import annotations

import time
from collections.abc import Iterator

import proton_source
from feeding import QUEUE
from harness import WARM_UPS, Bench, Line
from pyspark import cloudpickle
from spark_rows import _run, session

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.client.amqp import connect
from penstock.connector.foreign.intake import MOST_CREDIT
from tests.artemis import VERSION, artemis

BODY = bytes(1024)


def drain_artemis(bench: Bench) -> Iterator[Line]:
    messages = bench.count(1_000_000, 50_000)
    home = bench.folder()
    with artemis(home, QUEUE) as url:

        def ours(_: int) -> float:
            return _drained(bench, url, messages)

        def theirs(_: int) -> float:
            _fill(url, messages)
            return messages / _thrown_away(url, messages)

        for _ in range(WARM_UPS):
            ours(0), theirs(0)
        figures = bench.pairs("rows/s", ours, theirs)
    bench.remove(home)
    title = f"drain {messages:,} durable messages of 1 KiB with ids from ActiveMQ Artemis {VERSION}, availableNow into noop"
    against = "our client's ordinary receiver, a delivery for each message, which accepts them and throws them away"
    yield Line("drain-artemis", title, against, 0.6, 0.8, True, "rows/s", *figures)


def drain_proton(bench: Bench) -> Iterator[Line]:
    messages = bench.count(100_000, 10_000)
    cloudpickle.register_pickle_by_value(proton_source)  # Spark's Python workers do not know this folder
    session().dataSource.register(proton_source.ProtonSource)
    home = bench.folder()
    with artemis(home, QUEUE) as url:

        def ours(_: int) -> float:
            return _drained(bench, url, messages)

        def theirs(_: int) -> float:
            _fill(url, messages)
            stream = session().readStream.format(proton_source.PROTON).options(url=url, queue=QUEUE, messages=messages).load()
            return messages / _run(bench, stream, "noop", messages)

        ours(0), theirs(0)
        figures = bench.pairs("rows/s", ours, theirs, repeats=min(bench.repeats, 3))
    bench.remove(home)
    title = f"drain {messages:,} durable messages of 1 KiB with ids from ActiveMQ Artemis {VERSION}, availableNow into noop"
    against = "a simple Python source on python-qpid-proton's BlockingReceiver, with two columns and nothing it could repeat"
    yield Line("drain-proton", title, against, 3.0, None, True, "rows/s", *figures)


def _drained(bench: Bench, url: str, messages: int) -> float:
    """Rows a second, from `start` to the end of the query."""
    _fill(url, messages)
    spool = bench.folder()
    stream = session().readStream.format("amqp").options(url=url, queue=QUEUE, spool=str(spool)).load()
    rate = messages / _run(bench, stream, "noop", messages)
    bench.remove(spool)
    return rate


def _fill(url: str, messages: int) -> None:
    message = Message(header=Header(durable=True), properties=Properties(message_id="id-#########"), data=[BODY])
    head, tail = message.encode().split(b"#########")
    with connect(url) as connection:
        sender = connection.sender(QUEUE)
        for first in range(0, messages, 10_000):
            sender.send([head + b"%09d" % number + tail for number in range(first, min(messages, first + 10_000))])
        sender.flush()


def _thrown_away(url: str, messages: int) -> float:
    """Seconds from the attach to the last message."""
    with connect(url) as connection:
        started = time.perf_counter()
        receiver = connection.receiver(QUEUE, MOST_CREDIT)
        left = messages
        while left:
            deliveries = receiver.receive(timeout_s=30)
            assert deliveries, f"{left} messages did not come"
            receiver.accept(deliveries)
            left -= len(deliveries)
        return time.perf_counter() - started
