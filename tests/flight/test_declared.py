"""E1 E4 Q21: declarations of the settings exist after each start. A first use creates only queues that a policy allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings import keys

from .helpers import Reader, batch_of, browse, send

CONFIG = """
[[queues]]
name = "orders"
options = { maxMessages = 3 }

[[exchanges]]
name = "events"
type = "topic"

[[bindings]]
exchange = "events"
queue = "orders"
key = "orders.#"
selector = "JMSType IS NULL"

[[policies]]
pattern = "jobs.*"
create = true
options = { maxBytes = 1000 }

[[policies]]
pattern = "topics.*"
create = true
type = "topic"
options = { unroutable = "drop" }
"""


def put(client: Client, **command: str) -> None:
    batch = batch_of([b"1"])
    client.put(command, batch.schema, [batch])


@pytest.mark.parametrize("use", ["enqueue", "stage", "advance", "exchange"])
def test_E4_what_a_first_use_makes_counts_among_its_users_nodes(tmp_path: Path, use: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    uses: dict[str, Callable[[Client, str], Any]] = {
        "enqueue": lambda client, name: put(client, op="enqueue", queue=f"jobs.{name}"),
        "stage": lambda client, name: put(client, op="stage", queue=f"jobs.{name}", stage="s"),
        "advance": lambda client, name: Reader(client, f"jobs.{name}").advance(messages=1),
        "exchange": lambda client, name: put(client, op="enqueue", exchange=f"topics.{name}"),
    }
    with Broker(tmp_path / "data", config=path, fsync="never", amqp_max_nodes_per_user=1) as broker, Client(broker.url) as client:
        for name in ("a", "a"):
            uses[use](client, name)
        with pytest.raises(errors.ResourceLimit, match="user 'anonymous' has made 1 queues and exchanges"):
            uses[use](client, "b")


def test_E1_E4_what_conf_says_holds_at_each_start(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    broker = Broker(tmp_path / "data", config=path, fsync="never")
    with broker, Client(broker.url) as client:
        client.put(
            {"op": "enqueue", "exchange": "events", "routingKey": "orders.new"}, batch_of([b"1"]).schema, [batch_of([b"1"])]
        )
        send(client, "jobs.a", [b"x"])
        put(client, op="stage", queue="jobs.b", stage="s")
        assert Reader(client, "jobs.c").advance(messages=1) == 0, "it is there, and empty"
        put(client, op="enqueue", exchange="topics.a")
        for name, command in (("other", {"queue": "other"}), ("others", {"exchange": "others"})):
            with pytest.raises(errors.NotFound, match=name):
                put(client, op="enqueue", **command)
        queues = {row["queue"]: row["options"] for row in client.call("queue.list")["queues"]}
        assert queues.keys() == {"orders", "jobs.a", "jobs.b", "jobs.c"}
        assert queues["jobs.a"]["maxBytes"] == 1000
        assert {row["exchange"]: row["type"] for row in client.call("exchange.list")["exchanges"]} == {
            "events": "topic",
            "topics.a": "topic",
        }
    with broker, Client(broker.url) as client:
        assert [row["body"] for row in browse(client, "orders")] == [b"1"]
        assert len(client.call("exchange.list")["exchanges"][0]["bindings"]) == 1


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('type = "topic"', 'type = "fanout"', "exchanges[0] of the settings: exchange 'events' exists with type 'topic'"),
        ("maxMessages = 3", "maxMessages = 4", "queues[0] of the settings: queue 'orders' exists"),
        ("maxBytes", "maxBites", "policies[0] of the settings: option 'maxBites'"),
        ("IS NULL", "IS THIS", "bindings[0] of the settings: the selector is wrong"),
        ('queue = "orders"', 'queue = "ordes"', "bindings[0] of the settings: there is no queue 'ordes'"),
        ('key = "orders.#"', 'kee = "orders.#"', "bindings[0]: kee is not a key"),
        ("create = true", 'create = "yes"', "policies[0].create cannot be 'yes'; it must be true or false"),
    ],
)
def test_E1_E4_a_wrong_declaration_stops_the_start_and_names_the_field(tmp_path: Path, old: str, new: str, text: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG)
    settings = keys.load(path, {"data": tmp_path / "data"})
    service = BrokerService(settings)
    try:
        service.declare(settings)
        before = service.journal.end
        path.write_text(CONFIG.replace(old, new, 1))
        with pytest.raises(errors.InvalidRequest, match=re.escape(text)):
            service.declare(keys.load(path, {"data": tmp_path / "data"}))
        assert service.journal.end == before, "nothing was changed"
    finally:
        service.close()


@pytest.mark.parametrize(("old", "new"), [("IS NULL", "IS THIS"), ('queue = "orders"', 'queue = "ordes"'), ("topic", "topics")])
def test_E1_a_wrong_declaration_keeps_the_right_ones_before_it_from_being_made(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG.replace(old, new, 1))
    settings = keys.load(path, {"data": tmp_path / "data"})
    service = BrokerService(settings)
    try:
        before = service.journal.end
        with pytest.raises(errors.InvalidRequest, match="of the settings"):
            service.declare(settings)
        assert (service.journal.end, service.state.queues) == (before, {})
    finally:
        service.close()


@pytest.mark.parametrize(
    ("selector", "lines"),
    [
        (
            "priority > 4",
            [
                "bindings[0].selector: in a selector 'priority' is an application property; for the message's priority write"
                " JMSPriority or amqp.priority"
            ],
        ),
        ("amqp.priority > 4", []),
        (" ", []),
    ],
)
def test_E1_a_declared_binding_is_looked_at_for_fields_and_a_blank_selector_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, selector: str, lines: list[str]
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(CONFIG.replace("JMSType IS NULL", selector))
    settings = keys.load(path, {"data": tmp_path / "data"})
    service = BrokerService(settings)
    try:
        service.declare(settings)
        (binding,) = service.submit(c.ListExchanges())[0]["bindings"]
        assert binding.get("selector") == (selector.strip() or None)
    finally:
        service.close()
    assert [record.getMessage() for record in caplog.records if "selector" in record.getMessage()] == lines
