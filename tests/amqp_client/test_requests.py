"""Request and reply on temporary queues, at a real broker: correlation, time limits, lost connections, asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import penstock
from penstock import NoReply, ReceivedMessage, connect_async
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Message, events
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.app import Connection
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .applications import LIMIT_S, connect, program_of, stat
from .peer import Peer


@contextmanager
def doubling(broker: Broker, connection: Connection, queue: str) -> Iterator[None]:
    """A worker that replies with twice the number; two at a time, so that replies overtake each other."""
    connection.declare(queue)
    stop = threading.Event()

    @penstock.worker(queue, concurrency=2)
    def handle(message: ReceivedMessage) -> None:
        message.reply(json=2 * message.json(), subject=message.subject)

    with connect(broker.amqp_url) as own:
        thread = threading.Thread(target=handle.run, args=(own, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LIMIT_S)


def test_each_of_many_threads_gets_its_own_reply(broker: Broker, connection: Connection) -> None:
    def ask(number: int) -> tuple[int, str | None]:
        reply = connection.request("doubled", json=number, timeout=timedelta(seconds=LIMIT_S), subject=str(number))
        return reply.json(), reply.subject

    with doubling(broker, connection, "doubled"), ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, range(50))) == [(2 * number, str(number)) for number in range(50)]
    with Client(broker.url) as client:
        names = [queue["queue"] for queue in client.call("queue.list")["queues"]]
    assert len([name for name in names if name.startswith("temp:")]) == 1, "all requests share one queue"


def test_a_request_without_a_reply_ends_in_time_and_expires(broker: Broker, connection: Connection) -> None:
    connection.declare("unanswered")
    with pytest.raises(NoReply, match="no reply to a request to 'unanswered' has come in time"):
        connection.request("unanswered", "x", timeout=0.05)
    until(lambda: stat(broker, "unanswered")["available"] == 0, "the request has expired")
    with pytest.raises(errors.NotFound):
        connection.request("no-such-queue", "x", timeout=LIMIT_S)
    with pytest.raises(errors.InvalidRequest, match="its own reply_to and correlation_id"):
        connection.request("unanswered", "x", timeout=1, reply_to="elsewhere")
    with pytest.raises(errors.InvalidRequest, match="did you mean 'timeout'"):
        connection.request("unanswered", "x", timeout=1, timeuot=1)  # type: ignore[call-arg]


def test_a_late_reply_is_dropped_and_the_next_request_gets_its_own(broker: Broker, connection: Connection) -> None:
    connection.declare("late")
    with pytest.raises(NoReply):
        connection.request("late", "first", timeout=1, ttl=3600)
    (request,) = connection.queue("late").receive(limit=1, timeout=LIMIT_S)
    request.reply("too late")
    with doubling(broker, connection, "punctual"):
        assert connection.request("punctual", json=4, timeout=LIMIT_S).json() == 8


def test_a_reply_goes_to_any_address_with_the_id_of_the_message(connection: Connection) -> None:
    for queue in ("asked", "answers"):
        connection.declare(queue)
    connection.send("asked", "by id", message_id="m1", reply_to="answers")
    connection.send("asked", "by correlation", message_id="m2", correlation_id="c2", reply_to="answers")
    connection.send("asked", "without an address")
    first, second, third = connection.queue("asked").receive(limit=3, timeout=LIMIT_S)
    first.reply("one")
    second.reply(Message(properties=Properties(subject="whole"), data=[b"two"]))
    with pytest.raises(errors.InvalidRequest, match="its sender expects no reply"):
        third.reply("three")
    replies = connection.peek("answers")
    assert [(reply.body, reply.correlation_id) for reply in replies] == [("one", "m1"), (b"two", "c2")]


def test_when_the_requester_is_gone_the_reply_says_so(broker: Broker, connection: Connection) -> None:
    connection.declare("orphaned")
    with connect(broker.amqp_url) as own, pytest.raises(NoReply):
        own.request("orphaned", "x", timeout=1, ttl=3600)
    (request,) = connection.queue("orphaned").receive(limit=1, timeout=LIMIT_S)
    with pytest.raises(errors.NotFound):
        request.reply("to nobody")


def test_a_lost_connection_and_a_close_end_open_requests() -> None:
    def dynamic(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and getattr(event.attach.source, "dynamic", False):
            event.link.attach(source=amqp.Source(address="temp:1", dynamic=True), target=event.attach.target)
            return True
        return False

    with Peer(hook=dynamic) as peer, connect(peer.url) as connection, ThreadPoolExecutor(1) as threads:
        for end, reason in ((peer.cut, "lost before the reply came"), (connection.close, "is closed")):
            count = len(peer.received)
            waiting = threads.submit(connection.request, "q", "x", timeout=LIMIT_S)
            until(lambda count=count: len(peer.received) > count, "the request is sent")  # type: ignore[misc]
            end()
            with pytest.raises(errors.PeerError, match=reason):
                waiting.result(LIMIT_S)


def test_a_deleted_reply_queue_is_replaced(broker: Broker, connection: Connection) -> None:
    with doubling(broker, connection, "again"), Client(broker.url) as client:
        assert connection.request("again", json=1, timeout=LIMIT_S).json() == 2
        consumer = connection._requester._consumer
        assert consumer is not None
        client.call("queue.delete", queue=consumer.links[0].address, force=True)
        until(lambda: consumer.failed, "the client has noticed")
        assert connection.request("again", json=2, timeout=LIMIT_S).json() == 4


def test_asyncio_requests_do_not_need_a_thread_each(broker: Broker, connection: Connection) -> None:
    """More open requests than threads, and a reply from an asynchronous loop."""
    connection.declare("async-asked")

    async def answer(asked: penstock.AsyncConnection) -> None:
        messages = [message async for message in asked.queue("async-asked").receive(limit=100)]
        for message in reversed(messages):
            await asked.reply(message, json=2 * message.json())

    async def go() -> list[int]:
        async with connect_async(broker.amqp_url) as asking, connect_async(broker.amqp_url) as asked:
            answering = asyncio.create_task(answer(asked))
            requests = [asking.request("async-asked", json=number, timeout=LIMIT_S) for number in range(100)]
            replies = await asyncio.gather(*requests)
            await answering
            with pytest.raises(NoReply):
                await asking.request("async-asked", "unanswered", timeout=0.05)
            return [reply.json() for reply in replies]

    assert asyncio.run(asyncio.wait_for(go(), LIMIT_S)) == [2 * number for number in range(100)]


def test_the_program_of_the_documents_works(
    repository: Path, broker: Broker, connection: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.declare("orders")
    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(lambda: [message.reply(json=14) for message in connection.queue("orders").receive(limit=1)])
        exec(program_of(repository, "connection.request(", broker.amqp_url), {})
        answering.result(LIMIT_S)
    assert capsys.readouterr().out == "14\n"
