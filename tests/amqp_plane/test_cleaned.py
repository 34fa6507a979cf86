"""D2: AMQP clients do not notice that the journal is cleaned while they consume, hold deliveries, or are in a transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.broker_core.client.app import AcknowledgeMode
from penstock.broker_core.engine import BrokerState
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.states import ARCHIVED

from ..amqp_client.applications import LIMIT_S, connect
from ..journal.lying_disk import LyingDisk
from ..service.helpers import MIB
from ..service.test_cleaning import in_vain, pass_through
from .harness import Stage, stage

pytest.importorskip("proton")

from proton import Message
from proton.utils import BlockingConnection

OPTIONS = {"segment_bytes": MIB, "retention_bytes": MIB, "clean_bandwidth": 1 << 40}


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk(), **OPTIONS) as broker:
        broker.service.state.records = True  # so that no message of the traffic waits for its recording
        broker.declare("mine", archive=False)
        broker.declare("q", archive=False)
        yield broker


def url(made: Stage) -> str:
    return "amqp://{}:{}".format(*made.address)


def clean(made: Stage) -> None:
    """Send and settle many messages, so that the cleaner copies the waiting ones and drops their segments."""
    service, end = made.service, made.service.journal.end
    assert service.cleaner.usage().total
    pass_through(service, count=6)
    in_vain(service)
    with service.turn() as turn:
        needed = [block.positions(np.flatnonzero(block.state[: block.filled] != ARCHIVED)) for block in blocks(turn.state)]
        needed += [np.array([part.position for part in stage.parts]) for stage in turn.state.stages.values()]
        dropped = turn.state.dropped
    assert np.concatenate(needed).min() >= end
    assert dropped.covers(end - 1, end - 1)


def blocks(state: BrokerState) -> list[Block]:
    return [block for queue in state.queues.values() for block in queue.blocks.values()]


def test_deliveries_that_are_unsettled_while_it_cleans_are_settled_or_come_again(made: Stage) -> None:
    """D2 C6: with python-qpid-proton."""
    connection = BlockingConnection(url(made), timeout=LIMIT_S)
    sender = connection.create_sender("mine")
    for number in range(20):
        sender.send(Message(body=f"{number}" * 50))
    receiver = connection.create_receiver("mine", credit=8)
    held = [receiver.receive(LIMIT_S).body for _ in range(8)]
    clean(made)
    for _ in range(4):
        receiver.accept()
    for _ in range(2):
        receiver.release(delivered=True)
    receiver.flow(8)
    assert receiver.receive(LIMIT_S).body in (held[4], "8" * 50)
    clean(made)
    connection.close()
    reopened = BlockingConnection(url(made), timeout=LIMIT_S)
    again = reopened.create_receiver("mine", credit=16)
    assert sorted(again.receive(LIMIT_S).body for _ in range(16)) == sorted(f"{number}" * 50 for number in range(4, 20))
    clean(made)
    for _ in range(16):
        again.accept()
    reopened.close()
    made.until(lambda: made.service.submit(c.Stat("mine"))[0]["archived"] == 20, "all are settled")


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_is_open_while_it_cleans_ends_as_it_says(made: Stage, commits: bool) -> None:
    """D2 C11: its sent messages wait in the journal, and its acquired messages are held."""
    made.declare("out", archive=False)
    with connect(url(made)) as connection:
        plain = connection.session()
        for number in range(10):
            plain.producer("mine").send(b"%d" % number * 50)
        session = connection.session(AcknowledgeMode.TRANSACTED)
        consumer, producer = session.consumer("mine"), session.producer("out")
        taken = [consumer.receive(LIMIT_S).body for _ in range(4)]
        for body in taken:
            producer.send(body)
        producer.flush()
        clean(made)
        (session.commit if commits else session.rollback)()
        clean(made)
        session.close()
        left = [b"%d" % number * 50 for number in range(10)]
        for queue, expected in (("out", taken if commits else []), ("mine", left[4:] if commits else left)):
            reader = connection.session().consumer(queue, prefetch=0)
            assert [reader.receive(LIMIT_S).body for _ in expected] == expected
            assert reader.receive(0) is None


def test_who_consumes_while_it_cleans_gets_every_message_in_order(made: Stage) -> None:
    """D2 C1: the cleaner copies a backlog repeatedly while a client consumes it."""
    bodies = [b"%06d" % number * 100 for number in range(3000)]
    done, failed = threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            while not done.is_set():
                pass_through(made.service, messages=150)
                made.service.cleaner.clean()
        except BaseException as error:
            failed.append(error)

    with connect(url(made)) as connection:
        producer = connection.session().producer("mine")
        for body in bodies:
            producer.send(body, synchronous=False)
        producer.flush()
        worker = threading.Thread(target=work)
        worker.start()
        try:
            consumer = connection.session().consumer("mine", prefetch=50)
            for body in bodies:
                message = consumer.receive(LIMIT_S)
                assert message is not None
                assert message.body == body
        finally:
            done.set()
            worker.join()
    assert not failed
    assert made.service.state.dropped
