"""Connections that tasks leave to later tasks: to which, for how long, and the end of the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import flight
from pyspark import cloudpickle

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.discovery import Endpoint
from penstock.broker_core.client.flight import Client
from penstock.connector.access import BrokerAccess
from penstock.connector.task.connections import AGE_S, IDLE_S, MOST_IDLE, ConnectionPool


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def used(connections: ConnectionPool, access: BrokerAccess) -> Client:
    with connections.lent(access) as client:
        assert client.call("hello")["version"] == 1
    return client


def is_closed(client: Client) -> bool:
    try:
        client.call("hello")
    except (errors.PenstockError, flight.FlightError, ValueError):
        return True
    return False


def test_the_next_task_gets_what_the_last_one_has_left(broker: Broker) -> None:
    connections, access = ConnectionPool(), BrokerAccess(broker.url)
    first = used(connections, access)
    assert used(connections, BrokerAccess(broker.url)) is first
    assert len(connections) == 1


def test_two_tasks_at_once_have_one_each(broker: Broker) -> None:
    connections, access = ConnectionPool(), BrokerAccess(broker.url)
    with connections.lent(access) as left, connections.lent(access) as right:
        assert left is not right
    assert len(connections) == 2
    taken, lock = [], threading.Lock()

    def task() -> None:
        for _ in range(20):
            with connections.lent(access) as client:
                with lock:
                    assert client not in taken
                    taken.append(client)
                client.call("hello")
                with lock:
                    taken.remove(client)

    threads = [threading.Thread(target=task) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not taken
    assert len(connections) <= MOST_IDLE


LOGIN = Credentials("ann", "secret", b"a CA", b"a certificate", b"a key")


@pytest.mark.parametrize(
    "stranger",
    [
        BrokerAccess("grpc+tls://localhost:2", LOGIN, Endpoint("grpc+tls://localhost:1", "t")),
        *[
            BrokerAccess("grpc+tls://localhost:1", replace(LOGIN, **{name: change}), Endpoint("grpc+tls://localhost:1", "t"))
            for name, change in {"user": "bob", "password": "another", "ca": b"-", "cert": b"-", "key": b"-"}.items()
        ],
        BrokerAccess("grpc+tls://localhost:1", LOGIN, Endpoint("grpc+tls://localhost:1", "another")),
        BrokerAccess("grpc+tls://localhost:1", LOGIN, Endpoint("grpc+tls://localhost:2", "t")),
        BrokerAccess("grpc+tls://localhost:1", LOGIN),
    ],
)
def test_nobody_gets_the_connection_of_another_url_or_login(stranger: BrokerAccess) -> None:
    """None of them is reached: to be lent one is enough."""
    mine = BrokerAccess("grpc+tls://localhost:1", LOGIN, Endpoint("grpc+tls://localhost:1", "t"))
    connections = ConnectionPool()

    def lent(access: BrokerAccess) -> Client:
        with connections.lent(access) as client:
            return client

    first = lent(mine)
    assert lent(stranger) is not first
    assert lent(mine) is first


def test_a_connection_that_is_long_unused_is_closed(broker: Broker) -> None:
    time = Time()
    connections, access = ConnectionPool(clock=time), BrokerAccess(broker.url)
    first = used(connections, access)
    time.now += IDLE_S
    assert used(connections, access) is first
    time.now += IDLE_S + 0.1
    assert used(connections, BrokerAccess(broker.url, known=Endpoint("another"))) is not first
    assert is_closed(first)
    assert len(connections) == 1


def test_an_old_connection_is_closed_however_often_it_is_used(broker: Broker) -> None:
    time = Time()
    connections, access = ConnectionPool(clock=time), BrokerAccess(broker.url)
    first = used(connections, access)
    for _ in range(int(AGE_S / IDLE_S)):
        time.now += IDLE_S
        assert used(connections, access) is first
    time.now += 0.1
    assert used(connections, access) is not first
    assert is_closed(first)


def test_a_task_that_fails_or_is_given_up_leaves_nothing(broker: Broker) -> None:
    connections, access = ConnectionPool(), BrokerAccess(broker.url)
    with pytest.raises(errors.NotFound), connections.lent(access) as failed:
        failed.call("queue.stat", queue="not there")

    def task() -> Iterator[Client]:
        with connections.lent(access) as client:
            yield client

    running = task()
    given_up = next(running)
    del running
    assert is_closed(failed)
    assert is_closed(given_up)
    assert len(connections) == 0


def test_no_more_are_kept_than_a_process_needs(tmp_path: Path, broker: Broker) -> None:
    connections = ConnectionPool()
    made = [used(connections, BrokerAccess(broker.url, known=Endpoint("", str(number)))) for number in range(MOST_IDLE + 2)]
    assert len(connections) == MOST_IDLE
    assert [is_closed(client) for client in made] == [True] * 2 + [False] * MOST_IDLE


def test_where_the_code_travels_by_value_nothing_is_kept(broker: Broker) -> None:
    connections, access = ConnectionPool(), BrokerAccess(broker.url)
    used(connections, access)
    travelled = cloudpickle.loads(cloudpickle.dumps(connections))  # type: ignore[no-untyped-call]
    assert is_closed(used(travelled, access))
    assert (len(connections), len(travelled)) == (1, 0)
