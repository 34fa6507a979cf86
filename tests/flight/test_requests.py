"""Every request field by field: what is wrong is refused by name, with one of Penstock's own errors, and changes nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.fields import MAX_REQUEST_BYTES, specs_of
from penstock.broker_core.actions.requests import PUTS, TICKETS
from penstock.broker_core.client.flight import Client

from .helpers import BODY, batch_of, browse, numbered, raw, send
from .valid_requests import OPTIONAL, RUN_IS_OPTIONAL, SIGNS, TEXTS, VALID, VALID_PUTS, VALID_TICKETS, WITHOUT_REQUIRED, of_queue

ONCE = ("lease.release", "lease.settleRow", "lease.delete", "exchange.delete", "exchange.unbind", "message.replace")
SAMPLES: list[Any] = ["text", 7, 1.5, True, None, [1], {"a": 1}]


def _is_optional(action: str, name: str) -> bool:
    return name in OPTIONAL or action in WITHOUT_REQUIRED or (name == "run" and action in RUN_IS_OPTIONAL)


EPOCHS: dict[str, int] = {}  # by queue: the one with which its leases began


def named(request: dict[str, Any], queue: str) -> dict[str, Any]:
    return of_queue(request, queue, EPOCHS[queue])


@pytest.fixture
def prepared(client: Client, queue: str) -> str:
    """A queue with ten messages, a lease that holds three of them, and one that holds nothing; an exchange bound to it."""
    client.call("queue.declare", queue=f"other {queue}")
    client.call("exchange.declare", exchange=f"bound {queue}")
    client.call("exchange.bind", exchange=f"bound {queue}", queue=queue, key="k")
    send(client, queue, numbered(10))
    lease = {"queue": queue, "run": "r", "epoch": None, "finished": 0, "fresh": True}
    held = client.call("lease.advance", lease=f"held {queue}", messages=3, **lease)
    assert held["batch"] == 1
    EPOCHS[queue] = held["epoch"]
    assert client.call("lease.advance", lease=f"idle {queue}", messages=1, **lease)["batch"] == 1
    assert client.call("lease.release", lease=f"idle {queue}", how="return") == {"messages": 1}
    return queue


def ask(client: Client, request: dict[str, Any]) -> None:
    """Send a ticket or the command of a put with any content."""
    if request.get("op") == "settle":
        client.put(request, batch_of(numbered(1)).schema, [batch_of(numbered(1))])
    elif request.get("op") in PUTS:
        send(client, request.pop("queue", "Q"), numbered(1), **request)
    else:
        list(client.get(**request))


def documented(repository: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Return, for each action, its fields in docs/protocols/flight.md and the fields of its reply."""
    text = (repository / "docs" / "protocols" / "flight.md").read_text().partition("\n## Actions\n")[2].partition("\n## ")[0]
    actions = {}
    pattern = re.compile(r"^#### `([\w.]+)`\n- Fields: (.*?)\n- Answer: (.*?)\n\n", re.MULTILINE | re.DOTALL)
    for name, fields, answer in pattern.findall(text + "\n\n"):
        actions[name] = (re.findall(r"(?:^|,\s+)`(\w+)`", fields), re.findall(r"`(\w+)`", answer))
    return actions


def test_the_tables_here_and_the_protocol_name_the_same_requests(repository: Path) -> None:
    actions = documented(repository)
    assert actions.keys() == ACTIONS.keys() == VALID.keys()
    for name, (fields, _) in actions.items():
        assert set(fields) == specs_of(ACTIONS[name].operation.request).keys() == set(VALID[name]), name
    assert VALID_TICKETS.keys() == TICKETS.keys()
    for name, fields in VALID_TICKETS.items():
        assert set(fields) == specs_of(TICKETS[name].request).keys(), name
    assert VALID_PUTS.keys() == PUTS.keys()
    for name, fields in VALID_PUTS.items():
        assert set(fields) == specs_of(PUTS[name].request).keys(), name


def test_the_protocol_names_what_a_stat_and_a_lease_say(repository: Path, client: Client, prepared: str) -> None:
    stat = client.call("queue.stat", queue=prepared)
    assert documented(repository)["queue.stat"][1] == list(stat)
    text = (repository / "docs" / "protocols" / "flight.md").read_text()
    leases = text.partition("\n#### `lease.list`\n")[2].partition("\n#### ")[0]
    for name in client.call("lease.list")["leases"][0]:
        assert f"`{name}`" in leases


@pytest.mark.parametrize("action", VALID)
def test_a_complete_request_is_answered_and_one_without_what_is_optional_too(client: Client, prepared: str, action: str) -> None:
    request = named(VALID[action], prepared)
    required = {name: value for name, value in request.items() if not _is_optional(action, name)}
    if action == "lease.advance":
        required["lease"] = f"idle {prepared}"
    if action == "lease.setAside":
        ask(client, named(VALID_TICKETS["batch"], prepared))
    if action.startswith("user.") and action != "user.list":
        with pytest.raises(errors.NotFound, match="this broker has no users: add the first one on its machine"):
            client.call(action, **required)
        return
    if action == "queue.delete":
        with pytest.raises(errors.InUse):
            client.call(action, **required)
    elif action not in ONCE and action not in ("message.trace", "message.send"):  # need one of their optional fields
        client.call(action, **required)
    assert isinstance(client.call(action, **request), dict)


@pytest.mark.parametrize("action", VALID)
def test_every_wrong_field_of_an_action_is_refused_by_name(client: Client, prepared: str, action: str) -> None:
    before = client.call("queue.stat", queue=prepared)
    request = named(VALID[action], prepared)
    with pytest.raises(errors.InvalidRequest, match="unknown field 'surprise'"):
        client.call(action, **request, surprise=1)
    for name, good in request.items():
        rest = {field: value for field, value in request.items() if field != name}
        if not _is_optional(action, name):
            with pytest.raises(errors.InvalidRequest, match=f"field '{name}' is missing"):
                client.call(action, **rest)
        for sample in SAMPLES:
            if type(sample) is type(good) or (name in OPTIONAL and sample == OPTIONAL[name]):
                continue
            if sample is None and (name in ("key", "epoch", "error") or (name == "run" and action in RUN_IS_OPTIONAL)):
                continue
            if name in (*SIGNS, *TEXTS) and isinstance(sample, str):
                continue
            if name == "head" and isinstance(sample, dict):
                continue
            if type(sample) in WITHOUT_REQUIRED.get(action, {}).get(name, ()):
                continue
            if (name == "epoch" and type(sample) is int) or (name == "leaseTimeout" and type(sample) in (int, float)):
                continue
            with pytest.raises(errors.InvalidRequest, match=f"field '{name}' must be"):
                client.call(action, **rest, **{name: sample})
    assert client.call("queue.stat", queue=prepared) == before


def test_a_field_that_stands_twice_is_refused(client: Client, prepared: str) -> None:
    """A proxy or a log that takes the first, and a broker that takes the last, would not mean the same request."""
    twice = b'{"queue": "%s", "queue": "other"}' % prepared.encode()
    with pytest.raises(flight.FlightServerError, match="an object has a duplicate name") as refused:
        list(raw(client).do_action(("queue.stat", twice)))
    assert isinstance(errors.from_json(refused.value.extra_info), errors.InvalidRequest)


@pytest.mark.parametrize("op", [*VALID_TICKETS, *VALID_PUTS])
def test_every_wrong_field_of_a_ticket_or_a_put_is_refused_by_name(client: Client, prepared: str, op: str) -> None:
    before = client.call("queue.stat", queue=prepared)
    request = named({**VALID_TICKETS, **VALID_PUTS}[op], prepared)
    with pytest.raises(errors.InvalidRequest, match="unknown field 'surprise'"):
        ask(client, {**request, "surprise": 1})
    for name, good in request.items():
        if name == "op":
            continue
        rest = {field: value for field, value in request.items() if field != name}
        if name not in OPTIONAL and op not in PUTS:
            with pytest.raises(errors.InvalidRequest, match=f"field '{name}' is missing"):
                ask(client, dict(rest))
        for sample in SAMPLES:
            if type(sample) is type(good) or (name in OPTIONAL and sample == OPTIONAL[name]):
                continue
            if name in ("since", "until", "last") and sample is None:
                continue
            if (name in TEXTS and isinstance(sample, str)) or (name == "attempt" and type(sample) is int):
                continue
            with pytest.raises(errors.InvalidRequest, match=f"field '{name}' must be"):
                ask(client, {**rest, name: sample})
    for wrong in ({}, {"op": "steal"}, {"op": 7}, {"op": None}):
        with pytest.raises(errors.InvalidRequest, match="field 'op' must be one of"):
            list(client.get(**wrong))
    assert client.call("queue.stat", queue=prepared) == before


LONG = "x" * 20_000
#: Correct type and invalid value: request, fields, error, and a part of its text.
VALUES: list[tuple[str, dict[str, Any], type[errors.PenstockError], str]] = [
    ("queue.declare", {"queue": ""}, errors.InvalidRequest, "1 to 255"),
    ("queue.declare", {"queue": "a/b"}, errors.InvalidRequest, "'/'"),
    ("queue.declare", {"queue": "a\nb"}, errors.InvalidRequest, "printable"),
    ("queue.declare", {"queue": "a\x7fb"}, errors.InvalidRequest, "printable"),
    ("queue.declare", {"queue": "sredro\u202e"}, errors.InvalidRequest, "printable"),
    ("queue.declare", {"queue": "a\u2067b"}, errors.InvalidRequest, "printable"),
    ("queue.declare", {"queue": "a\u200bb"}, errors.InvalidRequest, "printable"),
    ("exchange.declare", {"exchange": "a\u2028b"}, errors.InvalidRequest, "printable"),
    ("lease.advance", {"lease": "a\u202eb"}, errors.InvalidRequest, "printable"),
    ("queue.declare", {"queue": "\ud800"}, errors.InvalidRequest, "surrogate"),
    ("queue.declare", {"queue": LONG}, errors.InvalidRequest, "1 to 255"),
    ("queue.declare", {"queue": "new", "type": "heap"}, errors.InvalidRequest, "heap"),
    ("queue.declare", {"queue": "new", "options": {"colour": "red"}}, errors.InvalidRequest, "colour"),
    ("queue.declare", {"queue": "new", "options": {LONG: 1}}, errors.InvalidRequest, "option"),
    ("queue.stat", {"queue": LONG}, errors.QueueNotFound, "no queue"),
    ("queue.stat", {"queue": "𓅃" * 5000}, errors.QueueNotFound, "no queue"),
    ("queue.stat", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("queue.purge", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("queue.delete", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("exchange.declare", {"type": "fan"}, errors.InvalidRequest, "direct, fanout, topic, headers"),
    ("exchange.declare", {"options": {"colour": 1}}, errors.InvalidRequest, "colour"),
    ("exchange.declare", {"exchange": "Q"}, errors.AlreadyExists, "is a queue"),
    ("exchange.declare", {"exchange": "bound Q", "type": "topic"}, errors.AlreadyExists, "type 'direct'"),
    ("exchange.delete", {"exchange": "not there"}, errors.ExchangeNotFound, "exchange declare"),
    ("exchange.bind", {"exchange": "not there"}, errors.ExchangeNotFound, "exchange declare"),
    ("exchange.bind", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("exchange.bind", {"selector": "a ="}, errors.InvalidSelector, "at character 4"),
    ("exchange.bind", {"arguments": {"a": 1}}, errors.InvalidRequest, "arguments"),
    ("exchange.unbind", {"key": "other"}, errors.NotFound, "no binding"),
    ("stage.publish", {"stages": [1]}, errors.InvalidRequest, "list of strings"),
    ("stage.publish", {"stages": ["not there"], "key": None}, errors.StageNotFound, "not there"),
    ("stage.publish", {"stages": [], "key": {"kind": "other", "id": "a", "number": 1}}, errors.InvalidRequest, "kind"),
    ("stage.publish", {"stages": [], "key": {"kind": "txn", "id": LONG, "number": 1}}, errors.InvalidRequest, "publish key"),
    ("stage.publish", {"stages": [], "key": {"kind": "txn", "id": "a"}}, errors.InvalidRequest, "'number' is missing"),
    ("stage.publish", {"stages": [], "key": {"kind": "txn", "id": "a", "number": True}}, errors.InvalidRequest, "'number' must"),
    ("stage.discard", {"stages": [None]}, errors.InvalidRequest, "list of strings"),
    ("lease.plan", {"batchSign": "of another batch"}, errors.WrongOffset, "copied or restored"),
    ("lease.settle", {"sign": "of another batch"}, errors.WrongOffset, "copied or restored"),
    ("lease.plan", {"head": {"lease": "not there", "epoch": 1}}, errors.Fenced, "took up first"),
    ("lease.plan", {"head": {"lease": "not there"}}, errors.InvalidRequest, "'epoch' is missing"),
    ("lease.advance", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("lease.advance", {"lease": LONG}, errors.InvalidRequest, "1 to 255"),
    ("lease.advance", {"run": LONG}, errors.InvalidRequest, "1 to 255"),
    ("lease.advance", {"messages": 0}, errors.InvalidRequest, "at least 1"),
    ("lease.advance", {"messages": -5}, errors.InvalidRequest, "at least 1"),
    ("lease.advance", {"bytes": 0}, errors.InvalidRequest, "at least 1"),
    ("lease.advance", {"waitMs": -1}, errors.InvalidRequest, "at least 0"),
    ("lease.advance", {"finished": -1}, errors.InvalidRequest, "at least 0"),
    ("lease.advance", {"messages": 2**63}, errors.InvalidRequest, "must be int"),
    ("lease.advance", {"leaseTimeout": float("nan")}, errors.InvalidRequest, "leaseTimeout"),
    ("lease.advance", {"leaseTimeout": float("inf")}, errors.InvalidRequest, "leaseTimeout"),
    ("lease.advance", {"leaseTimeout": -1}, errors.InvalidRequest, "leaseTimeout"),
    ("lease.advance", {"lease": "idle Q", "epoch": 2, "finished": 9}, errors.WrongOffset, "last batch is 1"),
    ("lease.advance", {"fresh": False}, errors.WrongOffset, "no lease"),
    ("lease.plan", {"after": -(2**62), "failOnDataLoss": False}, errors.InvalidRequest, "at least 0"),
    ("lease.plan", {"batch": 2}, errors.WrongOffset, "last batch is 1"),
    ("lease.plan", {"minPartitions": 0}, errors.InvalidRequest, "at least 1"),
    ("lease.plan", {"maxMessages": 0}, errors.InvalidRequest, "at least 1"),
    ("queue.move", {"first": -1}, errors.InvalidRequest, "queue.move: field 'first' must be at least 0, not -1"),
    ("queue.copy", {"last": -1}, errors.InvalidRequest, "queue.copy: field 'last' must be at least 0, not -1"),
    ("lease.plan", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("lease.plan", {"run": "older"}, errors.WrongOffset, "earlier run"),
    ("lease.settle", {"finished": 7}, errors.WrongOffset, "last batch is 1"),
    ("lease.settle", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("lease.renew", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("lease.renew", {"lease": "not there"}, errors.LeaseNotFound, "lease list"),
    ("lease.release", {"how": "somehow"}, errors.InvalidRequest, "settle"),
    ("lease.release", {"lease": "idle Q"}, errors.InvalidRequest, "holds nothing"),
    ("lease.settleRow", {"outcome": "lost"}, errors.InvalidRequest, "accepted"),
    ("lease.settleRow", {"sequence": 8}, errors.MessageNotFound, "not in batch 1"),
    ("lease.settleRow", {"sequence": -1}, errors.MessageNotFound, "not in batch 1"),
    ("lease.setAside", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("lease.setAside", {}, errors.DataLoss, "not held any longer"),
    ("queue.discard", {"sequence": -1}, errors.MessageNotFound, "messages 0 to 9, not -1 to"),
    ("queue.discard", {"sequence": 3, "last": 2}, errors.MessageNotFound, "not 3 to 2"),
    ("lease.delete", {"lease": "held Q"}, errors.LeaseInUse, "holds batch 1"),
    ("batch", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("batch", {"run": "older"}, errors.Fenced, "begun again"),
    ("batch", {"batch": 2}, errors.DataLoss, "not remembered"),
    ("batch", {"batch": -1, "failOnDataLoss": False}, errors.InvalidRequest, "field 'batch' must be at least 0, not -1"),
    ("batch", {"lease": "not there"}, errors.LeaseNotFound, "lease list"),
    ("batch", {"columns": ["colour"]}, errors.InvalidRequest, "colour"),
    ("batch", {"columns": ["body", "body"]}, errors.InvalidRequest, "twice"),
    ("batch", {"columns": [1]}, errors.InvalidRequest, "list of strings"),
    ("batch", {"columns": [LONG]}, errors.InvalidRequest, "no column"),
    ("map", {"epoch": 9}, errors.Fenced, "(epoch "),
    ("browse", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("browse", {"states": ["lost"]}, errors.InvalidRequest, "lost"),
    ("browse", {"states": [LONG]}, errors.InvalidRequest, "state"),
    ("browse", {"states": [[]]}, errors.InvalidRequest, "list of strings"),
    ("browse", {"outcome": "eaten"}, errors.InvalidRequest, "eaten"),
    ("enqueue", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
    ("enqueue", {"queue": None, "exchange": "not there"}, errors.ExchangeNotFound, "exchange declare"),
    ("enqueue", {"exchange": "bound Q"}, errors.InvalidRequest, "'exchange' must be left out"),
    ("enqueue", {"routingKey": "k"}, errors.InvalidRequest, "'routingKey' must be left out"),
    ("enqueue", {"queue": None}, errors.InvalidRequest, "'queue' must be there"),
    ("stage", {"stage": LONG}, errors.InvalidRequest, "1 to 255"),
    ("stage", {"queue": "not there"}, errors.QueueNotFound, "queue declare"),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "fields", "error", "text"), VALUES, ids=lambda value: str(value)[:40])
def test_every_wrong_value_has_one_clear_error(
    client: Client, prepared: str, operation: str, fields: dict[str, Any], error: type[errors.PenstockError], text: str
) -> None:
    before = client.call("queue.stat", queue=prepared), client.call("lease.list")
    request = named({**{**VALID, **VALID_TICKETS, **VALID_PUTS}[operation], **fields}, prepared)
    send_it = (lambda: client.call(operation, **request)) if operation in VALID else (lambda: ask(client, request))
    with pytest.raises(error, match=re.escape(text)) as raised:
        send_it()
    assert type(raised.value) is error
    assert len(str(raised.value)) < 1100
    after = client.call("queue.stat", queue=prepared), client.call("lease.list")
    for lease in (*before[1]["leases"], *after[1]["leases"]):
        lease.pop("renewed")
    for stat in (before[0], after[0]):
        stat.pop("refusedMessages")  # a wrong write counts there
    assert after == before


EXTREME: list[tuple[str, dict[str, Any]]] = [
    ("lease.advance", {"messages": 2**62, "bytes": 2**62, "until": 2**62}),
    ("lease.advance", {"messages": None, "bytes": 1}),
    ("lease.advance", {"until": -(2**63)}),
    ("lease.advance", {"waitMs": 2**62, "until": 0}),
    ("lease.advance", {"leaseTimeout": 1e-9}),
    ("lease.plan", {"after": 2**62}),
    ("lease.plan", {"minPartitions": 2**62, "maxMessages": 2**62}),
    ("lease.settle", {"finished": 0}),
    ("batch", {"first": -(2**63), "last": 2**63 - 1}),
    ("batch", {"first": 2**63 - 1, "last": -(2**63)}),
    ("map", {"first": 5, "last": 2}),
    ("browse", {"first": -(2**63), "last": 2**63 - 1, "since": -(2**63), "until": 2**63 - 1}),
    ("browse", {"first": 2**63 - 1, "last": -(2**63)}),
    ("browse", {"states": []}),
    ("browse", {"columns": []}),
    ("stage.discard", {"stages": ["x" * 1000] * 500}),
]


@pytest.mark.parametrize(("operation", "fields"), EXTREME, ids=lambda value: str(value)[:50])
def test_every_extreme_value_is_answered(client: Client, prepared: str, operation: str, fields: dict[str, Any]) -> None:
    request = named({**{**VALID, **VALID_TICKETS}[operation], **fields}, prepared)
    if operation in VALID:
        client.call(operation, **request, timeout_s=20)
    else:
        ask(client, request)
    assert client.call("queue.stat", queue=prepared)["enqueued"] == 10


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", b"{", b"[]", b"null", b'"hello"', b"\xff\xfe{}", b"[" * 100_000, b"1" * 10_000, b'{"queue": "\\ud800"}'],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_request_is_refused(client: Client, queue: str, body: bytes) -> None:
    connection = raw(client)
    asks = [
        lambda: list(connection.do_action(("queue.stat", body))),
        lambda: connection.do_get(flight.Ticket(body)).read_all(),
        lambda: _put(connection, flight.FlightDescriptor.for_command(body)),
        lambda: _put(connection, flight.FlightDescriptor.for_path("enqueue", queue)),
        lambda: list(connection.do_action(("queue.steal", b"{}"))),
    ]
    for ask_one in asks:
        with pytest.raises(flight.FlightServerError) as refusal:
            ask_one()
        assert json.loads(refusal.value.extra_info)["code"] == "INVALID_REQUEST"


def _put(connection: flight.FlightClient, command: flight.FlightDescriptor) -> None:
    writer, reader = connection.do_put(command, BODY)
    with writer:
        writer.done_writing()
        reader.read()


def test_an_oversized_request_is_refused_by_its_size(client: Client) -> None:
    stages = ["x" * 1000] * (MAX_REQUEST_BYTES // 1000)
    with pytest.raises(errors.InvalidRequest, match=f"at most {MAX_REQUEST_BYTES} bytes"):
        client.call("stage.discard", stages=stages)
    with pytest.raises(errors.InvalidRequest, match=f"at most {MAX_REQUEST_BYTES} bytes"):
        list(client.get(op="browse", queue="x" * MAX_REQUEST_BYTES, columns=["body"]))


def test_other_methods_of_flight_are_refused(client: Client, queue: str) -> None:
    connection = raw(client)
    with pytest.raises((flight.FlightError, NotImplementedError, pa.ArrowException)):
        list(connection.list_flights())
    with pytest.raises((flight.FlightError, NotImplementedError, pa.ArrowException)):
        connection.get_flight_info(flight.FlightDescriptor.for_path(queue))
    assert {action.type for action in connection.list_actions()} == ACTIONS.keys()


def test_a_batch_of_wrong_columns_is_refused_and_what_came_before_it_stays(client: Client, queue: str) -> None:
    binary, text = pa.array([b"x"], pa.binary()), pa.array(["x"])
    wrong = {
        "no content": {"subject": text},
        "an unknown column": {"body": binary, "colour": text},
        "both contents": {"body": binary, "message": binary},
        "a part of a bare message next to it": {"message": binary, "subject": text},
        "a wrong type": {"body": pa.array([1])},
        "a null body": {"body": pa.array([None], pa.binary())},
        "a priority above 255": {"body": binary, "priority": pa.array([256], pa.int16())},
        "a time without a zone": {"body": binary, "creationTime": pa.array([0], pa.timestamp("us"))},
    }
    for columns in wrong.values():
        with pytest.raises(errors.InvalidRequest):
            send(client, queue, pa.record_batch(columns))
    assert browse(client, queue) == []
    priority = pa.schema([("body", pa.binary()), ("priority", pa.int16())])
    batches = [pa.record_batch([binary, pa.array([n], pa.int16())], schema=priority) for n in (1, 2, 300, 4)]
    with pytest.raises(errors.InvalidRequest, match="priority"):
        send(client, queue, *batches)
    assert [row["priority"] for row in browse(client, queue, "priority")] == [1, 2]


def test_hello_says_whom_one_talks_to(client: Client, broker: Broker) -> None:
    answer = client.call("hello")
    assert answer["version"] == 1
    assert answer["flight"] == broker.url
    assert set(answer) == {"version", "product", "broker", "flight"}, "no path of the broker's host"
    assert answer["product"].startswith("penstock/")
    assert answer["broker"] == (broker.data_dir / "id").read_text()
