"""A client for applications: connections that come back, sessions, producers, consumers, acknowledge modes, transactions.

    from penstock import AcknowledgeMode, connect

    with connect("amqp://127.0.0.1:5672") as connection:
        connection.send("orders", json={"id": 7}, subject="new")     # returns when the broker has it on its disk
        for message in connection.queue("orders").receive(timeout=5):
            print(message.json())                                    # accepted when the loop goes on; or message.reject("why")

    with connect("amqp://127.0.0.1:5672") as connection, connection.session(AcknowledgeMode.CLIENT) as session:
        session.producer("orders").send("hello")
        message = session.consumer("orders").receive(timeout_s=5)
        message.acknowledge()

It works with AMQP 1.0 brokers of any make. It builds on `penstock.broker_core.client.amqp`, which moves lists of messages on one
thread and is the faster one.

opening                                           `connect`
queues, outbox, composing                         a queue for scripts: send by address, go through what waits
aio                                               the same for asyncio
workers, retries                                  functions that handle messages, several at once; waits after failures
connection, servers, backoff                      several servers, reconnect
wire                                              one connection to one server, and the thread that reads from it
session                                           one line of work
executors, callbacks                              one session's callbacks, on a bounded pool
modes, ledger                                     acknowledge modes; deliveries that are not settled
producer, sending, target_link                    sending
consumer, arrivals, received, pull, source_link   receiving
transactions                                      local transactions
"""

from .aio import AsyncConnection, AsyncQueue, connect_async
from .backoff import Backoff
from .consumer import Consumer
from .modes import AcknowledgeMode
from .opening import connect
from .producer import Producer
from .queues import Connection, Queue
from .received import ReceivedMessage
from .sending import Confirmation
from .session import Session
from .transactions import InDoubt, RolledBack
from .workers import Worker, worker

__all__ = [
    "AcknowledgeMode",
    "AsyncConnection",
    "AsyncQueue",
    "Backoff",
    "Confirmation",
    "Connection",
    "Consumer",
    "InDoubt",
    "Producer",
    "Queue",
    "ReceivedMessage",
    "RolledBack",
    "Session",
    "Worker",
    "connect",
    "connect_async",
    "worker",
]
