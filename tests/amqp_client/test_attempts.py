"""C7 C8 Q24: which deliveries count as attempts when a real broker or a real client ends during deliveries.

Each client has received one of ten messages and prefetched the others. With `maxAttempts=1` a counted attempt makes a dead
letter.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.app import AcknowledgeMode, Connection, Session
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..flight.helpers import browse
from ..waiting import until
from .applications import LIMIT_S, connect, stat

COUNT = 10
#: Ends the callbacks that hang: at its exit, Python waits for their threads.
ENDED = threading.Event()
AUTO, CLIENT, INDIVIDUAL = AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL
DUPS_OK, TRANSACTED = AcknowledgeMode.DUPS_OK, AcknowledgeMode.TRANSACTED


def counts(broker: Broker, queue: str) -> list[int]:
    """Return the delivery counts of a queue's messages, in order. None of them is held."""
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
    """Wait until a consumer holds every remaining message of the queue."""
    until(lambda: stat(broker, queue)["acquired"] and not stat(broker, queue)["available"], f"{queue} is prefetched")


# --- clients: each takes the messages of one queue


def receives_one(session: Session, queue: str) -> None:
    message = session.consumer(queue, prefetch=COUNT).receive(LIMIT_S)
    assert message is not None


def hangs_in_a_callback(session: Session, queue: str) -> None:
    begun = threading.Event()

    def handle(message: Any) -> None:
        begun.set()
        ENDED.wait()

    session.consumer(queue, prefetch=COUNT, callback=handle)
    assert begun.wait(LIMIT_S)


def only_prefetches(session: Session, queue: str) -> None:
    session.consumer(queue, prefetch=COUNT)


# The mode of a session, its program, the number of remaining messages, and the number of these that the application has.
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
    """A consumer of python-qpid-proton that has prefetched all messages and received one."""
    pytest.importorskip("proton")
    from proton.utils import BlockingConnection

    connection = BlockingConnection(url, timeout=LIMIT_S)
    receiver = connection.create_receiver(queue, credit=COUNT)
    assert receiver.receive(timeout=LIMIT_S) is not None
    return connection


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests stop and start again."""
    made = Broker(tmp_path_factory.mktemp("restarted"))
    made.start()
    yield made
    ENDED.set()
    if made.running:
        made.stop()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill], ids=["SIGTERM", "kill -9"])
def test_c8_the_end_of_the_broker_uses_up_no_attempt(restarted: Broker, end: Callable[[Broker], None]) -> None:
    filled(restarted, *SESSIONS, "proton")
    with ExitStack() as open_:
        connection = connect(restarted.amqp_url, reconnect=None)
        begin_all(connection)
        theirs = proton(restarted.amqp_url, "proton")
        for queue in (*SESSIONS, "proton"):
            all_are_held(restarted, queue)
        end(restarted)
        open_.callback(restarted.start)
    for name, (*_, left, _) in SESSIONS.items():
        assert (name, counts(restarted, name)) == (name, [0] * left)
    assert counts(restarted, "proton") == [0] * COUNT
    assert stat(restarted, "dead")["enqueued"] == 0
    theirs.container.stop()
    with Client(restarted.url) as client:
        for queue in (*SESSIONS, "proton", "dead"):
            client.call("queue.delete", queue=queue)


def test_c8_a_connection_that_an_operator_closes_uses_up_no_attempt(restarted: Broker) -> None:
    filled(restarted, *SESSIONS)
    connection = connect(restarted.amqp_url, reconnect=None)
    begin_all(connection)
    for queue in SESSIONS:
        all_are_held(restarted, queue)
    with Client(restarted.url) as client:
        [mine] = [entry for entry in client.call("connection.list")["connections"] if entry["container"] == connection.client_id]
        client.call("connection.close", id=mine["id"])
        for name, (*_, left, _) in SESSIONS.items():
            until(lambda queue=name: not stat(restarted, queue)["acquired"], f"{name} is back")  # type: ignore[misc]
            assert (name, counts(restarted, name)) == (name, [0] * left)
        assert stat(restarted, "dead")["enqueued"] == 0
        for queue in (*SESSIONS, "dead"):
            client.call("queue.delete", queue=queue)


CRASHING = """
import sys

sys.path.append(sys.argv[2])  # for the tests: Penstock itself may be an installed wheel
from penstock.broker_core.client import amqp as amqp_client

from tests.amqp_client.test_attempts import begin_all, COUNT
from tests.amqp_client.applications import connect
from tests.waiting import until

begin_all(connect(sys.argv[1], reconnect=None))

small = amqp_client.connect(sys.argv[1]).receiver("small", COUNT)
until(lambda: small.link.link_credit == 0 or small.connection.step(0.1), "all have come")

assert len(small.receive(2)) == 2
print("ready", flush=True)
sys.stdin.read()
"""


def test_c7_of_a_client_that_crashes_only_what_the_application_has_counts(restarted: Broker, repository: Path) -> None:
    """kill -9: the client sends nothing more."""
    filled(restarted, *SESSIONS, "small", maxAttempts=0)
    command = [sys.executable, "-c", CRASHING, restarted.amqp_url, str(repository)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for queue in (*SESSIONS, "small"):
                all_are_held(restarted, queue)
        finally:
            process.kill()
    for name, (*_, left, had) in {**SESSIONS, "small": (COUNT, 2)}.items():
        until(lambda queue=name: not stat(restarted, queue)["acquired"], f"{name} is back")  # type: ignore[misc]
        assert (name, counts(restarted, name)) == (name, [1] * had + [0] * (left - had))
    with Client(restarted.url) as client:
        for queue in (*SESSIONS, "small", "dead"):
            client.call("queue.delete", queue=queue)


@pytest.mark.parametrize("client", ["small", "application", "block"])
def test_c7_a_busy_application_leaves_the_next_message_to_others(restarted: Broker, client: str) -> None:
    """A report of the application's messages carries no credit. A receiver of blocks sends no report, and counts as others do."""
    filled(restarted, "busy", maxAttempts=0)
    with ExitStack() as open_:
        if client == "small":
            receiver = open_.enter_context(amqp_client.connect(restarted.amqp_url)).receiver("busy", credit=1)
            assert len(receiver.receive(1, LIMIT_S)) == 1
        elif client == "application":
            session = open_.enter_context(connect(restarted.amqp_url)).session(CLIENT)
            assert session.consumer("busy", prefetch=1).receive(LIMIT_S) is not None
        else:
            blocks = open_.enter_context(amqp_client.connect(restarted.amqp_url)).block_receiver("busy", 1)
            assert len(blocks.receive_blocks(LIMIT_S)) == 1
        idle = open_.enter_context(amqp_client.connect(restarted.amqp_url)).receiver("busy", credit=COUNT)
        assert decode_message(idle.receive(1, LIMIT_S)[0].payload).data == [b"1"]
    until(lambda: not stat(restarted, "busy")["acquired"], "all are back")
    assert counts(restarted, "busy") == [1, 1] + [0] * (COUNT - 2)
    with Client(restarted.url) as flight:
        for queue in ("busy", "dead"):
            flight.call("queue.delete", queue=queue)


def test_c7_what_expires_or_waits_in_the_prefetch_has_no_attempt(restarted: Broker) -> None:
    """A consumer, its session and its connection are closed in turn. The client's clock is ahead of the broker's."""
    filled(restarted, "closing", maxAttempts=1)
    late = [0.0]
    with connect(restarted.amqp_url, wall=lambda: late[0]) as connection:
        connection.session().producer("closing").send("stale", ttl=3600)
        session = connection.session(INDIVIDUAL)
        consumer = session.consumer("closing", prefetch=COUNT + 1)
        assert consumer.receive(LIMIT_S) is not None
        consumer.close()
        until(lambda: stat(restarted, "closing")["available"] == COUNT, "the prefetched messages are back")
        session.close()  # the application's message has had its attempt
        assert stat(restarted, "dead")["available"] == 1
        auto = connection.session()
        consumer = auto.consumer("closing", prefetch=COUNT)
        until(lambda: len(consumer.arrivals) == COUNT, "all are prefetched")
        late[0] = 4_000.0  # the broker's hour is not over
        for _ in range(COUNT - 1):
            assert consumer.receive(LIMIT_S) is not None
        assert consumer.receive(0.05) is None
        assert consumer.expired == 1
    assert counts(restarted, "closing") == [0]
    assert stat(restarted, "dead")["available"] == 1
