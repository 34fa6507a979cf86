"""U12: `penstock explain queue` states why consumers receive nothing, and `connection list --consumers` describes them."""

from __future__ import annotations

import json

from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .conftest import Run, enqueue


def test_each_consumer_has_its_reason(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"x", b"y")
    client.call("lease.advance", queue="orders", lease="etl", run="r", epoch=None, finished=0, fresh=True, messages=1)
    assert client.call("queue.explain", queue="orders")["consumers"][0]["held"] == 1
    with connect(broker.amqp_url) as connection:
        connection.receiver("orders", credit=0)
        connection.receiver("orders", credit=5, selector="region = 'eu'")
        shown = penstock("explain", "queue", "orders", url=broker.url)
        assert shown.returncode == 0, shown.stderr
        summary, *blocks = shown.stdout.split("\n\n")
        assert summary == "orders: 1 waiting, 1 held, 0 delayed; 3 consumers"
        texts = ["no credit: its client asks for no more messages", "its selector matches none of 1 message", "holds a batch"]
        for block, text in zip(blocks, texts, strict=True):
            assert f"  does not receive: {text}" in block or text in block
        assert "selector: region = 'eu'" in blocks[1]
        answer = json.loads(penstock("explain", "queue", "orders", "--json", url=broker.url).stdout)
        assert [consumer["reasons"][0]["reason"] for consumer in answer["consumers"]] == ["credit", "selector", "batch"]
        consumers = json.loads(penstock("connection", "list", "--consumers", "--json", url=broker.url).stdout)
        assert [(link["selector"], link["credit"]) for link in consumers] == [(None, 0), ("region = 'eu'", 5)]
        table = penstock("connection", "list", "--consumers", url=broker.url).stdout
        assert "last settled" in table
        assert "region = 'eu'" in table


def test_a_queue_without_consumers_and_no_queue(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"x")
    assert penstock("explain", "queue", "orders", url=broker.url).stdout == "orders: 1 waiting, 0 held, 0 delayed; no consumer\n"
    missing = penstock("explain", "queue", "ordres", url=broker.url)
    assert missing.returncode == 1
    assert "there is no queue 'ordres'" in missing.stderr
