"""Q8: selectors over Flight: a lease takes matching messages, and a look shows them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import STRING_MAP

from .helpers import Reader, browse, send, sequences


def coloured(*colours: str) -> pa.RecordBatch:
    maps = pa.array([[("colour", colour)] for colour in colours], STRING_MAP)
    return pa.record_batch([pa.array([colour.encode() for colour in colours]), maps], names=["body", "properties"])


def encoded(*colours: str) -> pa.RecordBatch:
    octets = [Message(application_properties={"colour": colour}, data=[colour.encode()]).encode() for colour in colours]
    return pa.record_batch([pa.array(octets, pa.binary())], names=["message"])


def bodies(rows: list[dict[str, Any]]) -> list[bytes]:
    return [row["body"] for row in rows]


def test_a_lease_takes_what_matches_and_leaves_the_rest(client: Client, queue: str) -> None:
    send(client, queue, coloured("red", "blue", "red"))
    send(client, queue, encoded("blue"))
    send(client, queue, encoded("red", "green", "red"))
    reds, rest = Reader(client, queue, "reds"), Reader(client, queue, "rest")
    batch = reds.advance(selector="colour = 'red'", messages=3)
    assert bodies(reds.read(batch)) == [b"red"] * 3
    assert bodies(rest.read(rest.advance())) == [b"blue", b"blue", b"green", b"red"]
    reds.settle(batch)
    assert reds.advance(selector="colour = 'red'") == reds.finished
    send(client, queue, coloured("blue", "red"))
    assert bodies(reds.read(reds.advance(selector="( colour='red' )", messages=3))) == [b"red"]
    (lease,) = [row for row in client.call("lease.list")["leases"] if row["lease"] == "reds"]
    assert lease["selector"] == "colour = 'red'"


def test_a_lease_keeps_its_selector_under_its_checkpoint(client: Client, queue: str) -> None:
    send(client, queue, coloured("red", "blue"))
    reader = Reader(client, queue)
    batch = reader.advance(selector="colour = 'red'")
    assert len(reader.read(batch)) == 1
    reader.settle(batch)
    for different in (None, "colour = 'blue'"):
        with pytest.raises(errors.WrongOffset, match="put `selector` back as it was"):
            reader.advance(selector=different)
    assert reader.advance(selector="colour = 'red'") == reader.finished


def test_a_wrong_selector_names_what_is_wrong_with_it_and_changes_nothing(client: Client, queue: str) -> None:
    send(client, queue, coloured("red"))
    before = client.call("queue.stat", queue=queue)
    with pytest.raises(errors.InvalidRequest, match="at character 9: found the end; allowed here: a name"):
        Reader(client, queue).advance(selector="colour =")
    with pytest.raises(errors.InvalidRequest, match="JMSRedelivered"):
        browse(client, queue, selector="JMSRedelivered = TRUE")
    assert client.call("queue.stat", queue=queue) == before


def test_a_look_shows_what_matches_in_every_state(client: Client, queue: str) -> None:
    send(client, queue, coloured("red", "blue", "red"))
    send(client, queue, encoded("red", "blue"))
    assert sequences(client, queue, selector="colour = 'red'") == [0, 2, 3]
    assert sequences(client, queue, selector="colour = 'red'", first=1, last=2) == [2]
    reader = Reader(client, queue)
    batch = reader.advance(messages=3)
    reader.read(batch)
    reader.settle(batch)
    reader.advance(messages=1)
    assert sequences(client, queue, selector="colour <> 'green'", states=["archived"]) == [0, 1, 2]
    assert sequences(client, queue, selector="colour = 'red'", states=["archived", "acquired"]) == [0, 2, 3]
    assert sequences(client, queue, selector="colour = 'red'") == []


HINT = (
    "in a selector 'priority' is an application property, which no compared message has; for the message's priority write"
    " JMSPriority or amqp.priority"
)


def advanced(reader: Reader, **options: Any) -> dict[str, Any]:
    return reader.client.call("lease.advance", **reader.named, finished=0, fresh=True, **options)


def test_a_lease_is_told_of_a_name_that_may_be_meant_as_a_field(client: Client, queue: str) -> None:
    reader = Reader(client, queue)
    assert "hints" not in advanced(reader, selector="priority > 4")  # there is no message yet
    send(client, queue, coloured("red"))
    assert advanced(reader, selector="priority > 4 AND colour = 'red'")["hints"] == [HINT]
    assert "hints" not in advanced(Reader(client, queue, "other"), selector="JMSPriority > 4")
    assert "hints" not in advanced(Reader(client, queue, "marked"), selector="properties.priority > 4")
    maps = pa.array([[("priority", "1")]], STRING_MAP)
    send(client, queue, pa.record_batch([pa.array([b"x"]), maps], names=["body", "properties"]))
    assert "hints" not in advanced(reader, selector="priority > 4 AND colour = 'red'")


@pytest.mark.parametrize("states", [["available"], ["available", "archived"]])
def test_messages_for_people_come_with_hints(client: Client, queue: str, states: list[str]) -> None:
    send(client, queue, coloured("red"))
    asked = {"queue": queue, "states": states}
    reply = client.call("queue.messages", **asked, selector="priority > 4")
    assert (reply["messages"], reply["hints"]) == ([], [HINT])
    reply = client.call("queue.messages", **asked, selector="priority > 4 OR colour = 'red'")
    assert (len(reply["messages"]), reply["hints"]) == (1, [HINT])
    send(client, queue, encoded("red"))
    assert client.call("queue.messages", **asked, selector="priority > 4")["hints"] == [HINT]
    assert "hints" not in client.call("queue.messages", **asked, selector="JMSPriority > 9")
    assert "hints" not in client.call("queue.messages", **asked, first=9, selector="priority > 4")  # nothing was compared


def test_a_redrive_and_a_binding_come_with_hints(client: Client, queue: str) -> None:
    client.call("queue.alter", queue=queue, options={"rejected": "deadLetter", "deadLetterQueue": "nowhere"})
    send(client, queue, coloured("red"))
    reader = Reader(client, queue)
    reader.read(reader.advance())
    client.call("lease.settleRow", lease=reader.lease, sequence=0, outcome="rejected")
    answer = client.call("queue.redrive", queue=queue, selector="priority > 4")
    assert answer == {"redriven": 0, "stayed": 0, "hints": [HINT]}
    assert client.call("queue.redrive", queue=queue, selector=" ") == {"redriven": 1, "stayed": 0}
    client.call("exchange.declare", exchange=f"to {queue}", type="fanout")
    bound = client.call("exchange.bind", exchange=f"to {queue}", queue=queue, selector="priority > 4")
    assert bound == {"created": True, "hints": [HINT.replace(", which no compared message has", "")]}
    client.call("exchange.delete", exchange=f"to {queue}")


@pytest.mark.parametrize("blank", ["", " \t\n"])
def test_a_blank_selector_is_none_in_every_request(client: Client, queue: str, blank: str) -> None:
    send(client, queue, coloured("red", "blue"))
    assert sequences(client, queue, selector=blank) == [0, 1]
    assert len(client.call("queue.messages", queue=queue, selector=blank)["messages"]) == 2
    client.call("exchange.declare", exchange=f"to {queue}", type="fanout")
    client.call("exchange.bind", exchange=f"to {queue}", queue=queue, selector=blank)
    (exchange,) = [row for row in client.call("exchange.list")["exchanges"] if row["exchange"] == f"to {queue}"]
    assert "selector" not in exchange["bindings"][0]
    client.call("exchange.delete", exchange=f"to {queue}")
    reader = Reader(client, queue)
    batch = reader.advance(selector=blank)
    assert len(reader.read(batch)) == 2
    reader.settle(batch)
    assert reader.advance() == batch  # it is the same lease without a selector


def test_the_properties_of_jms_that_are_no_fields_can_be_selected(client: Client, queue: str) -> None:
    maps = pa.array([[("JMSXAppID", "a"), ("JMS_vendor", "v")], [("JMSXAppID", "b")]], STRING_MAP)
    send(client, queue, pa.record_batch([pa.array([b"0", b"1"]), maps], names=["body", "properties"]))
    assert sequences(client, queue, selector="JMSXAppID = 'b'") == [1]
    assert sequences(client, queue, selector="JMSXAppID = 'a' AND JMS_vendor = 'v'") == [0]
    for refused in ("JMSXDeliveryCount > 1", "JMSFoo = 1"):
        with pytest.raises(errors.InvalidRequest, match="allowed here"):
            browse(client, queue, selector=refused)
