"""Every wait for a broker ends, even if the network goes silent without an error. A working broker gives signs of life."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.actions import lease_actions
from penstock.broker_core.client import timeouts
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.flight_plane.calls import Call
from penstock.broker_core.flight_plane.connection import FlightConnection

from ..waiting import until
from .helpers import BODY, Reader, batch_of, browse, numbered, send
from .octets import Raw, action, grpc_message
from .peers import Site
from .silent_wire import SilentWire

TIMEOUT_S = 0.5
LIMIT_S = 6.0  # of a test that hangs
SAYS = "has sent nothing for 0.5 s: the network is silent"
MIB = 1 << 20


@pytest.fixture
def wire(broker: Broker) -> Iterator[SilentWire]:
    with SilentWire(broker.url) as made:
        yield made


def ends(work: Callable[[], Any]) -> None:
    """Check that a call raises our error, instead of waiting for ever."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive(), "it still waits"
    (error,) = failures
    assert isinstance(error, errors.PeerError)
    assert SAYS in str(error)


def test_a_call_ends(wire: SilentWire) -> None:
    with Client(wire.url, timeout_s=TIMEOUT_S) as client:
        client.call("hello")
        wire.cut()
        ends(lambda: client.call("hello"))


def test_a_read_ends_that_has_not_begun(wire: SilentWire, queue: str) -> None:
    with Client(wire.url, timeout_s=TIMEOUT_S) as client:
        send(client, queue, numbered(10))
        wire.cut()
        ends(lambda: browse(client, queue))


def test_a_read_ends_in_the_midst(wire: SilentWire, queue: str) -> None:
    with Client(wire.url, timeout_s=TIMEOUT_S) as client:
        for _ in range(20):
            send(client, queue, [b"." * MIB] * 4)
        stream = client.get(op="browse", queue=queue, columns=["body"])
        next(stream)
        wire.cut()
        ends(lambda: list(stream))


@pytest.mark.parametrize("size", [8, MIB])
def test_a_put_ends(wire: SilentWire, queue: str, size: int) -> None:
    """Small batches wait for their acknowledgements, large ones already for the socket."""

    def batches() -> Iterator[Any]:
        yield batch_of([b"." * size])
        wire.cut()
        while True:
            yield batch_of([b"." * size])

    with Client(wire.url, timeout_s=TIMEOUT_S) as client:
        ends(lambda: client.put({"op": "stage", "queue": queue, "stage": queue}, BODY, batches()))


def test_a_put_that_has_not_begun_ends(wire: SilentWire, queue: str) -> None:
    with Client(wire.url, timeout_s=TIMEOUT_S) as client:
        client.call("hello")
        wire.cut()
        ends(lambda: send(client, queue, numbered(10)))


def test_a_source_that_takes_its_time_is_no_silence(client: Client, broker: Broker, queue: str) -> None:
    slow = threading.Event()

    def batches() -> Iterator[Any]:
        yield batch_of([b"one"])
        slow.wait(2 * TIMEOUT_S)
        yield batch_of([b"two"])

    with Client(broker.url, timeout_s=TIMEOUT_S) as impatient:
        assert impatient.put({"op": "enqueue", "queue": queue}, BODY, batches())["next"] == 2
        stream = impatient.get(op="browse", queue=queue, columns=["body"])
        assert next(stream).num_rows
        slow.wait(2 * TIMEOUT_S)
        assert list(stream) == []


def test_no_thread_outlives_its_stream(client: Client, queue: str) -> None:
    before = threading.enumerate()
    send(client, queue, numbered(10))
    browse(client, queue)
    assert next(client.get(op="browse", queue=queue, columns=["body"])).num_rows == 10  # given up in the midst
    ended(before)


def ended(before: list[threading.Thread]) -> None:
    """Check that of the threads of calls those end that were not there before."""
    for thread in threading.enumerate():
        if thread.name == "penstock-call" and thread not in before:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


class Slow(flight.FlightServerBase):  # type: ignore[misc]
    """A server that reads puts on command, and never replies."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.may_read = threading.Event()

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        assert self.may_read.wait(LIMIT_S)
        for _ in reader:
            pass


def test_a_source_that_fails_after_a_write_that_waited_is_heard_at_once() -> None:
    """The client waits for a reply by then. The end of its own stream ends the call."""
    before = threading.enumerate()

    def batches() -> Iterator[Any]:
        for _ in range(20):
            yield batch_of([b"." * MIB])
        assert len([thread for thread in threading.enumerate() if thread.name == "penstock-call" and thread not in before]) == 2
        raise ValueError("the source's own")

    with Slow() as server, Client(f"grpc://127.0.0.1:{server.port}", timeout_s=4 * TIMEOUT_S) as client:
        threading.Timer(3 * TIMEOUT_S, server.may_read.set).start()
        with pytest.raises(ValueError, match="the source's own"):
            client.put({"op": "enqueue", "queue": "q"}, BODY, batches(), window=100)
        ended(before)


@pytest.mark.parametrize("error", [errors.Unauthenticated("elsewhere"), pa.ArrowInvalid("elsewhere"), KeyError("elsewhere")])
def test_what_a_source_raises_is_what_its_caller_gets(
    broker: Broker, client: Client, queue: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an error that looks like a refusal of the broker: it must not cause a second login and a repeated write."""

    def batches() -> Iterator[Any]:
        yield batch_of([b"one"])
        raise error

    with Client(broker.amqp_url) as discovering, pytest.raises(type(error), match="elsewhere") as raised:
        discovering.put({"op": "enqueue", "queue": queue}, BODY, batches())
    assert raised.value is error
    assert client.call("queue.stat", queue=queue)["enqueued"] <= 1


def test_no_thread_outlives_a_put_that_is_refused(client: Client, queue: str) -> None:
    before = threading.enumerate()
    with pytest.raises(errors.NotFound):
        send(client, queue + " that is not there", numbered(10))
    with Client("grpc://127.0.0.1:1") as nowhere, pytest.raises(errors.Unreachable):
        send(nowhere, queue, numbered(10))
    ended(before)


def test_a_broker_that_finds_nothing_for_long_says_that_it_is_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "ALIVE_S", 0.0)
    with Client(site.plane.url) as client:
        client.call("queue.declare", queue="q")
        for _ in range(4):
            send(client, "q", numbered(40_000))
        reader = Reader(client, "q")
        looks: list[dict[str, Any]] = [
            {"op": "browse", "queue": "q", "selector": "a = 1"},
            {"op": "browse", "queue": "q", "states": ["archived"]},
            {"op": "browse", "queue": "q", "states": ["available", "acquired"]},
            reader.ticket(reader.advance(messages=150_000)),
        ]
        for look, rows in zip(looks, (0, 0, 160_000, 150_000), strict=True):
            batches = list(client.get(**{**look, "columns": ["body"]}))
            assert sum(batch.num_rows for batch in batches) == rows
            assert sum(batch.num_rows == 0 for batch in batches) >= 2  # one a block of 65,536, but for the first
            assert {tuple(batch.schema.names) for batch in batches} == {("body",)}


def test_a_write_that_waits_for_room_is_told_that_the_broker_is_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "ALIVE_S", TIMEOUT_S / 10)
    with Client(site.plane.url, timeout_s=TIMEOUT_S) as client:
        client.call("queue.declare", queue="q", options={"maxMessages": 1})
        send(client, "q", [b"first"])
        room = threading.Timer(4 * TIMEOUT_S, lambda: site.peer().call("queue.purge", queue="q"))
        room.start()
        assert send(client, "q", [b"second"])["next"] == 2
        room.join()


def test_a_write_that_may_send_no_more_hears_that_the_broker_is_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no capacity for the sent messages, and no window for the next ones."""
    monkeypatch.setattr(timeouts, "ALIVE_S", TIMEOUT_S / 10)
    with Client(site.plane.url, timeout_s=TIMEOUT_S) as client:
        client.call("queue.declare", queue="q", options={"maxMessages": 1})
        room = threading.Timer(4 * TIMEOUT_S, lambda: site.peer().call("queue.alter", queue="q", options={"maxMessages": 100}))
        room.start()
        assert client.put({"op": "enqueue", "queue": "q"}, BODY, [batch_of([b"." * MIB])] * 20)["next"] == 20
        room.join()


@pytest.mark.parametrize("full_from", [0, 1])
def test_a_write_that_waits_for_memory_is_told_that_the_broker_is_there(
    site: Site, monkeypatch: pytest.MonkeyPatch, full_from: int
) -> None:
    """From its first batch on, and from its second."""
    monkeypatch.setattr(timeouts, "ALIVE_S", TIMEOUT_S / 10)
    budget = site.plane._listener._budget
    all_of_it = budget._total

    def fill() -> None:
        until(lambda: budget._left == all_of_it, "the calls that are answered have given their memory back")
        assert budget.take(all_of_it, lambda: None)
        threading.Timer(4 * TIMEOUT_S, lambda: budget.give(all_of_it)).start()

    def batches() -> Iterator[Any]:
        yield batch_of([b"." * MIB])
        if full_from == 1:
            peer = site.peer()
            until(lambda: peer.call("queue.stat", queue="q")["enqueued"], "the first message is in the queue")
            fill()
        yield batch_of([b"." * MIB])

    with Client(site.plane.url, timeout_s=TIMEOUT_S) as client:
        client.call("queue.declare", queue="q")
        if full_from == 0:
            fill()
        assert client.put({"op": "enqueue", "queue": "q"}, BODY, batches())["next"] == 2


def calls_of(connection: FlightConnection) -> list[Call]:
    with connection.mutex:  # calls begin and end meanwhile
        return list(connection._calls.values())


def test_a_write_that_waits_for_room_holds_up_no_other_call_of_its_connection(site: Site) -> None:
    """The waiting client may be the one that makes room."""
    with Client(site.plane.url) as client:
        client.call("queue.declare", queue="q", options={"maxMessages": 1})
        many = threading.Thread(target=lambda: client.put({"op": "enqueue", "queue": "q"}, BODY, [batch_of([b"." * MIB])] * 20))
        many.start()
        (connection,) = site.plane._listener.connected()
        until(lambda: any(len(call._raw) > 60_000 for call in calls_of(connection)), "the writer may send nothing more")
        for _ in range(20):
            until(lambda: client.call("queue.purge", queue="q", timeout_s=10)["purged"], "the next one is in the queue")
        many.join()


def test_requests_and_small_batches_are_heard_while_senders_hold_all_memory(site: Site) -> None:
    """Senders that wait for room in a full queue hold it, and the consumer of that queue must not wait for them."""
    budget = site.plane._listener._budget
    with Client(site.plane.url, timeout_s=10) as client:
        client.call("queue.declare", queue="q")
        assert budget.take(budget._total, lambda: None)
        send(client, "q", *[batch_of([b"." * 20_000])] * 30)
        reader = Reader(client, "q")
        batch = reader.advance()
        assert sum(part.num_rows for part in client.get(**reader.ticket(batch))) == 30
        assert reader.settle(batch)["settled"] == 30


def test_a_planner_that_is_gone_takes_nothing_for_its_lease(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: the one that comes after it would find its lease in use."""
    monkeypatch.setattr(lease_actions, "MAX_WAIT_MS", int(LIMIT_S * 1000))
    service, connections = site.service, site.plane._listener.connected
    service.submit(c.DeclareQueue("q"))
    waits, wait = threading.Event(), service.arrivals.wait

    def noted(*arguments: Any) -> bool:
        waits.set()
        return wait(*arguments)

    monkeypatch.setattr(service.arrivals, "wait", noted)
    fields = {"queue": "q", "lease": "etl", "run": "r", "epoch": None, "finished": 0, "fresh": True}
    asked = action("lease.advance", json.dumps({**fields, "waitMs": int(LIMIT_S * 1000)}).encode())
    with closing(Raw(("127.0.0.1", site.plane.port))) as planner:
        planner.h2.send_data(planner.begin("DoAction"), grpc_message(asked), end_stream=True)
        planner.flush()
        assert waits.wait(LIMIT_S)
        (call,) = (call for connection in connections() for call in calls_of(connection))
    until(lambda: call.gone, "the broker has noticed the planner's end")
    with Client(site.plane.url) as client:
        send(client, "q", numbered(1))
    until(lambda: call.finished, "the planner's call is over")
    assert service.state.leases == {}
