"""E1 E3: exchanges over Flight: declared, bound, sent through directly and by stages, with columnar and encoded messages."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import STRING_MAP
from penstock.broker_core.messages.encoding.bare_encoder import bare_messages

from .helpers import browse

_numbers = itertools.count()
MESSAGES = [
    ("eu.orders.new", {"size": "3", "urgent": "true"}),
    ("eu.orders.old", {"size": "12"}),
    (None, {"urgent": "false"}),
    ("us.orders.new", None),
]


def columnar() -> pa.RecordBatch:
    subjects, properties = zip(*MESSAGES, strict=True)
    columns = {
        "body": pa.array([b"0", b"1", b"2", b"3"], pa.binary()),
        "subject": pa.array(subjects, pa.string()),
        "properties": pa.array([None if pairs is None else list(pairs.items()) for pairs in properties], STRING_MAP),
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def encoded() -> pa.RecordBatch:
    return pa.record_batch([bare_messages(columnar())], names=["message"])


@pytest.fixture
def places(client: Client) -> dict[str, str]:
    """Three queues and an exchange's name, all new."""
    number = next(_numbers)
    names = {name: f"{name}-{number}" for name in ("a", "b", "rest", "x")}
    for name in ("a", "b", "rest"):
        client.call("queue.declare", queue=names[name])
    return names


def put(client: Client, exchange: str, batch: pa.RecordBatch, **command: Any) -> dict[str, Any]:
    return client.put({"op": "enqueue", "exchange": exchange, **command}, batch.schema, [batch])


def bodies(client: Client, queue: str) -> list[str]:
    return [row["body"].decode() for row in browse(client, queue)]


@pytest.mark.parametrize("batch", [columnar(), encoded()], ids=["columnar", "encoded"])
def test_E1_a_topic_exchange_routes_by_subject(client: Client, places: dict[str, str], batch: pa.RecordBatch) -> None:
    x = places["x"]
    client.call("exchange.declare", exchange=x, type="topic", options={"alternate": places["rest"]})
    client.call("exchange.bind", exchange=x, queue=places["a"], key="eu.#")
    client.call("exchange.bind", exchange=x, queue=places["b"], key="*.*.new")
    client.call("exchange.bind", exchange=x, queue=places["a"], key="#.new")
    assert put(client, x, batch) == {"batches": 1, "messages": 4}
    assert {name: bodies(client, places[name]) for name in ("a", "b", "rest")} == {
        "a": ["0", "1", "3"],
        "b": ["0", "3"],
        "rest": ["2"],
    }
    put(client, x, batch, routingKey="us.orders.new")
    assert bodies(client, places["b"]) == ["0", "3", "0", "1", "2", "3"]


@pytest.mark.parametrize("batch", [columnar(), encoded()], ids=["columnar", "encoded"])
def test_E1_headers_and_selectors_look_at_columns(client: Client, places: dict[str, str], batch: pa.RecordBatch) -> None:
    x = places["x"]
    client.call("exchange.declare", exchange=x, type="headers", options={"unroutable": "drop"})
    client.call("exchange.bind", exchange=x, queue=places["a"], arguments={"size": "3", "urgent": "false", "x-match": "any"})
    client.call("exchange.bind", exchange=x, queue=places["b"], arguments={"urgent": None})
    client.call("exchange.bind", exchange=x, queue=places["rest"], selector="JMSType LIKE '%.new' OR size = '12'")
    put(client, x, batch)
    assert {name: bodies(client, places[name]) for name in ("a", "b", "rest")} == {
        "a": ["0", "2"],
        "b": ["0", "2"],
        "rest": ["0", "1", "3"],
    }


@pytest.mark.parametrize("stage", [None, "stage"])
def test_E3_what_goes_nowhere_refuses_its_batch_and_names_it(client: Client, places: dict[str, str], stage: str | None) -> None:
    x = places["x"]
    client.call("exchange.declare", exchange=x, type="topic")
    client.call("exchange.bind", exchange=x, queue=places["a"], key="eu.#")
    command = {"op": "enqueue"} if stage is None else {"op": "stage", "stage": f"{stage} {x}"}
    with pytest.raises(errors.NotFound, match=r"routing key '' to no queue \(2 of 4, the first in row 2\)"):
        put(client, x, columnar(), **command)
    assert client.call("queue.stat", queue=places["a"])["enqueued"] == 0


def test_E1_a_stage_that_went_through_an_exchange_is_published_as_one(client: Client, places: dict[str, str]) -> None:
    x, stage = places["x"], f"stage of {places['x']}"
    client.call("exchange.declare", exchange=x, type="fanout")
    for name in ("a", "b"):
        client.call("exchange.bind", exchange=x, queue=places[name])
    put(client, x, columnar(), op="stage", stage=stage)
    assert (bodies(client, places["a"]), bodies(client, places["b"])) == ([], [])
    client.call("stage.publish", stages=[stage])
    assert bodies(client, places["a"]) == bodies(client, places["b"]) == ["0", "1", "2", "3"]


def test_E1_what_is_declared_is_listed(client: Client, places: dict[str, str]) -> None:
    x = places["x"]
    assert client.call("exchange.declare", exchange=x, type="topic") == {"exchange": x, "created": True}
    assert client.call("exchange.declare", exchange=x, type="topic") == {"exchange": x, "created": False}
    bind = {"exchange": x, "queue": places["a"], "key": "a.*", "selector": "b  =  1", "noLocal": "me"}
    assert client.call("exchange.bind", **bind) == {"created": True}
    assert client.call("exchange.bind", **bind) == {"created": False}
    (listed,) = [row for row in client.call("exchange.list")["exchanges"] if row["exchange"] == x]
    assert listed == {
        "exchange": x,
        "type": "topic",
        "options": {},
        "bindings": [{"queue": places["a"], "key": "a.*", "selector": "b = 1", "noLocal": "me"}],
        "messages": 0,
        "refusedMessages": {},
        "droppedMessages": {},
    }
    assert client.call("exchange.unbind", exchange=x, queue=places["a"]) == {"unbound": 1}
    assert client.call("exchange.delete", exchange=x) == {"exchange": x}
