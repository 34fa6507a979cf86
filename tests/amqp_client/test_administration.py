"""Declare, delete, peek and redrive from a connection, at a real broker, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock import RedriveResult, connect_async
from penstock.broker_core import errors
from penstock.broker_core.client.app import Connection
from penstock.broker_core.client.app.administration import Administration
from penstock.broker_core.client.credentials import NOBODY
from penstock.broker_core.client.discovery import NoPenstock
from penstock.broker_core.server.child import Broker
from penstock.testing import InProcessBroker

from ..waiting import until
from .applications import LIMIT_S, connect, stat
from .peer import Peer


def test_a_queue_is_declared_with_options_and_deleted(broker: Broker, connection: Connection) -> None:
    assert connection.declare("declared", maxMessages=5) is True
    assert connection.declare("declared", maxMessages=5) is False
    for body in "abcde":
        connection.send("declared", body)
    with pytest.raises(errors.AlreadyExists):
        connection.declare("declared", type="priority")
    with pytest.raises(errors.InvalidRequest, match="did you mean 'maxMessages'"):
        connection.declare("misspelt", max_mesages=5)
    with pytest.raises(errors.InUse):
        connection.delete("declared")
    assert connection.delete("declared", force=True) == 5
    with pytest.raises(errors.NotFound):
        connection.delete("declared")


def test_a_peek_leaves_the_messages_and_ends_at_the_last_one(broker: Broker, connection: Connection) -> None:
    connection.declare("peeked")
    assert connection.peek("peeked") == []
    connection.queue("peeked").send_many(json=range(15), subject="new")
    assert [message.json() for message in connection.peek("peeked")] == list(range(10))
    assert [message.json() for message in connection.peek("peeked", limit=100)] == list(range(15))
    assert connection.peek("peeked", selector="colour = 'red'") == []
    assert stat(broker, "peeked")["available"] == 15
    with pytest.raises(errors.NotFound):
        connection.peek("no-such-queue")


def test_dead_letters_are_redriven(broker: Broker, connection: Connection) -> None:
    connection.declare("dead")
    connection.declare("alive", deadLetterQueue="dead")
    queue = connection.queue("alive")
    for colour in ("red", "blue", "red"):
        queue.send(colour, properties={"colour": colour})
    for message in queue.receive(limit=3, timeout=LIMIT_S):
        message.reject("not this time")
    until(lambda: stat(broker, "dead")["available"] == 3, "the rejections have arrived")
    assert connection.redrive("dead", selector="colour = 'blue'") == RedriveResult(1, 0)
    assert connection.redrive("dead", limit=1) == RedriveResult(1, 0)
    assert [message.body for message in connection.peek("dead")] == ["red"]
    assert connection.redrive("dead") == RedriveResult(1, 0)
    assert sorted(message.body for message in connection.peek("alive")) == ["blue", "red", "red"]


def test_asyncio_has_the_same_requests(broker: Broker) -> None:
    async def go() -> None:
        async with connect_async(broker.amqp_url) as connection:
            assert await connection.declare("async-declared")
            await connection.send("async-declared", "x")
            assert [message.body for message in await connection.peek("async-declared")] == ["x"]
            assert await connection.redrive("async-declared") == (0, 0)
            assert await connection.delete("async-declared", force=True) == 1

    asyncio.run(asyncio.wait_for(go(), LIMIT_S))


def test_after_a_restart_the_requests_go_to_the_new_endpoint(tmp_path: Path) -> None:
    with Broker(tmp_path, fsync="never") as first, connect(first.amqp_url) as connection:
        connection.declare("before")
        first.stop()
        port = int(first.amqp_url.rpartition(":")[2])
        with Broker(tmp_path, fsync="never", amqp_port=port):
            assert connection.declare("before") is False
            assert connection.declare("after") is True


def test_the_client_of_the_server_before_a_failover_is_closed(tmp_path: Path) -> None:
    def flight_connections(broker: Broker) -> int:
        with urlopen(f"{broker.http_url}/api/v1/connection.list", timeout=LIMIT_S) as answer:
            return sum(connection["protocol"] == "flight" for connection in json.load(answer)["connections"])

    with Broker(tmp_path / "first", fsync="never") as first, Broker(tmp_path / "second", fsync="never") as second:
        administration = Administration(NOBODY, LIMIT_S)
        for broker in (first, second):
            assert administration.declare(broker.amqp_url, "orders", "fifo", {})
            assert flight_connections(broker) == 1
        until(lambda: flight_connections(first) == 0, "the client of the first server is closed")
        administration.close()


def test_another_broker_refuses_them() -> None:
    with Peer() as peer, connect(peer.url) as connection, pytest.raises(NoPenstock, match="is a plain AMQP"):
        connection.declare("orders")


def test_the_in_process_broker_takes_them() -> None:
    with InProcessBroker() as broker, broker.connect() as connection:
        assert connection.declare("orders")
