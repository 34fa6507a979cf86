"""C7 C8 Q24: which deliveries count as attempts, when a real broker or a real client ends with messages under way.

Each client has received one of ten messages, and has prefetched the others. With `maxAttempts=1` a single counted attempt makes a
dead letter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.broker_core import amqp_client
from penstock.broker_core.amqp import Message
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messaging import AcknowledgeMode, Connection, Session
from penstock.broker_core.server.process import Broker

from ..flight.helpers import browse
from ..waiting import until
from .applications import LIMIT_S, connect, stat

COUNT = 10
AUTO, CLIENT, INDIVIDUAL = AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL
DUPS_OK, TRANSACTED = AcknowledgeMode.DUPS_OK, AcknowledgeMode.TRANSACTED


def counts(broker: Broker, queue: str) -> list[int]:
    """The delivery counts of what waits in a queue, in order; nothing in it is held."""
    with Client(broker.url) as client:
        rows = browse(client, queue, "deliveryCount", "state", states=["available", "acquired"])
    assert {row["state"] for row in rows} <= {"available"}
    return [row["deliveryCount"] for row in rows]


def filled(broker: Broker, *queues: str, **options: Any) -> None:
    """Ten messages in each queue, each with one attempt unless `options` say otherwise."""
    broker.declare("dead")
    with amqp_client.connect(broker.amqp_url) as connection:
        for queue in queues:
            broker.declare(queue, **{"deadLetterQueue": "dead", "maxAttempts": 1, **options})
            sender = connection.sender(queue)
            sender.send([Message(data=[b"%d" % number]).encode() for number in range(COUNT)])
            sender.flush()


def all_are_held(broker: Broker, queue: str) -> None:
    """All that the queue has left is at its consumer."""
    until(lambda: stat(broker, queue)["acquired"] and not stat(broker, queue)["available"], f"{queue} is prefetched")


# --- clients: each takes the messages of one queue


def receives_one(session: Session, queue: str) -> None:
    message = session.consumer(queue, prefetch=COUNT).receive(LIMIT_S)
    assert message is not None


def hangs_in_a_callback(session: Session, queue: str) -> None:
    begun = threading.Event()

    def handle(message: Any) -> None:
        begun.set()
        threading.Event().wait()

    session.consumer(queue, prefetch=COUNT, callback=handle)
    assert begun.wait(LIMIT_S)


def only_prefetches(session: Session, queue: str) -> None:
    session.consumer(queue, prefetch=COUNT)


# The mode of a session, what it does, how many messages are left, and how many of these the application has.
SESSIONS: dict[str, tuple[AcknowledgeMode, Callable[[Session, str], None], int, int]] = {
    "auto": (AUTO, receives_one, COUNT - 1, 0),
    "auto-callback": (AUTO, hangs_in_a_callback, COUNT, 1),
    "client": (CLIENT, receives_one, COUNT, 1),
    "individual": (INDIVIDUAL, receives_one, COUNT, 1),
    "dups-ok": (DUPS_OK, receives_one, COUNT, 1),
    "transacted": (TRANSACTED, receives_one, COUNT, 1),
    "idle": (INDIVIDUAL, only_prefetches, COUNT, 0),
}


def begin_all(connection: Connection) -> None:
    """A session of each kind, at the queue of its name."""
    for name, (mode, act, _, _) in SESSIONS.items():
        session = connection.session(mode)
        if mode is DUPS_OK:
            consumer = session.consumer(name, prefetch=COUNT, gather_s=3600.0)
            assert consumer.receive(LIMIT_S) is not None
        else:
            act(session, name)


def proton(url: str, queue: str) -> Any:
    """A consumer of python-qpid-proton, which has prefetched all and received one."""
    pytest.importorskip("proton")
    from proton.utils import BlockingConnection

    connection = BlockingConnection(url, timeout=LIMIT_S)
    receiver = connection.create_receiver(queue, credit=COUNT)
    assert receiver.receive(timeout=LIMIT_S) is not None
    return connection


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests stop and start again."""
    made = Broker(tmp_path_factory.mktemp("kept"))
    made.start()
    yield made
    if made.running:
        made.stop()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill], ids=["SIGTERM", "kill -9"])
def test_c8_the_end_of_the_broker_uses_up_no_attempt(kept: Broker, end: Callable[[Broker], None]) -> None:
    filled(kept, *SESSIONS, "proton")
    with ExitStack() as open_:
        connection = connect(kept.amqp_url, reconnect=None)
        begin_all(connection)
        theirs = proton(kept.amqp_url, "proton")
        for queue in (*SESSIONS, "proton"):
            all_are_held(kept, queue)
        end(kept)
        open_.callback(kept.start)
    for name, (*_, left, _) in SESSIONS.items():
        assert (name, counts(kept, name)) == (name, [0] * left)
    assert counts(kept, "proton") == [0] * COUNT
    assert stat(kept, "dead")["enqueued"] == 0
    theirs.container.stop()
    with Client(kept.url) as client:
        for queue in (*SESSIONS, "proton", "dead"):
            client.call("queue.delete", queue=queue)
