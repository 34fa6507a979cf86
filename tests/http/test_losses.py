"""Refused and dropped messages, fill levels, exchanges and users: in the API, the metrics and `queue stat`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families as of_text

import penstock
from penstock import Broker
from penstock.broker_core.actions.callers import Caller
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import QueueFull, ResourceLimit, Unroutable
from penstock.broker_core.http_plane import numbers
from penstock.broker_core.security import ANONYMOUS, Right

from ..flight.helpers import batch_of, numbered, send
from ..flight.peers import Site
from .helpers import Http, basic
from .test_metrics import values


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never", max_message_bytes=1024) as running:
        yield running


@pytest.fixture(scope="module")
def lossy(broker: Broker) -> Broker:
    """A broker that has refused and dropped messages that came over Flight."""
    with Client(broker.url) as client:
        client.call("queue.declare", queue="few", options={"maxMessages": 4, "overflow": "reject"})
        client.call("queue.declare", queue="ring", options={"maxMessages": 2, "overflow": "ring"})
        client.call("queue.declare", queue="plain", options={"deadLetterQueue": "few"})
        client.call("exchange.declare", exchange="x")
        client.call("exchange.declare", exchange="dropping", options={"unroutable": "drop"})
        send(client, "few", numbered(4))
        with pytest.raises(QueueFull):
            send(client, "few", numbered(3))
        send(client, "ring", numbered(2), numbered(2), numbered(1))
        with pytest.raises(ResourceLimit, match="at most 1024 bytes"):
            send(client, "plain", numbered(1, size=2000))
        with pytest.raises(Unroutable):
            send_to(client, "x", 2)
        send_to(client, "dropping", 3)
    return broker


def send_to(client: Client, exchange: str, count: int) -> None:
    batch = batch_of(numbered(count))
    client.put({"op": "enqueue", "exchange": exchange, "routingKey": "k"}, batch.schema, [batch])


def test_the_api_counts_them_by_reason(lossy: Broker, http: Http) -> None:
    few, ring, plain = (http.get(f"/api/v1/queue.stat?queue={name}").json for name in ("few", "ring", "plain"))
    assert (few["refusedMessages"], few["droppedMessages"], few["fill"]) == ({"full": 3}, {}, 1.0)
    assert (ring["refusedMessages"], ring["droppedMessages"], ring["fill"]) == ({}, {"ring": 3}, 0.0)
    assert (plain["refusedMessages"], plain["fill"]) == ({"other": 1}, None)
    exchanges = {row["exchange"]: row for row in http.get("/api/v1/exchange.list").json["exchanges"]}
    assert (exchanges["x"]["messages"], exchanges["x"]["refusedMessages"]) == (2, {"unroutable": 2})
    assert (exchanges["dropping"]["messages"], exchanges["dropping"]["droppedMessages"]) == (3, {"unbound": 3})


def test_the_metrics_count_them_by_reason(lossy: Broker, http: Http) -> None:
    with penstock.connect(lossy.amqp_url) as connection:
        connection.queue("plain").send(b"m")
        samples = values(list(of_text(http.get("/metrics").body.decode())))
    expected = {
        "penstock_queue_refused_total few full": 3,
        "penstock_queue_refused_total plain other": 1,
        "penstock_queue_refused_total ring full": 0,
        "penstock_queue_dropped_total ring ring": 3,
        "penstock_queue_fill_ratio few": 1,
        "penstock_queue_limit_messages few": 4,
        "penstock_queue_collects_dead_letters few": 1,
        "penstock_queue_collects_dead_letters plain": 0,
        "penstock_exchange_messages_total dropping": 3,
        "penstock_exchange_refused_total x unroutable": 2,
        "penstock_exchange_dropped_total dropping": 3,
        "penstock_exchange_bindings x": 0,
        "penstock_user_connections amqp anonymous": 1,
    }
    assert {name: samples.get(name) for name in expected} == expected
    assert not {"penstock_queue_fill_ratio plain", "penstock_queue_limit_bytes few"} & samples.keys()


def test_exchanges_beyond_the_limit_are_one_sum(tmp_path: Path) -> None:
    with Broker(tmp_path, fsync="never", http_metrics_queues=1) as broker, Client(broker.url) as client:
        for name in ("a", "b", "c"):
            client.call("exchange.declare", exchange=name, options={"unroutable": "drop"})
        send_to(client, "b", 2)
        send_to(client, "c", 1)
        samples = values(list(of_text(Http(broker.http_url).get("/metrics").body.decode())))
    messages = {name: value for name, value in samples.items() if name.startswith("penstock_exchange_messages")}
    assert messages == {"penstock_exchange_messages_total b": 2, "penstock_exchange_messages_total ": 1}


def test_users_beyond_the_limit_are_one_sum(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a users file clients choose their names, and cannot add metrics without limit."""
    monkeypatch.setattr(numbers, "MOST_USERS", 2)
    plane = Counted({"a": 1, "b": 5, "c": 2, "d": 1})
    caller = Caller(site.access, ANONYMOUS, "here", lambda: False)
    answer = numbers.BrokerNumbers(site.service, site.service.settings, {"amqp": plane}).broker(caller)
    assert answer["users"] == {"amqp": {"b": 5, "c": 2, "": 2}}


class Counted(NamedTuple):
    """A plane with these connections."""

    users: dict[str, int]

    def count_connections(self) -> int:
        return sum(self.users.values())

    def count_users(self) -> dict[str, int]:
        return self.users


def test_a_user_sees_only_permitted_exchanges_and_themselves(site: Site, guarded: Http) -> None:
    site.user("alice", Right.BROWSE, queue="mine")
    site.user("root", *Right)
    for name in ("mine", "secret"):
        site.service.submit(c.DeclareExchange(name))
    seen = guarded.get("/metrics", authorization=basic("alice")).body.decode()
    assert 'penstock_exchange_bindings{exchange="mine"}' in seen
    assert "secret" not in seen
    assert "secret" in guarded.get("/metrics", authorization=basic("root")).body.decode()
