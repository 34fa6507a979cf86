"""Many messages with few waits: `send_many` and pipelines, their window, and the error of each message."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncConnection, NotAllSent, connect_async
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Accepted, Message, Rejected, events
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.performatives import Error
from penstock.broker_core.client.app import Connection, pipeline
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .applications import LIMIT_S, body_of, connect, program_of
from .peer import Peer, accept_all


class Withheld:
    """Settles nothing until a message with the body `now` comes."""

    def __init__(self) -> None:
        self.held: list[tuple[amqp.Session, list[Delivery]]] = []

    def __call__(self, session: amqp.Session, deliveries: list[Delivery]) -> None:
        self.held.append((session, deliveries))
        if body_of(deliveries[-1].payload) == b"now":
            for own, earlier in self.held:
                accept_all(own, earlier)
            self.held.clear()


def reject_bad(session: amqp.Session, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        refusal = Rejected(error=Error(condition="amqp:resource-limit-exceeded", description="full"))
        session.dispose([delivery], refusal if body_of(delivery.payload).startswith(b"bad") else Accepted())


def detach_bad(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
    if isinstance(event, events.Delivered) and any(body_of(delivery.payload) == b"bad" for delivery in event.deliveries):
        event.link.detach(error=Error(condition="amqp:resource-deleted", description="the queue is deleted"))
        return True
    return False


def bodies_at(peer: Peer) -> list[bytes]:
    return [body_of(payload) for payload in peer.received]


def test_send_many_sends_all_in_order_with_the_same_fields_and_own_ids(broker: Broker, connection: Connection) -> None:
    broker.declare("many")
    queue = connection.queue("many")
    assert (
        queue.send_many(json=({"id": number} for number in range(150)), subject="new", properties={"size": 5}, priority=7) == 150
    )
    assert queue.send_many([b"octets", "a text", Message(data=[b"whole"], has_value=False), b"x" * 300_000]) == 4
    assert queue.send_many([]) == 0
    received = list(queue.receive(limit=154, timeout=LIMIT_S))
    assert [message.json() for message in received[:150]] == [{"id": number} for number in range(150)]
    assert {(message.subject, message.properties["size"]) for message in received[:150]} == {("new", 5)}
    first = received[0].message
    assert first.header is not None
    assert first.properties is not None
    assert (first.header.durable, first.header.priority, first.properties.content_type) == (True, 7, "application/json")
    assert [message.body for message in received[150:]] == [b"octets", "a text", b"whole", b"x" * 300_000]
    assert len({message.message_id for message in received}) == 154


def test_each_refused_message_has_its_error_and_the_others_are_sent() -> None:
    with Peer(on_deliveries=reject_bad) as peer, connect(peer.url) as connection:
        queue = connection.queue("q")
        wanted = r"8 of 10 messages to 'q' are accepted: the first error is of message 3: .*full"
        with pytest.raises(NotAllSent, match=wanted) as raised:
            queue.send_many(b"bad" if number in (3, 7) else b"good" for number in range(10))
        assert (raised.value.accepted, raised.value.refused, [*raised.value.errors]) == (8, 2, [3, 7])
        assert all(isinstance(error, errors.ResourceLimit) for error in raised.value.errors.values())
        with pytest.raises(NotAllSent), queue.pipeline() as sending:
            confirmations = [sending.send(body) for body in (b"good", b"bad", b"good")]
        assert [confirmation.error is None for confirmation in confirmations] == [True, False, True]
        assert (sending.sent, sending.accepted, sending.refused, [*sending.errors]) == (3, 2, 1, [1])


def test_the_errors_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_ERRORS", 2)
    with Peer(on_deliveries=reject_bad) as peer, connect(peer.url) as connection:
        with pytest.raises(NotAllSent) as raised:
            connection.queue("q").send_many([b"bad"] * 5)
        assert (raised.value.refused, [*raised.value.errors]) == (5, [0, 1])


def test_a_full_window_is_waited_for_and_opens_with_the_confirmations() -> None:
    withheld = Withheld()
    with Peer(on_deliveries=withheld) as peer, connect(peer.url, timeout_s=0.2) as connection:
        with connection.queue("q").pipeline(window=3) as sending:
            for _ in range(3):
                sending.send(b"x")
            with pytest.raises(NotAllSent, match="0 of 3 messages to 'q' are accepted: a message to 'q' was not sent: 3 before"):
                sending.send(b"too much")
            connection.session().producer("q").send(b"now", synchronous=False)
            sending.flush()
            sending.send(b"now")
        assert (sending.sent, sending.accepted) == (4, 4)
        with pytest.raises(errors.InvalidRequest, match="1 message or more, not 0"):
            connection.queue("q").pipeline(window=0)


def test_a_message_of_a_slow_program_does_not_wait_for_the_next_one() -> None:
    with Peer() as peer, connect(peer.url) as connection:

        def slow() -> Iterator[bytes]:
            for number in range(5):
                yield b"%d" % number
                until(lambda number=number: len(peer.received) == number + 1, "the message has come")  # type: ignore[misc]

        assert connection.queue("q").send_many(slow()) == 5


def test_after_a_lost_connection_the_unconfirmed_messages_are_sent_again_in_order() -> None:
    with Peer() as peer, connect(peer.url) as connection:

        def numbers() -> Iterator[bytes]:
            for number in range(500):
                if number == 250:
                    peer.cut()
                yield b"%d" % number

        assert connection.queue("q").send_many(numbers()) == 500
        assert list(dict.fromkeys(bodies_at(peer))) == [b"%d" % number for number in range(500)]


def test_a_link_that_the_broker_ends_is_reported_with_what_was_accepted() -> None:
    with Peer(hook=detach_bad) as peer, connect(peer.url) as connection:
        sending = connection.queue("q").pipeline()
        sending.send(b"good")
        sending.flush()
        sending.send(b"bad")
        for call in (sending.flush, lambda: sending.send(b"later"), sending.close):
            with pytest.raises(NotAllSent, match=r"1 of 2 messages .* the queue is deleted"):
                call()
        with pytest.raises(NotAllSent):
            connection.queue("q").send_many([b"good", b"bad"])


@pytest.mark.parametrize(
    ("bodies", "fields", "reason"),
    [
        (None, {}, "takes bodies, or json=… with values: exactly one"),
        ([b"x"], {"json": [1]}, "exactly one of the two"),
        ("text", {}, "an iterable of bodies or values, not one str: use send"),
        (None, {"json": {"id": 7}}, "an iterable of bodies or values, not one dict"),
        (7, {}, "not one int"),
        ([b"x"], {"message_id": "m"}, "would be the id of every message"),
        ([b"x"], {"prioriti": 5}, "a message has no argument 'prioriti': did you mean 'priority'"),
        ([b"x"], {"priority": 10}, "priority is 0 to 9"),
        ([b"first", {"a": 1}], {}, "message 1 of send_many: a body of type dict cannot be sent"),
        ([b"first", Message(data=[b"x"])], {"subject": "s"}, "message 1 of send_many: a whole Message is sent as it is"),
        (None, {"json": ["first", object()]}, "message 1 of send_many: .* cannot be written as JSON"),
    ],
)
def test_what_cannot_be_sent_is_refused_after_the_messages_before_it(bodies: Any, fields: dict[str, Any], reason: str) -> None:
    with Peer() as peer, connect(peer.url) as connection:
        with pytest.raises(errors.InvalidRequest, match=reason):
            connection.queue("q").send_many(bodies, **fields)
        assert len(peer.received) == ("message 1" in reason)


def test_an_error_of_the_program_leaves_sent_messages_sent() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        sending = connection.queue("q").pipeline()
        for number in range(10):
            sending.send(b"%d" % number)
        sending.__exit__(KeyError, KeyError(), None)
        assert len(peer.received) == 10


def test_the_program_of_the_documents_works(repository: Path, broker: Broker, connection: Connection) -> None:
    connection.declare("orders")
    exec(program_of(repository, "orders.pipeline()", broker.amqp_url), {})
    subjects = [message.subject for message in connection.peek("orders", limit=3000)]
    assert (subjects.count("new"), subjects.count("even"), subjects.count("odd")) == (1000, 500, 500)


# --- asyncio


def test_asyncio_sends_many_from_either_kind_of_iterable(broker: Broker) -> None:
    broker.declare("async-many")

    async def numbers() -> AsyncIterator[int]:
        for number in range(50):
            await asyncio.sleep(0)
            yield number

    async def go() -> list[Any]:
        async with connect_async(broker.amqp_url) as connection:
            queue = connection.queue("async-many")
            assert await queue.send_many(json=numbers(), subject="a") == 50
            assert await queue.send_many(json=range(50, 60)) == 10
            async with queue.pipeline() as sending:
                for number in range(60, 70):
                    await sending.send(json=number)
            return [message.json() async for message in queue.receive(limit=70)]

    assert asyncio.run(asyncio.wait_for(go(), LIMIT_S)) == list(range(70))


def test_asyncio_reports_each_refusal_and_a_full_window_does_not_stop_the_loop() -> None:
    withheld = Withheld()

    async def refused(connection: AsyncConnection) -> None:
        with pytest.raises(NotAllSent) as raised:
            await connection.queue("q").send_many([b"good", b"bad"])
        assert [*raised.value.errors] == [1]
        with pytest.raises(errors.InvalidRequest, match="did you mean 'subject'"):
            await connection.queue("q").send_many([b"x"], subjekt="s")  # type: ignore[call-arg]
        unopened = connection.queue("q").pipeline()
        with pytest.raises(RuntimeError, match="use `async with`"):
            await unopened.send(b"x")

    async def waits(connection: AsyncConnection) -> None:
        async with connection.queue("q").pipeline(window=2) as sending:
            for _ in range(2):
                await sending.send(b"x")
            third = asyncio.create_task(sending.send(b"x"))
            await asyncio.sleep(0)
            assert not third.done()
            threading.Thread(target=connection.connection.session().producer("q").send, args=(b"now",)).start()
            await third
            threading.Thread(target=connection.connection.session().producer("q").send, args=(b"now",)).start()
            await sending.flush()

    async def run(peer: Peer, test: Any) -> None:
        async with connect_async(peer.url) as connection:
            await asyncio.wait_for(test(connection), LIMIT_S)

    with Peer(on_deliveries=reject_bad) as peer:
        asyncio.run(run(peer, refused))
    with Peer(on_deliveries=withheld) as peer:
        asyncio.run(run(peer, waits))
