"""A small shop, as a user writes it."""

import asyncio
import datetime
import threading
from collections.abc import Iterable

import penstock
from penstock import AcknowledgeMode, Header, Message, Properties


def send(url: str, orders: Iterable[int]) -> None:
    with penstock.connect(url, "alice", "secret", timeout_s=10) as connection:
        queue = connection.queue("orders")
        for order in orders:
            queue.send(json={"id": order}, subject="new", properties={"size": 5}, delay=0.5, priority=7)
        connection.send("orders", b"octets", ttl=datetime.timedelta(minutes=1))
        accepted: int = queue.send_many(json=({"id": order} for order in range(10)), subject="many")
        with queue.pipeline(window=100) as pipeline:
            confirmed: penstock.Confirmation = pipeline.send("text", priority=5)
        print(accepted, confirmed.error, pipeline.errors)
        connection.send("orders", Message(header=Header(durable=True), properties=Properties(subject="old"), data=[b"x"]))


def receive(url: str) -> list[str]:
    seen: list[str] = []
    with penstock.connect([url, url], reconnect=penstock.Backoff(attempts=3)) as connection:
        for message in connection.queue("orders").receive(timeout=5, limit=10, selector="size > 3"):
            subject: str | None = message.subject
            if subject is None:
                message.reject("no subject")
            elif message.delivery_count > 3:
                message.retry(after=30)
            else:
                seen.append(subject)
        with connection.session(AcknowledgeMode.TRANSACTED) as session:
            confirmation: penstock.Confirmation = session.producer("orders").send("text")
            received: penstock.ReceivedMessage | None = session.consumer("orders", prefetch=10).receive(1)
            if received is not None and confirmation.done:
                session.commit()
    return seen


@penstock.worker("orders", concurrency=4, retries=5)
def handle(message: penstock.ReceivedMessage) -> None:
    print(message.json())


@penstock.worker("orders")
async def handle_later(message: penstock.ReceivedMessage) -> None:
    await asyncio.sleep(0)


def work(url: str, stop: threading.Event) -> bool:
    with penstock.connect(url) as connection:
        return handle.run(connection, stop)


async def both(url: str) -> int:
    seen = 0
    async with penstock.connect_async(url, client_id="shop") as connection:
        await connection.send("orders", json={"id": 7})
        async with connection.queue("orders").pipeline() as pipeline:
            await pipeline.send(json={"id": 8})
        await connection.queue("orders").send_many(["a", "b"], subject="many")
        async for message in connection.queue("orders").receive(timeout=1):
            message.accept()
            seen += 1
    return seen


def own_broker() -> str:
    with penstock.Broker("data", fsync="never") as broker:
        broker.declare("orders", maxMessages=10)
        return broker.amqp_url


def explained(error: Exception) -> str:
    return penstock.explain(error)
