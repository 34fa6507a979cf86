"""Attributes that a queue reads of messages on arrival, alike from both forms (Q7 Q9 Q16 Q17 Q18 Q19)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import amqp
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Symbol, Timestamp, UInt, ULong
from penstock.broker_core.engine.columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from penstock.broker_core.engine.model.options import Rules, checked, rules
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import MESSAGE_COLUMNS, stored_form
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.encoding.uniform_messages import UniformMessages
from penstock.broker_core.service.attributes import attributes_of

NOW = 1_700_000_000_000


def columnar(**columns: Sequence[Any]) -> pa.RecordBatch:
    columns = {"body": [b"x"] * len(next(iter(columns.values()))), **columns}
    batch = pa.record_batch({name: pa.array(values, MESSAGE_COLUMNS[name]) for name, values in columns.items()})
    return stored_form(batch_checks.validate(batch))[1]


def encoded(*messages: amqp.Message) -> pa.RecordBatch:
    return arrived([message.encode() for message in messages]).batch


def declared(type_: str = "fifo", **options: Any) -> Rules:
    return rules(type_, checked(type_, options))


def names(coded: Coded | None) -> list[str | None]:
    assert coded is not None
    return [coded.names[code - 1] if code else None for code in coded.codes.tolist()]


def test_messages_that_say_nothing_have_no_attributes_whatever_the_queue_asks() -> None:
    for batch in (columnar(body=[b"a", b"b"]), encoded(amqp.Message(data=[b"a"]), amqp.Message(data=[b"b"]))):
        for asked in (declared(), declared(groups="held"), declared("lastvalue", key="subject"), declared(duplicateWindow=9)):
            assert attributes_of(batch, asked, NOW) == NO_ATTRIBUTES


@pytest.mark.parametrize("priority", [None, 0, 4, 9, 255])
@pytest.mark.parametrize("count", [1, 3])
def test_what_is_kept_without_arrow_says_what_its_batch_says(priority: int | None, count: int) -> None:
    """Messages with the same header are not made a batch for it, but where the queue looks inside."""
    message = amqp.Message(header=Header(durable=True, priority=priority), properties=Properties(group_id="a"), data=[b"x"])
    payload = arrived([message.encode()] * count).payload
    assert isinstance(payload, UniformMessages)
    for asked in (declared(), declared("priority"), declared(groups="held"), declared(messageTtl=5)):
        assert columns_of(attributes_of(payload, asked, NOW)) == columns_of(attributes_of(payload.batch, asked, NOW))


def columns_of(attributes: Attributes) -> dict[str, Any]:
    columns = {name: value for name, value in vars(attributes).items() if value is not None}
    return {n: names(v) if isinstance(v, Coded) else (v.dtype, v.tolist()) for n, v in columns.items()}


@pytest.mark.parametrize(
    "batch",
    [
        columnar(priority=[0, None, 9], ttl=[None, 5, 0]),
        encoded(*(amqp.Message(header=Header(priority=p, ttl=t), data=[b"x"]) for p, t in [(0, None), (None, 5), (9, 0)])),
    ],
    ids=["columnar", "encoded"],
)
def test_priority_and_time_to_live(batch: pa.RecordBatch) -> None:
    attributes = attributes_of(batch, declared(), NOW)
    assert attributes.priority is not None
    assert attributes.expiry is not None
    assert attributes.priority.tolist() == [1, 0, 10]
    assert attributes.expiry.tolist() == [0, NOW + 5, 0]
    bounded = attributes_of(batch, declared(messageTtl=3), NOW)
    assert bounded.expiry is not None
    assert bounded.expiry.tolist() == [NOW + 3] * 3


def test_an_absolute_expiry_time_is_a_note_of_the_sender_s() -> None:
    """Messages that were read can be written back in one line, years later too."""
    past = datetime.fromtimestamp(NOW / 1000 - 60, timezone.utc)
    assert attributes_of(columnar(absoluteExpiryTime=[past, None]), declared(), NOW) == NO_ATTRIBUTES
    attributes = attributes_of(columnar(absoluteExpiryTime=[past, past], ttl=[None, 7]), declared(), NOW)
    assert attributes.expiry is not None
    assert attributes.expiry.tolist() == [0, NOW + 7]


def test_delays_as_a_time_and_as_milliseconds() -> None:
    def delayed(**annotations: Any) -> amqp.Message:
        symbols = {Symbol(f"x-opt-delivery-{name}"): value for name, value in annotations.items()}
        return amqp.Message(message_annotations=symbols or None, data=[b"x"])

    batch = encoded(delayed(time=Timestamp(NOW + 50)), delayed(delay=UInt(70)), delayed())
    attributes = attributes_of(batch, declared(), NOW)
    assert attributes.due is not None
    assert attributes.due.tolist() == [NOW + 50, NOW + 70, 0]
    assert attributes_of(batch, declared(), NOW + 100).due is not None  # the delay runs from the arrival
    assert attributes_of(encoded(delayed(time=Timestamp(NOW - 1))), declared(), NOW) == NO_ATTRIBUTES
    due = datetime.fromtimestamp(NOW / 1000 + 2, timezone.utc)
    attributes = attributes_of(columnar(deliveryTime=[due, None]), declared(), NOW)
    assert attributes.due is not None
    assert attributes.due.tolist() == [NOW + 2000, 0]


GROUPED = [("a", None), (None, None), ("b", 7), ("a", 0xFFFFFFFF)]


@pytest.mark.parametrize(
    "batch",
    [
        columnar(groupId=[g for g, _ in GROUPED], groupSequence=[s for _, s in GROUPED]),
        encoded(
            *(
                amqp.Message(properties=Properties(group_id=g, group_sequence=None if s is None else UInt(s)), data=[b"x"])
                for g, s in GROUPED
            )
        ),
    ],
    ids=["columnar", "encoded"],
)
def test_groups_and_the_message_that_closes_one(batch: pa.RecordBatch) -> None:
    attributes = attributes_of(batch, declared(groups="held"), NOW)
    assert names(attributes.group) == ["a", None, "b", "a"]
    assert attributes.closes is not None
    assert attributes.closes.tolist() == [0, 0, 0, 1]
    assert attributes_of(batch, declared(), NOW) == NO_ATTRIBUTES


def test_keys_of_a_last_value_queue() -> None:
    batch = encoded(
        amqp.Message(properties=Properties(subject="s"), application_properties={"k": UInt(7)}, data=[b"x"]),
        amqp.Message(application_properties={"other": "o"}, data=[b"x"]),
    )
    assert names(attributes_of(batch, declared("lastvalue", key="subject"), NOW).key) == ["s", None]
    assert names(attributes_of(batch, declared("lastvalue", key="properties.k"), NOW).key) == ["7", None]
    columns = columnar(properties=[[("k", "7")], None])
    assert names(attributes_of(columns, declared("lastvalue", key="properties.k"), NOW).key) == ["7", None]


def test_ids_are_typed_and_a_string_is_the_same_from_both_sides() -> None:
    ids = [ULong(1), "1", b"1", uuid.UUID(int=1), None, ULong(1)]
    batch = encoded(*(amqp.Message(properties=Properties(message_id=message_id), data=[b"x"]) for message_id in ids))
    coded = attributes_of(batch, declared(duplicateWindow=9), NOW).ids
    assert coded is not None
    digests = coded.tolist()
    assert digests[0] == digests[5]
    assert digests[4] == b""
    assert len(set(digests)) == 5
    spoken = attributes_of(columnar(messageId=["1", None]), declared(duplicateWindow=9), NOW).ids
    assert spoken is not None
    assert spoken.tolist() == [digests[1], b""]


def test_a_message_that_cannot_be_read_has_no_attributes_and_costs_the_others_nothing() -> None:
    good = amqp.Message(properties=Properties(group_id="a", message_id="1"), data=[b"x"]).encode()
    bad = good.replace(b"\xa1\x01a", b"\x83\x01a")  # a string's constructor became a timestamp's, which then ends too early
    batch = pa.record_batch({"message": pa.array([good, bad, good], pa.binary())})
    attributes = attributes_of(batch, declared(groups="held", duplicateWindow=9), NOW)
    assert names(attributes.group) == ["a", None, "a"]
    assert attributes.ids is not None
    assert attributes.ids.tolist()[0] == attributes.ids.tolist()[2]
