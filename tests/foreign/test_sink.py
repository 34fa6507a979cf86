"""Rows to foreign brokers: arrivals, repetitions, and the text of each refusal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, BooleanType, MapType, ShortType, StringType, StructField, StructType

from penstock import Broker
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Message, Modified, Rejected, Released, decode_message
from penstock.broker_core.amqp.performatives import Error
from penstock.broker_core.client.amqp import claims, connect
from penstock.broker_core.client.amqp.address import parse
from penstock.broker_core.client.flight import Client
from penstock.broker_core.client.shared_access import SharedAccess
from penstock.broker_core.messages.columns import STRING_MAP
from penstock.connector.foreign.sink import ForeignBatchWriter
from penstock.connector.source import AmqpSource

from ..amqp_client.claims_peer import ClaimsPeer
from ..amqp_client.peer import Peer
from ..brokers import RealBroker
from ..waiting import until
from .hidden import Hidden

TYPES = {
    "body": BinaryType(),
    "messageId": StringType(),
    "subject": StringType(),
    "queue": StringType(),
    "message": BinaryType(),
    "priority": ShortType(),
    "durable": BooleanType(),
    "properties": MapType(StringType(), StringType()),
}


def writer(columns: list[str], **options: str) -> ForeignBatchWriter:
    schema = StructType([StructField(name, TYPES[name]) for name in columns])
    made = AmqpSource(options).writer(schema, False)
    assert isinstance(made, ForeignBatchWriter)
    return made


def rows(**columns: list[Any]) -> pa.RecordBatch:
    of = {"properties": STRING_MAP, "body": pa.binary(), "message": pa.binary(), "priority": pa.int16(), "durable": pa.bool_()}
    return pa.record_batch({name: pa.array(values, of.get(name, pa.string())) for name, values in columns.items()})


def written(*batches: pa.RecordBatch, **options: str) -> int:
    made = writer(batches[0].schema.names, **options)
    report = made.write(iter(batches))
    made.commit([report])
    messages = getattr(report, "messages", None)
    assert isinstance(messages, int)
    return messages


def numbers(first: int, last: int) -> pa.RecordBatch:
    return rows(body=[b"%d" % number for number in range(first, last)])


def received(broker: RealBroker, queue: str, count: int) -> list[Message]:
    """Accept all waiting messages of the queue: `count` of them, and later ones."""
    arrived: list[Message] = []
    with broker.connect() as connection:
        receiver = connection.receiver(queue)
        while deliveries := receiver.receive(timeout_s=0.5 if len(arrived) >= count else 20):
            receiver.accept(deliveries)
            arrived += [decode_message(delivery.payload) for delivery in deliveries]
    return arrived


def bodies(messages: list[Message]) -> list[int]:
    return [int(b"".join(message.data)) for message in messages]


# --- arrivals


@pytest.mark.parametrize("fixture", ["artemis_broker", "rabbitmq", "qpid_broker_j"])
def test_rows_arrive_in_order_durable_and_with_ids(fixture: str, request: pytest.FixtureRequest) -> None:
    broker: RealBroker = request.getfixturevalue(fixture)
    queue = broker.queue()
    columns = {
        "body": [b"%d" % number for number in range(2000)],
        "subject": [f"s{number}" for number in range(2000)],
        "priority": [4] * 2000,
        "properties": [[("n", str(number))] for number in range(2000)],
        "messageId": [None if number % 2 else f"mine-{number}" for number in range(2000)],
    }
    assert written(rows(**columns), queue=queue, txnAppId="load", txnVersion="7", **broker.options) == 2000
    messages = received(broker, queue, 2000)
    assert bodies(messages) == list(range(2000))
    for number, message in ((0, messages[0]), (1, messages[1]), (1999, messages[1999])):
        assert message.header is not None
        assert message.header.durable
        assert message.properties is not None
        assert message.properties.message_id == (f"load/7/0/{number}" if number % 2 else f"mine-{number}")
        assert message.properties.subject == f"s{number}"
        assert (message.application_properties or {})["n"] == str(number)


def test_proton_reads_what_was_written(artemis_broker: RealBroker) -> None:
    utils = pytest.importorskip("proton.utils")
    queue = artemis_broker.queue()
    written(rows(body=[b"hello"], subject=["greeting"]), queue=queue, txnAppId="a", txnVersion="1", **artemis_broker.options)
    login = {"user": artemis_broker.user, "password": artemis_broker.password, "allowed_mechs": "PLAIN"}
    connection = utils.BlockingConnection(artemis_broker.url, timeout=30, allow_insecure_mechs=True, **login)
    receiver = connection.create_receiver(queue)
    message = receiver.receive(timeout=30)
    receiver.accept()
    assert (bytes(message.body), message.subject, message.id, message.durable) == (b"hello", "greeting", "a/1/0/0", True)
    connection.close()


def test_each_row_names_its_queue(artemis_broker: RealBroker) -> None:
    first, second = artemis_broker.queue(), artemis_broker.queue()
    batch = rows(body=[b"%d" % number for number in range(10)], queue=[first if number % 3 else second for number in range(10)])
    assert written(batch, **artemis_broker.options) == 10
    assert bodies(received(artemis_broker, first, 6)) == [1, 2, 4, 5, 7, 8]
    assert bodies(received(artemis_broker, second, 4)) == [0, 3, 6, 9]


def test_encoded_messages_are_sent_as_they_are() -> None:
    with Peer() as peer:
        bare = Message(properties=amqp.performatives.Properties(message_id=amqp.types.ULong(7)), value="x", has_value=True)
        assert written(rows(message=[bare.encode()]), url=peer.url, queue="q") == 1
        (message,) = map(decode_message, peer.received)
        assert (message.properties, message.value) == (bare.properties, "x")
        assert message.header is not None
        assert message.header.durable


def test_a_row_that_is_not_durable_stays_so() -> None:
    with Peer() as peer:
        written(rows(body=[b"0", b"1", b"2"], durable=[False, None, True]), url=peer.url, queue="q")
        headers = [decode_message(payload).header for payload in peer.received]
        assert [header is not None and header.durable for header in headers] == [False, True, True]


def test_a_task_without_rows_asks_the_broker_for_nothing() -> None:
    with Peer() as peer:
        made = writer(["body"], url=peer.url, queue="q")
        made.write(iter([numbers(0, 0)]))
        assert sum(isinstance(event, amqp.events.Opened) for event in peer.seen) == 1  # the planner's, to detect the product


# --- repetitions


def test_a_repeated_task_has_the_ids_of_the_first_and_another_write_has_not() -> None:
    with Peer() as peer:
        options = {"url": peer.url, "queue": "q"}
        made = writer(["body"], **options)
        made.write(iter([numbers(0, 3), numbers(3, 5)]))
        made.write(iter([numbers(0, 5)]))
        written(numbers(0, 5), **options)
        ids = [decode_message(payload).properties.message_id for payload in peer.received]  # type: ignore[union-attr]
        assert ids[:5] == ids[5:10]
        assert len(set(ids)) == 10


def test_artemis_drops_what_a_repetition_sends_again(artemis_broker: RealBroker) -> None:
    queue, plain = artemis_broker.queue(), artemis_broker.queue()
    again = {"txnAppId": "load", "txnVersion": "1", **artemis_broker.options}
    for _ in range(2):
        written(numbers(0, 500), queue=queue, duplicateIdProperty="_AMQ_DUPL_ID", **again)
        written(numbers(0, 5), queue=plain, **again)
    assert bodies(received(artemis_broker, queue, 500)) == list(range(500))
    assert len(received(artemis_broker, plain, 10)) == 10


def test_artemis_killed_in_the_midst_of_a_task_and_the_task_again(artemis_broker: RealBroker) -> None:
    """Nothing is lost, and with duplicate detection nothing comes twice."""
    queue = artemis_broker.queue()
    made = writer(["body"], queue=queue, duplicateIdProperty="_AMQ_DUPL_ID", **artemis_broker.options)

    def large(first: int) -> pa.RecordBatch:  # 9 MB, which leave before the next are asked for
        return rows(body=[b"%9000d" % number for number in range(first, first + 1000)])

    def dying() -> Iterator[pa.RecordBatch]:
        yield large(0)
        yield large(1000)
        artemis_broker.kill()
        yield large(2000)

    with pytest.raises(errors.PeerError, match=r"broke|closed the connection"):
        made.write(dying())
    artemis_broker.start()
    made.write(map(large, (0, 1000, 2000)))
    assert sorted(bodies(received(artemis_broker, queue, 3000))) == list(range(3000))


# --- rows that come slowly


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[tuple[Broker, Hidden]]:
    """A broker that drops a client after one second of silence."""
    with Broker(tmp_path / "impatient", fsync="never", amqp_idle_timeout_s=1) as broker:
        relay = Hidden(parse(broker.amqp_url).port)
        yield broker, relay
        relay.close()


@pytest.mark.parametrize("routed", [False, True])
def test_a_broker_is_not_left_in_silence_while_rows_are_awaited(impatient: tuple[Broker, Hidden], routed: bool) -> None:
    broker, relay = impatient
    with Client(broker.url) as client:
        client.call("queue.declare", queue="q")

    def slow() -> Iterator[pa.RecordBatch]:
        for first in (0, 1000, 2000):
            body = [b"%9000d" % number for number in range(first, first + 1000)]  # 9 MB
            yield rows(body=body, queue=["q"] * 1000) if routed else rows(body=body)
            time.sleep(1.5)  # the broker's limit is one second

    made = writer(["body", "queue"], url=relay.url) if routed else writer(["body"], url=relay.url, queue="q")
    assert getattr(made.write(slow()), "messages", None) == 3000
    assert relay.accepted == 2  # the planner, to detect the product, and the task
    with connect(broker.amqp_url) as connection:
        receiver = connection.receiver("q")
        numbers: list[int] = []
        while len(numbers) < 3000 and (deliveries := receiver.receive(timeout_s=10)):
            numbers += [int(decode_message(delivery.payload).data[0]) for delivery in deliveries]
            receiver.accept(deliveries)
        assert numbers == list(range(3000))


def test_rows_do_not_wait_for_later_ones() -> None:
    with Peer() as peer:

        def watching() -> Iterator[pa.RecordBatch]:
            yield numbers(0, 3)
            yield numbers(3, 4)
            until(lambda: len(peer.received) == 4, "the rows come", limit_s=10)

        assert getattr(writer(["body"], url=peer.url, queue="q").write(watching()), "messages", None) == 4


def test_tokens_are_renewed_while_rows_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEW_AFTER", 0.3)
    monkeypatch.setattr(SharedAccess.__init__, "__defaults__", (3,))  # seconds that a token is good for
    with ClaimsPeer() as peer:

        def slow() -> Iterator[pa.RecordBatch]:
            yield numbers(0, 3)
            until(lambda: len(peer.tokens["orders"]) > 1, "a second token comes", limit_s=10)
            yield numbers(3, 5)

        made = writer(["body"], connectionString=f"{peer.connection_string};EntityPath=orders")
        assert getattr(made.write(slow()), "messages", None) == 5
        assert peer.ended == []


def test_an_error_of_the_rows_ends_the_task_and_its_thread_and_connection() -> None:
    class Lost(Exception):
        pass

    def breaking() -> Iterator[pa.RecordBatch]:
        yield numbers(0, 3)
        assert [thread for thread in threading.enumerate() if thread.name == "penstock-attendant"]
        raise Lost

    with Peer() as peer:
        with pytest.raises(Lost):
            writer(["body"], url=peer.url, queue="q").write(breaking())
        assert not [thread for thread in threading.enumerate() if thread.name == "penstock-attendant"]
        until(lambda: sum(isinstance(event, amqp.events.Closed) for event in peer.seen) == 2, "the connections are closed")


def test_a_connection_that_breaks_while_rows_are_awaited_fails_the_task_with_the_next() -> None:
    with Peer() as peer:

        def breaking() -> Iterator[pa.RecordBatch]:
            yield numbers(0, 3)
            peer.cut()
            until(lambda: "penstock-attendant" not in {thread.name for thread in threading.enumerate()}, "the attendant ends")
            yield numbers(3, 5)
            raise AssertionError("the task asks for more")

        with pytest.raises(errors.PeerError, match="broke"):
            writer(["body"], url=peer.url, queue="q").write(breaking())


# --- refusals


OUTCOMES = {
    "rejected": (Rejected(error=Error(condition="amqp:not-allowed", description="no such colour")), errors.InvalidRequest),
    "released": (Released(), errors.NotDelivered),
    "returned": (Modified(delivery_failed=True, undeliverable_here=True), errors.NotDelivered),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_the_broker_does_not_accept_fails_the_task(outcome: str) -> None:
    state, kind = OUTCOMES[outcome]

    def settle(session: amqp.Session, deliveries: list[Any]) -> None:
        session.dispose(deliveries, state)

    words = "no such colour" if outcome == "rejected" else outcome
    with Peer(on_deliveries=settle) as peer, pytest.raises(kind, match=rf"\[PENSTOCK\..*3 of 3 messages to 'q' were.*{words}"):
        written(numbers(0, 3), url=peer.url, queue="q")


def test_credit_that_never_comes_is_told() -> None:
    with Peer(credit=0) as peer, pytest.raises(errors.PeerError, match="within 1 s: it gives no credit for 'q'"):
        written(numbers(0, 3), url=peer.url, queue="q", sendTimeout="1s")


def test_a_wait_for_credit_is_logged_after_two_seconds_with_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    with Peer(credit=0) as peer, pytest.raises(errors.PeerError, match="within 3 s: it gives no credit"):
        written(numbers(0, 3), url=peer.url, queue="q", sendTimeout="3s")
    assert f"a write waits for {peer.url}, and fails if nothing changes within 3 s: it gives no credit for 'q'" in caplog.text


def test_a_confirmation_that_never_comes_is_told() -> None:
    silent = Peer(on_deliveries=lambda session, deliveries: None)
    with silent as peer, pytest.raises(errors.PeerError, match="within 1 s: 3 messages to 'q' are not confirmed"):
        written(numbers(0, 3), url=peer.url, queue="q", sendTimeout="1s")


def test_a_queue_that_is_not_there_is_told_with_the_brokers_words() -> None:
    def refuse(_: Peer, machine: amqp.Connection, event: amqp.events.Event) -> bool:
        if isinstance(event, amqp.events.Attached):
            event.link.refuse(amqp.Condition.NOT_FOUND, "no queue of that name")
            return True
        return False

    with Peer(hook=refuse) as peer, pytest.raises(errors.NotFound, match="no queue of that name"):
        written(numbers(0, 3), url=peer.url, queue="nowhere")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"exchange": "e"}, "option exchange is for a Penstock"),
        ({"queue": "q", "duplicateIdProperty": ""}, "option duplicateIdProperty"),
        ({"queue": "q", "sendTimeout": "0"}, "option sendTimeout"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, str], says: str) -> None:
    with Peer() as peer, pytest.raises(errors.InvalidOption, match=says):
        writer(["body"], url=peer.url, **options)


def test_a_text_that_is_not_utf8_is_named_and_nothing_of_its_batch_is_sent() -> None:
    for column in ("subject", "queue"):
        wrong = rows(body=[b"1", b"2"]).append_column(column, pa.array([b"x", b"A\xff"], pa.binary()).view(pa.string()))
        options = {"queue": "q"} if column == "subject" else {}
        with Peer() as peer:
            with pytest.raises(errors.InvalidColumn, match=rf"column '{column}' is not UTF-8 in row 1 \(b'A.xff'\)"):
                written(wrong, url=peer.url, **options)
            assert not peer.received


def test_a_bare_message_takes_no_property() -> None:
    with Peer() as peer, pytest.raises(errors.InvalidColumn, match="duplicateIdProperty"):
        written(rows(message=[Message(data=[b"x"]).encode()]), url=peer.url, queue="q", duplicateIdProperty="id")


# --- a connection string


def test_a_connection_string_says_where_as_whom_and_to_what() -> None:
    with ClaimsPeer() as peer:
        text = f"{peer.connection_string};EntityPath=orders"
        assert written(numbers(0, 3), connectionString=text) == 3
        assert list(peer.tokens) == ["orders"]
        options = AmqpSource({"connectionString": text})._options
        shown = f"{options.access!r} {dict(options)!r} {options.description}"
        assert peer.connection_string.rpartition("=")[2] not in shown
        with pytest.raises(errors.InvalidOption, match="connectionString and url") as refusal:
            AmqpSource({"connectionString": text, "url": peer.url})
        assert "SharedAccessKey=" not in str(refusal.value)
