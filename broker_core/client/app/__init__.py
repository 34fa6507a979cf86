"""The client for applications: connections that reconnect, sessions, producers, consumers, acknowledge modes, transactions.

    from penstock import connect

    with connect("amqp://127.0.0.1:5672") as connection:
        connection.send("orders", json={"id": 7}, subject="new")     # returns when the broker has it on its disk

        for message in connection.queue("orders").receive(timeout=5):
            print(message.json())                                    # accepted when the loop continues

It works with any AMQP 1.0 broker. `client.amqp` is faster: it moves lists of messages on one thread.

opening, program                                  from urls and credentials; the default client id
connection, servers, backoff                      several servers, reconnect
server                                            one connection to one server, and its thread
queues, producer_pool, composing, aio             send by address, iterate over a queue, also for asyncio
workers, retries                                  functions that handle messages
requests                                          request and reply
administration                                    declare, delete, redrive
session, executors, callbacks                     one session, its callbacks on a bounded pool
modes, ledger                                     acknowledge modes; unsettled deliveries
producer, target_link                             sending
pipeline, aio_pipeline                            sending many messages, with a window
consumer, arrivals, received, pull, source_link   receiving
transactions                                      local transactions
"""

from .administration import RedriveResult
from .aio import AsyncConnection, AsyncQueue, connect_async
from .aio_pipeline import AsyncPipeline
from .backoff import Backoff
from .connection import Connection
from .consumer import Consumer
from .modes import AcknowledgeMode
from .opening import connect
from .pipeline import NotAllSent, Pipeline
from .producer import Confirmation, Producer
from .queues import Queue
from .received import ReceivedMessage
from .requests import NoReply
from .session import Session
from .transactions import InDoubt, RolledBack
from .workers import Worker, worker

__all__ = [
    "AcknowledgeMode",
    "AsyncConnection",
    "AsyncPipeline",
    "AsyncQueue",
    "Backoff",
    "Confirmation",
    "Connection",
    "Consumer",
    "InDoubt",
    "NoReply",
    "NotAllSent",
    "Pipeline",
    "Producer",
    "Queue",
    "ReceivedMessage",
    "RedriveResult",
    "RolledBack",
    "Session",
    "Worker",
    "connect",
    "connect_async",
    "worker",
]
