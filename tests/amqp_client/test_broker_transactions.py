"""The applications' client and the coordinator of Penstock's own broker (C11)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.client.app import AcknowledgeMode, RolledBack, connect
from penstock.broker_core.server.child import Broker

from .applications import LIMIT_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker"), fsync="never") as running:
        yield running


def test_c11_a_transaction_over_several_queues_at_the_brokers_coordinator(broker: Broker) -> None:
    for name in ("from", "to", "log"):
        broker.declare(name)
    with connect(broker.amqp_url) as connection:
        plain = connection.session()
        for number in range(4):
            plain.producer("from").send(b"%d" % number)
        session = connection.session(AcknowledgeMode.TRANSACTED)
        source, target, log = session.consumer("from"), session.producer("to"), session.producer("log")
        to, logged = plain.consumer("to", prefetch=0), plain.consumer("log", prefetch=0)

        def move() -> bytes:
            message = source.receive(LIMIT_S)
            target.send(message.message)
            log.send(b"moved")
            return message.body

        assert [move(), move()] == [b"0", b"1"]
        assert (to.receive(0), logged.receive(0)) == (None, None)  # invisible before the commit
        session.rollback()
        assert (to.receive(0), logged.receive(0)) == (None, None)
        first = source.receive(LIMIT_S)
        assert (first.body, first.delivery_count) == (b"0", 1)
        target.send(first.message)
        assert [move(), move()] == [b"1", b"2"]
        session.commit()
        assert [to.receive(0).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert [logged.receive(0).body for _ in range(2)] == [b"moved", b"moved"]
        assert move() == b"3"  # never committed: closing rolls it back
        session.close()
        last = plain.consumer("from", prefetch=0)
        assert [(message.body, message.delivery_count) for message in (last.receive(0),)] == [(b"3", 1)]
        assert (last.receive(0), to.receive(0)) == (None, None)


def test_c11_larger_than_prefetch_and_window(broker: Broker) -> None:
    broker.declare("many")
    broker.declare("more")
    with connect(broker.amqp_url) as connection:
        producer = connection.session().producer("many")
        for number in range(300):
            producer.send(b"%d" % number, synchronous=False)
        session = connection.session(AcknowledgeMode.TRANSACTED)
        source, target = session.consumer("many", prefetch=10), session.producer("more", window_octets=1000)
        for _ in range(300):
            target.send(source.receive(LIMIT_S).message)
        session.commit()
        left, more = connection.session().consumer("many", prefetch=0), connection.session().consumer("more")
        assert left.receive(0) is None
        assert [more.receive(LIMIT_S).body for _ in range(300)] == [b"%d" % number for number in range(300)]


def test_c11_c7_what_the_broker_has_taken_back_fails_the_commit(broker: Broker) -> None:
    """The results of a message are not sent while the message itself is delivered again."""
    broker.declare("locked", lockTimeout=100)
    broker.declare("made")
    with connect(broker.amqp_url) as connection:
        plain = connection.session()
        plain.producer("locked").send("one")
        session = connection.session(AcknowledgeMode.TRANSACTED)
        source, target = session.consumer("locked"), session.producer("made")
        assert source.receive(LIMIT_S).body == "one"
        target.send("made of one")
        again = source.receive(LIMIT_S)  # its lock has ended
        assert (again.body, again.delivery_count) == ("one", 1)
        with pytest.raises(RolledBack, match="taken"):
            session.commit()
        assert plain.consumer("made", prefetch=0).receive(0) is None


def test_a_broker_that_was_restarted_gives_no_id_again(tmp_path: Path) -> None:
    """A client that still names a transaction of the former process gets an error."""
    with Broker(tmp_path, fsync="never") as broker:
        broker.declare("q")
        ids = []
        for _ in range(2):
            with connect(broker.amqp_url) as connection:
                session = connection.session(AcknowledgeMode.TRANSACTED)
                session.producer("q").send("x")
                ids.append(session.transaction_id())
            broker.stop()
            broker.start()
        assert len(set(ids)) == 2
