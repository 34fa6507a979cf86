"""Q8: selectors over Flight: a lease takes what matches, a look shows it."""

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
    (lease,) = [each for each in client.call("lease.list")["leases"] if each["lease"] == "reds"]
    assert lease["selector"] == "colour = 'red'"


def test_a_lease_keeps_its_selector_under_its_checkpoint(client: Client, queue: str) -> None:
    send(client, queue, coloured("red", "blue"))
    reader = Reader(client, queue)
    batch = reader.advance(selector="colour = 'red'")
    assert len(reader.read(batch)) == 1
    reader.settle(batch)
    for other in (None, "colour = 'blue'"):
        with pytest.raises(errors.WrongOffset, match="put `selector` back as it was"):
            reader.advance(selector=other)
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
