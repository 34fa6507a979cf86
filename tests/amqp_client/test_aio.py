"""The client for asyncio (U8), at a real broker: order, acceptance, ends of loops, errors, many calls together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from penstock import connect_async
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import events
from penstock.broker_core.client.app import AsyncConnection
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .applications import LIMIT_S, connect, stat
from .peer import Peer

_T = TypeVar("_T")


def run(awaitable: Awaitable[_T]) -> _T:
    async def bounded() -> _T:
        return await asyncio.wait_for(awaitable, LIMIT_S)

    return asyncio.run(bounded())


def test_what_is_sent_is_gone_through_in_order_and_accepted(broker: Broker) -> None:
    broker.declare("in-order")

    async def go() -> list[Any]:
        async with connect_async(broker.amqp_url) as connection:
            queue = connection.queue("in-order")
            for number in range(20):
                await queue.send(json=number, subject="count")
            return [(message.json(), message.subject) async for message in queue.receive(limit=20)]

    assert run(go()) == [(number, "count") for number in range(20)]
    counts = stat(broker, "in-order")
    assert (counts["available"], counts["acquired"], counts["archived"]) == (0, 0, 20)


def test_outcomes_and_an_early_end(broker: Broker) -> None:
    broker.declare("early")

    async def go() -> list[tuple[Any, int]]:
        async with connect_async(broker.amqp_url) as connection:
            queue = connection.queue("early")
            for number in range(4):
                await queue.send(json=number)
            async with contextlib.aclosing(queue.receive()) as messages:
                async for message in messages:
                    if message.json() == 0:
                        message.reject("not this one")
                    if message.json() == 2:
                        break
            return [(message.json(), message.delivery_count) async for message in queue.receive(timeout=0.5)]

    assert run(go()) == [(2, 1), (3, 0)]


def test_the_loop_runs_on_while_messages_and_confirmations_are_waited_for(broker: Broker) -> None:
    """Other tasks continue: many senders together, a receiver that waits, a ticker."""
    broker.declare("busy")

    async def go() -> tuple[int, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        async with connect_async(broker.amqp_url) as connection:
            queue = connection.queue("busy")
            ticker = asyncio.create_task(tick())
            receiving = asyncio.create_task(_collect(queue.receive(limit=200)))
            await asyncio.gather(*(queue.send(json=number) for number in range(200)))
            received = await receiving
            ticker.cancel()
        return len(set(received)), ticks

    received, ticks = run(go())
    assert received == 200
    assert ticks > 0


async def _collect(messages: Any) -> list[Any]:
    return [message.json() async for message in messages]


def test_errors_arrive_where_they_are_awaited(broker: Broker) -> None:
    """No such queue, a queue that is deleted under a loop, a server that does not answer."""
    broker.declare("deleted")

    async def go() -> None:
        async with connect_async(broker.amqp_url) as connection:
            with pytest.raises(errors.NotFound):
                await connection.send("no-such-queue", "lost")
            with pytest.raises(errors.NotFound):
                await _collect(connection.queue("no-such-queue").receive())
            receiving = asyncio.create_task(_collect(connection.queue("deleted").receive()))
            await asyncio.to_thread(until, lambda: stat(broker, "deleted")["consumers"], "somebody receives")
            with Client(broker.url) as client:
                client.call("queue.delete", queue="deleted", force=True)
            with pytest.raises(errors.PenstockError, match="deleted"):
                await receiving
        with pytest.raises(errors.PeerError):
            await connect_async("amqp://127.0.0.1:1").open()

    run(go())


def test_closing_the_connection_ends_a_loop_that_waits(broker: Broker) -> None:
    broker.declare("waited-for")

    async def go() -> None:
        connection = await connect_async(broker.amqp_url).open()
        receiving = asyncio.create_task(_collect(connection.queue("waited-for").receive()))
        await asyncio.to_thread(until, lambda: stat(broker, "waited-for")["consumers"], "the loop has its consumer")
        await connection.close()
        with pytest.raises(errors.PenstockError, match="is closed"):
            await receiving

    run(go())


def test_a_loop_that_goes_on_after_the_connection_is_closed_says_so(broker: Broker) -> None:
    broker.declare("half-way")

    async def go() -> None:
        connection = await connect_async(broker.amqp_url).open()
        await connection.send("half-way", "x")
        messages = connection.queue("half-way").receive()
        await anext(messages)
        await connection.close()
        with pytest.raises(errors.PenstockError, match="is closed"):
            await anext(messages)

    run(go())


def test_a_connection_that_nobody_waits_for_any_more_is_closed() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hold(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Opened):
            asked.set()
            assert go_on.wait(LIMIT_S)
        return False

    async def go() -> None:
        opening = asyncio.create_task(connect_async(peer.url).open())
        await asyncio.to_thread(asked.wait, LIMIT_S)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()

    with Peer(hook=hold) as peer:
        run(go())
        until(lambda: any(isinstance(event, events.Closed) for event in peer.seen), "the client closes the connection")


def test_a_session_that_nobody_waits_for_any_more_is_closed() -> None:
    """A loop is cancelled while its session waits for a server. Later there is one again."""
    lost, returned = threading.Event(), threading.Event()

    def pause(seconds: float, closing: threading.Event) -> None:
        lost.set()
        assert returned.wait(LIMIT_S)

    async def go() -> None:
        async with AsyncConnection(lambda: connect(peer.url, pause=pause)) as connection:
            peer.cut()
            await asyncio.to_thread(lost.wait, LIMIT_S)
            receiving = asyncio.create_task(_collect(connection.queue("q").receive()))
            waiters = connection.connection.changed._waiters  # type: ignore[attr-defined]  # of threading.Condition
            await asyncio.to_thread(until, lambda: waiters, "it waits for a server")
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            returned.set()
            await asyncio.to_thread(until, lambda: count(events.Begun), "the session is opened")
            await asyncio.to_thread(until, lambda: count(events.Ended) == count(events.Begun), "and closed")

    def count(kind: type) -> int:
        return len([event for event in peer.seen if isinstance(event, kind)])

    with Peer() as peer:
        run(go())


def test_a_connection_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        run(connect_async("amqp://127.0.0.1:1").send("orders", "x"))


def test_a_loop_waits_over_a_restart_of_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Broker(tmp_path_factory.mktemp("restarted"), fsync="never") as broker:
        broker.declare("orders")

        async def go() -> list[Any]:
            async with connect_async(broker.amqp_url) as connection:
                queue = connection.queue("orders")
                receiving = asyncio.create_task(_collect(queue.receive(limit=2)))
                await queue.send(json="before")
                await asyncio.to_thread(until, lambda: stat(broker, "orders")["archived"], "the message is accepted")
                restart = threading.Thread(target=lambda: (broker.stop(), broker.start()))
                restart.start()
                await asyncio.get_running_loop().run_in_executor(None, restart.join)
                await queue.send(json="after")
                return await receiving

        assert run(go()) == ["before", "after"]
